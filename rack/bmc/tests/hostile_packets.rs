//! Arbitrary bytes before, during and inside a session: neither core panics, and sessions continue.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use basalt_bmc::client::{ClientCore, Event};
use basalt_bmc::command;
use basalt_bmc::message::Request;
use basalt_bmc::random::Random;
use basalt_bmc::server::{ChassisAnswer, Reaction, ServerCore};
use basalt_bmc::{
    CipherSuite, Credentials, Failure, Password, PowerState, Privilege, ServerConfig, Username,
};
use proptest::prelude::*;

/// A source that counts up, so that the bytes are the same in every run.
struct Counter(u8);

impl Random for Counter {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Failure> {
        for byte in bytes {
            self.0 = self.0.wrapping_add(1);
            *byte = self.0;
        }
        Ok(())
    }
}

const STEPS: usize = 6;

struct Pair {
    client: ClientCore,
    server: ServerCore,
    random: Counter,
    now: Instant,
}

fn peer() -> SocketAddr {
    "127.0.0.1:40000".parse().unwrap()
}

impl Pair {
    fn new(suite: &'static CipherSuite) -> Self {
        let mut random = Counter(0);
        let credentials = Credentials::new("admin", "secret").unwrap();
        let config =
            ServerConfig::new(Username::new("admin").unwrap(), Password::new("secret").unwrap(), [7; 16]);
        Self {
            client: ClientCore::new(credentials, suite, Privilege::Operator, &mut random).unwrap(),
            server: ServerCore::new(config),
            random,
            now: Instant::now(),
        }
    }

    fn ask(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        match self.server.receive(peer(), datagram, self.now, &mut self.random).unwrap() {
            Reaction::None => None,
            Reaction::Reply(bytes) => Some(bytes),
            Reaction::Chassis(ticket, _) => {
                self.server.complete(&ticket, ChassisAnswer::Power(PowerState::On), &mut self.random).unwrap()
            }
        }
    }

    /// Goes through the first `steps` exchanges. Returns the datagram to send next, and the answer to the last one.
    fn advance(&mut self, steps: usize) -> (Vec<u8>, Vec<u8>) {
        let mut next = self.client.start();
        let mut last = Vec::new();
        for _ in 0..steps {
            last = self.ask(&next).expect("an answer");
            match self.client.receive(&last, &mut self.random).unwrap() {
                Event::Send(datagram) => next = datagram,
                Event::Ready | Event::Answer(_) => next = self.status(),
                Event::Ignored => panic!("ignored an honest answer"),
            }
        }
        (next, last)
    }

    fn status(&mut self) -> Vec<u8> {
        let request = Request { id: command::GET_CHASSIS_STATUS, data: vec![] };
        self.client.request(request, &mut self.random).unwrap()
    }
}

fn suites() -> impl Strategy<Value = &'static CipherSuite> {
    prop_oneof![Just(CipherSuite::suite_3()), Just(CipherSuite::suite_17())]
}

/// A change to a valid datagram.
#[derive(Clone, Debug)]
enum Damage {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Append(Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<prop::sample::Index>(), 1..=255u8).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        any::<prop::sample::Index>().prop_map(Damage::Cut),
        prop::collection::vec(any::<u8>(), 1..40).prop_map(Damage::Append),
    ]
}

fn damaged(datagram: &[u8], damage: &Damage) -> Vec<u8> {
    let mut bytes = datagram.to_vec();
    match damage {
        Damage::Flip(at, bits) => bytes[at.index(datagram.len())] ^= bits,
        Damage::Cut(at) => bytes.truncate(at.index(datagram.len())),
        Damage::Append(more) => bytes.extend_from_slice(more),
    }
    bytes
}

/// RMCP headers that the parser accepts, then random bytes.
fn almost_rmcp() -> impl Strategy<Value = Vec<u8>> {
    let header = prop_oneof![Just(vec![6, 0, 255, 7, 6]), Just(vec![6, 0, 255, 7, 0]), Just(vec![])];
    let kind = prop_oneof![0x10..=0x15u8, Just(0), Just(0xc0), any::<u8>()];
    (header, kind, prop::collection::vec(any::<u8>(), 0..120)).prop_map(|(mut bytes, kind, tail)| {
        bytes.push(kind);
        bytes.extend(tail);
        bytes
    })
}

proptest! {
    #[test]
    fn the_server_survives_any_bytes(suite in suites(), steps in 0..STEPS, bytes in almost_rmcp()) {
        let mut pair = Pair::new(suite);
        let (next, _) = pair.advance(steps);
        pair.ask(&bytes);
        prop_assert!(pair.ask(&next).is_some(), "the session goes on");
    }

    #[test]
    fn the_client_survives_any_bytes(suite in suites(), steps in 0..STEPS, bytes in almost_rmcp()) {
        let mut pair = Pair::new(suite);
        pair.advance(steps);
        let _outcome = pair.client.receive(&bytes, &mut pair.random);
    }

    #[test]
    fn a_damaged_request_is_never_carried_out(suite in suites(), damage in damage()) {
        let mut pair = Pair::new(suite);
        let (next, _) = pair.advance(STEPS);
        let bytes = damaged(&next, &damage);
        // The RMCP header's reserved and sequence octets are outside the integrity check.
        prop_assume!(bytes.get(..1) != next.get(..1) || bytes.get(3..) != next.get(3..));
        let reaction = pair.server.receive(peer(), &bytes, pair.now, &mut pair.random).unwrap();
        prop_assert!(matches!(reaction, Reaction::None));
    }

    #[test]
    fn a_damaged_answer_is_never_believed(suite in suites(), damage in damage()) {
        let mut pair = Pair::new(suite);
        let (next, _) = pair.advance(STEPS);
        let answer = pair.ask(&next).unwrap();
        let bytes = damaged(&answer, &damage);
        prop_assume!(bytes.get(..1) != answer.get(..1) || bytes.get(3..) != answer.get(3..));
        prop_assert_eq!(pair.client.receive(&bytes, &mut pair.random), Ok(Event::Ignored));
        prop_assert!(matches!(pair.client.receive(&answer, &mut pair.random), Ok(Event::Answer(_))));
    }

    #[test]
    fn damage_during_the_handshake_never_opens_a_session(suite in suites(), step in 1..4usize, damage in damage()) {
        let mut pair = Pair::new(suite);
        let (next, _) = pair.advance(step);
        if let Some(answer) = pair.ask(&next) {
            let outcome = pair.client.receive(&damaged(&answer, &damage), &mut pair.random);
            prop_assert!(!matches!(outcome, Ok(Event::Ready)));
        }
    }
}

#[test]
fn a_replayed_request_is_dropped_and_a_repeated_one_answered_from_memory() {
    let mut pair = Pair::new(CipherSuite::suite_3());
    let (next, _) = pair.advance(STEPS);
    let first = pair.server.receive(peer(), &next, pair.now, &mut pair.random).unwrap();
    let Reaction::Chassis(ticket, _) = first else { panic!("the chassis is asked") };
    let again = pair.client.retransmit(&mut pair.random).unwrap();
    assert!(pair.ask(&again).is_none(), "the chassis still works on it");
    pair.server.complete(&ticket, ChassisAnswer::Power(PowerState::On), &mut pair.random).unwrap().unwrap();
    assert!(pair.ask(&next).is_none(), "a replayed packet has an old session sequence number");
    let again = pair.client.retransmit(&mut pair.random).unwrap();
    let reaction = pair.server.receive(peer(), &again, pair.now, &mut pair.random).unwrap();
    assert!(matches!(reaction, Reaction::Reply(_)), "answered without asking the chassis again");
}

#[test]
fn sessions_that_idle_are_freed() {
    let mut pair = Pair::new(CipherSuite::suite_3());
    let (next, _) = pair.advance(STEPS);
    pair.now += Duration::from_secs(61);
    assert!(pair.ask(&next).is_none());
    assert_eq!(pair.server.sessions(), 0);
}

#[test]
fn a_seventeenth_session_is_refused_in_words() {
    let mut pair = Pair::new(CipherSuite::suite_3());
    for _ in 0..16 {
        let credentials = Credentials::new("admin", "secret").unwrap();
        pair.client =
            ClientCore::new(credentials, CipherSuite::suite_3(), Privilege::Operator, &mut pair.random)
                .unwrap();
        pair.advance(2);
    }
    let credentials = Credentials::new("admin", "secret").unwrap();
    pair.client =
        ClientCore::new(credentials, CipherSuite::suite_3(), Privilege::Operator, &mut pair.random).unwrap();
    let (open, _) = pair.advance(1);
    let refused = pair.ask(&open).unwrap();
    assert_eq!(
        pair.client.receive(&refused, &mut pair.random),
        Err(Failure::NoFreeSession { waited: Duration::ZERO })
    );
}

#[test]
fn a_bmc_of_ipmi_1_5_is_refused() {
    let mut pair = Pair::new(CipherSuite::suite_3());
    let mut answer = pair.ask(&pair.client.start()).unwrap();
    // Octet 22 holds the extended capabilities' "speaks 2.0"; the checksum at the end follows it.
    let extended = answer.iter().rposition(|byte| *byte == 0x02).unwrap();
    answer[extended] = 0x01;
    let last = answer.len() - 1;
    answer[last] = answer[last].wrapping_add(1);
    assert_eq!(pair.client.receive(&answer, &mut pair.random), Err(Failure::NoIpmi20));
}
