//! Routes: the gateway is in the source subnet and in none of its dynamic ranges, and a route exists only once.

use super::{Subject, of_kind};
use crate::StoreError;
use crate::ipam::declared;
use crate::store::Tx;
use basalt_api::values::Cidr;
use basalt_api::{FieldCode, FieldError};
use std::net::IpAddr;

/// Deletes the subjects' rows.
pub(super) async fn clear(tx: &mut Tx, subjects: &[Subject<'_>]) -> Result<(), StoreError> {
    let uids: Vec<uuid::Uuid> = of_kind("StaticRoute", subjects).map(|subject| subject.uid.get()).collect();
    if !uids.is_empty() {
        sqlx::query!("delete from static_route where route = any($1)", &uids).execute(&mut **tx).await?;
    }
    Ok(())
}

/// Writes the subject's row, which [`clear`] deleted.
pub(super) async fn write(tx: &mut Tx, subject: &Subject<'_>) -> Result<Vec<FieldError>, StoreError> {
    let (Some(source), Some(gateway)) = (subject.references.get("/source"), subject.text("/gateway")) else {
        return Ok(Vec::new());
    };
    let there = sqlx::query!(
        r#"select o.name, c.cidr::text as "cidr!" from subnet_cidr c join object o on o.uid = c.subnet where c.subnet = $1"#,
        source.get()
    );
    if let Some(place) = there.fetch_optional(&mut **tx).await?
        && let (Ok(cidr), Ok(router)) = (place.cidr.parse::<Cidr>(), gateway.parse::<IpAddr>())
    {
        if cidr.reach(router).is_none() {
            let why = if cidr.contains(router) { "cannot be a router's address in" } else { "is outside" };
            let message = format!("{gateway} {why} {cidr} of Subnet {:?}", place.name);
            let hint = format!("a router's address in {cidr}");
            return Ok(vec![FieldError::new("/gateway", FieldCode::Rule, message, hint)]);
        }
        if cidr.contains(router)
            && let Some(error) = declared::router(tx, subject.uid.get(), source.get(), gateway).await?
        {
            return Ok(vec![error]);
        }
    }
    let destination = match (subject.text("/destination_cidr"), subject.references.get("/destination")) {
        (Some(cidr), _) => Some(cidr.to_owned()),
        (None, Some(subnet)) => {
            let cidr = sqlx::query_scalar!(
                r#"select cidr::text as "cidr!" from subnet_cidr where subnet = $1"#,
                subnet.get()
            );
            cidr.fetch_optional(&mut **tx).await?
        }
        (None, None) => None,
    };
    let Some(destination) = destination else { return Ok(Vec::new()) };
    let other = sqlx::query_scalar!(
        "select o.name from static_route r join object o on o.uid = r.route
         where r.source = $1 and r.destination = $2::text::cidr and r.gateway = $3::text::inet and r.route <> $4",
        source.get(),
        destination,
        gateway,
        subject.uid.get()
    );
    if let Some(other) = other.fetch_optional(&mut **tx).await? {
        let message = format!("StaticRoute {other:?} leads to {destination} by {gateway} already");
        let hint = "a subnet has each route once";
        return Ok(vec![FieldError::new("/gateway", FieldCode::Overlap, message, hint)]);
    }
    let insert = sqlx::query!(
        "insert into static_route (route, source, destination, gateway)
         values ($1, $2, $3::text::cidr, $4::text::inet)",
        subject.uid.get(),
        source.get(),
        destination,
        gateway
    );
    insert.execute(&mut **tx).await?;
    Ok(Vec::new())
}
