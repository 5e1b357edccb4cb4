//! A cable that loses, repeats and reorders datagrams: between the rack and the switch, in the test's namespace. Chances are drawn from
//! a seed, each direction for itself, and it is counted what was done to how many.

use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use basalt_rack::interfaces::link_address;
use nix::sys::socket::{LinkAddr, bind, recvfrom};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::namespace::ip;

/// linux/if_ether.h: ETH_P_ALL.
const EVERY_PROTOCOL: u16 = 3;
/// linux/if_packet.h: PACKET_OUTGOING, a frame that this host sends.
const OUTGOING: u8 = 4;
/// A frame that waits to be overtaken waits no longer than this.
const HELD: Duration = Duration::from_millis(5);

/// What happens to a datagram: of a hundred, or how often it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Faults {
    pub(crate) lost: u32,
    pub(crate) repeated: u32,
    /// Overtaken by the one after it.
    pub(crate) reordered: u32,
}

/// The cable, for as long as this lives.
pub(crate) struct BadLink {
    directions: [JoinHandle<()>; 2],
    fired: Arc<Mutex<Faults>>,
}

impl BadLink {
    /// Takes the place of the cable between `rack0` and the switch.
    pub(crate) fn insert(of_a_hundred: Faults, seed: u64) -> Self {
        ip("link set uplink nomaster arp off");
        ip("link add worse type veth peer name worse-end");
        ip("link set worse arp off up");
        ip("link set worse-end master switch up");
        let [rack, switch] = ["uplink", "worse"].map(|it| Arc::new(End::open(it)));
        let fired = Arc::default();
        let carry = |from: &Arc<End>, to: &Arc<End>, random| {
            let carrying = Carrying { of_a_hundred, random, fired: Arc::clone(&fired) };
            tokio::spawn(carrying.run(Arc::clone(from), Arc::clone(to)))
        };
        println!("a link with seed {seed}, of a hundred {of_a_hundred:?}");
        Self { directions: [carry(&rack, &switch, seed), carry(&switch, &rack, seed ^ 0x5eed)], fired }
    }

    /// What it did to datagrams so far.
    pub(crate) fn fired(&self) -> Faults {
        *self.fired.lock().unwrap()
    }
}

impl Drop for BadLink {
    fn drop(&mut self) {
        self.directions.iter().for_each(JoinHandle::abort);
    }
}

struct Carrying {
    of_a_hundred: Faults,
    random: u64,
    fired: Arc<Mutex<Faults>>,
}

impl Carrying {
    async fn run(mut self, from: Arc<End>, to: Arc<End>) {
        let mut held: Option<Vec<u8>> = None;
        loop {
            let Ok(frame) = tokio::time::timeout(HELD, from.receive()).await else {
                if let Some(frame) = held.take() {
                    to.send(&frame).await;
                }
                continue;
            };
            // ARP stays out of this: the kernel asks again after a whole second.
            if !is_udp(&frame) {
                to.send(&frame).await;
            } else if self.happens(self.of_a_hundred.lost) {
                self.fired.lock().unwrap().lost += 1;
            } else if held.is_none() && self.happens(self.of_a_hundred.reordered) {
                held = Some(frame);
            } else {
                to.send(&frame).await;
                if self.happens(self.of_a_hundred.repeated) {
                    self.fired.lock().unwrap().repeated += 1;
                    to.send(&frame).await;
                }
                if let Some(overtaken) = held.take() {
                    self.fired.lock().unwrap().reordered += 1;
                    to.send(&overtaken).await;
                }
            }
        }
    }

    fn happens(&mut self, of_a_hundred: u32) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 100 < u64::from(of_a_hundred)
    }
}

/// One end: whole frames of an interface.
struct End {
    /// A packet socket; tokio knows datagrams of no other kind.
    socket: UdpSocket,
    index: usize,
}

impl End {
    fn open(interface: &str) -> Self {
        let every = Protocol::from(i32::from(EVERY_PROTOCOL.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(every)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let at = link_address(interface).unwrap();
        bind(socket.as_raw_fd(), &at).unwrap();
        Self { socket: UdpSocket::from_std(socket.into()).unwrap(), index: at.ifindex() }
    }

    /// The next frame that comes in. Before the socket was bound it heard those of all interfaces.
    async fn receive(&self) -> Vec<u8> {
        let mut buffer = [0; 2048];
        loop {
            let receive = || Ok(recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut buffer)?);
            let (length, about) = self.socket.async_io(Interest::READABLE, receive).await.unwrap();
            if about.is_some_and(|it| it.ifindex() == self.index && it.pkttype() != OUTGOING) {
                return buffer[..length].to_vec();
            }
        }
    }

    /// The kernel leaves the checksum of what never left a host to hardware that is not there; none is allowed as well.
    async fn send(&self, frame: &[u8]) {
        let mut frame = frame.to_vec();
        if is_udp(&frame) {
            let ip_header = usize::from(frame[14] & 0xf) * 4;
            frame[14 + ip_header + 6..][..2].fill(0);
        }
        self.socket.send(&frame).await.ok();
    }
}

/// A whole UDP datagram in an IPv4 packet.
fn is_udp(frame: &[u8]) -> bool {
    frame.len() >= 42 && frame[12..14] == [0x08, 0] && frame[20] & 0x3f == 0 && frame[23] == 17
}
