//! ARP probes that find out, before an offer, if an unleased address is in use on the link (RFC 2131 §3.1 step 2).
//!
//! The client's DISCOVER is parked and one ARP probe is sent (RFC 5227 §2.1.1).
//!
//! - A host answers: it has the address, which is quarantined for a minute. The client's next address is probed. After
//!   [`MAX_TAKEN`] answers the server stops, and the client asks again: so one message takes at most that many
//!   addresses out of the range. Hosts that answer for every address are ignored (`holders.rs`).
//! - No host answers in time: the client is offered the address.
//!
//! | not probed | because |
//! | --- | --- |
//! | an address that the client has leased or was just offered | it is allocated; only its own host should answer |
//! | a reserved address | the operator allocated it (RFC 2131 §1, "manual allocation"), and another interface of the same host may answer for it; the client itself looks and declines (§4.4.1) |
//! | an address for a client behind a relay | ARP does not get there. ICMP echo would, and is not sent: hosts that drop it are many, so that its silence says little |
//! | a REQUEST without an offer (INIT-REBOOT) | the client says that it has the address already |
//! | any message while [`MAX_OPEN`] probes are open | a client with many names must not fill memory or silence the server; it is counted |

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::ingress::Packet;
use crate::{Arrival, Mac, Time};

/// The most probes open at once.
pub(crate) const MAX_OPEN: usize = 2048;
/// The most addresses that are found in use for one DISCOVER before the server stops.
pub(crate) const MAX_TAKEN: u8 = 3;
/// How long an address is not probed again after it was found in use, in seconds. The quarantine after a DECLINE is
/// longer: any host can answer a probe, but a DECLINE costs its client an address and so is more credible.
pub(crate) const TAKEN_SECONDS: u32 = 60;

/// A DISCOVER whose answer depends on a probe.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) mac: Mac,
    pub(crate) via: Arrival,
    /// The latest repetition of the DISCOVER: clients repeat it and expect an answer to the last one.
    pub(crate) packet: Packet,
    /// The number of addresses probed for it before and found in use.
    pub(crate) taken: u8,
    until: Time,
}

/// Every open probe, by address and, per interface, by its end.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    /// The interfaces where addresses are probed, and how long each probe waits for an answer.
    patience: BTreeMap<u32, Duration>,
    open: BTreeMap<Ipv4Addr, Parked>,
    by_end: BTreeSet<(u32, Time, Ipv4Addr)>,
    /// Offers made without a probe because too many probes were open.
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

    /// Opens a probe. False if none can be opened.
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

    /// Notes that the client repeated its DISCOVER while its address is being probed. True if such a probe is open; it
    /// goes on.
    pub(crate) fn repeated(&mut self, address: Ipv4Addr, mac: Mac, packet: &Packet) -> bool {
        let parked = self.open.get_mut(&address).filter(|parked| parked.mac == mac);
        parked.map(|parked| parked.packet = packet.clone()).is_some()
    }

    /// The parked DISCOVER that waits for the probe of this address on this interface.
    pub(crate) fn get(&self, interface: u32, address: Ipv4Addr) -> Option<&Parked> {
        self.open.get(&address).filter(|parked| parked.via.interface == interface)
    }

    pub(crate) fn close(&mut self, address: Ipv4Addr) -> Option<Parked> {
        let parked = self.open.remove(&address)?;
        self.by_end.remove(&(parked.via.interface, parked.until, address));
        Some(parked)
    }

    /// The time until the interface's next probe ends.
    pub(crate) fn next_end(&self, now: Time, interface: u32) -> Option<Duration> {
        let (_, until, _) = self.of(interface).next()?;
        // At most the full wait, in case the clock was set back.
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
