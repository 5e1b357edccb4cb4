//! The answer to each request.

use std::net::IpAddr;
use std::time::Duration;

use crate::limit::{Limiter, Verdict};
use crate::monitor::Claim;
use crate::packet::{CLIENT, LENGTH, Leap, Packet, SERVER};
use crate::time::{Short, Timestamp};

/// The supported versions. Each is answered with the same version: their headers are equal (RFC 5905 §7.3, RFC 4330
/// §4).
const VERSIONS: std::ops::RangeInclusive<u8> = 1..=4;

/// The reaction to a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// Send the client the time.
    Answer(Reply),
    /// Tell the client once that it asks too often (kiss-o'-death RATE, RFC 5905 §7.4).
    Warn(Reply),
    /// Send nothing, for this reason.
    Drop(Dropped),
}

/// The reason why nothing is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// The datagram is shorter than a request.
    Short,
    /// The mode is not that of a client's request. Control messages (modes 6 and 7) are used for amplification attacks.
    Mode,
    /// The version is not 1 to 4.
    Version,
    /// The client asks too often and has been warned.
    Rate,
}

impl Dropped {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Mode => "mode",
            Self::Version => "version",
            Self::Rate => "rate",
        }
    }
}

/// An answer without its time of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply(Packet);

impl Reply {
    /// The octets to send at this moment: as many as the shortest request has.
    #[must_use]
    pub fn sent_at(mut self, transmit: Timestamp) -> [u8; LENGTH] {
        self.0.transmit = transmit;
        self.0.encode()
    }
}

/// Answers clients. It tracks the request rate of the last 16,384 clients.
#[derive(Debug)]
pub struct Responder {
    limiter: Limiter,
}

impl Default for Responder {
    fn default() -> Self {
        Self { limiter: Limiter::new() }
    }
}

impl Responder {
    /// Handles a datagram of `client` that arrived at `received`. `since_boot` is the same moment by the clock that
    /// cannot be set.
    pub fn react(
        &mut self,
        datagram: &[u8],
        client: IpAddr,
        received: Timestamp,
        since_boot: Duration,
        claim: &Claim,
    ) -> Reaction {
        let request = match Packet::parse(datagram) {
            Err(_) => return Reaction::Drop(Dropped::Short),
            Ok(request) if request.mode != CLIENT => return Reaction::Drop(Dropped::Mode),
            Ok(request) if !VERSIONS.contains(&request.version) => return Reaction::Drop(Dropped::Version),
            Ok(request) => request,
        };
        match self.limiter.count(client, since_boot) {
            Verdict::Answer => Reaction::Answer(answer(&request, received, claim)),
            Verdict::Warn => Reaction::Warn(kiss(&request, received, claim)),
            Verdict::Ignore => Reaction::Drop(Dropped::Rate),
        }
    }
}

fn answer(request: &Packet, received: Timestamp, claim: &Claim) -> Reply {
    Reply(Packet {
        leap: claim.leap,
        version: request.version,
        mode: SERVER,
        stratum: claim.stratum,
        poll: request.poll,
        precision: claim.precision,
        root_delay: Short::from_duration(claim.root_delay),
        root_dispersion: Short::from_duration(claim.root_dispersion),
        reference_id: claim.reference_id,
        reference: claim.reference,
        origin: request.transmit,
        receive: received,
        transmit: Timestamp::default(),
    })
}

fn kiss(request: &Packet, received: Timestamp, claim: &Claim) -> Reply {
    let Reply(answer) = answer(request, received, claim);
    Reply(Packet { leap: Leap::Unknown, stratum: 0, reference_id: *b"RATE", ..answer })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(second: u64) -> Timestamp {
        Timestamp::from_unix(Duration::from_secs(1_800_000_000 + second))
    }

    fn claim() -> Claim {
        Claim {
            leap: Leap::Inserted,
            stratum: 3,
            precision: -23,
            root_delay: Duration::from_millis(20),
            root_dispersion: Duration::from_millis(5),
            reference_id: [192, 0, 2, 1],
            reference: at(0),
        }
    }

    fn react(datagram: &[u8]) -> Reaction {
        Responder::default().react(datagram, [10, 0, 0, 1].into(), at(10), HOUR, &claim())
    }

    fn request(version: u8, mode: u8) -> Packet {
        Packet { version, mode, poll: 6, transmit: Timestamp(0x1234_5678_9abc_def0), ..Packet::default() }
    }

    #[test]
    fn a_client_is_told_the_time_and_the_error_of_it() {
        let Reaction::Answer(reply) = react(&request(4, CLIENT).encode()) else { panic!("it is answered") };
        let expected = Packet {
            leap: Leap::Inserted,
            version: 4,
            mode: SERVER,
            stratum: 3,
            poll: 6,
            precision: -23,
            root_delay: Short::from_duration(Duration::from_millis(20)),
            root_dispersion: Short::from_duration(Duration::from_millis(5)),
            reference_id: [192, 0, 2, 1],
            reference: at(0),
            origin: Timestamp(0x1234_5678_9abc_def0),
            receive: at(10),
            transmit: at(11),
        };
        assert_eq!(Packet::parse(&reply.sent_at(at(11))), Ok(expected));
    }

    #[test]
    fn only_requests_of_clients_are_answered_each_in_its_version() {
        for version in 0..8 {
            for mode in 0..8 {
                let reaction = react(&request(version, mode).encode());
                match (version, mode) {
                    (1..=4, 3) => {
                        let Reaction::Answer(Reply(answer)) = reaction else { panic!("v{version}") };
                        assert_eq!((answer.version, answer.mode), (version, SERVER));
                    }
                    (_, 3) => assert_eq!(reaction, Reaction::Drop(Dropped::Version), "v{version}"),
                    _ => assert_eq!(reaction, Reaction::Drop(Dropped::Mode), "mode {mode}"),
                }
            }
        }
        assert_eq!(react(&request(4, CLIENT).encode()[..47]), Reaction::Drop(Dropped::Short));
        assert_eq!(react(b""), Reaction::Drop(Dropped::Short));
        // Control messages have at least 12 octets (mode 6) or 8 octets (mode 7). Short ones are dropped before their mode
        // is read.
        assert_eq!(react(&[0x16; 12]), Reaction::Drop(Dropped::Short));
        assert_eq!(react(&[0x17; 192]), Reaction::Drop(Dropped::Mode));
    }

    #[test]
    fn a_client_that_asks_too_often_is_warned_once() {
        let mut responder = Responder::default();
        let mut ask = |client: [u8; 4]| {
            responder.react(&request(4, CLIENT).encode(), client.into(), at(10), HOUR, &claim())
        };
        for _ in 0..8 {
            assert!(matches!(ask([10, 0, 0, 1]), Reaction::Answer(_)));
        }
        let Reaction::Warn(reply) = ask([10, 0, 0, 1]) else { panic!("it is warned") };
        let kiss = Packet::parse(&reply.sent_at(at(11))).unwrap();
        assert_eq!((kiss.leap, kiss.stratum, &kiss.reference_id), (Leap::Unknown, 0, b"RATE"));
        assert_eq!((kiss.origin, kiss.poll), (Timestamp(0x1234_5678_9abc_def0), 6));
        assert_eq!(ask([10, 0, 0, 1]), Reaction::Drop(Dropped::Rate));
        assert!(matches!(ask([10, 0, 0, 2]), Reaction::Answer(_)), "another client is not limited by it");
    }

    proptest! {
        #[test]
        fn no_answer_is_longer_than_its_question(datagram in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Reaction::Answer(reply) | Reaction::Warn(reply) = react(&datagram) {
                prop_assert!(reply.sent_at(at(11)).len() <= datagram.len());
            }
        }
    }
}
