//! Zone and Pool: failure domains, and groups of machines.

use super::{CommonStatus, kind};
use crate::validate::no_rules;
use basalt_api_derive::Model;

kind! {
    /// A failure domain: machines, racks and switches that fail together.
    Zone, "zones", "basalt_zone", Label, declarable: true, ZoneSpec, ZoneStatus, no_rules
}

/// A failure domain.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ZoneSpec {
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// The use of the zone.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ZoneStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Number of machines in the zone.
    #[field(volatile)]
    pub machines: Option<u64>,
}

kind! {
    /// A group of machines with a common purpose. Roles can be limited to pools.
    Pool, "pools", "basalt_pool", Label, declarable: true, PoolSpec, PoolStatus, no_rules
}

/// A group of machines.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct PoolSpec {
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// The use of the pool.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct PoolStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Number of machines in the pool.
    #[field(volatile)]
    pub machines: Option<u64>,
    /// Number of machines in the pool that a deployment could take now.
    #[field(volatile)]
    pub ready: Option<u64>,
}
