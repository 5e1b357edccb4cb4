//! Lines of logs on their way to the regions: numbered, in order, apart from facts.
//!
//! Directory `logs/`: `uid` names this numbering, and `SEQ.lines` (20 digits, the number of its first line) are append-only segments of
//! [`record`]s. A line is delivered only once it is durable, so a number that a region has seen is never given to another line.
//!
//! | a segment goes | when |
//! | --- | --- |
//! | in order | each linked region has it, and it is an hour old: a region that was away for less receives the lines later |
//! | the oldest | the spool is full, or the disk has little room left |
//!
//! Lines that no region has and that cannot be kept are counted for each machine. The count becomes a line of the machine's log.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use basalt_proto::rack_v1::LogLine;

use crate::durable;
use crate::spool::record;

/// The limits of the spool's size.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The size of all segments together, in bytes. At most a twentieth of the disk.
    pub total: u64,
    /// The size of one segment, in bytes.
    pub segment: u64,
    /// The bytes of the disk that stay free for facts and leases.
    pub reserve: u64,
    /// How long a segment is kept after the linked regions have it.
    pub kept: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { total: 1 << 30, segment: 4 << 20, reserve: 64 << 20, kept: Duration::from_secs(3600) }
    }
}

/// The most machines whose lost lines are counted separately.
const COUNTED: usize = 4096;
/// The most readers whose positions are remembered.
const CURSORS: usize = 8;

#[derive(Debug)]
struct Segment {
    first: u64,
    /// The number of the line after its last one.
    next: u64,
    bytes: u64,
    path: PathBuf,
}

/// The end of a read, so that the next one need not search.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    seq: u64,
    segment: u64,
    offset: u64,
}

/// The number of lost lines, by machine. Those of unknown senders are counted together.
pub type Lost = BTreeMap<String, u64>;

/// The spool. Blocks on the disk; [`super::writer`] gives it a thread.
#[derive(Debug)]
pub struct LogSpool {
    dir: PathBuf,
    uid: String,
    limits: Limits,
    segments: Vec<Segment>,
    active: File,
    /// There may be bytes of a failed write at the end of the active segment.
    is_torn: bool,
    pending: Vec<u8>,
    /// The machines of the pending lines.
    writers: Lost,
    next: u64,
    durable: u64,
    /// A region has all lines up to here.
    stored: u64,
    cursors: Vec<Cursor>,
    lost: Lost,
}

impl LogSpool {
    /// Opens or creates the spool. The part of a line that a crash left is removed.
    ///
    /// # Errors
    /// `io::Error`: a file cannot be read or written.
    pub fn open(data_dir: &Path, mut limits: Limits) -> io::Result<Self> {
        let dir = data_dir.join("logs");
        durable::private_dir(&dir)?;
        limits.total = limits.total.min(disk(&dir)?.size / 20).max(2 * limits.segment);
        let mut segments: Vec<Segment> = Vec::new();
        for path in segment_paths(&dir)? {
            let segment = recover(path)?;
            if let Some(before) = segments.last_mut() {
                // Left by a rotation that failed: its lines are in the segment before it.
                if segment.bytes == 0 && segment.first < before.next {
                    fs::remove_file(&segment.path)?;
                    continue;
                }
                before.next = before.next.min(segment.first);
            }
            segments.push(segment);
        }
        let uid_path = dir.join("uid");
        let known = fs::read_to_string(&uid_path).ok().map(|uid| uid.trim().to_owned());
        let uid = match known.filter(|uid| !uid.is_empty() && !segments.is_empty()) {
            Some(uid) => uid,
            None => {
                let uid = uuid::Uuid::new_v4().to_string();
                durable::replace(&uid_path, uid.as_bytes())?;
                uid
            }
        };
        let next = segments.last().map_or(1, |segment| segment.next);
        let active = match segments.last() {
            Some(last) => OpenOptions::new().append(true).open(&last.path)?,
            None => {
                let (segment, file) = create(&dir, next)?;
                segments.push(segment);
                file
            }
        };
        Ok(Self {
            dir,
            uid,
            limits,
            segments,
            active,
            is_torn: false,
            pending: Vec::new(),
            writers: Lost::new(),
            next,
            durable: next,
            stored: 0,
            cursors: Vec::new(),
            lost: Lost::new(),
        })
    }

    /// The name of this numbering.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// All lines before this number are durable.
    #[must_use]
    pub const fn durable(&self) -> u64 {
        self.durable
    }

    /// The bytes of lines that wait for [`LogSpool::sync`].
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Gives a line its number. It is durable, and delivered, after the next [`LogSpool::sync`].
    pub fn push(&mut self, mut line: LogLine) {
        line.seq = self.next;
        if record::encode(&mut self.pending, &line) {
            self.next += 1;
            count(&mut self.writers, line.machine_uid, 1);
        }
    }

    /// Counts lines of a machine as lost.
    pub fn lose(&mut self, machine: String, lines: u64) {
        count(&mut self.lost, machine, lines);
    }

    /// Returns the counts of lost lines and resets them. [`LogSpool::sync`] has to succeed first.
    pub fn take_lost(&mut self) -> Lost {
        std::mem::take(&mut self.lost)
    }

    /// Makes all numbered lines durable.
    ///
    /// # Errors
    /// `io::Error`: a file cannot be written, or the disk has too little room. The lines since the last sync are lost,
    /// and their numbers are used again.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let (pending, writers) = (std::mem::take(&mut self.pending), std::mem::take(&mut self.writers));
        if let Err(error) = self.make_room(pending.len() as u64).and_then(|()| self.write(&pending)) {
            self.next = self.durable;
            writers.into_iter().for_each(|(machine, lines)| self.lose(machine, lines));
            return Err(error);
        }
        self.durable = self.next;
        // The lines are durable whatever happens here. The next sync tries it again.
        if let Err(error) = self.tidy() {
            tracing::error!(%error, "a segment of logs cannot be begun or removed; check the disk of the data directory");
        }
        Ok(())
    }

    /// Begins another segment if the active one is large enough, and drops the oldest lines if there are too many.
    fn tidy(&mut self) -> io::Result<()> {
        if self.segments.last().is_some_and(|last| last.bytes >= self.limits.segment) {
            let (segment, file) = create(&self.dir, self.durable)?;
            self.segments.push(segment);
            self.active = file;
        }
        while self.size() > self.limits.total && self.segments.len() > 1 {
            self.drop_oldest()?;
        }
        Ok(())
    }

    /// Makes sure that the disk keeps room for facts after the lines are written.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        while disk(&self.dir)?.free < self.limits.reserve.saturating_add(bytes) {
            if self.segments.len() < 2 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.drop_oldest()?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(last) = self.segments.last_mut() else {
            return Err(io::Error::other("the spool of logs has no segment"));
        };
        // Records behind a torn one could not be read.
        if self.is_torn {
            self.active.set_len(last.bytes)?;
            self.is_torn = false;
        }
        if let Err(error) = self.active.write_all(bytes).and_then(|()| self.active.sync_data()) {
            self.is_torn = self.active.set_len(last.bytes).is_err();
            return Err(error);
        }
        last.bytes += bytes.len() as u64;
        last.next = self.next;
        Ok(())
    }

    /// Durable lines from this number on, in order, up to about this many bytes. Starts at the oldest line if the
    /// number is lower.
    ///
    /// # Errors
    /// `io::Error`: a segment cannot be read.
    pub fn read(&mut self, from: u64, max_bytes: usize) -> io::Result<Vec<LogLine>> {
        let (mut lines, mut seq, mut bytes) = (Vec::new(), from, 0);
        let known = self.cursors.iter().position(|cursor| cursor.seq == from);
        let known = known.map(|place| self.cursors.remove(place));
        let mut end = known;
        'segments: for segment in &self.segments {
            if segment.next <= seq || segment.first == segment.next {
                continue;
            }
            seq = seq.max(segment.first);
            let start = known.filter(|cursor| cursor.segment == segment.first && cursor.seq <= seq);
            let mut offset = start.map_or(0, |cursor| cursor.offset);
            let content = content(&segment.path, offset, segment.bytes)?;
            let mut rest = content.as_slice();
            while let Some((line, length)) = record::decode::<LogLine>(rest) {
                if bytes >= max_bytes {
                    break 'segments;
                }
                rest = rest.get(length..).unwrap_or_default();
                offset += length as u64;
                if line.seq >= seq {
                    bytes += length;
                    seq = line.seq + 1;
                    lines.push(line);
                    end = Some(Cursor { seq, segment: segment.first, offset });
                }
            }
        }
        self.cursors.extend(end);
        if self.cursors.len() > CURSORS {
            self.cursors.remove(0);
        }
        Ok(lines)
    }

    /// Notes that some region has everything up to `any`, and each linked region everything up to `all`. Removes old
    /// segments that are no longer needed.
    ///
    /// # Errors
    /// `io::Error`: a segment cannot be removed.
    pub fn stored(&mut self, any: u64, all: u64) -> io::Result<()> {
        self.stored = self.stored.max(any.min(self.durable.saturating_sub(1)));
        while self.segments.len() > 1
            && let Some(first) = self.segments.first()
            && first.next <= all.saturating_add(1)
            && age(&first.path)? >= self.limits.kept
        {
            fs::remove_file(&self.segments.remove(0).path)?;
        }
        Ok(())
    }

    /// The bytes on disk and in memory.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum::<u64>() + self.pending.len() as u64
    }

    fn drop_oldest(&mut self) -> io::Result<()> {
        let oldest = self.segments.remove(0);
        if oldest.next > self.stored + 1 {
            let content = content(&oldest.path, 0, oldest.bytes).unwrap_or_default();
            let mut rest = content.as_slice();
            while let Some((line, length)) = record::decode::<LogLine>(rest) {
                rest = rest.get(length..).unwrap_or_default();
                if line.seq > self.stored {
                    count(&mut self.lost, line.machine_uid, 1);
                }
            }
        }
        fs::remove_file(&oldest.path)
    }
}

fn count(lost: &mut Lost, machine: String, lines: u64) {
    let is_counted = lost.contains_key(&machine) || lost.len() < COUNTED;
    *lost.entry(if is_counted { machine } else { String::new() }).or_default() += lines;
}

/// The size of a file system and its free room, in bytes.
struct Disk {
    size: u64,
    free: u64,
}

fn disk(dir: &Path) -> io::Result<Disk> {
    let it = rustix::fs::statvfs(dir)?;
    Ok(Disk { size: it.f_blocks.saturating_mul(it.f_frsize), free: it.f_bavail.saturating_mul(it.f_frsize) })
}

/// The time since the file was written. After the clock was set back, it is zero.
fn age(path: &Path) -> io::Result<Duration> {
    Ok(SystemTime::now().duration_since(fs::metadata(path)?.modified()?).unwrap_or_default())
}

fn segment_paths(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if first_of(&path).is_some() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn first_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(".lines")?;
    name.parse().ok().filter(|_| name.len() == 20)
}

fn create(dir: &Path, first: u64) -> io::Result<(Segment, File)> {
    let path = dir.join(format!("{first:020}.lines"));
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
    if let Err(error) = durable::sync_parent(&path) {
        let _ = fs::remove_file(&path);
        return Err(error);
    }
    Ok((Segment { first, next: first, bytes: 0, path }, file))
}

/// Reads a segment and cuts it off at the first damaged record or wrong number.
fn recover(path: PathBuf) -> io::Result<Segment> {
    let first = first_of(&path).unwrap_or(1);
    let content = fs::read(&path)?;
    let (mut rest, mut next) = (content.as_slice(), first);
    while let Some((_, length)) = record::decode::<LogLine>(rest).filter(|(line, _)| line.seq == next) {
        rest = rest.get(length..).unwrap_or_default();
        next += 1;
    }
    let bytes = (content.len() - rest.len()) as u64;
    if !rest.is_empty() {
        tracing::warn!(segment = %path.display(), bytes = rest.len(), "the end of a segment of logs was never finished; removed");
        OpenOptions::new().write(true).open(&path)?.set_len(bytes)?;
    }
    Ok(Segment { first, next, bytes, path })
}

fn content(path: &Path, offset: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(end.saturating_sub(offset)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Limits = Limits { total: 800, segment: 200, reserve: 0, kept: Duration::ZERO };

    fn open(dir: &Path, limits: Limits) -> LogSpool {
        let mut spool = LogSpool::open(dir, limits).unwrap();
        spool.limits.total = limits.total;
        spool
    }

    fn line(machine: &str, number: u64) -> LogLine {
        LogLine { machine_uid: machine.into(), text: number.to_string(), ..LogLine::default() }
    }

    fn seqs(spool: &mut LogSpool, from: u64) -> Vec<u64> {
        spool.read(from, usize::MAX).unwrap().iter().map(|line| line.seq).collect()
    }

    #[test]
    fn lines_behind_a_write_or_a_rotation_that_failed_are_read_and_no_number_is_given_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = open(dir.path(), Limits { segment: 1 << 20, ..SMALL });
        spool.push(line("m", 1));
        spool.push(line("m", 2));
        spool.sync().unwrap();
        // A part of a record reached the disk, and the file could not be cut.
        spool.active.write_all(&[1, 2, 3]).unwrap();
        spool.is_torn = true;
        spool.push(line("m", 3));
        spool.sync().unwrap();
        File::create(dir.path().join("logs/00000000000000000002.lines")).unwrap();
        let mut spool = open(dir.path(), Limits { segment: 1 << 20, ..SMALL });
        spool.push(line("m", 4));
        spool.sync().unwrap();
        assert_eq!(seqs(&mut spool, 1), [1, 2, 3, 4]);
    }

    #[test]
    fn lines_come_in_order_over_segments_and_restarts_and_keep_their_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { total: 1 << 20, ..SMALL };
        let mut spool = open(dir.path(), limits);
        for number in 1..=50 {
            spool.push(line("a", number));
            assert!(seqs(&mut spool, number).is_empty(), "not before it is durable");
            spool.sync().unwrap();
        }
        let uid = spool.uid().to_owned();
        assert!(spool.segments.len() > 3);
        for from in [0, 1, 7, 50] {
            assert_eq!(seqs(&mut spool, from), (from.max(1)..=50).collect::<Vec<_>>());
        }
        let mut from = 1;
        while let Some(last) = spool.read(from, 100).unwrap().last() {
            assert_eq!(last.text, last.seq.to_string());
            from = last.seq + 1;
        }
        assert_eq!(from, 51);
        // A crash leaves half a line.
        let last = spool.segments.last().unwrap().path.clone();
        spool.push(line("a", 51));
        let half = spool.pending.len() / 2;
        fs::write(&last, [fs::read(&last).unwrap(), spool.pending[..half].to_vec()].concat()).unwrap();
        let mut spool = open(dir.path(), limits);
        assert_eq!((spool.uid(), spool.durable()), (&*uid, 51));
        assert_eq!(seqs(&mut spool, 49), [49, 50]);
    }

    #[test]
    fn what_the_regions_have_goes_and_the_numbering_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = open(dir.path(), Limits { total: 1 << 20, ..SMALL });
        for number in 1..=50 {
            spool.push(line("a", number));
            spool.sync().unwrap();
        }
        spool.stored(50, 20).unwrap();
        let first = seqs(&mut spool, 0)[0];
        assert!((10..=21).contains(&first), "a region that is linked lacks the rest: {first}");
        spool.limits.kept = Duration::from_secs(3600);
        spool.stored(50, 50).unwrap();
        assert_eq!(seqs(&mut spool, 0)[0], first, "a region that is away may come back");
        spool.limits.kept = Duration::ZERO;
        spool.stored(50, 50).unwrap();
        let uid = spool.uid().to_owned();
        let spool = open(dir.path(), SMALL);
        assert_eq!((spool.uid(), spool.durable()), (&*uid, 51));
    }

    #[test]
    fn a_full_spool_drops_its_oldest_lines_and_counts_those_that_nobody_has() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = open(dir.path(), SMALL);
        spool.stored(0, 0).unwrap();
        for number in 1..=100 {
            spool.push(line(if number % 2 == 0 { "even" } else { "odd" }, number));
            spool.sync().unwrap();
            if number == 10 {
                spool.stored(10, 10).unwrap();
            }
        }
        assert!(spool.size() <= SMALL.total);
        let kept = seqs(&mut spool, 0);
        let lost = spool.take_lost();
        let gone = kept[0] - 1 - 10;
        assert_eq!(lost.values().sum::<u64>(), gone, "a region has the first ten");
        assert!(lost["even"].abs_diff(lost["odd"]) <= 1 && *kept.last().unwrap() == 100);
    }

    #[test]
    fn a_disk_without_room_costs_lines_which_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = open(dir.path(), SMALL);
        spool.push(line("a", 1));
        spool.sync().unwrap();
        spool.limits.reserve = u64::MAX / 2;
        spool.push(line("a", 2));
        spool.push(line("b", 3));
        assert_eq!(spool.sync().unwrap_err().kind(), io::ErrorKind::StorageFull);
        spool.limits.reserve = 0;
        spool.push(line("a", 4));
        spool.sync().unwrap();
        assert_eq!(seqs(&mut spool, 0), [1, 2], "numbers have no gap");
        assert_eq!(spool.take_lost(), Lost::from([("a".into(), 1), ("b".into(), 1)]));
    }
}
