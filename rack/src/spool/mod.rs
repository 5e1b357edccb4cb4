//! The spool of facts for a region: numbered, durable, delivered in order, at least once.
//!
//! Directory `spool/`: `uid` names this numbering, and `SEQ.facts` (20 digits, the number of its first fact) are
//! append-only segments of [`record`]s. A fact is delivered only once it is durable, so a number that a region has seen
//! is never given to another fact. A segment is deleted when all of it is acknowledged. Facts in the last, partly
//! acknowledged segment are delivered again after a restart.
//!
//! The size of the spool is limited:
//!
//! | fill | effect |
//! | --- | --- |
//! | a quarter | traces of boots are dropped silently |
//! | three quarters | facts that only report progress are dropped |
//! | full | the oldest segment is dropped |
//!
//! The last two are logged and reported by a health fact.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use basalt_proto::rack_v1::{Fact, ServiceHealth, fact};

use crate::clock::Clock;
use crate::durable;

pub mod record;
pub mod writer;

/// The limits of the spool's size.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The size of all segments together, in bytes.
    pub total: u64,
    /// The size of one segment, in bytes: what is dropped at once when the spool is full.
    pub segment: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { total: 256 << 20, segment: 4 << 20 }
    }
}

/// A segment of this many bytes is replaced as soon as all of it is acknowledged, so that little is delivered twice.
const WORTH_REPLACING: u64 = 64 << 10;

#[derive(Debug)]
struct Segment {
    first: u64,
    /// The number of the fact after the last one in the segment.
    next: u64,
    bytes: u64,
    path: PathBuf,
}

/// The end of the last read, so that the next one need not search.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    seq: u64,
    segment: u64,
    offset: u64,
}

/// The result of adding a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The fact has this number; it is not durable yet.
    Numbered(u64),
    /// The spool is too full for a fact of this kind.
    Skipped,
}

/// The spool. Blocks on the disk; [`writer`] gives it a thread.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    uid: String,
    limits: Limits,
    segments: Vec<Segment>,
    active: File,
    /// There may be bytes of a failed write at the end of the active segment.
    is_torn: bool,
    pending: Vec<u8>,
    next: u64,
    durable: u64,
    cursor: Option<Cursor>,
    troubled: bool,
    clock: Clock,
}

impl Spool {
    /// Opens or creates the spool. Partial records from a crash are removed.
    ///
    /// # Errors
    /// `io::Error`: a file cannot be read or written.
    pub fn open(data_dir: &Path, limits: Limits, clock: Clock) -> io::Result<Self> {
        let dir = data_dir.join("spool");
        durable::private_dir(&dir)?;
        let mut segments: Vec<Segment> = Vec::new();
        for path in segment_paths(&dir)? {
            let segment = recover(path)?;
            match segments.last() {
                // Left by a rotation that failed: its facts are in the segment before it.
                Some(before) if segment.bytes == 0 && segment.first < before.next => {
                    fs::remove_file(&segment.path)?;
                }
                _ => segments.push(segment),
            }
        }
        let uid_path = dir.join("uid");
        let known =
            fs::read_to_string(&uid_path).ok().map(|uid| uid.trim().to_owned()).filter(|uid| !uid.is_empty());
        let uid = match known.filter(|_| !segments.is_empty()) {
            Some(uid) => uid,
            None => {
                let uid = uuid::Uuid::new_v4().to_string();
                durable::replace(&uid_path, uid.as_bytes())?;
                uid
            }
        };
        let next = segments.last().map_or(1, |segment: &Segment| segment.next);
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
            next,
            durable: next,
            cursor: None,
            troubled: false,
            clock,
        })
    }

    /// The name of this numbering.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// All facts before this number are durable.
    #[must_use]
    pub const fn durable(&self) -> u64 {
        self.durable
    }

    /// The number of the oldest stored fact, or of the next one if there is none.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.segments.first().map_or(self.next, |first| first.first)
    }

    /// Gives a fact its number. It is durable, and delivered, after the next [`Spool::sync`].
    pub fn push(&mut self, mut fact: Fact) -> Taken {
        if self.size() > self.limits.total / 4 && matches!(fact.body, Some(fact::Body::BootTrace(_))) {
            return Taken::Skipped;
        }
        if self.size() > self.limits.total / 4 * 3 && tells_progress(&fact) {
            self.complain("the spool is nearly full: facts that only tell progress are not kept");
            return Taken::Skipped;
        }
        fact.seq = self.next;
        if !record::encode(&mut self.pending, &fact) {
            tracing::error!(seq = self.next, "a fact is too large to be kept");
            return Taken::Skipped;
        }
        self.next += 1;
        Taken::Numbered(fact.seq)
    }

    /// Makes all numbered facts durable.
    ///
    /// # Errors
    /// `io::Error`: the facts since the last sync are lost, and their numbers are used again.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        if let Err(error) = self.write(&pending) {
            self.next = self.durable;
            return Err(error);
        }
        self.durable = self.next;
        // The facts are durable whatever happens here. The next sync tries it again.
        if let Err(error) = self.tidy() {
            tracing::error!(%error, "a segment of the spool cannot be begun or removed; check the disk of the data directory");
        }
        Ok(())
    }

    /// Begins another segment if the active one is large enough, and drops the oldest facts if the spool is too large.
    fn tidy(&mut self) -> io::Result<()> {
        if self.segments.last().is_some_and(|last| last.bytes >= self.limits.segment) {
            self.rotate()?;
        }
        while self.size() > self.limits.total && self.segments.len() > 1 {
            self.drop_oldest()?;
        }
        if self.size() < self.limits.total / 2 {
            self.troubled = false;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(last) = self.segments.last_mut() else {
            return Err(io::Error::other("the spool has no segment"));
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

    /// Durable facts from this number on, in order, up to about this many bytes. Starts at the oldest fact if the
    /// number is lower.
    ///
    /// # Errors
    /// `io::Error`: a segment cannot be read.
    pub fn read(&mut self, from: u64, max_facts: usize, max_bytes: usize) -> io::Result<Vec<Fact>> {
        let mut facts = Vec::new();
        let mut seq = from;
        let mut bytes = 0;
        for segment in &self.segments {
            if segment.next <= seq || segment.first == segment.next {
                continue;
            }
            seq = seq.max(segment.first);
            let start = self.cursor.filter(|cursor| cursor.segment == segment.first && cursor.seq <= seq);
            let mut offset = start.map_or(0, |cursor| cursor.offset);
            let content = content(&segment.path, offset, segment.bytes)?;
            let mut rest = content.as_slice();
            while let Some((fact, length)) = record::decode::<Fact>(rest) {
                if facts.len() >= max_facts || bytes >= max_bytes {
                    return Ok(facts);
                }
                rest = rest.get(length..).unwrap_or_default();
                offset += length as u64;
                if fact.seq >= seq {
                    bytes += length;
                    seq = fact.seq + 1;
                    facts.push(fact);
                    self.cursor = Some(Cursor { seq, segment: segment.first, offset });
                }
            }
        }
        Ok(facts)
    }

    /// Notes that a region has stored all facts of this numbering up to `through`.
    ///
    /// # Errors
    /// `io::Error`: a segment cannot be removed or replaced.
    pub fn acknowledge(&mut self, uid: &str, through: u64) -> io::Result<()> {
        if uid != self.uid || through >= self.durable {
            tracing::warn!(
                uid,
                through,
                durable = self.durable,
                "acknowledgement of facts that were never sent: ignored"
            );
            return Ok(());
        }
        if self.segments.last().is_some_and(|last| last.next <= through + 1 && last.bytes >= WORTH_REPLACING)
        {
            self.rotate()?;
        }
        while self.segments.len() > 1 && self.segments.first().is_some_and(|first| first.next <= through + 1)
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

    fn rotate(&mut self) -> io::Result<()> {
        let (segment, file) = create(&self.dir, self.durable)?;
        self.segments.push(segment);
        self.active = file;
        Ok(())
    }

    fn drop_oldest(&mut self) -> io::Result<()> {
        let oldest = self.segments.remove(0);
        tracing::error!(
            first = oldest.first,
            last = oldest.next - 1,
            "the spool is full: its oldest facts are lost"
        );
        fs::remove_file(&oldest.path)?;
        self.complain(
            "the spool is full and its oldest facts are lost; bring a region back or give the rack more disk",
        );
        Ok(())
    }

    /// Logs and reports a problem, but only once until the spool is less than half full again.
    fn complain(&mut self, message: &str) {
        if std::mem::replace(&mut self.troubled, true) {
            return;
        }
        tracing::error!(bytes = self.size(), message);
        let health = ServiceHealth {
            service: "spool".to_owned(),
            ok: false,
            message: message.to_owned(),
            ..ServiceHealth::default()
        };
        let observed_unix_ms = self.clock.unix_now();
        self.push(Fact { observed_unix_ms, body: Some(fact::Body::Health(health)), ..Fact::default() });
    }
}

/// True for a fact that a region can do without.
fn tells_progress(fact: &Fact) -> bool {
    matches!(fact.body, Some(fact::Body::Progress(_) | fact::Body::BootRequest(_)))
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
    let name = path.file_name()?.to_str()?.strip_suffix(".facts")?;
    name.parse().ok().filter(|_| name.len() == 20)
}

fn create(dir: &Path, first: u64) -> io::Result<(Segment, File)> {
    let path = dir.join(format!("{first:020}.facts"));
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
    let mut rest = content.as_slice();
    let mut next = first;
    while let Some((_, length)) = record::decode::<Fact>(rest).filter(|(fact, _)| fact.seq == next) {
        rest = rest.get(length..).unwrap_or_default();
        next += 1;
    }
    let bytes = (content.len() - rest.len()) as u64;
    if !rest.is_empty() {
        tracing::warn!(segment = %path.display(), bytes = rest.len(), "the end of a segment was never finished; removed");
        let file = OpenOptions::new().write(true).open(&path)?;
        file.set_len(bytes)?;
        file.sync_all()?;
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
    use basalt_proto::rack_v1::{AgentProgress, BootAlarm, BootTraceFact};
    use proptest::prelude::*;

    const SMALL: Limits = Limits { total: 1 << 30, segment: 300 };

    fn alarm(text: &str) -> Fact {
        let body = fact::Body::Alarm(BootAlarm { code: "test".into(), message: text.into() });
        Fact { body: Some(body), ..Fact::default() }
    }

    fn text(fact: &Fact) -> &str {
        match &fact.body {
            Some(fact::Body::Alarm(alarm)) => &alarm.message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn delivers_in_order_from_any_number_over_segments_and_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path(), SMALL, Clock::default()).unwrap();
        for number in 1..=40u64 {
            assert_eq!(spool.push(alarm(&number.to_string())), Taken::Numbered(number));
            assert!(spool.read(number, 1, 1).unwrap().is_empty(), "not before it is durable");
            spool.sync().unwrap();
        }
        let uid = spool.uid().to_owned();
        assert!(spool.segments.len() > 3);
        for from in [0, 1, 7, 40] {
            let facts = spool.read(from, 100, 1 << 20).unwrap();
            let expected: Vec<u64> = (from.max(1)..=40).collect();
            assert_eq!(facts.iter().map(|fact| fact.seq).collect::<Vec<_>>(), expected);
        }
        spool.acknowledge(&uid, 38).unwrap();
        let mut spool = Spool::open(dir.path(), SMALL, Clock::default()).unwrap();
        assert_eq!(spool.uid(), uid);
        let facts = spool.read(0, 100, 1 << 20).unwrap();
        assert!(facts.len() < 12 && facts.last().unwrap().seq == 40);
        assert_eq!(spool.push(alarm("next")), Taken::Numbered(41));
    }

    #[test]
    fn numbers_are_not_given_again_when_everything_was_acknowledged() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path(), Limits::default(), Clock::default()).unwrap();
        spool.push(alarm(&"x".repeat(100_000)));
        spool.sync().unwrap();
        let uid = spool.uid().to_owned();
        spool.acknowledge(&uid, 1).unwrap();
        assert_eq!(spool.size(), 0);
        let mut spool = Spool::open(dir.path(), SMALL, Clock::default()).unwrap();
        assert_eq!(spool.push(alarm("next")), Taken::Numbered(2));
    }

    #[test]
    fn an_empty_segment_of_a_rotation_that_failed_gives_no_number_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path(), Limits::default(), Clock::default()).unwrap();
        for text in ["one", "two", "three"] {
            spool.push(alarm(text));
        }
        spool.sync().unwrap();
        File::create(dir.path().join("spool/00000000000000000002.facts")).unwrap();
        let mut spool = Spool::open(dir.path(), Limits::default(), Clock::default()).unwrap();
        assert_eq!(spool.push(alarm("four")), Taken::Numbered(4));
        spool.sync().unwrap();
        assert_eq!(
            spool.read(0, 9, 9999).unwrap().iter().map(text).collect::<Vec<_>>(),
            ["one", "two", "three", "four"]
        );
    }

    #[test]
    fn facts_behind_a_write_that_failed_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path(), Limits::default(), Clock::default()).unwrap();
        spool.push(alarm("one"));
        spool.sync().unwrap();
        // A part of a record reached the disk, and the file could not be cut.
        spool.active.write_all(&[1, 2, 3]).unwrap();
        spool.is_torn = true;
        spool.push(alarm("two"));
        spool.sync().unwrap();
        assert_eq!(spool.read(0, 9, 9999).unwrap().iter().map(text).collect::<Vec<_>>(), ["one", "two"]);
    }

    #[test]
    fn facts_are_kept_if_no_further_segment_can_be_begun() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path(), SMALL, Clock::default()).unwrap();
        // A directory has the name of the next segment.
        fs::create_dir(dir.path().join("spool/00000000000000000002.facts")).unwrap();
        spool.push(alarm(&"x".repeat(400)));
        spool.sync().unwrap();
        assert_eq!((spool.durable(), spool.read(0, 9, 9999).unwrap().len()), (2, 1));
    }

    #[test]
    fn a_rack_without_its_spool_starts_another_numbering() {
        let dir = tempfile::tempdir().unwrap();
        let before = Spool::open(dir.path(), SMALL, Clock::default()).unwrap().uid().to_owned();
        for path in segment_paths(&dir.path().join("spool")).unwrap() {
            fs::remove_file(path).unwrap();
        }
        let mut spool = Spool::open(dir.path(), SMALL, Clock::default()).unwrap();
        assert_ne!(spool.uid(), before);
        spool.push(alarm("one"));
        spool.sync().unwrap();
        spool.acknowledge(&before, 1).unwrap();
        assert_eq!(
            spool.read(0, 9, 9999).unwrap().len(),
            1,
            "an acknowledgement of the old numbering means nothing"
        );
    }

    #[test]
    fn a_full_spool_gives_up_progress_first_and_then_its_oldest_facts_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool =
            Spool::open(dir.path(), Limits { total: 4000, segment: 500 }, Clock::default()).unwrap();
        let progress =
            || Fact { body: Some(fact::Body::Progress(AgentProgress::default())), ..Fact::default() };
        assert!(matches!(spool.push(progress()), Taken::Numbered(_)));
        let mut skipped = false;
        for number in 0..200 {
            spool.push(alarm(&number.to_string()));
            spool.sync().unwrap();
            skipped |= spool.push(progress()) == Taken::Skipped;
            assert!(spool.size() <= 4000 + 500);
        }
        assert!(skipped);
        let facts = spool.read(0, 1000, 1 << 20).unwrap();
        assert!(facts.first().unwrap().seq > 1);
        assert_eq!(text(facts.last().unwrap()), "199");
        assert!(facts.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq));
    }

    #[test]
    fn traces_of_boots_leave_most_of_the_spool_to_what_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool =
            Spool::open(dir.path(), Limits { total: 4000, segment: 500 }, Clock::default()).unwrap();
        let trace =
            || Fact { body: Some(fact::Body::BootTrace(BootTraceFact::default())), ..Fact::default() };
        while spool.push(trace()) != Taken::Skipped {
            spool.sync().unwrap();
            assert!(spool.size() < 1100);
        }
        assert!(matches!(spool.push(alarm("still taken")), Taken::Numbered(_)));
        assert!(!spool.troubled, "nothing is wrong");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(usize),
        Sync,
        Acknowledge(u64),
        /// Stop without warning. This share of the bytes that are not durable reaches the disk.
        Crash(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => (0usize..80).prop_map(Step::Push),
            3 => Just(Step::Sync),
            1 => (0u64..8).prop_map(Step::Acknowledge),
            2 => any::<u8>().prop_map(Step::Crash),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn whatever_crashes_nothing_durable_is_lost_and_order_holds(steps in proptest::collection::vec(step(), 1..60)) {
            let dir = tempfile::tempdir().unwrap();
            let mut spool = Spool::open(dir.path(), SMALL, Clock::default()).unwrap();
            let uid = spool.uid().to_owned();
            // The durable facts, number -> text, and the number up to which they are acknowledged.
            let mut promised: std::collections::BTreeMap<u64, String> = std::collections::BTreeMap::new();
            let mut pushed = Vec::new();
            let mut acknowledged = 0;
            for (count, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push(length) => {
                        let text = format!("{count} {}", "x".repeat(length));
                        if let Taken::Numbered(seq) = spool.push(alarm(&text)) { pushed.push((seq, text)); }
                    }
                    Step::Sync => {
                        spool.sync().unwrap();
                        promised.extend(pushed.drain(..));
                    }
                    Step::Acknowledge(back) => {
                        acknowledged = acknowledged.max((spool.durable() - 1).saturating_sub(back));
                        if acknowledged > 0 { spool.acknowledge(&uid, acknowledged).unwrap(); }
                    }
                    Step::Crash(share) => {
                        let torn = spool.pending.len() * usize::from(share) / 256;
                        let last = spool.segments.last().unwrap().path.clone();
                        let mut bytes = fs::read(&last).unwrap();
                        bytes.extend_from_slice(&spool.pending[..torn]);
                        fs::write(&last, bytes).unwrap();
                        spool = Spool::open(dir.path(), SMALL, Clock::default()).unwrap();
                        prop_assert_eq!(spool.uid(), &uid);
                        // Complete records that reached the disk count as durable from here on.
                        for (seq, text) in pushed.drain(..) {
                            if seq < spool.durable() { promised.insert(seq, text); }
                        }
                    }
                }
                let facts = spool.read(0, usize::MAX, usize::MAX).unwrap();
                prop_assert!(facts.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq), "in order, without gaps");
                for fact in &facts {
                    prop_assert_eq!(promised.get(&fact.seq).map(String::as_str), Some(text(fact)));
                }
                let first = facts.first().map_or(spool.durable(), |fact| fact.seq);
                prop_assert!(first <= acknowledged + 1, "nothing unacknowledged is gone");
                prop_assert_eq!(spool.durable(), promised.last_key_value().map_or(1, |(seq, _)| seq + 1));
            }
        }
    }
}
