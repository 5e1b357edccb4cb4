//! Ends connections whose other end does not read: otherwise the region would keep the data for them for ever.

use axum::serve::Listener;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A connection on which nothing could be written for this long is ended.
const PATIENCE: Duration = Duration::from_secs(30);

/// A listener whose connections end if the other end does not read.
#[derive(Debug)]
pub(super) struct Impatient<L>(pub(super) L);

impl<L: Listener> Listener for Impatient<L> {
    type Io = Writing<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (io, address) = self.0.accept().await;
        (Writing { io, patience: PATIENCE, waiting: None }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

/// A connection that fails if nothing can be written for [`PATIENCE`].
#[derive(Debug)]
pub(super) struct Writing<S> {
    pub(super) io: S,
    patience: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> Writing<S> {
    fn bounded<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let patience = self.patience;
        ready!(self.waiting.get_or_insert_with(|| Box::pin(sleep(patience))).as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the other end does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Writing<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Writing<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.bounded(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.bounded(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.bounded(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.bounded(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_connection_ends_when_the_other_end_does_not_read_and_only_then() {
        let (io, mut other) = tokio::io::duplex(4);
        let patience = Duration::from_millis(50);
        let mut writing = Writing { io, patience, waiting: None };
        writing.write_all(b"four").await.expect("there is room");
        sleep(patience * 2).await;
        let read = tokio::spawn(async move {
            let mut bytes = [0; 8];
            tokio::io::AsyncReadExt::read_exact(&mut other, &mut bytes).await.expect("eight bytes");
            other
        });
        writing.write_all(b"more").await.expect("it is read");
        let _kept_open = read.await.expect("it reads");
        let stuck = writing.write_all(b"more than there is room for").await.expect_err("nobody reads");
        assert_eq!(stuck.kind(), io::ErrorKind::TimedOut);
    }
}
