//! The record of a driver's steps: announced, started, finished. A restarted driver reads it, and it is a machine's timeline.
//!
//! One transaction announces a step:
//!
//! | part | in |
//! | --- | --- |
//! | The caller's lease on the object still holds | here |
//! | The fleet's budget has room | `fleet` |
//! | The record is written, under a key that a repeat of the step finds again | here |
//! | The decision is written: ids of the facts and records that the plan rests on, the few inputs that no history keeps, and the plan | `decision` |
//!
//! The record is written before the effect. The record of an attempt holds the composed task, so that every rack of the scope hands out the
//! same task; the attempt's key is sealed in `attempt_key`. A power command may have no answer when its rack comes back. Then the region
//! sends the command again under the same key, and a rack carries out each key once.

use crate::decision::{self, NewDecision};
use crate::fleet::{self, Take};
use crate::object::{signed, timestamp, unsigned};
use crate::{Store, StoreError, WorkLease};
use basalt_api::values::{Attempt, Epoch, Timestamp, Uid};
use serde_json::Value;
use std::time::Duration;

/// `select` of whole step records; `$tail` follows `from step_record`.
macro_rules! select_steps {
    ($tail:literal $(, $arg:expr)* $(,)?) => {
        sqlx::query_as!(
            StepRow,
            r#"select id, step_key, epoch, attempt, detail, outcome,
                      (extract(epoch from announced_at) * 1000000)::bigint as "announced_us!",
                      (extract(epoch from started_at) * 1000000)::bigint as started_us,
                      (extract(epoch from finished_at) * 1000000)::bigint as finished_us
               from step_record "# + $tail
            $(, $arg)*
        )
    };
}

/// One step under one epoch.
#[derive(Clone, Debug)]
pub struct StepRecord {
    /// The record's id; it rises in the order of announcements.
    pub id: i64,
    /// The step's key.
    pub step_key: String,
    /// The epoch of the lease under which the step was done.
    pub epoch: Epoch,
    /// The attempt that the step belongs to.
    pub attempt: Option<Attempt>,
    /// The driver's notes: the effect, the digest of the plan, the ids of the facts used.
    pub detail: Value,
    /// When the step was announced, before any effect.
    pub announced_at: Timestamp,
    /// When its effect went out.
    pub started_at: Option<Timestamp>,
    /// When its outcome was known.
    pub finished_at: Option<Timestamp>,
    /// The result of the step.
    pub outcome: Option<Value>,
}

/// A step that is about to begin.
#[derive(Clone, Copy, Debug)]
pub struct Announcement<'a> {
    /// The lease under which the step is done.
    pub lease: &'a WorkLease,
    /// The step's key.
    pub step_key: &'a str,
    /// The attempt that the step belongs to.
    pub attempt: Option<Attempt>,
    /// The key of the attempt's boot tokens, if the step arms the attempt. Such a step has no other effect than this record.
    pub arms: Option<&'a [u8]>,
    /// The driver's notes.
    pub detail: &'a Value,
    /// The decision that led to the step.
    pub decision: &'a NewDecision,
    /// The part of the fleet's budget that the step needs.
    pub takes: Option<&'a Take<'a>>,
}

/// The result of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// The step is on record, with this id.
    Yes(i64),
    /// The fleet's budget is used up: nothing is on record.
    OverBudget,
}

/// How a step ended.
#[derive(Clone, Debug)]
pub struct StepEnd {
    /// The id of the step's record.
    pub id: i64,
    /// When the result was known.
    pub at: Timestamp,
    /// The result that was known at `at`.
    pub outcome: Value,
}

impl Store {
    /// Records a step before its effect, with its decision and its share of the fleet's budget. A repeated call under the same
    /// epoch changes nothing. No other process can take the object over while the transaction runs.
    ///
    /// # Errors
    /// `Fenced` when the lease is over; fails too if the database cannot be written.
    pub async fn announce(&self, step: &Announcement<'_>) -> Result<Announced, StoreError> {
        let (object, epoch) = (step.lease.uid, signed(step.lease.epoch.get()));
        let mut tx = self.begin().await?;
        // All writers lock objects before the queue. Processes that claim work skip locked rows.
        sqlx::query!("select 1 as one from object where uid = $1 for key share", object.get())
            .fetch_optional(&mut *tx)
            .await?;
        let holds = sqlx::query!(
            "select 1 as one from reconcile_queue
             where kind = $1 and object = $2 and lease_epoch = $3 and lease_until >= now() for share",
            step.lease.kind,
            object.get(),
            epoch
        );
        if holds.fetch_optional(&mut *tx).await?.is_none() {
            return Err(StoreError::Fenced { uid: object, epoch: step.lease.epoch });
        }
        if let Some(take) = step.takes
            && !fleet::take(&mut tx, object, step.attempt, take).await?
        {
            return Ok(Announced::OverBudget);
        }
        let id = sqlx::query_scalar!(
            "insert into step_record (object, step_key, epoch, attempt, detail, started_at)
             values ($1, $2, $3, $4, $5, case when $6 then now() end)
             on conflict (object, step_key, epoch) do update set detail = excluded.detail returning id",
            object.get(),
            step.step_key,
            epoch,
            step.attempt.map(|a| signed(a.get())),
            step.detail,
            step.arms.is_some()
        );
        let id = id.fetch_one(&mut *tx).await?;
        if let (Some(attempt), Some(key)) = (step.attempt, step.arms) {
            self.keep_attempt_key(&mut tx, object, attempt, key).await?;
        }
        decision::record(&mut tx, step, epoch).await?;
        self.commit(tx).await?;
        Ok(Announced::Yes(id))
    }

    /// Notes that a step's effect is going out now.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn start_step(&self, id: i64) -> Result<(), StoreError> {
        let update = sqlx::query!("update step_record set started_at = clock_timestamp() where id = $1", id);
        update.execute(self.pool()).await?;
        Ok(())
    }

    /// Records the results of steps. Returns the steps that had no result yet, with their durations.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn finish_steps(&self, ends: &[StepEnd]) -> Result<Vec<(i64, Duration)>, StoreError> {
        let ids: Vec<i64> = ends.iter().map(|end| end.id).collect();
        let at: Vec<i64> = ends.iter().map(|end| end.at.as_microsecond()).collect();
        let outcomes: Vec<Value> = ends.iter().map(|end| end.outcome.clone()).collect();
        let update = sqlx::query!(
            r#"update step_record s
               set finished_at = greatest(s.announced_at, to_timestamp(e.at / 1000000.0)), outcome = e.outcome
               from unnest($1::bigint[], $2::bigint[], $3::jsonb[]) as e(id, at, outcome)
               where s.id = e.id and s.finished_at is null
               returning s.id, extract(epoch from s.finished_at - s.announced_at)::float8 as "seconds!""#,
            &ids,
            &at,
            &outcomes
        );
        let rows = update.fetch_all(self.pool()).await?;
        Ok(rows.into_iter().map(|r| (r.id, Duration::from_secs_f64(r.seconds.max(0.0)))).collect())
    }

    /// The steps that a plan depends on, oldest first: the last `limit` with an attempt, and as many without one. So the install of the
    /// running system is among them, however often a BMC was tried in vain.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn planning_steps(&self, object: Uid, limit: i64) -> Result<Vec<StepRecord>, StoreError> {
        let rows = sqlx::query_as!(
            StepRow,
            r#"select id as "id!", step_key as "step_key!", epoch as "epoch!", attempt, detail as "detail!", outcome,
                 (extract(epoch from announced_at) * 1000000)::bigint as "announced_us!",
                 (extract(epoch from started_at) * 1000000)::bigint as started_us,
                 (extract(epoch from finished_at) * 1000000)::bigint as finished_us
               from (
                 (select * from step_record where object = $1 and attempt is not null order by id desc limit $2)
                 union all
                 (select * from step_record where object = $1 and attempt is null order by id desc limit $2)) s
               order by id"#,
            object.get(),
            limit
        );
        rows.fetch_all(self.pool()).await?.into_iter().map(StepRow::step).collect()
    }

    /// Steps by their ids, oldest first. Deleted ones are left out.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn steps_by_id(&self, ids: &[i64]) -> Result<Vec<StepRecord>, StoreError> {
        let rows = select_steps!("where id = any($1) order by id", ids);
        rows.fetch_all(self.pool()).await?.into_iter().map(StepRow::step).collect()
    }

    /// An object's last `limit` steps, oldest first.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn steps(&self, object: Uid, limit: i64) -> Result<Vec<StepRecord>, StoreError> {
        let rows = select_steps!("where object = $1 order by id desc limit $2", object.get(), limit);
        rows.fetch_all(self.pool()).await?.into_iter().rev().map(StepRow::step).collect()
    }
}

struct StepRow {
    id: i64,
    step_key: String,
    epoch: i64,
    attempt: Option<i64>,
    detail: Value,
    announced_us: i64,
    started_us: Option<i64>,
    finished_us: Option<i64>,
    outcome: Option<Value>,
}

impl StepRow {
    fn step(self) -> Result<StepRecord, StoreError> {
        Ok(StepRecord {
            id: self.id,
            step_key: self.step_key,
            epoch: Epoch::new(unsigned(self.epoch)),
            attempt: self.attempt.map(|a| Attempt::new(unsigned(a))),
            detail: self.detail,
            announced_at: timestamp(self.announced_us)?,
            started_at: self.started_us.map(timestamp).transpose()?,
            finished_at: self.finished_us.map(timestamp).transpose()?,
            outcome: self.outcome,
        })
    }
}
