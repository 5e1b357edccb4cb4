//! Boot traces: the requests that machines send to racks, by MAC. Each machine's last traces are kept. Machines without an object
//! share one limit.

use crate::fact::NewFact;
use crate::object::{signed, timestamp};
use crate::{Store, StoreError};
use basalt_api::values::{Timestamp, Uid};
use serde_json::Value;
use sqlx::PgConnection;

/// The kind of facts that are traces.
pub const BOOT_TRACE: &str = "boot_trace";

/// The number of traces (rows) kept of one machine. A row holds what a rack reported at once.
const OF_ONE: i64 = 256;
/// The number of traces kept of all machines without an object. Applied whenever the region prunes.
const OF_OTHERS: i64 = 20_000;
/// The age at which traces are deleted, in days.
const KEPT: i32 = 14;

/// One report of a rack about the requests of one machine.
#[derive(Clone, Debug)]
pub struct BootTrace {
    /// The machine's MAC address.
    pub mac: String,
    /// The rack's name.
    pub source: String,
    /// The report, as the rack sent it.
    pub body: Value,
}

/// A client that sent a DHCP request over InfiniBand.
#[derive(Clone, Debug)]
pub struct HeardPort {
    /// The rack that heard it.
    pub rack: String,
    /// The MAC under which traces name the client.
    pub mac: String,
    /// When a region last stored a trace of it.
    pub at: Timestamp,
}

/// The number of ports in one answer.
const PORTS: i64 = 8;

/// Stores a trace. A trace without a MAC is dropped.
pub(crate) async fn insert(tx: &mut PgConnection, source: &str, fact: &NewFact) -> Result<(), StoreError> {
    let Some(mac) = &fact.mac else { return Ok(()) };
    let others_lost = fact.body.get("others_lost").and_then(Value::as_u64).unwrap_or(0);
    let insert = sqlx::query!(
        "insert into boot_trace (mac, source, body, others_lost) values ($1::text::macaddr, $2, $3, $4)",
        mac,
        source,
        fact.body,
        signed(others_lost)
    );
    insert.execute(&mut *tx).await?;
    let outdated = sqlx::query!(
        // Another rack may report the same machine at the same time. The rows that its transaction deletes are skipped.
        "delete from boot_trace where id in (
           select id from boot_trace where mac = $1::text::macaddr
           and id <= (select id from boot_trace where mac = $1::text::macaddr order by id desc offset $2 limit 1)
           for update skip locked)",
        mac,
        OF_ONE
    );
    outdated.execute(&mut *tx).await?;
    Ok(())
}

impl Store {
    /// The traces of these MACs, in the order in which they were stored.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn boot_traces(&self, macs: &[String]) -> Result<Vec<BootTrace>, StoreError> {
        let rows = sqlx::query_as!(
            BootTrace,
            r#"select mac::text as "mac!", source, body from boot_trace
               where mac = any($1::text[]::macaddr[]) order by id"#,
            macs
        );
        Ok(rows.fetch_all(self.pool()).await?)
    }

    /// The number of requests, of machines without an object, that racks dropped within the last day.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn boot_traces_lost(&self) -> Result<u64, StoreError> {
        let lost = sqlx::query_scalar!(
            r#"select coalesce(sum(others_lost), 0)::bigint as "lost!" from boot_trace
               where stored_at > now() - interval '1 day'"#
        );
        Ok(crate::object::unsigned(lost.fetch_one(self.pool()).await?))
    }

    /// Clients that this rack, or any rack, heard over InfiniBand within the last day: the latest eight, newest first.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn infiniband_heard(&self, rack: Option<&str>) -> Result<Vec<HeardPort>, StoreError> {
        struct Row {
            source: String,
            mac: String,
            at_us: i64,
        }
        // The condition on the body must match that of the index word for word.
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
    /// Fails if the database cannot be read.
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
    /// Fails if the database cannot be read.
    pub async fn machine_of(&self, mac: &str) -> Result<Option<Uid>, StoreError> {
        let machine =
            sqlx::query_scalar!("select machine from machine_mac where mac = $1::text::macaddr", mac);
        Ok(machine.fetch_optional(self.pool()).await?.map(Uid::from))
    }

    /// Deletes old traces, and traces of machines without an object above their limit.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
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
