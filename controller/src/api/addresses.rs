//! Addresses that are not free: declared ones, those of deployments and racks, and leases.
//!
//! A caller that is limited to pools gets only the deployments and machines of these pools, as in lists. Leases of undeclared clients are
//! left out then: their MACs may belong to machines that the caller must not see.

use super::App;
use super::body;
use super::caller::Caller;
use super::problem::{Answer, Refusal};
use super::query::{self, parameters};
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use basalt_api::kinds::Subnet;
use basalt_api::values::{Mac, Name};
use basalt_api::wire::{AddressEntry, AddressPage, AddressSource};
use basalt_api::{FieldCode, KindOf, ProblemCode};
use basalt_db::{AddressPosition, AddressQuery, TakenAddress};
use serde::Deserialize;
use std::net::IpAddr;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    subnet: Option<String>,
    address: Option<String>,
    source: Option<String>,
    limit: Option<i64>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

pub(super) async fn list(State(app): State<App>, caller: Caller, uri: Uri) -> Answer<Json<AddressPage>> {
    let parameters: Parameters = parameters(&uri)?;
    let limit = query::limit(parameters.limit)?;
    let subnet = match &parameters.subnet {
        Some(name) => Some(app.store().get(Subnet::NAME, body::key(Subnet::KIND, name)?).await?.uid),
        None => None,
    };
    let address = parameters.address.as_deref().map(address).transpose()?;
    let source = parameters.source.as_deref().map(source).transpose()?;
    let after = parameters.next.as_deref().map(position).transpose()?;
    let pools = caller.rights.visible_pools().map(|pools| pools.into_iter().collect::<Vec<_>>());
    let query = AddressQuery {
        subnet,
        address,
        source: source.map(AddressSource::as_str),
        pools: pools.as_deref(),
        after,
        limit,
    };
    let page = app.store().taken_addresses(&query).await?;
    let items = page.entries.into_iter().map(entry).collect::<Answer<_>>()?;
    Ok(Json(AddressPage { items, next: page.next.map(|next| next.to_string()) }))
}

fn address(text: &str) -> Answer<IpAddr> {
    text.parse().map_err(|_| {
        let message = format!("{text:?} in address is no address");
        Refusal::field("/address", FieldCode::Format, message, "like 10.77.0.1 or 2001:db8::1")
    })
}

fn source(text: &str) -> Answer<AddressSource> {
    AddressSource::parse(text).ok_or_else(|| {
        let sources = AddressSource::ALL.map(AddressSource::as_str).join(", ");
        let message = format!("{text:?} in source is no source of addresses");
        Refusal::field("/source", FieldCode::Format, message, format!("one of {sources}"))
    })
}

fn position(text: &str) -> Answer<AddressPosition> {
    text.parse().map_err(|()| {
        let message = format!("{text:?} in continue is not from the page before");
        Refusal::field("/continue", FieldCode::Format, message, "`continue` of the page before")
    })
}

fn entry(taken: TakenAddress) -> Answer<AddressEntry> {
    let corrupt = |what: &str| Refusal::new(ProblemCode::Internal, format!("an address has no {what}"));
    let name = |name: Option<String>| name.and_then(|name| name.parse::<Name>().ok());
    Ok(AddressEntry {
        address: taken.address,
        subnet: name(Some(taken.subnet)).ok_or_else(|| corrupt("subnet"))?,
        source: AddressSource::parse(&taken.source).ok_or_else(|| corrupt("source"))?,
        owner: name(taken.owner),
        interface: taken.interface,
        machine: name(taken.machine),
        device: name(taken.device),
        mac: taken.mac.and_then(|mac| mac.parse::<Mac>().ok()),
        duid: taken.duid,
        hostname: taken.hostname,
        rack: name(taken.rack),
        ends_at: taken.ends_at,
    })
}
