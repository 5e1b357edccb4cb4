//! The pure planner: it computes a plan from spec, facts, policy and the present time. No I/O, no clock, no randomness.
//!
//! | module | is |
//! | --- | --- |
//! | [`steps`], [`deadlines`], [`failures`] | the tables: the possible steps, the time limits, and the rule for each failure |
//! | [`facts`], [`input`], [`budget`] | the planner's input |
//! | [`mod@machine`] | [`plan`]: the next action on a machine; the only source of effects |
//! | [`deployment`], [`select`] | the choice of a machine for a deployment, and the deployment's state |
//! | [`mod@plan`], [`mod@explain`], [`ends`] | the plan, its explanation in sentences, and the results of steps |
//! | [`render`] | netplan, NoCloud, and the agent's tasks |
//!
//! To add a step: add a row to [`steps::STEPS`], add it to the walk of [`mod@machine`], and give the crash tests its
//! kill point. To add a failure: add a row to [`failures`].
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod budget;
pub mod deadlines;
pub mod deployment;
mod disks;
pub mod ends;
pub mod explain;
pub mod facts;
pub mod failures;
pub mod input;
pub mod machine;
pub mod plan;
pub mod render;
pub mod select;
pub mod steps;
#[cfg(test)]
mod words;

pub use explain::explain;

/// The version of the planner, which decisions name.
pub const PLANNER: &str = env!("CARGO_PKG_VERSION");

pub use input::{Claim, MachineInput, Policy};
pub use machine::plan;
pub use plan::Plan;
