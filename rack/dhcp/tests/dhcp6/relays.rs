//! Messages that came through relays (RFC 8415 §19, RFC 6221, RFC 6939).

use std::net::Ipv6Addr;

use basalt_dhcp::v6::ingress::{self, MAX_RELAYS, Malformed};
use basalt_dhcp::v6::{Arrival, Config, Destination, Ignored};
use dhcproto::v6::{Message, MessageType, OptionCode};
use dhcproto::{Decodable, Decoder};

use crate::support::*;

const NONE: Ipv6Addr = Ipv6Addr::UNSPECIFIED;

/// A relay's header, its options, and the message in it.
fn relayed(hops: u8, link: Ipv6Addr, peer: Ipv6Addr, options: &[(OptionCode, &[u8])], inner: &Ask) -> Ask {
    let mut bytes = vec![MessageType::RelayForw.into(), hops];
    bytes.extend(link.octets());
    bytes.extend(peer.octets());
    for (code, value) in options {
        put(&mut bytes, *code, value);
    }
    put(&mut bytes, OptionCode::RelayMsg, &inner.0);
    Ask(bytes)
}

/// Removes a relay's layer: hop count, link, peer, interface-id, and the inner message.
fn unwrapped(bytes: &[u8]) -> (u8, Ipv6Addr, Ipv6Addr, Option<Vec<u8>>, Vec<u8>) {
    assert_eq!(bytes[0], u8::from(MessageType::RelayRepl));
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[at..at + 16]).unwrap());
    let (mut rest, mut interface, mut inner) = (&bytes[34..], None, None);
    while let [a, b, c, d, tail @ ..] = rest {
        let (value, tail) = tail.split_at(usize::from(u16::from_be_bytes([*c, *d])));
        match u16::from_be_bytes([*a, *b]) {
            18 => interface = Some(value.to_vec()),
            9 => inner = Some(value.to_vec()),
            other => panic!("option {other} for a relay"),
        }
        rest = tail;
    }
    (bytes[1], address(2), address(18), interface, inner.unwrap())
}

/// 2001:db8:5::/64 is behind relays; the server has no address there.
fn server() -> basalt_dhcp::v6::Server {
    let mut far = subnet();
    far.id = "far".into();
    far.cidr = "2001:db8:5::/64".parse().unwrap();
    far.dynamic = vec![basalt_dhcp::v6::AddressRange {
        start: "2001:db8:5::100".parse().unwrap(),
        end: "2001:db8:5::103".parse().unwrap(),
    }];
    far.reservations = vec![basalt_dhcp::v6::Reservation {
        address: "2001:db8:5::11".parse().unwrap(),
        ..reservation(7, 0)
    }];
    with(Config { subnets: vec![subnet(), far], ..Config::default() })
}

#[test]
fn nested_relays_are_answered_layer_by_layer() {
    let (near, far): (Ipv6Addr, Ipv6Addr) =
        ("2001:db8:5::1".parse().unwrap(), "2001:db8:9::1".parse().unwrap());
    let ask = relayed(0, near, PEER, &[(OptionCode::InterfaceId, b"ge-0/0/7")], &solicit(1));
    let remote = [0, 0, 0, 9, 1, 2, 3].as_slice();
    let ask = relayed(1, far, near, &[(OptionCode::RemoteId, remote)], &ask);
    let relay = Arrival { from: far, to: Some(ip(2)), ..LINK };
    let answer = server().ask_via(START, relay, &ask);
    let (to, bytes) = answer.sent().unwrap();
    assert_eq!(to, Destination::Relay(far));
    let (hops, link, peer, interface, bytes) = unwrapped(&bytes);
    assert_eq!(
        (hops, link, peer, interface),
        (1, far, near, None),
        "the one next to the server is outermost"
    );
    let (hops, link, peer, interface, bytes) = unwrapped(&bytes);
    assert_eq!((hops, link, peer, interface), (0, near, PEER, Some(b"ge-0/0/7".to_vec())));
    let message = Message::decode(&mut Decoder::new(&bytes)).unwrap();
    assert_eq!(message.msg_type(), MessageType::Advertise);
}

fn address(answer: &Answer) -> Ipv6Addr {
    let (_, mut bytes) = answer.sent().unwrap();
    while bytes[0] == u8::from(MessageType::RelayRepl) {
        bytes = unwrapped(&bytes).4;
    }
    let send = basalt_dhcp::v6::Action::Send { via: LINK, to: Destination::Client(PEER), bytes };
    Answer(vec![send]).address()
}

#[test]
fn the_link_address_nearest_to_the_client_chooses_the_subnet() {
    let far: Ipv6Addr = "2001:db8:5::1".parse().unwrap();
    let inner = relayed(0, far, PEER, &[], &solicit(1));
    let outer = relayed(1, ip(1), far, &[], &inner);
    assert_eq!(address(&server().ask(START, &outer)).segments()[2], 5);
    // A layer-2 relay (a switch) names no link of its own.
    let inner = relayed(0, NONE, PEER, &[], &solicit(1));
    let outer = relayed(1, far, PEER, &[], &inner);
    assert_eq!(address(&server().ask(START, &outer)).segments()[2], 5);
    let unnamed = relayed(0, NONE, PEER, &[], &solicit(1));
    assert_eq!(address(&server().ask(START, &unnamed)).segments()[2], 0, "where it was heard");
    let unknown = relayed(0, "2001:db8:77::1".parse().unwrap(), PEER, &[], &solicit(1));
    assert_eq!(server().ask(START, &unknown).ignored(), Ignored::NoSubnet("2001:db8:77::1".into()));
}

#[test]
fn the_relay_next_to_the_client_knows_its_mac() {
    let far: Ipv6Addr = "2001:db8:5::1".parse().unwrap();
    let seventh = [0, 1, 0x52, 0x54, 0, 0, 0, 7];
    let told = relayed(0, far, PEER, &[(OptionCode::ClientLinklayerAddr, &seventh)], &solicit(1));
    assert_eq!(address(&server().ask(START, &told)).segments()[7], 0x11, "more than the DUID");
    let heard = relayed(0, far, "fe80::5054:ff:fe00:7".parse().unwrap(), &[], &solicit(1));
    assert_eq!(address(&server().ask(START, &heard)).segments()[7], 0x11);
    // Only that relay saw the client's hardware address.
    let inner = relayed(0, far, PEER, &[], &solicit(1));
    let outer = relayed(1, far, far, &[(OptionCode::ClientLinklayerAddr, &seventh)], &inner);
    assert_ne!(address(&server().ask(START, &outer)).segments()[7], 0x11);
}

#[test]
fn relays_nest_eight_deep_and_no_deeper() {
    let nested = |depth: usize| {
        (0..depth)
            .fold(solicit(1), |inner, hops| relayed(u8::try_from(hops).unwrap(), NONE, PEER, &[], &inner))
    };
    let eight = ingress::parse(&nested(MAX_RELAYS).0).unwrap();
    assert_eq!((eight.relays.len(), eight.relays[0].hops, eight.kind), (8, 7, MessageType::Solicit));
    assert_eq!(ingress::parse(&nested(MAX_RELAYS + 1).0), Err(Malformed::TooManyRelays));
    let empty = relayed(0, NONE, PEER, &[], &Ask(vec![]));
    assert_eq!(ingress::parse(&empty.0), Err(Malformed::TooShort(0)));
    let nothing = Ask(relayed(0, NONE, PEER, &[], &Ask(vec![])).0[..34].to_vec());
    assert_eq!(ingress::parse(&nothing.0), Err(Malformed::NothingRelayed));
}

/// The relay has an address in the first subnet and names it; the server has addresses in neither.
#[test]
fn a_client_behind_a_relay_has_what_is_reserved_for_it_in_any_subnet_of_its_link() {
    let far = |number: u16| {
        let mut far = subnet();
        far.id = format!("far{number}");
        far.cidr = format!("2001:db8:{number}::/64").parse().unwrap();
        far.dynamic = Vec::new();
        far.link = Some("vlan-5".into());
        far
    };
    let (first, mut second) = (far(5), far(6));
    let address = "2001:db8:6::11".parse().unwrap();
    second.reservations = vec![basalt_dhcp::v6::Reservation { address, ..reservation(7, 0) }];
    let mut server =
        with(Config { subnets: vec![subnet(), first.clone(), second.clone()], ..Config::default() });
    let relay: Ipv6Addr = "2001:db8:5::1".parse().unwrap();
    let asked = |server: &mut basalt_dhcp::v6::Server, ask: &Ask| {
        let answer = server.ask_via(START, LINK, &relayed(0, relay, PEER, &[], ask));
        let (_, bytes) = answer.sent().unwrap_or_else(|| panic!("no answer: {answer:?}"));
        ingress::parse(&unwrapped(&bytes).4).unwrap()
    };
    let given = asked(&mut server, &about(MessageType::Request, 7, address));
    assert_eq!(given.associations[0].addresses, [address]);
    let confirm = Ask::of(MessageType::Confirm, 7).ia(1, &[address]);
    let status = |reply: ingress::Packet| reply.options.raw(OptionCode::StatusCode).map(|it| it[1]);
    assert_eq!(status(asked(&mut server, &confirm)), Some(0), "it is on its link");
    second.link = None;
    let mut apart = with(Config { subnets: vec![subnet(), first, second], ..Config::default() });
    assert_eq!(status(asked(&mut apart, &confirm)), Some(4), "nobody said that they share a link");
}
