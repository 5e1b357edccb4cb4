//! The blocks of addresses from which racks lease. `divide` decides which rack gets which; this module stores the result.
//!
//! The blocks of a rack have a number, which its DHCP concern carries. Once a rack reports that a number is in force, it grants
//! nothing outside of that number's blocks. The same report lists the earlier leases outside of them that still run.

use super::divide::{self, Hold, Part, Situation, Span, Told};
use super::parse;
use crate::object::{signed, unsigned};
use crate::store::Tx;
use crate::{NewFact, Store, StoreError};
use basalt_api::values::{RackId, SubnetId};
use serde::Deserialize;
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use uuid::Uuid;

/// The fact with which a rack reports the blocks that it leases from.
const IN_FORCE: &str = "dhcp_in_force";
/// The fact with which a rack introduces itself.
const HELLO: &str = "hello";

/// A subnet and the racks that answer DHCP there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedSubnet {
    /// The subnet that is served.
    pub subnet: SubnetId,
    /// The racks, in order; empty where DHCP is not served.
    pub racks: Vec<RackId>,
    /// The lease time, in seconds.
    pub lease_seconds: u32,
}

/// A span of addresses that one rack leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The subnet of the addresses.
    pub subnet: SubnetId,
    /// The first address of the block.
    pub first: IpAddr,
    /// The last address of the block, inclusive.
    pub last: IpAddr,
}

/// The blocks from which a rack is to lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delegation {
    /// The delegation's number; it rises with every change.
    pub number: u64,
    /// Its blocks, in order.
    pub blocks: Vec<Block>,
}

/// The body of an [`IN_FORCE`] fact. It comes from a rack, so its content is not trusted.
#[derive(Deserialize)]
struct InForce {
    delegation: u64,
    #[serde(default)]
    leftover: Vec<Leftover>,
    #[serde(default)]
    unsure_ms: u64,
}

#[derive(Deserialize)]
struct Leftover {
    subnet_uid: String,
    start: IpAddr,
    end: IpAddr,
    ends_in_ms: u64,
}

impl Store {
    /// Divides the dynamic ranges of these subnets between their racks. Free addresses are given at once; addresses that another rack
    /// holds are taken back first. Racks whose blocks changed are woken. If nothing changed, nothing is written.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn delegate(&self, served: &[ServedSubnet]) -> Result<(), StoreError> {
        let subnets: Vec<Uuid> = served.iter().map(|one| one.subnet.get()).collect();
        let mut tx = self.begin().await?;
        let seen = read(&mut tx, &subnets).await?;
        tx.rollback().await?;
        for one in served {
            let (parts, situation) = seen.of(one);
            if differs(&parts, &divide::divided(&parts, &situation)) {
                self.delegate_one(one).await?;
            }
        }
        Ok(())
    }

    async fn delegate_one(&self, one: &ServedSubnet) -> Result<(), StoreError> {
        let subnet = one.subnet.get();
        let mut tx = self.begin().await?;
        super::lock(&mut tx, &[subnet]).await?;
        let (before, situation) = read(&mut tx, &[subnet]).await?.of(one);
        let mut after = divide::divided(&before, &situation);
        let racks: BTreeSet<Uuid> = before.iter().chain(&after).map(|part| part.rack).collect();
        let mut changed = Vec::new();
        for rack in racks.into_iter().filter(|rack| situation.told.contains_key(rack)) {
            let leaves = |part: &Part| part.rack == rack && part.hold == Hold::Leaving(None);
            let same = divide::told(&before, rack) == divide::told(&after, rack);
            if same && !after.iter().any(leaves) {
                continue;
            }
            let number = sqlx::query_scalar!(
                "insert into rack_delegation (rack, number) values ($1, nextval('dhcp_delegation'))
                 on conflict (rack) do update set number = excluded.number returning number",
                rack
            );
            let number = number.fetch_one(&mut *tx).await?;
            for part in after.iter_mut().filter(|part| leaves(part)) {
                part.hold = Hold::Leaving(Some(number));
            }
            changed.push(rack);
        }
        replace(&mut tx, subnet, &before, &after).await?;
        self.wake_around_all(&mut tx, &changed).await?;
        self.commit(tx).await
    }

    /// The blocks that a rack is to lease from, and their number.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn delegation(&self, rack: RackId) -> Result<Delegation, StoreError> {
        // One statement, so that a number never comes with the blocks of an earlier one. A block that was taken back but has no number
        // for it yet is still part of the present number.
        let rows = sqlx::query!(
            r#"select coalesce(d.number, 0) as "number!", b.subnet as "subnet?",
                 host(lower(b.span)) as first, host(upper(b.span)) as last
               from object o left join rack_delegation d on d.rack = o.uid
               left join dhcp_block b on b.rack = o.uid
                 and (b.range is not null or (b.leaves_at is null and b.free_at is null))
               where o.uid = $1 order by b.subnet, b.span"#,
            rack.get()
        );
        let mut delegation = Delegation::default();
        for row in rows.fetch_all(self.pool()).await? {
            delegation.number = unsigned(row.number);
            let (Some(subnet), Some(first), Some(last)) = (row.subnet, row.first, row.last) else { continue };
            let span = span(&first, &last)?;
            let (first, last) = (address(span.first), address(span.last));
            delegation.blocks.push(Block { subnet: SubnetId::from(subnet), first, last });
        }
        Ok(delegation)
    }

    /// True if a rack may still lease from a block of any subnet.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn has_blocks(&self, rack: RackId) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select exists (select from dhcp_block where rack = $1 and free_at is null) as "has!""#,
            rack.get()
        );
        Ok(query.fetch_one(self.pool()).await?)
    }
}

/// Notes the blocks that a rack leases from, if the fact is an [`IN_FORCE`] fact.
pub(crate) async fn note_in_force(
    tx: &mut PgConnection,
    rack: RackId,
    fact: &NewFact,
) -> Result<(), StoreError> {
    if fact.kind != IN_FORCE {
        return Ok(());
    }
    let Ok(said) = InForce::deserialize(&fact.body) else {
        tracing::error!(%rack, body = %fact.body, "a rack says what cannot be read about its DHCP blocks");
        return Ok(());
    };
    let update = sqlx::query!(
        "insert into rack_delegation (rack, number, in_force, leftover) values ($1, 0, $2, $3)
         on conflict (rack) do update
         set in_force = excluded.in_force, leftover = excluded.leftover, told_at = now()
         where rack_delegation.in_force <= excluded.in_force",
        rack.get(),
        signed(said.delegation),
        fact.body
    );
    update.execute(&mut *tx).await?;
    Ok(())
}

/// Notes a rack's own addresses, if the fact is a [`HELLO`] fact.
pub(crate) async fn note_addresses(tx: &mut Tx, fact: &NewFact) -> Result<(), StoreError> {
    let (Some(rack), Some(said), HELLO) = (fact.object, fact.body.get("addresses"), fact.kind.as_str())
    else {
        return Ok(());
    };
    let said = said.as_array().into_iter().flatten().filter_map(Value::as_str);
    let addresses: BTreeSet<IpAddr> = said.filter_map(|a| a.split('/').next()?.parse().ok()).collect();
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let delete = sqlx::query!(
        "delete from rack_address where rack = $1 and address <> all($2::text[]::inet[])",
        rack.get(),
        &addresses
    );
    delete.execute(&mut **tx).await?;
    let insert = sqlx::query!(
        "insert into rack_address select uid, a::inet from object, unnest($2::text[]) a where uid = $1 and kind = 'Rack'
         on conflict do nothing",
        rack.get(),
        &addresses
    );
    insert.execute(&mut **tx).await?;
    Ok(())
}

/// The stored ranges, blocks and reports of some subnets.
struct Seen {
    ranges: Vec<(Uuid, Uuid, Span)>,
    parts: Vec<(Uuid, Part)>,
    told: BTreeMap<Uuid, (i64, i64, Value)>,
    now_us: i64,
}

impl Seen {
    fn of(&self, one: &ServedSubnet) -> (Vec<Part>, Situation) {
        let subnet = one.subnet.get();
        let parts = self.parts.iter().filter(|(of, _)| *of == subnet).map(|(_, part)| part.clone());
        let ranges = self.ranges.iter().filter(|(of, ..)| *of == subnet);
        let told =
            self.told.iter().map(|(rack, (number, at, body))| (*rack, said(*number, *at, body, one.subnet)));
        let situation = Situation {
            ranges: ranges.map(|(_, range, span)| (*range, *span)).collect(),
            racks: one.racks.iter().map(|rack| rack.get()).collect(),
            lease_seconds: i32::try_from(one.lease_seconds).unwrap_or(i32::MAX),
            told: told.collect(),
            now_us: self.now_us,
        };
        (parts.collect(), situation)
    }
}

/// The part of a rack's report that concerns one subnet. Remaining times count from the arrival of the report: that is never before
/// the rack sent it.
fn said(in_force: i64, at_us: i64, body: &Value, subnet: SubnetId) -> Told {
    let Ok(said) = InForce::deserialize(body) else { return Told { in_force, ..Told::default() } };
    let until = |ms: u64| at_us.saturating_add(i64::try_from(ms.saturating_mul(1000)).unwrap_or(i64::MAX));
    let subnet = subnet.to_string();
    let here = said.leftover.iter().filter(|it| it.subnet_uid == subnet && it.start <= it.end);
    Told {
        in_force,
        leftover: here
            .map(|it| (Span { first: number(it.start), last: number(it.end) }, until(it.ends_in_ms)))
            .collect(),
        unsure_until: (said.unsure_ms > 0).then(|| until(said.unsure_ms)),
    }
}

fn span(first: &str, last: &str) -> Result<Span, StoreError> {
    Ok(Span { first: number(parse(first)?), last: number(parse(last)?) })
}

/// An address as a number. An IPv4 address counts as its IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2).
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn address(number: u128) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(number)).to_canonical()
}

async fn read(tx: &mut Tx, subnets: &[Uuid]) -> Result<Seen, StoreError> {
    let rows = sqlx::query!(
        r#"select subnet, range, host(lower(span)) as "first!", host(upper(span)) as "last!" from ip_range
           where subnet = any($1) and purpose = 'dynamic' order by range"#,
        subnets
    );
    let ranges = rows.fetch_all(&mut **tx).await?.into_iter();
    let ranges = ranges.map(|r| Ok((r.subnet, r.range, span(&r.first, &r.last)?)));
    let ranges = ranges.collect::<Result<_, StoreError>>()?;
    let rows = sqlx::query!(
        r#"select subnet, rack, range, leaves_at, lease_seconds,
             host(lower(span)) as "first!", host(upper(span)) as "last!",
             (extract(epoch from free_at) * 1000000)::bigint as free_us
           from dhcp_block where subnet = any($1) order by subnet, span"#,
        subnets
    );
    let mut parts = Vec::new();
    for row in rows.fetch_all(&mut **tx).await? {
        let hold = match (row.range, row.free_us) {
            (Some(range), _) => Hold::Held(range),
            (None, Some(at)) => Hold::Ending(at),
            (None, None) => Hold::Leaving(row.leaves_at),
        };
        let span = span(&row.first, &row.last)?;
        parts.push((row.subnet, Part { span, rack: row.rack, hold, lease_seconds: row.lease_seconds }));
    }
    let rows = sqlx::query!(
        r#"select o.uid, coalesce(d.in_force, 0) as "in_force!", coalesce(d.leftover, '[]') as "leftover!",
             coalesce((extract(epoch from d.told_at) * 1000000)::bigint, 0) as "told_us!",
             (extract(epoch from clock_timestamp()) * 1000000)::bigint as "now_us!"
           from object o left join rack_delegation d on d.rack = o.uid where o.kind = 'Rack'"#
    );
    let rows = rows.fetch_all(&mut **tx).await?;
    let now_us = match rows.iter().map(|row| row.now_us).max() {
        Some(now) => now,
        None => {
            let now = sqlx::query_scalar!(
                r#"select (extract(epoch from clock_timestamp()) * 1000000)::bigint as "us!""#
            );
            now.fetch_one(&mut **tx).await?
        }
    };
    let told = rows.into_iter().map(|r| (r.uid, (r.in_force, r.told_us, r.leftover))).collect();
    Ok(Seen { ranges, parts, told, now_us })
}

/// True if there is anything to write. A block that the database took back by itself has no number yet, and needs one.
fn differs(before: &[Part], after: &[Part]) -> bool {
    before != after || after.iter().any(|part| part.hold == Hold::Leaving(None))
}

async fn replace(tx: &mut Tx, subnet: Uuid, before: &[Part], after: &[Part]) -> Result<(), StoreError> {
    let gone: Vec<String> =
        before.iter().filter(|part| !after.contains(part)).map(|part| text(part.span.first)).collect();
    let delete = sqlx::query!(
        "delete from dhcp_block where subnet = $1 and lower(span) = any($2::text[]::inet[])",
        subnet,
        &gone
    );
    delete.execute(&mut **tx).await?;
    let new: Vec<&Part> = after.iter().filter(|part| !before.contains(part)).collect();
    let firsts: Vec<String> = new.iter().map(|part| text(part.span.first)).collect();
    let lasts: Vec<String> = new.iter().map(|part| text(part.span.last)).collect();
    let racks: Vec<Uuid> = new.iter().map(|part| part.rack).collect();
    let seconds: Vec<i32> = new.iter().map(|part| part.lease_seconds).collect();
    let (mut ranges, mut leaves, mut free) = (Vec::new(), Vec::new(), Vec::new());
    for part in &new {
        ranges.push(if let Hold::Held(range) = part.hold { Some(range) } else { None });
        leaves.push(if let Hold::Leaving(number) = part.hold { number } else { None });
        free.push(if let Hold::Ending(at) = part.hold { Some(at) } else { None });
    }
    let insert = sqlx::query!(
        "insert into dhcp_block (subnet, span, rack, range, range_span, leaves_at, free_at, lease_seconds)
         select $1, inetrange(f::inet, l::inet, '[]'), r, i.range, i.span, n,
           'epoch'::timestamptz + e * interval '1 microsecond', s
         from unnest($2::text[], $3::text[], $4::uuid[], $5::uuid[], $6::bigint[], $7::bigint[], $8::int[])
           u(f, l, r, g, n, e, s) left join ip_range i on i.range = u.g",
        subnet,
        &firsts,
        &lasts,
        &racks,
        &ranges as &[Option<Uuid>],
        &leaves as &[Option<i64>],
        &free as &[Option<i64>],
        &seconds
    );
    insert.execute(&mut **tx).await?;
    Ok(())
}

fn text(number: u128) -> String {
    address(number).to_string()
}
