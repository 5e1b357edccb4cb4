//! The usage of subnets and ranges. It is counted on request, so it is always exact and slows no writer down.

use super::{GATEWAY, STATIC, parse};
use crate::{Store, StoreError};
use basalt_api::values::Uid;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use uuid::Uuid;

/// The usage of a subnet, in numbers of addresses. A number above 2^53 - 1 is given as 2^53 - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubnetUse {
    /// The subnet's gateway: 0 or 1.
    pub gateways: u64,
    /// Addresses of IpAddresses and Devices.
    pub ip_addresses: u64,
    /// Addresses of interfaces of deployments and machines.
    pub deployments: u64,
    /// The racks' addresses that no object owns. An address in a range is counted for the range too.
    pub racks: u64,
    /// Addresses leased from dynamic ranges to machines that Basalt knows.
    pub leases: u64,
    /// All addresses in dynamic ranges.
    pub dynamic: u64,
    /// All addresses in reserved ranges.
    pub reserved: u64,
    /// Addresses without an owner and in no range.
    pub free: u64,
}

/// The usage of a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeUse {
    /// Leased addresses of a dynamic range, or owned addresses of a reserved range.
    pub used: u64,
    /// The racks' parts of a dynamic range, in order; empty for a reserved range.
    pub blocks: Vec<BlockUse>,
}

/// The usage of one part of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockUse {
    /// The first address of the part.
    pub first: IpAddr,
    /// The last address of the part, inclusive.
    pub last: IpAddr,
    /// The name of the rack that has the part, if any.
    pub rack: Option<String>,
    /// True if the part is being taken back from the rack.
    pub taken_back: bool,
    /// The number of addresses in the part.
    pub size: u64,
    /// The number of leased addresses.
    pub used: u64,
}

/// A range and the number of its addresses in use.
struct Range {
    uid: Uuid,
    subnet: Uuid,
    first: IpAddr,
    last: IpAddr,
    dynamic: bool,
    size: u64,
    taken: u64,
}

fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

impl Store {
    /// The usage of these subnets.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn subnet_use(&self, subnets: &[Uid]) -> Result<BTreeMap<Uid, SubnetUse>, StoreError> {
        let uuids: Vec<Uuid> = subnets.iter().map(|uid| uid.get()).collect();
        let mut uses: BTreeMap<Uid, SubnetUse> =
            subnets.iter().map(|uid| (*uid, SubnetUse::default())).collect();
        let owned = sqlx::query!(
            r#"select subnet as "subnet!", class as "class!", count(*) as "addresses!" from (
                 select subnet, class from address where subnet = any($1)
                 union all select m.subnet, 'deployment' from machine_address m
                 where m.subnet = any($1)
                   and not exists (select from address a where a.subnet = m.subnet and a.address = m.address)) x
               group by subnet, class"#,
            &uuids
        );
        for row in owned.fetch_all(self.pool()).await? {
            let Some(of) = uses.get_mut(&Uid::from(row.subnet)) else { continue };
            match row.class.as_str() {
                GATEWAY => of.gateways = count(row.addresses),
                STATIC => of.ip_addresses = count(row.addresses),
                _ => of.deployments = count(row.addresses),
            }
        }
        let free = sqlx::query!(
            r#"select subnet,
                 least(sum(inet_number(last) - inet_number(first) + 1), 9007199254740991)::bigint as "addresses!"
               from free_span where subnet = any($1) group by subnet"#,
            &uuids
        );
        for row in free.fetch_all(self.pool()).await? {
            if let Some(of) = uses.get_mut(&Uid::from(row.subnet)) {
                of.free = count(row.addresses);
            }
        }
        let racks = sqlx::query!(
            r#"select c.subnet, count(*) as "addresses!", count(f.subnet) as "gaps!"
               from subnet_cidr c join (select distinct address from rack_address) r on r.address <<= c.cidr
               left join free_span f on f.subnet = c.subnet and r.address between f.first and f.last
               where c.subnet = any($1)
                 and not exists (select from address a where a.subnet = c.subnet and a.address = r.address)
               group by c.subnet"#,
            &uuids
        );
        for row in racks.fetch_all(self.pool()).await? {
            if let Some(of) = uses.get_mut(&Uid::from(row.subnet)) {
                of.racks = count(row.addresses);
                of.free = of.free.saturating_sub(count(row.gaps));
            }
        }
        for range in self.ranges_in(&uuids).await? {
            let Some(of) = uses.get_mut(&Uid::from(range.subnet)) else { continue };
            if range.dynamic {
                of.dynamic = of.dynamic.saturating_add(range.size);
                of.leases = of.leases.saturating_add(range.taken);
            } else {
                of.reserved = of.reserved.saturating_add(range.size);
            }
        }
        Ok(uses)
    }

    /// The usage of these ranges, per rack for dynamic ones.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn range_use(&self, ranges: &[Uid]) -> Result<BTreeMap<Uid, RangeUse>, StoreError> {
        let uuids: Vec<Uuid> = ranges.iter().map(|uid| uid.get()).collect();
        let subnets =
            sqlx::query_scalar!("select distinct subnet from ip_range where range = any($1)", &uuids);
        let subnets = subnets.fetch_all(self.pool()).await?;
        let all = self.ranges_in(&subnets).await?;
        let asked = all.into_iter().filter(|range| uuids.contains(&range.uid));
        let mut uses: BTreeMap<Uid, RangeUse> = asked
            .map(|range| (Uid::from(range.uid), RangeUse { used: range.taken, blocks: Vec::new() }))
            .collect();
        let rows = sqlx::query!(
            r#"select r.range, o.name as "rack?", b.range is null as "taken_back!",
                 host(lower(b.span * r.span)) as "first!", host(upper(b.span * r.span)) as "last!",
                 b.subnet, least(inet_number(upper(b.span * r.span)) - inet_number(lower(b.span * r.span)) + 1, 9007199254740991)::bigint
                   as "size!"
               from ip_range r join dhcp_block b on b.subnet = r.subnet and b.span && r.span
               left join object o on o.uid = b.rack
               where r.range = any($1) and r.purpose = 'dynamic' order by r.range, b.span"#,
            &uuids
        );
        let rows = rows.fetch_all(self.pool()).await?;
        let leased = match rows.is_empty() {
            true => BTreeMap::new(),
            false => self.leased(&subnets).await?,
        };
        for row in rows {
            let (first, last) = (parse(&row.first)?, parse(&row.last)?);
            let within = leased.get(&row.subnet).map_or(0, |leased| leased.range(first..=last).count());
            let used = u64::try_from(within).unwrap_or(u64::MAX);
            if let Some(of) = uses.get_mut(&Uid::from(row.range)) {
                let (rack, taken_back, size) = (row.rack, row.taken_back, count(row.size));
                of.blocks.push(BlockUse { first, last, rack, taken_back, size, used });
            }
        }
        Ok(uses)
    }

    async fn ranges_in(&self, subnets: &[Uuid]) -> Result<Vec<Range>, StoreError> {
        let rows = sqlx::query!(
            r#"select r.range, r.subnet, r.purpose, host(lower(r.span)) as "first!", host(upper(r.span)) as "last!",
                 least(inet_number(upper(r.span)) - inet_number(lower(r.span)) + 1, 9007199254740991)::bigint as "size!",
                 case r.purpose when 'reserved' then (
                   select count(*) from address a where a.subnet = r.subnet
                   and a.address between lower(r.span) and upper(r.span)) else 0 end as "owned!"
               from ip_range r where r.subnet = any($1)"#,
            subnets
        );
        let mut ranges = Vec::new();
        for row in rows.fetch_all(self.pool()).await? {
            ranges.push(Range {
                uid: row.range,
                subnet: row.subnet,
                first: parse(&row.first)?,
                last: parse(&row.last)?,
                dynamic: row.purpose == "dynamic",
                size: count(row.size),
                taken: count(row.owned),
            });
        }
        if ranges.iter().any(|range| range.dynamic) {
            for (subnet, leased) in self.leased(subnets).await? {
                let dynamic = ranges.iter_mut().filter(|range| range.dynamic && range.subnet == subnet);
                for range in dynamic {
                    let within = leased.range(range.first..=range.last).count();
                    range.taken = u64::try_from(within).unwrap_or(u64::MAX);
                }
            }
        }
        Ok(ranges)
    }

    /// The addresses that racks report as leased now. A report is a fact and makes no owner.
    async fn leased(&self, subnets: &[Uuid]) -> Result<BTreeMap<Uuid, BTreeSet<IpAddr>>, StoreError> {
        let texts: Vec<String> = subnets.iter().map(Uuid::to_string).collect();
        let rows = sqlx::query!(
            r#"select body as "body!", (extract(epoch from now()) * 1000)::bigint as "now_ms!" from (
                 select body from fact_latest where kind = 'lease' and body->>'subnet_uid' = any($1)
                 union all
                 select body from fact_latest where kind = 'lease:ipv6' and body->>'subnet_uid' = any($1)) leases"#,
            &texts
        );
        let mut leased: BTreeMap<Uuid, BTreeSet<IpAddr>> = BTreeMap::new();
        for row in rows.fetch_all(self.pool()).await? {
            let text = |field: &str| row.body.get(field).and_then(Value::as_str);
            let released = row.body.get("released").and_then(Value::as_bool).unwrap_or_default();
            let expires = row.body.get("expires_unix_ms").and_then(Value::as_i64).unwrap_or_default();
            let subnet = text("subnet_uid").and_then(|uid| uid.parse().ok());
            let address = text("address").and_then(|address| address.parse().ok());
            if let (Some(subnet), Some(address)) = (subnet, address)
                && !released
                && expires > row.now_ms
            {
                leased.entry(subnet).or_default().insert(address);
            }
        }
        Ok(leased)
    }
}
