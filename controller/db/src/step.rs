//! What the driver announced, started and finished: the record that a restart reads, and a timeline shows.

use crate::decision::{self, NewDecision};
use crate::fleet::{self, Take};
use crate::object::{signed, timestamp, unsigned};
use crate::{Lease, Store, StoreError};
use basalt_api::values::{Attempt, Epoch, Timestamp, Uid};
use serde_json::Value;
use std::time::Duration;

/// `select` of whole step records; the tail goes on after `from step_record`.
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
    /// Rises in the order of announcing.
    pub id: i64,
    /// The step's key.
    pub step_key: String,
    /// The lease it was done under.
    pub epoch: Epoch,
    /// The attempt that it carries.
    pub attempt: Option<Attempt>,
    /// What the driver noted: effect, digest of the plan, ids of the facts used.
    pub detail: Value,
    /// Before anything was done.
    pub announced_at: Timestamp,
    /// When its effect went out.
    pub started_at: Option<Timestamp>,
    /// When its outcome was known.
    pub finished_at: Option<Timestamp>,
    /// The outcome.
    pub outcome: Option<Value>,
}

/// A step that is about to begin.
#[derive(Clone, Copy, Debug)]
pub struct Announcement<'a> {
    /// Under which lease.
    pub lease: &'a Lease,
    /// The step's key.
    pub step_key: &'a str,
    /// The attempt that it carries.
    pub attempt: Option<Attempt>,
    /// The key of that attempt's boot tokens, where the step arms it: its effect is the record itself.
    pub arms: Option<&'a [u8]>,
    /// What the driver notes.
    pub detail: &'a Value,
    /// Why.
    pub decision: &'a NewDecision,
    /// What it takes of the fleet's budget.
    pub takes: Option<&'a Take<'a>>,
}

/// What became of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// It is on record, under this id.
    Yes(i64),
    /// The fleet's budget is used up: nothing is on record.
    OverBudget,
}

/// How a step ended.
#[derive(Clone, Debug)]
pub struct StepEnd {
    /// Its record.
    pub id: i64,
    /// When that was known.
    pub at: Timestamp,
    /// How.
    pub outcome: Value,
}

impl Store {
    /// Puts a step on record before its effect, with the decision that led to it and what it takes of the fleet's budget. Again
    /// under the same epoch is the same. Nobody can take the object over before that is done.
    ///
    /// # Errors
    /// `Fenced` when the lease is over, or the database.
    pub async fn announce(&self, step: &Announcement<'_>) -> Result<Announced, StoreError> {
        let (object, epoch) = (step.lease.uid, signed(step.lease.epoch.get()));
        let mut tx = self.begin().await?;
        // Objects are locked before the queue, by everybody. Who claims passes over locked rows.
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
    /// The database.
    pub async fn start_step(&self, id: i64) -> Result<(), StoreError> {
        let update = sqlx::query!("update step_record set started_at = clock_timestamp() where id = $1", id);
        update.execute(self.pool()).await?;
        Ok(())
    }

    /// Notes how steps ended; answers those that nobody had noted yet, with how long they took.
    ///
    /// # Errors
    /// The database.
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

    /// The steps that a plan rests on, oldest first: the last `limit` that carry an attempt, and as many of the others. However
    /// often a BMC is tried in vain, the install of what runs is among them.
    ///
    /// # Errors
    /// The database.
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

    /// Steps by their ids, oldest first; those that are gone are left out.
    ///
    /// # Errors
    /// The database.
    pub async fn steps_by_id(&self, ids: &[i64]) -> Result<Vec<StepRecord>, StoreError> {
        let rows = select_steps!("where id = any($1) order by id", ids);
        rows.fetch_all(self.pool()).await?.into_iter().map(StepRow::step).collect()
    }

    /// An object's last `limit` steps, oldest first.
    ///
    /// # Errors
    /// The database.
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
