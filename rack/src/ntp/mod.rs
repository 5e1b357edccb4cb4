//! NTP: answers machines on each served address, by `basalt-ntp`, and compares this host's clock with NTP servers. It never sets that clock.
//!
//! | module | does |
//! | --- | --- |
//! | [`poll`] | asks NTP servers |
//! | [`wire`] | has the sockets |
//! | [`host`] | reads which servers the host's own NTP daemon follows |

pub mod host;
mod poll;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::{Discriminant, discriminant};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use basalt_ntp::time::precision;
use basalt_ntp::{Monitor, Reaction, Report, Responder, SourceReport, SourceState, State};
use basalt_proto::TIME;
use basalt_proto::rack_v1::TimeConcern;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::facts::remark;
use crate::health::Health;
use crate::holder::{self, Protocol};
use crate::spool::writer::Facts;
use wire::{Socket, wall};

/// How long a report is used: the wall clock may be set at any moment.
const REPORT: Duration = Duration::from_secs(1);
/// How often the state of the clock is reported.
const TELL: Duration = Duration::from_secs(5);
/// How often changed figures of a server are reported.
const AGAIN: Duration = Duration::from_secs(600);
/// Another remedy, besides ending the program that holds the port.
const ADVICE: &str = "or have it serve no time (chrony: `port 0`)";
/// How often the host's own files are read.
const HOST: Duration = Duration::from_secs(60);

/// The counters since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams by result: `answered`, `warned`, or the reason for dropping them.
    pub requests: BTreeMap<&'static str, u64>,
}

/// The NTP service. All addresses share it.
#[derive(Debug)]
pub struct Ntp {
    monitor: Mutex<Monitor>,
    responder: Mutex<Responder>,
    /// The last report, and the time when it was made.
    report: Mutex<Option<(Duration, Report)>>,
    counts: Mutex<Counts>,
    /// Settings declare that there is no NTP server.
    declared_none: AtomicBool,
    facts: Facts,
    health: Health,
    told: Mutex<BTreeMap<String, Told>>,
}

/// The last report about a server.
#[derive(Debug)]
struct Told {
    state: Discriminant<SourceState>,
    words: String,
    since_boot: Duration,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ntp {
    /// A service without servers.
    #[must_use]
    pub fn new(facts: Facts) -> Self {
        let health = Health::new("time".to_owned(), facts.clone());
        Self {
            monitor: Mutex::new(Monitor::new(precision(wall), wire::now())),
            responder: Mutex::default(),
            report: Mutex::default(),
            counts: Mutex::default(),
            declared_none: AtomicBool::new(false),
            facts,
            health,
            told: Mutex::default(),
        }
    }

    /// Sets the addresses at which this rack answers.
    pub fn set_own(&self, own: BTreeSet<IpAddr>) {
        lock(&self.monitor).set_own(own);
    }

    /// The counts since the start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        lock(&self.counts).clone()
    }

    /// The NTP servers, with their current states.
    #[must_use]
    pub fn sources(&self) -> Vec<SourceReport> {
        lock(&self.monitor).sources(wire::now())
    }

    /// The clock, and the claim about it that machines are sent.
    #[must_use]
    pub fn report(&self) -> Report {
        self.look(Report::clone)
    }

    /// Passes a recent report to a closure.
    fn look<T>(&self, take: impl FnOnce(&Report) -> T) -> T {
        let now = wire::now();
        let mut known = lock(&self.report);
        if let Some((at, report)) = &*known
            && now.since_boot.saturating_sub(*at) < REPORT
        {
            return take(report);
        }
        let mut report = lock(&self.monitor).report(now);
        // The region's time is only a rough reference, but better than none.
        if matches!(self.facts.clock().is_right(), Some(Err(_))) {
            report.distrust();
        }
        let (_, report) = known.insert((now.since_boot, report));
        take(report)
    }

    /// Drops the report after a new measurement, and reports the new state.
    fn renew(&self) {
        *lock(&self.report) = None;
        self.tell();
    }

    /// Reports the state of the clock, once each server has been asked.
    fn tell(&self) {
        let sources = self.sources();
        self.tell_of_sources(&sources);
        if sources.iter().any(|source| source.state == SourceState::New) {
            return;
        }
        let report = self.report();
        let is_meant = report.state == State::Adrift && self.declared_none.load(Ordering::Relaxed);
        match report.problem().filter(|_| !is_meant) {
            None => self.health.up(),
            Some(problem) => self.health.lacks(&problem),
        }
    }

    /// Reports the state of each server: at once if it changes, otherwise rarely, since the figures always change.
    fn tell_of_sources(&self, sources: &[SourceReport]) {
        let (mut told, now) = (lock(&self.told), wire::now().since_boot);
        told.retain(|name, _| {
            let is_asked = sources.iter().any(|source| source.name == *name);
            if !is_asked {
                self.facts.tell(remark(&format!("{TIME}{name}"), ""));
            }
            is_asked
        });
        for source in sources.iter().filter(|source| source.state != SourceState::New) {
            let (state, words) = (discriminant(&source.state), source.to_string());
            let is_known = told.get(&source.name).is_some_and(|told| {
                let is_recent = now.saturating_sub(told.since_boot) < AGAIN;
                told.words == words || (told.state == state && is_recent)
            });
            if !is_known {
                self.facts.tell(remark(&format!("{TIME}{}", source.name), &words));
                told.insert(source.name.clone(), Told { state, words, since_boot: now });
            }
        }
    }

    /// Follows concern `time`: asks its servers, or those of this host.
    pub async fn follow(
        self: Arc<Self>,
        mut view: watch::Receiver<Option<Arc<TimeConcern>>>,
        stop: CancellationToken,
    ) {
        let mut polls: BTreeMap<String, CancellationToken> = BTreeMap::new();
        let mut timer = tokio::time::interval(TELL);
        let mut read: Option<tokio::time::Instant> = None;
        loop {
            let changed = tokio::select! {
                () = stop.cancelled() => return,
                changed = view.changed() => changed.is_ok(),
                _ = timer.tick() => false,
            };
            let is_due = read.is_none_or(|at| at.elapsed() >= HOST);
            if changed || is_due {
                read = Some(tokio::time::Instant::now());
                let concern = view.borrow_and_update().clone();
                let rank = concern.as_ref().map_or(0, |it| it.rank);
                let declared = concern.filter(|it| !it.host_servers);
                let is_none = declared.as_ref().is_some_and(|it| it.servers.is_empty());
                self.declared_none.store(is_none, Ordering::Relaxed);
                let servers = match declared {
                    Some(declared) => declared.servers.clone(),
                    None => tokio::task::spawn_blocking(host::servers).await.unwrap_or_default(),
                };
                self.ask(&servers, rank, &mut polls, &stop);
            }
            self.tell();
        }
    }

    /// Sets the servers to ask.
    fn ask(
        self: &Arc<Self>,
        servers: &[String],
        rank: u32,
        polls: &mut BTreeMap<String, CancellationToken>,
        stop: &CancellationToken,
    ) {
        lock(&self.monitor).set_sources(servers, rank);
        *lock(&self.report) = None;
        polls.retain(|name, poll| {
            let stays = servers.contains(name);
            if !stays {
                poll.cancel();
            }
            stays
        });
        for name in servers {
            if !polls.contains_key(name) {
                let stop = stop.child_token();
                polls.insert(name.clone(), stop.clone());
                tokio::spawn(poll::poll(Arc::clone(self), name.clone(), stop));
            }
        }
    }

    /// Answers at one address until cancelled.
    ///
    /// # Errors
    /// The address cannot be bound, or the socket fails.
    pub async fn serve(
        &self,
        address: IpAddr,
        port: u16,
        health: &Health,
        stop: &CancellationToken,
    ) -> io::Result<()> {
        let at = SocketAddr::from((address, port));
        let socket =
            Socket::bind(at).map_err(|error| holder::refused("NTP", Protocol::Udp, at, &error, ADVICE))?;
        health.up();
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                batch = socket.receive() => for (arrived, from, datagram) in batch? {
                    let claim = self.look(|report| report.claim);
                    let reaction = lock(&self.responder).react(
                        &datagram, from.ip(), arrived.wall, arrived.since_boot, &claim,
                    );
                    let (outcome, reply) = match reaction {
                        Reaction::Answer(reply) => ("answered", Some(reply)),
                        Reaction::Warn(reply) => ("warned", Some(reply)),
                        Reaction::Drop(why) => (why.name(), None),
                    };
                    *lock(&self.counts).requests.entry(outcome).or_default() += 1;
                    if let Some(reply) = reply {
                        // If the answer is lost, the client asks again.
                        socket.send(from, |sent| reply.sent_at(sent));
                    }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, wall_ms};
    use crate::spool::{Limits, writer};

    /// A service without servers, and the facts that it reports.
    fn alone(dir: &std::path::Path) -> (Ntp, Facts) {
        let (facts, _) = writer::start(dir, Limits::default(), Clock::default()).unwrap();
        (Ntp::new(facts.clone()), facts)
    }

    #[test]
    fn a_clock_that_differs_from_the_regions_is_bad_where_no_server_vouches_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (ntp, facts) = alone(dir.path());
        assert_eq!(ntp.report().state, State::Adrift);
        facts.clock().told(wall_ms() + 120_000);
        ntp.renew();
        let report = ntp.report();
        assert_eq!((report.state, report.claim.stratum), (State::Bad, 16));
    }

    #[test]
    fn a_server_is_told_of_when_its_state_changes_and_its_figures_seldom() {
        let dir = tempfile::tempdir().unwrap();
        let (ntp, facts) = alone(dir.path());
        let source = |state, offset| SourceReport {
            name: "a".to_owned(),
            state,
            offset: Some(offset),
            delay: Some(Duration::from_millis(1)),
            stratum: Some(2),
        };
        let cases: [(&[SourceReport], u64); 6] = [
            (&[source(SourceState::New, 0)], 0),
            (&[source(SourceState::Answers, 400_000)], 1),
            (&[source(SourceState::Answers, 900_000)], 1),
            (&[source(SourceState::Silent, 900_000)], 2),
            (&[], 3),
            (&[], 3),
        ];
        for (at, (sources, told)) in cases.into_iter().enumerate() {
            ntp.tell_of_sources(sources);
            assert_eq!(facts.meters().read().facts, told, "case {at}");
        }
    }

    #[test]
    fn the_program_that_has_the_port_is_named() {
        let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = other.local_addr().unwrap();
        let error = std::net::UdpSocket::bind(at).unwrap_err();
        let taken = |error: &io::Error| holder::refused("NTP", Protocol::Udp, at, error, ADVICE);
        let told = taken(&error).to_string();
        let named = format!("process {} (", std::process::id());
        assert!(told.contains(&named) && told.contains("port 0"), "{told}");
        let denied = taken(&io::ErrorKind::PermissionDenied.into()).to_string();
        assert!(
            denied.starts_with("cannot bind NTP on 127.0.0.1:") && !denied.contains("process"),
            "{denied}"
        );
    }
}
