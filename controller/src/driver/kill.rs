//! Where a region may be killed on purpose: before and after the effect of every step with one.

pub use basalt_proto::kill::KillPoints;

/// The places of each step.
pub const PLACES: [&str; 2] = ["recorded", "effected"];
