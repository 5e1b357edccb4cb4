//! Logs failed TLS handshakes. Anybody who reaches the racks' port can cause them, so the number of log lines is limited.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use basalt_proto::budget::{Budget, Spent};

/// The limit of log lines. The burst leaves room for a rack that an operator sets up.
const LINES: Budget = Budget { most: 32, every_ms: 2_000 };

/// The used part of the limit, and the number of failures that were left out since the last line.
#[derive(Debug)]
pub(super) struct Failures {
    start: Instant,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    spent: Spent,
    left_out: u64,
}

impl Told {
    /// Returns the number of failures left out before this one, if this one may be logged.
    fn next(&mut self, now_ms: i64) -> Option<u64> {
        if self.spent.take(LINES, now_ms) {
            return Some(std::mem::take(&mut self.left_out));
        }
        self.left_out += 1;
        None
    }
}

impl Failures {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), told: Mutex::default() }
    }

    /// Logs a failure, or counts it for the next line.
    pub(super) fn tell(&self, from: SocketAddr, why: &dyn Display) {
        let now_ms = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        let left_out = self.told.lock().unwrap_or_else(PoisonError::into_inner).next(now_ms);
        if let Some(left_out) = left_out {
            tracing::warn!(%from, left_out, "a TLS handshake on the racks' port failed: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_budget_are_counted_in_the_next_one() {
        let mut told = Told::default();
        let lines = (0..1_000).filter_map(|_| told.next(0)).collect::<Vec<_>>();
        assert_eq!(lines, vec![0; 32]);
        assert_eq!(told.next(2_000), Some(968));
        assert_eq!(told.next(2_001), None);
    }
}
