//! Limits the facts that packets from a link can cause. Any host on a link may send any request, under any name, as
//! often as the wire allows; a region stores facts for thirty days.
//!
//! | fact | each declared machine | all others together | beyond that |
//! | --- | --- | --- | --- |
//! | lease | 256 at once, one each 5 s | 4,096 at once, 32 each second | the last state of the address is sent later |
//! | answer to a request for a script | 256, one each 10 s | none | dropped |
//! | refusal of a script | 8, one each 60 s | none | dropped |
//! | boot request of DHCP | 256, one each 10 s | none | dropped |
//! | alarm | 16, one each 60 s | 64, one each 10 s | dropped |
//! | claim | 256, one each 10 s | 64, one each 10 s | dropped: the first one was sent |
//! | progress | 1,024, one each second | 128, one each second | dropped |
//! | report of an installed system | 256, one each 30 s | none | dropped |
//! | undeclared DHCP server | | 64, one each 60 s | dropped |
//!
//! Each kind of fact has its own budget: a stranger can cause refusals under any machine's name, and those must leave
//! room for the answer that the planner waits for. Some facts have no limit here: facts about the rack itself, results
//! of tasks (one per attempt) and of power commands, and traces of boots (which have their own budgets,
//! [`crate::trace`]). Requests with a MAC of no machine appear only in those traces.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use basalt_proto::rack_v1::{Fact, fact::Body};

use basalt_proto::budget::{Budget, Spent};

/// The most budgets remembered. At this number, unused budgets are removed.
const REMEMBERED: usize = 65_536;
/// The most leases that wait to be sent.
const DEFERRED: usize = 65_536;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Class {
    Lease,
    Answer,
    Refusal,
    Dhcp,
    Alarm,
    Claim,
    Progress,
    Report,
    Server,
}

impl Class {
    /// `None`: packets cannot cause it at will.
    fn of(body: &Body) -> Option<Self> {
        Some(match body {
            Body::Lease(_) => Self::Lease,
            Body::BootRequest(it) if it.service == "dhcp" => Self::Dhcp,
            Body::BootRequest(it) if it.answer.starts_with("refused") => Self::Refusal,
            Body::BootRequest(_) => Self::Answer,
            Body::Alarm(_) => Self::Alarm,
            Body::Claim(_) => Self::Claim,
            Body::Progress(_) => Self::Progress,
            Body::Readiness(_) => Self::Report,
            Body::DhcpServer(_) => Self::Server,
            Body::Power(_)
            | Body::Reading(_)
            | Body::Result(_)
            | Body::BmcAccount(_)
            | Body::Checkpoint(_)
            | Body::Health(_)
            | Body::Cache(_)
            | Body::DhcpInForce(_)
            | Body::BootTrace(_) => return None,
        })
    }

    const fn budget(self, is_declared: bool) -> Budget {
        let (most, every_ms) = match (self, is_declared) {
            (Self::Lease, true) => (256, 5_000),
            (Self::Lease, false) => (4_096, 31),
            (Self::Answer | Self::Dhcp | Self::Claim, true) => (256, 10_000),
            (Self::Refusal, true) => (8, 60_000),
            (Self::Alarm, true) => (16, 60_000),
            (Self::Report, true) => (256, 30_000),
            (Self::Progress, true) => (1_024, 1_000),
            (Self::Progress, false) => (128, 1_000),
            (Self::Server, _) => (64, 60_000),
            (Self::Answer | Self::Refusal | Self::Dhcp | Self::Report, false) => (0, 1),
            (_, false) => (64, 10_000),
        };
        Budget { most, every_ms }
    }
}

/// Lets facts pass within their budgets.
#[derive(Debug, Default)]
pub(crate) struct Gate(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The budgets used, by machine. All undeclared machines share one.
    spent: HashMap<(String, Class), Spent>,
    /// The last state of leases that exceed their budget, by machine and address.
    deferred: HashMap<(String, String), Deferred>,
    /// The number of turns given to waiting leases.
    turns: u64,
}

/// A waiting lease. The one that waits longest is sent first.
#[derive(Debug)]
struct Deferred {
    turn: u64,
    fact: Fact,
}

impl Gate {
    /// Returns the fact if it may be sent now. A lease that may not is kept for [`Gate::due`].
    pub(crate) fn pass(&self, fact: Fact, now_ms: i64) -> Option<Fact> {
        let Some(class) = fact.body.as_ref().and_then(Class::of) else { return Some(fact) };
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let may_pass = inner.take((fact.machine_uid.clone(), class), now_ms);
        if let Some(Body::Lease(lease)) = &fact.body {
            let key = (fact.machine_uid.clone(), lease.address.clone());
            // The earlier state is outdated, but its turn is kept.
            let before = inner.deferred.remove(&key);
            if !may_pass && inner.deferred.len() < DEFERRED {
                inner.turns += 1;
                let turn = before.map_or(inner.turns, |before| before.turn);
                inner.deferred.insert(key, Deferred { turn, fact });
                return None;
            }
        }
        may_pass.then_some(fact)
    }

    /// The leases that may be sent by now.
    pub(crate) fn due(&self, now_ms: i64) -> Vec<Fact> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waiting: Vec<_> = inner.deferred.iter().map(|(key, it)| (it.turn, key.clone())).collect();
        waiting.sort_unstable();
        let mut due = Vec::new();
        for (_, key) in waiting {
            if inner.take((key.0.clone(), Class::Lease), now_ms) {
                due.extend(inner.deferred.remove(&key).map(|it| it.fact));
            }
        }
        due
    }

    /// All waiting leases, for the stop of the rack.
    pub(crate) fn rest(&self) -> Vec<Fact> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut inner.deferred).into_values().map(|it| it.fact).collect()
    }
}

impl Inner {
    fn take(&mut self, key: (String, Class), now_ms: i64) -> bool {
        if self.spent.len() >= REMEMBERED && !self.spent.contains_key(&key) {
            self.spent
                .retain(|(machine, class), spent| !spent.is_whole(class.budget(!machine.is_empty()), now_ms));
        }
        let budget = key.1.budget(!key.0.is_empty());
        self.spent.entry(key).or_default().take(budget, now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::About;
    use basalt_proto::rack_v1::{AgentProgress, LeaseFact, ServiceHealth};
    use prost::Message;

    fn machine() -> About {
        About {
            machine_uid: "uid-1".into(),
            mac: "52:54:00:00:00:01".into(),
            attempt: 17,
            ..About::default()
        }
    }

    fn lease(number: u32, released: bool) -> Body {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + number).to_string();
        Body::Lease(LeaseFact { address, released, ..LeaseFact::default() })
    }

    /// Makes a fact's content from a number.
    type Make = fn(u32) -> Body;

    fn passed(gate: &Gate, facts: impl IntoIterator<Item = Fact>) -> Vec<Fact> {
        facts.into_iter().filter_map(|fact| gate.pass(fact, 0)).collect()
    }

    #[test]
    fn nine_thousand_packets_of_each_kind_leave_a_bounded_number_of_rows_and_bytes() {
        let stranger = |n: u32| About {
            mac: format!("06:00:00:00:{:02x}:{:02x}", n / 256 % 256, n % 256),
            ..About::default()
        };
        let kinds: [(&str, Make, usize, usize); 6] = [
            ("lease", |n| lease(n % 64, n % 2 == 0), 256, 4_096),
            (
                "answer",
                |_| About::default().requested("http", "script", "local", "10.0.0.9").body.unwrap(),
                256,
                0,
            ),
            (
                "refusal",
                |_| About::default().requested("http", "script", "refused: no", "10.0.0.9").body.unwrap(),
                8,
                0,
            ),
            ("dhcp", |_| About::default().requested("dhcp", "iPXE", "x", "10.0.0.9").body.unwrap(), 256, 0),
            (
                "alarm",
                |_| About::default().alarm("wrong_address", "a claim was refused").body.unwrap(),
                16,
                64,
            ),
            ("progress", |_| Body::Progress(AgentProgress::default()), 1_024, 128),
        ];
        for (kind, body, of_one, of_others) in kinds {
            let gate = Gate::default();
            let told = passed(&gate, (0..9_000).map(|n| machine().saw(body(n))));
            assert_eq!(told.len(), of_one, "{kind} in the name of a machine");
            let told = passed(&gate, (0..9_000).map(|n| stranger(n).saw(body(n))));
            assert_eq!(told.len(), of_others, "{kind} in 9,000 made-up names");
            let bytes: usize = told.iter().map(Message::encoded_len).sum();
            assert!(bytes <= of_others * 128, "{kind}: {bytes} bytes");
            assert!(gate.0.lock().unwrap().spent.len() <= 4, "{kind}");
        }
    }

    #[test]
    fn the_last_state_of_every_lease_is_told_in_the_end() {
        let gate = Gate::default();
        let told = passed(&gate, (0..1_000).map(|n| machine().saw(lease(n % 3, n < 997))));
        assert_eq!(told.len(), 256);
        assert!(gate.due(4_999).is_empty(), "the budget is spent");
        let last: Vec<_> = [5_000, 10_000, 15_000].into_iter().flat_map(|now| gate.due(now)).collect();
        // 256 % 3 is 1: the lease of that address was the first to wait.
        assert_eq!(last, [1, 2, 0].map(|n| machine().saw(lease(n, false))));
        assert!(gate.due(90_000).is_empty() && gate.rest().is_empty());
    }

    #[test]
    fn a_state_that_is_told_replaces_the_one_that_waits() {
        let gate = Gate::default();
        passed(&gate, (0..300).map(|_| machine().saw(lease(1, false))));
        assert_eq!(gate.pass(machine().saw(lease(1, true)), 60_000), Some(machine().saw(lease(1, true))));
        assert!(gate.due(600_000).is_empty());
        passed(&gate, (0..400).map(|_| machine().saw(lease(1, false))));
        assert_eq!(gate.rest().len(), 1, "a rack that stops tells it");
    }

    #[test]
    fn refusals_in_a_machines_name_leave_room_for_its_own_answer() {
        let gate = Gate::default();
        let refused = || machine().requested("http", "script", "refused: no boot exchange", "10.0.0.66");
        assert_eq!(passed(&gate, (0..9_000).map(|_| refused())).len(), 8);
        assert!(gate.pass(machine().requested("http", "script", "ephemeral", "10.0.0.9"), 0).is_some());
    }

    #[test]
    fn what_a_rack_says_of_itself_always_passes() {
        let gate = Gate::default();
        let health = || About::default().saw(Body::Health(ServiceHealth::default()));
        assert_eq!(passed(&gate, (0..9_000).map(|_| health())).len(), 9_000);
    }
}
