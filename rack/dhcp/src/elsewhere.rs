//! Leases that other servers of a link granted, as the region reports them. With them a client keeps its address if the
//! granting server is away. RFC 2131 §4.3.2 allows any server to answer a client that reboots or rebinds.
//!
//! Each address has one owner, the server that gives it. The owner promises not to give it to another client for
//! [`GRACE`] after a lease has ended. So any other server may extend the client's lease within that time, even if the
//! servers cannot reach each other. When the owner learns of the extension, it extends its own lease and promise. The
//! other servers then learn of those.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::{AddressRange, Mac, Time, Told};

/// How long an owner keeps an address for its client after the lease has ended, where servers share leases.
pub const GRACE: Duration = Duration::from_secs(600);
/// The tolerance for reports that arrive late and for clocks that run at different speeds.
const MARGIN: Duration = Duration::from_secs(60);
/// The shortest lease worth granting: with a shorter one, the client would have to renew at once.
const SHORTEST: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Lease {
    mac: Mac,
    kept_until: Time,
    /// The client released the address, so this server must not extend its lease.
    given_back: bool,
}

/// Leases on addresses of other servers, each as its owner last reported it.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    leases: BTreeMap<Ipv4Addr, Lease>,
    by_mac: BTreeSet<(Mac, Ipv4Addr)>,
}

impl Elsewhere {
    /// Stores a lease that the owner of the address reports.
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

    /// Removes entries whose promise has ended. Returns true if any was removed.
    pub(crate) fn tidy(&mut self, now: Time) -> bool {
        let stale = self.leases.iter().filter(|(_, lease)| lease.kept_until <= now);
        let stale: Vec<Ipv4Addr> = stale.map(|(&address, _)| address).collect();
        stale.iter().for_each(|&address| self.forget(address));
        !stale.is_empty()
    }

    /// The addresses that other servers lease to the client.
    pub(crate) fn of(&self, mac: Mac) -> impl Iterator<Item = Ipv4Addr> {
        let addresses = (mac, Ipv4Addr::UNSPECIFIED)..=(mac, Ipv4Addr::BROADCAST);
        self.by_mac.range(addresses).map(|&(_, address)| address)
    }

    /// Addresses of a range that other servers lease to clients.
    pub(crate) fn within(&self, now: Time, range: &AddressRange) -> impl Iterator<Item = Ipv4Addr> {
        let leases = self.leases.range(range.start..=range.end.max(range.start));
        leases.filter(move |(_, lease)| lease.kept_until > now).map(|(&address, _)| address)
    }

    /// The address is, or may be, leased to another client by another server.
    pub(crate) fn is_anothers(&self, now: Time, address: Ipv4Addr, mac: Mac) -> bool {
        self.leases.get(&address).is_some_and(|lease| lease.mac != mac && lease.kept_until > now)
    }

    /// Until when the owner keeps the address for this client. `None` if the client released it.
    pub(crate) fn kept_until(&self, address: Ipv4Addr, mac: Mac) -> Option<Time> {
        self.leases
            .get(&address)
            .filter(|lease| lease.mac == mac && !lease.given_back)
            .map(|lease| lease.kept_until.before(MARGIN))
    }
}

/// True if a lease until this time is long enough to grant.
pub(crate) fn is_worth_it(now: Time, until: Time) -> bool {
    now.until(until) >= SHORTEST
}
