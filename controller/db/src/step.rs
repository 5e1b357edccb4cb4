//! What the driver announced, started and finished: the record that a restart reads, and a timeline shows.

use crate::object::{signed, timestamp, unsigned};
use crate::{Store, StoreError};
use basalt_api::values::Timestamp;
use basalt_api::values::{Attempt, Epoch, Uid};
use serde_json::Value;

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

impl Store {
    /// Announces a step, before its effect. Again under the same epoch is the same.
    ///
    /// # Errors
    /// The database.
    pub async fn announce_step(
        &self,
        object: Uid,
        step_key: &str,
        epoch: Epoch,
        attempt: Option<Attempt>,
        detail: &Value,
    ) -> Result<i64, StoreError> {
        let query = sqlx::query_scalar!(
            "insert into step_record (object, step_key, epoch, attempt, detail) values ($1, $2, $3, $4, $5)
             on conflict (object, step_key, epoch) do update set detail = excluded.detail returning id",
            object.get(),
            step_key,
            signed(epoch.get()),
            attempt.map(|a| signed(a.get())),
            detail
        );
        Ok(query.fetch_one(self.pool()).await?)
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

    /// An object's last `limit` steps, oldest first.
    ///
    /// # Errors
    /// The database.
    pub async fn steps(&self, object: Uid, limit: i64) -> Result<Vec<StepRecord>, StoreError> {
        let rows = sqlx::query!(
            r#"select id, step_key, epoch, attempt, detail, outcome,
                 (extract(epoch from announced_at) * 1000000)::bigint as "announced_us!",
                 (extract(epoch from started_at) * 1000000)::bigint as started_us,
                 (extract(epoch from finished_at) * 1000000)::bigint as finished_us
               from step_record where object = $1 order by id desc limit $2"#,
            object.get(),
            limit
        );
        let mut steps = Vec::new();
        for r in rows.fetch_all(self.pool()).await?.into_iter().rev() {
            steps.push(StepRecord {
                id: r.id,
                step_key: r.step_key,
                epoch: Epoch::new(unsigned(r.epoch)),
                attempt: r.attempt.map(|a| Attempt::new(unsigned(a))),
                detail: r.detail,
                announced_at: timestamp(r.announced_us)?,
                started_at: r.started_us.map(timestamp).transpose()?,
                finished_at: r.finished_us.map(timestamp).transpose()?,
                outcome: r.outcome,
            });
        }
        Ok(steps)
    }
}
