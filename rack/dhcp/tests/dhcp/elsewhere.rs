//! The reports of other servers' leases that a server takes, rule by rule. Whole histories are in `racks.rs`.

use std::time::Duration;

use basalt_dhcp::egress::Message;
use basalt_dhcp::{Action, Event, GRACE, Grantor, Ignored, LeaseState, Server, Subnet, Time, Told};
use dhcproto::v4::{MessageType, OptionCode};

use crate::support::*;

/// An address of another server's block.
const THEIRS: u8 = 150;
const HOUR: Duration = Duration::from_secs(3600);

fn sharing() -> Subnet {
    Subnet { shared: true, ..subnet() }
}

fn told(address: u8, client: u8, by: Grantor) -> Told {
    let ends = START + HOUR;
    Told {
        address: ip(address),
        mac: mac(client),
        subnet: "lab".into(),
        hostname: None,
        ends,
        kept_until: Some(ends + GRACE),
        given_back: false,
        by,
    }
}

fn server_told(leases: impl IntoIterator<Item = Told>) -> Server {
    let mut server = Server::new(config(sharing())).unwrap();
    server.learn(START, leases);
    server
}

#[test]
fn a_client_is_offered_what_it_has_of_another_server_and_no_longer_than_that_one_keeps_it() {
    let mut server = server_told([told(THEIRS, 1, Grantor::Owner)]);
    assert_eq!(server.lease_to(START, 1), ip(THEIRS));
    assert_eq!(server.ask(START, &reboot(2, ip(THEIRS))).kind(), MessageType::Nak, "it is another client's");
    assert_eq!(server.ask(START, &reboot(2, ip(151))).ignored(), Ignored::NotOurs(ip(151)));
    let late = START + HOUR + Duration::from_secs(60);
    let ack = server.ask(late, &renew(1, ip(THEIRS))).packet();
    let seconds = ack.options.u32(OptionCode::AddressLeaseTime).unwrap();
    assert_eq!(
        u64::from(seconds),
        (GRACE - Duration::from_secs(120)).as_secs(),
        "a minute less than it is kept"
    );
    let too_late = START + HOUR + GRACE;
    assert_ne!(server.ask(too_late, &discover(1)).address(), ip(THEIRS));
}

#[test]
fn what_was_given_back_is_offered_no_more_and_kept_from_others() {
    let mut server = server_told([Told { given_back: true, ..told(THEIRS, 1, Grantor::Owner) }]);
    assert_eq!(server.ask(START, &discover(1)).address(), ip(100));
    // Now the address is in this server's ranges.
    let mut with_theirs = sharing();
    with_theirs.dynamic = vec![basalt_dhcp::AddressRange { start: ip(THEIRS), end: ip(THEIRS) }];
    server.set_config(START, config(with_theirs)).unwrap();
    assert!(matches!(server.ask(START, &discover(2)).ignored(), Ignored::NoFreeAddress(_)));
    let kept_until = START + HOUR + GRACE;
    server.tick(kept_until);
    assert_eq!(server.ask(kept_until, &discover(2)).address(), ip(THEIRS));
}

/// A DECLINE to another server of this link. It is broadcast, so this server receives it.
fn decline(client: u8, address: u8) -> Message {
    let mut message = Message::request(MessageType::Decline, 8, mac(client));
    message.option(OptionCode::RequestedIpAddress, ip(address).octets());
    message.option(OptionCode::ServerIdentifier, ip(3).octets());
    message
}

#[test]
fn an_address_that_a_client_declined_to_another_server_is_not_given_it_again_for_ten_minutes() {
    let mut with_reservation = sharing();
    with_reservation.reservations = vec![reservation(3, 50)];
    let mut server = Server::new(config(with_reservation)).unwrap();
    server.learn(START, [told(THEIRS, 1, Grantor::Owner)]);
    let own = server.lease_to(START, 2);
    for (client, address) in [(1, ip(THEIRS)), (2, own), (3, ip(50))] {
        let declined = server.ask(START, &decline(client, address.octets()[3]));
        let [_, Action::Report(Event::Conflict { lease, ended })] = &declined.0[..] else {
            panic!("{declined:?}")
        };
        assert_eq!((lease.address, lease.expires), (address, START.plus_seconds(600)));
        assert_eq!(*ended, client == 2, "only a lease that this server knew of ends");
        assert_ne!(server.ask(START, &discover(client)).address(), address);
        let again = server.ask(START, &decline(client, address.octets()[3]));
        assert_eq!(again.ignored(), Ignored::OtherServer(ip(3)), "once is enough");
    }
    assert_eq!(server.ask(START.plus_seconds(600), &discover(3)).address(), ip(50));
}

#[test]
fn what_a_client_declines_to_another_server_is_its_own_business_unless_it_has_the_address_here_too() {
    let mut server = server_told([told(THEIRS, 1, Grantor::Owner)]);
    let own = server.lease_to(START, 1);
    assert_eq!(own, ip(THEIRS));
    for address in [THEIRS, 100, 160] {
        assert_eq!(server.ask(START, &decline(2, address)).ignored(), Ignored::OtherServer(ip(3)));
    }
    assert_eq!(server.known(), 1);
}

#[test]
fn what_is_told_before_its_subnet_is_configured_is_not_forgotten() {
    let mut server = Server::new(basalt_dhcp::Config::default()).unwrap();
    assert!(server.learn(START, [told(THEIRS, 1, Grantor::Owner), told(100, 2, Grantor::Own)]).is_empty());
    assert!(server.has_unplaced());
    let learned = server.set_config(START, config(sharing())).unwrap();
    assert!(!server.has_unplaced());
    assert_eq!(Answer(learned).persisted().map(|lease| lease.address), Some(ip(100)));
    assert_eq!(server.lease_to(START, 1), ip(THEIRS));
    assert_eq!(server.lease_to(START, 3), ip(101));
}

#[test]
fn the_owner_makes_its_lease_as_long_as_another_let_its_client_keep_the_address() {
    let mut server = Server::new(config(sharing())).unwrap();
    let own = server.lease_to(START, 1);
    let lease = server.lease(own).unwrap().clone();
    assert_eq!(lease.promised_until, Some(lease.expires + GRACE));
    let longer = told(100, 1, Grantor::Another);
    let actions = Answer(server.learn(START, [longer.clone()]));
    assert_eq!(
        actions.persisted().map(|lease| (lease.expires, lease.promised_until)),
        Some((START + HOUR, Some(START + HOUR + GRACE)))
    );
    assert!(actions.0.iter().any(|it| matches!(it, Action::Report(Event::Learned(_)))));
    assert!(server.learn(START, [longer]).is_empty(), "that is no news");
    let other = told(100, 9, Grantor::Another);
    assert!(server.learn(START, [other]).is_empty(), "it is somebody's");
}

#[test]
fn a_promise_outlives_a_release_and_an_offer_and_is_told_and_kept_as_such() {
    let mut server = Server::new(config(sharing())).unwrap();
    let own = server.lease_to(START, 1);
    let promised = server.lease(own).unwrap().promised_until.unwrap();
    let mut release = Message::request(MessageType::Release, 7, mac(1));
    release.ciaddr = own;
    release.option(OptionCode::ServerIdentifier, SERVER.octets());
    server.ask(START, &release);
    server.ask(START, &discover(1));
    let offered = server.lease(own).unwrap();
    assert_eq!((offered.state, offered.promised_until), (LeaseState::Offered, Some(promised)));
    assert_eq!(server.leases().count(), 1, "a lease file holds it");
    let late = Time(promised.0 - 1);
    for client in 2..5 {
        assert_ne!(server.lease_to(late, client), own);
    }
    assert!(matches!(server.ask(late, &discover(5)).ignored(), Ignored::NoFreeAddress(_)));
    let elsewhere = Subnet { dynamic: Vec::new(), ..sharing() };
    server.set_config(START, config(elsewhere)).unwrap();
    assert!(server.leftover(START).any(|lease| lease.address == own && lease.held_until() == promised));
}

#[test]
fn a_relay_that_speaks_for_all_servers_makes_none_of_them_deny_what_another_may_know() {
    let relay = ip(1);
    let mut server = Server::new(config(sharing())).unwrap();
    let mut selected = reboot(1, ip(THEIRS));
    selected.giaddr = relay;
    selected.option(OptionCode::ServerIdentifier, relay.octets());
    let [a, b, c, d] = relay.octets();
    selected.option(OptionCode::RelayAgentInformation, [11, 4, a, b, c, d]);
    assert_eq!(server.ask(START, &selected).ignored(), Ignored::NotOurs(ip(THEIRS)));
    assert_eq!(server.ask(START, &select(1, ip(THEIRS))).kind(), MessageType::Nak, "this one is meant");
}

#[test]
fn a_lease_that_was_lost_is_known_again_also_where_an_older_one_was_not() {
    let mut server = Server::new(config(sharing())).unwrap();
    let own = server.lease_to(START, 1);
    let over = START + HOUR + HOUR;
    let theirs = Told { ends: over + HOUR, kept_until: None, ..told(100, 2, Grantor::Own) };
    assert!(server.learn(over, [theirs.clone()]).is_empty(), "what it knows itself is newer");
    server.withhold_dynamic_until(over + HOUR);
    assert_eq!(
        Answer(server.learn(over, [theirs])).persisted().map(|lease| (lease.address, lease.mac)),
        Some((own, mac(2)))
    );
}

#[test]
fn a_reserved_address_that_a_client_may_keep_is_not_given_before() {
    let mut with_reservation = sharing();
    with_reservation.reservations = vec![reservation(2, THEIRS)];
    let mut server = Server::new(config(with_reservation)).unwrap();
    server.learn(START, [told(THEIRS, 1, Grantor::Owner)]);
    assert_ne!(server.ask(START, &discover(2)).address(), ip(THEIRS));
    let kept_until = START + HOUR + GRACE;
    server.tick(kept_until);
    assert_eq!(server.ask(kept_until, &discover(2)).address(), ip(THEIRS));
}
