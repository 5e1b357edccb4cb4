//! The thread of the log spool. It syncs the disk at most once a second, however many lines arrive.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use basalt_proto::rack_v1::LogLine;
use tokio::sync::{oneshot, watch};

use super::spool::LogSpool;
use super::{LOST, own_line};
use crate::clock::Clock;
use crate::disk::is_full;
use crate::health::Health;

/// The most lines that wait for the thread.
const QUEUE: usize = 16_384;
/// The shortest time between two syncs.
const SYNC: Duration = Duration::from_secs(1);
/// The number of pending bytes that are written before their second is over.
const PENDING: usize = 8 << 20;

pub(super) enum Command {
    Push(Box<LogLine>),
    /// This many lines of the machine could not be queued.
    Lose(String, u64),
    Read {
        from: u64,
        bytes: usize,
        reply: oneshot::Sender<io::Result<Vec<LogLine>>>,
    },
    Stored {
        any: u64,
        all: u64,
    },
    Stop,
}

/// Stops the thread.
#[derive(Debug)]
pub struct LogThread {
    commands: SyncSender<Command>,
    thread: JoinHandle<()>,
}

impl LogThread {
    /// Makes the queued lines durable, and ends the thread.
    pub async fn stop(self) {
        let stopped = tokio::task::spawn_blocking(move || {
            self.commands.send(Command::Stop).ok();
            self.thread.join()
        });
        if tokio::time::timeout(Duration::from_secs(10), stopped).await.is_err() {
            tracing::error!("the disk did not take the last lines of logs within 10 seconds");
        }
    }
}

/// Starts the thread.
pub(super) fn start(
    spool: LogSpool,
    clock: Clock,
    health: Health,
) -> io::Result<(SyncSender<Command>, watch::Receiver<u64>, LogThread)> {
    let (commands, queue) = sync_channel(QUEUE);
    let (publish, durable) = watch::channel(spool.durable());
    let writer = Writer { spool, clock, health, publish, synced: None };
    let thread = std::thread::Builder::new().name("logs".to_owned()).spawn(move || writer.run(&queue))?;
    Ok((commands.clone(), durable, LogThread { commands, thread }))
}

struct Writer {
    spool: LogSpool,
    clock: Clock,
    health: Health,
    publish: watch::Sender<u64>,
    synced: Option<Instant>,
}

impl Writer {
    fn run(mut self, queue: &Receiver<Command>) {
        loop {
            let command = match self.due() {
                None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => queue.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            match command {
                Ok(Command::Push(line)) => self.spool.push(*line),
                Ok(Command::Lose(machine, lines)) => self.spool.lose(machine, lines),
                Ok(Command::Read { from, bytes, reply }) => drop(reply.send(self.spool.read(from, bytes))),
                Ok(Command::Stored { any, all }) => {
                    if let Err(error) = self.spool.stored(any, all) {
                        tracing::error!(%error, "a segment of logs that the regions have could not be removed");
                    }
                }
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => return self.sync(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.due().is_some_and(|due| due <= Instant::now()) {
                self.sync();
            }
        }
    }

    /// The time by which the pending lines must be durable.
    fn due(&self) -> Option<Instant> {
        let now = Instant::now();
        let due =
            if self.spool.pending_bytes() >= PENDING { now } else { self.synced.map_or(now, |at| at + SYNC) };
        (self.spool.pending_bytes() > 0).then_some(due)
    }

    fn sync(&mut self) {
        let synced = self.spool.sync();
        self.synced = Some(Instant::now());
        match synced {
            Ok(()) => {
                self.health.up();
                for (machine, lines) in self.spool.take_lost() {
                    let text = format!("{lines} {LOST}");
                    self.spool.push(own_line(machine, String::new(), text, self.clock.unix_now()));
                }
            }
            Err(error) => {
                let room = if is_full(&error) {
                    "make room on the disk of this rack's --data-dir"
                } else {
                    "mend the disk of this rack's --data-dir"
                };
                self.health.down(&format!("lines of logs cannot be kept and are lost: {error}; {room}"));
            }
        }
        let now = self.spool.durable();
        self.publish.send_if_modified(|known| std::mem::replace(known, now) != now);
    }
}
