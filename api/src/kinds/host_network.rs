//! The network of an installed system: its interfaces, and what is built of them.

use super::Subnet;
use crate::model::Ref;
use crate::pointer::child;
use crate::validate::Rule;
use crate::values::{Cidr, Hostname, Mac};
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

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
    /// Whether it takes the addresses and routes that IPv6 routers announce (RFC 4861). Absent: as the installed system does by
    /// itself.
    pub accept_ra: Option<bool>,
    /// Largest packet in bytes. Absent: the VLAN's.
    #[field(min = 552, max = 65535)]
    pub mtu: Option<u32>,
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
    /// The router.
    pub gateway: IpAddr,
    /// Of several routes to one place the one with the least is taken. Absent: the system's own.
    pub metric: Option<u32>,
}

/// How an interface gets its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Addressing {
    /// Basalt picks a free one of the subnet, and it is set statically.
    Auto,
    /// By DHCP.
    Dhcp,
    /// The one given.
    Static,
    /// It has a link, and no address.
    LinkUp,
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
    /// Whether it takes what IPv6 routers announce, where that is declared.
    pub accept_ra: Option<bool>,
    /// Largest packet in bytes.
    pub mtu: Option<u32>,
}

impl Link<'_> {
    /// Where it is declared, as a JSON pointer into a deployment's spec.
    #[must_use]
    pub fn pointer(&self) -> String {
        child(&format!("/network/{}", self.sort), self.name)
    }
}

impl BuiltConfig {
    const fn link<'a>(&'a self, sort: &'static str, name: &'a str, mac: Option<Mac>) -> Link<'a> {
        let Self { addressing, subnet, address, accept_ra, mtu } = self;
        let (addressing, address, accept_ra, mtu) = (*addressing, *address, *accept_ra, *mtu);
        Link { sort, name, mac, addressing, subnet: subnet.as_ref(), address, accept_ra, mtu }
    }
}

impl NetworkConfig {
    /// Everything that can have an address: interfaces, bonds, bridges, VLANs.
    pub fn links(&self) -> impl Iterator<Item = Link<'_>> {
        let interfaces = self.interfaces.iter().map(|(name, it)| {
            let InterfaceConfig { mac, addressing, subnet, address, accept_ra, mtu } = it;
            let (mac, addressing, address, accept_ra, mtu) = (*mac, *addressing, *address, *accept_ra, *mtu);
            Link {
                sort: "interfaces",
                name,
                mac,
                addressing,
                subnet: subnet.as_ref(),
                address,
                accept_ra,
                mtu,
            }
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

/// The length of Linux's interface names, IFNAMSIZ without the byte that ends them.
const LONGEST_NAME: usize = 15;

pub(super) fn network_rules(network: &NetworkConfig, rule: &mut Rule<'_>) {
    let links: BTreeMap<&str, Link<'_>> = network.links().map(|link| (link.name, link)).collect();
    for link in network.links() {
        names(&link, &links, rule);
        addresses(&link, rule);
        if network.is_loop(link.name) {
            let at = if link.sort == "vlans" { "parent" } else { "members" };
            rule.broken(
                child(&link.pointer(), at),
                format!("{:?} is made of itself", link.name),
                "what it is made of does not contain it",
            );
        }
    }
    members(network, &links, rule);
    for (name, it) in &network.bonds {
        bond(name, it, rule);
        mac(&child("/network/bonds", name), it.mac, rule);
    }
    for (name, bridge) in &network.bridges {
        let at = child("/network/bridges", name);
        mac(&at, bridge.mac, rule);
        if bridge.forward_delay_s.is_some() && !bridge.stp {
            rule.broken(
                child(&at, "forward_delay_s"),
                format!(
                    "bridge {name:?} does not speak the spanning tree protocol, and its ports forward at once"
                ),
                "leave forward_delay_s out, or say stp = true",
            );
        }
    }
    for (name, vlan) in &network.vlans {
        let at = format!("{}/parent", child("/network/vlans", name));
        is_there("VLAN", name, &vlan.parent, &links, &at, rule);
    }
    for (name, route) in &network.routes {
        let at = child("/network/routes", name);
        is_there("route", name, &route.interface, &links, &child(&at, "interface"), rule);
        if route.gateway.is_ipv4() != route.destination.network().is_ipv4() {
            rule.broken(
                child(&at, "gateway"),
                format!(
                    "the router {} and the destination {} are not of one family",
                    route.gateway, route.destination
                ),
                "both IPv4, or both IPv6",
            );
        }
    }
}

fn names(link: &Link<'_>, links: &BTreeMap<&str, Link<'_>>, rule: &mut Rule<'_>) {
    let name = link.name;
    if let Some(other) = links.get(name).filter(|other| other.sort != link.sort) {
        rule.broken(
            link.pointer(),
            format!("{name:?} is the name of one of {} as well", other.sort),
            "a name of its own",
        );
    }
    let is_bad = |c: char| c.is_whitespace() || matches!(c, '/' | ':');
    let fits = name.len() <= LONGEST_NAME && !name.contains(is_bad) && !matches!(name, "." | "..");
    if link.sort != "interfaces" && !fits {
        rule.broken(
            link.pointer(),
            format!("{name:?} is no name that Linux gives an interface"),
            format!("up to {LONGEST_NAME} characters without spaces, slashes and colons, like bond0"),
        );
    }
}

fn addresses(link: &Link<'_>, rule: &mut Rule<'_>) {
    let (name, pointer) = (link.name, link.pointer());
    match (link.addressing, link.address) {
        (Addressing::Static, None) => rule.missing(
            child(&pointer, "address"),
            format!("interface {name:?} is static and has no address"),
            "its address",
        ),
        (addressing, Some(address)) if addressing != Addressing::Static => rule.broken(
            child(&pointer, "address"),
            format!("interface {name:?} has addressing \"{addressing}\" and address {address} as well"),
            "leave the address out, or say addressing = \"static\"",
        ),
        (Addressing::Auto, None) if link.sort != "interfaces" && link.subnet.is_none() => rule.missing(
            child(&pointer, "subnet"),
            format!("{name:?} gets an address, and nothing says of which subnet"),
            "the subnet, or addressing = \"dhcp\" or \"link_up\"",
        ),
        _ => {}
    }
    if link.addressing == Addressing::LinkUp && link.accept_ra == Some(true) {
        rule.broken(
            child(&pointer, "accept_ra"),
            format!("interface {name:?} has addressing \"link_up\", and would take an address from a router"),
            "leave accept_ra out, or say another addressing",
        );
    }
}

/// Who is a port of a bond or bridge is of that one alone, and has no address of its own.
fn members(network: &NetworkConfig, links: &BTreeMap<&str, Link<'_>>, rule: &mut Rule<'_>) {
    let mut used: BTreeMap<&str, &str> = BTreeMap::new();
    let bonds = network.bonds.iter().map(|(name, bond)| ("bonds", "bond", name, &bond.members));
    let bridges = network.bridges.iter().map(|(name, bridge)| ("bridges", "bridge", name, &bridge.members));
    for (sort, word, name, members) in bonds.chain(bridges) {
        let at = format!("{}/members", child(&format!("/network/{sort}"), name));
        if sort == "bonds" && members.is_empty() {
            rule.missing(&at, format!("bond {name:?} is made of nothing"), "the interfaces it is made of");
        }
        for member in members {
            if !is_there(word, name, member, links, &at, rule) {
                continue;
            }
            if let Some(other) = used.insert(member, name) {
                rule.broken(
                    &at,
                    format!("{member:?} is in {other:?} and in {name:?}"),
                    "each interface in one bond or bridge",
                );
            }
            let Some(link) = links.get(member.as_str()) else { continue };
            if sort == "bonds" && link.sort != "interfaces" {
                rule.broken(
                    &at,
                    format!("bond {name:?} is made of {member:?}, which is one of {}", link.sort),
                    "interfaces of the machine",
                );
            } else if link.addressing != Addressing::LinkUp {
                rule.broken(
                    &at,
                    format!("{member:?} is in {word} {name:?} and has addressing \"{}\"", link.addressing),
                    format!("{member} with addressing = \"link_up\": the {word} has the address"),
                );
            }
        }
    }
    for (name, vlan) in &network.vlans {
        if let Some(of) = used.get(vlan.parent.as_str()).filter(|of| network.bonds.contains_key(**of)) {
            rule.broken(
                format!("{}/parent", child("/network/vlans", name)),
                format!("VLAN {name:?} is carried by {:?}, which is in bond {of:?}", vlan.parent),
                format!("parent = \"{of}\""),
            );
        }
    }
}

/// What a bond says that its mode has no use for.
fn bond(name: &str, bond: &BondConfig, rule: &mut Rule<'_>) {
    let at = child("/network/bonds", name);
    let mode = bond.mode;
    let idle = [
        (
            "lacp_rate",
            bond.lacp_rate.is_some() && mode != BondMode::Lacp,
            "speaks no LACP",
            "mode = \"802.3ad\"",
        ),
        (
            "hash_policy",
            bond.hash_policy.is_some() && !mode.hashes(),
            "does not choose by what is in a packet",
            "mode = \"802.3ad\", \"balance-xor\" or \"balance-tlb\"",
        ),
        (
            "gratuitous_arps",
            bond.gratuitous_arps.is_some() && mode != BondMode::ActiveBackup,
            "tells neighbours of no change",
            "mode = \"active-backup\"",
        ),
        (
            "primary",
            bond.primary.is_some() && !mode.has_primary(),
            "has no interface that comes before the others",
            "mode = \"active-backup\", \"balance-tlb\" or \"balance-alb\"",
        ),
    ];
    for (field, _, lacks, modes) in idle.into_iter().filter(|(_, is_idle, ..)| *is_idle) {
        rule.broken(
            child(&at, field),
            format!("mode \"{mode}\" {lacks}"),
            format!("leave {field} out, or say {modes}"),
        );
    }
    if let Some(primary) = bond.primary.as_ref().filter(|it| !bond.members.contains(*it)) {
        let members: Vec<_> = bond.members.iter().map(String::as_str).collect();
        rule.broken(
            child(&at, "primary"),
            format!("{primary:?} is not in bond {name:?}"),
            format!("one of its members: {}", members.join(", ")),
        );
    }
    for (field, delay) in [("up_delay_ms", bond.up_delay_ms), ("down_delay_ms", bond.down_delay_ms)] {
        let every = bond.link_check_ms;
        if let Some(delay) = delay.filter(|delay| !delay.is_multiple_of(every.max(1))) {
            rule.broken(
                child(&at, field),
                format!("links are looked at each {every} ms, and {delay} ms is no multiple of that"),
                format!("a multiple of {every}, or another link_check_ms"),
            );
        }
    }
}

/// A MAC address that something built gets is one that an interface can have.
fn mac(at: &str, mac: Option<Mac>, rule: &mut Rule<'_>) {
    if let Some(mac) = mac.filter(|mac| mac.is_multicast() || mac.is_zero()) {
        rule.broken(
            child(at, "mac"),
            format!("{mac} is not the address of one interface"),
            "a unicast address, like 52:54:00:00:00:01",
        );
    }
}

/// Whether an interface that another one names is declared.
fn is_there(
    word: &str,
    name: &str,
    wanted: &str,
    links: &BTreeMap<&str, Link<'_>>,
    at: &str,
    rule: &mut Rule<'_>,
) -> bool {
    let is_there = links.contains_key(wanted);
    if !is_there {
        let all: Vec<_> = links.keys().copied().collect();
        let has = if all.is_empty() { "nothing".to_owned() } else { all.join(", ") };
        rule.broken(
            at,
            format!("{word} {name:?} names {wanted:?}, and the network has no such interface"),
            format!("one of what the network declares: {has}"),
        );
    }
    is_there
}

#[cfg(test)]
mod tests {
    use crate::Kind;
    use serde_json::{Value, json};

    /// What is wrong with a network, by pointers below it.
    fn wrong(network: &Value) -> Vec<String> {
        let spec = json!({"image": "debian", "machine": "m", "network": network});
        let errors = crate::validate(Kind::find("Deployment").unwrap(), &spec);
        errors.iter().map(|e| format!("{}: {}", e.pointer.replacen("/network", "", 1), e.message)).collect()
    }

    fn up(names: &[&str]) -> Value {
        names.iter().map(|name| ((*name).to_owned(), json!({"addressing": "link_up"}))).collect()
    }

    #[test]
    fn a_bond_has_members_that_are_there_and_have_no_address() {
        let bond = |members: &[&str]| {
            let interfaces = json!({"eth0": {"addressing": "link_up"}, "eth1": {"addressing": "dhcp"}});
            json!({"interfaces": interfaces, "bonds": {"bond0": {"members": members, "addressing": "dhcp"}}})
        };
        assert_eq!(wrong(&bond(&["eth0"])), [""; 0]);
        assert_eq!(wrong(&bond(&[])), [r#"/bonds/bond0/members: bond "bond0" is made of nothing"#]);
        assert_eq!(
            wrong(&bond(&["eth9"])),
            [r#"/bonds/bond0/members: bond "bond0" names "eth9", and the network has no such interface"#]
        );
        assert_eq!(
            wrong(&bond(&["eth1"])),
            [r#"/bonds/bond0/members: "eth1" is in bond "bond0" and has addressing "dhcp""#]
        );
    }

    #[test]
    fn an_interface_is_in_one_bond_or_bridge_and_a_vlan_is_carried_by_the_bond() {
        let network = json!({"interfaces": up(&["eth0", "eth1"]),
            "bonds": {"bond0": {"members": ["eth0", "eth1"], "addressing": "link_up"}},
            "bridges": {"br0": {"members": ["eth1"], "addressing": "dhcp"}},
            "vlans": {"v7": {"parent": "eth0", "vid": 7, "addressing": "dhcp"}}});
        assert_eq!(
            wrong(&network),
            [
                r#"/bridges/br0/members: "eth1" is in "bond0" and in "br0""#,
                r#"/vlans/v7/parent: VLAN "v7" is carried by "eth0", which is in bond "bond0""#,
            ]
        );
    }

    #[test]
    fn nothing_is_made_of_itself() {
        let network = json!({
            "bridges": {"br0": {"members": ["v7"], "addressing": "link_up"}},
            "vlans": {"v7": {"parent": "br0", "vid": 7, "addressing": "link_up"}}});
        assert_eq!(
            wrong(&network),
            [
                r#"/bridges/br0/members: "br0" is made of itself"#,
                r#"/vlans/v7/parent: "v7" is made of itself"#,
            ]
        );
    }

    #[test]
    fn names_are_linux_s_and_each_is_there_once() {
        let network = json!({"interfaces": up(&["eth0"]),
            "vlans": {"eth0": {"parent": "eth0", "vid": 7, "addressing": "dhcp"},
                "a-name-that-is-too-long": {"parent": "eth0", "vid": 8, "addressing": "dhcp"}}});
        let errors = wrong(&network);
        assert!(
            errors.iter().any(|e| e.contains(r#""eth0" is the name of one of vlans as well"#)),
            "{errors:?}"
        );
        assert!(errors.iter().any(|e| e.contains("is no name that Linux gives an interface")), "{errors:?}");
    }

    #[test]
    fn the_number_of_a_vlan_is_one_that_a_tag_can_have() {
        for vid in [0, 4095] {
            let network = json!({"interfaces": up(&["eth0"]),
                "vlans": {"v": {"parent": "eth0", "vid": vid, "addressing": "dhcp"}}});
            assert_eq!(wrong(&network), [format!("/vlans/v/vid: {vid} is out of range")]);
        }
    }

    #[test]
    fn a_route_leaves_by_an_interface_that_is_there_to_a_router_of_its_family() {
        let route = |interface: &str, gateway: &str| {
            json!({"interfaces": {"eth0": {}}, "routes": {"r": {"interface": interface,
                "destination": "192.0.2.0/24", "gateway": gateway}}})
        };
        assert_eq!(wrong(&route("eth0", "10.77.0.1")), [""; 0]);
        assert_eq!(wrong(&route("eth1", "10.77.0.1")).len(), 1);
        assert_eq!(
            wrong(&route("eth0", "2001:db8::1")),
            [
                "/routes/r/gateway: the router 2001:db8::1 and the destination 192.0.2.0/24 are not of one family"
            ]
        );
    }

    #[test]
    fn a_bond_says_nothing_that_its_mode_has_no_use_for() {
        let bond = |says: Value| {
            let mut bond = json!({"members": ["eth0", "eth1"], "addressing": "dhcp"});
            bond.as_object_mut().unwrap().extend(says.as_object().unwrap().clone());
            wrong(&json!({"interfaces": up(&["eth0", "eth1"]), "bonds": {"bond0": bond}}))
        };
        assert_eq!(bond(json!({"gratuitous_arps": 3, "primary": "eth1", "up_delay_ms": 300})), [""; 0]);
        assert_eq!(
            bond(json!({"mode": "802.3ad", "gratuitous_arps": 3, "primary": "eth1"})),
            [
                r#"/bonds/bond0/gratuitous_arps: mode "802.3ad" tells neighbours of no change"#,
                r#"/bonds/bond0/primary: mode "802.3ad" has no interface that comes before the others"#,
            ]
        );
        assert_eq!(
            bond(json!({"primary": "eth2"})),
            [r#"/bonds/bond0/primary: "eth2" is not in bond "bond0""#]
        );
        assert_eq!(
            bond(json!({"down_delay_ms": 250})),
            [
                "/bonds/bond0/down_delay_ms: links are looked at each 100 ms, and 250 ms is no multiple of that"
            ]
        );
        assert_eq!(
            bond(json!({"mac": "01:00:5e:00:00:01"})),
            ["/bonds/bond0/mac: 01:00:5e:00:00:01 is not the address of one interface"]
        );
    }

    #[test]
    fn a_bridge_without_spanning_tree_has_no_forward_delay() {
        let bridge = |stp: bool| {
            wrong(&json!({"bridges": {"br0": {"stp": stp, "forward_delay_s": 4, "addressing": "dhcp"}}}))
        };
        assert_eq!(bridge(true), [""; 0]);
        let message =
            r#"bridge "br0" does not speak the spanning tree protocol, and its ports forward at once"#;
        assert_eq!(bridge(false), [format!("/bridges/br0/forward_delay_s: {message}")]);
    }

    #[test]
    fn who_has_no_address_takes_none_from_a_router() {
        let link = |addressing: &str| {
            wrong(&json!({"interfaces": {"eth0": {"addressing": addressing, "accept_ra": true}}}))
        };
        assert_eq!(link("dhcp"), [""; 0]);
        let message = r#"interface "eth0" has addressing "link_up", and would take an address from a router"#;
        assert_eq!(link("link_up"), [format!("/interfaces/eth0/accept_ra: {message}")]);
    }
}
