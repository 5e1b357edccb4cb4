//! Gives the deployment's interfaces their addresses, and releases those that are no longer needed.

use std::collections::BTreeSet;
use std::time::Duration;

use basalt_api::kinds::Sync;
use basalt_api::values::{RackId, SubnetId};
use basalt_db::{Address, AddressWish, Addressed, StoreError};
use basalt_engine::Plan;

use crate::driver::context::Driver;
use crate::driver::machine::Loaded;
use crate::driver::machine::addressing::{Addressing, macs};
use crate::driver::topology::estate::Estate;
use crate::driver::topology::network;

/// Gives the deployment's interfaces the declared addresses, or free ones. Returns true if one was given. The planner waits for
/// those that cannot be given.
pub(crate) async fn assign(driver: &Driver, estate: &Estate, loaded: &Loaded) -> Result<bool, StoreError> {
    let Some(claim) = loaded.input.claim.as_ref().filter(|claim| claim.deletion_requested_at.is_none())
    else {
        return Ok(false);
    };
    let Some(network) = loaded.input.network() else { return Ok(false) };
    let hostname = claim.spec.hostname.as_ref().map(ToString::to_string);
    let machine_macs = macs(&loaded.input.spec, &loaded.input.facts);
    let (mut given, mut by_mac) = (BTreeSet::new(), BTreeSet::new());
    for wanted in loaded.addressing.wanted(network) {
        let has = loaded.addressing.has(&wanted);
        let net = wanted.net(&estate.nets).map(|net| (net.uid, net.subnet.cidr));
        // DHCP gives a client one address per subnet, so the interface's MAC is stored with its first address there.
        let is_first = match has.map(|address| address.subnet).or(net.map(|(uid, _)| uid)) {
            Some(subnet) => by_mac.insert((wanted.link.name, subnet)),
            None => false,
        };
        let Some((subnet, cidr)) = net else { continue };
        let mac = wanted.link.mac.filter(|_| is_first).map(|mac| mac.to_string());
        // A static address may be from before the deployment had a machine; then it has no MAC and no host name for DHCP.
        let names_client = mac.is_some() || hostname.is_some();
        let is_bare = |it: &Address| !it.borrowed && it.mac.is_none() && it.hostname.is_none();
        if has.is_some_and(|it| !(names_client && is_bare(it))) {
            continue;
        }
        let purpose = wanted.one.purpose.as_str();
        let wish = AddressWish {
            subnet,
            owner: claim.uid.into(),
            purpose,
            address: wanted.one.address,
            mac: mac.as_deref(),
            hostname: hostname.as_deref(),
            machine_macs: &machine_macs,
        };
        let deployment = claim.name.as_str();
        match driver.store.own_address(&wish).await? {
            Addressed::Owned(_) => {
                given.insert(subnet);
            }
            Addressed::Refused(why) => {
                tracing::warn!(deployment, interface = purpose, subnet = %cidr, why, "the interface gets no address");
            }
        }
    }
    let is_given = !given.is_empty();
    wake_racks(driver, estate, given).await?;
    Ok(is_given)
}

/// Wakes the racks that lease addresses in these subnets. Their reservations follow the addresses of deployments.
pub(crate) async fn wake_racks(
    driver: &Driver,
    estate: &Estate,
    subnets: impl IntoIterator<Item = SubnetId>,
) -> Result<(), StoreError> {
    let subnets: BTreeSet<SubnetId> = subnets.into_iter().collect();
    let nets = estate.nets.iter().filter(|net| subnets.contains(&net.uid));
    let racks: BTreeSet<RackId> = nets
        .flat_map(|net| network::racks_of(net, &estate.nets, &estate.racks))
        .map(|rack| rack.uid)
        .collect();
    for rack in racks {
        driver.store.enqueue(rack.into(), Duration::ZERO).await?;
    }
    Ok(())
}

/// Releases the addresses that the deployment no longer declares, once the declared system is installed. Until then they may be
/// in use.
pub(crate) async fn give_back(
    driver: &Driver,
    estate: &Estate,
    loaded: &Loaded,
    planned: &Plan,
) -> Result<(), StoreError> {
    let Some(claim) = loaded.input.claim.as_ref().filter(|_| planned.report.axes.sync == Sync::InSync) else {
        return Ok(());
    };
    let Addressing { owned, .. } = &loaded.addressing;
    let wanted: Vec<_> =
        loaded.input.network().into_iter().flat_map(|network| loaded.addressing.wanted(network)).collect();
    let keep: Vec<_> = owned.iter().filter(|address| wanted.iter().any(|it| it.is(address))).collect();
    if keep.len() == owned.len() {
        return Ok(());
    }
    let keep: Vec<_> = keep.into_iter().map(|address| (address.subnet, address.purpose.clone())).collect();
    driver.store.release_addresses(claim.uid.into(), &keep).await?;
    wake_racks(driver, estate, owned.iter().map(|address| address.subnet)).await?;
    // A Deployment without a network may wait for a machine with such an address.
    driver.allocator.note_any();
    Ok(())
}
