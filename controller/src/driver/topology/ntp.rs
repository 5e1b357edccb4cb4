//! NTP: the concern `time` of racks, and the servers that machines get.

use std::net::IpAddr;

use basalt_api::values::RackId;

use crate::driver::topology::estate::Estate;
use crate::driver::topology::network::{self, Net, RackSeen, is_routed, of_family};

/// The NTP servers of a subnet that the rack `own` gives to machines: the declared ones, otherwise the racks that serve the subnet, `own`
/// first.
///
/// A rack without a link is in the list too: it continues to serve time, and without it each change of its link would change the documents
/// of all racks.
pub(crate) fn servers(net: &Net, own: RackId, serving: &[&RackSeen]) -> Vec<String> {
    let is_ipv4 = net.subnet.cidr.network().is_ipv4();
    if let Some(declared) = &net.subnet.ntp_servers {
        return match is_ipv4 {
            true => of_family::<std::net::Ipv4Addr, _>(Some(declared)),
            false => of_family::<std::net::Ipv6Addr, _>(Some(declared)),
        };
    }
    let mut racks = serving.to_vec();
    racks.sort_by_key(|rack| rack.uid != own);
    addresses(net, &racks)
}

/// The NTP servers of a subnet for the files of installed systems. Unlike DHCP options, these may contain names.
pub(crate) fn of_systems(net: &Net, estate: &Estate) -> Vec<String> {
    match &net.subnet.ntp_servers {
        Some(declared) => declared.iter().map(ToString::to_string).collect(),
        None => addresses(net, &network::racks_of(net, &estate.nets, &estate.racks)),
    }
}

fn addresses(net: &Net, racks: &[&RackSeen]) -> Vec<String> {
    racks.iter().flat_map(|rack| served(net, rack)).map(|address| address.to_string()).collect()
}

/// A rack's addresses in a subnet. A rack behind a relay has none in it; its other addresses are reachable through the router.
fn served(net: &Net, rack: &RackSeen) -> Vec<IpAddr> {
    let is_ipv4 = net.subnet.cidr.network().is_ipv4();
    let of_family = rack.served.iter().copied().filter(|it| it.is_ipv4() == is_ipv4 && is_routed(it));
    let of_family: Vec<IpAddr> = of_family.collect();
    let here: Vec<IpAddr> = of_family.iter().copied().filter(|it| net.subnet.cidr.contains(*it)).collect();
    if here.is_empty() { of_family } else { here }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::topology::samples::rack_at;
    use basalt_api::kinds::{SubnetSpec, VlanSpec};

    fn told(cidr: &str, declared: Option<&[&str]>) -> String {
        let first = rack_at(1, &["127.0.0.1", "10.77.0.2", "10.78.0.2", "fe80::2", "2001:db8::2"]);
        let second = rack_at(2, &["10.77.0.3", "2001:db8::3"]);
        let vlan = VlanSpec::new("lab".parse().unwrap(), 0);
        let mut subnet = SubnetSpec::new("lab.0".parse().unwrap(), cidr.parse().unwrap());
        subnet.ntp_servers = declared.map(|servers| servers.iter().map(|it| it.parse().unwrap()).collect());
        let name = "lab".to_owned();
        let net = Net { uid: uuid::Uuid::from_u128(9).into(), name, subnet, vlan, fabric_class: None };
        servers(&net, second.uid, &[&first, &second]).join(" ")
    }

    #[test]
    fn machines_are_told_the_racks_of_their_subnet_unless_it_declares_servers() {
        assert_eq!(told("10.77.0.0/24", None), "10.77.0.3 10.77.0.2", "the rack that answers comes first");
        assert_eq!(told("10.99.0.0/24", None), "10.77.0.3 10.77.0.2 10.78.0.2", "behind a relay");
        assert_eq!(told("2001:db8::/64", None), "2001:db8::3 2001:db8::2");
        assert_eq!(told("10.77.0.0/24", Some(&[])), "");
        let declared = ["ntp.example.com", "192.0.2.1", "2001:db8::123"];
        assert_eq!(told("10.77.0.0/24", Some(&declared)), "192.0.2.1");
        assert_eq!(told("2001:db8::/64", Some(&declared)), "2001:db8::123");
    }
}
