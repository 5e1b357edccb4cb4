//! A limit on each client's requests: eight at once and one every two seconds, then one warning.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

/// A client may send one more request after this time.
const INTERVAL: Duration = Duration::from_secs(2);
/// The most requests that a client may send at once.
const BURST: u32 = 8;
/// The number of clients in one set. A new client replaces the one that was silent longest.
const WAYS: usize = 4;
/// The number of sets. All together use 1.5 MiB.
const SETS: usize = 4096;

/// The decision about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The request is answered.
    Answer,
    /// The request exceeds the limit, and the client has not been warned yet.
    Warn,
    /// The request exceeds the limit.
    Ignore,
}

/// A client's bucket.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    client: IpAddr,
    /// When it may send [`BURST`] requests at once again.
    full_at: Duration,
    warned: bool,
}

/// The buckets of a bounded number of clients.
#[derive(Debug)]
pub(crate) struct Limiter {
    hasher: RandomState,
    sets: Vec<[Option<Bucket>; WAYS]>,
}

impl Limiter {
    pub(crate) fn new() -> Self {
        Self { hasher: RandomState::new(), sets: vec![[None; WAYS]; SETS] }
    }

    /// Counts a request at `now`, the time since boot.
    pub(crate) fn count(&mut self, client: IpAddr, now: Duration) -> Verdict {
        let Some(bucket) = self.bucket(client) else { return Verdict::Ignore };
        if bucket.full_at <= now {
            (bucket.full_at, bucket.warned) = (now, false);
        }
        if bucket.full_at - now <= INTERVAL * (BURST - 1) {
            bucket.full_at += INTERVAL;
            return Verdict::Answer;
        }
        if std::mem::replace(&mut bucket.warned, true) { Verdict::Ignore } else { Verdict::Warn }
    }

    /// The bucket of the client. A new client gets a free bucket of its set, or else the one that was used longest ago.
    fn bucket(&mut self, client: IpAddr) -> Option<&mut Bucket> {
        let sets = u64::try_from(self.sets.len()).ok()?;
        let index = usize::try_from(self.hasher.hash_one(client).checked_rem(sets)?).ok()?;
        let set = self.sets.get_mut(index)?;
        let rank = |bucket: &Option<Bucket>| match bucket {
            Some(bucket) if bucket.client == client => (0, Duration::ZERO),
            None => (1, Duration::ZERO),
            Some(bucket) => (2, bucket.full_at),
        };
        let place = set.iter_mut().min_by_key(|it| rank(it))?;
        let bucket = place.take().filter(|bucket| bucket.client == client);
        Some(place.insert(bucket.unwrap_or(Bucket { client, full_at: Duration::ZERO, warned: false })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn eight_at_once_then_one_warning_then_one_every_two_seconds() {
        let mut limiter = Limiter::new();
        let mut at = |millis: u64| limiter.count(client(1), Duration::from_millis(1_000_000 + millis));
        for request in 1..=8 {
            assert_eq!(at(0), Verdict::Answer, "request {request}");
        }
        for (millis, expected) in [
            (0, Verdict::Warn),
            (0, Verdict::Ignore),
            (1_999, Verdict::Ignore),
            (2_000, Verdict::Answer),
            (2_000, Verdict::Ignore),
            (3_000, Verdict::Ignore),
            (4_000, Verdict::Answer),
            // After sixteen seconds without a request the bucket is full, and a warning is due again.
            (20_000, Verdict::Answer),
        ] {
            assert_eq!(at(millis), expected, "at {millis} ms");
        }
        assert_eq!((0..8).map(|_| at(20_000)).filter(|it| *it == Verdict::Answer).count(), 7);
        assert_eq!(at(20_000), Verdict::Ignore, "it was warned as the eighth");
    }

    #[test]
    fn a_client_is_not_limited_by_another_and_clients_take_no_more_memory_than_there_is() {
        let mut limiter = Limiter::new();
        let now = Duration::from_secs(1000);
        let answered = (0..100_000).filter(|number| limiter.count(client(*number), now) == Verdict::Answer);
        assert_eq!(answered.count(), 100_000);
        assert_eq!(limiter.sets.len(), SETS);
        assert!(limiter.sets.iter().flatten().all(Option::is_some));
    }
}
