//! The files of one log: `NUMBER.jsonl` (10 digits), with one [`Stored`] per line. Only the last file is written to.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

use super::line::Stored;

/// Bytes that are read at a time, so that other tasks can run.
const PIECE: u64 = 1 << 20;

/// A position in a log: the number of a file and an offset in it. As text `NUMBER:OFFSET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    file: u64,
    offset: u64,
}

impl Position {
    pub(super) const fn start(file: u64) -> Self {
        Self { file, offset: 0 }
    }

    pub(super) const fn behind(self, offset: u64) -> Self {
        Self { offset, ..self }
    }

    /// The number of bytes in a file after this position.
    pub(super) fn bytes_after(&self, segment: &Segment) -> u64 {
        match segment.number.cmp(&self.file) {
            Ordering::Less => 0,
            Ordering::Equal => segment.bytes.saturating_sub(self.offset),
            Ordering::Greater => segment.bytes,
        }
    }

    pub(super) const fn same_file(&self, other: &Self) -> bool {
        self.file == other.file
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.offset)
    }
}

impl FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts =
            text.split_once(':').and_then(|(file, offset)| Some((file.parse().ok()?, offset.parse().ok()?)));
        let (file, offset) = parts.ok_or_else(|| format!("{text:?} is no position in a log"))?;
        Ok(Self { file, offset })
    }
}

/// A file of a log.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) written: SystemTime,
}

/// The files of a log, the oldest first. Empty if nothing was logged.
pub(super) fn segments(dir: &Path) -> io::Result<Vec<Segment>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut segments = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let Some(number) = number(&path) else { continue };
        // Another task may just have removed it.
        let Ok(meta) = fs::metadata(&path) else { continue };
        let written = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        segments.push(Segment { number, path, bytes: meta.len(), written });
    }
    segments.sort_by_key(|segment| segment.number);
    Ok(segments)
}

fn number(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
    name.parse().ok().filter(|_| name.len() == 10)
}

/// The last file of a log, to which lines are appended.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) path: PathBuf,
    number: u64,
    file: File,
    bytes: u64,
}

impl Tail {
    /// Opens the last file of a log, or creates the first. If a crash cut the last line short, a line break is added.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let last = segments(dir)?.pop();
        let Some(Segment { number, path, bytes, .. }) = last else {
            fs::create_dir_all(dir)?;
            return Self::begin(dir, 1);
        };
        let mut file = OpenOptions::new().read(true).append(true).open(&path)?;
        let mut bytes = bytes;
        if bytes > 0 {
            let mut end = [0];
            file.seek(SeekFrom::Start(bytes - 1))?;
            file.read_exact(&mut end)?;
            if end != *b"\n" {
                file.write_all(b"\n")?;
                bytes += 1;
            }
        }
        Ok(Self { path, number, file, bytes })
    }

    fn begin(dir: &Path, number: u64) -> io::Result<Self> {
        let path = dir.join(format!("{number:010}.jsonl"));
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        Ok(Self { path, number, file, bytes: 0 })
    }

    /// Appends whole lines. If the file has `most` bytes already, a new file begins.
    pub(super) fn append(&mut self, lines: &[u8], most: u64) -> io::Result<()> {
        if self.bytes >= most
            && let Some(dir) = self.path.parent()
        {
            self.file.sync_data()?;
            *self = Self::begin(dir, self.number + 1)?;
        }
        if let Err(error) = self.file.write_all(lines) {
            self.file.set_len(self.bytes)?;
            return Err(error);
        }
        self.bytes += u64::try_from(lines.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Reads a log from a position. It skips lines that a rack sent a second time.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) dir: PathBuf,
    pub(super) position: Position,
    /// The number of the last line that was read, by spool.
    seen: HashMap<String, u64>,
}

impl Reader {
    pub(super) fn new(dir: PathBuf, position: Position) -> Self {
        Self { dir, position, seen: HashMap::new() }
    }

    /// Skips lines up to these numbers, too.
    pub(super) fn after(self, seen: impl IntoIterator<Item = (String, u64)>) -> Self {
        Self { seen: seen.into_iter().collect(), ..self }
    }

    /// The next lines, each with the position after it. Empty: there are no more yet.
    pub(super) fn next(&mut self) -> io::Result<Vec<(Stored, Position)>> {
        let segments = segments(&self.dir)?;
        let mut lines = Vec::new();
        let begins = self.position.file;
        for segment in segments.iter().filter(|it| it.number >= begins) {
            if segment.number > self.position.file {
                self.position = Position { file: segment.number, offset: 0 };
            }
            if segment.bytes <= self.position.offset {
                continue;
            }
            // All lines that were read may be repetitions: read on.
            while lines.is_empty() && self.position.offset < segment.bytes {
                let before = self.position;
                self.read(&segment.path, &mut lines)?;
                if self.position == before {
                    break;
                }
            }
            if !lines.is_empty() {
                break;
            }
        }
        Ok(lines)
    }

    fn read(&mut self, path: &Path, lines: &mut Vec<(Stored, Position)>) -> io::Result<()> {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        file.seek(SeekFrom::Start(self.position.offset))?;
        let (mut reader, mut read, mut line) = (BufReader::new(file), 0, Vec::new());
        while read < PIECE {
            line.clear();
            let length = reader.read_until(b'\n', &mut line)?;
            // The line is still being written.
            if !line.ends_with(b"\n") {
                break;
            }
            let length = u64::try_from(length).unwrap_or(u64::MAX);
            (read, self.position.offset) = (read + length, self.position.offset + length);
            // Skip a line that a crash cut short.
            let Ok(stored) = serde_json::from_slice::<Stored>(&line) else { continue };
            let last = self.seen.entry(stored.spool.clone()).or_default();
            if stored.seq > *last {
                *last = stored.seq;
                lines.push((stored, self.position));
            }
        }
        Ok(())
    }
}
