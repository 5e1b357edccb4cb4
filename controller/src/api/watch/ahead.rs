//! Objects that were sent in a newer state than the log's position. Their later changes still come, and must be skipped.

use basalt_api::values::Uid;
use std::collections::HashMap;

/// The versions of the objects that were sent ahead of the log. An event with no newer version is skipped.
#[derive(Debug, Default)]
pub(super) struct Ahead(HashMap<Uid, i64>);

impl Ahead {
    /// True if the object was sent in this version or a newer one, ahead of the log.
    pub(super) fn knows(&self, uid: Uid, version: i64) -> bool {
        self.0.get(&uid).is_some_and(|known| *known >= version)
    }

    /// Notes that the object was sent in this version while the log is at `position`.
    pub(super) fn tell(&mut self, uid: Uid, position: i64, version: i64) {
        let newest = self.0.get(&uid).map_or(version, |known| version.max(*known));
        if newest > position {
            self.0.insert(uid, newest);
        } else {
            self.0.remove(&uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_ahead_is_told_once_and_forgotten_once_the_log_has_come_to_it() {
        let (mut ahead, uid) = (Ahead::default(), Uid::generate());
        ahead.tell(uid, 7, 7);
        assert!(!ahead.knows(uid, 7), "it was not ahead, and its position tells");
        ahead.tell(uid, 8, 10);
        assert!(ahead.knows(uid, 9) && ahead.knows(uid, 10) && !ahead.knows(uid, 11));
        ahead.tell(uid, 9, 9);
        assert!(ahead.knows(uid, 10), "an older reading that comes late changes nothing");
        ahead.tell(uid, 10, 10);
        assert!(ahead.0.is_empty());
    }
}
