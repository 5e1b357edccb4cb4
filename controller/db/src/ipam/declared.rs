//! Addresses that clients declare: IpAddress, and a Subnet's gateway.
//!
//! The addresses of a batch's objects are released first and then given again, so that two objects may exchange addresses.

use super::fit::{self, Holder, Place};
use super::{GATEWAY, STATIC, machine, parse};
use crate::StoreError;
use crate::invariant::Subject;
use crate::store::Tx;
use basalt_api::values::{Duid, Uid};
use basalt_api::{FieldCode, FieldError};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use uuid::Uuid;

/// The addresses that the IpAddresses of a batch had before it, by object.
pub(crate) type Had = BTreeMap<Uuid, String>;

/// The result for the IpAddresses of a batch.
#[derive(Default)]
pub(crate) struct Given {
    pub(crate) errors: Vec<(Uid, FieldError)>,
    /// The address of each object.
    pub(crate) assigned: BTreeMap<Uid, IpAddr>,
}

/// The declaration of one IpAddress.
struct DeclaredAddress {
    owner: Uuid,
    subnet: Uuid,
    /// The declared address, or the former one.
    address: Option<String>,
    mac: Option<String>,
    duid: Option<Duid>,
    hostname: Option<String>,
}

/// Releases the addresses of these IpAddresses; `write` gives them back.
pub(crate) async fn release(tx: &mut Tx, owners: &[Uuid]) -> Result<Had, StoreError> {
    if owners.is_empty() {
        return Ok(Had::new());
    }
    let gone = sqlx::query!(
        r#"delete from address where owner = any($1) and class = $2 returning owner, host(address) as "address!""#,
        owners,
        STATIC
    );
    Ok(gone.fetch_all(&mut **tx).await?.into_iter().map(|row| (row.owner, row.address)).collect())
}

/// Releases the gateways of these subnets; [`gateway`] gives them back.
pub(crate) async fn release_gateways(tx: &mut Tx, subnets: &[Uuid]) -> Result<(), StoreError> {
    if !subnets.is_empty() {
        let delete =
            sqlx::query!("delete from address where owner = any($1) and class = $2", subnets, GATEWAY);
        delete.execute(&mut **tx).await?;
    }
    Ok(())
}

/// Makes a subnet the owner of its gateway's address, if that is in the subnet. A link-local gateway has no owner.
pub(crate) async fn gateway(tx: &mut Tx, subject: &Subject<'_>) -> Result<Vec<FieldError>, StoreError> {
    let subnet = subject.uid.get();
    let Some(gateway) = subject.text("/gateway") else { return Ok(Vec::new()) };
    let inside = sqlx::query_scalar!(
        r#"select $2::text::inet <<= cidr as "inside!" from subnet_cidr where subnet = $1"#,
        subnet,
        gateway
    );
    if inside.fetch_optional(&mut **tx).await? != Some(true) {
        return Ok(Vec::new());
    }
    if let Some(error) = router(tx, subnet, subnet, gateway).await? {
        return Ok(vec![error]);
    }
    let place = [Place { owner: subnet, subnet, address: gateway.to_owned() }];
    let mut holders = fit::holders(tx, &place).await?;
    // A gateway that was there before the Machine may stay.
    let before = subject.before.and_then(|it| it.pointer("/gateway")?.as_str());
    if before != Some(gateway) {
        holders.extend(machine::holders(tx, &place).await?);
    }
    if let Some(holder) = holders.values().next() {
        return Ok(vec![fit::taken("/gateway", gateway, holder)]);
    }
    let insert = sqlx::query!(
        "insert into address (subnet, address, owner, purpose, class) values ($1, $2::text::inet, $1, $3, $3)",
        subnet,
        gateway,
        GATEWAY
    );
    insert.execute(&mut **tx).await?;
    Ok(Vec::new())
}

/// The error of a router's address in a subnet that DHCP leases, or that no host of the subnet has.
pub(crate) async fn router(
    tx: &mut Tx,
    owner: Uuid,
    subnet: Uuid,
    address: &str,
) -> Result<Option<FieldError>, StoreError> {
    let place = [Place { owner, subnet, address: address.to_owned() }];
    Ok(fit::misfits(tx, &place, "/gateway").await?.into_values().next())
}

/// Gives IpAddresses their addresses: the declared one, the former one, or the next free one.
pub(crate) async fn write(tx: &mut Tx, subjects: &[&Subject<'_>], had: &Had) -> Result<Given, StoreError> {
    let mut given = Given::default();
    let (mut placed, mut anywhere) = (Vec::new(), BTreeMap::<Uuid, Vec<DeclaredAddress>>::new());
    // An IpAddress without a declared address keeps its former one, even if another object of the batch declares that address.
    let keeps = |subject: &&&Subject<'_>| subject.text("/address").is_none();
    for subject in subjects.iter().filter(keeps).chain(subjects.iter().filter(|s| !keeps(s))) {
        let Some(subnet) = subject.references.get("/subnet") else { continue };
        let owner = subject.uid.get();
        let own = |pointer| subject.text(pointer).map(str::to_owned);
        let wish = DeclaredAddress {
            owner,
            subnet: subnet.get(),
            address: own("/address").or_else(|| had.get(&owner).cloned()),
            mac: own("/mac"),
            duid: subject.text("/duid").and_then(|text| text.parse().ok()),
            hostname: own("/hostname"),
        };
        match wish.address {
            Some(_) => placed.push(wish),
            None => anywhere.entry(wish.subnet).or_default().push(wish),
        }
    }
    let clients: BTreeMap<Uuid, Option<String>> = subjects
        .iter()
        .filter_map(|it| {
            Some((it.uid.get(), it.before?.get("mac").and_then(Value::as_str).map(str::to_owned)))
        })
        .collect();
    let strangers = without_duids(tx, placed.iter().chain(anywhere.values().flatten())).await?;
    placed.retain(|wish| !strangers.contains_key(&wish.owner));
    for wishes in anywhere.values_mut() {
        wishes.retain(|wish| !strangers.contains_key(&wish.owner));
    }
    given.errors.extend(strangers.into_iter().map(|(owner, error)| (Uid::from(owner), error)));
    let misfits = fit::misfits(tx, &places(&placed), "/address").await?;
    placed.retain(|wish| !misfits.contains_key(&wish.owner));
    given.errors.extend(misfits.into_iter().map(|(owner, error)| (Uid::from(owner), error)));
    let racks = fit::racks(tx, &places(&placed)).await?;
    placed.retain(|wish| {
        let (Some(rack), Some(address)) = (racks.get(&wish.owner), &wish.address) else { return true };
        // An IpAddress keeps an address that it had before the rack got it.
        let keeps = had.get(&wish.owner).is_some_and(|had| is_same(had, address));
        if !keeps {
            given.errors.push((Uid::from(wish.owner), fit::taken("/address", address, rack)));
        }
        keeps
    });
    let machines = of_others(tx, &placed).await?;
    placed.retain(|wish| {
        let (Some(machine), Some(address)) = (machines.get(&wish.owner), &wish.address) else { return true };
        // An IpAddress from before the Machine keeps its address for the same client.
        let keeps = had.get(&wish.owner).is_some_and(|had| is_same(had, address))
            && clients.get(&wish.owner) == Some(&wish.mac);
        if !keeps {
            given.errors.push((Uid::from(wish.owner), fit::taken("/address", address, machine)));
        }
        keeps
    });
    insert(tx, placed, &mut given).await?;
    for (subnet, mut wishes) in anywhere {
        let free = super::next_free(tx, subnet, wishes.len()).await?;
        if free.len() < wishes.len() {
            let full = full(tx, subnet).await?;
            let without = wishes.drain(free.len()..);
            given.errors.extend(without.map(|wish| (Uid::from(wish.owner), full.clone())));
        }
        for (wish, address) in wishes.iter_mut().zip(free) {
            wish.address = Some(address);
        }
        insert(tx, wishes, &mut given).await?;
    }
    Ok(given)
}

/// The Machines that refuse an address to an IpAddress, by its owner. An IpAddress may keep it for a MAC of the Machine.
async fn of_others(tx: &mut Tx, wishes: &[DeclaredAddress]) -> Result<BTreeMap<Uuid, Holder>, StoreError> {
    let mut holders = machine::holders(tx, &places(wishes)).await?;
    let machines: Vec<Uuid> = holders.values().filter_map(|holder| holder.machine).collect();
    let macs = machine::macs(tx, &machines).await?;
    for wish in wishes {
        let Some(mac) = &wish.mac else { continue };
        let machine = holders.get(&wish.owner).and_then(|holder| holder.machine);
        if machine.is_some_and(|machine| macs.get(&machine).is_none_or(|macs| macs.contains(mac))) {
            holders.remove(&wish.owner);
        }
    }
    Ok(holders)
}

fn is_same(one: &str, other: &str) -> bool {
    one.parse::<IpAddr>().ok() == other.parse().ok()
}

fn places(wishes: &[DeclaredAddress]) -> Vec<Place> {
    let place = |wish: &DeclaredAddress| {
        let address = wish.address.clone()?;
        Some(Place { owner: wish.owner, subnet: wish.subnet, address })
    };
    wishes.iter().filter_map(place).collect()
}

async fn insert(tx: &mut Tx, wishes: Vec<DeclaredAddress>, given: &mut Given) -> Result<(), StoreError> {
    if wishes.is_empty() {
        return Ok(());
    }
    let owners: Vec<Uuid> = wishes.iter().map(|wish| wish.owner).collect();
    let subnets: Vec<Uuid> = wishes.iter().map(|wish| wish.subnet).collect();
    let addresses: Vec<Option<String>> = wishes.iter().map(|wish| wish.address.clone()).collect();
    let macs: Vec<Option<String>> = wishes.iter().map(|wish| wish.mac.clone()).collect();
    let duids: Vec<Option<&[u8]>> = wishes.iter().map(|wish| wish.duid.as_ref().map(Duid::bytes)).collect();
    let hostnames: Vec<Option<String>> = wishes.iter().map(|wish| wish.hostname.clone()).collect();
    let insert = sqlx::query!(
        r#"insert into address (subnet, address, owner, purpose, class, mac, duid, hostname)
           select s, a::inet, o, $7, $7, m::macaddr, d, h
           from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::text[])
             with ordinality u(o, s, a, m, d, h, n)
           order by n
           on conflict do nothing
           returning owner, host(address) as "address!""#,
        &owners,
        &subnets,
        &addresses as &[Option<String>],
        &macs as &[Option<String>],
        &duids as &[Option<&[u8]>],
        &hostnames as &[Option<String>],
        STATIC
    );
    for row in insert.fetch_all(&mut **tx).await? {
        given.assigned.insert(Uid::from(row.owner), parse(&row.address)?);
    }
    let mut without = wishes;
    without.retain(|wish| !given.assigned.contains_key(&Uid::from(wish.owner)));
    if without.is_empty() {
        return Ok(());
    }
    let holders = fit::holders(tx, &places(&without)).await?;
    for wish in without {
        let error = match (holders.get(&wish.owner), &wish.address) {
            (Some(holder), Some(address)) => fit::taken("/address", address, holder),
            _ => client_taken(tx, &wish).await?,
        };
        given.errors.push((Uid::from(wish.owner), error));
    }
    Ok(())
}

/// The errors of IpAddresses with a DUID in an IPv4 subnet, by owner: IPv4 clients are not known by a DUID.
async fn without_duids(
    tx: &mut Tx,
    wishes: impl Iterator<Item = &DeclaredAddress>,
) -> Result<BTreeMap<Uuid, FieldError>, StoreError> {
    let (owners, subnets): (Vec<Uuid>, Vec<Uuid>) =
        wishes.filter(|wish| wish.duid.is_some()).map(|wish| (wish.owner, wish.subnet)).unzip();
    if owners.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows = sqlx::query!(
        r#"select u.o as "owner!", s.name, c.cidr::text as "cidr!" from unnest($1::uuid[], $2::uuid[]) u(o, s)
           join subnet_cidr c on c.subnet = u.s join object s on s.uid = u.s where family(c.cidr) = 4"#,
        &owners,
        &subnets
    );
    let errors = rows.fetch_all(&mut **tx).await?.into_iter().map(|row| {
        let message = format!("Subnet {:?} is {}, and DHCP of IPv4 knows no DUIDs", row.name, row.cidr);
        let hint = "the host's MAC, as `mac`; or an IPv6 subnet";
        (row.owner, FieldError::new("/duid", FieldCode::Rule, message, hint))
    });
    Ok(errors.collect())
}

/// The error for a free address that could not be given: the MAC or the DUID has another address.
async fn client_taken(tx: &mut Tx, wish: &DeclaredAddress) -> Result<FieldError, StoreError> {
    let holder = sqlx::query!(
        r#"select o.name, host(a.address) as "address!" from address a join object o on o.uid = a.owner
           where a.subnet = $1 and a.class = $2 and (a.mac = $3::text::macaddr or a.duid = $4)"#,
        wish.subnet,
        STATIC,
        wish.mac,
        wish.duid.as_ref().map(Duid::bytes)
    );
    let (pointer, word, client) = match (&wish.mac, &wish.duid) {
        (None, Some(duid)) => ("/duid", "DUID", duid.to_string()),
        (mac, _) => ("/mac", "MAC", mac.clone().unwrap_or_default()),
    };
    let message = match holder.fetch_optional(&mut **tx).await? {
        Some(other) => {
            format!("{client} has {} of this subnet already: IpAddress {:?}", other.address, other.name)
        }
        None => format!("{client} has an address of this subnet already"),
    };
    let hint = format!("DHCP gives a client one address of a subnet: remove the {word} there first");
    Ok(FieldError::new(pointer, FieldCode::Overlap, message, hint))
}

/// The error for a subnet without a free address.
pub(super) async fn full(tx: &mut Tx, subnet: Uuid) -> Result<FieldError, StoreError> {
    let subnet = sqlx::query!(
        r#"select o.name, c.cidr::text as "cidr!", coalesce((o.spec->>'managed')::boolean, true) as "managed!"
           from subnet_cidr c join object o on o.uid = c.subnet where c.subnet = $1"#,
        subnet
    );
    let subnet = subnet.fetch_one(&mut **tx).await?;
    let (message, hint) = match subnet.managed {
        true => (
            format!(
                "Subnet {:?} has no free address: all of {} is taken or in ranges",
                subnet.name, subnet.cidr
            ),
            "delete an address or a range, or name an address of a reserved range",
        ),
        false => (
            format!(
                "Subnet {:?} is not managed: no address of {} is given out by itself",
                subnet.name, subnet.cidr
            ),
            "name the address, or let the subnet be managed",
        ),
    };
    Ok(FieldError::new("/address", FieldCode::Overlap, message, hint))
}
