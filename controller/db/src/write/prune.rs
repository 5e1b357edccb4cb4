//! Pruning: deletes objects that their manager no longer declares.

use super::Batch;
use crate::object::{self, Key, Object, Referrer, Row, select_objects};
use crate::store::Tx;
use crate::{Store, StoreError, change, reach};
use basalt_api::Kind;
use basalt_api::values::Uid;

/// Selects the objects to delete, among those that are not in the puts.
#[derive(Clone, Copy, Debug)]
pub struct Prune<'a> {
    /// The manager of the objects.
    pub manager: &'a str,
    /// The label that the manager gave them.
    pub label: &'a str,
    /// The value of that label.
    pub value: &'a str,
}

/// An object that was deleted, or whose deletion was requested.
#[derive(Clone, Debug)]
pub struct Pruned {
    /// The object before its deletion; if it still exists, in its present state.
    pub object: Object,
    /// The objects that still refer to it and keep it for now.
    pub waits_for: Vec<Referrer>,
    /// True if it was deleted; false if its deletion is in progress.
    pub gone: bool,
}

/// Locks the objects to delete and requests their deletion, so that no new reference appears. Objects that the caller may not delete
/// are left out.
pub(super) async fn mark(tx: &mut Tx, prune: &Prune<'_>, batch: &Batch<'_>) -> Result<Vec<Row>, StoreError> {
    let (kinds, names): (Vec<String>, Vec<String>) = batch
        .puts
        .iter()
        .filter_map(|put| match put.key {
            Key::Name(name) => Some((put.kind.name.to_owned(), name.to_owned())),
            Key::Uid(_) => None,
        })
        .unzip();
    let rows = select_objects!(
        "where manager = $1 and labels -> $1 ->> $2 = $3 and deletion_requested_at is null
           and not exists (select from unnest($4::text[], $5::text[]) u(k, n) where u.k = kind and u.n = name)
         order by uid for update",
        prune.manager,
        prune.label,
        prune.value,
        &kinds,
        &names
    );
    let mut rows = rows.fetch_all(&mut **tx).await?;
    let all: Vec<uuid::Uuid> = rows.iter().map(|row| row.uid).collect();
    let pools = match batch.judge.minds_pools() {
        true => reach::pools(tx, &all).await?,
        false => reach::Pools::new(),
    };
    rows.retain(|row| {
        let pool = pools.get(&row.uid).and_then(Option::as_deref);
        batch.judge.reach(&row.kind, &row.name, pool, None).is_none()
    });
    let uids: Vec<uuid::Uuid> = rows.iter().map(|row| row.uid).collect();
    let update = sqlx::query!("update object set deletion_requested_at = now() where uid = any($1)", &uids);
    update.execute(&mut **tx).await?;
    Ok(rows)
}

/// Objects in deletion to which the writers refer. The write may remove the last reference to them.
pub(super) async fn held(tx: &mut Tx, writers: &[uuid::Uuid]) -> Result<Vec<Row>, StoreError> {
    let rows = select_objects!(
        "where deletion_requested_at is not null
           and uid = any(array(select to_uid from object_ref where from_uid = any($1)))
         order by uid for update",
        writers
    );
    Ok(rows.fetch_all(&mut **tx).await?)
}

impl Store {
    /// Deletes those of [`held`] that have no reference to them any more, and wakes the others.
    pub(super) async fn free(&self, tx: &mut Tx, held: Vec<Row>) -> Result<(), StoreError> {
        for row in held {
            let uid = Uid::from(row.uid);
            if Kind::is_planned(&row.kind) {
                self.wake_around(tx, uid).await?;
            } else if object::referrers(tx, uid).await?.is_empty() {
                self.remove(tx, row).await?;
            }
        }
        Ok(())
    }

    /// Deletes the objects that have no reference to them and need no driver. The deletion of the others is in progress from now on.
    pub(super) async fn let_go(&self, tx: &mut Tx, leaving: Vec<Row>) -> Result<Vec<Pruned>, StoreError> {
        if leaving.is_empty() {
            return Ok(Vec::new());
        }
        change::record_all(tx, &leaving, change::Op::Put).await?;
        let uids: Vec<uuid::Uuid> = leaving.iter().map(|row| row.uid).collect();
        self.wake_around_all(tx, &uids).await?;
        for row in &leaving {
            if Kind::is_planned(&row.kind) || !object::referrers(tx, Uid::from(row.uid)).await?.is_empty() {
                continue;
            }
            // An object that waited only for another one of the batch is deleted already.
            let here = select_objects!("where uid = $1", row.uid).fetch_optional(&mut **tx).await?;
            if let Some(here) = here {
                self.remove(tx, here).await?;
            }
        }
        let mut pruned = Vec::with_capacity(leaving.len());
        for row in leaving {
            let here = select_objects!("where uid = $1", row.uid).fetch_optional(&mut **tx).await?;
            let waits_for = match here {
                Some(_) => object::referrers(tx, Uid::from(row.uid)).await?,
                None => Vec::new(),
            };
            let gone = here.is_none();
            pruned.push(Pruned { gone, waits_for, object: here.unwrap_or(row).object()? });
        }
        pruned.sort_by(|a, b| (&a.object.kind, &a.object.name).cmp(&(&b.object.kind, &b.object.name)));
        Ok(pruned)
    }
}
