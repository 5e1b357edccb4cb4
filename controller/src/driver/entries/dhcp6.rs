//! The IPv6 subnets of the DHCP concern. They are rendered like the IPv4 ones in [`rack`](super::rack), with the fields of DHCPv6.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use basalt_api::values::Duid;
use basalt_db::{Address, Delegation};
use basalt_proto::rack_v1::{Dhcp6Reservation, Dhcp6Subnet};

use crate::driver::entries::rack::{
    around, boot_answers, boot_loader, leasable, lease_seconds, name_servers, own_addresses, reserved,
};
use crate::driver::topology::estate::Estate;
use crate::driver::topology::network::{self, Net, RackSeen, of_family};
use crate::driver::topology::ntp;

/// The IPv6 subnets on which a rack answers.
pub(crate) fn subnets(
    estate: &Estate,
    rack: &RackSeen,
    delegation: &Delegation,
    addresses: &[Address],
) -> Vec<Dhcp6Subnet> {
    let nets = estate.nets.iter().filter(|net| net.subnet.cidr.network().is_ipv6());
    let one = |net: &Net| {
        let racks = network::racks_of(net, &estate.nets, &estate.racks);
        let serves = racks.iter().any(|other| other.uid == rack.uid);
        let serves = serves && net.gives_addresses();
        serves.then(|| subnet(estate, net, rack, &racks, delegation, addresses))
    };
    nets.filter_map(one).collect()
}

fn subnet(
    estate: &Estate,
    net: &Net,
    rack: &RackSeen,
    racks: &[&RackSeen],
    delegation: &Delegation,
    addresses: &[Address],
) -> Dhcp6Subnet {
    // The first address is the subnet-router anycast address (RFC 4291 §2.6.1).
    let routers = net.subnet.cidr.network();
    let kept: BTreeSet<IpAddr> = own_addresses(estate).into_iter().chain([routers]).collect();
    let blocks = delegation.blocks.iter().filter(|block| block.subnet == net.uid);
    let by_mac = reserved(estate, net, addresses).into_values();
    let reserved =
        by_mac.chain(reserved_for_duids(estate, net, addresses)).filter(|it| it.address != routers);
    Dhcp6Subnet {
        subnet_uid: net.uid.to_string(),
        cidr: net.subnet.cidr.to_string(),
        dns_servers: of_family::<Ipv6Addr, _>(Some(&name_servers(estate, net, rack))),
        ntp_servers: ntp::servers(net, rack.uid, racks),
        search: net.subnet.search_domains.iter().map(ToString::to_string).collect(),
        dynamic: blocks.flat_map(|block| around(block.first, block.last, &kept)).collect(),
        reservations: reserved.map(reservation).collect(),
        lease_seconds: lease_seconds(net),
        rapid_commit: racks.len() == 1,
        boot: boot_answers(net).into(),
        architectures: net.subnet.boot.architectures.iter().map(ToString::to_string).collect(),
        loader: boot_loader(estate, net).into(),
        link: net.subnet.vlan.to_string(),
    }
}

/// The addresses of a subnet that belong to one host each, by its DUID, in the order of DUIDs.
fn reserved_for_duids<'a>(
    estate: &'a Estate,
    net: &'a Net,
    addresses: &'a [Address],
) -> impl Iterator<Item = &'a Address> {
    let here = leasable(estate, net, addresses);
    let by_duid: BTreeMap<&Duid, &Address> = here.filter_map(|it| Some((it.duid.as_ref()?, it))).collect();
    by_duid.into_values()
}

fn reservation(address: &Address) -> Dhcp6Reservation {
    Dhcp6Reservation {
        mac: address.mac.clone().unwrap_or_default(),
        duid: address.duid.as_ref().map(ToString::to_string).unwrap_or_default(),
        address: address.address.to_string(),
        hostname: address.hostname.clone().unwrap_or_default(),
    }
}
