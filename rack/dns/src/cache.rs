//! Answers of other servers: used until they expire, and for longer while there are no newer ones (RFC 2308, RFC 8767).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::query::Code;
use crate::question::Key;
use crate::response::Response;

/// How long a failure is remembered (RFC 2308 §7.1).
const FAILURE: Duration = Duration::from_secs(5);
/// How long an expired answer may still be used (RFC 8767 §5).
const STALE: Duration = Duration::from_secs(86_400);
/// The pause after the upstream servers failed to renew an answer (RFC 8767 §5).
const RECHECK: Duration = Duration::from_secs(30);
/// The approximate octets of an entry besides its key and records.
const OVERHEAD: usize = 200;

/// A cached answer to a question.
#[derive(Debug, Clone)]
pub(crate) enum Kept {
    Response(Arc<Response>),
    Failure(Code),
}

#[derive(Debug)]
struct Entry {
    kept: Kept,
    stored: Instant,
    /// When the entry expires.
    until: Instant,
    /// An expired answer is not renewed before this time.
    recheck: Instant,
    size: usize,
}

/// The result of a lookup.
#[derive(Debug)]
pub(crate) enum Hit {
    /// A valid answer. Its records are this many seconds old.
    Fresh(Kept, u32),
    /// An expired answer. The servers failed a moment ago, so use it.
    Stale(Arc<Response>),
    /// An expired answer: ask the servers, and use it if they fail.
    Expired,
}

/// Answers by question, in two generations. A used entry moves to the young generation. When the young generation fills
/// half of the room, it becomes the old one, and the previous old one is dropped. So unused entries are dropped first.
#[derive(Debug)]
pub(crate) struct Cache {
    young: HashMap<Key, Entry>,
    old: HashMap<Key, Entry>,
    young_size: usize,
    old_size: usize,
    limit: usize,
}

impl Cache {
    pub(crate) fn new(limit: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), young_size: 0, old_size: 0, limit }
    }

    /// The approximate size, in octets.
    pub(crate) fn size(&self) -> usize {
        self.young_size + self.old_size
    }

    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    pub(crate) fn get(&mut self, now: Instant, key: &Key) -> Option<Hit> {
        let entry = self.refresh(key)?;
        if now < entry.until {
            let age = now.saturating_duration_since(entry.stored).as_secs();
            return Some(Hit::Fresh(entry.kept.clone(), u32::try_from(age).unwrap_or(u32::MAX)));
        }
        let response = entry.stale(now)?;
        Some(if now < entry.recheck { Hit::Stale(response) } else { Hit::Expired })
    }

    /// The expired answer to use while there is no newer one.
    pub(crate) fn stale(&mut self, now: Instant, key: &Key) -> Option<Arc<Response>> {
        self.refresh(key)?.stale(now)
    }

    /// Stores an answer, even with a TTL of 0: it may be used when it cannot be renewed.
    pub(crate) fn insert(&mut self, now: Instant, key: Key, response: Arc<Response>) {
        let (size, until) = (response.size(), now + response.ttl());
        self.put(key, Entry { kept: Kept::Response(response), stored: now, until, recheck: until, size });
    }

    /// Notes that no server answered. Returns an older answer to use instead, if there is one.
    pub(crate) fn fail(&mut self, now: Instant, key: Key, code: Code) -> Option<Arc<Response>> {
        if let Some(entry) = self.refresh(&key)
            && let Some(response) = entry.stale(now)
        {
            entry.recheck = now + RECHECK;
            return Some(response);
        }
        let until = now + FAILURE;
        self.put(key, Entry { kept: Kept::Failure(code), stored: now, until, recheck: until, size: 0 });
        None
    }

    /// Notes that the answer must not reach clients. No older one replaces it.
    pub(crate) fn refuse(&mut self, now: Instant, key: Key) {
        let until = now + FAILURE;
        self.put(
            key,
            Entry { kept: Kept::Failure(Code::Refused), stored: now, until, recheck: until, size: 0 },
        );
    }

    /// Finds an entry, and moves it to the young generation.
    fn refresh(&mut self, key: &Key) -> Option<&mut Entry> {
        if let Some((key, entry)) = self.old.remove_entry(key) {
            let size = cost(&key, &entry);
            self.old_size -= size;
            self.make_room(size);
            self.young_size += size;
            self.young.insert(key, entry);
        }
        self.young.get_mut(key)
    }

    /// Drops the old generation if the young one has no room for an entry.
    fn make_room(&mut self, size: usize) {
        if self.young_size + size > self.limit / 2 {
            self.old = std::mem::take(&mut self.young);
            self.old_size = std::mem::take(&mut self.young_size);
        }
    }

    fn put(&mut self, key: Key, entry: Entry) {
        let size = cost(&key, &entry);
        if let Some((key, before)) = self.old.remove_entry(&key) {
            self.old_size -= cost(&key, &before);
        }
        if let Some((key, before)) = self.young.remove_entry(&key) {
            self.young_size -= cost(&key, &before);
        }
        self.make_room(size);
        if size <= self.limit / 2 {
            self.young_size += size;
            self.young.insert(key, entry);
        }
    }
}

impl Entry {
    fn stale(&self, now: Instant) -> Option<Arc<Response>> {
        match &self.kept {
            Kept::Response(response) if now < self.until + STALE => Some(response.clone()),
            _ => None,
        }
    }
}

fn cost(key: &Key, entry: &Entry) -> usize {
    key.name.len() + entry.size + OVERHEAD
}
