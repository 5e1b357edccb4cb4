//! The choice of an address for a client.

use std::collections::BTreeSet;

use basalt_dhcp::Occupancy;
use basalt_dhcp::v6::{
    Action, AddressRange, Arrival, Client, Config, ConfigError, Duid, Event, Ignored, Refusal, Reservation,
};
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
    // A host with two interfaces: its DUID contains the first one's address, its source address comes from the second.
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

/// EDK2 configures the interface itself if router advertisements have the managed flag, and asks again in its PXE
/// driver.
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
    // The hardware address was read from the DUID, not seen on the link.
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
fn a_reservation_of_an_own_address_is_not_leased() {
    let mut reserved = subnet();
    reserved.reservations = vec![reservation(1, 2)];
    let mut server = server(reserved);
    let given = server.ask(START, &about(MessageType::Request, 1, ip(2))).address();
    assert_ne!(given, ip(2), "the server's own address");
    assert_eq!(server.ask(START, &about(MessageType::Renew, 1, given)).address(), given);
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

/// On a link of its own, each host's link-local address contains its hardware address.
fn heard_from(host: u8) -> Arrival {
    Arrival { from: format!("fe80::5054:ff:fe00:{host:x}").parse().unwrap(), ..LINK }
}

/// Copies of one disk on like boards: networkd makes the DUID from the machine id, and the IAID from the interface
/// name.
#[test]
fn hosts_of_one_duid_and_one_association_have_an_address_each() {
    let mut server = server(subnet());
    let clone = |kind, addresses: &[_]| {
        Ask::bare(kind).option(OptionCode::ClientId, Duid::of_uuid([1; 16]).as_bytes()).ia(1, addresses)
    };
    let request = clone(MessageType::Request, &[]).here();
    let first = server.ask_via(START, heard_from(1), &request).address();
    let second = server.ask_via(START, heard_from(2), &request).address();
    assert_ne!(first, second);
    let later = START.plus_seconds(300);
    for (host, address) in [(1, first), (2, second)] {
        let renewed = server.ask_via(later, heard_from(host), &clone(MessageType::Renew, &[address]).here());
        assert_eq!(renewed.address(), address);
    }
    let others = server.ask_via(later, heard_from(2), &clone(MessageType::Release, &[first]).here());
    assert_eq!(others.ia_status(), Some(Status::NoBinding));
    let insists = server.ask_via(later, heard_from(2), &clone(MessageType::Rebind, &[first]));
    assert_eq!(insists.address(), second, "it has that one");
    // A host whose hardware address is not seen is identified by its DUID and IAID alone.
    assert_eq!(server.ask(later, &request).address(), first);
}

#[test]
fn a_host_keeps_what_is_reserved_for_its_duid_when_its_interface_is_another() {
    let mut reserved = subnet();
    reserved.reservations =
        vec![Reservation { client: Client::Duid(Duid::of_uuid([1; 16])), address: ip(0x11), hostname: None }];
    let mut server = server(reserved);
    let request = Ask::bare(MessageType::Request)
        .option(OptionCode::ClientId, Duid::of_uuid([1; 16]).as_bytes())
        .here()
        .ia(1, &[]);
    for host in [1, 2] {
        assert_eq!(server.ask_via(START, heard_from(host), &request).address(), ip(0x11));
    }
}

/// Some boards all have the same UUID.
#[test]
fn machines_whose_firmware_has_one_duid_all_get_addresses() {
    let mut wide = subnet();
    wide.dynamic = vec![AddressRange { start: ip(0x100), end: ip(0x1ff) }];
    let mut server = server(wide);
    let given: BTreeSet<_> = (1..=40)
        .map(|host| {
            let request = Ask::bare(MessageType::Request)
                .option(OptionCode::ClientId, Duid::of_uuid([3; 16]).as_bytes())
                .here()
                .ia(u32::from(host), &[]);
            server.ask_via(START, heard_from(host), &request).address()
        })
        .collect();
    assert_eq!(given.len(), 40);
}

fn refusal(answer: &Answer) -> Refusal {
    let reason = answer.0.iter().find_map(|action| match action {
        Action::Report(Event::Refused { reason, .. }) => Some(*reason),
        _ => None,
    });
    reason.unwrap_or_else(|| panic!("not refused: {answer:?}"))
}

#[test]
fn who_gets_no_address_is_told_of_with_the_reason() {
    let cidr = subnet().cidr;
    let mut server = server(subnet());
    for client in 1..=4 {
        server.lease_to(START, client);
    }
    let of = |server: &basalt_dhcp::v6::Server, now| server.occupancy(now, cidr).unwrap();
    assert_eq!(refusal(&server.ask(START, &solicit(5))), Refusal::NoFreeAddress(cidr));
    assert_eq!(of(&server, START), Occupancy { addresses: 4, leased: 4, ..Occupancy::default() });
    let declined = server.lease_to(START, 1);
    server.ask(START, &about(MessageType::Decline, 1, declined));
    assert_eq!(refusal(&server.ask(START, &solicit(5))), Refusal::SomeRest(cidr));
    assert_eq!(of(&server, START), Occupancy { addresses: 4, leased: 3, resting: 1, ..Occupancy::default() });
    let later = START.plus_seconds(601);
    assert_eq!(of(&server, later).free(), 4);
    server.withhold_dynamic_until(later.plus_seconds(1));
    let request = Ask::of(MessageType::Request, 9).here().ia(1, &[]);
    assert_eq!(refusal(&server.ask(later, &request)), Refusal::Withheld);
}

#[test]
fn the_reason_is_the_clients_where_it_has_as_many_as_one_may() {
    let mut wide = subnet();
    wide.dynamic = vec![AddressRange { start: ip(0x100), end: ip(0x1ff) }];
    let mut server = server(wide);
    for iaid in 0..16 {
        server.ask(START, &Ask::of(MessageType::Request, 2).here().ia(iaid, &[])).address();
    }
    let one_more = Ask::of(MessageType::Request, 2).here().ia(16, &[]);
    assert_eq!(refusal(&server.ask(START, &one_more)), Refusal::TooMany);
}

#[test]
fn a_subnet_of_reservations_alone_has_no_dynamic_address_to_give() {
    let mut reserved = subnet();
    reserved.dynamic.clear();
    let cidr = reserved.cidr;
    assert_eq!(refusal(&server(reserved).ask(START, &solicit(5))), Refusal::NoDynamic(cidr));
}

#[test]
fn reserved_addresses_and_its_own_are_not_counted_as_those_of_the_range() {
    let mut tight = subnet();
    tight.dynamic = vec![AddressRange { start: ip(1), end: ip(9) }];
    tight.reservations = vec![reservation(1, 5), reservation(2, 0x11)];
    let cidr = tight.cidr;
    // The server's own address is ::2.
    assert_eq!(server(tight).occupancy(START, cidr).unwrap().addresses, 7);
    let mut vast = subnet();
    vast.dynamic =
        vec![AddressRange { start: ip(0x100), end: "2001:db8::ffff:ffff:ffff:ffff".parse().unwrap() }];
    let most = u64::try_from(basalt_dhcp::v6::MAX_LEASES).unwrap();
    assert_eq!(server(vast).occupancy(START, cidr).unwrap().addresses, most);
}

/// No count of free addresses may include the anycast address, which is given to no client.
#[test]
fn a_range_with_the_routers_address_is_refused() {
    let of = |start: u16, end: u16, cidr: &str| {
        let mut subnet = subnet();
        subnet.cidr = cidr.parse().unwrap();
        subnet.dynamic = vec![AddressRange { start: ip(start), end: ip(end) }];
        (subnet.cidr, Config { subnets: vec![subnet], ..Config::default() })
    };
    for (start, end, what) in [(0, 9, "start of dynamic range"), (0, 0, "start of dynamic range")] {
        let (cidr, config) = of(start, end, "2001:db8::/64");
        assert_eq!(config.check(), Err(ConfigError::NotAHost { what, address: ip(0), cidr }));
    }
    // Both addresses of a link between two routers are host addresses (RFC 6164).
    let (cidr, config) = of(0, 1, "2001:db8::/127");
    assert_eq!(with(config).occupancy(START, cidr).unwrap().free(), 2);
}
