//! The files of the data directory that are a region's own.
//!
//! | path | holds |
//! | --- | --- |
//! | `lock` | held while a region runs here |
//! | `seal-key` | the key that seals secrets (0600), unless `--seal-key-file` names another one; see [`SealFile`] |
//! | `admin-token` | a bearer token with the role admin (0600), made at the first start: see [`crate::admin_token`] |
//! | `api.sock` | the API, for root and this account (0600) |
//! | `process` | the id of the last process that ran here |
//! | `blobs/` | the bytes of images (0700) |
//! | `logs/` | logs of machines, and lines for receivers, see [`crate::logs`] |
//! | `postgres/`, `run/`, `postgres.log` (0600) | PostgreSQL, see [`basalt_db::cluster`] |

use crate::api::fresh_token;
use crate::seal_file::{KeyText, SealFile};
use basalt_api::values::Uid;
use basalt_db::SealKey;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest wait for a killed predecessor to release the lock.
const PREDECESSOR: Duration = Duration::from_secs(1);

/// The file with the first admin's token.
pub(crate) const ADMIN_TOKEN: &str = "admin-token";

/// The reason why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// A file or directory cannot be used.
    #[error("cannot use {path}", path = path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// Another region runs here.
    #[error("another region runs in {}: stop it, or choose another --data-dir", .0.display())]
    Locked(PathBuf),
    /// The key file does not hold a key.
    #[error("{} is no seal key: it has to hold 64 hexadecimal digits and nothing else", .0.display())]
    BadKey(PathBuf),
    /// The key file that a setting names does not exist.
    #[error("there is no {}; the setting seal-key-file names it. Copy it from the other regions, or make one: openssl rand -hex 32", .0.display())]
    NoKey(PathBuf),
    /// The system gives no random bytes.
    #[error(transparent)]
    Random(#[from] basalt_db::StoreError),
}

pub(crate) fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> DataDirError {
    let path = path.to_owned();
    move |source| DataDirError::File { path, source }
}

/// A data directory that this process has locked.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Like [`open`](Self::open), but waits a moment for a killed predecessor that has not ended yet.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub async fn succeeding(path: &Path) -> Result<Self, DataDirError> {
        let end = tokio::time::Instant::now() + PREDECESSOR;
        loop {
            match Self::open(path) {
                Err(DataDirError::Locked(_)) if tokio::time::Instant::now() < end => {
                    tokio::time::sleep(PREDECESSOR / 50).await;
                }
                opened => return opened,
            }
        }
    }

    /// Creates the directory if it does not exist, and locks it. The lock ends with the process.
    ///
    /// # Errors
    /// Fails if the directory cannot be created, or if another region runs in it.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        if !path.exists() {
            // PostgreSQL's account must be able to pass. Secret files in it have mode 0600.
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true).mode(0o711).create(path).map_err(file_error(path))?;
        }
        let path = path.canonicalize().map_err(file_error(path))?;
        let lock_path = path.join("lock");
        let lock = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&lock_path);
        let lock = lock.map_err(file_error(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(std::fs::TryLockError::WouldBlock) => Err(DataDirError::Locked(path)),
            Err(std::fs::TryLockError::Error(source)) => Err(DataDirError::File { path: lock_path, source }),
        }
    }

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The key that seals secrets: from `file`, or from the directory's own file, which is created if needed.
    ///
    /// # Errors
    /// Fails if the file cannot be read or holds no key.
    pub fn seal_key(&self, file: Option<&Path>) -> Result<SealKey, DataDirError> {
        let path = self.seal_file(file).path().to_owned();
        if file.is_none() && !path.exists() {
            write_secret(&path, &hex::encode(SealKey::generate()?.as_slice()))?;
        }
        KeyText::read(&path)?.key()
    }

    /// The path of the seal key: `file`, or the directory's own file.
    #[must_use]
    pub fn seal_file(&self, file: Option<&Path>) -> SealFile {
        SealFile::new(file.map_or_else(|| self.path.join("seal-key"), Path::to_owned))
    }

    /// The first admin's bearer token, created if needed. `None` once a process has run here.
    ///
    /// # Errors
    /// Fails if the file cannot be read or written.
    pub fn first_token(&self) -> Result<Option<String>, DataDirError> {
        if self.process().is_some() {
            return Ok(None);
        }
        let path = self.admin_token();
        if !path.exists() {
            write_secret(&path, &fresh_token()?)?;
        }
        let token = std::fs::read_to_string(&path).map_err(file_error(&path))?;
        Ok(Some(token.trim().to_owned()))
    }

    /// The path of the first admin's token. The file may have been removed.
    #[must_use]
    pub fn admin_token(&self) -> PathBuf {
        self.path.join(ADMIN_TOKEN)
    }

    /// Records this process as the one that runs here. Returns the former process, which has ended: this one holds the lock.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn succeed(&self, process: Uid) -> Result<Option<Uid>, DataDirError> {
        let before = self.process();
        write_secret(&self.path.join("process"), &process.to_string())?;
        Ok(before)
    }

    /// The id of the last process that ran here.
    #[must_use]
    pub fn process(&self) -> Option<Uid> {
        std::fs::read_to_string(self.path.join("process")).ok().and_then(|text| text.trim().parse().ok())
    }

    /// Listens on the API's socket. A socket left by a killed region is removed: by the lock, no process uses it.
    ///
    /// # Errors
    /// Fails if the socket cannot be created.
    pub fn listen(&self) -> Result<tokio::net::UnixListener, DataDirError> {
        let path = self.socket();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(file_error(&path)(error));
            }
            _ => {}
        }
        let listener = tokio::net::UnixListener::bind(&path).map_err(file_error(&path))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(file_error(&path))?;
        Ok(listener)
    }

    /// The path of the API's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path.join("api.sock")
    }
}

/// Writes a file completely or not at all: into another file first, which is then renamed.
pub(crate) fn write_secret(path: &Path, text: &str) -> Result<(), DataDirError> {
    let fresh = path.with_extension("new");
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh);
    let mut file = file.map_err(file_error(&fresh))?;
    writeln!(file, "{text}").and_then(|()| file.sync_all()).map_err(file_error(&fresh))?;
    std::fs::rename(&fresh, path).map_err(file_error(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_region_is_refused_and_the_next_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::open(dir.path()).unwrap();
        let error = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(error.starts_with("another region runs in /"), "{error}");
        drop(first);
        DataDir::open(dir.path()).unwrap();
    }

    #[tokio::test]
    async fn a_region_waits_a_second_for_the_end_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let killed = DataDir::open(dir.path()).unwrap();
        let ends = async {
            tokio::time::sleep(PREDECESSOR / 10).await;
            drop(killed);
        };
        let (next, ()) = tokio::join!(DataDir::succeeding(dir.path()), ends);
        next.unwrap();
    }

    #[test]
    fn where_a_process_has_run_no_first_token_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        data.succeed(Uid::generate()).unwrap();
        assert_eq!(data.first_token().unwrap(), None);
        assert!(!data.admin_token().exists());
    }

    #[test]
    fn keys_and_tokens_are_made_once_and_only_we_can_read_them() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        let token = data.first_token().unwrap();
        assert!(
            token.is_some() && token == data.first_token().unwrap(),
            "whoever is killed before it runs begins anew"
        );
        data.seal_key(None).unwrap();
        for file in [data.admin_token(), dir.path().join("seal-key")] {
            assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        std::fs::write(dir.path().join("seal-key"), "short").unwrap();
        assert!(data.seal_key(None).unwrap_err().to_string().contains("64 hexadecimal digits"));
        assert!(matches!(data.seal_key(Some(&dir.path().join("other"))), Err(DataDirError::NoKey(_))));
    }
}
