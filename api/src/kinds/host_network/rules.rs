//! The rules for a network that need no look at subnets or at a machine.

use super::{Addressing, BondConfig, BondMode, Link, LinkAddress, NetworkConfig};
use crate::kinds::servers;
use crate::pointer::child;
use crate::validate::Rule;
use crate::values::Mac;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Most bytes of a Linux interface name: IFNAMSIZ without the byte that ends the name.
const LONGEST_NAME: usize = 15;

/// Names that Linux uses otherwise: directories, all interfaces, the loopback interface, and a file in the directory of interfaces.
const RESERVED_NAMES: [&str; 6] = [".", "..", "all", "default", "lo", "bonding_masters"];

pub(in crate::kinds) fn network_rules(network: &NetworkConfig, rule: &mut Rule<'_>) {
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
    servers::rules("/network/dns_servers", network.dns_servers.iter().flatten().copied().map(Some), rule);
    apart(network, rule);
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
    for error in network.contradictions(&|_| None) {
        rule.found(error);
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
    let is_bad = |c: char| !c.is_ascii_graphic() || matches!(c, '/' | ':' | '%');
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    let fits =
        name.len() <= LONGEST_NAME && !name.contains(is_bad) && !is_number && !RESERVED_NAMES.contains(&name);
    if link.sort != "interfaces" && !fits {
        rule.broken(
            link.pointer(),
            format!("{name:?} is no name that Linux gives an interface"),
            format!(
                "up to {LONGEST_NAME} characters of ASCII without spaces, slashes, colons and percent signs, and no number, like bond0"
            ),
        );
    }
}

/// The rules for an interface's addresses.
fn addresses(link: &Link<'_>, rule: &mut Rule<'_>) {
    let pointer = link.pointer();
    for one in link.addresses() {
        address(link, &one, rule);
    }
    let mut ways = BTreeSet::from([link.addressing]);
    for one in link.addresses().skip(1).filter(|one| !one.addressing.is_given()) {
        if one.addressing != Addressing::LinkUp && !ways.insert(one.addressing) {
            rule.broken(
                child(&link.pointer_to(&one), "addressing"),
                format!("interface {:?} has addressing \"{}\" already", link.name, one.addressing),
                "each of dhcp, dhcp6 and slaac once: servers and routers say how many addresses that gives",
            );
        }
    }
    if link.addressing == Addressing::LinkUp && !link.further.is_empty() {
        rule.broken(
            child(&pointer, "addresses"),
            format!("interface {:?} has addressing \"link_up\", and addresses as well", link.name),
            "leave them out, or let one of them stand in the interface itself",
        );
    }
    match (ways.contains(&Addressing::Slaac), link.accept_ra) {
        (true, Some(false)) => rule.broken(
            child(&pointer, "accept_ra"),
            format!("interface {:?} has addressing \"slaac\", and takes nothing from routers", link.name),
            "leave accept_ra out, or say another addressing",
        ),
        (_, Some(true)) if link.addressing == Addressing::LinkUp => rule.broken(
            child(&pointer, "accept_ra"),
            format!(
                "interface {:?} has addressing \"link_up\", and would take an address from a router",
                link.name
            ),
            "leave accept_ra out, or say another addressing",
        ),
        _ => {}
    }
}

fn address(link: &Link<'_>, one: &LinkAddress<'_>, rule: &mut Rule<'_>) {
    let pointer = link.pointer_to(one);
    let what = match one.name {
        Some(name) => format!("address {name:?} of interface {:?}", link.name),
        None => format!("interface {:?}", link.name),
    };
    let needs_subnet = one.name.is_some() || link.sort != "interfaces";
    match (one.addressing, one.address) {
        (Addressing::Static, None) => rule.missing(
            child(&pointer, "address"),
            format!("{what} is static and has no address"),
            "its address",
        ),
        (addressing, Some(address)) if addressing != Addressing::Static => rule.broken(
            child(&pointer, "address"),
            format!("{what} has addressing \"{addressing}\" and address {address} as well"),
            "leave the address out, or say addressing = \"static\"",
        ),
        (Addressing::Auto, None) if needs_subnet && one.subnet.is_none() => rule.missing(
            child(&pointer, "subnet"),
            match one.name {
                Some(_) => format!("{what} is given, and nothing says of which subnet"),
                None => format!("{:?} gets an address, and nothing says of which subnet", link.name),
            },
            match one.name {
                Some(_) => "the subnet, or another addressing",
                None => "the subnet, or addressing = \"dhcp\" or \"link_up\"",
            },
        ),
        (Addressing::LinkUp, None) if one.name.is_some() => rule.broken(
            child(&pointer, "addressing"),
            format!("{what} has addressing \"link_up\", which is to have none"),
            "leave it out, or say another addressing",
        ),
        _ => {}
    }
}

/// Each further address has a name of its own, and no address is declared twice.
fn apart(network: &NetworkConfig, rule: &mut Rule<'_>) {
    let mut purposes: BTreeSet<String> = network.links().map(|link| link.name.to_owned()).collect();
    let mut declared: BTreeMap<IpAddr, String> = BTreeMap::new();
    for link in network.links() {
        let Some(address) = link.address else { continue };
        once(&mut declared, address, link.name, &link.pointer(), rule);
    }
    for link in network.links() {
        for one in link.addresses().skip(1) {
            let pointer = link.pointer_to(&one);
            if !purposes.insert(one.purpose.clone()) {
                rule.broken(
                    &pointer,
                    format!("{:?} is the name of something else as well", one.purpose),
                    "another name for the address",
                );
            }
            let Some(address) = one.address else { continue };
            once(&mut declared, address, &one.purpose, &pointer, rule);
        }
    }
}

/// Refuses an address that is declared already. The pointer is that of the interface or the further address.
fn once(
    declared: &mut BTreeMap<IpAddr, String>,
    address: IpAddr,
    purpose: &str,
    pointer: &str,
    rule: &mut Rule<'_>,
) {
    if let Some(other) = declared.insert(address, purpose.to_owned()) {
        rule.broken(
            child(pointer, "address"),
            format!("{address} is the address of {other:?} as well"),
            "each address once",
        );
    }
}

/// A member of a bond or bridge belongs to no other bond or bridge, and has no address of its own.
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

/// Refuses fields of a bond that its mode does not use.
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

/// The MAC address of a bond or bridge must be one that an interface can have.
fn mac(at: &str, mac: Option<Mac>, rule: &mut Rule<'_>) {
    if let Some(mac) = mac.filter(|mac| mac.is_multicast() || mac.is_zero()) {
        rule.broken(
            child(at, "mac"),
            format!("{mac} is not the address of one interface"),
            "a unicast address, like 52:54:00:00:00:01",
        );
    }
}

/// True if the interface `wanted` is declared. Otherwise reports the error at `at`.
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
pub(super) mod tests {
    use crate::Kind;
    use serde_json::{Value, json};

    /// Errors of a network: pointers below `/network`, with messages.
    pub(in super::super) fn wrong(network: &Value) -> Vec<String> {
        let spec = json!({"image": "debian", "machine": "m", "network": network});
        let errors = crate::validate(Kind::find("Deployment").unwrap(), &spec);
        errors.iter().map(|e| format!("{}: {}", e.pointer.replacen("/network", "", 1), e.message)).collect()
    }

    pub(in super::super) fn up(names: &[&str]) -> Value {
        names.iter().map(|name| ((*name).to_owned(), json!({"addressing": "link_up"}))).collect()
    }

    #[test]
    fn an_interface_has_addresses_of_both_families() {
        let eth0 = |says: Value| {
            wrong(&json!({"interfaces": {"eth0": says, "eth1": {"addressing": "static",
            "address": "10.77.0.9"}}}))
        };
        let further = |addresses: Value| eth0(json!({"subnet": "lab", "addresses": addresses}));
        assert_eq!(further(json!({"six": {"subnet": "lab6"}, "more": {"subnet": "lab"}})), [""; 0]);
        assert_eq!(further(json!({"a": {"addressing": "dhcp6"}, "b": {"addressing": "slaac"}})), [""; 0]);
        assert_eq!(
            further(json!({"six": {}})),
            [
                r#"/interfaces/eth0/addresses/six/subnet: address "six" of interface "eth0" is given, and nothing says of which subnet"#
            ]
        );
        assert_eq!(
            further(json!({"six": {"addressing": "static"}})),
            [
                r#"/interfaces/eth0/addresses/six/address: address "six" of interface "eth0" is static and has no address"#
            ]
        );
        assert_eq!(
            further(json!({"six": {"addressing": "link_up"}})),
            [
                r#"/interfaces/eth0/addresses/six/addressing: address "six" of interface "eth0" has addressing "link_up", which is to have none"#
            ]
        );
        assert_eq!(
            further(json!({"b": {"addressing": "static", "address": "10.77.0.9"}})),
            [r#"/interfaces/eth0/addresses/b/address: 10.77.0.9 is the address of "eth1" as well"#]
        );
        assert_eq!(
            eth0(json!({"addressing": "dhcp", "addresses": {"a": {"addressing": "dhcp"}}})),
            [r#"/interfaces/eth0/addresses/a/addressing: interface "eth0" has addressing "dhcp" already"#]
        );
        assert_eq!(
            eth0(json!({"addressing": "link_up", "addresses": {"a": {"subnet": "lab"}}})),
            [
                r#"/interfaces/eth0/addresses: interface "eth0" has addressing "link_up", and addresses as well"#
            ]
        );
        assert_eq!(
            eth0(json!({"accept_ra": false, "addresses": {"a": {"addressing": "slaac"}}})),
            [
                r#"/interfaces/eth0/accept_ra: interface "eth0" has addressing "slaac", and takes nothing from routers"#
            ]
        );
    }

    #[test]
    fn two_interfaces_have_different_addresses() {
        let fixed = |address: &str| json!({"addressing": "static", "address": address, "subnet": "lab"});
        let with = |other: &str| {
            let built = json!({"parent": "eth0", "vid": 7, "addressing": "static", "address": other});
            [
                wrong(&json!({"interfaces": {"eth0": fixed("10.77.0.9"), "eth1": fixed(other)}})),
                wrong(&json!({"interfaces": {"eth0": fixed("10.77.0.9")}, "vlans": {"v7": built}})),
            ]
        };
        assert_eq!(with("10.77.0.10"), [[""; 0]; 2]);
        let message = r#"10.77.0.9 is the address of "eth0" as well"#;
        let expected = ["/interfaces/eth1/address", "/vlans/v7/address"];
        assert_eq!(with("10.77.0.9"), expected.map(|pointer| vec![format!("{pointer}: {message}")]));
    }

    #[test]
    fn a_further_address_is_not_taken_for_an_interface() {
        let mac = "52:54:00:00:00:01";
        let network = json!({"interfaces": {"a/b": {"mac": mac, "addressing": "dhcp"},
            "a": {"addresses": {"b": {"subnet": "lab"}}}}});
        assert_eq!(
            wrong(&network),
            [r#"/interfaces/a/addresses/b: "a/b" is the name of something else as well"#]
        );
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
