//! DHCP leases that racks report. For each address, the last lease of each rack is stored. The region sends to a rack:
//!
//! - the IPv4 leases of other racks in the rack's subnets,
//! - the rack's own leases, IPv4 and IPv6, in case the rack has lost its lease file.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use basalt_api::values::{Mac, RackId, SubnetId, Timestamp, Uid};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::fact::NewFact;
use crate::object::{timestamp, unsigned};
use crate::{Store, StoreError};

/// The kind of facts that are leases.
const LEASE: &str = "lease";
/// Days after which an ended lease is deleted: nobody needs it then.
const KEPT: i32 = 1;
/// The longest time in a rack's report: a hundred years. PostgreSQL can still add that to a timestamp.
const LONGEST_MS: i64 = 100 * 366 * 86_400_000;

/// The rack that granted a lease, as seen from the rack that receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grantor {
    /// The receiving rack.
    Itself,
    /// The rack whose block contains the address.
    Owner,
    /// Any other rack.
    Another,
}

/// A lease, in the form that racks receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RackLease {
    /// The subnet's uid.
    pub subnet: Uuid,
    /// The leased address.
    pub address: String,
    /// The client's MAC address. For IPv6, empty if it is not known.
    pub mac: String,
    /// The host name that the client sent.
    pub hostname: String,
    /// The remaining time in milliseconds; negative if the lease has ended.
    pub ends_in_ms: i64,
    /// The time in milliseconds for which the granting rack still keeps the address for this client. `None` if the rack did not report it.
    pub kept_for_ms: Option<i64>,
    /// True if the client released the lease.
    pub given_back: bool,
    /// The rack that granted the lease.
    pub by: Grantor,
}

/// Marks the leases that a rack has already received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasesSeen {
    snapshot: String,
    subnets: Vec<Uuid>,
}

/// The leases of a rack in a subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubnetLeases {
    /// The uid of the subnet.
    pub subnet: SubnetId,
    /// The number of leases that run.
    pub running: u64,
    /// The number of addresses in the rack's blocks.
    pub addresses: u64,
}

/// The number of addresses from the first to the last one.
fn addresses(first: &str, last: &str) -> u64 {
    let number = |address: &str| match address.parse() {
        Ok(IpAddr::V4(address)) => Some(u128::from(address.to_bits())),
        Ok(IpAddr::V6(address)) => Some(Ipv6Addr::to_bits(address)),
        Err(_) => None,
    };
    let count =
        number(last).zip(number(first)).and_then(|(last, first)| last.checked_sub(first)?.checked_add(1));
    u64::try_from(count.unwrap_or_default()).unwrap_or(u64::MAX)
}

/// Stores a lease from a rack's fact. Other facts are ignored.
pub(crate) async fn note(tx: &mut PgConnection, rack: RackId, fact: &NewFact) -> Result<(), StoreError> {
    let text = |field: &str| fact.body.get(field).and_then(Value::as_str);
    let span = |field: &str| {
        fact.body.get(field).and_then(Value::as_i64).map(|ms| ms.clamp(-LONGEST_MS, LONGEST_MS))
    };
    // The fields come from a rack and may hold anything.
    let address = text("address").and_then(|address| address.parse::<IpAddr>().ok());
    let subnet = text("subnet_uid").and_then(|uid| uid.parse::<Uuid>().ok());
    let (LEASE, Some(address), Some(subnet)) = (fact.kind.as_str(), address, subnet) else {
        return Ok(());
    };
    if address.is_ipv6() {
        let upsert = sqlx::query!(
            "insert into lease6 (rack, subnet, address, mac, ends_at, given_back)
             select $1, subnet, $3::text::inet, $4::text::macaddr, now() + $5::bigint * interval '1 millisecond', $6
             from subnet_cidr where subnet = $2 and $3::text::inet <<= cidr
             on conflict (subnet, address, rack) do update
             set mac = excluded.mac, ends_at = excluded.ends_at, given_back = excluded.given_back, told_at = now()",
            rack.get(),
            subnet,
            address.to_string(),
            fact.mac.as_deref(),
            span("ends_in_ms").unwrap_or_default(),
            fact.body.get("released").and_then(Value::as_bool).unwrap_or_default()
        );
        upsert.execute(&mut *tx).await?;
        return Ok(());
    }
    let Some(mac) = &fact.mac else { return Ok(()) };
    // The subnet may have been deleted; then nothing is inserted.
    let upsert = sqlx::query!(
        "insert into lease (rack, subnet, address, mac, hostname, ends_at, kept_until, given_back)
         select $1, subnet, $3::text::inet, $4::text::macaddr, $5, now() + $6::bigint * interval '1 millisecond',
           now() + $7::bigint * interval '1 millisecond', $8
         from subnet_cidr where subnet = $2 and $3::text::inet <<= cidr
         on conflict (subnet, address, rack) do update
         set mac = excluded.mac, hostname = excluded.hostname, ends_at = excluded.ends_at,
             kept_until = excluded.kept_until, given_back = excluded.given_back, told_at = now(),
             changed = pg_current_xact_id()",
        rack.get(),
        subnet,
        address.to_string(),
        mac,
        text("hostname").unwrap_or_default(),
        span("ends_in_ms").unwrap_or_default(),
        span("kept_for_ms"),
        fact.body.get("released").and_then(Value::as_bool).unwrap_or_default()
    );
    upsert.execute(&mut *tx).await?;
    Ok(())
}

/// The lease of a client that ends last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastLease {
    /// The leased address.
    pub address: String,
    /// The client's MAC address.
    pub mac: String,
    /// The name of the rack that granted the lease; `None` if the rack was deleted.
    pub rack: Option<String>,
    /// When it ends, or ended.
    pub ends_at: Timestamp,
}

/// A lease that has not ended and was not given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentLease {
    /// The leased address.
    pub address: IpAddr,
    /// MAC address of the client.
    pub mac: Mac,
    /// When it ends.
    pub ends_at: Timestamp,
    /// When a rack last reported the lease.
    pub told_at: Timestamp,
}

impl Store {
    /// The current leases of these clients. IPv4 comes before IPv6, and the lease that a rack reported last comes first.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn current_leases(&self, macs: &[String]) -> Result<Vec<CurrentLease>, StoreError> {
        let rows = sqlx::query!(
            r#"select host(address) as "address!", mac::text as "mac!",
                 (extract(epoch from ends_at) * 1000000)::bigint as "ends_us!",
                 (extract(epoch from told_at) * 1000000)::bigint as "told_us!"
               from (select address, mac, ends_at, told_at, given_back from lease
                       where mac = any($1::text[]::macaddr[])
                     union all
                     select address, mac, ends_at, told_at, given_back from lease6
                       where mac = any($1::text[]::macaddr[])) l
               where not given_back and ends_at > now() order by family(address), told_at desc, address"#,
            macs
        );
        let corrupt = |bad: &dyn std::fmt::Display| StoreError::Corrupt(format!("a lease: {bad}"));
        let rows = rows.fetch_all(self.pool()).await?.into_iter().map(|row| {
            Ok(CurrentLease {
                address: row.address.parse().map_err(|bad| corrupt(&bad))?,
                mac: row.mac.parse().map_err(|bad| corrupt(&bad))?,
                ends_at: timestamp(row.ends_us)?,
                told_at: timestamp(row.told_us)?,
            })
        });
        rows.collect()
    }

    /// The lease of any of these clients that ends last. It may have ended, up to a day ago. IPv4 only.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn lease_of(&self, macs: &[String]) -> Result<Option<LastLease>, StoreError> {
        let row = sqlx::query!(
            r#"select host(l.address) as "address!", l.mac::text as "mac!", o.name as "rack?",
                 (extract(epoch from l.ends_at) * 1000000)::bigint as "ends_us!"
               from lease l left join object o on o.uid = l.rack
               where l.mac = any($1::text[]::macaddr[]) order by l.ends_at desc limit 1"#,
            macs
        );
        let Some(row) = row.fetch_optional(self.pool()).await? else { return Ok(None) };
        let ends_at = timestamp(row.ends_us)?;
        Ok(Some(LastLease { address: row.address, mac: row.mac, rack: row.rack, ends_at }))
    }

    /// The leases to send to a rack, of the subnets in which it has blocks. Without `seen`, all that still matter, the rack's own
    /// included; with `seen`, those that other racks granted since.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn leases_for(
        &self,
        rack: RackId,
        seen: Option<&LeasesSeen>,
    ) -> Result<(Vec<RackLease>, LeasesSeen), StoreError> {
        let now = sqlx::query!(
            // Changes of transactions that this snapshot does not contain come with the next call.
            r#"select pg_current_snapshot()::text as "snapshot!",
                 array(select distinct subnet from dhcp_block where rack = $1 order by 1) as "subnets!""#,
            rack.get()
        );
        let now = now.fetch_one(self.pool()).await?;
        let now = LeasesSeen { snapshot: now.snapshot, subnets: now.subnets };
        // If the rack has other subnets than before, it gets everything again: it has nothing of a new subnet.
        let since = seen.filter(|seen| seen.subnets == now.subnets).map(|seen| seen.snapshot.as_str());
        let rows = sqlx::query!(
            r#"select l.subnet, host(l.address) as "address!", l.mac::text as "mac!", l.hostname, l.given_back,
                 (extract(epoch from l.ends_at - clock_timestamp()) * 1000)::bigint as "ends_in_ms!",
                 (extract(epoch from l.kept_until - clock_timestamp()) * 1000)::bigint as kept_for_ms,
                 l.rack = $1 as "is_own!",
                 exists (select from dhcp_block b
                   where b.subnet = l.subnet and b.rack = l.rack and b.span @> l.address) as "is_owners!"
               from lease l
               where l.subnet = any($3)
                 and l.changed >= coalesce(pg_snapshot_xmin($2::text::pg_snapshot), '0'::xid8)
                 and ($2::text is null or (l.rack <> $1 and not pg_visible_in_snapshot(l.changed, $2::text::pg_snapshot)))
                 and greatest(l.ends_at, l.kept_until) > now()
               order by l.subnet, l.address, l.rack"#,
            rack.get(),
            since,
            &now.subnets
        );
        let leases = rows.fetch_all(self.pool()).await?.into_iter().map(|row| RackLease {
            subnet: row.subnet,
            address: row.address,
            mac: row.mac,
            hostname: row.hostname,
            ends_in_ms: row.ends_in_ms,
            kept_for_ms: row.kept_for_ms,
            given_back: row.given_back,
            by: match (row.is_own, row.is_owners) {
                (true, _) => Grantor::Itself,
                (false, true) => Grantor::Owner,
                (false, false) => Grantor::Another,
            },
        });
        let mut leases: Vec<RackLease> = leases.collect();
        if since.is_none() {
            leases.extend(self.own_leases6(rack).await?);
        }
        Ok((leases, now))
    }

    /// The current leases of IPv6 addresses that a rack has granted.
    async fn own_leases6(&self, rack: RackId) -> Result<impl Iterator<Item = RackLease>, StoreError> {
        let rows = sqlx::query!(
            r#"select subnet, host(address) as "address!", mac::text as mac,
                 (extract(epoch from ends_at - clock_timestamp()) * 1000)::bigint as "ends_in_ms!"
               from lease6 where rack = $1 and not given_back and ends_at > now() order by subnet, address"#,
            rack.get()
        );
        Ok(rows.fetch_all(self.pool()).await?.into_iter().map(|row| RackLease {
            subnet: row.subnet,
            address: row.address,
            mac: row.mac.unwrap_or_default(),
            hostname: String::new(),
            ends_in_ms: row.ends_in_ms,
            kept_for_ms: None,
            given_back: false,
            by: Grantor::Itself,
        }))
    }

    /// The number of running leases that a rack has granted in each subnet in which it has blocks of addresses. Reads the
    /// leases of those subnets alone.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn rack_leases(&self, rack: RackId) -> Result<Vec<SubnetLeases>, StoreError> {
        let blocks = sqlx::query!(
            r#"select subnet, host(lower(span)) as "first!", host(upper(span)) as "last!"
               from dhcp_block where rack = $1 and leaves_at is null"#,
            rack.get()
        );
        let mut counts: BTreeMap<Uuid, SubnetLeases> = BTreeMap::new();
        for block in blocks.fetch_all(self.pool()).await? {
            let new =
                || SubnetLeases { subnet: SubnetId::from(Uid::from(block.subnet)), running: 0, addresses: 0 };
            let count = counts.entry(block.subnet).or_insert_with(new);
            count.addresses = count.addresses.saturating_add(addresses(&block.first, &block.last));
        }
        let subnets: Vec<Uuid> = counts.keys().copied().collect();
        let running = sqlx::query!(
            r#"select subnet as "subnet!", count(*) as "count!" from (
                 select subnet from lease where subnet = any($2) and rack = $1 and not given_back and ends_at > now()
                 union all
                 select subnet from lease6 where subnet = any($2) and rack = $1 and not given_back and ends_at > now()) l
               group by subnet"#,
            rack.get(),
            &subnets
        );
        for row in running.fetch_all(self.pool()).await? {
            if let Some(count) = counts.get_mut(&row.subnet) {
                count.running = unsigned(row.count);
            }
        }
        Ok(counts.into_values().collect())
    }

    /// Deletes leases that ended long ago, and leases of deleted subnets.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn forget_leases(&self) -> Result<(), StoreError> {
        sqlx::query!(
            "delete from lease where greatest(ends_at, kept_until) < now() - make_interval(days => $1)
             or subnet not in (select subnet from subnet_cidr)",
            KEPT
        )
        .execute(self.pool())
        .await?;
        sqlx::query!(
            "delete from lease6 where ends_at < now() - make_interval(days => $1)
             or subnet not in (select subnet from subnet_cidr)",
            KEPT
        )
        .execute(self.pool())
        .await?;
        Ok(())
    }
}
