//! Facts, from the wire to the store and back: one table of kinds, one JSON form of each.
//!
//! A rack's texts are shown on people's terminals, and racks are not trusted. So they become
//! [`UntrustedText`](basalt_api::values::UntrustedText) here, even if the rack has already cleaned them.
//!
//! A power reading becomes `reading`, and a failed one `reading:failed`: so the last known state outlives failures
//! (docs/decisions/100-power-readings.md).

use std::net::IpAddr;

use basalt_api::agent::{BmcDriver, Checkpoint, TaskResult};
use basalt_api::values::{Attempt, Mac, Sha256, Timestamp, Uid, UntrustedMessage, UntrustedName};
use basalt_db::{NewFact, StrangerSeen};
use basalt_proto::rack_v1 as wire;
use basalt_proto::rack_v1::fact::Body;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::stranger;

/// The number of DHCP servers per subnet that are stored apart. Any host on a link can invent some.
const SERVERS: u32 = 16;

/// An observation, as it is stored. The tag is the fact's kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
pub enum Observed {
    /// A DHCP lease.
    Lease(Lease),
    /// A machine sent a request at boot.
    BootRequest(BootRequest),
    /// A BMC answered, or did not.
    Power(Power),
    /// A rack read the power of a machine without a command, or could not.
    Reading(Reading),
    /// An agent claimed its task.
    Claim(Claim),
    /// An agent reported its progress.
    Progress(Progress),
    /// An account that an agent is about to set on its BMC.
    BmcAccount(BmcAccount),
    /// The work that a task has done before its machine restarts.
    Checkpoint(Box<Checkpoint>),
    /// The end of a task.
    Result(Box<TaskResult>),
    /// The state of a rack's service.
    Health(Health),
    /// The contents of a rack's cache of image files.
    Cache(Cache),
    /// Something that a person should see.
    Alarm(Alarm),
    /// An installed system reported.
    Readiness(Readiness),
    /// The blocks from which a rack leases.
    DhcpInForce(DhcpInForce),
    /// A DHCP server that is unknown to the rack.
    DhcpServer(DhcpServer),
    /// The requests of a booting machine. Stored apart from other facts.
    BootTrace(BootTrace),
    /// The end of a task of an undeclared machine. Stored apart from other facts.
    Stranger(Box<StrangerSeen>),
    /// A rack introduced itself.
    Hello(Hello),
}

/// See [`wire::LeaseFact`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Lease {
    pub address: UntrustedName,
    pub hostname: UntrustedName,
    pub expires_unix_ms: i64,
    pub released: bool,
    pub subnet_uid: UntrustedName,
    /// The remaining time of the lease at the rack's report, in milliseconds. Below it, how long the address was kept for its client.
    #[serde(default)]
    pub ends_in_ms: i64,
    #[serde(default)]
    pub kept_for_ms: Option<i64>,
}

/// See [`wire::BootRequestFact`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct BootRequest {
    pub service: UntrustedName,
    pub what: UntrustedName,
    pub answer: UntrustedMessage,
    pub address: UntrustedName,
}

/// See [`wire::DhcpServerFact`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct DhcpServer {
    pub address: UntrustedName,
    pub subnet_uid: UntrustedName,
    pub seen: UntrustedMessage,
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
    pub service: UntrustedName,
    pub client: UntrustedName,
    pub asked: UntrustedName,
    pub answered: UntrustedName,
    pub reason: UntrustedName,
    pub address: UntrustedName,
    pub times: u32,
    pub opens: bool,
}

/// See [`wire::PowerResult`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Power {
    pub verb: UntrustedName,
    pub ok: bool,
    pub power: UntrustedName,
    pub error_code: UntrustedName,
    pub message: UntrustedMessage,
    pub epoch: u64,
    #[serde(default)]
    pub certificate: UntrustedName,
}

/// See [`wire::PowerReading`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Reading {
    pub power: UntrustedName,
    pub error_code: UntrustedName,
    pub message: UntrustedMessage,
    pub certificate: UntrustedName,
    pub unchanged: bool,
}

/// See [`wire::AgentClaim`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Claim {
    pub address: UntrustedName,
    pub boot_id: UntrustedName,
}

/// See [`wire::AgentProgress`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Progress {
    pub stage: UntrustedName,
    pub percent: u8,
    pub message: UntrustedMessage,
}

/// See [`wire::AgentBmcAccount`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct BmcAccount {
    pub user: UntrustedName,
    pub driver: BmcDriver,
    /// In lower-case hex.
    pub sealed: UntrustedMessage,
}

/// See [`wire::ServiceHealth`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Health {
    pub service: UntrustedName,
    pub ok: bool,
    pub message: UntrustedMessage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_ago_ms: Option<u64>,
}

impl Health {
    /// The health of a service that is no secondary of the DNS.
    #[must_use]
    pub fn new(service: UntrustedName, ok: bool, message: UntrustedMessage) -> Self {
        Self { service, ok, message, serial: None, answered_ago_ms: None }
    }
}

/// See [`wire::CacheFact`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Cache {
    pub files: u64,
    pub bytes: u64,
    pub limit_bytes: u64,
    pub held: Vec<Sha256>,
    pub more: u64,
}

/// See [`wire::BootAlarm`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Alarm {
    pub code: UntrustedName,
    pub message: UntrustedMessage,
}

/// See [`wire::ReadinessFact`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Readiness {
    pub level: UntrustedName,
    pub message: UntrustedMessage,
    pub address: UntrustedName,
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
    pub subnet_uid: UntrustedName,
    pub start: UntrustedName,
    pub end: UntrustedName,
    pub ends_in_ms: u64,
}

/// See [`wire::Hello`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the wire message says it")]
pub struct Hello {
    pub version: UntrustedName,
    pub addresses: Vec<UntrustedName>,
    /// The addresses at which it answers clients of its networks.
    pub served: Option<Vec<UntrustedName>>,
    /// The addresses at which it answers only by TFTP and HTTP.
    #[serde(default)]
    pub files: Vec<UntrustedName>,
    pub spki_sha256: UntrustedName,
    /// The files that it cannot write, with the reason and advice.
    #[serde(default)]
    pub cannot_write: UntrustedMessage,
    /// True if it grants no lease for that reason.
    #[serde(default)]
    pub gives_no_address: bool,
}

impl From<&wire::Hello> for Hello {
    fn from(said: &wire::Hello) -> Self {
        let names = |texts: &[String]| texts.iter().map(|text| UntrustedName::new(text)).collect();
        let served = said.serves.as_ref().map(|it| names(&it.clients));
        let files = said.serves.as_ref().map(|it| names(&it.files));
        Self {
            version: UntrustedName::new(&said.version),
            addresses: said
                .interfaces
                .iter()
                .flat_map(|it| &it.addresses)
                .map(|it| it.as_str().into())
                .collect(),
            served,
            files: files.unwrap_or_default(),
            spki_sha256: UntrustedName::new(&said.spki_sha256),
            cannot_write: UntrustedMessage::new(&said.cannot_write),
            gives_no_address: said.gives_no_address,
        }
    }
}

impl Hello {
    /// The addresses at which it answers clients of its networks. A rack that did not report them answers at all of its addresses.
    pub fn served(&self) -> impl Iterator<Item = IpAddr> {
        bare(self.served.as_ref().unwrap_or(&self.addresses))
    }

    /// The addresses at which machines reach its HTTP service.
    pub fn reached(&self) -> impl Iterator<Item = IpAddr> {
        self.served().chain(bare(&self.files))
    }

    /// All its addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        bare(&self.addresses)
    }
}

/// The addresses without their prefix lengths: `10.77.0.1` of `10.77.0.1/24`.
fn bare(addresses: &[UntrustedName]) -> impl Iterator<Item = IpAddr> {
    addresses.iter().filter_map(|address| address.split('/').next()?.parse().ok())
}

impl Observed {
    /// Reads the form that [`Observed::stored`] writes. `None` for the form of another version.
    #[must_use]
    pub fn of(fact: &basalt_db::Fact) -> Option<Self> {
        // Services share one type, and so do servers. Each has its own kind, with the name after the colon.
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
            // A failed reading has its own kind, so that the last successful one is kept.
            Self::Reading(it) if !it.error_code.is_empty() => kind = format!("{kind}:failed"),
            // A machine may have an IPv4 and an IPv6 lease at the same time.
            Self::Lease(lease) if lease.address.contains(':') => kind = format!("{kind}:ipv6"),
            _ => {}
        }
        (kind, whole.get_mut("body").map(Value::take).unwrap_or_default())
    }

    /// True if the planner must be woken. Boot traces are only for people.
    #[must_use]
    pub fn wakes(&self) -> bool {
        !matches!(self, Self::BootTrace(_))
    }

    fn from_wire(body: Body, rack_now_ms: i64) -> Option<Self> {
        Some(match body {
            Body::Lease(it) => Self::Lease(Lease {
                address: it.address.into(),
                hostname: it.hostname.into(),
                expires_unix_ms: it.expires_unix_ms,
                released: it.released,
                subnet_uid: it.subnet_uid.into(),
                ends_in_ms: it.expires_unix_ms.saturating_sub(rack_now_ms),
                kept_for_ms: Some(it.kept_unix_ms)
                    .filter(|&until| until != 0)
                    .map(|until| until.saturating_sub(rack_now_ms)),
            }),
            Body::BootRequest(it) => Self::BootRequest(BootRequest {
                service: it.service.into(),
                what: it.what.into(),
                answer: it.answer.into(),
                address: it.address.into(),
            }),
            Body::Power(it) => Self::Power(Power {
                verb: it.verb.into(),
                ok: it.ok,
                power: it.power.into(),
                error_code: it.error_code.into(),
                message: it.message.into(),
                epoch: it.epoch,
                certificate: it.certificate.into(),
            }),
            Body::Reading(it) => Self::Reading(Reading {
                power: it.power.into(),
                error_code: it.error_code.into(),
                message: it.message.into(),
                certificate: it.certificate.into(),
                unchanged: it.unchanged,
            }),
            Body::Claim(it) => Self::Claim(Claim { address: it.address.into(), boot_id: it.boot_id.into() }),
            Body::Progress(it) => Self::Progress(Progress {
                stage: it.stage.into(),
                percent: u8::try_from(it.percent.min(100)).unwrap_or(100),
                message: it.message.into(),
            }),
            Body::BmcAccount(it) => Self::BmcAccount(BmcAccount {
                user: it.user.into(),
                driver: serde_json::from_value(Value::String(it.driver)).ok()?,
                sealed: hex::encode(it.sealed).into(),
            }),
            Body::Checkpoint(it) => {
                Self::Checkpoint(serde_json::from_value(Checkpoint::from_outside(&it.json).ok()?).ok()?)
            }
            Body::Result(it) => {
                Self::Result(serde_json::from_value(TaskResult::from_outside(&it.json).ok()?).ok()?)
            }
            Body::Health(it) => Self::Health(Health {
                service: it.service.into(),
                ok: it.ok,
                message: it.message.into(),
                serial: it.serial,
                answered_ago_ms: it.answered_ago_ms,
            }),
            Body::Cache(it) => {
                let named = it.held.iter().take(basalt_proto::CACHE_NAMES);
                let held = named.filter_map(|hash| Some(Sha256::new(hash.as_slice().try_into().ok()?)));
                Self::Cache(Cache {
                    files: it.files,
                    bytes: it.bytes,
                    limit_bytes: it.limit_bytes,
                    held: held.collect(),
                    more: it.more,
                })
            }
            Body::Alarm(it) => Self::Alarm(Alarm { code: it.code.into(), message: it.message.into() }),
            Body::Readiness(it) => Self::Readiness(Readiness {
                level: it.level.into(),
                message: it.message.into(),
                address: it.address.into(),
            }),
            Body::DhcpInForce(it) => {
                let leftover = it.leftover.into_iter().map(|it| Leftover {
                    subnet_uid: it.subnet_uid.into(),
                    start: it.start.into(),
                    end: it.end.into(),
                    ends_in_ms: it.ends_in_ms,
                });
                Self::DhcpInForce(DhcpInForce {
                    delegation: it.delegation,
                    leftover: leftover.collect(),
                    unsure_ms: it.unsure_ms,
                })
            }
            Body::DhcpServer(it) => Self::DhcpServer(DhcpServer {
                address: it.address.into(),
                subnet_uid: it.subnet_uid.into(),
                seen: it.seen.into(),
            }),
            Body::BootTrace(it) => {
                let entry = |it: wire::BootTraceEntry| BootTraceEntry {
                    at_unix_ms: it.at_unix_ms,
                    service: it.service.into(),
                    client: it.client.into(),
                    asked: it.asked.into(),
                    answered: it.answered.into(),
                    reason: it.reason.into(),
                    address: it.address.into(),
                    times: it.times,
                    opens: it.opens,
                };
                let entries = it.entries.into_iter().map(entry).collect();
                Self::BootTrace(BootTrace { entries, lost: it.lost, others_lost: it.others_lost })
            }
        })
    }
}

/// True if a fact of this kind is a power reading that no command requested.
#[must_use]
pub fn is_reading(kind: &str) -> bool {
    kind == "reading" || kind == "reading:failed"
}

/// A fact from a rack, with the rack's present time. A fact that cannot be decoded becomes an alarm, because its number must not be lost.
#[must_use]
pub fn new_fact(fact: wire::Fact, rack_now_ms: i64) -> NewFact {
    let seq = fact.seq;
    let observed = fact.body.and_then(|body| match body {
        Body::Result(result) if fact.machine_uid.is_empty() => {
            stranger::seen(&result).map(|seen| Observed::Stranger(Box::new(seen)))
        }
        body => Observed::from_wire(body, rack_now_ms),
    });
    let observed = observed.unwrap_or_else(|| {
        let message =
            format!("fact {seq} of this rack cannot be understood; is the rack newer than the region?");
        Observed::Alarm(Alarm { code: "unknown_fact".into(), message: message.into() })
    });
    let (kind, body) = observed.stored();
    let text = |text: String| Some(UntrustedName::from(text).into()).filter(|t: &String| !t.is_empty());
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

/// Replaces NUL characters, which PostgreSQL's JSON cannot hold.
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
    fn a_rack_cannot_write_to_terminals_whatever_it_tells() {
        let hostile = "r\u{1b}]0;x\u{7}\n12:00:00  rack-1  all is well";
        let line = "r<U+001B>]0;x<U+0007><U+000A>12:00:00  rack-1  all is well";
        let stored = |body| new_fact(wire::Fact { seq: 1, body: Some(body), ..wire::Fact::default() }, 0);
        let health = wire::ServiceHealth {
            service: hostile.into(),
            message: hostile.into(),
            ..wire::ServiceHealth::default()
        };
        let fact = stored(Body::Health(health));
        assert_eq!((fact.kind, &fact.body["message"]), (format!("health:{line}"), &line.into()));
        let request = wire::BootRequestFact { what: hostile.into(), ..wire::BootRequestFact::default() };
        assert_eq!(stored(Body::BootRequest(request)).body["what"], line);
        let key = wire::Fact { step_key: hostile.into(), ..wire::Fact::default() };
        assert_eq!(new_fact(key, 0).step_key.as_deref(), Some(line));
        let hello = Hello::from(&wire::Hello { version: hostile.into(), ..wire::Hello::default() });
        assert_eq!(hello.version, line);

        let result = serde_json::json!({
            "attempt": 1, "outcome": {"type": "failed", "code": "other", "message": hostile, "wrote": false},
            "inventory": {"dmi": {"serial": hostile}}, "output": hostile,
        });
        let json: Vec<u8> = result.to_string().into();
        let of = |machine_uid: &str| {
            let result = wire::AgentResult { json: json.clone(), address: String::new() };
            let (machine_uid, body) = (machine_uid.to_owned(), Some(Body::Result(result)));
            new_fact(wire::Fact { seq: 1, machine_uid, body, ..wire::Fact::default() }, 0).body
        };
        let (declared, undeclared) = (of("0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e"), of(""));
        for body in [&declared, &undeclared["result"]] {
            assert_eq!(
                (&body["outcome"]["message"], &body["inventory"]["dmi"]["serial"]),
                (&line.into(), &line.into())
            );
            assert_eq!(body["output"], hostile, "what a script said can be piped as it was");
        }
    }

    #[test]
    fn an_unreadable_fact_keeps_its_number_and_is_seen_by_people() {
        let fact = new_fact(wire::Fact { seq: 7, body: None, ..wire::Fact::default() }, 0);
        assert_eq!((fact.seq, fact.kind.as_str()), (7, "alarm"));
    }

    #[test]
    fn each_service_of_a_rack_has_its_own_latest_health() {
        let health = |service: &str| {
            Observed::Health(Health::new(service.into(), true, UntrustedMessage::default())).stored().0
        };
        assert_eq!((health("dhcp").as_str(), health("tftp").as_str()), ("health:dhcp", "health:tftp"));
    }
}
