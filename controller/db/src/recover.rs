//! A database that no region works on: looked at and mended from outside.

use crate::store::{MIGRATIONS, connect};
use crate::{SealKey, StoreError};
use basalt_api::values::{Incarnation, Uid};
use sqlx::{Connection, PgConnection};

/// A process that said that it lives within this many seconds may still live.
const ALIVE_SECONDS: f64 = 15.0;

/// How far sequences jump: further than what a fleet can have drawn since a backup.
const LEAP: i64 = 1_000_000;

/// What a database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vitals {
    /// Which life of it.
    pub incarnation: Incarnation,
    /// A known text, sealed: only the right key opens it.
    pub seal_check: Option<Vec<u8>>,
    /// The newest migration in it.
    pub schema: i64,
    /// Addresses of the regions that work on it.
    pub living: Vec<String>,
}

/// The newest migration that this program knows.
#[must_use]
pub fn known_schema() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or_default()
}

/// Whether a region's tables are in the database.
///
/// # Errors
/// The database.
pub async fn holds_a_region(url: &str) -> Result<bool, StoreError> {
    let mut connection = connect(url).await?;
    let there = sqlx::query_scalar!(r#"select to_regclass('region_meta') is not null as "there!""#);
    let there = there.fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(there)
}

/// What the database is.
///
/// # Errors
/// The database.
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

/// Addresses of the regions that may be at work; `but` is known not to be.
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

/// Begins another life of a database that went back in time: watch positions, epochs and what racks were told by the
/// life before are void, and no attempt or epoch that was given out is given out again.
///
/// # Errors
/// The database.
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
    // Racks hold what the life before told them last: that they said so of something older counts for nothing.
    sqlx::query!("delete from rack_concern_ack").execute(&mut *tx).await?;
    // What racks said of blocks in the life before counts for nothing: they are asked under new numbers.
    sqlx::query!("update dhcp_block set leaves_at = null where range is null and free_at is null")
        .execute(&mut *tx)
        .await?;
    // Secondaries may hold a zone of the life before under a higher serial. RFC 1982 takes a leap of 2^30 for a rise.
    sqlx::query!("update zone set serial = (serial + 1073741823) % 4294967295 + 1").execute(&mut *tx).await?;
    // Spans of time on the clock that the backup was made with.
    sqlx::query!("delete from lease").execute(&mut *tx).await?;
    sqlx::query!("delete from lease6").execute(&mut *tx).await?;
    sqlx::query!("delete from region_process").execute(&mut *tx).await?;
    tx.commit().await?;
    connection.close().await?;
    Ok(Incarnation::from(incarnation))
}

/// Forgets blobs whose bytes are lost; images say then that they are missing.
///
/// # Errors
/// The database.
pub async fn forget_blobs(url: &str, kept: &[[u8; 32]]) -> Result<u64, StoreError> {
    let mut connection = connect(url).await?;
    let kept: Vec<Vec<u8>> = kept.iter().map(|sha256| sha256.to_vec()).collect();
    let delete = sqlx::query!("delete from blob where sha256 <> all($1)", &kept);
    let lost = delete.execute(&mut connection).await?.rows_affected();
    connection.close().await?;
    Ok(lost)
}

/// Whether a key is the one that a database was made with.
#[must_use]
pub fn opens(seal: &SealKey, seal_check: &[u8]) -> bool {
    crate::store::opens(seal, seal_check)
}
