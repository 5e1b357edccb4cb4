//! Is an address that nobody leases in use? Asked of the link before the address is offered (RFC 2131 §3.1 step 2).
//!
//! The client's DISCOVER is parked and one ARP probe is sent (RFC 5227 §2.1.1); whoever answers has the address, which is quarantined
//! for a minute, and the client's next one is probed. When nobody answered in time the client is offered the address. After
//! [`MAX_TAKEN`] answers the client is not answered, and asks again: one message costs the range no more than those. Who answers for
//! everything is not believed (`holders.rs`).
//!
//! | not probed | because |
//! | --- | --- |
//! | an address that the client has leased or was just offered | it is allocated; only its own host should answer |
//! | a reserved address | the operator allocated it (RFC 2131 §1, "manual allocation"), and another interface of the same host may answer for it; the client itself looks and declines (§4.4.1) |
//! | an address for a client behind a relay | ARP does not get there. ICMP echo would, and is not sent: hosts that drop it are many, so that its silence says little |
//! | a REQUEST without an offer (INIT-REBOOT) | the client says that it has the address already |
//! | whatever comes while [`MAX_OPEN`] probes are open | who asks in many names must not be able to fill memory, or silence the server; it is counted |

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::ingress::Packet;
use crate::{Arrival, Mac, Time};

/// Probes that are open at once.
pub(crate) const MAX_OPEN: usize = 2048;
/// Addresses that are probed for one DISCOVER and found in use.
pub(crate) const MAX_TAKEN: u8 = 3;
/// How long an address that was found in use is probed no more, in seconds. A DECLINE says more than an answer that anybody may give, and
/// costs its client more: that quarantine is longer.
pub(crate) const TAKEN_SECONDS: u32 = 60;

/// A DISCOVER whose answer depends on a probe.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) mac: Mac,
    pub(crate) via: Arrival,
    /// The last of its kind: clients ask again, and want that one answered.
    pub(crate) packet: Packet,
    /// Addresses that were probed for it before, and are in use.
    pub(crate) taken: u8,
    until: Time,
}

/// Every open probe, by address, and by when it ends on its interface.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    /// Where addresses are probed, and how long an answer may take.
    patience: BTreeMap<u32, Duration>,
    open: BTreeMap<Ipv4Addr, Parked>,
    by_end: BTreeSet<(u32, Time, Ipv4Addr)>,
    /// Offers without a probe since too many were open.
    left_out: u64,
}

impl Probes {
    pub(crate) fn set(&mut self, interface: u32, patience: Option<Duration>) {
        match patience {
            Some(patience) => drop(self.patience.insert(interface, patience)),
            None => {
                self.patience.remove(&interface);
                let here: Vec<_> = self
                    .open
                    .iter()
                    .filter(|(_, it)| it.via.interface == interface)
                    .map(|it| *it.0)
                    .collect();
                here.into_iter().for_each(|address| drop(self.close(address)));
            }
        }
    }

    /// Opens a probe; false where none can be.
    pub(crate) fn open(
        &mut self,
        now: Time,
        address: Ipv4Addr,
        mac: Mac,
        via: Arrival,
        packet: &Packet,
        taken: u8,
    ) -> bool {
        let Some(&patience) = self.patience.get(&via.interface) else { return false };
        self.close(address);
        if self.open.len() >= MAX_OPEN {
            self.left_out += 1;
            return false;
        }
        let until = now + patience;
        self.by_end.insert((via.interface, until, address));
        self.open.insert(address, Parked { mac, via, packet: packet.clone(), taken, until });
        true
    }

    /// The client asks again while its address is being probed: true, and the probe goes on.
    pub(crate) fn repeated(&mut self, address: Ipv4Addr, mac: Mac, packet: &Packet) -> bool {
        let parked = self.open.get_mut(&address).filter(|parked| parked.mac == mac);
        parked.map(|parked| parked.packet = packet.clone()).is_some()
    }

    /// Who waits for this address on this interface.
    pub(crate) fn get(&self, interface: u32, address: Ipv4Addr) -> Option<&Parked> {
        self.open.get(&address).filter(|parked| parked.via.interface == interface)
    }

    pub(crate) fn close(&mut self, address: Ipv4Addr) -> Option<Parked> {
        let parked = self.open.remove(&address)?;
        self.by_end.remove(&(parked.via.interface, parked.until, address));
        Some(parked)
    }

    /// How long until the interface's next probe ends.
    pub(crate) fn next_end(&self, now: Time, interface: u32) -> Option<Duration> {
        let (_, until, _) = self.of(interface).next()?;
        // A clock that was set back makes nobody wait.
        Some(now.until(*until).min(self.patience.get(&interface).copied().unwrap_or_default()))
    }

    /// An address of the interface whose probe has ended.
    pub(crate) fn ended(&self, now: Time, interface: u32) -> Option<Ipv4Addr> {
        let patience = self.patience.get(&interface).copied().unwrap_or_default();
        let over = |until: Time| until <= now || until > now + patience;
        let (first, last) = (self.of(interface).next(), self.of(interface).next_back());
        [first, last].into_iter().flatten().find(|(_, until, _)| over(*until)).map(|it| it.2)
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) const fn left_out(&self) -> u64 {
        self.left_out
    }

    fn of(&self, interface: u32) -> impl DoubleEndedIterator<Item = &(u32, Time, Ipv4Addr)> {
        let (first, last) = (Time(0), Time(u64::MAX));
        self.by_end.range((interface, first, Ipv4Addr::UNSPECIFIED)..=(interface, last, Ipv4Addr::BROADCAST))
    }
}
