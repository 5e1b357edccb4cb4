//! Hosts that answered probes (ARP requests) recently. A host that answers for every address is ignored.
//!
//! A normal host answers for its own addresses, which are few. A router with proxy ARP for its own link, or a hostile
//! host, answers for every address: no address could be offered any more. So a host that answers for more than [`FEW`]
//! addresses within a minute is ignored until it has been silent for ten minutes. If such a host really uses an offered
//! address, the client detects the conflict and declines the address.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::{Mac, Time};

/// One host may have this many addresses within [`RECENT`].
const FEW: usize = 3;
const RECENT: Duration = Duration::from_secs(60);
/// How long a host that answers for every address is ignored, counted from its last answer.
const DISBELIEVED: Duration = Duration::from_secs(600);
/// The most hosts remembered. With more, the host that was silent longest is forgotten, so that answers under many
/// names cannot fill memory.
const MAX_HOLDERS: usize = 1024;

/// The judgement of a host's answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// The host has the address.
    Believed,
    /// The host answers for every address. Its earlier answers are void too: their times and addresses.
    FoundOut(Vec<(Time, Ipv4Addr)>),
    /// The host is already known to answer for every address.
    Disbelieved,
}

#[derive(Debug, Default)]
struct Holder {
    /// The host's recent answers; at most [`FEW`].
    recent: Vec<(Time, Ipv4Addr)>,
    last: Time,
    answers_for_all: bool,
}

impl Holder {
    /// The host's answers are too old to matter.
    fn is_stale(&self, now: Time) -> bool {
        !is_within(now, self.last, if self.answers_for_all { DISBELIEVED } else { RECENT })
    }
}

/// The hosts, by interface and hardware address.
#[derive(Debug, Default)]
pub(crate) struct Holders(BTreeMap<(u32, Mac), Holder>);

impl Holders {
    /// Records that a host answered a probe, and judges the answer.
    pub(crate) fn answered(&mut self, now: Time, interface: u32, mac: Mac, address: Ipv4Addr) -> Word {
        self.make_room(now, (interface, mac));
        let holder = self.0.entry((interface, mac)).or_default();
        if holder.is_stale(now) {
            *holder = Holder::default();
        }
        holder.last = now;
        if holder.answers_for_all {
            return Word::Disbelieved;
        }
        holder.recent.retain(|&(at, known)| is_within(now, at, RECENT) && known != address);
        if holder.recent.len() < FEW {
            holder.recent.push((now, address));
            return Word::Believed;
        }
        holder.answers_for_all = true;
        Word::FoundOut(std::mem::take(&mut holder.recent))
    }

    fn make_room(&mut self, now: Time, newcomer: (u32, Mac)) {
        if self.0.len() < MAX_HOLDERS || self.0.contains_key(&newcomer) {
            return;
        }
        self.0.retain(|_, holder| !holder.is_stale(now));
        if self.0.len() >= MAX_HOLDERS
            && let Some(silent) = self.0.iter().min_by_key(|(_, holder)| holder.last).map(|it| *it.0)
        {
            self.0.remove(&silent);
        }
    }
}

/// A time in the future comes from a clock that was set back; it does not count.
fn is_within(now: Time, at: Time, span: Duration) -> bool {
    at <= now && now < at + span
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_700_000_000_000);

    fn mac(number: u32) -> Mac {
        let [a, b, c, d] = number.to_be_bytes();
        Mac([2, 0, a, b, c, d])
    }

    fn ip(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, last)
    }

    #[test]
    fn a_host_of_three_addresses_is_believed_however_often_it_answers() {
        let mut holders = Holders::default();
        for second in 0..100 {
            for last in 1..=3 {
                let now = NOW.plus_seconds(second);
                assert_eq!(holders.answered(now, 1, mac(1), ip(last)), Word::Believed);
            }
        }
    }

    #[test]
    fn a_host_may_change_its_addresses_minute_by_minute() {
        let mut holders = Holders::default();
        for last in 1..100 {
            let now = NOW.plus_seconds(20 * u32::from(last));
            assert_eq!(holders.answered(now, 1, mac(1), ip(last)), Word::Believed);
        }
    }

    #[test]
    fn the_fourth_address_finds_a_host_out_until_it_is_silent_for_ten_minutes() {
        let mut holders = Holders::default();
        (1..=3).for_each(|last| drop(holders.answered(NOW, 1, mac(1), ip(last))));
        assert_eq!(holders.answered(NOW, 2, mac(1), ip(4)), Word::Believed, "another link");
        let lifted = (1..=3).map(|last| (NOW, ip(last))).collect();
        assert_eq!(holders.answered(NOW, 1, mac(1), ip(4)), Word::FoundOut(lifted));
        let mut now = NOW;
        for _ in 0..3 {
            now = now.plus_seconds(599);
            assert_eq!(holders.answered(now, 1, mac(1), ip(1)), Word::Disbelieved);
        }
        assert_eq!(holders.answered(now.plus_seconds(600), 1, mac(1), ip(1)), Word::Believed);
    }

    #[test]
    fn a_clock_that_is_set_back_clears_a_name() {
        let mut holders = Holders::default();
        (1..=4).for_each(|last| drop(holders.answered(NOW, 1, mac(1), ip(last))));
        assert_eq!(holders.answered(Time(NOW.0 - 1), 1, mac(1), ip(1)), Word::Believed);
    }

    #[test]
    fn who_answers_in_many_names_fills_no_memory() {
        let mut holders = Holders::default();
        for number in 0..10_000 {
            holders.answered(NOW + Duration::from_millis(u64::from(number)), 1, mac(number), ip(1));
            assert!(holders.0.len() <= MAX_HOLDERS);
        }
    }
}
