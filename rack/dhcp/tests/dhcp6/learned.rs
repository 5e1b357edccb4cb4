//! Leases that a server lost and a region reported. The region does not know the DUIDs of the clients.

use basalt_dhcp::v6::{Action, AddressRange, Client, Duid, Event, Lease, Reservation, Server, Subnet, Told};
use basalt_dhcp::{LeaseState, Mac};
use dhcproto::v6::{MessageType, OptionCode, Status};

use crate::support::*;

fn told(address: std::net::Ipv6Addr, mac: Option<Mac>) -> Told {
    Told { address, mac, subnet: "lab".into(), ends: START.plus_seconds(86_400) }
}

/// A message of a host whose hardware address is neither seen on the link nor in its DUID.
fn hidden(kind: MessageType, host: u8) -> Ask {
    Ask::bare(kind).option(OptionCode::ClientId, Duid::of_uuid([host; 16]).as_bytes())
}

/// One address, ::11, is reserved for hidden host 1.
fn reserved() -> Subnet {
    let client = Client::Duid(Duid::of_uuid([1; 16]));
    let mut subnet = subnet();
    subnet.reservations = vec![Reservation { client, address: ip(0x11), hostname: None }];
    subnet.dynamic.clear();
    subnet
}

#[test]
fn a_rebooted_host_gets_what_is_reserved_for_its_duid_though_the_lease_does_not_say_whose_it_is() {
    let mut server = server(reserved());
    server.learn(START, [told(ip(0x11), None)]);
    let solicit = hidden(MessageType::Solicit, 1).ia(1, &[]);
    assert_eq!(server.ask(START, &solicit).address(), ip(0x11));
    let request = |iaid| hidden(MessageType::Request, 1).here().ia(iaid, &[ip(0x11)]);
    assert_eq!(server.ask(START, &request(1)).address(), ip(0x11));
    assert_eq!(server.ask(START, &request(2)).ia_status(), Some(Status::NoAddrsAvail), "it is known now");
    assert_eq!(server.ask(START, &request(1)).address(), ip(0x11));
    let stranger = hidden(MessageType::Renew, 2).here().ia(1, &[ip(0x11)]);
    assert!(server.ask(START, &stranger).addresses().is_empty());
}

#[test]
fn what_is_reserved_is_not_its_owners_while_a_lease_of_another_client_may_run() {
    let request = hidden(MessageType::Request, 1).here().ia(1, &[]);
    let interface = |host: u8| basalt_dhcp::v6::Arrival {
        from: format!("fe80::5054:ff:fe00:{host:x}").parse().unwrap(),
        ..LINK
    };
    let mut learned = server(reserved());
    learned.learn(START, [told(ip(0x11), Some(mac(9)))]);
    assert_eq!(learned.ask_via(START, interface(1), &request).ia_status(), Some(Status::NoAddrsAvail));
    assert_eq!(learned.ask_via(START, interface(9), &request).address(), ip(0x11));
    // A client with a reservation by MAC would have shown that MAC.
    let mut by_mac = reserved();
    by_mac.reservations = vec![reservation(1, 0x11)];
    let mut learned = server(by_mac);
    learned.learn(START, [told(ip(0x11), None)]);
    assert_eq!(learned.ask(START, &solicit(1)).ia_status(), Some(Status::NoAddrsAvail));
    assert_eq!(learned.ask(START.plus_seconds(86_400), &solicit(1)).address(), ip(0x11));
}

/// The answer to a message, and the records of the leases that it reports.
fn given_back(server: &mut Server, kind: MessageType, address: std::net::Ipv6Addr) -> (Answer, Vec<Lease>) {
    let answer = server.ask(START, &hidden(kind, 6).here().ia(1, &[address]));
    let leases = answer.0.iter().filter_map(|action| match action {
        Action::Report(Event::Released(lease) | Event::Conflict(lease)) => Some(lease.clone()),
        _ => None,
    });
    let leases = leases.collect();
    (answer, leases)
}

#[test]
fn a_client_that_hides_its_hardware_address_can_decline_and_release_what_it_had_before() {
    let mut tight = subnet();
    tight.dynamic = vec![AddressRange { start: ip(0x100), end: ip(0x101) }];
    let mut server = server(tight);
    server.learn(START, [told(ip(0x100), None), told(ip(0x101), None)]);
    let (answer, declined) = given_back(&mut server, MessageType::Decline, ip(0x100));
    assert_eq!((answer.status(), answer.ia_status()), (Some(Status::Success), None));
    let [declined] = declined.as_slice() else { panic!("{declined:?}") };
    assert_eq!((declined.state, &declined.duid), (LeaseState::Quarantined, &Duid::of_uuid([6; 16])));
    assert_eq!(answer.persisted(), std::slice::from_ref(declined));
    assert_eq!(server.ask(START, &solicit(5)).ia_status(), Some(Status::NoAddrsAvail), "it rests");
    let (answer, released) = given_back(&mut server, MessageType::Release, ip(0x101));
    assert_eq!((answer.ia_status(), released.len()), (None, 1));
    assert_eq!(server.lease_to(START, 5), ip(0x101));
    let (answer, again) = given_back(&mut server, MessageType::Release, ip(0x101));
    assert_eq!((answer.ia_status(), again.len()), (Some(Status::NoBinding), 0), "it is another's now");
    assert_eq!(server.lease_to(START.plus_seconds(600), 7), ip(0x100));
}

#[test]
fn a_lease_of_a_hardware_address_is_given_back_by_that_alone() {
    let mut server = server(subnet());
    server.learn(START, [told(ip(0x100), Some(mac(1)))]);
    let (answer, _) = given_back(&mut server, MessageType::Decline, ip(0x100));
    assert_eq!(answer.ia_status(), Some(Status::NoBinding));
    let own = server.ask(START, &about(MessageType::Decline, 1, ip(0x100)));
    assert_eq!(own.ia_status(), None);
}

#[test]
fn a_server_that_lost_its_leases_gives_none_of_those_that_a_region_knows_to_another_client() {
    let mut wide = subnet();
    wide.dynamic = vec![AddressRange { start: ip(0x100), end: ip(0x102) }];
    let mut server = server(wide);
    let own = server.lease_to(START, 3);
    let lost: Vec<_> = (0x100..=0x102).map(ip).filter(|address| *address != own).collect();
    let kept =
        server.learn(START, [told(lost[0], Some(mac(1))), told(lost[1], None), told(own, Some(mac(9)))]);
    assert_eq!(kept.len(), 2, "what it knows itself is newer: {kept:?}");
    assert_eq!(server.ask(START, &solicit(5)).ia_status(), Some(Status::NoAddrsAvail));
    let insists = server.ask(START, &about(MessageType::Renew, 5, lost[0]));
    assert!(insists.addresses().is_empty(), "{insists:?}");
    // The client of a lease keeps it with any DUID. A client that hides its hardware address is recognised by the
    // address that it has.
    assert_eq!(server.ask(START, &solicit(1)).address(), lost[0]);
    assert_eq!(server.ask(START, &about(MessageType::Renew, 1, lost[0])).address(), lost[0]);
    assert_eq!(server.ask(START, &about(MessageType::Renew, 6, lost[1])).address(), lost[1]);
    assert!(
        server.ask(START, &about(MessageType::Renew, 7, lost[1])).addresses().is_empty(),
        "it is known now"
    );
    let later = START.plus_seconds(86_400);
    assert_ne!(
        server.ask(later, &solicit(5)).ia_status(),
        Some(Status::NoAddrsAvail),
        "when they have ended"
    );
}
