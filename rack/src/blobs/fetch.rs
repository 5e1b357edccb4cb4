//! Makes a blob available. A blob in the cache is verified; an absent or damaged blob is fetched.
//!
//! Each fetch runs once for all requests, and continues even if every client that waits disconnects.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest;
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio_stream::StreamExt;

use super::evict::{NoRoom, Version};
use super::{BlobError, BlobStore, OriginError};
use crate::durable;

/// How long a fetch may go without receiving a byte.
const STALL: Duration = Duration::from_secs(30);
/// The waits between the tries of one fetch.
const RETRIES: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5)];
/// The least number of bytes freed when the disk is full.
const RELIEF: u64 = 256 << 20;
/// Bytes read at once.
const CHUNK: usize = 256 << 10;

/// The result of a fetch; `None` while it runs.
pub(super) type Outcome = Option<Result<(), BlobError>>;

/// The running fetches, by blob.
pub(super) type Flights = HashMap<String, Flight>;

/// A running fetch.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    pub(super) outcome: watch::Receiver<Outcome>,
    /// A machine waits for it.
    awaited: Arc<watch::Sender<bool>>,
}

impl BlobStore {
    /// Joins the fetch of this blob, or starts it.
    pub(super) fn flight(self: &Arc<Self>, sha256: &str, awaited: bool) -> Flight {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        let flight = flights.entry(sha256.to_owned()).or_insert_with(|| {
            let (land, outcome) = watch::channel(None);
            let flight = Flight { outcome, awaited: Arc::new(watch::Sender::new(false)) };
            tokio::spawn(Arc::clone(self).fly(sha256.to_owned(), Arc::clone(&flight.awaited), land));
            flight
        });
        if awaited && !flight.awaited.send_replace(true) {
            self.awaited.send_modify(|count| *count += 1);
        }
        flight.clone()
    }

    async fn fly(
        self: Arc<Self>,
        name: String,
        awaited: Arc<watch::Sender<bool>>,
        land: watch::Sender<Outcome>,
    ) {
        let _pin = self.shelf.pin(&name);
        let outcome = self.bring(&name, &awaited).await;
        if let Err(error) = &outcome {
            tracing::warn!(%error, "blob not fetched");
            self.shelf.settle(&name);
        }
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        flights.remove(&name);
        if *awaited.borrow() {
            self.awaited.send_modify(|count| *count -= 1);
        }
        land.send_replace(Some(outcome));
    }

    async fn bring(&self, sha256: &str, awaited: &watch::Sender<bool>) -> Result<(), BlobError> {
        if self.read_through(sha256).await? {
            return Ok(());
        }
        self.fetch(sha256, awaited).await?;
        tracing::info!(blob = %sha256, "blob fetched");
        Ok(())
    }

    /// Verifies a blob that is here. Removes it if it does not have its hash.
    async fn read_through(&self, sha256: &str) -> Result<bool, BlobError> {
        let disk = |error| failed(sha256, error);
        let path = self.dir.join(sha256);
        let mut file = match File::open(&path).await {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(disk(error)),
        };
        let version = Version::of(&file.metadata().await.map_err(disk)?);
        let mut hash = digest::Context::new(&digest::SHA256);
        hash_all(&mut file, &mut hash).await.map_err(disk)?;
        if hex::encode(hash.finish().as_ref()) == sha256 {
            self.shelf.sound(sha256, version);
            return Ok(true);
        }
        self.damaged.fetch_add(1, Ordering::Relaxed);
        tracing::error!(blob = sha256, "the disk has damaged a blob; it is fetched again");
        fs::remove_file(&path).await.map_err(disk)?;
        self.shelf.settle(sha256);
        Ok(false)
    }

    async fn fetch(&self, sha256: &str, awaited: &watch::Sender<bool>) -> Result<(), BlobError> {
        let mut waits = RETRIES.into_iter();
        loop {
            let error = match self.try_fetch(sha256, awaited).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match error {
                BlobError::Origin(_, OriginError::Unavailable(_)) => match waits.next() {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => return Err(error),
                },
                BlobError::DiskFull(_) => {
                    if self.relieve(self.size(sha256).unwrap_or(0).max(RELIEF), awaited).await == 0 {
                        return Err(error);
                    }
                }
                _ => return Err(error),
            }
        }
    }

    async fn relieve(&self, bytes: u64, awaited: &watch::Sender<bool>) -> u64 {
        let (shelf, kept) = (Arc::clone(&self.shelf), self.kept(awaited));
        tokio::task::spawn_blocking(move || shelf.relieve(bytes, |name| kept.contains(name)))
            .await
            .unwrap_or(0)
    }

    async fn try_fetch(&self, sha256: &str, awaited: &watch::Sender<bool>) -> Result<(), BlobError> {
        let disk = |error| failed(sha256, error);
        let origin = |error| BlobError::Origin(sha256.to_owned(), error);
        let stalled =
            |_| origin(OriginError::Unavailable(format!("no byte for {} seconds", STALL.as_secs())));
        self.give_way(awaited).await;
        let part = self.part(sha256);
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(&part).await.map_err(disk)?;
        let mut hash = digest::Context::new(&digest::SHA256);
        let had = hash_all(&mut file, &mut hash).await.map_err(disk)?;
        let mut offset = had;
        let stream = tokio::time::timeout(STALL, self.origin.fetch(sha256, had)).await;
        let stream = match stream.map_err(stalled).and_then(|stream| stream.map_err(origin)) {
            // Nothing is evicted for a blob that no origin sends.
            Ok(stream) => {
                let size = self.size(sha256).unwrap_or(0).max(had);
                self.make_room(sha256, size, awaited).await.map(|()| stream)
            }
            Err(error) => Err(error),
        };
        let mut stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                if had == 0 {
                    fs::remove_file(&part).await.ok();
                }
                return Err(error);
            }
        };
        loop {
            let next = tokio::time::timeout(STALL, stream.next()).await;
            let bytes = match next.map_err(stalled).and_then(|next| next.transpose().map_err(origin)) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break,
                Err(error) => {
                    // The bytes received so far must be on the disk before the next try continues after them.
                    file.flush().await.map_err(disk)?;
                    return Err(error);
                }
            };
            offset += bytes.len() as u64;
            self.make_room(sha256, offset, awaited).await?;
            hash.update(&bytes);
            file.write_all(&bytes).await.map_err(disk)?;
            self.give_way(awaited).await;
        }
        file.flush().await.map_err(disk)?;
        file.sync_all().await.map_err(disk)?;
        let actual = hex::encode(hash.finish().as_ref());
        if actual != sha256 {
            fs::remove_file(&part).await.map_err(disk)?;
            if had > 0 {
                return Err(origin(OriginError::Unavailable(
                    "the part that was on disk was damaged".to_owned(),
                )));
            }
            return Err(BlobError::Corrupt(sha256.to_owned(), actual));
        }
        let about = file.metadata().await.map_err(disk)?;
        if about.len() != offset {
            fs::remove_file(&part).await.map_err(disk)?;
            return Err(origin(OriginError::Unavailable("the part on disk has another length".to_owned())));
        }
        let version = Version::of(&about);
        let path = self.dir.join(sha256);
        fs::rename(&part, &path).await.map_err(disk)?;
        self.shelf.sound(sha256, version);
        tokio::task::spawn_blocking(move || durable::sync_parent(&path))
            .await
            .map_err(|error| disk(io::Error::other(error)))?
            .map_err(disk)
    }

    fn part(&self, sha256: &str) -> PathBuf {
        durable::beside(Path::new(&self.dir.join(sha256)), "part")
    }

    /// The blobs that stay during this fetch. A fetch that no machine waits for must not evict blobs that the region
    /// wants prefetched.
    fn kept(&self, awaited: &watch::Sender<bool>) -> HashSet<String> {
        if *awaited.borrow() {
            return HashSet::new();
        }
        self.prefetched()
    }

    /// The blobs that the region wants here before a machine asks for them.
    pub(super) fn prefetched(&self) -> HashSet<String> {
        let images = self.images.borrow();
        let blobs = images.iter().flat_map(|images| &images.blobs);
        blobs.filter(|blob| blob.prefetch).map(|blob| blob.sha256.clone()).collect()
    }

    /// Makes room for this many bytes.
    async fn make_room(
        &self,
        sha256: &str,
        bytes: u64,
        awaited: &watch::Sender<bool>,
    ) -> Result<(), BlobError> {
        if bytes <= self.shelf.room(sha256) {
            return Ok(());
        }
        let (shelf, name, kept) = (Arc::clone(&self.shelf), sha256.to_owned(), self.kept(awaited));
        let room =
            tokio::task::spawn_blocking(move || shelf.reserve(&name, bytes, |name| kept.contains(name)));
        match room.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(NoRoom::TooLarge)) => {
                Err(BlobError::TooLarge(sha256.to_owned(), bytes, self.shelf.limit()))
            }
            Ok(Err(NoRoom::InUse)) => Err(BlobError::Full(sha256.to_owned())),
            Err(error) => Err(BlobError::Disk(sha256.to_owned(), error.to_string())),
        }
    }

    /// Waits, if no machine waits for this fetch, while a machine waits for another one.
    async fn give_way(&self, awaited: &watch::Sender<bool>) {
        if *awaited.borrow() {
            return;
        }
        let (mut mine, mut others) = (awaited.subscribe(), self.awaited.subscribe());
        tokio::select! {
            _ = mine.wait_for(|awaited| *awaited) => {}
            _ = others.wait_for(|count| *count == 0) => {}
        }
    }
}

/// Maps an I/O error to a blob error.
fn failed(sha256: &str, error: io::Error) -> BlobError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => BlobError::DiskFull(sha256.to_owned()),
        _ => BlobError::Disk(sha256.to_owned(), error.to_string()),
    }
}

/// Reads a file to its end into the hash. Returns its length.
async fn hash_all(file: &mut File, hash: &mut digest::Context) -> io::Result<u64> {
    let mut buffer = vec![0; CHUNK];
    let mut length = 0;
    loop {
        let count = file.read(&mut buffer).await?;
        if count == 0 {
            return Ok(length);
        }
        hash.update(buffer.get(..count).unwrap_or_default());
        length += count as u64;
    }
}
