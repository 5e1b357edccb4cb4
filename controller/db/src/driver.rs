//! The driver's reads and writes: facts for planning, boot actions, attempts, marks, the authority.

use std::net::IpAddr;
use std::time::Duration;

use crate::fact::{Fact, FactRow};
use crate::object::{signed, timestamp};
use crate::seal::Place;
use crate::store::Tx;
use crate::{Store, StoreError};
use basalt_api::values::{Attempt, DeploymentId, MachineId, Timestamp, Uid};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use zeroize::Zeroizing;

/// The marks on a machine, which are stored beside its spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineMarks {
    /// True if a former deployment's data may still be on its disks.
    pub unwiped: bool,
    /// When recommissioning was last requested.
    pub recommission_requested_at: Option<Timestamp>,
    /// The latest override of failed tests.
    pub tests_accepted: Option<TestsAccepted>,
}

/// A person's decision to give a machine away although tests of its hardware failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestsAccepted {
    /// The time of the override. It covers tests that ended before.
    pub at: Timestamp,
    /// The person's account.
    pub by: Option<String>,
    /// The reason that was given.
    pub reason: String,
}

/// The boot that has claimed an attempt whose task must not run twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootClaim {
    /// The claimed attempt.
    pub attempt: Attempt,
    /// The boot id of its first claim.
    pub boot_id: String,
}

pub(crate) fn authority_place() -> Place<'static> {
    Place { object: Uid::from(Uuid::nil()), pointer: "authority" }
}

pub(crate) fn attempt_pointer(attempt: Attempt) -> String {
    format!("attempt/{attempt}")
}

impl Store {
    /// The region's certificate authority (certificate and private key, DER). `fresh` is stored if there is none.
    ///
    /// # Errors
    /// Fails if the seal key does not open the private key, or if the database cannot be written.
    pub async fn authority(
        &self,
        fresh: (&[u8], &[u8]),
    ) -> Result<(Vec<u8>, Zeroizing<Vec<u8>>), StoreError> {
        let sealed = self.seal().seal(&authority_place(), fresh.1)?;
        let insert = sqlx::query!(
            "insert into authority (certificate_der, sealed_key) values ($1, $2) on conflict do nothing",
            fresh.0,
            sealed
        );
        let mut tx = self.begin().await?;
        self.hold_seal(&mut tx).await?;
        insert.execute(&mut *tx).await?;
        let row =
            sqlx::query!("select certificate_der, sealed_key from authority").fetch_one(&mut *tx).await?;
        self.commit(tx).await?;
        Ok((row.certificate_der, self.seal().open(&authority_place(), &row.sealed_key)?))
    }

    /// The facts that a plan depends on: the latest of each kind, step and attempt. Exceptions: the first claim, the latest readiness of
    /// each level, and the latest power reading of each rack.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn planning_facts(&self, object: Uid) -> Result<Vec<Fact>, StoreError> {
        let rows = sqlx::query_as!(
            FactRow,
            r#"select distinct on (kind, attempt, step_key, case when kind = 'readiness' then body->>'level' end,
                 case when kind in ('reading', 'reading:failed') then source end) id, kind, source, step_key, attempt, body,
                 (extract(epoch from observed_at) * 1000000)::bigint as "observed_us!",
                 (extract(epoch from stored_at) * 1000000)::bigint as "stored_us!"
               from fact_history where object = $1 and kind <> 'log'
               order by kind, attempt, step_key, case when kind = 'readiness' then body->>'level' end,
                 case when kind in ('reading', 'reading:failed') then source end, case when kind = 'claim' then id else -id end"#,
            object.get()
        );
        rows.fetch_all(self.pool()).await?.into_iter().map(FactRow::fact).collect()
    }

    /// The addresses that are declared for these MACs.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn declared_addresses(&self, macs: &[String]) -> Result<Vec<IpAddr>, StoreError> {
        let rows = sqlx::query_scalar!(
            r#"select host(address) as "address!" from address
               where class = 'static' and mac = any($1::text[]::macaddr[]) order by address"#,
            macs
        );
        rows.fetch_all(self.pool()).await?.iter().map(|address| crate::ipam::parse(address)).collect()
    }

    /// Wakes one object of a kind, for work that any of them does for all.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn enqueue_any(&self, kind: &str) -> Result<(), StoreError> {
        let first = sqlx::query_scalar!("select uid from object where kind = $1 order by uid limit 1", kind);
        match first.fetch_optional(self.pool()).await? {
            Some(uid) => self.enqueue(uid.into(), Duration::ZERO).await,
            None => Ok(()),
        }
    }

    /// Stores the key of an attempt's boot tokens, sealed.
    pub(crate) async fn keep_attempt_key(
        &self,
        tx: &mut Tx,
        machine: Uid,
        attempt: Attempt,
        key: &[u8],
    ) -> Result<(), StoreError> {
        let sealed = self.seal().seal(&Place { object: machine, pointer: &attempt_pointer(attempt) }, key)?;
        self.hold_seal(tx).await?;
        let insert = sqlx::query!(
            "insert into attempt_key (attempt, machine, sealed) values ($1, $2, $3)",
            signed(attempt.get()),
            machine.get(),
            sealed
        );
        insert.execute(&mut **tx).await?;
        Ok(())
    }

    /// The key of an attempt's boot tokens.
    ///
    /// # Errors
    /// Fails if the seal key does not open it, or if the database cannot be read.
    pub async fn attempt_key(
        &self,
        machine: MachineId,
        attempt: Attempt,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
        let query = sqlx::query_scalar!(
            "select sealed from attempt_key where attempt = $1 and machine = $2",
            signed(attempt.get()),
            machine.get()
        );
        let Some(sealed) = query.fetch_optional(self.pool()).await? else { return Ok(None) };
        self.seal()
            .open(&Place { object: machine.into(), pointer: &attempt_pointer(attempt) }, &sealed)
            .map(Some)
    }

    /// The marks on a machine.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn machine_marks(&self, machine: MachineId) -> Result<MachineMarks, StoreError> {
        let row = sqlx::query!(
            "select unwiped, (extract(epoch from recommission_requested_at) * 1000000)::bigint as recommission_us,
               (extract(epoch from tests_accepted_at) * 1000000)::bigint as accepted_us, tests_accepted_by, tests_accepted_reason
             from machine_mark where machine = $1",
            machine.get()
        );
        let Some(row) = row.fetch_optional(self.pool()).await? else { return Ok(MachineMarks::default()) };
        Ok(MachineMarks {
            unwiped: row.unwiped,
            recommission_requested_at: row.recommission_us.map(timestamp).transpose()?,
            tests_accepted: match row.accepted_us {
                None => None,
                Some(at) => Some(TestsAccepted {
                    at: timestamp(at)?,
                    by: row.tests_accepted_by,
                    reason: row.tests_accepted_reason.unwrap_or_default(),
                }),
            },
        })
    }

    /// Sets the mark that a former deployment's data may still be on a machine's disks.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn mark_unwiped(&self, machine: MachineId, unwiped: bool) -> Result<(), StoreError> {
        let upsert = sqlx::query!(
            "insert into machine_mark (machine, unwiped) values ($1, $2)
             on conflict (machine) do update set unwiped = excluded.unwiped",
            machine.get(),
            unwiped
        );
        upsert.execute(self.pool()).await?;
        Ok(())
    }

    /// The deployment that has a machine, and when it claimed the machine.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn claim_on(
        &self,
        machine: MachineId,
    ) -> Result<Option<(DeploymentId, Timestamp)>, StoreError> {
        let row = sqlx::query!(
            r#"select deployment, (extract(epoch from claimed_at) * 1000000)::bigint as "claimed_us!"
               from machine_claim where machine = $1"#,
            machine.get()
        );
        let row = row.fetch_optional(self.pool()).await?;
        row.map(|r| Ok((DeploymentId::from(r.deployment), timestamp(r.claimed_us)?))).transpose()
    }
}
