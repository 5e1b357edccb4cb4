//! DHCP: servers stay within their limits for any datagrams, and another decoder can read their answers.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::time::Duration;

use basalt_dhcp::client::{ClientAction, ClientConfig};
use basalt_dhcp::egress::Message;
use basalt_dhcp::{
    Action, AddressRange, Arrival, Client, Config, Mac, RawOption, Reservation, Server, Subnet, Time,
    frame as frames, ingress, v6,
};
use dhcproto::v4::{MessageType, OptionCode};
use dhcproto::{Decodable, v4};

use crate::sequence::{messages, sequence};

const START: Time = Time(1_700_000_000_000);
const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
/// Largest UDP payload in an Ethernet frame, in bytes.
const LONGEST: usize = 1472;

fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, last)
}

fn config() -> Config {
    let mut subnet = Subnet::new("lab", ipnet_of("10.77.0.0/24"));
    subnet.gateway = Some(ip(1));
    subnet.dns_servers = vec![ip(2), ip(3)];
    subnet.search = vec!["lab.example".to_owned()];
    subnet.dynamic = vec![AddressRange { start: ip(100), end: ip(103) }];
    subnet.options = vec![RawOption { code: 150, value: vec![10, 77, 0, 5] }];
    subnet.reservations = vec![Reservation { mac: MAC, address: ip(10), hostname: None, boot: None }];
    Config { subnets: vec![subnet], ..Config::default() }
}

fn ipnet_of<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("a network")
}

/// Datagrams to a DHCPv4 server, some of them to its boot server's port, while time passes.
pub fn dhcp4(data: &[u8]) {
    let mut server = Server::new(config()).expect("a configuration");
    server.set_links(BTreeMap::from([(3, vec![LOCAL])]));
    let mut now = START;
    for (besides, datagram) in messages(data) {
        now = now + Duration::from_secs(u64::from(besides & 0x3f) * 60);
        let via = Arrival { interface: 3, local: LOCAL, unicast: besides & 0x40 != 0 };
        let mut actions = server.tick(now);
        // The server repeats the relay's information option, which needs space beyond the limit (RFC
        // 3046).
        let mut longest = LONGEST;
        if let Ok(packet) = ingress::parse(datagram) {
            longest += packet
                .options
                .raw(OptionCode::RelayAgentInformation)
                .map_or(0, |it| it.len() + it.len() / 100 + 2);
            actions.extend(match besides & 0x80 {
                0 => server.handle(now, via, &packet),
                _ => server.handle_boot(now, via, SocketAddrV4::new(ip(9), 4011), &packet),
            });
        }
        for action in actions {
            if let Action::Send { bytes, .. } = action {
                assert!(bytes.len() <= longest, "a reply of {} bytes", bytes.len());
                let ours = ingress::parse(&bytes).expect("our own reply is one of DHCP");
                let theirs = v4::Message::from_bytes(&bytes).expect("another decoder reads it");
                assert_eq!(theirs.opts().msg_type(), Some(ours.kind), "and as the same");
                assert!(theirs.opts().get(OptionCode::ServerIdentifier).is_some(), "it is named: {theirs:?}");
            }
        }
        assert!(server.leases().count() <= 5, "there are no more addresses");
    }
}

fn asked(kind: MessageType, options: &[(OptionCode, &[u8])]) -> Vec<u8> {
    let mut message = Message::request(kind, 7, MAC);
    for (code, value) in options {
        message.option(*code, *value);
    }
    message.encode()
}

pub(crate) fn seeds4() -> Vec<Vec<u8>> {
    let rom: [(OptionCode, &[u8]); 4] = [
        (OptionCode::ClassIdentifier, b"PXEClient:Arch:00007:UNDI:003000"),
        (OptionCode::ClientSystemArchitecture, &[0, 7]),
        (OptionCode::ParameterRequestList, &[1, 3, 6, 15, 42, 119, 121, 66, 67]),
        (OptionCode::MaxMessageSize, &[5, 192]),
    ];
    let selects: [(OptionCode, &[u8]); 2] =
        [(OptionCode::RequestedIpAddress, &[10, 77, 0, 10]), (OptionCode::ServerIdentifier, &[10, 77, 0, 2])];
    let ipxe: [(OptionCode, &[u8]); 2] =
        [(OptionCode::UserClass, b"iPXE"), (OptionCode::Unknown(175), &[1, 1, 1])];
    let mut relayed = Message::request(MessageType::Discover, 9, Mac([0x52, 0x54, 0, 0, 0, 9]));
    relayed.giaddr = ip(1);
    relayed.option(OptionCode::RelayAgentInformation, [1, 2, b'p', b'1', 5, 4, 10, 77, 0, 0]);
    let (discover, request) = (asked(MessageType::Discover, &rom), asked(MessageType::Request, &selects));
    let (release, decline) = (asked(MessageType::Release, &selects), asked(MessageType::Decline, &selects));
    let (inform, booting) = (asked(MessageType::Inform, &ipxe), asked(MessageType::Discover, &ipxe));
    let relayed = relayed.encode();
    // A client over InfiniBand (RFC 4390) has no hardware address, whatever its length field says.
    let identifier: &[u8] = &[
        255, 0, 0, 0, 1, 0, 3, 0, 32, 0x80, 0, 2, 8, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 1, 2, 3,
    ];
    let mut infiniband = asked(MessageType::Discover, &[(OptionCode::ClientIdentifier, identifier)]);
    for (at, byte) in infiniband.iter_mut().enumerate() {
        match at {
            1 => *byte = 32,
            2 => *byte = 20,
            28..44 => *byte = 0,
            _ => {}
        }
    }
    vec![
        sequence([&infiniband[..], &discover]),
        sequence([&discover[..], &request, &booting, &inform, &release, &relayed]),
        sequence([&request[..], &decline, &discover]),
        sequence([&relayed[..], &discover]),
    ]
}

/// Datagrams to a DHCPv4 client.
pub fn dhcp4_client(data: &[u8]) {
    let (mut client, _) = Client::start(ClientConfig::new(MAC), START, 1);
    let mut now = START;
    for (besides, datagram) in messages(data) {
        now = now + Duration::from_secs(u64::from(besides));
        let mut actions = client.on_packet(now, datagram);
        actions.extend(client.on_timer(now));
        for action in actions {
            if let ClientAction::Send { bytes, .. } = action {
                ingress::parse(&bytes).expect("our own message is one of DHCP");
            }
        }
    }
}

pub(crate) fn seeds4_client() -> Vec<Vec<u8>> {
    let xid = |actions: &[ClientAction]| {
        actions.iter().find_map(|action| match action {
            ClientAction::Send { bytes, .. } => ingress::parse(bytes).ok().map(|packet| packet.xid),
            _ => None,
        })
    };
    let (mut client, actions) = Client::start(ClientConfig::new(MAC), START, 1);
    let reply = |kind, xid: Option<u32>| {
        let mut message = Message::reply(kind, xid.unwrap_or_default(), MAC);
        message.yiaddr = ip(10);
        message.option(OptionCode::ServerIdentifier, [10, 77, 0, 2]);
        message.option(OptionCode::AddressLeaseTime, [0, 0, 2, 88]);
        message.option(OptionCode::SubnetMask, [255, 255, 255, 0]);
        message.encode()
    };
    let offer = reply(MessageType::Offer, xid(&actions));
    let asks = client.on_packet(START, &offer);
    let (ack, nak) = (reply(MessageType::Ack, xid(&asks)), reply(MessageType::Nak, xid(&asks)));
    vec![sequence([&offer[..], &ack]), sequence([&offer[..], &nak])]
}

/// Datagrams to a DHCPv6 server, while time passes.
pub fn dhcp6(data: &[u8]) {
    let mut subnet = v6::Subnet::new("lab", ipnet_of("2001:db8::/64"));
    let address = |last: u16| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
    subnet.dns_servers = vec![address(2)];
    subnet.search = vec!["lab.example".to_owned()];
    subnet.dynamic = vec![v6::AddressRange { start: address(0x100), end: address(0x103) }];
    let config = v6::Config { subnets: vec![subnet], ..v6::Config::default() };
    let mut server = v6::Server::new(v6::Duid::of_uuid([7; 16]), config).expect("a configuration");
    server.set_links(BTreeMap::from([(3, vec![address(2)])]));
    let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x5054, 0xff, 0xfe00, 1);
    let mut now = START;
    for (besides, datagram) in messages(data) {
        now = now + Duration::from_secs(u64::from(besides & 0x7f) * 60);
        let to = (besides & 0x80 != 0).then(|| address(2));
        let mut actions = server.tick(now);
        if let Ok(packet) = v6::ingress::parse(datagram) {
            actions.extend(server.handle(now, v6::Arrival { interface: 3, from, to }, &packet));
        }
        for action in actions {
            if let v6::Action::Send { bytes, .. } = action {
                assert!(bytes.len() <= usize::from(u16::MAX) - 8, "a reply of {} bytes", bytes.len());
            }
        }
        assert!(server.leases().count() <= 4, "there are no more addresses");
    }
}

/// An option of DHCPv6.
pub(crate) fn option6(code: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    [&code.to_be_bytes()[..], &length.to_be_bytes(), value].concat()
}

pub(crate) fn seeds6() -> Vec<Vec<u8>> {
    let client = option6(1, &[0, 3, 0, 1, 0x52, 0x54, 0, 0, 0, 1]);
    let server = option6(2, &[&[0, 4][..], &[7; 16]].concat());
    let address = [&[0x20, 1, 0xd, 0xb8][..], &[0; 10], &[1, 0], &[0; 8]].concat();
    let association = option6(3, &[&[0; 12][..], &option6(5, &address)].concat());
    let wants = option6(6, &[0, 23, 0, 24, 0, 59]);
    let message = |kind: u8, options: &[&[u8]]| [&[kind, 1, 2, 3][..], &options.concat()].concat();
    let solicit = message(1, &[&client, &association, &wants, &option6(61, &[0, 7]), &option6(14, &[])]);
    let request = message(3, &[&client, &server, &association]);
    let (renew, rebind) =
        (message(5, &[&client, &server, &association]), message(6, &[&client, &association]));
    let (release, decline) =
        (message(8, &[&client, &server, &association]), message(9, &[&client, &server, &association]));
    let link = [&[12, 0][..], &[0x20, 1, 0xd, 0xb8], &[0; 12], &[0xfe, 0x80], &[0; 13], &[1]].concat();
    let relayed = [&link[..], &option6(79, &[0, 1, 0x52, 0x54, 0, 0, 0, 1]), &option6(9, &solicit)].concat();
    vec![
        sequence([&solicit[..], &request, &renew, &rebind, &release]),
        sequence([&request[..], &decline, &solicit]),
        sequence([&relayed[..]]),
    ]
}

/// Frames of ARP.
pub fn frame(data: &[u8]) {
    let _ = frames::arp_claim(data);
    if let Some(address) = data.first_chunk::<4>() {
        let address = Ipv4Addr::from(*address);
        let probe = frames::arp_probe(MAC, address);
        assert_eq!(
            frames::arp_claim(&probe),
            Some((MAC, address)),
            "who asks for an address is about to have it"
        );
    }
}

pub(crate) fn seeds_frame() -> Vec<Vec<u8>> {
    let probe = frames::arp_probe(MAC, ip(9));
    let mut claim = probe.clone();
    // An answer from an existing host.
    for (at, byte) in [(21, 2), (28, 10), (29, 77), (30, 0), (31, 9)] {
        if let Some(place) = claim.get_mut(at) {
            *place = byte;
        }
    }
    vec![claim, probe]
}
