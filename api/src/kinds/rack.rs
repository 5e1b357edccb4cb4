//! Rack: a rack controller. It enrols itself; clients only read it.

use super::{CommonStatus, Vlan, Zone, kind};
use crate::model::Ref;
use crate::validate::no_rules;
use crate::values::{Generation, Sha256, Timestamp};
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

kind! {
    /// A rack controller: what speaks DHCP, TFTP, HTTP, IPMI and Redfish next to the machines. It enrols with a token.
    Rack, "racks", "basalt_rack", Label, declarable: false, RackSpec, RackStatus, no_rules
}

/// What an operator sets on an enrolled rack.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RackSpec {
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
    /// The failure domain it stands in.
    #[field(dormant = "machines name their zone themselves")]
    pub zone: Option<Ref<Zone>>,
    /// Serve nothing and take no power work, so that the host can be worked on.
    #[field(default = false)]
    pub maintenance: bool,
}

/// How a rack is.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RackStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Whether a region holds its stream.
    #[field(volatile, default = false)]
    pub connected: bool,
    /// When it was last heard of.
    #[field(volatile)]
    pub last_seen: Option<Timestamp>,
    /// Version of its program.
    #[field(volatile)]
    pub version: Option<String>,
    /// SHA-256 of the public key (SubjectPublicKeyInfo) that its HTTPS port shows: what clients pin.
    #[field(volatile)]
    pub spki_sha256: Option<Sha256>,
    /// Its addresses.
    #[field(volatile)]
    pub addresses: Vec<IpAddr>,
    /// VLANs of the interfaces that it serves.
    #[field(volatile)]
    pub vlans: BTreeSet<Ref<Vlan>>,
    /// What it holds of each concern: `dhcp`, `boot`, `dns`, …
    #[field(volatile)]
    pub concerns: BTreeMap<String, ConcernState>,
    /// How each of its services is.
    #[field(volatile)]
    pub services: BTreeMap<String, RackService>,
}

/// What a rack holds of a concern.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ConcernState {
    /// Generation it has applied.
    #[field(default = 0)]
    pub applied: Generation,
    /// Hash of that generation's bytes.
    pub sha256: Option<Sha256>,
    /// Why it refused or failed a newer one.
    pub error: Option<String>,
}

/// How a service is.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RackService {
    /// Whether it runs.
    pub state: ServiceState,
    /// Where it listens, or why it does not.
    pub message: Option<String>,
}

/// Whether a service runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum ServiceState {
    /// It runs.
    Running,
    /// It runs, but not well.
    Degraded,
    /// It does not run.
    Stopped,
}
