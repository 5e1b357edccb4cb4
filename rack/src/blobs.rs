//! Blobs by their SHA-256: `blobs/SHA256`, and `blobs/SHA256.part` while they are fetched.
//!
//! A blob gets its name only when its bytes have that hash. However many ask for an absent one, it is fetched once; an
//! interrupted fetch goes on where it stopped.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest;
use bytes::Bytes;
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio_stream::{Stream, StreamExt};

use crate::durable;
use crate::hash::is_sha256_hex;

/// How long a fetch may give no byte.
const STALL: Duration = Duration::from_secs(30);
/// How long a client is kept waiting for a fetch.
const PATIENCE: Duration = Duration::from_secs(900);
/// Waits between tries of one fetch.
const RETRIES: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5)];

/// The bytes of a blob on their way.
pub type BlobStream = Pin<Box<dyn Stream<Item = Result<Bytes, OriginError>> + Send>>;

/// Where absent blobs come from.
pub trait BlobOrigin: Send + Sync + 'static {
    /// The blob's bytes from `offset` on.
    fn fetch<'a>(
        &'a self,
        sha256: &'a str,
        offset: u64,
    ) -> Pin<Box<dyn Future<Output = Result<BlobStream, OriginError>> + Send + 'a>>;
}

/// Why an origin gives no bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// It does not hold the blob.
    #[error("no region holds it; upload it")]
    NotFound,
    /// It may, but cannot be asked now.
    #[error("it cannot be fetched now: {0}")]
    Unavailable(String),
}

/// A rack without a region.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoOrigin;

impl BlobOrigin for NoOrigin {
    fn fetch<'a>(
        &'a self,
        _: &'a str,
        _: u64,
    ) -> Pin<Box<dyn Future<Output = Result<BlobStream, OriginError>> + Send + 'a>> {
        Box::pin(async { Err(OriginError::NotFound) })
    }
}

/// Why a blob cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// The name is not a hash.
    #[error("{0:?} is not a SHA-256 in lower-case hexadecimal")]
    Name(String),
    /// The origin's reason.
    #[error("blob {0}: {1}")]
    Origin(String, OriginError),
    /// The origin sent something else.
    #[error("blob {0}: the bytes received have SHA-256 {1}; upload it again")]
    Corrupt(String, String),
    /// This rack's disk.
    #[error("blob {0}: {1}")]
    Disk(String, String),
    /// It takes too long.
    #[error("blob {0}: still being fetched")]
    Slow(String),
}

type Outcome = Option<Result<(), BlobError>>;

/// The directory and what is being fetched into it.
pub struct BlobStore {
    dir: PathBuf,
    origin: Arc<dyn BlobOrigin>,
    flights: Mutex<HashMap<String, watch::Receiver<Outcome>>>,
}

impl std::fmt::Debug for BlobStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobStore").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl BlobStore {
    /// Opens `DIR/blobs`.
    ///
    /// # Errors
    /// The file system's.
    pub fn open(data_dir: &Path, origin: Arc<dyn BlobOrigin>) -> io::Result<Arc<Self>> {
        let dir = data_dir.join("blobs");
        durable::private_dir(&dir)?;
        Ok(Arc::new(Self { dir, origin, flights: Mutex::default() }))
    }

    /// Opens a blob, fetching it first if it is absent. Answers the file and its length.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn get(self: &Arc<Self>, sha256: &str) -> Result<(File, u64), BlobError> {
        if !is_sha256_hex(sha256) {
            return Err(BlobError::Name(sha256.chars().take(80).collect()));
        }
        if let Some(found) = self.present(sha256).await? {
            return Ok(found);
        }
        let mut flight = self.flight(sha256);
        let landed = async { flight.wait_for(Option::is_some).await.map(|outcome| outcome.clone()) };
        match tokio::time::timeout(PATIENCE, landed).await {
            Ok(Ok(outcome)) => outcome.unwrap_or(Ok(()))?,
            Ok(Err(_)) => {
                return Err(BlobError::Disk(sha256.to_owned(), "the fetch was given up".to_owned()));
            }
            Err(_) => return Err(BlobError::Slow(sha256.to_owned())),
        }
        let absent = || BlobError::Disk(sha256.to_owned(), "it vanished".to_owned());
        self.present(sha256).await?.ok_or_else(absent)
    }

    /// Whether the blob is here.
    pub async fn has(&self, sha256: &str) -> bool {
        is_sha256_hex(sha256) && fs::try_exists(self.dir.join(sha256)).await.unwrap_or(false)
    }

    async fn present(&self, sha256: &str) -> Result<Option<(File, u64)>, BlobError> {
        let disk = |error: io::Error| BlobError::Disk(sha256.to_owned(), error.to_string());
        match File::open(self.dir.join(sha256)).await {
            Ok(file) => {
                let length = file.metadata().await.map_err(disk)?.len();
                Ok(Some((file, length)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(disk(error)),
        }
    }

    /// Joins the fetch of this blob, or starts it. It goes on even if everyone who waits goes away.
    fn flight(self: &Arc<Self>, sha256: &str) -> watch::Receiver<Outcome> {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(sha256) {
            return flight.clone();
        }
        let (land, flight) = watch::channel(None);
        flights.insert(sha256.to_owned(), flight.clone());
        let (this, name) = (Arc::clone(self), sha256.to_owned());
        tokio::spawn(async move {
            let outcome = this.fetch(&name).await;
            match &outcome {
                Ok(()) => tracing::info!(blob = %name, "blob fetched"),
                Err(error) => tracing::warn!(%error, "blob not fetched"),
            }
            this.flights.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            land.send_replace(Some(outcome));
        });
        flight
    }

    async fn fetch(&self, sha256: &str) -> Result<(), BlobError> {
        let mut last = self.try_fetch(sha256).await;
        for wait in RETRIES {
            match &last {
                Err(BlobError::Origin(_, OriginError::Unavailable(_))) => {}
                _ => break,
            }
            tokio::time::sleep(wait).await;
            last = self.try_fetch(sha256).await;
        }
        last
    }

    async fn try_fetch(&self, sha256: &str) -> Result<(), BlobError> {
        let disk = |error: io::Error| BlobError::Disk(sha256.to_owned(), error.to_string());
        let origin = |error| BlobError::Origin(sha256.to_owned(), error);
        let stalled =
            |_| origin(OriginError::Unavailable(format!("no byte for {} seconds", STALL.as_secs())));
        let part = self.dir.join(format!("{sha256}.part"));
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(&part).await.map_err(disk)?;
        let mut hash = digest::Context::new(&digest::SHA256);
        let mut offset = 0u64;
        let mut buffer = vec![0; 256 << 10];
        loop {
            let count = file.read(&mut buffer).await.map_err(disk)?;
            if count == 0 {
                break;
            }
            hash.update(buffer.get(..count).unwrap_or_default());
            offset += count as u64;
        }
        let stream = tokio::time::timeout(STALL, self.origin.fetch(sha256, offset)).await.map_err(stalled)?;
        let mut stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                if offset == 0 {
                    fs::remove_file(&part).await.ok();
                }
                return Err(origin(error));
            }
        };
        while let Some(bytes) = tokio::time::timeout(STALL, stream.next()).await.map_err(stalled)? {
            let bytes = bytes.map_err(origin)?;
            hash.update(&bytes);
            file.write_all(&bytes).await.map_err(disk)?;
        }
        file.flush().await.map_err(disk)?;
        file.sync_all().await.map_err(disk)?;
        let actual = hex::encode(hash.finish().as_ref());
        if actual != sha256 {
            fs::remove_file(&part).await.map_err(disk)?;
            if offset > 0 {
                return Err(origin(OriginError::Unavailable(
                    "the part that was on disk was damaged".to_owned(),
                )));
            }
            return Err(BlobError::Corrupt(sha256.to_owned(), actual));
        }
        let path = self.dir.join(sha256);
        fs::rename(&part, &path).await.map_err(disk)?;
        tokio::task::spawn_blocking(move || durable::sync_parent(&path))
            .await
            .map_err(|error| disk(io::Error::other(error)))?
            .map_err(disk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::sha256;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Serves one content, `chunk` bytes at a time, breaking off once after `breaks_at`.
    struct Fake {
        content: Vec<u8>,
        breaks_at: Mutex<Option<usize>>,
        offsets: Mutex<Vec<u64>>,
        calls: AtomicUsize,
    }

    impl Fake {
        fn new(content: &[u8], breaks_at: Option<usize>) -> Arc<Self> {
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
        ) -> Pin<Box<dyn Future<Output = Result<BlobStream, OriginError>> + Send + 'a>> {
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

    async fn read(store: &Arc<BlobStore>, name: &str) -> Result<Vec<u8>, BlobError> {
        let (mut file, length) = store.get(name).await?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes.len() as u64, length);
        Ok(bytes)
    }

    #[tokio::test]
    async fn fetches_once_for_all_who_ask_and_then_serves_from_disk() {
        let dir = tempfile::tempdir().unwrap();
        let content = b"some content of a blob".repeat(50);
        let name = hex::encode(sha256(&content));
        let origin = Fake::new(&content, None);
        let store = BlobStore::open(dir.path(), origin.clone()).unwrap();
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
        let store = BlobStore::open(dir.path(), origin.clone()).unwrap();
        assert_eq!(read(&store, &name).await.unwrap(), content);
        assert_eq!(*origin.offsets.lock().unwrap(), [0, 60]);
    }

    #[tokio::test]
    async fn a_bad_part_is_thrown_away_and_the_blob_fetched_whole() {
        let dir = tempfile::tempdir().unwrap();
        let content = b"0123456789".repeat(20);
        let name = hex::encode(sha256(&content));
        let origin = Fake::new(&content, None);
        let store = BlobStore::open(dir.path(), origin.clone()).unwrap();
        std::fs::write(dir.path().join(format!("blobs/{name}.part")), b"garbage").unwrap();
        assert_eq!(read(&store, &name).await.unwrap(), content);
        assert_eq!(*origin.offsets.lock().unwrap(), [7, 0]);
    }

    #[tokio::test]
    async fn bytes_with_another_hash_never_get_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let name = hex::encode(sha256(b"right"));
        let store = BlobStore::open(dir.path(), Fake::new(b"wrong", None)).unwrap();
        assert!(matches!(read(&store, &name).await, Err(BlobError::Corrupt(..))));
        assert_eq!(std::fs::read_dir(dir.path().join("blobs")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn without_a_region_an_absent_blob_is_not_found_and_a_path_is_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let store = BlobStore::open(dir.path(), Arc::new(NoOrigin)).unwrap();
        let name = "a".repeat(64);
        assert_eq!(read(&store, &name).await, Err(BlobError::Origin(name.clone(), OriginError::NotFound)));
        assert!(matches!(read(&store, "../identity/key").await, Err(BlobError::Name(_))));
    }
}
