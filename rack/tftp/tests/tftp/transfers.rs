//! One transfer at a time, event by event.

use std::time::{Duration, Instant};

use basalt_tftp::packet::{ErrorCode, Packet};
use basalt_tftp::transfer::Action;
use basalt_tftp::{Caps, Negotiated, Outcome, Transfer};
use bytes::Bytes;

fn start(size: usize, asked: &[(&str, &str)]) -> (Transfer, Vec<Action>, Instant) {
    let content: Bytes = (0..size).map(|at| (at % 251) as u8).collect();
    let asked = asked.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let now = Instant::now();
    let options = Negotiated::new(&asked, Caps::default(), content.len());
    let (transfer, actions) = Transfer::start(now, content, options);
    (transfer, actions, now)
}

fn ack(block: u16) -> Vec<u8> {
    Packet::Ack { block }.encode()
}

/// Numbers and lengths of the blocks sent.
fn blocks(actions: &[Action]) -> Vec<(u16, usize)> {
    let each = actions.iter().map(|action| match action {
        Action::Send(datagram) => match Packet::parse(datagram) {
            Ok(Packet::Data { block, data }) => (block, data.len()),
            other => panic!("{other:?}"),
        },
        Action::Done(outcome) => panic!("{outcome:?}"),
    });
    each.collect()
}

fn is_oack(actions: &[Action]) -> bool {
    matches!(actions, [Action::Send(datagram)] if matches!(Packet::parse(datagram), Ok(Packet::Oack { .. })))
}

#[test]
fn sends_block_by_block_and_ends_with_a_short_one() {
    let (mut transfer, first, now) = start(1100, &[]);
    assert_eq!(blocks(&first), [(1, 512)]);
    assert_eq!(blocks(&transfer.on_packet(now, &ack(1))), [(2, 512)]);
    assert_eq!(blocks(&transfer.on_packet(now, &ack(2))), [(3, 76)]);
    assert_eq!(transfer.on_packet(now, &ack(3)), [Action::Done(Outcome::Completed)]);
    assert_eq!(transfer.on_packet(now, &ack(3)), [], "it is over");
    assert_eq!(transfer.acknowledged_bytes(), 1100);
}

#[test]
fn a_file_of_whole_blocks_ends_with_an_empty_one() {
    for (size, last) in [(0, 1), (512, 2), (1024, 3)] {
        let (mut transfer, _, now) = start(size, &[]);
        for block in 1..last {
            transfer.on_packet(now, &ack(block));
        }
        assert_eq!(transfer.on_packet(now, &ack(last)), [Action::Done(Outcome::Completed)], "size {size}");
    }
}

#[test]
fn waits_for_the_client_to_accept_the_options() {
    let (mut transfer, first, now) = start(5000, &[("blksize", "1000")]);
    assert!(is_oack(&first));
    assert_eq!(transfer.on_packet(now, &ack(1)), [], "nothing was sent that this could acknowledge");
    assert_eq!(blocks(&transfer.on_packet(now, &ack(0))), [(1, 1000)]);
}

#[test]
fn a_client_error_ends_it_at_once() {
    let (mut transfer, _, now) = start(5000, &[("tsize", "0"), ("blksize", "1468")]);
    let refused = Packet::error(ErrorCode::OptionNegotiation, "User aborted the transfer");
    assert_eq!(transfer.on_packet(now, &refused), [Action::Done(Outcome::Probed)]);
    assert_eq!(transfer.on_timer(now + Duration::from_secs(60)), [], "no OACK comes after that");

    let (mut transfer, _, now) = start(5000, &[("tsize", "0")]);
    assert_eq!(transfer.on_packet(now, b"\0\x05\0\0"), [Action::Done(Outcome::Probed)]);

    let (mut transfer, _, now) = start(5000, &[]);
    let aborted = Outcome::Aborted { code: ErrorCode::DiskFull, message: "full".to_owned() };
    assert_eq!(transfer.on_packet(now, &Packet::error(ErrorCode::DiskFull, "full")), [Action::Done(aborted)]);
}

#[test]
fn repeated_acknowledgements_are_not_answered() {
    let (mut transfer, _, now) = start(5000, &[]);
    assert_eq!(blocks(&transfer.on_packet(now, &ack(1))), [(2, 512)]);
    for _ in 0..3 {
        assert_eq!(transfer.on_packet(now, &ack(1)), []);
    }
    assert_eq!(transfer.on_packet(now, &ack(7)), [], "from the future");
    assert_eq!(blocks(&transfer.on_packet(now, &ack(2))), [(3, 512)]);
    assert_eq!(transfer.on_packet(now, &ack(1)), [], "from the past");
}

#[test]
fn sends_windows_and_goes_on_after_the_last_block_in_order() {
    let (mut transfer, _, now) = start(10_000, &[("blksize", "1000"), ("windowsize", "4")]);
    let numbers =
        |actions: Vec<Action>| blocks(&actions).into_iter().map(|(block, _)| block).collect::<Vec<_>>();
    assert_eq!(numbers(transfer.on_packet(now, &ack(0))), [1, 2, 3, 4]);
    assert_eq!(numbers(transfer.on_packet(now, &ack(4))), [5, 6, 7, 8]);
    assert_eq!(numbers(transfer.on_packet(now, &ack(5))), [6, 7, 8, 9], "6 was lost");
    assert_eq!(numbers(transfer.on_packet(now, &ack(5))), [6, 7, 8, 9], "6 was lost again");
    assert_eq!(transfer.on_packet(now, &ack(5)), [], "once per window");
    assert_eq!(numbers(transfer.on_packet(now, &ack(9))), [10, 11]);
    assert_eq!(transfer.on_packet(now, &ack(11)), [Action::Done(Outcome::Completed)]);
}

#[test]
fn gives_a_silent_client_up_after_bounded_retries() {
    let (mut transfer, _, start) = start(5000, &[("windowsize", "4")]);
    let mut now = start;
    let mut sent = 0;
    loop {
        let wait = transfer.deadline().duration_since(now);
        assert!((Duration::from_millis(500)..=Duration::from_secs(3)).contains(&wait), "{wait:?}");
        assert_eq!(transfer.on_timer(now), [], "too early");
        now = transfer.deadline();
        let actions = transfer.on_timer(now);
        if actions == [Action::Done(Outcome::TimedOut)] {
            break;
        }
        assert!(is_oack(&actions));
        sent += 1;
    }
    assert_eq!((sent, transfer.retransmissions()), (10, 10));
    assert!(now.duration_since(start) < Duration::from_secs(35));
}

#[test]
fn a_client_that_only_repeats_itself_is_given_up_too() {
    let (mut transfer, _, mut now) = start(5000, &[]);
    transfer.on_packet(now, &ack(1));
    for _ in 0..10 {
        now = transfer.deadline();
        transfer.on_packet(now, &ack(1));
        transfer.on_packet(now, b"noise");
        assert_eq!(blocks(&transfer.on_timer(now)), [(2, 512)]);
    }
    now = transfer.deadline();
    assert_eq!(transfer.on_timer(now), [Action::Done(Outcome::TimedOut)]);
}

#[test]
fn block_numbers_wrap() {
    let (mut transfer, mut actions, now) = start(8 * 70_000 + 3, &[("blksize", "8"), ("windowsize", "64")]);
    assert!(is_oack(&actions));
    actions = transfer.on_packet(now, &ack(0));
    let mut total = 0;
    while !matches!(actions.as_slice(), [Action::Done(_)]) {
        let sent = blocks(&actions);
        total += sent.iter().map(|(_, len)| len).sum::<usize>();
        actions = transfer.on_packet(now, &ack(sent.last().unwrap().0));
    }
    assert_eq!(actions, [Action::Done(Outcome::Completed)]);
    assert_eq!(total, 8 * 70_000 + 3);
}
