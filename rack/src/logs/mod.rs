//! Logs of machines: received by syslog ([`serve`]), stored on disk ([`spool`]), delivered to the regions
//! ([`deliver`]). The agent's log, with the output of its scripts, is stored here too.
//!
//! Nothing here waits for a region, and no fact waits for a line. Lines that cannot be stored are counted, and the
//! count becomes a line of the same log.
//!
//! | module | does |
//! | --- | --- |
//! | [`serve`] | has the sockets of syslog |
//! | [`senders`] | knows which machine has an address |
//! | [`spool`], [`writer`] | keep lines on disk, apart from facts |
//! | [`deliver`] | sends lines to each region, beside its link |

mod counts;
pub mod deliver;
pub mod senders;
mod serve;
pub mod spool;
pub mod writer;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use basalt_proto::budget::{Budget, Spent};
use basalt_proto::rack_v1::LogLine;
use basalt_syslog::limit::{BURST, INTERVAL};
use basalt_syslog::{Frame, Limiter, MAX_OCTETS, MAX_TEXT, Message, printable};
use prost::Message as _;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::facts::About;
use crate::health::Health;
pub use counts::Counts;
use counts::{Counters, From, Reason};
use senders::Senders;
use spool::{Limits, LogSpool};
use writer::{Command, LogThread};

/// Facility `user`, severity `info`.
const USER_INFO: u32 = 14;
/// Facility `syslog`, severity `warning`.
const SYSLOG_WARNING: u32 = 44;
/// How often dropped messages are reported.
const TELL: Duration = Duration::from_secs(1);
/// The budget of an agent, in KiB: 16 MiB at once, then 10 KiB a second.
const AGENT: Budget = Budget { most: 16_384, every_ms: 100 };
/// The budget of all senders together that are not machines, in [`UNIT`]s: 16 MiB at once, then 125 KiB a second.
/// Datagrams with forged addresses are easy to send, so a budget per address would not limit them.
const OTHERS: Budget = Budget { most: 131_072, every_ms: 1 };
/// Octets that the budget of other senders counts in.
const UNIT: usize = 128;
/// The most agents whose budgets are remembered.
const AGENTS: usize = 4096;

/// The end of the line that reports lost lines; their number stands before it.
pub(crate) const LOST: &str = "lines of this log were lost: the rack had no room to keep them";

/// Takes lines of logs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Logs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    commands: SyncSender<Command>,
    durable: watch::Receiver<u64>,
    uid: String,
    senders: Senders,
    clock: Clock,
    started: Instant,
    machines: Mutex<Limiter>,
    others: Mutex<Others>,
    /// Lines that the queue could not take, by machine.
    lost: Mutex<spool::Lost>,
    agents: Mutex<HashMap<String, Spent>>,
    /// The last number that each linked region has stored, by its address.
    regions: Mutex<BTreeMap<String, u64>>,
    counters: Counters,
}

/// Senders that are not machines: limits for each of them, and for all together.
#[derive(Debug, Default)]
struct Others {
    limiter: Limiter,
    all: Spent,
    /// The number of messages that exceeded the common limit.
    dropped: u64,
}

impl Others {
    /// Counts a line with this many octets. `false`: drop it.
    fn admit(&mut self, octets: usize, now_ms: i64) -> bool {
        let units = i64::try_from(octets.div_ceil(UNIT)).unwrap_or(i64::MAX);
        let admitted = self.all.take_units(OTHERS, units, now_ms);
        self.dropped += u64::from(!admitted);
        admitted
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn millis(since_start: Duration) -> i64 {
    i64::try_from(since_start.as_millis()).unwrap_or(i64::MAX)
}

/// A line from the rack itself.
fn own_line(machine_uid: String, address: String, text: String, at_unix_ms: i64) -> LogLine {
    LogLine {
        at_unix_ms,
        machine_uid,
        address,
        priority: SYSLOG_WARNING,
        app: "basalt-rack".to_owned(),
        text,
        ..LogLine::default()
    }
}

impl Logs {
    /// Opens the spool and starts its thread.
    ///
    /// # Errors
    /// `io::Error`: the spool cannot be opened, or the thread cannot be started.
    pub fn start(
        data_dir: &Path,
        limits: Limits,
        senders: Senders,
        clock: Clock,
        health: Health,
    ) -> io::Result<(Self, LogThread)> {
        let spool = LogSpool::open(data_dir, limits)?;
        let uid = spool.uid().to_owned();
        let (commands, durable, thread) = writer::start(spool, clock.clone(), health)?;
        let inner = Inner {
            commands,
            durable,
            uid,
            senders,
            clock,
            started: Instant::now(),
            machines: Mutex::default(),
            others: Mutex::default(),
            lost: Mutex::default(),
            agents: Mutex::default(),
            regions: Mutex::default(),
            counters: Counters::default(),
        };
        Ok((Self(Arc::new(inner)), thread))
    }

    /// Lines since the start, by their senders, and lines that were dropped.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counters.read()
    }

    /// Takes a datagram, if its sender has not sent too many.
    fn datagram(&self, octets: &[u8], from: IpAddr) {
        let (machine, now) = (self.0.senders.machine(from), self.0.started.elapsed());
        let admitted = match machine {
            Some(_) => lock(&self.0.machines).admit(from, now),
            None => lock(&self.0.others).limiter.admit(from, now),
        };
        match admitted {
            true => self.keep(Message::datagram(octets), machine, from, now),
            false => self.0.counters.dropped(Reason::Sender, 1),
        }
    }

    /// Takes a message of a stream. Returns how long the sender must wait before it sends another one.
    fn frame(&self, frame: Frame<'_>, from: IpAddr) -> Duration {
        let (machine, now) = (self.0.senders.machine(from), self.0.started.elapsed());
        let message = Message::parse(frame);
        let wait = match machine {
            Some(_) => lock(&self.0.machines).wait(from, now),
            None => lock(&self.0.others).limiter.wait(from, now),
        };
        self.keep(message, machine, from, now);
        wait
    }

    /// Stores a message if it comes from a machine, or if all other senders are within their limit.
    fn keep(&self, message: Message, machine: Option<String>, from: IpAddr, now: Duration) {
        let is_machine = machine.is_some();
        if message.text.is_empty() {
            return;
        }
        let Message { priority, time, host, app, procid, msgid, structured, text } = message;
        let line = LogLine {
            seq: 0,
            at_unix_ms: self.0.clock.unix_now(),
            machine_uid: machine.unwrap_or_default(),
            address: from.to_canonical().to_string(),
            priority: priority.into(),
            time: time.unwrap_or_default(),
            host: host.unwrap_or_default(),
            app: app.unwrap_or_default(),
            procid: procid.unwrap_or_default(),
            msgid: msgid.unwrap_or_default(),
            structured: structured.unwrap_or_default(),
            text,
        };
        if is_machine || lock(&self.0.others).admit(line.encoded_len(), millis(now)) {
            self.push(line, if is_machine { From::Machine } else { From::Other });
        } else {
            self.0.counters.dropped(Reason::Others, 1);
        }
    }

    /// Takes complete lines from a machine's agent.
    pub fn agent(&self, about: &About, from: IpAddr, octets: &[u8]) {
        let now = self.0.clock.unix_now();
        let kibibytes = i64::try_from(octets.len().div_ceil(1024)).unwrap_or(i64::MAX);
        let lines = octets.split(|&octet| octet == b'\n').filter(|line| !line.is_empty());
        // Anybody on a network of machines can invent undeclared ones, so they share a limit with other senders.
        let admits = |octets: usize| {
            let now_ms = millis(self.0.started.elapsed());
            !about.machine_uid.is_empty() || lock(&self.0.others).admit(octets, now_ms)
        };
        if !self.agent_may(&about.mac, kibibytes, now)
            || !admits(octets.len().saturating_add(lines.clone().count().saturating_mul(UNIT)))
        {
            let dropped = lines.count();
            self.0.counters.dropped(Reason::Agent, u64::try_from(dropped).unwrap_or(u64::MAX));
            if !admits(UNIT) {
                return;
            }
            let line = own_line(
                about.machine_uid.clone(),
                from.to_string(),
                format!("{dropped} lines of the agent were dropped: it sends more than 10 KiB a second"),
                now,
            );
            self.push(line, From::Rack);
            return;
        }
        for line in lines {
            let line = LogLine {
                at_unix_ms: now,
                machine_uid: about.machine_uid.clone(),
                address: from.to_string(),
                priority: USER_INFO,
                app: "basalt-agent".to_owned(),
                text: printable(line, MAX_TEXT, false),
                ..LogLine::default()
            };
            self.push(line, From::Agent);
        }
    }

    fn agent_may(&self, mac: &str, kibibytes: i64, now_ms: i64) -> bool {
        let mut agents = lock(&self.0.agents);
        if agents.len() >= AGENTS && !agents.contains_key(mac) {
            agents.retain(|_, spent| !spent.is_whole(AGENT, now_ms));
        }
        agents.entry(mac.to_owned()).or_default().take_units(AGENT, kibibytes, now_ms)
    }

    fn push(&self, line: LogLine, from: From) {
        let machine = line.machine_uid.clone();
        match self.0.commands.try_send(Command::Push(Box::new(line))) {
            Ok(()) => self.0.counters.kept(from),
            Err(_) => {
                self.0.counters.dropped(Reason::Queue, 1);
                *lock(&self.0.lost).entry(machine).or_default() += 1;
            }
        }
    }

    /// Reports dropped messages until the rack stops.
    pub async fn tell_dropped(self, stop: CancellationToken) {
        let mut timer = tokio::time::interval(TELL);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = timer.tick() => {}
            }
            let now = self.0.started.elapsed();
            let mut dropped = lock(&self.0.machines).dropped(now);
            let of_all = {
                let mut others = lock(&self.0.others);
                dropped.append(&mut others.limiter.dropped(now));
                std::mem::take(&mut others.dropped)
            };
            if of_all > 0 {
                let text = format!(
                    "{of_all} messages were dropped: senders that are no machines exceeded 16 MiB at once and 125 KiB a second together"
                );
                let line = own_line(String::new(), String::new(), text, self.0.clock.unix_now());
                self.push(line, From::Rack);
            }
            for (from, count) in dropped {
                let text = format!(
                    "{count} messages were dropped: their sender exceeded {BURST} at once and {} a second",
                    Duration::from_secs(1).as_millis() / INTERVAL.as_millis()
                );
                let machine = self.0.senders.machine(from).unwrap_or_default();
                let at = from.to_canonical().to_string();
                self.push(own_line(machine, at, text, self.0.clock.unix_now()), From::Rack);
            }
            let lost = std::mem::take(&mut *lock(&self.0.lost));
            for (machine, lines) in lost {
                if self.0.commands.try_send(Command::Lose(machine.clone(), lines)).is_err() {
                    *lock(&self.0.lost).entry(machine).or_default() += lines;
                }
            }
        }
    }

    /// Durable lines from this number on, about this many bytes.
    ///
    /// # Errors
    /// `io::Error`: a segment cannot be read, or the rack is stopping.
    pub async fn read(&self, from: u64, bytes: usize) -> io::Result<Vec<LogLine>> {
        let closed = || io::Error::other("the spool of logs is closed");
        let (reply, answer) = oneshot::channel();
        let (commands, command) = (self.0.commands.clone(), Command::Read { from, bytes, reply });
        let sent = tokio::task::spawn_blocking(move || commands.send(command)).await;
        sent.map_err(io::Error::other)?.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// A watch on durable lines: its value is the number after the last one.
    #[must_use]
    pub fn durable(&self) -> watch::Receiver<u64> {
        self.0.durable.clone()
    }

    /// The name of the numbering.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.0.uid
    }

    /// Notes that a linked region has everything up to here; `None`: the link has ended.
    fn stored(&self, region: &str, through: Option<u64>) {
        let mut regions = lock(&self.0.regions);
        match through {
            Some(through) => drop(regions.insert(region.to_owned(), through)),
            None => drop(regions.remove(region)),
        }
        let (any, all) = (regions.values().max().copied(), regions.values().min().copied());
        if let (Some(any), Some(all)) = (any, all) {
            self.0.commands.try_send(Command::Stored { any, all }).ok();
        }
    }
}

const _: () = assert!(MAX_TEXT < MAX_OCTETS);
