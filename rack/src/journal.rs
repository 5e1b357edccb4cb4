//! An append-only file of JSON records: `leases`, `attempts`, `epochs`.
//!
//! One record a line, `CHECK JSON`, where CHECK is the first 8 hexadecimal digits of the SHA-256 of the JSON. A line that a
//! crash cut short is removed when the file is opened; a damaged or foreign line in the middle is skipped and counted.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::durable;

/// The open file.
#[derive(Debug)]
pub struct Journal<T> {
    path: PathBuf,
    file: File,
    length: u64,
    /// Its length when it was last rewritten.
    rewritten: u64,
    /// Another file may have taken its name.
    is_replaced: bool,
    /// There may be bytes of a failed write after `length`.
    is_torn: bool,
    records: PhantomData<fn(T)>,
}

/// The content of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Recovered<T> {
    /// The records, oldest first.
    pub records: Vec<T>,
    /// The number of lines skipped because they are damaged or from another version.
    pub skipped: usize,
    /// The file existed before.
    pub existed: bool,
}

impl<T: Serialize + DeserializeOwned> Journal<T> {
    /// Opens or creates the file and reads its content.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be read or written.
    pub fn open(path: &Path) -> io::Result<(Self, Recovered<T>)> {
        let existed = path.exists();
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        if !existed {
            durable::sync_parent(path)?;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let Lines { records, skipped, whole } = read(&bytes);
        if whole < bytes.len() {
            file.set_len(whole as u64)?;
            file.sync_all()?;
        }
        let journal = Self {
            path: path.to_owned(),
            file,
            length: whole as u64,
            rewritten: 0,
            is_replaced: false,
            is_torn: false,
            records: PhantomData,
        };
        Ok((journal, Recovered { records, skipped, existed }))
    }

    /// Appends records and makes them durable with one sync.
    ///
    /// # Errors
    /// `io::Error`: the file is as it was before.
    pub fn append(&mut self, records: &[T]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for record in records {
            render(&mut bytes, record)?;
        }
        self.mend()?;
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            self.is_torn = true;
            self.mend()?;
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Reopens the file if it was replaced, and cuts off a partial record. Otherwise later records would be unreadable.
    fn mend(&mut self) -> io::Result<()> {
        if self.is_replaced {
            self.file = OpenOptions::new().append(true).open(&self.path)?;
            self.length = self.file.seek(SeekFrom::End(0))?;
            self.is_replaced = false;
        }
        if self.is_torn {
            self.file.set_len(self.length)?;
            self.is_torn = false;
        }
        Ok(())
    }

    /// Replaces the content by the records to keep, if the file has outgrown this many bytes. `kept` may return `None`:
    /// then the file stays. If the replacement fails, the file is unchanged, and the next try comes when it has grown
    /// by as much again.
    pub fn compact(&mut self, bytes: u64, kept: impl FnOnce() -> Option<Vec<T>>) {
        if self.has_outgrown(bytes)
            && let Some(kept) = kept()
            && let Err(error) = self.rewrite(&kept)
        {
            tracing::error!(%error, file = %self.path.display(), "the file cannot be rewritten in less room; free some space");
            self.rewritten = self.length;
        }
    }

    /// Replaces the content by these records.
    ///
    /// # Errors
    /// `io::Error`: the file has either its old or its new content.
    pub fn rewrite(&mut self, records: &[T]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for record in records {
            render(&mut bytes, record)?;
        }
        self.mend()?;
        // If the replacement fails late, the new file may have its name already.
        self.is_replaced = true;
        let replaced = durable::replace(&self.path, &bytes);
        self.mend()?;
        replaced?;
        self.rewritten = self.length;
        Ok(())
    }

    /// A journal whose file cannot be written.
    #[cfg(test)]
    pub(crate) fn read_only(path: &Path) -> Self {
        let file = File::open(path).unwrap();
        let (is_replaced, is_torn) = (false, false);
        Self {
            path: path.to_owned(),
            file,
            length: 0,
            rewritten: 0,
            is_replaced,
            is_torn,
            records: PhantomData,
        }
    }

    /// True if the file has more than this many bytes, and is more than twice as long as after the last rewrite. The
    /// second condition avoids a rewrite with each record of a large file.
    #[must_use]
    fn has_outgrown(&self, bytes: u64) -> bool {
        self.length > bytes.max(self.rewritten.saturating_mul(2))
    }
}

/// The content of a file's lines.
#[derive(Debug, PartialEq, Eq)]
pub struct Lines<T> {
    /// The records, oldest first.
    pub records: Vec<T>,
    /// The number of lines that are damaged or from another version.
    pub skipped: usize,
    /// The length of all complete lines, in bytes. The rest was cut short.
    pub whole: usize,
}

/// Decodes the content of a journal's file.
#[must_use]
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Lines<T> {
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    let (mut records, mut skipped) = (Vec::new(), 0);
    let lines = bytes.get(..whole).unwrap_or_default().split(|&byte| byte == b'\n');
    for line in lines.filter(|line| !line.is_empty()) {
        match parse(line) {
            Some(record) => records.push(record),
            None => skipped += 1,
        }
    }
    Lines { records, skipped, whole }
}

/// The line of a record.
///
/// # Errors
/// `io::Error`: the record cannot be encoded as JSON.
pub fn line<T: Serialize>(record: &T) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    render(&mut bytes, record)?;
    Ok(bytes)
}

fn check(json: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, json);
    hex::encode(digest.as_ref().get(..4).unwrap_or_default())
}

fn render<T: Serialize>(bytes: &mut Vec<u8>, record: &T) -> io::Result<()> {
    let json = serde_json::to_vec(record)?;
    bytes.extend_from_slice(check(&json).as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(&json);
    bytes.push(b'\n');
    Ok(())
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    let (sum, json) = line.split_at_checked(8)?;
    let json = json.strip_prefix(b" ")?;
    if sum != check(json).as_bytes() {
        return None;
    }
    serde_json::from_slice(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(path: &Path) -> Recovered<String> {
        Journal::open(path).unwrap().1
    }

    #[test]
    fn returns_what_was_appended_and_what_was_rewritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, found) = Journal::<String>::open(&path).unwrap();
        assert!(!found.existed && found.records.is_empty());
        journal.append(&["a".into(), "b".into()]).unwrap();
        assert_eq!(read(&path).records, ["a", "b"]);
        journal.rewrite(&["b".into()]).unwrap();
        journal.append(&["c".into()]).unwrap();
        assert_eq!(
            read(&path),
            Recovered { records: vec!["b".into(), "c".into()], skipped: 0, existed: true }
        );
    }

    #[test]
    fn what_is_worth_keeping_does_not_make_it_outgrow_its_bounds() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::<String>::open(&dir.path().join("journal")).unwrap().0;
        let records = vec!["record".to_owned(); 10];
        journal.append(&records).unwrap();
        assert!(journal.has_outgrown(50) && !journal.has_outgrown(500));
        journal.rewrite(&records).unwrap();
        journal.append(&records[..9]).unwrap();
        assert!(!journal.has_outgrown(50), "it would be rewritten with every record");
        journal.append(&records[..2]).unwrap();
        assert!(journal.has_outgrown(50));
    }

    #[test]
    fn skips_a_damaged_line_and_keeps_those_around_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        Journal::open(&path).unwrap().0.append(&["one".to_owned(), "two".into(), "three".into()]).unwrap();
        let damaged = std::fs::read_to_string(&path).unwrap().replace("two", "twO");
        std::fs::write(&path, damaged).unwrap();
        let found = read(&path);
        assert_eq!((found.records, found.skipped), (vec!["one".to_owned(), "three".into()], 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn a_file_cut_anywhere_yields_a_prefix_and_can_be_appended_to(cut in 0usize..200) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("journal");
            let records: Vec<String> = (0..8).map(|n| format!("record {n}")).collect();
            Journal::open(&path).unwrap().0.append(&records).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(&path, &bytes[..cut.min(bytes.len())]).unwrap();
            let (mut journal, found) = Journal::open(&path).unwrap();
            prop_assert!(records.starts_with(&found.records));
            prop_assert_eq!(found.skipped, 0);
            journal.append(&["after".to_owned()]).unwrap();
            let again = read(&path).records;
            prop_assert_eq!(again.last().map(String::as_str), Some("after"));
            prop_assert_eq!(again.len(), found.records.len() + 1);
        }
    }
}
