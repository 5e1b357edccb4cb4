//! What other servers of a link granted, as the region tells it, so that a client keeps its address while the server that gave it
//! is away (RFC 2131 §4.3.2 lets any server answer a client that reboots or rebinds).
//!
//! An address is one server's to give. That server promises to give it to nobody else for [`GRACE`] after a lease has ended, and so
//! any other may let the client keep it for that long, whoever can hear whom. Once the server hears that, its own lease and promise are
//! longer, and the others hear of it in turn.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::{AddressRange, Mac, Time, Told};

/// For how long after a lease its address is kept for its client, where servers share leases.
pub const GRACE: Duration = Duration::from_secs(600);
/// What word of a lease may be late by, and clocks may differ in how fast they go.
const MARGIN: Duration = Duration::from_secs(60);
/// A client with less would have to ask again at once.
const SHORTEST: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Lease {
    mac: Mac,
    kept_until: Time,
    /// The client may have it no more by this one.
    given_back: bool,
}

/// Leases of addresses that other servers give, as those last said.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    leases: BTreeMap<Ipv4Addr, Lease>,
    by_mac: BTreeSet<(Mac, Ipv4Addr)>,
}

impl Elsewhere {
    /// Takes the word of the server whose address it is.
    pub(crate) fn learn(&mut self, now: Time, told: &Told) {
        self.forget(told.address);
        if let Some(kept_until) = told.kept_until.filter(|&until| until > now) {
            let lease = Lease { mac: told.mac, kept_until, given_back: told.given_back };
            self.leases.insert(told.address, lease);
            self.by_mac.insert((told.mac, told.address));
        }
    }

    fn forget(&mut self, address: Ipv4Addr) {
        if let Some(lease) = self.leases.remove(&address) {
            self.by_mac.remove(&(lease.mac, address));
        }
    }

    /// Forgets what nobody has to keep any more. Whether there was something.
    pub(crate) fn tidy(&mut self, now: Time) -> bool {
        let stale = self.leases.iter().filter(|(_, lease)| lease.kept_until <= now);
        let stale: Vec<Ipv4Addr> = stale.map(|(&address, _)| address).collect();
        stale.iter().for_each(|&address| self.forget(address));
        !stale.is_empty()
    }

    /// The client's addresses.
    pub(crate) fn of(&self, mac: Mac) -> impl Iterator<Item = Ipv4Addr> {
        let addresses = (mac, Ipv4Addr::UNSPECIFIED)..=(mac, Ipv4Addr::BROADCAST);
        self.by_mac.range(addresses).map(|&(_, address)| address)
    }

    /// Addresses of a range that clients have by other servers.
    pub(crate) fn within(&self, now: Time, range: &AddressRange) -> impl Iterator<Item = Ipv4Addr> {
        let leases = self.leases.range(range.start..=range.end.max(range.start));
        leases.filter(move |(_, lease)| lease.kept_until > now).map(|(&address, _)| address)
    }

    /// Another client has the address, or may have it by one of the others.
    pub(crate) fn is_anothers(&self, now: Time, address: Ipv4Addr, mac: Mac) -> bool {
        self.leases.get(&address).is_some_and(|lease| lease.mac != mac && lease.kept_until > now)
    }

    /// Until when this client surely has the address to itself.
    pub(crate) fn kept_until(&self, address: Ipv4Addr, mac: Mac) -> Option<Time> {
        self.leases
            .get(&address)
            .filter(|lease| lease.mac == mac && !lease.given_back)
            .map(|lease| lease.kept_until.before(MARGIN))
    }
}

/// Whether a lease up to then is worth giving.
pub(crate) fn is_worth_it(now: Time, until: Time) -> bool {
    now.until(until) >= SHORTEST
}
