//! The network of an installed system: its interfaces, and what is built of them.

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

/// The network of an installed system. Names of interfaces, bonds, bridges and VLANs are of one kind: each is there once.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct NetworkConfig {
    /// Interfaces by name, as the inventory has them.
    pub interfaces: BTreeMap<String, InterfaceConfig>,
    /// Several interfaces as one, by the name it gets.
    pub bonds: BTreeMap<String, BondConfig>,
    /// Software switches, by the name it gets.
    pub bridges: BTreeMap<String, BridgeConfig>,
    /// Tagged VLANs (IEEE 802.1Q), by the name the interface gets.
    pub vlans: BTreeMap<String, VlanConfig>,
    /// Routes beside the subnets' gateways, by names of your own.
    pub routes: BTreeMap<String, RouteConfig>,
    /// DNS servers. Absent: the subnet's.
    pub dns_servers: Option<Vec<IpAddr>>,
    /// Domains to search. Absent: none.
    pub search: Vec<Hostname>,
}

/// An interface of the machine.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct InterfaceConfig {
    /// Which interface is meant, where its name is not enough. Absent: the one of this name.
    pub mac: Option<Mac>,
    /// How it gets its address.
    #[field(default = Addressing::Auto)]
    pub addressing: Addressing,
    /// The subnet of its address. Absent: the one on the interface's VLAN.
    pub subnet: Option<Ref<Subnet>>,
    /// Its address, where addressing is `static`.
    pub address: Option<IpAddr>,
    /// Further addresses, by names of your own: of the other family, or of another subnet.
    pub addresses: BTreeMap<String, AddressConfig>,
    /// Whether it takes the addresses and routes that IPv6 routers announce (RFC 4861). Absent: as the installed system does by
    /// itself.
    pub accept_ra: Option<bool>,
    /// Largest packet in bytes. Absent: the VLAN's.
    #[field(min = 552, max = 65535)]
    pub mtu: Option<u32>,
}

/// A further address of an interface.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct AddressConfig {
    /// How the interface gets it.
    #[field(default = Addressing::Auto)]
    pub addressing: Addressing,
    /// The subnet of the address. Needed where addressing is `auto`.
    pub subnet: Option<Ref<Subnet>>,
    /// The address, where addressing is `static`.
    pub address: Option<IpAddr>,
}

/// How an interface that is built of others gets its address.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct BuiltConfig {
    /// How it gets its address.
    #[field(default = Addressing::Auto)]
    pub addressing: Addressing,
    /// The subnet of its address. Needed where addressing is `auto`.
    pub subnet: Option<Ref<Subnet>>,
    /// Its address, where addressing is `static`.
    pub address: Option<IpAddr>,
    /// Further addresses, by names of your own: of the other family, or of another subnet.
    pub addresses: BTreeMap<String, AddressConfig>,
    /// Whether it takes the addresses and routes that IPv6 routers announce (RFC 4861). Absent: as the installed system does by
    /// itself.
    pub accept_ra: Option<bool>,
    /// Largest packet in bytes. Absent: the VLAN's of its subnet.
    #[field(min = 552, max = 65535)]
    pub mtu: Option<u32>,
}

/// Several interfaces as one.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct BondConfig {
    /// How it gets its address.
    #[field(flatten)]
    pub link: BuiltConfig,
    /// The interfaces it is made of. They have addressing `link_up`.
    pub members: BTreeSet<String>,
    /// How its interfaces share the work.
    #[field(default = BondMode::ActiveBackup)]
    pub mode: BondMode,
    /// How often it looks whether its interfaces have a link, in milliseconds.
    #[field(default = 100, min = 10, max = 10000)]
    pub link_check_ms: u32,
    /// How often the other end is asked for LACP packets, where `mode` is `802.3ad`. Absent: slow.
    pub lacp_rate: Option<LacpRate>,
    /// What of a packet chooses its interface, where `mode` is `balance-xor`, `802.3ad` or `balance-tlb`. Absent: layer2.
    pub hash_policy: Option<HashPolicy>,
    /// The MAC address it gets. Absent: that of one of its interfaces.
    pub mac: Option<Mac>,
    /// How long an interface must have a link before it is used, in milliseconds: a multiple of `link_check_ms`. Absent: not
    /// at all.
    #[field(min = 0, max = 600000)]
    pub up_delay_ms: Option<u32>,
    /// How long an interface must be without a link before it is not used any more, in milliseconds: a multiple of
    /// `link_check_ms`. Absent: not at all.
    #[field(min = 0, max = 600000)]
    pub down_delay_ms: Option<u32>,
    /// How often its neighbours are told (gratuitous ARP, unsolicited neighbour advertisements) that another interface works
    /// now, where `mode` is `active-backup`. Absent: once.
    #[field(min = 1, max = 255)]
    pub gratuitous_arps: Option<u8>,
    /// The interface that works whenever it has a link, where `mode` is `active-backup`, `balance-tlb` or `balance-alb`. Absent:
    /// the one that works goes on.
    pub primary: Option<String>,
}

/// How the interfaces of a bond share the work, as Linux names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum BondMode {
    /// One works, the others stand by.
    #[field(name = "active-backup")]
    ActiveBackup,
    /// By turns.
    #[field(name = "balance-rr")]
    BalanceRr,
    /// By what is in the packet.
    #[field(name = "balance-xor")]
    BalanceXor,
    /// All send everything.
    #[field(name = "broadcast")]
    Broadcast,
    /// As agreed with the switch (LACP, IEEE 802.1AX).
    #[field(name = "802.3ad")]
    Lacp,
    /// By how much each has to send.
    #[field(name = "balance-tlb")]
    BalanceTlb,
    /// By how much each has to send and to receive.
    #[field(name = "balance-alb")]
    BalanceAlb,
}

impl BondMode {
    /// Whether a hash of the packet chooses the interface.
    const fn hashes(self) -> bool {
        matches!(self, Self::BalanceXor | Self::Lacp | Self::BalanceTlb)
    }

    /// Whether one interface does what the others do not.
    const fn has_primary(self) -> bool {
        matches!(self, Self::ActiveBackup | Self::BalanceTlb | Self::BalanceAlb)
    }
}

/// How often LACP packets are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum LacpRate {
    /// Each 30 seconds.
    Slow,
    /// Each second.
    Fast,
}

/// What of a packet chooses its interface, as Linux names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum HashPolicy {
    /// MAC addresses.
    #[field(name = "layer2")]
    Layer2,
    /// MAC and IP addresses.
    #[field(name = "layer2+3")]
    Layer23,
    /// IP addresses and ports.
    #[field(name = "layer3+4")]
    Layer34,
    /// As layer2+3, of what a tunnel carries.
    #[field(name = "encap2+3")]
    Encap23,
    /// As layer3+4, of what a tunnel carries.
    #[field(name = "encap3+4")]
    Encap34,
}

/// A software switch.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct BridgeConfig {
    /// How it gets its address.
    #[field(flatten)]
    pub link: BuiltConfig,
    /// Interfaces, bonds and VLANs that are its ports. They have addressing `link_up`. It may have none.
    pub members: BTreeSet<String>,
    /// Whether it speaks the spanning tree protocol (IEEE 802.1D).
    #[field(default = false)]
    pub stp: bool,
    /// How long a port listens, and then learns, before it forwards, in seconds, where `stp` is true. Absent: 15.
    #[field(min = 2, max = 30)]
    pub forward_delay_s: Option<u8>,
    /// The MAC address it gets. Absent: one that the system makes up.
    pub mac: Option<Mac>,
}

/// A tagged VLAN.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct VlanConfig {
    /// How it gets its address.
    #[field(flatten)]
    pub link: BuiltConfig,
    /// The interface, bond or bridge that carries it.
    pub parent: String,
    /// Its number.
    #[field(min = 1, max = 4094)]
    pub vid: u16,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RouteConfig {
    /// The interface, bond, bridge or VLAN that it leaves by.
    pub interface: String,
    /// Where it leads, like `192.0.2.0/24`; `0.0.0.0/0` and `::/0` take the place of the subnets' gateways.
    pub destination: Cidr,
    /// The router: in a network of the interface's addresses, or link-local. An interface whose addresses are networks of their own (`/32`,
    /// `/128`) may have any neighbour on the link as its router.
    pub gateway: IpAddr,
    /// True: the router is a neighbour on the link, in no network of the interface's addresses. Link-local routers, and those of `/32` and `/128`,
    /// are such neighbours without it.
    #[field(default = false)]
    pub on_link: bool,
    /// Of several routes to one place the one with the least is taken. Absent: the system's own.
    pub metric: Option<u32>,
}

/// How an interface gets its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Addressing {
    /// Basalt picks a free one of the subnet, and it is set statically.
    Auto,
    /// By DHCP of IPv4.
    Dhcp,
    /// By DHCPv6.
    Dhcp6,
    /// Made of what IPv6 routers announce (SLAAC, RFC 4862).
    Slaac,
    /// The one given.
    Static,
    /// It has a link, and no address.
    LinkUp,
}

impl Addressing {
    /// Whether the region gives the address.
    #[must_use]
    pub const fn is_given(self) -> bool {
        matches!(self, Self::Auto | Self::Static)
    }
}

/// An interface of a network, whatever it is made of.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// The field of [`NetworkConfig`] it stands in.
    pub sort: &'static str,
    /// Its name.
    pub name: &'a str,
    /// Its MAC address, where that is declared.
    pub mac: Option<Mac>,
    /// How it gets its address.
    pub addressing: Addressing,
    /// The subnet of that.
    pub subnet: Option<&'a Ref<Subnet>>,
    /// Its address, where that is declared.
    pub address: Option<IpAddr>,
    /// Its further addresses.
    pub further: &'a BTreeMap<String, AddressConfig>,
    /// Whether it takes what IPv6 routers announce, where that is declared.
    pub accept_ra: Option<bool>,
    /// Largest packet in bytes.
    pub mtu: Option<u32>,
}

/// One address of an interface.
#[derive(Clone, Debug)]
pub struct LinkAddress<'a> {
    /// Its name among the further ones; `None` of the first.
    pub name: Option<&'a str>,
    /// What it is known by in its network: the interface's name, and for a further one `INTERFACE/NAME`.
    pub purpose: String,
    /// How the interface gets it.
    pub addressing: Addressing,
    /// The subnet of that.
    pub subnet: Option<&'a Ref<Subnet>>,
    /// The address, where that is declared.
    pub address: Option<IpAddr>,
}

impl<'a> Link<'a> {
    /// Where it is declared, as a JSON pointer into a deployment's or machine's spec.
    #[must_use]
    pub fn pointer(&self) -> String {
        child(&format!("/network/{}", self.sort), self.name)
    }

    /// Where one of its addresses is declared.
    #[must_use]
    pub fn pointer_to(&self, address: &LinkAddress<'_>) -> String {
        let further = |name| child(&child(&self.pointer(), "addresses"), name);
        address.name.map_or_else(|| self.pointer(), further)
    }

    /// Its addresses: the one that stands in it first, then the others in the order of their names.
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
    /// Everything that can have an address: interfaces, bonds, bridges, VLANs.
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

    /// What an interface is made of, by names.
    fn below<'a>(&'a self, name: &str) -> Vec<&'a str> {
        let members = [
            self.bonds.get(name).map(|bond| &bond.members),
            self.bridges.get(name).map(|bridge| &bridge.members),
        ];
        let parent = self.vlans.get(name).map(|vlan| vlan.parent.as_str());
        members.into_iter().flatten().flatten().map(String::as_str).chain(parent).collect()
    }

    /// Whether an interface is made of itself.
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
