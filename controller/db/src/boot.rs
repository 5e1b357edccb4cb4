//! Traces of boots: what machines asked of racks, by their MACs. Of each machine the last is kept, and of all that nobody declared so
//! much together.

use crate::fact::NewFact;
use crate::object::{signed, timestamp};
use crate::store::Tx;
use crate::{Store, StoreError};
use basalt_api::values::{Timestamp, Uid};
use serde_json::Value;

/// The kind of facts that are traces.
pub const BOOT_TRACE: &str = "boot_trace";

/// What a rack told at once, of one machine, is a row. So many of a machine are kept.
const OF_ONE: i64 = 256;
/// So many of all machines that nobody declared: whenever the region tidies up.
const OF_OTHERS: i64 = 20_000;
/// For so long, in days.
const KEPT: i32 = 14;

/// What a rack told at once of a machine.
#[derive(Clone, Debug)]
pub struct BootTrace {
    /// The machine.
    pub mac: String,
    /// The rack.
    pub source: String,
    /// As the rack told it.
    pub body: Value,
}

/// A client that asked over InfiniBand.
#[derive(Clone, Debug)]
pub struct HeardPort {
    /// The rack that heard it.
    pub rack: String,
    /// The address that stands for it in traces.
    pub mac: String,
    /// When a region last stored a trace of it.
    pub at: Timestamp,
}

/// So many ports are named at once.
const PORTS: i64 = 8;

/// Stores a trace. Without a MAC it is nobody's.
pub(crate) async fn insert(tx: &mut Tx, source: &str, fact: &NewFact) -> Result<(), StoreError> {
    let Some(mac) = &fact.mac else { return Ok(()) };
    let others_lost = fact.body.get("others_lost").and_then(Value::as_u64).unwrap_or(0);
    let insert = sqlx::query!(
        "insert into boot_trace (mac, source, body, others_lost) values ($1::text::macaddr, $2, $3, $4)",
        mac,
        source,
        fact.body,
        signed(others_lost)
    );
    insert.execute(&mut **tx).await?;
    let outdated = sqlx::query!(
        // Another rack may tell of the same machine now: what that one removes is not waited for.
        "delete from boot_trace where id in (
           select id from boot_trace where mac = $1::text::macaddr
           and id <= (select id from boot_trace where mac = $1::text::macaddr order by id desc offset $2 limit 1)
           for update skip locked)",
        mac,
        OF_ONE
    );
    outdated.execute(&mut **tx).await?;
    Ok(())
}

impl Store {
    /// What is kept of these MACs, in the order in which it was stored.
    ///
    /// # Errors
    /// The database.
    pub async fn boot_traces(&self, macs: &[String]) -> Result<Vec<BootTrace>, StoreError> {
        let rows = sqlx::query_as!(
            BootTrace,
            r#"select mac::text as "mac!", source, body from boot_trace
               where mac = any($1::text[]::macaddr[]) order by id"#,
            macs
        );
        Ok(rows.fetch_all(self.pool()).await?)
    }

    /// How much of machines that nobody declared racks could not keep within the last day.
    ///
    /// # Errors
    /// The database.
    pub async fn boot_traces_lost(&self) -> Result<u64, StoreError> {
        let lost = sqlx::query_scalar!(
            r#"select coalesce(sum(others_lost), 0)::bigint as "lost!" from boot_trace
               where stored_at > now() - interval '1 day'"#
        );
        Ok(crate::object::unsigned(lost.fetch_one(self.pool()).await?))
    }

    /// Clients that this rack, or any, heard over InfiniBand within the last day; the latest eight, the newest first.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn infiniband_heard(&self, rack: Option<&str>) -> Result<Vec<HeardPort>, StoreError> {
        struct Row {
            source: String,
            mac: String,
            at_us: i64,
        }
        // The condition on the body is that of an index, word for word.
        let rows = sqlx::query_as!(
            Row,
            r#"select source, mac::text as "mac!", (extract(epoch from max(stored_at)) * 1000000)::bigint as "at_us!"
               from boot_trace
               where body @> '{"entries": [{"reason": "infiniband"}]}'
               and stored_at > now() - interval '1 day' and source = coalesce($1::text, source)
               group by source, mac order by max(stored_at) desc limit $2"#,
            rack,
            PORTS
        );
        let rows = rows.fetch_all(self.pool()).await?;
        let port = |row: Row| Ok(HeardPort { rack: row.source, mac: row.mac, at: timestamp(row.at_us)? });
        rows.into_iter().map(port).collect()
    }

    /// The MACs that a machine boots by.
    ///
    /// # Errors
    /// The database.
    pub async fn macs_of(&self, machine: Uid) -> Result<Vec<String>, StoreError> {
        let macs = sqlx::query_scalar!(
            r#"select mac::text as "mac!" from machine_mac where machine = $1 order by mac"#,
            machine.get()
        );
        Ok(macs.fetch_all(self.pool()).await?)
    }

    /// The machine that boots by a MAC.
    ///
    /// # Errors
    /// The database.
    pub async fn machine_of(&self, mac: &str) -> Result<Option<Uid>, StoreError> {
        let machine =
            sqlx::query_scalar!("select machine from machine_mac where mac = $1::text::macaddr", mac);
        Ok(machine.fetch_optional(self.pool()).await?.map(Uid::from))
    }

    /// Forgets traces that are older than they are kept, and of machines that nobody declared those that are too many.
    ///
    /// # Errors
    /// The database.
    pub async fn prune_boot_traces(&self) -> Result<(), StoreError> {
        let old = sqlx::query!(
            "delete from boot_trace where id in (
               select id from boot_trace where stored_at < now() - make_interval(days => $1) for update skip locked)",
            KEPT
        );
        old.execute(self.pool()).await?;
        let many = sqlx::query!(
            "delete from boot_trace where id in (
               select t.id from boot_trace t where not exists (select from machine_mac m where m.mac = t.mac)
               and t.id <= (select o.id from boot_trace o
                            where not exists (select from machine_mac m where m.mac = o.mac)
                            order by o.id desc offset $1 limit 1)
               for update skip locked)",
            OF_OTHERS
        );
        many.execute(self.pool()).await?;
        Ok(())
    }
}
