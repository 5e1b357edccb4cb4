//! Static addresses that Machines declare for their own interfaces.
//!
//! The primary key of `machine_address` refuses an address to a second Machine. These objects may have the address too:
//!
//! - a Deployment on the Machine, or one that may still choose it
//! - an IpAddress with a MAC of the Machine, or of a Machine whose MACs are not known
//!
//! The address is not free, and no other object gets it.

use super::fit::{self, Holder, Place};
use crate::store::Tx;
use crate::{Store, StoreError};
use basalt_api::values::MachineId;
use basalt_api::{KindOf, kinds};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The subnets in which these Machines have addresses.
pub(super) async fn subnets(tx: &mut Tx, machines: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
    if machines.is_empty() {
        return Ok(Vec::new());
    }
    let query =
        sqlx::query_scalar!("select distinct subnet from machine_address where machine = any($1)", machines);
    Ok(query.fetch_all(&mut **tx).await?)
}

/// Releases the addresses of these Machines and returns them; [`write`] gives the newly declared ones.
pub(super) async fn release(tx: &mut Tx, machines: &[Uuid]) -> Result<Vec<Place>, StoreError> {
    if machines.is_empty() {
        return Ok(Vec::new());
    }
    let delete = sqlx::query!(
        r#"delete from machine_address where machine = any($1) returning machine, subnet, host(address) as "address!""#,
        machines
    );
    let rows = delete.fetch_all(&mut **tx).await?.into_iter();
    Ok(rows.map(|row| Place { owner: row.machine, subnet: row.subnet, address: row.address }).collect())
}

/// Gives Machines their addresses, in this order. An address of another Machine stays with it: [`holders`] reports that one.
pub(super) async fn write(tx: &mut Tx, places: &[Place]) -> Result<(), StoreError> {
    if places.is_empty() {
        return Ok(());
    }
    let (machines, subnets, addresses) = fit::columns(places);
    let insert = sqlx::query!(
        "insert into machine_address (subnet, address, machine)
         select s, a::inet, m from unnest($1::uuid[], $2::uuid[], $3::text[]) with ordinality u(m, s, a, n)
         join subnet_cidr c on c.subnet = s
         order by n
         on conflict do nothing",
        &machines,
        &subnets,
        &addresses
    );
    insert.execute(&mut **tx).await?;
    Ok(())
}

/// The Machines that refuse wanted addresses, by the owner that wants one. A Deployment may have the address of its Machine. Without a
/// Machine, it may have that of a Machine which no Deployment has.
pub(super) async fn holders(tx: &mut Tx, places: &[Place]) -> Result<BTreeMap<Uuid, Holder>, StoreError> {
    let (owners, subnets, addresses) = fit::columns(places);
    let rows = sqlx::query!(
        r#"select u.o as "owner!", o.name, h.machine
           from unnest($1::uuid[], $2::uuid[], $3::text[]) u(o, s, a)
           join machine_address h on h.subnet = u.s and h.address = u.a::inet and h.machine <> u.o
           join object o on o.uid = h.machine
           left join object w on w.uid = u.o
           left join machine_claim held on held.deployment = u.o
           left join machine_claim taken on taken.machine = h.machine
           left join object_ref named on named.from_uid = u.o and named.pointer = '/machine'
           where w.kind is distinct from $4
              or coalesce(held.machine, named.to_uid, case when taken.deployment is null then h.machine end)
                 is distinct from h.machine"#,
        &owners,
        &subnets,
        &addresses,
        kinds::Deployment::NAME
    );
    let rows = rows.fetch_all(&mut **tx).await?.into_iter();
    Ok(rows.map(|row| (row.owner, Holder::machine(row.machine, &row.name))).collect())
}

/// The MACs of machines. A machine without a known inventory is left out.
pub(super) async fn macs(
    tx: &mut Tx,
    machines: &[Uuid],
) -> Result<BTreeMap<Uuid, BTreeSet<String>>, StoreError> {
    if machines.is_empty() {
        return Ok(BTreeMap::new());
    }
    let rows = sqlx::query!(
        r#"select o.uid, array(
             select m.mac::text from machine_mac m where m.machine = o.uid
             union select lower(i.value->>'mac') from json_each(o.status #> '{inventory,interfaces}') i
             where i.value->>'mac' is not null) as "macs!: Vec<String>"
           from object o where o.uid = any($1) and o.status #> '{inventory,interfaces}' is not null"#,
        machines
    );
    let rows = rows.fetch_all(&mut **tx).await?;
    Ok(rows.into_iter().map(|row| (row.uid, row.macs.into_iter().collect())).collect())
}

impl Store {
    /// The machines whose declared addresses another object or a rack has, each with one reason as a sentence. A Deployment that takes
    /// its network from such a machine could not be installed there.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn machines_without_their_addresses(&self) -> Result<BTreeMap<MachineId, String>, StoreError> {
        let rows = sqlx::query!(
            r#"select m.machine as "machine!", host(m.address) as "address!", x.kind as "kind!", x.class as "class!", x.name as "name!"
               from machine_address m join lateral (
                 select o.kind, o.name, a.class from address a join object o on o.uid = a.owner
                 where a.subnet = m.subnet and a.address = m.address
                   and not exists (select from machine_claim c where c.machine = m.machine and c.deployment = a.owner)
                   and not exists (select from machine_mac i where i.machine = m.machine and a.class = 'static' and i.mac = a.mac)
                   and not exists (
                     select from object s, json_each(s.status #> '{inventory,interfaces}') i
                     where s.uid = m.machine and a.class = 'static' and lower(i.value->>'mac') = a.mac::text)
                 union all
                 select 'Rack', o.name, 'rack' from rack_place r join object o on o.uid = r.rack
                 where r.subnet = m.subnet and r.address = m.address
                   and not exists (
                     select from address a join machine_claim c on c.deployment = a.owner and c.machine = m.machine
                     where a.subnet = m.subnet and a.address = m.address)) x on true
               order by m.machine, m.address desc"#
        );
        let rows = rows.fetch_all(self.pool()).await?.into_iter();
        let why = rows.map(|row| {
            let holder = Holder::of(row.kind, &row.class, &row.name);
            (MachineId::from(row.machine), holder.refusal(&row.address))
        });
        Ok(why.collect())
    }
}
