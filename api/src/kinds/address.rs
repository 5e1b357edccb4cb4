//! IpAddress: an address of a subnet that is somebody's.

use super::{CommonStatus, Subnet, kind};
use crate::model::Ref;
use crate::validate::no_rules;
use crate::values::{Hostname, Mac};
use basalt_api_derive::Model;
use std::net::IpAddr;

kind! {
    /// An address of a subnet, kept for what it is declared for. Nobody else gets it.
    IpAddress, "ip_addresses", "basalt_ip_address", Label, declarable: true, IpAddressSpec, IpAddressStatus, no_rules
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
