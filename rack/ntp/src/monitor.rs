//! Compares this host's clock with NTP servers, and decides what clients may be told about it.
//!
//! The median of the answering servers counts if more than half of them agree with it. Otherwise the last such median
//! still counts, with a growing error, since this host's clock may have drifted.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::packet::{LENGTH, Leap, Packet, UNSYNCHRONISED};
use crate::source::{Sample, Source, SourceReport, SourceState, drift, reference_id};
use crate::time::{Now, Timestamp, nanos};

/// A clock with a smaller offset, in nanoseconds, is synchronised (STEPT, RFC 5905 §11.3).
const SYNCED: i64 = 128_000_000;
/// A clock with a larger offset, in nanoseconds, must not be used.
const BAD: i64 = 1_000_000_000;
/// Servers agree if they differ by less than this, in nanoseconds, plus half of each one's delay.
const AGREE: i64 = SYNCED;
/// The stratum of a clock without servers; the rank of the rack is added.
const ADRIFT: u8 = 10;
/// The highest rank: stratum 14. A client's stratum is one more, and 16 means unsynchronised.
const MAX_RANK: u32 = 4;
/// The reference id of a clock without servers: the host's own clock, as ntpd names it.
const LOCAL: [u8; 4] = [127, 127, 1, 1];
/// The error of a clock that was never compared with a server.
const UNMEASURED: Duration = Duration::from_millis(10);
/// The limit for the growing error. Clients reject a server with an error over 1.5 s (ntpd), 3 s (chrony) or 5 s
/// (systemd-timesyncd), but even a site without any server needs one common time for its machines.
const MAX_GROWTH: Duration = Duration::from_secs(1);

/// The properties of the clock that clients are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The leap indicator; [`Leap::Unknown`] means that the clock must not be used.
    pub leap: Leap,
    /// The number of servers between the clock and its reference.
    pub stratum: u8,
    /// The precision of the clock, as a power of two of seconds.
    pub precision: i8,
    /// The round-trip delay to the reference clock.
    pub root_delay: Duration,
    /// The error of the clock.
    pub root_dispersion: Duration,
    /// The server that the clock was compared with.
    pub reference_id: [u8; 4],
    /// The time of that comparison.
    pub reference: Timestamp,
}

impl Claim {
    /// The same claim, with the mark that the clock must not be used.
    const fn refused(self) -> Self {
        Self { leap: Leap::Unknown, stratum: UNSYNCHRONISED, reference_id: [0; 4], ..self }
    }
}

/// The state of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The clock agrees with the servers.
    Synced,
    /// The error is unknown, or larger than that of a synchronised clock.
    Adrift,
    /// The clock is more than a second off.
    Bad,
}

impl State {
    /// The name of the state.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::Adrift => "adrift",
            Self::Bad => "bad",
        }
    }
}

/// The reason why the servers do not confirm the clock.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Lack {
    NoServer,
    NoAnswer(String),
    Disagree(String),
}

/// The state of the clock, and the claim for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The state of the clock.
    pub state: State,
    /// The claim that clients are sent.
    pub claim: Claim,
    /// How far the servers are ahead, in nanoseconds, by the last median that counted.
    pub offset: Option<i64>,
    /// The server in the claim, and the reason why the others do not confirm the clock.
    named: Option<String>,
    lack: Option<Lack>,
}

impl Report {
    /// The problem of the clock, as text; `None`: it has none. Numbers are rounded, so that the text changes rarely.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        (self.state != State::Synced).then(|| self.to_string())
    }

    /// Treats an unconfirmed clock as bad: another source says that it is wrong.
    pub fn distrust(&mut self) {
        if self.state == State::Adrift {
            self.state = State::Bad;
            self.claim = self.claim.refused();
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_off = |offset: i64| offset.saturating_abs() >= BAD;
        if let (Some(offset), Some(named)) = (self.offset, &self.named)
            && (self.lack.is_none() || is_off(offset))
        {
            let apart = apart(offset, named);
            return match self.state {
                State::Synced => write!(f, "clock agrees with {named}"),
                State::Adrift => write!(f, "clock is {apart}"),
                State::Bad => write!(
                    f,
                    "clock is {apart}: clients are told not to use it; have NTP set the clock of this host"
                ),
            };
        }
        match &self.lack {
            Some(Lack::NoAnswer(why)) => write!(f, "no NTP server vouches for this clock: {why}"),
            Some(Lack::Disagree(what)) => {
                write!(f, "NTP servers disagree, and no majority vouches for this clock: it is {what}")
            }
            Some(Lack::NoServer) | None => f.write_str(
                "no NTP server is known to compare this clock with: name some in ntp_servers of Settings",
            ),
        }
    }
}

/// A median that counted, and its time.
#[derive(Debug, Clone)]
struct Measured {
    at: Now,
    /// How far the servers were ahead, in nanoseconds.
    offset: i64,
    /// The name of the best server.
    name: String,
    sample: Sample,
}

impl Measured {
    fn offset(&self, now: Now) -> i64 {
        self.offset.saturating_sub(now.set_since(self.at))
    }
}

/// The servers, and their answers.
#[derive(Debug)]
pub struct Monitor {
    started: Now,
    precision: i8,
    /// The rank of this rack among racks without servers.
    rank: u32,
    sources: Vec<Source>,
    own: BTreeSet<IpAddr>,
    last: Option<Measured>,
}

impl Monitor {
    /// A monitor without servers. `precision` is that of the clock ([`precision`](crate::time::precision)).
    #[must_use]
    pub const fn new(precision: i8, now: Now) -> Self {
        Self { started: now, precision, rank: 0, sources: Vec::new(), own: BTreeSet::new(), last: None }
    }

    /// Sets the servers. A server that stays keeps its measurements. Without servers, racks of different `rank` claim
    /// different strata, so that clients of several racks agree on one of them.
    pub fn set_sources(&mut self, names: &[String], rank: u32) {
        let mut before = std::mem::take(&mut self.sources);
        for name in names {
            if self.sources.iter().any(|source| source.name == *name) {
                continue;
            }
            let known = before.iter().position(|source| source.name == *name);
            let source = known.map(|at| before.swap_remove(at));
            self.sources.push(source.unwrap_or_else(|| Source::new(name.clone())));
        }
        self.rank = rank;
        let is_known = |measured: &Measured| self.sources.iter().any(|it| it.name == measured.name);
        self.last = self.last.take().filter(is_known);
    }

    /// Sets the addresses at which this rack answers. Time that comes from itself, directly or through another server,
    /// is refused.
    pub fn set_own(&mut self, own: BTreeSet<IpAddr>) {
        self.own = own;
    }

    /// Starts a request to a server at this address. `None`: the server was removed.
    pub fn ask(&mut self, name: &str, address: IpAddr, nonce: u64, now: Now) -> Option<[u8; LENGTH]> {
        Some(self.source(name)?.ask(address, nonce, now).encode())
    }

    /// Takes a datagram of a server, which arrived at `now`. False: it does not answer the last request, which stays
    /// open.
    pub fn hear(&mut self, name: &str, datagram: &[u8], now: Now) -> bool {
        let Ok(answer) = Packet::parse(datagram) else { return false };
        let own = std::mem::take(&mut self.own);
        let heard = self.source(name).is_some_and(|source| source.hear(&answer, now, &own));
        self.own = own;
        if heard && let Ok(measured) = self.median(now) {
            self.last = Some(measured);
        }
        heard
    }

    /// Notes that a server did not answer the last request, or could not be asked: [`SourceState::Silent`] or
    /// [`SourceState::Unreachable`].
    pub fn fail(&mut self, name: &str, state: SourceState) {
        if let Some(source) = self.source(name) {
            source.fail(state);
        }
    }

    /// The time until a server is asked again; `random` varies it by a sixteenth. `None`: it is not asked any more.
    pub fn wait(&mut self, name: &str, random: u8) -> Option<Duration> {
        self.source(name)?.wait(random)
    }

    /// The states of the servers, for people.
    #[must_use]
    pub fn sources(&self, now: Now) -> Vec<SourceReport> {
        self.sources.iter().map(|source| source.report(now)).collect()
    }

    /// The state of the clock.
    #[must_use]
    pub fn report(&self, now: Now) -> Report {
        let (measured, lack) = match self.median(now) {
            Ok(measured) => (Some(measured), None),
            Err(lack) => (self.last.clone(), Some(lack)),
        };
        let offset = measured.as_ref().map(|it| it.offset(now));
        let off = offset.map_or(0, |it| it.saturating_abs());
        let state = match (off, &lack) {
            (BAD.., _) => State::Bad,
            (..SYNCED, None) => State::Synced,
            _ => State::Adrift,
        };
        let claim = match &measured {
            Some(measured) => self.claim(state, measured, off, now),
            None => self.unmeasured(now),
        };
        Report { state, claim, offset, named: measured.map(|it| it.name), lack }
    }

    fn claim(&self, state: State, measured: &Measured, off: i64, now: Now) -> Claim {
        let sample = &measured.sample;
        let off = Duration::from_nanos(off.unsigned_abs());
        let growth = drift(now.age(sample.at)).min(MAX_GROWTH);
        let synced = Claim {
            leap: sample.leap,
            stratum: sample.stratum.saturating_add(1),
            precision: self.precision,
            root_delay: sample.root_delay + sample.delay,
            root_dispersion: sample.root_dispersion + off + growth,
            reference_id: reference_id(sample.address),
            reference: sample.at.wall,
        };
        match state {
            State::Synced => synced,
            State::Adrift => {
                Claim { leap: Leap::None, stratum: self.stratum(), reference_id: LOCAL, ..synced }
            }
            State::Bad => synced.refused(),
        }
    }

    fn unmeasured(&self, now: Now) -> Claim {
        Claim {
            leap: Leap::None,
            stratum: self.stratum(),
            precision: self.precision,
            root_delay: Duration::ZERO,
            root_dispersion: UNMEASURED + drift(now.age(self.started)).min(MAX_GROWTH),
            reference_id: LOCAL,
            // A reference time of zero would mean that the clock was never set.
            reference: now.wall,
        }
    }

    fn stratum(&self) -> u8 {
        ADRIFT.saturating_add(u8::try_from(self.rank.min(MAX_RANK)).unwrap_or(0))
    }

    /// The median of the answering servers, if more than half of them agree with it.
    fn median(&self, now: Now) -> Result<Measured, Lack> {
        if self.sources.is_empty() {
            return Err(Lack::NoServer);
        }
        let answers = self.sources.iter().filter_map(|source| Some((source, source.best(now)?)));
        let mut answers: Vec<_> = answers.collect();
        answers.sort_by_key(|(_, sample)| sample.offset(now));
        // Every majority contains the middle one, since its offsets are adjacent.
        let Some((_, middle)) = middle(&answers) else { return Err(Lack::NoAnswer(self.silence())) };
        let agree = |sample: &Sample| {
            let apart = (sample.offset(now).saturating_sub(middle.offset(now))).saturating_abs();
            apart <= AGREE.saturating_add(nanos((sample.delay + middle.delay) / 2))
        };
        let majority: Vec<_> = answers.iter().filter(|(_, sample)| agree(sample)).copied().collect();
        if majority.len() * 2 <= answers.len() {
            return Err(Lack::Disagree(told(&answers, now)));
        }
        let best = majority.iter().min_by_key(|(_, sample)| (sample.stratum, sample.distance(now)));
        match (self::middle(&majority), best) {
            (Some((_, median)), Some((source, sample))) => Ok(Measured {
                at: now,
                offset: median.offset(now),
                name: source.name.clone(),
                sample: **sample,
            }),
            _ => Err(Lack::NoAnswer(self.silence())),
        }
    }

    /// The states of the servers, if none of them answers.
    fn silence(&self) -> String {
        let each = self.sources.iter().map(|source| format!("{} {}", source.name, source.state));
        each.collect::<Vec<_>>().join("; ")
    }

    fn source(&mut self, name: &str) -> Option<&mut Source> {
        self.sources.iter_mut().find(|source| source.name == name)
    }
}

/// The lower median.
fn middle<T>(sorted: &[T]) -> Option<&T> {
    sorted.get(sorted.len().saturating_sub(1) / 2)
}

/// The difference between this clock and a server that is `offset` nanoseconds ahead, as text.
fn apart(offset: i64, server: &str) -> String {
    let seconds = offset.unsigned_abs() as f64 / 1e9;
    let side = if offset > 0 { "behind" } else { "ahead of" };
    let digits = if seconds < 100.0 { 1 } else { 0 };
    format!("{seconds:.digits$} s {side} {server}")
}

/// The differences between this clock and each server, as text.
fn told(answers: &[(&Source, &Sample)], now: Now) -> String {
    let each = answers.iter().map(|(source, sample)| apart(sample.offset(now), &source.name));
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::SERVER;
    use crate::time::Short;

    fn wall(millis: u64) -> Timestamp {
        Timestamp::from_unix(Duration::from_secs(1_800_000_000) + Duration::from_millis(millis))
    }

    fn at(millis: u64) -> Now {
        Now { wall: wall(millis), since_boot: Duration::from_millis(500_000 + millis) }
    }

    fn monitor(names: &[&str]) -> Monitor {
        let mut monitor = Monitor::new(-23, at(0));
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        monitor.set_sources(&names, 0);
        monitor
    }

    fn address(name: &str) -> IpAddr {
        [192, 0, 2, name.as_bytes()[0]].into()
    }

    /// A server answers within 20 ms, with a time that is ahead by this many milliseconds.
    fn answer(monitor: &mut Monitor, name: &str, millis: u64, ahead: i64) {
        answer_at(monitor, name, millis, ahead, 2);
    }

    fn answer_at(monitor: &mut Monitor, name: &str, millis: u64, ahead: i64, stratum: u8) {
        monitor.ask(name, address(name), 7, at(millis)).unwrap();
        let there = wall((millis + 10).checked_add_signed(ahead).unwrap());
        let answer = Packet {
            version: 4,
            mode: SERVER,
            stratum,
            leap: Leap::Inserted,
            origin: Timestamp(7),
            receive: there,
            transmit: there,
            root_delay: Short::from_duration(Duration::from_millis(30)),
            root_dispersion: Short::from_duration(Duration::from_millis(5)),
            ..Packet::default()
        };
        assert!(monitor.hear(name, &answer.encode(), at(millis + 20)), "{name}");
    }

    fn ms(span: Duration) -> u128 {
        (span.as_micros() + 500) / 1000
    }

    #[test]
    fn the_state_follows_the_median_of_the_answering_majority() {
        // The offsets of the servers in ms; then the state, the claimed stratum, and the median.
        let cases: [(&[i64], State, u8, Option<i64>); 13] = [
            (&[], State::Adrift, 10, None),
            (&[3], State::Synced, 3, Some(3)),
            (&[-127], State::Synced, 3, Some(-127)),
            (&[129], State::Adrift, 10, Some(129)),
            (&[999], State::Adrift, 10, Some(999)),
            (&[1_001], State::Bad, 16, Some(1_001)),
            (&[-86_400_000], State::Bad, 16, Some(-86_400_000)),
            (&[0, 5], State::Synced, 3, Some(0)),
            (&[0, 5_000], State::Adrift, 10, None),
            (&[0, 5, 5_000], State::Synced, 3, Some(0)),
            (&[0, 5_000, 5_010], State::Bad, 16, Some(5_000)),
            (&[0, 5, 5_000, 5_010], State::Adrift, 10, None),
            (&[-900_000, 0, 4, 5_000], State::Adrift, 10, None),
        ];
        for (offsets, state, stratum, median) in cases {
            let names: Vec<String> =
                (b'a'..).take(offsets.len()).map(|it| (it as char).to_string()).collect();
            let mut monitor = monitor(&names.iter().map(String::as_str).collect::<Vec<_>>());
            for (name, ahead) in names.iter().zip(offsets) {
                answer(&mut monitor, name, 90_000_000, *ahead);
            }
            // The median of the first answers only must not count.
            monitor.last = None;
            let report = monitor.report(at(90_000_020));
            let offset = report.offset.map(|it| (it + 500_000).div_euclid(1_000_000));
            assert_eq!((report.state, report.claim.stratum, offset), (state, stratum, median), "{offsets:?}");
            let unusable = report.claim.leap == Leap::Unknown;
            assert_eq!(unusable, state == State::Bad, "{offsets:?}");
        }
    }

    #[test]
    fn a_synchronised_clock_claims_what_was_measured() {
        let mut monitor = monitor(&["a", "b"]);
        answer_at(&mut monitor, "a", 1_000, 10, 3);
        answer_at(&mut monitor, "b", 1_000, 12, 1);
        let Report { state, claim, .. } = monitor.report(at(101_020));
        assert_eq!(state, State::Synced);
        assert_eq!((claim.stratum, claim.leap, claim.precision), (2, Leap::Inserted, -23));
        assert_eq!((claim.reference_id, claim.reference), ([192, 0, 2, b'b'], wall(1_020)));
        assert_eq!(ms(claim.root_delay), 50, "the server's, and the way to it");
        // The server's 5 ms, 10 ms of offset, and 15 parts per million of 100 s.
        assert_eq!(claim.root_dispersion.as_micros() / 100, 165);
    }

    #[test]
    fn a_clock_without_servers_is_adrift_by_rank_and_its_error_grows_to_a_second() {
        let mut monitor = monitor(&[]);
        for (rank, stratum) in [(0, 10), (1, 11), (4, 14), (900, 14)] {
            monitor.set_sources(&[], rank);
            assert_eq!(monitor.report(at(0)).claim.stratum, stratum);
        }
        for (hours, dispersion) in [(0, 10), (1, 64), (10, 550), (10_000, 1_010)] {
            let Report { state, claim, .. } = monitor.report(at(hours * 3_600_000));
            assert_eq!((state, ms(claim.root_dispersion)), (State::Adrift, dispersion), "{hours} h");
            assert_eq!((claim.leap, claim.reference_id), (Leap::None, [127, 127, 1, 1]));
        }
        let problem = monitor.report(at(0)).problem().unwrap();
        assert!(problem.contains("ntp_servers of Settings"), "{problem}");
    }

    #[test]
    fn a_clock_whose_servers_fall_silent_is_adrift_from_the_last_median_on() {
        let mut monitor = monitor(&["a"]);
        answer(&mut monitor, "a", 1_000, 40);
        assert_eq!(monitor.report(at(500_000)).state, State::Synced);
        monitor.fail("a", SourceState::Silent);
        let report = monitor.report(at(601_020));
        assert_eq!((report.state, report.claim.stratum), (State::Adrift, 10));
        assert_eq!(ms(report.claim.root_dispersion), 54, "5 + 40 + 9 ms");
        let problem = report.problem().unwrap();
        assert_eq!(problem, "no NTP server vouches for this clock: a does not answer");
    }

    #[test]
    fn a_bad_clock_stays_bad_until_a_server_or_a_step_says_otherwise() {
        let mut monitor = monitor(&["a"]);
        answer(&mut monitor, "a", 90_000, -5_000);
        monitor.fail("a", SourceState::Silent);
        let later = at(3_600_000);
        assert_eq!(monitor.report(later).state, State::Bad);
        // The host's clock is set back by five seconds.
        let set = Now { wall: wall(3_595_000), ..later };
        let report = monitor.report(set);
        assert_eq!((report.state, report.offset.map(|it| it.abs() < 1_000_000)), (State::Adrift, Some(true)));
        monitor.set_sources(&["b".to_owned()], 0);
        assert_eq!(monitor.report(later).state, State::Adrift, "another server has not spoken yet");
    }

    #[test]
    fn another_witness_counts_where_no_server_vouches_for_the_clock() {
        let mut monitor = monitor(&["a"]);
        let mut report = monitor.report(at(0));
        report.distrust();
        assert_eq!((report.state, report.claim.leap), (State::Bad, Leap::Unknown));
        assert!(report.to_string().starts_with("no NTP server vouches for this clock: "), "{report}");
        answer(&mut monitor, "a", 1_000, 0);
        let mut report = monitor.report(at(2_000));
        report.distrust();
        assert_eq!(report.state, State::Synced);
    }

    #[test]
    fn a_clock_that_is_set_wrong_is_bad_at_once() {
        let mut monitor = monitor(&["a"]);
        answer(&mut monitor, "a", 1_000, 0);
        assert_eq!(monitor.report(at(2_000)).state, State::Synced);
        let set = Now { wall: wall(6_000), since_boot: at(3_000).since_boot };
        let report = monitor.report(set);
        assert_eq!(report.state, State::Bad);
        let problem = report.problem().unwrap();
        assert!(
            problem.starts_with("clock is 3.0 s ahead of a: clients are told not to use it"),
            "{problem}"
        );
    }

    #[test]
    fn people_are_told_in_words() {
        let told = |offsets: &[(&str, i64)]| {
            let mut monitor = monitor(&offsets.iter().map(|(name, _)| *name).collect::<Vec<_>>());
            for (name, ahead) in offsets {
                answer(&mut monitor, name, 100_000, *ahead);
            }
            monitor.last = None;
            monitor.report(at(100_020)).to_string()
        };
        assert_eq!(told(&[("a", 12)]), "clock agrees with a");
        assert_eq!(told(&[("a", 640)]), "clock is 0.6 s behind a");
        assert!(told(&[("a", 7_200_000)]).starts_with("clock is 7200 s behind a: "));
        assert_eq!(
            told(&[("a", 7_000), ("b", -5_000)]),
            "NTP servers disagree, and no majority vouches for this clock: it is 5.0 s ahead of b, 7.0 s behind a"
        );
    }

    #[test]
    fn servers_that_stay_keep_what_is_known_of_them() {
        let mut monitor = monitor(&["a", "b"]);
        answer(&mut monitor, "a", 1_000, 0);
        monitor.set_sources(&["c".to_owned(), "a".to_owned(), "a".to_owned()], 0);
        let sources = monitor.sources(at(1_020));
        let names: Vec<_> = sources.iter().map(|it| (it.name.as_str(), &it.state, it.stratum)).collect();
        assert_eq!(names, [("c", &SourceState::New, None), ("a", &SourceState::Answers, Some(2))]);
        assert_eq!(monitor.report(at(1_020)).state, State::Synced);
        assert_eq!(monitor.ask("b", address("b"), 1, at(0)), None);
        assert_eq!(monitor.wait("b", 0), None);
    }
}
