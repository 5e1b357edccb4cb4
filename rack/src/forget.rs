//! Erases the secrets of a rack that the region has deleted.
//!
//! Erased: everything that the region sent (BMC passwords, tasks, keys, images), facts that no region received, log
//! lines, the proxy's files, and the rack's key. Kept: the files that protect the network if a rack is set up again on
//! this host (leases, the DUID, the clock, the epochs of BMCs). They contain no secrets.

use std::fs;
use std::io;
use std::path::Path;

use crate::durable;

/// The identity comes last. If the rack is killed before that, it still has its key: at its next start it dials a region
/// and learns again that it was deleted.
const ERASED: [&str; 8] =
    ["concerns", "attempts", "spool", "logs", "proxy", "certificates", "blobs", "identity"];

/// Erases the secrets in the data directory of a deleted rack, and the files of its proxy, which may be elsewhere. No task may use these
/// files any more.
///
/// # Errors
/// `io::Error` with the path; files that are not erased yet stay for another try.
pub fn erase(data_dir: &Path, proxy_dir: &Path) -> io::Result<()> {
    // `--proxy-dir` may name a directory that has other files too.
    for name in basalt_proxy::FILES {
        remove(&proxy_dir.join(name))?;
    }
    for name in ERASED {
        let path = data_dir.join(name);
        for path in [durable::beside(&path, "old"), durable::beside(&path, "new"), path] {
            remove(&path)?;
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
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
        Ok(()) => Ok(()),
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
        let elsewhere = tempfile::tempdir().unwrap();
        let cached = elsewhere.path().join("cache/00/swap.state");
        fs::create_dir_all(cached.parent().unwrap()).unwrap();
        fs::write(&cached, "packages").unwrap();
        let logged = elsewhere.path().join("access.log.old");
        fs::write(&logged, "requests").unwrap();
        let foreign = elsewhere.path().join("of-another-program");
        fs::write(&foreign, "kept").unwrap();
        erase(dir.path(), elsewhere.path()).unwrap();
        assert!(gone.iter().all(|path| !path.exists()), "{gone:?}");
        assert!(kept.iter().all(|path| path.exists()), "{kept:?}");
        assert_eq!((cached.exists(), logged.exists(), foreign.exists()), (false, false, true));
        erase(dir.path(), &dir.path().join("proxy")).unwrap();
    }
}
