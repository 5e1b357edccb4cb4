//! The bytes of images, by SHA-256.
//!
//! ```text
//! DIR/blobs/ab/abcd…    a complete blob, renamed to this path after its hash was checked
//! DIR/blobs/part/abcd…  an upload that has not ended
//! ```
//! Plain files: a region has few and large blobs, and every reader streams them. [`collect`] deletes unused ones.

mod collect;

use crate::data_dir::{self, DataDirError};
use crate::settings::Settings;
use aws_lc_rs::digest::{Context, SHA256};
use basalt_api::wire::BlobState;
use basalt_db::{Actor, Blob, Store, StoreError};
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::{Read, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

/// The reason why a blob is missing or refused.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The part does not begin where the last one ended.
    #[error("the part begins at byte {offset}, and {received} bytes are there; go on at {received}")]
    Offset {
        /// The first byte of the part.
        offset: u64,
        /// The number of bytes received so far.
        received: u64,
    },
    /// Another client is uploading the blob.
    #[error("blob {sha256} is being uploaded by another client at this moment")]
    Busy {
        /// The SHA-256 of the blob.
        sha256: String,
    },
    /// The bytes have another hash.
    #[error("the bytes have the SHA-256 {actual}, not {sha256}; they were thrown away")]
    OtherHash {
        /// The announced SHA-256.
        sha256: String,
        /// The actual SHA-256.
        actual: String,
    },
    /// More bytes arrived than were announced.
    #[error("{received} bytes came of a blob of {total}; they were thrown away")]
    Incomplete {
        /// The number of bytes that arrived.
        received: u64,
        /// The announced number of bytes.
        total: u64,
    },
    /// The blob is larger than the limit.
    #[error("a blob of {total} bytes is larger than the {limit} bytes that this region takes")]
    TooLarge {
        /// The size in bytes; if it was not announced, the number of bytes that arrived.
        total: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The disk is full, except for a reserve.
    #[error("{path} has {free} bytes left, and {RESERVE} of them stay free for the database", path = path.display())]
    Full {
        /// The directory of blobs.
        path: PathBuf,
        /// The free space on the disk, in bytes.
        free: u64,
    },
    /// A file cannot be used.
    #[error("cannot use {path}", path = path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A part of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The offset of its first byte in the blob.
    pub offset: u64,
    /// The size of the blob; `None`: it ends with this part.
    pub total: Option<u64>,
}

/// Limits of uploads, in bytes and in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest blob, in bytes.
    pub bytes: u64,
    /// How long a blob is kept that no Image names.
    pub unused: Duration,
    /// How long an unfinished upload is kept.
    pub part: Duration,
}

/// An unfinished upload is kept for a day.
const PART: Duration = Duration::from_secs(24 * 3600);

impl From<&Settings> for Limits {
    fn from(settings: &Settings) -> Self {
        Self { bytes: settings.blob_bytes, unused: settings.blob_retention, part: PART }
    }
}

/// The number of bytes that must stay free on the disk: PostgreSQL may be on the same one.
const RESERVE: u64 = 1 << 30;

/// The number of bytes after which the free space is checked again.
const LOOK_AFTER: u64 = 4 << 20;

/// A region's blobs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Blobs {
    dir: PathBuf,
    store: Store,
    limits: Limits,
    /// Uploads in progress.
    busy: Arc<Mutex<BTreeSet<[u8; 32]>>>,
}

/// The only upload of a blob at this time.
struct Turn<'a> {
    blobs: &'a Blobs,
    sha256: [u8; 32],
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.blobs.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.sha256);
    }
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> BlobError {
    let path = path.to_owned();
    move |source| BlobError::File { path, source }
}

impl Blobs {
    /// Opens the blobs in `dir`.
    ///
    /// # Errors
    /// Fails if the directory cannot be created.
    pub fn open(dir: PathBuf, store: Store, limits: Limits) -> Result<Self, DataDirError> {
        let parts = dir.join("part");
        std::fs::create_dir_all(&parts).map_err(data_dir::file_error(&parts))?;
        // Images may hold secrets of their authors; the API requires a role for them.
        std::fs::set_permissions(&dir, Permissions::from_mode(0o700)).map_err(data_dir::file_error(&dir))?;
        Ok(Self { dir, store, limits, busy: Arc::default() })
    }

    /// The same blobs with an actor: the end of an upload goes to the audit log.
    #[must_use]
    pub fn acting(&self, actor: Arc<Actor>) -> Self {
        Self { store: self.store.acting(actor), ..self.clone() }
    }

    /// The blob, if its file is complete and the store knows it.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub async fn find(&self, sha256: &[u8; 32]) -> Result<Option<Blob>, BlobError> {
        let Some(blob) = self.store.blob(sha256).await? else { return Ok(None) };
        let here = tokio::fs::metadata(self.place(sha256)).await.is_ok_and(|m| m.len() == blob.size);
        Ok(here.then_some(blob))
    }

    /// The number of bytes of an unfinished upload that have arrived.
    ///
    /// # Errors
    /// Fails if the file cannot be inspected.
    pub async fn received(&self, sha256: &[u8; 32]) -> Result<u64, BlobError> {
        let path = self.part(sha256);
        match tokio::fs::metadata(&path).await {
            Ok(meta) => Ok(meta.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(file_error(&path)(error)),
        }
    }

    /// Receives a part of an upload. After the last part the hash is checked, and the blob is complete.
    ///
    /// # Errors
    /// Fails if the part does not fit, the bytes have another hash, or a file cannot be written. Bytes from before a broken connection
    /// are kept.
    pub async fn receive<R: AsyncRead + Unpin>(
        &self,
        sha256: &[u8; 32],
        part: Part,
        mut bytes: R,
    ) -> Result<BlobState, BlobError> {
        let _turn = self.turn(sha256)?;
        let path = self.part(sha256);
        let received = self.received(sha256).await?;
        self.fits(part.total.unwrap_or(part.offset))?;
        // A part at offset 0 starts again: the client does not know how much has arrived.
        if part.offset != received && part.offset != 0 {
            return Err(BlobError::Offset { offset: part.offset, received });
        }
        let mut options = File::options();
        let mut file =
            options.create(true).write(true).truncate(false).open(&path).await.map_err(file_error(&path))?;
        file.set_len(part.offset).await.map_err(file_error(&path))?;
        file.seek(SeekFrom::End(0)).await.map_err(file_error(&path))?;
        let copied = self.copy(part.offset, &mut bytes, &mut file, &path).await;
        file.flush().await.map_err(file_error(&path))?;
        let received = copied?;
        match part.total {
            Some(total) if received < total => return Ok(BlobState { received, complete: false }),
            Some(total) if received > total => {
                tokio::fs::remove_file(&path).await.map_err(file_error(&path))?;
                return Err(BlobError::Incomplete { received, total });
            }
            _ => {}
        }
        file.sync_all().await.map_err(file_error(&path))?;
        self.keep(sha256, &path, received).await?;
        Ok(BlobState { received, complete: true })
    }

    /// Appends bytes to a part that has `received` bytes. Returns the new number.
    async fn copy<R: AsyncRead + Unpin>(
        &self,
        mut received: u64,
        bytes: &mut R,
        file: &mut File,
        path: &Path,
    ) -> Result<u64, BlobError> {
        loop {
            self.has_room()?;
            // One byte more than the limit shows that a blob is too large.
            let most = LOOK_AFTER.min(self.limits.bytes.saturating_add(1).saturating_sub(received));
            let copied =
                tokio::io::copy(&mut (&mut *bytes).take(most), file).await.map_err(file_error(path))?;
            received = received.saturating_add(copied);
            if let Err(error) = self.fits(received) {
                tokio::fs::remove_file(path).await.map_err(file_error(path))?;
                return Err(error);
            }
            if copied < most {
                return Ok(received);
            }
        }
    }

    fn fits(&self, total: u64) -> Result<(), BlobError> {
        let limit = self.limits.bytes;
        if total > limit { Err(BlobError::TooLarge { total, limit }) } else { Ok(()) }
    }

    fn has_room(&self) -> Result<(), BlobError> {
        let disk = rustix::fs::statvfs(&self.dir).map_err(|e| file_error(&self.dir)(e.into()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free > RESERVE { Ok(()) } else { Err(BlobError::Full { path: self.dir.clone(), free }) }
    }

    /// The blob's bytes from `offset` on.
    ///
    /// # Errors
    /// Fails if the blob is not here.
    pub async fn read(&self, sha256: &[u8; 32], offset: u64) -> Result<File, BlobError> {
        let path = self.place(sha256);
        let mut file = File::open(&path).await.map_err(file_error(&path))?;
        file.seek(SeekFrom::Start(offset)).await.map_err(file_error(&path))?;
        Ok(file)
    }

    /// Checks the hash, and renames the file.
    async fn keep(&self, sha256: &[u8; 32], part: &Path, size: u64) -> Result<(), BlobError> {
        let from = part.to_owned();
        let hashed = tokio::task::spawn_blocking(move || hash_file(&from)).await;
        let actual = hashed.map_err(std::io::Error::other).and_then(|r| r).map_err(file_error(part))?;
        if actual != *sha256 {
            tokio::fs::remove_file(part).await.map_err(file_error(part))?;
            return Err(BlobError::OtherHash { sha256: hex::encode(sha256), actual: hex::encode(actual) });
        }
        let place = self.place(sha256);
        if let Some(dir) = place.parent() {
            tokio::fs::create_dir_all(dir).await.map_err(file_error(dir))?;
        }
        tokio::fs::rename(part, &place).await.map_err(file_error(&place))?;
        let blob = Blob { sha256: *sha256, size, location: "local".to_owned() };
        Ok(self.store.put_blob(&blob).await?)
    }

    fn turn(&self, sha256: &[u8; 32]) -> Result<Turn<'_>, BlobError> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        match busy.insert(*sha256) {
            true => Ok(Turn { blobs: self, sha256: *sha256 }),
            false => Err(BlobError::Busy { sha256: hex::encode(sha256) }),
        }
    }

    fn place(&self, sha256: &[u8; 32]) -> PathBuf {
        place_in(&self.dir, sha256)
    }

    fn part(&self, sha256: &[u8; 32]) -> PathBuf {
        self.dir.join("part").join(hex::encode(sha256))
    }
}

/// The path of a complete blob in a directory of blobs.
pub(crate) fn place_in(dir: &Path, sha256: &[u8; 32]) -> PathBuf {
    let name = hex::encode(sha256);
    dir.join(name.get(..2).unwrap_or_default()).join(name)
}

/// The complete blobs in a directory of blobs, which may not exist.
pub(crate) fn whole(dir: &Path) -> std::io::Result<Vec<([u8; 32], PathBuf)>> {
    let mut found = Vec::new();
    if !dir.exists() {
        return Ok(found);
    }
    for shelf in std::fs::read_dir(dir)? {
        let shelf = shelf?.path();
        if shelf.file_name().is_none_or(|name| name.len() != 2) || !shelf.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(shelf)? {
            let path = file?.path();
            let name = path.file_name().and_then(|name| hex::decode(name.as_encoded_bytes()).ok());
            if let Some(sha256) = name.and_then(|bytes| bytes.try_into().ok()) {
                found.push((sha256, path));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The SHA-256 of a file's bytes.
pub(crate) fn hash_file(path: &Path) -> std::io::Result<[u8; 32]> {
    let mut file = std::fs::File::open(path)?;
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; 256 << 10];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        context.update(buffer.get(..n).unwrap_or_default());
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    Ok(out)
}
