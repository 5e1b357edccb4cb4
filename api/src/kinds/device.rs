//! Device and Discovery: what is on the networks, and is not booted by Basalt.

use super::{Architecture, CommonStatus, Domain, Inventory, Machine, Pool, Rack, Vlan, Zone, kind};
use crate::model::Ref;
use crate::validate::{Rule, no_rules};
use crate::values::{Mac, Tag, Timestamp};
use basalt_api_derive::Model;
use std::collections::BTreeSet;
use std::net::IpAddr;

kind! {
    /// A thing with an address that Basalt does not boot: a switch, a printer, a virtual machine.
    Device, "devices", "basalt_device", Label, declarable: true, DeviceSpec, DeviceStatus, device_rules
}

/// A thing with an address.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DeviceSpec {
    /// MAC addresses of its interfaces.
    pub macs: BTreeSet<Mac>,
    /// Its addresses. Nobody else is given one of them. A device with a single MAC gets its first address of each subnet by DHCP, unless an
    /// IpAddress keeps another one for that MAC.
    pub addresses: BTreeSet<IpAddr>,
    /// The machine it is a part of, or runs on, for people.
    pub parent: Option<Ref<Machine>>,
    /// Its place, for people.
    pub zone: Option<Ref<Zone>>,
    /// The domain that it has a name in.
    pub domain: Option<Ref<Domain>>,
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// How the device is.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DeviceStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
}

fn device_rules(spec: &DeviceSpec, rule: &mut Rule<'_>) {
    for mac in spec.macs.iter().filter(|mac| mac.is_multicast() || mac.is_zero()) {
        rule.broken(
            "/macs",
            format!("{mac} is not the address of one interface"),
            "the interface's own address, as its label shows it",
        );
    }
    for ip in spec.addresses.iter().filter(|ip| ip.is_unspecified() || ip.is_multicast() || ip.is_loopback())
    {
        rule.broken("/addresses", format!("{ip} is not the address of one device"), "its own address");
    }
    if spec.macs.is_empty() && spec.addresses.is_empty() {
        rule.missing(
            "/macs",
            "a device is known by its MAC addresses or its addresses, and this one has neither",
            "the MAC address of one of its interfaces",
        );
    }
}

kind! {
    /// Something that racks saw on a network and nobody has declared.
    Discovery, "discoveries", "basalt_discovery", Label, declarable: false, DiscoverySpec, DiscoveryStatus, no_rules
}

/// What an operator sets on a discovery.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DiscoverySpec {
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// What was seen, and where.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DiscoveryStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// The sort of thing.
    #[field(volatile)]
    pub sort: Option<DiscoverySort>,
    /// The MAC address; for a machine, that of the interface that it booted from.
    #[field(volatile)]
    pub mac: Option<Mac>,
    /// The MAC addresses of all interfaces that were found.
    #[field(volatile)]
    pub macs: BTreeSet<Mac>,
    /// Hardware of the machine.
    #[field(volatile)]
    pub inventory: Option<Inventory>,
    /// The Machine that `basalt accept` makes of the machine.
    #[field(volatile)]
    pub proposal: Option<ProposedMachine>,
    /// Its addresses.
    #[field(volatile)]
    pub addresses: BTreeSet<IpAddr>,
    /// The VLAN it was seen on.
    #[field(volatile)]
    pub vlan: Option<Ref<Vlan>>,
    /// Racks that saw it.
    #[field(volatile)]
    pub racks: BTreeSet<Ref<Rack>>,
    /// When it was seen first.
    #[field(volatile)]
    pub first_seen_at: Option<Timestamp>,
    /// When it was seen last.
    #[field(volatile)]
    pub last_seen_at: Option<Timestamp>,
}

/// A Machine that can be made of what was found.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ProposedMachine {
    /// The name, as Settings say.
    pub name: String,
    /// Its processor architecture.
    pub architecture: Architecture,
    /// The MAC addresses of all interfaces that may boot it.
    pub boot_macs: BTreeSet<Mac>,
    /// The zone that a rule of Settings gives it.
    pub zone: Option<Ref<Zone>>,
    /// The pool that a rule of Settings gives it.
    pub pool: Option<Ref<Pool>>,
    /// The tags that a rule of Settings gives it.
    pub tags: BTreeSet<Tag>,
}

/// What racks can come upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum DiscoverySort {
    /// A MAC address that asked to boot, and that no machine has.
    UnknownMac,
    /// A DHCP server that is none of Basalt's.
    RogueDhcp,
}
