//! One interface's sockets: what is sent to everybody, what is sent to each of this rack's addresses, and frames.
//!
//! UDP sockets are bound to the interface. Replies leave from the socket of the address that they are about. A client that has no
//! address yet answers no ARP, so that the kernel could not send it anything: its frame is written here, to its hardware address
//! (RFC 2131 §4.1). Where there are no frames, such a reply is broadcast, which the RFC allows.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::task::Poll;

use basalt_dhcp::{Arrival, Destination, Mac, frame, ingress};
use nix::sys::socket::bind;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use super::Ports;
use crate::interfaces::{Served, link_address};

/// Messages of one socket that are answered with one sync.
const BATCH: usize = 256;
const RECEIVE_BUFFER: usize = 4 << 20;

/// A reply that may leave.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) via: Arrival,
    pub(super) to: Destination,
    pub(super) bytes: Vec<u8>,
}

/// The open sockets.
#[derive(Debug)]
pub(super) struct Wire {
    sockets: Vec<(Arrival, UdpSocket)>,
    frames: Option<(Mac, Socket)>,
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
        let frames = at.mac.and_then(|mac| match packet(&at.interface) {
            Ok(socket) => Some((mac, socket)),
            Err(error) => {
                let interface = &at.interface;
                tracing::warn!(interface, %error, "no frames can be written (that needs CAP_NET_RAW): replies to clients without an address are broadcast");
                None
            }
        });
        Ok(Self { sockets, frames, ports })
    }

    /// Waits until something is there to be received.
    pub(super) async fn readable(&self) -> io::Result<()> {
        poll_fn(|context| {
            let mut ready = self.sockets.iter().map(|(_, socket)| socket.poll_recv_ready(context));
            ready.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }

    /// What is there, from every socket in turn.
    pub(super) fn receive(&self) -> io::Result<Vec<(Arrival, Vec<u8>)>> {
        let mut batch = Vec::new();
        let mut buffer = [0; ingress::MAX_DATAGRAM];
        for (via, socket) in &self.sockets {
            for _ in 0..BATCH {
                match socket.try_recv_from(&mut buffer) {
                    Ok((length, _)) => {
                        batch.push((*via, buffer.get(..length).unwrap_or_default().to_vec()));
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if batch.is_empty() => return Err(error),
                    Err(_) => break,
                }
            }
        }
        Ok(batch)
    }

    pub(super) async fn send(&self, reply: Reply) {
        let Reply { via, to, bytes } = reply;
        if let (Destination::Hardware { address, mac }, Some((own, socket))) = (to, &self.frames) {
            let from = (*own, SocketAddrV4::new(via.local, self.ports.server));
            let to = (mac, SocketAddrV4::new(address, self.ports.client));
            match socket.send(&frame::udp(from, to, &bytes)) {
                Ok(_) => return,
                Err(error) => tracing::debug!(%mac, %error, "no frame: the reply is broadcast"),
            }
        }
        let socket = self.sockets.iter().find(|(at, _)| at.unicast && at.local == via.local);
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

/// A socket that sends whole Ethernet frames on an interface, and receives nothing.
fn packet(interface: &str) -> io::Result<Socket> {
    let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
    socket.set_nonblocking(true)?;
    bind(socket.as_raw_fd(), &link_address(interface)?)?;
    Ok(socket)
}
