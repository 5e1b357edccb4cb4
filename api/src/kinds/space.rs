//! Space: networks that reach each other.

use super::{CommonStatus, kind};
use crate::validate::no_rules;
use basalt_api_derive::Model;

kind! {
    /// A routing world: the VLANs whose addresses reach each other.
    Space, "spaces", "basalt_space", Label, declarable: true, SpaceSpec, SpaceStatus, no_rules
}

/// A routing world.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SpaceSpec {
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// What is in the space.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SpaceStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// VLANs in it.
    #[field(volatile)]
    pub vlans: Option<u64>,
}
