//! When Squid may be started again, and when its cache may be the cause of its ends.

use std::time::Duration;

use tokio::time::Instant;

/// A Squid that lived longer did its work.
const LONG: Duration = Duration::from_secs(30);
/// The wait after an obstacle that people remove, such as a missing program.
const LOOK: Duration = Duration::from_secs(5);
/// The wait after an end of Squid: the first and the longest.
const RESTART: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// After this many early ends the cache may be the cause.
const EARLY: u32 = 3;

/// Why Squid did not start, for people.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The host lacks something, or a port is taken. Squid's cache is not the cause.
    Host(String),
    /// Squid itself failed.
    Squid(String),
}

/// The early ends of Squid, and the time of the next start.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    early: u32,
    not_before: Option<Instant>,
}

impl Restarts {
    /// Waits until Squid may be started again. After a start, waits for ever.
    pub(crate) async fn due(&self) {
        match self.not_before {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn are_due(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| now >= at)
    }

    /// True: the next start empties the cache.
    pub(crate) fn suspect_cache(&self) -> bool {
        self.early > 0 && self.early.is_multiple_of(EARLY)
    }

    /// Squid runs. An early end counts with the ones before it.
    pub(crate) fn started(&mut self) {
        self.not_before = None;
    }

    /// Squid did not start. Returns the reason.
    pub(crate) fn failed(&mut self, obstacle: Obstacle, now: Instant) -> String {
        match obstacle {
            Obstacle::Host(problem) => {
                self.not_before = Some(now + LOOK);
                problem
            }
            Obstacle::Squid(problem) => {
                self.ended(Duration::ZERO, now);
                problem
            }
        }
    }

    /// Squid ended by itself after this time.
    pub(crate) fn ended(&mut self, lived: Duration, now: Instant) {
        self.early = if lived > LONG { 1 } else { self.early + 1 };
        self.not_before = Some(now + backoff(self.early));
    }
}

fn backoff(early: u32) -> Duration {
    let [first, most] = RESTART;
    first.saturating_mul(1 << early.saturating_sub(1).min(6)).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wait until the next start, in seconds.
    fn wait(restarts: &Restarts, now: Instant) -> u64 {
        restarts.not_before.map_or(0, |at| (at - now).as_secs())
    }

    #[test]
    fn a_squid_that_ends_early_is_started_at_once_and_later_seldom() {
        let (mut restarts, now) = (Restarts::default(), Instant::now());
        let waits = [(); 8].map(|()| {
            restarts.ended(Duration::from_secs(2), now);
            wait(&restarts, now)
        });
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        restarts.started();
        assert!(restarts.are_due(now));
        restarts.ended(Duration::from_secs(31), now);
        assert_eq!(wait(&restarts, now), 1, "it did its work");
    }

    #[test]
    fn a_program_that_is_missing_for_long_delays_no_later_start_and_empties_no_cache() {
        let (mut restarts, now) = (Restarts::default(), Instant::now());
        for _ in 0..6 {
            assert_eq!(restarts.failed(Obstacle::Host("no Squid".to_owned()), now), "no Squid");
            assert_eq!((wait(&restarts, now), restarts.suspect_cache()), (5, false));
            assert!(!restarts.are_due(now) && restarts.are_due(now + LOOK));
        }
        restarts.started();
        restarts.ended(Duration::from_secs(2), now);
        assert_eq!(wait(&restarts, now), 1);
    }

    #[test]
    fn every_third_early_end_empties_the_cache() {
        let (mut restarts, now) = (Restarts::default(), Instant::now());
        let suspects = [(); 6].map(|()| {
            restarts.failed(Obstacle::Squid("FATAL".to_owned()), now);
            restarts.started();
            restarts.suspect_cache()
        });
        assert_eq!(suspects, [false, false, true, false, false, true]);
    }
}
