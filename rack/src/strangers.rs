//! Turns of undeclared machines. A machine is inspected, waits, or boots its disk.
//!
//! A *stranger* is an undeclared machine. A *turn* of a stranger is one boot of the ephemeral environment. For an hour
//! after it, the stranger boots its disk. The machines of one VLAN share a number of turns. A stranger that finds no
//! free turn asks again every few seconds, and boots its disk when it has waited too long.
//!
//! One host can invent any number of MACs. So the strangers of one VLAN share these limits, and take nothing from other
//! VLANs:
//!
//! | limit | value | a stranger beyond it |
//! | --- | --- | --- |
//! | turns at the same time | `enlistment.at_once` of Settings | waits |
//! | turns that begin | 256 at once, 256 an hour ([`TURNS`]) | waits |
//! | MACs remembered | 2,048 ([`MOST_OF_VLAN`]), 8,192 of all VLANs | boots its disk |
//!
//! All of this is in memory. After a restart of the rack, strangers with a result in the register wait an hour again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use basalt_dhcp::{Mac, Time};
use basalt_proto::budget::{Budget, Spent};

/// How long a stranger boots its disk after its turn.
const REST: Duration = Duration::from_secs(3600);
/// A turn ends when the machine has requested nothing for this long. Slow firmware loads its files in that time.
const SILENT: Duration = Duration::from_secs(600);
/// The longest wait of a stranger for a turn.
const PATIENCE: Duration = Duration::from_secs(900);
/// A waiting stranger that does not ask again within this time has gone. Firmware that restarts takes minutes.
const GONE: Duration = PATIENCE;
/// The turns that begin in one VLAN: a few racks of servers at once, and as many again in an hour.
pub const TURNS: Budget = Budget { most: 256, every_ms: 3_600_000 / 256 };
/// The most MACs remembered: any host on a link can invent some.
const MOST: usize = 8192;
/// The most MACs remembered of one VLAN.
pub const MOST_OF_VLAN: usize = 2048;
/// The most interfaces of one result that rest with the machine. A result may name any MAC.
const INTERFACES: usize = 64;
/// How long a VLAN is reported after the limits left out a stranger. Strangers ask every ten seconds.
const REPORTED: Duration = Duration::from_secs(600);

/// The answer to an undeclared machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It boots the ephemeral environment for the first time in an hour.
    Begins,
    /// It boots the ephemeral environment again, in the same turn.
    GoesOn,
    /// All turns are taken: it must ask again.
    Waits,
    /// It had its turn less than an hour ago.
    Had,
    /// It waited too long, or there are too many strangers.
    GivesUp,
}

/// Undeclared machines and their turns.
#[derive(Debug, Default)]
pub struct Strangers(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    known: HashMap<Mac, Known>,
    vlans: HashMap<String, Vlan>,
}

/// The strangers of one VLAN.
#[derive(Debug, Default)]
struct Vlan {
    /// The turns that began.
    turns: Spent,
    /// When the limits last left out a stranger.
    left_out: Option<Time>,
}

impl Vlan {
    fn was_left_out(&self, now: Time) -> bool {
        self.left_out.is_some_and(|at| now < at + REPORTED)
    }
}

#[derive(Debug)]
struct Known {
    /// The VLAN in which it asked. Empty: it had its turn before this rack was restarted, anywhere.
    vlan: String,
    state: State,
    /// When it last asked.
    asked: Time,
}

#[derive(Debug)]
enum State {
    /// It is inspected.
    On,
    /// It has been waiting since then.
    Waits { since: Time },
    /// Its turn ended at this time.
    Had { at: Time },
    /// It has been booting its disk since then.
    GaveUp { at: Time },
}

impl Known {
    fn is_over(&self, now: Time) -> bool {
        let ends = match self.state {
            State::On => self.asked + SILENT,
            State::Waits { .. } => self.asked + GONE,
            State::Had { at } => at + REST,
            // Its next boot may try again.
            State::GaveUp { at } => at + SILENT,
        };
        ends <= now
    }

    /// True if it says nothing about the machine with this MAC in this VLAN. A MAC of another VLAN may be invented there.
    fn is_void(&self, vlan: &str, now: Time) -> bool {
        self.is_over(now) || !(self.vlan.is_empty() || self.vlan == vlan)
    }
}

impl Strangers {
    /// Strangers that had a turn recently, at an unknown time. Their VLANs are unknown too, so they take the places of one VLAN at most.
    #[must_use]
    pub fn had(macs: impl IntoIterator<Item = Mac>, now: Time) -> Self {
        let known = |mac| (mac, Known { vlan: String::new(), state: State::Had { at: now }, asked: now });
        let known = macs.into_iter().take(MOST_OF_VLAN).map(known).collect();
        Self(Mutex::new(Inner { known, ..Inner::default() }))
    }

    /// A stranger asks what to boot. `at_once` is the number of turns of its VLAN.
    pub fn ask(&self, mac: Mac, vlan: &str, at_once: usize, now: Time) -> Turn {
        self.with(|inner| inner.ask(mac, vlan, at_once, now))
    }

    /// The agent of a stranger sent something: its turn continues.
    pub fn heard(&self, mac: Mac, now: Time) {
        self.with(|inner| {
            inner.known.entry(mac).and_modify(|it| it.asked = now);
        });
    }

    /// Ends a stranger's turn. The stranger rests, and so do the first 64 interfaces of its result.
    pub fn end(&self, mac: Mac, others: impl IntoIterator<Item = Mac>, now: Time) {
        self.with(|inner| {
            let vlan = inner.known.get(&mac).map(|it| it.vlan.clone()).unwrap_or_default();
            for mac in [mac].into_iter().chain(others.into_iter().take(INTERFACES)) {
                let is_elsewhere =
                    inner.known.get(&mac).is_some_and(|it| it.vlan != vlan && !it.is_over(now));
                if !is_elsewhere && inner.has_place(mac, &vlan, now) {
                    let known = Known { vlan: vlan.clone(), state: State::Had { at: now }, asked: now };
                    inner.known.insert(mac, known);
                }
            }
        });
    }

    /// The VLANs in which the limits, apart from `at_once`, left out strangers within the last ten minutes.
    pub fn left_out(&self, now: Time) -> BTreeSet<String> {
        self.with(|inner| {
            let left_out = inner.vlans.iter().filter(|(_, vlan)| vlan.was_left_out(now));
            left_out.map(|(name, _)| name.clone()).collect()
        })
    }

    fn with<R>(&self, act: impl FnOnce(&mut Inner) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inner {
    fn ask(&mut self, mac: Mac, vlan: &str, at_once: usize, now: Time) -> Turn {
        if self.known.get(&mac).is_some_and(|it| it.is_void(vlan, now)) {
            self.known.remove(&mac);
        }
        let since = match self.known.get(&mac).map(|it| &it.state) {
            Some(State::On) => {
                self.known.entry(mac).and_modify(|it| it.asked = now);
                return Turn::GoesOn;
            }
            Some(State::Had { .. }) => return Turn::Had,
            Some(State::GaveUp { .. }) => return Turn::GivesUp,
            Some(State::Waits { since }) => *since,
            None => now,
        };
        if !self.has_place(mac, vlan, now) {
            self.vlan(vlan, now).left_out = Some(now);
            return Turn::GivesUp;
        }
        let is_on = |it: &&Known| it.vlan == vlan && matches!(it.state, State::On) && !it.is_over(now);
        let is_free = self.known.values().filter(is_on).count() < at_once;
        let (state, turn) = if is_free && self.begins(vlan, now) {
            (State::On, Turn::Begins)
        } else if since + PATIENCE <= now {
            (State::GaveUp { at: now }, Turn::GivesUp)
        } else {
            (State::Waits { since }, Turn::Waits)
        };
        self.known.insert(mac, Known { vlan: vlan.to_owned(), state, asked: now });
        turn
    }

    /// Takes a turn from the budget of a VLAN.
    fn begins(&mut self, vlan: &str, now: Time) -> bool {
        let vlan = self.vlan(vlan, now);
        let begins = vlan.turns.take(TURNS, millis(now));
        if !begins {
            vlan.left_out = Some(now);
        }
        begins
    }

    /// The state of a VLAN. VLANs whose budget is whole are forgotten, since the region may rename them.
    fn vlan(&mut self, name: &str, now: Time) -> &mut Vlan {
        if !self.vlans.contains_key(name) {
            self.vlans.retain(|_, vlan| vlan.was_left_out(now) || !vlan.turns.is_whole(TURNS, millis(now)));
        }
        self.vlans.entry(name.to_owned()).or_default()
    }

    /// True if this MAC is remembered, or may be.
    fn has_place(&mut self, mac: Mac, vlan: &str, now: Time) -> bool {
        let has = |known: &HashMap<Mac, Known>| {
            known.len() < MOST && known.values().filter(|it| it.vlan == vlan).count() < MOST_OF_VLAN
        };
        if self.known.contains_key(&mac) || has(&self.known) {
            return true;
        }
        self.known.retain(|_, it| !it.is_over(now));
        has(&self.known)
    }
}

/// The remark about VLANs whose limits left out strangers. Each VLAN is named by its first network.
#[must_use]
pub fn words(vlans: &BTreeSet<String>) -> Option<String> {
    if vlans.is_empty() {
        return None;
    }
    let named: Vec<&str> = vlans.iter().map(String::as_str).take(8).collect();
    Some(format!(
        "too many undeclared machines in {}: some wait or boot their disks without an inspection. A rack begins {} inspections at once in each VLAN, and {} an hour. \
         If one host invents MAC addresses, find it; otherwise switch these machines on again later",
        named.join(", "),
        TURNS.most,
        3_600_000 / TURNS.every_ms
    ))
}

fn millis(now: Time) -> i64 {
    i64::try_from(now.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time(1_000_000);

    fn mac(number: u8) -> Mac {
        Mac([0x52, 0x54, 0, 0, 0, number])
    }

    #[test]
    fn a_stranger_has_one_turn_an_hour() {
        let strangers = Strangers::default();
        let ask = |now| strangers.ask(mac(1), "lab", 4, now);
        assert_eq!(ask(START), Turn::Begins);
        assert_eq!(ask(START + SILENT / 2), Turn::GoesOn, "it was reset, or its loader asks twice");
        strangers.end(mac(1), [], START);
        assert_eq!(ask(Time(START.0 - 1) + REST), Turn::Had);
        assert_eq!(ask(START + REST), Turn::Begins);
    }

    #[test]
    fn turns_of_a_vlan_are_shared_and_a_stranger_waits_for_one_with_an_end() {
        let strangers = Strangers::default();
        let ask = |number, vlan, now| strangers.ask(mac(number), vlan, 2, now);
        assert_eq!([1, 2].map(|it| ask(it, "lab", START)), [Turn::Begins; 2]);
        assert_eq!(ask(3, "lab", START), Turn::Waits);
        assert_eq!(ask(4, "other", START), Turn::Begins, "another VLAN has its own");
        strangers.end(mac(1), [], START);
        assert_eq!(ask(3, "lab", START), Turn::Begins);

        let mut now = START;
        let turns: Vec<_> = std::iter::from_fn(|| {
            let turn = ask(5, "lab", now);
            now = now + Duration::from_secs(30);
            strangers.heard(mac(2), now);
            strangers.heard(mac(3), now);
            (turn == Turn::Waits).then_some(turn)
        })
        .collect();
        assert_eq!(turns.len(), 30, "a quarter of an hour");
        assert_eq!(ask(5, "lab", now), Turn::GivesUp, "it boots its disk, and stays there");
    }

    #[test]
    fn a_turn_ends_with_a_machine_that_fell_silent() {
        let strangers = Strangers::default();
        assert_eq!(strangers.ask(mac(1), "lab", 1, START), Turn::Begins);
        strangers.heard(mac(1), START + SILENT / 2);
        let later = START + SILENT;
        assert_eq!(strangers.ask(mac(2), "lab", 1, later), Turn::Waits, "its agent was heard");
        assert_eq!(strangers.ask(mac(2), "lab", 1, later + SILENT / 2), Turn::Begins);
    }

    fn made_up(number: u32) -> Mac {
        let [a, b, c, d] = number.to_be_bytes();
        Mac([2, 0, a, b, c, d])
    }

    #[test]
    fn macs_that_somebody_makes_up_take_no_memory_and_no_place_of_another_vlan() {
        let strangers = Strangers::default();
        for number in 0..2 * MOST_OF_VLAN as u32 {
            strangers.ask(made_up(number), "lab", 1, START);
        }
        assert_eq!(strangers.with(|inner| inner.known.len()), MOST_OF_VLAN);
        assert_eq!(strangers.ask(mac(1), "lab", 1, START), Turn::GivesUp);
        assert_eq!(strangers.left_out(START), ["lab".to_owned()].into());
        assert_eq!(strangers.ask(mac(1), "other", 1, START), Turn::Begins);
        assert_eq!(strangers.ask(mac(1), "lab", 1, START + SILENT), Turn::Begins, "the first one has gone");
        for vlan in 0..2 * MOST as u32 {
            strangers.ask(made_up(vlan), &vlan.to_string(), 1, START + GONE);
        }
        assert_eq!(strangers.with(|inner| inner.known.len()), MOST, "of all VLANs");
    }

    #[test]
    fn the_turns_of_a_vlan_are_enough_for_racks_of_servers_and_come_again_within_the_hour() {
        let strangers = Strangers::default();
        let ask = |number, now| {
            let turn = strangers.ask(made_up(number), "lab", 1000, now);
            if turn == Turn::Begins {
                strangers.end(made_up(number), [], now);
            }
            turn
        };
        let begun = |numbers: std::ops::Range<u32>, now| {
            numbers.filter(|number| ask(*number, now) == Turn::Begins).count()
        };
        assert_eq!(begun(0..200, START), 200);
        assert_eq!(strangers.left_out(START), BTreeSet::new());
        assert_eq!(begun(200..1000, START), 56);
        assert_eq!(strangers.left_out(START), ["lab".to_owned()].into());
        assert_eq!(ask(999, START), Turn::Waits);
        // A machine that asks for a quarter of an hour has a quarter of the turns of an hour.
        let minutes = (1..=15).map(|minute| START + Duration::from_secs(60 * minute));
        let later: usize = minutes.map(|now| begun(256..1000, now)).sum();
        assert!((60..=64).contains(&later), "{later}");
        assert_eq!(strangers.left_out(START + REST), BTreeSet::new());
        assert_eq!(begun(1000..1300, START + 2 * REST), 256);
    }

    #[test]
    fn a_result_that_names_every_mac_puts_few_of_them_to_rest_and_none_of_another_vlan() {
        let strangers = Strangers::default();
        assert_eq!(strangers.ask(mac(1), "lab", 9, START), Turn::Begins);
        strangers.end(mac(1), (0..5000).map(made_up), START);
        assert_eq!(strangers.with(|inner| inner.known.len()), 1 + INTERFACES);
        assert_eq!(strangers.ask(made_up(1), "lab", 9, START), Turn::Had);
        assert_eq!(strangers.ask(made_up(1), "other", 9, START), Turn::Begins);
    }

    #[test]
    fn after_a_restart_nobody_has_a_second_turn_within_the_hour() {
        let strangers = Strangers::had([mac(1)], START);
        assert_eq!(strangers.ask(mac(1), "lab", 1, Time(START.0 - 1) + REST), Turn::Had);
        assert_eq!(strangers.ask(mac(2), "lab", 1, START), Turn::Begins);
    }
}
