//! Counters, and the text that Prometheus scrapes (exposition format 0.0.4).

use super::App;
use super::caught::caught;
use super::guard::Traced;
use super::problem::Answer;
use crate::driver::meters::{BOUNDS, Bounds, Counts, Histogram};
use crate::racks::meters as rack_meters;
use crate::telemetry::{Side, Span};
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use basalt_api::ProblemCode;
use basalt_api::routes::{ROUTES, Route};
use basalt_db::{LogTarget, PhaseGauge};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Upper bounds of the durations' buckets, in seconds.
const BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0];

/// The counters of requests.
#[derive(Debug)]
pub(super) struct Metrics {
    /// Answers by first digit of their status, from 1 to 5.
    pub(super) answers: [AtomicU64; 5],
    /// Requests in progress.
    pub(super) under_way: AtomicU64,
    /// In the order of [`ROUTES`].
    routes: Vec<Measured>,
    /// Refusals, in the order of [`ProblemCode::ALL`].
    problems: Vec<AtomicU64>,
}

/// The counters of one route.
#[derive(Debug, Default)]
struct Measured {
    /// Answers by first digit of the status, from 1 to 5.
    classes: [AtomicU64; 5],
    /// In the order of [`BUCKETS`]; the last one has no bound.
    buckets: [AtomicU64; BUCKETS.len() + 1],
    /// The sum of all durations, in microseconds.
    micros: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            answers: Default::default(),
            under_way: AtomicU64::new(0),
            routes: ROUTES.iter().map(|_| Measured::default()).collect(),
            problems: ProblemCode::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

fn add(counters: &[AtomicU64], place: usize) {
    if let Some(counter) = counters.get(place) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Around a route: counts its answers and their durations. For a watch, the duration ends when the watch begins.
pub(super) async fn measure(
    State((app, place)): State<(App, usize)>,
    request: Request,
    next: Next,
) -> Response {
    let (began, at) = (Instant::now(), SystemTime::now());
    let traced = request.extensions().get::<Traced>().copied();
    let response = caught(next.run(request)).await;
    if let (Some(traced), Some(route)) = (traced, ROUTES.get(place)) {
        record(&app, route, traced, (at, began.elapsed()), &response);
    }
    let metrics = &app.0.metrics;
    if let Some(measured) = metrics.routes.get(place) {
        let took = began.elapsed();
        add(&measured.classes, usize::from(response.status().as_u16() / 100).saturating_sub(1));
        let bucket = BUCKETS.iter().position(|bound| took.as_secs_f64() <= *bound).unwrap_or(BUCKETS.len());
        add(&measured.buckets, bucket);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        measured.micros.fetch_add(micros, Ordering::Relaxed);
    }
    if let Some(code) = response.extensions().get::<ProblemCode>() {
        add(&metrics.problems, ProblemCode::ALL.iter().position(|c| c == code).unwrap_or(usize::MAX));
    }
    response
}

/// Records the span of a request, if a collector wants it.
fn record(
    app: &App,
    route: &Route,
    Traced { context, parent }: Traced,
    (began, took): (SystemTime, Duration),
    response: &Response,
) {
    if !app.telemetry().is_on() {
        return;
    }
    let status = response.status();
    app.telemetry().record(Span {
        context,
        parent,
        name: route.to_string(),
        side: Side::Server,
        began,
        took,
        attributes: vec![("http.response.status_code", status.as_u16().to_string())],
        error: status.is_server_error().then(|| status.to_string()),
    });
}

/// Builds the text: one family after another.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let pairs: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", quoted(value))).collect();
        let labels = if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }
}

pub(super) async fn metrics(State(app): State<App>) -> Answer<impl IntoResponse> {
    let mut text = Exposition::default();
    requests(&app.0.metrics, &mut text);
    watches(&app, &mut text);
    connections(&app, &mut text);
    spans(&app, &mut text);
    proxy(&app, &mut text);
    deliveries(&app, &mut text).await?;
    receivers(&app, &mut text).await?;
    store(&app, &mut text).await?;
    if let Some(machinery) = app.machinery() {
        driver(&machinery.counts(), &mut text);
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text.0))
}

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

fn requests(metrics: &Metrics, text: &mut Exposition) {
    text.family("basalt_api_answers_total", "counter", "Answers by class of status.");
    for (class, count) in CLASSES.iter().zip(&metrics.answers) {
        text.sample("basalt_api_answers_total", &[("class", class)], read(count));
    }
    let under_way = read(&metrics.under_way);
    text.gauge("basalt_api_requests_under_way", "Requests that are not answered yet.", under_way);
    text.family(
        "basalt_api_problems_total",
        "counter",
        "Refusals by code; conflict is a lost compare-and-swap.",
    );
    for (code, count) in ProblemCode::ALL.iter().zip(&metrics.problems) {
        text.sample("basalt_api_problems_total", &[("code", code.as_str())], read(count));
    }
    let routes = || ROUTES.iter().zip(&metrics.routes);
    text.family("basalt_api_requests_total", "counter", "Requests by endpoint and class of status.");
    for (Route { method, path, .. }, measured) in routes() {
        for (class, count) in CLASSES.iter().zip(&measured.classes) {
            let labels = [("method", *method), ("endpoint", *path), ("class", *class)];
            text.sample("basalt_api_requests_total", &labels, read(count));
        }
    }
    let name = "basalt_api_request_duration_seconds";
    text.family(name, "histogram", "How long it takes to begin an answer.");
    for (Route { method, path, .. }, measured) in routes() {
        let bounds = BUCKETS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        let mut below = 0u64;
        for (bound, count) in bounds.zip(&measured.buckets) {
            below = below.saturating_add(read(count));
            let labels = [("method", *method), ("endpoint", *path), ("le", bound.as_str())];
            text.sample(&format!("{name}_bucket"), &labels, below);
        }
        let labels = [("method", *method), ("endpoint", *path)];
        text.sample(
            &format!("{name}_sum"),
            &labels,
            Duration::from_micros(read(&measured.micros)).as_secs_f64(),
        );
        text.sample(&format!("{name}_count"), &labels, below);
    }
}

fn watches(app: &App, text: &mut Exposition) {
    let watchers = app.watchers();
    text.gauge("basalt_watch_readers", "Watches that are open.", watchers.open());
    text.family("basalt_watch_events_total", "counter", "Events handed to watches.");
    text.sample("basalt_watch_events_total", &[], watchers.events());
    text.family("basalt_watch_cuts_total", "counter", "Watches that the region ended, by reason.");
    for (reason, count) in watchers.cuts() {
        text.sample("basalt_watch_cuts_total", &[("reason", reason.as_str())], count);
    }
}

/// The families of this process's racks' port.
fn racks(counts: &rack_meters::Counts, text: &mut Exposition) {
    let bounds = &rack_meters::BOUNDS;
    text.family("basalt_rack_rpcs_total", "counter", "Calls of racks, by RPC and status code.");
    for ((rpc, code), count) in &counts.rpcs {
        text.sample("basalt_rack_rpcs_total", &[("rpc", rpc), ("code", code)], count);
    }
    let name = "basalt_rack_rpc_duration_seconds";
    text.family(name, "histogram", "How long it takes to answer a call of a rack, or to begin its stream.");
    for (rpc, histogram) in &counts.rpc_seconds {
        self::histogram(name, &[("rpc", rpc)], bounds, histogram, text);
    }
    let name = "basalt_rack_messages_total";
    text.family(name, "counter", "Messages on the links with racks, by direction and type.");
    for ((direction, kind), count) in &counts.messages {
        text.sample(name, &[("direction", direction), ("type", kind)], count);
    }
    let name = "basalt_rack_message_duration_seconds";
    text.family(name, "histogram", "How long it takes to handle what a rack says, by type.");
    for (kind, histogram) in &counts.handling {
        self::histogram(name, &[("type", kind)], bounds, histogram, text);
    }
    let name = "basalt_rack_concern_bytes_total";
    text.family(
        name,
        "counter",
        "Bytes of the concerns that racks were sent, whole or as deltas, by concern.",
    );
    for (concern, bytes) in &counts.concern_bytes {
        text.sample(name, &[("concern", concern)], bytes);
    }
    let name = "basalt_rack_concern_answers_total";
    text.family(name, "counter", "Answers of racks to what they were told, by outcome.");
    for (outcome, count) in &counts.answers {
        text.sample(name, &[("outcome", outcome)], count);
    }
    text.family("basalt_rack_facts_total", "counter", "Facts that racks told; some are told again.");
    text.sample("basalt_rack_facts_total", &[], counts.facts);
    let name = "basalt_rack_spool_waiting";
    text.family(name, "gauge", "Facts in a connected rack's spool after those that it told last.");
    for (rack, backlog) in &counts.backlogs {
        text.sample(name, &[("rack", rack)], backlog.waiting);
    }
    let name = "basalt_rack_spool_lag_seconds";
    text.family(name, "gauge", "How long the oldest fact had waited that a connected rack told last.");
    for (rack, backlog) in &counts.backlogs {
        text.sample(name, &[("rack", rack)], backlog.oldest);
    }
    let name = "basalt_power_commands_total";
    text.family(name, "counter", "Power commands that racks answered to this process: ok, or why not.");
    for (result, count) in &counts.results {
        text.sample(name, &[("result", result)], count);
    }
    let name = "basalt_power_command_duration_seconds";
    text.family(name, "histogram", "From sending a power command until its result is told.");
    histogram(name, &[], bounds, &counts.power, text);
}

fn connections(app: &App, text: &mut Exposition) {
    let counts = app.0.connections.counts();
    text.gauge("basalt_api_connections", "Connections to the API over TCP.", counts.taken);
    let name = "basalt_api_connections_refused_total";
    text.family(name, "counter", "Connections that were closed because their client had its share.");
    text.sample(name, &[], counts.refused);
}

fn spans(app: &App, text: &mut Exposition) {
    let (exported, dropped) = app.telemetry().counts();
    let name = "basalt_trace_spans_total";
    text.family(name, "counter", "Spans that the collector took, and that it did not.");
    text.sample(name, &[("result", "exported")], exported);
    text.sample(name, &[("result", "dropped")], dropped);
}

fn proxy(app: &App, text: &mut Exposition) {
    let counts = app.proxy().counts();
    let name = "basalt_proxy_state";
    text.family(name, "gauge", "1 for the state of the caching proxy for racks: off, serves or lacks.");
    for state in basalt_proxy::STATES {
        text.sample(name, &[("state", state)], u8::from(state == counts.state));
    }
    let name = "basalt_proxy_starts_total";
    text.family(name, "counter", "Squids that were started.");
    text.sample(name, &[], counts.starts);
    let name = "basalt_proxy_failures_total";
    text.family(name, "counter", "Squids that ended by themselves, or could not be started.");
    text.sample(name, &[], counts.failures);
    for (name, help, values) in [
        ("basalt_proxy_requests_total", "Requests to the caching proxy, by result.", counts.figures.requests),
        (
            "basalt_proxy_bytes_total",
            "Bytes that the caching proxy sent to racks, by result.",
            counts.figures.bytes,
        ),
    ] {
        text.family(name, "counter", help);
        for (result, value) in basalt_proxy::RESULTS.into_iter().zip(values) {
            text.sample(name, &[("result", result)], value);
        }
    }
    let name = "basalt_proxy_connections_total";
    text.family(name, "counter", "Connections of racks to the proxy.");
    text.sample(name, &[], app.proxy().tunnels());
}

async fn deliveries(app: &App, text: &mut Exposition) -> Answer<()> {
    let name = "basalt_webhook_attempts_total";
    text.family(name, "counter", "Attempts of this process to deliver to webhooks, by result.");
    for (result, count) in app.webhooks().results() {
        text.sample(name, &[("result", result)], count);
    }
    let gauge = app.store().webhook_gauge().await?;
    text.gauge("basalt_webhook_pending", "Deliveries that are not accepted yet.", gauge.pending);
    text.gauge("basalt_webhook_dead", "Dead letters: deliveries that were given up.", gauge.dead);
    text.gauge(
        "basalt_webhook_oldest_seconds",
        "Since when the oldest pending delivery waits.",
        gauge.oldest,
    );
    Ok(())
}

async fn receivers(app: &App, text: &mut Exposition) -> Answer<()> {
    type Value = fn(&LogTarget) -> u64;
    let families: [(&str, &str, &str, Value); 4] = [
        ("connected", "gauge", "1 if a receiver of logs takes lines.", |it| u64::from(it.connected)),
        ("lines_total", "counter", "Lines that a receiver of logs took.", |it| it.forwarded),
        ("lost_lines_total", "counter", "Lines that were gone before a receiver took them.", |it| it.lost),
        ("waiting_bytes", "gauge", "Bytes of lines that wait for a receiver of logs.", |it| it.waiting),
    ];
    let targets = app.store().log_targets().await?;
    for (name, kind, help, value) in families {
        let name = format!("basalt_remote_syslog_{name}");
        text.family(&name, kind, help);
        for target in &targets {
            text.sample(&name, &[("receiver", target.name.as_str())], value(target));
        }
    }
    Ok(())
}

async fn store(app: &App, text: &mut Exposition) -> Answer<()> {
    let (position, last) = (app.follower().position(), app.store().last_position().await?);
    text.gauge("basalt_change_position", "How far the change log was followed.", position);
    let lag = last.saturating_sub(position).max(0);
    text.gauge("basalt_follower_lag_changes", "Positions drawn and not followed yet.", lag);
    if let Some(machinery) = app.machinery() {
        text.gauge("basalt_rack_links", "Racks connected to this process.", machinery.rack_links());
        racks(&machinery.rack_counts(), text);
    }
    phases(&app.store().phase_gauges().await?, text);
    text.family(
        "basalt_objects_failing",
        "gauge",
        "Objects that could not be worked on when it was tried last.",
    );
    for gauge in app.store().failing_gauges().await? {
        text.sample("basalt_objects_failing", &[("kind", &gauge.kind)], gauge.objects);
    }
    text.family("basalt_objects", "gauge", "Objects by kind.");
    for gauge in app.store().kind_gauges().await? {
        text.sample("basalt_objects", &[("kind", &gauge.kind)], gauge.objects);
    }
    let name = "basalt_enlistment_left_out_total";
    text.family(
        name,
        "counter",
        "Results of undeclared machines that were left out: their VLAN, or the region, has too many.",
    );
    for vlan in app.store().strangers_left_out().await? {
        text.sample(name, &[("vlan", &vlan.vlan)], vlan.count);
    }
    let queue = app.store().queue_gauges().await?;
    text.family("basalt_queue_depth", "gauge", "Objects in the reconcile queue.");
    for gauge in &queue {
        text.sample("basalt_queue_depth", &[("kind", &gauge.kind)], gauge.waiting);
    }
    text.family("basalt_queue_due", "gauge", "Objects that are due and that nobody handles.");
    for gauge in &queue {
        text.sample("basalt_queue_due", &[("kind", &gauge.kind)], gauge.due);
    }
    text.family("basalt_queue_leases", "gauge", "Objects that are being handled.");
    for gauge in &queue {
        text.sample("basalt_queue_leases", &[("kind", &gauge.kind)], gauge.leased);
    }
    text.family(
        "basalt_queue_oldest_due_seconds",
        "gauge",
        "Since when the oldest of those that are due has been so.",
    );
    for gauge in &queue {
        text.sample("basalt_queue_oldest_due_seconds", &[("kind", &gauge.kind)], gauge.oldest_due);
    }
    Ok(())
}

fn phases(phases: &[PhaseGauge], text: &mut Exposition) {
    let mut stalled = BTreeMap::<&str, i64>::new();
    text.family(
        "basalt_objects_in_phase",
        "gauge",
        "Reconciled objects by phase; empty where a kind has none.",
    );
    for gauge in phases {
        let labels = [("kind", gauge.kind.as_str()), ("phase", &gauge.phase)];
        text.sample("basalt_objects_in_phase", &labels, gauge.objects);
        *stalled.entry(&gauge.kind).or_default() += gauge.stalled;
    }
    let name = "basalt_phase_longest_seconds";
    text.family(name, "gauge", "How long the object has been in its phase that has been longest.");
    for gauge in phases {
        text.sample(name, &[("kind", gauge.kind.as_str()), ("phase", &gauge.phase)], gauge.longest);
    }
    text.family("basalt_objects_stalled", "gauge", "Objects that only a person gets on.");
    for (kind, count) in stalled {
        text.sample("basalt_objects_stalled", &[("kind", kind)], count);
    }
}

/// The families of this process's driver.
fn driver(counts: &Counts, text: &mut Exposition) {
    let name = "basalt_step_duration_seconds";
    text.family(name, "histogram", "From a step's record to its end.");
    for (step, histogram) in &counts.steps {
        self::histogram(name, &[("step", step)], &BOUNDS, histogram, text);
    }
    text.family("basalt_steps_total", "counter", "Steps that ended, by outcome.");
    for ((step, outcome), count) in &counts.outcomes {
        text.sample("basalt_steps_total", &[("step", step), ("outcome", outcome)], count);
    }
    let name = "basalt_phase_duration_seconds";
    text.family(name, "histogram", "How long objects were in a phase that they left.");
    for ((kind, phase), histogram) in &counts.phases {
        self::histogram(name, &[("kind", kind), ("phase", phase)], &BOUNDS, histogram, text);
    }
    text.family("basalt_handling_failures_total", "counter", "Handlings of objects that failed, by cause.");
    for ((kind, cause), count) in &counts.failures {
        text.sample("basalt_handling_failures_total", &[("kind", kind), ("cause", cause)], count);
    }
    let name = "basalt_tag_evaluations_total";
    text.family(name, "counter", "How often a machine was looked at with the expression of a tag.");
    text.sample(name, &[], counts.evaluations);
    text.family("basalt_conflicts_total", "counter", "Races lost to another writer, by what about.");
    for (about, count) in &counts.conflicts {
        text.sample("basalt_conflicts_total", &[("about", about)], count);
    }
}

fn histogram(
    name: &str,
    labels: &[(&str, &str)],
    bounds: &Bounds,
    histogram: &Histogram,
    text: &mut Exposition,
) {
    let bounds = bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
    let mut below = 0u64;
    for (bound, count) in bounds.zip(&histogram.buckets) {
        below = below.saturating_add(*count);
        let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
        text.sample(&format!("{name}_bucket"), &labels, below);
    }
    text.sample(&format!("{name}_sum"), labels, histogram.seconds);
    text.sample(&format!("{name}_count"), labels, below);
}
