//! Makes room on a full disk for the rack's own files, by removing images, which can be fetched again.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::blobs::{self, BlobStore};
use crate::concern::store::read_concern;
use crate::concern::{Concern, Content};
use crate::disk::Disk;

/// How often to check if the disk is full.
const FULL: Duration = Duration::from_secs(1);
/// The bytes removed from the cache at once.
const ROOM: u64 = 64 << 20;

/// Removes images from a full disk so that a rack can start on it. Images that are to be prefetched are removed last.
///
/// # Errors
/// `io::Error`: a file cannot be read or removed.
pub(crate) fn make(dir: &Path) -> io::Result<()> {
    let images = match read_concern(dir, Concern::Images) {
        Ok(Some((_, Content::Images(images)))) => images.blobs,
        // A damaged concern is reported later.
        _ => Vec::new(),
    };
    let prefetched: HashSet<String> =
        images.into_iter().filter(|blob| blob.prefetch).map(|blob| blob.sha256).collect();
    blobs::make_room(dir, ROOM, |name| prefetched.contains(name))?;
    blobs::make_room(dir, ROOM, |_| false)
}

/// Checks repeatedly until the rack stops.
pub(crate) async fn keep(blobs: Arc<BlobStore>, disk: Arc<Disk>, stop: CancellationToken) {
    let mut timer = tokio::time::interval(FULL);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = timer.tick() => look(&blobs, &disk).await,
        }
    }
}

/// Removes images while the disk is too full for leases and facts. Failed writes are retried later by their own code.
async fn look(blobs: &BlobStore, disk: &Disk) {
    if disk.is_full() && blobs.lacks_room().await {
        blobs.give_room(ROOM).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blobs::NoOrigin;
    use tokio::sync::watch;

    #[tokio::test]
    async fn an_image_leaves_the_cache_only_while_the_disk_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("blobs").join("a".repeat(64));
        std::fs::create_dir_all(image.parent().unwrap()).unwrap();
        std::fs::write(&image, "bytes").unwrap();
        let (_, images) = watch::channel(None);
        let blobs = BlobStore::open(dir.path(), Some(1 << 20), Arc::new(NoOrigin), images).unwrap();
        // The disk was full once, and nothing has been written since.
        let disk = Arc::<Disk>::default();
        disk.wrote("facts", Err(&io::ErrorKind::StorageFull.into()));
        look(&blobs, &disk).await;
        assert!(image.exists());
    }
}
