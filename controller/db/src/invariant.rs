//! Values that only one object can have: MACs, BMCs, identities at an issuer, VLAN numbers, addresses, records, routes. Constraints
//! of the database enforce this. This module keeps the rows for the constraints, and its errors name the object that has a value.

mod bmc;
mod disks;
mod dns;
pub(crate) mod expiry;
mod mac;
mod network;
mod openid;
mod route;

use crate::StoreError;
use crate::ipam::{self, declared, device, interface, range};
use crate::store::Tx;
use basalt_api::values::Uid;
use basalt_api::{FieldCode, FieldError};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// An object whose rows are to be written. Its references are resolved.
pub(crate) struct Subject<'a> {
    pub(crate) kind: &'a str,
    pub(crate) uid: Uid,
    pub(crate) spec: &'a Value,
    /// The spec whose rows are stored.
    pub(crate) before: Option<&'a Value>,
    pub(crate) references: &'a BTreeMap<String, Uid>,
}

impl Subject<'_> {
    pub(crate) fn text(&self, pointer: &str) -> Option<&str> {
        self.spec.pointer(pointer).and_then(Value::as_str)
    }
}

/// Kinds whose rows depend on rows of the kinds before them.
const ORDER: &[&str] = &["Vlan", "Subnet", "IpRange", "StaticRoute", "DnsRecord"];

/// The result of the subjects' writes.
#[derive(Default)]
pub(crate) struct Found {
    /// The errors, by subject. The rows with errors were not written.
    pub(crate) errors: Vec<(Uid, FieldError)>,
    /// Advice that refuses nothing, by subject.
    pub(crate) notes: Vec<(Uid, FieldError)>,
    /// The address that each IpAddress got.
    pub(crate) assigned: BTreeMap<Uid, IpAddr>,
}

/// Replaces the subjects' rows.
pub(crate) async fn write(tx: &mut Tx, subjects: &[Subject<'_>]) -> Result<Found, StoreError> {
    let mut found = Found { errors: mac::write(tx, subjects).await?, ..Found::default() };
    found.errors.extend(bmc::taken(tx, subjects).await?);
    let shared = bmc::shared(tx, subjects).await?;
    found.errors.extend(shared.errors);
    found.notes = shared.notes;
    found.errors.extend(bmc::outside(tx, subjects).await?);
    found.errors.extend(bmc::left_out(tx, subjects).await?);
    found.errors.extend(disks::misnamed(tx, subjects).await?);
    found.errors.extend(openid::write(tx, subjects).await?);
    found.errors.extend(expiry::passed(tx, subjects).await?);
    let moved = of_kind("Device", subjects).filter(|subject| device::is_changed(subject));
    let moved: Vec<uuid::Uuid> = moved.map(|subject| subject.uid.get()).collect();
    let networks = uids("Subnet", subjects);
    let mut subnets: BTreeSet<uuid::Uuid> = subjects.iter().filter_map(addressed_subnet).collect();
    subnets.extend(device::subnets(tx, &moved).await?);
    let (interfaces, readdressed) = (interface::declared(tx, subjects).await?, interface::moved(subjects));
    subnets.extend(interface::subnets(tx, &readdressed).await?);
    subnets.extend(interfaces.iter().map(|interface| interface.subnet));
    if !subnets.is_empty() {
        ipam::lock(tx, &subnets.into_iter().collect::<Vec<_>>()).await?;
    }
    // Two objects of one batch may exchange values.
    let ranges = uids("IpRange", subjects);
    if !ranges.is_empty() {
        sqlx::query!("delete from ip_range where range = any($1)", &ranges).execute(&mut **tx).await?;
    }
    declared::release_gateways(tx, &networks).await?;
    let devices_had = device::release(tx, &moved, &networks).await?;
    let machines_had = interface::release(tx, &readdressed).await?;
    let had = declared::release(tx, &uids("IpAddress", subjects)).await?;
    dns::clear(tx, subjects).await?;
    route::clear(tx, subjects).await?;
    let mut outside = BTreeSet::new();
    for kind in ORDER {
        if *kind == "IpRange" {
            outside = without_subnet(tx, subjects).await?;
            found.errors.extend(outside.iter().map(|uid| (*uid, unknown_subnet())));
        }
        for subject in of_kind(kind, subjects).filter(|subject| !outside.contains(&subject.uid)) {
            let errors = match *kind {
                "Vlan" => vlan_vid(tx, subject).await?,
                "Subnet" => match subnet_cidr(tx, subject).await? {
                    errors if errors.is_empty() => declared::gateway(tx, subject).await?,
                    errors => errors,
                },
                "StaticRoute" => route::write(tx, subject).await?,
                "DnsRecord" => dns::write(tx, subject).await?,
                _ => range::write(tx, subject).await?,
            };
            found.errors.extend(errors.into_iter().map(|error| (subject.uid, error)));
        }
    }
    let (interfaces, misfits) = interface::write(tx, interfaces, subjects, &machines_had).await?;
    found.errors.extend(misfits);
    let addresses = of_kind("IpAddress", subjects).filter(|subject| !outside.contains(&subject.uid));
    let addresses: Vec<&Subject<'_>> = addresses.collect();
    if !addresses.is_empty() {
        let given = declared::write(tx, &addresses, &had).await?;
        found.errors.extend(given.errors);
        found.assigned = given.assigned;
    }
    found.errors.extend(device::write(tx, &moved, &networks, &devices_had).await?);
    found.errors.extend(interface::taken(tx, interfaces).await?);
    found.errors.extend(network::contradictory(tx, subjects).await?);
    Ok(found)
}

/// Ranges and addresses whose subnet was refused, or does not exist in a dry run. They cannot be checked.
async fn without_subnet(tx: &mut Tx, subjects: &[Subject<'_>]) -> Result<BTreeSet<Uid>, StoreError> {
    let inside = subjects.iter().filter(|subject| ["IpRange", "IpAddress"].contains(&subject.kind));
    let inside: Vec<_> =
        inside.filter_map(|subject| Some((subject.uid, addressed_subnet(subject)?))).collect();
    if inside.is_empty() {
        return Ok(BTreeSet::new());
    }
    let subnets: Vec<uuid::Uuid> = inside.iter().map(|(_, subnet)| *subnet).collect();
    let there = sqlx::query_scalar!("select subnet from subnet_cidr where subnet = any($1)", &subnets);
    let there: BTreeSet<uuid::Uuid> = there.fetch_all(&mut **tx).await?.into_iter().collect();
    Ok(inside.into_iter().filter(|(_, subnet)| !there.contains(subnet)).map(|(uid, _)| uid).collect())
}

fn unknown_subnet() -> FieldError {
    let message = "this Subnet cannot be as it is declared, so that nothing can be said of what is in it";
    FieldError::new("/subnet", FieldCode::Rule, message, "see what is said of the Subnet")
}

/// The subnet whose addresses a subject changes.
fn addressed_subnet(subject: &Subject<'_>) -> Option<uuid::Uuid> {
    match subject.kind {
        "Subnet" => Some(subject.uid.get()),
        "IpRange" | "IpAddress" => subject.references.get("/subnet").map(|uid| uid.get()),
        _ => None,
    }
}

fn uids(kind: &str, subjects: &[Subject<'_>]) -> Vec<uuid::Uuid> {
    of_kind(kind, subjects).map(|subject| subject.uid.get()).collect()
}

fn of_kind<'a, 'b>(kind: &'a str, subjects: &'a [Subject<'b>]) -> impl Iterator<Item = &'a Subject<'b>> {
    subjects.iter().filter(move |subject| subject.kind == kind)
}

async fn vlan_vid(tx: &mut Tx, subject: &Subject<'_>) -> Result<Vec<FieldError>, StoreError> {
    let (Some(fabric), Some(vid)) =
        (subject.references.get("/fabric"), subject.spec.pointer("/vid").and_then(Value::as_i64))
    else {
        return Ok(Vec::new());
    };
    let vid = i32::try_from(vid).unwrap_or(i32::MAX);
    let holder = sqlx::query!(
        "select o.name from vlan_vid v join object o on o.uid = v.vlan
         where v.fabric = $1 and v.vid = $2 and v.vlan <> $3",
        fabric.get(),
        vid,
        subject.uid.get()
    );
    if let Some(other) = holder.fetch_optional(&mut **tx).await? {
        let message = format!("VLAN {vid} of this fabric is Vlan {:?} already", other.name);
        return Ok(vec![FieldError::new(
            "/vid",
            FieldCode::Overlap,
            message,
            "a fabric has each number once",
        )]);
    }
    let upsert = sqlx::query!(
        "insert into vlan_vid (vlan, fabric, vid) values ($1, $2, $3)
         on conflict (vlan) do update set fabric = excluded.fabric, vid = excluded.vid",
        subject.uid.get(),
        fabric.get(),
        vid
    );
    upsert.execute(&mut **tx).await?;
    Ok(Vec::new())
}

async fn subnet_cidr(tx: &mut Tx, subject: &Subject<'_>) -> Result<Vec<FieldError>, StoreError> {
    let (Some(vlan), Some(cidr)) = (subject.references.get("/vlan"), subject.text("/cidr")) else {
        return Ok(Vec::new());
    };
    let fabric = sqlx::query_scalar!("select fabric from vlan_vid where vlan = $1", vlan.get());
    let Some(fabric) = fabric.fetch_optional(&mut **tx).await? else { return Ok(Vec::new()) };
    let holders = sqlx::query!(
        r#"select o.name, c.cidr::text as "theirs!" from subnet_cidr c join object o on o.uid = c.subnet
           where c.fabric = $1 and c.cidr && $2::text::cidr and c.subnet <> $3 order by c.cidr"#,
        fabric,
        cidr,
        subject.uid.get()
    );
    let holders = holders.fetch_all(&mut **tx).await?;
    if !holders.is_empty() {
        let error = |other: &str, theirs: &str| {
            let message = format!("{cidr} overlaps {theirs} of Subnet {other:?}");
            FieldError::new("/cidr", FieldCode::Overlap, message, "subnets of one fabric do not overlap")
        };
        return Ok(holders.iter().map(|h| error(&h.name, &h.theirs)).collect());
    }
    let upsert = sqlx::query!(
        "insert into subnet_cidr (subnet, fabric, cidr) values ($1, $2, $3::text::cidr)
         on conflict (subnet) do update set fabric = excluded.fabric, cidr = excluded.cidr",
        subject.uid.get(),
        fabric,
        cidr
    );
    upsert.execute(&mut **tx).await?;
    Ok(Vec::new())
}
