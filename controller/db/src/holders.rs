//! A cache of the holders of tokens, valid until something may have changed.
//!
//! An entry is valid as long as nothing is committed, by this region or by another one that notifies. If a notification is lost,
//! it is valid for [`LONGEST`].

use crate::Holder;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest time for which a token that another region revoked is still valid here.
const LONGEST: Duration = Duration::from_secs(1);

/// The largest number of entries.
const MOST: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Holders(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    /// The count of commits at which the entries were read.
    commits: u64,
    by_hash: HashMap<[u8; 32], (Instant, Holder)>,
}

impl Holders {
    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The holder of the token, if it was read at this count of commits, and not long ago.
    pub(crate) fn get(&self, commits: u64, hash: &[u8; 32]) -> Option<Holder> {
        let remembered = self.lock();
        let (found, holder) = remembered.by_hash.get(hash).filter(|_| remembered.commits == commits)?;
        (found.elapsed() < LONGEST).then(|| holder.clone())
    }

    /// Stores an entry that was read at this count of commits.
    pub(crate) fn put(&self, commits: u64, hash: [u8; 32], asked: Instant, holder: Holder) {
        let mut remembered = self.lock();
        if remembered.commits != commits || remembered.by_hash.len() >= MOST {
            *remembered = Remembered { commits, by_hash: HashMap::new() };
        }
        remembered.by_hash.insert(hash, (asked, holder));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bearer;

    fn holder(name: &str) -> Holder {
        let bearer = Bearer { is_session: false, name: name.to_owned(), user: None, until: None };
        Holder { bearer, grants: Vec::new(), scopes: Vec::new(), rests_on: Vec::new() }
    }

    #[test]
    fn what_was_found_is_good_until_something_is_committed() {
        let (holders, hash, now) = (Holders::default(), [7; 32], Instant::now());
        holders.put(3, hash, now, holder("a"));
        assert_eq!(holders.get(3, &hash).map(|h| h.bearer.name).as_deref(), Some("a"));
        assert!(holders.get(4, &hash).is_none() && holders.get(3, &[8; 32]).is_none());
        // An entry from before a commit is not used after it.
        holders.put(4, [8; 32], now, holder("b"));
        assert!(holders.get(3, &hash).is_none() && holders.get(4, &hash).is_none());
    }

    #[test]
    fn nothing_is_good_for_long_and_nothing_grows_for_ever() {
        let holders = Holders::default();
        let long_ago = Instant::now().checked_sub(LONGEST).unwrap();
        holders.put(0, [1; 32], long_ago, holder("a"));
        assert!(holders.get(0, &[1; 32]).is_none());
        for number in 0..u16::try_from(2 * MOST).unwrap() {
            let mut hash = [0; 32];
            hash[..2].copy_from_slice(&number.to_be_bytes());
            holders.put(0, hash, Instant::now(), holder("a"));
        }
        assert!(holders.lock().by_hash.len() <= MOST);
    }
}
