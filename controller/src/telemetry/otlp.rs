//! Sends spans by OTLP 1.x over HTTP, with binary protobuf: `POST ENDPOINT/v1/traces`. The messages are those of
//! opentelemetry-proto's `trace/v1/trace.proto`, with the fields in use.

use super::{Counters, Side, Span};
use prost::Message;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Url};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The largest number of spans in one request.
const BATCH: usize = 512;

/// The longest time for which a span waits for others.
const GATHER: Duration = Duration::from_millis(500);

/// The longest time of a request to the collector.
const PATIENCE: Duration = Duration::from_secs(5);

/// The shortest time between two log lines about an unreachable collector.
const COMPLAIN: Duration = Duration::from_secs(60);

/// The reason why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The endpoint is no URL.
    #[error(
        "the setting otlp-endpoint (or OTEL_EXPORTER_OTLP_ENDPOINT) is {0:?}, which is no http or https URL; give one like http://127.0.0.1:4318"
    )]
    Endpoint(String),
    /// TLS or the HTTP client cannot be configured.
    #[error("spans cannot be exported: {0}")]
    Client(String),
}

#[derive(Clone, PartialEq, Message)]
struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<WireSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct WireSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    string_value: Option<String>,
}

/// The value of `STATUS_CODE_ERROR`.
const ERROR: i32 = 2;

fn attribute(key: &str, value: String) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { string_value: Some(value) }) }
}

fn nanos(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn wire(span: Span) -> WireSpan {
    let start = nanos(span.began);
    WireSpan {
        trace_id: span.context.trace.to_vec(),
        span_id: span.context.span.to_vec(),
        parent_span_id: span.parent.map(|parent| parent.span.to_vec()).unwrap_or_default(),
        name: span.name,
        kind: match span.side {
            Side::Internal => 1,
            Side::Server => 2,
            Side::Client => 3,
        },
        start_time_unix_nano: start,
        end_time_unix_nano: start.saturating_add(u64::try_from(span.took.as_nanos()).unwrap_or(u64::MAX)),
        attributes: span.attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
        status: span.error.map(|message| Status { message, code: ERROR }),
    }
}

/// Sends recorded spans.
pub(super) struct Exporter {
    client: Client,
    url: Url,
    resource: Resource,
    counters: Arc<Counters>,
}

impl Exporter {
    pub(super) fn new(endpoint: &str, instance: &str, counters: Arc<Counters>) -> Result<Self, OtlpError> {
        let wrong = || OtlpError::Endpoint(endpoint.to_owned());
        let url: Url =
            format!("{}/v1/traces", endpoint.trim_end_matches('/')).parse().map_err(|_| wrong())?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(wrong());
        }
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(PATIENCE)
            .tls_backend_preconfigured(crate::tls::with_system_roots().map_err(OtlpError::Client)?)
            .build()
            .map_err(|error| OtlpError::Client(error.to_string()))?;
        let resource = Resource {
            attributes: vec![
                attribute("service.name", "basalt-region".to_owned()),
                attribute("service.version", env!("CARGO_PKG_VERSION").to_owned()),
                attribute("service.instance.id", instance.to_owned()),
            ],
        };
        Ok(Self { client, url, resource, counters })
    }

    pub(super) async fn run(self, mut spans: mpsc::Receiver<Span>) {
        let mut complained: Option<Instant> = None;
        let mut batch = Vec::with_capacity(BATCH);
        while spans.recv_many(&mut batch, BATCH).await > 0 {
            let until = Instant::now() + GATHER;
            while batch.len() < BATCH {
                let room = BATCH.saturating_sub(batch.len());
                match tokio::time::timeout_at(until, spans.recv_many(&mut batch, room)).await {
                    Ok(more) if more > 0 => {}
                    _ => break,
                }
            }
            let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
            match self.export(std::mem::take(&mut batch)).await {
                Ok(()) => drop(self.counters.exported.fetch_add(count, Ordering::Relaxed)),
                Err(error) => {
                    self.counters.dropped.fetch_add(count, Ordering::Relaxed);
                    if complained.is_none_or(|at| at.elapsed() > COMPLAIN) {
                        tracing::warn!(url = %self.url, error, "the collector takes no spans; they are dropped");
                        complained = Some(Instant::now());
                    }
                }
            }
        }
    }

    async fn export(&self, spans: Vec<Span>) -> Result<(), String> {
        let scope = Scope { name: "basalt".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let scope_spans = ScopeSpans { scope: Some(scope), spans: spans.into_iter().map(wire).collect() };
        let of_resource =
            ResourceSpans { resource: Some(self.resource.clone()), scope_spans: vec![scope_spans] };
        let body = ExportRequest { resource_spans: vec![of_resource] }.encode_to_vec();
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/x-protobuf");
        let answer = request.body(body).send().await.map_err(|error| error.to_string())?;
        if answer.status().is_success() {
            return Ok(());
        }
        Err(format!("answered {}", answer.status()))
    }
}
