//! Notifies secondaries of changed zones (RFC 1996), and checks that they copy them.
//!
//! There is a task for each secondary and zone. It sends NOTIFY a second after a change, and again until it is
//! acknowledged. Then it asks the secondary for its serial until that is the zone's. From then on it asks now and then;
//! a secondary that is behind is notified again.
//!
//! A secondary is silent after five tries without an answer. Changes of the zone do not begin the count again, so a zone
//! that changes all the time hides no silent secondary. A silent secondary gets one short try for each zone; its first
//! answer wakes the tasks of its other zones.
//!
//! Messages come from the address at which the secondary asks this rack. It is the secondary's primary: some servers
//! accept no NOTIFY from other addresses, even with the key.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use basalt_dns::{Asked, Name, TsigKey, is_newer};
use basalt_proto::SECONDARY;
use tokio::net::UdpSocket;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::forward::exchange::random;
use super::sources::Sources;
use super::unix;
use super::zones::Copy;
use crate::facts::{SecondaryReport, remark, secondary};
use crate::spool::writer::Facts;

/// The waits and intervals.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Changes within this time are notified together.
    coalesce: Duration,
    /// The wait for an answer, try by try (RFC 1996 §3.6).
    patience: [Duration; 5],
    /// The wait for an answer of a silent secondary.
    short: Duration,
    /// Pauses before a secondary that has acknowledged is asked for its serial.
    copying: [Duration; 6],
    /// How often a secondary is checked while its zone does not change.
    look: Duration,
    /// A serial alone is reported no more often than this.
    tell: Duration,
}

const PACE: Pace = Pace {
    coalesce: Duration::from_secs(1),
    patience: [
        Duration::from_secs(1),
        Duration::from_secs(2),
        Duration::from_secs(4),
        Duration::from_secs(8),
        Duration::from_secs(15),
    ],
    short: Duration::from_secs(2),
    copying: [
        Duration::from_millis(500),
        Duration::from_secs(1),
        Duration::from_secs(2),
        Duration::from_secs(4),
        Duration::from_secs(8),
        Duration::from_secs(15),
    ],
    look: Duration::from_secs(300),
    tell: Duration::from_secs(60),
};
/// The most questions to one secondary at once. A silent secondary does not delay others.
const AT_ONCE: usize = 8;
/// The most datagrams read while waiting for an answer. Others are guesses of strangers.
const MAX_GUESSES: usize = 16;
/// The message about a secondary that is not behind.
const HOLDS: &str = "it holds the zones as they are";
/// The longest answer that is read, in bytes.
const DATAGRAM: usize = 4096;

/// The tasks of all secondaries.
#[derive(Debug)]
pub(super) struct Notifier {
    servers: Mutex<HashMap<String, Server>>,
    sources: Arc<Sources>,
    facts: Facts,
    pace: Pace,
}

/// A secondary with the tasks of its zones.
#[derive(Debug)]
struct Server {
    state: Arc<State>,
    zones: HashMap<Name, Told>,
}

/// The task of one zone of one secondary.
#[derive(Debug)]
struct Told {
    copy: watch::Sender<Copy>,
    task: JoinHandle<()>,
}

impl Drop for Told {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Notifier {
    pub(super) fn new(facts: Facts) -> Self {
        Self { servers: Mutex::default(), sources: Arc::default(), facts, pace: PACE }
    }

    /// Notes that a secondary asked for a zone at one of this rack's addresses.
    pub(super) fn asked(&self, secondary: IpAddr, at: IpAddr) {
        self.sources.asked(secondary, at);
    }

    /// Sets the copies whose changes are notified. `served`: the addresses at which this rack answers.
    pub(super) fn keep(&self, copies: &[Copy], served: &BTreeSet<IpAddr>) {
        self.sources.keep(served, copies.iter().map(|copy| copy.secondary.at.ip()).collect());
        let mut by_server: BTreeMap<&str, Vec<&Copy>> = BTreeMap::new();
        for copy in copies {
            by_server.entry(&copy.server).or_default().push(copy);
        }
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *servers);
        for (name, copies) in by_server {
            let new = || Server {
                state: Arc::new(State::new(name, Arc::clone(&self.sources), self.facts.clone(), self.pace)),
                zones: HashMap::new(),
            };
            let Server { state, mut zones } = before.remove(name).unwrap_or_else(new);
            // Before any task can report about a zone.
            state.hold(copies.iter().map(|copy| copy.origin.clone()).collect());
            let told = copies.into_iter().map(|copy| {
                let told = zones.remove(&copy.origin).unwrap_or_else(|| Self::begin(copy, &state));
                told.copy.send_if_modified(|current| {
                    let is_new = current.serial != copy.serial || current.secondary != copy.secondary;
                    current.clone_from(copy);
                    is_new
                });
                (copy.origin.clone(), told)
            });
            let zones = told.collect();
            servers.insert(name.to_owned(), Server { state, zones });
        }
        for gone in before.into_values() {
            gone.state.hold(BTreeSet::new());
        }
    }

    /// Begins the task of one zone of one secondary.
    fn begin(copy: &Copy, state: &Arc<State>) -> Told {
        let (sender, receiver) = watch::channel(copy.clone());
        let task = tokio::spawn(follow(receiver, Arc::clone(state)));
        Told { copy: sender, task }
    }
}

/// The state of one copy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    /// The serial of the copy, if the secondary told it.
    serial: Option<u32>,
    /// The reason why the secondary does not hold the zone as it is.
    problem: Option<String>,
}

/// The states of one secondary's copies, and the last report about it.
#[derive(Debug)]
struct State {
    server: String,
    sources: Arc<Sources>,
    facts: Facts,
    pace: Pace,
    places: Semaphore,
    zones: Mutex<Zones>,
    answers: Mutex<Answers>,
    /// Wakes the tasks of the zones when a silent secondary answers.
    revived: Notify,
}

/// The answers of one secondary.
#[derive(Debug, Default)]
struct Answers {
    last: Option<Instant>,
    is_silent: bool,
}

#[derive(Debug, Default)]
struct Zones {
    /// The zones that it copies, and the state of each copy. `None`: not checked yet.
    copies: BTreeMap<Name, Option<Seen>>,
    told: Option<(Seen, Instant)>,
}

impl Zones {
    /// The report for all zones. `None`: some of them are not checked yet, and the others are current.
    fn word(&self) -> Option<Seen> {
        let mut behind =
            self.copies.iter().filter_map(|(zone, copy)| Some((zone, copy.as_ref()?.problem.as_ref()?)));
        let first = behind.next();
        if first.is_none() && self.copies.values().any(Option::is_none) {
            return None;
        }
        let others = if behind.next().is_some() { "; other zones are behind as well" } else { "" };
        // Several zones have no common serial.
        let mut copies = self.copies.values();
        let only = copies.next().filter(|_| copies.next().is_none());
        let serial = only.and_then(|copy| copy.as_ref()?.serial);
        let problem = first.map(|(zone, why)| match self.copies.len() {
            1 => why.clone(),
            _ => format!("zone {}: {why}{others}", zone.to_ascii().trim_end_matches('.')),
        });
        Some(Seen { serial, problem })
    }
}

impl State {
    fn new(server: &str, sources: Arc<Sources>, facts: Facts, pace: Pace) -> Self {
        Self {
            server: server.to_owned(),
            sources,
            facts,
            pace,
            places: Semaphore::new(AT_ONCE),
            zones: Mutex::default(),
            answers: Mutex::default(),
            revived: Notify::new(),
        }
    }

    /// Notes that the secondary answered, even if it refused.
    fn heard(&self) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.last = Some(Instant::now());
        if std::mem::take(&mut answers.is_silent) {
            self.revived.notify_waiters();
        }
    }

    fn set_silent(&self) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).is_silent = true;
    }

    fn is_silent(&self) -> bool {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).is_silent
    }

    /// The time since its last answer; zero while it answers.
    fn since_answer(&self) -> Option<Duration> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.last.map(|last| if answers.is_silent { last.elapsed() } else { Duration::ZERO })
    }

    /// Sets the zones that the secondary copies. If there are none, the reports about it are withdrawn.
    fn hold(&self, zones: BTreeSet<Name>) {
        self.change(|before| {
            let kept = |zone: Name| {
                let copy = before.copies.remove(&zone).flatten();
                (zone, copy)
            };
            before.copies = zones.into_iter().map(kept).collect();
        });
    }

    /// Notes the state of a zone's copy. A task of a zone that is no longer copied may end late.
    fn note(&self, zone: &Name, state: Seen) {
        self.change(|zones| {
            if let Some(copy) = zones.copies.get_mut(zone) {
                *copy = Some(state);
            }
        });
    }

    /// Reports about the secondary if its state has changed. Another serial alone is reported after a pause: facts must
    /// not grow with the changes of a zone.
    fn change(&self, change: impl FnOnce(&mut Zones)) {
        let mut zones = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut zones);
        let service = format!("{SECONDARY}{}", self.server);
        if zones.copies.is_empty() {
            if zones.told.take().is_some() {
                self.facts.tell(remark(&service, ""));
            }
            return;
        }
        let Some(word) = zones.word() else { return };
        let is_news = zones.told.as_ref().is_none_or(|(told, at)| {
            told.problem != word.problem || (told.serial != word.serial && at.elapsed() >= self.pace.tell)
        });
        if !is_news {
            return;
        }
        if let Some(problem) = &word.problem {
            tracing::warn!(service, problem, "a secondary is behind; it is told again");
        }
        self.facts.tell(secondary(&SecondaryReport {
            service: &service,
            problem: word.problem.as_deref(),
            holds: HOLDS,
            serial: word.serial,
            since_answer: self.since_answer(),
        }));
        zones.told = Some((word, Instant::now()));
    }
}

/// The reason why a question has no usable answer.
#[derive(Debug)]
enum Miss {
    /// There is a newer version of the zone, or another address or key of the secondary.
    Changed,
    /// The secondary did not answer, with the reason as text.
    Silent(String),
    /// The secondary refused, with the reason as text.
    Refused(String),
    /// The secondary holds an older version of the zone.
    Behind(u32),
}

/// One zone at one secondary.
struct Task {
    copy: watch::Receiver<Copy>,
    server: Arc<State>,
    /// Tries without a useful answer. Changes of the zone do not reset it.
    tries: usize,
}

async fn follow(copy: watch::Receiver<Copy>, server: Arc<State>) {
    let mut task = Task { copy, server: Arc::clone(&server), tries: 0 };
    let pace = server.pace;
    let mut is_first = true;
    loop {
        sleep(pace.coalesce).await;
        let current = task.copy.borrow_and_update().clone();
        let revived = server.revived.notified();
        let seen = match task.bring(&current, !is_first).await {
            Err(Miss::Changed) => continue,
            Ok(serial) => Seen { serial: Some(serial), problem: None },
            // Without the serial in the text: with it, each change of the zone would be a new fact.
            Err(Miss::Behind(held)) => {
                Seen { serial: Some(held), problem: Some("it holds an older version of the zone".to_owned()) }
            }
            Err(Miss::Silent(problem) | Miss::Refused(problem)) => {
                Seen { serial: None, problem: Some(problem) }
            }
        };
        is_first = false;
        server.note(&current.origin, seen);
        tokio::select! {
            changed = task.copy.changed() => if changed.is_err() { return },
            () = revived => task.tries = 0,
            () = sleep(pace.look) => {}
        }
    }
}

impl Task {
    /// Notifies the secondary until it has the zone. `look`: asks it first, because it may have the zone already. Returns
    /// the serial of its copy.
    async fn bring(&mut self, copy: &Copy, look: bool) -> Result<u32, Miss> {
        let serial = copy.serial;
        // A rack without its region may itself be behind.
        let holds = |held: &u32| *held == serial || is_newer(*held, serial);
        if look {
            match self.ask(copy, Asked::serial).await {
                Ok(Some(held)) if holds(&held) => return Ok(held),
                Ok(_) => {}
                Err(Miss::Refused(_)) => {}
                Err(other) => return Err(other),
            }
        }
        self.ask(copy, Asked::notify).await?;
        let mut last = Ok(None);
        for pause in self.server.pace.copying {
            tokio::select! {
                _ = self.copy.changed() => return Err(Miss::Changed),
                () = sleep(pause) => {}
            }
            last = self.ask(copy, Asked::serial).await;
            match &last {
                Ok(Some(held)) if holds(held) => return Ok(*held),
                Ok(_) => {}
                Err(Miss::Refused(_)) => {}
                Err(_) => break,
            }
        }
        match last? {
            Some(held) => Err(Miss::Behind(held)),
            None => Err(Miss::Refused("it acknowledged NOTIFY, but tells no serial of the zone".to_owned())),
        }
    }

    /// Sends a question until it is answered. Returns the serial in the answer, if there is one.
    async fn ask(&mut self, copy: &Copy, make: Make) -> Result<Option<u32>, Miss> {
        let server = Arc::clone(&self.server);
        let pace = server.pace;
        let at = copy.secondary.at;
        let mut miss = Miss::Silent(format!("{at}: it does not answer"));
        loop {
            let is_silent = server.is_silent();
            let patience = match pace.patience.get(self.tries) {
                Some(patience) if !is_silent => *patience,
                _ => pace.short,
            };
            let Ok(place) = server.places.acquire().await else { return Err(miss) };
            let began = Instant::now();
            let deadline = began + patience;
            // A change ends a long try, because its content is old. The try still counts.
            let changed = async {
                let changed = self.copy.changed().await;
                sleep_until(began + pace.patience[0]).await;
                changed
            };
            let (answered, is_changed) = tokio::select! {
                answered = timeout_at(deadline, exchange(copy, make, server.sources.of(at.ip()))) => (answered.ok(), false),
                _ = changed => (None, true),
            };
            match answered {
                Some(Ok(Ok(serial))) => {
                    self.tries = 0;
                    server.heard();
                    return Ok(serial);
                }
                Some(Ok(Err(why))) => {
                    server.heard();
                    miss = Miss::Refused(format!("{at}: {why}"));
                }
                Some(Err(error)) => miss = Miss::Silent(format!("{at}: it does not answer: {error}")),
                None => {}
            }
            self.tries += 1;
            if is_silent || self.tries >= pace.patience.len() {
                if matches!(miss, Miss::Silent(_)) {
                    server.set_silent();
                }
                return Err(miss);
            }
            if is_changed {
                return Err(Miss::Changed);
            }
            // Release the permit before a wait that needs no socket.
            drop(place);
            tokio::select! {
                _ = self.copy.changed() => return Err(Miss::Changed),
                () = sleep_until(deadline) => {}
            }
        }
    }
}

/// Makes a question.
type Make = fn(&Name, &TsigKey, u16, u64) -> Asked;

/// Sends one question, and waits for its answer. The inner error is the secondary's refusal.
async fn exchange(
    copy: &Copy,
    make: Make,
    source: Option<IpAddr>,
) -> io::Result<Result<Option<u32>, String>> {
    let at = copy.secondary.at;
    let any = match at {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = match source {
        Some(source) => match UdpSocket::bind((source, 0)).await {
            Ok(socket) => socket,
            // The host has lost this address a moment ago.
            Err(_) => UdpSocket::bind(any).await?,
        },
        None => UdpSocket::bind(any).await?,
    };
    socket.connect(at).await?;
    let asked = make(&copy.origin, &copy.secondary.key, u16::from_be_bytes(random()?), unix());
    socket.send(&asked.message).await?;
    let mut buffer = [0; DATAGRAM];
    for _ in 0..MAX_GUESSES {
        let length = socket.recv(&mut buffer).await?;
        match asked.read(buffer.get(..length).unwrap_or_default(), unix()) {
            Ok(Some(serial)) => return Ok(Ok(serial)),
            Ok(None) => {}
            Err(why) => return Ok(Err(why)),
        }
    }
    Err(io::Error::other("other answers came in place of its own"))
}

#[cfg(test)]
mod tests {
    use basalt_dns::{Secondaries, Secondary, Served, Soa, Transport, Zone, Zones};
    use basalt_proto::rack_v1::ServiceHealth;
    use basalt_proto::rack_v1::fact::Body;

    use super::*;
    use crate::clock::Clock;
    use crate::spool::{Limits, writer};

    const SHORT: Duration = Duration::from_millis(50);

    const QUICK: Pace = Pace {
        coalesce: SHORT,
        patience: [SHORT; 5],
        short: SHORT,
        copying: [SHORT; 6],
        look: SHORT,
        tell: SHORT,
    };

    /// Waits until this is the last report about the secondary, and returns it.
    async fn until(facts: &Facts, ok: bool, words: &str) -> ServiceHealth {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let told = facts.read(1).await.unwrap();
            let last = told.into_iter().rev().find_map(|fact| match fact.body {
                Some(Body::Health(health)) => Some(health),
                _ => None,
            });
            let is_it = |it: &&ServiceHealth| {
                it.service == "secondary lab.example ns1" && it.ok == ok && it.message.ends_with(words)
            };
            if let Some(it) = last.as_ref().filter(is_it) {
                return it.clone();
            }
            assert!(Instant::now() < deadline, "{words:?} is not told, but {last:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn a_secondary_that_is_behind_is_told_of_until_it_holds_the_zone() {
        let origin = Name::from_ascii("lab.example.").unwrap();
        let key = TsigKey::new(&origin, &[7; 32]);
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let at = socket.local_addr().unwrap();
        let secondary = Secondary { at, key };
        let zone = Zone::new(Soa::new(origin.clone(), 7), Vec::new()).unwrap();
        let zones = Zones::from_iter([Arc::new(zone)]);
        let mut allowed = Secondaries::default();
        allowed.allow(&origin, vec![secondary.clone()]);
        // It answers NOTIFY with NOTIMP, and has serial 7.
        let played = tokio::spawn(async move {
            let mut query = [0; 512];
            while let Ok((length, peer)) = socket.recv_from(&mut query).await {
                let own: IpAddr = at.ip();
                let served = allowed.answer(&zones, &query[..length], own, Transport::Udp, unix());
                let (Served::Reply(reply) | Served::Signed(reply)) = served else { panic!("{served:?}") };
                socket.send_to(&reply, peer).await.unwrap();
            }
        });

        let dir = tempfile::tempdir().unwrap();
        let (facts, _) = writer::start(dir.path(), Limits::default(), Clock::default()).unwrap();
        let notifier = Notifier { pace: QUICK, ..Notifier::new(facts.clone()) };
        let copy = |serial| {
            let server = "lab.example ns1".to_owned();
            Copy { origin: origin.clone(), serial, server, secondary: secondary.clone() }
        };
        notifier.keep(&[copy(8)], &BTreeSet::new());
        until(&facts, false, "it answers NOTIMP: it does not know NOTIFY").await;
        notifier.keep(&[copy(7)], &BTreeSet::new());
        let told = until(&facts, true, HOLDS).await;
        assert_eq!((told.serial, told.answered_ago_ms), (Some(7), Some(0)));
        played.abort();
        drop(played.await);
        notifier.keep(&[copy(9)], &BTreeSet::new());
        let told = until(&facts, false, "").await;
        assert!(told.serial.is_none() && told.answered_ago_ms.is_some_and(|ago| ago > 0), "{told:?}");
        notifier.keep(&[], &BTreeSet::new());
        until(&facts, true, "").await;
    }

    #[tokio::test]
    async fn a_silent_secondary_of_a_zone_that_changes_all_the_time_is_told_of_and_delays_no_other_zone() {
        let origin = |number| Name::from_ascii(format!("zone-{number}.example.")).unwrap();
        // Nobody reads from this socket.
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let at = socket.local_addr().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (facts, _) = writer::start(dir.path(), Limits::default(), Clock::default()).unwrap();
        let notifier = Notifier { pace: QUICK, ..Notifier::new(facts.clone()) };
        let copy = |number, serial| Copy {
            origin: origin(number),
            serial,
            server: "lab.example ns1".to_owned(),
            secondary: Secondary { at, key: TsigKey::new(&origin(0), &[7; 32]) },
        };
        let changes = async {
            for serial in 1.. {
                notifier.keep(&[copy(0, serial)], &BTreeSet::new());
                sleep(SHORT / 5).await;
            }
        };
        let told = tokio::select! {
            () = changes => unreachable!("it goes on"),
            told = until(&facts, false, "it does not answer") => told,
        };
        assert_eq!((told.serial, told.answered_ago_ms), (None, None), "it never answered");

        // 60 other zones get one short try each, eight at once. With five tries each, they would take 37 waits.
        let zones: Vec<Copy> = (0..60).map(|number| copy(number, 7)).collect();
        let began = Instant::now();
        notifier.keep(&zones, &BTreeSet::new());
        let server = {
            let servers = notifier.servers.lock().unwrap();
            Arc::clone(&servers["lab.example ns1"].state)
        };
        let is_checked = || server.zones.lock().unwrap().copies.values().all(Option::is_some);
        while !is_checked() {
            assert!(began.elapsed() < Duration::from_secs(30));
            sleep(SHORT / 5).await;
        }
        assert!(began.elapsed() < SHORT * 30, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn notify_comes_from_the_address_that_the_secondary_asks_or_else_from_the_only_one() {
        let origin = Name::from_ascii("lab.example.").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let at = socket.local_addr().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (facts, _) = writer::start(dir.path(), Limits::default(), Clock::default()).unwrap();
        let notifier = Notifier { pace: QUICK, ..Notifier::new(facts) };
        let address = |last: u8| IpAddr::from([127, 0, 0, last]);
        let secondary = Secondary { at, key: TsigKey::new(&origin, &[7; 32]) };
        let copy = Copy { origin, serial: 7, server: "lab.example ns1".to_owned(), secondary };
        let keep = |served: &[u8]| {
            let served = served.iter().map(|last| address(*last)).collect();
            notifier.keep(std::slice::from_ref(&copy), &served);
        };
        // Nobody answers, so messages go on.
        let until = async |source: IpAddr| {
            let received = async { while socket.recv_from(&mut [0; 512]).await.unwrap().1.ip() != source {} };
            tokio::time::timeout(Duration::from_secs(30), received).await.expect("a message from it");
        };
        keep(&[8, 9]);
        // The kernel chooses it.
        until(address(1)).await;
        notifier.asked(at.ip(), address(9));
        until(address(9)).await;
        // The rack has lost the address.
        keep(&[8]);
        until(address(8)).await;
    }
}
