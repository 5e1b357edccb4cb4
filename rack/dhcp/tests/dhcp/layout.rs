//! The order of the options in a reply, and the length of the reply.

use std::net::Ipv4Addr;

use basalt_dhcp::egress::Message;
use basalt_dhcp::{Action, Event, RawOption, Route, Server, Subnet, ingress};
use dhcproto::Decodable;
use dhcproto::v4::{self, DhcpOption, MessageType, OptionCode};

use crate::support::*;

const OPTIONS: usize = 240;

/// The bytes of the reply.
fn bytes(subnet: Subnet, message: &Message) -> Vec<u8> {
    let mut server = Server::new(config(subnet)).unwrap();
    let answer = server.ask(START, message).0;
    let mut sent = answer.into_iter().filter_map(|action| match action {
        Action::Send { bytes, .. } => Some(bytes),
        _ => None,
    });
    sent.next().unwrap()
}

/// The codes of the options field, in order.
fn codes(bytes: &[u8]) -> Vec<u8> {
    let (mut rest, mut codes) = (&bytes[OPTIONS..], Vec::new());
    while let [code, length, tail @ ..] = rest
        && *code != 255
    {
        codes.push(*code);
        rest = &tail[usize::from(*length)..];
    }
    codes
}

fn position(codes: &[u8], code: OptionCode) -> usize {
    let wanted = u8::from(code);
    codes.iter().position(|code| *code == wanted).unwrap_or_else(|| panic!("no option {wanted} in {codes:?}"))
}

fn asking(codes: &[u8]) -> Message {
    let mut message = discover(1);
    message.option(OptionCode::ParameterRequestList, codes);
    message
}

/// A subnet with many options: a long domain and this many servers.
fn talkative(dns_servers: u8, ntp_servers: u8) -> Subnet {
    let mut subnet = subnet();
    subnet.dns_servers = (1..=dns_servers).map(ip).collect();
    subnet.ntp_servers = (1..=ntp_servers).map(ip).collect();
    subnet.domain = Some("d".repeat(110));
    subnet
}

fn taking(longest: u16, message: &Message) -> Message {
    let mut message = message.clone();
    message.option(OptionCode::MaxMessageSize, longest.to_be_bytes());
    message
}

#[test]
fn tells_first_what_every_client_needs_and_then_in_the_order_it_was_asked_for() {
    let mut subnet = subnet();
    subnet.domain = Some("lab.example".to_owned());
    let codes = codes(&bytes(subnet, &asking(&[15, 28, 3, 1, 6])));
    assert_eq!(codes, [53, 54, 51, 58, 59, 1, 15, 28, 3, 6]);
}

#[test]
fn the_mask_stands_before_the_router_even_if_it_is_asked_for_later() {
    let codes = codes(&bytes(subnet(), &asking(&[3, 1])));
    assert!(position(&codes, OptionCode::SubnetMask) < position(&codes, OptionCode::Router));
}

#[test]
fn is_no_longer_than_the_client_takes_and_puts_the_rest_into_file_and_sname() {
    let message = asking(&[15, 42, 6, 3, 1]);
    let everything = ingress::parse(&bytes(talkative(30, 25), &taking(1500, &message))).unwrap();
    assert!(!everything.options.contains(OptionCode::OptionOverload));
    for said in [None, Some(0), Some(576)] {
        let message = said.map_or_else(|| message.clone(), |longest| taking(longest, &message));
        let bytes = bytes(talkative(30, 25), &message);
        assert!(bytes.len() <= 576 - 28, "{} bytes for {said:?}", bytes.len());
        let packet = ingress::parse(&bytes).unwrap();
        assert_eq!(packet.options.u8(OptionCode::OptionOverload), Some(1), "file alone");
        for code in [15, 42, 6, 3, 1].map(OptionCode::from) {
            assert_eq!(packet.options.raw(code), everything.options.raw(code), "{code:?}");
        }
    }
}

#[test]
fn leaves_out_what_fits_nowhere_and_goes_on_with_the_next() {
    let packet = ingress::parse(&bytes(talkative(60, 25), &asking(&[15, 42, 6, 3]))).unwrap();
    assert!(!packet.options.contains(OptionCode::DomainNameServer));
    assert_eq!(packet.options.ipv4s(OptionCode::Router), [ip(1)]);

    let mut server = Server::new(config(talkative(60, 25))).unwrap();
    let told = server.ask(START, &asking(&[15, 42, 6, 3])).0;
    let missing = Event::LeftOut { mac: mac(1), options: vec![6] };
    assert!(told.contains(&Action::Report(missing)), "{told:?}");
}

#[test]
fn an_option_that_an_rfc_has_asked_for_is_told_to_no_one_else() {
    let mut subnet = subnet();
    let declared = [80, 91, 108, 116, 150, 249];
    subnet.options = declared.map(|code| RawOption { code, value: vec![0, 0, 1, 44] }).to_vec();
    let told = |message: &Message| {
        let codes = codes(&bytes(subnet.clone(), message));
        declared.into_iter().filter(|code| codes.contains(code)).collect::<Vec<_>>()
    };
    assert_eq!(told(&discover(1)), [150], "who says nothing has asked for nothing");
    assert_eq!(told(&asking(&[1, 3])), [150]);
    assert_eq!(told(&asking(&[80, 91, 108, 116, 249])), [108, 150, 249]);
    let mut configures_itself = asking(&[1]);
    configures_itself.option(OptionCode::from(116), [1]);
    assert_eq!(told(&configures_itself), [116, 150]);
}

#[test]
fn a_boot_file_keeps_its_field() {
    let mut message = asking(&[15, 42, 6, 3, 1]);
    message.option(OptionCode::ClassIdentifier, "PXEClient:Arch:00007:UNDI:003016");
    let bytes = bytes(talkative(12, 30), &message);
    assert!(bytes.len() <= 548);
    let packet = ingress::parse(&bytes).unwrap();
    assert_eq!(packet.file, b"snponly.efi");
    assert_eq!(packet.options.text(OptionCode::ClassIdentifier), Some("PXEClient"));
    assert_eq!(packet.options.u8(OptionCode::OptionOverload), Some(2), "sname alone");
    assert_eq!(packet.options.ipv4s(OptionCode::DomainNameServer).len(), 12);
}

#[test]
fn an_option_of_the_relay_is_repeated_whatever_its_length_and_is_the_last() {
    let mut message = asking(&[15, 42, 6, 3, 1]);
    message.giaddr = ip(1);
    message.option(OptionCode::RelayAgentInformation, [&[1, 200][..], &[7; 200]].concat());
    let bytes = bytes(talkative(60, 40), &message);
    assert!(bytes.len() <= 548);
    assert_eq!(codes(&bytes).last(), Some(&82));
    let packet = ingress::parse(&bytes).unwrap();
    assert_eq!(packet.options.raw(OptionCode::RelayAgentInformation).map(<[u8]>::len), Some(202));
    assert_eq!((packet.kind, packet.yiaddr), (MessageType::Offer, Ipv4Addr::new(10, 77, 0, 100)));
    assert!(packet.options.contains(OptionCode::ServerIdentifier));
}

#[test]
fn search_lists_and_routes_are_told_to_clients_that_take_them_and_raw_options_to_all() {
    let mut subnet = subnet();
    subnet.search = (0..40).map(|number| format!("site-{number}.lab.example")).collect();
    subnet.routes = vec![Route { to: "172.16.0.0/12".parse().unwrap(), via: ip(7) }];
    subnet.options = vec![
        RawOption { code: 150, value: ip(5).octets().to_vec() },
        RawOption { code: 6, value: ip(66).octets().to_vec() },
    ];
    let reply = |message: &Message| {
        let bytes = bytes(subnet.clone(), message);
        (v4::Message::from_bytes(&bytes).unwrap(), ingress::parse(&bytes).unwrap().options)
    };
    let (theirs, ours) = reply(&taking(1500, &asking(&[119, 121])));
    let Some(DhcpOption::DomainSearch(names)) = theirs.opts().get(OptionCode::DomainSearch) else {
        panic!("{theirs:?}")
    };
    let names: Vec<String> =
        names.iter().map(|name| name.to_string().trim_end_matches('.').to_owned()).collect();
    assert_eq!(names, subnet.search, "as another decoder reads them");
    assert!(ours.raw(OptionCode::DomainSearch).unwrap().len() > 255, "it is sent in parts");
    let Some(DhcpOption::ClasslessStaticRoute(routes)) = theirs.opts().get(OptionCode::ClasslessStaticRoute)
    else {
        panic!("{theirs:?}")
    };
    let expected = [("172.16.0.0/12".parse().unwrap(), ip(7)), ("0.0.0.0/0".parse().unwrap(), ip(1))];
    assert_eq!(routes[..], expected);
    for (_, options) in [reply(&asking(&[1, 3])), reply(&asking(&[119, 121]))] {
        assert_eq!(options.ipv4(OptionCode::from(150)), Some(ip(5)));
        assert_eq!(
            options.ipv4s(OptionCode::DomainNameServer),
            subnet.dns_servers,
            "the subnet's own field says it"
        );
    }
    let (_, neither) = reply(&asking(&[1, 3]));
    assert!(
        !neither.contains(OptionCode::DomainSearch) && !neither.contains(OptionCode::ClasslessStaticRoute)
    );
}

#[test]
fn a_clients_own_options_come_before_those_of_its_subnet() {
    let mut subnet = subnet();
    subnet.options = [150, 160].map(|code| RawOption { code, value: ip(5).octets().to_vec() }).to_vec();
    let mut config = config(subnet);
    let own = vec![RawOption { code: 150, value: ip(9).octets().to_vec() }];
    config.client_options.insert(mac(1), own);
    let mut server = Server::new(config).unwrap();
    let mut told = |client: u8| {
        let answer = server.ask(START, &discover(client));
        let options = &answer.packet().options;
        [150, 160].map(|code| options.ipv4(OptionCode::from(code)))
    };
    assert_eq!(told(1), [Some(ip(9)), Some(ip(5))]);
    assert_eq!(told(2), [Some(ip(5)), Some(ip(5))]);
}
