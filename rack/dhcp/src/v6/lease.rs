//! Leases: what is granted to whom until when, and which address comes next.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use super::{AddressRange, Duid};
use crate::{LeaseState, Mac, Time};

/// Records that are kept at once; with so many, the one that ended first is forgotten for another, of whichever subnet it is, or there is
/// no address. An IPv6 range has more addresses than a server has memory. Who has a reservation is served in any case.
pub const MAX_LEASES: usize = 65_536;
/// Addresses that one client may hold on a link: parts of it ask for one each.
pub(super) const MAX_OF_ONE: usize = 16;
/// Addresses that are tried from where a client's begin.
const NEARBY: u128 = 16;

/// An address and its client. The newest record of an address replaces the older ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The address.
    pub address: Ipv6Addr,
    /// The client.
    pub duid: Duid,
    /// Which of its identity associations.
    pub iaid: u32,
    /// Its hardware address, where it can be known.
    #[serde(default)]
    pub mac: Option<Mac>,
    /// That was heard, and not read in its DUID, which all interfaces of a host share.
    #[serde(default)]
    pub mac_heard: bool,
    /// [`Subnet::id`](super::Subnet::id).
    pub subnet: String,
    /// What the client calls itself (option 39).
    #[serde(default)]
    pub hostname: Option<String>,
    /// What the address is in use for; never [`LeaseState::Offered`].
    pub state: LeaseState,
    /// When this record was made.
    pub granted: Time,
    /// Until when it holds.
    pub expires: Time,
    /// The region knows of it: renewals may take the subnet's whole lease time.
    #[serde(default)]
    pub acknowledged: bool,
}

impl Lease {
    /// Whether the address must not go to anyone else.
    #[must_use]
    pub fn is_live(&self, now: Time) -> bool {
        self.state != LeaseState::Ended && self.expires > now
    }

    /// Whether it is this association's.
    pub(super) fn is_of(&self, who: Who<'_>) -> bool {
        if self.duid.is_forgotten() {
            // Who hides its hardware address is known again by the address that it says it has.
            return self.mac.map_or(who.has_it, |mac| who.mac == Some(mac));
        }
        let is_anothers = self.mac_heard && who.heard.is_some_and(|mac| self.mac != Some(mac));
        self.duid == *who.duid && self.iaid == who.iaid && !is_anothers
    }
}

/// An association, and the hardware address that it was heard from, if that is known: hosts that were made of one disk, or whose boards
/// have one UUID, have one DUID, and on like hardware their associations have one number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Who<'a> {
    pub(super) duid: &'a Duid,
    pub(super) iaid: u32,
    pub(super) heard: Option<Mac>,
    /// That, or what its DUID says.
    pub(super) mac: Option<Mac>,
    /// It says that it has the address, and goes on.
    pub(super) has_it: bool,
}

/// Every address this server knows something about, found by address, by client and by expiry. A record stays after its lease ends:
/// the client is given the same address again while nobody needed it.
#[derive(Debug, Default)]
pub(super) struct Table {
    records: BTreeMap<Ipv6Addr, Lease>,
    by_duid: HashMap<Duid, BTreeSet<Ipv6Addr>>,
    by_expiry: BTreeSet<(Time, Ipv6Addr)>,
    /// Addresses that are out of use, also those that were.
    resting: BTreeSet<(Time, Ipv6Addr)>,
    /// Per range start: every address before this one had a record or was not usable when the range was walked.
    walked: HashMap<Ipv6Addr, u128>,
}

impl Table {
    pub(super) fn get(&self, address: Ipv6Addr) -> Option<&Lease> {
        self.records.get(&address)
    }

    /// The records of a range, in order of address.
    pub(super) fn within(&self, range: &AddressRange) -> impl Iterator<Item = &Lease> {
        self.records.range(range.start..=range.end.max(range.start)).map(|(_, lease)| lease)
    }

    /// Whether a usable address is out of use for a while.
    pub(super) fn rests(&self, now: Time, usable: impl Fn(Ipv6Addr) -> bool) -> bool {
        let last = Ipv6Addr::from(u128::MAX);
        self.resting.range((now, last)..).any(|&(_, address)| usable(address))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.records.values()
    }

    /// The client's records, in order of address.
    pub(super) fn of(&self, duid: &Duid) -> impl Iterator<Item = &Lease> {
        self.by_duid.get(duid).into_iter().flatten().filter_map(|address| self.records.get(address))
    }

    /// How many addresses there are records of.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn insert(&mut self, lease: Lease) {
        let address = lease.address;
        self.remove(address);
        self.by_duid.entry(lease.duid.clone()).or_default().insert(address);
        self.by_expiry.insert((lease.expires, address));
        if lease.state == LeaseState::Quarantined {
            self.resting.insert((lease.expires, address));
        }
        self.records.insert(address, lease);
    }

    fn remove(&mut self, address: Ipv6Addr) {
        let Some(old) = self.records.remove(&address) else { return };
        self.by_expiry.remove(&(old.expires, address));
        self.resting.remove(&(old.expires, address));
        if let Some(addresses) = self.by_duid.get_mut(&old.duid) {
            addresses.remove(&address);
            if addresses.is_empty() {
                self.by_duid.remove(&old.duid);
            }
        }
    }

    /// Sets the flag on a record that runs until then or longer; `None` when there is no such record.
    pub(super) fn acknowledge(&mut self, now: Time, address: Ipv6Addr, mac: Option<Mac>) -> Option<&Lease> {
        let lease = self.records.get_mut(&address)?;
        if lease.mac != mac || lease.state != LeaseState::Bound || !lease.is_live(now) {
            return None;
        }
        lease.acknowledged = true;
        Some(lease)
    }

    /// Forgets what is neither live nor wanted, and walks the ranges anew: what is usable has changed.
    pub(super) fn reconfigured(&mut self, now: Time, wanted: impl Fn(Ipv6Addr) -> bool) {
        self.walked.clear();
        let stale = self.records.values().filter(|lease| !lease.is_live(now) && !wanted(lease.address));
        for address in stale.map(|lease| lease.address).collect::<Vec<_>>() {
            self.remove(address);
        }
    }

    /// Nobody else holds the address.
    pub(super) fn available(&self, now: Time, address: Ipv6Addr, who: Who<'_>) -> bool {
        self.get(address).is_none_or(|lease| {
            (lease.is_of(who) && lease.state != LeaseState::Quarantined) || !lease.is_live(now)
        })
    }

    /// There is a record of the address, or room for one.
    pub(super) fn has_room(&self, now: Time, address: Ipv6Addr) -> bool {
        !self.is_full(now) || self.records.contains_key(&address)
    }

    /// There are as many records as there may be, and all of them are in use.
    pub(super) fn is_full(&self, now: Time) -> bool {
        self.len() >= MAX_LEASES && self.by_expiry.first().is_none_or(|(expires, _)| *expires > now)
    }

    /// Forgets what ended first, so that a record of this address fits.
    pub(super) fn make_room(&mut self, now: Time, address: Ipv6Addr) {
        while self.len() >= MAX_LEASES && !self.records.contains_key(&address) && !self.is_full(now) {
            let Some(&(_, oldest)) = self.by_expiry.first() else { return };
            self.remove(oldest);
            // It can be found again.
            let number = u128::from(oldest);
            for (start, walked) in &mut self.walked {
                if *start <= oldest && number < *walked {
                    *walked = number;
                }
            }
        }
    }

    /// The client holds as many of the addresses that `counts` as one may.
    pub(super) fn is_sated(&self, now: Time, duid: &Duid, counts: impl Fn(&Lease) -> bool) -> bool {
        self.of(duid).filter(|lease| lease.is_live(now) && counts(lease)).count() >= MAX_OF_ONE
    }

    /// An address that nothing is known about: where this client's begin, so that clients which ask at the same time are told of different
    /// ones and each of the same again; or the lowest.
    pub(super) fn never_used(
        &self,
        now: Time,
        ranges: &[AddressRange],
        (duid, iaid): (&Duid, u32),
        usable: impl Fn(Ipv6Addr) -> bool,
    ) -> Option<Ipv6Addr> {
        if self.is_full(now) {
            return None;
        }
        let usable = |number: u128| {
            let address = Ipv6Addr::from(number);
            (!self.records.contains_key(&address) && usable(address)).then_some(address)
        };
        let mut hasher = DefaultHasher::new();
        (duid, iaid).hash(&mut hasher);
        let begin = u128::from(hasher.finish());
        for range in ranges {
            let (first, last) = (u128::from(range.start), u128::from(range.end));
            let length = (last - first).saturating_add(1);
            let nearby = (0..NEARBY.min(length)).map(|step| first + begin.wrapping_add(step) % length);
            if let Some(address) = nearby.into_iter().find_map(&usable) {
                return Some(address);
            }
        }
        ranges.iter().find_map(|range| {
            let first = self.walked.get(&range.start).copied().unwrap_or(u128::from(range.start));
            (first..=u128::from(range.end)).find_map(&usable)
        })
    }

    /// Walks the ranges up to the addresses that nothing is known about, so that [`Table::never_used`] need not.
    pub(super) fn walk(&mut self, ranges: &[AddressRange], usable: impl Fn(Ipv6Addr) -> bool) {
        for range in ranges {
            let first = self.walked.get(&range.start).copied().unwrap_or(u128::from(range.start));
            let taken = |number: &u128| {
                let address = Ipv6Addr::from(*number);
                self.records.contains_key(&address) || !usable(address)
            };
            let next = (first..=u128::from(range.end)).find(|number| !taken(number));
            self.walked.insert(range.start, next.unwrap_or(u128::from(range.end)));
        }
    }

    /// The usable address whose lease ended first.
    pub(super) fn longest_ended(&self, now: Time, usable: impl Fn(Ipv6Addr) -> bool) -> Option<Ipv6Addr> {
        let ended = self.by_expiry.iter().take_while(|(expires, _)| *expires <= now);
        ended.map(|&(_, address)| address).find(|&address| usable(address))
    }

    /// Leases that ran out after `since` and not after `now`, marked as ended.
    pub(super) fn expire(&mut self, since: Time, now: Time) -> Vec<Lease> {
        let last = Ipv6Addr::from(u128::MAX);
        let range = (since, last)..=(now, last);
        let due: Vec<Ipv6Addr> =
            if since < now { self.by_expiry.range(range).map(|due| due.1).collect() } else { vec![] };
        let mut expired = Vec::new();
        for address in due {
            let bound = self.records.get_mut(&address).filter(|lease| lease.state == LeaseState::Bound);
            if let Some(lease) = bound {
                lease.state = LeaseState::Ended;
                expired.push(lease.clone());
            }
        }
        expired
    }
}
