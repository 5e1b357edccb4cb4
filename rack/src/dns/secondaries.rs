//! Tells secondaries that a zone has changed (RFC 1996), and looks whether they hold it.
//!
//! A task for each secondary and zone: NOTIFY is sent a second after a change, and again until it is acknowledged. Then the secondary is asked
//! for its serial until it has that of the zone. From then on it is asked now and then, and a secondary that is behind is told again.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use basalt_dns::{Asked, Name, TsigKey};
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

/// How long things take.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Changes within this time are told together.
    coalesce: Duration,
    /// For how long an answer is waited for, try by try (RFC 1996 §3.6).
    patience: [Duration; 5],
    /// Pauses before a secondary that has acknowledged is asked for its serial.
    copying: [Duration; 6],
    /// How often a secondary is looked at that nobody has news for.
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
/// Secondaries that are asked something at once.
const AT_ONCE: usize = 64;
/// Datagrams that are read in search of an answer. Others are strangers' guesses.
const MAX_GUESSES: usize = 16;
/// The longest answer that is read.
const DATAGRAM: usize = 4096;

/// The tasks of all secondaries.
#[derive(Debug)]
pub(super) struct Notifier {
    tasks: Mutex<HashMap<String, Told>>,
    places: Arc<Semaphore>,
    facts: Facts,
    pace: Pace,
}

/// The task of one secondary of one zone.
#[derive(Debug)]
struct Told {
    copy: watch::Sender<Copy>,
    task: JoinHandle<()>,
}

impl Notifier {
    pub(super) fn new(facts: Facts) -> Self {
        Self { tasks: Mutex::default(), places: Arc::new(Semaphore::new(AT_ONCE)), facts, pace: PACE }
    }

    /// Has exactly these copies told of changes from now on.
    pub(super) fn keep(&self, copies: &[Copy]) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *tasks);
        for copy in copies {
            let told = match before.remove(&copy.name) {
                Some(told) => {
                    told.copy.send_if_modified(|current| {
                        let is_new = current.serial != copy.serial || current.secondary != copy.secondary;
                        current.clone_from(copy);
                        is_new
                    });
                    told
                }
                None => {
                    let (sender, receiver) = watch::channel(copy.clone());
                    let (facts, places) = (self.facts.clone(), Arc::clone(&self.places));
                    Told { copy: sender, task: tokio::spawn(follow(receiver, places, facts, self.pace)) }
                }
            };
            tasks.insert(copy.name.clone(), told);
        }
        for (name, gone) in before {
            gone.task.abort();
            self.facts.tell(remark(&format!("{SECONDARY}{name}"), ""));
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.values().for_each(|told| told.task.abort());
    }
}

async fn follow(mut copy: watch::Receiver<Copy>, places: Arc<Semaphore>, facts: Facts, pace: Pace) {
    let mut told: Option<Result<(), String>> = None;
    loop {
        sleep(pace.coalesce).await;
        let current = copy.borrow_and_update().clone();
        let state = tokio::select! {
            state = bring(&current, &places, &pace, told.is_some()) => state,
            changed = copy.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        if told.as_ref() != Some(&state) {
            let name = format!("{SECONDARY}{}", current.name);
            match &state {
                Ok(()) => facts.tell(remark(&name, "it holds the zone as it is")),
                Err(problem) => {
                    tracing::warn!(
                        secondary = current.name,
                        problem,
                        "a secondary is behind; it is told again"
                    );
                    facts.tell(health(&name, Some(problem)));
                }
            }
            told = Some(state);
        }
        tokio::select! {
            changed = copy.changed() => if changed.is_err() { return },
            () = sleep(pace.look) => {}
        }
    }
}

/// Tells a secondary until it holds the zone. `look`: it is asked first, for it may hold it.
///
/// # Errors
/// Why it does not hold it, in words.
async fn bring(copy: &Copy, places: &Semaphore, pace: &Pace, look: bool) -> Result<(), String> {
    let serial = copy.serial;
    let holds = |held: Option<u32>| held == Some(serial);
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
        Some(held) => Err(format!("it holds serial {held}, and the zone is at {serial}")),
        None => Err(format!("it acknowledged NOTIFY, but tells no serial of the zone, which is at {serial}")),
    }
}

/// Makes a question.
type Make = fn(&Name, &TsigKey, u16, u64) -> Asked;

/// Sends a question until it is answered. Returns the serial of the answer, if it has one.
///
/// # Errors
/// There is no answer, or one that is of no use: why, in words.
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
        // The place is free again while nothing is waited for but time.
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

    /// Waits until this is the last word about the secondary.
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
        // It answers NOTIFY with NOTIMP, and holds serial 7.
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
            let name = "lab.example ns1".to_owned();
            Copy { origin: origin.clone(), serial, name, secondary: secondary.clone() }
        };
        notifier.keep(&[copy(8)]);
        until(&facts, false, "it answers NOTIMP: it does not know NOTIFY").await;
        notifier.keep(&[copy(7)]);
        until(&facts, true, "it holds the zone as it is").await;
        played.abort();
        drop(played.await);
        notifier.keep(&[copy(9)]);
        until(&facts, false, "").await;
        notifier.keep(&[]);
        until(&facts, true, "").await;
    }
}
