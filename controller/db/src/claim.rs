//! Who has a machine.

use crate::object::{signed, unsigned};
use crate::{Store, StoreError};
use basalt_api::values::{DeploymentId, Epoch, MachineId};

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The machine is the deployment's.
    Yes,
    /// Another deployment has it.
    HeldBy(String),
    /// The deployment has another machine already.
    Holds(MachineId),
}

impl Store {
    /// Gives a free machine to a deployment; the same claim again is the same.
    ///
    /// # Errors
    /// The database.
    pub async fn claim_machine(
        &self,
        deployment: DeploymentId,
        machine: MachineId,
        epoch: Epoch,
    ) -> Result<Claimed, StoreError> {
        let mut tx = self.begin().await?;
        let insert = sqlx::query!(
            "insert into machine_claim (machine, deployment, epoch) values ($1, $2, $3) on conflict do nothing",
            machine.get(),
            deployment.get(),
            signed(epoch.get())
        );
        if insert.execute(&mut *tx).await?.rows_affected() == 1 {
            self.wake_around(&mut tx, deployment.into()).await?;
            self.commit(tx).await?;
            return Ok(Claimed::Yes);
        }
        let held = sqlx::query!(
            "select c.machine, c.deployment, o.name from machine_claim c join object o on o.uid = c.deployment
             where c.machine = $1 or c.deployment = $2 order by c.machine = $1 desc limit 1",
            machine.get(),
            deployment.get()
        );
        let held = held.fetch_one(&mut *tx).await?;
        Ok(match (held.machine == machine.get(), held.deployment == deployment.get()) {
            (true, true) => Claimed::Yes,
            (true, false) => Claimed::HeldBy(held.name),
            (false, _) => Claimed::Holds(MachineId::from(held.machine)),
        })
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
}
