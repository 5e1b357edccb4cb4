//! Notifies secondaries of changed zones (RFC 1996), and checks that they copy them.
//!
//! There is a task for each secondary and zone. It sends NOTIFY a second after a change, and again until it is
//! acknowledged. Then it asks the secondary for its serial until that is the zone's. From then on it asks now and then;
//! a secondary that is behind is notified again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use basalt_dns::{Asked, Name, TsigKey, is_newer};
use basalt_proto::SECONDARY;
use tokio::net::UdpSocket;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::forward::exchange::random;
use super::unix;
use super::zones::Copy;
use crate::facts::{health, remark};
use crate::spool::writer::Facts;

/// The waits and intervals.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Changes within this time are notified together.
    coalesce: Duration,
    /// The wait for an answer, try by try (RFC 1996 §3.6).
    patience: [Duration; 5],
    /// Pauses before a secondary that has acknowledged is asked for its serial.
    copying: [Duration; 6],
    /// How often a secondary is checked while its zone does not change.
    look: Duration,
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
    copying: [
        Duration::from_millis(500),
        Duration::from_secs(1),
        Duration::from_secs(2),
        Duration::from_secs(4),
        Duration::from_secs(8),
        Duration::from_secs(15),
    ],
    look: Duration::from_secs(300),
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
        Self { servers: Mutex::default(), facts, pace: PACE }
    }

    /// Sets the copies whose changes are notified.
    pub(super) fn keep(&self, copies: &[Copy]) {
        let mut by_server: BTreeMap<&str, Vec<&Copy>> = BTreeMap::new();
        for copy in copies {
            by_server.entry(&copy.server).or_default().push(copy);
        }
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *servers);
        for (name, copies) in by_server {
            let new =
                || Server { state: Arc::new(State::new(name, self.facts.clone())), zones: HashMap::new() };
            let Server { state, mut zones } = before.remove(name).unwrap_or_else(new);
            // Before any task can report about a zone.
            state.hold(copies.iter().map(|copy| copy.origin.clone()).collect());
            let told = copies.into_iter().map(|copy| {
                let told = zones.remove(&copy.origin).unwrap_or_else(|| self.begin(copy, &state));
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
    fn begin(&self, copy: &Copy, state: &Arc<State>) -> Told {
        let (sender, receiver) = watch::channel(copy.clone());
        let task = tokio::spawn(follow(receiver, Arc::clone(state), self.pace));
        Told { copy: sender, task }
    }
}

/// The states of one secondary's copies, and the last report about it.
#[derive(Debug)]
struct State {
    server: String,
    facts: Facts,
    places: Semaphore,
    zones: Mutex<Zones>,
}

#[derive(Debug, Default)]
struct Zones {
    /// The zones that it copies, and the state of each copy. `None`: not checked yet.
    copies: BTreeMap<Name, Option<Result<(), String>>>,
    told: Option<Result<(), String>>,
}

impl Zones {
    /// The report for all zones. `None`: some of them are not checked yet, and the others are current.
    fn word(&self) -> Option<Result<(), String>> {
        let mut behind =
            self.copies.iter().filter_map(|(zone, copy)| Some((zone, copy.as_ref()?.as_ref().err()?)));
        let Some((zone, why)) = behind.next() else {
            return self.copies.values().all(Option::is_some).then_some(Ok(()));
        };
        let others = if behind.next().is_some() { "; other zones are behind as well" } else { "" };
        Some(Err(match self.copies.len() {
            1 => why.clone(),
            _ => format!("zone {}: {why}{others}", zone.to_ascii().trim_end_matches('.')),
        }))
    }
}

impl State {
    fn new(server: &str, facts: Facts) -> Self {
        let places = Semaphore::new(AT_ONCE);
        Self { server: server.to_owned(), facts, places, zones: Mutex::default() }
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
    fn note(&self, zone: &Name, state: Result<(), String>) {
        self.change(|zones| {
            if let Some(copy) = zones.copies.get_mut(zone) {
                *copy = Some(state);
            }
        });
    }

    /// Reports about the secondary if its state has changed.
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
        let Some(word) = zones.word().filter(|word| zones.told.as_ref() != Some(word)) else { return };
        match &word {
            Ok(()) => self.facts.tell(remark(&service, HOLDS)),
            Err(problem) => {
                tracing::warn!(service, problem, "a secondary is behind; it is told again");
                self.facts.tell(health(&service, Some(problem)));
            }
        }
        zones.told = Some(word);
    }
}

async fn follow(mut copy: watch::Receiver<Copy>, server: Arc<State>, pace: Pace) {
    let mut is_first = true;
    loop {
        sleep(pace.coalesce).await;
        let current = copy.borrow_and_update().clone();
        let state = tokio::select! {
            state = bring(&current, &server.places, &pace, !is_first) => state,
            changed = copy.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        is_first = false;
        server.note(&current.origin, state);
        tokio::select! {
            changed = copy.changed() => if changed.is_err() { return },
            () = sleep(pace.look) => {}
        }
    }
}

/// Notifies a secondary until it has the zone. `look`: asks it first, because it may have the zone already.
///
/// # Errors
/// The reason why it does not have the zone, as text.
async fn bring(copy: &Copy, places: &Semaphore, pace: &Pace, look: bool) -> Result<(), String> {
    let serial = copy.serial;
    // A rack without its region may itself be behind.
    let holds = |held: Option<u32>| held.is_some_and(|held| held == serial || is_newer(held, serial));
    if look && holds(ask(copy, places, pace, Asked::serial).await.unwrap_or_default()) {
        return Ok(());
    }
    ask(copy, places, pace, Asked::notify).await?;
    let mut last = Ok(None);
    for pause in pace.copying {
        sleep(pause).await;
        last = ask(copy, places, pace, Asked::serial).await;
        if last.as_ref().is_ok_and(|held| holds(*held)) {
            return Ok(());
        }
    }
    match last? {
        // Without the serial numbers: with them, each change of the zone would be a new fact.
        Some(held) => {
            tracing::debug!(server = copy.server, held, serial, "a secondary is behind");
            Err("it holds an older version of the zone".to_owned())
        }
        None => Err("it acknowledged NOTIFY, but tells no serial of the zone".to_owned()),
    }
}

/// Makes a question.
type Make = fn(&Name, &TsigKey, u16, u64) -> Asked;

/// Sends a question until it is answered. Returns the serial in the answer, if there is one.
///
/// # Errors
/// The reason why there is no usable answer, as text.
async fn ask(copy: &Copy, places: &Semaphore, pace: &Pace, make: Make) -> Result<Option<u32>, String> {
    let mut problem = "it does not answer".to_owned();
    for patience in pace.patience {
        let Ok(place) = places.acquire().await else { break };
        let deadline = Instant::now() + patience;
        match timeout_at(deadline, exchange(copy, make)).await {
            Ok(Ok(Ok(serial))) => return Ok(serial),
            Ok(Ok(Err(why))) => problem = why,
            Ok(Err(error)) => problem = format!("it does not answer: {error}"),
            Err(_) => {}
        }
        // Release the permit before a wait that needs no socket.
        drop(place);
        sleep_until(deadline).await;
    }
    Err(format!("{}: {problem}", copy.secondary.at))
}

/// Sends one question, and waits for its answer. The inner error is the secondary's refusal.
async fn exchange(copy: &Copy, make: Make) -> io::Result<Result<Option<u32>, String>> {
    let at = copy.secondary.at;
    let any = match at {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).await?;
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
    use std::net::IpAddr;

    use basalt_dns::{Secondaries, Secondary, Served, Soa, Transport, Zone, Zones};
    use basalt_proto::rack_v1::fact::Body;

    use super::*;
    use crate::clock::Clock;
    use crate::spool::{Limits, writer};

    const SHORT: Duration = Duration::from_millis(50);

    /// Waits until this is the last report about the secondary.
    async fn until(facts: &Facts, ok: bool, words: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let told = facts.read(1).await.unwrap();
            let last = told.into_iter().rev().find_map(|fact| match fact.body {
                Some(Body::Health(health)) => Some(health),
                _ => None,
            });
            let is_it = last.as_ref().is_some_and(|it| {
                it.service == "secondary lab.example ns1" && it.ok == ok && it.message.ends_with(words)
            });
            if is_it {
                return;
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
                let Served::Reply(reply) = served else { panic!("{served:?}") };
                socket.send_to(&reply, peer).await.unwrap();
            }
        });

        let dir = tempfile::tempdir().unwrap();
        let (facts, _) = writer::start(dir.path(), Limits::default(), Clock::default()).unwrap();
        let pace = Pace { coalesce: SHORT, patience: [SHORT; 5], copying: [SHORT; 6], look: SHORT };
        let mut notifier = Notifier::new(facts.clone());
        notifier.pace = pace;
        let copy = |serial| {
            let server = "lab.example ns1".to_owned();
            Copy { origin: origin.clone(), serial, server, secondary: secondary.clone() }
        };
        notifier.keep(&[copy(8)]);
        until(&facts, false, "it answers NOTIMP: it does not know NOTIFY").await;
        notifier.keep(&[copy(7)]);
        until(&facts, true, HOLDS).await;
        played.abort();
        drop(played.await);
        notifier.keep(&[copy(9)]);
        until(&facts, false, "").await;
        notifier.keep(&[]);
        until(&facts, true, "").await;
    }
}
