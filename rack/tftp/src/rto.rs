//! The retransmission timeout: RFC 6298's estimator between two bounds.

use std::time::{Duration, Instant};

const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(3);
const FIRST: Duration = Duration::from_secs(1);

/// The retransmission timeout of one transfer.
#[derive(Debug)]
pub(crate) struct Rto {
    smoothed: Option<(Duration, Duration)>,
    current: Duration,
    fixed: bool,
    /// When the datagram was sent whose answer is measured next; `None` once it was sent twice (Karn's algorithm).
    measuring: Option<Instant>,
}

impl Rto {
    pub(crate) fn new(fixed: Option<Duration>) -> Self {
        Self { smoothed: None, current: fixed.unwrap_or(FIRST), fixed: fixed.is_some(), measuring: None }
    }

    pub(crate) const fn sent(&mut self, now: Instant) {
        self.measuring = Some(now);
    }

    pub(crate) fn answered(&mut self, now: Instant) {
        let Some(sent) = self.measuring.take() else { return };
        let sample = now.saturating_duration_since(sent);
        let (mean, deviation) = match self.smoothed {
            None => (sample, sample / 2),
            Some((mean, deviation)) => ((mean * 7 + sample) / 8, (deviation * 3 + mean.abs_diff(sample)) / 4),
        };
        self.smoothed = Some((mean, deviation));
        if !self.fixed {
            self.current = (mean + deviation * 4).clamp(SHORTEST, LONGEST);
        }
    }

    pub(crate) fn sent_again(&mut self) {
        self.measuring = None;
        if !self.fixed {
            self.current = (self.current * 2).min(LONGEST);
        }
    }

    pub(crate) const fn current(&self) -> Duration {
        self.current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_round_trip_between_half_a_second_and_three() {
        let start = Instant::now();
        let mut rto = Rto::new(None);
        assert_eq!(rto.current(), FIRST);
        for (millis, expected) in [(1, 500), (400, 500)] {
            let mut rto = Rto::new(None);
            for _ in 0..50 {
                rto.sent(start);
                rto.answered(start + Duration::from_millis(millis));
            }
            assert_eq!(rto.current().as_millis(), expected);
        }
        rto.sent(start);
        rto.answered(start + Duration::from_secs(60));
        assert_eq!(rto.current(), LONGEST);
    }

    #[test]
    fn backs_off_and_does_not_measure_what_was_sent_twice() {
        let start = Instant::now();
        let mut rto = Rto::new(None);
        rto.sent(start);
        rto.sent_again();
        assert_eq!(rto.current(), Duration::from_secs(2));
        rto.answered(start + Duration::from_millis(1));
        assert_eq!(rto.current(), Duration::from_secs(2));
        rto.sent_again();
        assert_eq!(rto.current(), LONGEST);
    }

    #[test]
    fn a_negotiated_timeout_stays() {
        let mut rto = Rto::new(Some(Duration::from_secs(4)));
        rto.sent_again();
        assert_eq!(rto.current(), Duration::from_secs(4));
    }
}
