//! Reports to regions what the cache holds: when it has changed, but not often, and now and then in any case.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use basalt_proto::CACHE_NAMES;
use basalt_proto::budget::{Budget, Spent};
use basalt_proto::rack_v1::{CacheFact, fact::Body};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::BlobStore;
use crate::facts::About;
use crate::hash::is_sha256_hex;
use crate::spool::writer::Facts;

/// The intervals between reports.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How often the directory is read.
    pub look: Duration,
    /// The most reports. A region keeps each for thirty days.
    pub budget: Budget,
    /// When the same is reported again: a region may have lost it.
    pub again: Duration,
}

/// The intervals of a rack.
pub const PACE: Pace = Pace {
    look: Duration::from_secs(5),
    budget: Budget { most: 5, every_ms: 60_000 },
    again: Duration::from_secs(3600),
};

/// Reports what the cache holds, until `stop`.
pub async fn tell(blobs: Arc<BlobStore>, facts: Facts, pace: Pace, stop: CancellationToken) {
    let mut told: Option<(Instant, CacheFact)> = None;
    let mut spent = Spent::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(pace.look) => {}
        }
        let store = Arc::clone(&blobs);
        let Ok(Ok(now)) = tokio::task::spawn_blocking(move || store.summary()).await else { continue };
        let is_known = told.as_ref().is_some_and(|(at, before)| *before == now && at.elapsed() < pace.again);
        if !is_known && spent.take(pace.budget, facts.clock().unix_now()) {
            facts.tell(About::default().saw(Body::Cache(now.clone())));
            told = Some((Instant::now(), now));
        }
    }
}

impl BlobStore {
    /// The contents of the cache. Reads the directory, so it blocks the thread.
    fn summary(&self) -> io::Result<CacheFact> {
        let mut names = HashSet::new();
        for file in std::fs::read_dir(&self.dir)? {
            let name = file?.file_name().to_string_lossy().into_owned();
            if is_sha256_hex(&name) {
                names.insert(name);
            }
        }
        let images = self.images.borrow().clone();
        let blobs = images.iter().flat_map(|images| &images.blobs);
        let mut held = blobs.filter(|blob| names.contains(&blob.sha256)).map(|blob| &blob.sha256);
        let first: Vec<_> =
            held.by_ref().take(CACHE_NAMES).filter_map(|name| hex::decode(name).ok()).collect();
        let counts = self.counts();
        Ok(CacheFact {
            files: names.len() as u64,
            bytes: counts.bytes,
            limit_bytes: counts.limit,
            held: first,
            more: held.count() as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Fake, images, lay, open_with};
    use super::*;
    use crate::clock::Clock;
    use crate::hash::sha256;
    use crate::spool::{Limits, writer};

    const SOON: Pace = Pace {
        look: Duration::from_millis(1),
        budget: Budget { most: 100, every_ms: 1 },
        again: Duration::from_secs(3600),
    };

    /// The reports so far.
    async fn reports(facts: &Facts) -> Vec<CacheFact> {
        let all = facts.read(1).await.unwrap();
        all.into_iter()
            .filter_map(|fact| match fact.body {
                Some(Body::Cache(it)) => Some(it),
                _ => None,
            })
            .collect()
    }

    #[tokio::test]
    async fn what_the_cache_holds_is_told_when_it_has_changed_and_names_files_of_images_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (facts, _spool) =
            writer::start(&dir.path().join("spool"), Limits::default(), Clock::default()).unwrap();
        let wanted = images(&[(b"kernel", true), (b"root", false)]);
        lay(dir.path(), b"kernel", 1);
        let store = open_with(dir.path(), Fake::new(b"root", None), wanted);
        let stop = CancellationToken::new();
        let task = tokio::spawn(tell(Arc::clone(&store), facts.clone(), SOON, stop.clone()));
        let mut durable = facts.durable();
        let first = loop {
            if let [first, ..] = &reports(&facts).await[..] {
                break first.clone();
            }
            durable.changed().await.unwrap();
        };
        let named = |names: &[&[u8]]| {
            let mut named: Vec<_> = names.iter().map(|it| sha256(it).to_vec()).collect();
            named.sort();
            named
        };
        assert_eq!((first.files, first.bytes, first.limit_bytes, first.more), (1, 6, 1 << 20, 0));
        assert_eq!(first.held, named(&[b"kernel"]));
        lay(dir.path(), b"of no image", 1);
        store.prefetch(&hex::encode(sha256(b"root"))).await.unwrap();
        let last = loop {
            let all = reports(&facts).await;
            if let Some(last) = all.last().filter(|it| it.files == 3 && it.held.len() == 2) {
                break last.clone();
            }
            durable.changed().await.unwrap();
        };
        let mut held = last.held;
        held.sort();
        assert_eq!(held, named(&[b"kernel", b"root"]));
        stop.cancel();
        task.await.unwrap();
        let all = reports(&facts).await;
        assert!(all.windows(2).all(|two| two[0] != two[1]), "the same is not told twice: {all:?}");
    }
}
