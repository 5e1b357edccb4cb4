//! What only one object can have: MACs, VLAN numbers, addresses. Constraints of the database hold it; this file keeps
//! the rows that the constraints see, and says in words who has what already.

use crate::StoreError;
use crate::store::Tx;
use basalt_api::values::Uid;
use basalt_api::{FieldCode, FieldError};
use serde_json::Value;
use std::collections::BTreeMap;

/// An object whose rows are to be written: its references are resolved.
pub(crate) struct Subject<'a> {
    pub(crate) kind: &'a str,
    pub(crate) uid: Uid,
    pub(crate) spec: &'a Value,
    pub(crate) references: &'a BTreeMap<String, Uid>,
}

impl Subject<'_> {
    fn text(&self, pointer: &str) -> Option<&str> {
        self.spec.pointer(pointer).and_then(Value::as_str)
    }
}

/// Kinds whose rows rest on those of the kinds before them.
const ORDER: &[&str] = &["Vlan", "Subnet", "IpRange"];

/// Replaces the subjects' rows; what stands against one comes back with its uid, and then nothing was written for that part.
pub(crate) async fn write(
    tx: &mut Tx,
    subjects: &[Subject<'_>],
) -> Result<Vec<(Uid, FieldError)>, StoreError> {
    let mut errors = machine_macs(tx, subjects).await?;
    // Two ranges of one batch may change places.
    let ranges: Vec<uuid::Uuid> = of_kind("IpRange", subjects).map(|subject| subject.uid.get()).collect();
    if !ranges.is_empty() {
        sqlx::query!("delete from ip_range where range = any($1)", &ranges).execute(&mut **tx).await?;
    }
    for kind in ORDER {
        for subject in of_kind(kind, subjects) {
            let found = match *kind {
                "Vlan" => vlan_vid(tx, subject).await?,
                "Subnet" => subnet_cidr(tx, subject).await?,
                _ => ip_range(tx, subject).await?,
            };
            errors.extend(found.into_iter().map(|error| (subject.uid, error)));
        }
    }
    Ok(errors)
}

fn of_kind<'a, 'b>(kind: &'a str, subjects: &'a [Subject<'b>]) -> impl Iterator<Item = &'a Subject<'b>> {
    subjects.iter().filter(move |subject| subject.kind == kind)
}

async fn machine_macs(tx: &mut Tx, subjects: &[Subject<'_>]) -> Result<Vec<(Uid, FieldError)>, StoreError> {
    let machines: Vec<uuid::Uuid> = of_kind("Machine", subjects).map(|subject| subject.uid.get()).collect();
    if machines.is_empty() {
        return Ok(Vec::new());
    }
    let (mut owners, mut pointers, mut macs) = (Vec::new(), Vec::new(), Vec::new());
    for subject in of_kind("Machine", subjects) {
        let listed = subject.spec.pointer("/boot_macs").and_then(Value::as_array);
        for (index, mac) in
            listed.into_iter().flatten().enumerate().filter_map(|(i, m)| Some((i, m.as_str()?)))
        {
            owners.push(subject.uid.get());
            pointers.push(format!("/boot_macs/{index}"));
            macs.push(mac.to_owned());
        }
    }
    sqlx::query!("delete from machine_mac where machine = any($1)", &machines).execute(&mut **tx).await?;
    let insert = sqlx::query!(
        "insert into machine_mac (mac, machine, pointer)
         select m::macaddr, o, p from unnest($1::text[], $2::uuid[], $3::text[]) u(m, o, p)
         on conflict (mac) do nothing",
        &macs,
        &owners,
        &pointers
    );
    insert.execute(&mut **tx).await?;
    let holders = sqlx::query!(
        r#"select u.o as "owner!", u.p as "pointer!", u.m as "mac!", o.kind, o.name
           from unnest($1::text[], $2::uuid[], $3::text[]) with ordinality u(m, o, p, n)
           join machine_mac h on h.mac = u.m::macaddr and h.machine <> u.o join object o on o.uid = h.machine
           order by u.n"#,
        &macs,
        &owners,
        &pointers
    );
    let taken = holders.fetch_all(&mut **tx).await?.into_iter().map(|holder| {
        let message = format!("{} is a boot MAC of {} {:?} already", holder.mac, holder.kind, holder.name);
        let hint = "a MAC address boots one machine: remove it there first";
        (Uid::from(holder.owner), FieldError::new(holder.pointer, FieldCode::Overlap, message, hint))
    });
    Ok(taken.collect())
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

async fn ip_range(tx: &mut Tx, subject: &Subject<'_>) -> Result<Vec<FieldError>, StoreError> {
    let (Some(subnet), Some(start), Some(end)) =
        (subject.references.get("/subnet"), subject.text("/start"), subject.text("/end"))
    else {
        return Ok(Vec::new());
    };
    let purpose = subject.text("/purpose").unwrap_or("dynamic");
    let within = sqlx::query!(
        r#"select o.name, c.cidr::text as "cidr!", $2::text::inet <<= c.cidr as "start_in!",
             $3::text::inet <<= c.cidr as "end_in!"
           from subnet_cidr c join object o on o.uid = c.subnet where c.subnet = $1"#,
        subnet.get(),
        start,
        end
    );
    let mut errors = Vec::new();
    if let Some(place) = within.fetch_optional(&mut **tx).await? {
        for (pointer, address, inside) in [("/start", start, place.start_in), ("/end", end, place.end_in)] {
            if !inside {
                let message = format!("{address} is outside {} of Subnet {:?}", place.cidr, place.name);
                let hint = format!("an address of {}", place.cidr);
                errors.push(FieldError::new(pointer, FieldCode::Rule, message, hint));
            }
        }
    }
    let holders = sqlx::query!(
        r#"select o.name, host(lower(r.span)) as "first!", host(upper(r.span)) as "last!"
           from ip_range r join object o on o.uid = r.range
           where r.subnet = $1 and r.span && inetrange($2::text::inet, $3::text::inet, '[]') and r.range <> $4
           order by r.span"#,
        subnet.get(),
        start,
        end,
        subject.uid.get()
    );
    for other in holders.fetch_all(&mut **tx).await? {
        let message =
            format!("{start}-{end} overlaps {}-{} of IpRange {:?}", other.first, other.last, other.name);
        let hint = "ranges of one subnet do not overlap";
        errors.push(FieldError::new("/start", FieldCode::Overlap, message, hint));
    }
    if !errors.is_empty() {
        return Ok(errors);
    }
    let upsert = sqlx::query!(
        "insert into ip_range (range, subnet, purpose, span)
         values ($1, $2, $3, inetrange($4::text::inet, $5::text::inet, '[]'))
         on conflict (range) do update
         set subnet = excluded.subnet, purpose = excluded.purpose, span = excluded.span",
        subject.uid.get(),
        subnet.get(),
        purpose,
        start,
        end
    );
    upsert.execute(&mut **tx).await?;
    Ok(Vec::new())
}
