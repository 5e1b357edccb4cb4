//! Targets of machine logs. For each target, the database keeps the lease of the region process that forwards, the position, and the state.
//!
//! A position maps each rack's spool to the number of the last forwarded line. Every region keeps the same lines in its own files, so any
//! region can continue from a position (docs/decisions/101-forwarded-logs.md).

use crate::object::{signed, unsigned};
use crate::{Store, StoreError};
use basalt_api::values::Uid;
use std::collections::BTreeMap;
use std::time::Duration;

/// A spool that sent nothing for this many days is removed: the rack no longer has it.
const FORGOTTEN_DAYS: i32 = 90;

/// The number of the last forwarded line, by spool.
pub type Positions = BTreeMap<String, u64>;

/// The state of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogTarget {
    /// Its key in `Settings.remote_syslog`.
    pub name: String,
    /// True: the target accepts lines now.
    pub connected: bool,
    /// The cause, if it is not connected.
    pub message: String,
    /// The number of lines that the target has accepted.
    pub forwarded: u64,
    /// The number of lines that were deleted before they could be forwarded.
    pub lost: u64,
    /// Bytes of lines that wait for the target.
    pub waiting: u64,
}

/// Progress of a target since the last record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogProgress {
    /// The spools that advanced, with their last numbers.
    pub positions: Positions,
    /// The number of lines that the target accepted.
    pub forwarded: u64,
    /// The number of lines that were deleted before they could be forwarded.
    pub lost: u64,
    /// Bytes of lines that wait for the target.
    pub waiting: u64,
    /// The reason for which the target accepts no lines; `None` if it accepts them.
    pub failure: Option<String>,
}

impl Store {
    /// Claims a target for this process and returns its position. `None`: another process has claimed it.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn claim_log_target(
        &self,
        name: &str,
        owner: Uid,
        lease: Duration,
    ) -> Result<Option<Positions>, StoreError> {
        let claim = sqlx::query!(
            "insert into log_target as t (name, owner, lease_until) values ($1, $2, now() + make_interval(secs => $3))
             on conflict (name) do update set owner = excluded.owner, lease_until = excluded.lease_until
             where t.owner is null or t.owner = excluded.owner or t.lease_until is null or t.lease_until < now()",
            name,
            owner.get(),
            lease.as_secs_f64()
        );
        if claim.execute(self.pool()).await?.rows_affected() == 0 {
            return Ok(None);
        }
        let rows = sqlx::query!("select spool, through from log_position where target = $1", name);
        let rows = rows.fetch_all(self.pool()).await?;
        Ok(Some(rows.into_iter().map(|row| (row.spool, unsigned(row.through))).collect()))
    }

    /// Records progress, and extends the lease. `false`: another process has claimed the target, and nothing was recorded.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn note_log_progress(
        &self,
        name: &str,
        owner: Uid,
        lease: Duration,
        progress: &LogProgress,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let update = sqlx::query!(
            "update log_target set lease_until = now() + make_interval(secs => $3), connected = $4, message = $5,
               forwarded = forwarded + $6, lost = lost + $7, waiting = $8
             where name = $1 and owner = $2 and lease_until >= now()",
            name,
            owner.get(),
            lease.as_secs_f64(),
            progress.failure.is_none(),
            progress.failure.as_deref().unwrap_or_default(),
            signed(progress.forwarded),
            signed(progress.lost),
            signed(progress.waiting)
        );
        if update.execute(&mut *tx).await?.rows_affected() == 0 {
            return Ok(false);
        }
        let (spools, through): (Vec<String>, Vec<i64>) =
            progress.positions.iter().map(|(spool, through)| (spool.clone(), signed(*through))).unzip();
        let upsert = sqlx::query!(
            "insert into log_position as p (target, spool, through)
             select $1, new.spool, new.through from unnest($2::text[], $3::bigint[]) new(spool, through)
             on conflict (target, spool) do update set through = greatest(p.through, excluded.through), moved_at = now()",
            name,
            &spools,
            &through
        );
        upsert.execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Releases a target, so that another process can claim it.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn release_log_target(&self, name: &str, owner: Uid) -> Result<(), StoreError> {
        let update = sqlx::query!(
            "update log_target set owner = null, lease_until = null where name = $1 and owner = $2",
            name,
            owner.get()
        );
        update.execute(self.pool()).await?;
        Ok(())
    }

    /// Releases all targets of a process that is gone.
    pub(crate) async fn release_log_targets(&self, owner: Uid) -> Result<(), StoreError> {
        let update = sqlx::query!(
            "update log_target set owner = null, lease_until = null where owner = $1",
            owner.get()
        );
        update.execute(self.pool()).await?;
        Ok(())
    }

    /// Deletes targets that Settings do not name, and spools that sent nothing for 90 days.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn forget_log_targets(&self) -> Result<(), StoreError> {
        let delete = sqlx::query!(
            "delete from log_target t where not exists (select from object o
               where o.kind = 'Settings' and jsonb_exists(o.spec::jsonb -> 'remote_syslog', t.name))"
        );
        delete.execute(self.pool()).await?;
        let delete = sqlx::query!(
            "delete from log_position where moved_at < now() - make_interval(days => $1)",
            FORGOTTEN_DAYS
        );
        delete.execute(self.pool()).await?;
        Ok(())
    }

    /// All targets, by name.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn log_targets(&self) -> Result<Vec<LogTarget>, StoreError> {
        let rows = sqlx::query!(
            "select name, connected, message, forwarded, lost, waiting from log_target order by name"
        );
        let rows = rows.fetch_all(self.pool()).await?;
        Ok(rows
            .into_iter()
            .map(|row| LogTarget {
                name: row.name,
                connected: row.connected,
                message: row.message,
                forwarded: unsigned(row.forwarded),
                lost: unsigned(row.lost),
                waiting: unsigned(row.waiting),
            })
            .collect())
    }

    /// The positions of all targets, by name.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn log_positions(&self) -> Result<BTreeMap<String, Positions>, StoreError> {
        let rows = sqlx::query!(
            r#"select t.name as "name!", p.spool as "spool?", p.through as "through?"
               from log_target t left join log_position p on p.target = t.name"#
        );
        let mut targets: BTreeMap<String, Positions> = BTreeMap::new();
        for row in rows.fetch_all(self.pool()).await? {
            let positions = targets.entry(row.name).or_default();
            positions.extend(row.spool.zip(row.through.map(unsigned)));
        }
        Ok(targets)
    }

    /// The names of machines, by uid. Machines that are gone are left out.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn machine_names(&self, uids: &[Uid]) -> Result<BTreeMap<Uid, String>, StoreError> {
        let uids: Vec<_> = uids.iter().map(|uid| uid.get()).collect();
        let rows =
            sqlx::query!("select uid, name from object where kind = 'Machine' and uid = any($1)", &uids);
        let rows = rows.fetch_all(self.pool()).await?;
        Ok(rows.into_iter().map(|row| (Uid::from(row.uid), row.name)).collect())
    }
}
