//! The file with the key that seals secrets, and the replacement of the key.
//!
//! ```text
//! seal-key           the key
//! seal-key.next      the next key of a rotation; written before the database changes
//! seal-key.1f2e3d4c  a replaced key, by its fingerprint: it opens older backups
//! ```
//! The database changes in one transaction, between the first and the second write of a rotation. So whenever a rotation is killed, the
//! key of the database is in one of the first two files, and a region finds it there.

use crate::data_dir::{DataDirError, file_error, write_secret};
use basalt_db::SealKey;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The file with the seal key.
#[derive(Clone, Debug)]
pub struct SealFile(PathBuf);

/// A key in the form of its file: 64 hexadecimal digits.
pub struct KeyText(Zeroizing<String>);

impl std::fmt::Debug for KeyText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyText(…)")
    }
}

impl KeyText {
    /// Generates a new key.
    ///
    /// # Errors
    /// Fails if the system gives no random bytes.
    pub fn generate() -> Result<Self, DataDirError> {
        Ok(Self(Zeroizing::new(hex::encode(SealKey::generate()?.as_slice()))))
    }

    /// Reads the key in a file.
    ///
    /// # Errors
    /// Fails if the file does not exist or holds no key.
    pub fn read(path: &Path) -> Result<Self, DataDirError> {
        if !path.exists() {
            return Err(DataDirError::NoKey(path.to_owned()));
        }
        let text = Zeroizing::new(std::fs::read_to_string(path).map_err(file_error(path))?);
        let this = Self(Zeroizing::new(text.trim().to_owned()));
        match this.bytes() {
            Some(_) => Ok(this),
            None => Err(DataDirError::BadKey(path.to_owned())),
        }
    }

    /// The key itself.
    ///
    /// # Errors
    /// A text that was generated or read never fails.
    pub fn key(&self) -> Result<SealKey, DataDirError> {
        let bad = || DataDirError::BadKey(PathBuf::new());
        SealKey::new(&self.bytes().ok_or_else(bad)?).map_err(|_| bad())
    }

    /// True if both are the same key.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }

    /// Identifies the key without revealing it.
    fn fingerprint(&self) -> String {
        let bytes = self.bytes().unwrap_or_default();
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
        hex::encode(digest.as_ref()).chars().take(8).collect()
    }

    fn bytes(&self) -> Option<Zeroizing<Vec<u8>>> {
        hex::decode(self.0.as_bytes()).ok().filter(|bytes| bytes.len() == 32).map(Zeroizing::new)
    }
}

impl SealFile {
    /// The seal key file at this path.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(&self.0);
        name.push(".");
        name.push(suffix);
        PathBuf::from(name)
    }

    fn next(&self) -> PathBuf {
        self.beside("next")
    }

    /// The next key of a rotation that was begun and has not ended.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn staged(&self) -> Result<Option<KeyText>, DataDirError> {
        let next = self.next();
        if next.exists() { KeyText::read(&next).map(Some) } else { Ok(None) }
    }

    /// Stores the next key beside the present one.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn stage(&self, key: &KeyText) -> Result<(), DataDirError> {
        self.write(&self.next(), key)
    }

    /// Makes the next key the present one, and keeps the former one. Returns the path of the former one.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn adopt(&self) -> Result<PathBuf, DataDirError> {
        let old = KeyText::read(&self.0)?;
        let kept = self.beside(&old.fingerprint());
        self.write(&kept, &old)?;
        let next = self.next();
        std::fs::rename(&next, &self.0).map_err(file_error(&next))?;
        Ok(kept)
    }

    /// Writes a key and gives the file the owner of the key's own file, so that the same accounts may read both.
    fn write(&self, path: &Path, key: &KeyText) -> Result<(), DataDirError> {
        write_secret(path, &key.0)?;
        let (ours, theirs) = (std::fs::metadata(path), std::fs::metadata(&self.0));
        let (ours, theirs) = (ours.map_err(file_error(path))?, theirs.map_err(file_error(&self.0))?);
        if (ours.uid(), ours.gid()) != (theirs.uid(), theirs.gid()) {
            let owned = std::os::unix::fs::chown(path, Some(theirs.uid()), Some(theirs.gid()));
            owned.map_err(file_error(path))?;
        }
        std::fs::set_permissions(path, theirs.permissions()).map_err(file_error(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_key_takes_the_place_of_the_first_which_is_kept_under_its_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let file = SealFile::new(dir.path().join("seal.key"));
        std::fs::write(file.path(), format!("  {}\n", "07".repeat(32))).unwrap();
        let (first, second) = (KeyText::read(file.path()).unwrap(), KeyText::generate().unwrap());
        assert!(file.staged().unwrap().is_none());
        file.stage(&second).unwrap();
        assert!(
            file.staged().unwrap().unwrap().is(&second) && KeyText::read(file.path()).unwrap().is(&first)
        );
        let kept = file.adopt().unwrap();
        assert_eq!(kept, dir.path().join(format!("seal.key.{}", first.fingerprint())));
        assert!(KeyText::read(&kept).unwrap().is(&first) && KeyText::read(file.path()).unwrap().is(&second));
        assert!(file.staged().unwrap().is_none());
        assert!(!format!("{first:?}").contains("0707"));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k");
        assert!(matches!(KeyText::read(&path), Err(DataDirError::NoKey(_))));
        for text in ["", "short", &"zz".repeat(32), &"00".repeat(31)] {
            std::fs::write(&path, text).unwrap();
            assert!(matches!(KeyText::read(&path), Err(DataDirError::BadKey(_))), "{text}");
        }
    }
}
