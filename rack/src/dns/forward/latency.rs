//! How long other servers take to answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use basalt_dns::Outcome;

/// Upper bounds of the classes of times, in milliseconds. A client waits for five seconds.
pub const BOUNDS_MS: [u64; 9] = [1, 5, 10, 25, 50, 100, 500, 1000, 5000];

/// Queries so far, by how they ended.
#[derive(Debug, Default)]
pub(super) struct Latency {
    within: [AtomicU64; BOUNDS_MS.len()],
    answered: AtomicU64,
    micros: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

/// Queries to other servers since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measured {
    /// Queries that were answered within each of [`BOUNDS_MS`], which contain the ones before.
    pub within: [u64; BOUNDS_MS.len()],
    /// Queries that a server answered.
    pub answered: u64,
    /// The sum of their times.
    pub time: Duration,
    /// Queries whose answers must not reach clients: private addresses.
    pub refused: u64,
    /// Queries that no server answered in time.
    pub failed: u64,
}

impl Latency {
    /// Counts a query that took this long.
    pub(super) fn ended(&self, outcome: &Outcome, took: Duration) {
        let ended = match outcome {
            Outcome::Response(_) => &self.answered,
            Outcome::Refused => &self.refused,
            Outcome::Failed => &self.failed,
        };
        ended.fetch_add(1, Ordering::Relaxed);
        if !matches!(outcome, Outcome::Response(_)) {
            return;
        }
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        for (bound, within) in BOUNDS_MS.iter().zip(&self.within) {
            if took <= Duration::from_millis(*bound) {
                within.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn read(&self) -> Measured {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Measured {
            within: self.within.each_ref().map(value),
            answered: value(&self.answered),
            time: Duration::from_micros(value(&self.micros)),
            refused: value(&self.refused),
            failed: value(&self.failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_the_times_of_those_below_it() {
        let latency = Latency::default();
        latency.ended(&Outcome::Failed, Duration::from_millis(4800));
        latency.ended(&Outcome::Refused, Duration::from_millis(1));
        assert_eq!(latency.read(), Measured { refused: 1, failed: 1, ..Measured::default() });
    }
}
