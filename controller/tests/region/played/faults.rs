//! How a process dies: a future that is polled so often, and no more.

use std::pin::Pin;
use std::task::{Context, Poll};

/// A future with a number of polls to live. `None`: it died before its end.
pub(crate) struct Mortal<T> {
    inner: Pin<Box<dyn Future<Output = T> + Send>>,
    left: u64,
    /// How often it was polled.
    pub(crate) polled: u64,
}

impl<T> Mortal<T> {
    pub(crate) fn new(inner: impl Future<Output = T> + Send + 'static, polls: u64) -> Self {
        Self { inner: Box::pin(inner), left: polls, polled: 0 }
    }

    /// Another lease of life.
    pub(crate) fn revive(&mut self) {
        self.left = u64::MAX;
    }
}

impl<T> Future for Mortal<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        self.polled += 1;
        match self.inner.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            // What was sent to the database is on its way when it dies.
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}
