//! The subnet that a client's address comes from: links with several subnets, and relays that send link selection or an
//! override.

use std::net::Ipv4Addr;

use basalt_dhcp::egress::Message;
use basalt_dhcp::{AddressRange, Arrival, Config, Destination, Ignored, Server, Subnet, ingress};
use dhcproto::v4::{MessageType, OptionCode};

use crate::support::*;

/// This server's address in the second subnet of its link, 10.78.0.0/24.
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
/// A relay's address, which is in no subnet.
const RELAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn second(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 0, last)
}

fn far(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 88, 0, last)
}

fn other(id: &str, first: Ipv4Addr, last: Ipv4Addr) -> Subnet {
    let mut subnet = Subnet::new(id, format!("{first}/24").parse::<ipnet::Ipv4Net>().unwrap().trunc());
    subnet.dynamic = vec![AddressRange { start: first, end: last }];
    subnet
}

/// Two subnets on this server's link, and one far away.
fn shared(change: impl FnOnce(&mut Config)) -> Server {
    let mut config = config(subnet());
    config.subnets.push(other("second", second(100), second(101)));
    config.subnets.push(other("far", far(50), far(60)));
    change(&mut config);
    let mut server = Server::new(config).unwrap();
    server.set_links([(LINK.interface, vec![SERVER, SECOND])].into());
    server
}

fn identity(packet: &ingress::Packet) -> Option<Ipv4Addr> {
    packet.options.ipv4(OptionCode::ServerIdentifier)
}

/// A relay on [`RELAY`] that names this link.
fn through_relay(mut message: Message, link: Ipv4Addr) -> Message {
    message.giaddr = RELAY;
    message.option(OptionCode::RelayAgentInformation, [&[1, 1, 7, 5, 4], &link.octets()[..]].concat());
    message
}

#[test]
fn a_link_goes_on_with_its_second_subnet_when_the_first_is_full() {
    let mut server = shared(|_| {});
    for client in 1..5 {
        assert_eq!(server.lease_to(START, client), ip(99 + client));
    }
    let offer = server.ask(START, &discover(5)).packet();
    assert_eq!(
        (offer.yiaddr, identity(&offer)),
        (second(100), Some(SECOND)),
        "from the server's address there"
    );
    let mut take = request(5);
    take.option(OptionCode::RequestedIpAddress, offer.yiaddr.octets());
    take.option(OptionCode::ServerIdentifier, SECOND.octets());
    let answer = server.ask(START, &take);
    assert_eq!((answer.kind(), answer.persisted().unwrap().subnet.as_str()), (MessageType::Ack, "second"));
    assert_eq!(server.ask(START, &discover(6)).address(), second(101));
    assert!(matches!(server.ask(START, &discover(7)).ignored(), Ignored::NoFreeAddress(_)));
}

#[test]
fn a_link_knows_all_of_its_subnets_when_clients_come_back() {
    let mut server = shared(|config| {
        config.subnets[1].reservations =
            vec![basalt_dhcp::Reservation { mac: mac(1), address: second(10), hostname: None, boot: None }]
    });
    assert_eq!(server.ask(START, &discover(1)).address(), second(10), "its reservation, whatever the subnet");
    assert_eq!(server.ask(START, &reboot(1, second(10))).kind(), MessageType::Ack);
    assert_eq!(server.ask(START, &renew(1, second(10))).kind(), MessageType::Ack, "rebinding, by broadcast");
    assert_eq!(server.ask(START, &reboot(1, ip(100))).kind(), MessageType::Nak, "it has a reservation");
    assert_eq!(server.ask(START, &reboot(2, second(100))).kind(), MessageType::Ack);
    assert_eq!(
        server.ask(START, &reboot(2, ip(100))).kind(),
        MessageType::Nak,
        "one address a client and link"
    );
    assert_eq!(server.ask(START, &reboot(3, far(50))).kind(), MessageType::Nak, "that is another link");
    let mut inform = Message::request(MessageType::Inform, 9, mac(4));
    inform.ciaddr = second(40);
    assert_eq!(identity(&server.ask(START, &inform).packet()), Some(SECOND));
}

#[test]
fn a_link_that_lost_an_address_lost_its_subnet() {
    let mut server = shared(|_| {});
    server.set_links([(LINK.interface, vec![SERVER])].into());
    assert_eq!(server.ask(START, &reboot(1, second(100))).kind(), MessageType::Nak);
}

#[test]
fn a_subnet_of_the_same_link_is_served_where_this_server_has_no_address_in_it() {
    let mut server = shared(|config| {
        config.subnets[0].link = Some("default.0".into());
        config.subnets[1].link = Some("default.0".into());
        config.subnets[2].link = Some("default.20".into());
        config.subnets[1].reservations =
            vec![basalt_dhcp::Reservation { mac: mac(1), address: second(10), hostname: None, boot: None }];
    });
    server.set_links([(LINK.interface, vec![SERVER])].into());
    let offer = server.ask(START, &discover(1)).packet();
    assert_eq!((offer.yiaddr, identity(&offer)), (second(10), Some(SERVER)), "its reservation");
    assert_eq!(server.ask(START, &reboot(1, second(10))).kind(), MessageType::Ack);
    assert_eq!(server.ask(START, &reboot(1, ip(100))).kind(), MessageType::Nak, "it has a reservation");
    for client in 2..6 {
        assert_eq!(server.lease_to(START, client), ip(98 + client));
    }
    assert_eq!(server.ask(START, &discover(6)).address(), second(100), "the first one is full");
    assert_eq!(server.ask(START, &reboot(7, far(50))).kind(), MessageType::Nak, "that is another link");
}

#[test]
fn a_relay_in_one_subnet_of_a_link_reaches_the_others() {
    let mut server = shared(|config| {
        for subnet in &mut config.subnets[1..] {
            subnet.link = Some("default.20".into());
        }
        config.subnets[2].reservations =
            vec![basalt_dhcp::Reservation { mac: mac(1), address: far(10), hostname: None, boot: None }];
    });
    server.set_links([(LINK.interface, vec![SERVER])].into());
    let relayed = |mut message: Message| {
        message.giaddr = second(1);
        message
    };
    assert_eq!(
        server.ask(START, &relayed(discover(1))).address(),
        far(10),
        "its reservation in the other one"
    );
    assert_eq!(server.ask(START, &relayed(reboot(1, far(10)))).kind(), MessageType::Ack);
    assert_eq!(server.ask(START, &relayed(reboot(2, far(55)))).kind(), MessageType::Ack);
    assert_eq!(
        server.ask(START, &relayed(reboot(3, ip(100)))).kind(),
        MessageType::Nak,
        "that is another link"
    );
}

#[test]
fn a_relay_on_a_shared_link_reaches_all_of_its_subnets() {
    let mut server = shared(|_| {});
    let mut message = reboot(1, second(100));
    message.giaddr = ip(1);
    assert_eq!(server.ask(START, &message).kind(), MessageType::Ack);
}

#[test]
fn never_gives_out_any_address_of_its_own() {
    let mut server = shared(|config| {
        config.subnets[1].dynamic = vec![AddressRange { start: SECOND, end: second(3) }];
    });
    for client in 1..5 {
        server.lease_to(START, client);
    }
    assert_eq!(server.ask(START, &discover(5)).address(), second(3));
    assert_eq!(server.ask(START, &reboot(6, SECOND)).ignored(), Ignored::NotOurs(SECOND));
}

#[test]
fn a_reservation_of_an_own_address_is_not_leased() {
    let mut server = shared(|config| config.subnets[0].reservations = vec![reservation(1, 2)]);
    let offered = server.ask(START, &discover(1));
    assert_ne!(offered.address(), SERVER, "the client gets a dynamic address");
    assert_eq!(server.ask(START, &reboot(1, SERVER)).kind(), MessageType::Nak);
    assert_eq!(server.ask(START, &select(1, offered.address())).kind(), MessageType::Ack);
}

#[test]
fn the_relay_may_name_another_link_than_its_own() {
    let mut server = shared(|_| {});
    let answer = server.ask(START, &through_relay(discover(1), far(1)));
    let (to, packet) = answer.sent().unwrap();
    assert_eq!((to, packet.yiaddr), (Destination::Relay(RELAY), far(50)));
    let echoed = packet.options.raw(OptionCode::RelayAgentInformation).unwrap();
    assert_eq!(echoed, [1, 1, 7, 5, 4, 10, 88, 0, 1], "as it came");
    assert_eq!(
        server.ask(START, &through_relay(discover(1), Ipv4Addr::new(10, 99, 0, 1))).ignored(),
        Ignored::NoSubnet(Ipv4Addr::new(10, 99, 0, 1)),
        "not another link's address instead (RFC 3527)"
    );
}

#[test]
fn option_118_names_the_link_for_relays_and_is_repeated() {
    let mut server = shared(|_| {});
    let mut message = discover(1);
    message.giaddr = RELAY;
    message.option(OptionCode::SubnetSelection, far(0).octets());
    let packet = server.ask(START, &message).packet();
    assert_eq!((packet.yiaddr, packet.options.ipv4(OptionCode::SubnetSelection)), (far(50), Some(far(0))));
    let chosen_twice = through_relay(message, ip(1));
    assert_eq!(server.ask(START, &chosen_twice).address(), ip(100), "option 82 comes first (RFC 3527)");
}

#[test]
fn a_client_cannot_choose_its_link() {
    let mut server = shared(|_| {});
    let mut message = discover(1);
    message.option(OptionCode::SubnetSelection, far(0).octets());
    message.option(OptionCode::RelayAgentInformation, [5, 4, 10, 88, 0, 1]);
    let packet = server.ask(START, &message).packet();
    assert_eq!((packet.yiaddr, packet.options.contains(OptionCode::SubnetSelection)), (ip(100), false));
}

#[test]
fn a_relay_may_stand_in_for_the_server() {
    let mut server = shared(|_| {});
    let relayed = |mut message: Message| {
        message.giaddr = far(1);
        message.option(OptionCode::RelayAgentInformation, [11, 4, 10, 88, 0, 1]);
        message
    };
    let offer = server.ask(START, &relayed(discover(1))).packet();
    assert_eq!((offer.yiaddr, identity(&offer)), (far(50), Some(far(1))));
    let mut take = request(1);
    take.option(OptionCode::RequestedIpAddress, far(50).octets());
    take.option(OptionCode::ServerIdentifier, far(1).octets());
    let answer = server.ask(START, &relayed(take.clone()));
    assert_eq!((answer.kind(), identity(&answer.packet())), (MessageType::Ack, Some(far(1))));
    let direct = server.ask(START, &take);
    assert_eq!(direct.ignored(), Ignored::OtherServer(far(1)), "only where the relay says so");
    let renewal = server.ask(START, &relayed(renew(1, far(50))));
    assert_eq!((renewal.kind(), renewal.sent().unwrap().0), (MessageType::Ack, Destination::Relay(far(1))));
}

#[test]
fn a_relay_option_that_is_cut_short_says_nothing() {
    for option in [&[5, 4, 10, 88][..], &[5, 3, 10, 88, 0], &[5], &[1, 9, 5, 4, 10, 88, 0, 1], &[]] {
        let mut server = shared(|_| {});
        let mut message = discover(1);
        message.giaddr = ip(1);
        message.option(OptionCode::RelayAgentInformation, option);
        let packet = server.ask(START, &message).packet();
        assert_eq!(packet.yiaddr, ip(100), "{option:?}");
        assert_eq!(packet.options.raw(OptionCode::RelayAgentInformation), Some(option));
    }
}

#[test]
fn a_renewal_by_unicast_from_an_address_of_no_known_subnet_is_not_answered() {
    let mut server = shared(|_| {});
    let stranger = Ipv4Addr::new(10, 99, 0, 5);
    let packet = ingress::parse(&renew(1, stranger).encode()).unwrap();
    let answer = Answer(server.handle(START, Arrival { unicast: true, ..LINK }, &packet));
    assert_eq!(answer.ignored(), Ignored::NoSubnet(stranger));
    let rebinding = server.ask(START, &renew(1, stranger));
    assert_eq!(rebinding.kind(), MessageType::Nak, "who is heard by broadcast is on this link");
}

#[test]
fn a_renewal_by_unicast_is_answered_from_the_address_that_it_was_sent_to() {
    let mut server = shared(|_| {});
    for client in 1..6 {
        let offer = server.ask(START, &discover(client)).packet();
        assert_eq!(server.ask(START, &reboot(client, offer.yiaddr)).kind(), MessageType::Ack);
    }
    let packet = ingress::parse(&renew(5, second(100)).encode()).unwrap();
    let answer = Answer(server.handle(START, Arrival { unicast: true, ..LINK }, &packet));
    assert_eq!((answer.kind(), identity(&answer.packet())), (MessageType::Ack, Some(SERVER)));
}
