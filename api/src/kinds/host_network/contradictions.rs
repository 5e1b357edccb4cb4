//! Checks a network for contradictions in itself, and with the subnets of its addresses.
//!
//! Three callers use the same rules. Each knows more subnets than the one before:
//!
//! | caller | knows |
//! | --- | --- |
//! | the validation of a spec | none |
//! | a write | the subnets that are declared |
//! | the planner | the subnets of the machine's addresses |

use super::{Addressing, Link, LinkAddress, NetworkConfig};
use crate::problem::{FieldCode, FieldError};
use crate::values::Cidr;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The subnet of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubnetFacts {
    /// The network that the address is in.
    pub cidr: Cidr,
    /// Largest packet of its VLAN, in bytes.
    pub mtu: u32,
}

/// Finds the subnet of an address that the region assigns. `None`: the subnet is not known yet.
pub(super) type SubnetOf<'a> = &'a dyn Fn(&LinkAddress<'_>) -> Option<SubnetFacts>;

/// An interface, and the facts that are known about its addresses.
pub(super) struct Known<'a> {
    pub(super) link: Link<'a>,
    /// The subnets of the addresses that the region assigns.
    pub(super) subnets: Vec<SubnetFacts>,
    /// Addresses that are declared.
    pub(super) declared: Vec<IpAddr>,
    /// True if the subnet of an address is not known yet.
    pub(super) is_open: bool,
    /// Families in which the interface can have an address.
    pub(super) families: Families,
    /// Families in which the interface's networks are not known: servers or routers announce them, or the subnet is not known yet.
    pub(super) unknown: Families,
}

/// Families of addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Families {
    pub(super) v4: bool,
    pub(super) v6: bool,
}

impl Families {
    pub(super) const fn has(self, address: IpAddr) -> bool {
        if address.is_ipv4() { self.v4 } else { self.v6 }
    }

    const fn add(&mut self, address: IpAddr) {
        if address.is_ipv4() { self.v4 = true } else { self.v6 = true }
    }
}

impl<'a> Known<'a> {
    fn of(link: Link<'a>, subnet: SubnetOf<'_>) -> Self {
        let (families, unknown) = (Families::default(), Families::default());
        let (subnets, declared) = (Vec::new(), Vec::new());
        let mut known = Self { link, subnets, declared, is_open: false, families, unknown };
        for one in link.addresses() {
            known.declared.extend(one.address);
            match one.addressing {
                Addressing::Dhcp => known.unknown.v4 = true,
                Addressing::Dhcp6 | Addressing::Slaac => known.unknown.v6 = true,
                Addressing::LinkUp => {}
                Addressing::Auto | Addressing::Static => known.add(&one, subnet),
            }
        }
        known.unknown.v6 |= link.accept_ra == Some(true);
        known.families.v4 |= known.unknown.v4;
        known.families.v6 |= known.unknown.v6;
        known
    }

    fn add(&mut self, one: &LinkAddress<'_>, subnet: SubnetOf<'_>) {
        match (subnet(one), one.address) {
            (Some(subnet), _) => {
                self.families.add(subnet.cidr.network());
                self.subnets.push(subnet);
                return;
            }
            (None, Some(address)) => self.unknown.add(address),
            (None, None) => self.unknown = Families { v4: true, v6: true },
        }
        self.is_open = true;
    }

    /// The declared MTU of the interface, or else of the VLAN of a subnet. `None`: all have the default, or a subnet is not known yet.
    pub(super) fn said_mtu(&self) -> Option<u32> {
        // The planner does the same: it takes the MTU of the first subnet whose VLAN has another MTU than the default.
        let of_subnets = || self.subnets.iter().map(|subnet| subnet.mtu).find(|mtu| *mtu != DEFAULT_MTU);
        self.link.mtu.or_else(of_subnets)
    }
}

/// Ethernet's largest packet, in bytes.
pub(super) const DEFAULT_MTU: u32 = 1500;

/// Interfaces by their names.
pub(super) type Links<'a> = BTreeMap<&'a str, Known<'a>>;

impl NetworkConfig {
    /// Finds declarations that Linux would refuse or not carry out, in interfaces and routes together. `subnet` returns the subnet of an
    /// address that the region assigns. An address whose subnet is not known yet is not checked.
    #[must_use]
    pub fn contradictions(&self, subnet: SubnetOf<'_>) -> Vec<FieldError> {
        let links = self.known(subnet);
        let mut found = Vec::new();
        self.judge_links(&links, &mut found);
        self.judge_routes(&links, &mut found);
        found
    }

    pub(super) fn known(&self, subnet: SubnetOf<'_>) -> Links<'_> {
        self.links().map(|link| (link.name, Known::of(link, subnet))).collect()
    }
}

/// A contradiction at a place of the spec.
pub(super) fn rule(at: String, message: String, hint: impl Into<String>) -> FieldError {
    FieldError::new(at, FieldCode::Rule, message, hint)
}
