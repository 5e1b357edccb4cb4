//! Zone and Pool: where machines stand, and whom they serve.

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
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// What stands in the zone.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ZoneStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Machines in it.
    #[field(volatile)]
    pub machines: Option<u64>,
}

kind! {
    /// A group of machines set aside for a purpose, and the unit that roles are limited to.
    Pool, "pools", "basalt_pool", Label, declarable: true, PoolSpec, PoolStatus, no_rules
}

/// A group of machines.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct PoolSpec {
    /// What it is for, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// What is in the pool.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct PoolStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Machines in it.
    #[field(volatile)]
    pub machines: Option<u64>,
    /// Of these, machines that a deployment could take now.
    #[field(volatile)]
    pub ready: Option<u64>,
}
