//! Removes unused blobs: without an Image, unfinished uploads, and files without a row in the store.
//!
//! Once an hour a region removes:
//!
//! | file | when |
//! | --- | --- |
//! | a part of an upload | it has not grown for a day |
//! | a file that the store does not know | it has not changed for a day |
//! | a blob that no Image names | `blob-retention` (7 days) has passed since an Image named it, or since its last upload or HEAD |

use super::{BlobError, Blobs, file_error, place_in, whole};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

impl Blobs {
    /// Removes unused blobs from the store, and unneeded files from this host's disk. Every region does so for its own disk.
    ///
    /// # Errors
    /// Fails if the store or the file system does. The next call tries the rest again.
    pub async fn collect(&self) -> Result<(), BlobError> {
        for blob in self.store.collect_blobs(self.limits.unused).await? {
            let (sha256, days) = (hex::encode(blob.sha256), self.limits.unused.as_secs() / 86_400);
            tracing::info!(
                sha256,
                bytes = blob.size,
                days,
                "no Image named this blob for so long: it is removed"
            );
            // Leave a blob that a client uploads again at this moment. The next sweep looks again.
            let Ok(_turn) = self.turn(&blob.sha256) else { continue };
            if self.store.blob(&blob.sha256).await?.is_none() {
                remove(&place_in(&self.dir, &blob.sha256))?;
            }
        }
        let known: BTreeSet<[u8; 32]> =
            self.store.blobs().await?.into_iter().map(|blob| blob.sha256).collect();
        let (dir, part) = (self.dir.clone(), self.limits.part);
        let swept = tokio::task::spawn_blocking(move || sweep(&dir, &known, part)).await;
        swept.map_err(std::io::Error::other).map_err(file_error(&self.dir))?
    }
}

/// Removes parts and unknown files that have not changed for `age`. An upload gives a file its name before the store knows it.
fn sweep(dir: &Path, known: &BTreeSet<[u8; 32]>, age: Duration) -> Result<(), BlobError> {
    let parts = dir.join("part");
    let mut old: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(&parts).map_err(file_error(&parts))? {
        old.push(entry.map_err(file_error(&parts))?.path());
    }
    let unknown =
        whole(dir).map_err(file_error(dir))?.into_iter().filter(|(sha256, _)| !known.contains(sha256));
    old.extend(unknown.map(|(_, path)| path));
    for path in old {
        let changed = std::fs::metadata(&path).and_then(|it| it.modified()).ok();
        if changed.and_then(|at| at.elapsed().ok()).is_some_and(|since| since >= age) {
            tracing::info!(path = %path.display(), "this upload was given up: it is removed");
            remove(&path)?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), BlobError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(file_error(path)(error)),
        _ => Ok(()),
    }
}
