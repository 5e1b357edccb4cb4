//! The result of the latest write to each file of the rack. A region learns of a full disk from the rack's hello,
//! because a fact must be written to the disk before it is sent.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The prefix in the names of lease files. A lease is granted only if it can be written.
pub const LEASES: &str = "leases";

/// The files that could not be written, with the error of each.
#[derive(Debug, Default)]
pub struct Disk(Mutex<BTreeMap<&'static str, Problem>>);

#[derive(Debug)]
struct Problem {
    words: String,
    is_full: bool,
}

impl Disk {
    /// Notes the result of writing to the files with this name, a plural noun.
    pub fn wrote(&self, what: &'static str, result: Result<(), &io::Error>) {
        match result {
            Ok(()) => drop(self.locked().remove(what)),
            Err(error) => {
                let problem = Problem { words: error.to_string(), is_full: is_full(error) };
                self.locked().insert(what, problem);
            }
        }
    }

    /// True if a write failed because the disk is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.locked().values().any(|problem| problem.is_full)
    }

    /// True if a lease could not be written, and so not granted.
    #[must_use]
    pub fn gives_no_address(&self) -> bool {
        self.locked().keys().any(|what| what.starts_with(LEASES))
    }

    /// A message for people: the files that cannot be written, the consequence and the remedy.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let gives_no_address = self.gives_no_address();
        let problems = self.locked();
        let (_, Problem { words: error, .. }) = problems.first_key_value()?;
        let what: Vec<&str> = problems.keys().copied().collect();
        let consequences = [
            (gives_no_address, "gives no address"),
            (problems.keys().any(|what| !what.starts_with(LEASES)), "forgets what it sees"),
        ];
        let consequences: Vec<&str> = consequences.iter().filter(|it| it.0).map(|it| it.1).collect();
        Some(format!(
            "{} cannot be written: {error}. Make room on the disk of this rack's --data-dir, or mend it: until then this rack {}",
            what.join(" and "),
            consequences.join(", and ")
        ))
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<&'static str, Problem>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if the error says that the disk is full.
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
        assert!(said.contains("Make room") && disk.is_full() && disk.gives_no_address());
        assert!(said.ends_with("this rack gives no address, and forgets what it sees"), "{said}");
        disk.wrote("leases", Ok(()));
        let said = disk.problem().unwrap();
        assert!(
            said.starts_with("facts cannot") && said.ends_with("this rack forgets what it sees"),
            "{said}"
        );
        assert!(!disk.is_full() && !disk.gives_no_address());
        disk.wrote("facts", Ok(()));
        assert_eq!(disk.problem(), None);
    }
}
