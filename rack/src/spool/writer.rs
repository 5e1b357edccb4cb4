//! The spool's thread, and the handle with which all parts of the rack report facts.

use std::io;
use std::path::Path;
use std::thread::JoinHandle;

use basalt_proto::rack_v1::Fact;
use tokio::sync::{mpsc, oneshot, watch};

use super::{Limits, Spool, Taken};
use crate::clock::Clock;
use crate::disk::Disk;
use crate::facts::printable;
use crate::gate::Gate;
use crate::kill;
use crate::meters::Meters;
use crate::trace::Trace;

/// The most facts that wait for the disk.
const QUEUE: usize = 16_384;
/// The most facts that one sync makes durable.
const BATCH: usize = 4_096;
/// The most facts of one batch to a region, and their bytes without the last fact.
const SENT_FACTS: usize = 512;
const SENT_BYTES: usize = 1 << 20;
const _: () = assert!(SENT_BYTES + super::record::MAX_PAYLOAD + (1 << 20) < basalt_proto::MAX_FROM_RACK);

enum Command {
    Push(Box<Fact>, Option<oneshot::Sender<Result<(), String>>>),
    Read { from: u64, reply: oneshot::Sender<io::Result<Vec<Fact>>> },
    Acknowledge { uid: String, through: u64 },
    Stop,
}

/// The reason why a fact was not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotKept {
    /// The disk refused the fact.
    #[error("the fact could not be written to the spool: {0}")]
    Disk(String),
    /// The rack is stopping.
    #[error("the spool is closed: the rack is stopping")]
    Closed,
}

/// The handle to report facts. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Facts {
    commands: mpsc::Sender<Command>,
    durable: watch::Receiver<u64>,
    uid: std::sync::Arc<str>,
    meters: Meters,
    trace: std::sync::Arc<Trace>,
    gate: std::sync::Arc<Gate>,
    disk: std::sync::Arc<Disk>,
    clock: Clock,
}

/// The handle to stop the thread.
#[derive(Debug)]
pub struct SpoolThread {
    commands: mpsc::Sender<Command>,
    thread: JoinHandle<()>,
}

/// Opens the spool and starts its thread.
///
/// # Errors
/// `io::Error`: the spool cannot be opened, or the thread cannot be started.
pub fn start(data_dir: &Path, limits: Limits, clock: Clock) -> io::Result<(Facts, SpoolThread)> {
    let spool = Spool::open(data_dir, limits, clock.clone())?;
    let (commands, queue) = mpsc::channel(QUEUE);
    let (publish, durable) = watch::channel(spool.durable());
    let uid = spool.uid().into();
    let meters = Meters::default();
    let disk = std::sync::Arc::<Disk>::default();
    let (counted, found) = (meters.clone(), std::sync::Arc::clone(&disk));
    let thread = std::thread::Builder::new()
        .name("spool".to_owned())
        .spawn(move || run(spool, queue, &publish, &counted, &found))?;
    let trace = std::sync::Arc::new(Trace::new(clock.clone()));
    let gate = std::sync::Arc::<Gate>::default();
    let facts = Facts { commands: commands.clone(), durable, uid, meters, trace, gate, disk, clock };
    Ok((facts, SpoolThread { commands, thread }))
}

impl Facts {
    /// Reports a fact without waiting for the disk, within its [budget](crate::gate). If the queue is full, the fact is
    /// dropped and logged.
    pub fn tell(&self, fact: Fact) {
        if let Some(fact) = self.admitted(fact) {
            self.push(fact);
        }
    }

    /// Reports leases whose budget has room again; all of them when the rack stops.
    pub fn tell_deferred(&self, stops: bool) {
        let due = if stops { self.gate.rest() } else { self.gate.due(self.clock.unix_now()) };
        for fact in due {
            self.meters.told(&fact);
            self.push(fact);
        }
    }

    fn push(&self, fact: Fact) {
        if self.commands.try_send(Command::Push(Box::new(fact), None)).is_err() {
            self.meters.lost();
            tracing::error!("a fact was dropped: the spool's disk does not keep up, or the rack is stopping");
        }
    }

    /// Reports a dispensable fact, if less than half of the queue is used.
    pub fn tell_if_there_is_room(&self, fact: Fact) {
        if self.commands.capacity() > QUEUE / 2 {
            self.tell(fact);
        }
    }

    /// Reports a fact and returns when it is durable. Returns at once if its [budget](crate::gate) is used up.
    ///
    /// # Errors
    /// `NotKept`: the fact is not durable.
    pub async fn record(&self, fact: Fact) -> Result<(), NotKept> {
        let Some(fact) = self.admitted(fact) else { return Ok(()) };
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Push(Box::new(fact), Some(reply))).await.map_err(|_| NotKept::Closed)?;
        answer.await.map_err(|_| NotKept::Closed)?.map_err(NotKept::Disk)
    }

    /// Applies the budget; every fact passes here. `None`: the fact exceeds its budget.
    fn admitted(&self, fact: Fact) -> Option<Fact> {
        let (mut fact, now_ms) = (printable(fact), self.clock.unix_now());
        if fact.observed_unix_ms == 0 {
            fact.observed_unix_ms = now_ms;
        }
        let admitted = self.gate.pass(fact, now_ms);
        match &admitted {
            Some(fact) => self.meters.told(fact),
            None => self.meters.left_out(),
        }
        admitted
    }

    /// Durable facts from this number on: at most one batch.
    ///
    /// # Errors
    /// `io::Error`: a segment cannot be read, or the rack is stopping.
    pub async fn read(&self, from: u64) -> io::Result<Vec<Fact>> {
        let closed = || io::Error::other("the spool is closed");
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Read { from, reply }).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Notes that a region has stored everything up to `through`.
    pub async fn acknowledge(&self, uid: &str, through: u64) {
        let command = Command::Acknowledge { uid: uid.to_owned(), through };
        if self.commands.send(command).await.is_err() {
            tracing::debug!("acknowledgement after the spool was closed");
        }
    }

    /// A watch on durable facts: its value is the number after the last one.
    #[must_use]
    pub fn durable(&self) -> watch::Receiver<u64> {
        self.durable.clone()
    }

    /// The name of the numbering.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The state of the rack's files on disk.
    #[must_use]
    pub fn disk(&self) -> std::sync::Arc<Disk> {
        std::sync::Arc::clone(&self.disk)
    }

    /// The trace of the requests of booting machines.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The clock that dates facts.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The rack's counters.
    #[must_use]
    pub fn meters(&self) -> &Meters {
        &self.meters
    }
}

impl SpoolThread {
    /// Makes reported facts durable and ends the thread.
    pub async fn stop(self) {
        let stopped = async {
            self.commands.send(Command::Stop).await.ok();
            tokio::task::spawn_blocking(move || self.thread.join()).await
        };
        if tokio::time::timeout(std::time::Duration::from_secs(10), stopped).await.is_err() {
            tracing::error!("the spool's disk did not take the last facts within 10 seconds");
        }
    }
}

fn run(
    mut spool: Spool,
    mut queue: mpsc::Receiver<Command>,
    publish: &watch::Sender<u64>,
    meters: &Meters,
    disk: &Disk,
) {
    let mut stop = false;
    // The number of the first fact that no region has stored, as far as this process knows.
    let mut unstored = spool.oldest();
    meters.spool(spool.durable().saturating_sub(unstored), spool.size());
    while !stop {
        let Some(first) = queue.blocking_recv() else { return };
        let mut waiting = Vec::new();
        let mut answered = Vec::new();
        let mut rest = Vec::new();
        let mut pushed = 0;
        let mut next = Some(first);
        let mut count = 0;
        while let Some(command) = next.take() {
            match command {
                Command::Push(fact, reply) => {
                    answered.extend(kill::seen(&fact));
                    let taken = spool.push(*fact);
                    pushed += u64::from(matches!(taken, Taken::Numbered(_)));
                    waiting.extend(reply.map(|reply| (reply, taken)));
                }
                Command::Stop => stop = true,
                other => rest.push(other),
            }
            count += 1;
            if count < BATCH && !stop {
                next = queue.try_recv().ok();
            }
        }
        let synced = spool.sync();
        if pushed > 0 {
            disk.wrote("facts", synced.as_ref().map(|_| ()));
        }
        let synced = synced.map_err(|error| error.to_string());
        kill::kept(&answered);
        if let Err(error) = &synced {
            tracing::error!(%error, "the spool cannot be written; facts are lost until it can");
            (0..pushed).for_each(|_| meters.lost());
        }
        // Wake readers only for new facts: a read passes through this loop, and would wake itself for ever.
        let now = spool.durable();
        publish.send_if_modified(|known| std::mem::replace(known, now) != now);
        for (reply, taken) in waiting {
            let answer = match taken {
                Taken::Numbered(_) => synced.clone(),
                Taken::Skipped => {
                    meters.lost();
                    Err("the spool is nearly full, or the fact is too large".to_owned())
                }
            };
            reply.send(answer).ok();
        }
        for command in rest {
            match command {
                Command::Read { from, reply } => {
                    reply.send(spool.read(from, SENT_FACTS, SENT_BYTES)).ok();
                }
                Command::Acknowledge { uid, through } => {
                    if let Err(error) = spool.acknowledge(&uid, through) {
                        tracing::error!(%error, "an acknowledged segment could not be removed");
                    }
                    if uid == spool.uid() && through < spool.durable() {
                        unstored = unstored.max(through.saturating_add(1));
                    }
                }
                Command::Push(..) | Command::Stop => {}
            }
        }
        // Facts that the spool dropped do not wait any more.
        unstored = unstored.max(spool.oldest());
        meters.spool(spool.durable().saturating_sub(unstored), spool.size());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_proto::rack_v1::{BootAlarm, fact};

    #[tokio::test]
    async fn a_recorded_fact_is_durable_and_wakes_its_reader() {
        let dir = tempfile::tempdir().unwrap();
        let (facts, thread) = start(dir.path(), Limits::default(), Clock::default()).unwrap();
        let mut durable = facts.durable();
        durable.mark_unchanged();
        let body = Some(fact::Body::Alarm(BootAlarm::default()));
        facts.record(Fact { body: body.clone(), ..Fact::default() }).await.unwrap();
        durable.changed().await.unwrap();
        assert_eq!(*durable.borrow(), 2);
        let read = facts.read(0).await.unwrap();
        assert_eq!((read.len(), read[0].seq), (1, 1));
        assert!(!durable.has_changed().unwrap(), "reading is no news");
        thread.stop().await;
        assert_eq!(facts.record(Fact { body, ..Fact::default() }).await, Err(NotKept::Closed));
        let (facts, thread) = start(dir.path(), Limits::default(), Clock::default()).unwrap();
        assert_eq!(facts.read(0).await.unwrap().len(), 1);
        thread.stop().await;
    }
}
