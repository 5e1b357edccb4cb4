//! Deletion: asked for by clients, finished when nothing stands against it.

use crate::object::{self, Key, Object, Referrer, Row, select_objects, signed};
use crate::store::Tx;
use crate::write::TRIES;
use crate::write::{Judge, NoJudge};
use crate::{Precondition, Store, StoreError, audit, change};
use basalt_api::kinds::Deployment;
use basalt_api::values::Uid;
use basalt_api::{FieldCode, FieldError, KindOf};

/// What is to be deleted, by whom.
#[derive(Clone, Copy)]
pub struct Removal<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Which.
    pub key: Key<'a>,
    /// What has to hold before.
    pub precondition: Precondition,
    /// Do everything, then roll back.
    pub dry_run: bool,
    /// Do not wait for its machinery: a deployment's machine is let go as it is.
    pub force: bool,
    /// Leave it as it is where anybody refers to it.
    pub if_unused: bool,
    /// What may stand against it beside the store's own rules.
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

/// What a request to delete came to.
#[derive(Clone, Debug)]
pub enum Deletion {
    /// The object is gone.
    Gone,
    /// It stays until `waits_for` is gone, or its machinery has let go.
    Waits {
        /// As it is now.
        object: Box<Object>,
        /// Who still refers to it.
        waits_for: Vec<Referrer>,
    },
    /// It was to go only if nobody refers to it, and stays as it was.
    InUse {
        /// Who refers to it.
        by: Vec<Referrer>,
    },
}

impl Store {
    /// Asks for an object's deletion; again is the same. Kinds without machinery leave at once when nobody refers to them.
    ///
    /// # Errors
    /// `NotFound`, `Conflict`, or the database.
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

    /// The same, where something may stand against it.
    ///
    /// # Errors
    /// `NotFound`, `Conflict`, `Refused`, or the database.
    pub async fn delete(&self, removal: Removal<'_>) -> Result<Deletion, StoreError> {
        let mut tries = 1;
        loop {
            match Box::pin(self.delete_once(removal)).await {
                // Machinery that works on the object met us.
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
        // Nobody begins to refer to it from here on: its row is locked. What was asked to go before has lost that choice.
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
        // What else is asked to go keeps what it has until it goes.
        if force && row.kind == Deployment::KIND.name {
            self.let_go_as_it_is(&mut tx, uid).await?;
        }
        let waits_for = object::referrers(&mut tx, uid).await?;
        if waits_for.is_empty() && (force || !self.is_planned(kind)) {
            self.remove(&mut tx, row).await?;
            self.end(tx, dry_run).await?;
            return Ok(Deletion::Gone);
        }
        let row = select_objects!("where uid = $1", uid.get()).fetch_one(&mut *tx).await?;
        self.end(tx, dry_run).await?;
        Ok(Deletion::Waits { object: Box::new(row.object()?), waits_for })
    }

    /// Takes a deployment's machine and addresses from it as they are: nobody has looked what the machine's disks hold.
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

    /// Lets a deleted object leave, once its machinery has nothing more to do. The caller holds its lease.
    ///
    /// # Errors
    /// `NotFound` when it is gone, or its deletion was not asked for; or the database.
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

    /// Removes a row that nobody refers to, and everything deleted that only waited for it.
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
                if free && !self.is_planned(&waiter.kind) {
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
