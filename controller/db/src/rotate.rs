//! Rotates the seal key: all sealed data is opened with the old key and sealed with the new one, in one transaction.
//!
//! A running region does not seal with the old key afterwards. Before it seals, a region reads `seal_check` under a lock that this
//! transaction excludes ([`Store::hold_seal`](crate::Store)). If the check is not the one from its start, the region stops.
//! So a committed rotation is complete, and one that was not committed has changed nothing.

use crate::StoreError;
use crate::bmc_account;
use crate::common_concern;
use crate::concern;
use crate::driver::{attempt_pointer, authority_place};
use crate::entry;
use crate::object::unsigned;
use crate::recover::known_schema;
use crate::seal::{Place, SealKey};
use crate::store::{connect, opens, sealed_check};
use crate::stranger;
use basalt_api::values::{Attempt, Uid};
use sqlx::{Connection, PgConnection};

/// The number of rows per read. Concerns are large, and are read one by one.
const PAGE: i64 = 500;

/// The result of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotated {
    /// This many texts are sealed with the new key.
    Now(u64),
    /// They were sealed with the new key already.
    Before,
}

/// The reason why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// Neither key opens the sealed data.
    #[error("the secrets are sealed with neither key")]
    OtherKey,
    /// Regions are running on the database.
    #[error("regions still work on this database ({})", .0.join(", "))]
    Alive(Vec<String>),
    /// The database is of a newer version, which may have sealed data unknown to this one.
    #[error("the database has the schema {theirs}, and this program knows {ours}")]
    Newer {
        /// The schema of the database.
        theirs: i64,
        /// The newest schema that this program knows.
        ours: i64,
    },
    /// The database failed, or a text cannot be opened.
    #[error("the secrets cannot be sealed anew")]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for RotateError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Replaces `old` by `new`. `ourselves` is a region process that is known to have ended, although the database may list it. `sealed`
/// is called before the transaction is committed.
///
/// # Errors
/// [`RotateError`]: nothing has changed.
pub async fn rotate(
    url: &str,
    (old, new): (&SealKey, &SealKey),
    ourselves: Option<Uid>,
    sealed: impl FnOnce(),
) -> Result<Rotated, RotateError> {
    let mut connection = connect(url).await?;
    let mut tx = connection.begin().await?;
    let newest = sqlx::query_scalar::<_, i64>("select max(version) from _sqlx_migrations where success");
    let (theirs, ours) = (newest.fetch_one(&mut *tx).await?, known_schema());
    if theirs > ours {
        return Err(RotateError::Newer { theirs, ours });
    }
    // From here on no region seals, and a region that starts waits.
    let check = sqlx::query_scalar!("select seal_check from region_meta for update");
    match check.fetch_one(&mut *tx).await? {
        Some(check) if opens(new, &check) => return Ok(Rotated::Before),
        Some(check) if !opens(old, &check) => return Err(RotateError::OtherKey),
        _ => {}
    }
    let living = crate::recover::living(&mut tx, ourselves).await?;
    if !living.is_empty() {
        return Err(RotateError::Alive(living));
    }
    let keys = Keys { old, new };
    let mut count = keys.secrets(&mut tx).await?;
    count += keys.attempts(&mut tx).await?;
    count += keys.concerns(&mut tx).await?;
    // Common concerns and entries are copies of texts that are counted already.
    keys.common_concerns(&mut tx).await?;
    keys.entries(&mut tx).await?;
    count += keys.authority(&mut tx).await?;
    count += keys.strangers(&mut tx).await?;
    count += keys.bmc_accounts(&mut tx).await?;
    let check = sealed_check(new)?;
    sqlx::query!("update region_meta set seal_check = $1", check).execute(&mut *tx).await?;
    sealed();
    tx.commit().await?;
    connection.close().await?;
    Ok(Rotated::Now(count))
}

struct Keys<'a> {
    old: &'a SealKey,
    new: &'a SealKey,
}

/// One method per table with sealed data.
impl Keys<'_> {
    fn again(&self, place: &Place<'_>, sealed: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.new.seal(place, &self.old.open(place, sealed)?)
    }

    async fn secrets(&self, tx: &mut PgConnection) -> Result<u64, StoreError> {
        let (mut count, mut after) = (0, (uuid::Uuid::nil(), String::new()));
        loop {
            let rows = sqlx::query!(
                "select object, pointer, sealed from secret where (object, pointer) > ($1, $2)
                 order by object, pointer limit $3 for update",
                after.0,
                after.1,
                PAGE
            );
            let rows = rows.fetch_all(&mut *tx).await?;
            let Some(last) = rows.last() else { return Ok(count) };
            after = (last.object, last.pointer.clone());
            let (mut objects, mut pointers, mut resealed) = (Vec::new(), Vec::new(), Vec::new());
            for row in rows {
                let place = Place { object: Uid::from(row.object), pointer: &row.pointer };
                resealed.push(self.again(&place, &row.sealed)?);
                objects.push(row.object);
                pointers.push(row.pointer);
            }
            let update = sqlx::query!(
                "update secret s set sealed = u.sealed from unnest($1::uuid[], $2::text[], $3::bytea[]) u(object, pointer, sealed)
                 where s.object = u.object and s.pointer = u.pointer",
                &objects,
                &pointers,
                &resealed
            );
            count += update.execute(&mut *tx).await?.rows_affected();
        }
    }

    async fn attempts(&self, tx: &mut PgConnection) -> Result<u64, StoreError> {
        let (mut count, mut after) = (0, i64::MIN);
        loop {
            let rows = sqlx::query!(
                "select attempt, machine, sealed from attempt_key where attempt > $1 order by attempt limit $2 for update",
                after,
                PAGE
            );
            let rows = rows.fetch_all(&mut *tx).await?;
            let Some(last) = rows.last() else { return Ok(count) };
            after = last.attempt;
            let (mut attempts, mut resealed) = (Vec::new(), Vec::new());
            for row in rows {
                let pointer = attempt_pointer(Attempt::new(unsigned(row.attempt)));
                let place = Place { object: Uid::from(row.machine), pointer: &pointer };
                resealed.push(self.again(&place, &row.sealed)?);
                attempts.push(row.attempt);
            }
            let update = sqlx::query!(
                "update attempt_key k set sealed = u.sealed from unnest($1::bigint[], $2::bytea[]) u(attempt, sealed)
                 where k.attempt = u.attempt",
                &attempts,
                &resealed
            );
            count += update.execute(&mut *tx).await?.rows_affected();
        }
    }

    async fn concerns(&self, tx: &mut PgConnection) -> Result<u64, StoreError> {
        let (mut count, mut after) = (0, (uuid::Uuid::nil(), String::new()));
        loop {
            let row = sqlx::query!(
                "select rack, concern, body from rack_concern where (rack, concern) > ($1, $2)
                 order by rack, concern limit 1 for update",
                after.0,
                after.1
            );
            let Some(row) = row.fetch_optional(&mut *tx).await? else { return Ok(count) };
            let pointer = concern::pointer(&row.concern);
            let resealed =
                self.again(&Place { object: Uid::from(row.rack), pointer: &pointer }, &row.body)?;
            let update = sqlx::query!(
                "update rack_concern set body = $3 where rack = $1 and concern = $2",
                row.rack,
                row.concern,
                resealed
            );
            count += update.execute(&mut *tx).await?.rows_affected();
            after = (row.rack, row.concern);
        }
    }

    async fn common_concerns(&self, tx: &mut PgConnection) -> Result<(), StoreError> {
        let rows = sqlx::query!("select concern, body from common_concern order by concern for update");
        for row in rows.fetch_all(&mut *tx).await? {
            let resealed = common_concern::with_place(&row.concern, |place| self.again(place, &row.body))?;
            let update =
                sqlx::query!("update common_concern set body = $2 where concern = $1", row.concern, resealed);
            update.execute(&mut *tx).await?;
        }
        Ok(())
    }

    async fn entries(&self, tx: &mut PgConnection) -> Result<(), StoreError> {
        let mut after = (String::new(), uuid::Uuid::nil());
        loop {
            let rows = sqlx::query!(
                r#"select concern, object, body as "body!" from entry where (concern, object) > ($1, $2) and body is not null
                   order by concern, object limit $3 for update"#,
                after.0,
                after.1,
                PAGE
            );
            let rows = rows.fetch_all(&mut *tx).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = (last.concern.clone(), last.object);
            let (mut concerns, mut objects, mut resealed) = (Vec::new(), Vec::new(), Vec::new());
            for row in rows {
                let place = Place { object: Uid::from(row.object), pointer: &entry::pointer(&row.concern) };
                resealed.push(self.again(&place, &row.body)?);
                objects.push(row.object);
                concerns.push(row.concern);
            }
            let update = sqlx::query!(
                "update entry e set body = u.body from unnest($1::text[], $2::uuid[], $3::bytea[]) u(concern, object, body)
                 where e.concern = u.concern and e.object = u.object",
                &concerns,
                &objects,
                &resealed
            );
            update.execute(&mut *tx).await?;
        }
    }

    async fn strangers(&self, tx: &mut PgConnection) -> Result<u64, StoreError> {
        let key = sqlx::query_scalar!("select sealed from stranger_attempt for update");
        let Some(key) = key.fetch_optional(&mut *tx).await? else { return Ok(0) };
        let resealed = self.again(&stranger::key_place(), &key)?;
        let update = sqlx::query!("update stranger_attempt set sealed = $1", resealed);
        Ok(update.execute(&mut *tx).await?.rows_affected())
    }

    async fn bmc_accounts(&self, tx: &mut PgConnection) -> Result<u64, StoreError> {
        let (mut count, mut after) = (0, uuid::Uuid::nil());
        loop {
            let rows = sqlx::query!(
                "select machine, sealed from bmc_account where machine > $1 order by machine limit $2 for update",
                after,
                PAGE
            );
            let rows = rows.fetch_all(&mut *tx).await?;
            let Some(last) = rows.last() else { return Ok(count) };
            after = last.machine;
            let (mut machines, mut resealed) = (Vec::new(), Vec::new());
            for row in rows {
                resealed.push(self.again(&bmc_account::place(Uid::from(row.machine)), &row.sealed)?);
                machines.push(row.machine);
            }
            let update = sqlx::query!(
                "update bmc_account a set sealed = u.sealed from unnest($1::uuid[], $2::bytea[]) u(machine, sealed)
                 where a.machine = u.machine",
                &machines,
                &resealed
            );
            count += update.execute(&mut *tx).await?.rows_affected();
        }
    }

    async fn authority(&self, tx: &mut PgConnection) -> Result<u64, StoreError> {
        let key = sqlx::query_scalar!("select sealed_key from authority for update");
        let Some(key) = key.fetch_optional(&mut *tx).await? else { return Ok(0) };
        let resealed = self.again(&authority_place(), &key)?;
        let update = sqlx::query!("update authority set sealed_key = $1", resealed);
        Ok(update.execute(&mut *tx).await?.rows_affected())
    }
}
