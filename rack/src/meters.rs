//! The rack's counters, and `/metrics` on its own listener, which by default only this host can reach.
//!
//! Facts are counted when they are sent to the spool, boot requests when they are answered (most of them make no fact),
//! HTTP answers in the router.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use basalt_ntp::{Report, State as ClockState};
use basalt_proto::places::Places;
use basalt_proto::rack_v1::concern_reply::Outcome;
use basalt_proto::rack_v1::{Fact, fact::Body};
use http::{StatusCode, header};

use crate::blobs;
use crate::dhcp::Dhcp;
use crate::dns::forward::latency::BOUNDS_MS;
use crate::dns::{self, Dns};
use crate::http::{Web, admission};
use crate::logs::{self, Logs};
use crate::ntp::{self, Ntp};
use crate::proxy::Proxy;

/// The counters of a rack since its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Boot requests of machines, by service.
    pub boot_requests: BTreeMap<&'static str, u64>,
    /// DHCP messages of clients over InfiniBand: `dhcp`, which are never answered, and `dhcp6`, of clients that ask to
    /// boot.
    pub infiniband: BTreeMap<&'static str, u64>,
    /// HTTP answers, by route and first digit of the status.
    pub http: BTreeMap<(String, u16), u64>,
    /// Leases, by event: `granted` or `ended`.
    pub leases: BTreeMap<&'static str, u64>,
    /// Deltas of concerns, by outcome: `taken`, or `needs_whole` if the whole concern was asked for.
    pub deltas: BTreeMap<&'static str, u64>,
    /// Power commands by outcome: `ok`, or an error code.
    pub power: BTreeMap<String, u64>,
    /// Power readings by outcome: `ok`, `gave_way` to a command, or an error code.
    pub readings: BTreeMap<&'static str, u64>,
    /// The total time of all readings.
    pub reading_time: Duration,
    /// Facts that were sent to the spool.
    pub facts: u64,
    /// Facts that exceeded their budget and were dropped.
    pub left_out: u64,
    /// Facts that could not be stored.
    pub lost: u64,
    /// Facts that no region has stored yet.
    pub waiting: u64,
    /// The size of the spool on disk, in bytes.
    pub bytes: u64,
}

/// The counters of a rack. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Meters(Arc<Mutex<Counts>>);

impl Meters {
    fn with(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A copy of the current counters.
    #[must_use]
    pub fn read(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a fact that is sent to the spool.
    pub fn told(&self, fact: &Fact) {
        self.with(|counts| {
            counts.facts += 1;
            match &fact.body {
                Some(Body::Lease(lease)) => {
                    let word = if lease.released { "ended" } else { "granted" };
                    *counts.leases.entry(word).or_default() += 1;
                }
                Some(Body::Power(result)) => {
                    let word = if result.ok { "ok" } else { &result.error_code };
                    *counts.power.entry(word.to_owned()).or_default() += 1;
                }
                _ => {}
            }
        });
    }

    /// Counts a boot request of a machine.
    pub fn asked(&self, service: &'static str) {
        self.with(|counts| *counts.boot_requests.entry(service).or_default() += 1);
    }

    /// Counts a delta of a concern.
    pub fn changed(&self, outcome: Outcome) {
        let word = if outcome == Outcome::NeedsWhole { "needs_whole" } else { "taken" };
        self.with(|counts| *counts.deltas.entry(word).or_default() += 1);
    }

    /// Counts a power reading, successful or not.
    pub fn power_read(&self, outcome: &'static str, took: Duration) {
        self.with(|counts| {
            *counts.readings.entry(outcome).or_default() += 1;
            counts.reading_time += took;
        });
    }

    /// Counts a DHCP message of a client over InfiniBand.
    pub fn infiniband(&self, service: &'static str) {
        self.with(|counts| *counts.infiniband.entry(service).or_default() += 1);
    }

    /// Counts a fact that exceeded its budget.
    pub fn left_out(&self) {
        self.with(|counts| counts.left_out += 1);
    }

    /// Counts a fact that could not be stored.
    pub fn lost(&self) {
        self.with(|counts| counts.lost += 1);
    }

    /// Counts an answer over HTTP.
    pub fn answered(&self, route: &str, status: StatusCode) {
        self.with(|counts| *counts.http.entry((route.to_owned(), status.as_u16() / 100)).or_default() += 1);
    }

    /// Sets the state of the spool.
    pub fn spool(&self, waiting: u64, bytes: u64) {
        self.with(|counts| (counts.waiting, counts.bytes) = (waiting, bytes));
    }
}

/// Middleware around every request: counts its answer.
pub async fn count(State(meters): State<Meters>, request: Request, next: Next) -> Response {
    // Counted by route, not by path: clients can invent paths without limit.
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    meters.answered(&route, response.status());
    response
}

/// The services whose figures are shown.
#[derive(Debug)]
pub struct Measured {
    /// The HTTP server, with facts and blobs.
    pub web: Arc<Web>,
    /// The DHCP server.
    pub dhcp: Arc<Dhcp>,
    /// The DNS server.
    pub dns: Arc<Dns>,
    /// The NTP server.
    pub ntp: Arc<Ntp>,
    /// Syslog, and logs of agents.
    pub logs: Logs,
    /// The caching proxy.
    pub proxy: Arc<Proxy>,
    /// The connections of the HTTP server.
    pub connections: Places<IpAddr>,
}

/// `/metrics`, of one rack.
pub fn router(measured: Measured) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(Arc::new(measured))
}

async fn metrics(State(measured): State<Arc<Measured>>) -> impl IntoResponse {
    let Measured { web, dhcp, dns, ntp, logs, proxy, connections } = &*measured;
    let Web { facts, blobs, admission, .. } = &**web;
    let mut text = text(&facts.meters().read(), dhcp.bound(), dhcp.unprobed());
    cache(&mut text, &blobs.counts());
    bodies(&mut text, &admission.counts());
    time(&mut text, &ntp.counts(), &ntp.report());
    names(&mut text, &dns.counts());
    lines(&mut text, &logs.counts());
    caching(&mut text, proxy);
    let counts = connections.counts();
    let name = "basalt_rack_http_connections";
    single(&mut text, name, "gauge", "Connections over HTTP.", counts.taken);
    let help = "Connections that were closed because their client had its share.";
    single(&mut text, &format!("{name}_refused_total"), "counter", help, counts.refused);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn single(text: &mut String, name: &str, kind: &str, help: &str, value: impl Display) {
    family(text, name, kind, help);
    let _ = writeln!(text, "{name} {value}");
}

/// A family with one label.
fn labelled<'a>(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    label: &str,
    values: impl Iterator<Item = (&'a str, u64)>,
) {
    family(text, name, kind, help);
    for (word, value) in values {
        let _ = writeln!(text, "{name}{{{label}=\"{word}\"}} {value}");
    }
}

fn text(counts: &Counts, bound: usize, unprobed: u64) -> String {
    let mut text = String::new();
    let name = "basalt_rack_boot_requests_total";
    family(&mut text, name, "counter", "What machines asked for at boot, by service.");
    for (service, count) in &counts.boot_requests {
        let _ = writeln!(text, "{name}{{service=\"{service}\"}} {count}");
    }
    let name = "basalt_rack_infiniband_requests_total";
    family(&mut text, name, "counter", "DHCP messages of clients over InfiniBand, which are not booted.");
    for (service, count) in &counts.infiniband {
        let _ = writeln!(text, "{name}{{service=\"{service}\"}} {count}");
    }
    let name = "basalt_rack_http_requests_total";
    family(&mut text, name, "counter", "Answers over HTTP, by route and class of status.");
    for ((route, class), count) in &counts.http {
        let _ = writeln!(text, "{name}{{route=\"{route}\",class=\"{class}xx\"}} {count}");
    }
    let name = "basalt_rack_leases_total";
    family(&mut text, name, "counter", "Leases granted or renewed, and ended.");
    for (event, count) in &counts.leases {
        let _ = writeln!(text, "{name}{{event=\"{event}\"}} {count}");
    }
    single(&mut text, "basalt_rack_leases", "gauge", "Leases that run.", bound);
    let help = "Addresses offered without asking whether they are in use: too many were being asked for.";
    single(&mut text, "basalt_rack_offers_unprobed_total", "counter", help, unprobed);
    let name = "basalt_rack_concern_deltas_total";
    let help = "Deltas of concerns: taken, or needs_whole if the whole concern was asked for.";
    labelled(
        &mut text,
        name,
        "counter",
        help,
        "outcome",
        counts.deltas.iter().map(|(word, it)| (*word, *it)),
    );
    let name = "basalt_rack_power_commands_total";
    family(&mut text, name, "counter", "Power commands, by outcome: ok, or why not.");
    for (outcome, count) in &counts.power {
        let _ = writeln!(text, "{name}{{outcome=\"{outcome}\"}} {count}");
    }
    let name = "basalt_rack_power_readings_total";
    family(&mut text, name, "counter", "Power readings, by outcome: ok, gave_way to a command, or why not.");
    for (outcome, count) in &counts.readings {
        let _ = writeln!(text, "{name}{{outcome=\"{outcome}\"}} {count}");
    }
    let name = "basalt_rack_power_reading_seconds_total";
    let help = "The time that power readings took, all together.";
    single(&mut text, name, "counter", help, counts.reading_time.as_secs_f64());
    single(&mut text, "basalt_rack_facts_total", "counter", "Facts that were told.", counts.facts);
    let left_out = "Facts that exceeded what packets may cause: left out, or told later.";
    single(&mut text, "basalt_rack_facts_left_out_total", "counter", left_out, counts.left_out);
    let lost = "Facts that could not be kept: the disk refused them, or did not keep up.";
    single(&mut text, "basalt_rack_facts_lost_total", "counter", lost, counts.lost);
    let waiting = "Facts that no region has stored yet.";
    single(&mut text, "basalt_rack_spool_facts", "gauge", waiting, counts.waiting);
    single(&mut text, "basalt_rack_spool_bytes", "gauge", "What the spool takes on disk.", counts.bytes);
    text
}

fn bodies(text: &mut String, counts: &admission::Counts) {
    let admission::Counts { sending, most, waiting, sent_away } = *counts;
    let name = |name| format!("basalt_rack_http_bodies{name}");
    single(text, &name(""), "gauge", "Large bodies that are being sent.", sending);
    single(text, &name("_most"), "gauge", "The most that were sent at once.", most);
    single(text, &name("_waiting"), "gauge", "Clients that wait for their turn.", waiting);
    let help = "Clients that were told to come back: it was not their turn in time.";
    single(text, &name("_sent_away_total"), "counter", help, sent_away);
}

fn time(text: &mut String, counts: &ntp::Counts, report: &Report) {
    let name = "basalt_rack_ntp_requests_total";
    let help = "Datagrams to NTP: answered, warned to ask less often, or why they were dropped.";
    family(text, name, "counter", help);
    for (outcome, count) in &counts.requests {
        let _ = writeln!(text, "{name}{{outcome=\"{outcome}\"}} {count}");
    }
    let name = "basalt_rack_clock_state";
    family(text, name, "gauge", "1 for the state of this host's clock: synced, adrift or bad.");
    for state in [ClockState::Synced, ClockState::Adrift, ClockState::Bad] {
        let _ = writeln!(text, "{name}{{state=\"{}\"}} {}", state.name(), u8::from(state == report.state));
    }
    let name = "basalt_rack_clock_stratum";
    single(text, name, "gauge", "The stratum that machines are told.", report.claim.stratum);
    let name = "basalt_rack_clock_error_seconds";
    let error = report.claim.root_dispersion.as_secs_f64();
    single(text, name, "gauge", "The error of the clock that machines are told.", error);
    if let Some(offset) = report.offset {
        let name = "basalt_rack_clock_offset_seconds";
        let help = "The median of the NTP servers less this host's clock.";
        single(text, name, "gauge", help, offset as f64 / 1e9);
    }
}

fn names(text: &mut String, counts: &dns::counts::Counts) {
    let name = "basalt_rack_dns_answers_total";
    let help =
        "Answers to DNS queries, by kind: of a zone, of the cache, of another server, or why there is none.";
    labelled(text, name, "counter", help, "kind", counts.answers.iter().map(|(kind, count)| (*kind, *count)));
    let name = "basalt_rack_dns_limits_total";
    let help = "Queries and connections beyond a bound: questions at once, questions of a client, connections of a client.";
    labelled(
        text,
        name,
        "counter",
        help,
        "limit",
        counts.limits.iter().map(|(limit, count)| (*limit, *count)),
    );
    let upstream = &counts.upstream;
    let ended = [("answered", upstream.answered), ("refused", upstream.refused), ("failed", upstream.failed)];
    let name = "basalt_rack_dns_upstream_queries_total";
    let help = "Queries to other DNS servers: answered, answered with a private address, or failed.";
    labelled(text, name, "counter", help, "outcome", ended.into_iter());
    let name = "basalt_rack_dns_upstream_seconds";
    family(text, name, "histogram", "Time until another DNS server answered.");
    for (bound, within) in BOUNDS_MS.iter().zip(&upstream.within) {
        let _ = writeln!(
            text,
            "{name}_bucket{{le=\"{}\"}} {within}",
            Duration::from_millis(*bound).as_secs_f64()
        );
    }
    let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {}", upstream.answered);
    let _ = writeln!(text, "{name}_sum {}\n{name}_count {}", upstream.time.as_secs_f64(), upstream.answered);
    for (name, help, value) in [
        ("cache_entries", "Answers of other DNS servers that are kept.", counts.cache_entries),
        ("cache_bytes", "Octets that they take, about.", counts.cache_bytes),
        ("zones", "DNS zones that are held.", counts.zones),
        ("records", "Records of DNS zones that are held.", counts.records),
    ] {
        single(text, &format!("basalt_rack_dns_{name}"), "gauge", help, value);
    }
}

fn lines(text: &mut String, counts: &logs::Counts) {
    let name = "basalt_rack_log_lines_total";
    labelled(
        text,
        name,
        "counter",
        "Lines of logs that were taken, by sender.",
        "from",
        counts.kept.into_iter(),
    );
    let name = "basalt_rack_log_lines_dropped_total";
    let help = "Lines of logs that were dropped, by the bound that was reached.";
    labelled(text, name, "counter", help, "reason", counts.dropped.into_iter());
}

fn caching(text: &mut String, proxy: &Proxy) {
    let counts = proxy.counts();
    let states = basalt_proxy::STATES.map(|state| (state, u64::from(state == counts.state)));
    let help = "1 for the state of the caching proxy: off, serves or lacks.";
    labelled(text, "basalt_rack_proxy_state", "gauge", help, "state", states.into_iter());
    let name = "basalt_rack_proxy_starts_total";
    single(text, name, "counter", "Squids that were started.", counts.starts);
    let name = "basalt_rack_proxy_failures_total";
    let help = "Squids that ended by themselves, or could not be started.";
    single(text, name, "counter", help, counts.failures);
    let basalt_proxy::Figures { requests, bytes } = counts.figures;
    let name = "basalt_rack_proxy_requests_total";
    let help = "Requests to the caching proxy, by result.";
    labelled(text, name, "counter", help, "result", basalt_proxy::RESULTS.into_iter().zip(requests));
    let name = "basalt_rack_proxy_bytes_total";
    let help = "Bytes that the caching proxy sent to clients, by result.";
    labelled(text, name, "counter", help, "result", basalt_proxy::RESULTS.into_iter().zip(bytes));
    let name = "basalt_rack_proxy_region_connections_total";
    let help = "Connections to the proxies of regions: made, and refused by all regions.";
    labelled(text, name, "counter", help, "outcome", proxy.region_counts().into_iter());
}

fn cache(text: &mut String, counts: &blobs::Counts) {
    let blobs::Counts { hits, misses, evictions, damaged, bytes, limit } = *counts;
    for (name, kind, help, value) in [
        ("hits_total", "counter", "Blobs asked for that were here.", hits),
        ("misses_total", "counter", "Blobs asked for that were not.", misses),
        ("evictions_total", "counter", "Blobs that left the cache for others.", evictions),
        ("damaged_total", "counter", "Blobs that the disk had damaged.", damaged),
        ("bytes", "gauge", "What cached blobs take, with the room that running fetches need.", bytes),
        ("limit_bytes", "gauge", "What cached blobs may take.", limit),
    ] {
        single(text, &format!("basalt_rack_cache_{name}"), kind, help, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_proto::rack_v1::{LeaseFact, PowerResult};

    #[test]
    fn what_is_told_is_counted_by_what_it_is() {
        let meters = Meters::default();
        let told = |body| meters.told(&Fact { body: Some(body), ..Fact::default() });
        told(Body::Power(PowerResult { ok: true, ..PowerResult::default() }));
        told(Body::Power(PowerResult { error_code: "unreachable".into(), ..PowerResult::default() }));
        told(Body::Lease(LeaseFact { released: true, ..LeaseFact::default() }));
        meters.asked("tftp");
        meters.infiniband("dhcp");
        meters.power_read("ok", Duration::from_millis(250));
        meters.power_read("unreachable", Duration::from_millis(250));
        meters.changed(Outcome::Applied);
        meters.changed(Outcome::NeedsWhole);
        meters.left_out();
        meters.spool(2, 100);
        let text = text(&meters.read(), 1, 3);
        for line in [
            "basalt_rack_concern_deltas_total{outcome=\"taken\"} 1",
            "basalt_rack_concern_deltas_total{outcome=\"needs_whole\"} 1",
            "basalt_rack_power_commands_total{outcome=\"ok\"} 1",
            "basalt_rack_power_commands_total{outcome=\"unreachable\"} 1",
            "basalt_rack_power_readings_total{outcome=\"ok\"} 1",
            "basalt_rack_power_readings_total{outcome=\"unreachable\"} 1",
            "basalt_rack_power_reading_seconds_total 0.5",
            "basalt_rack_leases_total{event=\"ended\"} 1",
            "basalt_rack_leases 1",
            "basalt_rack_offers_unprobed_total 3",
            "basalt_rack_facts_total 3",
            "basalt_rack_facts_left_out_total 1",
            "basalt_rack_boot_requests_total{service=\"tftp\"} 1",
            "basalt_rack_infiniband_requests_total{service=\"dhcp\"} 1",
            "basalt_rack_spool_facts 2",
            "basalt_rack_spool_bytes 100",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}: {text}");
        }
    }
}
