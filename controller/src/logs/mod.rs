//! Logs of machines: lines that racks deliver, in files below the data directory (docs/decisions/094-logs.md).
//!
//! ```text
//! DIR/logs/machines/UID/0000000001.jsonl   a machine's log; `unknown` has the lines of unknown senders
//! DIR/logs/cursors                         the number up to which this disk has each rack's spool
//! DIR/logs/forward/0000000001.jsonl        the lines of all machines in order, while Settings.remote_syslog has receivers
//! ```
//! A rack delivers its lines to each region separately, so each region has all lines. A region reports the number up to which it has a
//! spool, and the rack sends the lines after it. The rack keeps each line for another hour. So a region acknowledges a line once it is
//! written, before it is durable; the cursors contain only what is durable. After a power cut the rack sends some lines again, and readers
//! skip repetitions.

mod files;
pub(crate) mod forward;
mod journal;
mod line;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use basalt_api::kinds::{LogSettings, SettingsSpec};
use basalt_api::values::{RackId, Timestamp, Uid};
use basalt_api::wire::LogLine;
use basalt_db::Store;
use basalt_proto::rack_v1::LogBatch;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub use files::Position;
use files::{Reader, Segment, Tail, segments};
use line::Stored;

/// Bytes of the disk that must stay free, because PostgreSQL may use the same disk.
const RESERVE: u64 = 1 << 30;
/// The number of files in a log of the largest allowed size. With several files, the oldest part can be removed alone.
const PARTS: u64 = 8;
/// The largest number of open files.
const OPEN: usize = 256;
/// Time between two syncs of the files.
const SYNC: Duration = Duration::from_secs(5);
/// Time between two enforcements of the limits.
const TIDY: Duration = Duration::from_secs(60);
/// The largest number of lines per request, and the largest number of bytes of their texts.
pub(crate) const MOST: usize = 10_000;
const MOST_BYTES: usize = 8 << 20;
/// The largest expected difference between the clocks of racks and of this host.
const SLACK: Duration = Duration::from_secs(3600);
/// The directory for lines of unknown senders.
const UNKNOWN: &str = "unknown";
/// The log with the lines of all machines, for syslog receivers.
const JOURNAL: &str = "forward";

/// The reason for which lines are refused.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk is full, except for the reserve.
    #[error(
        "{} has {free} bytes left, and {RESERVE} of them stay free for the database. New lines of logs wait at racks, and the oldest are lost when a rack has no room for more; make room",
        path.display()
    )]
    Full {
        /// The directory of logs.
        path: PathBuf,
        /// Free bytes on the disk.
        free: u64,
    },
    /// A file cannot be written or read.
    #[error("the log cannot be written or read: {0}")]
    File(#[from] io::Error),
}

/// A filter of lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pub(crate) since: Option<Timestamp>,
    /// Lines before this time.
    pub(crate) until: Option<Timestamp>,
    /// Lines that contain this text.
    pub(crate) grep: Option<String>,
    pub(crate) limit: usize,
}

impl Query {
    fn takes(&self, line: &Stored) -> bool {
        let is_since = self.since.is_none_or(|since| line.at >= since.as_millisecond());
        let is_until = self.until.is_none_or(|until| line.at < until.as_millisecond());
        is_since && is_until && self.grep.as_ref().is_none_or(|text| line.has(text))
    }
}

/// Lines that were read.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Each line with the position after it.
    pub(crate) lines: Vec<(LogLine, Position)>,
    /// True: there are earlier ones.
    pub(crate) more: bool,
    /// The position at the end of the log.
    pub(crate) position: Position,
}

/// The progress of a rack's spool at this region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Cursor {
    spool: String,
    through: u64,
}

#[derive(Debug, Default)]
struct State {
    cursors: BTreeMap<RackId, Cursor>,
    /// The cursors on disk.
    synced: BTreeMap<RackId, Cursor>,
    tails: HashMap<String, Tail>,
    /// Logs with lines that are not synced.
    dirty: Vec<String>,
}

/// The logs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Logs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    state: Mutex<State>,
    limits: Mutex<LogSettings>,
    /// True: lines are written to the journal too.
    forwards: AtomicBool,
    /// Changes when lines arrive.
    news: watch::Sender<u64>,
}

impl Logs {
    /// Opens the directory, or creates it.
    ///
    /// # Errors
    /// Fails if the file system does.
    pub fn open(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(dir.join("machines"))?;
        let cursors: BTreeMap<RackId, Cursor> = match fs::read(dir.join("cursors")) {
            // Without the cursors, racks send all lines again that they still have.
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        // Lines that arrive before Settings are read are forwarded, too.
        let forwards = AtomicBool::new(dir.join(JOURNAL).exists());
        let state = State { synced: cursors.clone(), cursors, ..State::default() };
        Ok(Self(Arc::new(Inner {
            dir,
            state: Mutex::new(state),
            limits: Mutex::new(LogSettings::default()),
            forwards,
            news: watch::Sender::new(0),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limits(&self) -> LogSettings {
        self.0.limits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn of(&self, log: &str) -> PathBuf {
        match log {
            JOURNAL => self.0.dir.join(JOURNAL),
            log => self.0.dir.join("machines").join(log),
        }
    }

    /// Stores a rack's lines. Returns the number up to which this region has all lines of the spool. Blocks on the disk.
    ///
    /// # Errors
    /// Fails if the lines cannot be written; then the rack sends them again.
    pub fn store(&self, rack: RackId, batch: LogBatch) -> Result<u64, LogError> {
        let mut state = self.state();
        let known = state.cursors.get(&rack).filter(|cursor| cursor.spool == batch.spool_uid);
        let through = known.map_or(0, |cursor| cursor.through);
        let mut last = through;
        let mut logs: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut journal = self.0.forwards.load(Ordering::Relaxed).then(Vec::new);
        for line in batch.lines.into_iter().filter(|line| line.seq > through) {
            last = last.max(line.seq);
            // Accept only a machine's id, not a path.
            let machine = line.machine_uid.parse::<Uid>().ok();
            let log = machine.map_or(UNKNOWN.to_owned(), |uid| uid.to_string());
            let mut stored = Stored::new(&batch.spool_uid, line);
            stored.append_to(logs.entry(log).or_default())?;
            if let Some(journal) = &mut journal {
                stored.machine = machine;
                stored.append_to(journal)?;
            }
        }
        if logs.is_empty() {
            return Ok(through);
        }
        self.has_room()?;
        // The journal is written first: if that fails, the rack sends all lines again.
        if let Some(journal) = journal {
            self.append_to_journal(&mut state, &journal)?;
        }
        let part = (self.limits().machine_size.bytes() / PARTS).max(1);
        for (log, lines) in logs {
            let tail = match self.tail(&mut state, &log) {
                Ok(tail) => tail,
                // Go on with the lines of other logs.
                Err(error) => {
                    tracing::error!(%error, log, "a log cannot be opened; lines of it are lost");
                    continue;
                }
            };
            let appended = tail.append(&lines, part);
            if !state.dirty.contains(&log) {
                state.dirty.push(log.clone());
            }
            if let Err(error) = appended {
                state.tails.remove(&log);
                return Err(error.into());
            }
        }
        state.cursors.insert(rack, Cursor { spool: batch.spool_uid, through: last });
        drop(state);
        self.0.news.send_modify(|number| *number += 1);
        Ok(last)
    }

    fn tail<'a>(&self, state: &'a mut State, log: &str) -> io::Result<&'a mut Tail> {
        if state.tails.len() >= OPEN && !state.tails.contains_key(log) {
            // Closes another file. Its log stays in `dirty`, so the next sync makes its lines durable.
            let closed = state.tails.keys().next().cloned();
            closed.and_then(|closed| state.tails.remove(&closed));
        }
        match state.tails.entry(log.to_owned()) {
            std::collections::hash_map::Entry::Occupied(tail) => Ok(tail.into_mut()),
            std::collections::hash_map::Entry::Vacant(place) => Ok(place.insert(Tail::open(&self.of(log))?)),
        }
    }

    fn has_room(&self) -> Result<(), LogError> {
        let disk = rustix::fs::statvfs(&self.0.dir).map_err(io::Error::from)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free > RESERVE { Ok(()) } else { Err(LogError::Full { path: self.0.dir.clone(), free }) }
    }

    /// Syncs the logs, and then the cursors. Blocks on the disk.
    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        while let Some(log) = state.dirty.last().cloned() {
            match state.tails.get(&log) {
                Some(tail) => tail.sync()?,
                None => Tail::open(&self.of(&log))?.sync()?,
            }
            state.dirty.pop();
        }
        if state.cursors == state.synced {
            return Ok(());
        }
        let cursors = state.cursors.clone();
        let path = self.0.dir.join("cursors");
        let beside = path.with_extension("new");
        let mut file = fs::File::create(&beside)?;
        file.write_all(&serde_json::to_vec(&cursors)?)?;
        file.sync_all()?;
        fs::rename(&beside, &path)?;
        state.synced = cursors;
        Ok(())
    }

    /// The last lines of a machine's log that match. Blocks on the disk.
    ///
    /// # Errors
    /// Fails if the file system does.
    pub(crate) fn read(&self, machine: Uid, query: &Query) -> io::Result<Page> {
        let dir = self.of(&machine.to_string());
        let all = segments(&dir)?;
        let mut page = Page { position: end(&all), ..Page::default() };
        let (mut lines, mut bytes) = (VecDeque::new(), 0);
        let earliest = query.since.and_then(|since| SystemTime::from(since).checked_sub(SLACK));
        for segment in all.iter().rev() {
            if earliest.is_some_and(|earliest| segment.written < earliest) {
                break;
            }
            let mut here = Vec::new();
            let mut reader = Reader::new(dir.clone(), at(segment));
            while reader.position.same_file(&at(segment)) {
                let next = reader.next()?;
                if next.is_empty() {
                    break;
                }
                // Lines written after the list of files was read are left to a follower from that position.
                let last = at(segment).behind(segment.bytes);
                let is_here =
                    |(_, position): &(Stored, Position)| position.same_file(&last) && *position <= last;
                here.extend(next.into_iter().filter(is_here).filter(|(line, _)| query.takes(line)));
            }
            while let Some(line) = here.pop() {
                bytes += line.0.size();
                if lines.len() >= query.limit || bytes > MOST_BYTES {
                    page.more = true;
                    page.lines = told(lines);
                    return Ok(page);
                }
                lines.push_front(line);
            }
        }
        page.lines = told(lines);
        Ok(page)
    }

    /// Follows a machine's log from a position.
    pub(crate) fn follow(&self, machine: Uid, position: Position, query: Query) -> Follow {
        let lines = self.lines(Reader::new(self.of(&machine.to_string()), position));
        Follow { lines, query }
    }

    fn lines(&self, reader: Reader) -> Lines {
        Lines { reader: Some(reader), reading: None, news: self.0.news.subscribe() }
    }

    /// Syncs files, and removes what exceeds the limits of Settings, until the region stops.
    pub(crate) async fn keep(self, store: Store, mut stop: watch::Receiver<bool>) {
        let (mut sync, mut tidy) = (tokio::time::interval(SYNC), tokio::time::interval(TIDY));
        loop {
            let is_over = tokio::select! {
                _ = stop.changed() => true,
                _ = sync.tick() => false,
                _ = tidy.tick() => {
                    if let Err(error) = self.enforce(&store).await {
                        tracing::warn!(%error, "old logs cannot be removed");
                    }
                    false
                }
            };
            let logs = self.clone();
            if let Ok(Err(error)) = tokio::task::spawn_blocking(move || logs.sync()).await {
                tracing::error!(%error, "logs cannot be made durable");
            }
            if is_over {
                return;
            }
        }
    }

    /// Removes what exceeds the limits of Settings.
    ///
    /// # Errors
    /// Fails if the file system does.
    pub async fn enforce(&self, store: &Store) -> io::Result<()> {
        self.follow_settings(store).await;
        let logs = self.clone();
        tokio::task::spawn_blocking(move || logs.tidy()).await.map_err(io::Error::other)?
    }

    /// Reads the limits from Settings. If they cannot be read, the previous ones stay.
    async fn follow_settings(&self, store: &Store) {
        let Ok(settings) = store.all("Settings").await else { return };
        let limits = match settings.first() {
            Some(settings) => match serde_json::from_str::<SettingsSpec>(settings.spec.get()) {
                Ok(spec) => spec.logs,
                Err(_) => return,
            },
            None => LogSettings::default(),
        };
        *self.0.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Removes the oldest files of each log, and then the oldest of all logs, until the limits are kept. Blocks on the disk.
    fn tidy(&self) -> io::Result<()> {
        let limits = self.limits();
        let now = SystemTime::now();
        let is_old = |it: &Segment| now.duration_since(it.written).is_ok_and(|age| age > limits.keep.get());
        let mut kept: Vec<Segment> = Vec::new();
        for entry in fs::read_dir(self.0.dir.join("machines"))? {
            let dir = entry?.path();
            let mut own = segments(&dir)?;
            let mut bytes: u64 = own.iter().map(|it| it.bytes).sum();
            while let Some(first) = own.first()
                && (is_old(first) || bytes > limits.machine_size.bytes() && own.len() > 1)
            {
                let gone = own.remove(0);
                bytes -= gone.bytes;
                self.remove(&dir, &gone)?;
            }
            kept.append(&mut own);
        }
        kept.append(&mut self.journal_within(is_old)?);
        let mut bytes: u64 = kept.iter().map(|it| it.bytes).sum();
        kept.sort_by_key(|it| it.written);
        for segment in kept {
            if bytes <= limits.size.bytes() {
                break;
            }
            bytes -= segment.bytes;
            if let Some(dir) = segment.path.parent() {
                self.remove(dir, &segment)?;
            }
        }
        Ok(())
    }

    fn remove(&self, dir: &Path, segment: &Segment) -> io::Result<()> {
        let mut state = self.state();
        let log = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if state.tails.get(log).is_some_and(|tail| tail.path == segment.path) {
            // New lines go to a file with the next number: a number must not be used twice while somebody follows the log.
            if let Some(mut tail) = state.tails.remove(log) {
                tail.append(b"", 0)?;
                state.tails.insert(log.to_owned(), tail);
            }
        }
        fs::remove_file(&segment.path)?;
        // Removes the directory too if this was its last file.
        if log != JOURNAL {
            fs::remove_dir(dir).ok();
        }
        Ok(())
    }
}

fn told(lines: VecDeque<(Stored, Position)>) -> Vec<(LogLine, Position)> {
    lines.into_iter().map(|(line, position)| (line.told(), position)).collect()
}

fn at(segment: &Segment) -> Position {
    Position::start(segment.number)
}

fn end(segments: &[Segment]) -> Position {
    segments.last().map_or(Position::default(), |it| at(it).behind(it.bytes))
}

/// A stream of the lines of a log.
#[derive(Debug)]
struct Lines {
    reader: Option<Reader>,
    /// The task that reads; it owns the reader meanwhile. It continues if the future that waits for it is dropped.
    reading: Option<tokio::task::JoinHandle<Read>>,
    news: watch::Receiver<u64>,
}

/// A reader, and the lines that it has read.
type Read = (Reader, io::Result<Vec<(Stored, Position)>>);

impl Lines {
    /// The next lines, each with the position after it. Waits until there are some. No line is lost if the future is dropped.
    ///
    /// # Errors
    /// Fails if the file system does.
    async fn next(&mut self) -> io::Result<Vec<(Stored, Position)>> {
        loop {
            if let Some(mut reader) = self.reader.take() {
                self.news.borrow_and_update();
                self.reading = Some(tokio::task::spawn_blocking(move || {
                    let lines = reader.next();
                    (reader, lines)
                }));
            }
            if let Some(reading) = &mut self.reading {
                let read = reading.await;
                self.reading = None;
                let (reader, lines) = read.map_err(io::Error::other)?;
                let position = reader.position;
                self.reader = Some(reader);
                let lines = lines?;
                if !lines.is_empty() {
                    return Ok(lines);
                }
                if self.news.changed().await.is_err() {
                    return Err(io::Error::other(format!("the region stops; go on from {position}")));
                }
            } else {
                return Err(io::Error::other("the log could not be read before"));
            }
        }
    }
}

/// A stream of the matching lines of a machine's log.
#[derive(Debug)]
pub(crate) struct Follow {
    lines: Lines,
    query: Query,
}

impl Follow {
    /// The next lines, each with the position after it. Waits until there are some.
    ///
    /// # Errors
    /// Fails if the file system does.
    pub(crate) async fn next(&mut self) -> io::Result<Vec<(LogLine, Position)>> {
        loop {
            let lines = self.lines.next().await?.into_iter();
            let lines: Vec<_> = lines.filter(|(line, _)| self.query.takes(line)).collect();
            if !lines.is_empty() {
                return Ok(lines.into_iter().map(|(line, position)| (line.told(), position)).collect());
            }
        }
    }
}

#[cfg(test)]
mod tests;
