//! Rack: a rack controller. It enrols itself; clients do not declare it.

use super::{CommonStatus, Vlan, Zone, kind};
use crate::model::Ref;
use crate::validate::no_rules;
use crate::values::{Generation, Sha256, Timestamp};
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

kind! {
    /// A rack controller: the process next to the machines that speaks DHCP, TFTP, HTTP, IPMI and Redfish. It enrols itself with
    /// a token.
    #[planned = true]
    Rack, "racks", "basalt_rack", Label, declarable: false, RackSpec, RackStatus, no_rules
}

/// The part of an enrolled rack that operators write.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RackSpec {
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
    /// The failure domain of the rack.
    #[field(dormant = "machines name their zone themselves")]
    pub zone: Option<Ref<Zone>>,
    /// True: the rack serves nothing and takes no power work, so that a person can work on its host.
    #[field(default = false)]
    pub maintenance: bool,
}

/// The state of a rack.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RackStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// True: the rack has a stream to a region.
    #[field(volatile, default = false)]
    pub connected: bool,
    /// The time of the last message from the rack.
    #[field(volatile)]
    pub last_seen: Option<Timestamp>,
    /// Version of the rack's program.
    #[field(volatile)]
    pub version: Option<String>,
    /// SHA-256 of the public key (SubjectPublicKeyInfo) of the rack's HTTPS port. Clients pin it.
    #[field(volatile)]
    pub spki_sha256: Option<Sha256>,
    /// IP addresses of the rack.
    #[field(volatile)]
    pub addresses: Vec<IpAddr>,
    /// VLANs of the interfaces that the rack serves.
    #[field(volatile)]
    pub vlans: BTreeSet<Ref<Vlan>>,
    /// The configuration that the rack has applied, by concern: `dhcp`, `boot`, `dns`, …
    #[field(volatile)]
    pub concerns: BTreeMap<String, ConcernState>,
    /// The state of each service of the rack.
    #[field(volatile)]
    pub services: BTreeMap<String, RackService>,
    /// The rack's cache of image files, as the rack last reported it. It reports changes within about a minute.
    #[field(volatile)]
    pub cache: Option<RackCache>,
    /// The running leases of dynamic addresses that the rack has granted, by subnet. Counted about once a minute.
    #[field(volatile)]
    pub leases: BTreeMap<String, RackLeases>,
}

/// A rack's cache of image files.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RackCache {
    /// The number of files in the cache.
    #[field(default = 0)]
    pub files: u64,
    /// The size of the cache in bytes, with the files that are being fetched.
    #[field(default = 0)]
    pub bytes: u64,
    /// The most bytes that the cache may have.
    #[field(default = 0)]
    pub limit_bytes: u64,
    /// The images of which the cache has files.
    pub images: BTreeMap<String, CachedImage>,
    /// Files of images in the cache that the rack does not name: it names 256.
    #[field(default = 0)]
    pub unnamed: u64,
    /// The time of the report.
    pub reported_at: Option<Timestamp>,
}

/// An image in a rack's cache.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct CachedImage {
    /// The number of the image's files in the cache.
    pub held: u64,
    /// The number of the image's files.
    pub files: u64,
}

/// The leases of a rack in a subnet.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RackLeases {
    /// The number of leases that run.
    pub running: u64,
    /// The number of dynamic addresses that the rack may lease in the subnet.
    pub addresses: u64,
}

/// The configuration of a concern on a rack.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ConcernState {
    /// The generation that the rack has applied.
    #[field(default = 0)]
    pub applied: Generation,
    /// SHA-256 of that generation's bytes.
    pub sha256: Option<Sha256>,
    /// The reason why the rack refused a newer generation, or failed to apply it.
    pub error: Option<String>,
}

/// The state of a service.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct RackService {
    /// The running state of the service.
    pub state: ServiceState,
    /// The addresses at which the service listens, or the reason why it does not.
    pub message: Option<String>,
}

/// The running state of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum ServiceState {
    /// The service runs.
    Running,
    /// The service runs, but not well.
    Degraded,
    /// The service does not run.
    Stopped,
}
