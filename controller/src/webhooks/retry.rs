//! The retries of failed deliveries.

use std::time::Duration;

/// The pauses in seconds after the first, second, … failed attempt. After the last pause there is one more attempt. The sum is a day.
pub const PAUSES: [u64; 14] =
    [1, 5, 30, 120, 600, 1800, 3600, 7200, 10_800, 14_400, 14_400, 14_400, 14_400, 4200];

/// The random part of a pause, so that deliveries that failed together are not retried together.
const SPREAD: f64 = 0.2;

/// The pause after attempt `attempt`, from 1; `None` after the last. `jitter` is from 0 to 1.
#[must_use]
pub fn pause(attempt: i32, divisor: u32, jitter: f64) -> Option<Duration> {
    let seconds = PAUSES.get(usize::try_from(attempt).ok()?.checked_sub(1)?)?;
    let spread = 1.0 - SPREAD + 2.0 * SPREAD * jitter.clamp(0.0, 1.0);
    Some(Duration::from_secs(*seconds).mul_f64(spread) / divisor.max(1))
}

/// A random number from 0 to 1; 0.5 if the system gives no random bytes.
pub(super) fn jitter() -> f64 {
    let mut byte = [0];
    match aws_lc_rs::rand::fill(&mut byte) {
        Ok(()) => f64::from(byte[0]) / 255.0,
        Err(_) => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_day_and_end() {
        let middle = |attempt| pause(attempt, 1, 0.5).map(|p| p.as_secs());
        assert_eq!((middle(0), middle(1), middle(2), middle(15)), (None, Some(1), Some(5), None));
        let all: u64 = (1..=14).filter_map(middle).sum();
        assert!((85_000..87_000).contains(&all), "{all}");
    }

    #[test]
    fn what_failed_together_does_not_come_back_together() {
        let bounds = (pause(4, 1, 0.0), pause(4, 1, 1.0));
        assert_eq!(bounds, (Some(Duration::from_secs(96)), Some(Duration::from_secs(144))));
        assert_eq!(pause(4, 1000, 0.5), Some(Duration::from_millis(120)));
    }
}
