//! RFC 2131, message by message.

use std::net::Ipv4Addr;

use basalt_dhcp::ingress;
use basalt_dhcp::{Action, Arrival, Destination, Event, Ignored, LeaseState, Server, Subnet};
use dhcproto::v4::{MessageType, OptionCode};

use crate::support::*;

#[test]
fn makes_the_lease_durable_before_the_client_hears_of_it() {
    let mut server = server();
    let offer = server.ask(START, &discover(1));
    assert!(offer.persisted().is_none(), "an offer is not a lease");
    let ack = server.ask(START, &select(1, offer.address()));
    assert!(matches!(
        ack.0.as_slice(),
        [Action::Persist(_), Action::Send { .. }, Action::Report(Event::Leased { renewed: false, .. })]
    ));
    let lease = ack.persisted().unwrap();
    assert_eq!((lease.address, lease.mac, lease.state), (ip(100), mac(1), LeaseState::Bound));
    assert_eq!(lease.expires, START.plus_seconds(600));
}

#[test]
fn tells_the_client_about_its_network() {
    let mut subnet = subnet();
    subnet.ntp_servers = vec![ip(4)];
    subnet.mtu = Some(9000);
    subnet.domain = Some("lab.example".to_owned());
    subnet.reservations = vec![reservation(1, 10)];
    subnet.reservations[0].hostname = Some("node-1".to_owned());
    let mut server = Server::new(config(subnet)).unwrap();
    let options = server.ask(START, &discover(1)).packet().options;
    assert_eq!(options.ipv4(OptionCode::ServerIdentifier), Some(SERVER));
    assert_eq!(options.ipv4(OptionCode::SubnetMask), Some(Ipv4Addr::new(255, 255, 255, 0)));
    assert_eq!(options.ipv4(OptionCode::BroadcastAddr), Some(ip(255)));
    assert_eq!(options.ipv4s(OptionCode::Router), [ip(1)]);
    assert_eq!(options.ipv4s(OptionCode::DomainNameServer), [ip(2), ip(3)]);
    assert_eq!(options.ipv4s(OptionCode::NtpServers), [ip(4)]);
    assert_eq!(options.u16(OptionCode::InterfaceMtu), Some(9000));
    assert_eq!(options.text(OptionCode::Hostname), Some("node-1"));
    assert_eq!(options.text(OptionCode::DomainName), Some("lab.example"));
    assert_eq!(options.u32(OptionCode::AddressLeaseTime), Some(600));
    assert_eq!(options.u32(OptionCode::Renewal), Some(300));
    assert_eq!(options.u32(OptionCode::Rebinding), Some(525));
    assert!(!options.contains(OptionCode::BootfileName));
}

#[test]
fn leaves_out_what_the_client_did_not_ask_for() {
    let mut subnet = subnet();
    subnet.mtu = Some(9000);
    let mut server = Server::new(config(subnet)).unwrap();
    let mut message = discover(1);
    message.option(OptionCode::ParameterRequestList, [1, 3]);
    let options = server.ask(START, &message).packet().options;
    assert!(!options.contains(OptionCode::InterfaceMtu));
    assert!(options.contains(OptionCode::SubnetMask) && options.contains(OptionCode::Router));
}

#[test]
fn answers_where_the_client_can_hear() {
    let mut server = server();
    let to = |answer: Answer| answer.sent().unwrap().0;
    assert_eq!(to(server.ask(START, &discover(1))), Destination::Hardware { address: ip(100), mac: mac(1) });
    let mut message = discover(1);
    message.broadcast = true;
    assert_eq!(to(server.ask(START, &message)), Destination::Broadcast);
    server.lease_to(START, 1);
    assert_eq!(to(server.ask(START, &renew(1, ip(100)))), Destination::Client(ip(100)));
    assert_eq!(to(server.ask(START, &reboot(2, ip(100)))), Destination::Broadcast, "a NAK");
    let mut message = discover(3);
    message.giaddr = ip(1);
    assert_eq!(to(server.ask(START, &message)), Destination::Relay(ip(1)));
    assert_eq!(Destination::Relay(ip(1)).socket_addr(), "10.77.0.1:67".parse().unwrap());
    assert_eq!(Destination::Broadcast.socket_addr(), "255.255.255.255:68".parse().unwrap());
}

#[test]
fn repeats_the_relay_option_last_and_the_client_identifier() {
    let mut server = server();
    let mut message = discover(1);
    message.giaddr = ip(1);
    message.hops = 1;
    message.option(OptionCode::RelayAgentInformation, [1, 2, 0xab, 0xcd]);
    message.option(OptionCode::ClientIdentifier, [0, 1, 2]);
    let answer = server.ask(START, &message);
    let packet = answer.packet();
    assert_eq!(packet.giaddr, ip(1));
    assert_eq!(packet.options.raw(OptionCode::RelayAgentInformation), Some([1, 2, 0xab, 0xcd].as_slice()));
    assert_eq!(packet.options.raw(OptionCode::ClientIdentifier), Some([0, 1, 2].as_slice()));
}

#[test]
fn the_relay_names_the_subnet() {
    let mut far = Subnet::new("far", "10.88.0.0/24".parse().unwrap());
    far.dynamic = vec![basalt_dhcp::AddressRange {
        start: Ipv4Addr::new(10, 88, 0, 50),
        end: Ipv4Addr::new(10, 88, 0, 60),
    }];
    let mut config = config(subnet());
    config.subnets.push(far);
    let mut server = Server::new(config).unwrap();
    let mut message = discover(1);
    message.giaddr = Ipv4Addr::new(10, 88, 0, 1);
    let there = server.ask(START, &message).address();
    assert_eq!(there, Ipv4Addr::new(10, 88, 0, 50));
    message.giaddr = Ipv4Addr::new(10, 99, 0, 1);
    assert_eq!(server.ask(START, &message).ignored(), Ignored::NoSubnet(Ipv4Addr::new(10, 99, 0, 1)));

    // Its renewal comes through a router, without the relay; a broadcast rebind from there would mean it moved here.
    let mut take = select(1, there);
    take.giaddr = Ipv4Addr::new(10, 88, 0, 1);
    assert_eq!(server.ask(START, &take).kind(), MessageType::Ack);
    let packet = ingress::parse(&renew(1, there).encode()).unwrap();
    let routed = Arrival { unicast: true, ..LINK };
    assert_eq!(Answer(server.handle(START, routed, &packet)).kind(), MessageType::Ack);
    assert_eq!(Answer(server.handle(START, LINK, &packet)).kind(), MessageType::Nak);
}

#[test]
fn another_server_was_chosen() {
    let mut server = server();
    assert_eq!(server.ask(START, &discover(1)).address(), ip(100));
    let mut message = request(1);
    message.option(OptionCode::RequestedIpAddress, ip(100).octets());
    message.option(OptionCode::ServerIdentifier, ip(250).octets());
    assert_eq!(server.ask(START, &message).ignored(), Ignored::OtherServer(ip(250)));
    assert!(!server.lease(ip(100)).unwrap().is_live(START), "the offer is withdrawn");
}

#[test]
fn init_reboot_is_granted_refused_or_left_to_others() {
    let mut server = server();
    server.lease_to(START, 1);
    assert_eq!(server.ask(START, &reboot(1, ip(100))).kind(), MessageType::Ack);
    assert_eq!(server.ask(START, &reboot(2, ip(100))).kind(), MessageType::Nak, "another client has it");
    let elsewhere = Ipv4Addr::new(192, 168, 1, 5);
    assert_eq!(server.ask(START, &reboot(2, elsewhere)).kind(), MessageType::Nak, "wrong network");
    assert_eq!(server.ask(START, &reboot(2, ip(101))).kind(), MessageType::Ack, "free and ours to give");
    assert_eq!(server.ask(START, &reboot(3, ip(50))).ignored(), Ignored::NotOurs(ip(50)));
}

#[test]
fn a_client_cannot_collect_addresses() {
    let mut server = server();
    server.lease_to(START, 1);
    assert_eq!(server.ask(START, &reboot(1, ip(101))).kind(), MessageType::Nak);
    assert_eq!(server.ask(START, &select(1, ip(102))).kind(), MessageType::Nak);
    assert_eq!(server.lease_to(START, 1), ip(100));
}

#[test]
fn renewing_extends_the_lease() {
    let mut server = server();
    server.lease_to(START, 1);
    let later = START.plus_seconds(300);
    let answer = server.ask(later, &renew(1, ip(100)));
    assert_eq!(
        (answer.kind(), answer.address(), answer.packet().ciaddr),
        (MessageType::Ack, ip(100), ip(100))
    );
    assert_eq!(answer.persisted().unwrap().expires, later.plus_seconds(600));
    assert!(matches!(answer.0.last(), Some(Action::Report(Event::Leased { renewed: true, .. }))));
}

#[test]
fn release_frees_the_address_for_others_and_is_durable() {
    let mut server = server();
    server.lease_to(START, 1);
    let mut message = basalt_dhcp::egress::Message::request(MessageType::Release, 9, mac(2));
    message.ciaddr = ip(100);
    assert_eq!(server.ask(START, &message).ignored(), Ignored::NotOurs(ip(100)), "not from another client");
    message.mac = mac(1);
    let answer = server.ask(START, &message);
    assert!(answer.sent().is_none());
    assert_eq!(answer.persisted().unwrap().state, LeaseState::Ended);
    assert!(!server.lease(ip(100)).unwrap().is_live(START));
    assert_eq!(server.lease_to(START, 1), ip(100), "it gets it again while nobody needed it");
}

#[test]
fn a_declined_address_rests() {
    let mut server = server();
    server.lease_to(START, 1);
    let mut message = basalt_dhcp::egress::Message::request(MessageType::Decline, 9, mac(1));
    message.option(OptionCode::RequestedIpAddress, ip(100).octets());
    message.option(OptionCode::ServerIdentifier, SERVER.octets());
    let answer = server.ask(START, &message);
    let told = Event::Conflict { lease: answer.persisted().unwrap().clone(), ended: true };
    assert!(matches!(&answer.0[..], [Action::Persist(_), Action::Report(event)] if *event == told));
    assert_eq!(server.lease_to(START, 1), ip(101), "not even its last client gets it");
    for client in 2..4 {
        assert_ne!(server.lease_to(START, client), ip(100));
    }
    let before = START.plus_seconds(599);
    assert_eq!(server.ask(before, &discover(9)).ignored(), Ignored::SomeRest(net()));
    assert_eq!(server.lease_to(START.plus_seconds(600), 9), ip(100));
}

#[test]
fn nobody_can_decline_what_it_does_not_have() {
    let mut server = server();
    server.lease_to(START, 1);
    for address in [ip(100), ip(101)] {
        let mut message = basalt_dhcp::egress::Message::request(MessageType::Decline, 9, mac(2));
        message.option(OptionCode::RequestedIpAddress, address.octets());
        assert_eq!(server.ask(START, &message).ignored(), Ignored::NotOurs(address));
    }
}

#[test]
fn inform_gives_options_and_no_lease() {
    let mut server = server();
    let mut message = basalt_dhcp::egress::Message::request(MessageType::Inform, 9, mac(1));
    message.ciaddr = ip(40);
    let answer = server.ask(START, &message);
    let (to, packet) = answer.sent().unwrap();
    assert_eq!(to, Destination::Client(ip(40)));
    assert_eq!((packet.kind, packet.yiaddr), (MessageType::Ack, Ipv4Addr::UNSPECIFIED));
    assert!(!packet.options.contains(OptionCode::AddressLeaseTime));
    assert_eq!(packet.options.ipv4s(OptionCode::Router), [ip(1)]);
    assert_eq!(server.leases().count(), 0);
}

#[test]
fn unknown_clients_get_nothing_when_told_so() {
    let mut subnet = subnet();
    subnet.reservations = vec![reservation(1, 10)];
    let mut config = config(subnet);
    config.serve_unknown = false;
    let mut server = Server::new(config).unwrap();
    assert_eq!(server.lease_to(START, 1), ip(10));
    assert_eq!(server.ask(START, &discover(2)).ignored(), Ignored::UnknownClient);
    assert_eq!(server.ask(START, &select(2, ip(100))).ignored(), Ignored::UnknownClient);
}

#[test]
fn replies_and_other_message_types_are_not_for_a_server() {
    let mut server = server();
    let ack = basalt_dhcp::egress::Message::reply(MessageType::Ack, 1, mac(1));
    assert_eq!(server.ask(START, &ack).ignored(), Ignored::NotARequest { op: 2, kind: 5 });
    let offer = basalt_dhcp::egress::Message::request(MessageType::Offer, 1, mac(1));
    assert_eq!(server.ask(START, &offer).ignored(), Ignored::NotARequest { op: 1, kind: 2 });
    let empty = request(1);
    assert!(matches!(server.ask(START, &empty).ignored(), Ignored::Missing(_)));
}
