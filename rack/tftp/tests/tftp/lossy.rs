//! The client core against the server core over a link that loses, repeats and reorders.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use basalt_tftp::client::{ClientAction, ClientRequest, Failure, Fetched};
use basalt_tftp::packet::{ErrorCode, Packet};
use basalt_tftp::request::{Decision, decide};
use basalt_tftp::transfer::Action;
use basalt_tftp::{Caps, Client, Negotiated, Outcome, Transfer};
use bytes::Bytes;
use proptest::prelude::*;

const SERVER: &str = "10.0.0.1:69";
const TRANSFER: &str = "10.0.0.1:40000";

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[derive(Clone, Copy)]
struct Link {
    /// The share of lost datagrams, in percent.
    loss: u64,
    repeat: u64,
    /// Delays differ by up to this many milliseconds.
    jitter: u64,
    random: u64,
    /// When the last datagram in flight arrives.
    latest: Duration,
    fired: Faults,
}

/// The number of times that each fault happened.
#[derive(Debug, Clone, Copy, Default)]
struct Faults {
    lost: u32,
    repeated: u32,
    /// Datagrams that arrived before an earlier one.
    overtaking: u32,
}

impl Link {
    fn new(loss: u64, repeat: u64, jitter: u64, random: u64) -> Self {
        Self { loss, repeat, jitter, random, latest: Duration::ZERO, fired: Faults::default() }
    }

    fn roll(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// The times when the copies of a datagram arrive.
    fn arrivals(&mut self, now: Duration) -> Vec<Duration> {
        let repeated = self.roll(100) < self.repeat;
        self.fired.repeated += u32::from(repeated);
        let mut arrivals = Vec::new();
        for _ in 0..=u32::from(repeated) {
            if self.roll(100) < self.loss {
                self.fired.lost += 1;
                continue;
            }
            let at = now + Duration::from_micros(200) + Duration::from_millis(self.roll(self.jitter + 1));
            self.fired.overtaking += u32::from(at < self.latest);
            self.latest = self.latest.max(at);
            arrivals.push(at);
        }
        arrivals
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum To {
    Client,
    Server,
}

struct Run {
    result: Result<Fetched, Failure>,
    outcome: Option<Outcome>,
    datagrams: usize,
    fired: Faults,
}

/// Runs until both sides are done, or for ten minutes of simulated time.
fn run(mut link: Link, content: &Bytes, request: ClientRequest) -> Run {
    let epoch = Instant::now();
    let (mut client, first) = Client::start(request, epoch);
    let mut transfer: Option<Transfer> = None;
    let mut queue = BinaryHeap::new();
    let mut run =
        Run { result: Err(Failure::TimedOut), outcome: None, datagrams: 0, fired: Faults::default() };
    let mut now = Duration::ZERO;
    let (mut to_client, mut to_server) = (Vec::new(), first);
    loop {
        for action in to_server.drain(..) {
            match action {
                ClientAction::Send { bytes, .. } => {
                    run.datagrams += 1;
                    for at in link.arrivals(now) {
                        queue.push(Reverse((at, To::Server, bytes.clone())));
                    }
                }
                ClientAction::Done(result) => run.result = result,
            }
        }
        for action in to_client.drain(..) {
            match action {
                Action::Send(bytes) => {
                    run.datagrams += 1;
                    for at in link.arrivals(now) {
                        queue.push(Reverse((at, To::Client, bytes.clone())));
                    }
                }
                Action::Done(outcome) => run.outcome = Some(outcome),
            }
        }
        let client_timer = client.deadline().duration_since(epoch);
        let server_timer = transfer.as_ref().map(|transfer| transfer.deadline().duration_since(epoch));
        let arrival = queue.peek().map(|Reverse((at, ..))| *at);
        let client_done = client.on_timer(epoch + client_timer - Duration::from_nanos(1)).is_empty();
        debug_assert!(client_done, "nothing happens before the deadline");
        let timers = [Some(client_timer), server_timer];
        let next = timers.into_iter().flatten().filter(|at| *at > now).chain(arrival).min();
        let Some(next) = next.filter(|next| *next < Duration::from_secs(600)) else { break };
        if run.outcome.is_some() && queue.is_empty() {
            break;
        }
        now = next;
        while queue.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((_, to, bytes))) = queue.pop() else { break };
            match to {
                To::Client => to_server.extend(client.on_packet(epoch + now, addr(TRANSFER), &bytes)),
                To::Server => match (&mut transfer, decide(&bytes)) {
                    (Some(transfer), Decision::Ignore) => {
                        to_client.extend(transfer.on_packet(epoch + now, &bytes));
                    }
                    (None, Decision::Read(request)) => {
                        let options = Negotiated::new(&request.options, Caps::default(), content.len());
                        let (started, actions) = Transfer::start(epoch + now, content.clone(), options);
                        transfer = Some(started);
                        to_client.extend(actions);
                    }
                    // A repeated request would start another transfer on another port; the client refuses that one.
                    _ => {}
                },
            }
        }
        to_server.extend(client.on_timer(epoch + now));
        if let Some(transfer) = &mut transfer {
            to_client.extend(transfer.on_timer(epoch + now));
        }
    }
    run.fired = link.fired;
    run
}

fn file(size: usize, seed: u64) -> Bytes {
    let mut noise = Link::new(0, 0, 0, seed | 1);
    (0..size).map(|_| noise.roll(256) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_file_arrives_whole_over_a_bad_link(
        seed in 1u64..u64::MAX,
        size in 0usize..60_000,
        blksize in prop::option::of(8u16..2000),
        windowsize in prop::option::of(1u16..80),
        jitter in 0u64..40,
    ) {
        let size = size.min(usize::from(blksize.unwrap_or(512)) * 100);
        let content = file(size, seed);
        let mut request = ClientRequest::new(addr(SERVER), "f");
        request.blksize = blksize;
        request.windowsize = windowsize;
        request.tsize = true;
        let link = Link::new(20, 10, jitter, seed);
        let run = run(link, &content, request);
        let fetched = run.result.expect("the file");
        prop_assert!(fetched.content == content, "{} of {} bytes", fetched.content.len(), content.len());
        prop_assert!(run.outcome.is_some(), "the server ends too");
    }

    #[test]
    fn no_datagram_makes_either_side_panic(
        datagrams in prop::collection::vec((0u8..8, prop::collection::vec(any::<u8>(), 0..40)), 0..60),
        windowsize in 1u16..8,
    ) {
        let now = Instant::now();
        let mut request = ClientRequest::new(addr(SERVER), "f");
        request.windowsize = Some(windowsize);
        let (mut client, _) = Client::start(request, now);
        let asked = vec![("windowsize".to_owned(), windowsize.to_string())];
        let options = Negotiated::new(&asked, Caps::default(), 5000);
        let (mut transfer, _) = Transfer::start(now, file(5000, 1), options);
        for (operation, body) in datagrams {
            let mut datagram = vec![0, operation];
            datagram.extend(body);
            client.on_packet(now, addr(TRANSFER), &datagram);
            transfer.on_packet(now, &datagram);
        }
    }
}

/// The same faults in every run: twenty files over links that lose a fifth of the datagrams, repeat a tenth, and
/// reorder.
#[test]
fn files_arrive_whole_through_faults_that_are_counted() {
    let mut all = Faults::default();
    for seed in 1..=20 {
        let content = file(30_000 + 997 * usize::try_from(seed).unwrap(), seed);
        let mut request = ClientRequest::new(addr(SERVER), "f");
        request.windowsize = Some(1 + u16::try_from(seed).unwrap() % 16);
        let run = run(Link::new(20, 10, 30, seed), &content, request);
        assert!(run.result.expect("the file").content == content, "seed {seed}");
        assert!(run.outcome.is_some(), "seed {seed}: the server ends too");
        all.lost += run.fired.lost;
        all.repeated += run.fired.repeated;
        all.overtaking += run.fired.overtaking;
    }
    println!("{all:?}");
    assert!(all.lost > 100 && all.repeated > 100 && all.overtaking > 100, "{all:?}");
}

#[test]
fn a_perfect_link_carries_nothing_twice() {
    let content = file(51_300, 3);
    let mut request = ClientRequest::new(addr(SERVER), "f");
    request.windowsize = Some(8);
    let link = Link::new(0, 0, 0, 1);
    let run = run(link, &content, request);
    assert_eq!(run.result.unwrap().content, content);
    assert_eq!(run.outcome, Some(Outcome::Completed));
    // RRQ, OACK, ACK 0, 101 blocks of 512, and an ACK for each 8 and for the last.
    assert_eq!(run.datagrams, 3 + 101 + 13);
}

#[test]
fn duplicated_datagrams_do_not_multiply() {
    let content = file(51_200, 3);
    let link = Link::new(0, 100, 0, 9);
    let run = run(link, &content, ClientRequest::new(addr(SERVER), "f"));
    assert_eq!(run.result.unwrap().content, content);
    // Each of 101 blocks once; the client acknowledges both copies, and the server answers one of the four ACKs.
    assert!(run.datagrams <= 1 + 101 * 3, "{}", run.datagrams);
}

#[test]
fn learns_the_size_and_nothing_else() {
    let content = file(5000, 3);
    let mut request = ClientRequest::new(addr(SERVER), "f");
    request.probe = true;
    let link = Link::new(0, 0, 0, 1);
    let run = run(link, &content, request);
    assert_eq!(run.result, Ok(Fetched { content: vec![], size: Some(5000) }));
    assert_eq!((run.outcome, run.datagrams), (Some(Outcome::Probed), 3));
}

#[test]
fn a_client_refuses_what_it_did_not_ask_for() {
    let now = Instant::now();
    for (name, value) in [("blksize", "1468"), ("windowsize", "4"), ("tsize", "5"), ("odd", "1")] {
        let (mut client, _) = Client::start(ClientRequest::new(addr(SERVER), "f"), now);
        let oack = Packet::Oack { options: vec![(name.to_owned(), value.to_owned())] }.encode();
        let actions = client.on_packet(now, addr(TRANSFER), &oack);
        assert_eq!(actions.last(), Some(&ClientAction::Done(Err(Failure::BadOption(name.to_owned())))));
    }
}

#[test]
fn a_client_tells_strangers_that_they_are_strangers() {
    let now = Instant::now();
    let (mut client, _) = Client::start(ClientRequest::new(addr(SERVER), "f"), now);
    let block = Packet::Data { block: 1, data: &[1; 512] }.encode();
    assert_eq!(client.on_packet(now, addr("10.0.0.2:40000"), &block), [], "another host is not heard");
    assert_eq!(client.on_packet(now, addr(TRANSFER), &block).len(), 1);
    let stranger = addr("10.0.0.1:40001");
    let bytes = Packet::error(ErrorCode::UnknownTransferId, "unknown transfer");
    assert_eq!(client.on_packet(now, stranger, &block), [ClientAction::Send { to: stranger, bytes }]);
}

#[test]
fn a_client_gives_up_on_silence_and_on_files_too_long() {
    let now = Instant::now();
    let (mut client, _) = Client::start(ClientRequest::new(addr(SERVER), "f"), now);
    let mut sent = 0;
    while !matches!(
        client.on_timer(client.deadline()).as_slice(),
        [ClientAction::Done(Err(Failure::TimedOut))]
    ) {
        sent += 1;
    }
    assert_eq!(sent, 10);

    let mut request = ClientRequest::new(addr(SERVER), "f");
    request.max_bytes = 600;
    let (mut client, _) = Client::start(request, now);
    client.on_packet(now, addr(TRANSFER), &Packet::Data { block: 1, data: &[1; 512] }.encode());
    let actions = client.on_packet(now, addr(TRANSFER), &Packet::Data { block: 2, data: &[1; 512] }.encode());
    assert_eq!(actions.last(), Some(&ClientAction::Done(Err(Failure::TooLong(600)))));
}
