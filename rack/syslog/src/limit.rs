//! A limit on the messages of each sender: a burst, and a rate. Dropped messages are counted, so that the log can
//! report their number.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// A sender may send one more message after this time: 200 a second.
pub const INTERVAL: Duration = Duration::from_millis(5);
/// The most messages that a sender may send at once. A booting kernel sends over a thousand.
pub const BURST: u32 = 4000;
/// The most senders known at once. While all of them have sent recently, a new one is dropped.
pub const SENDERS: usize = 16_384;

#[derive(Debug, Default)]
struct Bucket {
    /// When the sender may send [`BURST`] messages at once again.
    full_at: Duration,
    dropped: u64,
}

/// The buckets of a bounded number of senders.
#[derive(Debug, Default)]
pub struct Limiter {
    buckets: HashMap<IpAddr, Bucket>,
}

impl Limiter {
    /// Counts a message that came `now`, on any clock that does not go back. `false`: drop it.
    pub fn admit(&mut self, sender: IpAddr, now: Duration) -> bool {
        if self.buckets.len() >= SENDERS && !self.buckets.contains_key(&sender) {
            self.forget(now);
            if self.buckets.len() >= SENDERS {
                return false;
            }
        }
        let bucket = self.buckets.entry(sender).or_default();
        bucket.full_at = bucket.full_at.max(now);
        if bucket.full_at - now <= INTERVAL * (BURST - 1) {
            bucket.full_at += INTERVAL;
            return true;
        }
        bucket.dropped += 1;
        false
    }

    /// Counts a message that is kept in any case, as one of a stream. Answers how long its sender is to wait before the next one.
    pub fn wait(&mut self, sender: IpAddr, now: Duration) -> Duration {
        if self.buckets.len() >= SENDERS && !self.buckets.contains_key(&sender) {
            return INTERVAL;
        }
        let bucket = self.buckets.entry(sender).or_default();
        bucket.full_at = bucket.full_at.max(now) + INTERVAL;
        (bucket.full_at - now).saturating_sub(INTERVAL * BURST)
    }

    /// How many messages of each sender were dropped since this was last asked.
    pub fn dropped(&mut self, now: Duration) -> Vec<(IpAddr, u64)> {
        let counts = self.buckets.iter_mut().filter(|(_, bucket)| bucket.dropped > 0);
        let dropped = counts.map(|(sender, it)| (*sender, std::mem::take(&mut it.dropped))).collect();
        self.forget(now);
        dropped
    }

    fn forget(&mut self, now: Duration) {
        self.buckets.retain(|_, bucket| bucket.full_at > now || bucket.dropped > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn a_burst_passes_then_two_hundred_a_second_and_the_rest_is_counted() {
        let mut limiter = Limiter::default();
        let sent = |limiter: &mut Limiter, count: u32, millis| {
            let now = Duration::from_millis(millis);
            (0..count).filter(|_| limiter.admit(sender(1), now)).count()
        };
        assert_eq!(sent(&mut limiter, BURST + 100, 0), 4000);
        assert_eq!(limiter.dropped(Duration::ZERO), [(sender(1), 100)]);
        assert_eq!(sent(&mut limiter, 1000, 1000), 200);
        let now = Duration::from_secs(1);
        assert_eq!(limiter.dropped(now), [(sender(1), 800)]);
        assert_eq!(limiter.dropped(now), []);
        assert!(limiter.admit(sender(2), now), "another sender is not limited by it");
    }

    #[test]
    fn a_stream_waits_for_what_it_sent_too_early() {
        let mut limiter = Limiter::default();
        let mut waits = (0..BURST + 10).map(|_| limiter.wait(sender(1), Duration::ZERO));
        assert!(waits.by_ref().take(4000).all(|wait| wait.is_zero()));
        assert_eq!(waits.last(), Some(INTERVAL * 10));
        assert_eq!(limiter.dropped(Duration::ZERO), []);
    }

    #[test]
    fn senders_take_no_more_memory_than_there_is() {
        let mut limiter = Limiter::default();
        let most = u32::try_from(SENDERS).unwrap();
        let admitted = |limiter: &mut Limiter, millis| {
            (0..most + 10).filter(|it| limiter.admit(sender(*it), Duration::from_millis(millis))).count()
        };
        assert_eq!(admitted(&mut limiter, 0), SENDERS);
        assert!(limiter.admit(sender(most + 20), Duration::from_millis(5)), "the others have been silent");
        assert_eq!(limiter.buckets.len(), 1);
    }
}
