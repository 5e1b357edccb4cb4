//! The use of subnets and ranges, and the number of machines in zones, pools and tags. They are counted at each request and added to the
//! status that is returned; they are not stored.

use super::App;
use super::problem::Answer;
use super::rights::Rights;
use basalt_api::kinds::{BlockState, RangeBlock, SubnetPurposes};
use basalt_db::{Object, RangeUse, StoreError, SubnetUse};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Adds the counts to the status of objects whose kind has some.
pub(super) async fn fill(app: &App, rights: &Rights, objects: &mut [Object]) -> Answer<()> {
    let uids = |kind: &str| objects.iter().filter(|o| o.kind == kind).map(|o| o.uid).collect::<Vec<_>>();
    let (subnets, ranges, spaces) = (uids("Subnet"), uids("IpRange"), uids("Space"));
    let subnets = match subnets.is_empty() {
        true => BTreeMap::new(),
        false => app.store().subnet_use(&subnets).await?,
    };
    let ranges = match ranges.is_empty() {
        true => BTreeMap::new(),
        false => app.store().range_use(&ranges).await?,
    };
    if !spaces.is_empty() {
        let vlans = app.store().space_use(&spaces).await?;
        for object in objects.iter_mut().filter(|object| object.kind == "Space") {
            let vlans = vlans.get(&object.uid).copied().unwrap_or_default();
            object.status = with(&object.status, [("vlans", json!(vlans))])?;
        }
    }
    fill_groups(app, rights, objects).await?;
    for object in objects {
        if let Some(of) = subnets.get(&object.uid) {
            object.status = with(&object.status, of_subnet(of))?;
        }
        if let Some(of) = ranges.get(&object.uid) {
            object.status = with(&object.status, of_range(of))?;
        }
    }
    Ok(())
}

/// The number of machines in each zone, pool and tag.
async fn fill_groups(app: &App, rights: &Rights, objects: &mut [Object]) -> Answer<()> {
    let has = |kind: &str| objects.iter().any(|object| object.kind == kind);
    let mut places = BTreeMap::new();
    for (kind, pools) in [("Zone", false), ("Pool", true)] {
        if has(kind) {
            places.insert(kind, app.store().place_use(pools).await?);
        }
    }
    let names: Vec<_> = objects.iter().filter(|o| o.kind == "Tag").map(|o| o.name.clone()).collect();
    let tags = match names.is_empty() {
        true => BTreeMap::new(),
        false => {
            let pools = rights.visible_pools().map(|pools| pools.into_iter().collect::<Vec<_>>());
            app.store().tag_use(&names, pools.as_deref()).await?
        }
    };
    for object in objects {
        if let Some(places) = places.get(object.kind.as_str()) {
            let of = places.get(&object.name).copied().unwrap_or_default();
            let ready = (object.kind == "Pool").then(|| ("ready", json!(of.ready)));
            object.status =
                with(&object.status, [("machines", json!(of.machines))].into_iter().chain(ready))?;
        } else if let Some(of) = tags.get(&object.name).filter(|_| object.kind == "Tag") {
            let error = of.error.as_ref().map(|error| ("error", json!(error)));
            let counts = [("machines", of.machines), ("automatic", of.automatic), ("errors", of.errors)];
            let counts = counts.map(|(field, count)| (field, json!(count)));
            object.status = with(&object.status, counts.into_iter().chain(error))?;
        }
    }
    Ok(())
}

fn of_range(of: &RangeUse) -> [(&'static str, Value); 2] {
    let blocks: BTreeMap<String, RangeBlock> = of
        .blocks
        .iter()
        .map(|block| {
            let said = RangeBlock {
                rack: block.rack.as_deref().and_then(|name| name.parse().ok()),
                state: if block.taken_back { BlockState::TakenBack } else { BlockState::Leased },
                addresses: block.size,
                used: block.used,
            };
            (format!("{}-{}", block.first, block.last), said)
        })
        .collect();
    [("used", json!(of.used)), ("blocks", json!(blocks))]
}

fn of_subnet(of: &SubnetUse) -> [(&'static str, Value); 3] {
    let owned = [of.gateways, of.ip_addresses, of.deployments, of.racks]
        .iter()
        .fold(0, |sum: u64, n| sum.saturating_add(*n));
    let purposes = SubnetPurposes {
        gateways: of.gateways,
        ip_addresses: of.ip_addresses,
        deployments: of.deployments,
        racks: of.racks,
        leases: of.leases,
        dynamic: of.dynamic,
        reserved: of.reserved,
    };
    [
        ("used", json!(owned.saturating_add(of.leases))),
        ("free", json!(of.free)),
        ("by_purpose", json!(purposes)),
    ]
}

pub(super) fn with(
    status: &RawValue,
    fields: impl IntoIterator<Item = (&'static str, Value)>,
) -> Result<Box<RawValue>, StoreError> {
    let corrupt = |error: serde_json::Error| StoreError::Corrupt(format!("a status: {error}"));
    let mut status: Map<String, Value> = serde_json::from_str(status.get()).map_err(corrupt)?;
    status.extend(fields.into_iter().map(|(field, value)| (field.to_owned(), value)));
    to_raw_value(&status).map_err(corrupt)
}
