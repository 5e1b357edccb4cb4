//! Reads small kernel files below a root directory, so that tests can use an invented tree in place of `/`.

use std::fs;
use std::path::{Path, PathBuf};

/// A directory that holds `sys`, `proc` and `dev`.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// The running system.
    #[must_use]
    pub fn system() -> Self {
        Self(PathBuf::from("/"))
    }

    /// An invented tree, for tests.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The path of `path` below the root.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// True if `path` exists.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    /// The text of a file without surrounding white space and NULs. `None` if it cannot be read.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = fs::read(self.path(path)).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// The decimal number in a file.
    pub fn number<T: std::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// The bytes of a file.
    pub fn bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        fs::read(self.path(path)).ok()
    }

    /// The names in a directory, sorted. Empty if the directory does not exist.
    pub fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path(path))
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// The last component of a symbolic link's target (`…/driver` -> `virtio_net`).
    pub fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(fs::read_link(self.path(path)).ok()?.file_name()?.to_str()?.to_owned())
    }

    /// The target of a symbolic link, unresolved.
    pub fn link(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(fs::read_link(self.path(path)).ok()?.to_str()?.to_owned())
    }
}
