//! Checks interfaces that are built on other interfaces: their MTUs, and VLAN ids and MAC addresses that must not repeat.
//!
//! | the kernel | where |
//! | --- | --- |
//! | refuses a VLAN whose MTU is above its parent's (`ERANGE`) | `net/8021q/vlan_dev.c` |
//! | refuses a second VLAN of one number on a parent (`EEXIST`) | `net/8021q/vlan.c` |
//! | refuses a bridge as the port of a bridge (`ELOOP`) | `net/bridge/br_if.c` |
//! | gives a VLAN its parent's MTU, if none is said | `net/8021q/vlan_dev.c` |
//! | gives a bridge the least MTU of its ports, if none is said | `net/bridge/br_if.c` |
//! | gives the members of a bond the bond's MTU | `drivers/net/bonding/bond_main.c` |
//! | has no IPv6 on an interface whose MTU is below 1280 | `net/ipv6/addrconf.c` |

use super::NetworkConfig;
use super::contradictions::{DEFAULT_MTU, Known, Links, SubnetOf, rule};
use crate::pointer::child;
use crate::problem::FieldError;
use std::collections::BTreeMap;

/// The least MTU of a link that carries IPv6 (RFC 8200 §5).
const LEAST_MTU_OF_IPV6: u32 = 1280;

/// Most interfaces that may be stacked on each other (`MAX_NEST_DEV` in `include/linux/netdevice.h`).
const MOST_NESTED: usize = 8;

impl NetworkConfig {
    pub(super) fn judge_links(&self, links: &Links<'_>, found: &mut Vec<FieldError>) {
        let mtus = mtus(self, links);
        for (name, known) in links {
            let mtu = mtus.get(name).filter(|mtu| **mtu < LEAST_MTU_OF_IPV6 && known.families.v6);
            if let Some(mtu) = mtu {
                found.push(rule(
                    child(&known.link.pointer(), "mtu"),
                    format!("interface {:?} has MTU {mtu} and an IPv6 address", known.link.name),
                    format!("at least {LEAST_MTU_OF_IPV6}: Linux has no IPv6 below"),
                ));
            }
        }
        self.same_macs(found);
        self.bond_mtus(links, &mtus, found);
        self.bridges_in_bridges(found);
        self.vlans_on_parents(links, &mtus, found);
    }

    fn same_macs(&self, found: &mut Vec<FieldError>) {
        let mut names = BTreeMap::new();
        for (name, interface) in &self.interfaces {
            let Some(mac) = interface.mac else { continue };
            if let Some(other) = names.insert(mac, name) {
                found.push(rule(
                    child(&child("/network/interfaces", name), "mac"),
                    format!("{mac} is the interface {other:?} as well"),
                    "each interface of the machine under one name",
                ));
            }
        }
    }

    fn bond_mtus(&self, links: &Links<'_>, mtus: &Mtus<'_>, found: &mut Vec<FieldError>) {
        for (name, bond) in &self.bonds {
            let Some(mtu) = mtus.get(name.as_str()).copied() else { continue };
            let members = bond.members.iter().filter_map(|member| links.get(member.as_str()));
            for member in members {
                let Some(other) = member.link.mtu.filter(|other| *other != mtu) else { continue };
                found.push(rule(
                    child(&member.link.pointer(), "mtu"),
                    format!(
                        "{:?} has MTU {other}, and bond {name:?}, which gives it its own, {mtu}",
                        member.link.name
                    ),
                    format!("mtu = {other} at {name}, or leave it out here"),
                ));
            }
        }
    }

    fn bridges_in_bridges(&self, found: &mut Vec<FieldError>) {
        for (name, bridge) in &self.bridges {
            for member in bridge.members.iter().filter(|member| self.bridges.contains_key(*member)) {
                found.push(rule(
                    child(&child("/network/bridges", name), "members"),
                    format!("{member:?} is a bridge, and no port of bridge {name:?}"),
                    "interfaces, bonds and VLANs",
                ));
            }
        }
    }

    fn vlans_on_parents(&self, links: &Links<'_>, mtus: &Mtus<'_>, found: &mut Vec<FieldError>) {
        let mut tags = BTreeMap::new();
        for (name, vlan) in &self.vlans {
            let at = child("/network/vlans", name);
            let parent = vlan.parent.as_str();
            if let Some(other) = tags.insert((parent, vlan.vid), name) {
                found.push(rule(
                    child(&at, "vid"),
                    format!("{parent:?} carries VLAN {} as {other:?} already", vlan.vid),
                    "each number once on a parent",
                ));
            }
            let said = links.get(name.as_str()).and_then(Known::said_mtu);
            if let (Some(mtu), Some(most)) = (said, mtus.get(parent).copied())
                && mtu > most
            {
                found.push(rule(
                    child(&at, "mtu"),
                    format!("VLAN {name:?} has MTU {mtu}, and {parent:?}, which carries it, {most}"),
                    format!("mtu = {mtu} at {parent} too, or at most {most} here"),
                ));
            }
        }
    }

    /// The resulting MTUs of interfaces, by name. A VLAN or bridge without an MTU takes the MTU of the interfaces below it, in a subnet
    /// 1500 at most. An interface is missing in the map while its MTU is not known.
    #[must_use]
    pub fn mtus(&self, subnet: SubnetOf<'_>) -> BTreeMap<&str, u32> {
        mtus(self, &self.known(subnet))
    }

    /// The MTU that an interface takes from the interfaces below it.
    fn mtu_from_below(&self, name: &str, mtus: &Mtus<'_>) -> Option<u32> {
        match (self.vlans.get(name), self.bridges.get(name)) {
            (Some(vlan), _) => mtus.get(vlan.parent.as_str()).copied(),
            (_, Some(bridge)) if !bridge.members.is_empty() => {
                let mut ports = bridge.members.iter().map(|port| mtus.get(port.as_str()).copied());
                ports.try_fold(u32::MAX, |least, mtu| Some(least.min(mtu?)))
            }
            _ => Some(DEFAULT_MTU),
        }
    }
}

/// MTUs by the names of the interfaces.
type Mtus<'a> = BTreeMap<&'a str, u32>;

/// Computes the MTUs upwards, one level in each iteration. Interfaces that are built on themselves get none.
fn mtus<'a>(network: &NetworkConfig, links: &Links<'a>) -> Mtus<'a> {
    let mut found = Mtus::new();
    for _ in 0..MOST_NESTED {
        for (name, known) in links {
            if !found.contains_key(name)
                && let Some(mtu) = mtu_above(network, known, &found)
            {
                found.insert(*name, mtu);
            }
        }
    }
    found
}

/// The MTU of an interface, from the MTUs found so far of the interfaces below it. `None`: one of them is missing.
fn mtu_above(network: &NetworkConfig, known: &Known<'_>, found: &Mtus<'_>) -> Option<u32> {
    let inherited = || {
        let most = if known.subnets.is_empty() { u32::MAX } else { DEFAULT_MTU };
        let below = network.mtu_from_below(known.link.name, found)?;
        (!known.is_open).then(|| below.min(most))
    };
    known.said_mtu().or_else(inherited)
}

#[cfg(test)]
mod tests {
    use super::super::contradictions::SubnetFacts;
    use super::super::rules::tests::{up, wrong};
    use super::NetworkConfig;
    use serde_json::{Value, json};

    fn vlan(parent: Value, vlan: Value) -> Vec<String> {
        let mut v7 = json!({"parent": "eth0", "vid": 7, "addressing": "dhcp"});
        v7.as_object_mut().unwrap().extend(vlan.as_object().unwrap().clone());
        wrong(&json!({"interfaces": {"eth0": parent}, "vlans": {"v7": v7}}))
    }

    #[test]
    fn a_vlan_has_no_larger_packets_than_its_parent() {
        let link = |mtu: Value| json!({"addressing": "link_up", "mtu": mtu});
        let message = r#"/vlans/v7/mtu: VLAN "v7" has MTU 9000, and "eth0", which carries it, 1500"#;
        assert_eq!(vlan(link(json!(1500)), json!({"mtu": 9000})), [message]);
        assert_eq!(vlan(link(json!(null)), json!({"mtu": 9000})), [message], "Ethernet has 1500 by itself");
        assert_eq!(vlan(json!({"addressing": "dhcp"}), json!({"mtu": 9000})), [message]);
        assert_eq!(vlan(link(json!(9000)), json!({"mtu": 9000})), [""; 0]);
        assert_eq!(vlan(link(json!(9000)), json!({})), [""; 0]);
        assert_eq!(vlan(json!({"subnet": "lab"}), json!({"mtu": 9000})), [""; 0], "its subnet is not known");
    }

    #[test]
    fn the_parent_of_a_vlan_has_its_mtu_from_below() {
        let network = |mtu: Value| {
            wrong(&json!({"interfaces": {"eth0": {"addressing": "link_up", "mtu": mtu}},
                "bridges": {"br0": {"members": ["eth0"], "addressing": "link_up"}},
                "vlans": {"v7": {"parent": "br0", "vid": 7, "addressing": "link_up"},
                    "v8": {"parent": "v7", "vid": 8, "mtu": 9000, "addressing": "dhcp"}}}))
        };
        assert_eq!(network(json!(9000)), [""; 0]);
        let message = r#"/vlans/v8/mtu: VLAN "v8" has MTU 9000, and "v7", which carries it, 1500"#;
        assert_eq!(network(json!(null)), [message]);
    }

    /// eth0, a bridge on it, a VLAN on that, and on the VLAN another one, in a subnet of the default MTU.
    fn tower(eth0: Value, bridge: Value) -> NetworkConfig {
        let mut br0 = json!({"members": ["eth0"], "addressing": "link_up"});
        br0.as_object_mut().unwrap().extend(bridge.as_object().unwrap().clone());
        let network = json!({"interfaces": {"eth0": {"addressing": "link_up", "mtu": eth0}},
            "bridges": {"br0": br0},
            "vlans": {"a8": {"parent": "v7", "vid": 8, "subnet": "lab"},
                "v7": {"parent": "br0", "vid": 7, "addressing": "link_up"}}});
        serde_json::from_value(network).unwrap()
    }

    fn lab() -> SubnetFacts {
        SubnetFacts { cidr: "10.77.0.0/24".parse().unwrap(), mtu: 1500 }
    }

    #[test]
    fn an_mtu_that_nothing_says_is_that_of_below_and_at_most_the_default_in_a_subnet() {
        let mtus = |eth0: Value, bridge: Value| {
            let network = tower(eth0, bridge);
            let lab = lab();
            assert_eq!(network.contradictions(&|_| Some(lab)), []);
            let mtus = network.mtus(&|_| Some(lab));
            ["eth0", "br0", "v7", "a8"].map(|name| mtus[name])
        };
        assert_eq!(mtus(json!(null), json!({})), [1500; 4]);
        assert_eq!(mtus(json!(9000), json!({})), [9000, 9000, 9000, 1500]);
        assert_eq!(mtus(json!(1400), json!({})), [1400; 4], "no error: a8 says no MTU");
        let in_lab = json!({"addressing": "auto", "subnet": "lab"});
        assert_eq!(mtus(json!(9000), in_lab.clone()), [9000, 1500, 1500, 1500]);
        assert_eq!(mtus(json!(1400), in_lab), [1400; 4]);
    }

    #[test]
    fn an_mtu_is_not_known_before_the_subnet_is_nor_in_a_loop() {
        let network = tower(json!(9000), json!({}));
        assert_eq!(network.mtus(&|_| None).into_keys().collect::<Vec<_>>(), ["br0", "eth0", "v7"]);
        let round = json!({"bridges": {"br0": {"members": ["v7"], "addressing": "link_up"}},
            "vlans": {"v7": {"parent": "br0", "vid": 7, "addressing": "link_up"}}});
        let round: NetworkConfig = serde_json::from_value(round).unwrap();
        assert_eq!(round.mtus(&|_| None).len(), 0);
    }

    #[test]
    fn members_of_a_bond_have_its_mtu() {
        let bond = |bond: Value| {
            wrong(&json!({"interfaces": {"eth0": {"addressing": "link_up", "mtu": 9000}},
                "bonds": {"bond0": {"members": ["eth0"], "addressing": "dhcp", "mtu": bond}}}))
        };
        assert_eq!(bond(json!(9000)), [""; 0]);
        let message =
            r#"/interfaces/eth0/mtu: "eth0" has MTU 9000, and bond "bond0", which gives it its own, 1500"#;
        assert_eq!(bond(json!(null)), [message]);
    }

    #[test]
    fn an_interface_with_ipv6_has_room_for_it() {
        let link = |mut says: Value| {
            says["mtu"] = json!(1000);
            wrong(&json!({"interfaces": {"eth0": says}}))
        };
        assert_eq!(link(json!({"addressing": "dhcp"})), [""; 0]);
        for says in [json!({"addressing": "slaac"}), json!({"addressing": "dhcp", "accept_ra": true})] {
            let message = r#"/interfaces/eth0/mtu: interface "eth0" has MTU 1000 and an IPv6 address"#;
            assert_eq!(link(says), [message]);
        }
        let message = r#"/vlans/v7/mtu: interface "v7" has MTU 1000 and an IPv6 address"#;
        let parent = json!({"addressing": "link_up", "mtu": 1000});
        assert_eq!(vlan(parent, json!({"addressing": "slaac"})), [message], "it has its parent's");
    }

    #[test]
    fn numbers_of_vlans_and_mac_addresses_are_there_once() {
        let mac = "52:54:00:00:00:01";
        let network = json!({"interfaces": {"a": {"mac": mac, "addressing": "dhcp"},
                "b": {"mac": mac, "addressing": "link_up"}},
            "vlans": {"v7": {"parent": "a", "vid": 7, "addressing": "dhcp"},
                "v8": {"parent": "a", "vid": 7, "addressing": "dhcp"}}});
        assert_eq!(
            wrong(&network),
            [
                r#"/interfaces/b/mac: 52:54:00:00:00:01 is the interface "a" as well"#,
                r#"/vlans/v8/vid: "a" carries VLAN 7 as "v7" already"#,
            ]
        );
    }

    #[test]
    fn a_bridge_is_no_port_of_a_bridge() {
        let network = json!({"interfaces": up(&["eth0"]),
            "bridges": {"br0": {"members": ["eth0"], "addressing": "link_up"},
                "br1": {"members": ["br0"], "addressing": "dhcp"}}});
        assert_eq!(
            wrong(&network),
            [r#"/bridges/br1/members: "br0" is a bridge, and no port of bridge "br1""#]
        );
    }
}
