//! The token of a region's first admin: `DIR/admin-token`.
//!
//! It is the text of an ApiToken, which is listed, revoked and deleted like any other. The first start in a directory creates it, and
//! later starts do not, so a deleted token stays deleted. `basalt-region admin-token` creates another one.
//!
//! The hash of a token is stored first, and then its ApiToken. If the region is killed in between, the next start completes that.
//! Regions of the previous version stored only the hash.

use crate::api::{first_status, fresh_token};
use crate::backup::{self, BackupError, Database};
use crate::data_dir::{ADMIN_TOKEN, DataDirError, write_secret};
use crate::region;
use crate::seal_file::KeyText;
use crate::settings::Settings;
use basalt_api::kinds::{ApiToken, Role};
use basalt_api::{Kind, KindOf};
use basalt_db::splice::Text;
use basalt_db::{Actor, Key, Precondition, Put, SealKey, Store, StoreError};
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// The Role of all these tokens.
const ROLE: &str = "region-admin";

/// The reason why no other token was made.
#[derive(Debug, thiserror::Error)]
pub enum AdminTokenError {
    /// There is no database, or it cannot be started.
    #[error(transparent)]
    Database(#[from] BackupError),
    /// The data directory or the seal key cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The store failed.
    #[error("the token cannot be stored")]
    Store(#[from] StoreError),
}

/// Makes another token in `DIR/admin-token`. The region may run. Returns a sentence about the result.
///
/// # Errors
/// [`AdminTokenError`]: the file was not changed.
pub async fn another(settings: &Settings) -> Result<String, AdminTokenError> {
    let (_lock, own) = backup::beside(settings)?;
    let key_file = settings.seal_key_file.clone().unwrap_or_else(|| settings.data_dir.join("seal-key"));
    let seal = KeyText::read(&key_file)?.key()?;
    let database = Database::of(settings, own).await?;
    let made = made(settings, &database.url, seal).await;
    database.end().await;
    made
}

async fn made(settings: &Settings, url: &str, seal: SealKey) -> Result<String, AdminTokenError> {
    let store = Store::open(region::options(settings, url), seal).await?;
    let uid = std::fs::metadata("/proc/self").map(|process| process.uid()).unwrap_or_default();
    let actor = Actor {
        name: format!("peer uid {uid}"),
        address: "this host".to_owned(),
        request: "basalt-region admin-token".to_owned(),
    };
    let text = fresh_token()?;
    let adopted = match note(&store, &text).await {
        Ok(()) => adopt(&store.acting(Arc::new(actor))).await,
        Err(error) => Err(error),
    };
    store.close().await;
    let names = adopted?;
    let path = settings.data_dir.join(ADMIN_TOKEN);
    write_secret(&path, &text)?;
    Ok(format!(
        "{} holds the text of another ApiToken ({}). Those before it stay good until they are deleted: basalt get api_tokens",
        path.display(),
        names.join(", ")
    ))
}

/// Makes this text valid, before it belongs to an ApiToken.
pub(crate) async fn note(store: &Store, text: &str) -> Result<(), StoreError> {
    store.put_token("admin", text, "admin", None).await
}

/// Makes an ApiToken for every token of which only the hash is stored. Returns their names.
pub(crate) async fn adopt(store: &Store) -> Result<Vec<String>, StoreError> {
    let mut names = Vec::new();
    for sha256 in store.noted_tokens().await? {
        let [a, b, c, d, ..] = sha256;
        let name = format!("admin-{}", hex::encode([a, b, c, d]));
        declare(
            store,
            Role::KIND,
            ROLE,
            &json!({"base": "admin", "description": "Of regions' first tokens"}),
        )
        .await?;
        let token = json!({"role": ROLE, "description": "Made by a region, in its DIR/admin-token"});
        declare(store, ApiToken::KIND, &name, &token).await?;
        store.adopt_token(Key::Name(&name), &sha256).await?;
        names.push(name);
    }
    Ok(names)
}

/// Declares an object, if it does not exist yet.
async fn declare(store: &Store, kind: &'static Kind, name: &str, spec: &Value) -> Result<(), StoreError> {
    let text = Text::parse(spec.to_string()).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    let put = Put {
        kind,
        key: Key::Name(name),
        spec: &text,
        at: "",
        labels: None,
        manager: None,
        adopt: false,
        precondition: Precondition::Absent,
        first_status: &first_status(kind.name, store.now().await?),
    };
    match store.put(&put).await {
        Ok(_) | Err(StoreError::Exists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
