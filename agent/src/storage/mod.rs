//! What is built on the machine's disks: partitions, RAIDs, volume groups, volumes, file systems.
//!
//! [`wanted`] says which disks are needed, and [`plan()`] what is done to those that were found: both are pure, and there is one way for all
//! layouts. [`build`] does what was planned, program by program. Nothing here decides whether a disk may be written: that is
//! [`crate::disk::rules`], and it was asked about every disk before.
//!
//! | module | is |
//! | --- | --- |
//! | [`wanted`](mod@wanted) | the layout of a task, and how its disks are recognised |
//! | [`plan`](mod@plan) | layout and disks become partition tables, calls of programs, mounts, `fstab`, `mdadm.conf` |
//! | [`build`](mod@build) | the plan is carried out |

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
