//! Ports for servers of tests.
//!
//! The kernel gives connections ports from 32768 on. Suppose that a test chooses a free port of that range, and binds it later. Then a
//! connection may have the port. A client that calls a server too early can even connect to itself, and so keep the port. The ports of this module are below that
//! range, and each is given once in a process.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

/// The first port of each range, and the number of ranges, of which a process takes one by its id.
const FIRST: u16 = 12_000;
const RANGES: u16 = 80;
const SIZE: u16 = 250;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port that neither TCP nor UDP uses now, on any address.
pub(crate) fn own_port() -> u16 {
    let range = u16::try_from(std::process::id() % u32::from(RANGES)).unwrap();
    for _ in 0..RANGES * SIZE {
        let place = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (range * SIZE + place % (RANGES * SIZE)) % (RANGES * SIZE);
        let (tcp, udp) = (
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)),
        );
        if tcp.is_ok() && udp.is_ok() {
            return port;
        }
    }
    panic!("all ports from {FIRST} on are in use");
}
