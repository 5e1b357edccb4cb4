//! The death of a process: a future that is polled a given number of times, and then never again.

use std::pin::Pin;
use std::task::{Context, Poll};

/// A future with a number of polls to live. `None`: it died before it completed.
pub(crate) struct Mortal<T> {
    inner: Pin<Box<dyn Future<Output = T> + Send>>,
    left: u64,
    /// The number of polls so far.
    pub(crate) polled: u64,
}

impl<T> Mortal<T> {
    pub(crate) fn new(inner: impl Future<Output = T> + Send + 'static, polls: u64) -> Self {
        Self { inner: Box::pin(inner), left: polls, polled: 0 }
    }

    /// Lets it live without a limit.
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
            // Statements that were sent to the database are executed although it dies.
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}
