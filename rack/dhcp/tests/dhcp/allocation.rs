//! The choice of an address for a client, over time, restarts and changes of configuration.

use basalt_dhcp::{Action, AddressRange, ConfigError, Event, Ignored, LeaseState, Occupancy, Server};
use dhcproto::v4::{MessageType, OptionCode};

use crate::support::*;

#[test]
fn offers_the_reserved_address_when_the_pool_is_full() {
    let mut subnet = subnet();
    subnet.reservations = vec![reservation(9, 10), reservation(8, 101)];
    let mut server = Server::new(config(subnet)).unwrap();
    let given: Vec<_> = (1..4).map(|client| server.lease_to(START, client)).collect();
    assert_eq!(given, [ip(100), ip(102), ip(103)], "never the reserved one");
    assert_eq!(server.ask(START, &discover(4)).ignored(), Ignored::NoFreeAddress(net()));
    assert_eq!(server.lease_to(START, 9), ip(10));
    assert_eq!(server.lease_to(START, 8), ip(101));
    assert_eq!(server.ask(START, &select(4, ip(101))).kind(), MessageType::Nak);
}

#[test]
fn prefers_the_previous_address_then_the_one_asked_for() {
    let mut server = server();
    server.lease_to(START, 1);
    let mut message = discover(2);
    message.option(OptionCode::RequestedIpAddress, ip(103).octets());
    assert_eq!(server.ask(START, &message).address(), ip(103));
    let after = START.plus_seconds(10_000);
    assert_eq!(server.lease_to(after, 3), ip(103), "offered in vain before never used");
    assert_eq!(server.lease_to(after, 4), ip(101), "never used before ended");
    assert_eq!(server.lease_to(after, 1), ip(100));
}

#[test]
fn reuses_the_longest_ended_lease_first() {
    let mut server = server();
    for (client, second) in [(1, 30), (2, 10), (3, 20), (4, 40)] {
        server.lease_to(START.plus_seconds(second), client);
    }
    let after = START.plus_seconds(1000);
    let given: Vec<_> = (11..15).map(|client| server.lease_to(after, client)).collect();
    assert_eq!(given, [ip(101), ip(102), ip(100), ip(103)]);
}

#[test]
fn an_offer_nobody_takes_is_free_again() {
    let mut server = server();
    for client in 1..5 {
        server.ask(START, &discover(client));
    }
    assert!(matches!(server.ask(START, &discover(5)).ignored(), Ignored::NoFreeAddress(_)));
    assert_eq!(server.lease_to(START.plus_seconds(31), 5), ip(100));
}

#[test]
fn what_takes_the_addresses_of_a_full_subnet_is_counted_one_by_one() {
    let mut subnet = subnet();
    // The gateway, the server itself, a reserved address, and four others.
    subnet.dynamic = vec![AddressRange { start: ip(1), end: ip(7) }];
    subnet.reservations = vec![reservation(9, 4)];
    let mut server = Server::new(config(subnet)).unwrap();
    server.set_links([(LINK.interface, vec![SERVER])].into());
    let count = |server: &Server, at| server.occupancy(at, net()).unwrap();
    assert_eq!((count(&server, START).addresses, count(&server, START).free()), (4, 4));
    let declined = server.lease_to(START, 1);
    let mut message = basalt_dhcp::egress::Message::request(MessageType::Decline, 9, mac(1));
    message.option(OptionCode::RequestedIpAddress, declined.octets());
    message.option(OptionCode::ServerIdentifier, SERVER.octets());
    server.ask(START, &message);
    server.lease_to(START, 2);
    server.lease_to(START, 3);
    server.ask(START, &discover(4));
    let full = Occupancy { addresses: 4, leased: 2, offered: 1, resting: 1, kept: 0 };
    assert_eq!((count(&server, START), full.free()), (full, 0));
    assert_eq!(server.ask(START, &discover(5)).ignored(), Ignored::SomeRest(net()));
    let later = START.plus_seconds(31);
    assert_eq!(count(&server, later).free(), 1, "an offer that nobody took");
    assert_eq!(count(&server, START.plus_seconds(601)).free(), 4);
    assert_eq!(server.occupancy(START, "10.78.0.0/24".parse().unwrap()), None);
}

#[test]
fn a_subnet_of_reservations_alone_has_no_range_to_be_full() {
    let mut subnet = subnet();
    subnet.dynamic.clear();
    let mut server = Server::new(config(subnet)).unwrap();
    assert_eq!(server.ask(START, &discover(1)).ignored(), Ignored::NoDynamic(net()));
}

#[test]
fn discovering_again_does_not_shorten_a_lease() {
    let mut server = server();
    server.lease_to(START, 1);
    assert_eq!(server.ask(START.plus_seconds(1), &discover(1)).address(), ip(100));
    assert!(server.lease(ip(100)).unwrap().is_live(START.plus_seconds(599)));
}

#[test]
fn never_gives_out_the_gateway_or_itself() {
    let mut subnet = subnet();
    subnet.dynamic = vec![AddressRange { start: ip(1), end: ip(3) }];
    let mut server = Server::new(config(subnet)).unwrap();
    assert_eq!(server.lease_to(START, 1), ip(3));
    assert!(matches!(server.ask(START, &discover(2)).ignored(), Ignored::NoFreeAddress(_)));
}

#[test]
fn a_lease_the_region_does_not_know_is_short() {
    let mut subnet = subnet();
    subnet.lease_seconds = 86_400;
    let mut server = Server::new(config(subnet)).unwrap();
    server.lease_to(START, 1);
    let expires = |server: &Server| START.until(server.lease(ip(100)).unwrap().expires).as_secs();
    assert_eq!(expires(&server), 600);
    assert!(server.acknowledge(ip(100), mac(2)).is_none());
    assert!(server.acknowledge(ip(100), mac(1)).unwrap().acknowledged);
    let renewed = server.ask(START, &renew(1, ip(100)));
    assert_eq!(renewed.packet().options.u32(OptionCode::AddressLeaseTime), Some(86_400));
    assert_eq!(expires(&server), 86_400);
}

#[test]
fn leases_survive_a_restart() {
    let mut first = server();
    first.lease_to(START, 1);
    first.lease_to(START, 2);
    let file = first.leases().map(|lease| serde_json::to_string(lease).unwrap()).collect::<Vec<_>>();
    let mut second = server();
    second.restore(file.iter().map(|line| serde_json::from_str(line).unwrap()));
    assert_eq!(second.ask(START, &renew(2, ip(101))).kind(), MessageType::Ack);
    assert_eq!(second.ask(START, &reboot(3, ip(100))).kind(), MessageType::Nak);
    assert_eq!(second.lease_to(START, 3), ip(102));
}

#[test]
fn of_two_records_the_later_counts() {
    let mut first = server();
    first.lease_to(START, 1);
    let old = first.lease(ip(100)).unwrap().clone();
    let mut new = old.clone();
    new.state = LeaseState::Ended;
    new.granted = START.plus_seconds(5);
    for order in [[old.clone(), new.clone()], [new, old]] {
        let mut server = server();
        server.restore(order);
        assert_eq!(server.lease(ip(100)).unwrap().state, LeaseState::Ended);
    }
}

#[test]
fn without_its_lease_file_it_serves_only_whom_it_knows() {
    let mut subnet = subnet();
    subnet.reservations = vec![reservation(9, 10)];
    let mut known = Server::new(config(subnet.clone())).unwrap();
    known.lease_to(START, 1);
    let mut server = Server::new(config(subnet)).unwrap();
    server.withhold_dynamic_until(START.plus_seconds(600));
    assert_eq!(server.lease_to(START, 9), ip(10), "a reservation cannot be anyone else's");
    assert_eq!(server.ask(START, &discover(2)).ignored(), Ignored::Withheld);
    assert_eq!(server.ask(START, &reboot(2, ip(100))).ignored(), Ignored::NotOurs(ip(100)));
    server.restore([known.lease(ip(100)).unwrap().clone()]);
    assert_eq!(server.ask(START, &renew(1, ip(100))).kind(), MessageType::Ack);
    assert_eq!(server.lease_to(START.plus_seconds(600), 2), ip(101));
}

#[test]
fn a_new_reservation_moves_its_client_and_waits_for_the_lease_in_its_way() {
    let mut server = server();
    server.lease_to(START, 1);
    server.lease_to(START, 2);
    let mut subnet = subnet();
    subnet.reservations = vec![reservation(2, 100)];
    server.set_config(START, config(subnet)).unwrap();

    assert_eq!(server.ask(START, &renew(1, ip(100))).kind(), MessageType::Nak, "reserved for another now");
    assert_eq!(server.lease_to(START, 1), ip(102));
    assert_eq!(server.ask(START, &renew(2, ip(101))).kind(), MessageType::Ack, "1 may still be using .100");
    assert_eq!(server.lease_to(START, 2), ip(101));
    let after = START.plus_seconds(600);
    assert_eq!(server.ask(after, &renew(2, ip(101))).kind(), MessageType::Nak);
    assert_eq!(server.lease_to(after, 2), ip(100));
}

#[test]
fn a_changed_range_keeps_leases_until_they_renew() {
    let mut server = server();
    server.lease_to(START, 1);
    let mut subnet = subnet();
    subnet.dynamic = vec![AddressRange { start: ip(200), end: ip(210) }];
    server.set_config(START, config(subnet)).unwrap();
    assert!(server.lease(ip(100)).unwrap().is_live(START));
    let leftover = |server: &Server, now| server.leftover(now).map(|it| it.address).collect::<Vec<_>>();
    assert_eq!(leftover(&server, START), [ip(100)], "nobody else may have it yet");
    assert_eq!(server.ask(START, &renew(1, ip(100))).kind(), MessageType::Nak);
    assert_eq!(server.lease_to(START, 1), ip(200));
    assert!(leftover(&server, START.plus_seconds(600)).is_empty());
}

#[test]
fn a_bad_configuration_changes_nothing() {
    let mut server = server();
    let mut bad = subnet();
    bad.dynamic = vec![AddressRange { start: ip(9), end: ip(8) }];
    assert_eq!(server.set_config(START, config(bad)), Err(ConfigError::RangeBackwards(ip(9), ip(8))));
    assert_eq!(server.config(), &config(subnet()));
    assert_eq!(server.lease_to(START, 1), ip(100));
}

#[test]
fn a_configuration_is_checked_as_a_whole() {
    let broken: [fn(&mut basalt_dhcp::Subnet); 7] = [
        |subnet| subnet.gateway = Some("10.78.0.1".parse().unwrap()),
        |subnet| subnet.dynamic[0].end = ip(255),
        |subnet| subnet.lease_seconds = 59,
        |subnet| subnet.reservations = vec![reservation(1, 0)],
        |subnet| subnet.reservations = vec![reservation(1, 10), reservation(1, 11)],
        |subnet| subnet.reservations = vec![reservation(1, 10), reservation(2, 10)],
        |subnet| subnet.boot.script_url = String::new(),
    ];
    for (index, spoil) in broken.into_iter().enumerate() {
        let mut bad = subnet();
        spoil(&mut bad);
        assert!(Server::new(config(bad)).is_err(), "case {index}");
    }
    let mut twice = config(subnet());
    twice.subnets.push(subnet());
    assert!(matches!(Server::new(twice), Err(ConfigError::SubnetsOverlap(..))));
}

#[test]
fn reports_a_lease_that_ran_out_once() {
    let mut server = server();
    server.lease_to(START, 1);
    assert_eq!(server.tick(START.plus_seconds(599)), []);
    let expired = server.tick(START.plus_seconds(600));
    assert!(
        matches!(expired.as_slice(), [Action::Report(Event::Expired(lease))] if lease.address == ip(100))
    );
    assert_eq!(server.tick(START.plus_seconds(700)), []);
}
