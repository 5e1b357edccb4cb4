//! Ranges of a subnet: they are inside of it and do not overlap, and no object owns an address in a dynamic one.

use crate::StoreError;
use crate::invariant::Subject;
use crate::store::Tx;
use basalt_api::{FieldCode, FieldError};
use uuid::Uuid;

/// The largest number of owners that an error names.
const NAMED: i64 = 5;

/// A range as declared.
struct Span<'a> {
    subnet: Uuid,
    start: &'a str,
    end: &'a str,
}

/// Writes a range's row. If there are errors, they are returned and nothing is written.
pub(crate) async fn write(tx: &mut Tx, subject: &Subject<'_>) -> Result<Vec<FieldError>, StoreError> {
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
    if purpose == "dynamic" && errors.is_empty() {
        let span = Span { subnet: subnet.get(), start, end };
        // A range that was there before the rack or the Machine may stay: the rack does not lease its own address.
        let fields = ["/subnet", "/start", "/end", "/purpose"];
        let is_as_before = |before: &serde_json::Value| {
            fields.iter().all(|field| before.pointer(field) == subject.spec.pointer(field))
        };
        let is_new = !subject.before.is_some_and(is_as_before);
        errors.extend(owned(tx, &span, is_new).await?);
        if is_new {
            errors.extend(racks(tx, &span).await?);
            errors.extend(routers(tx, &span).await?);
        }
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

/// The errors for racks whose own addresses are in a dynamic range.
async fn racks(tx: &mut Tx, span: &Span<'_>) -> Result<Vec<FieldError>, StoreError> {
    let Span { subnet, start, end } = *span;
    let racks = sqlx::query!(
        r#"select host(r.address) as "address!", min(o.name) as "name!"
           from rack_place r join object o on o.uid = r.rack
           where r.subnet = $1 and r.address between $2::text::inet and $3::text::inet
           group by r.address order by r.address limit $4"#,
        subnet,
        start,
        end,
        NAMED
    );
    let errors = racks.fetch_all(&mut **tx).await?.into_iter().map(|rack| {
        let message = format!("{start}-{end} holds {}, the address of Rack {:?}", rack.address, rack.name);
        let hint = "DHCP leases a dynamic range to whoever asks: leave that address out";
        FieldError::new("/start", FieldCode::Overlap, message, hint)
    });
    Ok(errors.collect())
}

/// The errors for gateways of StaticRoutes in a dynamic range.
async fn routers(tx: &mut Tx, span: &Span<'_>) -> Result<Vec<FieldError>, StoreError> {
    let Span { subnet, start, end } = *span;
    let routers = sqlx::query!(
        r#"select host(r.gateway) as "gateway!", min(o.name) as "name!"
           from static_route r join object o on o.uid = r.route
           where r.source = $1 and r.gateway between $2::text::inet and $3::text::inet
           group by r.gateway order by r.gateway limit $4"#,
        subnet,
        start,
        end,
        NAMED
    );
    let errors = routers.fetch_all(&mut **tx).await?.into_iter().map(|router| {
        let message =
            format!("{start}-{end} holds {}, the gateway of StaticRoute {:?}", router.gateway, router.name);
        let hint = "DHCP leases a dynamic range to whoever asks: leave that address out";
        FieldError::new("/start", FieldCode::Overlap, message, hint)
    });
    Ok(errors.collect())
}

/// The errors for owned addresses in a dynamic range. Addresses of Machines count if the range `is_new`.
async fn owned(tx: &mut Tx, span: &Span<'_>, is_new: bool) -> Result<Vec<FieldError>, StoreError> {
    let Span { subnet, start, end } = *span;
    let edges = sqlx::query!(
        r#"select cidr::text as "cidr!", $2::text::inet < first_host(cidr) as "network!",
             $3::text::inet > last_host(cidr) as "broadcast!"
           from subnet_cidr where subnet = $1"#,
        subnet,
        start,
        end
    );
    let mut errors = Vec::new();
    if let Some(net) = edges.fetch_optional(&mut **tx).await? {
        let cidr = net.cidr;
        for (pointer, is, address, which) in
            [("/start", net.network, start, "network"), ("/end", net.broadcast, end, "broadcast")]
        {
            if is {
                let message = format!("{address} is the {which} address of {cidr}, and DHCP cannot lease it");
                errors.push(FieldError::new(pointer, FieldCode::Rule, message, "leave it out of the range"));
            }
        }
    }
    let owners = sqlx::query!(
        r#"select host(a.address) as "address!", a.class as "class!", o.kind, o.name from (
             select address, class, owner from address
             where subnet = $1 and address between $2::text::inet and $3::text::inet
             union all select address, 'machine', machine from machine_address
             where $5 and subnet = $1 and address between $2::text::inet and $3::text::inet) a join object o on o.uid = a.owner
           order by a.address, o.kind limit $4"#,
        subnet,
        start,
        end,
        NAMED,
        is_new
    );
    for owner in owners.fetch_all(&mut **tx).await? {
        let what = if owner.class == super::GATEWAY { "gateway" } else { "address" };
        let message =
            format!("{start}-{end} holds {}, the {what} of {} {:?}", owner.address, owner.kind, owner.name);
        let hint =
            "DHCP leases a dynamic range to whoever asks: leave that address out, or give it back first";
        errors.push(FieldError::new("/start", FieldCode::Overlap, message, hint));
    }
    Ok(errors)
}
