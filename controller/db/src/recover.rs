//! Reads and repairs a database on which no region works.

use crate::store::{MIGRATIONS, connect};
use crate::{SealKey, StoreError};
use basalt_api::values::{Incarnation, Uid};
use sqlx::{Connection, PgConnection};

/// Seconds after its last heartbeat within which a process may still be alive.
const ALIVE_SECONDS: f64 = 15.0;

/// The number by which sequences jump: more than a fleet can have used since a backup.
const LEAP: i64 = 1_000_000;

/// The facts about a database that decide if it can be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vitals {
    /// The incarnation of the database.
    pub incarnation: Incarnation,
    /// A known text, sealed. Only the right key opens it.
    pub seal_check: Option<Vec<u8>>,
    /// The version of its newest migration.
    pub schema: i64,
    /// The API addresses of the regions that work on it.
    pub living: Vec<String>,
}

/// The newest migration that this program knows.
#[must_use]
pub fn known_schema() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or_default()
}

/// True if the database has a region's tables.
///
/// # Errors
/// Fails if the database cannot be read.
pub async fn holds_a_region(url: &str) -> Result<bool, StoreError> {
    let mut connection = connect(url).await?;
    let there = sqlx::query_scalar!(r#"select to_regclass('region_meta') is not null as "there!""#);
    let there = there.fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(there)
}

/// Reads the [`Vitals`] of a database.
///
/// # Errors
/// Fails if the database cannot be read.
pub async fn vitals(url: &str) -> Result<Vitals, StoreError> {
    let mut connection = connect(url).await?;
    let meta =
        sqlx::query!("select incarnation, seal_check from region_meta").fetch_one(&mut connection).await?;
    let living = living(&mut connection, None).await?;
    // The table is sqlx's own, and not in the migrations that queries are checked against.
    let schema = sqlx::query_scalar::<_, i64>("select max(version) from _sqlx_migrations where success");
    let schema = schema.fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(Vitals {
        incarnation: Incarnation::from(meta.incarnation),
        seal_check: meta.seal_check,
        schema,
        living,
    })
}

/// The API addresses of the regions that may be alive. The process `but` is known to have ended.
pub(crate) async fn living(
    connection: &mut PgConnection,
    but: Option<Uid>,
) -> Result<Vec<String>, StoreError> {
    let living = sqlx::query_scalar!(
        "select api_address from region_process
         where heartbeat > now() - make_interval(secs => $1) and id is distinct from $2 order by api_address",
        ALIVE_SECONDS,
        but.map(|id| id.get())
    );
    Ok(living.fetch_all(connection).await?)
}

/// Begins a new incarnation of a database that went back in time. Watch positions, epochs and racks' answers of the old incarnation
/// are void. No attempt and no epoch that was used is used again.
///
/// # Errors
/// Fails if the database cannot be written.
pub async fn recover(url: &str) -> Result<Incarnation, StoreError> {
    let mut connection = connect(url).await?;
    let mut tx = connection.begin().await?;
    let incarnation =
        sqlx::query_scalar!("update region_meta set incarnation = gen_random_uuid() returning incarnation");
    let incarnation = incarnation.fetch_one(&mut *tx).await?;
    let leap = sqlx::query!(
        "select setval('attempt', nextval('attempt') + $1) as attempt, setval('epoch', nextval('epoch') + $1) as epoch,
           setval('dhcp_delegation', nextval('dhcp_delegation') + $1) as dhcp_delegation",
        LEAP
    );
    leap.fetch_one(&mut *tx).await?;
    let leases =
        sqlx::query!("update reconcile_queue set lease_owner = null, lease_until = null, attempts = 0");
    leases.execute(&mut *tx).await?;
    // Racks have newer concerns than this database knows. Their answers to older ones no longer count.
    sqlx::query!("delete from rack_concern_ack").execute(&mut *tx).await?;
    // Racks' reports about blocks in the old incarnation do not count: they will be asked under new numbers.
    sqlx::query!("update dhcp_block set leaves_at = null where range is null and free_at is null")
        .execute(&mut *tx)
        .await?;
    // Secondaries may have a zone of the old incarnation with a higher serial. RFC 1982 takes a step of 2^30 for a rise.
    sqlx::query!("update zone set serial = (serial + 1073741823) % 4294967295 + 1").execute(&mut *tx).await?;
    // Leases hold times of the clock under which the backup was made.
    sqlx::query!("delete from lease").execute(&mut *tx).await?;
    sqlx::query!("delete from lease6").execute(&mut *tx).await?;
    sqlx::query!("delete from region_process").execute(&mut *tx).await?;
    tx.commit().await?;
    connection.close().await?;
    Ok(Incarnation::from(incarnation))
}

/// Deletes the records of blobs whose bytes are lost. Images then report them as missing.
///
/// # Errors
/// Fails if the database cannot be written.
pub async fn forget_blobs(url: &str, kept: &[[u8; 32]]) -> Result<u64, StoreError> {
    let mut connection = connect(url).await?;
    let kept: Vec<Vec<u8>> = kept.iter().map(|sha256| sha256.to_vec()).collect();
    let delete = sqlx::query!("delete from blob where sha256 <> all($1)", &kept);
    let lost = delete.execute(&mut connection).await?.rows_affected();
    connection.close().await?;
    Ok(lost)
}

/// True if the database was made with this key.
#[must_use]
pub fn opens(seal: &SealKey, seal_check: &[u8]) -> bool {
    crate::store::opens(seal, seal_check)
}
