//! Token buckets by key, which limit the rate of attempts. Pure: time is an argument.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// The number of keys that are kept. More keys come only from a client that invents them.
const KEYS: usize = 100_000;

/// The limit of attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    /// The number of attempts at once, after a long time without any.
    pub(super) burst: u32,
    /// The time after which one more attempt is allowed.
    pub(super) every: Duration,
}

/// A bucket for each key.
#[derive(Debug)]
pub(super) struct Buckets<K> {
    limit: Limit,
    /// When each bucket will be full again. Full buckets are not stored.
    full_at: HashMap<K, Duration>,
}

impl<K: Hash + Eq> Buckets<K> {
    pub(super) fn new(limit: Limit) -> Self {
        Self { limit, full_at: HashMap::new() }
    }

    /// Takes one token out of the key's bucket at `now`, or returns how long to wait for one. Above [`KEYS`], new keys are
    /// not counted: otherwise a stranger with many keys could lock out everybody else.
    pub(super) fn take(&mut self, now: Duration, key: K) -> Result<(), Duration> {
        let (full, wait) = self.after_one_more(now, &key);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.keep(now, key, full);
        Ok(())
    }

    /// Takes one token, even if there is none. Returns the delay for this try, at most `latest`.
    pub(super) fn delay(&mut self, now: Duration, key: K, latest: Duration) -> Duration {
        let (full, wait) = self.after_one_more(now, &key);
        let excess = wait.saturating_sub(latest);
        self.keep(now, key, full.saturating_sub(excess));
        wait.min(latest)
    }

    /// The time at which the bucket is full again if one more token is taken now, and the time until it has a token.
    fn after_one_more(&self, now: Duration, key: &K) -> (Duration, Duration) {
        let full = self.full_at.get(key).copied().unwrap_or(now).max(now).saturating_add(self.limit.every);
        let room = now.saturating_add(self.limit.every.saturating_mul(self.limit.burst));
        (full, full.saturating_sub(room))
    }

    fn keep(&mut self, now: Duration, key: K, full: Duration) {
        if self.full_at.len() >= KEYS {
            self.full_at.retain(|_, full| *full > now);
        }
        if self.full_at.len() < KEYS || self.full_at.contains_key(&key) {
            self.full_at.insert(key, full);
        }
    }

    /// Puts one token back, after a successful try.
    pub(super) fn put_back<Q: Hash + Eq + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some(full) = self.full_at.get_mut(key) {
            *full = full.saturating_sub(self.limit.every);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { burst: 3, every: Duration::from_secs(10) };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(1000 + seconds)
    }

    #[test]
    fn a_burst_passes_then_one_in_each_interval() {
        let mut buckets = Buckets::new(LIMIT);
        for _ in 0..3 {
            assert_eq!(buckets.take(at(0), "a"), Ok(()));
        }
        assert_eq!(buckets.take(at(0), "a"), Err(Duration::from_secs(10)));
        assert_eq!(buckets.take(at(4), "a"), Err(Duration::from_secs(6)));
        assert_eq!(buckets.take(at(10), "a"), Ok(()));
        assert_eq!(buckets.take(at(10), "a"), Err(Duration::from_secs(10)));
        for _ in 0..3 {
            assert_eq!(buckets.take(at(100), "a"), Ok(()), "it is full again, and not fuller");
        }
        assert!(buckets.take(at(100), "a").is_err());
    }

    #[test]
    fn a_delay_is_bounded_and_what_is_delayed_counts() {
        let mut buckets = Buckets::new(LIMIT);
        let latest = Duration::from_secs(15);
        let delays = [0, 0, 0, 10, 15, 15].map(Duration::from_secs);
        for delay in delays {
            assert_eq!(buckets.delay(at(0), "a", latest), delay);
        }
        assert_eq!(buckets.delay(at(20), "a", latest), Duration::from_secs(5), "it is not owed for ever");
    }

    #[test]
    fn keys_have_buckets_of_their_own_and_refusals_cost_nothing() {
        let mut buckets = Buckets::new(LIMIT);
        for _ in 0..30 {
            let _ = buckets.take(at(0), "a");
        }
        assert_eq!(buckets.take(at(0), "b"), Ok(()));
        assert_eq!(buckets.take(at(10), "a"), Ok(()));
    }

    #[test]
    fn what_is_put_back_can_be_taken_again() {
        let mut buckets = Buckets::new(LIMIT);
        for _ in 0..30 {
            assert_eq!(buckets.take(at(0), "a"), Ok(()));
            buckets.put_back("a");
        }
    }

    #[test]
    fn made_up_keys_do_not_fill_the_memory() {
        let mut buckets = Buckets::new(LIMIT);
        for key in 0..KEYS + 10 {
            let _ = buckets.take(at(0), key);
        }
        assert_eq!(buckets.full_at.len(), KEYS);
        assert_eq!(buckets.take(at(0), 0), Ok(()), "who was there before goes on");
        assert_eq!(buckets.take(at(0), KEYS + 20), Ok(()), "and nobody is locked out");
        assert_eq!(buckets.take(at(60), KEYS + 5), Ok(()), "full buckets are forgotten");
        assert_eq!(buckets.full_at.len(), 1);
    }
}
