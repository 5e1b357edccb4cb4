//! The layout of the machine's disks: partitions, RAIDs, volume groups, volumes, file systems.
//!
//! [`wanted`] lists the needed disks. [`plan()`] computes the actions for the disks that were found. Both are pure functions, and the same
//! for all layouts. [`build`] executes the plan, program by program. [`crate::disk::rules`] has already decided that the disks may be
//! written.
//!
//! | module | is |
//! | --- | --- |
//! | [`wanted`](mod@wanted) | the layout of a task, and the conditions for its disks |
//! | [`plan`](mod@plan) | turns layout and disks into partition tables, calls of programs, mounts, `fstab`, `mdadm.conf` |
//! | [`build`](mod@build) | executes the plan |

pub mod build;
mod call;
pub mod plan;
mod space;
mod table;
mod wanted;

pub use call::Call;
pub use plan::{Boot, Chosen, Esp, Mount, Plan, plan};
pub use table::ESP_NUMBER;
pub use wanted::{Wanted, wanted};
