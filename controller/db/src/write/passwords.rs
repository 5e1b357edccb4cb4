//! Hashes of passwords, computed before the transaction: a hash takes tens of milliseconds of CPU time, and no lock may be held
//! for so long.

use super::draft::{Put, parse};
use crate::object::Key;
use crate::seal::Place;
use crate::{Store, StoreError, password};
use basalt_api::SecretWrite;
use basalt_api::values::Uid;
use std::collections::HashMap;
use zeroize::Zeroizing;

/// A password that a spec declares.
pub(super) struct Hashed {
    /// The stored hash with which the password was compared. If it is another one in the transaction, another writer was faster.
    pub(super) compared: Option<Vec<u8>>,
    /// The new hash; `None` if the password is the stored one.
    pub(super) fresh: Option<Zeroizing<String>>,
}

/// The passwords of one put, by pointer.
pub(super) type Hashes = HashMap<String, Hashed>;

/// The passwords of a batch, by the places of their puts.
#[derive(Default)]
pub(super) struct Passwords(HashMap<usize, Hashes>);

impl Passwords {
    pub(super) async fn of(store: &Store, puts: &[Put<'_>]) -> Result<Self, StoreError> {
        let mut found = Self::default();
        for (place, put) in puts.iter().enumerate().filter(|(_, put)| password::has_hashed(put.kind.name)) {
            for secret in basalt_api::secrets(put.kind, &parse(put.spec.as_str())?) {
                let SecretWrite::Set(plain) = secret.write else { continue };
                if password::is_hashed(put.kind.name, &secret.pointer) {
                    let hashed = hashed(store, put, &secret.pointer, Zeroizing::new(plain)).await?;
                    found.0.entry(place).or_default().insert(secret.pointer, hashed);
                }
            }
        }
        Ok(found)
    }

    pub(super) fn of_put(&self, place: usize) -> Option<&Hashes> {
        self.0.get(&place)
    }
}

async fn hashed(
    store: &Store,
    put: &Put<'_>,
    pointer: &str,
    plain: Zeroizing<String>,
) -> Result<Hashed, StoreError> {
    let (name, uid) = match put.key {
        Key::Name(name) => (Some(name), None),
        Key::Uid(uid) => (None, Some(uid.get())),
    };
    let stored = sqlx::query!(
        "select s.object, s.sealed from secret s join object o on o.uid = s.object
         where o.kind = $1 and (o.name = $2 or $2 is null) and (o.uid = $3 or $3 is null) and s.pointer = $4",
        put.kind.name,
        name,
        uid,
        pointer
    );
    let stored = stored.fetch_optional(store.pool()).await?;
    let open =
        |object, sealed: &[u8]| store.seal().open(&Place { object: Uid::from(object), pointer }, sealed);
    let before = stored.as_ref().map(|row| open(row.object, &row.sealed)).transpose()?;
    let work = move || {
        let is_same = before
            .as_deref()
            .and_then(|hash| std::str::from_utf8(hash).ok())
            .is_some_and(|hash| password::verify_password(plain.as_bytes(), hash));
        if is_same { Ok(None) } else { password::hash_password(plain.as_bytes()).map(Some) }
    };
    let done = tokio::task::spawn_blocking(work).await;
    let fresh =
        done.map_err(|error| StoreError::Corrupt(format!("a password was not hashed: {error}")))??;
    Ok(Hashed { compared: stored.map(|row| row.sealed), fresh })
}
