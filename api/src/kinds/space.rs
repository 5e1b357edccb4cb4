//! Space: VLANs whose addresses reach each other.

use super::{CommonStatus, kind};
use crate::validate::no_rules;
use basalt_api_derive::Model;

kind! {
    /// A routing domain: the VLANs whose addresses reach each other.
    Space, "spaces", "basalt_space", Label, declarable: true, SpaceSpec, SpaceStatus, no_rules
}

/// A routing domain.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SpaceSpec {
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// The use of the space.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct SpaceStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// Number of VLANs in the space.
    #[field(volatile)]
    pub vlans: Option<u64>,
}
