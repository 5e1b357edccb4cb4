//! Blobs by their SHA-256: `blobs/SHA256`, and `blobs/SHA256.part` while they are fetched.
//!
//! | module | does |
//! | --- | --- |
//! | [`fetch`] | fetches absent blobs: once for all requests, resumed where it stopped, stored only if the bytes have the hash |
//! | [`evict`] | keeps the cache below its limit |
//! | [`report`] | reports to regions what the cache holds |
//!
//! Bytes are served only if they were verified against the hash since the rack started and the file has not changed
//! since. A blob that the disk damaged is detected and fetched again.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use basalt_proto::rack_v1::ImagesConcern;
use bytes::Bytes;
use tokio::fs::{self, File};
use tokio::sync::watch;
use tokio_stream::Stream;

use crate::hash::is_sha256_hex;
use crate::{disk, durable};
pub use evict::Pin;
use evict::{Shelf, Version};
use fetch::{Flight, Flights};
pub use report::{PACE, tell};

mod evict;
mod fetch;
mod report;

/// How long a client waits for a fetch.
const PATIENCE: Duration = Duration::from_secs(900);
/// The number of bytes that a disk with free space accepts.
const PROBE: usize = 256 << 10;
/// The largest cache, in bytes, if the configuration sets no limit.
const DEFAULT_BYTES: u64 = 50 << 30;

/// The region's latest list of blobs.
pub type Images = watch::Receiver<Option<Arc<ImagesConcern>>>;
/// The bytes of a blob as they arrive.
pub type BlobStream = std::pin::Pin<Box<dyn Stream<Item = Result<Bytes, OriginError>> + Send>>;

/// A source of absent blobs.
pub trait BlobOrigin: Send + Sync + 'static {
    /// The blob's bytes from `offset` on.
    fn fetch<'a>(
        &'a self,
        sha256: &'a str,
        offset: u64,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<BlobStream, OriginError>> + Send + 'a>>;
}

/// The reason why an origin sends no bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// The origin does not have the blob.
    #[error("no region holds it; upload it")]
    NotFound,
    /// The origin cannot be asked at the moment.
    #[error("it cannot be fetched now: {0}")]
    Unavailable(String),
}

/// The origin of a rack without a region: it has no blobs.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoOrigin;

impl BlobOrigin for NoOrigin {
    fn fetch<'a>(
        &'a self,
        _: &'a str,
        _: u64,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<BlobStream, OriginError>> + Send + 'a>> {
        Box::pin(async { Err(OriginError::NotFound) })
    }
}

/// The reason why a blob cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// The requested name is not a SHA-256 hash.
    #[error("{0:?} is not a SHA-256 in lower-case hexadecimal")]
    Name(String),
    /// The origin sends no bytes.
    #[error("blob {0}: {1}")]
    Origin(String, OriginError),
    /// The origin sent bytes with another hash.
    #[error("blob {0}: the bytes received have SHA-256 {1}; upload it again")]
    Corrupt(String, String),
    /// The rack's disk failed.
    #[error("blob {0}: {1}")]
    Disk(String, String),
    /// The blob is larger than the whole cache may be.
    #[error("blob {0} of {1} bytes is larger than this rack's cache of {2}; set a larger cache_size")]
    TooLarge(String, u64, u64),
    /// No blob can be removed from the cache to make room.
    #[error(
        "blob {0}: this rack's cache is full of what is being used; try again, or set a larger cache_size"
    )]
    Full(String),
    /// The disk is full, and the cache has nothing to remove.
    #[error(
        "blob {0}: this rack's disk is full, and nothing is left in the cache to remove; free some space"
    )]
    DiskFull(String),
    /// The fetch takes longer than a client waits.
    #[error("blob {0}: still being fetched")]
    Slow(String),
}

/// A blob that can be sent. It stays in the cache as long as this value exists.
#[derive(Debug)]
pub struct Blob {
    /// The open file, positioned at its beginning.
    pub file: std::fs::File,
    /// The length of the blob, in bytes.
    pub length: u64,
    /// The pin that keeps the blob in the cache.
    pub pin: Pin,
}

/// Counters of the cache, for `/metrics`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests for blobs that were in the cache.
    pub hits: u64,
    /// Requests for blobs that were not in the cache.
    pub misses: u64,
    /// Blobs that were removed to make room.
    pub evictions: u64,
    /// Blobs that the disk had damaged.
    pub damaged: u64,
    /// The size of the cache, in bytes.
    pub bytes: u64,
    /// The limit of the cache, in bytes.
    pub limit: u64,
}

/// The directory of blobs and the fetches into it.
pub struct BlobStore {
    dir: PathBuf,
    origin: Arc<dyn BlobOrigin>,
    images: Images,
    shelf: Arc<Shelf>,
    flights: Mutex<Flights>,
    /// The number of fetches that a machine waits for.
    awaited: watch::Sender<usize>,
    hits: AtomicU64,
    misses: AtomicU64,
    damaged: AtomicU64,
}

impl std::fmt::Debug for BlobStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobStore").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Removes images from the cache of a data directory if its disk is full, so that a rack can start there: images can be
/// fetched again. Blobs for which `kept` is true stay.
///
/// # Errors
/// `io::Error`: a file cannot be read or removed.
pub fn make_room(data_dir: &Path, bytes: u64, kept: impl Fn(&str) -> bool) -> io::Result<()> {
    let blobs = data_dir.join("blobs");
    if blobs.exists() && lacks_room(data_dir) {
        tracing::warn!(dir = %data_dir.display(), "the disk is full: images leave the cache, so that this rack can start");
        Shelf::open(&blobs, 0)?.relieve(bytes, kept);
    }
    Ok(())
}

/// True if the directory's disk has no room for even a small file. Other faults of the disk are not reported here; they
/// show when data is written.
fn lacks_room(dir: &Path) -> bool {
    let probe = dir.join("room");
    let written = std::fs::write(&probe, [0; PROBE]);
    // The file may exist in part.
    std::fs::remove_file(&probe).ok();
    written.is_err_and(|error| disk::is_full(&error))
}

impl BlobStore {
    /// Opens `DIR/blobs` with this limit in bytes. Without a limit it is 50 GiB or half of the disk's free space,
    /// whichever is less.
    ///
    /// # Errors
    /// `io::Error`: the directory cannot be created or read.
    pub fn open(
        data_dir: &Path,
        limit: Option<u64>,
        origin: Arc<dyn BlobOrigin>,
        images: Images,
    ) -> io::Result<Arc<Self>> {
        let dir = data_dir.join("blobs");
        durable::private_dir(&dir)?;
        let shelf = match limit {
            Some(limit) => Shelf::open(&dir, limit)?,
            None => {
                let free = rustix::fs::statvfs(&dir)?;
                let held = Shelf::open(&dir, 0)?.bytes();
                let has = free.f_bavail.saturating_mul(free.f_frsize).saturating_add(held);
                Shelf::open(&dir, DEFAULT_BYTES.min(has / 2))?
            }
        };
        shelf.remove_old_parts(SystemTime::now());
        Ok(Arc::new(Self {
            dir,
            origin,
            images,
            shelf,
            flights: Mutex::default(),
            awaited: watch::Sender::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
        }))
    }

    /// Opens a blob, and fetches it first if it is absent.
    ///
    /// # Errors
    /// The reason why the blob cannot be served.
    pub async fn get(self: &Arc<Self>, sha256: &str) -> Result<Blob, BlobError> {
        if !is_sha256_hex(sha256) {
            return Err(BlobError::Name(sha256.chars().take(80).collect()));
        }
        let count = if self.has(sha256).await { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        let pin = self.shelf.pin(sha256);
        if let Some((file, length)) = self.sound(sha256).await? {
            return Ok(Blob { file, length, pin });
        }
        self.landed(sha256, self.flight(sha256, true)).await?;
        let absent = || BlobError::Disk(sha256.to_owned(), "it vanished".to_owned());
        let (file, length) = self.sound(sha256).await?.ok_or_else(absent)?;
        Ok(Blob { file, length, pin })
    }

    /// Fetches a blob before a machine asks for it. Fetches that machines wait for go first.
    ///
    /// # Errors
    /// The reason why the blob is not here.
    pub async fn prefetch(self: &Arc<Self>, sha256: &str) -> Result<(), BlobError> {
        if !is_sha256_hex(sha256) {
            return Err(BlobError::Name(sha256.chars().take(80).collect()));
        }
        let _pin = self.shelf.pin(sha256);
        match self.sound(sha256).await? {
            Some(_) => Ok(()),
            None => self.landed(sha256, self.flight(sha256, false)).await,
        }
    }

    async fn landed(&self, sha256: &str, mut flight: Flight) -> Result<(), BlobError> {
        let landed = async { flight.outcome.wait_for(Option::is_some).await.map(|outcome| outcome.clone()) };
        match tokio::time::timeout(PATIENCE, landed).await {
            Ok(Ok(outcome)) => outcome.unwrap_or(Ok(())),
            Ok(Err(_)) => Err(BlobError::Disk(sha256.to_owned(), "the fetch was given up".to_owned())),
            Err(_) => Err(BlobError::Slow(sha256.to_owned())),
        }
    }

    /// Makes room on a full disk for data that the rack has to write: removes images that are not in use and not to be
    /// prefetched.
    pub async fn give_room(&self, bytes: u64) {
        let (shelf, kept) = (Arc::clone(&self.shelf), self.prefetched());
        tokio::task::spawn_blocking(move || shelf.relieve(bytes, |name| kept.contains(name))).await.ok();
    }

    /// True if the disk has no room for even a small file.
    pub async fn lacks_room(&self) -> bool {
        let dir = self.dir.parent().unwrap_or(&self.dir).to_owned();
        tokio::task::spawn_blocking(move || lacks_room(&dir)).await.unwrap_or(false)
    }

    /// Removes the parts left by fetches that were given up long ago.
    pub async fn tidy(&self) {
        let shelf = Arc::clone(&self.shelf);
        tokio::task::spawn_blocking(move || shelf.remove_old_parts(SystemTime::now())).await.ok();
    }

    /// The counters of the cache.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            hits: read(&self.hits),
            misses: read(&self.misses),
            evictions: self.shelf.evicted(),
            damaged: read(&self.damaged),
            bytes: self.shelf.bytes(),
            limit: self.shelf.limit(),
        }
    }

    /// The path of a blob that is in the cache.
    pub(crate) fn path(&self, sha256: &str) -> PathBuf {
        self.dir.join(sha256)
    }

    async fn has(&self, sha256: &str) -> bool {
        fs::try_exists(self.dir.join(sha256)).await.unwrap_or(false)
    }

    /// The file and its length, if it is in the cache and was verified against the hash.
    async fn sound(&self, sha256: &str) -> Result<Option<(std::fs::File, u64)>, BlobError> {
        let disk = |error: io::Error| BlobError::Disk(sha256.to_owned(), error.to_string());
        let file = match File::open(self.dir.join(sha256)).await {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(disk(error)),
        };
        let about = file.metadata().await.map_err(disk)?;
        if !self.shelf.is_sound(sha256, Version::of(&about)) {
            return Ok(None);
        }
        let file = file.into_std().await;
        self.shelf.used(sha256, &file, SystemTime::now());
        Ok(Some((file, about.len())))
    }

    /// The size of the blob in bytes, according to the region.
    fn size(&self, sha256: &str) -> Option<u64> {
        let images = self.images.borrow();
        images.iter().flat_map(|images| &images.blobs).find(|it| it.sha256 == sha256).map(|blob| blob.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::sha256;
    use basalt_proto::rack_v1;
    use std::io::Read;
    use std::sync::atomic::AtomicUsize;

    /// Serves one content, `chunk` bytes at a time. Stops once after `breaks_at` bytes.
    pub(super) struct Fake {
        content: Vec<u8>,
        breaks_at: Mutex<Option<usize>>,
        offsets: Mutex<Vec<u64>>,
        calls: AtomicUsize,
    }

    impl Fake {
        pub(super) fn new(content: &[u8], breaks_at: Option<usize>) -> Arc<Self> {
            let breaks_at = Mutex::new(breaks_at);
            Arc::new(Self {
                content: content.to_vec(),
                breaks_at,
                offsets: Mutex::default(),
                calls: AtomicUsize::new(0),
            })
        }
    }

    impl BlobOrigin for Fake {
        fn fetch<'a>(
            &'a self,
            _: &'a str,
            offset: u64,
        ) -> std::pin::Pin<Box<dyn Future<Output = Result<BlobStream, OriginError>> + Send + 'a>> {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.offsets.lock().unwrap().push(offset);
            let rest = self.content[usize::try_from(offset).unwrap().min(self.content.len())..].to_vec();
            let items: Vec<Result<Bytes, OriginError>> = match self.breaks_at.lock().unwrap().take() {
                Some(at) => {
                    vec![Ok(rest[..at].to_vec().into()), Err(OriginError::Unavailable("broken".into()))]
                }
                None => rest.chunks(7).map(|chunk| Ok(chunk.to_vec().into())).collect(),
            };
            Box::pin(async { Ok(Box::pin(tokio_stream::iter(items)) as BlobStream) })
        }
    }

    /// A region's list of blobs: their content, and if they are prefetched.
    pub(super) fn images(blobs: &[(&[u8], bool)]) -> Images {
        let blob = |&(content, prefetch): &(&[u8], bool)| rack_v1::Blob {
            sha256: hex::encode(sha256(content)),
            size: content.len() as u64,
            prefetch,
        };
        watch::channel(Some(Arc::new(ImagesConcern { blobs: blobs.iter().map(blob).collect() }))).1
    }

    fn open(dir: &Path, origin: Arc<dyn BlobOrigin>) -> Arc<BlobStore> {
        open_with(dir, origin, images(&[]))
    }

    pub(super) fn open_with(dir: &Path, origin: Arc<dyn BlobOrigin>, images: Images) -> Arc<BlobStore> {
        BlobStore::open(dir, Some(1 << 20), origin, images).unwrap()
    }

    /// Writes a blob there, last used this many hours ago.
    pub(super) fn lay(dir: &Path, content: &[u8], hours: u64) -> PathBuf {
        std::fs::create_dir_all(dir.join("blobs")).unwrap();
        let path = dir.join("blobs").join(hex::encode(sha256(content)));
        std::fs::write(&path, content).unwrap();
        let at = SystemTime::now() - Duration::from_secs(hours * 3600);
        let times = std::fs::FileTimes::new().set_accessed(at).set_modified(at);
        std::fs::File::open(&path).unwrap().set_times(times).unwrap();
        path
    }

    async fn read(store: &Arc<BlobStore>, name: &str) -> Result<Vec<u8>, BlobError> {
        let Blob { mut file, length, pin: _pin } = store.get(name).await?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, length);
        Ok(bytes)
    }

    #[tokio::test]
    async fn fetches_once_for_all_who_ask_and_then_serves_from_disk() {
        let dir = tempfile::tempdir().unwrap();
        let content = b"some content of a blob".repeat(50);
        let name = hex::encode(sha256(&content));
        let origin = Fake::new(&content, None);
        let store = open(dir.path(), origin.clone());
        let (a, b, c) = tokio::join!(read(&store, &name), read(&store, &name), read(&store, &name));
        assert!([a, b, c].into_iter().all(|bytes| bytes.unwrap() == content));
        read(&store, &name).await.unwrap();
        assert_eq!(origin.calls.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn goes_on_where_it_was_interrupted() {
        let dir = tempfile::tempdir().unwrap();
        let content = b"0123456789".repeat(20);
        let name = hex::encode(sha256(&content));
        let origin = Fake::new(&content, Some(60));
        let store = open(dir.path(), origin.clone());
        assert_eq!(read(&store, &name).await.unwrap(), content);
        assert_eq!(*origin.offsets.lock().unwrap(), [0, 60]);
    }

    #[tokio::test]
    async fn a_bad_part_is_thrown_away_and_the_blob_fetched_whole() {
        let dir = tempfile::tempdir().unwrap();
        let content = b"0123456789".repeat(20);
        let name = hex::encode(sha256(&content));
        let origin = Fake::new(&content, None);
        let store = open(dir.path(), origin.clone());
        std::fs::write(dir.path().join(format!("blobs/{name}.part")), b"garbage").unwrap();
        assert_eq!(read(&store, &name).await.unwrap(), content);
        assert_eq!(*origin.offsets.lock().unwrap(), [7, 0]);
    }

    #[tokio::test]
    async fn bytes_with_another_hash_never_get_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let name = hex::encode(sha256(b"right"));
        let store = open(dir.path(), Fake::new(b"wrong", None));
        assert!(matches!(read(&store, &name).await, Err(BlobError::Corrupt(..))));
        assert_eq!(std::fs::read_dir(dir.path().join("blobs")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn without_a_region_an_absent_blob_is_not_found_and_a_path_is_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), Arc::new(NoOrigin));
        let name = "a".repeat(64);
        assert_eq!(read(&store, &name).await, Err(BlobError::Origin(name.clone(), OriginError::NotFound)));
        assert!(matches!(read(&store, "../identity/key").await, Err(BlobError::Name(_))));
    }

    #[tokio::test]
    async fn bytes_that_the_disk_damaged_are_found_out_and_fetched_again() {
        let dir = tempfile::tempdir().unwrap();
        let content = b"0123456789".repeat(20);
        let name = hex::encode(sha256(&content));
        let path = lay(dir.path(), &content, 5);
        let origin = Fake::new(&content, None);
        let flip = || {
            let written = std::fs::metadata(&path).unwrap().modified().unwrap();
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[100] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            written
        };
        // While no rack ran. Only the bytes differ, not the times.
        let written = flip();
        let times = std::fs::FileTimes::new().set_modified(written);
        std::fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        let store = open(dir.path(), origin.clone());
        assert_eq!(read(&store, &name).await.unwrap(), content);
        // While the rack runs, another process writes into the file.
        flip();
        assert_eq!(read(&store, &name).await.unwrap(), content);
        assert_eq!((store.counts().damaged, origin.calls.load(Ordering::Relaxed)), (2, 2));

        flip();
        let cut_off = open(dir.path(), Arc::new(NoOrigin));
        assert!(matches!(read(&cut_off, &name).await, Err(BlobError::Origin(..))), "rather none than these");
    }

    #[tokio::test]
    async fn room_is_made_before_a_fetch_and_while_it_grows() {
        let dir = tempfile::tempdir().unwrap();
        let (old, older, new) = (vec![1; 40], vec![2; 40], vec![3; 50]);
        let name = hex::encode(sha256(&new));
        // With and without the size from the region.
        for images in [images(&[(&new, false)]), images(&[])] {
            let (old, older) = (lay(dir.path(), &old, 3), lay(dir.path(), &older, 5));
            let store = BlobStore::open(dir.path(), Some(100), Fake::new(&new, None), images).unwrap();
            assert_eq!(read(&store, &name).await.unwrap(), new);
            assert_eq!((old.exists(), older.exists(), store.counts().bytes), (true, false, 90));
            std::fs::remove_file(dir.path().join("blobs").join(&name)).unwrap();
        }
        for images in [images(&[(&new, false)]), images(&[])] {
            let small = BlobStore::open(dir.path(), Some(49), Fake::new(&new, None), images).unwrap();
            let error = read(&small, &name).await.unwrap_err();
            assert!(matches!(error, BlobError::TooLarge(_, _, 49)), "{error}");
        }
    }

    #[tokio::test]
    async fn what_is_being_sent_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (sent, new) = (vec![1; 60], vec![3; 50]);
        let path = lay(dir.path(), &sent, 5);
        let store = BlobStore::open(dir.path(), Some(100), Fake::new(&new, None), images(&[])).unwrap();
        let sending = store.get(&hex::encode(sha256(&sent))).await.unwrap();
        let name = hex::encode(sha256(&new));
        assert_eq!(read(&store, &name).await, Err(BlobError::Full(name.clone())));
        assert!(path.exists());
        drop(sending);
        assert_eq!(read(&store, &name).await.unwrap(), new);
        assert!(!path.exists());
        assert_eq!(
            store.counts(),
            Counts { hits: 1, misses: 2, evictions: 1, damaged: 0, bytes: 50, limit: 100 }
        );
    }

    #[tokio::test]
    async fn what_is_fetched_ahead_displaces_nothing_that_was() {
        let dir = tempfile::tempdir().unwrap();
        let (first, used, second) = (vec![1; 40], vec![2; 40], vec![3; 50]);
        let (first_path, used_path) = (lay(dir.path(), &first, 5), lay(dir.path(), &used, 1));
        let images = images(&[(&first, true), (&second, true)]);
        let name = hex::encode(sha256(&second));
        let store = BlobStore::open(dir.path(), Some(100), Fake::new(&second, None), images).unwrap();
        store.prefetch(&name).await.unwrap();
        assert_eq!((first_path.exists(), used_path.exists()), (true, false));
    }

    /// Serves a blob that a machine waits for in small pieces. Notes if another blob was requested before it was
    /// complete.
    #[derive(Default)]
    struct Busy {
        waited_for: Vec<u8>,
        ahead: Vec<u8>,
        began: tokio::sync::Notify,
        ended: Arc<std::sync::atomic::AtomicBool>,
        in_turn: std::sync::atomic::AtomicBool,
    }

    impl BlobOrigin for Busy {
        fn fetch<'a>(
            &'a self,
            name: &'a str,
            _: u64,
        ) -> std::pin::Pin<Box<dyn Future<Output = Result<BlobStream, OriginError>> + Send + 'a>> {
            let content = if name == hex::encode(sha256(&self.ahead)) {
                self.in_turn.store(self.ended.load(Ordering::SeqCst), Ordering::SeqCst);
                &self.ahead
            } else {
                self.began.notify_one();
                &self.waited_for
            };
            let chunks: Vec<_> = content.iter().map(|byte| Ok(vec![*byte].into())).collect();
            let (ended, mut left) = (Arc::clone(&self.ended), chunks.len());
            let chunks = tokio_stream::StreamExt::map(tokio_stream::iter(chunks), move |chunk| {
                left -= 1;
                ended.fetch_or(left == 0, Ordering::SeqCst);
                chunk
            });
            Box::pin(async { Ok(Box::pin(chunks) as BlobStream) })
        }
    }

    #[tokio::test]
    async fn what_is_fetched_ahead_waits_for_what_a_machine_waits_for() {
        let dir = tempfile::tempdir().unwrap();
        let origin = Arc::new(Busy { waited_for: vec![1; 300], ahead: vec![2; 2], ..Busy::default() });
        let store = open(dir.path(), origin.clone());
        let name = hex::encode(sha256(&origin.waited_for));
        let machine = async { store.get(&name).await.unwrap() };
        let ahead = async {
            origin.began.notified().await;
            store.prefetch(&hex::encode(sha256(&origin.ahead))).await.unwrap();
        };
        tokio::join!(machine, ahead);
        assert!(origin.in_turn.load(Ordering::SeqCst));
    }
}
