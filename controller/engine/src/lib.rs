//! The pure planner: spec, facts, policy and now in, a plan out. No I/O, no clock, no randomness.
//!
//! | module | is |
//! | --- | --- |
//! | [`steps`], [`deadlines`], [`failures`] | the tables: what can be done, how long it may take, what each failure means |
//! | [`facts`], [`input`], [`budget`] | what the planner is given |
//! | [`mod@machine`] | [`plan`]: what happens to a machine next; the only source of effects |
//! | [`deployment`], [`select`] | which machine a deployment gets, and how it fares |
//! | [`mod@plan`], [`mod@explain`], [`ends`] | the answer, and in words; how steps ended |
//! | [`render`] | netplan, NoCloud, and the agent's tasks |
//!
//! To add a step: add a row to [`steps::STEPS`], place it in the walk of [`mod@machine`], and give the crash tests its
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

/// Which planner this is: decisions name it.
pub const PLANNER: &str = env!("CARGO_PKG_VERSION");

pub use input::{Claim, MachineInput, Policy};
pub use machine::plan;
pub use plan::Plan;
