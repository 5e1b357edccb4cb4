//! Computes which racks boot a machine's network, and which rack switches its BMC. Pure: every region computes the same.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use basalt_api::kinds::{BootMode, PowerDriver, SubnetSpec, VlanSpec};
use basalt_api::values::{Cidr, RackId, SubnetId, Timestamp};
use basalt_engine::facts::Link;

use crate::driver::topology::services::Short;

/// Port of a rack's HTTP service.
pub(crate) const RACK_HTTP: u16 = 5248;

/// A rack, with the fields that matter here.
#[derive(Clone, Debug)]
pub struct RackSeen {
    /// The rack's id.
    pub uid: RackId,
    /// The rack's name.
    pub name: String,
    /// The addresses in its last Hello.
    pub addresses: Vec<IpAddr>,
    /// The addresses at which it answers clients of its networks.
    pub served: Vec<IpAddr>,
    /// The addresses at which machines reach its HTTP service.
    pub reached: Vec<IpAddr>,
    /// True if an operator has set it aside, or if it is being deleted.
    pub maintenance: bool,
    /// When its stream to this process was opened, by the database's clock. `None`: it is not connected here.
    pub connected: Option<Timestamp>,
    /// The region processes to which it reports a link, `HOST:PORT`. Some may have ended.
    pub linked_to: BTreeSet<String>,
    /// True if it is linked to another living region process.
    pub elsewhere: bool,
    /// When it was last seen, or when it enrolled.
    pub last_seen: Timestamp,
    /// The subnets, by CIDR, in which it reports no free address.
    pub short: BTreeMap<String, Short>,
    /// The addresses at which it answers DNS, from its last report.
    pub answers_dns: BTreeSet<IpAddr>,
    /// The addresses and ports at which it accepts logs, from its last report.
    pub takes_logs: BTreeSet<SocketAddr>,
    /// True if it serves the caching proxy, from its last report.
    pub serves_proxy: bool,
    /// The reason why it grants no lease, if so: it cannot write leases.
    pub gives_no_address: Option<String>,
}

impl RackSeen {
    /// True if it is connected to any region process. All processes compute the same.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.connected.is_some() || self.elsewhere
    }
}

/// A subnet with its VLAN.
#[derive(Clone, Debug)]
pub struct Net {
    /// The subnet's uid.
    pub uid: SubnetId,
    /// The subnet's name.
    pub name: String,
    /// The subnet's spec.
    pub subnet: SubnetSpec,
    /// The spec of the subnet's VLAN.
    pub vlan: VlanSpec,
    /// The class of the VLAN's fabric.
    pub fabric_class: Option<String>,
}

impl Net {
    /// True if racks grant addresses here.
    #[must_use]
    pub fn gives_addresses(&self) -> bool {
        self.vlan.dhcp.enabled && self.subnet.boot.mode != BootMode::Proxy
    }

    /// True if machines boot from racks here.
    #[must_use]
    pub fn boots(&self) -> bool {
        self.vlan.dhcp.enabled && self.subnet.boot.mode != BootMode::None
    }
}

/// A route that machines of a subnet get.
#[derive(Clone, Debug)]
pub struct RouteSeen {
    /// The subnet whose machines get the route.
    pub source: SubnetId,
    /// The destination network.
    pub destination: Cidr,
    /// The router's address.
    pub gateway: IpAddr,
    /// The metric. If two routes lead to the same network, the one with the lower metric is used.
    pub metric: u32,
}

/// The racks that answer DHCP on a subnet, in the order of uids. If the VLAN names racks (for example behind relays), these racks answer.
/// Otherwise the racks with an address in the subnet answer; for an IPv4 subnet, an address in any IPv4 subnet of the VLAN is enough.
/// Racks in maintenance are left out. If DHCP is off in the VLAN, the list is empty.
#[must_use]
pub fn racks_of<'a>(net: &Net, nets: &[Net], racks: &'a [RackSeen]) -> Vec<&'a RackSeen> {
    if !net.vlan.dhcp.enabled {
        return Vec::new();
    }
    let named: BTreeSet<&str> = net.vlan.dhcp.racks.iter().map(basalt_api::Ref::as_str).collect();
    let is_beside = |other: &&Net| {
        let cidrs = [net.subnet.cidr, other.subnet.cidr];
        other.subnet.vlan == net.subnet.vlan && cidrs.iter().all(|cidr| cidr.network().is_ipv4())
    };
    let link: Vec<Cidr> = nets.iter().filter(is_beside).chain([net]).map(|it| it.subnet.cidr).collect();
    let wanted = |rack: &&RackSeen| match named.is_empty() {
        true => rack.served.iter().any(|a| link.iter().any(|cidr| cidr.contains(*a))),
        false => named.contains(rack.name.as_str()),
    };
    let mut serving: Vec<_> = racks.iter().filter(|r| !r.maintenance).filter(wanted).collect();
    serving.sort_by_key(|rack| rack.uid);
    serving
}

/// The rack that has the address as its own in a network. If several networks contain the address, a rack counts in a network that it
/// serves or whose `dhcp.racks` names it.
#[must_use]
pub fn rack_at<'a>(net: &Net, address: IpAddr, nets: &[Net], racks: &'a [RackSeen]) -> Option<&'a RackSeen> {
    let mut having = racks.iter().filter(|rack| rack.addresses.contains(&address)).peekable();
    having.peek()?;
    let is_only = nets.iter().filter(|other| other.subnet.cidr.contains(address)).count() < 2;
    let serving = racks_of(net, nets, racks);
    having.find(|rack| {
        let is_named = net.vlan.dhcp.racks.iter().any(|named| named.as_str() == rack.name);
        is_only || is_named || serving.iter().any(|other| other.uid == rack.uid)
    })
}

/// The DNS servers of machines in a subnet. The first row that applies counts:
///
/// | subnet | servers |
/// | --- | --- |
/// | declares servers | these |
/// | has no `allow_dns` | none |
/// | has racks that answer DNS | these racks |
/// | has no such rack | the racks that answer DHCP |
///
/// `first` is the rack that sends the list; its addresses come first.
#[must_use]
pub fn name_servers(net: &Net, nets: &[Net], racks: &[RackSeen], first: Option<RackId>) -> Vec<IpAddr> {
    if let Some(declared) = &net.subnet.dns_servers {
        return declared.clone();
    }
    if !net.subnet.allow_dns {
        return Vec::new();
    }
    let is_ipv4 = net.subnet.cidr.network().is_ipv4();
    let inside = |address: &&IpAddr| net.subnet.cidr.contains(**address);
    let mut serving: Vec<_> = racks.iter().filter(|rack| !rack.maintenance).collect();
    serving.sort_by_key(|rack| (first != Some(rack.uid), rack.uid));
    let all =
        |racks: &[&RackSeen]| racks.iter().flat_map(|rack| rack.answers_dns.clone()).collect::<Vec<_>>();
    let here: Vec<_> = all(&serving).into_iter().filter(|it| inside(&it)).collect();
    if !here.is_empty() {
        return here;
    }
    // Behind a relay no rack has an address in the subnet.
    let mut behind = racks_of(net, nets, racks);
    behind.sort_by_key(|rack| (first != Some(rack.uid), rack.uid));
    all(&behind).into_iter().filter(|it| it.is_ipv4() == is_ipv4 && !it.is_loopback()).collect()
}

/// The networks in the VLANs that contain one of these addresses, as far as machines boot in them.
pub fn nets_at<'a>(nets: &'a [Net], stands_at: &[IpAddr]) -> impl Iterator<Item = &'a Net> {
    let has_one = |net: &&Net| net.boots() && stands_at.iter().any(|at| net.subnet.cidr.contains(*at));
    let vlans: BTreeSet<&str> = nets.iter().filter(has_one).map(|net| net.subnet.vlan.as_str()).collect();
    nets.iter().filter(move |net| vlans.contains(net.subnet.vlan.as_str()))
}

/// The racks from which a machine with these addresses may boot: the racks of its networks. If no network is known, all racks that
/// boot machines.
#[must_use]
pub fn boot_racks<'a>(nets: &[Net], racks: &'a [RackSeen], stands_at: &[IpAddr]) -> Vec<&'a RackSeen> {
    let here: Vec<&Net> = nets_at(nets, stands_at).filter(|net| net.boots()).collect();
    let booting = match here.is_empty() {
        true => nets.iter().filter(|net| net.boots()).collect(),
        false => here,
    };
    let serving: BTreeSet<_> =
        booting.into_iter().flat_map(|net| racks_of(net, nets, racks)).map(|rack| rack.uid).collect();
    racks.iter().filter(|rack| serving.contains(&rack.uid)).collect()
}

/// The rack that switches a BMC. In order of preference: a connected rack, a rack in the BMC's own subnet, the `holder`, a rack that is
/// linked to this process.
#[must_use]
pub fn power_rack<'a>(
    bmc: Option<IpAddr>,
    nets: &[Net],
    racks: &'a [RackSeen],
    holder: Option<RackId>,
) -> Option<&'a RackSeen> {
    let home = bmc.and_then(|bmc| nets.iter().find(|net| net.subnet.cidr.contains(bmc)));
    let near =
        |rack: &RackSeen| home.is_some_and(|n| rack.addresses.iter().any(|a| n.subnet.cidr.contains(*a)));
    let usable = racks.iter().filter(|rack| !rack.maintenance);
    usable.min_by_key(|rack| {
        let is_holder = holder == Some(rack.uid);
        (!rack.is_there(), !near(rack), !is_holder, rack.connected.is_none(), rack.uid)
    })
}

/// The rack near a machine: the first rack attached to the network of the first address with such a network. It need not be
/// connected now.
#[must_use]
pub fn rack_near<'a>(
    addresses: impl IntoIterator<Item = IpAddr>,
    nets: &[Net],
    racks: &'a [RackSeen],
) -> Option<&'a RackSeen> {
    addresses.into_iter().find_map(|address| {
        let net = nets.iter().find(|net| net.subnet.cidr.contains(address))?;
        let attached = |rack: &&RackSeen| rack.addresses.iter().any(|a| net.subnet.cidr.contains(*a));
        racks.iter().filter(attached).min_by_key(|rack| rack.uid)
    })
}

/// The URLs at which a machine with these addresses reaches racks, those in its own networks first. If a rack has an address in a
/// declared subnet, its other addresses are left out, because machines of one network may not reach them. A rack behind relays may
/// have none.
#[must_use]
pub fn http_of(racks: &[&RackSeen], nets: &[Net], machine: &[IpAddr]) -> Vec<String> {
    let net_of = |address: &IpAddr| nets.iter().find(|net| net.subnet.cidr.contains(*address));
    let reached = racks.iter().flat_map(|rack| {
        let has_declared = rack.reached.iter().any(|address| net_of(address).is_some());
        rack.reached.iter().filter(move |address| match has_declared {
            true => net_of(address).is_some(),
            false => is_routed(address),
        })
    });
    let is_far = |address: &&IpAddr| {
        net_of(address).is_none_or(|net| !machine.iter().any(|it| net.subnet.cidr.contains(*it)))
    };
    let mut reached: Vec<_> = reached.collect();
    reached.sort_by_key(is_far);
    let mut told = BTreeSet::new();
    reached.retain(|address| told.insert(*address));
    reached.into_iter().map(|address| format!("http://{}", SocketAddr::new(*address, RACK_HTTP))).collect()
}

/// True if other hosts may reach the address.
pub(crate) fn is_routed(address: &IpAddr) -> bool {
    let is_of_link = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(is_of_link || address.is_loopback() || address.is_unspecified())
}

/// The connection to racks with a role. One connected rack is enough: the others are spares.
#[must_use]
pub fn link<'a>(racks: impl IntoIterator<Item = &'a RackSeen>) -> Link {
    let racks: Vec<_> = racks.into_iter().collect();
    if let Some(since) = racks.iter().filter_map(|rack| rack.connected).min() {
        return Link::Connected { since };
    }
    match racks.iter().map(|rack| rack.last_seen).max() {
        None => Link::None,
        Some(since) => {
            let names: Vec<_> = racks.iter().map(|rack| rack.name.as_str()).collect();
            Link::Away { since, racks: names.join(", ") }
        }
    }
}

/// True if a rack can switch a machine with this driver.
#[must_use]
pub fn has_driver(driver: PowerDriver) -> bool {
    match driver {
        PowerDriver::Ipmi | PowerDriver::Redfish | PowerDriver::Webhook => true,
        PowerDriver::Manual => false,
    }
}

/// The servers that are addresses of this IP version: DHCP of one version cannot send addresses of the other.
pub(crate) fn of_family<A: FromStr, T: ToString>(servers: Option<&[T]>) -> Vec<String> {
    let texts = servers.unwrap_or_default().iter().map(ToString::to_string);
    texts.filter(|text| text.parse::<A>().is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::topology::samples::rack_at;

    fn rack(n: u128, address: &str, connected: bool) -> RackSeen {
        let name = format!("rack{n}");
        RackSeen { name, connected: connected.then_some(Timestamp::UNIX_EPOCH), ..rack_at(n, &[address]) }
    }

    fn net(cidr: &str) -> Net {
        let mut vlan = VlanSpec::new("lab".parse().unwrap(), 0);
        vlan.dhcp.enabled = true;
        let subnet = SubnetSpec::new("lab.0".parse().unwrap(), cidr.parse().unwrap());
        Net { uid: uuid::Uuid::from_u128(9).into(), name: "lab".to_owned(), subnet, vlan, fabric_class: None }
    }

    #[test]
    fn a_rack_in_the_bmcs_own_subnet_moves_it() {
        let racks = [rack(1, "10.1.0.1", true), rack(2, "10.77.0.1", true)];
        let nets = [net("10.77.0.0/24")];
        assert_eq!(power_rack("10.77.0.101".parse().ok(), &nets, &racks, None).unwrap().name, "rack2");
    }

    #[test]
    fn a_connected_rack_is_better_than_a_near_one() {
        let racks = [rack(1, "10.1.0.1", true), rack(2, "10.77.0.1", false)];
        let nets = [net("10.77.0.0/24")];
        assert_eq!(power_rack("10.77.0.101".parse().ok(), &nets, &racks, None).unwrap().name, "rack1");
    }

    #[test]
    fn a_bmc_stays_with_its_rack_until_that_is_away_from_all_regions_or_a_nearer_one_comes() {
        let mut racks = [rack(1, "10.1.0.1", true), rack(2, "10.1.0.2", true), rack(3, "10.77.0.1", false)];
        let (held, bmc, nets) = (Some(racks[1].uid), "10.77.0.101".parse().ok(), [net("10.77.0.0/24")]);
        let name = |racks: &[RackSeen]| power_rack(bmc, &nets, racks, held).unwrap().name.clone();
        assert_eq!(name(&racks), "rack2");
        (racks[1].connected, racks[1].elsewhere) = (None, true);
        assert_eq!(name(&racks), "rack2", "another region speaks to it");
        racks[1].elsewhere = false;
        assert_eq!(name(&racks), "rack1");
        racks[2].elsewhere = true;
        assert_eq!(name(&racks), "rack3");
    }

    #[test]
    fn only_attached_racks_answer_on_a_subnet() {
        let racks = [rack(1, "10.1.0.1", true), rack(2, "10.77.0.1", true)];
        let names: Vec<_> =
            boot_racks(&[net("10.77.0.0/24")], &racks, &[]).iter().map(|r| r.name.clone()).collect();
        assert_eq!(names, ["rack2"]);
    }

    #[test]
    fn a_machine_boots_from_the_racks_of_its_networks_and_from_all_while_these_are_not_known() {
        let racks = [rack(1, "10.77.0.1", true), rack(2, "10.78.0.1", true), rack(3, "10.99.0.1", true)];
        let nets = [("lab.0", "10.77.0.0/24"), ("lab.7", "10.78.0.0/24")].map(|(vlan, cidr)| {
            let mut net = net(cidr);
            net.subnet.vlan = vlan.parse().unwrap();
            net
        });
        let at = |addresses: &[&str]| {
            let addresses: Vec<_> = addresses.iter().map(|it| it.parse().unwrap()).collect();
            let racks = boot_racks(&nets, &racks, &addresses).into_iter();
            racks.map(|rack| rack.name.clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            (at(&["10.78.0.9"]).as_str(), at(&["10.77.0.9", "10.78.0.9"]).as_str()),
            ("rack2", "rack1 rack2")
        );
        assert_eq!((at(&[]).as_str(), at(&["192.0.2.1"]).as_str()), ("rack1 rack2", "rack1 rack2"));
    }

    #[test]
    fn a_rack_does_not_answer_where_it_serves_nobody() {
        let racks = [RackSeen { served: vec!["10.1.0.1".parse().unwrap()], ..rack(1, "10.77.0.1", true) }];
        assert!(racks_of(&net("10.77.0.0/24"), &[], &racks).is_empty());
        let near = power_rack("10.77.0.101".parse().ok(), &[net("10.77.0.0/24")], &racks, None);
        assert_eq!(near.unwrap().name, "rack1", "and reaches BMCs there");
    }

    #[test]
    fn racks_that_a_vlan_names_answer_there_through_its_relay() {
        let racks = [rack(1, "10.1.0.1", true), rack(2, "10.1.0.2", true), rack(3, "10.77.0.1", true)];
        let mut net = net("10.77.0.0/24");
        net.vlan.dhcp.racks = ["rack1", "rack2"].map(|name| name.parse().unwrap()).into();
        let names: Vec<_> = racks_of(&net, &[], &racks).iter().map(|rack| rack.name.clone()).collect();
        assert_eq!(names, ["rack1", "rack2"]);
    }

    #[test]
    fn a_rack_answers_on_all_ipv4_subnets_of_the_vlan_that_it_is_attached_to() {
        let racks = [rack(1, "10.77.0.1", true)];
        let on = |vlan: &str, cidr: &str| {
            let mut net = net(cidr);
            net.subnet.vlan = vlan.parse().unwrap();
            net
        };
        let nets = [
            on("lab.0", "10.77.0.0/24"),
            on("lab.0", "10.78.0.0/24"),
            on("lab.7", "10.79.0.0/24"),
            on("lab.0", "2001:db8::/64"),
        ];
        let answers = nets.each_ref().map(|net| racks_of(net, &nets, &racks).len());
        assert_eq!(answers, [1, 1, 0, 0]);
    }

    #[test]
    fn machines_are_told_of_racks_that_they_may_reach_and_of_their_own_network_s_first() {
        let reached = |n, addresses: &[&str]| RackSeen {
            reached: addresses.iter().map(|it| it.parse().unwrap()).collect(),
            ..rack(n, "10.77.0.1", true)
        };
        let racks = [
            reached(1, &["10.77.0.1", "192.168.9.1", "10.77.0.1"]),
            reached(2, &["127.0.0.1", "169.254.0.2", "192.168.9.2", "fe80::2"]),
            reached(3, &["10.78.0.3", "2001:db8::3"]),
        ];
        let nets = ["10.77.0.0/24", "10.78.0.0/24", "2001:db8::/64"].map(net);
        let told = |machine: &str| {
            let urls = http_of(&racks.each_ref(), &nets, &[machine.parse().unwrap()]);
            urls.iter().map(|url| url.replace("http://", "").replace(":5248", "")).collect::<Vec<_>>()
        };
        assert_eq!(told("10.78.0.9"), ["10.78.0.3", "10.77.0.1", "192.168.9.2", "[2001:db8::3]"]);
        assert_eq!(told("2001:db8::9"), ["[2001:db8::3]", "10.77.0.1", "192.168.9.2", "10.78.0.3"]);
    }

    #[test]
    fn a_machine_stands_by_the_rack_of_its_network_even_while_that_is_away() {
        let racks = [rack(1, "10.1.0.1", true), rack(2, "10.77.0.1", false)];
        let near = |address: &str| {
            rack_near(address.parse().ok(), &[net("10.77.0.0/24")], &racks).map(|rack| rack.name.as_str())
        };
        assert_eq!((near("10.77.0.9"), near("10.1.0.9")), (Some("rack2"), None));
    }

    #[test]
    fn one_connected_rack_is_enough() {
        let racks = [rack(1, "10.77.0.2", false), rack(2, "10.77.0.1", true)];
        assert!(matches!(link(&racks), Link::Connected { .. }));
        assert!(matches!(link(&racks[..1]), Link::Away { .. }));
        assert_eq!(link([]), Link::None);
    }
}
