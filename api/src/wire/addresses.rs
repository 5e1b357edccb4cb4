//! Addresses in use or reserved, and their owners: answer to `GET /api/v1/addresses`.

use crate::values::{Duid, Mac, Name, Timestamp};
use basalt_api_derive::Shape;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A page of addresses, by subnet and address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct AddressPage {
    /// This page's entries.
    pub items: Vec<AddressEntry>,
    /// Goes into the next request; absent on the last page.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One address with a reason why it is not free. An address has one entry for each reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct AddressEntry {
    /// IPv4 or IPv6, without a prefix length.
    pub address: IpAddr,
    /// The Subnet that it is in.
    pub subnet: Name,
    /// The reason why it is not free.
    pub source: AddressSource,
    /// The object that has the address. `source` implies its kind. Absent for a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Name>,
    /// The interface, for a deployment's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The Machine that declares the address, whose MAC this is, or which the deployment has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Name>,
    /// The Device whose MAC this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Name>,
    /// MAC address of the host, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// DUID of the host, for an IpAddress that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duid: Option<Duid>,
    /// Host name from a DHCP request or an IpAddress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The Rack that granted the lease, while the Rack exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<Name>,
    /// When the lease ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
}

/// The reason why an address is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Shape)]
#[serde(rename_all = "snake_case")]
pub enum AddressSource {
    /// The gateway of its subnet.
    Gateway,
    /// An IpAddress reserves it.
    IpAddress,
    /// A Device has it.
    Device,
    /// An interface of a Deployment has it.
    Deployment,
    /// A Machine declares it for an interface.
    Machine,
    /// A Rack has it.
    Rack,
    /// A rack leased it to a client, and the lease has not ended.
    Lease,
}

impl AddressSource {
    /// Every source, in the order of the enum.
    pub const ALL: [Self; 7] = [
        Self::Gateway,
        Self::IpAddress,
        Self::Device,
        Self::Deployment,
        Self::Machine,
        Self::Rack,
        Self::Lease,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::IpAddress => "ip_address",
            Self::Device => "device",
            Self::Deployment => "deployment",
            Self::Machine => "machine",
            Self::Rack => "rack",
            Self::Lease => "lease",
        }
    }

    /// The source with this word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == text)
    }
}
