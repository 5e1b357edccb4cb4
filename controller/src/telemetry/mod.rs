//! Traces: which request what is done goes back to.
//!
//! A request belongs to the trace that its `traceparent` names, or to a new one; its log lines have `trace_id` and
//! `request_id`, and its answer the latter. The store writes the trace beside what it writes (`basalt_db::trace`), webhooks
//! are told of it, the queue keeps it for who handles the object, and concerns and power commands take it to the rack; so the
//! logs of region and rack have the same `trace_id` from the request to the BMC.
//!
//! With the setting `otlp-endpoint` spans go to a collector, by OTLP over HTTP. Recording one is a push into a bounded queue:
//! a collector that is slow or away costs spans, which are counted, and nothing else.
//!
//! | span | is |
//! | --- | --- |
//! | `PUT /api/v1/{plural}/{name}`, … | a request |
//! | `reconcile Machine`, … | one handling of an object by the driver |
//! | `step power-on`, … | its beginning of a step |
//! | `concern dhcp`, … | from telling a rack what it is to do until it answers |
//! | `power ON`, … | from sending a command to a rack until it tells the result |

pub mod context;
mod otlp;

pub use context::Context;
pub use otlp::OtlpError;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc;

/// Spans that may wait for the collector.
const QUEUE: usize = 8192;

/// From whose side a span is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Inside.
    Internal,
    /// Of who is asked.
    Server,
    /// Of who asks.
    Client,
}

/// Something that was done.
#[derive(Clone, Debug)]
pub struct Span {
    /// Itself, and its trace.
    pub context: Context,
    /// The span that caused it.
    pub parent: Option<Context>,
    /// What was done.
    pub name: String,
    /// From whose side.
    pub side: Side,
    /// When it began.
    pub began: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// More about it.
    pub attributes: Vec<(&'static str, String)>,
    /// Why it failed.
    pub error: Option<String>,
}

/// Where spans go; nowhere by default. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Telemetry(Option<Arc<Export>>);

#[derive(Debug)]
struct Export {
    queue: mpsc::Sender<Span>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    exported: AtomicU64,
    dropped: AtomicU64,
}

/// The span that this is done in.
#[must_use]
pub fn here() -> Option<Context> {
    basalt_db::trace::current().as_deref().and_then(Context::parse)
}

impl Telemetry {
    /// Sends spans to the collector at `endpoint`, like `http://127.0.0.1:4318`, until the process ends.
    ///
    /// # Errors
    /// The endpoint is no URL, or TLS cannot be spoken.
    pub fn to(endpoint: &str, instance: &str) -> Result<Self, OtlpError> {
        let (queue, spans) = mpsc::channel(QUEUE);
        let counters = Arc::new(Counters::default());
        let exporter = otlp::Exporter::new(endpoint, instance, Arc::clone(&counters))?;
        tokio::spawn(exporter.run(spans));
        Ok(Self(Some(Arc::new(Export { queue, counters }))))
    }

    /// Whether anybody wants spans.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Does `work` as a span of the trace that is worked for, or just so where there is none.
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn span<T, E>(
        &self,
        name: String,
        attributes: Vec<(&'static str, String)>,
        work: impl Future<Output = Result<T, E>>,
        failed: impl FnOnce(&E) -> String,
    ) -> Result<T, E> {
        let Some(parent) = here() else { return work.await };
        let (context, began, since) = (parent.child(), SystemTime::now(), Instant::now());
        let ended = basalt_db::trace::within(Some(context.to_string()), work).await;
        self.record(Span {
            context,
            parent: Some(parent),
            name,
            side: Side::Internal,
            began,
            took: since.elapsed(),
            attributes,
            error: ended.as_ref().err().map(failed),
        });
        ended
    }

    /// Hands over a span, or drops it when too many wait. Who began the trace may have said that it is not recorded.
    pub fn record(&self, span: Span) {
        let Some(export) = self.0.as_ref().filter(|_| span.context.sampled) else { return };
        if export.queue.try_send(span).is_err() {
            export.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Spans that a collector took, and those that none did.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        self.0.as_ref().map_or((0, 0), |export| {
            let Counters { exported, dropped } = &*export.counters;
            (exported.load(Ordering::Relaxed), dropped.load(Ordering::Relaxed))
        })
    }
}
