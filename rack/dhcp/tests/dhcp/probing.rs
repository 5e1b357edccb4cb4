//! ARP probes before an unleased address is offered (RFC 2131 §3.1, RFC 5227).

use std::net::Ipv4Addr;
use std::time::Duration;

use basalt_dhcp::egress::Message;
use basalt_dhcp::{Action, AddressRange, Event, Ignored, LeaseState, Mac, Server, Subnet, Time};
use dhcproto::v4::{MessageType, OptionCode};

use crate::support::*;

const PATIENCE: Duration = Duration::from_millis(200);
const STRANGER: Mac = Mac([2, 2, 2, 2, 2, 2]);

fn probing() -> Server {
    probes(server())
}

fn probes(mut server: Server) -> Server {
    server.set_probing(LINK.interface, Some(PATIENCE));
    server
}

/// The one address that is probed. Fails if there are other actions.
fn probed(actions: &[Action]) -> Ipv4Addr {
    match actions {
        [Action::Probe { interface, address }] if *interface == LINK.interface => *address,
        other => panic!("not one probe: {other:?}"),
    }
}

fn conclude(server: &mut Server, now: Time) -> Answer {
    Answer(server.conclude(now, LINK.interface))
}

#[test]
fn offers_an_address_when_nobody_answered_for_it_in_time() {
    let mut server = probing();
    assert_eq!(server.next_conclusion(START, LINK.interface), None);
    assert_eq!(probed(&server.ask(START, &discover(1)).0), ip(100));
    assert_eq!(server.next_conclusion(START, LINK.interface), Some(PATIENCE));
    assert_eq!(conclude(&mut server, START + Duration::from_millis(199)).0, [], "too early");
    let offer = conclude(&mut server, START + PATIENCE);
    assert_eq!((offer.kind(), offer.address()), (MessageType::Offer, ip(100)));
    assert_eq!(server.next_conclusion(START + PATIENCE, LINK.interface), None);
    assert_eq!(server.ask(START + PATIENCE, &select(1, ip(100))).kind(), MessageType::Ack);
}

#[test]
fn an_address_that_somebody_has_is_quarantined_and_the_next_one_is_probed() {
    let mut server = probing();
    server.ask(START, &discover(1));
    let now = START + Duration::from_millis(5);
    let taken = server.heard(now, LINK.interface, ip(100), STRANGER);
    let [Action::Persist(kept), Action::Report(Event::Taken { lease, holder }), next] = &taken[..] else {
        panic!("{taken:?}")
    };
    assert_eq!((kept, *holder, lease.mac), (lease, STRANGER, mac(1)));
    assert_eq!((lease.state, lease.expires), (LeaseState::Quarantined, now.plus_seconds(60)));
    assert_eq!(*next, Action::Probe { interface: LINK.interface, address: ip(101) });
    assert_eq!(server.heard(now, LINK.interface, ip(100), STRANGER), [], "once is enough");
    assert_eq!(conclude(&mut server, now + PATIENCE).address(), ip(101));
    assert_eq!(probed(&server.ask(now, &discover(2)).0), ip(102), "nobody else is offered it");
}

/// A different host for each address: the normal case.
fn holder(address: u8) -> Mac {
    Mac([2, 2, 2, 2, 2, address])
}

fn last_ignored(actions: &[Action]) -> Option<&Ignored> {
    match actions.last() {
        Some(Action::Report(Event::Ignored { mac: Some(client), reason })) if *client == mac(1) => {
            Some(reason)
        }
        _ => None,
    }
}

/// The client asks, and three addresses from `first` on are in use.
fn three_taken(server: &mut Server, now: Time, first: u8, holder: impl Fn(u8) -> Mac) {
    assert_eq!(probed(&server.ask(now, &discover(1)).0), ip(first));
    for last in first..first + 2 {
        let taken = server.heard(now, LINK.interface, ip(last), holder(last));
        assert_eq!(taken.last(), Some(&Action::Probe { interface: LINK.interface, address: ip(last + 1) }));
    }
    let taken = server.heard(now, LINK.interface, ip(first + 2), holder(first + 2));
    assert_eq!(last_ignored(&taken), Some(&Ignored::Taken(3)), "{taken:?}");
    assert_eq!(server.probing(), 0);
}

#[test]
fn three_addresses_are_probed_for_one_discover_and_the_next_when_the_client_asks_again() {
    let mut server = probing();
    three_taken(&mut server, START, 100, holder);
    let again = START.plus_seconds(4);
    assert_eq!(probed(&server.ask(again, &discover(1)).0), ip(103));
    let taken = server.heard(again, LINK.interface, ip(103), holder(103));
    assert_eq!(last_ignored(&taken), Some(&Ignored::SomeRest(net())));
    assert_eq!(server.ask(START.plus_seconds(59), &discover(1)).ignored(), Ignored::SomeRest(net()));
    assert_eq!(probed(&server.ask(START.plus_seconds(60), &discover(1)).0), ip(100), "a minute later");
}

#[test]
fn a_discover_that_is_sent_again_during_a_probe_is_the_same_one() {
    let mut server = probing();
    server.ask(START, &discover(1));
    server.heard(START, LINK.interface, ip(100), holder(100));
    assert_eq!(server.ask(START, &discover(1)).0, []);
    server.heard(START, LINK.interface, ip(101), holder(101));
    let taken = server.heard(START, LINK.interface, ip(102), holder(102));
    assert_eq!(last_ignored(&taken), Some(&Ignored::Taken(3)));
}

#[test]
fn a_client_goes_on_to_addresses_that_were_not_found_in_use_before() {
    let mut subnet = subnet();
    subnet.dynamic = vec![AddressRange { start: ip(100), end: ip(120) }];
    let mut server = probes(Server::new(config(subnet)).unwrap());
    for (number, first) in (100..118).step_by(3).enumerate() {
        // The first quarantines end long before the last addresses are tried.
        three_taken(&mut server, START.plus_seconds(64 * u32::try_from(number).unwrap()), first, holder);
    }
}

#[test]
fn a_host_that_answers_for_everything_is_believed_for_three_addresses_and_then_for_none() {
    let mut server = probing();
    three_taken(&mut server, START, 100, |_| STRANGER);
    let again = START.plus_seconds(4);
    assert_eq!(probed(&server.ask(again, &discover(1)).0), ip(103));
    let found_out = server.heard(again, LINK.interface, ip(103), STRANGER);
    let [lifted @ .., Action::Report(Event::AnswersForAll { interface: 3, holder: STRANGER })] =
        &found_out[..]
    else {
        panic!("{found_out:?}")
    };
    for (last, lifted) in (100..103).zip(lifted) {
        let Action::Persist(lease) = lifted else { panic!("{lifted:?}") };
        assert_eq!((lease.address, lease.is_live(again)), (ip(last), false), "offered again");
        assert_eq!(server.lease(ip(last)), Some(lease));
    }
    assert_eq!(lifted.len(), 3);
    assert_eq!(conclude(&mut server, again + PATIENCE).address(), ip(103));
    for client in 2..5 {
        let address = probed(&server.ask(again, &discover(client)).0);
        assert_eq!(server.heard(again, LINK.interface, address, STRANGER), [], "it was said once");
        assert_eq!(conclude(&mut server, again + PATIENCE).address(), address);
    }
}

#[test]
fn beside_a_host_that_answers_for_everything_another_keeps_its_address() {
    let mut server = probing();
    three_taken(&mut server, START, 100, |_| STRANGER);
    server.ask(START, &discover(1));
    server.heard(START, LINK.interface, ip(103), STRANGER);
    let taken = server.heard(START, LINK.interface, ip(103), holder(103));
    assert!(matches!(&taken[1], Action::Report(Event::Taken { lease, .. }) if lease.address == ip(103)));
    let next = probed(&taken[2..]);
    assert_eq!(server.heard(START, LINK.interface, next, STRANGER), []);
    assert_eq!(conclude(&mut server, START + PATIENCE).address(), next);
}

#[test]
fn what_a_client_declines_rests_for_ten_minutes_whoever_answers_for_everything() {
    let mut subnet = subnet();
    subnet.dynamic = vec![AddressRange { start: ip(100), end: ip(104) }];
    let mut server = probes(Server::new(config(subnet)).unwrap());
    server.ask(START, &discover(1));
    conclude(&mut server, START + PATIENCE);
    let mut decline = Message::request(MessageType::Decline, 5, mac(1));
    decline.option(OptionCode::RequestedIpAddress, ip(100).octets());
    decline.option(OptionCode::ServerIdentifier, SERVER.octets());
    let rests = server.ask(START + PATIENCE, &decline).persisted().unwrap().clone();
    assert_eq!(rests.expires, (START + PATIENCE).plus_seconds(600));
    three_taken(&mut server, START + PATIENCE, 101, |_| STRANGER);
    let later = START.plus_seconds(2);
    assert_eq!(probed(&server.ask(later, &discover(1)).0), ip(104));
    let found_out = server.heard(later, LINK.interface, ip(104), STRANGER);
    assert!(matches!(found_out.last(), Some(Action::Report(Event::AnswersForAll { .. }))), "{found_out:?}");
    assert_eq!(server.lease(ip(100)), Some(&rests));
}

#[test]
fn a_client_that_asks_again_waits_for_the_same_probe_and_is_answered_what_it_asked_last() {
    let mut server = probing();
    server.ask(START, &discover(1));
    let mut again = discover(1);
    again.xid = 77;
    assert_eq!(server.ask(START + Duration::from_millis(150), &again).0, []);
    assert_eq!((server.probing(), server.next_conclusion(START, LINK.interface)), (1, Some(PATIENCE)));
    assert_eq!(conclude(&mut server, START + PATIENCE).packet().xid, 77);
    assert_eq!(server.ask(START + PATIENCE, &again).kind(), MessageType::Offer, "it was probed just now");
}

#[test]
fn what_is_allocated_is_not_probed() {
    let mut subnet = subnet();
    subnet.reservations.push(reservation(9, 50));
    let mut server = probes(Server::new(config(subnet)).unwrap());
    assert_eq!(server.ask(START, &discover(9)).address(), ip(50), "reserved");

    server.ask(START, &discover(1));
    conclude(&mut server, START + PATIENCE);
    server.ask(START + PATIENCE, &select(1, ip(100)));
    assert_eq!(server.ask(START + PATIENCE, &discover(1)).address(), ip(100), "leased to it");
    let later = START.plus_seconds(100_000);
    assert_eq!(probed(&server.ask(later, &discover(1)).0), ip(100), "its lease has ended long ago");

    let mut relayed = discover(2);
    relayed.giaddr = ip(4);
    assert_eq!(server.ask(later, &relayed).kind(), MessageType::Offer, "ARP does not get to its link");
    server.set_probing(LINK.interface, None);
    assert_eq!(server.ask(later, &discover(3)).kind(), MessageType::Offer);
    assert_eq!(server.probing(), 0, "the probe that was open is dropped");
}

#[test]
fn the_client_itself_may_answer_and_so_may_hosts_elsewhere() {
    let mut server = probing();
    server.ask(START, &discover(1));
    assert_eq!(server.heard(START, LINK.interface, ip(100), mac(1)), []);
    assert_eq!(server.heard(START, LINK.interface + 1, ip(100), STRANGER), [], "another link");
    assert_eq!(server.heard(START, LINK.interface, ip(101), STRANGER), [], "nobody waits for that one");
    assert_eq!(conclude(&mut server, START + PATIENCE).address(), ip(100));
}

#[test]
fn a_client_that_chose_another_server_is_not_offered_anything() {
    let mut server = probing();
    server.ask(START, &discover(1));
    let mut elsewhere = request(1);
    elsewhere.option(OptionCode::ServerIdentifier, ip(250).octets());
    elsewhere.option(OptionCode::RequestedIpAddress, ip(100).octets());
    assert_eq!(
        server.ask(START + Duration::from_millis(50), &elsewhere).ignored(),
        Ignored::OtherServer(ip(250))
    );
    assert_eq!(conclude(&mut server, START + PATIENCE).0, []);
    server.ask(START, &discover(2));
}

#[test]
fn a_clock_that_is_set_back_leaves_nobody_waiting() {
    let mut server = probing();
    server.ask(START, &discover(1));
    let earlier = Time(START.0 - 3_600_000);
    assert_eq!(server.next_conclusion(earlier, LINK.interface), Some(PATIENCE));
    assert_eq!(conclude(&mut server, earlier).address(), ip(100));
}

#[test]
fn a_hundred_thousand_strangers_open_two_thousand_probes_and_the_rest_is_offered_without() {
    let mut subnet = Subnet::new("vast", "10.0.0.0/8".parse().unwrap());
    let (start, end) = (Ipv4Addr::new(10, 100, 0, 0), Ipv4Addr::new(10, 255, 0, 0));
    subnet.dynamic = vec![AddressRange { start, end }];
    let mut server = probes(Server::new(config(subnet)).unwrap());
    let (mut asked, mut offered) = (0u64, 0u64);
    for number in 0..100_000u32 {
        let now = Time(START.0 + u64::from(number / 100));
        let [a, b, c, d] = number.to_be_bytes();
        let stranger = Message::request(MessageType::Discover, number, Mac([2, 0xff, a, b, c, d]));
        match server.ask(now, &stranger).0.as_slice() {
            [Action::Probe { .. }] => asked += 1,
            [Action::Send { .. }, Action::Report(Event::Offered { .. })] => offered += 1,
            other => panic!("{other:?}"),
        }
        if number % 1_000 == 0 {
            conclude_all(&mut server, now);
        }
        assert!(server.probing() <= 2_048, "{} after {number}", server.probing());
    }
    assert!(asked > 2_048 && offered > 2_048, "{asked} probed, {offered} not");
    assert_eq!(server.unprobed(), offered);
    conclude_all(&mut server, Time(START.0 + 10_000));
    assert_eq!(server.probing(), 0);
}

fn conclude_all(server: &mut Server, now: Time) {
    let concluded = server.conclude(now, LINK.interface);
    assert!(
        concluded.iter().all(|it| matches!(it, Action::Send { .. } | Action::Report(Event::Offered { .. })))
    );
}
