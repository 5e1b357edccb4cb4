//! The network of an installed system: interfaces of the machine, and bonds, bridges and VLANs on them.

use super::Subnet;
use crate::model::Ref;
use crate::pointer::child;
use crate::values::{Cidr, Hostname, Mac};
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

mod contradictions;
mod links;
mod routes;
mod rules;

pub use contradictions::SubnetFacts;
pub use routes::is_on_link;
pub(super) use rules::network_rules;

/// The network of an installed system. Interfaces, bonds, bridges and VLANs share one set of names: each name occurs once.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct NetworkConfig {
    /// Interfaces of the machine, by their names in the inventory.
    pub interfaces: BTreeMap<String, InterfaceConfig>,
    /// Bonds, by the name of the interface that each becomes.
    pub bonds: BTreeMap<String, BondConfig>,
    /// Software bridges, by the name of the interface that each becomes.
    pub bridges: BTreeMap<String, BridgeConfig>,
    /// Tagged VLANs (IEEE 802.1Q), by the name of the interface that each becomes.
    pub vlans: BTreeMap<String, VlanConfig>,
    /// Routes in addition to the gateways of the subnets, by names of your own.
    pub routes: BTreeMap<String, RouteConfig>,
    /// DNS servers of the system. Absent: the DNS servers of the subnet.
    pub dns_servers: Option<Vec<IpAddr>>,
    /// Domains in which the system looks up short names. Absent: the search domains of the subnets of its static addresses.
    pub search: Vec<Hostname>,
}

/// An interface of the machine.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct InterfaceConfig {
    /// MAC address of the interface, if the name is not enough to identify it. Absent: the interface of this name.
    pub mac: Option<Mac>,
    /// The source of the interface's address.
    #[field(default = Addressing::Auto)]
    pub addressing: Addressing,
    /// The subnet of the address. Absent: the subnet on the interface's VLAN.
    pub subnet: Option<Ref<Subnet>>,
    /// The address of the interface, if `addressing` is `static`.
    pub address: Option<IpAddr>,
    /// Further addresses, by names of your own: of the other family, or of another subnet.
    pub addresses: BTreeMap<String, AddressConfig>,
    /// True: the interface takes the addresses and routes that IPv6 routers announce (RFC 4861). Absent: the default of the
    /// installed system.
    pub accept_ra: Option<bool>,
    /// The largest packet in bytes (MTU). Absent: the MTU of the VLAN.
    #[field(min = 552, max = 65535)]
    pub mtu: Option<u32>,
}

/// A further address of an interface.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct AddressConfig {
    /// The source of the address.
    #[field(default = Addressing::Auto)]
    pub addressing: Addressing,
    /// The subnet of the address. Required if `addressing` is `auto`.
    pub subnet: Option<Ref<Subnet>>,
    /// The address, if `addressing` is `static`.
    pub address: Option<IpAddr>,
}

/// The addresses of a bond, bridge or VLAN.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct BuiltConfig {
    /// The source of the interface's address.
    #[field(default = Addressing::Auto)]
    pub addressing: Addressing,
    /// The subnet of the address. Required if `addressing` is `auto`.
    pub subnet: Option<Ref<Subnet>>,
    /// The address of the interface, if `addressing` is `static`.
    pub address: Option<IpAddr>,
    /// Further addresses, by names of your own: of the other family, or of another subnet.
    pub addresses: BTreeMap<String, AddressConfig>,
    /// True: the interface takes the addresses and routes that IPv6 routers announce (RFC 4861). Absent: the default of the
    /// installed system.
    pub accept_ra: Option<bool>,
    /// The largest packet in bytes (MTU). Absent: the MTU of the VLAN of its subnet.
    #[field(min = 552, max = 65535)]
    pub mtu: Option<u32>,
}

/// A bond: several interfaces used as one.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct BondConfig {
    /// The addresses of the bond.
    #[field(flatten)]
    pub link: BuiltConfig,
    /// The interfaces of the bond. Their `addressing` is `link_up`.
    pub members: BTreeSet<String>,
    /// The way in which the interfaces share the traffic.
    #[field(default = BondMode::ActiveBackup)]
    pub mode: BondMode,
    /// The time between two checks of the members' links, in milliseconds.
    #[field(default = 100, min = 10, max = 10000)]
    pub link_check_ms: u32,
    /// The rate at which the other end is asked to send LACP packets, if `mode` is `802.3ad`. Absent: slow.
    pub lacp_rate: Option<LacpRate>,
    /// The parts of a packet that select its interface, if `mode` is `balance-xor`, `802.3ad` or `balance-tlb`. Absent: layer2.
    pub hash_policy: Option<HashPolicy>,
    /// The MAC address of the bond. Absent: the MAC address of one of its interfaces.
    pub mac: Option<Mac>,
    /// The time for which an interface must have a link before it is used, in milliseconds: a multiple of `link_check_ms`.
    /// Absent: no delay.
    #[field(min = 0, max = 600000)]
    pub up_delay_ms: Option<u32>,
    /// The time for which an interface must be without a link before it is no longer used, in milliseconds: a multiple of
    /// `link_check_ms`. Absent: no delay.
    #[field(min = 0, max = 600000)]
    pub down_delay_ms: Option<u32>,
    /// The number of times that neighbours are told of a change of the active interface (gratuitous ARP, unsolicited neighbour
    /// advertisements), if `mode` is `active-backup`. Absent: once.
    #[field(min = 1, max = 255)]
    pub gratuitous_arps: Option<u8>,
    /// The interface that is active whenever it has a link, if `mode` is `active-backup`, `balance-tlb` or `balance-alb`. Absent:
    /// the active interface stays active.
    pub primary: Option<String>,
}

/// The way in which the interfaces of a bond share the traffic, as Linux names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum BondMode {
    /// One interface is active, and the others are standby.
    #[field(name = "active-backup")]
    ActiveBackup,
    /// The interfaces send packets in turn.
    #[field(name = "balance-rr")]
    BalanceRr,
    /// A hash of each packet selects its interface.
    #[field(name = "balance-xor")]
    BalanceXor,
    /// All interfaces send every packet.
    #[field(name = "broadcast")]
    Broadcast,
    /// The switch and the bond agree on the interfaces (LACP, IEEE 802.1AX).
    #[field(name = "802.3ad")]
    Lacp,
    /// The load of outgoing traffic selects the interface.
    #[field(name = "balance-tlb")]
    BalanceTlb,
    /// The load of outgoing and of incoming traffic selects the interface.
    #[field(name = "balance-alb")]
    BalanceAlb,
}

impl BondMode {
    /// True if a hash of the packet selects the interface.
    const fn hashes(self) -> bool {
        matches!(self, Self::BalanceXor | Self::Lacp | Self::BalanceTlb)
    }

    /// True if the mode has an active interface, which `primary` can name.
    const fn has_primary(self) -> bool {
        matches!(self, Self::ActiveBackup | Self::BalanceTlb | Self::BalanceAlb)
    }
}

/// The rate at which LACP packets are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum LacpRate {
    /// One packet each 30 seconds.
    Slow,
    /// One packet each second.
    Fast,
}

/// The parts of a packet that select its interface, as Linux names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum HashPolicy {
    /// The MAC addresses.
    #[field(name = "layer2")]
    Layer2,
    /// The MAC and IP addresses.
    #[field(name = "layer2+3")]
    Layer23,
    /// The IP addresses and ports.
    #[field(name = "layer3+4")]
    Layer34,
    /// As `layer2+3`, for the packet that a tunnel carries.
    #[field(name = "encap2+3")]
    Encap23,
    /// As `layer3+4`, for the packet that a tunnel carries.
    #[field(name = "encap3+4")]
    Encap34,
}

/// A software bridge (switch).
#[derive(Clone, Debug, PartialEq, Model)]
pub struct BridgeConfig {
    /// The addresses of the bridge.
    #[field(flatten)]
    pub link: BuiltConfig,
    /// The ports of the bridge: interfaces, bonds and VLANs. Their `addressing` is `link_up`. Empty: the bridge has no ports.
    pub members: BTreeSet<String>,
    /// True: the bridge speaks the spanning tree protocol (IEEE 802.1D).
    #[field(default = false)]
    pub stp: bool,
    /// The length of each phase before a port forwards, first listening and then learning, in seconds, if `stp` is true. Absent:
    /// 15.
    #[field(min = 2, max = 30)]
    pub forward_delay_s: Option<u8>,
    /// The MAC address of the bridge. Absent: the system generates one.
    pub mac: Option<Mac>,
}

/// A tagged VLAN.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct VlanConfig {
    /// The addresses of the VLAN interface.
    #[field(flatten)]
    pub link: BuiltConfig,
    /// The interface, bond or bridge that carries the VLAN.
    pub parent: String,
    /// The VLAN id.
    #[field(min = 1, max = 4094)]
    pub vid: u16,
}

/// A route of an installed system.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RouteConfig {
    /// The interface, bond, bridge or VLAN of the route.
    pub interface: String,
    /// The destination network, like `192.0.2.0/24`. `0.0.0.0/0` and `::/0` replace the gateways of the subnets.
    pub destination: Cidr,
    /// The router's address: in a network of the interface's addresses, or link-local. If each address of the interface is a
    /// network of its own (`/32`, `/128`), the router may be any neighbour on the link.
    pub gateway: IpAddr,
    /// True: the router is a neighbour on the link, and in no network of the interface's addresses. Link-local routers, and
    /// routers of `/32` and `/128`, need no `on_link`.
    #[field(default = false)]
    pub on_link: bool,
    /// The route with the lowest metric wins among routes to the same destination. Absent: the default of the system.
    pub metric: Option<u32>,
}

/// The source of an interface's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Addressing {
    /// Basalt chooses a free address of the subnet, and the system sets it statically.
    Auto,
    /// A DHCP server for IPv4 gives the address.
    Dhcp,
    /// A DHCPv6 server gives the address.
    Dhcp6,
    /// The system forms the address from the announcements of IPv6 routers (SLAAC, RFC 4862).
    Slaac,
    /// The spec declares the address.
    Static,
    /// The interface is up, and has no address.
    LinkUp,
}

impl Addressing {
    /// True if the region assigns the address.
    #[must_use]
    pub const fn is_given(self) -> bool {
        matches!(self, Self::Auto | Self::Static)
    }
}

/// An interface of a network: an interface of the machine, a bond, a bridge or a VLAN.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// The field of [`NetworkConfig`] that contains the interface.
    pub sort: &'static str,
    /// The name of the interface.
    pub name: &'a str,
    /// The declared MAC address.
    pub mac: Option<Mac>,
    /// The source of the first address.
    pub addressing: Addressing,
    /// The declared subnet of the first address.
    pub subnet: Option<&'a Ref<Subnet>>,
    /// The declared first address.
    pub address: Option<IpAddr>,
    /// The further addresses, by name.
    pub further: &'a BTreeMap<String, AddressConfig>,
    /// The declared use of IPv6 router announcements.
    pub accept_ra: Option<bool>,
    /// The declared MTU, in bytes.
    pub mtu: Option<u32>,
}

/// One address of an interface.
#[derive(Clone, Debug)]
pub struct LinkAddress<'a> {
    /// The name of a further address; `None` for the first.
    pub name: Option<&'a str>,
    /// The name of the address in its network: the interface's name, and `INTERFACE/NAME` for a further address.
    pub purpose: String,
    /// The source of the address.
    pub addressing: Addressing,
    /// The declared subnet of the address.
    pub subnet: Option<&'a Ref<Subnet>>,
    /// The declared address.
    pub address: Option<IpAddr>,
}

impl<'a> Link<'a> {
    /// The JSON pointer to the interface in the spec of a deployment or machine.
    #[must_use]
    pub fn pointer(&self) -> String {
        child(&format!("/network/{}", self.sort), self.name)
    }

    /// The JSON pointer to one of the interface's addresses in that spec.
    #[must_use]
    pub fn pointer_to(&self, address: &LinkAddress<'_>) -> String {
        let further = |name| child(&child(&self.pointer(), "addresses"), name);
        address.name.map_or_else(|| self.pointer(), further)
    }

    /// All addresses of the interface: the first, then the further ones in the order of their names.
    pub fn addresses(&self) -> impl Iterator<Item = LinkAddress<'a>> + use<'a> {
        let Self { name, addressing, subnet, address, .. } = *self;
        let first = LinkAddress { name: None, purpose: name.to_owned(), addressing, subnet, address };
        let further = self.further.iter().map(move |(own, it)| LinkAddress {
            name: Some(own),
            purpose: format!("{name}/{own}"),
            addressing: it.addressing,
            subnet: it.subnet.as_ref(),
            address: it.address,
        });
        std::iter::once(first).chain(further)
    }
}

impl BuiltConfig {
    const fn link<'a>(&'a self, sort: &'static str, name: &'a str, mac: Option<Mac>) -> Link<'a> {
        let Self { addressing, subnet, address, addresses, accept_ra, mtu } = self;
        let (addressing, address, accept_ra, mtu) = (*addressing, *address, *accept_ra, *mtu);
        let subnet = subnet.as_ref();
        Link { sort, name, mac, addressing, subnet, address, further: addresses, accept_ra, mtu }
    }
}

impl NetworkConfig {
    /// All interfaces that can have addresses: interfaces of the machine, bonds, bridges, VLANs.
    pub fn links(&self) -> impl Iterator<Item = Link<'_>> {
        let interfaces = self.interfaces.iter().map(|(name, it)| {
            let InterfaceConfig { mac, addressing, subnet, address, addresses, accept_ra, mtu } = it;
            let (mac, addressing, address, accept_ra, mtu) = (*mac, *addressing, *address, *accept_ra, *mtu);
            let (sort, subnet) = ("interfaces", subnet.as_ref());
            Link { sort, name, mac, addressing, subnet, address, further: addresses, accept_ra, mtu }
        });
        let bonds = self.bonds.iter().map(|(name, it)| it.link.link("bonds", name, it.mac));
        let bridges = self.bridges.iter().map(|(name, it)| it.link.link("bridges", name, it.mac));
        let vlans = self.vlans.iter().map(|(name, it)| it.link.link("vlans", name, None));
        interfaces.chain(bonds).chain(bridges).chain(vlans)
    }

    /// The names of the interfaces that an interface directly consists of.
    fn below<'a>(&'a self, name: &str) -> Vec<&'a str> {
        let members = [
            self.bonds.get(name).map(|bond| &bond.members),
            self.bridges.get(name).map(|bridge| &bridge.members),
        ];
        let parent = self.vlans.get(name).map(|vlan| vlan.parent.as_str());
        members.into_iter().flatten().flatten().map(String::as_str).chain(parent).collect()
    }

    /// True if an interface directly or indirectly consists of itself.
    fn is_loop(&self, name: &str) -> bool {
        let mut seen = BTreeSet::new();
        let mut open = self.below(name);
        while let Some(next) = open.pop() {
            if next == name {
                return true;
            }
            if seen.insert(next) {
                open.extend(self.below(next));
            }
        }
        false
    }
}
