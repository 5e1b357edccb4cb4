//! A hundred thousand clients that nobody has: what the server keeps of them, and what is left for the others.

use basalt_dhcp::Time;
use basalt_dhcp::v6::{AddressRange, MAX_LEASES, Server};
use dhcproto::v6::{MessageType, OptionCode, Status};

use crate::support::*;

const CLIENTS: u32 = 100_000;

/// A server with more addresses than there is memory for.
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
    assert_eq!(server.known(), MAX_LEASES + 1, "of leases that ended the addresses are used again");
}

#[test]
fn one_client_in_many_associations_gets_sixteen_addresses() {
    let mut server = vast();
    for iaid in 0..100 {
        server.ask(START, &Ask::of(MessageType::Request, 2).here().ia(iaid, &[]));
    }
    assert_eq!(server.known(), 16);
}
