//! A hundred thousand invented clients: the memory that the server uses for them, and the addresses left for real
//! clients.

use basalt_dhcp::Time;
use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use basalt_dhcp::v6::{AddressRange, Arrival, Config, MAX_LEASES, Server, Subnet};
use dhcproto::v6::{MessageType, OptionCode, Status};

use crate::support::*;

const CLIENTS: u32 = 100_000;

/// A server with more addresses than fit in memory.
fn vast() -> Server {
    let mut vast = subnet();
    vast.dynamic =
        vec![AddressRange { start: ip(0x100), end: "2001:db8::ffff:ffff:ffff:ffff".parse().unwrap() }];
    vast.reservations = vec![reservation(1, 0x11)];
    server(vast)
}

fn stranger(kind: MessageType, number: u32) -> Ask {
    let [a, b, c, d] = number.to_be_bytes();
    Ask::bare(kind).option(OptionCode::ClientId, &[0, 2, 9, 9, a, b, c, d])
}

#[test]
fn clients_that_only_ask_cost_nothing() {
    let mut server = vast();
    for number in 0..CLIENTS {
        server.ask(START, &stranger(MessageType::Solicit, number).ia(number, &[]));
    }
    assert_eq!(server.known(), 0);
}

#[test]
fn clients_that_lease_fill_a_bounded_table_and_shut_out_nobody_who_is_known() {
    let mut server = vast();
    for number in 0..CLIENTS {
        let now = Time(START.0 + u64::from(number / 1000));
        server.ask(now, &stranger(MessageType::Request, number).here().ia(number, &[]));
    }
    assert_eq!(server.known(), MAX_LEASES);
    let late = stranger(MessageType::Request, CLIENTS).here().ia(1, &[]);
    assert_eq!(server.ask(START, &late).ia_status(), Some(Status::NoAddrsAvail));
    assert_eq!(server.lease_to(START, 1), ip(0x11));
    server.ask(START.plus_seconds(700), &late).address();
    assert_eq!(server.known(), MAX_LEASES, "what ended first is forgotten");
}

#[test]
fn what_ended_on_one_link_leaves_room_on_another() {
    let (mut server, there) = beside_a_vast_one();
    fill(&mut server, START);
    let request = stranger(MessageType::Request, CLIENTS).here().ia(1, &[]);
    assert_eq!(server.ask_via(START, there, &request).ia_status(), Some(Status::NoAddrsAvail));
    assert!(server.ask_via(START.plus_seconds(700), there, &request).address().segments()[2] == 1);
    assert_eq!(server.known(), MAX_LEASES);
}

/// A small range on a link of its own, beside a vast one.
fn beside_a_vast_one() -> (Server, Arrival) {
    let mut other = Subnet::new("other", "2001:db8:1::/64".parse().unwrap());
    let address = |last: u16| Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, last);
    other.dynamic = vec![AddressRange { start: address(0x100), end: address(0x13f) }];
    let mut first = subnet();
    first.dynamic =
        vec![AddressRange { start: ip(0x100), end: "2001:db8::ffff:ffff:ffff:ffff".parse().unwrap() }];
    let mut server = with(Config { subnets: vec![first, other], ..Config::default() });
    server.set_links(BTreeMap::from([(INTERFACE, vec![ip(2)]), (INTERFACE + 1, vec![address(2)])]));
    (server, Arrival { interface: INTERFACE + 1, ..LINK })
}

/// Clients lease addresses of the vast range until the table is full.
fn fill(server: &mut Server, now: Time) {
    for number in 0..u32::try_from(MAX_LEASES).unwrap() {
        server.ask(now, &stranger(MessageType::Request, number).here().ia(number, &[]));
    }
}

#[test]
fn what_was_forgotten_is_found_again() {
    let (mut server, there) = beside_a_vast_one();
    let lease = |server: &mut Server, now, client: u32| {
        let request = stranger(MessageType::Request, client).here().ia(1, &[]);
        server.ask_via(now, there, &request).addresses()
    };
    for client in 0..64 {
        assert_eq!(lease(&mut server, START, CLIENTS + client).len(), 1);
    }
    fill(&mut server, START.plus_seconds(700));
    let later = START.plus_seconds(1400);
    for client in 100..164 {
        assert_eq!(
            lease(&mut server, later, CLIENTS + client).len(),
            1,
            "client {client} of 64 on 64 addresses"
        );
    }
}

#[test]
fn what_is_told_and_what_is_kept_are_the_same_though_room_is_made() {
    let (mut server, there) = beside_a_vast_one();
    let day = 86_400;
    let mut config = server.config().clone();
    config.subnets.iter_mut().for_each(|subnet| subnet.lease_seconds = day);
    server.set_config(START, config).unwrap();
    let own = stranger(MessageType::Request, CLIENTS);
    let address = server.ask_via(START, there, &own.clone().here().ia(2, &[])).address();
    server.acknowledge(START, address, None).unwrap();
    let renew = stranger(MessageType::Renew, CLIENTS).here().ia(2, &[address]);
    assert_eq!(server.ask_via(START, there, &renew).lifetimes()[0].valid_life, day);
    fill(&mut server, START.plus_seconds(day - 400));
    // That address is the one whose lease ended first.
    let now = START.plus_seconds(day + 300);
    let answer = server.ask_via(now, there, &own.here().ia(1, &[]).ia(2, &[address]));
    let (told, kept) = (answer.lifetimes(), answer.persisted());
    assert_eq!((told.len(), kept.len()), (2, 2));
    for (told, kept) in told.iter().zip(&kept) {
        assert_eq!((told.addr, now.plus_seconds(told.valid_life)), (kept.address, kept.expires));
    }
}

#[test]
fn copies_of_one_disk_on_many_links_each_get_addresses() {
    let link = |number: u16| Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 2);
    let subnets = (0..20).map(|number| {
        let cidr = format!("2001:db8:{number:x}::/64").parse().unwrap();
        let mut subnet = Subnet::new(format!("s{number}"), cidr);
        let [start, end] = [0x100, 0x1ff].map(|last| Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, last));
        subnet.dynamic = vec![AddressRange { start, end }];
        subnet
    });
    let mut server = with(Config { subnets: subnets.collect(), ..Config::default() });
    server.set_links((0..20).map(|number| (u32::from(number), vec![link(number)])).collect());
    for number in 0..20 {
        let request = Ask::of(MessageType::Request, 2).here().ia(u32::from(number), &[]);
        let there = Arrival { interface: u32::from(number), ..LINK };
        assert_eq!(server.ask_via(START, there, &request).address().segments()[2], number);
    }
}

#[test]
fn one_client_in_many_associations_gets_sixteen_addresses() {
    let mut server = vast();
    for iaid in 0..100 {
        server.ask(START, &Ask::of(MessageType::Request, 2).here().ia(iaid, &[]));
    }
    assert_eq!(server.known(), 16);
}
