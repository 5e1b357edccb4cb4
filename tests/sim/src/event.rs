//! Events of a simulated machine, in order: the log that tests assert on.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use basalt_api::agent::Outcome;
use tokio::sync::watch;

use crate::fault::{Fault, Stage};

/// The software that asked for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The PXE ROM.
    Rom,
    /// iPXE, which the ROM has loaded.
    Ipxe,
    /// The ephemeral environment.
    Agent,
    /// The installed system.
    System,
}

/// The effect of a boot script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKind {
    /// A kernel was started.
    Ephemeral,
    /// The machine boots from its disk.
    Local,
    /// The machine switched itself off.
    PowerOff,
    /// The machine was reset.
    Reboot,
}

/// One kind of event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The power was switched on, and the firmware runs.
    PoweredOn,
    /// The power was cut.
    PoweredOff,
    /// The machine reset itself.
    Reset,
    /// An address was granted.
    DhcpAck {
        /// The software that has the lease.
        who: Speaker,
        /// The leased address.
        address: Ipv4Addr,
    },
    /// A boot loader was fetched by TFTP.
    TftpFetched {
        /// Name of the file.
        file: String,
        /// Size in bytes.
        bytes: usize,
    },
    /// A boot script ended.
    Script {
        /// The effect of the script.
        kind: ScriptKind,
    },
    /// The agent was granted a session.
    Claimed {
        /// Number of the attempt.
        attempt: u64,
    },
    /// The agent entered a stage.
    Stage {
        /// Number of the attempt; 0 before there is one.
        attempt: u64,
        /// The stage that begins.
        stage: Stage,
    },
    /// A disk's marker says `writing`: the first write of a destructive task.
    WroteDisk {
        /// Number of the attempt.
        attempt: u64,
    },
    /// A disk's marker says `installed`.
    Installed {
        /// Number of the attempt that installed it.
        attempt: u64,
    },
    /// A disk's marker says `erased`.
    Erased {
        /// Number of the attempt that erased it.
        attempt: u64,
    },
    /// A script was run, by an operation or as part of a task.
    RanScript {
        /// Number of the attempt.
        attempt: u64,
    },
    /// The rack accepted the result of a task.
    Delivered {
        /// Number of the attempt.
        attempt: u64,
        /// Outcome in the result.
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
        /// `booted`, `cloud_init`, `first_boot`, `first_boot_failed`.
        level: String,
    },
    /// No device boots, and the machine waits for a person.
    NothingBoots,
    /// A request of the machine was refused or failed.
    Refused {
        /// The request, the server, and the reason.
        why: String,
    },
    /// A fault fired.
    Faulted {
        /// The fault that fired.
        fault: Fault,
    },
}

/// An event with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Time since the machine was made.
    pub at: Duration,
    /// The event itself.
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

    /// The entries from `mark` on.
    pub(crate) fn since(&self, mark: usize) -> Vec<Entry> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(mark..).unwrap_or_default().to_vec()
    }

    /// The first entry from `mark` on that `wanted` accepts. None after `limit`.
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
                // The channel stays open: the log itself owns its sender.
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
