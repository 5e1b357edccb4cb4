//! A hundred thousand invented clients: the memory that the server uses for them, and the addresses left for real
//! clients.

use std::net::Ipv4Addr;

use basalt_dhcp::egress::Message;
use basalt_dhcp::{AddressRange, Mac, Server, Subnet, Time};
use dhcproto::v4::{MessageType, OptionCode};

use crate::support::*;

const CLIENTS: u32 = 100_000;
/// The most offers that a server holds at once.
const MOST: usize = 16_384;

/// A server with far more addresses than it may keep records of.
fn vast() -> Server {
    let mut subnet = Subnet::new("vast", "10.0.0.0/8".parse().unwrap());
    let (start, end) = (Ipv4Addr::new(10, 100, 0, 0), Ipv4Addr::new(10, 255, 0, 0));
    subnet.dynamic = vec![AddressRange { start, end }];
    Server::new(config(subnet)).unwrap()
}

fn stranger(number: u32, kind: MessageType) -> Message {
    let [a, b, c, d] = number.to_be_bytes();
    Message::request(kind, number, Mac([2, 0xff, a, b, c, d]))
}

/// Sends every stranger's message, ten per millisecond. Now and then a real client leases an address.
fn flood(server: &mut Server, message: impl Fn(u32, Option<Ipv4Addr>) -> Message) {
    for number in 0..CLIENTS {
        let now = Time(START.0 + u64::from(number / 10));
        let offer = server.ask(now, &stranger(number, MessageType::Discover)).address();
        server.ask(now, &message(number, Some(offer)));
        if number % 10_000 == 0 {
            server.lease_to(now, u8::try_from(number / 10_000).unwrap());
        }
        assert!(server.known() <= MOST + 10, "{} after {number}", server.known());
    }
    assert_eq!(server.leases().count(), 10, "the clients that exist have their leases");
}

#[test]
fn clients_that_only_ask_fill_no_memory_and_shut_nobody_out() {
    flood(&mut vast(), |number, _| stranger(number, MessageType::Discover));
}

#[test]
fn clients_that_always_choose_another_server_fill_no_memory() {
    let mut server = vast();
    flood(&mut server, |number, _| {
        let mut message = stranger(number, MessageType::Request);
        message.option(OptionCode::ServerIdentifier, ip(250).octets());
        message
    });
    assert!(server.known() < 20, "an offer that was turned down is the next one's");
}

#[test]
fn an_offer_is_held_until_sixteen_thousand_came_after_it() {
    let mut server = vast();
    let offer = server.ask(START, &discover(1)).address();
    for number in 0..16_000 {
        server.ask(START, &stranger(number, MessageType::Discover));
    }
    assert_eq!(server.ask(START, &select(1, offer)).kind(), MessageType::Ack);
}
