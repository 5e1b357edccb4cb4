//! Interfaces that rest on each other: their MTUs, and the tags and MAC addresses that must not repeat.
//!
//! | the kernel | where |
//! | --- | --- |
//! | refuses a VLAN whose MTU is above its parent's (`ERANGE`) | `net/8021q/vlan_dev.c` |
//! | refuses a second VLAN of one number on a parent (`EEXIST`) | `net/8021q/vlan.c` |
//! | refuses a bridge as the port of a bridge (`ELOOP`) | `net/bridge/br_if.c` |
//! | gives the members of a bond the bond's MTU | `drivers/net/bonding/bond_main.c` |
//! | has no IPv6 on an interface whose MTU is below 1280 | `net/ipv6/addrconf.c` |

use super::NetworkConfig;
use super::contradictions::{DEFAULT_MTU, Known, Links, rule};
use crate::pointer::child;
use crate::problem::FieldError;
use std::collections::BTreeMap;

/// The least MTU of a link that carries IPv6 (RFC 8200 §5).
const LEAST_MTU_OF_IPV6: u32 = 1280;

impl NetworkConfig {
    pub(super) fn judge_links(&self, links: &Links<'_>, found: &mut Vec<FieldError>) {
        for known in links.values() {
            if let Some(mtu) = known.own_mtu().filter(|mtu| *mtu < LEAST_MTU_OF_IPV6 && known.families.v6) {
                found.push(rule(
                    child(&known.link.pointer(), "mtu"),
                    format!("interface {:?} has MTU {mtu} and an IPv6 address", known.link.name),
                    format!("at least {LEAST_MTU_OF_IPV6}: Linux has no IPv6 below"),
                ));
            }
        }
        self.same_macs(found);
        self.bond_mtus(links, found);
        self.bridges_in_bridges(found);
        self.vlans_on_parents(links, found);
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

    fn bond_mtus(&self, links: &Links<'_>, found: &mut Vec<FieldError>) {
        for (name, bond) in &self.bonds {
            let Some(mtu) = self.mtu_of(links, name) else { continue };
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

    fn vlans_on_parents(&self, links: &Links<'_>, found: &mut Vec<FieldError>) {
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
            let own = links.get(name.as_str()).and_then(Known::own_mtu);
            if let (Some(mtu), Some(most)) = (own, self.mtu_of(links, parent))
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

    /// The MTU that an interface has in the end. `None`: it is not known yet.
    fn mtu_of(&self, links: &Links<'_>, name: &str) -> Option<u32> {
        let own = |name: &str| links.get(name).and_then(Known::own_mtu);
        let mut name = name;
        // A VLAN without an MTU has its parent's. The bound ends a loop of VLANs.
        for _ in 0..=self.vlans.len() {
            match self.vlans.get(name) {
                Some(vlan) if own(name).is_none() => {
                    links.get(name).filter(|known| !known.is_open)?;
                    name = vlan.parent.as_str();
                }
                _ => break,
            }
        }
        let known = links.get(name)?;
        if known.own_mtu().is_some() || known.is_open {
            return known.own_mtu();
        }
        match self.bridges.get(name) {
            // A bridge without an MTU has the least of its ports'.
            Some(bridge) if !bridge.members.is_empty() => {
                let mut ports =
                    bridge.members.iter().map(|port| own(port).or_else(|| self.plain_mtu(links, port)));
                ports.try_fold(u32::MAX, |least, mtu| Some(least.min(mtu?)))
            }
            _ => Some(DEFAULT_MTU),
        }
    }

    /// The MTU of an interface that says none, if it does not have it from others.
    fn plain_mtu(&self, links: &Links<'_>, name: &str) -> Option<u32> {
        let is_built = self.vlans.contains_key(name) || self.bridges.contains_key(name);
        links.get(name).filter(|known| !is_built && !known.is_open).map(|_| DEFAULT_MTU)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::tests::{up, wrong};
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
