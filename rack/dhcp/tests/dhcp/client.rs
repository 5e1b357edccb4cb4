//! The client core, against the server core and against a network without answers.

use std::net::Ipv4Addr;
use std::time::Duration;

use basalt_dhcp::client::{ClientAction, ClientConfig};
use basalt_dhcp::egress::Message;
use basalt_dhcp::ingress::{self, Packet};
use basalt_dhcp::{Action, BootIdentity, Client, Firmware, Server, Time};
use dhcproto::v4::{MessageType, OptionCode};

use crate::support::*;

fn sent(actions: &[ClientAction]) -> Vec<(Option<Ipv4Addr>, Packet)> {
    let sends = actions.iter().filter_map(|action| match action {
        ClientAction::Send { server, bytes } => Some((*server, ingress::parse(bytes).unwrap())),
        _ => None,
    });
    sends.collect()
}

fn wake(actions: &[ClientAction]) -> Time {
    let wake = actions
        .iter()
        .rev()
        .find_map(|action| if let ClientAction::Wake(at) = action { Some(*at) } else { None });
    wake.expect("a timer")
}

/// Delivers messages in both directions at one moment, until neither side sends any more.
fn converse(
    server: &mut Server,
    client: &mut Client,
    now: Time,
    mut actions: Vec<ClientAction>,
) -> Vec<ClientAction> {
    let mut all = actions.clone();
    loop {
        let mut next = Vec::new();
        for (_, packet) in sent(&actions) {
            for action in server.handle(now, LINK, &packet) {
                if let Action::Send { bytes, .. } = action {
                    next.extend(client.on_packet(now, &bytes));
                }
            }
        }
        if next.is_empty() {
            return all;
        }
        all.extend(next.clone());
        actions = next;
    }
}

fn bound(server: &mut Server, config: ClientConfig) -> Client {
    let (mut client, actions) = Client::start(config, START, 1);
    converse(server, &mut client, START, actions);
    assert!(client.binding().is_some());
    client
}

#[test]
fn gets_an_address_and_everything_that_comes_with_it() {
    let mut subnet = subnet();
    subnet.ntp_servers = vec![ip(4)];
    subnet.mtu = Some(9000);
    let mut server = Server::new(config(subnet)).unwrap();
    let client = bound(&mut server, ClientConfig::new(mac(1)));
    let binding = client.binding().unwrap();
    assert_eq!(binding.address, ip(100));
    assert_eq!(binding.netmask, Ipv4Addr::new(255, 255, 255, 0));
    assert_eq!((binding.gateway, binding.server), (Some(ip(1)), SERVER));
    assert_eq!(binding.dns_servers, [ip(2), ip(3)]);
    assert_eq!((binding.ntp_servers.as_slice(), binding.mtu), ([ip(4)].as_slice(), Some(9000)));
    assert_eq!((binding.renew, binding.rebind), (START.plus_seconds(300), START.plus_seconds(525)));
    assert_eq!((binding.next_server, &binding.boot_file), (None, &None));
}

#[test]
fn learns_its_loader_and_then_as_ipxe_its_script() {
    let mut server = server();
    let mut rom = ClientConfig::new(mac(1));
    rom.boot = Some(BootIdentity::rom(Firmware::EfiX64));
    let binding = bound(&mut server, rom.clone()).binding().cloned().unwrap();
    assert_eq!((binding.next_server, binding.boot_file.as_deref()), (Some(SERVER), Some("snponly.efi")));
    rom.boot = Some(BootIdentity::ipxe(Firmware::EfiX64));
    let binding = bound(&mut server, rom.clone()).binding().cloned().unwrap();
    assert_eq!(binding.boot_file.as_deref(), Some("http://10.77.0.2:5248/ipxe?mac=52:54:00:00:00:01"));
    rom.boot = Some(BootIdentity { architecture: 0x10, uuid: Some([3; 16]), ipxe: false });
    let binding = bound(&mut server, rom).binding().cloned().unwrap();
    assert_eq!(binding.boot_file.as_deref(), Some("http://10.77.0.2:5248/loaders/snponly.efi"));
}

#[test]
fn repeats_itself_less_and_less_often_and_gives_up() {
    let (mut client, mut actions) = Client::start(ClientConfig::new(mac(1)), START, 7);
    let mut now = START;
    let mut waits = Vec::new();
    while let [(None, packet)] = sent(&actions).as_slice() {
        assert_eq!(packet.kind, MessageType::Discover);
        assert_eq!(u64::from(packet.secs), START.until(now).as_secs());
        let next = wake(&actions);
        waits.push(now.until(next).as_millis());
        assert_eq!(client.on_timer(now), [ClientAction::Wake(next)], "too early");
        now = next;
        actions = client.on_timer(now);
    }
    assert_eq!(actions, [ClientAction::GaveUp]);
    assert_eq!(waits.len(), 6);
    for (wait, expected) in waits.iter().zip([4000, 8000, 16_000, 32_000, 64_000, 64_000]) {
        assert!((expected * 7 / 8..=expected * 9 / 8).contains(wait), "{wait} for {expected}");
    }
    assert_eq!(client.on_timer(now + Duration::from_secs(1000)), []);
}

#[test]
fn renews_with_its_server_then_asks_everybody_then_starts_over() {
    let mut server = server();
    let mut client = bound(&mut server, ClientConfig::new(mac(1)));
    let mut now = START.plus_seconds(300);
    let (to, packet) = sent(&client.on_timer(now)).remove(0);
    assert_eq!((to, packet.kind, packet.ciaddr), (Some(SERVER), MessageType::Request, ip(100)));
    assert!(!packet.options.contains(OptionCode::ServerIdentifier));
    let mut lost = false;
    let mut asked_everybody = 0;
    while !lost {
        let actions = client.on_timer(now);
        now = wake(&actions);
        lost = actions.contains(&ClientAction::Lost(ip(100)));
        let (to, packet) = sent(&actions).pop().unwrap_or_else(|| (Some(SERVER), packet.clone()));
        asked_everybody += u32::from(to.is_none() && packet.kind == MessageType::Request);
    }
    assert!(asked_everybody >= 2);
    assert!(START.until(now) >= Duration::from_secs(600) && client.binding().is_none());
    let actions = client.on_timer(now);
    converse(&mut server, &mut client, now, actions);
    assert_eq!(client.binding().unwrap().address, ip(100));
}

#[test]
fn a_renewal_moves_the_timers() {
    let mut server = server();
    let mut client = bound(&mut server, ClientConfig::new(mac(1)));
    let now = START.plus_seconds(300);
    let actions = client.on_timer(now);
    converse(&mut server, &mut client, now, actions);
    assert_eq!(client.binding().unwrap().expires, now.plus_seconds(600));
}

#[test]
fn asks_for_the_address_of_before_and_takes_no_for_an_answer() {
    let mut server = server();
    server.lease_to(START, 2);
    let mut again = ClientConfig::new(mac(2));
    again.previous = Some(ip(100));
    let (mut client, actions) = Client::start(again, START, 3);
    assert_eq!(sent(&actions)[0].1.kind, MessageType::Request);
    converse(&mut server, &mut client, START, actions);
    assert_eq!(client.binding().unwrap().address, ip(100));

    let mut wrong = ClientConfig::new(mac(3));
    wrong.previous = Some(ip(100));
    assert_eq!(bound(&mut server, wrong).binding().unwrap().address, ip(101));
}

#[test]
fn looks_for_another_offer_when_the_chosen_server_falls_silent() {
    let mut server = server();
    let (mut client, actions) = Client::start(ClientConfig::new(mac(1)), START, 5);
    let offer = server.handle(START, LINK, &sent(&actions)[0].1);
    let Some(Action::Send { bytes, .. }) = offer.first() else { panic!("{offer:?}") };
    let mut actions = client.on_packet(START, bytes);
    let mut kinds = Vec::new();
    while let Some((_, packet)) = sent(&actions).pop() {
        kinds.push(packet.kind);
        actions = client.on_timer(wake(&actions));
    }
    assert_eq!(kinds[..4], [MessageType::Request; 4]);
    assert_eq!(kinds[4], MessageType::Discover);
}

#[test]
fn hears_only_answers_to_itself() {
    let (mut client, actions) = Client::start(ClientConfig::new(mac(1)), START, 5);
    let xid = sent(&actions)[0].1.xid;
    let offer = |xid, last| {
        let mut offer = Message::reply(MessageType::Offer, xid, mac(last));
        offer.yiaddr = ip(100);
        offer
    };
    assert_eq!(client.on_packet(START, b"noise"), []);
    assert_eq!(client.on_packet(START, &offer(xid, 1).encode()), [], "no server identifier");
    for mut foreign in [offer(xid ^ 1, 1), offer(xid, 2)] {
        foreign.option(OptionCode::ServerIdentifier, SERVER.octets());
        assert_eq!(client.on_packet(START, &foreign.encode()), []);
    }
    let mut good = offer(xid, 1);
    good.option(OptionCode::ServerIdentifier, SERVER.octets());
    assert_eq!(sent(&client.on_packet(START, &good.encode()))[0].1.kind, MessageType::Request);
    for kind in [MessageType::Ack, MessageType::Nak] {
        let mut other = Message::reply(kind, xid, mac(1));
        other.yiaddr = ip(100);
        other.option(OptionCode::ServerIdentifier, ip(9).octets());
        other.option(OptionCode::AddressLeaseTime, 600u32.to_be_bytes());
        assert_eq!(client.on_packet(START, &other.encode()), [], "not the chosen server");
    }
}

#[test]
fn releases_and_declines() {
    let mut server = server();
    let mut client = bound(&mut server, ClientConfig::new(mac(1)));
    let actions = client.decline(START);
    assert!(actions.contains(&ClientAction::Lost(ip(100))));
    converse(&mut server, &mut client, START, actions);
    assert_eq!(client.binding().unwrap().address, ip(101));
    let actions = client.release();
    converse(&mut server, &mut client, START, actions);
    assert!(client.binding().is_none());
    assert!(!server.lease(ip(101)).unwrap().is_live(START));
    assert_eq!(client.on_timer(START.plus_seconds(9999)), []);
}
