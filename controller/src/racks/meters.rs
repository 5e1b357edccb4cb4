//! The counters of the racks' port, and the spans of racks' work.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use basalt_api::values::RackId;
use basalt_proto::rack_v1::{ConcernReply, ConcernVersion, PowerCommand, PowerResult, fact};
use basalt_proto::rack_v1::{from_rack, from_region};
use prost::Message as _;
use tonic::Status;

use crate::driver::meters::{Bounds, Histogram};
use crate::telemetry::{self, Context, Side, Span, Telemetry};

/// Upper bounds of the buckets, in seconds: a message takes milliseconds, a BMC one, a power cycle some.
pub const BOUNDS: Bounds = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 120.0];

/// The largest number of open requests; beyond it, they are forgotten.
const UNDER_WAY: usize = 10_000;

/// The backlog of a rack's spool, from its last message.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Backlog {
    /// The number of facts after the last batch.
    pub waiting: u64,
    /// The age of the first fact of that batch when it was sent, in seconds.
    pub oldest: f64,
}

/// The counters of one process, for the metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Calls, by RPC and status code. A stream counts when it begins.
    pub rpcs: BTreeMap<(&'static str, String), u64>,
    /// The durations of calls, by RPC.
    pub rpc_seconds: BTreeMap<&'static str, Histogram>,
    /// Messages on links, by direction and type.
    pub messages: BTreeMap<(&'static str, &'static str), u64>,
    /// The time to handle messages of racks, by type.
    pub handling: BTreeMap<&'static str, Histogram>,
    /// Bytes of the concerns that racks were sent, whole or as deltas, by concern.
    pub concern_bytes: BTreeMap<String, u64>,
    /// Answers to concerns, by outcome.
    pub answers: BTreeMap<&'static str, u64>,
    /// The number of facts received.
    pub facts: u64,
    /// Results of power commands: `ok` or an error code.
    pub results: BTreeMap<&'static str, u64>,
    /// The time from the sending of a power command to its result.
    pub power: Histogram,
    /// The backlogs of connected racks, by name.
    pub backlogs: BTreeMap<String, Backlog>,
}

/// A request to a rack without an answer yet.
#[derive(Debug)]
struct Asked {
    name: String,
    at: (SystemTime, Instant),
    /// The span that was sent to the rack, and below it the span's parent.
    context: Option<Context>,
    parent: Option<Context>,
    attributes: Vec<(&'static str, String)>,
}

/// The meters of this process.
#[derive(Debug, Default)]
pub struct Meters {
    counts: Mutex<Counts>,
    asked: Mutex<HashMap<(RackId, String), Asked>>,
    telemetry: OnceLock<Telemetry>,
}

fn concern_key(concern: &str, generation: u64) -> String {
    format!("{concern}@{generation}")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Meters {
    /// Sets the sender of spans, once.
    pub fn set_telemetry(&self, telemetry: Telemetry) {
        let _ = self.telemetry.set(telemetry);
    }

    /// All counters so far.
    #[must_use]
    pub fn read(&self) -> Counts {
        locked(&self.counts).clone()
    }

    /// Counts a call.
    ///
    /// # Errors
    /// The errors of `call`.
    pub async fn rpc<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let began = Instant::now();
        let answer = call.await;
        let code = answer.as_ref().err().map_or(tonic::Code::Ok, Status::code);
        let mut counts = locked(&self.counts);
        *counts.rpcs.entry((name, format!("{code:?}"))).or_default() += 1;
        counts.rpc_seconds.entry(name).or_default().observe(&BOUNDS, began.elapsed());
        drop(counts);
        answer
    }

    /// Counts a call that was refused before it was read.
    pub fn refused(&self, name: &'static str, code: tonic::Code) {
        *locked(&self.counts).rpcs.entry((name, format!("{code:?}"))).or_default() += 1;
    }

    fn message(&self, direction: &'static str, kind: &'static str) {
        *locked(&self.counts).messages.entry((direction, kind)).or_default() += 1;
    }

    /// Counts a rack's message, and returns its type.
    pub fn heard(&self, rack: RackId, name: &str, message: &from_rack::Message) -> &'static str {
        let kind = match message {
            from_rack::Message::Hello(_) => "hello",
            from_rack::Message::ConcernReply(_) => "concern_reply",
            from_rack::Message::Facts(_) => "facts",
            from_rack::Message::Pong(_) => "pong",
        };
        self.message("from_rack", kind);
        if let from_rack::Message::Facts(batch) = message {
            let oldest = Duration::from_millis(batch.oldest_ms).as_secs_f64();
            let mut counts = locked(&self.counts);
            counts.facts = counts.facts.saturating_add(u64::try_from(batch.facts.len()).unwrap_or(0));
            counts.backlogs.insert(name.to_owned(), Backlog { waiting: batch.waiting, oldest });
            drop(counts);
            for fact in &batch.facts {
                if let Some(fact::Body::Power(result)) = &fact.body {
                    self.ended(rack, result);
                }
            }
        }
        kind
    }

    /// Counts the time to handle a rack's message.
    pub fn handled(&self, kind: &'static str, took: Duration) {
        locked(&self.counts).handling.entry(kind).or_default().observe(&BOUNDS, took);
    }

    /// Forgets the backlog of a rack whose link ended.
    pub fn left(&self, name: &str) {
        locked(&self.counts).backlogs.remove(name);
    }

    /// Counts a message to a rack.
    pub fn told(&self, rack: RackId, message: &from_region::Message) {
        let kind = match message {
            from_region::Message::Welcome(_) => "welcome",
            from_region::Message::Concern(version) => {
                self.concern(rack, version, version.body.len());
                "concern"
            }
            from_region::Message::ConcernDelta(delta) => {
                let version = delta.version.clone().unwrap_or_default();
                self.concern(rack, &version, delta.parts.iter().map(|part| part.encoded_len()).sum());
                "concern_delta"
            }
            from_region::Message::FactAck(_) => "fact_ack",
            from_region::Message::Power(command) => {
                self.ask(rack, command.command_id.clone(), power(command));
                "power"
            }
            from_region::Message::Ping(_) => "ping",
            from_region::Message::Leases(_) => "leases",
            from_region::Message::Forget(_) => "forget",
        };
        self.message("to_rack", kind);
    }

    /// Counts a concern of this length, in bytes, whole or as a delta.
    fn concern(&self, rack: RackId, version: &ConcernVersion, length: usize) {
        self.ask(rack, concern_key(&version.concern, version.generation), concern(version));
        let bytes = u64::try_from(length).unwrap_or(u64::MAX);
        *locked(&self.counts).concern_bytes.entry(version.concern.clone()).or_default() += bytes;
    }

    fn ask(&self, rack: RackId, key: String, mut asked: Asked) {
        asked.attributes.push(("basalt.rack.uid", rack.to_string()));
        let mut waiting = locked(&self.asked);
        if waiting.len() >= UNDER_WAY {
            waiting.clear();
        }
        // A request that is repeated under the same key began when it was first sent.
        waiting.entry((rack, key)).or_insert(asked);
    }

    /// Ends a request and returns its duration. `None` if this process did not send it: a spool may be old, or from another process.
    fn answer(&self, rack: RackId, key: String, error: Option<String>) -> Option<Duration> {
        let asked = locked(&self.asked).remove(&(rack, key))?;
        let took = asked.at.1.elapsed();
        if let (Some(context), Some(telemetry)) = (asked.context, self.telemetry.get()) {
            telemetry.record(Span {
                context,
                parent: asked.parent,
                name: asked.name,
                side: Side::Client,
                began: asked.at.0,
                took,
                attributes: asked.attributes,
                error,
            });
        }
        Some(took)
    }

    /// Counts a rack's answer to a concern.
    pub fn answered(&self, rack: RackId, reply: &ConcernReply, outcome: &'static str) {
        *locked(&self.counts).answers.entry(outcome).or_default() += 1;
        let good = matches!(outcome, "applied" | "already_there");
        let error = (!good).then(|| format!("{outcome}: {}", reply.message));
        self.answer(rack, concern_key(&reply.concern, reply.generation), error);
    }

    fn ended(&self, rack: RackId, result: &PowerResult) {
        let error = (!result.ok).then(|| format!("{}: {}", result.error_code, result.message));
        let Some(took) = self.answer(rack, result.command_id.clone(), error) else { return };
        let word = match CODES.iter().find(|code| **code == result.error_code) {
            _ if result.ok => "ok",
            Some(code) => *code,
            None => "other",
        };
        let mut counts = locked(&self.counts);
        *counts.results.entry(word).or_default() += 1;
        counts.power.observe(&BOUNDS, took);
    }
}

/// The error codes of racks' power results.
const CODES: [&str; 18] = [
    "unreachable",
    "bad_username",
    "bad_password",
    "bad_bmc_key",
    "privilege",
    "cipher_suite",
    "completion_code",
    "no_session",
    "certificate",
    "unsupported",
    "stale_epoch",
    "expired",
    "no_bmc",
    "driver",
    "interrupted",
    "moving",
    "outside",
    "rack_disk",
];

fn asked(name: String, traceparent: &str, attributes: Vec<(&'static str, String)>) -> Asked {
    let (context, parent) = (Context::parse(traceparent), telemetry::here());
    Asked { name, at: (SystemTime::now(), Instant::now()), context, parent, attributes }
}

fn concern(version: &ConcernVersion) -> Asked {
    let generation = ("basalt.concern.generation", version.generation.to_string());
    asked(format!("concern {}", version.concern), &version.traceparent, vec![generation])
}

fn power(command: &PowerCommand) -> Asked {
    let machine = ("basalt.machine.uid", command.machine_uid.clone());
    let name = format!("power {}", command.verb().as_str_name());
    asked(name, &command.traceparent, vec![machine, ("basalt.step.key", command.step_key.clone())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_proto::rack_v1::{Fact, FactBatch};

    fn result(command: &str, code: &str) -> from_rack::Message {
        let body = PowerResult {
            command_id: command.to_owned(),
            ok: code.is_empty(),
            error_code: code.to_owned(),
            ..PowerResult::default()
        };
        let fact = Fact { body: Some(fact::Body::Power(body)), ..Fact::default() };
        let facts = vec![fact];
        from_rack::Message::Facts(FactBatch { facts, waiting: 7, oldest_ms: 1500, ..FactBatch::default() })
    }

    #[test]
    fn a_command_lasts_until_its_rack_tells_the_result() {
        let (meters, rack) = (Meters::default(), RackId::from(uuid::Uuid::from_u128(1)));
        let other = RackId::from(uuid::Uuid::from_u128(2));
        let command = PowerCommand { command_id: "c1".to_owned(), ..PowerCommand::default() };
        meters.told(rack, &from_region::Message::Power(command.clone()));
        meters.told(rack, &from_region::Message::Power(command));
        meters.heard(other, "b", &result("c1", ""));
        assert!(meters.read().results.is_empty(), "another rack's result is not this one's");
        meters.heard(rack, "a", &result("c1", "expired"));
        meters.heard(rack, "a", &result("c1", "expired"));
        let counts = meters.read();
        assert_eq!(counts.results, BTreeMap::from([("expired", 1)]), "told again is not done again");
        assert_eq!((counts.facts, counts.power.buckets.iter().sum::<u64>()), (3, 1));
        assert_eq!(counts.messages, BTreeMap::from([(("from_rack", "facts"), 3), (("to_rack", "power"), 2)]));
        assert_eq!(counts.backlogs["a"], Backlog { waiting: 7, oldest: 1.5 });
        meters.left("a");
        assert!(!meters.read().backlogs.contains_key("a"), "who is away says nothing");
    }
}
