//! Counts statements and the rows that they return, so that no work reads the whole fleet by accident.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use tracing::field::{Field, Visit};
use tracing::{Dispatch, Event, Instrument, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// The span in which statements are counted. Other statements run at the same time, for example those of the notifier.
const COUNTED: &str = "counted";

/// A second subscriber beside the counting one. With a single one, tracing asks only the thread that meets an event first whether it is
/// enabled. If that is a thread of another test, the event is off in all threads.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

/// The statements of one piece of work.
#[derive(Debug, Default)]
pub(super) struct Statements {
    /// The number of statements by their first words.
    pub(super) by_words: BTreeMap<String, u64>,
    /// The number of rows that they returned or changed.
    pub(super) rows: u64,
}

impl Statements {
    pub(super) fn count(&self) -> u64 {
        self.by_words.values().sum()
    }

    /// Runs the work, and counts statements by sqlx's events. The runtime must have one thread.
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
