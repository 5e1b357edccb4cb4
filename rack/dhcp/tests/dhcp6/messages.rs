//! Each message and its answer (RFC 8415 §16, §18.3, §18.4).

use basalt_dhcp::LeaseState;
use basalt_dhcp::v6::{Action, Arrival, Config, Destination, Event, Ignored};
use dhcproto::v6::{DhcpOption, MessageType, NtpSuboption, OptionCode, Status};

use crate::support::*;

#[test]
fn four_messages_lease_an_address() {
    let mut server = server(subnet());
    let offered = server.ask(START, &solicit(1));
    assert_eq!(offered.kind(), MessageType::Advertise);
    assert!(offered.persisted().is_empty(), "an advertisement holds nothing");
    assert_eq!(server.known(), 0);
    let granted = server.ask(START, &about(MessageType::Request, 1, offered.address()));
    assert_eq!((granted.kind(), granted.address()), (MessageType::Reply, offered.address()));
    let message = granted.message();
    assert_eq!(message.xid(), [1, 2, 3]);
    assert_eq!(
        message.opts().get(OptionCode::ClientId),
        Some(&DhcpOption::ClientId(duid(1).as_bytes().to_vec()))
    );
    assert_eq!(
        message.opts().get(OptionCode::ServerId),
        Some(&DhcpOption::ServerId(server_duid().as_bytes().to_vec()))
    );
    assert_eq!(granted.sent().unwrap().0, Destination::Client(PEER));
}

#[test]
fn a_lease_is_persisted_before_the_reply_is_sent() {
    let mut server = server(subnet());
    let granted = server.ask(START, &about(MessageType::Request, 1, ip(0x100)));
    let order: Vec<_> = granted.0.iter().map(std::mem::discriminant).collect();
    let [Action::Persist(lease), Action::Send { .. }, Action::Report(Event::Leased { renewed: false, .. })] =
        granted.0.as_slice()
    else {
        panic!("{order:?}")
    };
    assert_eq!((lease.address, lease.mac, lease.state), (ip(0x100), Some(mac(1)), LeaseState::Bound));
}

#[test]
fn times_are_half_and_four_fifths_of_the_lifetime() {
    let mut server = server(subnet());
    let granted = server.ask(START, &about(MessageType::Request, 1, ip(0x100)));
    let ia = granted.ias().remove(0);
    let [address] = granted.lifetimes().try_into().unwrap();
    assert_eq!((ia.t1, ia.t2, address.preferred_life, address.valid_life), (300, 480, 600, 600));
}

#[test]
fn a_lease_is_short_until_the_region_knows_of_it() {
    let mut long = subnet();
    long.lease_seconds = 86_400;
    let mut server = server(long);
    let address = server.lease_to(START, 1);
    let renew = about(MessageType::Renew, 1, address);
    assert_eq!(server.ask(START, &renew).lifetimes()[0].valid_life, 600);
    assert!(server.acknowledge(START, address, Some(mac(2))).is_none(), "another client's");
    assert!(server.acknowledge(START, address, Some(mac(1))).unwrap().acknowledged);
    assert!(server.acknowledge(START, address, Some(mac(1))).is_none(), "nothing new");
    assert_eq!(server.ask(START, &renew).lifetimes()[0].valid_life, 86_400);
}

#[test]
fn identifiers_must_be_as_the_rfc_wants_them() {
    use MessageType as M;
    let mut server = server(subnet());
    let other = |kind| Ask::of(kind, 1).option(OptionCode::ServerId, &[0, 4, 1]).ia(1, &[ip(0x100)]);
    for kind in [M::Request, M::Renew, M::Release, M::Decline] {
        let unnamed = server.ask(START, &Ask::of(kind, 1).ia(1, &[ip(0x100)]));
        assert_eq!(unnamed.ignored(), Ignored::Identifiers("names a server"), "{kind:?}");
        assert_eq!(server.ask(START, &other(kind)).ignored(), Ignored::OtherServer, "{kind:?}");
    }
    for kind in [M::Solicit, M::Confirm, M::Rebind] {
        let named = server.ask(START, &Ask::of(kind, 1).here().ia(1, &[ip(0x100)]));
        assert_eq!(named.ignored(), Ignored::Identifiers("names no server"), "{kind:?}");
    }
    for kind in [M::Solicit, M::Confirm, M::Rebind] {
        let nameless = server.ask(START, &Ask::bare(kind).ia(1, &[ip(0x100)]));
        assert_eq!(nameless.ignored(), Ignored::Identifiers("names its client"), "{kind:?}");
    }
    for kind in [M::Advertise, M::Reply, M::Reconfigure, M::RelayRepl, M::Unknown(99)] {
        assert_eq!(server.ask(START, &Ask::of(kind, 1)).ignored(), Ignored::NotARequest(kind.into()));
    }
    let wants = server.ask(START, &Ask::of(M::InformationRequest, 1).ia(1, &[]));
    assert_eq!(wants.ignored(), Ignored::Identifiers("wants no addresses"));
}

#[test]
fn who_asks_this_server_alone_is_told_to_ask_all() {
    use MessageType as M;
    let mut server = server(subnet());
    let alone = Arrival { to: Some(ip(2)), ..LINK };
    for kind in [M::Solicit, M::Confirm, M::Rebind] {
        let answer = server.ask_via(START, alone, &Ask::of(kind, 1).ia(1, &[]));
        assert_eq!(answer.ignored(), Ignored::Unicast, "{kind:?}");
    }
    for kind in [M::Request, M::Renew, M::Release, M::Decline] {
        let answer = server.ask_via(START, alone, &about(kind, 1, ip(0x100)));
        assert_eq!(answer.status(), Some(Status::UseMulticast), "{kind:?}");
        assert!(answer.ias().is_empty() && answer.persisted().is_empty());
    }
}

#[test]
fn rapid_commit_leases_at_once_where_it_is_on() {
    let ask = solicit(1).option(OptionCode::RapidCommit, &[]);
    assert_eq!(server(subnet()).ask(START, &ask).kind(), MessageType::Advertise);
    let mut rapid = subnet();
    rapid.rapid_commit = true;
    let mut server = server(rapid);
    let granted = server.ask(START, &ask);
    assert_eq!(granted.kind(), MessageType::Reply);
    assert_eq!(granted.option(OptionCode::RapidCommit), Some(DhcpOption::RapidCommit));
    assert_eq!(granted.persisted().len(), 1);
    assert_eq!(server.ask(START, &solicit(2)).kind(), MessageType::Advertise, "it did not ask for that");
}

#[test]
fn confirm_says_whether_addresses_are_of_the_link() {
    let mut server = server(subnet());
    let confirm = |addresses: &[_]| Ask::of(MessageType::Confirm, 1).ia(1, addresses);
    assert_eq!(server.ask(START, &confirm(&[ip(0x100), ip(9)])).status(), Some(Status::Success));
    let foreign = "2001:db8:1::1".parse().unwrap();
    assert_eq!(server.ask(START, &confirm(&[ip(0x100), foreign])).status(), Some(Status::NotOnLink));
    assert_eq!(server.ask(START, &confirm(&[])).ignored(), Ignored::NotOurs);
}

#[test]
fn a_request_for_another_links_address_is_told_so() {
    let mut server = server(subnet());
    let answer = server.ask(START, &about(MessageType::Request, 1, "2001:db8:1::1".parse().unwrap()));
    assert_eq!(answer.ia_status(), Some(Status::NotOnLink));
    assert!(answer.persisted().is_empty());
}

#[test]
fn renewing_extends_and_reports_it() {
    let mut server = server(subnet());
    let address = server.lease_to(START, 1);
    let later = START.plus_seconds(300);
    for ask in [about(MessageType::Renew, 1, address), Ask::of(MessageType::Rebind, 1).ia(1, &[address])] {
        let renewed = server.ask(later, &ask);
        assert_eq!(renewed.address(), address);
        assert_eq!(renewed.persisted()[0].expires, later.plus_seconds(600));
        assert!(matches!(renewed.0.last(), Some(Action::Report(Event::Leased { renewed: true, .. }))));
    }
}

#[test]
fn renewing_what_another_server_may_know_is_no_binding_and_rebinding_it_is_silence() {
    let mut server = server(subnet());
    let renewed = server.ask(START, &about(MessageType::Renew, 1, ip(0x200)));
    assert_eq!(renewed.ia_status(), Some(Status::NoBinding));
    let rebind = Ask::of(MessageType::Rebind, 1).ia(1, &[ip(0x200)]);
    assert_eq!(server.ask(START, &rebind).ignored(), Ignored::NotOurs);
}

#[test]
fn rebinding_in_two_associations_is_answered_for_the_one_that_is_known() {
    let mut server = server(subnet());
    let address = server.lease_to(START, 1);
    let rebind = Ask::of(MessageType::Rebind, 1).ia(2, &[ip(0x200)]).ia(1, &[address]);
    let answer = server.ask(START, &rebind);
    assert_eq!((answer.address(), answer.ia_status()), (address, None));
    assert_eq!(answer.lifetimes().iter().map(|it| it.addr).collect::<Vec<_>>(), [address]);
}

#[test]
fn a_server_that_lost_its_leases_does_not_deny_them() {
    let mut server = server(subnet());
    server.withhold_dynamic_until(START.plus_seconds(600));
    let renew = about(MessageType::Renew, 1, ip(0x100));
    assert_eq!(server.ask(START, &renew).ignored(), Ignored::Withheld);
    assert_eq!(server.ask(START.plus_seconds(600), &renew).address(), ip(0x100));
}

#[test]
fn a_subnet_that_only_other_servers_know_is_left_to_them() {
    let mut server = server(subnet());
    let foreign = "2001:db8:1::1".parse().unwrap();
    let rebind = Ask::of(MessageType::Rebind, 1).ia(1, &[foreign]);
    assert_eq!(server.ask(START, &rebind).ignored(), Ignored::NotOurs);
}

#[test]
fn renewing_a_foreign_address_ends_it_and_gives_one_of_here() {
    let mut server = server(subnet());
    let foreign = "2001:db8:1::1".parse().unwrap();
    let answer = server.ask(START, &about(MessageType::Renew, 1, foreign));
    let ended = answer.lifetimes().into_iter().find(|it| it.addr == foreign).unwrap();
    assert_eq!((ended.preferred_life, ended.valid_life), (0, 0));
    assert!(subnet().cidr.contains(&answer.address()));
}

#[test]
fn what_is_released_is_free_for_others() {
    let mut one = subnet();
    one.dynamic = vec![basalt_dhcp::v6::AddressRange { start: ip(0x100), end: ip(0x100) }];
    let mut server = server(one);
    let address = server.lease_to(START, 1);
    assert_eq!(server.ask(START, &solicit(2)).ia_status(), Some(Status::NoAddrsAvail));
    let foreign = server.ask(START, &about(MessageType::Release, 2, address));
    assert_eq!((foreign.status(), foreign.ia_status()), (Some(Status::Success), Some(Status::NoBinding)));
    let released = server.ask(START, &about(MessageType::Release, 1, address));
    assert_eq!((released.status(), released.ia_status()), (Some(Status::Success), None));
    assert_eq!(released.persisted()[0].state, LeaseState::Ended);
    assert_eq!(server.lease_to(START, 2), address);
}

#[test]
fn what_is_declined_rests_for_a_while() {
    let mut server = with(Config { subnets: vec![subnet()], quarantine_seconds: 300, ..Config::default() });
    let address = server.lease_to(START, 1);
    let declined = server.ask(START, &about(MessageType::Decline, 1, address));
    assert_eq!(declined.status(), Some(Status::Success));
    assert_eq!(declined.persisted()[0].state, LeaseState::Quarantined);
    assert!(matches!(declined.0.last(), Some(Action::Report(Event::Conflict(_)))));
    for client in 1..=3 {
        assert_ne!(server.lease_to(START, client), address);
    }
    assert_eq!(server.ask(START, &solicit(4)).ia_status(), Some(Status::NoAddrsAvail));
    assert_eq!(server.lease_to(START.plus_seconds(300), 4), address);
}

#[test]
fn temporary_addresses_and_prefixes_are_refused_beside_an_address() {
    let mut server = server(subnet());
    let ask = solicit(1).option(OptionCode::IATA, &[0, 0, 0, 2]).option(OptionCode::IAPD, &[0; 12]);
    let answer = server.ask(START, &ask);
    answer.address();
    let Some(DhcpOption::IATA(temporary)) = answer.option(OptionCode::IATA) else { panic!() };
    let Some(DhcpOption::IAPD(prefix)) = answer.option(OptionCode::IAPD) else { panic!() };
    let status = |options: &dhcproto::v6::DhcpOptions| match options.get(OptionCode::StatusCode) {
        Some(DhcpOption::StatusCode(it)) => it.status,
        other => panic!("{other:?}"),
    };
    assert_eq!((temporary.id, status(&temporary.opts)), (2, Status::NoAddrsAvail));
    assert_eq!(status(&prefix.opts), Status::NoPrefixAvail);
}

#[test]
fn only_a_server_with_an_address_says_that_it_is_preferred() {
    let mut server = server(subnet());
    let preference = |answer: Answer| answer.option(OptionCode::Preference);
    assert_eq!(preference(server.ask(START, &solicit(1))), Some(DhcpOption::Preference(255)));
    for client in 1..=4 {
        server.lease_to(START, client);
    }
    assert_eq!(preference(server.ask(START, &solicit(5))), None);
}

#[test]
fn a_host_with_addresses_of_its_own_is_told_the_rest() {
    let mut told = subnet();
    told.search = vec!["lab.example".into(), "example".into()];
    told.ntp_servers = vec![ip(4)];
    let mut server = server(told);
    let codes = [OptionCode::DomainNameServers, OptionCode::DomainSearchList, OptionCode::NtpServer];
    let wishes: Vec<u8> = codes.iter().flat_map(|&code| u16::from(code).to_be_bytes()).collect();
    let ask = Ask::bare(MessageType::InformationRequest).option(OptionCode::ORO, &wishes);
    let answer = server.ask(START, &ask);
    assert_eq!(answer.kind(), MessageType::Reply);
    let dns = DhcpOption::DomainNameServers(vec![ip(2), ip(3)]);
    assert_eq!(answer.option(OptionCode::DomainNameServers), Some(dns));
    let Some(DhcpOption::DomainSearchList(names)) = answer.option(OptionCode::DomainSearchList) else {
        panic!()
    };
    assert_eq!(names.iter().map(ToString::to_string).collect::<Vec<_>>(), ["lab.example.", "example."]);
    let Some(DhcpOption::NtpServer(servers)) = answer.option(OptionCode::NtpServer) else { panic!() };
    assert_eq!(servers, [NtpSuboption::ServerAddress(ip(4))]);
    assert_eq!(answer.option(OptionCode::SntpServers), None, "it did not ask for that");
}

#[test]
fn a_client_is_told_its_name_if_it_asks() {
    let mut named = subnet();
    named.reservations = vec![reservation(1, 0x11)];
    named.reservations[0].hostname = Some("m1".into());
    let mut server = server(named);
    let ask = about(MessageType::Request, 1, ip(0x11)).option(OptionCode::ClientFqdn, b"\x01\x05rogue");
    let answer = server.ask(START, &ask);
    let Some(DhcpOption::Unknown(fqdn)) = answer.option(OptionCode::ClientFqdn) else { panic!() };
    assert_eq!(fqdn.data(), b"\x06\x02m1", "the server updates no DNS for it");
    assert_eq!(answer.persisted()[0].hostname.as_deref(), Some("rogue"), "what it calls itself");
}

#[test]
fn unknown_clients_get_no_answer_where_only_known_ones_are_served() {
    let mut known = subnet();
    known.reservations = vec![reservation(1, 0x11)];
    let mut server = with(Config { subnets: vec![known], serve_unknown: false, ..Config::default() });
    assert_eq!(server.lease_to(START, 1), ip(0x11));
    assert_eq!(server.ask(START, &solicit(2)).ignored(), Ignored::UnknownClient);
}

#[test]
fn a_link_without_a_subnet_is_not_served() {
    let mut server = server(subnet());
    let elsewhere = Arrival { interface: 9, ..LINK };
    let answer = server.ask_via(START, elsewhere, &solicit(1));
    assert_eq!(answer.ignored(), Ignored::NoSubnet("interface 9".into()));
}
