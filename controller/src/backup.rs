//! `basalt-region backup`, `restore` and `recover`.
//!
//! ```text
//! BACKUP/database.dump   pg_dump's custom format, of one moment
//! BACKUP/blobs/ab/abcd…  the bytes of images, by SHA-256
//! BACKUP/manifest.json   written last: a backup without it is incomplete
//! ```
//! The seal key is not in it: a thief of a backup cannot read its secrets. A restored database begins another incarnation. Racks
//! accept it because the region has the certificate authority's key.

use crate::blobs;
use crate::data_dir::{DataDir, DataDirError};
use crate::settings::Settings;
use basalt_api::values::{Incarnation, Timestamp};
use basalt_db::cluster::{self, Cluster, ClusterError, ClusterOptions};
use basalt_db::recover::{self, Vitals};
use basalt_db::{SealKey, StoreError};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The format of a backup's files.
const FORMAT: u32 = 1;

/// The description of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    /// The version of the program that made it.
    version: String,
    taken_at: Timestamp,
    incarnation: Incarnation,
    /// The newest migration in it.
    schema: i64,
    /// A known text that the seal key opens.
    seal_check: Option<String>,
    /// The SHA-256 of each blob.
    blobs: Vec<String>,
}

/// The reason why a backup was not made or not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file or directory cannot be used.
    #[error("cannot use {path}", path = path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The backup's directory exists already.
    #[error("{} is there already; a backup goes into a directory of its own", .0.display())]
    Exists(PathBuf),
    /// There is nothing to back up.
    #[error("there is no region in {}; name its --data-dir, or its --database-url", .0.display())]
    Nothing(PathBuf),
    /// The directory is not a complete backup.
    #[error("{} is no whole backup: its manifest.json {why}", path.display())]
    NotWhole {
        /// The path of the directory.
        path: PathBuf,
        /// The problem of its manifest.
        why: String,
    },
    /// A newer program made the backup.
    #[error(
        "the backup was made by basalt-region {version}, whose database (schema {theirs}) this program (schema {ours}) does not know; restore it with that version or a newer one"
    )]
    Newer {
        /// The version of that program.
        version: String,
        /// The schema of the backup.
        theirs: i64,
        /// The newest schema that this program knows.
        ours: i64,
    },
    /// There is no seal key.
    #[error("there is no seal key in {}; copy the one of the lost region there (it is not in the backup), or name it with --seal-key-file", .0.display())]
    NoSealKey(PathBuf),
    /// The seal key is not the one of the backup.
    #[error("the seal key in {} is not the one that the backup's secrets are sealed with; nothing was restored", .0.display())]
    OtherSealKey(PathBuf),
    /// The data directory or the database holds a region already.
    #[error(
        "{0} holds a region already, and a restore replaces nothing; choose an empty --data-dir, or an empty database"
    )]
    Occupied(String),
    /// Regions run on the database.
    #[error("regions still work on this database ({}); stop them first", .0.join(", "))]
    Alive(Vec<String>),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// PostgreSQL or one of its programs failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The database failed.
    #[error("the database")]
    Store(#[from] StoreError),
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::File { path, source }
}

/// The database: an outside one, the one of a running region, or the directory's own, started for this command.
pub(crate) struct Database {
    pub(crate) url: String,
    started: Option<Cluster>,
}

impl Database {
    pub(crate) async fn of(settings: &Settings, own: bool) -> Result<Self, BackupError> {
        match (&settings.database_url, own) {
            (Some(url), _) => Ok(Self { url: url.clone(), started: None }),
            (None, false) => Ok(Self { url: cluster::url_in(&settings.data_dir), started: None }),
            (None, true) => {
                let options = ClusterOptions {
                    dir: settings.data_dir.clone(),
                    account: settings.postgres_user.clone(),
                    settings: Vec::new(),
                };
                let cluster = Cluster::start(options).await?;
                Ok(Self { url: cluster.url(), started: Some(cluster) })
            }
        }
    }

    pub(crate) async fn end(self) {
        if let Some(cluster) = self.started {
            cluster.stop().await;
        }
    }
}

/// Decides if this process must start the database itself: only if no region runs on it. The lock is then held to the end, so that
/// no region starts on a database that stops with this process.
pub(crate) fn beside(settings: &Settings) -> Result<(Option<DataDir>, bool), BackupError> {
    if settings.database_url.is_none() && !cluster::exists_in(&settings.data_dir) {
        return Err(BackupError::Nothing(settings.data_dir.clone()));
    }
    match DataDir::open(&settings.data_dir) {
        Ok(lock) => Ok((Some(lock), true)),
        Err(DataDirError::Locked(_)) => Ok((None, false)),
        Err(other) => Err(other.into()),
    }
}

/// Writes a backup to the new directory `to`. The region may run. Returns a sentence about the saved data.
///
/// # Errors
/// [`BackupError`]: the files written so far are no backup, because they have no manifest.
pub async fn backup(settings: &Settings, to: &Path) -> Result<String, BackupError> {
    if to.exists() {
        return Err(BackupError::Exists(to.to_owned()));
    }
    let (_lock, own) = beside(settings)?;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(to).map_err(file_error(to))?;
    let database = Database::of(settings, own).await?;
    let written = write(settings, &database.url, to).await;
    database.end().await;
    if written.is_err() {
        // The directory is removed only if it is empty, so that the same command can be repeated.
        let _ = std::fs::remove_dir(to);
    }
    written
}

async fn write(settings: &Settings, url: &str, to: &Path) -> Result<String, BackupError> {
    let Vitals { incarnation, seal_check, schema, .. } = recover::vitals(url).await?;
    cluster::dump(&settings.data_dir, url, &to.join("database.dump")).await?;
    // Copy the blobs after the database, so that none of the blobs that the dump names is missing.
    let (from, there) = (settings.data_dir.join("blobs"), to.join("blobs"));
    let saved = blobs::whole(&from).map_err(file_error(&from))?;
    let mut bytes = 0;
    for (sha256, path) in &saved {
        bytes += copy(path, &blobs::place_in(&there, sha256))?;
    }
    let manifest = Manifest {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        taken_at: Timestamp::now(),
        incarnation,
        schema,
        seal_check: seal_check.map(hex::encode),
        blobs: saved.iter().map(|(sha256, _)| hex::encode(sha256)).collect(),
    };
    let path = to.join("manifest.json");
    let text = serde_json::to_string_pretty(&manifest).unwrap_or_default();
    std::fs::write(&path, text).map_err(file_error(&path))?;
    sync(&path)?;
    sync(to)?;
    let dump = to.join("database.dump");
    let database = std::fs::metadata(&dump).map_err(file_error(&dump))?.len();
    sync(&dump)?;
    Ok(format!(
        "{}: the database ({} KiB) and {} blobs ({} MiB). Keep the seal key apart from it: without the key its secrets \
         cannot be read, and no region starts on it.",
        to.display(),
        database.div_ceil(1024),
        saved.len(),
        bytes.div_ceil(1 << 20)
    ))
}

/// Makes a hard link if possible, or else a copy. Blobs never change.
fn copy(from: &Path, to: &Path) -> Result<u64, BackupError> {
    if let Some(dir) = to.parent() {
        std::fs::create_dir_all(dir).map_err(file_error(dir))?;
    }
    if std::fs::hard_link(from, to).is_err() {
        std::fs::copy(from, to).map_err(file_error(to))?;
        sync(to)?;
    }
    Ok(std::fs::metadata(to).map_err(file_error(to))?.len())
}

fn sync(path: &Path) -> Result<(), BackupError> {
    std::fs::File::open(path).and_then(|file| file.sync_all()).map_err(file_error(path))
}

/// Makes a region from a backup: in an empty data directory, or on an empty database. Returns a sentence about the restored data.
///
/// # Errors
/// [`BackupError`]: there is no region then, and the same call may be repeated.
pub async fn restore(settings: &Settings, from: &Path) -> Result<String, BackupError> {
    let manifest = read(from)?;
    let ours = recover::known_schema();
    if manifest.schema > ours {
        return Err(BackupError::Newer { version: manifest.version, theirs: manifest.schema, ours });
    }
    let data_dir = DataDir::open(&settings.data_dir)?;
    let own = settings.database_url.is_none();
    if own && cluster::exists_in(data_dir.path()) {
        return Err(BackupError::Occupied(data_dir.path().display().to_string()));
    }
    let key_file = settings.seal_key_file.clone().unwrap_or_else(|| data_dir.path().join("seal-key"));
    if !key_file.exists() {
        return Err(BackupError::NoSealKey(key_file));
    }
    let key = data_dir.seal_key(Some(&key_file))?;
    check_key(&manifest, &key, key_file)?;
    let database = Database::of(settings, true).await?;
    let filled = fill(data_dir.path(), &database.url, from, &manifest).await;
    database.end().await;
    if filled.is_err() && own {
        let path = data_dir.path();
        cluster::remove_from(path).map_err(file_error(path))?;
    }
    filled
}

fn read(from: &Path) -> Result<Manifest, BackupError> {
    let not_whole = |why: String| BackupError::NotWhole { path: from.to_owned(), why };
    let text = std::fs::read_to_string(from.join("manifest.json"))
        .map_err(|error| not_whole(format!("cannot be read ({error})")))?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|error| not_whole(format!("says something else ({error})")))?;
    match manifest.format {
        FORMAT => Ok(manifest),
        other => Err(not_whole(format!("is of format {other}, and this program reads {FORMAT}"))),
    }
}

fn check_key(manifest: &Manifest, key: &SealKey, file: PathBuf) -> Result<(), BackupError> {
    let Some(check) = &manifest.seal_check else { return Ok(()) };
    match hex::decode(check) {
        Ok(check) if recover::opens(key, &check) => Ok(()),
        _ => Err(BackupError::OtherSealKey(file)),
    }
}

async fn fill(dir: &Path, url: &str, from: &Path, manifest: &Manifest) -> Result<String, BackupError> {
    if recover::holds_a_region(url).await? {
        return Err(BackupError::Occupied("the database".to_owned()));
    }
    cluster::load(dir, url, &from.join("database.dump")).await?;
    let incarnation = recover::recover(url).await?;
    let mut kept = Vec::new();
    for (sha256, path) in blobs::whole(&from.join("blobs")).map_err(file_error(from))? {
        let actual = blobs::hash_file(&path).map_err(file_error(&path))?;
        if actual == sha256 {
            copy(&path, &blobs::place_in(&dir.join("blobs"), &sha256))?;
            kept.push(sha256);
        } else {
            tracing::error!(path = %path.display(), "the bytes have another hash; the blob is not restored");
        }
    }
    let lost = recover::forget_blobs(url, &kept).await?;
    let mut words = format!(
        "restored what was saved at {}, with {} blobs, as incarnation {incarnation}. Everything since then is unknown to this \
         region: look at `basalt get deployments` before it works on machines that were installed later.",
        manifest.taken_at,
        kept.len()
    );
    if lost > 0 {
        words.push_str(&format!(
            " {lost} blobs are lost: their images say which files are missing; upload them again."
        ));
    }
    Ok(words)
}

/// Begins another incarnation, after a database went back in time by other means: a fail-over that lost commits, or a restore
/// from a snapshot. Returns a sentence with the new incarnation.
///
/// # Errors
/// [`BackupError`]: nothing was changed.
pub async fn recover(settings: &Settings) -> Result<String, BackupError> {
    if settings.database_url.is_none() && !cluster::exists_in(&settings.data_dir) {
        return Err(BackupError::Nothing(settings.data_dir.clone()));
    }
    let _lock = DataDir::open(&settings.data_dir)?;
    let database = Database::of(settings, true).await?;
    let renewed = renew(&database.url).await;
    database.end().await;
    renewed
}

async fn renew(url: &str) -> Result<String, BackupError> {
    let before = recover::vitals(url).await?;
    if !before.living.is_empty() {
        return Err(BackupError::Alive(before.living));
    }
    let now = recover::recover(url).await?;
    Ok(format!("incarnation {} is over, {now} begins; racks follow when a region starts", before.incarnation))
}
