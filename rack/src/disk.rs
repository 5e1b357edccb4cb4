//! Whether what this rack has to keep can be written, as whoever wrote last found. A region is told in the rack's introduction, since facts
//! have to be written themselves before they are told.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What can and what cannot be written.
#[derive(Debug, Default)]
pub struct Disk(Mutex<BTreeMap<&'static str, Problem>>);

#[derive(Debug)]
struct Problem {
    words: String,
    is_full: bool,
}

impl Disk {
    /// Takes note of how it went to write something of this name, which is in the plural.
    pub fn wrote(&self, what: &'static str, result: Result<(), &io::Error>) {
        match result {
            Ok(()) => drop(self.locked().remove(what)),
            Err(error) => {
                let problem = Problem { words: error.to_string(), is_full: is_full(error) };
                self.locked().insert(what, problem);
            }
        }
    }

    /// Whether more room would help.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.locked().values().any(|problem| problem.is_full)
    }

    /// What cannot be written, what that means, and what to do.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let problems = self.locked();
        let (_, Problem { words: error, .. }) = problems.first_key_value()?;
        let what: Vec<&str> = problems.keys().copied().collect();
        Some(format!(
            "{} cannot be written: {error}. Make room on the disk of this rack's --data-dir, or mend it: until then this rack gives no address, \
             and forgets what it sees",
            what.join(" and ")
        ))
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<&'static str, Problem>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a disk has no room for what was to be written.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_named_until_it_can() {
        let disk = Disk::default();
        assert_eq!(disk.problem(), None);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        disk.wrote("leases", Err(&full));
        disk.wrote("facts", Err(&io::Error::from(io::ErrorKind::ReadOnlyFilesystem)));
        let said = disk.problem().unwrap();
        assert!(said.starts_with("facts and leases cannot be written: read-only filesystem"), "{said}");
        assert!(said.contains("Make room") && disk.is_full());
        disk.wrote("leases", Ok(()));
        assert!(disk.problem().unwrap().starts_with("facts cannot") && !disk.is_full());
        disk.wrote("facts", Ok(()));
        assert_eq!(disk.problem(), None);
    }
}
