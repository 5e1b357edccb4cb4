//! The contents of the cache and their users. When room is needed, the blob that was requested longest ago is removed.
//!
//! The rack itself sets the access time of a file when the blob is requested. So the time outlives a restart, however
//! the file system is mounted. A blob that is being sent or fetched stays.

use std::collections::HashMap;
use std::fs::{self, File, FileTimes, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::durable;
use crate::hash::is_sha256_hex;

/// How long the part of an abandoned fetch is kept.
const PART_LIFE: Duration = Duration::from_secs(24 * 3600);
/// The resolution of the last use that is written to the disk.
const USED: Duration = Duration::from_secs(60);

/// The reason why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// The blob is larger than the whole cache.
    TooLarge,
    /// All other blobs are being sent or fetched, or have to stay.
    InUse,
}

/// The identity of a file's content: inode, length and modification time. A write into the file changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version(u64, u64, SystemTime);

impl Version {
    /// The version of an open file.
    pub(super) fn of(about: &Metadata) -> Self {
        Self(about.ino(), about.len(), about.modified().unwrap_or(SystemTime::UNIX_EPOCH))
    }
}

/// A blob, or a part of one.
#[derive(Debug)]
struct Entry {
    /// Its size on disk or, during a fetch, its size when complete.
    bytes: u64,
    used: SystemTime,
    /// The number of users that send or fetch it.
    pins: usize,
    /// The version of the file that was verified against the hash.
    sound: Option<Version>,
}

/// The blobs of the cache directory.
#[derive(Debug)]
pub(super) struct Shelf {
    dir: PathBuf,
    limit: u64,
    entries: Mutex<HashMap<String, Entry>>,
    evicted: AtomicU64,
}

/// Keeps a blob in the cache until it is dropped.
#[derive(Debug)]
pub struct Pin {
    shelf: Arc<Shelf>,
    name: String,
}

impl Shelf {
    /// Reads which blobs are in the directory.
    pub(super) fn open(dir: &Path, limit: u64) -> io::Result<Arc<Self>> {
        let mut entries: HashMap<String, Entry> = HashMap::new();
        for file in fs::read_dir(dir)? {
            let file = file?;
            let name = file.file_name().to_string_lossy().into_owned();
            let about = file.metadata()?;
            let (name, used) = match name.strip_suffix(".part") {
                Some(name) => (name, about.modified()?),
                None => (name.as_str(), about.accessed()?),
            };
            if is_sha256_hex(name) {
                let entry =
                    entries.entry(name.to_owned()).or_insert(Entry { bytes: 0, used, pins: 0, sound: None });
                entry.bytes += about.len();
                entry.used = entry.used.max(used);
            }
        }
        let entries = Mutex::new(entries);
        Ok(Arc::new(Self { dir: dir.to_owned(), limit, entries, evicted: AtomicU64::new(0) }))
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a blob, or the room for one, until the pin is dropped.
    pub(super) fn pin(self: &Arc<Self>, name: &str) -> Pin {
        let fresh = || Entry { bytes: 0, used: SystemTime::now(), pins: 0, sound: None };
        self.entries().entry(name.to_owned()).or_insert_with(fresh).pins += 1;
        Pin { shelf: Arc::clone(self), name: name.to_owned() }
    }

    /// True if this version of the file was verified against the hash.
    pub(super) fn is_sound(&self, name: &str, version: Version) -> bool {
        self.entries().get(name).is_some_and(|entry| entry.sound == Some(version))
    }

    /// Notes that this version of the file was verified against the hash.
    pub(super) fn sound(&self, name: &str, version: Version) {
        if let Some(entry) = self.entries().get_mut(name) {
            (entry.bytes, entry.sound) = (version.1, Some(version));
        }
    }

    /// Notes that the blob was requested.
    pub(super) fn used(&self, name: &str, file: &File, now: SystemTime) {
        if let Some(entry) = self.entries().get_mut(name) {
            entry.used = now;
        }
        let noted = file.metadata().and_then(|about| about.accessed());
        if noted.is_ok_and(|noted| now.duration_since(noted).is_ok_and(|age| age >= USED)) {
            // If this fails, the blob is only evicted earlier.
            file.set_times(FileTimes::new().set_accessed(now)).ok();
        }
    }

    /// The bytes that a blob has in the cache, or that are reserved for it.
    pub(super) fn room(&self, name: &str) -> u64 {
        self.entries().get(name).map_or(0, |entry| entry.bytes)
    }

    /// Makes room so that this blob may have this many bytes in total. Blobs for which `kept` is true stay.
    ///
    /// Removes files, so it blocks the thread.
    pub(super) fn reserve(&self, name: &str, bytes: u64, kept: impl Fn(&str) -> bool) -> Result<(), NoRoom> {
        let mut entries = self.entries();
        let has = entries.get(name).map_or(0, |entry| entry.bytes);
        if bytes <= has {
            return Ok(());
        }
        if bytes > self.limit {
            return Err(NoRoom::TooLarge);
        }
        let held: u64 = entries.values().map(|entry| entry.bytes).sum();
        let excess = (held + bytes - has).saturating_sub(self.limit);
        let may_leave: u64 = leaving(&entries, &kept).iter().map(|(_, bytes, _)| bytes).sum();
        // Remove nothing if the removal would not free enough.
        if may_leave < excess || self.evict(&mut entries, excess, &kept) < excess {
            return Err(NoRoom::InUse);
        }
        if let Some(entry) = entries.get_mut(name) {
            entry.bytes = bytes;
        }
        Ok(())
    }

    /// Makes room on a disk with less free space than the cache assumed. Blobs for which `kept` is true stay. Returns
    /// the number of bytes freed; 0 when there is nothing to remove.
    pub(super) fn relieve(&self, bytes: u64, kept: impl Fn(&str) -> bool) -> u64 {
        self.evict(&mut self.entries(), bytes, &kept)
    }

    fn evict(&self, entries: &mut HashMap<String, Entry>, bytes: u64, kept: &impl Fn(&str) -> bool) -> u64 {
        let mut freed = 0;
        for (_, size, name) in leaving(entries, kept) {
            if freed >= bytes {
                break;
            }
            match self.remove(&name) {
                Ok(()) => {
                    tracing::info!(blob = %name, bytes = size, "blob left the cache");
                    entries.remove(&name);
                    self.evicted.fetch_add(1, Ordering::Relaxed);
                    freed += size;
                }
                Err(error) => {
                    tracing::error!(blob = %name, %error, "a blob cannot be removed from the cache")
                }
            }
        }
        freed
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.dir.join(name);
        for path in [durable::beside(&path, "part"), path] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Notes the end of a fetch: the blob now takes the bytes that are on the disk.
    pub(super) fn settle(&self, name: &str) {
        let path = self.dir.join(name);
        let files = [durable::beside(&path, "part"), path];
        let bytes = files.iter().filter_map(|file| fs::metadata(file).ok()).map(|about| about.len()).sum();
        if let Some(entry) = self.entries().get_mut(name) {
            entry.bytes = bytes;
        }
    }

    /// Removes parts that no fetch has continued for a day.
    pub(super) fn remove_old_parts(&self, now: SystemTime) {
        let mut entries = self.entries();
        entries.retain(|name, entry| {
            let path = self.dir.join(name);
            let part = durable::beside(&path, "part");
            let old = entry.pins == 0
                && fs::metadata(&part)
                    .and_then(|about| about.modified())
                    .is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age >= PART_LIFE));
            if !old || fs::remove_file(part).is_err() {
                return true;
            }
            tracing::info!(blob = %name, "the part of a fetch that was given up is removed");
            entry.bytes = fs::metadata(path).map_or(0, |about| about.len());
            entry.bytes > 0
        });
    }

    /// The size of all blobs, in bytes, including the room reserved for fetches.
    pub(super) fn bytes(&self) -> u64 {
        self.entries().values().map(|entry| entry.bytes).sum()
    }

    /// The limit of the cache, in bytes.
    pub(super) const fn limit(&self) -> u64 {
        self.limit
    }

    /// The number of blobs removed to make room.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}

/// The blobs that may be removed, with their sizes. The one that was unused longest comes first.
fn leaving(entries: &HashMap<String, Entry>, kept: &impl Fn(&str) -> bool) -> Vec<(SystemTime, u64, String)> {
    let free = entries.iter().filter(|(name, entry)| entry.pins == 0 && !kept(name));
    let mut leaving: Vec<_> = free.map(|(name, entry)| (entry.used, entry.bytes, name.clone())).collect();
    leaving.sort();
    leaving
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut entries = self.shelf.entries();
        if let Some(entry) = entries.get_mut(&self.name) {
            entry.pins -= 1;
            if entry.pins == 0 && entry.bytes == 0 {
                entries.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn name(letter: char) -> String {
        letter.to_string().repeat(64)
    }

    /// Writes a file of this size that was requested this many hours ago.
    fn lay(dir: &Path, name: &str, bytes: usize, hours: u64) {
        let path = dir.join(name);
        fs::write(&path, vec![0; bytes]).unwrap();
        let at = SystemTime::now() - Duration::from_secs(hours * 3600);
        File::open(&path).unwrap().set_times(FileTimes::new().set_accessed(at).set_modified(at)).unwrap();
    }

    fn lies(dir: &Path) -> BTreeSet<String> {
        let short = |name: String| name.chars().take(1).chain(name.chars().skip(64)).collect();
        fs::read_dir(dir)
            .unwrap()
            .map(|file| short(file.unwrap().file_name().into_string().unwrap()))
            .collect()
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn what_was_asked_for_longest_ago_leaves_first_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        lay(dir.path(), &name('a'), 40, 3);
        lay(dir.path(), &name('b'), 40, 5);
        lay(dir.path(), &name('c'), 10, 1);
        let shelf = Shelf::open(dir.path(), 100).unwrap();
        assert_eq!(shelf.bytes(), 90);
        let _pin = shelf.pin(&name('d'));
        assert_eq!(shelf.reserve(&name('d'), 10, |_| false), Ok(()));
        assert_eq!(lies(dir.path()), set(&["a", "b", "c"]), "there was room");
        assert_eq!(shelf.reserve(&name('d'), 30, |_| false), Ok(()));
        assert_eq!(lies(dir.path()), set(&["a", "c"]));
        assert_eq!((shelf.bytes(), shelf.evicted()), (80, 1));
    }

    #[test]
    fn whoever_asks_keeps_it_and_the_disk_remembers() {
        let dir = tempfile::tempdir().unwrap();
        lay(dir.path(), &name('a'), 40, 5);
        lay(dir.path(), &name('b'), 40, 3);
        let shelf = Shelf::open(dir.path(), 100).unwrap();
        shelf.used(&name('a'), &File::open(dir.path().join(name('a'))).unwrap(), SystemTime::now());
        drop(shelf);
        let shelf = Shelf::open(dir.path(), 100).unwrap();
        let _pin = shelf.pin(&name('c'));
        assert_eq!(shelf.reserve(&name('c'), 50, |_| false), Ok(()));
        assert_eq!(lies(dir.path()), set(&["a"]));
    }

    #[test]
    fn what_is_used_or_kept_stays_and_nothing_leaves_in_vain() {
        let dir = tempfile::tempdir().unwrap();
        for (letter, hours) in [('a', 9), ('b', 8), ('c', 7)] {
            lay(dir.path(), &name(letter), 30, hours);
        }
        let shelf = Shelf::open(dir.path(), 100).unwrap();
        let sent = shelf.pin(&name('a'));
        let _fetched = shelf.pin(&name('d'));
        let kept = |it: &str| it == name('b');
        assert_eq!(shelf.reserve(&name('d'), 101, kept), Err(NoRoom::TooLarge));
        assert_eq!(shelf.reserve(&name('d'), 50, kept), Err(NoRoom::InUse));
        assert_eq!(lies(dir.path()), set(&["a", "b", "c"]));
        assert_eq!(shelf.reserve(&name('d'), 40, kept), Ok(()));
        assert_eq!(lies(dir.path()), set(&["a", "b"]));
        drop(sent);
        assert_eq!(shelf.reserve(&name('d'), 70, kept), Ok(()));
        assert_eq!(lies(dir.path()), set(&["b"]));
        assert_eq!((shelf.relieve(1, kept), lies(dir.path())), (0, set(&["b"])));
        assert_eq!(shelf.relieve(1, |_| false), 30);
        assert_eq!((lies(dir.path()), shelf.relieve(1, |_| false)), (set(&[]), 0));
    }

    #[test]
    fn parts_are_counted_and_leave_when_they_are_old() {
        let dir = tempfile::tempdir().unwrap();
        let part = |letter| format!("{}.part", name(letter));
        lay(dir.path(), &part('a'), 30, 25);
        lay(dir.path(), &part('b'), 30, 23);
        lay(dir.path(), &part('c'), 30, 25);
        lay(dir.path(), &part('d'), 10, 25);
        lay(dir.path(), &name('d'), 5, 25);
        let shelf = Shelf::open(dir.path(), 200).unwrap();
        assert_eq!(shelf.bytes(), 105);
        let _fetched = shelf.pin(&name('c'));
        shelf.remove_old_parts(SystemTime::now());
        assert_eq!((lies(dir.path()), shelf.bytes()), (set(&["b.part", "c.part", "d"]), 65));
    }

    #[test]
    fn a_fetch_that_failed_takes_only_what_it_left() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(dir.path(), 100).unwrap();
        let pin = shelf.pin(&name('a'));
        shelf.reserve(&name('a'), 90, |_| false).unwrap();
        lay(dir.path(), &format!("{}.part", name('a')), 20, 0);
        assert_eq!(shelf.bytes(), 90);
        shelf.settle(&name('a'));
        drop(pin);
        assert_eq!(shelf.bytes(), 20);
    }
}
