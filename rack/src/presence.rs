//! Who has which address: the part of the DHCP server's knowledge that decides who may be handed a secret.
//!
//! A boot token goes only to the address that this rack leased to the MAC in a **boot** exchange (one in which the client
//! said it was iPXE or firmware that boots from the network) less than two minutes ago. Somebody who merely knows a MAC has no such address.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use basalt_dhcp::Mac;

/// How old a boot exchange may be, milliseconds (design §8).
pub const FRESH_MS: i64 = 120_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    address: Ipv4Addr,
    expires_ms: i64,
    boot: Option<BootExchange>,
}

/// The last exchange in which a MAC asked for something to boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootExchange {
    /// Differs for every exchange of this process.
    pub number: u64,
    /// Where to.
    pub address: Ipv4Addr,
    /// When, Unix milliseconds.
    pub at_ms: i64,
}

/// The table. Fed by the DHCP server.
#[derive(Debug, Default)]
pub struct Presence {
    inner: Mutex<(u64, HashMap<Mac, Seen>)>,
}

impl Presence {
    /// A lease was granted, extended, or read from the lease file.
    pub fn leased(&self, mac: Mac, address: Ipv4Addr, expires_ms: i64) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let boot = inner.1.get(&mac).and_then(|seen| seen.boot);
        inner.1.insert(mac, Seen { address, expires_ms, boot });
    }

    /// iPXE was told where its script is, or a ROM where its loader is.
    pub fn booting(&self, mac: Mac, address: Ipv4Addr, now_ms: i64) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0 += 1;
        let boot = BootExchange { number: inner.0, address, at_ms: now_ms };
        let expires_ms = inner.1.get(&mac).map_or(now_ms + FRESH_MS, |seen| seen.expires_ms);
        inner.1.insert(mac, Seen { address, expires_ms, boot: Some(boot) });
    }

    /// The lease ended.
    pub fn ended(&self, mac: Mac, address: Ipv4Addr) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.1.get(&mac).is_some_and(|seen| seen.address == address) {
            inner.1.remove(&mac);
        }
    }

    /// The address that this rack leased to the MAC and that is still its.
    pub fn address(&self, mac: Mac, now_ms: i64) -> Option<Ipv4Addr> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.1.get(&mac).filter(|seen| seen.expires_ms > now_ms).map(|seen| seen.address)
    }

    /// The MAC's last boot exchange, if it is fresh.
    pub fn fresh(&self, mac: Mac, now_ms: i64) -> Option<BootExchange> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let boot = inner.1.get(&mac)?.boot?;
        (0..FRESH_MS).contains(&(now_ms - boot.at_ms)).then_some(boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);

    #[test]
    fn a_boot_exchange_is_fresh_for_two_minutes() {
        let presence = Presence::default();
        presence.leased(MAC, ADDRESS, 600_000);
        assert_eq!(presence.fresh(MAC, 0), None);
        presence.booting(MAC, ADDRESS, 1_000);
        assert_eq!(presence.fresh(MAC, 1_000 + FRESH_MS - 1).unwrap().address, ADDRESS);
        assert_eq!(presence.fresh(MAC, 1_000 + FRESH_MS), None);
    }

    #[test]
    fn the_installed_systems_renewals_do_not_freshen_it() {
        let presence = Presence::default();
        presence.booting(MAC, ADDRESS, 0);
        presence.leased(MAC, ADDRESS, 600_000);
        assert_eq!(presence.fresh(MAC, FRESH_MS), None);
        assert_eq!(presence.address(MAC, FRESH_MS), Some(ADDRESS));
        assert_eq!(presence.address(MAC, 600_000), None);
    }

    #[test]
    fn every_boot_exchange_has_its_own_number() {
        let presence = Presence::default();
        presence.booting(MAC, ADDRESS, 0);
        let first = presence.fresh(MAC, 0).unwrap().number;
        presence.booting(MAC, ADDRESS, 0);
        assert_ne!(presence.fresh(MAC, 0).unwrap().number, first);
        presence.ended(MAC, ADDRESS);
        assert_eq!(presence.fresh(MAC, 0), None);
    }
}
