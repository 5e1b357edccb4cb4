//! Traces: one trace leads from a request through the driver to the rack and to webhooks. A collector that fails has no effect on
//! requests.

use crate::linked::Linked;
use crate::metrics::scrape;
use crate::receiver::{Behaviour, Receiver};
use crate::support::{Lab, lab_with};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use basalt_db::Blob;
use basalt_engine::Policy;
use basalt_region::controller::Controller;
use basalt_region::telemetry::{self, Context, Side};
use basalt_region::webhooks::Options;
use prost::Message;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The part of opentelemetry-proto's `ExportTraceServiceRequest` that the tests read.
#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<Resource>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<Scope>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(fixed64, tag = "7")]
    began: u64,
    #[prost(fixed64, tag = "8")]
    ended: u64,
}

#[derive(Clone)]
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Span>>>,
    came: Arc<watch::Sender<()>>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let this = Self { url, spans: Arc::default(), came: Arc::new(watch::Sender::new(())) };
        let router = Router::new().route("/v1/traces", post(Self::take)).with_state(this.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        this
    }

    async fn take(State(this): State<Self>, body: Bytes) {
        let export = Export::decode(body).expect("OTLP");
        let spans = export.resources.into_iter().flat_map(|r| r.scopes).flat_map(|s| s.spans);
        this.spans.lock().unwrap().extend(spans);
        this.came.send_replace(());
    }

    /// Waits for the first span that matches.
    async fn span(&self, what: &str, is: impl Fn(&Span) -> bool) -> Span {
        let mut came = self.came.subscribe();
        let found = async {
            loop {
                if let Some(span) = self.spans.lock().unwrap().iter().find(|span| is(span)) {
                    return span.clone();
                }
                came.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(60), found).await.unwrap_or_else(|_| {
            let names: Vec<_> = self.spans.lock().unwrap().iter().map(|s| s.name.clone()).collect();
            panic!("no span of {what} in 60 s, but {names:?}")
        })
    }

    /// Waits for the first span of that trace whose name begins with `name`.
    async fn named(&self, name: &str, trace: &str) -> Span {
        self.span(name, |span| span.name.starts_with(name) && hex::encode(&span.trace) == trace).await
    }
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
const UNSAMPLED: &str = "1af7651916cd43dd8448eb211c80319c";

/// Declares a network, and the image with which machines are inspected.
async fn furnish(lab: &Lab) {
    ephemeral_image(lab).await;
    lab.api.declare("/api/v1/fabrics/default", "{}").await;
    let vlan = r#"{"fabric":"default","vid":0,"dhcp":{"enabled":true}}"#;
    lab.api.declare("/api/v1/vlans/default.0", vlan).await;
    lab.api.declare("/api/v1/subnets/lab", r#"{"vlan":"default.0","cidr":"10.77.0.0/16"}"#).await;
}

/// Declares an image with which machines are inspected. Its files are stored.
pub(crate) async fn ephemeral_image(lab: &Lab) {
    let mut files = Vec::new();
    for (file, byte) in [("kernel", 1), ("initrd", 2), ("squashfs", 3)] {
        let blob = Blob { sha256: [byte; 32], size: 1000, location: "here".to_owned() };
        lab.region.store().put_blob(&blob).await.unwrap();
        files.push(format!(r#""{file}":{{"sha256":"{}"}}"#, hex::encode(blob.sha256)));
    }
    let files = files.join(",");
    let image = r#""os":"basalt","release":"1","architecture":"amd64","purpose":"ephemeral""#;
    lab.api.declare("/api/v1/images/ephemeral", &format!(r#"{{{image},"files":{{{files}}}}}"#)).await;
}

fn machine(n: u8) -> String {
    let bmc =
        format!(r#"{{"driver":"ipmi","address":"10.77.1.{n}","username":"admin","password":"secret"}}"#);
    format!(r#"{{"spec":{{"architecture":"amd64","boot_macs":["52:54:00:00:00:{n:02x}"],"bmc":{bmc}}}}}"#)
}

#[tokio::test]
async fn one_trace_leads_from_a_request_to_the_rack_that_acts() {
    let collector = Collector::start().await;
    let url = collector.url.clone();
    let lab = lab_with(|settings| settings.otlp_endpoint = Some(url)).await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    furnish(&lab).await;
    let before = scrape(&lab).await;
    let rack = Linked::come(&lab, controller.rpc_address(), "rack1", "10.77.0.1/16").await;
    let unsampled = format!("00-{UNSAMPLED}-{CALLER}-00");
    lab.api.send("PUT", "/api/v1/zones/a", &[("traceparent", &unsampled)], r#"{"spec":{}}"#).await;
    let traceparent = format!("00-{TRACE}-{CALLER}-01");
    let headers = [("traceparent", traceparent.as_str())];
    let answer = lab.api.send("PUT", "/api/v1/machines/m", &headers, machine(1)).await;
    assert_eq!(answer.status, 201, "{}", answer.text());

    let request = collector.named("PUT /api/v1/{plural}/{name}", TRACE).await;
    assert_eq!(hex::encode(&request.parent), CALLER);
    assert_eq!(answer.headers["x-request-id"], format!("{TRACE}-{}", hex::encode(&request.id)));
    assert!(request.began > 0 && request.began <= request.ended);
    let handled = collector.named("reconcile Machine", TRACE).await;
    assert_eq!(handled.parent, request.id);
    let power = collector.named("power ", TRACE).await;
    let step = collector.span("the command's step", |span| span.id == power.parent).await;
    assert!(step.name.starts_with("step "), "{step:?}");
    let handling = collector.span("the step's handling", |span| span.id == step.parent).await;
    assert_eq!((handling.name.as_str(), hex::encode(&handling.trace).as_str()), ("reconcile Machine", TRACE));
    let concern = collector.named("concern boot", TRACE).await;
    let decided = collector.span("the concern's writer", |span| span.id == concern.parent).await;
    assert_eq!(decided.name, "reconcile Rack");

    // The rack received the ids of exactly these spans.
    let told = rack.told();
    let of = |span: &Span| format!("00-{TRACE}-{}-01", hex::encode(&span.id));
    assert!(told.commands.iter().any(|command| command.traceparent == of(&power)), "{told:?}");
    assert!(told.concerns.iter().any(|version| version.traceparent == of(&concern)), "{told:?}");

    // A request without a trace begins a new one. A trace that is not sampled is not recorded.
    let own = lab.api.put("/api/v1/machines/n", &machine(2)).await;
    let own = own.headers["x-request-id"].to_str().unwrap()[..32].to_owned();
    assert_ne!(own, TRACE);
    collector.named("reconcile Machine", &own).await;
    let spans = collector.spans.lock().unwrap().clone();
    assert!(spans.iter().all(|span| hex::encode(&span.trace) != UNSAMPLED), "{spans:?}");

    let after = scrape(&lab).await;
    let moved = |series: &str| after[series] - before.get(series).copied().unwrap_or_default();
    for (series, least) in [
        (r#"basalt_rack_rpcs_total{rpc="Enrol",code="Ok"}"#, 1.0),
        (r#"basalt_rack_rpcs_total{rpc="Link",code="Ok"}"#, 1.0),
        (r#"basalt_rack_rpc_duration_seconds_count{rpc="Link"}"#, 1.0),
        (r#"basalt_rack_messages_total{direction="to_rack",type="power"}"#, 1.0),
        (r#"basalt_rack_message_duration_seconds_count{type="facts"}"#, 1.0),
        (r#"basalt_rack_concern_bytes_total{concern="boot"}"#, 1.0),
        (r#"basalt_rack_concern_answers_total{outcome="applied"}"#, 1.0),
        ("basalt_rack_facts_total", 1.0),
        ("basalt_rack_links", 1.0),
        (r#"basalt_power_commands_total{result="ok"}"#, 1.0),
        ("basalt_power_command_duration_seconds_count", 1.0),
        (r#"basalt_rack_spool_waiting{rack="rack1"}"#, 3.0),
        (r#"basalt_rack_spool_lag_seconds{rack="rack1"}"#, 2.5),
        (r#"basalt_trace_spans_total{result="exported"}"#, 5.0),
    ] {
        assert!(moved(series) >= least, "{series}: {}", moved(series));
    }
}

#[tokio::test]
async fn a_collector_that_hangs_or_is_away_costs_spans_alone() {
    // The system accepts connections to this address, and nothing answers on them.
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", hanging.local_addr().unwrap());
    let lab = lab_with(|settings| settings.otlp_endpoint = Some(url)).await;
    let began = Instant::now();
    assert_eq!(lab.api.get("/api/v1/zones").await.status, 200);
    let telemetry = lab.region.telemetry();
    for _ in 0..20_000 {
        telemetry.record(telemetry::Span {
            context: Context::fresh(),
            parent: None,
            name: "one of many".to_owned(),
            side: Side::Internal,
            began: SystemTime::now(),
            took: Duration::ZERO,
            attributes: Vec::new(),
            error: None,
        });
    }
    let overflowed = telemetry.counts().1;
    assert!(overflowed > 10_000, "what does not fit is dropped: {overflowed}");
    assert_eq!(lab.api.get("/api/v1/zones").await.status, 200);
    assert!(began.elapsed() < Duration::from_secs(5), "nobody waits for the collector");
    drop(hanging);
    let refused = async {
        while scrape(&lab).await[r#"basalt_trace_spans_total{result="dropped"}"#] <= overflowed as f64 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), refused).await.expect("dropped spans are counted");
}

#[tokio::test]
async fn a_trace_leads_from_a_request_to_the_webhook_that_is_told() {
    let receiver = Receiver::start(|_| Behaviour::Accept).await;
    let mut lab = lab_with(|_| ()).await;
    let options = Options {
        networks: vec!["127.0.0.0/8".parse().unwrap()],
        timeout: Duration::from_secs(10),
        patience: Duration::from_secs(3600),
        divisor: 1,
    };
    lab.region.deliver(options).unwrap();
    let hook = format!(r#"{{"url":"{}","events":["created"]}}"#, receiver.url());
    lab.api.declare("/api/v1/webhooks/chat", &hook).await;
    let traceparent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let headers = [("traceparent", traceparent.as_str())];
    let answer = lab.api.send("PUT", "/api/v1/zones/a", &headers, r#"{"spec":{}}"#).await;
    lab.api.declare("/api/v1/zones/b", "{}").await;
    receiver
        .until("both zones", |came| came.iter().filter(|a| a.what().starts_with("Zone")).count() == 2)
        .await;
    let told =
        |what: &str| receiver.arrivals().into_iter().find(|a| a.what() == what).expect("it came").traceparent;
    let id = answer.headers["x-request-id"].to_str().unwrap();
    assert!(id.starts_with(TRACE), "{id}");
    assert_eq!(told("Zone a created"), Some(format!("00-{id}-01")), "the request's own span of that trace");
    assert_eq!(told("Zone b created"), None, "nobody asked for a trace");
}

#[tokio::test]
async fn a_problem_says_which_request_it_answers() {
    let lab = lab_with(|_| ()).await;
    let refused = lab.api.get("/api/v1/zones/nowhere").await;
    let id = refused.headers["x-request-id"].to_str().unwrap();
    assert_eq!(refused.json()["request_id"], id);
    let malformed = [("traceparent", "00-nothing-of-the-sort")];
    let answer = lab.api.send("GET", "/api/v1/zones", &malformed, "").await;
    assert_eq!((answer.status.as_u16(), answer.headers["x-request-id"].len()), (200, id.len()));
}
