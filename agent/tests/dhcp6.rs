//! Tests of the DHCPv6 client against the rack's own server, both without sockets and clocks.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use basalt_agent::dhcp6::{Action, Client, Event, Identity, Lease};
use basalt_dhcp::v6::{self, AddressRange, Arrival, Config, Duid, Reservation, Server, Subnet, ingress};
use basalt_dhcp::{Mac, Time};
use proptest::prelude::*;

const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];
const LINK: Arrival =
    Arrival { interface: 3, from: Ipv6Addr::new(0xfe80, 0, 0, 0, 0x5054, 0xff, 0xfe00, 1), to: None };
/// The machine runs for this time before its first request.
const START: Duration = Duration::from_secs(7);
const LEASE: Duration = Duration::from_secs(600);

const SOLICIT: u8 = 1;
const REQUEST: u8 = 3;
const RENEW: u8 = 5;
const REBIND: u8 = 6;
const DECLINE: u8 = 9;

fn ip(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)
}

/// 2001:db8::/64 with leases of ten minutes: two dynamic addresses, and ::10 for the machine.
fn subnet() -> Subnet {
    let mut subnet = Subnet::new("lab", "2001:db8::/64".parse().unwrap());
    subnet.dns_servers = vec![ip(2), ip(3)];
    subnet.search = vec!["lab.example".to_owned(), "example".to_owned()];
    subnet.dynamic = vec![AddressRange { start: ip(0x100), end: ip(0x101) }];
    subnet.reservations =
        vec![Reservation { client: v6::Client::Mac(Mac(MAC)), address: ip(0x10), hostname: None }];
    subnet
}

fn server(number: u8, config: Config) -> Server {
    let mut server = Server::new(Duid::of_uuid([number; 16]), config).unwrap();
    server.set_links(BTreeMap::from([(LINK.interface, vec![ip(number.into())])]));
    server
}

fn serving(subnet: Subnet) -> Server {
    // The region has acknowledged the leases, so they have their full duration.
    let unacknowledged_seconds = 600;
    server(1, Config { subnets: vec![subnet], unacknowledged_seconds, ..Config::default() })
}

/// A client, the servers on its link, and the time.
struct World {
    client: Client,
    servers: Vec<Server>,
    now: Duration,
    /// Time and message type of each transmission.
    sent: Vec<(Duration, u8)>,
    /// Actions of the client.
    became: Vec<Action>,
}

impl World {
    fn new(servers: Vec<Server>) -> Self {
        let client = Client::new(Identity::of(MAC), 4711);
        let mut world = Self { client, servers, now: START, sent: Vec::new(), became: Vec::new() };
        world.happens(Event::Start);
        world
    }

    fn happens(&mut self, event: Event<'_>) {
        let mut actions = self.client.handle(self.now, event);
        while !actions.is_empty() {
            let mut answers = Vec::new();
            for action in actions.drain(..) {
                let Action::Send(bytes) = action else {
                    self.became.push(action);
                    continue;
                };
                self.sent.push((self.now, bytes[0]));
                answers.extend(self.servers.iter_mut().flat_map(|server| ask(server, self.now, &bytes)));
            }
            for answer in answers {
                actions.extend(self.client.handle(self.now, Event::Datagram(&answer)));
            }
        }
    }

    /// Advances the time from one timer of the client to the next.
    fn until(&mut self, end: Duration) {
        while let Some(at) = self.client.wake().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.happens(Event::Timer);
        }
        self.now = end;
    }

    fn kinds(&self) -> Vec<u8> {
        self.sent.iter().map(|(_, kind)| *kind).collect()
    }

    fn bound(&self) -> Lease {
        match self.became.last() {
            Some(Action::Bound(lease)) => lease.clone(),
            other => panic!("no lease: {other:?}, {:?}", self.client),
        }
    }
}

fn ask(server: &mut Server, now: Duration, bytes: &[u8]) -> Vec<Vec<u8>> {
    let now = Time(1_700_000_000_000) + now;
    let packet = ingress::parse(bytes).expect("another codec reads what the client writes");
    let sent = |action| match action {
        v6::Action::Send { bytes, .. } => Some(bytes),
        _ => None,
    };
    server.handle(now, LINK, &packet).into_iter().filter_map(sent).collect()
}

#[test]
fn leases_what_is_reserved_for_its_hardware_address() {
    let mut world = World::new(vec![serving(subnet())]);
    world.until(START + Duration::from_secs(1));
    assert_eq!(
        world.kinds(),
        [SOLICIT, REQUEST],
        "this server's preference is the highest: nobody is waited for"
    );
    let lease = world.bound();
    assert_eq!(lease.address, ip(0x10));
    assert_eq!(lease.dns_servers, [ip(2), ip(3)]);
    assert_eq!(lease.search, ["lab.example", "example"]);
    let at = world.sent[1].0;
    assert_eq!(
        (lease.renew, lease.rebind, lease.preferred, lease.valid),
        (Some(at + LEASE / 2), Some(at + LEASE * 4 / 5), Some(at + LEASE), Some(at + LEASE))
    );
}

#[test]
fn renews_with_its_server_and_then_with_every_server() {
    let mut world = World::new(vec![serving(subnet())]);
    world.until(START + Duration::from_secs(1));
    let first = world.bound();
    world.until(first.renew.unwrap());
    assert_eq!(world.kinds(), [SOLICIT, REQUEST, RENEW]);
    let second = world.bound();
    assert_eq!((second.address, second.valid), (first.address, Some(world.now + LEASE)));

    // The client's server stops, and returns after T2.
    let server = world.servers.pop().unwrap();
    world.until(second.rebind.unwrap() + Duration::from_millis(1));
    let kinds = world.kinds();
    assert_eq!(kinds.last(), Some(&REBIND), "{kinds:?}");
    let renewals = kinds.iter().filter(|kind| **kind == RENEW).count();
    assert!((4..=7).contains(&renewals), "10 s, doubled, for three minutes: {:?}", world.sent);
    world.servers.push(server);
    world.until(second.valid.unwrap());
    assert_eq!(world.bound().address, first.address);
}

#[test]
fn what_nobody_extends_is_lost_and_asked_for_again() {
    let mut world = World::new(vec![serving(subnet())]);
    world.until(START + Duration::from_secs(1));
    let (lease, server) = (world.bound(), world.servers.pop().unwrap());
    world.until(lease.valid.unwrap());
    assert_eq!(world.became.last(), Some(&Action::Lost(lease.address)));
    world.servers.push(server);
    // SOLICIT follows within a second.
    world.until(lease.valid.unwrap() + Duration::from_secs(1));
    assert_eq!(world.bound().address, lease.address);
}

#[test]
fn declines_an_address_that_another_host_has() {
    let mut subnet = subnet();
    subnet.reservations.clear();
    let mut world = World::new(vec![serving(subnet)]);
    world.until(START + Duration::from_secs(1));
    let first = world.bound();
    world.happens(Event::Taken);
    assert_eq!(world.kinds(), [SOLICIT, REQUEST, DECLINE]);
    assert_eq!(world.became.last(), Some(&Action::Lost(first.address)));
    assert!(world.client.refusal().unwrap().contains("another host has 2001:db8::10"));
    world.until(world.now + Duration::from_secs(6));
    assert_ne!(world.bound().address, first.address);
    assert_eq!(world.client.refusal(), None);
}

#[test]
fn goes_on_with_the_lease_of_the_client_before() {
    let mut world = World::new(vec![serving(subnet())]);
    world.until(START + Duration::from_secs(1));
    let lease = world.bound();
    let noted = serde_json::to_string(&lease).unwrap();
    world.client = Client::resume(Identity::of(MAC), 99, serde_json::from_str(&noted).unwrap());
    world.until(lease.renew.unwrap());
    assert_eq!(world.kinds(), [SOLICIT, REQUEST, RENEW]);
    assert_eq!(world.bound().address, lease.address);
}

#[test]
fn says_what_a_server_refuses_and_asks_again_less_and_less() {
    let mut subnet = subnet();
    subnet.reservations.clear();
    subnet.dynamic.clear();
    let mut world = World::new(vec![serving(subnet)]);
    world.until(START + Duration::from_secs(180));
    assert_eq!(world.became, []);
    let refusal = world.client.refusal().unwrap_or_default();
    assert!(refusal.starts_with("a DHCPv6 server answers status 2: "), "{refusal}");
    assert!((7..=9).contains(&world.sent.len()), "1 s, doubled: {:?}", world.sent);
}

#[test]
fn of_two_servers_it_takes_the_one_that_is_preferred() {
    let of = |number: u8, preference| {
        let mut subnet = subnet();
        subnet.reservations[0].address = ip(number.into());
        server(number + 0x20, Config { subnets: vec![subnet], preference, ..Config::default() })
    };
    let mut world = World::new(vec![of(0x11, 7), of(0x12, 9), of(0x13, 9)]);
    // Up to a second until the SOLICIT, and then 1.1 seconds for the servers.
    world.until(START + Duration::from_millis(2_200));
    assert_eq!(world.kinds(), [SOLICIT, REQUEST]);
    let waited = world.sent[1].0 - world.sent[0].0;
    assert!(waited >= Duration::from_secs(1), "{waited:?}");
    assert_eq!(world.bound().address, ip(0x12), "the first of the preferred ones");
}

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    [code.to_be_bytes().as_slice(), &u16::try_from(value.len()).unwrap().to_be_bytes(), value].concat()
}

/// An answer with these parts, for cases in which the rack's server would not send it.
fn answer(kind: u8, to: &[u8], association: &[u8]) -> Vec<u8> {
    let identity = [0, 3, 0, 1, 0x52, 0x54, 0, 0, 0, 1];
    let association = [&[0, 0, 0, 1], association].concat();
    [&[kind], &to[1..4], &option(1, &identity), &option(2, b"other"), &option(3, &association)].concat()
}

fn granted(address: Ipv6Addr, t1: u32, t2: u32, preferred: u32, valid: u32) -> Vec<u8> {
    let times = [preferred.to_be_bytes(), valid.to_be_bytes()].concat();
    let address = option(5, &[address.octets().as_slice(), &times].concat());
    [t1.to_be_bytes().as_slice(), &t2.to_be_bytes(), &address].concat()
}

/// The next message from a timer of the client.
fn next(client: &mut Client) -> (Duration, Vec<u8>) {
    let now = client.wake().unwrap();
    match client.handle(now, Event::Timer).as_slice() {
        [Action::Send(bytes)] => (now, bytes.clone()),
        other => panic!("{other:?}"),
    }
}

/// A client that has sent a REQUEST, with the time and the message.
fn requesting() -> (Client, Duration, Vec<u8>) {
    let mut client = Client::new(Identity::of(MAC), 4711);
    client.handle(START, Event::Start);
    let (now, solicit) = next(&mut client);
    let advertise = answer(2, &solicit, &granted(ip(0x77), 0, 0, 100, 100));
    let advertise = [advertise, option(7, &[255])].concat();
    let actions = client.handle(now, Event::Datagram(&advertise));
    let [Action::Send(request)] = actions.as_slice() else { panic!("{actions:?}") };
    (client, now, request.clone())
}

#[test]
fn chooses_times_that_a_server_leaves_to_it_and_keeps_what_never_ends() {
    for (times, expected) in [
        ((0, 0, 100, 200), (Some(50), Some(80), Some(100), Some(200))),
        ((0, 0, u32::MAX, u32::MAX), (None, None, None, None)),
        ((60, 0, 100, 200), (Some(60), Some(80), Some(100), Some(200))),
        ((0, 30, 100, 200), (Some(30), Some(30), Some(100), Some(200))),
        ((0, 0, 0, 100), (Some(50), Some(80), Some(0), Some(100))),
        ((0, 0, 1, 1), (Some(1), Some(1), Some(1), Some(1))),
    ] {
        let (t1, t2, preferred, valid) = times;
        let (mut client, now, request) = requesting();
        let reply = answer(7, &request, &granted(ip(0x77), t1, t2, preferred, valid));
        let actions = client.handle(now, Event::Datagram(&reply));
        let [Action::Bound(lease)] = actions.as_slice() else { panic!("{times:?}: {actions:?}") };
        let after = |at: Option<Duration>| at.map(|at| (at - now).as_secs());
        let of = (after(lease.renew), after(lease.rebind), after(lease.preferred), after(lease.valid));
        assert_eq!(of, expected, "{times:?}");
        assert_eq!(client.wake().is_none(), valid == u32::MAX);
    }
}

#[test]
fn takes_no_address_that_cannot_be_one() {
    for (address, times) in [
        ("2001:db8::77", (90, 80, 100, 200)),
        ("2001:db8::77", (0, 0, 300, 200)),
        ("2001:db8::77", (0, 0, 0, 0)),
        ("fe80::1", (0, 0, 100, 200)),
        ("ff02::1", (0, 0, 100, 200)),
        ("::", (0, 0, 100, 200)),
        ("::1", (0, 0, 100, 200)),
    ] {
        let (mut client, now, request) = requesting();
        let (t1, t2, preferred, valid) = times;
        let reply = answer(7, &request, &granted(address.parse().unwrap(), t1, t2, preferred, valid));
        assert_eq!(client.handle(now, Event::Datagram(&reply)), [], "{address} {times:?}");
        assert!(client.wake().unwrap() >= now + Duration::from_secs(5), "servers are not hurried");
        assert_eq!(next(&mut client).1[0], SOLICIT);
    }
}

#[test]
fn a_server_that_knows_nothing_of_the_lease_any_more_is_asked_for_it() {
    let (mut client, now, request) = requesting();
    client.handle(now, Event::Datagram(&answer(7, &request, &granted(ip(0x77), 0, 0, 100, 200))));
    let (now, renew) = next(&mut client);
    assert_eq!(renew[0], RENEW);
    let no_binding = [&[0; 8], option(13, &[0, 3]).as_slice()].concat();
    let actions = client.handle(now, Event::Datagram(&answer(7, &renew, &no_binding)));
    let [Action::Send(request)] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!(request[0], REQUEST);
    assert!(request.windows(16).any(|window| window == ip(0x77).octets()), "for the same address");
}

#[test]
fn an_address_that_is_withdrawn_is_lost_and_another_taken() {
    let (mut client, now, request) = requesting();
    client.handle(now, Event::Datagram(&answer(7, &request, &granted(ip(0x77), 0, 0, 100, 200))));
    let (now, renew) = next(&mut client);
    let other = option(5, &[ip(0x78).octets().as_slice(), &[0, 0, 0, 100, 0, 0, 0, 100]].concat());
    let both = [granted(ip(0x77), 0, 0, 0, 0), other].concat();
    let actions = client.handle(now, Event::Datagram(&answer(7, &renew, &both)));
    let [Action::Lost(lost), Action::Bound(lease)] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!((*lost, lease.address), (ip(0x77), ip(0x78)));
}

#[test]
fn an_answer_to_another_message_is_none() {
    let (mut client, now, request) = requesting();
    let mut reply = answer(7, &request, &granted(ip(0x77), 0, 0, 100, 200));
    reply[1] ^= 1;
    assert_eq!(client.handle(now, Event::Datagram(&reply)), []);
    let mut reply = answer(7, &request, &granted(ip(0x77), 0, 0, 100, 200));
    let at = reply.windows(5).position(|window| window == b"other").unwrap();
    reply[at] = b'O';
    assert_eq!(client.handle(now, Event::Datagram(&reply)), [], "another server");
}

proptest! {
    /// A server sends any answer at any time. It can cause at most one exchange a second.
    #[test]
    fn whatever_servers_say_it_goes_on_and_never_hurries(
        script in prop::collection::vec((any::<bool>(), any::<[u32; 4]>(), prop::collection::vec(any::<u8>(), 0..40), 0u64..400), 1..60),
        seed: u64,
    ) {
        let mut client = Client::new(Identity::of(MAC), seed);
        let mut now = START;
        let mut sent: Vec<Vec<u8>> = Vec::new();
        let mut actions = client.handle(now, Event::Start);
        for (is_reply, [t1, t2, preferred, valid], noise, seconds) in script {
            let last = sent.last().cloned().unwrap_or_else(|| vec![0; 4]);
            let kind = if is_reply { 7 } else { 2 };
            // Small numbers trigger more cases than large ones.
            let small = |number: u32| if number.is_multiple_of(2) { number % 500 } else { number };
            let good = granted(ip(0x77), small(t1), small(t2), small(preferred), small(valid));
            let mut datagram = answer(kind, &last, &good);
            datagram.extend(&noise);
            actions.extend(client.handle(now, Event::Datagram(&datagram)));
            actions.extend(client.handle(now, Event::Datagram(&noise)));
            if noise.len() == 7 {
                actions.extend(client.handle(now, Event::Taken));
            }
            for action in actions.drain(..) {
                if let Action::Send(bytes) = action {
                    ingress::parse(&bytes).expect("another codec reads it");
                    sent.push(bytes);
                }
            }
            now += Duration::from_secs(seconds);
            actions = client.handle(now, Event::Timer);
            prop_assert!(actions.len() <= 8, "{actions:?}");
            prop_assert!(client.wake().is_none_or(|at| at > now), "it would be woken at once, again and again");
        }
    }
}
