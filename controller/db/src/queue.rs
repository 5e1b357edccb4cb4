//! The reconcile queue: one table for all kinds, wake-ups that are never lost, leases fenced by epochs.
//!
//! The rows of the queue are always locked in the order of their uids, and a status write does not lock its own row. Any other order would
//! deadlock a machine and its deployment, which wake each other.

use crate::change;
use crate::object::{select_objects, signed, unsigned};
use crate::store::{FROM_SPECS, Tx};
use crate::{Store, StoreError};
use basalt_api::values::{Epoch, Generation, Uid};
use serde_json::Value;
use std::time::Duration;

/// A claimed object: no other process handles it until the lease ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkLease {
    /// The object's kind.
    pub kind: String,
    /// The object's uid.
    pub uid: Uid,
    /// The number that fences every write under this lease.
    pub epoch: Epoch,
    /// The number of the last wake-up before the claim. Later wake-ups survive [`Store::finish`].
    pub wake: i64,
    /// Claims since the last finish, including this one. More than 1 means that an earlier handler died or failed.
    pub attempts: i32,
    /// The trace of the last wake-up, if it is recent.
    pub trace: Option<String>,
}

/// The result of a write of a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusWrite {
    /// The status was the same already.
    Unchanged,
    /// The status was written.
    Written {
        /// The phase that the object left, and how long it was in that phase.
        left: Option<(String, Duration)>,
    },
}

/// Work that begins this long after a wake-up no longer belongs to its trace.
const TRACED_FOR: Duration = Duration::from_secs(3600);

/// The next action on an object after it was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Nothing until something wakes the object.
    WhenWoken,
    /// Handle it again after this time, or earlier if something wakes it.
    After(Duration),
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

impl Store {
    /// Claims up to `limit` objects that are due.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn claim(&self, owner: Uid, limit: i64, lease: Duration) -> Result<Vec<WorkLease>, StoreError> {
        let rows = sqlx::query!(
            "with due as (
               select kind, object from reconcile_queue
               where not_before <= now() and (lease_until is null or lease_until < now())
               order by not_before limit $2 for update skip locked)
             update reconcile_queue q
             set lease_owner = $1, lease_epoch = nextval('epoch'), lease_until = now() + make_interval(secs => $3),
                 attempts = q.attempts + 1
             from due where q.kind = due.kind and q.object = due.object
             returning q.kind, q.object, q.wake, q.lease_epoch, q.attempts,
               case when q.traced_at > now() - make_interval(secs => $4) then q.trace end as trace",
            owner.get(),
            limit,
            seconds(lease),
            seconds(TRACED_FOR)
        );
        let rows = rows.fetch_all(self.pool()).await?;
        Ok(rows
            .into_iter()
            .map(|r| WorkLease {
                kind: r.kind,
                uid: Uid::from(r.object),
                epoch: Epoch::new(unsigned(r.lease_epoch)),
                wake: r.wake,
                attempts: r.attempts,
                trace: r.trace,
            })
            .collect())
    }

    /// Extends a lease; the new time counts from now.
    ///
    /// # Errors
    /// `Fenced` if the lease is over. Fails too if the database cannot be written.
    pub async fn extend(&self, lease: &WorkLease, by: Duration) -> Result<(), StoreError> {
        let update = sqlx::query!(
            "update reconcile_queue set lease_until = now() + make_interval(secs => $4)
             where kind = $1 and object = $2 and lease_epoch = $3 and lease_until >= now()",
            lease.kind,
            lease.uid.get(),
            signed(lease.epoch.get()),
            seconds(by)
        );
        held(update.execute(self.pool()).await?.rows_affected(), lease)
    }

    /// Ends a lease. If the object was woken meanwhile, it stays due.
    ///
    /// # Errors
    /// `Fenced` if the lease was over already. Fails too if the database cannot be written.
    pub async fn finish(&self, lease: &WorkLease, then: Requeue) -> Result<(), StoreError> {
        let (kind, uid, epoch) = (&lease.kind, lease.uid.get(), signed(lease.epoch.get()));
        if then == Requeue::WhenWoken {
            let delete = sqlx::query!(
                "delete from reconcile_queue where kind = $1 and object = $2 and lease_epoch = $3 and wake = $4",
                kind,
                uid,
                epoch,
                lease.wake
            );
            if delete.execute(self.pool()).await?.rows_affected() == 1 {
                return Ok(());
            }
        }
        let later = match then {
            Requeue::WhenWoken => 0.0,
            Requeue::After(after) => seconds(after),
        };
        let update = sqlx::query!(
            "update reconcile_queue set lease_owner = null, lease_until = null, attempts = 0, error = null,
               not_before = case when wake = $4 then now() + make_interval(secs => $5) else not_before end
             where kind = $1 and object = $2 and lease_epoch = $3",
            kind,
            uid,
            epoch,
            lease.wake,
            later
        );
        let rows = update.execute(self.pool()).await?.rows_affected();
        self.touched();
        held(rows, lease)
    }

    /// Ends a lease after a failure: the object is handled again after a pause, or earlier if something wakes it. The count of
    /// attempts is kept.
    ///
    /// # Errors
    /// `Fenced` if the lease was over already. Fails too if the database cannot be written.
    pub async fn fail(&self, lease: &WorkLease, why: &str, pause: Duration) -> Result<(), StoreError> {
        let update = sqlx::query!(
            "update reconcile_queue set lease_owner = null, lease_until = null, error = $6,
               not_before = case when wake = $4 then now() + make_interval(secs => $5) else not_before end
             where kind = $1 and object = $2 and lease_epoch = $3",
            lease.kind,
            lease.uid.get(),
            signed(lease.epoch.get()),
            lease.wake,
            seconds(pause),
            why
        );
        let rows = update.execute(self.pool()).await?.rows_affected();
        self.touched();
        held(rows, lease)
    }

    /// Ends all leases of `owner`, when a region process ends.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn release_all(&self, owner: Uid) -> Result<(), StoreError> {
        let update = sqlx::query!(
            "update reconcile_queue set lease_owner = null, lease_until = null, attempts = 0 where lease_owner = $1",
            owner.get()
        );
        update.execute(self.pool()).await?;
        self.release_deliveries(owner).await?;
        self.release_log_targets(owner).await?;
        self.touched();
        Ok(())
    }

    /// Wakes one object, if its kind is reconciled.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn enqueue(&self, uid: Uid, after: Duration) -> Result<(), StoreError> {
        let trace = crate::trace::current();
        let insert = sqlx::query!(
            "insert into reconcile_queue as q (kind, object, not_before, trace, traced_at)
             select kind, uid, now() + make_interval(secs => $3), $4, case when $4::text is not null then now() end
             from object where uid = $1 and kind = any($2)
             on conflict (kind, object) do update
             set wake = q.wake + 1, not_before = least(q.not_before, excluded.not_before),
               trace = coalesce(excluded.trace, q.trace), traced_at = coalesce(excluded.traced_at, q.traced_at)",
            uid.get(),
            self.worked_on(),
            seconds(after),
            trace.as_deref()
        );
        insert.execute(self.pool()).await?;
        self.touched();
        Ok(())
    }

    /// The time until an object is due; `None` when the queue is empty.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn next_due(&self) -> Result<Option<Duration>, StoreError> {
        let query = sqlx::query_scalar!(
            "select extract(epoch from min(greatest(now(), not_before, lease_until)) - now())::float8 from reconcile_queue"
        );
        Ok(query.fetch_one(self.pool()).await?.map(|s| Duration::from_secs_f64(s.max(0.0))))
    }

    /// Wakes an object and its direct neighbours. References in both directions make neighbours.
    pub(crate) async fn wake_around(&self, tx: &mut Tx, uid: Uid) -> Result<(), StoreError> {
        self.wake_around_all(tx, &[uid.get()]).await
    }

    /// Wakes several objects and their neighbours in one statement.
    pub(crate) async fn wake_around_all(&self, tx: &mut Tx, uids: &[uuid::Uuid]) -> Result<(), StoreError> {
        self.wake_with(tx, uids, &[]).await
    }

    /// Wakes the objects `around` with their neighbours, and the objects `alone` without. An IpAddress has the machine with its MAC as a
    /// neighbour. One statement locks all rows of the queue, in the order that every writer uses.
    pub(crate) async fn wake_with(
        &self,
        tx: &mut Tx,
        around: &[uuid::Uuid],
        alone: &[uuid::Uuid],
    ) -> Result<(), StoreError> {
        self.wake_kinds(tx, around, alone, self.worked_on()).await
    }

    /// Wakes the objects `around` that facts are about, with the neighbours that decide from facts, and the objects `alone`.
    pub(crate) async fn wake_by_facts(
        &self,
        tx: &mut Tx,
        around: &[uuid::Uuid],
        alone: &[uuid::Uuid],
    ) -> Result<(), StoreError> {
        self.wake_kinds(tx, around, alone, self.by_facts()).await
    }

    async fn wake_kinds(
        &self,
        tx: &mut Tx,
        around: &[uuid::Uuid],
        alone: &[uuid::Uuid],
        kinds: &[String],
    ) -> Result<(), StoreError> {
        let insert = sqlx::query!(
            "insert into reconcile_queue as q (kind, object)
             select o.kind, o.uid from object o where (o.kind = any($2) or o.uid = any($3) and o.kind = any($4)) and o.uid = any(array(
               select unnest($1::uuid[]) union select unnest($3::uuid[])
               union select to_uid from object_ref where from_uid = any($1)
               union select from_uid from object_ref where to_uid = any($1)
               union select machine from machine_claim where deployment = any($1)
               union select deployment from machine_claim where machine = any($1)
               union select m.machine from address a join machine_mac m on m.mac = a.mac
                 where a.owner = any($1) and a.class = 'static'))
             order by o.uid
             on conflict (kind, object) do update
             set wake = q.wake + 1, not_before = least(q.not_before, excluded.not_before),
               trace = coalesce(excluded.trace, q.trace), traced_at = coalesce(excluded.traced_at, q.traced_at)",
            around,
            kinds,
            alone,
            self.worked_on()
        );
        insert.execute(&mut **tx).await?;
        Ok(())
    }

    /// Writes an object's status under a lease, unless it is equal to the stored one. Wakes the neighbours, because they decide from it.
    ///
    /// # Errors
    /// `Fenced` if the lease is over. Fails too if the database cannot be written.
    pub async fn write_status(
        &self,
        lease: &WorkLease,
        observed: Generation,
        status: &Value,
    ) -> Result<StatusWrite, StoreError> {
        // The queue's own row is not locked: this object's handler wakes a neighbour while the neighbour's handler wakes this object,
        // and with the lock both would deadlock. A lease that is valid in this snapshot cannot go to another process before it expires.
        let mut tx = self.begin().await?;
        let holds = sqlx::query!(
            "select 1 as one from reconcile_queue
             where kind = $1 and object = $2 and lease_epoch = $3 and lease_until >= now()",
            lease.kind,
            lease.uid.get(),
            signed(lease.epoch.get())
        );
        if holds.fetch_optional(&mut *tx).await?.is_none() {
            return held(0, lease).map(|()| StatusWrite::Unchanged);
        }
        let update = sqlx::query!(
            "update object set status = $2::text::json, observed_generation = $3
             where uid = $1 and (status::jsonb <> $2::text::jsonb or observed_generation <> $3)",
            lease.uid.get(),
            status.to_string(),
            signed(observed.get())
        );
        if update.execute(&mut *tx).await?.rows_affected() == 0 {
            return Ok(StatusWrite::Unchanged);
        }
        let row = select_objects!("where uid = $1", lease.uid.get()).fetch_one(&mut *tx).await?;
        change::record(&mut tx, &row, change::Op::Status).await?;
        let left = note_state(&mut tx, lease, status).await?;
        if !FROM_SPECS.contains(&lease.kind.as_str()) {
            self.wake_neighbours(&mut tx, lease.uid).await?;
        }
        self.commit(tx).await?;
        Ok(StatusWrite::Written { left })
    }

    async fn wake_neighbours(&self, tx: &mut Tx, uid: Uid) -> Result<(), StoreError> {
        let insert = sqlx::query!(
            "insert into reconcile_queue as q (kind, object)
             select o.kind, o.uid from object o where o.kind = any($2) and o.uid <> $1 and o.uid = any(array(
               select to_uid from object_ref where from_uid = $1
               union select from_uid from object_ref where to_uid = $1
               union select machine from machine_claim where deployment = $1
               union select deployment from machine_claim where machine = $1))
             order by o.uid
             on conflict (kind, object) do update
             set wake = q.wake + 1, not_before = least(q.not_before, excluded.not_before),
               trace = coalesce(excluded.trace, q.trace), traced_at = coalesce(excluded.traced_at, q.traced_at)",
            uid.get(),
            self.by_facts()
        );
        insert.execute(&mut **tx).await?;
        Ok(())
    }
}

/// Stores the phase and the stall, for the gauges, and whether the object is settled, for wake-ups. Returns the phase that the object
/// left, and the time in that phase.
async fn note_state(
    tx: &mut Tx,
    lease: &WorkLease,
    status: &Value,
) -> Result<Option<(String, Duration)>, StoreError> {
    let conditions =
        status.get("conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let word = |of: &Value, key: &str| of.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let stalled = conditions.iter().any(|c| word(c, "type") == "Stalled" && word(c, "status") == "true");
    let phase = word(status, "phase");
    let before = sqlx::query!(
        r#"select phase, stalled, extract(epoch from now() - since)::float8 as "seconds!" from object_state where object = $1"#,
        lease.uid.get()
    );
    let before = before.fetch_optional(&mut **tx).await?;
    let is_news = before.as_ref().is_none_or(|it| it.phase != phase) && !phase.is_empty();
    let is_stall = stalled && before.as_ref().is_none_or(|it| !it.stalled);
    if is_news || is_stall {
        let holding = conditions.iter().find(|c| word(c, "type") == "Stalled" && word(c, "status") == "true");
        let (reason, message) =
            holding.map(|it| (word(it, "reason"), word(it, "message"))).unwrap_or_default();
        let (what, words) = if is_stall { ("stalled", &reason) } else { ("phase", &phase) };
        let note = sqlx::query!(
            "insert into event (what, kind, object, name, words, detail)
             select $2, kind, uid, name, $3, $4 from object where uid = $1",
            lease.uid.get(),
            what,
            words,
            Some(message).filter(|message| is_stall && !message.is_empty())
        );
        note.execute(&mut **tx).await?;
    }
    let upsert = sqlx::query!(
        "insert into object_state as s (object, kind, phase, stalled, settled)
         values ($1, $2, $3, $4, says_settled($5::text::jsonb))
         on conflict (object) do update set phase = excluded.phase, stalled = excluded.stalled, settled = excluded.settled,
           since = case when s.phase = excluded.phase then s.since else excluded.since end",
        lease.uid.get(),
        lease.kind,
        phase,
        stalled,
        status.to_string()
    );
    upsert.execute(&mut **tx).await?;
    let left = before.filter(|before| before.phase != phase && !before.phase.is_empty());
    Ok(left.map(|before| (before.phase, Duration::from_secs_f64(before.seconds.max(0.0)))))
}

fn held(rows: u64, lease: &WorkLease) -> Result<(), StoreError> {
    if rows == 0 {
        return Err(StoreError::Fenced { uid: lease.uid, epoch: lease.epoch });
    }
    Ok(())
}
