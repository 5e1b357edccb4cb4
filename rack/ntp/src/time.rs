//! Times and durations in the formats of NTP (RFC 5905 §6).

use std::time::Duration;

/// Seconds from 1900 to 1970.
const UNIX_EPOCH: u64 = 2_208_988_800;
const NANOS: u128 = 1_000_000_000;

/// A time: seconds since 1900 as 32.32 fixed point. It wraps every 136 years, first in 2036. Zero means unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The time this long after the start of 1970.
    #[must_use]
    pub fn from_unix(since_1970: Duration) -> Self {
        let seconds = since_1970.as_secs().wrapping_add(UNIX_EPOCH) << 32;
        let fraction = (u64::from(since_1970.subsec_nanos()) << 32) / 1_000_000_000;
        Self(seconds | fraction)
    }

    /// Nanoseconds from `earlier` to this time; negative if this is the earlier one. Correct for times less than 68
    /// years apart.
    #[must_use]
    pub fn since(self, earlier: Self) -> i64 {
        // In two's complement, the difference is also correct across the end of an era.
        let difference = i128::from(self.0.wrapping_sub(earlier.0).cast_signed());
        let nanos = (difference * NANOS.cast_signed()) >> 32;
        i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
    }

    /// True if the time is unknown.
    #[must_use]
    pub const fn is_unset(self) -> bool {
        self.0 == 0
    }
}

/// A duration in the header: seconds as 16.16 fixed point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Short(pub u32);

impl Short {
    /// The duration, rounded up; at most 65,536 seconds.
    #[must_use]
    pub fn from_duration(span: Duration) -> Self {
        let units = (span.as_nanos() << 16).div_ceil(NANOS);
        Self(u32::try_from(units).unwrap_or(u32::MAX))
    }

    /// The same duration in nanoseconds, rounded down.
    #[must_use]
    pub const fn to_duration(self) -> Duration {
        Duration::from_nanos(((self.0 as u64) * 1_000_000_000) >> 16)
    }
}

/// One reading of both clocks of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The wall clock, which is served. People and daemons may set it.
    pub wall: Timestamp,
    /// The time since this host started. It cannot be set.
    pub since_boot: Duration,
}

impl Now {
    /// The time since `earlier`.
    #[must_use]
    pub const fn age(self, earlier: Self) -> Duration {
        self.since_boot.saturating_sub(earlier.since_boot)
    }

    /// How far the wall clock was set forward since `earlier`, in nanoseconds; negative if it was set back.
    #[must_use]
    pub fn set_since(self, earlier: Self) -> i64 {
        self.wall.since(earlier.wall).saturating_sub(nanos(self.age(earlier)))
    }
}

/// A duration as signed nanoseconds.
pub(crate) fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// The precision of a clock as a power of two of seconds (RFC 5905 §7.3), by the smallest step between readings of it. `read` reads the clock.
#[must_use]
pub fn precision(mut read: impl FnMut() -> Timestamp) -> i8 {
    const READINGS: usize = 64;
    let mut last = read();
    let mut smallest = i64::MAX;
    for _ in 0..READINGS {
        let next = read();
        let step = next.since(last);
        if step > 0 {
            smallest = smallest.min(step);
        }
        last = next;
    }
    // From 2^-29 s, about 2 ns, to a second.
    (-29..0).find(|&power| nanos(Duration::from_secs(1)) >> -power >= smallest).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_counted_from_1900_and_compared_across_the_end_of_an_era() {
        assert_eq!(Timestamp::from_unix(Duration::ZERO), Timestamp(2_208_988_800 << 32));
        let half = Timestamp::from_unix(Duration::from_millis(500));
        assert_eq!(half.0 & 0xffff_ffff, 1 << 31);
        let end = Timestamp::from_unix(Duration::from_secs((1 << 32) - 2_208_988_800));
        assert_eq!(end, Timestamp(0), "2036-02-07 06:28:16");
        let before = Timestamp::from_unix(Duration::from_secs((1 << 32) - 2_208_988_801));
        assert_eq!((end.since(before), before.since(end)), (1_000_000_000, -1_000_000_000));
    }

    #[test]
    fn a_span_is_never_rounded_to_less() {
        for (span, units) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_millis(500), 1 << 15),
            (Duration::from_secs(100_000), u32::MAX),
        ] {
            assert_eq!(Short::from_duration(span), Short(units), "{span:?}");
        }
        assert_eq!(Short(3 << 15).to_duration(), Duration::from_millis(1500));
    }

    #[test]
    fn a_clock_that_was_set_is_seen() {
        let at = |wall, since_boot| Now {
            wall: Timestamp::from_unix(Duration::from_secs(wall)),
            since_boot: Duration::from_secs(since_boot),
        };
        assert_eq!(at(110, 20).set_since(at(100, 10)), 0);
        assert_eq!(at(115, 20).set_since(at(100, 10)), 5_000_000_000);
        assert_eq!(at(100, 20).set_since(at(100, 10)), -10_000_000_000);
    }

    #[test]
    fn precision_is_the_smallest_step() {
        for (step, power) in [(1_u64, -29), (60, -24), (1_000, -19), (4_000_000, -7), (2_000_000_000, 0)] {
            let mut nanos = 0;
            let clock = || {
                nanos += step;
                Timestamp::from_unix(Duration::from_nanos(nanos))
            };
            assert_eq!(precision(clock), power, "{step} ns");
        }
        assert_eq!(precision(|| Timestamp(7)), 0, "a clock that stands still");
    }
}
