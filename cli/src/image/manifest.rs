//! `image.json`: the files of an image, and a digest of everything that its build depends on.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::host::{BuildError, io_error};

/// Timestamp of all files that a build makes (2025-01-01), so that the same inputs give the same bytes.
pub(super) const EPOCH: u64 = 1_735_689_600;

/// Name of the manifest in an image's directory.
pub(super) const NAME: &str = "image.json";

/// The manifest of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    /// `ephemeral` or `system`.
    pub(super) kind: String,
    /// `debian`
    pub(super) os: String,
    /// `bookworm`
    pub(super) release: String,
    /// `amd64`
    pub(super) architecture: String,
    /// By role: `kernel`, `initrd`, `squashfs`, `root_tarball`.
    pub(super) files: BTreeMap<String, ImageFile>,
    /// Digest of the build's inputs. A build with the same digest is up to date. Empty for an image from other sources.
    #[serde(default)]
    pub(super) inputs: String,
}

/// A file of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ImageFile {
    /// Name in the image's directory.
    pub(super) file: String,
    /// SHA-256, lower-case hex.
    pub(super) sha256: String,
    /// Size in bytes.
    pub(super) size: u64,
}

impl ImageFile {
    /// Reads hash and size of a file in `dir`.
    pub(super) fn of(dir: &Path, file: &str) -> Result<Self, BuildError> {
        let path = dir.join(file);
        let (sha256, size) = hash_file(&path).map_err(io_error(format!("reading {}", path.display())))?;
        Ok(Self { file: file.to_owned(), sha256, size })
    }
}

impl Manifest {
    /// The manifest of an amd64 Debian image with these (role, file) in `dir`.
    pub(super) fn of(
        kind: &str,
        release: &str,
        dir: &Path,
        files: &[(&str, &str)],
        inputs: String,
    ) -> Result<Self, BuildError> {
        let files = files.iter().map(|(role, file)| Ok(((*role).to_owned(), ImageFile::of(dir, file)?)));
        Ok(Self {
            kind: kind.to_owned(),
            os: "debian".to_owned(),
            release: release.to_owned(),
            architecture: "amd64".to_owned(),
            files: files.collect::<Result<_, BuildError>>()?,
            inputs,
        })
    }

    /// The manifest in `dir`, if it has the same inputs and its files exist.
    pub(super) fn up_to_date(dir: &Path, inputs: &str) -> Option<Self> {
        let manifest: Self = serde_json::from_slice(&fs::read(dir.join(NAME)).ok()?).ok()?;
        let present =
            |file: &ImageFile| fs::metadata(dir.join(&file.file)).is_ok_and(|meta| meta.len() == file.size);
        (manifest.inputs == inputs && manifest.files.values().all(present)).then_some(manifest)
    }

    /// Writes the manifest as the last file, so that an interrupted build leaves none.
    pub(super) fn write(&self, dir: &Path) -> Result<(), BuildError> {
        let failed = || io_error(format!("writing {}", dir.join(NAME).display()));
        let mut text = serde_json::to_string_pretty(self).map_err(|error| failed()(error.into()))?;
        text.push('\n');
        let new = dir.join(format!("{NAME}.new"));
        fs::write(&new, text).map_err(failed())?;
        fs::rename(new, dir.join(NAME)).map_err(failed())
    }

    /// One line for each file.
    pub(super) fn summary(&self) -> String {
        let lines = self
            .files
            .iter()
            .map(|(role, file)| format!("{role:<14} {:>11} bytes  sha256:{}\n", file.size, file.sha256));
        lines.collect()
    }
}

/// SHA-256 in hex and size of a file.
pub(super) fn hash_file(path: &Path) -> io::Result<(String, u64)> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut size = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((hex::encode(hash.finalize()), size));
        }
        hash.update(&buffer[..read]);
        size += read as u64;
    }
}

/// The digest of a build's inputs. A separator between inputs keeps them distinct.
pub(super) fn digest<'a>(inputs: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for input in inputs {
        hash.update((input.len() as u64).to_le_bytes());
        hash.update(input.as_bytes());
    }
    hex::encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_up_to_date_with_the_same_inputs_and_all_its_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("vmlinuz"), "kernel").unwrap();
        let manifest =
            Manifest::of("ephemeral", "bookworm", dir.path(), &[("kernel", "vmlinuz")], "a".to_owned())
                .unwrap();
        manifest.write(dir.path()).unwrap();
        assert_eq!(manifest.files["kernel"].size, 6);
        assert_eq!(Manifest::up_to_date(dir.path(), "a"), Some(manifest));
        assert_eq!(Manifest::up_to_date(dir.path(), "b"), None);
        fs::write(dir.path().join("vmlinuz"), "").unwrap();
        assert_eq!(Manifest::up_to_date(dir.path(), "a"), None);
    }

    #[test]
    fn the_manifest_of_the_manual_is_one() {
        let page = include_str!("../../../docs/guides/images.md");
        let json = page.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
        let manifest: Manifest = serde_json::from_str(json).unwrap();
        assert_eq!(manifest.files.keys().collect::<Vec<_>>(), ["root_tarball"]);
    }

    #[test]
    fn the_command_of_the_manual_writes_a_manifest() {
        let page = include_str!("../../../docs/guides/images.md");
        let block = page.split("```").find(|block| block.contains("cat > image.json")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("root.tar.zst"), "a tarball").unwrap();
        let shell = std::process::Command::new("sh").args(["-euc", block]).current_dir(dir.path()).status();
        assert!(shell.unwrap().success());
        let manifest: Manifest = serde_json::from_slice(&fs::read(dir.path().join(NAME)).unwrap()).unwrap();
        let file = ImageFile::of(dir.path(), "root.tar.zst").unwrap();
        assert_eq!(manifest.files, [("root_tarball".to_owned(), file)].into());
    }

    #[test]
    fn a_misspelt_key_is_refused() {
        let whole = r#"{"kind": "system", "os": "debian", "release": "trixie", "architecture": "amd64",
            "files": {"root_tarball": {"file": "root.tar.zst", "sha256": "00", "size": 7}}}"#;
        serde_json::from_str::<Manifest>(whole).unwrap();
        for (right, wrong) in
            [("\"os\"", "\"distribution\": \"debian\", \"os\""), ("\"file\"", "\"path\": \"/\", \"file\"")]
        {
            let error = serde_json::from_str::<Manifest>(&whole.replacen(right, wrong, 1)).unwrap_err();
            assert!(error.to_string().starts_with("unknown field `"), "{error}");
        }
    }

    #[test]
    fn inputs_do_not_run_into_each_other() {
        assert_ne!(digest(["ab", "c"]), digest(["a", "bc"]));
    }
}
