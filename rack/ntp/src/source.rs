//! An NTP server, and the measurements from its answers.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::packet::{CLIENT, Leap, Packet, SERVER, UNSYNCHRONISED};
use crate::time::{Now, Timestamp, nanos};

/// The interval of requests.
pub(crate) const INTERVAL: Duration = Duration::from_secs(64);
/// How long an answer counts: eight requests may be lost (RFC 5905 §9.2).
const FRESH: Duration = Duration::from_secs(8 * 64);
/// The number of answers kept. The one with the shortest delay counts, since a packet that waited in a queue gives a
/// wrong offset (§10).
const SAMPLES: usize = 4;
/// The largest error, by the server's own statement, with which it is usable (MAXDIST, §11.2.1).
const MAX_DISTANCE: Duration = Duration::from_secs(1);
/// The interval is doubled at most this often, to 1,024 s, after complaints about the rate.
const MAX_SLOWED: u32 = 4;
/// The error that a clock gains per second: 15 parts per million (PHI, §7.3).
const PHI: f64 = 15e-6;

/// The error that a clock may have gained in this time.
pub(crate) fn drift(age: Duration) -> Duration {
    age.mul_f64(PHI)
}

/// The state of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceState {
    /// The server has not been asked yet.
    New,
    /// Its last answer was usable.
    Answers,
    /// It did not answer.
    Silent,
    /// It cannot be asked: its name has no address, or no packet leaves this host. The text is the reason.
    Unreachable(String),
    /// It says that its own clock must not be used.
    Unsynchronised,
    /// By its own statement its error may be this large.
    Inexact(Duration),
    /// It gets its time from this rack.
    Follower,
    /// It wants to be asked less often (kiss-o'-death RATE).
    Slows,
    /// It does not want to be asked at all (kiss-o'-death, RFC 5905 §7.4). The text is its code.
    Refuses(String),
}

impl fmt::Display for SourceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => f.write_str("has not been asked yet"),
            Self::Answers => f.write_str("answers"),
            Self::Silent => f.write_str("does not answer"),
            Self::Unreachable(why) => write!(f, "cannot be asked: {why}"),
            Self::Unsynchronised => f.write_str("says that its own clock is not synchronised"),
            Self::Inexact(error) => {
                write!(f, "says that its clock may be {:.1} s off", error.as_secs_f64())
            }
            Self::Follower => f.write_str("takes its time from this rack"),
            Self::Slows => f.write_str("wants to be asked less often"),
            Self::Refuses(code) => write!(f, "refuses to answer ({code})"),
        }
    }
}

/// The state of a server, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceReport {
    /// The name or address of the server, as configured.
    pub name: String,
    /// The state of the server.
    pub state: SourceState,
    /// How far it is ahead of this host's clock, in nanoseconds. `None`: it has given no usable answer recently.
    pub offset: Option<i64>,
    /// The round-trip delay.
    pub delay: Option<Duration>,
    /// Its stratum, from its last usable answer.
    pub stratum: Option<u8>,
}

impl fmt::Display for SourceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.state != SourceState::Answers {
            return self.state.fmt(f);
        }
        let (Some(offset), Some(delay), Some(stratum)) = (self.offset, self.delay, self.stratum) else {
            return self.state.fmt(f);
        };
        let seconds = offset.unsigned_abs() as f64 / 1e9;
        let side = if offset > 0 { "ahead of" } else { "behind" };
        match seconds < 1.0 {
            true => write!(f, "{:.1} ms", seconds * 1e3)?,
            false => write!(f, "{seconds:.1} s")?,
        }
        write!(f, " {side} this clock, {:.1} ms away, stratum {stratum}", delay.as_secs_f64() * 1e3)
    }
}

/// A measurement from one answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    /// How far the server is ahead, in nanoseconds.
    offset: i64,
    pub(crate) delay: Duration,
    pub(crate) at: Now,
    pub(crate) address: IpAddr,
    pub(crate) leap: Leap,
    pub(crate) stratum: u8,
    pub(crate) root_delay: Duration,
    pub(crate) root_dispersion: Duration,
}

impl Sample {
    /// How far the server is ahead now, in nanoseconds: corrected for changes of this host's clock since the
    /// measurement.
    pub(crate) fn offset(&self, now: Now) -> i64 {
        self.offset.saturating_sub(now.set_since(self.at))
    }

    /// The largest error of the server's time at this host (root distance, RFC 5905 §11.1).
    pub(crate) fn distance(&self, now: Now) -> Duration {
        (self.root_delay + self.delay) / 2 + self.root_dispersion + drift(now.age(self.at))
    }
}

/// An open request.
#[derive(Debug, Clone, Copy)]
struct Asked {
    nonce: Timestamp,
    address: IpAddr,
    at: Now,
}

/// A server and its recent measurements.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) state: SourceState,
    asked: Option<Asked>,
    samples: VecDeque<Sample>,
    /// The number of requests in a row without a usable answer.
    failures: u32,
    /// The number of complaints about the rate.
    slowed: u32,
}

impl Source {
    pub(crate) fn new(name: String) -> Self {
        let (asked, samples) = (None, VecDeque::new());
        Self { name, state: SourceState::New, asked, samples, failures: 0, slowed: 0 }
    }

    /// Starts a request. It contains nothing about this host: the transmit time is a random number, which the server
    /// sends back.
    pub(crate) fn ask(&mut self, address: IpAddr, nonce: u64, now: Now) -> Packet {
        let nonce = Timestamp(nonce);
        self.asked = Some(Asked { nonce, address, at: now });
        Packet { version: 4, mode: CLIENT, poll: 6, transmit: nonce, ..Packet::default() }
    }

    /// Takes an answer. False: it does not answer the last request, which stays open.
    pub(crate) fn hear(&mut self, answer: &Packet, now: Now, own: &BTreeSet<IpAddr>) -> bool {
        let is_answer = answer.mode == SERVER && answer.version != 0 && !answer.transmit.is_unset();
        let asked = self.asked.filter(|asked| is_answer && asked.nonce == answer.origin);
        let Some(asked) = asked else { return false };
        self.asked = None;
        match measure(answer, &asked, now, own) {
            Ok(sample) => {
                (self.state, self.failures) = (SourceState::Answers, 0);
                self.samples.push_back(sample);
                if self.samples.len() > SAMPLES {
                    self.samples.pop_front();
                }
            }
            Err(state) => {
                if state == SourceState::Slows {
                    self.slowed = (self.slowed + 1).min(MAX_SLOWED);
                } else {
                    // Its earlier answers came from the same clock, so they are not usable either.
                    self.samples.clear();
                }
                self.fail(state);
            }
        }
        true
    }

    /// Notes that the last request got no answer.
    pub(crate) fn fail(&mut self, state: SourceState) {
        (self.asked, self.state) = (None, state);
        self.failures += 1;
    }

    /// The time until it is asked again: 64 s, or, while nothing is known about it, 2 s, doubled after each failure.
    /// `random` varies it by a sixteenth. `None`: the server refused.
    pub(crate) fn wait(&self, random: u8) -> Option<Duration> {
        if matches!(self.state, SourceState::Refuses(_)) {
            return None;
        }
        let usual = INTERVAL * (1 << self.slowed);
        let first = Duration::from_secs(1 << self.failures.min(6));
        let is_unknown = self.failures > 0 && self.samples.is_empty() && self.slowed == 0;
        let wait = if is_unknown { first.min(usual) } else { usual };
        let part = wait / 16;
        Some(wait - part + part * 2 * u32::from(random) / 255)
    }

    /// The measurement that counts now.
    pub(crate) fn best(&self, now: Now) -> Option<&Sample> {
        let fresh = self.samples.iter().filter(|sample| now.age(sample.at) <= FRESH);
        fresh.min_by_key(|sample| sample.delay / 2 + drift(now.age(sample.at)))
    }

    pub(crate) fn report(&self, now: Now) -> SourceReport {
        let best = self.best(now);
        SourceReport {
            name: self.name.clone(),
            state: self.state.clone(),
            offset: best.map(|sample| sample.offset(now)),
            delay: best.map(|sample| sample.delay),
            stratum: best.map(|sample| sample.stratum),
        }
    }
}

/// The measurement from an answer (RFC 5905 §8), or the reason why the answer is not usable.
fn measure(answer: &Packet, asked: &Asked, now: Now, own: &BTreeSet<IpAddr>) -> Result<Sample, SourceState> {
    if answer.stratum == 0 {
        return Err(match &answer.reference_id {
            b"RATE" => SourceState::Slows,
            b"DENY" | b"RSTR" => {
                SourceState::Refuses(String::from_utf8_lossy(&answer.reference_id).into_owned())
            }
            _ => SourceState::Unsynchronised,
        });
    }
    // One more would be unsynchronised.
    if answer.leap == Leap::Unknown || answer.stratum >= UNSYNCHRONISED - 1 || answer.receive.is_unset() {
        return Err(SourceState::Unsynchronised);
    }
    let follows = |address: &IpAddr| answer.stratum > 1 && reference_id(*address) == answer.reference_id;
    if own.contains(&asked.address) || own.iter().any(follows) {
        return Err(SourceState::Follower);
    }
    let away = now.age(asked.at);
    // Without the time that the server took. The wall clock may have been set meanwhile, so the time since boot is
    // used.
    let held = answer.transmit.since(answer.receive).max(0);
    let delay = Duration::from_nanos(u64::try_from(nanos(away).saturating_sub(held)).unwrap_or(0));
    // The middle of the round trip is the same moment for both clocks.
    let offset = answer.transmit.since(now.wall).saturating_add(nanos(delay / 2));
    let sample = Sample {
        offset,
        delay,
        at: now,
        address: asked.address,
        leap: answer.leap,
        stratum: answer.stratum,
        root_delay: answer.root_delay.to_duration(),
        root_dispersion: answer.root_dispersion.to_duration(),
    };
    let distance = sample.distance(now);
    if distance > MAX_DISTANCE { Err(SourceState::Inexact(distance)) } else { Ok(sample) }
}

/// The reference id of a server: its IPv4 address, or the first octets of the MD5 of its IPv6 address (RFC 5905 §7.3).
pub(crate) fn reference_id(address: IpAddr) -> [u8; 4] {
    use md5::Digest;
    match address.to_canonical() {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => {
            let hash: [u8; 16] = md5::Md5::digest(address.octets()).into();
            let [a, b, c, d, ..] = hash;
            [a, b, c, d]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Short;

    const SERVER_ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const NONCE: u64 = 77;

    fn wall(millis: u64) -> Timestamp {
        Timestamp::from_unix(Duration::from_secs(1_800_000_000) + Duration::from_millis(millis))
    }

    /// A moment of a host whose clock is never set.
    fn at(millis: u64) -> Now {
        Now { wall: wall(millis), since_boot: Duration::from_millis(500_000 + millis) }
    }

    /// An answer of a server whose clock is ahead by `ahead` ms, and which took 10 ms.
    fn answer(millis: u64, ahead: u64) -> Packet {
        Packet {
            version: 4,
            mode: SERVER,
            stratum: 2,
            origin: Timestamp(NONCE),
            receive: wall(millis + ahead),
            transmit: wall(millis + ahead + 10),
            root_delay: Short::from_duration(Duration::from_millis(30)),
            root_dispersion: Short::from_duration(Duration::from_millis(20)),
            ..Packet::default()
        }
    }

    fn source() -> Source {
        let mut source = Source::new("ntp.example.com".to_owned());
        let request = source.ask(SERVER_ADDRESS, NONCE, at(0));
        assert_eq!((request.mode, request.version, request.transmit), (CLIENT, 4, Timestamp(NONCE)));
        source
    }

    /// Nanoseconds as milliseconds, rounded.
    fn millis(nanos: i64) -> i64 {
        (nanos + 500_000).div_euclid(1_000_000)
    }

    #[test]
    fn an_answer_measures_offset_and_delay() {
        let mut source = source();
        // 20 ms to the server, 10 ms there, 20 ms back.
        assert!(source.hear(&answer(20, 3_000), at(50), &BTreeSet::new()));
        let best = source.best(at(50)).unwrap();
        assert_eq!((millis(best.offset(at(50))), best.delay.as_millis()), (3_000, 40));
        assert_eq!(best.distance(at(50)).as_millis(), 55, "half of both delays, and the dispersion");
        assert!(source.best(at(513_000)).is_none(), "after eight intervals it counts no more");
    }

    #[test]
    fn a_server_is_described_in_words() {
        let mut source = source();
        assert_eq!(source.report(at(0)).to_string(), "has not been asked yet");
        source.hear(&answer(20, 3_000), at(50), &BTreeSet::new());
        let words = source.report(at(50)).to_string();
        assert_eq!(words, "3.0 s ahead of this clock, 40.0 ms away, stratum 2");
        let set = Now { wall: wall(3_090), since_boot: at(50).since_boot };
        let words = source.report(set).to_string();
        assert_eq!(words, "40.0 ms behind this clock, 40.0 ms away, stratum 2");
        source.fail(SourceState::Silent);
        assert_eq!(source.report(at(50)).to_string(), "does not answer");
    }

    #[test]
    fn a_clock_that_is_set_after_the_answer_is_off_by_that() {
        let mut source = source();
        source.hear(&answer(20, 0), at(50), &BTreeSet::new());
        let set_forward = Now { wall: wall(15_000), since_boot: at(10_000).since_boot };
        let best = source.best(set_forward).unwrap();
        assert_eq!(millis(best.offset(set_forward)), -5_000);
    }

    #[test]
    fn only_the_answer_to_the_last_request_counts_and_once() {
        let mut source = source();
        let good = answer(20, 0);
        for stray in [
            Packet { origin: Timestamp(NONCE + 1), ..good },
            Packet { mode: CLIENT, ..good },
            Packet { transmit: Timestamp(0), ..good },
        ] {
            assert!(!source.hear(&stray, at(50), &BTreeSet::new()), "{stray:?}");
        }
        assert!(source.hear(&good, at(50), &BTreeSet::new()));
        assert!(!source.hear(&good, at(50), &BTreeSet::new()), "it was sent again");
    }

    #[test]
    fn answers_that_are_of_no_use_say_why() {
        let good = answer(20, 0);
        let kiss = |code: &[u8; 4]| Packet { stratum: 0, leap: Leap::Unknown, reference_id: *code, ..good };
        let own = IpAddr::from([10, 77, 0, 2]);
        for (answer, expected) in [
            (Packet { leap: Leap::Unknown, ..good }, SourceState::Unsynchronised),
            (Packet { stratum: 16, ..good }, SourceState::Unsynchronised),
            (kiss(b"INIT"), SourceState::Unsynchronised),
            (kiss(b"RATE"), SourceState::Slows),
            (kiss(b"DENY"), SourceState::Refuses("DENY".to_owned())),
            (Packet { reference_id: [10, 77, 0, 2], ..good }, SourceState::Follower),
        ] {
            let mut source = source();
            assert!(source.hear(&answer, at(50), &BTreeSet::from([own])));
            assert_eq!(source.state, expected);
            assert!(source.best(at(50)).is_none());
        }
        let mut source = source();
        source.hear(&Packet { root_dispersion: Short(2 << 16), ..good }, at(50), &BTreeSet::new());
        assert_eq!(source.state.to_string(), "says that its clock may be 2.0 s off");
        let mut source = self::source();
        source.hear(&good, at(50), &BTreeSet::from([SERVER_ADDRESS]));
        assert_eq!(source.state, SourceState::Follower, "this rack asked itself");
    }

    #[test]
    fn the_answer_with_the_shortest_way_counts() {
        let mut source = source();
        source.hear(&answer(20, 0), at(50), &BTreeSet::new());
        source.ask(SERVER_ADDRESS, NONCE, at(64_000));
        // The answer waited for half a second on its way back.
        source.hear(&answer(64_020, 0), at(64_530), &BTreeSet::new());
        let best = source.best(at(64_530)).unwrap();
        assert_eq!((millis(best.offset(at(64_530))), best.delay.as_millis()), (0, 40));
    }

    #[test]
    fn a_server_is_asked_soon_while_nothing_is_known_and_less_often_when_it_complains() {
        let mut source = source();
        let seconds = |source: &Source| source.wait(128).map(|wait| wait.as_secs_f64().round());
        for expected in [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0] {
            source.fail(SourceState::Silent);
            assert_eq!(seconds(&source), Some(expected));
        }
        let hear = |source: &mut Source, packet: Packet| {
            source.ask(SERVER_ADDRESS, NONCE, at(0));
            source.hear(&packet, at(50), &BTreeSet::new());
        };
        hear(&mut source, answer(20, 0));
        assert_eq!(seconds(&source), Some(64.0));
        let edges = [0, 255].map(|random| source.wait(random).map(|wait| wait.as_secs()));
        assert_eq!(edges, [Some(60), Some(68)]);
        source.fail(SourceState::Silent);
        assert_eq!(seconds(&source), Some(64.0), "it has answered before");
        let kiss = |code: &[u8; 4]| Packet { stratum: 0, reference_id: *code, ..answer(20, 0) };
        for expected in [128.0, 256.0, 512.0, 1024.0, 1024.0] {
            hear(&mut source, kiss(b"RATE"));
            assert_eq!(seconds(&source), Some(expected));
        }
        assert!(source.best(at(60)).is_some(), "what it said before still counts");
        hear(&mut source, kiss(b"RSTR"));
        assert_eq!(seconds(&source), None);
    }

    #[test]
    fn servers_are_named_as_the_standard_names_them() {
        assert_eq!(reference_id([192, 0, 2, 1].into()), [192, 0, 2, 1]);
        assert_eq!(reference_id("::ffff:192.0.2.1".parse().unwrap()), [192, 0, 2, 1]);
        // echo 20010db8000000000000000000000001 | xxd -r -p | md5sum
        assert_eq!(reference_id("2001:db8::1".parse().unwrap()), [0x39, 0xab, 0x9b, 0x37]);
    }
}
