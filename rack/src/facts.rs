//! Facts that the rack reports: their subject, their observation, and the check that every fact passes ([`printable`]).

use std::time::Duration;

use basalt_api::agent::{Checkpoint, TaskResult};
use basalt_api::values::{UntrustedMessage, UntrustedName};
use basalt_dhcp::Mac;
use basalt_proto::rack_v1::{
    AgentBmcAccount, AgentCheckpoint, AgentClaim, AgentProgress, AgentResult, BootAlarm, BootMachine,
    BootRequestFact, BootTraceEntry, BootTraceFact, CacheFact, DhcpInForceFact, DhcpServerFact, Fact,
    LeaseFact, PowerReading, PowerResult, ReadinessFact, ServiceHealth, fact::Body,
};

use crate::boot::{Armed, BootTable};

/// The subject of a fact.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The machine's uid. Empty when unknown.
    pub machine_uid: String,
    /// The MAC. Empty when there is none.
    pub mac: String,
    /// The key of the step that the fact answers.
    pub step_key: String,
    /// The number of the attempt; 0 if there is none.
    pub attempt: u64,
}

impl About {
    /// A MAC, and the machine that has it, if any.
    #[must_use]
    pub fn mac(mac: Mac, table: Option<&BootTable>) -> Self {
        let machine = table.and_then(|table| table.machine(mac));
        Self { machine_uid: uid(machine), mac: mac.to_string(), ..Self::default() }
    }

    /// An attempt of the machine with this MAC.
    #[must_use]
    pub fn attempt(mac: Mac, armed: &Armed<'_>) -> Self {
        Self {
            machine_uid: uid(armed.machine),
            mac: mac.to_string(),
            step_key: armed.boot.step_key.clone(),
            attempt: armed.boot.attempt,
        }
    }

    /// A fact about the subject. Its time is set when it is sent to the spool.
    #[must_use]
    pub fn saw(&self, body: Body) -> Fact {
        Fact {
            seq: 0,
            observed_unix_ms: 0,
            machine_uid: self.machine_uid.clone(),
            mac: self.mac.clone(),
            step_key: self.step_key.clone(),
            attempt: self.attempt,
            body: Some(body),
        }
    }

    /// A fact that the subject requested something at boot.
    #[must_use]
    pub fn requested(&self, service: &str, what: &str, answer: &str, address: &str) -> Fact {
        self.saw(Body::BootRequest(BootRequestFact {
            service: service.to_owned(),
            what: what.to_owned(),
            answer: answer.to_owned(),
            address: address.to_owned(),
        }))
    }

    /// An alarm about the subject, for people.
    #[must_use]
    pub fn alarm(&self, code: &str, message: &str) -> Fact {
        self.saw(Body::Alarm(BootAlarm { code: code.to_owned(), message: message.to_owned() }))
    }
}

/// The health of a service of this rack.
#[must_use]
pub fn health(service: &str, problem: Option<&str>) -> Fact {
    let message = problem.unwrap_or_default().to_owned();
    About::default().saw(Body::Health(ServiceHealth {
        service: service.to_owned(),
        ok: problem.is_none(),
        message,
        ..ServiceHealth::default()
    }))
}

/// A remark about a healthy service.
#[must_use]
pub fn remark(service: &str, message: &str) -> Fact {
    let (service, message) = (service.to_owned(), message.to_owned());
    About::default().saw(Body::Health(ServiceHealth {
        service,
        ok: true,
        message,
        ..ServiceHealth::default()
    }))
}

/// The state of a secondary of the DNS.
#[derive(Debug, Clone, Copy)]
pub struct SecondaryReport<'a> {
    /// The name of the service.
    pub service: &'a str,
    /// The reason why the secondary does not hold its zones as they are.
    pub problem: Option<&'a str>,
    /// The message if there is no problem.
    pub holds: &'a str,
    /// The serial of its copy, if it has one zone.
    pub serial: Option<u32>,
    /// The time since its last answer; zero while it answers.
    pub since_answer: Option<Duration>,
}

/// A report about a secondary of the DNS.
#[must_use]
pub fn secondary(report: &SecondaryReport<'_>) -> Fact {
    let ago = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    About::default().saw(Body::Health(ServiceHealth {
        service: report.service.to_owned(),
        ok: report.problem.is_none(),
        message: report.problem.unwrap_or(report.holds).to_owned(),
        serial: report.serial,
        answered_ago_ms: report.since_answer.map(ago),
    }))
}

fn uid(machine: Option<&BootMachine>) -> String {
    machine.map(|machine| machine.machine_uid.clone()).unwrap_or_default()
}

/// Makes every text of a fact printable and limits its length ([`UntrustedName`], [`UntrustedMessage`]).
#[must_use]
pub fn printable(fact: Fact) -> Fact {
    let body = fact.body.map(|mut body| {
        // Every message is destructured completely, so that a new field does not compile without a decision.
        match &mut body {
            Body::Lease(LeaseFact {
                address,
                hostname,
                subnet_uid,
                expires_unix_ms: _,
                released: _,
                kept_unix_ms: _,
            }) => {
                names([address, hostname, subnet_uid]);
            }
            Body::BootRequest(BootRequestFact { service, what, answer, address }) => {
                names([service, what, address]);
                message(answer);
            }
            Body::Power(PowerResult {
                command_id,
                verb,
                power,
                error_code,
                message: said,
                certificate,
                ok: _,
                epoch: _,
            }) => {
                names([command_id, verb, power, error_code, certificate]);
                message(said);
            }
            Body::Reading(PowerReading { power, error_code, message: said, certificate, unchanged: _ }) => {
                names([power, error_code, certificate]);
                message(said);
            }
            Body::Claim(AgentClaim { address, boot_id }) => names([address, boot_id]),
            Body::Progress(AgentProgress { stage, message: said, seq: _, percent: _ }) => {
                names([stage]);
                message(said);
            }
            Body::BmcAccount(AgentBmcAccount { user, driver, sealed: _ }) => names([user, driver]),
            Body::Checkpoint(AgentCheckpoint { json }) => {
                *json =
                    Checkpoint::from_outside(json).map(|it| it.to_string().into_bytes()).unwrap_or_default();
            }
            Body::Result(AgentResult { json, address }) => {
                names([address]);
                // The region raises an alarm if a result is not JSON.
                *json =
                    TaskResult::from_outside(json).map(|it| it.to_string().into_bytes()).unwrap_or_default();
            }
            Body::Health(ServiceHealth { service, message: said, ok: _, serial: _, answered_ago_ms: _ }) => {
                names([service]);
                message(said);
            }
            Body::Alarm(BootAlarm { code, message: said }) => {
                names([code]);
                message(said);
            }
            Body::Readiness(ReadinessFact { level, message: said, address }) => {
                names([level, address]);
                message(said);
            }
            Body::DhcpInForce(DhcpInForceFact { delegation: _, leftover: _, unsure_ms: _ }) => {}
            Body::Cache(CacheFact { files: _, bytes: _, limit_bytes: _, held: _, more: _ }) => {}
            Body::DhcpServer(DhcpServerFact { address, subnet_uid, seen }) => {
                names([address, subnet_uid]);
                message(seen);
            }
            Body::BootTrace(BootTraceFact { entries, lost: _, others_lost: _ }) => {
                entries.iter_mut().for_each(entry)
            }
        }
        body
    });
    Fact { body, ..fact }
}

fn entry(entry: &mut BootTraceEntry) {
    let BootTraceEntry {
        service,
        client,
        asked,
        answered,
        reason,
        address,
        at_unix_ms: _,
        times: _,
        opens: _,
    } = entry;
    names([service, client, asked, answered, reason, address]);
}

fn names<const N: usize>(texts: [&mut String; N]) {
    for text in texts {
        *text = UntrustedName::new(text).into();
    }
}

fn message(text: &mut String) {
    *text = UntrustedMessage::new(text).into();
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}[2J\n12:00:00  rack-1  the agent took its task";

    fn shown(body: Body) -> Body {
        printable(Fact { body: Some(body), ..Fact::default() }).body.unwrap()
    }

    #[test]
    fn what_a_stranger_names_leaves_the_rack_as_one_printable_line() {
        let line = "a<U+001B>[2J<U+000A>12:00:00  rack-1  the agent took its task";
        let asked = shown(About::default().requested("tftp", HOSTILE, HOSTILE, "10.0.0.9").body.unwrap());
        assert!(matches!(asked, Body::BootRequest(it) if it.what == line && it.answer == line));
        let lease = shown(Body::Lease(LeaseFact { hostname: HOSTILE.into(), ..LeaseFact::default() }));
        assert!(matches!(lease, Body::Lease(it) if it.hostname == line));
        let long = shown(Body::Lease(LeaseFact { hostname: "x".repeat(9_999), ..LeaseFact::default() }));
        assert!(matches!(long, Body::Lease(it) if it.hostname.chars().count() == 256));
        let said =
            AgentProgress { stage: HOSTILE.into(), message: HOSTILE.into(), ..AgentProgress::default() };
        assert!(
            matches!(shown(Body::Progress(said)), Body::Progress(it) if it.stage == line && it.message == line)
        );
        let power = PowerResult { message: HOSTILE.into(), ..PowerResult::default() };
        assert!(matches!(shown(Body::Power(power)), Body::Power(it) if it.message == line));
    }

    #[test]
    fn of_a_result_only_what_a_script_said_stays_as_it_was() {
        let sent =
            serde_json::json!({"attempt": 1, "inventory": {"dmi": {"serial": HOSTILE}}, "output": HOSTILE});
        let Body::Result(told) =
            shown(Body::Result(AgentResult { json: sent.to_string().into_bytes(), address: String::new() }))
        else {
            panic!("another fact")
        };
        let told: serde_json::Value = serde_json::from_slice(&told.json).unwrap();
        assert_eq!(told["output"], HOSTILE);
        assert_eq!(told["inventory"]["dmi"]["serial"], UntrustedMessage::new(HOSTILE).as_str());
    }
}
