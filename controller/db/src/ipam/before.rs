//! Checks a database from before the constraints on addresses. It lists all values that the constraints would refuse, before
//! any migration.

use crate::StoreError;
use basalt_api::values::Cidr;
use sqlx::PgPool;
use std::collections::BTreeMap;
use std::net::IpAddr;
use uuid::Uuid;

/// These queries read tables of an earlier version, so they are not checked at build time.
const NETS: &str = "select c.subnet, o.name, c.cidr::text, o.spec->>'gateway' from subnet_cidr c join object o on o.uid = c.subnet
    order by o.name";
const RANGES: &str = "select r.subnet, o.name, host(lower(r.span)), host(upper(r.span)), r.purpose
    from ip_range r join object o on o.uid = r.range order by o.name";
const ADDRESSES: &str = "select a.subnet, o.kind || ' ' || to_json(o.name)::text, host(a.address)
    from address a join object o on o.uid = a.owner order by a.subnet, a.address";

struct Net {
    name: String,
    cidr: Cidr,
    gateway: Option<IpAddr>,
}

struct Range {
    name: String,
    first: IpAddr,
    last: IpAddr,
    dynamic: bool,
}

fn read<T: std::str::FromStr>(text: &str) -> Result<T, StoreError> {
    text.parse().map_err(|_| StoreError::Corrupt(format!("the network or address {text:?}")))
}

/// Checks a database if its next migrations add the constraints.
///
/// # Errors
/// `Before`: the values that would be refused. Nothing was changed.
pub(crate) async fn check(pool: &PgPool) -> Result<(), StoreError> {
    let before = "select to_regclass('ip_range') is not null and to_regclass('address_span') is null";
    if !sqlx::query_scalar::<_, bool>(before).fetch_one(pool).await? {
        return Ok(());
    }
    let mut nets = BTreeMap::new();
    let rows: Vec<(Uuid, String, String, Option<String>)> = sqlx::query_as(NETS).fetch_all(pool).await?;
    for (subnet, name, cidr, gateway) in rows {
        let gateway = gateway.as_deref().map(read).transpose()?;
        nets.insert(subnet, Net { name, cidr: read(&cidr)?, gateway });
    }
    let mut ranges: BTreeMap<Uuid, Vec<Range>> = BTreeMap::new();
    let rows: Vec<(Uuid, String, String, String, String)> = sqlx::query_as(RANGES).fetch_all(pool).await?;
    for (subnet, name, first, last, purpose) in rows {
        let range = Range { name, first: read(&first)?, last: read(&last)?, dynamic: purpose == "dynamic" };
        ranges.entry(subnet).or_default().push(range);
    }
    let rows: Vec<(Uuid, String, String)> = sqlx::query_as(ADDRESSES).fetch_all(pool).await?;
    let mut owned: BTreeMap<Uuid, Vec<(String, IpAddr)>> = BTreeMap::new();
    for (subnet, owner, address) in rows {
        owned.entry(subnet).or_default().push((owner, read(&address)?));
    }
    let none = (Vec::new(), Vec::new());
    let found: Vec<String> = nets
        .iter()
        .flat_map(|(uid, net)| {
            refused(net, ranges.get(uid).unwrap_or(&none.0), owned.get(uid).unwrap_or(&none.1))
        })
        .collect();
    if found.is_empty() { Ok(()) } else { Err(StoreError::Before { found }) }
}

/// The values of a subnet that would be refused.
fn refused(net: &Net, ranges: &[Range], owned: &[(String, IpAddr)]) -> Vec<String> {
    let (name, cidr) = (&net.name, net.cidr);
    let leasing = |address: IpAddr| {
        ranges.iter().find(|range| range.dynamic && (range.first..=range.last).contains(&address))
    };
    let mut found = Vec::new();
    for range in ranges {
        let what = format!("IpRange {:?} ({}-{})", range.name, range.first, range.last);
        for end in [range.first, range.last] {
            if !cidr.contains(end) {
                found.push(format!("{what} ends outside of Subnet {name:?} ({cidr})"));
            } else if range.dynamic && !cidr.is_host(end) {
                found.push(format!(
                    "{what} leases {end}, which no client of Subnet {name:?} ({cidr}) can have"
                ));
            }
        }
    }
    for (owner, address) in owned {
        if !cidr.is_host(*address) {
            found.push(format!("{owner} has {address}, which nobody of Subnet {name:?} ({cidr}) can have"));
        } else if let Some(range) = leasing(*address) {
            found.push(format!(
                "{owner} has {address}, which IpRange {:?} leases to whoever asks",
                range.name
            ));
        }
    }
    if let Some(gateway) = net.gateway.filter(|gateway| cidr.is_host(*gateway)) {
        if let Some(range) = leasing(gateway) {
            found.push(format!(
                "the gateway {gateway} of Subnet {name:?} is leased by IpRange {:?} to whoever asks",
                range.name
            ));
        }
        for (owner, _) in owned.iter().filter(|(_, address)| *address == gateway) {
            found.push(format!("{owner} has {gateway}, the gateway of Subnet {name:?}"));
        }
    }
    found
}
