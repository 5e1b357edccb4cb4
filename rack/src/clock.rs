//! The time of a rack.
//!
//! A wall clock can be set: by people, by NTP, and by decades if a host without a battery starts before it reaches a
//! time server. Leases and deadlines must not move with it. So the rack counts time by the kernel's clock since boot,
//! which cannot be set ([`Clock::now`]). In reports it converts that time to the regions' time ([`Clock::unix`]). Until
//! a region has sent its time, this host's wall clock is used instead. The differences between these clocks are kept in
//! `DIR/clock`, so that the time does not jump at a restart or a reboot.
//!
//! The wall clock itself ([`wall_ms`]) is used for certificates, as every TLS peer does, and for signatures of DNS
//! messages.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use basalt_dhcp::Time;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::durable;

/// A larger change of the wall clock, in milliseconds, means that it was set.
const SET_MS: i64 = 2_000;
/// A smaller change of the region's time, in milliseconds, comes from the delay of its message.
const ON_ITS_WAY_MS: i64 = 1_000;
/// A larger difference between the wall clock and the region's time, in milliseconds, is reported.
const WRONG_MS: i64 = 60_000;

/// Milliseconds since 1970 by the wall clock; 0 if it is set to an earlier time.
#[must_use]
pub fn wall_ms() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

/// Milliseconds since this host was started, including the time it was suspended.
fn since_boot_ms() -> i64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000)
}

/// The kernel's random id of this boot.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The clocks of a host at one moment, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Reading {
    since_boot: i64,
    wall: i64,
}

impl Reading {
    fn now() -> Self {
        Self { since_boot: since_boot_ms(), wall: wall_ms() }
    }
}

/// The differences between the clocks, in milliseconds. Stored in `DIR/clock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Offsets {
    /// The boot id during which these were written.
    boot: String,
    /// This rack's time minus the time since boot.
    since_boot: i64,
    /// The wall clock minus this rack's time, when they were last compared.
    wall: i64,
    /// The regions' time minus this rack's time. `None`: no region has sent its time.
    #[serde(default)]
    region: Option<i64>,
    /// This rack's time when these were written.
    at: i64,
}

impl Offsets {
    /// Continues from the stored differences, or begins with the wall clock.
    fn start(kept: Option<Self>, boot: String, now: Reading) -> Self {
        let Some(kept) = kept else {
            return Self { boot, since_boot: now.wall - now.since_boot, wall: 0, region: None, at: now.wall };
        };
        let goes_on = kept.boot == boot && !boot.is_empty();
        let time = if goes_on { kept.since_boot + now.since_boot } else { now.wall - kept.wall };
        // The wall clock may have been set back while the host was off. On some hosts it stands still until it is set.
        let time = time.max(kept.at);
        Self { boot, since_boot: time - now.since_boot, wall: now.wall - time, region: kept.region, at: time }
    }

    const fn time(&self, since_boot: i64) -> i64 {
        since_boot.saturating_add(self.since_boot)
    }

    /// The amount by which the wall clock was set since the last call, if it was.
    fn look(&mut self, now: Reading) -> Option<i64> {
        let set_by = now.wall - self.time(now.since_boot) - self.wall;
        (set_by.abs() > SET_MS).then(|| {
            self.wall += set_by;
            set_by
        })
    }

    /// Takes a region's time. True if the difference changed.
    fn told(&mut self, region_ms: i64, since_boot: i64) -> bool {
        let ahead = region_ms.saturating_sub(self.time(since_boot));
        let is_news = self.region.is_none_or(|known| (known - ahead).abs() > ON_ITS_WAY_MS);
        if is_news {
            self.region = Some(ahead);
        }
        is_news
    }

    /// Moves the time forward to this moment if it is earlier. True if it was.
    fn not_before(&mut self, earliest: i64, since_boot: i64) -> bool {
        let missing = earliest.saturating_sub(self.time(since_boot));
        let is_behind = missing > 0;
        if is_behind {
            self.since_boot += missing;
            self.wall -= missing;
            self.region = self.region.map(|ahead| ahead - missing);
        }
        is_behind
    }

    fn unix(&self, time: i64) -> i64 {
        time.saturating_add(self.region.unwrap_or(self.wall))
    }
}

/// The clock of this rack. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Clock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// `None`: nothing is stored.
    path: Option<PathBuf>,
    since_boot: fn() -> i64,
    /// Locked for short moments only: every answer to a packet reads the time.
    offsets: Mutex<Offsets>,
    /// The differences changed since the file was written.
    is_news: AtomicBool,
    /// Serialises writers of the file.
    writing: Mutex<()>,
}

impl Default for Clock {
    /// A clock that is not stored and begins with the wall clock.
    fn default() -> Self {
        Self::new(None, since_boot_ms, Offsets::start(None, boot(), Reading::now()))
    }
}

impl Clock {
    fn new(path: Option<PathBuf>, since_boot: fn() -> i64, offsets: Offsets) -> Self {
        let (is_news, writing) = (AtomicBool::new(false), Mutex::default());
        Self(Arc::new(Inner { path, since_boot, offsets: Mutex::new(offsets), is_news, writing }))
    }

    /// Continues from `DIR/clock`, or begins with the wall clock.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be read.
    pub fn open(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join("clock");
        let kept = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .inspect_err(|error| tracing::error!(%error, "file `clock` is damaged: time begins anew with the wall clock, and leases may end earlier or later than was promised"))
                .ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let clock = Self::new(Some(path), since_boot_ms, Offsets::start(kept, boot(), Reading::now()));
        clock.keep()?;
        Ok(clock)
    }

    /// A clock that stands still.
    #[cfg(test)]
    pub(crate) fn stopped(at: Time) -> Self {
        let now = Reading { since_boot: 0, wall: i64::try_from(at.unix_millis()).unwrap() };
        Self::new(None, || 0, Offsets::start(None, String::new(), now))
    }

    fn offsets(&self) -> MutexGuard<'_, Offsets> {
        self.0.offsets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self) -> io::Result<()> {
        let Some(path) = &self.0.path else { return Ok(()) };
        let _writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.is_news.store(false, Ordering::Relaxed);
        let mut offsets = self.offsets().clone();
        offsets.at = offsets.time((self.0.since_boot)());
        durable::replace(path, &serde_json::to_vec(&offsets)?)
            .inspect_err(|_| self.0.is_news.store(true, Ordering::Relaxed))
    }

    /// The current time. It rises by one second each second, even if the wall clock is set.
    #[must_use]
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.offsets().time((self.0.since_boot)())).unwrap_or(0))
    }

    /// Converts a time of [`Clock::now`] to milliseconds since 1970, as regions count them.
    #[must_use]
    pub fn unix(&self, time: Time) -> i64 {
        self.offsets().unix(i64::try_from(time.unix_millis()).unwrap_or(i64::MAX))
    }

    /// The current time in milliseconds since 1970, as regions count them.
    #[must_use]
    pub fn unix_now(&self) -> i64 {
        self.unix(self.now())
    }

    /// Moves the time forward to `earliest`, a time that this clock itself wrote down earlier, if it is behind.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be written.
    pub fn not_before(&self, earliest: Time) -> io::Result<()> {
        let earliest = i64::try_from(earliest.unix_millis()).unwrap_or(i64::MAX);
        let was_earlier = self.offsets().not_before(earliest, (self.0.since_boot)());
        if was_earlier { self.keep() } else { Ok(()) }
    }

    /// Checks if the wall clock was set, and writes changes to the file. Call it often: otherwise, after a reboot, a
    /// changed wall clock would count as elapsed time. It blocks on the disk.
    pub fn look(&self) {
        let set_by = self.offsets().look(Reading { since_boot: (self.0.since_boot)(), wall: wall_ms() });
        if let Some(set_by) = set_by {
            tracing::warn!(
                seconds = set_by / 1000,
                "the wall clock has been set; leases and deadlines go on as they were"
            );
            self.0.is_news.store(true, Ordering::Relaxed);
        }
        if self.0.is_news.load(Ordering::Relaxed)
            && let Err(error) = self.keep()
        {
            tracing::error!(%error, "file `clock` cannot be written: should the host be started anew now, leases may end earlier or later than was promised");
        }
    }

    /// Takes the time that a region sent.
    pub fn told(&self, region_ms: i64) {
        if self.offsets().told(region_ms, (self.0.since_boot)()) {
            self.0.is_news.store(true, Ordering::Relaxed);
        }
    }

    /// The state of this host's wall clock; `None` until a region has sent its time.
    ///
    /// # Errors
    /// The wall clock is wrong: a message for people.
    #[must_use]
    pub fn is_right(&self) -> Option<Result<(), String>> {
        let offsets = self.offsets();
        Some(wrong(offsets.wall.saturating_sub(offsets.region?)).map_or(Ok(()), Err))
    }
}

/// The message about a wall clock that differs this much from the region's; `None` if the difference is small.
fn wrong(ahead_ms: i64) -> Option<String> {
    let seconds = ahead_ms.unsigned_abs() / 1000;
    let which = if ahead_ms > 0 { "ahead of" } else { "behind" };
    (ahead_ms.abs() > WRONG_MS).then(|| {
        format!(
            "the clock of this host is {seconds} s {which} the region's. Leases and deadlines do not go by it; certificates do, and end or begin too early or too late: have NTP set it"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: i64 = 365 * 86_400_000;
    const TODAY: i64 = 56 * YEAR;

    const fn at(since_boot: i64, wall: i64) -> Reading {
        Reading { since_boot, wall }
    }

    fn started(kept: Option<&Offsets>, boot: &str, now: Reading) -> Offsets {
        Offsets::start(kept.cloned(), boot.to_owned(), now)
    }

    #[test]
    fn it_begins_with_the_wall_clock_and_does_not_follow_it() {
        let mut clock = started(None, "a", at(5_000, TODAY));
        assert_eq!(clock.time(5_000), TODAY);
        assert_eq!(clock.look(at(6_000, TODAY + 1_000)), None, "it went on");
        assert_eq!(clock.look(at(7_000, TODAY + 2_000 + YEAR)), Some(YEAR));
        assert_eq!(clock.look(at(8_000, TODAY + 3_000 + YEAR)), None, "it is told once");
        assert_eq!(clock.time(8_000), TODAY + 3_000);
        assert_eq!(clock.look(at(9_000, 0)), Some(-TODAY - 4_000 - YEAR));
        assert_eq!(clock.time(9_000), TODAY + 4_000);
    }

    #[test]
    fn a_restart_goes_on_whatever_the_wall_clock_says() {
        let kept = started(None, "a", at(5_000, TODAY));
        let again = started(Some(&kept), "a", at(65_000, TODAY - YEAR));
        assert_eq!(again.time(65_000), TODAY + 60_000);
    }

    #[test]
    fn a_reboot_counts_the_time_in_between() {
        let kept = started(None, "a", at(5_000, TODAY));
        let again = started(Some(&kept), "b", at(1_000, TODAY + 600_000));
        assert_eq!(again.time(1_000), TODAY + 600_000);
    }

    #[test]
    fn a_host_that_started_in_the_past_and_was_then_set_reboots_into_the_same_time() {
        let mut clock = started(None, "a", at(1_000, 30 * YEAR));
        clock.look(at(61_000, TODAY));
        let again = started(Some(&clock), "b", at(500, TODAY + 40_000));
        assert_eq!(again.time(500), 30 * YEAR + 60_000 + 40_000, "a minute, and the time that it was off");
        assert_eq!(again.unix(again.time(500)), TODAY + 40_000, "people are told what the wall clock says");
    }

    #[test]
    fn a_reboot_into_the_past_does_not_go_back() {
        let kept = started(None, "a", at(5_000, TODAY));
        let again = started(Some(&kept), "b", at(1_000, 30 * YEAR));
        assert_eq!(again.time(1_000), TODAY);
        let nameless = started(Some(&started(None, "", at(5_000, TODAY))), "", at(1_000, TODAY + 9));
        assert_eq!(nameless.time(1_000), TODAY + 9, "which boot it is cannot be known");
    }

    #[test]
    fn what_is_said_to_others_is_in_the_time_of_the_region_once_it_has_spoken() {
        let mut clock = started(None, "a", at(0, TODAY));
        assert_eq!(clock.unix(TODAY), TODAY);
        assert!(clock.told(TODAY + YEAR, 0));
        assert!(!clock.told(TODAY + YEAR + 60_400, 60_000), "400 ms on its way");
        assert_eq!(clock.unix(TODAY), TODAY + YEAR);
        clock.look(at(70_000, 0));
        assert_eq!(clock.unix(TODAY), TODAY + YEAR, "whatever becomes of the wall clock");
        assert!(clock.told(TODAY, 70_000), "the region's was set");
        assert_eq!(clock.unix(clock.time(70_000)), TODAY);
    }

    #[test]
    fn what_was_written_down_is_past() {
        let mut clock = started(None, "a", at(0, TODAY));
        clock.told(TODAY + YEAR, 0);
        assert!(!clock.not_before(TODAY - 1, 0));
        assert!(clock.not_before(TODAY + 5_000, 0));
        assert_eq!(clock.time(0), TODAY + 5_000);
        assert_eq!(clock.unix(clock.time(0)), TODAY + YEAR, "the region's time stays what it is");
        assert_eq!(clock.look(at(1_000, TODAY + 1_000)), None, "and the wall clock was not set");
    }

    #[test]
    fn a_wall_clock_is_wrong_from_a_minute_on() {
        assert_eq!(wrong(60_000), None);
        assert_eq!(wrong(-60_000), None);
        assert!(wrong(3_600_000).unwrap().contains("3600 s ahead of the region's"));
        assert!(wrong(-86_400_000).unwrap().contains("86400 s behind the region's"));
    }

    #[test]
    fn it_is_kept_and_a_damaged_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let read =
            || serde_json::from_slice::<Offsets>(&fs::read(dir.path().join("clock")).unwrap()).unwrap();
        let clock = Clock::open(dir.path()).unwrap();
        assert_eq!(clock.is_right(), None, "nobody has said what time it is");
        clock.told(wall_ms());
        assert_eq!(clock.is_right(), Some(Ok(())));
        clock.told(wall_ms() + YEAR);
        assert!(clock.is_right().unwrap().is_err());
        clock.look();
        let ahead = read().region.unwrap();
        assert!((YEAR - 10_000..YEAR + 10_000).contains(&ahead), "{ahead}");
        let later = clock.now() + std::time::Duration::from_secs(1000);
        clock.not_before(later).unwrap();
        let again = Clock::open(dir.path()).unwrap();
        assert!(again.now() >= later, "a restart goes on");
        fs::write(dir.path().join("clock"), "?").unwrap();
        assert!(Clock::open(dir.path()).unwrap().now() < later);
        assert_eq!(read().region, None);
    }
}
