//! The journal: the lines of all machines in the order of their arrival, for syslog receivers.
//!
//! It exists while Settings name receivers. A file is removed once all receivers have its lines, or when the limits of Settings require it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::sync::atomic::Ordering;

use basalt_db::Positions;

use super::files::{Position, Reader, Segment, segments};
use super::line::Stored;
use super::{JOURNAL, Lines, Logs, State};

/// The largest size of a file, in bytes. Files are only removed as a whole.
const PART: u64 = 16 << 20;
/// The number of files in a journal of the largest allowed size. With several files, the oldest part can be removed alone.
const PARTS: u64 = 64;

impl Logs {
    /// Switches the journal on or off. Lines that arrive from now on are written to it, or no longer. Blocks on the disk.
    pub(super) fn set_forwarding(&self, forwards: bool) -> io::Result<()> {
        if self.0.forwards.load(Ordering::Relaxed) == forwards {
            return Ok(());
        }
        let dir = self.of(JOURNAL);
        let mut state = self.state();
        if forwards {
            fs::create_dir_all(&dir)?;
        } else {
            state.tails.remove(JOURNAL);
            state.dirty.retain(|log| log != JOURNAL);
            fs::remove_dir_all(&dir)?;
        }
        self.0.forwards.store(forwards, Ordering::Relaxed);
        drop(state);
        Ok(())
    }

    pub(super) fn append_to_journal(&self, state: &mut State, lines: &[u8]) -> io::Result<()> {
        let part = (self.limits().size.bytes() / PARTS).clamp(1, PART);
        let appended = self.tail(state, JOURNAL)?.append(lines, part);
        if !state.dirty.iter().any(|log| log == JOURNAL) {
            state.dirty.push(JOURNAL.to_owned());
        }
        if appended.is_err() {
            state.tails.remove(JOURNAL);
        }
        appended
    }

    /// Lines after a position of this region's journal, without the lines up to the numbers in `seen`.
    pub(super) fn journal(&self, position: Position, seen: Positions) -> Lines {
        self.lines(Reader::new(self.of(JOURNAL), position).after(seen))
    }

    /// The number of bytes of the journal after a position. Blocks on the disk.
    pub(super) fn waiting(&self, position: Position) -> io::Result<u64> {
        let segments = segments(&self.of(JOURNAL))?;
        Ok(segments.iter().map(|segment| position.bytes_after(segment)).sum())
    }

    /// Removes files that are too old, and returns the others.
    pub(super) fn journal_within(&self, is_old: impl Fn(&Segment) -> bool) -> io::Result<Vec<Segment>> {
        let dir = self.of(JOURNAL);
        let (old, kept): (Vec<_>, Vec<_>) = segments(&dir)?.into_iter().partition(is_old);
        for segment in old {
            self.remove(&dir, &segment)?;
        }
        Ok(kept)
    }

    /// Removes the files whose lines all receivers have. Blocks on the disk.
    pub(super) fn trim(&self, receivers: &BTreeMap<String, Positions>) -> io::Result<()> {
        let dir = self.of(JOURNAL);
        let mut segments = segments(&dir)?;
        // The last file is still written to.
        segments.pop();
        for segment in segments {
            let ends = ends(&segment.path)?;
            let has = |receiver: &Positions| {
                ends.iter().all(|(spool, end)| receiver.get(spool).is_some_and(|through| through >= end))
            };
            if !receivers.values().all(has) {
                break;
            }
            self.remove(&dir, &segment)?;
        }
        Ok(())
    }
}

/// The last number of each spool in a file.
fn ends(path: &Path) -> io::Result<Positions> {
    let mut ends = Positions::new();
    let mut file = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line)? > 0 {
        if let Ok(stored) = serde_json::from_slice::<Stored>(&line) {
            let end = ends.entry(stored.spool).or_default();
            *end = stored.seq.max(*end);
        }
        line.clear();
    }
    Ok(ends)
}
