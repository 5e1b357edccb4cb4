//! Opens a lease file, and detects that leases were lost.
//!
//! A rack that lost leases does not know which of its addresses are in use. Until the leases that only it knew must
//! have ended, it gives no addresses to unknown clients. It may crash before that, and then finds a lease file: the new
//! one. So the loss is noted in `FILE.lost` before the file itself is touched.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use basalt_dhcp::{GRACE, Time};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::Clock;
use crate::durable;
use crate::journal::Journal;

/// The longest lease that no region knew of.
pub const UNKNOWN_LEASES: Duration = Duration::from_secs(600);
/// How long a loss is remembered; no lease is longer.
const REMEMBERED: Duration = Duration::from_secs(31 * 86_400);
/// The DHCPv4 lease file, in the data directory.
pub const V4: &str = "leases";
/// The DHCPv6 lease file, in the data directory.
pub const V6: &str = "leases6";

/// An open lease file.
#[derive(Debug)]
pub struct Opened<T> {
    /// The file, for appending.
    pub journal: Journal<T>,
    /// The records of the file, oldest first.
    pub records: Vec<T>,
    /// When leases were lost, if they were.
    pub lost_at: Option<Time>,
}

/// The time until which unknown clients get no dynamic address after leases were lost. `told`: a region has sent the
/// leases that other racks may extend, or there are no such racks.
#[must_use]
pub fn withheld_until(lost_at: Time, told: bool) -> Time {
    lost_at + UNKNOWN_LEASES + if told { Duration::ZERO } else { GRACE }
}

/// How much longer lost leases may run, if the longest lease time is this many seconds.
#[must_use]
pub fn unsure(lost_at: Option<Time>, longest_seconds: Option<u32>, now: Time) -> Duration {
    let longest = Duration::from_secs(longest_seconds.unwrap_or_default().into()).max(UNKNOWN_LEASES);
    lost_at.map_or(Duration::ZERO, |at| now.until(at + longest + GRACE))
}

/// Notes that this data directory lacks leases. Used for a rack that replaces another rack and takes over its addresses.
///
/// # Errors
/// `io::Error`: the note cannot be written.
pub fn note_loss(data_dir: &Path, now: Time) -> io::Result<()> {
    [V4, V6].iter().try_for_each(|file| note(&data_dir.join(file), now))
}

fn note(file: &Path, now: Time) -> io::Result<()> {
    durable::replace(&durable::beside(file, "lost"), format!("{}\n", now.unix_millis()).as_bytes())
}

/// Opens a lease file. `used`: leases were stored in it, so if it is absent, they are lost. `granted` returns the time
/// when a record was made; the clock is moved forward to the latest of them.
///
/// # Errors
/// `io::Error`: a file cannot be read or written.
pub fn open<T>(path: &Path, used: bool, clock: &Clock, granted: impl Fn(&T) -> Time) -> io::Result<Opened<T>>
where
    T: Serialize + DeserializeOwned,
{
    if used && !path.exists() {
        note(path, clock.now())?;
    }
    let (journal, found) = Journal::open(path)?;
    if let Some(newest) = found.records.iter().map(granted).max() {
        clock.not_before(newest)?;
    }
    let now = clock.now();
    if found.skipped > 0 {
        tracing::error!(file = %path.display(), lines = found.skipped, "the lease file has damaged lines; they are skipped");
        note(path, now)?;
    }
    let noted = durable::beside(path, "lost");
    let mut lost_at = match fs::read_to_string(&noted) {
        // If the file `clock` was lost, the time may have started over, so a loss cannot be later than now.
        Ok(at) => Some(at.trim().parse().map_or(now, Time).min(now)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if lost_at.is_some_and(|at| at + REMEMBERED <= now) {
        fs::remove_file(&noted)?;
        lost_at = None;
    }
    if lost_at.is_some_and(|at| withheld_until(at, false) > now) {
        tracing::warn!(
            file = %path.display(),
            "leases were lost: clients without a known lease or reservation get no address for 10 minutes, and until a region says what it knows, or for 20"
        );
    }
    Ok(Opened { journal, records: found.records, lost_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_700_000_000_000);

    fn lost_at(path: &Path, used: bool, now: Time) -> Option<Time> {
        let mut opened = open::<u32>(path, used, &Clock::stopped(now), |_| Time(0)).unwrap();
        // As servers do after opening.
        opened.journal.rewrite(&opened.records).unwrap();
        opened.lost_at
    }

    #[test]
    fn a_lost_file_is_missed_however_often_the_rack_starts_until_no_lease_can_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leases");
        assert_eq!(lost_at(&path, false, NOW), None, "nothing was leased yet");
        assert_eq!(lost_at(&path, true, NOW), None);
        fs::remove_file(&path).unwrap();
        for later in [0, 1, 86_400] {
            assert_eq!(lost_at(&path, true, NOW.plus_seconds(later)), Some(NOW));
        }
        assert_eq!(lost_at(&path, true, NOW + REMEMBERED), None);
        assert_eq!(lost_at(&path, true, NOW), None, "it is forgotten");
    }

    #[test]
    fn so_are_the_leases_of_damaged_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leases");
        fs::write(&path, "0 7\n").unwrap();
        for later in [0, 1] {
            assert_eq!(lost_at(&path, true, NOW.plus_seconds(later)), Some(NOW));
        }
    }

    #[test]
    fn who_takes_the_place_of_another_lacks_its_leases_whatever_files_it_has() {
        let dir = tempfile::tempdir().unwrap();
        for file in [V4, V6] {
            assert_eq!(lost_at(&dir.path().join(file), false, NOW), None);
        }
        note_loss(dir.path(), NOW).unwrap();
        for file in [V4, V6] {
            assert_eq!(lost_at(&dir.path().join(file), true, NOW.plus_seconds(1)), Some(NOW));
        }
    }

    #[test]
    fn a_clock_that_was_set_back_makes_it_no_longer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leases");
        note(&path, NOW).unwrap();
        let earlier = Time(NOW.0 - 86_400_000);
        assert_eq!(lost_at(&path, true, earlier), Some(earlier));
        fs::write(durable::beside(&path, "lost"), "?").unwrap();
        assert_eq!(lost_at(&path, true, NOW), Some(NOW));
    }

    #[test]
    fn the_region_is_told_for_as_long_as_the_longest_lease_may_run() {
        let later = NOW.plus_seconds(700);
        assert_eq!(unsure(None, Some(86_400), later), Duration::ZERO);
        assert_eq!(unsure(Some(NOW), None, NOW), UNKNOWN_LEASES + GRACE);
        assert_eq!(unsure(Some(NOW), Some(60), NOW.plus_seconds(1200)), Duration::ZERO);
        assert_eq!(unsure(Some(NOW), Some(86_400), later), Duration::from_secs(86_400 - 700) + GRACE);
    }
}
