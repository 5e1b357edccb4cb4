//! The border between the API and the engine's driver.
//!
//! The API stores what is declared and answers what is; what will be done about it, what is waited for and what happened is
//! the driver's to say. The API knows it only as [`Machinery`].
//!
//! | module | is |
//! | --- | --- |
//! | [`converge`] | the loop: claim what is due, handle it, finish only what was seen |
//! | [`machine`], [`deployment`], [`rack`], [`image`], [`tag`] | one reconciliation each |
//! | [`allocate`] | machines for deployments, decided in rounds |
//! | [`load`], [`fold`], [`estate`] | the planner's input, from the store; pure but for reading |
//! | [`concerns`] | what racks are told |
//! | [`answers`] | plans, waits and timelines for people |
//! | [`decision`] | why a step was begun, and whether the same would be decided again |
//! | [`poison`] | objects that cannot be worked on |
//! | [`meters`] | what is counted |
//! | [`kill`] | where crash tests kill the process |

pub mod allocate;
pub mod answers;
pub mod concerns;
pub mod converge;
pub mod decision;
pub mod deployment;
pub mod estate;
pub mod fold;
pub mod image;
pub mod kill;
pub mod load;
pub mod machine;
pub mod meters;
pub mod poison;
pub mod rack;
pub mod report_token;
pub mod tag;

pub use converge::Driver;

use basalt_api::plan::PlanReport;
use basalt_api::wire::{Decisions, Timeline, Waits};
use basalt_db::{Object, StoreError};
use serde_json::Value;
use std::future::Future;
use std::pin::Pin;

/// An answer to come.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The kinds whose objects are reconciled. The others are ready as soon as they are stored.
pub const RECONCILED: &[&str] = &["Machine", "Deployment", "Rack", "Image", "Tag"];

/// Those of them that something is done for, their leaving included, so that there is a plan to ask for.
pub const PLANNED: &[&str] = &["Machine", "Deployment", "Rack"];

/// The kinds that are stored and served, and on which nothing acts yet: their conditions say so. Whatever comes to act on one
/// takes its line away. (The rest of the kinds either are read by what acts on machines, or only group others.)
pub const STORED_ONLY: &[&str] = &[
    "StaticRoute",
    "Domain",
    "DnsRecord",
    "ImageSource",
    "Script",
    "PackageRepository",
    "SshKey",
    "Device",
    "Discovery",
];

/// What the driver answers about an object of a [`PLANNED`] kind. Each of these reads, and changes nothing.
pub trait Machinery: Send + Sync + 'static {
    /// What will be done, were the object's spec `spec`; `None` for the one it has. The object of a spec that is not stored yet has
    /// a uid that nobody knows.
    fn plan<'a>(&'a self, object: &'a Object, spec: Option<&'a Value>) -> Answer<'a, PlanReport>;

    /// What is waited for.
    fn waits<'a>(&'a self, object: &'a Object) -> Answer<'a, Waits>;

    /// Racks that are connected to this process.
    fn rack_links(&self) -> usize;

    /// What happened.
    fn timeline<'a>(&'a self, object: &'a Object) -> Answer<'a, Timeline>;

    /// What was decided, the newest first, below the id `before`; with `replays`, decided again from what it rested on.
    fn decisions<'a>(
        &'a self,
        object: &'a Object,
        before: Option<i64>,
        replays: bool,
    ) -> Answer<'a, Decisions>;

    /// What this process has counted.
    fn counts(&self) -> meters::Counts;
}
