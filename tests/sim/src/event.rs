//! What a machine did, in order: the log that tests assert on.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use basalt_api::agent::Outcome;
use tokio::sync::watch;

use crate::fault::{Fault, Stage};

/// Which part of a machine asked for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The PXE ROM.
    Rom,
    /// iPXE.
    Ipxe,
    /// The ephemeral environment.
    Agent,
    /// The installed system.
    System,
}

/// What a boot script made of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKind {
    /// A kernel was started.
    Ephemeral,
    /// The disk is to be booted.
    Local,
    /// The machine switched itself off.
    PowerOff,
    /// The machine was reset.
    Reboot,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// There is power, and the firmware runs.
    PoweredOn,
    /// There is none.
    PoweredOff,
    /// The machine reset itself.
    Reset,
    /// An address was granted.
    DhcpAck {
        /// To whom.
        who: Speaker,
        /// Which.
        address: Ipv4Addr,
    },
    /// A boot loader came by TFTP.
    TftpFetched {
        /// Its name.
        file: String,
        /// Its size.
        bytes: usize,
    },
    /// A boot script ended.
    Script {
        /// How.
        kind: ScriptKind,
    },
    /// The agent was granted a session.
    Claimed {
        /// Of this attempt.
        attempt: u64,
    },
    /// The agent began something.
    Stage {
        /// Of this attempt; 0 before there is one.
        attempt: u64,
        /// What.
        stage: Stage,
    },
    /// A disk's marker says `writing`: the first write of a destructive task.
    WroteDisk {
        /// For this attempt.
        attempt: u64,
    },
    /// A disk's marker says `installed`.
    Installed {
        /// By this attempt.
        attempt: u64,
    },
    /// A disk's marker says `erased`.
    Erased {
        /// By this attempt.
        attempt: u64,
    },
    /// A script ran: one that was asked for, or one that belongs to a task.
    RanScript {
        /// For this attempt.
        attempt: u64,
    },
    /// The rack took a task's result.
    Delivered {
        /// Of this attempt.
        attempt: u64,
        /// What the result says.
        outcome: Outcome,
    },
    /// The system on the disk runs.
    BootedDisk {
        /// The attempt that installed it.
        attempt: u64,
        /// Its host name.
        hostname: String,
    },
    /// The rack took a report of the installed system.
    Reported {
        /// `booted`, `cloud_init`.
        level: String,
    },
    /// There is nothing to boot from, and the machine waits for somebody to see to it.
    NothingBoots,
    /// Somebody refused the machine something, or it came to nothing.
    Refused {
        /// What, by whom, why.
        why: String,
    },
    /// A fault fired.
    Faulted {
        /// Which.
        fault: Fault,
    },
}

/// An event, and when it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Since the machine was made.
    pub at: Duration,
    /// What.
    pub event: Event,
}

/// The log of one machine.
#[derive(Debug)]
pub(crate) struct Log {
    began: Instant,
    entries: Mutex<Vec<Entry>>,
    length: watch::Sender<usize>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), entries: Mutex::default(), length: watch::Sender::new(0) }
    }

    pub(crate) fn push(&self, event: Event) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push(Entry { at: self.began.elapsed(), event });
        self.length.send_replace(entries.len());
    }

    pub(crate) fn length(&self) -> usize {
        *self.length.borrow()
    }

    /// What was logged from `mark` on.
    pub(crate) fn since(&self, mark: usize) -> Vec<Entry> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(mark..).unwrap_or_default().to_vec()
    }

    /// The first entry from `mark` on that `wanted` accepts; none when `limit` has passed.
    pub(crate) async fn first(
        &self,
        mark: usize,
        wanted: impl Fn(&Event) -> bool,
        limit: Duration,
    ) -> Option<Entry> {
        let mut length = self.length.subscribe();
        let search = async {
            let mut seen = mark;
            loop {
                length.borrow_and_update();
                let news = self.since(seen);
                seen += news.len();
                if let Some(found) = news.into_iter().find(|entry| wanted(&entry.event)) {
                    return Some(found);
                }
                // The sender is this log's own.
                length.changed().await.ok()?;
            }
        };
        tokio::time::timeout(limit, search).await.ok().flatten()
    }

    /// The log as text, a line an event.
    pub(crate) fn text(&self) -> String {
        self.since(0).iter().fold(String::new(), |mut text, Entry { at, event }| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{:9.3} s  {event:?}", at.as_secs_f64());
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_for_what_comes_later_and_finds_what_was_there() {
        let log = Log::new();
        log.push(Event::PoweredOn);
        let limit = Duration::from_secs(5);
        let (found, ()) = tokio::join!(log.first(0, |event| *event == Event::Reset, limit), async {
            tokio::task::yield_now().await;
            log.push(Event::Reset);
        });
        assert_eq!(found.unwrap().event, Event::Reset);
        assert!(log.first(0, |event| *event == Event::PoweredOn, limit).await.is_some());
        assert!(log.first(1, |event| *event == Event::PoweredOn, Duration::from_millis(1)).await.is_none());
        assert!(log.text().contains("PoweredOn\n"));
    }
}
