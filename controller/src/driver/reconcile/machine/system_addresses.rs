//! The addresses of a machine, which depend on the system that runs on it.
//!
//! | running system | addresses |
//! | --- | --- |
//! | an installed system | the addresses that its interfaces own; for an interface with DHCP, its current lease |
//! | the ephemeral environment, or nothing | the current leases |
//!
//! The installer's lease is not the installed system's, and the address of a lease that has ended may belong to another host.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use basalt_api::agent::Inventory;
use basalt_api::values::{Attempt, Mac, Timestamp};
use basalt_db::CurrentLease;
use basalt_engine::Plan;
use basalt_engine::facts::{Leased, Reported};
use basalt_engine::plan::BootAction;
use basalt_engine::render::Network;

use crate::driver::machine::Loaded;
use crate::driver::reconcile::deployment;

/// The name of an IPv6 lease beside an IPv4 one.
const DHCP6: &str = "dhcp6";

/// Keys are interface names. Further addresses that an interface owns have the key `INTERFACE/NAME`. An interface with leases of both
/// families has the IPv6 one at `INTERFACE/dhcp6`.
pub(crate) fn of(loaded: &Loaded, planned: &Plan) -> BTreeMap<String, IpAddr> {
    let facts = &loaded.input.facts;
    let Some(inventory) = facts.inventory.as_ref().map(|seen| &seen.inventory) else {
        return BTreeMap::new();
    };
    let is_ephemeral = matches!(planned.boot, BootAction::Ephemeral(_));
    match planned.report.installed_by.filter(|_| !is_ephemeral) {
        Some(attempt) => of_system(loaded, inventory, attempt),
        None => leased(inventory, &loaded.leases, Timestamp::MIN),
    }
}

fn of_system(loaded: &Loaded, inventory: &Inventory, attempt: Attempt) -> BTreeMap<String, IpAddr> {
    let facts = &loaded.input.facts;
    let installed = facts.results.get(&attempt).map_or(Timestamp::MIN, |end| end.at);
    let leased = match leases(loaded, inventory) {
        true => leased(inventory, &loaded.leases, installed),
        false => BTreeMap::new(),
    };
    let reported = reported(facts.readiness.get(&attempt), facts.lease.as_ref());
    let boots = inventory.nics.iter().find(|nic| nic.boot).map(|nic| nic.name.as_str());
    let seen = boots.and_then(|nic| leased.get(nic)).copied().or(reported);
    let network = (loaded.input.network(), loaded.input.claim.as_ref());
    let mut addresses = deployment::addresses(network, inventory, seen).all();
    let owned: BTreeSet<String> = addresses
        .iter()
        .filter(|(nic, it)| leased.get(*nic) != Some(it))
        .map(|(nic, _)| nic.clone())
        .collect();
    for (key, address) in leased {
        let nic = key.split_once('/').map_or(key.as_str(), |(nic, _)| nic);
        if !owned.contains(nic) {
            addresses.entry(key).or_insert(address);
        }
    }
    addresses
}

/// True if an interface of the installed system uses DHCP. Firmware that boots from the network gets leases too, and their addresses
/// are not the system's. True too if the network does not resolve.
fn leases(loaded: &Loaded, inventory: &Inventory) -> bool {
    let Some(claim) = loaded.input.claim.as_ref() else { return true };
    let network = Network::resolve(loaded.input.network(), inventory, &claim.assigned);
    network.map_or(true, |network| {
        let mut addresses = network.interfaces.iter().filter_map(|it| it.addresses.as_ref());
        addresses.any(|it| it.dhcp || it.dhcp6)
    })
}

/// The leases reported since then, by interface. The first lease of a family counts.
fn leased(inventory: &Inventory, leases: &[CurrentLease], since: Timestamp) -> BTreeMap<String, IpAddr> {
    let mut found = BTreeMap::new();
    for nic in &inventory.nics {
        let Ok(mac) = nic.mac.parse::<Mac>() else { continue };
        let of_nic = || leases.iter().filter(|it| it.mac == mac && it.told_at >= since).map(|it| it.address);
        let keys = [nic.name.clone(), format!("{}/{DHCP6}", nic.name)];
        let families = [of_nic().find(IpAddr::is_ipv4), of_nic().find(IpAddr::is_ipv6)];
        found.extend(keys.into_iter().zip(families.into_iter().flatten()));
    }
    found
}

/// The address from which the system reported. `None` if the address is a lease, or if a rack has granted another lease since: the
/// lease is better known.
fn reported(report: Option<&Reported>, lease: Option<&Leased>) -> Option<IpAddr> {
    let report = report?;
    let is_known_better = lease.is_some_and(|it| it.at >= report.at || it.address == report.address);
    if is_known_better { None } else { report.address.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::agent::Nic;
    use basalt_engine::facts::Level;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn lease(mac: &str, address: &str, told: i64) -> CurrentLease {
        CurrentLease {
            address: address.parse().unwrap(),
            mac: mac.parse().unwrap(),
            ends_at: at(1000),
            told_at: at(told),
        }
    }

    #[test]
    fn leases_are_those_of_the_machine_s_own_interfaces_and_no_older_than_its_system() {
        let nic = |name: &str, mac: &str| Nic { name: name.into(), mac: mac.into(), ..Nic::default() };
        let nics = vec![nic("enp1s0", "52:54:00:00:00:01"), nic("enp2s0", "52:54:00:00:00:02")];
        let inventory = Inventory { nics, ..Inventory::default() };
        let leases = [
            lease("52:54:00:00:00:01", "10.77.0.9", 20),
            lease("52:54:00:00:00:02", "10.88.0.5", 5),
            lease("52:54:00:00:00:01", "2001:db8::9", 30),
            lease("52:54:00:00:00:07", "10.77.0.7", 20),
        ];
        let words = |since: i64| {
            let leased = leased(&inventory, &leases, at(since));
            leased.into_iter().map(|(nic, address)| format!("{nic} {address}")).collect::<Vec<_>>()
        };
        assert_eq!(words(0), ["enp1s0 10.77.0.9", "enp1s0/dhcp6 2001:db8::9", "enp2s0 10.88.0.5"]);
        assert_eq!(
            words(15),
            ["enp1s0 10.77.0.9", "enp1s0/dhcp6 2001:db8::9"],
            "the installer had the other one"
        );
        assert_eq!(words(25), ["enp1s0 2001:db8::9"], "the only lease is the interface's");
    }

    #[test]
    fn a_reported_address_counts_until_a_lease_says_more_of_it() {
        let report = Reported { at: at(10), level: Level::Booted, address: "10.77.0.9".to_owned() };
        let seen = |lease: Option<(i64, &str)>| {
            let lease = lease.map(|(told, address)| Leased { at: at(told), address: address.to_owned() });
            reported(Some(&report), lease.as_ref()).map(|address| address.to_string())
        };
        assert_eq!(seen(None).as_deref(), Some("10.77.0.9"), "another DHCP server leased it");
        assert_eq!(seen(Some((5, "10.77.0.120"))).as_deref(), Some("10.77.0.9"), "the installer's lease");
        assert_eq!(
            seen(Some((5, "10.77.0.9"))),
            None,
            "a rack leased it: it is the system's while that runs"
        );
        assert_eq!(seen(Some((20, "10.77.0.130"))), None, "it has leased another one since");
    }
}
