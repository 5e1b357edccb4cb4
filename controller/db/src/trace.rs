//! The trace that work is done for: a W3C `traceparent`, carried from who asks to who acts.
//!
//! Whoever works for a trace does so [`within`] it; what is written there is noted with it, and the queue hands it on to
//! who handles an object.

use std::sync::Arc;

tokio::task_local! {
    static TRACE: Option<Arc<str>>;
}

/// Does `work` for a trace, or for none. Tasks that it spawns are not part of that.
pub async fn within<F: Future>(trace: Option<String>, work: F) -> F::Output {
    TRACE.scope(trace.map(Arc::from), work).await
}

/// The trace that is worked for.
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
