//! What the rack tells, as it is built: who it is about, and what was seen.

use basalt_dhcp::Mac;
use basalt_proto::rack_v1::{BootAlarm, BootMachine, BootRequestFact, Fact, ServiceHealth, fact::Body};

use crate::boot::{Armed, BootTable};

/// Whom a fact is about.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// Empty when unknown.
    pub machine_uid: String,
    /// Empty when there is none.
    pub mac: String,
    /// Which step it answers.
    pub step_key: String,
    /// 0: none.
    pub attempt: u64,
}

impl About {
    /// A MAC, and the machine it belongs to, if any.
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

    /// A fact about it. It is dated as it is told.
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

    /// It asked for something at boot.
    #[must_use]
    pub fn requested(&self, service: &str, what: &str, answer: &str, address: &str) -> Fact {
        self.saw(Body::BootRequest(BootRequestFact {
            service: service.to_owned(),
            what: what.to_owned(),
            answer: answer.to_owned(),
            address: address.to_owned(),
        }))
    }

    /// Something that a person should see.
    #[must_use]
    pub fn alarm(&self, code: &str, message: &str) -> Fact {
        self.saw(Body::Alarm(BootAlarm { code: code.to_owned(), message: message.to_owned() }))
    }
}

/// How a service of this rack is.
#[must_use]
pub fn health(service: &str, problem: Option<&str>) -> Fact {
    let message = problem.unwrap_or_default().to_owned();
    About::default().saw(Body::Health(ServiceHealth {
        service: service.to_owned(),
        ok: problem.is_none(),
        message,
    }))
}

fn uid(machine: Option<&BootMachine>) -> String {
    machine.map(|machine| machine.machine_uid.clone()).unwrap_or_default()
}
