//! A port of the switch that many DHCP clients are behind, each with a hardware address of its own: frames, since none of them is a host.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use basalt_dhcp::{CLIENT_PORT, Mac, SERVER_PORT, frame};
use basalt_rack::interfaces::link_address;
use nix::sys::socket::bind;
use socket2::{Domain, Protocol, Socket, Type};

use super::namespace::ip;

/// linux/if_ether.h: ETH_P_ALL.
const EVERY_PROTOCOL: u16 = 3;
/// How long is waited for a frame.
const PATIENCE: Duration = Duration::from_millis(2);
/// Ethernet, IPv4 without options, UDP.
const HEADERS: usize = 42;

/// What came for the clients.
pub(crate) enum Heard {
    /// From the server port to the client port.
    Dhcp(Vec<u8>),
    /// A host asks by ARP who has this address, in order to send there.
    WhoHas(Ipv4Addr, Asker),
    /// Something else.
    Other,
}

/// Hardware and IPv4 address of who asks by ARP.
pub(crate) struct Asker([u8; 10]);

/// The port.
pub(crate) struct Port(UdpSocket);

impl Port {
    /// The interface that hears what is for the clients; nothing else uses it.
    pub(crate) fn open(interface: &str) -> Self {
        ip(&format!("link set {interface} promisc on arp off"));
        let every = Protocol::from(i32::from(EVERY_PROTOCOL.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(every)).unwrap();
        socket.set_recv_buffer_size(8 << 20).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        bind(socket.as_raw_fd(), &link_address(interface).unwrap()).unwrap();
        Self(UdpSocket::from(OwnedFd::from(socket)))
    }

    /// Sends a client's message to a server, or to all.
    pub(crate) fn send(&self, from: (Mac, Option<Ipv4Addr>), to: Option<(Mac, Ipv4Addr)>, message: &[u8]) {
        let from = (from.0, SocketAddrV4::new(from.1.unwrap_or(Ipv4Addr::UNSPECIFIED), CLIENT_PORT));
        let (mac, server) = to.unwrap_or((Mac([0xff; 6]), Ipv4Addr::BROADCAST));
        self.0.send(&frame::udp(from, (mac, SocketAddrV4::new(server, SERVER_PORT)), message)).unwrap();
    }

    /// The next frame; `None`: there is none. Probes ask in nobody's name and are not told of.
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

    /// Tells who asks that a client has the address.
    pub(crate) fn answer(&self, asker: &Asker, holder: Mac, address: Ipv4Addr) {
        let arp = [&[0, 1, 8, 0, 6, 4, 0, 2], &holder.0[..], &address.octets(), &asker.0].concat();
        self.0.send(&[&asker.0[..6], &holder.0, &[8, 6], &arp].concat()).unwrap();
    }
}
