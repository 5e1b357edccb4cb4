//! The listeners: TCP, and the unix socket of this host. A connection on which nothing comes, or nothing can be written, ends.

use super::App;
use super::endpoints::router;
use super::guard::Peer;
use super::stall::{Impatient, Writing};
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the region is gone, which is a stop too.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Answers on a TCP socket until the region stops, and requests under way have ended.
pub async fn serve_tcp(listener: TcpListener, app: App, stopping: watch::Receiver<bool>) {
    let peer = |_: &Writing<TcpStream>, address: SocketAddr| Peer::Tcp(address);
    serve(Impatient(listener), peer, &app, stopping).await;
}

/// Answers on a unix socket until the region stops, and requests under way have ended.
pub async fn serve_unix(listener: UnixListener, app: App, stopping: watch::Receiver<bool>) {
    let peer =
        |stream: &Writing<UnixStream>, _| Peer::Unix { uid: stream.io.peer_cred().ok().map(|c| c.uid()) };
    serve(Impatient(listener), peer, &app, stopping).await;
}

async fn serve<L: Listener>(
    mut listener: L,
    peer: impl Fn(&L::Io, L::Addr) -> Peer,
    app: &App,
    stopping: watch::Receiver<bool>,
) {
    let router = router(app.clone());
    let mut http = http1::Builder::new();
    // Until a request's headers are whole; between two requests as well.
    http.timer(TokioTimer::new()).header_read_timeout(app.0.parts.client_timeout);
    let mut connections = JoinSet::new();
    loop {
        let (io, address) = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(stopping.clone()) => break,
            Some(_) = connections.join_next() => continue,
        };
        let peer = peer(&io, address);
        connections.spawn(converse(http.clone(), io, peer, router.clone(), stopping.clone()));
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// One connection, to its end.
async fn converse<S>(http: http1::Builder, io: S, peer: Peer, router: Router, stopping: watch::Receiver<bool>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        router.call(request)
    });
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(io), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
