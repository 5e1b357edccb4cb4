//! Unknown DHCP servers on the rack's links, found by a DISCOVER and by clients that take an address of another server.
//!
//! A subnet whose addresses another server gives is not searched. The region's racks do not count: this rack, also at
//! its recent addresses, and the racks that the concern names.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use basalt_dhcp::ingress::{MAX_DATAGRAM, Packet};
use basalt_dhcp::{Action, BootMode, Event, Ignored, Mac, detect};
use basalt_proto::rack_v1::{DhcpServerFact, fact::Body};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

use super::Dhcp;
use crate::facts::About;
use crate::interfaces::Served;

/// How often an interface is searched, and how often a server that stays is reported.
const EVERY: Duration = Duration::from_secs(300);
/// How soon to check again if there is something to search for.
const SOON: Duration = Duration::from_secs(5);
/// How often to ask in each search, since a message may be lost, and how long to wait for answers: dnsmasq pings an
/// address for three seconds before it offers it.
const ASK: Ask = Ask { tries: 3, patience: Duration::from_secs(4) };
/// The most reported servers that are remembered: any host on the link can invent some.
const REMEMBERED: usize = 64;

/// How often to ask, and how long to wait for answers each time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) tries: usize,
    pub(crate) patience: Duration,
}

/// How long a rack's former address counts as a rack's: clients and reports may still name it.
const REMEMBERED_FOR: Duration = Duration::from_secs(900);

/// DHCPREQUEST (RFC 2132 §9.6).
const REQUEST: u8 = 3;

/// When each server was last reported.
#[derive(Debug, Default)]
pub(super) struct Others(Mutex<HashMap<(u32, Ipv4Addr), Instant>>);

impl Others {
    /// True if this server on this interface is due to be reported.
    fn is_news(&self, server: (u32, Ipv4Addr), now: Instant) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, at| now.duration_since(*at) < EVERY);
        if told.contains_key(&server) || told.len() >= REMEMBERED {
            return false;
        }
        told.insert(server, now);
        true
    }
}

/// Addresses of this rack and of the region's other racks.
#[derive(Debug, Default)]
pub(super) struct Racks(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    own: BTreeSet<Ipv4Addr>,
    peers: BTreeSet<Ipv4Addr>,
    /// When each former rack address was given up.
    gone: HashMap<Ipv4Addr, Instant>,
}

impl Racks {
    /// Sets this rack's addresses.
    pub(super) fn own(&self, addresses: impl Iterator<Item = Ipv4Addr>, now: Instant) {
        self.change(now, |known| std::mem::replace(&mut known.own, addresses.collect()));
    }

    /// Sets the addresses of the region's racks.
    pub(super) fn told(&self, addresses: &[String], now: Instant) {
        let addresses = addresses.iter().filter_map(|address| address.parse().ok()).collect();
        self.change(now, |known| std::mem::replace(&mut known.peers, addresses));
    }

    fn change(&self, now: Instant, replace: impl FnOnce(&mut Known) -> BTreeSet<Ipv4Addr>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for before in replace(&mut known) {
            known.gone.insert(before, now);
        }
        let Known { own, peers, gone } = &mut *known;
        gone.retain(|address, since| {
            !own.contains(address) && !peers.contains(address) && now.duration_since(*since) < REMEMBERED_FOR
        });
    }

    /// True if the server is a rack, or was one at that address recently.
    fn contain(&self, server: Ipv4Addr, now: Instant) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let was = known.gone.get(&server).is_some_and(|since| now.duration_since(*since) < REMEMBERED_FOR);
        was || known.own.contains(&server) || known.peers.contains(&server)
    }
}

/// A client on the link, not behind a relay, that took an address of another server.
pub(super) fn chosen(packet: &Packet, actions: &[Action]) -> Option<(Mac, Ipv4Addr)> {
    match actions {
        [Action::Report(Event::Ignored { mac: Some(mac), reason: Ignored::OtherServer(server) })]
            if packet.giaddr.is_unspecified() && u8::from(packet.kind) == REQUEST =>
        {
            Some((*mac, *server))
        }
        _ => None,
    }
}

impl Dhcp {
    /// Searches the interface's link for other servers, for ever.
    pub(super) async fn look_for_others(&self, at: &Served) -> Infallible {
        loop {
            let asked = match at.mac.filter(|_| self.served_alone(at.index).is_some()) {
                Some(mac) => look(at, mac, self.ports.server, self.ports.client, ASK).await,
                None => {
                    sleep(SOON).await;
                    continue;
                }
            };
            match asked {
                Ok(servers) => {
                    for server in servers.into_iter().filter(|server| !at.addresses.contains(server)) {
                        self.found(at.index, server, "it offered an address to a rack that asked");
                    }
                }
                Err(error) => {
                    tracing::warn!(interface = %at.interface, %error, "other DHCP servers cannot be looked for");
                }
            }
            sleep(EVERY).await;
        }
    }

    /// The subnet of a link where only racks may give addresses.
    fn served_alone(&self, interface: u32) -> Option<String> {
        let core = self.lock();
        let mut subnets = core.server.subnets_of(interface);
        subnets.find(|it| it.boot.mode != BootMode::Proxy).map(|it| it.id.clone())
    }

    /// Reports a server, not too often.
    pub(super) fn found(&self, interface: u32, server: Ipv4Addr, seen: &str) {
        if self.racks.contain(server, Instant::now()) {
            return;
        }
        let Some(subnet_uid) = self.served_alone(interface) else { return };
        if !self.others.is_news((interface, server), Instant::now()) {
            return;
        }
        tracing::warn!(interface, %server, seen, "another DHCP server is on the link");
        let fact = DhcpServerFact { address: server.to_string(), subnet_uid, seen: seen.to_owned() };
        self.facts.tell(About::default().saw(Body::DhcpServer(fact)));
    }
}

/// Sends DISCOVERs on an interface's link and collects the servers that answer.
pub(crate) async fn look(
    at: &Served,
    mac: Mac,
    server_port: u16,
    client_port: u16,
    ask: Ask,
) -> io::Result<BTreeSet<Ipv4Addr>> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.set_broadcast(true)?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(at.interface.as_bytes()))?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, client_port)).into())?;
    let socket = UdpSocket::from_std(socket.into())?;
    let mut xid = [0; 4];
    aws_lc_rs::rand::fill(&mut xid).map_err(|_| io::Error::other("no random numbers"))?;
    let xid = u32::from_be_bytes(xid);
    let mut found = BTreeSet::new();
    for _ in 0..ask.tries {
        socket.send_to(&detect::discover(xid, mac), (Ipv4Addr::BROADCAST, server_port)).await?;
        let listen = async {
            let mut buffer = [0; MAX_DATAGRAM];
            while found.len() < REMEMBERED
                && let Ok((length, _)) = socket.recv_from(&mut buffer).await
            {
                found.extend(buffer.get(..length).and_then(|datagram| detect::offered_by(datagram, xid)));
            }
        };
        timeout(ask.patience, listen).await.ok();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn racks_are_no_strangers_also_a_while_after_their_addresses_went() {
        let (racks, start) = (Racks::default(), Instant::now());
        let [own, peer, stranger] = [1, 2, 9].map(|last| Ipv4Addr::new(10, 77, 0, last));
        racks.own([own].into_iter(), start);
        racks.told(&[peer.to_string(), "no address".to_owned()], start);
        let known =
            |after: Duration| [own, peer, stranger].map(|server| racks.contain(server, start + after));
        assert_eq!(known(Duration::from_secs(86_400)), [true, true, false]);
        racks.own([].into_iter(), start);
        racks.told(&[], start);
        assert_eq!(known(Duration::from_secs(899)), [true, true, false]);
        assert_eq!(known(REMEMBERED_FOR), [false; 3]);
        racks.own([own].into_iter(), start + Duration::from_secs(60));
        racks.own([].into_iter(), start + Duration::from_secs(120));
        assert_eq!(known(Duration::from_secs(1019)), [true, false, false], "it was away, and went again");
    }

    #[test]
    fn a_server_is_told_of_now_and_then_and_made_up_ones_are_bounded() {
        let (others, start) = (Others::default(), Instant::now());
        let server = (1, Ipv4Addr::new(10, 77, 0, 9));
        assert!(others.is_news(server, start));
        assert!(!others.is_news(server, start + Duration::from_secs(10)));
        assert!(others.is_news((2, server.1), start), "on another link it is another one");
        let made_up = (0..1000u32).filter(|n| others.is_news((1, Ipv4Addr::from(n + 1)), start)).count();
        assert_eq!(made_up, REMEMBERED - 2);
        assert!(others.is_news(server, start + EVERY), "it is still there");
    }
}
