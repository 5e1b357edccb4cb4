//! The sockets of one interface: for the multicast groups of clients and relays, and for each of this rack's addresses.
//!
//! A reply leaves from the socket that its request came to: the client or relay expects that address. A reply to a
//! relay that is not on the link follows the routing table. Its source is the address that the request was sent to or,
//! for a multicast group, the first address of this interface.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::task::Poll;

use basalt_dhcp::v6::{Arrival, Destination, SERVER_PORT, ingress};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use crate::interfaces::{self, Served6};

/// The most messages of one socket in a batch; each batch is written to disk with one sync.
const BATCH: usize = 256;
const RECEIVE_BUFFER: usize = 4 << 20;
/// The multicast groups: all servers and relays of a link, and all servers of a site (RFC 8415 §7.1).
const GROUPS: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2), Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 1, 3)];

/// The open sockets.
#[derive(Debug)]
pub(super) struct Wire {
    interface: u32,
    /// Each socket with the address that messages are sent to; `None`: a multicast group.
    sockets: Vec<(Option<Ipv6Addr>, UdpSocket)>,
    /// Sockets for replies to relays, by local address. They follow the routing table.
    routed: Vec<(Ipv6Addr, UdpSocket)>,
}

impl Wire {
    pub(super) fn open(at: &Served6) -> io::Result<Self> {
        let mut sockets = Vec::new();
        for group in GROUPS {
            let socket = udp(at, group)?;
            socket.join_multicast_v6(&group, at.index)?;
            sockets.push((None, socket));
        }
        for &own in at.link_local.iter().chain(&at.addresses) {
            sockets.push((Some(own), udp(at, own)?));
        }
        let mut routed = Vec::new();
        for &own in &at.addresses {
            match interfaces::routed(&at.interface, (own, SERVER_PORT).into()) {
                Ok(socket) => routed.push((own, socket)),
                Err(error) => {
                    let interface = &at.interface;
                    tracing::warn!(interface, %own, %error, "relays are answered by the interface that they ask by, whatever the routes say");
                }
            }
        }
        Ok(Self { interface: at.index, sockets, routed })
    }

    /// Waits until a message can be received.
    pub(super) async fn readable(&self) -> io::Result<()> {
        poll_fn(|context| {
            let mut ready = self.sockets.iter().map(|(_, socket)| socket.poll_recv_ready(context));
            ready.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Receives the waiting messages from every socket in turn.
    pub(super) fn receive(&self) -> io::Result<Vec<(Arrival, Vec<u8>)>> {
        let mut messages = Vec::new();
        // One byte longer than the longest message, so that a longer one is detected.
        let mut buffer = [0; ingress::MAX_DATAGRAM + 1];
        for (to, socket) in &self.sockets {
            for _ in 0..BATCH {
                match socket.try_recv_from(&mut buffer) {
                    Ok((length, SocketAddr::V6(from))) => {
                        let via = Arrival { interface: self.interface, from: *from.ip(), to: *to };
                        messages.push((via, buffer.get(..length).unwrap_or_default().to_vec()));
                    }
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if messages.is_empty() => return Err(error),
                    Err(_) => break,
                }
            }
        }
        Ok(messages)
    }

    pub(super) async fn send(&self, via: Arrival, to: Destination, bytes: &[u8]) {
        if let Destination::Relay(relay) = to
            && !relay.is_unicast_link_local()
            && let Some((_, socket)) = self.from(via.to)
        {
            match socket.send_to(bytes, (relay, SERVER_PORT)).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(?to, %error, "no route to the relay: it may be on this link"),
            }
        }
        let socket = self.sockets.iter().find(|(at, _)| *at == via.to);
        let result = match socket {
            Some((_, socket)) => socket.send_to(bytes, to.socket_addr(self.interface)).await,
            None => Err(io::ErrorKind::AddrNotAvailable.into()),
        };
        if let Err(error) = result {
            tracing::warn!(?to, %error, "a DHCPv6 reply could not be sent");
        }
    }
}

impl Wire {
    /// The routed socket with this address, or else the first one.
    fn from(&self, own: Option<Ipv6Addr>) -> Option<&(Ipv6Addr, UdpSocket)> {
        self.routed.iter().find(|(local, _)| Some(*local) == own).or_else(|| self.routed.first())
    }
}

fn udp(at: &Served6, address: Ipv6Addr) -> io::Result<UdpSocket> {
    let named = |what: &str, error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("{what} [{address}]:{SERVER_PORT} on interface {}: {error}", at.interface),
        )
    };
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_only_v6(true)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(at.interface.as_bytes())).map_err(|error| named("cannot use", error))?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    let bind = SocketAddr::V6(SocketAddrV6::new(address, SERVER_PORT, 0, at.index));
    socket.bind(&bind.into()).map_err(|error| named("cannot bind", error))?;
    UdpSocket::from_std(socket.into())
}
