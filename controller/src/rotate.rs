//! `basalt-region rotate-seal-key`: seals a database's secrets with another key.
//!
//! | killed | the database has | a region that starts |
//! | --- | --- | --- |
//! | before the new key is in `seal-key.next` | the old key | finds that key in `seal-key` |
//! | before the transaction is committed | the old key | finds that key in `seal-key` |
//! | before `seal-key` is replaced | the new key | finds that key in `seal-key.next`, and moves it to `seal-key` |

use crate::backup::{BackupError, Database};
use crate::data_dir::{DataDir, DataDirError};
use crate::driver::kill::KillPoints;
use crate::seal_file::{KeyText, SealFile};
use crate::settings::Settings;
use basalt_db::recover::opens;
use basalt_db::rotate::{self, Rotated};
use basalt_db::{StoreError, cluster, recover};
use std::path::{Path, PathBuf};

/// The places at which a test kills the step `rotate`.
pub const PLACES: [&str; 4] = ["begun", "staged", "sealed", "committed"];

/// The reason why the key was not replaced. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// There is no database, or it cannot be started.
    #[error(transparent)]
    Database(#[from] BackupError),
    /// The data directory or a key file cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The given key is not the one of the database.
    #[error("the seal key in {} is not the one that the database's secrets are sealed with; give the right one with --seal-key-file", .0.display())]
    OtherSealKey(PathBuf),
    /// The new key is the present one.
    #[error("the key in {} is the one that is in use; make another one: openssl rand -hex 32", .0.display())]
    SameKey(PathBuf),
    /// Regions run on the database.
    #[error("regions still work on this database ({}); stop every one of them first: they would go on with the old key", .0.join(", "))]
    Alive(Vec<String>),
    /// The database needs a newer version of the program.
    #[error(
        "the database has the schema {theirs}, which this program (schema {ours}) does not know; rotate with the version that its regions have"
    )]
    Newer {
        /// The schema of the database.
        theirs: i64,
        /// The newest schema that this program knows.
        ours: i64,
    },
    /// The store failed.
    #[error("the secrets cannot be sealed anew; nothing has changed")]
    Store(#[from] StoreError),
}

/// Seals everything with the key in `new`, or with a generated one. Returns a sentence about the result.
///
/// # Errors
/// [`RotateError`]: nothing has changed.
pub async fn rotate(settings: &Settings, new: Option<&Path>) -> Result<String, RotateError> {
    if settings.database_url.is_none() && !cluster::exists_in(&settings.data_dir) {
        return Err(BackupError::Nothing(settings.data_dir.clone()).into());
    }
    let data_dir = DataDir::open(&settings.data_dir)?;
    let file = data_dir.seal_file(settings.seal_key_file.as_deref());
    let present = KeyText::read(file.path())?;
    let chosen = new.map(KeyText::read).transpose()?;
    let database = Database::of(settings, true).await?;
    let done = replaced(&data_dir, &file, &database.url, (present, chosen, new)).await;
    database.end().await;
    done
}

async fn replaced(
    data_dir: &DataDir,
    file: &SealFile,
    url: &str,
    (present, chosen, new): (KeyText, Option<KeyText>, Option<&Path>),
) -> Result<String, RotateError> {
    let kill = KillPoints::from_env();
    kill.at("rotate", "begun");
    let check = recover::vitals(url).await?.seal_check.unwrap_or_default();
    if let Some(staged) = file.staged()?
        && opens(&staged.key()?, &check)
    {
        let kept = file.adopt()?;
        return Ok(words("the rotation that was interrupted is complete", file, &kept));
    }
    if !opens(&present.key()?, &check) {
        return Err(RotateError::OtherSealKey(file.path().to_owned()));
    }
    let next = match chosen {
        Some(chosen) if chosen.is(&present) => {
            return Err(RotateError::SameKey(new.unwrap_or(file.path()).to_owned()));
        }
        Some(chosen) => chosen,
        None => KeyText::generate()?,
    };
    file.stage(&next)?;
    kill.at("rotate", "staged");
    let sealed = || kill.at("rotate", "sealed");
    let keys = (&present.key()?, &next.key()?);
    let rotated =
        rotate::rotate(url, keys, data_dir.process(), sealed).await.map_err(|error| match error {
            rotate::RotateError::OtherKey => RotateError::OtherSealKey(file.path().to_owned()),
            rotate::RotateError::Alive(living) => RotateError::Alive(living),
            rotate::RotateError::Newer { theirs, ours } => RotateError::Newer { theirs, ours },
            rotate::RotateError::Store(source) => RotateError::Store(source),
        })?;
    kill.at("rotate", "committed");
    let kept = file.adopt()?;
    let count = match rotated {
        Rotated::Now(count) => count,
        Rotated::Before => 0,
    };
    Ok(words(&format!("{count} secrets are sealed with another key"), file, &kept))
}

fn words(what: &str, file: &SealFile, kept: &Path) -> String {
    format!(
        "{what}, which is in {}: copy it to the other regions of this database before they start. The key before is kept in {}: \
         backups from before can only be read with it; delete it when there are none any more.",
        file.path().display(),
        kept.display()
    )
}
