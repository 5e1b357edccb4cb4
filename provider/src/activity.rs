//! Counts the changes of this run: while one of them makes progress, it may still remove an obstacle for those that wait.
//!
//! The obstacle to a change is usually removed by another change of the same apply, at the same time or a moment later. With
//! `-parallelism=1`, or if the object in the way is not part of this apply, no other change comes: all changes that are under way wait.
//! Then the waits end early.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Quiet time after which no more changes are expected. The work of other providers is not visible here.
const QUIET: Duration = Duration::from_secs(8);

/// The number of changes that are under way, and of those that wait.
#[derive(Clone, Debug)]
pub(crate) struct Activity(Arc<Mutex<Now>>);

#[derive(Debug)]
struct Now {
    under_way: usize,
    waiting: usize,
    since: Instant,
}

/// A change that is under way until this is dropped, or a wait in such a change.
#[derive(Debug)]
pub(crate) struct UnderWay {
    of: Activity,
    waits: bool,
}

impl Default for Activity {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Now { under_way: 0, waiting: 0, since: Instant::now() })))
    }
}

impl Activity {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a change that begins.
    pub(crate) fn begins(&self) -> UnderWay {
        let mut now = self.now();
        now.under_way += 1;
        now.since = Instant::now();
        UnderWay { of: self.clone(), waits: false }
    }

    /// Counts a change that waits for others.
    pub(crate) fn waits(&self) -> UnderWay {
        self.now().waiting += 1;
        UnderWay { of: self.clone(), waits: true }
    }

    /// True if all changes wait, and no new one has begun for a while.
    pub(crate) fn is_quiet(&self) -> bool {
        let now = self.now();
        now.waiting >= now.under_way && now.since.elapsed() > QUIET
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut now = self.of.now();
        if self.waits {
            now.waiting = now.waiting.saturating_sub(1);
        } else {
            now.under_way = now.under_way.saturating_sub(1);
            now.since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a quiet time.
    fn passes(activity: &Activity) {
        activity.now().since = Instant::now().checked_sub(QUIET * 2).expect("an instant");
    }

    #[test]
    fn it_is_quiet_once_all_that_is_under_way_has_waited_for_a_while() {
        let activity = Activity::default();
        let (_one, two) = (activity.begins(), activity.begins());
        let _waits = activity.waits();
        passes(&activity);
        assert!(!activity.is_quiet(), "the second one works");
        drop(two);
        assert!(!activity.is_quiet(), "that may have cleared the way");
        passes(&activity);
        assert!(activity.is_quiet());
        let _three = activity.begins();
        assert!(!activity.is_quiet(), "another one has come");
    }
}
