//! `basalt-region backup`, `restore` and `recover`.
//!
//! ```text
//! BACKUP/database.dump   pg_dump's custom format, of one moment
//! BACKUP/blobs/ab/abcd…  the bytes of images, by SHA-256
//! BACKUP/manifest.json   written last: without it the backup is not whole
//! ```
//! The seal key is not in it: whoever finds a backup cannot read the secrets in it. A restored database begins another
//! incarnation, which racks follow because it speaks with the certificate authority's key.

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

/// Of the files of a backup.
const FORMAT: u32 = 1;

/// What a backup is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    /// Version of the program that made it.
    version: String,
    taken_at: Timestamp,
    incarnation: Incarnation,
    /// The newest migration in it.
    schema: i64,
    /// A known text that the seal key opens.
    seal_check: Option<String>,
    /// By SHA-256.
    blobs: Vec<String>,
}

/// Why a backup was not made, or not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file or directory.
    #[error("cannot use {path}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The backup's directory is there.
    #[error("{} is there already; a backup goes into a directory of its own", .0.display())]
    Exists(PathBuf),
    /// There is nothing to back up.
    #[error("there is no region in {}; name its --data-dir, or its --database-url", .0.display())]
    Nothing(PathBuf),
    /// What is to be restored is no backup.
    #[error("{} is no whole backup: its manifest.json {why}", path.display())]
    NotWhole {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// It is of a newer program.
    #[error(
        "the backup was made by basalt-region {version}, whose database (schema {theirs}) this program (schema {ours}) does not know; restore it with that version or a newer one"
    )]
    Newer {
        /// Its version.
        version: String,
        /// Its schema.
        theirs: i64,
        /// Ours.
        ours: i64,
    },
    /// There is no seal key.
    #[error("there is no seal key in {}; copy the one of the lost region there (it is not in the backup), or name it with --seal-key-file", .0.display())]
    NoSealKey(PathBuf),
    /// It is another one.
    #[error("the seal key in {} is not the one that the backup's secrets are sealed with; nothing was restored", .0.display())]
    OtherSealKey(PathBuf),
    /// There is a region.
    #[error(
        "{0} holds a region already, and a restore replaces nothing; choose an empty --data-dir, or an empty database"
    )]
    Occupied(String),
    /// Regions run.
    #[error("regions still work on this database ({}); stop them first", .0.join(", "))]
    Alive(Vec<String>),
    /// The data directory.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// PostgreSQL, or its programs.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The database.
    #[error("the database")]
    Store(#[from] StoreError),
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::File { path, source }
}

/// A database to work on: an outside one, that of a region which runs, or the directory's own, started for this.
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

/// Whether the database is ours to start, since no region runs on it. What comes with that is held to the end: no region starts
/// on a database that stops with us.
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

/// Writes a backup to the new directory `to`, while the region runs or not. Answers what was saved, in words.
///
/// # Errors
/// [`BackupError`]; what was written so far is no backup, since it has no manifest.
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
        // Only where nothing is in it: then the same command can be tried again.
        let _ = std::fs::remove_dir(to);
    }
    written
}

async fn write(settings: &Settings, url: &str, to: &Path) -> Result<String, BackupError> {
    let Vitals { incarnation, seal_check, schema, .. } = recover::vitals(url).await?;
    cluster::dump(&settings.data_dir, url, &to.join("database.dump")).await?;
    // After the database: what it knows of is there by then.
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

/// Another name for the same bytes where that can be; they never change.
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

/// Makes a region from a backup: in an empty data directory, or on an empty database. Answers what was restored, in words.
///
/// # Errors
/// [`BackupError`]. There is no region then, and the same call may be made again.
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

/// Begins another incarnation, after a database went back in time by other means: a fail-over that lost commits, a restore
/// from a snapshot. Answers which, in words.
///
/// # Errors
/// [`BackupError`].
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
