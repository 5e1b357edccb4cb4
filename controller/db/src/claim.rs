//! Claims: which deployment has which machine, and the decisions behind them.

use crate::object::{signed, unsigned};
use crate::store::Tx;
use crate::{Store, StoreError, decision};
use basalt_api::values::{DeploymentId, Epoch, MachineId, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// One decision that gives machines to deployments.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// The version of the planner that decided.
    pub planner: String,
    /// The time of the decision.
    pub now: Timestamp,
    /// The input of the decision, for the decision log.
    pub ground: Value,
    /// The machines that were given.
    pub given: Vec<Given>,
    /// Machines that are stored in the same transaction as the claims: their ids in `ground`, with their names.
    pub made: BTreeMap<MachineId, String>,
}

/// A machine that was given to a deployment.
#[derive(Clone, Debug)]
pub struct Given {
    /// The deployment's id in the store.
    pub deployment: DeploymentId,
    /// The deployment's id in the ground, from before it was stored.
    pub wish: DeploymentId,
    /// The deployment's name.
    pub name: String,
    /// The machine's id in the store.
    pub machine: MachineId,
    /// The machine's id in the ground, from before it was stored.
    pub chosen: MachineId,
    /// The reason for this machine, as a sentence.
    pub why: String,
}

/// The right to give machines away, until it is used or dropped. Only one region of a database holds it at a time. So no
/// other region changes claims between the reading of the claims and the writing of new ones.
#[derive(Debug)]
pub struct Claiming {
    store: Store,
    tx: Tx,
}

impl Claiming {
    /// Gives a machine to each deployment, in one transaction; returns the deployments that now have one. A deployment gets none if its
    /// deletion was requested, if it already has a machine, or if the machine is claimed or deleted.
    ///
    /// # Errors
    /// Fails if the database cannot be written; then no deployment got a machine.
    pub async fn claim(
        mut self,
        allocation: &Allocation,
        epoch: Epoch,
    ) -> Result<BTreeSet<DeploymentId>, StoreError> {
        let got = insert(&mut self.tx, allocation, &allocation.given, epoch).await?;
        if !got.is_empty() {
            self.store.wake_around_all(&mut self.tx, &got).await?;
        }
        self.store.commit(self.tx).await?;
        Ok(got.into_iter().map(DeploymentId::from).collect())
    }
}

/// Gives each deployment its machine as `given` says, if both exist and are free, and records the decision. Returns the deployments
/// that got a machine.
pub(crate) async fn insert(
    tx: &mut Tx,
    allocation: &Allocation,
    given: &[Given],
    epoch: Epoch,
) -> Result<Vec<uuid::Uuid>, StoreError> {
    let deployments: Vec<_> = given.iter().map(|given| given.deployment.get()).collect();
    let machines: Vec<_> = given.iter().map(|given| given.machine.get()).collect();
    let insert = sqlx::query_scalar!(
        "insert into machine_claim (machine, deployment, epoch)
         select m.uid, d.uid, $3 from unnest($1::uuid[], $2::uuid[]) g(deployment, machine)
           join object d on d.uid = g.deployment and d.deletion_requested_at is null
           join object m on m.uid = g.machine
         order by m.uid
         on conflict do nothing returning deployment",
        &deployments,
        &machines,
        signed(epoch.get())
    );
    let got = insert.fetch_all(&mut **tx).await?;
    let deployments: BTreeSet<&uuid::Uuid> = got.iter().collect();
    let got_one = given.iter().filter(|given| deployments.contains(&given.deployment.get()));
    decision::record_allocation(tx, allocation, got_one, epoch).await?;
    Ok(got)
}

/// A new epoch, for an action that is done under no lease.
pub(crate) async fn next_epoch(tx: &mut Tx) -> Result<Epoch, StoreError> {
    let epoch = sqlx::query_scalar!(r#"select nextval('epoch') as "epoch!""#).fetch_one(&mut **tx).await?;
    Ok(Epoch::new(unsigned(epoch)))
}

impl Store {
    /// Waits for the right to give machines away.
    ///
    /// # Errors
    /// `Overtaken` if other regions hold the right for over 5 seconds. Fails too if the database does not answer.
    pub async fn claiming(&self) -> Result<Claiming, StoreError> {
        let mut tx = self.begin().await?;
        sqlx::query!("select set_config('lock_timeout', '5s', true)").fetch_one(&mut *tx).await?;
        match sqlx::query!("select pg_advisory_xact_lock(5240, 8)").fetch_one(&mut *tx).await {
            // lock_not_available
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("55P03") => {
                Err(StoreError::Overtaken)
            }
            held => held.map(|_| Claiming { store: self.clone(), tx }).map_err(StoreError::from),
        }
    }

    /// Wakes every deployment that has no machine.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn enqueue_waiting(&self) -> Result<(), StoreError> {
        let insert = sqlx::query!(
            "with waiting as materialized (
               select o.kind, o.uid from object o where o.kind = 'Deployment' and o.deletion_requested_at is null
                 and not exists (select from machine_claim c where c.deployment = o.uid))
             insert into reconcile_queue as q (kind, object)
             select kind, uid from waiting order by uid
             on conflict (kind, object) do update
             set wake = q.wake + 1, not_before = least(q.not_before, excluded.not_before)"
        );
        if insert.execute(self.pool()).await?.rows_affected() > 0 {
            self.touched();
        }
        Ok(())
    }

    /// Gives a deployment's machine back.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn release_machine(&self, deployment: DeploymentId) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        self.wake_around(&mut tx, deployment.into()).await?;
        sqlx::query!("delete from machine_claim where deployment = $1", deployment.get())
            .execute(&mut *tx)
            .await?;
        self.commit(tx).await
    }

    /// The machine that a deployment has, and the epoch in which it was given.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn claimed_by(
        &self,
        deployment: DeploymentId,
    ) -> Result<Option<(MachineId, Epoch)>, StoreError> {
        let row =
            sqlx::query!("select machine, epoch from machine_claim where deployment = $1", deployment.get());
        let row = row.fetch_optional(self.pool()).await?;
        Ok(row.map(|r| (MachineId::from(r.machine), Epoch::new(unsigned(r.epoch)))))
    }

    /// The deployment that has a machine.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn claimant_of(&self, machine: MachineId) -> Result<Option<DeploymentId>, StoreError> {
        let row =
            sqlx::query_scalar!("select deployment from machine_claim where machine = $1", machine.get());
        Ok(row.fetch_optional(self.pool()).await?.map(DeploymentId::from))
    }

    /// Every claim: (machine, deployment).
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn claims(&self) -> Result<Vec<(MachineId, DeploymentId)>, StoreError> {
        let rows = sqlx::query!("select machine, deployment from machine_claim order by machine");
        let rows = rows.fetch_all(self.pool()).await?;
        Ok(rows.into_iter().map(|r| (MachineId::from(r.machine), DeploymentId::from(r.deployment))).collect())
    }

    /// The machines that may hold a former deployment's data.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn unwiped(&self) -> Result<BTreeSet<MachineId>, StoreError> {
        let rows = sqlx::query_scalar!("select machine from machine_mark where unwiped");
        Ok(rows.fetch_all(self.pool()).await?.into_iter().map(MachineId::from).collect())
    }
}
