//! IpAddress: an address of a subnet that is somebody's.

use super::{CommonStatus, Subnet, kind};
use crate::model::Ref;
use crate::validate::Rule;
use crate::values::{Duid, Hostname, Mac};
use basalt_api_derive::Model;
use std::net::IpAddr;

kind! {
    /// An address of a subnet, kept for what it is declared for. Nobody else gets it.
    IpAddress, "ip_addresses", "basalt_ip_address", Label, declarable: true, IpAddressSpec, IpAddressStatus, ip_address_rules
}

/// An address to keep.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct IpAddressSpec {
    /// The subnet it is of.
    #[field(immutable)]
    pub subnet: Ref<Subnet>,
    /// This very address; in a `reserved` range too. Absent: the next free one, which is kept until another one is named here.
    pub address: Option<IpAddr>,
    /// The interface that DHCP gives the address to, and a deployment's interface too. A MAC has one address of a subnet.
    pub mac: Option<Mac>,
    /// The host that DHCPv6 gives the address to, by the identity that it shows, where it hides its MAC. Of an IPv6 subnet, and instead of `mac`.
    /// A DUID has one address of a subnet.
    pub duid: Option<Duid>,
    /// The host name that DHCP hands out with it.
    pub hostname: Option<Hostname>,
    /// What it is for, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// The address that is kept.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct IpAddressStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// The address, named or chosen.
    pub address: Option<IpAddr>,
}

fn ip_address_rules(spec: &IpAddressSpec, rule: &mut Rule<'_>) {
    let Some(duid) = &spec.duid else { return };
    if let Some(mac) = spec.mac {
        rule.broken(
            "/duid",
            format!("the address is {mac}'s, and {duid}'s: DHCP knows its client by one of them"),
            "the DUID alone, of a host that hides its MAC; otherwise the MAC alone",
        );
    }
    if let Some(address) = spec.address.filter(IpAddr::is_ipv4) {
        rule.broken(
            "/duid",
            format!("{address} is an IPv4 address, and DHCP of IPv4 knows no DUIDs"),
            "the host's MAC, as `mac`; or an address of an IPv6 subnet",
        );
    }
}
