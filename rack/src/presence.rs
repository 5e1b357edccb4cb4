//! The addresses of MACs, from the DHCP server. They decide which client may be given a secret.
//!
//! A boot token is given only to the address that this rack leased to the MAC in a **boot** exchange less than two
//! minutes ago. A boot exchange is one in which the client identified itself as iPXE or as firmware that boots from the
//! network. A host that merely knows a MAC has no such address.
//!
//! If another server gives the addresses, the rack only saw a message that names the MAC's address. Then the host at
//! that address must have that MAC in the ARP table ([`crate::neighbours`]).
//!
//! A MAC has one IPv4 and one IPv6 address here. A request is compared with the one of its own family.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use basalt_dhcp::{Firmware, Mac, Time};

/// The greatest age of a boot exchange (design §8).
pub const FRESH: Duration = Duration::from_secs(120);
/// The most MACs remembered: any host on the link can invent some.
const MOST: usize = 262_144;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Family {
    V4,
    V6,
}

impl Family {
    const fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    address: IpAddr,
    expires: Time,
    /// This rack leased the address.
    leased: bool,
    boot: Option<BootExchange>,
}

/// The latest exchange in which a MAC asked to boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootExchange {
    /// Different for every exchange of this process.
    pub number: u64,
    /// The address that the client has or is given.
    pub address: IpAddr,
    /// The time of the exchange.
    pub at: Time,
    /// This rack leased the address. Otherwise the address comes from a message that any host could have sent, so the
    /// host at the address must be verified.
    pub leased: bool,
    /// The firmware that the client announced, if it is a known type.
    pub firmware: Option<Firmware>,
}

type Table = HashMap<(Mac, Family), Seen>;

#[derive(Debug, Default)]
struct Inner {
    /// The number of boot exchanges so far.
    exchanges: u64,
    table: Table,
    /// The MAC that was last seen at each address.
    by_address: HashMap<IpAddr, Mac>,
}

impl Inner {
    fn insert(&mut self, key: (Mac, Family), seen: Seen) {
        let before = self.table.insert(key, seen);
        if let Some(before) = before.filter(|it| it.address != seen.address) {
            self.leave(key.0, before.address);
        }
        self.by_address.insert(seen.address, key.0);
    }

    /// Notes that the MAC no longer has this address.
    fn leave(&mut self, mac: Mac, address: IpAddr) {
        if self.by_address.get(&address) == Some(&mac) {
            self.by_address.remove(&address);
        }
    }

    /// True if another MAC can be remembered. Removes leases that have ended.
    fn has_room(&mut self, key: (Mac, Family), now: Time) -> bool {
        let is_known = self.table.contains_key(&key);
        if !is_known && self.table.len() >= MOST {
            self.table.retain(|_, seen| seen.expires > now);
            let table = &self.table;
            self.by_address.retain(|address, mac| table.contains_key(&(*mac, Family::of(*address))));
        }
        is_known || self.table.len() < MOST
    }
}

/// The table of MACs and addresses. The DHCP server fills it.
#[derive(Debug, Default)]
pub struct Presence {
    inner: Mutex<Inner>,
}

impl Presence {
    /// Notes a lease that was granted, extended, or read from the lease file.
    pub fn leased(&self, mac: Mac, address: IpAddr, expires: Time, now: Time) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (mac, Family::of(address));
        if inner.has_room(key, now) {
            let boot = inner.table.get(&key).and_then(|seen| seen.boot);
            inner.insert(key, Seen { address, expires, leased: true, boot });
        }
    }

    /// Notes a boot exchange: iPXE got the URL of its script, or a ROM got the URL of its loader.
    pub fn booting(&self, mac: Mac, address: IpAddr, firmware: Option<Firmware>, now: Time) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.exchanges += 1;
        let (number, key) = (inner.exchanges, (mac, Family::of(address)));
        if !inner.has_room(key, now) {
            return;
        }
        let known = inner.table.get(&key).filter(|seen| seen.address == address);
        let (leased, until) = known.map_or((false, now), |seen| (seen.leased, seen.expires));
        let boot = Some(BootExchange { number, address, at: now, leased, firmware });
        inner.insert(key, Seen { address, expires: until.max(now + FRESH), leased, boot });
    }

    /// Notes that the lease ended.
    pub fn ended(&self, mac: Mac, address: IpAddr) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (mac, Family::of(address));
        if inner.table.get(&key).is_some_and(|seen| seen.address == address) {
            inner.table.remove(&key);
            inner.leave(mac, address);
        }
    }

    /// The MAC that has this address.
    pub fn mac(&self, address: IpAddr, now: Time) -> Option<Mac> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mac = *inner.by_address.get(&address)?;
        let seen = inner.table.get(&(mac, Family::of(address)))?;
        (seen.address == address && seen.expires > now).then_some(mac)
    }

    /// The address that this rack leased to the MAC, of the same family as `peer`, if the lease still runs.
    pub fn address(&self, mac: Mac, peer: IpAddr, now: Time) -> Option<IpAddr> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = inner.table.get(&(mac, Family::of(peer)))?;
        (seen.leased && seen.expires > now).then_some(seen.address)
    }

    /// The MAC's latest boot exchange in the address family of `peer`, if it is fresh.
    pub fn fresh(&self, mac: Mac, peer: IpAddr, now: Time) -> Option<BootExchange> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let boot = inner.table.get(&(mac, Family::of(peer)))?.boot?;
        (boot.at + FRESH > now).then_some(boot)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5));
    const START: Time = Time(0);
    const END: Time = Time(600_000);
    const OTHER: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

    #[test]
    fn a_boot_exchange_is_fresh_for_two_minutes() {
        let presence = Presence::default();
        presence.leased(MAC, ADDRESS, END, START);
        assert_eq!(presence.fresh(MAC, ADDRESS, START), None);
        presence.booting(MAC, ADDRESS, None, Time(1_000));
        assert_eq!(presence.fresh(MAC, ADDRESS, Time(999) + FRESH).unwrap().address, ADDRESS);
        assert_eq!(presence.fresh(MAC, ADDRESS, Time(1_000) + FRESH), None);
    }

    #[test]
    fn an_address_says_which_mac_has_it_until_the_lease_is_over_or_another_has_it() {
        let presence = Presence::default();
        presence.leased(MAC, ADDRESS, END, START);
        assert_eq!(presence.mac(ADDRESS, START), Some(MAC));
        assert_eq!(presence.mac(ADDRESS, END), None);
        let next = Mac([2, 0, 0, 0, 0, 2]);
        presence.leased(next, ADDRESS, END, START);
        presence.ended(MAC, ADDRESS);
        assert_eq!(presence.mac(ADDRESS, START), Some(next), "the lease that ended is another's");
        let elsewhere = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 66));
        presence.leased(next, elsewhere, END, START);
        assert_eq!((presence.mac(ADDRESS, START), presence.mac(elsewhere, START)), (None, Some(next)));
    }

    #[test]
    fn the_installed_systems_renewals_do_not_freshen_it() {
        let presence = Presence::default();
        presence.booting(MAC, ADDRESS, None, START);
        presence.leased(MAC, ADDRESS, END, START);
        assert_eq!(presence.fresh(MAC, ADDRESS, START + FRESH), None);
        assert_eq!(presence.address(MAC, ADDRESS, START + FRESH), Some(ADDRESS));
        assert_eq!(presence.address(MAC, ADDRESS, END), None);
    }

    #[test]
    fn an_address_that_was_only_heard_of_is_not_leased() {
        let presence = Presence::default();
        let is_leased = |mac| presence.fresh(mac, ADDRESS, START).unwrap().leased;
        presence.booting(MAC, ADDRESS, None, START);
        assert!(!is_leased(MAC));
        assert_eq!(presence.address(MAC, ADDRESS, START), None, "any host may have sent the message");
        let other = Mac([2, 0, 0, 0, 0, 2]);
        presence.leased(other, ADDRESS, END, START);
        presence.booting(other, ADDRESS, None, START);
        assert!(is_leased(other));
        let elsewhere = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 66));
        presence.booting(other, elsewhere, None, START);
        assert!(!is_leased(other), "the lease is of another address");
    }

    #[test]
    fn who_is_made_up_is_forgotten_and_there_are_not_too_many() {
        let presence = Presence::default();
        let known = || presence.inner.lock().unwrap().table.len();
        let made_up = |number: u32, now| {
            let [a, b, c, d] = number.to_be_bytes();
            presence.booting(Mac([6, 0, a, b, c, d]), ADDRESS, None, now);
        };
        let most = u32::try_from(MOST).unwrap();
        (0..most + 10).for_each(|number| made_up(number, START));
        assert_eq!(known(), MOST);
        made_up(most, START + FRESH);
        assert_eq!(known(), 1);
    }

    #[test]
    fn every_boot_exchange_has_its_own_number() {
        let presence = Presence::default();
        presence.booting(MAC, ADDRESS, None, START);
        let first = presence.fresh(MAC, ADDRESS, START).unwrap().number;
        presence.booting(MAC, ADDRESS, None, START);
        assert_ne!(presence.fresh(MAC, ADDRESS, START).unwrap().number, first);
        presence.ended(MAC, ADDRESS);
        assert_eq!(presence.fresh(MAC, ADDRESS, START), None);
    }

    #[test]
    fn an_exchange_over_ipv6_says_nothing_of_ipv4() {
        let presence = Presence::default();
        presence.booting(MAC, ADDRESS, None, START);
        presence.booting(MAC, OTHER, None, START);
        assert_eq!(presence.fresh(MAC, ADDRESS, START).unwrap().address, ADDRESS);
        presence.ended(MAC, ADDRESS);
        assert_eq!(presence.fresh(MAC, ADDRESS, START), None);
        assert_eq!(presence.fresh(MAC, OTHER, START).unwrap().address, OTHER);
    }
}
