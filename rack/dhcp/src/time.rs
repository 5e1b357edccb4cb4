//! The time as the sans-IO code sees it: an argument, never read from a clock.

use std::ops::Add;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A moment, in milliseconds since the Unix epoch.
///
/// Leases outlive the process that granted them. So the server's time continues through restarts and reboots and never
/// runs backwards; it is not the wall clock. The client accepts times of any epoch; a simulator may start at zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_millis(self) -> u64 {
        self.0
    }

    /// The duration until `later`; zero when that has passed.
    #[must_use]
    pub const fn until(self, later: Self) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }

    /// The moment this long before; the epoch, if the result is before it.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// This moment plus whole seconds.
    #[must_use]
    pub const fn plus_seconds(self, seconds: u32) -> Self {
        Self(self.0.saturating_add(seconds as u64 * 1000))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl From<SystemTime> for Time {
    /// A clock before 1970 reads as the epoch.
    fn from(time: SystemTime) -> Self {
        Self::default() + time.duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}
