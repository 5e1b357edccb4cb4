//! The trusted certificates of BMCs: the first certificate that each BMC showed, or the one that was declared later.
//! Stored in the file `certificates`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::journal::Journal;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The BMC's address and port.
    bmc: String,
    /// The SHA-256 of the certificate (DER), hexadecimal.
    sha256: String,
}

/// The file and its content.
#[derive(Debug)]
pub struct Certificates {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    journal: Journal<Record>,
    known: BTreeMap<String, [u8; 32]>,
}

impl Certificates {
    /// Reads `DIR/certificates`.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be read or written.
    pub fn open(data_dir: &Path) -> io::Result<Self> {
        let (mut journal, found) = Journal::open(&data_dir.join("certificates"))?;
        let mut known = BTreeMap::new();
        let mut skipped = found.skipped;
        let lines = found.records.len();
        for Record { bmc, sha256 } in found.records {
            match hex::decode(sha256).ok().and_then(|bytes| bytes.try_into().ok()) {
                Some(sha256) => drop(known.insert(bmc, sha256)),
                None => skipped += 1,
            }
        }
        if skipped > 0 {
            tracing::error!(
                lines = skipped,
                "file `certificates` has damaged lines; whatever those BMCs show next is believed"
            );
        }
        if lines > known.len() {
            let record = |(bmc, sha256): (&String, &[u8; 32])| record(bmc, *sha256);
            journal.rewrite(&known.iter().map(record).collect::<Vec<_>>())?;
        }
        Ok(Self { inner: Mutex::new(Inner { journal, known }) })
    }

    /// The SHA-256 of the trusted certificate of the BMC at this address and port.
    #[must_use]
    pub fn known(&self, bmc: &str) -> Option<[u8; 32]> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).known.get(bmc).copied()
    }

    /// Stores a certificate durably. True if it differs from the stored one.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be written; nothing has changed.
    pub fn keep(&self, bmc: &str, sha256: [u8; 32]) -> io::Result<bool> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { journal, known } = &mut *inner;
        if known.get(bmc) == Some(&sha256) {
            return Ok(false);
        }
        journal.append(&[record(bmc, sha256)])?;
        known.insert(bmc.to_owned(), sha256);
        Ok(true)
    }
}

fn record(bmc: &str, sha256: [u8; 32]) -> Record {
    Record { bmc: bmc.to_owned(), sha256: hex::encode(sha256) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_that_was_kept_is_known_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::open(dir.path()).unwrap();
        assert_eq!(certificates.known("10.0.0.1:443"), None);
        assert!(certificates.keep("10.0.0.1:443", [1; 32]).unwrap());
        assert!(!certificates.keep("10.0.0.1:443", [1; 32]).unwrap(), "it is no news");
        assert!(certificates.keep("10.0.0.1:443", [2; 32]).unwrap());
        assert!(certificates.keep("10.0.0.2:443", [3; 32]).unwrap());
        for _ in 0..2 {
            let certificates = Certificates::open(dir.path()).unwrap();
            assert_eq!(certificates.known("10.0.0.1:443"), Some([2; 32]));
            assert_eq!(certificates.known("10.0.0.2:443"), Some([3; 32]));
        }
    }
}
