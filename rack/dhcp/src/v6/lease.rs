//! Leases: which client has which address until when, and the choice of the next address.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use super::{AddressRange, Duid};
use crate::{LeaseState, Mac, Time};

/// The most records kept at once. With this many, a new record replaces the one that ended first, of any subnet. If
/// none has ended, the client gets no address. An IPv6 range has more addresses than a server has memory. Clients with
/// a reservation are always served.
pub const MAX_LEASES: usize = 65_536;
/// The most addresses that one client may have on a link. Firmware, boot loader and system may each ask for one.
pub(super) const MAX_OF_ONE: usize = 16;
/// The number of addresses tried from the client's own position in the range.
const NEARBY: u128 = 16;

/// An address and its client. The newest record of an address replaces the older ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The leased address.
    pub address: Ipv6Addr,
    /// The client's DUID.
    pub duid: Duid,
    /// The number of the client's identity association (IAID).
    pub iaid: u32,
    /// The client's hardware address, if it is known.
    #[serde(default)]
    pub mac: Option<Mac>,
    /// The hardware address was seen on the link. False: it was read from the DUID, which all interfaces of a host
    /// share.
    #[serde(default)]
    pub mac_heard: bool,
    /// [`Subnet::id`](super::Subnet::id).
    pub subnet: String,
    /// The host name that the client sent (option 39).
    #[serde(default)]
    pub hostname: Option<String>,
    /// The use that the address is in; never [`LeaseState::Offered`].
    pub state: LeaseState,
    /// When this record was made.
    pub granted: Time,
    /// When this record stops being valid.
    pub expires: Time,
    /// The region has acknowledged the lease: renewals may take the subnet's whole lease time.
    #[serde(default)]
    pub acknowledged: bool,
}

impl Lease {
    /// True while the lease or the quarantine runs: the address must not go to another client.
    #[must_use]
    pub fn is_live(&self, now: Time) -> bool {
        self.state != LeaseState::Ended && self.expires > now
    }

    /// True if the lease belongs to this association.
    pub(super) fn is_of(&self, who: Who<'_>) -> bool {
        if self.duid.is_forgotten() {
            // A lease without a hardware address belongs to the client that names its address.
            return self.mac.map_or(who.has_it, |mac| who.mac == Some(mac));
        }
        let is_anothers = self.mac_heard && who.heard.is_some_and(|mac| self.mac != Some(mac));
        self.duid == *who.duid && self.iaid == who.iaid && !is_anothers
    }
}

/// An association and the hardware address that it was seen from, if known. The hardware address is needed because
/// hosts that were cloned from one disk, or whose boards have the same UUID, have the same DUID. On like hardware they
/// have the same IAID, too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Who<'a> {
    pub(super) duid: &'a Duid,
    pub(super) iaid: u32,
    pub(super) heard: Option<Mac>,
    /// The address seen, or else the one in the DUID.
    pub(super) mac: Option<Mac>,
    /// The client claims to have the address and wants to keep it.
    pub(super) has_it: bool,
}

/// Every address that has a record, found by address, by client and by expiry. A record stays after its lease ends: the
/// client gets the same address again unless another client needed it.
#[derive(Debug, Default)]
pub(super) struct Table {
    records: BTreeMap<Ipv6Addr, Lease>,
    by_duid: HashMap<Duid, BTreeSet<Ipv6Addr>>,
    by_expiry: BTreeSet<(Time, Ipv6Addr)>,
    /// Quarantined addresses, including those whose quarantine has ended.
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

    /// True if the quarantine of a usable address has not ended.
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

    /// The number of records.
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

    /// Marks a running lease of this hardware address as acknowledged; `None` when there is no such lease.
    pub(super) fn acknowledge(&mut self, now: Time, address: Ipv6Addr, mac: Option<Mac>) -> Option<&Lease> {
        let lease = self.records.get_mut(&address)?;
        if lease.mac != mac || lease.state != LeaseState::Bound || !lease.is_live(now) {
            return None;
        }
        lease.acknowledged = true;
        Some(lease)
    }

    /// Removes records that are neither live nor wanted. Walks the ranges from their start again, because other
    /// addresses are usable now.
    pub(super) fn reconfigured(&mut self, now: Time, wanted: impl Fn(Ipv6Addr) -> bool) {
        self.walked.clear();
        let stale = self.records.values().filter(|lease| !lease.is_live(now) && !wanted(lease.address));
        for address in stale.map(|lease| lease.address).collect::<Vec<_>>() {
            self.remove(address);
        }
    }

    /// True if no other client holds the address.
    pub(super) fn available(&self, now: Time, address: Ipv6Addr, who: Who<'_>) -> bool {
        self.get(address).is_none_or(|lease| {
            (lease.is_of(who) && lease.state != LeaseState::Quarantined) || !lease.is_live(now)
        })
    }

    /// True if the address has a record or there is room for one.
    pub(super) fn has_room(&self, now: Time, address: Ipv6Addr) -> bool {
        !self.is_full(now) || self.records.contains_key(&address)
    }

    /// True if there are [`MAX_LEASES`] records and all of them are in use.
    pub(super) fn is_full(&self, now: Time) -> bool {
        self.len() >= MAX_LEASES && self.by_expiry.first().is_none_or(|(expires, _)| *expires > now)
    }

    /// Removes the records that ended first, until a record of this address fits.
    pub(super) fn make_room(&mut self, now: Time, address: Ipv6Addr) {
        while self.len() >= MAX_LEASES && !self.records.contains_key(&address) && !self.is_full(now) {
            let Some(&(_, oldest)) = self.by_expiry.first() else { return };
            self.remove(oldest);
            // The removed address is free for a walk to find again.
            let number = u128::from(oldest);
            for (start, walked) in &mut self.walked {
                if *start <= oldest && number < *walked {
                    *walked = number;
                }
            }
        }
    }

    /// True if the client holds the most addresses allowed, among those that `counts` selects.
    pub(super) fn is_sated(&self, now: Time, duid: &Duid, counts: impl Fn(&Lease) -> bool) -> bool {
        self.of(duid).filter(|lease| lease.is_live(now) && counts(lease)).count() >= MAX_OF_ONE
    }

    /// An address without a record. The search begins at a position derived from the client: clients that ask at the
    /// same time get different addresses, and the same client gets the same one again. If that part of the range is
    /// full, the lowest free address.
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

    /// Walks the ranges up to the first address without a record, so that [`Table::never_used`] starts there.
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
