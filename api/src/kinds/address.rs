//! IpAddress: a reserved address of a subnet.

use super::{CommonStatus, Subnet, kind};
use crate::model::Ref;
use crate::validate::Rule;
use crate::values::{Duid, Hostname, Mac};
use basalt_api_derive::Model;
use std::net::IpAddr;

kind! {
    /// A reserved address of a subnet. Only the host that it is declared for gets it.
    IpAddress, "ip_addresses", "basalt_ip_address", Label, declarable: true, IpAddressSpec, IpAddressStatus, ip_address_rules
}

/// An address to reserve.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct IpAddressSpec {
    /// The subnet of the address.
    #[field(immutable)]
    pub subnet: Ref<Subnet>,
    /// The address to reserve; it may be in a `reserved` range. Absent: the next free address, which stays reserved until another
    /// one is declared here.
    pub address: Option<IpAddr>,
    /// MAC address of the interface that gets the address, by DHCP or as the interface of a deployment. A MAC address has one
    /// address of a subnet.
    pub mac: Option<Mac>,
    /// The DHCPv6 identifier of the host that gets the address, for hosts that do not show their MAC address. Only for IPv6
    /// subnets, and instead of `mac`. A DUID has one address of a subnet.
    pub duid: Option<Duid>,
    /// The host name that DHCP announces with the address.
    pub hostname: Option<Hostname>,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// The reserved address.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct IpAddressStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// The address, whether declared or chosen by Basalt.
    pub address: Option<IpAddr>,
}

fn ip_address_rules(spec: &IpAddressSpec, rule: &mut Rule<'_>) {
    if let Some(mac) = spec.mac.filter(|mac| mac.is_multicast() || mac.is_zero()) {
        rule.broken(
            "/mac",
            format!("{mac} is not the address of one interface"),
            "the interface's own address, as its label or `ip link` shows it",
        );
    }
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

#[cfg(test)]
mod tests {
    use crate::Kind;
    use serde_json::json;

    #[test]
    fn an_address_is_kept_for_the_mac_of_one_interface() {
        let wrong = |mac: &str| {
            let spec = json!({"subnet": "lab", "mac": mac});
            let errors = crate::validate(Kind::find("IpAddress").unwrap(), &spec);
            errors.into_iter().map(|error| error.pointer).collect::<Vec<_>>()
        };
        assert_eq!(wrong("52:54:00:00:00:01"), [""; 0]);
        for bad in ["ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "00:00:00:00:00:00"] {
            assert_eq!(wrong(bad), ["/mac"], "{bad}");
        }
    }
}
