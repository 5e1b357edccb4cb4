//! Files that are replaced atomically: after a crash they have either the old or the new content.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Makes a directory and its parents, readable by this account only.
///
/// # Errors
/// `io::Error`: a directory cannot be made.
pub fn private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Replaces a whole file (mode 0600): writes and syncs a new file beside the old one, renames it, and syncs the directory.
///
/// # Errors
/// `io::Error`: the file has either its old or its new content.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = beside(path, "new");
    write_synced(&temporary, bytes)?;
    fs::rename(&temporary, path)?;
    sync_parent(path)
}

/// Like [`replace`], and keeps the previous file as `PATH.old`.
///
/// # Errors
/// As [`replace`].
pub fn replace_keeping_old(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = beside(path, "new");
    write_synced(&temporary, bytes)?;
    let old = beside(path, "old");
    if path.exists() {
        if old.exists() {
            fs::remove_file(&old)?;
        }
        fs::hard_link(path, &old)?;
    }
    fs::rename(&temporary, path)?;
    sync_parent(path)
}

/// The path `PATH.SUFFIX`.
#[must_use]
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

/// Makes renames, links and new files in the path's directory durable.
///
/// # Errors
/// `io::Error`: the directory cannot be synced.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_a_file_and_keeps_the_previous_one_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        replace(&path, b"one").unwrap();
        replace_keeping_old(&path, b"two").unwrap();
        replace_keeping_old(&path, b"three").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(fs::read(beside(&path, "old")).unwrap(), b"two");
        assert!(!beside(&path, "new").exists());
    }
}
