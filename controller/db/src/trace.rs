//! The trace of the present work: a W3C `traceparent`, handed on from the request to the work that it causes.
//!
//! Work for a trace runs inside [`within`]. Rows that it writes hold the trace, and the queue passes the trace to the
//! handler of the object.

use std::sync::Arc;

tokio::task_local! {
    static TRACE: Option<Arc<str>>;
}

/// Runs `work` in a trace, or in none. Tasks that it spawns are not in the trace.
pub async fn within<F: Future>(trace: Option<String>, work: F) -> F::Output {
    TRACE.scope(trace.map(Arc::from), work).await
}

/// The trace of the present work.
#[must_use]
pub fn current() -> Option<Arc<str>> {
    TRACE.try_with(Clone::clone).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_innermost_trace_counts() {
        assert_eq!(current(), None);
        within(Some("a".to_owned()), async {
            within(None, async { assert_eq!(current(), None) }).await;
            assert_eq!(current().as_deref(), Some("a"));
        })
        .await;
    }
}
