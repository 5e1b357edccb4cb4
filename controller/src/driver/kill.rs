//! The places where tests kill a region: before and after the effect of every step with an effect.

pub use basalt_proto::kill::KillPoints;

/// The places of each step.
pub const PLACES: [&str; 2] = ["recorded", "effected"];
