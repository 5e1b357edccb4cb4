//! Traces: they connect work to the request that caused it.
//!
//! A request belongs to the trace in its `traceparent`, or to a new one. Its log lines have `trace_id` and `request_id`, and its
//! answer has `request_id`. The store writes the trace beside its rows (`basalt_db::trace`), and webhooks receive it. The queue
//! passes the trace to the handler of the object, and concerns and power commands take it to the rack. So the logs of
//! region and rack have the same `trace_id` from the request to the BMC.
//!
//! With the setting `otlp-endpoint`, spans go to a collector, by OTLP over HTTP. To record a span is to push it into a bounded queue.
//! If the collector is slow or unreachable, spans are dropped and counted, and nothing else suffers.
//!
//! | span | is |
//! | --- | --- |
//! | `PUT /api/v1/{plural}/{name}`, … | a request |
//! | `reconcile Machine`, … | one reconciliation of an object by the driver |
//! | `step power-on`, … | the beginning of a step by the driver |
//! | `concern dhcp`, … | the time from the sending of a concern to the rack's answer |
//! | `power ON`, … | the time from the sending of a command to the rack's result |

pub mod context;
mod otlp;

pub use context::Context;
pub use otlp::OtlpError;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc;

/// The number of spans that may wait for the collector.
const QUEUE: usize = 8192;

/// The kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Work inside this process.
    Internal,
    /// The server of a request.
    Server,
    /// The client of a request.
    Client,
}

/// A piece of work with its duration.
#[derive(Clone, Debug)]
pub struct Span {
    /// The ids of the span and of its trace.
    pub context: Context,
    /// The span that caused it.
    pub parent: Option<Context>,
    /// The name of the work.
    pub name: String,
    /// The kind of the span.
    pub side: Side,
    /// When it began.
    pub began: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// Further attributes, by name.
    pub attributes: Vec<(&'static str, String)>,
    /// The error, if the work failed.
    pub error: Option<String>,
}

/// The sender of spans; by default it drops them. Cheap to clone.
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

/// The present span.
#[must_use]
pub fn here() -> Option<Context> {
    basalt_db::trace::current().as_deref().and_then(Context::parse)
}

impl Telemetry {
    /// Sends spans to the collector at `endpoint`, like `http://127.0.0.1:4318`, until the process ends.
    ///
    /// # Errors
    /// Fails if the endpoint is no URL, or if TLS cannot be used.
    pub fn to(endpoint: &str, instance: &str) -> Result<Self, OtlpError> {
        let (queue, spans) = mpsc::channel(QUEUE);
        let counters = Arc::new(Counters::default());
        let exporter = otlp::Exporter::new(endpoint, instance, Arc::clone(&counters))?;
        tokio::spawn(exporter.run(spans));
        Ok(Self(Some(Arc::new(Export { queue, counters }))))
    }

    /// True if spans are sent.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Runs `work` as a span of the present trace. Without a trace, it only runs `work`.
    ///
    /// # Errors
    /// The errors of `work`.
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

    /// Sends a span, or drops it if too many wait. A trace may be marked as not recorded; its spans are not sent.
    pub fn record(&self, span: Span) {
        let Some(export) = self.0.as_ref().filter(|_| span.context.sampled) else { return };
        if export.queue.try_send(span).is_err() {
            export.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The numbers of spans that the collector took, and of spans that were dropped.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        self.0.as_ref().map_or((0, 0), |export| {
            let Counters { exported, dropped } = &*export.counters;
            (exported.load(Ordering::Relaxed), dropped.load(Ordering::Relaxed))
        })
    }
}
