//! The listeners: TCP, and the unix socket of this host.

use super::App;
use super::endpoints::router;
use super::guard::Peer;
use super::stall::Impatient;
use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

impl Connected<IncomingStream<'_, Impatient<TcpListener>>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Impatient<TcpListener>>) -> Self {
        Self::Tcp(*stream.remote_addr())
    }
}

impl Connected<IncomingStream<'_, Impatient<UnixListener>>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Impatient<UnixListener>>) -> Self {
        Self::Unix { uid: stream.io().io.peer_cred().ok().map(|c| c.uid()) }
    }
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the region is gone, which is a stop too.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Answers on a TCP socket until the region stops, and requests under way have ended.
pub async fn serve_tcp(listener: TcpListener, app: App, stopping: watch::Receiver<bool>) {
    let service = router(app).into_make_service_with_connect_info::<Peer>();
    if let Err(error) =
        axum::serve(Impatient(listener), service).with_graceful_shutdown(stopped(stopping)).await
    {
        tracing::error!(%error, "the API's TCP listener ended");
    }
}

/// Answers on a unix socket until the region stops, and requests under way have ended.
pub async fn serve_unix(listener: UnixListener, app: App, stopping: watch::Receiver<bool>) {
    let service = router(app).into_make_service_with_connect_info::<Peer>();
    if let Err(error) =
        axum::serve(Impatient(listener), service).with_graceful_shutdown(stopped(stopping)).await
    {
        tracing::error!(%error, "the API's unix listener ended");
    }
}
