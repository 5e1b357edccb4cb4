//! Opening a lease file, and knowing that leases were lost with one.
//!
//! A rack that lost leases cannot tell which of its addresses are in use: until those that it alone knew of must have ended, it
//! gives none to clients that it does not know. It may die before that, and then finds a lease file: the new one. What was lost
//! is therefore noted beside it, in `FILE.lost`, before the file itself is touched.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::durable;
use crate::journal::Journal;

/// The longest lease that nobody but a lost lease file knew of.
pub const UNKNOWN_LEASES: Duration = Duration::from_secs(600);

/// What this rack did before it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Past {
    /// Nothing.
    None,
    /// It ran on this data directory.
    Here,
    /// It ran on a data directory that is gone: it has taken the place of a rack, whose addresses it leases.
    Elsewhere,
}

/// An open lease file.
#[derive(Debug)]
pub struct Opened<T> {
    /// The file.
    pub journal: Journal<T>,
    /// What it held, oldest first.
    pub records: Vec<T>,
    /// Until when leases may run that are not among them, Unix milliseconds.
    pub incomplete_until: Option<i64>,
}

/// Opens a lease file. `used`: leases were kept in it, or in one whose place it takes; where it is not there, they are lost.
///
/// # Errors
/// The file system's.
pub fn open<T>(path: &Path, used: bool, now_ms: i64) -> io::Result<Opened<T>>
where
    T: Serialize + DeserializeOwned,
{
    let note = durable::beside(path, "lost");
    let until = now_ms.saturating_add(i64::try_from(UNKNOWN_LEASES.as_millis()).unwrap_or(i64::MAX));
    let lost = || durable::replace(&note, format!("{until}\n").as_bytes());
    if used && !path.exists() {
        lost()?;
    }
    let (journal, found) = Journal::open(path)?;
    if found.skipped > 0 {
        tracing::error!(file = %path.display(), lines = found.skipped, "the lease file has damaged lines; they are skipped");
        lost()?;
    }
    let incomplete_until = match fs::read_to_string(&note) {
        // Whatever the clock was then, it is no longer than that from now.
        Ok(noted) => Some(noted.trim().parse().unwrap_or(until).min(until)).filter(|&until| until > now_ms),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    match incomplete_until {
        Some(_) => tracing::warn!(
            file = %path.display(),
            "leases were lost: clients without a known lease or reservation get no address for up to 10 minutes"
        ),
        None if note.exists() => fs::remove_file(&note)?,
        None => {}
    }
    Ok(Opened { journal, records: found.records, incomplete_until })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000_000;
    const TEN_MINUTES: i64 = 600_000;

    fn incomplete_until(path: &Path, used: bool, now_ms: i64) -> Option<i64> {
        let mut opened = open::<u32>(path, used, now_ms).unwrap();
        // As servers do.
        opened.journal.rewrite(&opened.records).unwrap();
        opened.incomplete_until
    }

    #[test]
    fn a_lost_file_is_missed_for_ten_minutes_however_often_the_rack_starts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leases");
        assert_eq!(incomplete_until(&path, false, NOW), None, "nothing was leased yet");
        assert_eq!(incomplete_until(&path, true, NOW), None);
        fs::remove_file(&path).unwrap();
        let until = Some(NOW + TEN_MINUTES);
        for later in [0, 1, TEN_MINUTES - 1] {
            assert_eq!(incomplete_until(&path, true, NOW + later), until);
        }
        assert_eq!(incomplete_until(&path, true, NOW + TEN_MINUTES), None);
        assert_eq!(incomplete_until(&path, true, NOW), None, "it is forgotten");
    }

    #[test]
    fn so_are_the_leases_of_damaged_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leases");
        fs::write(&path, "0 7\n").unwrap();
        for later in [0, 1000] {
            assert_eq!(incomplete_until(&path, true, NOW + later), Some(NOW + TEN_MINUTES));
        }
    }

    #[test]
    fn a_clock_that_was_set_back_makes_it_no_longer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leases");
        incomplete_until(&path, true, NOW);
        let earlier = NOW - 86_400_000;
        assert_eq!(incomplete_until(&path, true, earlier), Some(earlier + TEN_MINUTES));
        fs::write(durable::beside(&path, "lost"), "?").unwrap();
        assert_eq!(incomplete_until(&path, true, NOW), Some(NOW + TEN_MINUTES));
    }
}
