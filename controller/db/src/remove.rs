//! Deletion: clients request it, and it is completed when nothing prevents it.

use crate::object::{self, Key, Object, Referrer, Row, select_objects, signed};
use crate::store::Tx;
use crate::write::TRIES;
use crate::write::{Judge, NoJudge};
use crate::{Precondition, Store, StoreError, audit, change};
use basalt_api::kinds::Deployment;
use basalt_api::values::Uid;
use basalt_api::{FieldCode, FieldError, Kind, KindOf};

/// A request to delete an object.
#[derive(Clone, Copy)]
pub struct Removal<'a> {
    /// The object's kind.
    pub kind: &'a str,
    /// The object's name or uid.
    pub key: Key<'a>,
    /// The condition that the object must meet.
    pub precondition: Precondition,
    /// Do everything, then roll back.
    pub dry_run: bool,
    /// Do not wait for the driver: a deployment's machine is released in its present state.
    pub force: bool,
    /// Do nothing if any object refers to it.
    pub if_unused: bool,
    /// Rules of the caller, beside the store's own.
    pub judge: &'a dyn Judge,
}

impl std::fmt::Debug for Removal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Removal");
        shown.field("kind", &self.kind).field("key", &self.key);
        shown.field("dry_run", &self.dry_run).field("force", &self.force);
        shown.field("if_unused", &self.if_unused);
        shown.finish_non_exhaustive()
    }
}

/// The result of a request to delete.
#[derive(Clone, Debug)]
pub enum Deletion {
    /// The object is gone.
    Gone,
    /// The object stays until `waits_for` is empty and its driver has finished.
    Waits {
        /// The object's present state.
        object: Box<Object>,
        /// The objects that still refer to it.
        waits_for: Vec<Referrer>,
    },
    /// Deletion was requested only for an unused object, but the object is in use. Nothing changed.
    InUse {
        /// The objects that refer to it.
        by: Vec<Referrer>,
    },
}

impl Store {
    /// Requests an object's deletion; a repeated request changes nothing. Kinds without a driver are deleted at once if no object refers
    /// to them.
    ///
    /// # Errors
    /// `NotFound`, `Conflict`; fails too if the database cannot be written.
    pub async fn request_deletion(
        &self,
        kind: &str,
        key: Key<'_>,
        precondition: Precondition,
        dry_run: bool,
    ) -> Result<Deletion, StoreError> {
        let removal =
            Removal { kind, key, precondition, dry_run, force: false, if_unused: false, judge: &NoJudge };
        self.delete(removal).await
    }

    /// Like [`Store::request_deletion`], with all options.
    ///
    /// # Errors
    /// `NotFound`, `Conflict`, `Refused`; fails too if the database cannot be written.
    pub async fn delete(&self, removal: Removal<'_>) -> Result<Deletion, StoreError> {
        let mut tries = 1;
        loop {
            match Box::pin(self.delete_once(removal)).await {
                // The driver changed the object in the same moment.
                Err(error) if error.is_race() && tries < TRIES => tries += 1,
                done => return done,
            }
        }
    }

    async fn delete_once(&self, removal: Removal<'_>) -> Result<Deletion, StoreError> {
        let Removal { kind, key, precondition, dry_run, force, if_unused, judge } = removal;
        let mut tx = self.begin().await?;
        let Some(row) = object::lock(&mut tx, kind, key).await? else {
            return Err(object::not_found(kind, key));
        };
        self.within_reach(&mut tx, &row, judge).await?;
        let errors = judge.removal(&row.clone().object()?);
        if !errors.is_empty() {
            return Err(StoreError::Refused { errors });
        }
        if let Precondition::Generation(wanted) = precondition
            && signed(wanted.get()) != row.generation
        {
            let current = Some(basalt_api::values::Generation::new(object::unsigned(row.generation)));
            return Err(StoreError::Conflict { kind: row.kind, name: row.name, current });
        }
        let uid = Uid::from(row.uid);
        let first = row.deletion_us.is_none();
        // The row is locked, so no new reference can appear. An object whose deletion was requested before cannot be kept.
        if first && if_unused {
            let by = object::referrers(&mut tx, uid).await?;
            if !by.is_empty() {
                return Ok(Deletion::InUse { by });
            }
        }
        if first {
            let update =
                sqlx::query!("update object set deletion_requested_at = now() where uid = $1", row.uid);
            update.execute(&mut *tx).await?;
            change::record(&mut tx, &row, change::Op::Put).await?;
            self.wake_around(&mut tx, uid).await?;
        }
        if first || force {
            self.audit(&mut tx, &[audit::Written::removal(&row)]).await?;
        }
        // Other kinds keep what they have until they are deleted.
        if force && row.kind == Deployment::KIND.name {
            self.let_go_as_it_is(&mut tx, uid).await?;
        }
        let waits_for = object::referrers(&mut tx, uid).await?;
        if waits_for.is_empty() && (force || !Kind::is_planned(kind)) {
            self.remove(&mut tx, row).await?;
            self.end(tx, dry_run).await?;
            return Ok(Deletion::Gone);
        }
        let row = select_objects!("where uid = $1", uid.get()).fetch_one(&mut *tx).await?;
        self.end(tx, dry_run).await?;
        Ok(Deletion::Waits { object: Box::new(row.object()?), waits_for })
    }

    /// Releases a deployment's machine and addresses as they are. The machine's disks have not been checked.
    async fn let_go_as_it_is(&self, tx: &mut Tx, uid: Uid) -> Result<(), StoreError> {
        let locked = sqlx::query_scalar!(
            "select m.name from machine_claim c join object m on m.uid = c.machine
             where c.deployment = $1 and coalesce((m.spec->>'locked')::boolean, false)",
            uid.get()
        );
        if let Some(machine) = locked.fetch_optional(&mut **tx).await? {
            let message = format!("its machine {machine:?} has locked = true");
            let error = FieldError::new(
                "",
                FieldCode::Rule,
                message,
                "set it to false first, in a change of its own",
            );
            return Err(StoreError::Refused { errors: vec![error] });
        }
        self.wake_around(tx, uid).await?;
        let mark = sqlx::query!(
            "with freed as (delete from machine_claim where deployment = $1 returning machine)
             insert into machine_mark (machine, unwiped) select machine, true from freed
             on conflict (machine) do update set unwiped = true",
            uid.get()
        );
        mark.execute(&mut **tx).await?;
        self.free_addresses(tx, uid, &[]).await
    }

    /// Deletes an object whose deletion was requested, once its driver has finished. The caller holds the object's lease.
    ///
    /// # Errors
    /// `NotFound` if the object is gone or its deletion was not requested. Fails too if the database cannot be written.
    pub async fn finalise(&self, uid: Uid) -> Result<Deletion, StoreError> {
        let mut tx = self.begin().await?;
        let row =
            select_objects!("where uid = $1 and deletion_requested_at is not null for update", uid.get());
        let Some(row) = row.fetch_optional(&mut *tx).await? else {
            return Err(StoreError::NotFound {
                kind: "deleted object".to_owned(),
                name: format!("uid:{uid}"),
            });
        };
        let waits_for = object::referrers(&mut tx, uid).await?;
        if !waits_for.is_empty() {
            return Ok(Deletion::Waits { object: Box::new(row.object()?), waits_for });
        }
        self.remove(&mut tx, row).await?;
        self.commit(tx).await?;
        Ok(Deletion::Gone)
    }

    /// Removes a row without references to it, and every deleted object that waited only for this row.
    pub(crate) async fn remove(&self, tx: &mut Tx, row: Row) -> Result<(), StoreError> {
        let mut leaving = vec![row];
        while let Some(row) = leaving.pop() {
            let waiting = select_objects!(
                "where deletion_requested_at is not null and uid = any(array(
                   select to_uid from object_ref where from_uid = $1
                   union select subnet from address where owner = $1 and subnet <> $1
                   union select machine from machine_claim where deployment = $1))
                 order by uid for update",
                row.uid
            );
            let waiting = waiting.fetch_all(&mut **tx).await?;
            self.wake_around(tx, Uid::from(row.uid)).await?;
            sqlx::query!("delete from object where uid = $1", row.uid).execute(&mut **tx).await?;
            sqlx::query!("delete from reconcile_queue where object = $1", row.uid).execute(&mut **tx).await?;
            change::record(tx, &row, change::Op::Delete).await?;
            for waiter in waiting {
                let free = object::referrers(tx, Uid::from(waiter.uid)).await?.is_empty();
                if free && !Kind::is_planned(&waiter.kind) {
                    leaving.push(waiter);
                } else {
                    // It reads differently now: it waits for fewer.
                    change::record(tx, &waiter, change::Op::Status).await?;
                }
            }
        }
        Ok(())
    }
}
