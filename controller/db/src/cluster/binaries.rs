//! The host's PostgreSQL binaries.

use std::path::{Path, PathBuf};

/// The oldest major version that has the SQL features in use.
const OLDEST: u32 = 15;

/// `initdb` and `postgres` of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binaries {
    /// The directory of the programs.
    pub bin: PathBuf,
    /// The major version.
    pub major: u32,
}

/// The reason why no binaries fit.
#[derive(Debug, thiserror::Error)]
pub enum BinariesError {
    /// The host has no PostgreSQL, or only older versions.
    #[error(
        "this host has no PostgreSQL {OLDEST} or newer (looked in PATH and /usr/lib/postgresql/*/bin); \
         install it (apt-get install postgresql), or give --database-url"
    )]
    None,
    /// The host has other versions than the cluster needs.
    #[error(
        "{data} was made by PostgreSQL {cluster}, and this host has {host}; install PostgreSQL {cluster}, \
         or move the cluster with pg_upgrade while the region is stopped", data = data.display()
    )]
    OtherMajor {
        /// The directory of the cluster.
        data: PathBuf,
        /// The major version that made the cluster.
        cluster: u32,
        /// The major versions on the host.
        host: String,
    },
    /// The cluster has no readable version.
    #[error("{path} does not name a version of PostgreSQL; if {dir} is no cluster, move it away", path = path.display(), dir = dir.display())]
    BadVersion {
        /// The version file.
        path: PathBuf,
        /// The directory of the version file.
        dir: PathBuf,
    },
}

impl Binaries {
    /// The binaries that fit the cluster in `data`; the newest if there is no cluster yet.
    pub(crate) fn find(data: &Path) -> Result<Self, BinariesError> {
        let found: Vec<Self> = candidates().into_iter().filter_map(|bin| Self::at(&bin)).collect();
        let file = data.join("PG_VERSION");
        let wanted = match std::fs::read_to_string(&file) {
            Ok(text) => Some(
                text.trim()
                    .parse()
                    .map_err(|_| BinariesError::BadVersion { path: file, dir: data.to_owned() })?,
            ),
            Err(_) => None,
        };
        choose(found, wanted, data)
    }

    pub(crate) fn initdb(&self) -> PathBuf {
        self.bin.join("initdb")
    }

    pub(crate) fn postgres(&self) -> PathBuf {
        self.bin.join("postgres")
    }

    fn at(bin: &Path) -> Option<Self> {
        // An entry in PATH may be a link: `initdb` is beside its target.
        let postgres = bin.join("postgres").canonicalize().ok()?;
        let bin = postgres.parent()?.to_owned();
        bin.join("initdb").exists().then_some(())?;
        let output = std::process::Command::new(&postgres).arg("--version").output().ok()?;
        let major = version(&String::from_utf8_lossy(&output.stdout))?;
        Some(Self { bin, major })
    }
}

fn candidates() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        dirs.extend(versions.flatten().map(|v| v.path().join("bin")));
    }
    dirs
}

/// `postgres (PostgreSQL) 15.18 (Debian …)` → 15.
fn version(text: &str) -> Option<u32> {
    text.split_whitespace().nth(2)?.split('.').next()?.parse().ok()
}

fn choose(mut found: Vec<Binaries>, wanted: Option<u32>, data: &Path) -> Result<Binaries, BinariesError> {
    found.sort_by_key(|b| b.major);
    let host = found.iter().map(|b| b.major.to_string()).collect::<Vec<_>>().join(", ");
    match wanted {
        Some(cluster) => {
            found.into_iter().find(|b| b.major == cluster).ok_or_else(|| BinariesError::OtherMajor {
                data: data.to_owned(),
                cluster,
                host: if host.is_empty() { "none".to_owned() } else { host },
            })
        }
        None => found.into_iter().rfind(|b| b.major >= OLDEST).ok_or(BinariesError::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binaries(major: u32) -> Binaries {
        Binaries { bin: PathBuf::from(format!("/{major}")), major }
    }

    #[test]
    fn the_version_is_read_from_what_postgres_says() {
        assert_eq!(version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(version("postgres (PostgreSQL) 18devel"), None);
        assert_eq!(version(""), None);
    }

    #[test]
    fn a_cluster_keeps_its_major_version() {
        let data = Path::new("/data/postgres");
        let both = || vec![binaries(17), binaries(15)];
        assert_eq!(choose(both(), None, data).unwrap(), binaries(17));
        assert_eq!(choose(both(), Some(15), data).unwrap(), binaries(15));
        let error = choose(both(), Some(16), data).unwrap_err().to_string();
        assert!(error.contains("made by PostgreSQL 16, and this host has 15, 17"), "{error}");
        assert!(matches!(choose(vec![binaries(13)], None, data), Err(BinariesError::None)));
    }
}
