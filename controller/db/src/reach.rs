//! Checks that the caller may write an object of its pool, in the transaction that writes the object.

use crate::object::Row;
use crate::store::Tx;
use crate::write::Judge;
use crate::{Store, StoreError};
use basalt_api::FieldCode;
use basalt_api::values::Uid;
use std::collections::{BTreeSet, HashMap};
use uuid::Uuid;

/// The pools of objects, by which roles are limited.
pub(crate) type Pools = HashMap<Uuid, Option<String>>;

/// A kind and a name.
pub type Named = (String, String);

/// The pools of these objects, as this transaction sees them.
pub(crate) async fn pools(tx: &mut Tx, objects: &[Uuid]) -> Result<Pools, StoreError> {
    let rows = sqlx::query!(
        "select uid, object_pool(kind, uid, spec) as pool from object where uid = any($1)",
        objects
    );
    Ok(rows.fetch_all(&mut **tx).await?.into_iter().map(|row| (row.uid, row.pool)).collect())
}

impl Store {
    /// The pools of these objects. Deleted objects are left out.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn pools_of(&self, objects: &[Uid]) -> Result<HashMap<Uid, Option<String>>, StoreError> {
        if objects.is_empty() {
            return Ok(HashMap::new());
        }
        let uids: Vec<Uuid> = objects.iter().map(|uid| uid.get()).collect();
        let pools = pools(&mut self.begin().await?, &uids).await?;
        Ok(pools.into_iter().map(|(uid, pool)| (Uid::from(uid), pool)).collect())
    }

    /// The pools of the objects of these kinds and names. A name that no object has is left out.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn pools_of_named(
        &self,
        named: &BTreeSet<Named>,
    ) -> Result<HashMap<Named, Option<String>>, StoreError> {
        if named.is_empty() {
            return Ok(HashMap::new());
        }
        let (kinds, names): (Vec<String>, Vec<String>) = named.iter().cloned().unzip();
        let rows = sqlx::query!(
            "select o.kind, o.name, object_pool(o.kind, o.uid, o.spec) as pool
             from unnest($1::text[], $2::text[]) u(kind, name) join object o on o.kind = u.kind and o.name = u.name",
            &kinds,
            &names
        );
        let rows = rows.fetch_all(self.pool()).await?;
        Ok(rows.into_iter().map(|row| ((row.kind, row.name), row.pool)).collect())
    }

    /// Refuses a change of a locked object that the judge does not allow.
    pub(crate) async fn within_reach(
        &self,
        tx: &mut Tx,
        row: &Row,
        judge: &dyn Judge,
    ) -> Result<(), StoreError> {
        let pools = match judge.minds_pools() {
            true => pools(tx, &[row.uid]).await?,
            false => Pools::new(),
        };
        let pool = pools.get(&row.uid).and_then(Option::as_deref);
        match judge.reach(&row.kind, &row.name, pool, None) {
            None => Ok(()),
            Some(error) if error.code == FieldCode::NotFound => {
                Err(StoreError::NotFound { kind: row.kind.clone(), name: row.name.clone() })
            }
            Some(error) => Err(StoreError::Refused { errors: vec![error] }),
        }
    }
}
