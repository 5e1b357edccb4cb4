//! Facts, from the wire to the store and back: one table of kinds, one JSON form of each.

use std::net::IpAddr;

use basalt_api::agent::TaskResult;
use basalt_api::values::{Attempt, Mac, Timestamp, Uid};
use basalt_db::NewFact;
use basalt_proto::rack_v1 as wire;
use basalt_proto::rack_v1::fact::Body;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Servers of one subnet that are kept apart; anybody on a link can make some up.
const SERVERS: u32 = 16;

/// What was observed, as it is stored. The tag is the fact's kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
pub enum Observed {
    /// A DHCP lease.
    Lease(Lease),
    /// A machine asked for something at boot.
    BootRequest(BootRequest),
    /// A BMC answered, or did not.
    Power(Power),
    /// An agent took its task.
    Claim(Claim),
    /// An agent's progress.
    Progress(Progress),
    /// The end of a task.
    Result(Box<TaskResult>),
    /// How a rack's service is.
    Health(Health),
    /// Something that a person should see.
    Alarm(Alarm),
    /// An installed system reported.
    Readiness(Readiness),
    /// A part of an agent's log.
    Log(Log),
    /// Which blocks a rack leases from.
    DhcpInForce(DhcpInForce),
    /// A DHCP server that a rack was not told of.
    DhcpServer(DhcpServer),
    /// What a machine asked as it booted; kept apart from other facts.
    BootTrace(BootTrace),
    /// A rack introduced itself.
    Hello(Hello),
}

/// See [`wire::LeaseFact`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Lease {
    pub address: String,
    pub hostname: String,
    pub expires_unix_ms: i64,
    pub released: bool,
    pub subnet_uid: String,
    /// For how much longer it ran as the rack told it, in milliseconds, and the address was kept for its client.
    #[serde(default)]
    pub ends_in_ms: i64,
    #[serde(default)]
    pub kept_for_ms: Option<i64>,
}

/// See [`wire::BootRequestFact`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct BootRequest {
    pub service: String,
    pub what: String,
    pub answer: String,
    pub address: String,
}

/// See [`wire::DhcpServerFact`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct DhcpServer {
    pub address: String,
    pub subnet_uid: String,
    pub seen: String,
}

/// See [`wire::BootTraceFact`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct BootTrace {
    pub entries: Vec<BootTraceEntry>,
    pub lost: u64,
    pub others_lost: u64,
}

/// See [`wire::BootTraceEntry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct BootTraceEntry {
    pub at_unix_ms: i64,
    pub service: String,
    pub client: String,
    pub asked: String,
    pub answered: String,
    pub reason: String,
    pub address: String,
    pub times: u32,
    pub opens: bool,
}

/// See [`wire::PowerResult`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Power {
    pub verb: String,
    pub ok: bool,
    pub power: String,
    pub error_code: String,
    pub message: String,
    pub epoch: u64,
    #[serde(default)]
    pub certificate: String,
}

/// See [`wire::AgentClaim`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Claim {
    pub address: String,
    pub boot_id: String,
}

/// See [`wire::AgentProgress`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Progress {
    pub stage: String,
    pub percent: u8,
    pub message: String,
}

/// See [`wire::ServiceHealth`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Health {
    pub service: String,
    pub ok: bool,
    pub message: String,
}

/// See [`wire::BootAlarm`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Alarm {
    pub code: String,
    pub message: String,
}

/// See [`wire::ReadinessFact`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Readiness {
    pub level: String,
    pub message: String,
    pub address: String,
}

/// See [`wire::AgentLog`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Log {
    pub offset: u64,
    pub text: String,
}

/// See [`wire::DhcpInForceFact`]. The store reads it (`basalt_db`'s `ipam`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct DhcpInForce {
    pub delegation: u64,
    pub leftover: Vec<Leftover>,
    pub unsure_ms: u64,
}

/// See [`wire::Leftover`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Leftover {
    pub subnet_uid: String,
    pub start: String,
    pub end: String,
    pub ends_in_ms: u64,
}

/// See [`wire::Hello`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Hello {
    pub version: String,
    pub addresses: Vec<String>,
    /// Where it answers clients of its networks.
    pub served: Option<Vec<String>>,
    /// Where it answers by TFTP and HTTP alone.
    #[serde(default)]
    pub files: Vec<String>,
    pub spki_sha256: String,
    /// What of its files it cannot write, why, and what to do.
    #[serde(default)]
    pub cannot_write: String,
    /// Whether it grants no lease for that.
    #[serde(default)]
    pub gives_no_address: bool,
}

impl From<&wire::Hello> for Hello {
    fn from(said: &wire::Hello) -> Self {
        let (served, files) = said.serves.clone().map(|it| (it.clients, it.files)).unzip();
        Self {
            version: said.version.clone(),
            addresses: said.interfaces.iter().flat_map(|it| it.addresses.clone()).collect(),
            served,
            files: files.unwrap_or_default(),
            spki_sha256: said.spki_sha256.clone(),
            cannot_write: said.cannot_write.clone(),
            gives_no_address: said.gives_no_address,
        }
    }
}

impl Hello {
    /// Where it answers clients of its networks. A rack that did not tell answers at all of its addresses.
    pub fn served(&self) -> impl Iterator<Item = IpAddr> {
        bare(self.served.as_ref().unwrap_or(&self.addresses))
    }

    /// Where machines reach its HTTP service.
    pub fn reached(&self) -> impl Iterator<Item = IpAddr> {
        self.served().chain(bare(&self.files))
    }

    /// Every address that it has.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        bare(&self.addresses)
    }
}

/// Of `10.77.0.1/24` the address.
fn bare(addresses: &[String]) -> impl Iterator<Item = IpAddr> {
    addresses.iter().filter_map(|address| address.split('/').next()?.parse().ok())
}

impl Observed {
    /// Reads what [`Observed::stored`] wrote; `None` for what another version wrote.
    #[must_use]
    pub fn of(fact: &basalt_db::Fact) -> Option<Self> {
        // Services share a kind of fact, as servers do; each has its own.
        let kind = fact.kind.split_once(':').map_or(fact.kind.as_str(), |(kind, _)| kind);
        serde_json::from_value(serde_json::json!({"kind": kind, "body": fact.body})).ok()
    }

    /// The fact's kind and body.
    #[must_use]
    pub fn stored(&self) -> (String, Value) {
        let mut whole = serde_json::to_value(self).unwrap_or_default();
        let mut kind = whole.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        match self {
            Self::Health(health) => kind = format!("{kind}:{}", health.service),
            Self::DhcpServer(server) => {
                let slot = server.address.bytes().map(u32::from).sum::<u32>() % SERVERS;
                kind = format!("{kind}:{}:{slot}", server.subnet_uid);
            }
            // Of both families a machine has one.
            Self::Lease(lease) if lease.address.contains(':') => kind = format!("{kind}:ipv6"),
            _ => {}
        }
        (kind, whole.get_mut("body").map(Value::take).unwrap_or_default())
    }

    /// Whether the planner has to look. A log is for people.
    #[must_use]
    pub fn wakes(&self) -> bool {
        !matches!(self, Self::Log(_) | Self::BootTrace(_))
    }

    fn from_wire(body: Body, rack_now_ms: i64) -> Option<Self> {
        Some(match body {
            Body::Lease(it) => Self::Lease(Lease {
                address: it.address,
                hostname: it.hostname,
                expires_unix_ms: it.expires_unix_ms,
                released: it.released,
                subnet_uid: it.subnet_uid,
                ends_in_ms: it.expires_unix_ms.saturating_sub(rack_now_ms),
                kept_for_ms: Some(it.kept_unix_ms)
                    .filter(|&until| until != 0)
                    .map(|until| until.saturating_sub(rack_now_ms)),
            }),
            Body::BootRequest(it) => Self::BootRequest(BootRequest {
                service: it.service,
                what: it.what,
                answer: it.answer,
                address: it.address,
            }),
            Body::Power(it) => Self::Power(Power {
                verb: it.verb,
                ok: it.ok,
                power: it.power,
                error_code: it.error_code,
                message: it.message,
                epoch: it.epoch,
                certificate: it.certificate,
            }),
            Body::Claim(it) => Self::Claim(Claim { address: it.address, boot_id: it.boot_id }),
            Body::Progress(it) => Self::Progress(Progress {
                stage: it.stage,
                percent: u8::try_from(it.percent.min(100)).unwrap_or(100),
                message: it.message,
            }),
            Body::Result(it) => Self::Result(serde_json::from_slice(&it.json).ok()?),
            Body::Health(it) => Self::Health(Health { service: it.service, ok: it.ok, message: it.message }),
            Body::Alarm(it) => Self::Alarm(Alarm { code: it.code, message: it.message }),
            Body::Readiness(it) => {
                Self::Readiness(Readiness { level: it.level, message: it.message, address: it.address })
            }
            Body::DhcpInForce(it) => {
                let leftover = it.leftover.into_iter().map(|it| Leftover {
                    subnet_uid: it.subnet_uid,
                    start: it.start,
                    end: it.end,
                    ends_in_ms: it.ends_in_ms,
                });
                Self::DhcpInForce(DhcpInForce {
                    delegation: it.delegation,
                    leftover: leftover.collect(),
                    unsure_ms: it.unsure_ms,
                })
            }
            Body::DhcpServer(it) => {
                Self::DhcpServer(DhcpServer { address: it.address, subnet_uid: it.subnet_uid, seen: it.seen })
            }
            Body::BootTrace(it) => {
                let entry = |it: wire::BootTraceEntry| BootTraceEntry {
                    at_unix_ms: it.at_unix_ms,
                    service: it.service,
                    client: it.client,
                    asked: it.asked,
                    answered: it.answered,
                    reason: it.reason,
                    address: it.address,
                    times: it.times,
                    opens: it.opens,
                };
                let entries = it.entries.into_iter().map(entry).collect();
                Self::BootTrace(BootTrace { entries, lost: it.lost, others_lost: it.others_lost })
            }
            Body::Log(it) => {
                // PostgreSQL's JSON cannot hold NUL.
                let text = String::from_utf8_lossy(&it.data).replace('\0', "\u{fffd}");
                Self::Log(Log { offset: it.offset, text })
            }
        })
    }
}

/// A fact as a rack delivers it, when its clock says that. What cannot be understood is kept as an alarm: its number must not be lost.
#[must_use]
pub fn new_fact(fact: wire::Fact, rack_now_ms: i64) -> NewFact {
    let seq = fact.seq;
    let observed = fact.body.and_then(|body| Observed::from_wire(body, rack_now_ms)).unwrap_or_else(|| {
        let message =
            format!("fact {seq} of this rack cannot be understood; is the rack newer than the region?");
        Observed::Alarm(Alarm { code: "unknown_fact".to_owned(), message })
    });
    let (kind, body) = observed.stored();
    let text = |text: String| Some(text).filter(|t| !t.is_empty());
    NewFact {
        seq,
        object: fact.machine_uid.parse::<Uid>().ok(),
        mac: fact.mac.parse::<Mac>().ok().map(|mac| mac.to_string()),
        kind,
        step_key: text(fact.step_key),
        attempt: Some(fact.attempt).filter(|a| *a > 0).map(Attempt::new),
        body: sanitised(body),
        observed_at: Timestamp::from_millisecond(fact.observed_unix_ms).unwrap_or(Timestamp::UNIX_EPOCH),
        wakes: observed.wakes(),
    }
}

/// PostgreSQL's JSON cannot hold NUL characters; what a machine says may.
fn sanitised(value: Value) -> Value {
    match value {
        Value::String(text) if text.contains('\0') => Value::String(text.replace('\0', "\u{fffd}")),
        Value::Array(items) => Value::Array(items.into_iter().map(sanitised).collect()),
        Value::Object(fields) => Value::Object(
            fields.into_iter().map(|(k, v)| (k.replace('\0', "\u{fffd}"), sanitised(v))).collect(),
        ),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_reads_back_as_it_was_observed() {
        let body = Body::Power(wire::PowerResult {
            command_id: "k".into(),
            verb: "on".into(),
            ok: false,
            power: "unknown".into(),
            error_code: "unreachable".into(),
            message: "no answer\0".into(),
            epoch: 3,
            certificate: String::new(),
        });
        let fact = new_fact(wire::Fact { seq: 9, body: Some(body), attempt: 4, ..wire::Fact::default() }, 0);
        assert_eq!((fact.kind.as_str(), fact.attempt), ("power", Some(Attempt::new(4))));
        assert!(!fact.body.to_string().contains('\0') && !fact.body.to_string().contains("\\u0000"));
    }

    #[test]
    fn an_unreadable_fact_keeps_its_number_and_is_seen_by_people() {
        let fact = new_fact(wire::Fact { seq: 7, body: None, ..wire::Fact::default() }, 0);
        assert_eq!((fact.seq, fact.kind.as_str()), (7, "alarm"));
    }

    #[test]
    fn each_service_of_a_rack_has_its_own_latest_health() {
        let health = |service: &str| {
            Observed::Health(Health { service: service.into(), ok: true, message: String::new() }).stored().0
        };
        assert_eq!((health("dhcp").as_str(), health("tftp").as_str()), ("health:dhcp", "health:tftp"));
    }
}
