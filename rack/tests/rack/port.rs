//! A port of the switch with many DHCP clients behind it, each with its own hardware address. They are frames only, not
//! hosts.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use basalt_dhcp::{CLIENT_PORT, Mac, SERVER_PORT, frame};
use basalt_rack::interfaces::link_address;
use nix::sys::socket::bind;
use socket2::{Domain, Protocol, Socket, Type};

use super::namespace::ip;

/// ETH_P_ALL of linux/if_ether.h.
const EVERY_PROTOCOL: u16 = 3;
/// How long to wait for a frame.
const PATIENCE: Duration = Duration::from_millis(2);
/// The length of the Ethernet, IPv4 (without options) and UDP headers.
const HEADERS: usize = 42;

/// A frame for one of the clients.
pub(crate) enum Heard {
    /// A DHCP message to the client port.
    Dhcp(Vec<u8>),
    /// An ARP request for this address, by a host that wants to send to it.
    WhoHas(Ipv4Addr, Asker),
    /// A frame of any other kind.
    Other,
}

/// The hardware and IPv4 address of the sender of an ARP request.
pub(crate) struct Asker([u8; 10]);

/// The packet socket of the port.
pub(crate) struct Port(UdpSocket);

impl Port {
    /// Opens the interface that receives the clients' frames. No other program uses it.
    pub(crate) fn open(interface: &str) -> Self {
        ip(&format!("link set {interface} promisc on arp off"));
        let every = Protocol::from(i32::from(EVERY_PROTOCOL.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(every)).unwrap();
        socket.set_recv_buffer_size(8 << 20).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        bind(socket.as_raw_fd(), &link_address(interface).unwrap()).unwrap();
        Self(UdpSocket::from(OwnedFd::from(socket)))
    }

    /// Sends a client's message to a server, or by broadcast.
    pub(crate) fn send(&self, from: (Mac, Option<Ipv4Addr>), to: Option<(Mac, Ipv4Addr)>, message: &[u8]) {
        let from = (from.0, SocketAddrV4::new(from.1.unwrap_or(Ipv4Addr::UNSPECIFIED), CLIENT_PORT));
        let (mac, server) = to.unwrap_or((Mac([0xff; 6]), Ipv4Addr::BROADCAST));
        self.0.send(&frame::udp(from, (mac, SocketAddrV4::new(server, SERVER_PORT)), message)).unwrap();
    }

    /// The next frame; `None` if there is none. ARP probes, which have no sender address, are ignored.
    pub(crate) fn hear(&self) -> Option<Heard> {
        let mut buffer = [0; 2048];
        let length = self.0.recv(&mut buffer).ok()?;
        let frame = &buffer[..length];
        let at = |range: std::ops::Range<usize>| frame.get(range).unwrap_or_default();
        let is_dhcp = at(12..14) == [8, 0] && at(23..24) == [17] && at(36..38) == CLIENT_PORT.to_be_bytes();
        if is_dhcp && let Some(datagram) = frame.get(HEADERS..) {
            return Some(Heard::Dhcp(datagram.to_vec()));
        }
        let asks = at(12..14) == [8, 6] && at(20..22) == [0, 1] && at(28..32) != [0; 4];
        match (<[u8; 10]>::try_from(at(22..32)), <[u8; 4]>::try_from(at(38..42))) {
            (Ok(asker), Ok(target)) if asks => Some(Heard::WhoHas(target.into(), Asker(asker))),
            _ => Some(Heard::Other),
        }
    }

    /// Answers an ARP request: a client has the address.
    pub(crate) fn answer(&self, asker: &Asker, holder: Mac, address: Ipv4Addr) {
        let arp = [&[0, 1, 8, 0, 6, 4, 0, 2], &holder.0[..], &address.octets(), &asker.0].concat();
        self.0.send(&[&asker.0[..6], &holder.0, &[8, 6], &arp].concat()).unwrap();
    }
}
