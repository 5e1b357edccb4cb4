//! DHCP servers that nobody told this rack of: found by asking, and by what clients say that they took.
//!
//! Where the subnet says that another server gives the addresses, there is nothing to find. Other racks are found too; the region knows
//! them, and leaves them out.

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

/// How often an interface is asked, and how often a server that is still there is told of.
const EVERY: Duration = Duration::from_secs(300);
/// How soon it is looked at again whether there is something to look for.
const SOON: Duration = Duration::from_secs(5);
/// How often it is asked each time, since a question may be lost, and how long answers may take: dnsmasq pings an address for three
/// seconds before it offers it.
const ASK: Ask = Ask { tries: 3, patience: Duration::from_secs(4) };
/// Servers that are remembered as told of. Anybody on the link can make some up.
const REMEMBERED: usize = 64;

/// How often it is asked, and how long answers may take each time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) tries: usize,
    pub(crate) patience: Duration,
}

/// DHCPREQUEST (RFC 2132 §9.6).
const REQUEST: u8 = 3;

/// When each server was told of.
#[derive(Debug, Default)]
pub(super) struct Others(Mutex<HashMap<(u32, Ipv4Addr), Instant>>);

impl Others {
    /// Whether it is time to tell of this server on this interface.
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

/// A client on the link, not behind a relay, that took the address of another server.
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
    /// Asks the interface's link again and again who else answers.
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

    /// The subnet of a link whose addresses only racks may give.
    fn served_alone(&self, interface: u32) -> Option<String> {
        let core = self.lock();
        let mut subnets = core.server.subnets_of(interface);
        subnets.find(|it| it.boot.mode != BootMode::Proxy).map(|it| it.id.clone())
    }

    /// Tells of a server, not too often.
    pub(super) fn found(&self, interface: u32, server: Ipv4Addr, seen: &str) {
        let Some(subnet_uid) = self.served_alone(interface) else { return };
        if !self.others.is_news((interface, server), Instant::now()) {
            return;
        }
        tracing::warn!(interface, %server, seen, "another DHCP server is on the link");
        let fact = DhcpServerFact { address: server.to_string(), subnet_uid, seen: seen.to_owned() };
        self.facts.tell(About::default().saw(Body::DhcpServer(fact)));
    }
}

/// Asks an interface's link for servers, and waits for answers.
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
