//! Leases: which client has which address until when, and the choice of the next address.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::{AddressRange, Mac, Time};

/// The use that an address is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseState {
    /// Offered and not yet requested. Held in memory only.
    Offered,
    /// Granted to the client.
    Bound,
    /// Given back by the client, or expired; remembered so that the client gets it again.
    Ended,
    /// Another host was found using it, by a client or a probe: nobody gets it before `expires`.
    Quarantined,
}

/// One address and its client. The newest record of an address replaces the older ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The address that the record is about.
    pub address: Ipv4Addr,
    /// The hardware address of the client.
    pub mac: Mac,
    /// [`Subnet::id`](crate::Subnet::id).
    pub subnet: String,
    /// The host name that the client sent (option 12).
    #[serde(default)]
    pub hostname: Option<String>,
    /// The use that the address is in.
    pub state: LeaseState,
    /// When this record was made.
    pub granted: Time,
    /// When this record stops being valid.
    pub expires: Time,
    /// The region has acknowledged the lease: renewals may take the subnet's whole lease time.
    #[serde(default)]
    pub acknowledged: bool,
    /// Other servers may extend the client's lease until then: [`GRACE`](crate::GRACE) after this lease ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised_until: Option<Time>,
    /// The address belongs to another server, which keeps it for the client until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<Time>,
}

impl Lease {
    /// True while the offer, lease or quarantine runs.
    #[must_use]
    pub fn is_live(&self, now: Time) -> bool {
        self.state != LeaseState::Ended && self.expires > now
    }

    /// Until when the address must not be given to another client.
    #[must_use]
    pub fn held_until(&self) -> Time {
        let runs = if self.state == LeaseState::Ended { self.granted } else { self.expires };
        self.promised_until.map_or(runs, |promised| promised.max(runs))
    }

    fn is_held(&self, now: Time) -> bool {
        self.held_until() > now
    }

    fn is_promised(&self, now: Time) -> bool {
        self.promised_until.is_some_and(|promised| promised > now)
    }
}

/// The most offers held at once. With more, the oldest is withdrawn: a client accepts an offer within seconds.
pub(crate) const MAX_OFFERS: usize = 16_384;

/// Every address that has a record, found by address, by client and by expiry.
///
/// A record stays after its lease ends: the client gets the same address again unless another client needed it. The
/// address whose lease ended first is reused first. There is at most one record per address. Offers that no client
/// accepted are reused before addresses that were never used. So a client that asks under many names fills no more than
/// [`MAX_OFFERS`] records.
#[derive(Debug, Default)]
pub(crate) struct Table {
    records: BTreeMap<Ipv4Addr, Lease>,
    by_mac: HashMap<Mac, BTreeSet<Ipv4Addr>>,
    by_expiry: BTreeSet<(Time, Ipv4Addr)>,
    /// Offers that no client has accepted, including those that have ended.
    offers: BTreeSet<(Time, Ipv4Addr)>,
    /// Quarantined addresses, including those whose quarantine has ended.
    resting: BTreeSet<(Time, Ipv4Addr)>,
    /// Per range start: every address before this one had a record or was not usable when the range was walked.
    walked: HashMap<Ipv4Addr, u32>,
}

impl Table {
    pub(crate) fn get(&self, address: Ipv4Addr) -> Option<&Lease> {
        self.records.get(&address)
    }

    /// The records of a range, in order of address.
    pub(crate) fn within(&self, range: &AddressRange) -> impl Iterator<Item = &Lease> {
        self.records.range(range.start..=range.end.max(range.start)).map(|(_, lease)| lease)
    }

    /// True if the quarantine of a usable address has not ended.
    pub(crate) fn rests(&self, now: Time, usable: impl Fn(Ipv4Addr) -> bool) -> bool {
        self.resting.range((now, Ipv4Addr::BROADCAST)..).any(|&(_, address)| usable(address))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.records.values()
    }

    /// The client's records, in order of address.
    pub(crate) fn of(&self, mac: Mac) -> impl Iterator<Item = &Lease> {
        self.by_mac.get(&mac).into_iter().flatten().filter_map(|address| self.records.get(address))
    }

    pub(crate) fn insert(&mut self, lease: Lease) {
        let address = lease.address;
        self.remove(address);
        self.by_mac.entry(lease.mac).or_default().insert(address);
        self.by_expiry.insert((lease.expires, address));
        // An address of another server is never offered to another client.
        if lease.state == LeaseState::Offered && lease.kept_until.is_none() {
            self.offers.insert((lease.expires, address));
        }
        if lease.state == LeaseState::Quarantined {
            self.resting.insert((lease.expires, address));
        }
        self.records.insert(address, lease);
    }

    fn remove(&mut self, address: Ipv4Addr) {
        let Some(old) = self.records.remove(&address) else { return };
        self.by_expiry.remove(&(old.expires, address));
        self.offers.remove(&(old.expires, address));
        self.resting.remove(&(old.expires, address));
        if let Some(addresses) = self.by_mac.get_mut(&old.mac) {
            addresses.remove(&address);
            if addresses.is_empty() {
                self.by_mac.remove(&old.mac);
            }
        }
    }

    /// Marks the record of this address as acknowledged; `None` if there is none, or if it is another client's.
    pub(crate) fn acknowledge(&mut self, address: Ipv4Addr, mac: Mac) -> Option<&Lease> {
        let lease = self.records.get_mut(&address).filter(|lease| lease.mac == mac)?;
        lease.acknowledged = true;
        Some(lease)
    }

    /// Removes records that are neither held nor wanted. Walks the ranges from their start again, because other
    /// addresses are usable now.
    pub(crate) fn reconfigured(&mut self, now: Time, wanted: impl Fn(Ipv4Addr) -> bool) {
        self.walked.clear();
        let stale: Vec<_> =
            self.records.values().filter(|lease| !lease.is_held(now) && !wanted(lease.address)).collect();
        for address in stale.into_iter().map(|lease| lease.address).collect::<Vec<_>>() {
            self.remove(address);
        }
    }

    /// Walks the ranges from their start again: more addresses may be usable than before.
    pub(crate) fn walk_again(&mut self) {
        self.walked.clear();
    }

    /// True if no other client holds the address.
    pub(crate) fn available(&self, now: Time, address: Ipv4Addr, mac: Mac) -> bool {
        self.get(address).is_none_or(|lease| {
            !lease.is_held(now) || (lease.mac == mac && lease.state != LeaseState::Quarantined)
        })
    }

    /// The next address of the ranges that has no record.
    pub(crate) fn never_used<'a>(
        &mut self,
        ranges: impl IntoIterator<Item = &'a AddressRange>,
        usable: impl Fn(Ipv4Addr) -> bool,
    ) -> Option<Ipv4Addr> {
        for range in ranges {
            let mut next = self.walked.get(&range.start).copied().unwrap_or(u32::from(range.start));
            while next <= u32::from(range.end) {
                let address = Ipv4Addr::from(next);
                if usable(address) && !self.records.contains_key(&address) {
                    self.walked.insert(range.start, next);
                    return Some(address);
                }
                // 255.255.255.255 is never a host of a subnet, so this ends before it wraps.
                next = next.saturating_add(1);
                if next == u32::MAX {
                    break;
                }
            }
            self.walked.insert(range.start, next);
        }
        None
    }

    /// The usable address of the oldest offer that has ended or, with [`MAX_OFFERS`] offers, of the oldest one.
    pub(crate) fn spare_offer(&self, now: Time, usable: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
        let full = self.offers.len() >= MAX_OFFERS;
        let spare = self.offers.iter().take_while(|(expires, _)| full || *expires <= now);
        let is_spare = |address: &Ipv4Addr| self.get(*address).is_none_or(|lease| !lease.is_promised(now));
        spare.map(|&(_, address)| address).find(|address| is_spare(address) && usable(*address))
    }

    /// The number of records.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// The usable address whose lease ended first.
    pub(crate) fn longest_ended(&self, now: Time, usable: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
        let ended = self.by_expiry.iter().take_while(|(expires, _)| *expires <= now);
        let is_free = |address: &Ipv4Addr| self.get(*address).is_none_or(|lease| !lease.is_held(now));
        ended.map(|&(_, address)| address).find(|address| is_free(address) && usable(*address))
    }

    /// Leases that ran out after `since` and not after `now`, marked as ended.
    pub(crate) fn expire(&mut self, since: Time, now: Time) -> Vec<Lease> {
        let range = (since, Ipv4Addr::BROADCAST)..=(now, Ipv4Addr::BROADCAST);
        let due: Vec<Ipv4Addr> =
            if since < now { self.by_expiry.range(range).map(|due| due.1).collect() } else { vec![] };
        let mut expired = Vec::new();
        for address in due {
            let Some(lease) = self.records.get_mut(&address).filter(|lease| lease.state == LeaseState::Bound)
            else {
                continue;
            };
            lease.state = LeaseState::Ended;
            expired.push(lease.clone());
        }
        expired
    }
}
