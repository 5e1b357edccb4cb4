//! Device and Discovery: hosts on the networks that Basalt does not boot.

use super::{Architecture, CommonStatus, Domain, Inventory, Machine, Pool, Rack, Vlan, Zone, kind};
use crate::model::Ref;
use crate::validate::{Rule, no_rules};
use crate::values::{Mac, Tag, Timestamp};
use basalt_api_derive::Model;
use std::collections::BTreeSet;
use std::net::IpAddr;

kind! {
    /// A device with an address that Basalt does not boot: a switch, a printer, a virtual machine.
    Device, "devices", "basalt_device", Label, declarable: true, DeviceSpec, DeviceStatus, device_rules
}

/// A device with an address.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DeviceSpec {
    /// MAC addresses of the device's interfaces.
    pub macs: BTreeSet<Mac>,
    /// Addresses of the device. Basalt gives them to nobody else. A device with a single MAC address gets its first address of
    /// each subnet by DHCP, unless an IpAddress keeps another one for that MAC address.
    pub addresses: BTreeSet<IpAddr>,
    /// The machine that contains the device or runs it, for people.
    pub parent: Option<Ref<Machine>>,
    /// The zone of the device, for people.
    pub zone: Option<Ref<Zone>>,
    /// The DNS domain in which the device has a name. Absent: `default_domain` of Settings.
    pub domain: Option<Ref<Domain>>,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// The state of the device.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DeviceStatus {
    /// The fields that every status has.
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
    /// A host that racks saw on a network and that nobody has declared.
    Discovery, "discoveries", "basalt_discovery", Label, declarable: false, DiscoverySpec, DiscoveryStatus, no_rules
}

/// The part of a discovery that operators write.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DiscoverySpec {
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// The observation: the host, and the network on which it was seen.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct DiscoveryStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// The kind of host.
    #[field(volatile)]
    pub sort: Option<DiscoverySort>,
    /// The MAC address of the host. For a machine, it is the address of the interface from which it booted.
    #[field(volatile)]
    pub mac: Option<Mac>,
    /// MAC addresses of all interfaces that were found.
    #[field(volatile)]
    pub macs: BTreeSet<Mac>,
    /// The hardware of the machine.
    #[field(volatile)]
    pub inventory: Option<Inventory>,
    /// The Machine that `basalt accept` makes from this discovery.
    #[field(volatile)]
    pub proposal: Option<ProposedMachine>,
    /// IP addresses of the host.
    #[field(volatile)]
    pub addresses: BTreeSet<IpAddr>,
    /// The VLAN on which the host was seen.
    #[field(volatile)]
    pub vlan: Option<Ref<Vlan>>,
    /// Racks that saw the host.
    #[field(volatile)]
    pub racks: BTreeSet<Ref<Rack>>,
    /// The time at which the host was first seen.
    #[field(volatile)]
    pub first_seen_at: Option<Timestamp>,
    /// The time at which the host was last seen.
    #[field(volatile)]
    pub last_seen_at: Option<Timestamp>,
}

/// A Machine that can be made from a discovery.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ProposedMachine {
    /// The name of the Machine, as `enlistment.name` of Settings says.
    pub name: String,
    /// Processor architecture of the machine.
    pub architecture: Architecture,
    /// MAC addresses of all interfaces that the machine may boot from.
    pub boot_macs: BTreeSet<Mac>,
    /// The zone that a rule of Settings gives to the machine.
    pub zone: Option<Ref<Zone>>,
    /// The pool that a rule of Settings gives to the machine.
    pub pool: Option<Ref<Pool>>,
    /// The tags that a rule of Settings gives to the machine.
    pub tags: BTreeSet<Tag>,
}

/// The kinds of hosts that racks discover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum DiscoverySort {
    /// A MAC address that asked to boot and that belongs to no Machine.
    UnknownMac,
    /// A DHCP server that does not belong to Basalt.
    RogueDhcp,
}
