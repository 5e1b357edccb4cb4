//! Erasing what a rack knows, once the region has deleted it.
//!
//! Erased: what the region told the rack (passwords of BMCs, tasks, keys, images), facts that no region took, lines of
//! logs, the proxy's files, and the rack's key. Kept: what protects the network if a rack is set up again on this host (leases, the DUID, the clock, the epochs of
//! BMCs); none of it is secret.

use std::fs;
use std::io;
use std::path::Path;

use crate::durable;

/// In this order: a rack that is killed in between still has its key, dials again, and is told again.
const ERASED: [&str; 8] =
    ["concerns", "attempts", "spool", "logs", "proxy", "certificates", "blobs", "identity"];

/// Erases what a deleted rack knows below its data directory. Nothing may work on these files any more.
///
/// # Errors
/// The file system's, with the path; what is not erased yet is left for another try.
pub fn erase(data_dir: &Path) -> io::Result<()> {
    for name in ERASED {
        let path = data_dir.join(name);
        for path in [durable::beside(&path, "old"), durable::beside(&path, "new"), path] {
            remove(&path)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        }
    }
    fs::File::open(data_dir)?.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(it) if it.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_region_told_is_erased_and_what_protects_the_network_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "secret").unwrap();
            path
        };
        let gone = [
            "concerns/power.pb",
            "attempts",
            "attempts.old",
            "spool/1",
            "proxy/access.log",
            "logs/1",
            "blobs/ab",
            "identity/key.pem",
        ]
        .map(file);
        let kept = ["leases", "leases6", "duid", "clock", "epochs", "lock"].map(file);
        erase(dir.path()).unwrap();
        assert!(gone.iter().all(|path| !path.exists()), "{gone:?}");
        assert!(kept.iter().all(|path| path.exists()), "{kept:?}");
        erase(dir.path()).unwrap();
    }
}
