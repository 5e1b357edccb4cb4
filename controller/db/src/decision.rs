//! Decisions that began a step or gave a machine away, stored with the ids of their inputs, so that they can be replayed.
//!
//! The choice of machines is stored as well (`claim`), once for all deployments of a round, with the part of the fleet that it rests on.
//! Facts that a stored plan rests on are kept longer than the thirty days of the history (`maintain_fact_history`). Without the result of
//! its install, a machine would count as never installed.

use crate::claim::{Allocation, Given};
use crate::fact::{Fact, FactRow};
use crate::object::{signed, timestamp, unsigned};
use crate::step::Announcement;
use crate::store::Tx;
use crate::{Store, StoreError};
use basalt_api::values::{Epoch, Generation, Sha256, Timestamp, Uid};
use serde_json::{Value, json};

/// Replaces a step's name in the step key of a decision that gave a deployment its machine.
pub const ALLOCATE: &str = "allocate";

/// A decision before its action.
#[derive(Clone, Debug)]
pub struct NewDecision {
    /// The generation of the object's spec.
    pub generation: Generation,
    /// The planner's version.
    pub planner: String,
    /// The time that the planner used as `now`.
    pub now: Timestamp,
    /// The inputs that are stored nowhere else.
    pub ground: Value,
    /// The inputs that change by the minute.
    pub seen: Value,
    /// The ids of the facts used.
    pub facts: Vec<i64>,
    /// The ids of the step records used, and when the effect of each was handed over.
    pub steps: Vec<(i64, Option<Timestamp>)>,
    /// The digest of the planned action.
    pub digest: Sha256,
    /// The plan that was made.
    pub plan: Value,
}

/// A decision that was carried out.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The decision's id. Ids rise in the order of decisions.
    pub id: i64,
    /// The machine of the step, or the deployment that got its machine.
    pub object: Uid,
    /// When it was stored.
    pub at: Timestamp,
    /// The step that it began.
    pub step_key: String,
    /// The epoch of the lease.
    pub epoch: Epoch,
    /// The decision with its inputs.
    pub why: NewDecision,
}

pub(crate) async fn record(tx: &mut Tx, step: &Announcement<'_>, epoch: i64) -> Result<(), StoreError> {
    let why = step.decision;
    let sha256 = keep_ground(tx, &why.ground).await?;
    let ids: Vec<i64> = why.steps.iter().map(|(id, _)| *id).collect();
    let delivered: Vec<i64> =
        why.steps.iter().map(|(_, at)| at.map_or(0, Timestamp::as_microsecond)).collect();
    let insert = sqlx::query!(
        "insert into decision
           (object, step_key, epoch, generation, planner, now_us, ground, seen, facts, steps, delivered, digest, plan)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        step.lease.uid.get(),
        step.step_key,
        epoch,
        signed(why.generation.get()),
        why.planner,
        why.now.as_microsecond(),
        sha256.as_slice(),
        why.seen,
        &why.facts,
        &ids,
        &delivered,
        why.digest.bytes().as_slice(),
        why.plan
    );
    insert.execute(&mut **tx).await?;
    Ok(())
}

/// Records the decision for each deployment that got its machine.
pub(crate) async fn record_allocation<'a>(
    tx: &mut Tx,
    allocation: &Allocation,
    given: impl Iterator<Item = &'a Given>,
    epoch: Epoch,
) -> Result<(), StoreError> {
    let (mut deployments, mut keys, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    let (mut digests, mut plans) = (Vec::new(), Vec::new());
    for Given { deployment, wish, name, machine, chosen, why } in given {
        let plan = json!({"deployment": name, "machine": machine, "why": why}).to_string();
        deployments.push(deployment.get());
        keys.push(format!("{deployment}/{ALLOCATE}/{epoch}"));
        seen.push(json!({"wish": wish, "chosen": chosen}).to_string());
        digests.push(sha256(&plan).to_vec());
        plans.push(plan);
    }
    if deployments.is_empty() {
        return Ok(());
    }
    let ground = keep_ground(tx, &allocation.ground).await?;
    let insert = sqlx::query!(
        "insert into decision
           (object, step_key, epoch, generation, planner, now_us, ground, seen, facts, steps, delivered, digest, plan)
         select o.uid, u.key, $6, o.generation, $7, $8, $9, u.seen::jsonb, '{}', '{}', '{}', u.digest, u.plan::jsonb
         from unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[]) u(object, key, seen, digest, plan)
           join object o on o.uid = u.object",
        &deployments,
        &keys,
        &seen,
        &digests,
        &plans,
        signed(epoch.get()),
        allocation.planner,
        allocation.now.as_microsecond(),
        ground.as_slice()
    );
    insert.execute(&mut **tx).await?;
    Ok(())
}

async fn keep_ground(tx: &mut Tx, ground: &Value) -> Result<[u8; 32], StoreError> {
    let ground = ground.to_string();
    let digest = sha256(&ground);
    let keep = sqlx::query!(
        "insert into decision_ground (sha256, body) values ($1, $2::text::json) on conflict do nothing",
        digest.as_slice(),
        ground
    );
    keep.execute(&mut **tx).await?;
    Ok(digest)
}

fn sha256(text: &str) -> [u8; 32] {
    let mut sha256 = [0; 32];
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    sha256.copy_from_slice(digest.as_ref());
    sha256
}

impl Store {
    /// The last `limit` decisions about objects below the id `before`, the newest first.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn decisions(
        &self,
        objects: &[Uid],
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<Decision>, StoreError> {
        let objects: Vec<uuid::Uuid> = objects.iter().map(|uid| uid.get()).collect();
        let rows = sqlx::query!(
            r#"select d.id, d.object, d.step_key, d.epoch, d.generation, d.planner, d.now_us, g.body::text as "ground!", d.seen, d.facts,
                 d.steps, d.delivered, d.digest, d.plan, (extract(epoch from d.at) * 1000000)::bigint as "at_us!"
               from decision d join decision_ground g on g.sha256 = d.ground
               where d.object = any($1) and d.id < coalesce($2, 9223372036854775807) order by d.id desc limit $3"#,
            &objects,
            before,
            limit
        );
        let mut decisions = Vec::new();
        for r in rows.fetch_all(self.pool()).await? {
            let corrupt = |what: &str| StoreError::Corrupt(format!("{what} of decision {}", r.id));
            let ground = serde_json::from_str(&r.ground).map_err(|_| corrupt("the ground"))?;
            let digest: [u8; 32] = r.digest.try_into().map_err(|_| corrupt("the digest"))?;
            let handed = r.delivered.into_iter().map(|us| (us > 0).then(|| timestamp(us)).transpose());
            let handed = handed.collect::<Result<Vec<_>, _>>()?;
            decisions.push(Decision {
                id: r.id,
                object: Uid::from(r.object),
                at: timestamp(r.at_us)?,
                step_key: r.step_key,
                epoch: Epoch::new(unsigned(r.epoch)),
                why: NewDecision {
                    generation: Generation::new(unsigned(r.generation)),
                    planner: r.planner,
                    now: timestamp(r.now_us)?,
                    ground,
                    seen: r.seen,
                    facts: r.facts,
                    steps: r.steps.into_iter().zip(handed).collect(),
                    digest: Sha256::new(digest),
                    plan: r.plan,
                },
            });
        }
        Ok(decisions)
    }

    /// Facts by their ids, in no particular order. Deleted ones are left out.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn facts_by_id(&self, object: Uid, ids: &[i64]) -> Result<Vec<Fact>, StoreError> {
        let rows = sqlx::query_as!(
            FactRow,
            r#"select id, kind, source, step_key, attempt, body,
                 (extract(epoch from observed_at) * 1000000)::bigint as "observed_us!",
                 (extract(epoch from stored_at) * 1000000)::bigint as "stored_us!"
               from fact_history where object = $1 and id = any($2)"#,
            object.get(),
            ids
        );
        rows.fetch_all(self.pool()).await?.into_iter().map(FactRow::fact).collect()
    }

    /// Deletes decisions older than `days`, and keeps at most the last `each` of an object.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn forget_decisions(&self, days: i32, each: i64) -> Result<(), StoreError> {
        let delete = sqlx::query!(
            "delete from decision where at < now() - make_interval(days => $1) or id in (
               select id from (
                 select id, row_number() over (partition by object order by id desc) as nth from decision
                 where object in (select object from decision group by object having count(*) > $2)) d
               where nth > $2)",
            days,
            each
        );
        delete.execute(self.pool()).await?;
        let grounds = sqlx::query!(
            "delete from decision_ground g where not exists (select from decision d where d.ground = g.sha256)"
        );
        grounds.execute(self.pool()).await?;
        Ok(())
    }
}
