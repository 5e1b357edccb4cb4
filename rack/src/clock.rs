//! The wall clock, read in one place: everything below the daemon takes time as an argument.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970; 0 on a clock set before that.
#[must_use]
pub fn unix_ms() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}
