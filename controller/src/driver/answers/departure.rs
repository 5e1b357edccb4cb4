//! The consequences of a rack's deletion or maintenance: the racks that take over its subnets and its BMCs.

use std::collections::BTreeMap;
use std::net::IpAddr;

use basalt_api::values::Uid;
use basalt_db::{BmcOf, StoreError};

use crate::driver::context::Driver;
use crate::driver::topology::network::{self, Net, RackSeen};

/// Subnets and machines of a rack that leaves. The keys are the names of the racks that take them over; empty if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departure {
    /// Subnets, each with its VLAN.
    pub subnets: BTreeMap<Vec<String>, Vec<String>>,
    /// Machines whose BMCs the rack controls.
    pub bmcs: BTreeMap<Vec<String>, Vec<String>>,
}

/// Finds the subnets and machines that a rack leaves.
pub(crate) async fn of(driver: &Driver, rack: Uid) -> Result<Departure, StoreError> {
    let estate = driver.estate().await?;
    Ok(decided(rack, &estate.nets, &estate.racks, driver.store.bmcs().await?))
}

fn decided(rack: Uid, nets: &[Net], racks: &[RackSeen], bmcs: Vec<BmcOf>) -> Departure {
    let is_it = |seen: &RackSeen| Uid::from(seen.uid) == rack;
    let others: Vec<RackSeen> = racks.iter().filter(|seen| !is_it(seen)).cloned().collect();
    let mut departure = Departure::default();
    for net in nets {
        if !network::racks_of(net, nets, racks).into_iter().any(is_it) {
            continue;
        }
        let then = network::racks_of(net, nets, &others).into_iter().map(named).collect();
        let subnet = format!("{:?} (VLAN {})", net.name, net.subnet.vlan);
        departure.subnets.entry(then).or_default().push(subnet);
    }
    for BmcOf { machine, address } in bmcs {
        let address: Option<IpAddr> = address.and_then(|address| address.parse().ok());
        if !network::power_rack(address, nets, racks, None).is_some_and(is_it) {
            continue;
        }
        let then = network::power_rack(address, nets, &others, None).into_iter().map(named).collect();
        departure.bmcs.entry(then).or_default().push(machine);
    }
    departure
}

fn named(rack: &RackSeen) -> String {
    match rack.connected {
        Some(_) => rack.name.clone(),
        None => format!("{} (which is not connected)", rack.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::topology::samples::rack_at;
    use basalt_api::kinds::{SubnetSpec, VlanSpec};
    use basalt_api::values::Timestamp;

    fn rack(number: u128, addresses: &[&str], is_connected: bool) -> RackSeen {
        RackSeen { connected: is_connected.then_some(Timestamp::UNIX_EPOCH), ..rack_at(number, addresses) }
    }

    fn net(name: &str, cidr: &str) -> Net {
        let mut vlan = VlanSpec::new("lab".parse().unwrap(), 0);
        vlan.dhcp.enabled = true;
        let subnet = SubnetSpec::new(format!("{name}.0").parse().unwrap(), cidr.parse().unwrap());
        Net { uid: uuid::Uuid::from_u128(9).into(), name: name.to_owned(), subnet, vlan, fabric_class: None }
    }

    fn bmc(machine: &str, address: &str) -> BmcOf {
        BmcOf { machine: machine.to_owned(), address: Some(address.to_owned()) }
    }

    fn owned(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn what_a_rack_serves_goes_to_those_that_stand_there_or_to_nobody() {
        let nets = [net("both", "10.1.0.0/24"), net("alone", "10.2.0.0/24"), net("other", "10.3.0.0/24")];
        let racks = [
            rack(1, &["10.1.0.1", "10.2.0.1"], true),
            rack(2, &["10.1.0.2", "10.3.0.2"], true),
            rack(3, &["10.2.9.9"], false),
        ];
        let bmcs = || vec![bmc("m1", "10.2.0.100"), bmc("m2", "10.3.0.100")];
        let left = decided(racks[0].uid.into(), &nets, &racks, bmcs());
        let subnets = [
            (owned(&[]), owned(&["\"alone\" (VLAN alone.0)"])),
            (owned(&["r2"]), owned(&["\"both\" (VLAN both.0)"])),
        ];
        assert_eq!(left.subnets, subnets.into());
        assert_eq!(left.bmcs, [(owned(&["r2"]), owned(&["m1"]))].into());
        let last = decided(racks[0].uid.into(), &nets[..1], &racks[..1], bmcs());
        assert_eq!(last.bmcs, [(owned(&[]), owned(&["m1", "m2"]))].into());
        let away = decided(racks[0].uid.into(), &nets, &[racks[0].clone(), racks[2].clone()], bmcs());
        assert_eq!(away.bmcs, [(owned(&["r3 (which is not connected)"]), owned(&["m1", "m2"]))].into());
        assert_eq!(decided(racks[2].uid.into(), &nets, &racks, bmcs()), Departure::default());
    }
}
