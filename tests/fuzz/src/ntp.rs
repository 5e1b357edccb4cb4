//! NTP: requests to the responder, and answers to the monitor.

use std::net::IpAddr;
use std::time::Duration;

use basalt_ntp::packet::{Leap, Packet, SERVER};
use basalt_ntp::{Monitor, Now, Reaction, Responder, State, Timestamp};

use crate::sequence::{messages, sequence};

const NONCE: u64 = 7;

fn now(seconds: u64) -> Now {
    Now {
        wall: Timestamp::from_unix(Duration::from_secs(1_800_000_000 + seconds)),
        since_boot: Duration::from_secs(1_000 + seconds),
    }
}

/// Datagrams, each to the responder and as the answer of one of three servers.
pub fn ntp(data: &[u8]) {
    let names = ["a", "b", "c"].map(str::to_owned);
    let (mut responder, mut monitor) = (Responder::default(), Monitor::new(-20, now(0)));
    monitor.set_sources(&names, 0);
    let mut seconds = 0;
    for (besides, datagram) in messages(data) {
        seconds += u64::from(besides);
        let now = now(seconds);
        let name = &names[usize::from(besides) % names.len()];
        let address = IpAddr::from([192, 0, 2, besides]);
        if let Ok(packet) = Packet::parse(datagram) {
            assert_eq!(packet.encode(), datagram[..48], "what is read is written as it was read");
        }
        monitor.ask(name, address, NONCE, now);
        monitor.hear(name, datagram, now);
        monitor.wait(name, besides);
        let report = monitor.report(now);
        let is_usable = report.claim.leap != Leap::Unknown;
        assert_eq!(is_usable, report.state != State::Bad);
        assert!((2..=16).contains(&report.claim.stratum) && is_usable == (report.claim.stratum < 16));
        assert_eq!(report.problem().is_none(), report.state == State::Synced);
        match responder.react(datagram, address, now.wall, now.since_boot, &report.claim) {
            Reaction::Answer(reply) | Reaction::Warn(reply) => {
                let reply = reply.sent_at(now.wall);
                assert!(reply.len() <= datagram.len(), "an answer is longer than its question");
                assert_eq!(Packet::parse(&reply).map(|it| it.mode), Ok(SERVER));
            }
            Reaction::Drop(_) => {}
        }
    }
}

pub(crate) fn seeds_ntp() -> Vec<Vec<u8>> {
    let answer = |millis: u64| {
        let at = Timestamp::from_unix(Duration::from_millis(1_800_000_000_000 + millis));
        let (origin, receive, transmit) = (Timestamp(NONCE), at, at);
        Packet { version: 4, mode: SERVER, stratum: 2, origin, receive, transmit, ..Packet::default() }
    };
    let request = Packet { version: 4, mode: 3, transmit: Timestamp(1), ..Packet::default() };
    let kiss = Packet { stratum: 0, reference_id: *b"RATE", ..answer(0) };
    let datagrams = [answer(0), answer(400), answer(5_000), kiss, request].map(|it| it.encode());
    let [good, off, bad, kiss, request] = datagrams.each_ref().map(|it| &it[..]);
    vec![
        sequence([good, request, off, request, bad, request, kiss]),
        sequence([request; 10]),
        sequence([bad, b"\x16\x02\0\x01\0\0\0\0\0\0\0\0"]),
    ]
}
