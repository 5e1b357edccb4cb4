//! The writer of a lease file: a thread writes all waiting leases with one sync, while the server goes on answering.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::disk::Disk;
use crate::journal::Journal;

/// The file is rewritten when it has grown to this many bytes.
const COMPACT_BYTES: u64 = 64 << 20;
/// The most records that are written with one sync.
const TOGETHER: usize = 4096;
/// While writes fail, they are tried again at this interval.
const AGAIN: Duration = Duration::from_secs(2);

/// The reason why leases are not on disk. All leases of one write share it.
pub(crate) type NotKept = Arc<io::Error>;

/// A handle to wait for the writing of leases.
#[derive(Debug)]
pub(crate) struct Kept(oneshot::Receiver<Result<(), NotKept>>);

impl Kept {
    /// Waits until the leases are on disk, or cannot be written.
    ///
    /// # Errors
    /// The I/O error; the leases are not in the file.
    pub(crate) async fn wait(&mut self) -> Result<(), NotKept> {
        let ended = |_| Err(Arc::new(io::Error::other("the thread that writes leases has ended")));
        (&mut self.0).await.unwrap_or_else(ended)
    }
}

struct Work<T> {
    records: Vec<T>,
    /// The sender of the result, if the caller waits for it.
    done: Option<oneshot::Sender<Result<(), NotKept>>>,
}

/// The next records to write. While a write has failed, one unwritten record is tried again.
fn next<T: Clone>(queue: &mpsc::Receiver<Work<T>>, unwritten: Option<&T>) -> Option<Work<T>> {
    let Some(unwritten) = unwritten else { return queue.recv().ok() };
    match queue.recv_timeout(AGAIN) {
        Ok(work) => Some(work),
        Err(RecvTimeoutError::Timeout) => Some(Work { records: vec![unwritten.clone()], done: None }),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}

/// The lease file. Dropping it waits until everything is written.
#[derive(Debug)]
pub(crate) struct LeaseLog<T> {
    work: Option<mpsc::Sender<Work<T>>>,
    /// True if the latest write failed.
    fails: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<T> LeaseLog<T>
where
    T: Clone + Serialize + DeserializeOwned + Send + 'static,
{
    /// Starts the thread, which reports the result of each write to `disk`. `all` returns the records to keep when the
    /// file is rewritten; they must include everything passed to [`LeaseLog::keep`] before.
    ///
    /// # Errors
    /// `io::Error`: the thread cannot be started.
    pub(crate) fn start(
        mut journal: Journal<T>,
        (disk, name): (Arc<Disk>, &'static str),
        all: impl Fn() -> Option<Vec<T>> + Send + 'static,
    ) -> io::Result<Self> {
        let (work, queue) = mpsc::channel::<Work<T>>();
        let fails = Arc::new(AtomicBool::new(false));
        let says = Arc::clone(&fails);
        let thread = std::thread::Builder::new().name("leases".to_owned()).spawn(move || {
            // A record of a failed write.
            let mut unwritten = None;
            while let Some(first) = next(&queue, unwritten.as_ref()) {
                let (mut records, mut waiting) = (first.records, vec![first.done]);
                while records.len() < TOGETHER
                    && let Ok(next) = queue.try_recv()
                {
                    records.extend(next.records);
                    waiting.push(next.done);
                }
                let kept = journal.append(&records).map_err(Arc::new);
                disk.wrote(name, kept.as_ref().map(|_| ()).map_err(|error| &**error));
                says.store(kept.is_err(), Ordering::Relaxed);
                match (&kept, unwritten.is_some()) {
                    (Ok(()), false) => {}
                    (Ok(()), true) => tracing::info!("leases can be written again"),
                    (Err(error), false) => {
                        tracing::error!(%error, leases = records.len(), "leases cannot be written; clients are not answered, and ask again");
                    }
                    (Err(error), true) => tracing::debug!(%error, "leases still cannot be written"),
                }
                unwritten = records.into_iter().next().filter(|_| kept.is_err());
                for done in waiting.into_iter().flatten() {
                    // Some callers do not wait for the result.
                    let _ = done.send(kept.clone());
                }
                journal.compact(COMPACT_BYTES, &all);
            }
        })?;
        Ok(Self { work: Some(work), fails, thread: Some(thread) })
    }

    /// True if the latest write failed: an offer made now could not be granted. The thread itself tries again.
    pub(crate) fn fails(&self) -> bool {
        self.fails.load(Ordering::Relaxed)
    }

    /// Queues records behind those of earlier calls. Call it under the lock that orders the leases.
    pub(crate) fn keep(&self, records: Vec<T>) -> Kept {
        let (done, kept) = oneshot::channel();
        if let Some(work) = &self.work {
            // If the thread has ended, the caller learns of it from the closed channel.
            let _ = work.send(Work { records, done: Some(done) });
        }
        Kept(kept)
    }
}

impl<T> Drop for LeaseLog<T> {
    fn drop(&mut self) {
        self.work = None;
        // The server may be dropped on this thread itself, which cannot join itself.
        if let Some(thread) = self.thread.take().filter(|it| it.thread().id() != std::thread::current().id())
        {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_kept_is_in_the_file_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leases");
        let (journal, _) = Journal::<u32>::open(&path).unwrap();
        let log = LeaseLog::start(journal, (Arc::default(), "leases"), || None).unwrap();
        for mut kept in (0..100).map(|number| log.keep(vec![number, number + 1000])).collect::<Vec<_>>() {
            kept.wait().await.unwrap();
        }
        let records = Journal::<u32>::open(&path).unwrap().1.records;
        assert_eq!(records, (0..100).flat_map(|number| [number, number + 1000]).collect::<Vec<_>>());
        drop(log.keep(vec![7]));
        drop(log);
        assert_eq!(
            Journal::<u32>::open(&path).unwrap().1.records.last(),
            Some(&7),
            "it ends when all is written"
        );
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_told_to_each() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let journal = Journal::<u32>::read_only(file.path());
        let log = LeaseLog::start(journal, (Arc::default(), "leases"), || None).unwrap();
        assert!(!log.fails());
        let (mut one, mut other) = (log.keep(vec![1]), log.keep(vec![2]));
        assert!(one.wait().await.is_err() && other.wait().await.is_err());
        assert!(log.fails());
    }
}
