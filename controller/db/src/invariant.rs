//! What only one object can have: MACs, VLAN numbers, addresses, records, routes. Constraints of the database hold it; this
//! module keeps the rows that the constraints see, and says in words who has what already.

mod dns;
mod mac;
mod route;

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
const ORDER: &[&str] = &["Vlan", "Subnet", "IpRange", "StaticRoute", "DnsRecord"];

/// Replaces the subjects' rows; what stands against one comes back with its uid, and then nothing was written for that part.
pub(crate) async fn write(
    tx: &mut Tx,
    subjects: &[Subject<'_>],
) -> Result<Vec<(Uid, FieldError)>, StoreError> {
    let mut errors = mac::write(tx, subjects).await?;
    // Two objects of one batch may change places.
    let ranges: Vec<uuid::Uuid> = of_kind("IpRange", subjects).map(|subject| subject.uid.get()).collect();
    if !ranges.is_empty() {
        sqlx::query!("delete from ip_range where range = any($1)", &ranges).execute(&mut **tx).await?;
    }
    dns::clear(tx, subjects).await?;
    route::clear(tx, subjects).await?;
    for kind in ORDER {
        for subject in of_kind(kind, subjects) {
            let found = match *kind {
                "Vlan" => vlan_vid(tx, subject).await?,
                "Subnet" => subnet_cidr(tx, subject).await?,
                "StaticRoute" => route::write(tx, subject).await?,
                "DnsRecord" => dns::write(tx, subject).await?,
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
