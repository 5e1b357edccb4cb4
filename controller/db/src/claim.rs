//! Who has a machine, and what that was decided from.

use crate::object::{signed, unsigned};
use crate::store::Tx;
use crate::{Store, StoreError, decision};
use basalt_api::values::{DeploymentId, Epoch, MachineId, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Machines for deployments: one decision.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// The version of what decided.
    pub planner: String,
    /// When it was decided.
    pub now: Timestamp,
    /// What it rested on.
    pub ground: Value,
    /// Who gets what.
    pub given: Vec<Given>,
    /// Machines that are stored together with the claims, by what they were called in the ground: their names.
    pub made: BTreeMap<MachineId, String>,
}

/// A machine for a deployment.
#[derive(Clone, Debug)]
pub struct Given {
    /// The deployment.
    pub deployment: DeploymentId,
    /// What it was called in the ground, before it was stored.
    pub wish: DeploymentId,
    /// Its name.
    pub name: String,
    /// Its machine.
    pub machine: MachineId,
    /// What that was called in the ground, before it was stored.
    pub chosen: MachineId,
    /// Why this one, for people.
    pub why: String,
}

/// The right to give machines away, until it is used or dropped: of all regions on the database one has it at a time, so
/// that what it read stays true of claims.
#[derive(Debug)]
pub struct Claiming {
    store: Store,
    tx: Tx,
}

impl Claiming {
    /// Gives each deployment its machine, in one transaction; says who got one. The others are on their way out, have a machine
    /// already, or it is another's or gone.
    ///
    /// # Errors
    /// The database; then nobody got one.
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

/// Gives each deployment its machine as `given` says, where both can be, and keeps why; says who got one.
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

/// An epoch for what is done under no lease.
pub(crate) async fn next_epoch(tx: &mut Tx) -> Result<Epoch, StoreError> {
    let epoch = sqlx::query_scalar!(r#"select nextval('epoch') as "epoch!""#).fetch_one(&mut **tx).await?;
    Ok(Epoch::new(unsigned(epoch)))
}

impl Store {
    /// Waits for the right to give machines away.
    ///
    /// # Errors
    /// The database; `Overtaken` where others keep the right for long.
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
    /// The database.
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
    /// The database.
    pub async fn release_machine(&self, deployment: DeploymentId) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        self.wake_around(&mut tx, deployment.into()).await?;
        sqlx::query!("delete from machine_claim where deployment = $1", deployment.get())
            .execute(&mut *tx)
            .await?;
        self.commit(tx).await
    }

    /// Which machine a deployment has, and since which epoch.
    ///
    /// # Errors
    /// The database.
    pub async fn claimed_by(
        &self,
        deployment: DeploymentId,
    ) -> Result<Option<(MachineId, Epoch)>, StoreError> {
        let row =
            sqlx::query!("select machine, epoch from machine_claim where deployment = $1", deployment.get());
        let row = row.fetch_optional(self.pool()).await?;
        Ok(row.map(|r| (MachineId::from(r.machine), Epoch::new(unsigned(r.epoch)))))
    }

    /// Which deployment has a machine.
    ///
    /// # Errors
    /// The database.
    pub async fn claimant_of(&self, machine: MachineId) -> Result<Option<DeploymentId>, StoreError> {
        let row =
            sqlx::query_scalar!("select deployment from machine_claim where machine = $1", machine.get());
        Ok(row.fetch_optional(self.pool()).await?.map(DeploymentId::from))
    }

    /// Every claim: (machine, deployment).
    ///
    /// # Errors
    /// The database.
    pub async fn claims(&self) -> Result<Vec<(MachineId, DeploymentId)>, StoreError> {
        let rows = sqlx::query!("select machine, deployment from machine_claim order by machine");
        let rows = rows.fetch_all(self.pool()).await?;
        Ok(rows.into_iter().map(|r| (MachineId::from(r.machine), DeploymentId::from(r.deployment))).collect())
    }

    /// The machines that may hold a former deployment's data.
    ///
    /// # Errors
    /// The database.
    pub async fn unwiped(&self) -> Result<BTreeSet<MachineId>, StoreError> {
        let rows = sqlx::query_scalar!("select machine from machine_mark where unwiped");
        Ok(rows.fetch_all(self.pool()).await?.into_iter().map(MachineId::from).collect())
    }
}
