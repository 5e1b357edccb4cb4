//! Turns of undeclared machines. A machine is inspected, waits, or boots its disk.
//!
//! A *stranger* is an undeclared machine. A *turn* of a stranger is one boot of the ephemeral environment. For an hour
//! after it, the stranger boots its disk. The machines of one VLAN share a number of turns. A stranger that finds no
//! free turn asks again every few seconds, and boots its disk when it has waited too long.
//!
//! All of this is in memory. After a restart of the rack, strangers with a result in the register wait an hour again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use basalt_dhcp::{Mac, Time};

/// How long a stranger boots its disk after its turn.
const REST: Duration = Duration::from_secs(3600);
/// A turn ends when the machine has requested nothing for this long. Slow firmware loads its files in that time.
const SILENT: Duration = Duration::from_secs(600);
/// The longest wait of a stranger for a turn.
const PATIENCE: Duration = Duration::from_secs(900);
/// A waiting stranger that does not ask again within this time has gone. Firmware that restarts takes minutes.
const GONE: Duration = PATIENCE;
/// The most MACs remembered: any host on a link can invent some.
const MOST: usize = 8192;

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
pub struct Strangers {
    known: Mutex<HashMap<Mac, Known>>,
}

#[derive(Debug)]
struct Known {
    state: State,
    /// When it last asked.
    asked: Time,
}

#[derive(Debug)]
enum State {
    /// It is inspected, in a turn of this VLAN.
    On { vlan: String },
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
            State::On { .. } => self.asked + SILENT,
            State::Waits { .. } => self.asked + GONE,
            State::Had { at } => at + REST,
            // Its next boot may try again.
            State::GaveUp { at } => at + SILENT,
        };
        ends <= now
    }
}

impl Strangers {
    /// Strangers that had a turn recently, at an unknown time.
    #[must_use]
    pub fn had(macs: impl IntoIterator<Item = Mac>, now: Time) -> Self {
        let strangers = Self::default();
        macs.into_iter().for_each(|mac| strangers.end(mac, now));
        strangers
    }

    /// A stranger asks what to boot. `at_once` is the number of turns of its VLAN.
    pub fn ask(&self, mac: Mac, vlan: &str, at_once: usize, now: Time) -> Turn {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(&mac).is_some_and(|it| it.is_over(now)) {
            known.remove(&mac);
        }
        let is_on =
            |it: &Known| matches!(&it.state, State::On { vlan: of } if of == vlan) && !it.is_over(now);
        let since = match known.get(&mac).map(|it| &it.state) {
            Some(State::On { .. }) => {
                known.entry(mac).and_modify(|it| it.asked = now);
                return Turn::GoesOn;
            }
            Some(State::Had { .. }) => return Turn::Had,
            Some(State::GaveUp { .. }) => return Turn::GivesUp,
            Some(State::Waits { since }) => *since,
            None => now,
        };
        if !known.contains_key(&mac) && known.len() >= MOST {
            known.retain(|_, it| !it.is_over(now));
            if known.len() >= MOST {
                return Turn::GivesUp;
            }
        }
        let (state, turn) = if known.values().filter(|it| is_on(it)).count() < at_once {
            (State::On { vlan: vlan.to_owned() }, Turn::Begins)
        } else if since + PATIENCE <= now {
            (State::GaveUp { at: now }, Turn::GivesUp)
        } else {
            (State::Waits { since }, Turn::Waits)
        };
        known.insert(mac, Known { state, asked: now });
        turn
    }

    /// The agent of a stranger sent something: its turn continues.
    pub fn heard(&self, mac: Mac, now: Time) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(mac).and_modify(|it| it.asked = now);
    }

    /// Ends a stranger's turn. Its MAC rests.
    pub fn end(&self, mac: Mac, now: Time) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains_key(&mac) || known.len() < MOST {
            known.insert(mac, Known { state: State::Had { at: now }, asked: now });
        }
    }
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
        strangers.end(mac(1), START);
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
        strangers.end(mac(1), START);
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

    #[test]
    fn macs_that_somebody_makes_up_take_no_memory() {
        let strangers = Strangers::default();
        let made_up = |number: u32| {
            let [a, b, c, d] = number.to_be_bytes();
            Mac([2, 0, a, b, c, d])
        };
        for number in 0..2 * MOST as u32 {
            strangers.ask(made_up(number), "lab", 1, START);
        }
        assert_eq!(strangers.known.lock().unwrap().len(), MOST);
        assert_eq!(strangers.ask(mac(1), "lab", 1, START), Turn::GivesUp);
        assert_eq!(strangers.ask(mac(1), "lab", 1, START + SILENT), Turn::Begins);
    }

    #[test]
    fn after_a_restart_nobody_has_a_second_turn_within_the_hour() {
        let strangers = Strangers::had([mac(1)], START);
        assert_eq!(strangers.ask(mac(1), "lab", 1, Time(START.0 - 1) + REST), Turn::Had);
        assert_eq!(strangers.ask(mac(2), "lab", 1, START), Turn::Begins);
    }
}
