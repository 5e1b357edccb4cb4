//! Accepts connections and completes their TLS handshakes independently, so that a stalled one does
//! not delay the others.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use tracing::warn;

const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Connections ready for gRPC.
pub(crate) type Incoming = ReceiverStream<io::Result<Connection>>;

/// Accepts connections until the returned stream is dropped.
pub(crate) fn accept(listener: Listener, tls: Option<TlsAcceptor>) -> Incoming {
    let (ready, incoming) = mpsc::channel(8);
    tokio::spawn(async move {
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok(stream) => stream,
                    Err(error) => {
                        let _ = ready.send(Err(error)).await;
                        return;
                    }
                },
                () = ready.closed() => return,
            };
            let (ready, tls) = (ready.clone(), tls.clone());
            tokio::spawn(async move {
                let connection = match tls {
                    None => Connection(stream),
                    Some(tls) => match tokio::time::timeout(HANDSHAKE_LIMIT, tls.accept(stream)).await {
                        Ok(Ok(stream)) => Connection(Box::pin(stream)),
                        Ok(Err(error)) => return warn!(%error, "refused a connection"),
                        Err(_) => return warn!("a connection did not finish its TLS handshake"),
                    },
                };
                let _ = ready.send(Ok(connection)).await;
            });
        }
    });
    ReceiverStream::new(incoming)
}

/// The source of connections.
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Pin<Box<dyn Io>>> {
        Ok(match self {
            Self::Unix(listener) => Box::pin(listener.accept().await?.0),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Box::pin(stream)
            }
        })
    }
}

trait Io: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Io for T {}

/// One connection, encrypted or not.
pub(crate) struct Connection(Pin<Box<dyn Io>>);

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.as_mut().poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_shutdown(cx)
    }
}
