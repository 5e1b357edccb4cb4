//! The registry of the Terraform provider: it has one provider in one version, the region's own.
//!
//! The packages come from a directory: the region packs the program for its own platform, and packages for other platforms are there
//! under the names that registries use. See docs/decisions/051-provider-registry.md.

pub(crate) mod openpgp;
mod zip;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Bytes;
use openpgp::Signer;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::Mutex;

/// The provider's place in its registry.
pub(crate) const NAMESPACE: &str = "basalt-metal";
pub(crate) const TYPE: &str = "basalt";
/// The version of provider and region, which belong together.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

const PROGRAM: &str = "terraform-provider-basalt";

/// Terraform's names of platforms, for those with another name in Rust.
const PLATFORMS: &[(&str, &str)] =
    &[("macos", "darwin"), ("x86_64", "amd64"), ("x86", "386"), ("aarch64", "arm64")];

/// A provider's package for one platform.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) os: String,
    pub(crate) arch: String,
    /// The name of the file.
    pub(crate) name: String,
    /// Its SHA-256, in hexadecimal digits.
    pub(crate) sha256: String,
    /// It is in memory: strangers may ask for it, and each answer from a file would hold the file open.
    pub(crate) content: Bytes,
}

/// The registry of provider packages.
#[derive(Debug)]
pub struct Registry {
    /// The directory with programs and packages.
    directory: PathBuf,
    /// The directory in which packages are made.
    made: PathBuf,
    signer: Signer,
    /// The packages that the last check found.
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    found: Vec<Found>,
    packages: Arc<Vec<Package>>,
}

/// A package, or a file that is packed into one, with its attributes at the last check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    name: String,
    size: u64,
    changed: Option<SystemTime>,
}

impl Registry {
    /// A registry of the files in `directory`. Packages are built in `made`, and signed with a key from `seed`.
    ///
    /// # Errors
    /// Fails if the seed is not a valid key.
    pub fn new(
        directory: Option<PathBuf>,
        made: PathBuf,
        seed: &[u8; 32],
    ) -> Result<Self, aws_lc_rs::error::KeyRejected> {
        let beside = || Some(std::env::current_exe().ok()?.parent()?.to_owned());
        let directory = directory.or_else(beside).unwrap_or_default();
        Ok(Self { directory, made, signer: Signer::new(seed)?, known: Arc::default() })
    }

    /// The directory with programs and packages.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn signer(&self) -> &Signer {
        &self.signer
    }

    /// All packages, by name. They are made and read once, until the files change.
    ///
    /// # Errors
    /// Fails if a file cannot be read or written.
    pub(crate) async fn packages(&self) -> io::Result<Arc<Vec<Package>>> {
        // The lock moves into the task: if the caller is dropped, the task continues, and no second one begins.
        let mut known = Arc::clone(&self.known).lock_owned().await;
        let (directory, made) = (self.directory.clone(), self.made.clone());
        let looking = tokio::task::spawn_blocking(move || {
            let found = look(&directory)?;
            if known.found != found {
                let packages = Arc::new(pack(&directory, &made, &found)?);
                *known = Known { found, packages };
            }
            Ok(Arc::clone(&known.packages))
        });
        looking.await.map_err(io::Error::other)?
    }
}

/// The checksums of packages, in the format of `sha256sum`.
pub(crate) fn sums(packages: &[Package]) -> String {
    packages.iter().map(|package| format!("{}  {}\n", package.sha256, package.name)).collect()
}

/// The name of a file with this ending.
pub(crate) fn file_name(ending: &str) -> String {
    format!("{PROGRAM}_{VERSION}_{ending}")
}

fn here() -> (&'static str, &'static str) {
    let named = |rust: &'static str| {
        PLATFORMS.iter().find(|(known, _)| *known == rust).map_or(rust, |(_, terraform)| *terraform)
    };
    (named(std::env::consts::OS), named(std::env::consts::ARCH))
}

/// The platform in a package's name.
fn platform(name: &str) -> Option<(&str, &str)> {
    let rest = name.strip_prefix(PROGRAM)?.strip_prefix('_')?.strip_prefix(VERSION)?.strip_prefix('_')?;
    let (os, arch) = rest.strip_suffix(".zip")?.split_once('_')?;
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_word(os) && is_word(arch)).then_some((os, arch))
}

/// The files that can be served. If the directory does not exist, there are none.
fn look(directory: &Path) -> io::Result<Vec<Found>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name != PROGRAM && platform(&name).is_none() {
            continue;
        }
        // Follows links, which packages of distributions make. A broken link is skipped.
        let Ok(about) = std::fs::metadata(entry.path()) else { continue };
        if about.is_file() {
            found.push(Found { name, size: about.len(), changed: about.modified().ok() });
        }
    }
    found.sort();
    Ok(found)
}

fn pack(directory: &Path, made: &Path, found: &[Found]) -> io::Result<Vec<Package>> {
    let mut packages = Vec::new();
    for (name, (os, arch)) in found.iter().filter_map(|found| Some((&found.name, platform(&found.name)?))) {
        packages.push(package(os, arch, &directory.join(name))?);
    }
    let (os, arch) = here();
    let is_packed = packages.iter().any(|package| (package.os.as_str(), package.arch.as_str()) == (os, arch));
    if !is_packed && found.iter().any(|found| found.name == PROGRAM) {
        std::fs::create_dir_all(made)?;
        let path = made.join(file_name(&format!("{os}_{arch}.zip")));
        // A rename, so that running downloads of the former file go on.
        let new = path.with_extension("new");
        zip::write(&directory.join(PROGRAM), &format!("{PROGRAM}_v{VERSION}"), &new)?;
        std::fs::rename(&new, &path)?;
        packages.push(package(os, arch, &path)?);
    }
    packages.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(packages)
}

fn package(os: &str, arch: &str, path: &Path) -> io::Result<Package> {
    let content = Bytes::from(std::fs::read(path)?);
    let sha256 = hex::encode(digest(&SHA256, &content));
    let name = file_name(&format!("{os}_{arch}.zip"));
    Ok(Package { os: os.to_owned(), arch: arch.to_owned(), name, sha256, content })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_told_by_their_names() {
        let name = |rest: &str| format!("{PROGRAM}_{VERSION}_{rest}");
        assert_eq!(platform(&name("darwin_arm64.zip")), Some(("darwin", "arm64")));
        for other in
            [name("SHA256SUMS"), name("darwin.zip"), name("a_b_c.zip"), format!("{PROGRAM}_9.9.9_a_b.zip")]
        {
            assert_eq!(platform(&other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn what_changes_is_packed_anew_and_what_stays_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::new(Some(dir.path().join("in")), dir.path().join("out"), &[1; 32]).unwrap();
        assert!(registry.packages().await.unwrap().is_empty(), "there is no directory yet");
        std::fs::create_dir(registry.directory()).unwrap();
        std::fs::write(registry.directory().join(PROGRAM), "a program").unwrap();
        std::fs::write(registry.directory().join(file_name("plan9_386.zip")), "a package").unwrap();
        let first = registry.packages().await.unwrap();
        let platforms: Vec<_> =
            first.iter().map(|package| (package.os.as_str(), package.arch.as_str())).collect();
        assert_eq!(platforms, [here(), ("plan9", "386")]);
        assert!(Arc::ptr_eq(&first, &registry.packages().await.unwrap()));
        std::fs::write(registry.directory().join(PROGRAM), "another program").unwrap();
        let second = registry.packages().await.unwrap();
        assert_ne!(first[0].sha256, second[0].sha256);
        assert_eq!(first[1].sha256, second[1].sha256);
    }
}
