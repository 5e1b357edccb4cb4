//! The sockets of one interface: broadcast, one for each address of this rack, and raw frames.
//!
//! UDP sockets are bound to the interface. A reply leaves from the socket of its server address. Replies to relays
//! follow the routing table, since a relay may be reached through another interface than its requests come from.
//!
//! A client without an address answers no ARP, so the kernel cannot send to it. Its frame is built here, with its
//! hardware address (RFC 2131 §4.1). Without raw frames such a reply is broadcast, which the RFC allows. Frames are
//! also used for ARP probes.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::task::Poll;

use basalt_dhcp::{Arrival, Destination, Mac, frame, ingress};
use nix::sys::socket::{LinkAddr, bind, recvfrom};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::Ports;
use crate::interfaces::{self, Served, link_address};

/// The most messages of one socket in a batch; each batch is written to disk with one sync.
const BATCH: usize = 256;
const RECEIVE_BUFFER: usize = 4 << 20;
/// The EtherType of ARP, from linux/if_ether.h.
const ETH_P_ARP: u16 = 0x0806;
/// The length of an ARP frame, with Ethernet's padding.
const ARP_FRAME: usize = 60;

/// A message to send.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// A DHCP message.
    Reply { via: Arrival, to: Destination, bytes: Vec<u8> },
    /// An ARP probe for this address.
    Probe(Ipv4Addr),
}

/// The messages received from all sockets.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// DHCP messages to the server port.
    pub(super) messages: Vec<(Arrival, Vec<u8>)>,
    /// DHCP messages to the boot server port, with their senders.
    pub(super) boot: Vec<(Arrival, SocketAddrV4, Vec<u8>)>,
    /// Hosts, and the addresses that they claim by ARP.
    pub(super) claims: Vec<(Mac, Ipv4Addr)>,
}

/// The open sockets.
#[derive(Debug)]
pub(super) struct Wire {
    sockets: Vec<(Arrival, UdpSocket)>,
    /// Sockets for replies to relays, by local address. They follow the routing table.
    routed: Vec<(Ipv4Addr, UdpSocket)>,
    /// Sockets of the boot server port.
    boot: Vec<(Arrival, UdpSocket)>,
    frames: Option<Frames>,
    ports: Ports,
}

impl Wire {
    pub(super) fn open(at: &Served, ports: Ports) -> io::Result<Self> {
        let mut sockets = Vec::new();
        let first = at.addresses.first().copied().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let heard = Arrival { interface: at.index, local: first, unicast: false };
        sockets.push((heard, udp(at, Ipv4Addr::BROADCAST, ports.server)?));
        for &local in &at.addresses {
            sockets.push((Arrival { local, unicast: true, ..heard }, udp(at, local, ports.server)?));
        }
        let mut routed = Vec::new();
        for &local in &at.addresses {
            match interfaces::routed(&at.interface, (local, ports.server).into()) {
                Ok(socket) => routed.push((local, socket)),
                Err(error) => {
                    let interface = &at.interface;
                    tracing::warn!(interface, %local, %error, "relays are answered by the interface that they ask by, whatever the routes say");
                }
            }
        }
        let mut boot = Vec::new();
        for (&local, port) in at.addresses.iter().flat_map(|local| ports.boot.map(|port| (local, port))) {
            match udp(at, local, port) {
                Ok(socket) => boot.push((Arrival { local, unicast: true, ..heard }, socket)),
                Err(error) => tracing::warn!(%error, "firmware that asks a boot server is not answered"),
            }
        }
        let frames = at.mac.and_then(|mac| match Frames::open(mac, &at.interface) {
            Ok(frames) => Some(frames),
            Err(error) => {
                let interface = &at.interface;
                tracing::warn!(interface, %error, "no frames can be written (that needs CAP_NET_RAW): replies to clients without an address are broadcast, and addresses are offered without asking whether they are in use");
                None
            }
        });
        Ok(Self { sockets, routed, boot, frames, ports })
    }

    /// True if probes can be sent.
    pub(super) const fn can_probe(&self) -> bool {
        self.frames.is_some()
    }

    /// Waits until a message can be received.
    pub(super) async fn readable(&self) -> io::Result<()> {
        let frames = self.frames.iter().map(|frames| &frames.socket);
        let udp = self.sockets.iter().chain(&self.boot).map(|(_, socket)| socket);
        let sockets: Vec<_> = udp.chain(frames).collect();
        poll_fn(|context| {
            let mut ready = sockets.iter().map(|socket| socket.poll_recv_ready(context));
            ready.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Receives the waiting messages from every socket in turn.
    pub(super) fn receive(&self) -> io::Result<Batch> {
        let mut batch = Batch::default();
        let mut buffer = [0; ingress::MAX_DATAGRAM];
        for (via, socket) in &self.sockets {
            for _ in 0..BATCH {
                match socket.try_recv_from(&mut buffer) {
                    Ok((length, _)) => {
                        batch.messages.push((*via, buffer.get(..length).unwrap_or_default().to_vec()));
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if batch.messages.is_empty() => return Err(error),
                    Err(_) => break,
                }
            }
        }
        for (via, socket) in &self.boot {
            for _ in 0..BATCH {
                // An error here affects no lease.
                let Ok((length, from)) = socket.try_recv_from(&mut buffer) else { break };
                if let SocketAddr::V4(from) = from {
                    batch.boot.push((*via, from, buffer.get(..length).unwrap_or_default().to_vec()));
                }
            }
        }
        if let Some(frames) = &self.frames {
            batch.claims = frames.claims()?;
        }
        Ok(batch)
    }

    pub(super) async fn send(&self, outgoing: Outgoing) {
        match outgoing {
            Outgoing::Reply { via, to, bytes } => self.reply(via, to, bytes).await,
            Outgoing::Probe(address) => {
                let Some(frames) = &self.frames else { return };
                if let Err(error) = frames.socket.send(&frame::arp_probe(frames.own, address)).await {
                    tracing::debug!(%address, %error, "an address is offered without asking for it");
                }
            }
        }
    }

    async fn reply(&self, via: Arrival, to: Destination, bytes: Vec<u8>) {
        if let (Destination::Hardware { address, mac }, Some(frames)) = (to, &self.frames) {
            let from = (frames.own, SocketAddrV4::new(via.local, self.ports.server));
            let to = (mac, SocketAddrV4::new(address, self.ports.client));
            match frames.socket.send(&frame::udp(from, to, &bytes)).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%mac, %error, "no frame: the reply is broadcast"),
            }
        }
        if let Destination::Relay(_) = to
            && let Some((_, socket)) = self.routed.iter().find(|(local, _)| *local == via.local)
        {
            match socket.send_to(&bytes, self.target(to)).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(?to, %error, "no route to the relay: it may be on this link"),
            }
        }
        let sockets = if matches!(to, Destination::Asker(_)) { &self.boot } else { &self.sockets };
        let socket = sockets.iter().find(|(at, _)| at.unicast && at.local == via.local);
        let result = match socket {
            Some((_, socket)) => socket.send_to(&bytes, self.target(to)).await,
            None => Err(io::ErrorKind::AddrNotAvailable.into()),
        };
        if let Err(error) = result {
            tracing::warn!(?to, %error, "a DHCP reply could not be sent");
        }
    }

    const fn target(&self, to: Destination) -> SocketAddr {
        SocketAddr::V4(match to {
            Destination::Broadcast | Destination::Hardware { .. } => {
                SocketAddrV4::new(Ipv4Addr::BROADCAST, self.ports.client)
            }
            Destination::Client(address) => SocketAddrV4::new(address, self.ports.client),
            Destination::Relay(address) => SocketAddrV4::new(address, self.ports.server),
            Destination::Asker(from) => from,
        })
    }
}

fn udp(at: &Served, address: Ipv4Addr, port: u16) -> io::Result<UdpSocket> {
    let named = |what: &str, error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("{what} {address}:{port} on interface {}: {error}", at.interface),
        )
    };
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.set_broadcast(true)?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(at.interface.as_bytes())).map_err(|error| named("cannot use", error))?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.bind(&SocketAddr::from((address, port)).into()).map_err(|error| named("cannot bind", error))?;
    UdpSocket::from_std(socket.into())
}

/// Raw Ethernet frames of an interface: sends any, receives ARP.
#[derive(Debug)]
struct Frames {
    own: Mac,
    /// A packet socket, wrapped as `UdpSocket`: tokio has no other type for datagrams.
    socket: UdpSocket,
    index: usize,
}

impl Frames {
    fn open(own: Mac, interface: &str) -> io::Result<Self> {
        let arp = Protocol::from(i32::from(ETH_P_ARP.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(arp))?;
        socket.set_nonblocking(true)?;
        let at = link_address(interface)?;
        bind(socket.as_raw_fd(), &at)?;
        Ok(Self { own, socket: UdpSocket::from_std(socket.into())?, index: at.ifindex() })
    }

    /// The waiting ARP claims. The socket also received frames of other interfaces until it was bound; they are
    /// dropped.
    fn claims(&self) -> io::Result<Vec<(Mac, Ipv4Addr)>> {
        let mut claims = Vec::new();
        let mut buffer = [0; ARP_FRAME];
        for _ in 0..BATCH {
            let receive = || Ok(recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut buffer)?);
            match self.socket.try_io(Interest::READABLE, receive) {
                Ok((length, Some(from))) if from.ifindex() == self.index => {
                    claims.extend(buffer.get(..length).and_then(frame::arp_claim));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if claims.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(claims)
    }
}
