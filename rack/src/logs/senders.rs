//! The machine that a message comes from, by the sender's address at its arrival. The host name in a message is not
//! reliable.
//!
//! | source, in this order | knows |
//! | --- | --- |
//! | leases and boot exchanges of this rack | machines with addresses by DHCP |
//! | addresses of concern `dhcp` | addresses that are reserved for or given to one MAC, also those that a system sets itself |
//! | the kernel's neighbour table | hosts on a link of this rack, with any address |

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use basalt_dhcp::Mac;
use basalt_proto::rack_v1::DhcpConcern;
use tokio::sync::watch;

use crate::boot::BootTable;
use crate::clock::Clock;
use crate::neighbours;
use crate::presence::Presence;

/// The least time between two readings of the kernel's table.
const AGAIN: Duration = Duration::from_secs(1);

/// Finds the machine that has an address.
#[derive(Debug)]
pub struct Senders {
    presence: Arc<Presence>,
    boot: watch::Receiver<Option<Arc<BootTable>>>,
    dhcp: watch::Receiver<Option<Arc<DhcpConcern>>>,
    clock: Clock,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The concern that `reserved` was made from. `reserved`: addresses that belong to one MAC each.
    concern: Option<Arc<DhcpConcern>>,
    reserved: HashMap<IpAddr, Mac>,
    neighbours: HashMap<IpAddr, Mac>,
    asked: Option<Instant>,
}

impl Senders {
    /// A lookup in these sources.
    #[must_use]
    pub fn new(
        presence: Arc<Presence>,
        boot: watch::Receiver<Option<Arc<BootTable>>>,
        dhcp: watch::Receiver<Option<Arc<DhcpConcern>>>,
        clock: Clock,
    ) -> Self {
        Self { presence, boot, dhcp, clock, known: Mutex::default() }
    }

    /// The uid of the declared machine that has this address now.
    #[must_use]
    pub fn machine(&self, address: IpAddr) -> Option<String> {
        let address = address.to_canonical();
        let table = self.boot.borrow().clone()?;
        let uid = |mac: Mac| table.machine(mac).map(|machine| machine.machine_uid.clone());
        if let Some(uid) = self.presence.mac(address, self.clock.now()).and_then(uid) {
            return Some(uid);
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let concern = self.dhcp.borrow().clone();
        if known.concern.as_ref().map(Arc::as_ptr) != concern.as_ref().map(Arc::as_ptr) {
            known.reserved = concern.as_deref().map(reserved).unwrap_or_default();
            known.concern = concern;
        }
        if let Some(uid) = known.reserved.get(&address).copied().and_then(uid) {
            return Some(uid);
        }
        if known.asked.is_none_or(|at| at.elapsed() >= AGAIN) {
            (known.neighbours, known.asked) = (neighbours::all(), Some(Instant::now()));
        }
        known.neighbours.get(&address).copied().and_then(uid)
    }
}

fn reserved(concern: &DhcpConcern) -> HashMap<IpAddr, Mac> {
    let four = concern.subnets.iter().flat_map(|it| &it.reservations).map(|it| (&it.address, &it.mac));
    let six = concern.subnets6.iter().flat_map(|it| &it.reservations).map(|it| (&it.address, &it.mac));
    four.chain(six).filter_map(|(address, mac)| Some((address.parse().ok()?, mac.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_dhcp::Time;
    use basalt_proto::rack_v1::{BootConcern, BootMachine, DhcpSubnet, KnownConcern, Reservation};

    #[test]
    fn a_lease_says_who_sends_then_a_reservation_and_strangers_are_nobody() {
        let machine = |uid: &str, mac: &str| BootMachine {
            machine_uid: uid.into(),
            macs: vec![mac.into()],
            ..BootMachine::default()
        };
        let machines = vec![machine("one", "52:54:00:00:00:01"), machine("two", "52:54:00:00:00:02")];
        let table = BootTable::new(&KnownConcern { machines }, BootConcern::default());
        let reservation = Reservation {
            mac: "52:54:00:00:00:02".into(),
            address: "10.9.0.7".into(),
            ..Reservation::default()
        };
        let subnet = DhcpSubnet { reservations: vec![reservation], ..DhcpSubnet::default() };
        let concern = DhcpConcern { subnets: vec![subnet], ..DhcpConcern::default() };
        let (_boot, boot) = watch::channel(Some(Arc::new(table)));
        let (_dhcp, dhcp) = watch::channel(Some(Arc::new(concern)));
        let (presence, clock) = (Arc::<Presence>::default(), Clock::default());
        let senders = Senders::new(Arc::clone(&presence), boot, dhcp, clock.clone());
        let who = |address: &str| senders.machine(address.parse().unwrap());
        assert_eq!(who("10.9.0.7").as_deref(), Some("two"));
        let one = Mac([0x52, 0x54, 0, 0, 0, 1]);
        let later = Time(clock.now().0 + 60_000);
        presence.leased(one, "10.9.0.7".parse().unwrap(), later, clock.now());
        assert_eq!(who("::ffff:10.9.0.7").as_deref(), Some("one"), "whoever has the lease sends");
        assert_eq!(who("10.9.0.8"), None);
    }
}
