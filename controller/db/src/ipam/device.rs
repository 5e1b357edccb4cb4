//! Addresses of Devices: no other object gets one of them.
//!
//! A Device does not name its network. It owns each of its addresses in every subnet that contains the address. Usually this is one
//! subnet; two fabrics may have subnets with the same addresses. The rules:
//!
//! - In a subnet where the address has another owner, that owner keeps it.
//! - An address that a Machine declares is no Device's.
//! - A rack's own address is no Device's, unless the Device had it before the rack.
//! - A Device that would get an address in no subnet is refused.
//! - A Device may have the address of a gateway: then the Subnet owns the address.
//! - A Device never prevents a change of a subnet: the addresses of Devices in that subnet are computed again.

use super::fit::{self, Place};
use super::{STATIC, machine};
use crate::StoreError;
use crate::invariant::Subject;
use crate::store::Tx;
use basalt_api::FieldError;
use basalt_api::values::Uid;
use uuid::Uuid;

const FIELD: &str = "/addresses";

/// The kinds whose writes can change the addresses that Devices own.
const CONCERNED: [&str; 2] = ["Device", "Subnet"];

/// Makes writes of Devices and Subnets wait for each other, before any other lock: each reads rows that the other writes.
pub(crate) async fn take_turns(tx: &mut Tx, mut kinds: impl Iterator<Item = &str>) -> Result<(), StoreError> {
    if kinds.any(|kind| CONCERNED.contains(&kind)) {
        sqlx::query!("select pg_advisory_xact_lock(5240, 10)").fetch_one(&mut **tx).await?;
    }
    Ok(())
}

/// True if a subject's addresses differ from those before.
pub(crate) fn is_changed(subject: &Subject<'_>) -> bool {
    subject.before.is_none_or(|before| before.pointer(FIELD) != subject.spec.pointer(FIELD))
}

/// The subnets whose addresses these Devices own or will own.
pub(crate) async fn subnets(tx: &mut Tx, devices: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let query = sqlx::query_scalar!(
        r#"select c.subnet as "subnet!" from device_address d join subnet_cidr c on d.address <<= c.cidr
           where d.device = any($1)
           union select subnet from address where owner = any($1)"#,
        devices
    );
    Ok(query.fetch_all(&mut **tx).await?)
}

/// The addresses that Devices had before a batch.
pub(crate) type Had = Vec<Place>;

/// Releases the addresses of these Devices, and of any Device in these subnets; [`write`] gives them back.
pub(crate) async fn release(tx: &mut Tx, devices: &[Uuid], subnets: &[Uuid]) -> Result<Had, StoreError> {
    if devices.is_empty() && subnets.is_empty() {
        return Ok(Had::new());
    }
    let delete = sqlx::query!(
        r#"delete from address a using object o
           where o.uid = a.owner and o.kind = 'Device' and (a.owner = any($1) or a.subnet = any($2))
           returning a.owner, a.subnet, host(a.address) as "address!""#,
        devices,
        subnets
    );
    let rows = delete.fetch_all(&mut **tx).await?.into_iter();
    Ok(rows.map(|row| Place { owner: row.owner, subnet: row.subnet, address: row.address }).collect())
}

/// Makes Devices the owners of their addresses, and returns the errors of those in `devices`.
pub(crate) async fn write(
    tx: &mut Tx,
    devices: &[Uuid],
    subnets: &[Uuid],
    had: &[Place],
) -> Result<Vec<(Uid, FieldError)>, StoreError> {
    if !subnets.is_empty() {
        let insert = sqlx::query!(
            "insert into address (subnet, address, owner, purpose, class)
             select subnet, address, device, host(address), $2 from device_place where subnet = any($1)
             order by subnet, address, device
             on conflict do nothing",
            subnets,
            STATIC
        );
        insert.execute(&mut **tx).await?;
    }
    if !devices.is_empty() {
        let insert = sqlx::query!(
            "insert into address (subnet, address, owner, purpose, class)
             select subnet, address, device, host(address), $2 from device_place where device = any($1)
             order by subnet, address, device
             on conflict do nothing",
            devices,
            STATIC
        );
        insert.execute(&mut **tx).await?;
    }
    leave_to_racks(tx, devices, subnets, had).await?;
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let without = sqlx::query!(
        r#"select d.device as "device!", d.place as "place!", host(d.address) as "address!",
             min(c.subnet::text)::uuid as "subnet!"
           from device_address d join subnet_cidr c on d.address <<= c.cidr
           left join address a on a.subnet = c.subnet and a.address = d.address and (a.owner = d.device or a.class = 'gateway')
           where d.device = any($1)
           group by d.device, d.place, d.address having count(a.subnet) = 0 order by d.device, d.place"#,
        devices
    );
    let mut errors = Vec::new();
    for row in without.fetch_all(&mut **tx).await? {
        let pointer = format!("{FIELD}/{}", row.place);
        let place = [Place { owner: row.device, subnet: row.subnet, address: row.address.clone() }];
        let error = match fit::misfits(tx, &place, &pointer).await?.into_values().next() {
            Some(misfit) => Some(misfit),
            None => {
                let holder = fit::holders(tx, &place).await?.into_values().next();
                let holder = match holder {
                    None => machine::holders(tx, &place).await?.into_values().next(),
                    holder => holder,
                };
                let holder = match holder {
                    None => fit::racks(tx, &place).await?.into_values().next(),
                    holder => holder,
                };
                holder.map(|holder| fit::taken(&pointer, &row.address, &holder))
            }
        };
        errors.extend(error.map(|error| (Uid::from(row.device), error)));
    }
    Ok(errors)
}

/// Takes the own addresses of racks from these Devices, and from any Device in these subnets. A Device keeps an address that it had.
async fn leave_to_racks(
    tx: &mut Tx,
    devices: &[Uuid],
    subnets: &[Uuid],
    had: &[Place],
) -> Result<(), StoreError> {
    if devices.is_empty() && subnets.is_empty() {
        return Ok(());
    }
    let (owners, places, addresses) = fit::columns(had);
    let delete = sqlx::query!(
        "delete from address a using object o, rack_place r
         where o.uid = a.owner and o.kind = 'Device' and (a.owner = any($1) or a.subnet = any($2))
           and r.subnet = a.subnet and r.address = a.address
           and not exists (
             select from unnest($3::uuid[], $4::uuid[], $5::text[]) h(o, s, a)
             where h.o = a.owner and h.s = a.subnet and h.a::inet = a.address)",
        devices,
        subnets,
        &owners,
        &places,
        &addresses
    );
    delete.execute(&mut **tx).await?;
    Ok(())
}
