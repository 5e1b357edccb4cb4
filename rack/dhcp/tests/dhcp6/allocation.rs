//! Which address a client gets.

use std::collections::BTreeSet;

use basalt_dhcp::v6::{AddressRange, Arrival, Client, Config, Duid, Ignored, Reservation};
use dhcproto::v6::{MessageType, OptionCode, Status};

use crate::support::*;

#[test]
fn a_client_is_told_of_the_same_address_again_and_gets_the_one_it_had() {
    let mut server = server(subnet());
    let first = server.ask(START, &solicit(1)).address();
    assert_eq!(server.ask(START, &solicit(1)).address(), first);
    let address = server.lease_to(START, 1);
    assert_eq!(server.lease_to(START.plus_seconds(100_000), 1), address, "long after it ended");
}

#[test]
fn every_address_of_the_ranges_is_given_once_and_then_none() {
    let mut server = server(subnet());
    let given: BTreeSet<_> = (1..=4).map(|client| server.lease_to(START, client)).collect();
    assert_eq!(given, (0x100..=0x103).map(ip).collect());
    assert_eq!(server.ask(START, &solicit(5)).ia_status(), Some(Status::NoAddrsAvail));
    assert!(given.contains(&server.lease_to(START.plus_seconds(601), 5)), "when they have ended");
}

#[test]
fn two_clients_that_choose_one_address_get_two() {
    let mut server = server(subnet());
    let first = server.ask(START, &about(MessageType::Request, 1, ip(0x100))).address();
    let second = server.ask(START, &about(MessageType::Request, 2, ip(0x100))).address();
    assert_eq!(first, ip(0x100));
    assert_ne!(second, first);
}

#[test]
fn a_reservation_by_mac_is_found_however_the_mac_is_known() {
    let mut reserved = subnet();
    reserved.reservations = vec![reservation(1, 0x11)];
    let solicit = |duid: &Duid| {
        Ask::bare(MessageType::Solicit).option(OptionCode::ClientId, duid.as_bytes()).ia(1, &[])
    };
    let uuid = Duid::of_uuid([1; 16]);
    assert_eq!(server(reserved.clone()).ask(START, &solicit(&duid(1))).address(), ip(0x11), "in its DUID");
    let eui_64 = Arrival { from: "fe80::5054:ff:fe00:1".parse().unwrap(), ..LINK };
    let answer = server(reserved.clone()).ask_via(START, eui_64, &solicit(&uuid));
    assert_eq!(answer.address(), ip(0x11), "in its source address");
    let hidden = server(reserved.clone()).ask(START, &solicit(&uuid)).address();
    assert_ne!(hidden, ip(0x11), "not at all");
    // A host with two interfaces: its DUID is of the first, its source address of the second.
    let second = Arrival { from: "fe80::5054:ff:fe00:2".parse().unwrap(), ..LINK };
    assert_ne!(server(reserved).ask_via(START, second, &solicit(&duid(1))).address(), ip(0x11));
}

#[test]
fn boot_rom_and_installed_system_share_the_reservation_of_their_interface() {
    let mut reserved = subnet();
    reserved.reservations = vec![reservation(1, 0x11)];
    let mut server = server(reserved);
    let interface = Arrival { from: "fe80::5054:ff:fe00:1".parse().unwrap(), ..LINK };
    for identity in [[1; 16], [2; 16]] {
        let ask = Ask::bare(MessageType::Request)
            .option(OptionCode::ClientId, Duid::of_uuid(identity).as_bytes())
            .here()
            .ia(u32::from(identity[0]), &[]);
        assert_eq!(server.ask_via(START, interface, &ask).address(), ip(0x11));
    }
}

/// EDK2 configures the interface by itself, where routers say that addresses are managed, and asks again in its PXE driver.
#[test]
fn the_parts_of_one_firmware_share_the_reservation_of_their_interface() {
    let mut reserved = subnet();
    reserved.reservations = vec![reservation(1, 0x11)];
    reserved.dynamic.clear();
    let mut server = server(reserved);
    let interface = Arrival { from: "fe80::5054:ff:fe00:1".parse().unwrap(), ..LINK };
    let ask = |kind, iaid| Ask::of(kind, 1).here().ia(iaid, &[ip(0x11)]);
    for iaid in [1, 2] {
        assert_eq!(server.ask_via(START, interface, &ask(MessageType::Request, iaid)).address(), ip(0x11));
    }
    assert_eq!(server.ask_via(START, interface, &ask(MessageType::Renew, 1)).address(), ip(0x11));
    // Whose interface it is was not heard, but read in the DUID.
    assert_eq!(server.ask(START, &ask(MessageType::Request, 3)).ia_status(), Some(Status::NoAddrsAvail));
}

#[test]
fn an_interface_that_was_given_the_reservation_of_another_by_their_duid_keeps_it_alone() {
    let mut reserved = subnet();
    reserved.reservations = vec![reservation(1, 0x11)];
    reserved.dynamic.clear();
    let mut server = server(reserved);
    let ask = |iaid| Ask::of(MessageType::Request, 1).here().ia(iaid, &[]);
    assert_eq!(server.ask(START, &ask(1)).address(), ip(0x11), "its DUID says that it is the other");
    let interface = Arrival { from: "fe80::5054:ff:fe00:1".parse().unwrap(), ..LINK };
    assert_eq!(server.ask_via(START, interface, &ask(2)).ia_status(), Some(Status::NoAddrsAvail));
}

#[test]
fn two_interfaces_of_one_host_do_not_share_what_is_reserved_for_its_duid() {
    let mut reserved = subnet();
    let own = Reservation { client: Client::Duid(duid(1)), address: ip(0x11), hostname: None };
    reserved.reservations = vec![own];
    let mut server = server(reserved);
    let ask = Ask::of(MessageType::Request, 1).here().ia(1, &[]).ia(2, &[]);
    let together = server.ask(START, &ask).addresses();
    assert_eq!(together.len(), 2);
    assert_eq!((together[0], together[1] == ip(0x11)), (ip(0x11), false));
    let later = server.ask(START, &Ask::of(MessageType::Request, 1).here().ia(3, &[]));
    assert_ne!(later.address(), ip(0x11));
}

#[test]
fn a_reserved_address_is_nobody_elses() {
    let mut reserved = subnet();
    reserved.reservations = vec![reservation(1, 0x100)];
    let mut server = server(reserved);
    assert_ne!(server.ask(START, &about(MessageType::Request, 2, ip(0x100))).address(), ip(0x100));
    let renewed = server.ask(START, &about(MessageType::Renew, 3, ip(0x100)));
    assert_ne!(renewed.address(), ip(0x100));
    assert_eq!(server.lease_to(START, 1), ip(0x100));
}

#[test]
fn a_new_reservation_takes_its_client_over_when_it_renews() {
    let mut server = server(subnet());
    let before = server.lease_to(START, 1);
    let mut reserved = subnet();
    reserved.reservations = vec![reservation(1, 0x11)];
    server.set_config(START, Config { subnets: vec![reserved], ..Config::default() }).unwrap();
    let renewed = server.ask(START, &about(MessageType::Renew, 1, before));
    assert_eq!(renewed.address(), ip(0x11));
    assert!(renewed.lifetimes().iter().any(|it| it.addr == before && it.valid_life == 0));
}

#[test]
fn a_range_that_went_away_is_left_at_the_next_renewal() {
    let mut server = server(subnet());
    let before = server.lease_to(START, 1);
    let mut moved = subnet();
    moved.dynamic = vec![AddressRange { start: ip(0x200), end: ip(0x203) }];
    server.set_config(START, Config { subnets: vec![moved], ..Config::default() }).unwrap();
    assert_eq!(server.leftover(START).map(|lease| lease.address).collect::<Vec<_>>(), [before]);
    let renewed = server.ask(START, &about(MessageType::Renew, 1, before));
    assert!((ip(0x200)..=ip(0x203)).contains(&renewed.address()));
}

#[test]
fn a_server_that_lost_its_leases_gives_only_what_is_reserved() {
    let mut reserved = subnet();
    reserved.reservations = vec![reservation(1, 0x11)];
    let mut server = server(reserved);
    server.withhold_dynamic_until(START.plus_seconds(600));
    assert_eq!(server.lease_to(START, 1), ip(0x11));
    assert_eq!(server.ask(START, &solicit(2)).ignored(), Ignored::Withheld);
    let renewed = server.ask(START, &about(MessageType::Renew, 2, ip(0x101)));
    assert_eq!(renewed.ignored(), Ignored::Withheld);
    server.lease_to(START.plus_seconds(600), 2);
}

#[test]
fn a_restarted_server_knows_what_was_persisted() {
    let mut server = server(subnet());
    let address = server.lease_to(START, 1);
    let leases: Vec<_> = server.leases().cloned().collect();
    let mut again = crate::support::server(subnet());
    again.restore(leases);
    let renewed = again.ask(START, &about(MessageType::Renew, 1, address));
    assert_eq!(renewed.address(), address);
    assert_eq!(again.bound(START), 1);
}

#[test]
fn an_expired_lease_is_reported_once() {
    let mut server = server(subnet());
    server.lease_to(START, 1);
    assert!(server.tick(START.plus_seconds(599)).is_empty());
    assert_eq!(server.tick(START.plus_seconds(600)).len(), 1);
    assert!(server.tick(START.plus_seconds(700)).is_empty());
}

#[test]
fn subnets_of_one_link_are_one_supply() {
    let mut second = subnet();
    second.id = "second".into();
    second.cidr = "2001:db8:2::/64".parse().unwrap();
    let address = "2001:db8:2::10".parse().unwrap();
    second.dynamic = vec![AddressRange { start: address, end: address }];
    let mut server = with(Config { subnets: vec![subnet(), second], ..Config::default() });
    server.set_links(std::collections::BTreeMap::from([(
        INTERFACE,
        vec![ip(2), "2001:db8:2::2".parse().unwrap()],
    )]));
    let given: BTreeSet<_> = (1..=5).map(|client| server.lease_to(START, client)).collect();
    assert!(given.len() == 5 && given.contains(&address));
    assert_eq!(server.lease(address).unwrap().subnet, "second");
}
