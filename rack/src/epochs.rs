//! Protection against late power commands: the retired incarnations, and the highest epoch per BMC. Stored in the file
//! `epochs`.
//!
//! | command | seen at this BMC before | decision |
//! | --- | --- | --- |
//! | of a retired incarnation | | refused |
//! | of a new incarnation | | run; the earlier incarnation is retired |
//! | lower epoch | a higher one | refused |
//! | same or higher epoch, new id | | run |
//! | id already run | finished | not run: its result is in the spool |
//! | id already run | still running | not run: its result will come |
//! | id already run | running when this rack stopped | run again if that is harmless, otherwise reported as interrupted |

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::journal::Journal;

/// The commands remembered per BMC, to recognise repeats.
const REMEMBERED: usize = 16;
/// The file is rewritten once it has grown by this many bytes.
const COMPACT_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Record {
    /// The incarnation in force from here on. Earlier ones are retired.
    Incarnation { uuid: String },
    /// A command was admitted (`done: false`) or has finished (`done: true`).
    Command { bmc: String, incarnation: String, epoch: u64, id: String, done: bool },
}

/// The decision about a power command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Run it, then call [`Epochs::finished`].
    Run,
    /// Do not run it: it repeats a command that has run or is running.
    Repeat,
    /// Repeats a command that was running when this rack was stopped. Its progress is unknown. The repeat is admitted.
    Interrupted,
    /// Do not run it: this BMC has seen a higher epoch, or the incarnation of the command is retired.
    Stale {
        /// The highest epoch that the BMC has seen.
        highest: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Running,
    Lost,
    Done,
}

#[derive(Debug, Default)]
struct High {
    incarnation: String,
    epoch: u64,
    commands: Vec<(String, Progress)>,
}

#[derive(Debug, Default)]
struct State {
    incarnation: Option<String>,
    retired: BTreeSet<String>,
    bmcs: BTreeMap<String, High>,
}

impl State {
    fn enter(&mut self, uuid: &str) {
        if let Some(before) = self.incarnation.replace(uuid.to_owned()).filter(|before| before != uuid) {
            self.retired.insert(before);
        }
    }

    fn apply(&mut self, record: &Record) {
        match record {
            Record::Incarnation { uuid } => self.enter(uuid),
            Record::Command { bmc, incarnation, epoch, id, done } => {
                let high = self.bmcs.entry(bmc.clone()).or_default();
                if high.incarnation != *incarnation {
                    *high = High { incarnation: incarnation.clone(), ..High::default() };
                }
                high.epoch = high.epoch.max(*epoch);
                high.commands.retain(|(known, _)| known != id);
                high.commands.push((id.clone(), if *done { Progress::Done } else { Progress::Lost }));
                let surplus = high.commands.len().saturating_sub(REMEMBERED);
                high.commands.drain(..surplus);
            }
        }
    }

    fn records(&self) -> Vec<Record> {
        let incarnations = self.retired.iter().chain(&self.incarnation);
        let mut records: Vec<Record> =
            incarnations.map(|uuid| Record::Incarnation { uuid: uuid.clone() }).collect();
        for (bmc, high) in &self.bmcs {
            records.extend(high.commands.iter().map(|(id, progress)| Record::Command {
                bmc: bmc.clone(),
                incarnation: high.incarnation.clone(),
                epoch: high.epoch,
                id: id.clone(),
                done: *progress == Progress::Done,
            }));
        }
        records
    }
}

/// The file and its state.
#[derive(Debug)]
pub struct Epochs {
    inner: Mutex<(Journal<Record>, State)>,
    /// The incarnation in force.
    in_force: watch::Sender<Option<String>>,
}

impl Epochs {
    /// Reads `DIR/epochs`.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be read or written.
    pub fn open(data_dir: &Path) -> io::Result<Self> {
        let (mut journal, found) = Journal::open(&data_dir.join("epochs"))?;
        let mut state = State::default();
        for record in &found.records {
            state.apply(record);
        }
        if found.skipped > 0 {
            tracing::error!(lines = found.skipped, "file `epochs` has damaged lines; they were skipped");
        }
        if !found.records.is_empty() {
            journal.rewrite(&state.records())?;
        }
        let in_force = watch::Sender::new(state.incarnation.clone());
        Ok(Self { inner: Mutex::new((journal, state)), in_force })
    }

    /// Incarnations that were replaced by another one.
    pub fn retired(&self) -> BTreeSet<String> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).1.retired.clone()
    }

    /// Waits until another incarnation than this one is in force.
    pub async fn replaced(&self, incarnation: &str) {
        let mut in_force = self.in_force.subscribe();
        // The sender lives as long as `self`, so this cannot fail.
        let _ = in_force.wait_for(|now| now.as_deref() != Some(incarnation)).await;
    }

    /// Puts the incarnation of a region in force and retires earlier ones. The region's link must have been
    /// authenticated.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be written; nothing has changed.
    pub fn enter(&self, incarnation: &str) -> io::Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (journal, state) = &mut *inner;
        if state.incarnation.as_deref() == Some(incarnation) || state.retired.contains(incarnation) {
            return Ok(());
        }
        journal.append(&[Record::Incarnation { uuid: incarnation.to_owned() }])?;
        state.enter(incarnation);
        self.in_force.send_replace(Some(incarnation.to_owned()));
        Ok(())
    }

    /// Decides about a command and stores the decision durably before the command may run.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be written; the command must not run.
    pub fn admit(&self, bmc: &str, incarnation: &str, epoch: u64, id: &str) -> io::Result<Admission> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (journal, state) = &mut *inner;
        let highest = state.bmcs.get(bmc).map_or(0, |high| high.epoch);
        if state.retired.contains(incarnation) {
            return Ok(Admission::Stale { highest });
        }
        if state.incarnation.as_deref() != Some(incarnation) {
            journal.append(&[Record::Incarnation { uuid: incarnation.to_owned() }])?;
            state.enter(incarnation);
            self.in_force.send_replace(Some(incarnation.to_owned()));
        }
        let mut admission = Admission::Run;
        if let Some(high) = state.bmcs.get_mut(bmc).filter(|high| high.incarnation == incarnation) {
            if epoch < high.epoch {
                return Ok(Admission::Stale { highest: high.epoch });
            }
            match high.commands.iter().find(|(known, _)| known == id) {
                Some((_, Progress::Lost)) => admission = Admission::Interrupted,
                Some(_) => return Ok(Admission::Repeat),
                None => {}
            }
        }
        let record = Record::Command {
            bmc: bmc.to_owned(),
            incarnation: incarnation.to_owned(),
            epoch,
            id: id.to_owned(),
            done: false,
        };
        journal.append(std::slice::from_ref(&record))?;
        state.apply(&record);
        set_progress(state, bmc, id, Progress::Running);
        journal.compact(COMPACT_BYTES, || Some(state.records()));
        Ok(admission)
    }

    /// Notes that the command's result is durable in the spool.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be written; a repeat after a restart would run again.
    pub fn finished(&self, bmc: &str, incarnation: &str, epoch: u64, id: &str) -> io::Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (journal, state) = &mut *inner;
        journal.append(&[Record::Command {
            bmc: bmc.to_owned(),
            incarnation: incarnation.to_owned(),
            epoch,
            id: id.to_owned(),
            done: true,
        }])?;
        set_progress(state, bmc, id, Progress::Done);
        Ok(())
    }
}

fn set_progress(state: &mut State, bmc: &str, id: &str, to: Progress) {
    let commands = state.bmcs.get_mut(bmc).map(|high| &mut high.commands);
    if let Some((_, progress)) =
        commands.and_then(|commands| commands.iter_mut().find(|(known, _)| known == id))
    {
        *progress = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BMC: &str = "10.0.0.1:623";

    #[test]
    fn refuses_what_is_older_and_runs_what_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let epochs = Epochs::open(dir.path()).unwrap();
        assert_eq!(epochs.admit(BMC, "a", 5, "x").unwrap(), Admission::Run);
        assert_eq!(epochs.admit(BMC, "a", 5, "y").unwrap(), Admission::Run);
        assert_eq!(epochs.admit(BMC, "a", 4, "z").unwrap(), Admission::Stale { highest: 5 });
        assert_eq!(epochs.admit("10.0.0.2:623", "a", 4, "z").unwrap(), Admission::Run);
        let epochs = Epochs::open(dir.path()).unwrap();
        assert_eq!(epochs.admit(BMC, "a", 4, "z").unwrap(), Admission::Stale { highest: 5 });
    }

    #[test]
    fn a_new_incarnation_starts_over_and_retires_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let epochs = Epochs::open(dir.path()).unwrap();
        epochs.admit(BMC, "a", 500, "x").unwrap();
        assert_eq!(epochs.admit(BMC, "b", 1, "y").unwrap(), Admission::Run);
        assert_eq!(epochs.admit(BMC, "a", 501, "z").unwrap(), Admission::Stale { highest: 1 });
        let epochs = Epochs::open(dir.path()).unwrap();
        assert_eq!(epochs.admit(BMC, "a", 502, "z").unwrap(), Admission::Stale { highest: 1 });
        assert_eq!(epochs.admit(BMC, "b", 2, "w").unwrap(), Admission::Run);
    }

    #[test]
    fn a_repeat_runs_only_if_the_rack_was_stopped_in_between() {
        let dir = tempfile::tempdir().unwrap();
        let epochs = Epochs::open(dir.path()).unwrap();
        assert_eq!(epochs.admit(BMC, "a", 1, "x").unwrap(), Admission::Run);
        assert_eq!(epochs.admit(BMC, "a", 1, "x").unwrap(), Admission::Repeat);
        let epochs = Epochs::open(dir.path()).unwrap();
        assert_eq!(epochs.admit(BMC, "a", 1, "x").unwrap(), Admission::Interrupted);
        assert_eq!(epochs.admit(BMC, "a", 1, "x").unwrap(), Admission::Repeat);
        epochs.finished(BMC, "a", 1, "x").unwrap();
        let epochs = Epochs::open(dir.path()).unwrap();
        assert_eq!(epochs.admit(BMC, "a", 1, "x").unwrap(), Admission::Repeat);
    }
}
