//! Statements are counted, and the rows that they read, so that nothing reads the fleet by accident.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use tracing::field::{Field, Visit};
use tracing::{Dispatch, Event, Instrument, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// The span that statements are counted in: others run beside it, those of the notifier for example.
const COUNTED: &str = "counted";

/// A second subscriber beside the counting one. With a single one, tracing asks only the thread that meets an event first. Threads of other tests
/// want no events, so the event would be off in all threads.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

/// Statements of one piece of work.
#[derive(Debug, Default)]
pub(super) struct Statements {
    /// How often each began with these words.
    pub(super) by_words: BTreeMap<String, u64>,
    /// Rows that they returned or changed.
    pub(super) rows: u64,
}

impl Statements {
    pub(super) fn count(&self) -> u64 {
        self.by_words.values().sum()
    }

    /// Does the work, and counts what sqlx says of its statements. The runtime must have one thread.
    pub(super) async fn of<T>(work: impl Future<Output = T>) -> (T, Self) {
        LazyLock::force(&SECOND);
        let counter = Counter::default();
        let subscriber = tracing_subscriber::registry().with(counter.clone());
        let _guard = tracing::subscriber::set_default(subscriber);
        let done = work.instrument(tracing::info_span!(COUNTED)).await;
        let counted = std::mem::take(&mut *counter.0.lock().expect("a lock"));
        (done, counted)
    }
}

#[derive(Clone, Default)]
struct Counter(Arc<Mutex<Statements>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Counter {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let is_counted = |event| {
            context.event_scope(event).is_some_and(|mut spans| spans.any(|span| span.name() == COUNTED))
        };
        if event.metadata().target() == "sqlx::query" && is_counted(event) {
            event.record(&mut *self.0.lock().expect("a lock"));
        }
    }
}

impl Visit for Statements {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if matches!(field.name(), "rows_returned" | "rows_affected") {
            self.rows += value;
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "summary" {
            *self.by_words.entry(value.to_owned()).or_default() += 1;
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}
