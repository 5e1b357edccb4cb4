//! Router Advertisements on a real link: a veth pair in a network namespace that ends with the test.

use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use basalt_rack::interfaces::{Link, links};
use basalt_rack::router_advertisement::{
    ADVERTISEMENT_INTERVAL, ANSWER_DELAY, Message, NO_ROUTER, decode, open, run,
};
use socket2::SockRef;
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use super::namespace::{ip, is_inside};
use super::support::DEADLINE;

const NAME: &str = "router_advertisement::ipxe_is_told_that_no_router_is_there_unless_one_is";
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const SOLICITATION: [u8; 8] = [133, 0, 0, 0, 0, 0, 0, 0];

/// The peer's end of the link.
struct Peer {
    socket: UdpSocket,
    link: Link,
}

impl Peer {
    async fn send(&self, message: &[u8], to: Ipv6Addr, hops: u32) {
        SockRef::from(&self.socket).set_multicast_hops_v6(hops).unwrap();
        self.socket
            .send_to(message, SocketAddr::V6(SocketAddrV6::new(to, 0, 0, self.link.index)))
            .await
            .unwrap();
    }

    async fn advertise(&self, hops: u32) {
        let mut message = NO_ROUTER;
        message[6..8].copy_from_slice(&1800u16.to_be_bytes());
        self.send(&message, ALL_NODES, hops).await;
    }

    /// The next advertisement, without its checksum. The socket receives none that a router forwarded.
    async fn hear(&self, within: Duration) -> Option<(Ipv6Addr, Vec<u8>)> {
        let mut buffer = [0; 1500];
        let advertisement = async {
            loop {
                let (length, from) = self.socket.recv_from(&mut buffer).await.unwrap();
                let SocketAddr::V6(from) = from else { unreachable!("an IPv6 socket") };
                if let Some(Message::Advertisement { .. }) = decode(*from.ip(), &buffer[..length]) {
                    buffer[2..4].fill(0);
                    return (*from.ip(), buffer[..length].to_vec());
                }
            }
        };
        tokio::time::timeout(within, advertisement).await.ok()
    }
}

/// Makes the link, and waits until both ends have their link-local addresses.
async fn make_link() -> (Link, Link) {
    ip("link add rack0 type veth peer name peer0");
    for end in ["rack0", "peer0"] {
        // No other host on this link can have the address, so it is not probed.
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{end}/accept_dad"), "0").unwrap();
        ip(&format!("link set {end} up"));
    }
    ip("address add 10.9.0.1/24 dev rack0");
    ip("address add 10.9.0.2/24 dev peer0");
    let end = |name: &str| links(&[name.to_owned()]).unwrap().pop_first();
    let both = async {
        loop {
            if let (Some(rack), Some(peer)) = (end("rack0"), end("peer0")) {
                return (rack, peer);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, both).await.expect("no link-local addresses")
}

/// Opens the socket as soon as the address may be used. Even without a probe this takes a moment.
async fn open_when_probed(link: &Link) -> UdpSocket {
    let opened = async {
        loop {
            match open(link) {
                Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                opened => return opened.unwrap(),
            }
        }
    };
    tokio::time::timeout(DEADLINE, opened).await.expect("the address stays unusable")
}

#[tokio::test]
async fn ipxe_is_told_that_no_router_is_there_unless_one_is() {
    if !is_inside(NAME) {
        return;
    }
    let (rack, end) = make_link().await;
    let peer = Peer { socket: open_when_probed(&end).await, link: end };
    let stop = CancellationToken::new();
    let running = tokio::spawn(run(rack.clone(), stop.clone()));

    // The peer repeats its solicitation until there is an answer, as iPXE does.
    let asking = async {
        loop {
            peer.send(&SOLICITATION, ALL_ROUTERS, 255).await;
            if let Some(heard) = peer.hear(2 * ANSWER_DELAY).await {
                return heard;
            }
        }
    };
    let heard = tokio::time::timeout(DEADLINE, asking).await.expect("no answer");
    assert_eq!(heard, (rack.address, NO_ROUTER.to_vec()));

    // An advertisement with a hop limit below 255, so from beyond the link, does not silence the rack; one from a
    // router on the link does.
    let soon = ADVERTISEMENT_INTERVAL + 2 * ANSWER_DELAY;
    peer.advertise(64).await;
    peer.send(&SOLICITATION, ALL_ROUTERS, 255).await;
    assert_eq!(peer.hear(soon).await, Some((rack.address, NO_ROUTER.to_vec())));
    peer.send(&SOLICITATION, ALL_ROUTERS, 255).await;
    peer.advertise(255).await;
    assert_eq!(peer.hear(soon).await, None);

    stop.cancel();
    tokio::time::timeout(DEADLINE, running).await.expect("does not stop").unwrap();
}
