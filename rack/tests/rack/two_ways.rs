//! A relay with different ways for requests and answers: racks with two uplinks, and asymmetric routes.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;

use basalt_dhcp::Mac;
use basalt_dhcp::egress::Message;
use basalt_dhcp::ingress;
use basalt_proto::rack_v1::{Dhcp6Reservation, Dhcp6Subnet, DhcpConcern};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use dhcproto::v4::MessageType;

use super::attacks::solicit;
use super::namespace::{Host, ip, is_inside, make_switch};
use super::peers::{on_switch, subnet};
use super::support::DEADLINE;

const RELAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const RELAY6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, 1);
const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 0x77]);

/// A relay whose requests come through `rack0`. The rack's route to its network leads through `back0`.
fn make_relay() -> Host {
    make_switch(&["10.9.0.1/24", "2001:db8:9::1/64 nodad"]);
    let relay = Host::plug("relay", "52:54:00:00:00:05");
    relay.connect("back0", "eth1");
    ip("address add 10.8.0.1/24 dev back0");
    ip("-6 address add 2001:db8:8::1/64 dev back0 nodad");
    for command in [
        "ip address add 10.9.0.5/24 dev eth0",
        "ip address add 10.8.0.5/24 dev eth1",
        "ip address add 10.77.0.1/32 dev lo",
        "ip -6 address add 2001:db8:9::5/64 dev eth0 nodad",
        "ip -6 address add 2001:db8:8::5/64 dev eth1 nodad",
        "ip -6 address add 2001:db8:77::1/128 dev lo",
        "ip link set lo up",
    ] {
        relay.run(&command.split(' ').collect::<Vec<_>>());
    }
    // It answers ARP on each link only for that interface's addresses, and accepts packets that arrive on another
    // interface than the route's.
    for setting in
        ["all/arp_ignore=1", "all/arp_announce=2", "all/rp_filter=0", "eth0/rp_filter=0", "eth1/rp_filter=0"]
    {
        let (name, value) = setting.split_once('=').unwrap();
        relay.run(&["sh", "-c", &format!("echo {value} > /proc/sys/net/ipv4/conf/{name}")]);
    }
    ip("route add 10.77.0.0/24 via 10.8.0.5 dev back0");
    ip("-6 route add 2001:db8:77::/64 via 2001:db8:8::5 dev back0");
    relay
}

async fn start(dir: &Path) -> Daemon {
    let settings = on_switch(dir);
    let v6 = Dhcp6Subnet {
        subnet_uid: "s6".into(),
        cidr: "2001:db8:77::/64".into(),
        rapid_commit: true,
        reservations: vec![Dhcp6Reservation {
            mac: MAC.to_string(),
            address: "2001:db8:77::9".into(),
            ..Dhcp6Reservation::default()
        }],
        ..Dhcp6Subnet::default()
    };
    let v4 = subnet("s4", "10.77.0", ("100", "110"));
    let concern =
        DhcpConcern { subnets: vec![v4], subnets6: vec![v6], serve_unknown: true, ..DhcpConcern::default() };
    write_concern(&settings.data_dir, &version(Concern::Dhcp, 1, "local", &concern)).unwrap();
    Daemon::start(settings).await.unwrap()
}

/// Sends from the relay's address to the rack's until an answer comes. Returns the answer and its sender.
async fn exchange(relay: &Host, from: SocketAddr, to: SocketAddr, message: Vec<u8>) -> (Vec<u8>, SocketAddr) {
    let socket = relay.within(|| UdpSocket::bind(from).unwrap());
    socket.set_nonblocking(true).unwrap();
    let socket = tokio::net::UdpSocket::from_std(socket).unwrap();
    let mut buffer = [0; 1500];
    let asked = async {
        loop {
            // The rack may not listen yet.
            socket.send_to(&message, to).await.ok();
            let answer =
                tokio::time::timeout(std::time::Duration::from_millis(300), socket.recv_from(&mut buffer));
            if let Ok(Ok((length, from))) = answer.await {
                return (buffer[..length].to_vec(), from);
            }
        }
    };
    tokio::time::timeout(DEADLINE, asked).await.expect("the relay is answered")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_is_answered_by_the_way_that_the_routes_have_to_it() {
    if !is_inside("two_ways::a_relay_is_answered_by_the_way_that_the_routes_have_to_it") {
        return;
    }
    let relay = make_relay();
    let dir = tempfile::tempdir().unwrap();
    let rack = start(dir.path()).await;

    let mut discover = Message::request(MessageType::Discover, 7, MAC);
    discover.giaddr = RELAY;
    let server: SocketAddr = ([10, 9, 0, 1], 67).into();
    let (offer, from) = exchange(&relay, (RELAY, 67).into(), server, discover.encode()).await;
    assert_eq!((ingress::parse(&offer).unwrap().kind, from), (MessageType::Offer, server));

    let server: SocketAddr = (Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 1), 547).into();
    let forwarded = solicit(MAC, RELAY6);
    let (reply, from) = exchange(&relay, (RELAY6, 547).into(), server, forwarded).await;
    assert_eq!((reply[0], from), (13, server), "RELAY-REPL");
    rack.stop().await;
}
