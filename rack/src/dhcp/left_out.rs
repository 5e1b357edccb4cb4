//! Options that did not fit into replies. Each set of options is logged once an hour, since every client of a subnet
//! misses the same.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(3600);
/// The most sets remembered: clients choose the options they ask for and the length they accept.
const MOST: usize = 64;

/// When each set was last logged.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    logged: Mutex<HashMap<Vec<u8>, Instant>>,
}

impl LeftOut {
    /// True if this set is due to be logged.
    pub(super) fn is_news(&self, options: &[u8], now: Instant) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        logged.retain(|_, at| now.saturating_duration_since(*at) < EVERY);
        if logged.contains_key(options) || logged.len() >= MOST {
            return false;
        }
        logged.insert(options.to_vec(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_options_are_logged_once_an_hour_and_not_too_many_of_them() {
        let (left_out, start) = (LeftOut::default(), Instant::now());
        assert!(left_out.is_news(&[6, 42], start));
        assert!(!left_out.is_news(&[6, 42], start + EVERY / 2));
        assert!(left_out.is_news(&[6], start + EVERY / 2));
        assert!(left_out.is_news(&[6, 42], start + EVERY));
        let many = (0..200).filter(|code| left_out.is_news(&[*code, 1], start + EVERY)).count();
        assert_eq!(many, MOST - 2);
    }
}
