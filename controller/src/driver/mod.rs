//! The border between the API and the engine's driver.
//!
//! The API stores what is declared and answers what is; what will be done about it, what is waited for and what happened is
//! the driver's to say. The API knows it only as [`Machinery`].
//!
//! | module | is |
//! | --- | --- |
//! | [`converge`] | the loop: claim what is due, handle it, finish only what was seen |
//! | [`wakes`] | what is worked on anew because something else has changed |
//! | [`machine`], [`deployment`], [`rack`], [`image`], [`tag`] | one reconciliation each |
//! | [`allocate`] | machines for deployments, decided in rounds |
//! | [`addresses`] | addresses of deployments' interfaces |
//! | `machine_addresses` | addresses of machines: of what runs on them |
//! | [`load`], [`fold`], [`estate`] | the planner's input, from the store; pure but for reading |
//! | [`topology`] | the estate in memory: everything that is the same for all machines |
//! | [`scripts`] | what belongs to commissioning and release, as it is declared |
//! | [`entries`] | what racks are told of one machine, and which racks |
//! | [`concerns`] | what racks are told |
//! | [`departure`] | who takes over from a rack that serves no longer |
//! | [`consequences`] | what follows for machines that a write does not name |
//! | [`answers`] | plans, waits and timelines for people |
//! | [`services`] | how a rack's services are, from what it said of them |
//! | [`serving`] | whether VLANs and subnets are served, as people are told |
//! | [`decision`] | why a step was begun, and whether the same would be decided again |
//! | [`poison`], [`unread`] | objects that cannot be worked on; those that cannot be read for others |
//! | [`strangers`] | undeclared machines: whom racks inspect, and what is made of them |
//! | [`zones`] | zones of the DNS, and the names of machines |
//! | [`meters`] | what is counted |
//! | [`kill`] | where crash tests kill the process |

pub mod addresses;
pub mod allocate;
pub mod answers;
pub mod bmc_account;
pub mod concerns;
mod concerns6;
mod conditions;
pub mod consequences;
pub mod converge;
pub mod decision;
pub mod departure;
pub mod deployment;
pub mod discovery;
pub mod entries;
pub mod estate;
pub mod fold;
pub mod hardware_tests;
pub mod image;
pub mod kill;
pub mod load;
pub mod machine;
mod machine_addresses;
pub mod meters;
mod ntp;
mod operation;
mod packages;
pub mod poison;
mod proxy;
pub mod rack;
pub mod report_token;
pub mod scripts;
pub mod services;
pub mod serving;
pub mod strangers;
mod syslog;
pub mod tag;
pub mod topology;
pub mod unread;
pub mod wakes;
pub mod zones;

pub use converge::Driver;

use crate::racks;
use basalt_api::agent::Script;
use basalt_api::plan::{Consequences, PlanReport};
use basalt_api::values::{DeploymentId, Timestamp, Uid};
use basalt_api::wire::{Decisions, Timeline, Verb, Waits};
use basalt_db::{Allocation, Object, Overlay, StoreError};
use basalt_engine::select::{Choice, Ground};
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// An answer to come.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The kinds whose objects are reconciled. The others are ready as soon as they are stored.
pub const RECONCILED: &[&str] = &["Machine", "Deployment", "Rack", "Image", "Tag", "Discovery", "Domain"];

/// Kinds that there is work for although their objects are ready as soon as they are stored: a Subnet's addresses have names.
pub const ALSO_WORKED_ON: &[&str] = &["Subnet"];

/// Those of them that something is done for, their leaving included, so that there is a plan to ask for.
pub const PLANNED: &[&str] = &["Machine", "Deployment", "Rack"];

/// What is asked of a machine once.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// What is to be done.
    pub verb: Verb,
    /// The script that `run_script` or `rescue` runs.
    pub script: Option<&'a Script>,
    /// The tests that `test` runs.
    pub tests: &'a [Script],
}

/// What is not as it is stored, for a plan of what would be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Supposed<'a> {
    /// The object's spec.
    pub spec: Option<&'a Value>,
    /// The machine that it gets or does not get, as it was decided together with others.
    pub choice: Option<&'a Choice>,
    /// What is asked of it.
    pub asked: Option<Wish<'a>>,
}

/// Which machines deployments would get, and what the choice rests on.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// By deployment.
    pub by_deployment: BTreeMap<DeploymentId, Choice>,
    /// What the machines that were chosen depend on.
    pub ground: Ground,
}

impl Choices {
    /// The choice as it is stored together with its claims.
    ///
    /// # Errors
    /// None that a sound program meets.
    pub fn allocation(&self, now: Timestamp) -> Result<Allocation, StoreError> {
        allocate::allocation(now, &self.by_deployment, &self.ground)
    }
}

/// How long what is asked of a machine once may take, or why it is not done.
pub type Judged = Result<std::time::Duration, basalt_engine::machine::Refused>;

/// What the driver answers about an object of a [`PLANNED`] kind. Each of these reads, and changes nothing.
pub trait Machinery: Send + Sync + 'static {
    /// What will be done with each of these, were they as supposed, and `others` as they would be. The object of a spec that is
    /// not stored yet has a uid that nobody knows.
    fn plans<'a>(
        &'a self,
        these: Vec<(&'a Object, Supposed<'a>)>,
        others: Option<&'a Arc<Overlay>>,
    ) -> Answer<'a, Vec<PlanReport>>;

    /// Which machines deployments would get, were they as these specs say: one decision for all of them, and for all others that
    /// wait. Those that have a machine are left out. `others` are changed together with them.
    fn choose<'a>(
        &'a self,
        wanted: &'a [(&'a Object, &'a Value)],
        others: Option<&'a Arc<Overlay>>,
    ) -> Answer<'a, Choices>;

    /// What would happen to machines that are not among `others`, were those as they would be.
    fn consequences<'a>(&'a self, others: &'a Arc<Overlay>) -> Answer<'a, Consequences>;

    /// The subnets and BMCs that others take over from a rack.
    fn departure(&self, rack: Uid) -> Answer<'_, departure::Departure>;

    /// What is waited for.
    fn waits<'a>(&'a self, object: &'a Object) -> Answer<'a, Waits>;

    /// The networks, and the racks that serve them.
    fn network(&self) -> Answer<'_, serving::Network>;

    /// Whether something can be asked of a machine as it is now.
    fn judge<'a>(&'a self, machine: &'a Object, verb: Verb) -> Answer<'a, Judged>;

    /// Racks that are connected to this process.
    fn rack_links(&self) -> usize;

    /// What this process has counted of the racks' port.
    fn rack_counts(&self) -> racks::meters::Counts;

    /// What happened.
    fn timeline<'a>(&'a self, object: &'a Object) -> Answer<'a, Timeline>;

    /// What was decided about an object, which may be gone; the newest first, below the id `before`. With `replays`, decided again
    /// from what it rested on.
    fn decisions<'a>(
        &'a self,
        kind: &'a str,
        uid: Uid,
        before: Option<i64>,
        replays: bool,
    ) -> Answer<'a, Decisions>;

    /// What this process has counted.
    fn counts(&self) -> meters::Counts;
}

#[cfg(test)]
mod tests {
    use super::{PLANNED, RECONCILED};
    use std::collections::BTreeMap;

    /// On which nothing acts by itself, and which is read by what acts on others, or decides who may ask.
    const READ_BY_OTHERS: &[&str] = &[
        "Vlan",
        "Subnet",
        "IpRange",
        "IpAddress",
        "StaticRoute",
        "Device",
        "DnsRecord",
        "Settings",
        "Script",
        "PackageRepository",
        "Webhook",
        "Role",
        "User",
        "ApiToken",
    ];

    /// What only groups others.
    const GROUPING: &[&str] = &["Zone", "Pool", "Space", "Fabric"];

    /// A kind for tests of what is general.
    const FOR_TESTS: &[&str] = &["Sample"];

    #[test]
    fn each_kind_is_in_exactly_one_class() {
        let is_dormant = |kind: &&&basalt_api::Kind| kind.dormant.is_some();
        let dormant: Vec<&str> = basalt_api::KINDS.iter().filter(is_dormant).map(|kind| kind.name).collect();
        let classes = [RECONCILED, &dormant, READ_BY_OTHERS, GROUPING, FOR_TESTS];
        let mut times: BTreeMap<&str, usize> = basalt_api::KINDS.iter().map(|kind| (kind.name, 0)).collect();
        for name in classes.into_iter().flatten().filter(|name| !FOR_TESTS.contains(name)) {
            *times.get_mut(name).unwrap_or_else(|| panic!("there is no kind {name}")) += 1;
        }
        times.retain(|name, times| *times != usize::from(!FOR_TESTS.contains(name)));
        assert!(times.is_empty(), "a new kind says here what becomes of it: {times:?}");
        assert!(PLANNED.iter().all(|kind| RECONCILED.contains(kind)));
    }
}
