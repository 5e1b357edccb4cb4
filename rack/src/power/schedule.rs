//! Decides when the power of each BMC is read, and which readings are reported. No I/O: the time is an argument.
//!
//! | after | the next reading |
//! | --- | --- |
//! | a reading | at the machine's place in the interval: a hash of its uid, so that readings spread evenly |
//! | a power command | 10 s later |
//! | a soft off | each 10 s, until the machine is off or 5 minutes have passed |
//! | a reading of power that is changing | each 10 s, for 5 minutes |
//! | the first failure | 30 s later. It is not reported: one lost answer means nothing |
//! | a further failure | after the interval, doubled each time up to an hour |
//! | a refusal ([`REFUSED`]) | an hour later. It is reported at once |
//! | a new description of the BMC | within 5 s |
//!
//! A reading is reported if it differs from the last reported one, and once an hour. So a BMC without changes costs the region one fact an
//! hour.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use basalt_proto::rack_v1::power_command::Verb;
use basalt_proto::rack_v1::{Bmc, PowerConcern};
use tokio::time::Instant;

use super::{Ended, place};
use crate::hash::sha256;

/// Failures that only a person mends. Each try with a wrong password may count towards a lock-out.
const REFUSED: [&str; 8] = [
    "bad_username",
    "bad_password",
    "bad_bmc_key",
    "privilege",
    "certificate",
    "cipher_suite",
    "unsupported",
    "outside",
];

/// The times of readings. Tests have shorter ones.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The pause after a command, and while the power is changing.
    pub confirm: Duration,
    /// How long a machine that shuts down is watched.
    pub follow: Duration,
    /// The pause after the first failure.
    pub again: Duration,
    /// An unchanged reading is reported again after this time.
    pub refresh: Duration,
    /// The longest pause after failures.
    pub longest: Duration,
    /// The longest time of one reading.
    pub look: Duration,
    /// How long a command or a reading waits for a free session, while other programs hold all sessions of the BMC.
    pub session: Duration,
    /// How long a command waits for a reading that has begun.
    pub grace: Duration,
    /// The most readings at once.
    pub at_once: usize,
}

/// The times of a rack.
pub const PACE: Pace = Pace {
    confirm: Duration::from_secs(10),
    follow: Duration::from_secs(300),
    again: Duration::from_secs(30),
    refresh: Duration::from_secs(3600),
    longest: Duration::from_secs(3600),
    look: Duration::from_secs(25),
    session: Duration::from_secs(10),
    grace: Duration::from_secs(1),
    at_once: 16,
};

/// A BMC that is to be read now.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) bmc: Arc<Bmc>,
    place: String,
}

/// A reading: `on` or `off`, or the code of its failure.
type Seen = Result<&'static str, &'static str>;

/// A BMC and its readings.
#[derive(Debug)]
struct Entry {
    bmc: Arc<Bmc>,
    place: String,
    /// The hash of the machine's uid. It gives the machine's place in the interval.
    hash: u64,
    /// The time of the next reading. `None`: it is being read, or no reading is planned.
    due: Option<Instant>,
    failures: u32,
    told: Option<(Seen, Instant)>,
    /// Until then it is read at the interval [`Pace::confirm`].
    follow_until: Option<Instant>,
}

/// All BMCs of the rack.
#[derive(Debug)]
pub(super) struct Schedule {
    pace: Pace,
    began: Instant,
    interval: Duration,
    networks: Vec<String>,
    entries: BTreeMap<String, Entry>,
    /// BMCs that are not being read, by the time of their next reading.
    queue: BTreeSet<(Instant, String)>,
    /// Places that are being read. A BMC with several systems is read for one of them at a time.
    busy: HashSet<String>,
}

/// True if nothing has changed that a reading needs. The generation is not compared: it is that of the whole machine, and a refused password
/// must not be tried again because somebody changed a tag.
fn is_same(known: &Bmc, bmc: &Bmc) -> bool {
    let plain = |bmc: &Bmc| Bmc { generation: 0, ..bmc.clone() };
    plain(known) == plain(bmc)
}

impl Schedule {
    pub(super) fn new(pace: Pace, now: Instant) -> Self {
        Self {
            pace,
            began: now,
            interval: Duration::ZERO,
            networks: Vec::new(),
            entries: BTreeMap::new(),
            queue: BTreeSet::new(),
            busy: HashSet::new(),
        }
    }

    /// Takes over the BMCs of a concern.
    pub(super) fn follow(&mut self, concern: &PowerConcern, now: Instant) {
        let interval = Duration::from_millis(concern.reading_ms);
        let is_new_pace = std::mem::replace(&mut self.interval, interval) != interval;
        let are_new_networks = self.networks != concern.networks;
        self.networks.clone_from(&concern.networks);
        let mut before = std::mem::take(&mut self.entries);
        // A BMC that commissioning sets up has no address yet.
        for bmc in concern.bmcs.iter().filter(|bmc| !bmc.address.is_empty()) {
            let uid = &bmc.machine_uid;
            let known = before.remove(uid);
            let entry = match known {
                Some(known) if is_same(&known.bmc, bmc) => {
                    let due = match known.due {
                        // It is being read: [`Schedule::done`] plans the next reading.
                        None if self.busy.contains(&known.place) => None,
                        Some(_) if are_new_networks && known.failures > 0 => Some(now),
                        _ if is_new_pace && known.follow_until.is_none() => {
                            self.place_in_interval(known.hash, now)
                        }
                        due => due,
                    };
                    Entry { due, ..known }
                }
                other => {
                    let hash = hash_of(uid);
                    let soon = now + self.pace.confirm.mul_f64(0.5 * fraction(hash));
                    let due = self.place_in_interval(hash, now);
                    let due = if other.is_some() { due.map(|_| soon) } else { due };
                    Entry {
                        bmc: Arc::new(bmc.clone()),
                        place: place(bmc),
                        hash,
                        due,
                        failures: 0,
                        told: None,
                        follow_until: None,
                    }
                }
            };
            self.entries.insert(uid.clone(), entry);
        }
        self.queue = self.entries.iter().filter_map(|(uid, it)| Some((it.due?, uid.clone()))).collect();
    }

    /// The BMC that is due, if any. [`Schedule::done`] has to follow.
    pub(super) fn next(&mut self, now: Instant) -> Option<Look> {
        let due = self.queue.iter().take_while(|(due, _)| *due <= now);
        let (due, uid) = due.clone().find(|(_, uid)| self.is_free(uid)).cloned()?;
        self.queue.remove(&(due, uid.clone()));
        let entry = self.entries.get_mut(&uid)?;
        entry.due = None;
        self.busy.insert(entry.place.clone());
        Some(Look { bmc: Arc::clone(&entry.bmc), place: entry.place.clone() })
    }

    /// The time of the next reading, among the BMCs that can be read now.
    pub(super) fn due(&self) -> Option<Instant> {
        self.queue.iter().find(|(_, uid)| self.is_free(uid)).map(|(due, _)| *due)
    }

    fn is_free(&self, uid: &str) -> bool {
        self.entries.get(uid).is_some_and(|entry| !self.busy.contains(&entry.place))
    }

    /// Notes the end of a reading and plans the next one. `ended` is `None` if the reading gave way to a command. Returns `Some` if the
    /// reading is to be reported: true if it is the same as the last reported one.
    pub(super) fn done(&mut self, look: &Look, ended: Option<&Ended>, now: Instant) -> Option<bool> {
        self.busy.remove(&look.place);
        let pace = self.pace;
        let entry = self.entries.get(&look.bmc.machine_uid)?;
        // The description has changed meanwhile, and `follow` has planned a new reading.
        if !Arc::ptr_eq(&entry.bmc, &look.bmc) {
            return None;
        }
        let (hash, failures) = (entry.hash, entry.failures.saturating_add(1));
        let Some(ended) = ended else {
            self.plan(&look.bmc.machine_uid, Some(now + pace.confirm));
            return None;
        };
        let regular = self.place_in_interval(hash, now);
        let (due, failures) = match ended.error {
            Some((code, _)) if REFUSED.contains(&code) => (regular.map(|_| now + pace.longest), failures),
            Some(_) if failures == 1 => (Some(now + pace.again), failures),
            Some(_) => {
                let doubled = self.interval.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(2)));
                (regular.map(|_| now + doubled.min(pace.longest.max(self.interval))), failures)
            }
            None => (regular, 0),
        };
        let seen = ended.error.as_ref().map_or(Ok(ended.power), |(code, _)| Err(*code));
        let entry = self.entries.get_mut(&look.bmc.machine_uid)?;
        entry.failures = failures;
        let due = match entry.follow_until {
            _ if seen.is_err() => due,
            None if ended.moves => {
                entry.follow_until = Some(now + pace.follow);
                Some(now + pace.confirm)
            }
            Some(until) if now < until && (ended.moves || seen != Ok("off")) => Some(now + pace.confirm),
            _ => {
                entry.follow_until = entry.follow_until.filter(|_| ended.moves);
                due
            }
        };
        let is_doubtful = failures == 1 && seen.is_err_and(|code| !REFUSED.contains(&code));
        let told = match entry.told {
            _ if is_doubtful => None,
            Some((before, at)) if before == seen => (now >= at + pace.refresh).then_some(true),
            _ => Some(false),
        };
        if told.is_some() {
            entry.told = Some((seen, now));
        }
        self.plan(&look.bmc.machine_uid, due);
        told
    }

    /// Notes the end of a command, and plans a reading that confirms its effect.
    pub(super) fn commanded(&mut self, uid: &str, verb: Verb, ended: &Ended, now: Instant) {
        let pace = self.pace;
        let Some(entry) = self.entries.get_mut(uid) else { return };
        let due = match &ended.error {
            // A BMC that refuses its reset may well tell its power.
            Some((code, _)) if REFUSED.contains(code) && verb != Verb::ResetBmc => {
                let longest = entry.due.map(|_| now + pace.longest);
                return self.plan(uid, longest);
            }
            Some(_) => now + pace.confirm,
            // A BMC restarts for minutes.
            None if verb == Verb::ResetBmc => now + pace.follow,
            None => {
                entry.failures = 0;
                if ended.power != "unknown" {
                    entry.told = Some((Ok(ended.power), now));
                }
                let watched = if verb == Verb::SoftOff { pace.follow } else { Duration::ZERO };
                entry.follow_until = Some(now + watched);
                now + pace.confirm
            }
        };
        self.plan(uid, Some(due));
    }

    /// Sets when a BMC is read next.
    fn plan(&mut self, uid: &str, due: Option<Instant>) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        if let Some(before) = entry.due {
            self.queue.remove(&(before, uid.to_owned()));
        }
        entry.due = due;
        self.queue.extend(due.map(|due| (due, uid.to_owned())));
    }

    /// The time of the machine's next place in the interval. `None`: readings at intervals are off.
    fn place_in_interval(&self, hash: u64, now: Instant) -> Option<Instant> {
        if self.interval.is_zero() {
            return None;
        }
        let offset = self.interval.mul_f64(fraction(hash));
        let elapsed = now.saturating_duration_since(self.began);
        let past = elapsed.saturating_sub(offset).as_millis() / self.interval.as_millis().max(1);
        let first = self.began + offset;
        if first > now {
            return Some(first);
        }
        let next = u32::try_from(past + 1).unwrap_or(u32::MAX);
        Some(first + self.interval.saturating_mul(next))
    }
}

fn hash_of(uid: &str) -> u64 {
    let hash = sha256(uid.as_bytes());
    u64::from_be_bytes(hash.first_chunk().copied().unwrap_or_default())
}

/// From 0 to 1.
fn fraction(hash: u64) -> f64 {
    hash as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests;
