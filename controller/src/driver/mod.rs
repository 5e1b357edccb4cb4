//! The border between the API and the engine's driver.
//!
//! The API stores declarations and returns the present state. The driver knows the next actions, the waits, and the history; the
//! API reaches the driver only through [`Machinery`].
//!
//! | module | is |
//! | --- | --- |
//! | [`converge`] | the loop: claim objects that are due, handle them, finish the wake-ups that were seen |
//! | [`wakes`] | wake-ups of objects that depend on changed ones |
//! | [`machine`], [`deployment`], [`rack`], [`image`], [`tag`] | the reconciliation of one kind each |
//! | [`allocate`] | machines for deployments, decided in rounds |
//! | [`addresses`] | addresses of deployments' interfaces |
//! | `machine_addresses` | addresses of the systems on machines |
//! | [`load`], [`fold`], [`estate`] | the planner's input, read from the store and computed |
//! | [`topology`] | the estate in memory: everything that is the same for all machines |
//! | [`scripts`] | the declared scripts of commissioning and release |
//! | [`hardware_tests`] | rows of hardware tests, and their meaning for a machine |
//! | [`bmc_account`] | accounts that machines make on their own BMCs |
//! | `operation` | one-time requests of people, for the planner and in words |
//! | [`entries`] | the entries of one machine in racks' concerns, and the racks that get them |
//! | [`common`] | the concerns that all racks share |
//! | [`concerns`] | the concerns of one rack |
//! | `concerns6`, `ntp`, `proxy` | parts of concerns for DHCPv6, NTP and the caching proxy |
//! | `packages`, `syslog`, [`report_token`] | package repositories, log receivers and the report token of installed systems |
//! | [`departure`] | the racks that replace one that stops serving |
//! | [`consequences`] | the effects of a write on machines that it does not name |
//! | [`tag_change`] | the machines that gain or lose a tag by a write |
//! | [`answers`] | plans, waits and timelines for people |
//! | [`services`] | the state of a rack's services, from its reports |
//! | [`serving`] | the state of DHCP on VLANs and subnets, for people |
//! | [`decision`] | the reasons of steps, and replays of decisions |
//! | [`poison`], [`unread`] | objects whose handling fails, and objects that cannot be read |
//! | [`strangers`], [`discovery`] | undeclared machines: inspection by racks, and enlistment; undeclared DHCP servers |
//! | [`zones`] | zones of the DNS, and the names of machines |
//! | `conditions` | conditions of objects that are ready or need a person |
//! | [`meters`] | counters |
//! | [`kill`] | the places where crash tests kill the process |

pub mod addresses;
pub mod allocate;
pub mod answers;
pub mod bmc_account;
pub mod bmc_destination;
pub mod common;
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
pub(crate) mod proxy;
pub mod rack;
pub mod report_token;
pub mod scripts;
pub mod services;
pub mod serving;
pub mod strangers;
mod syslog;
pub mod tag;
pub mod tag_change;
pub mod topology;
pub mod unread;
pub mod wakes;
pub mod zones;

pub use converge::Driver;

use crate::racks;
use basalt_api::agent::Script;
use basalt_api::plan::{Consequences, PlanReport};
use basalt_api::values::{DeploymentId, Timestamp, Uid};
use basalt_api::wire::{Decisions, NameReport, Timeline, Verb, Waits};
use basalt_db::{Allocation, Object, Overlay, StoreError};
use basalt_engine::select::{Choice, Ground};
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A future result of the driver.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The kinds whose objects are reconciled. The others are ready as soon as they are stored.
pub const RECONCILED: &[&str] = &["Machine", "Deployment", "Rack", "Image", "Tag", "Discovery", "Domain"];

/// Kinds with work for the driver although their objects are ready as soon as they are stored: a Subnet's addresses have DNS names.
pub const ALSO_WORKED_ON: &[&str] = &["Subnet"];

/// A one-time request on a machine.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// The requested action.
    pub verb: Verb,
    /// The script that `run_script` or `rescue` runs.
    pub script: Option<&'a Script>,
    /// The tests that `test` runs.
    pub tests: &'a [Script],
}

/// The supposed state of an object, for a plan in a dry run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Supposed<'a> {
    /// The object's spec.
    pub spec: Option<&'a Value>,
    /// The machine that it would get, or the reason for none, as decided together with other deployments.
    pub choice: Option<&'a Choice>,
    /// The operation that would be requested.
    pub asked: Option<Wish<'a>>,
}

/// The machines that deployments would get, and the inputs of the choice.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// The choice for each deployment.
    pub by_deployment: BTreeMap<DeploymentId, Choice>,
    /// The inputs of the choice of those machines.
    pub ground: Ground,
}

impl Choices {
    /// The choice in the form in which it is stored with its claims.
    ///
    /// # Errors
    /// Fails only if serialisation fails, which is a bug.
    pub fn allocation(&self, now: Timestamp) -> Result<Allocation, StoreError> {
        allocate::allocation(now, &self.by_deployment, &self.ground)
    }
}

/// The time that an operation may take, or the reason why it is refused.
pub type Judged = Result<std::time::Duration, basalt_engine::machine::Refused>;

/// The driver's answers about objects of [planned](basalt_api::Kind::planned) kinds. Every method only reads.
pub trait Machinery: Send + Sync + 'static {
    /// The plans of these objects in their supposed states, with `others` in theirs. An object that is not stored yet has a uid that
    /// no other object has.
    fn plans<'a>(
        &'a self,
        these: Vec<(&'a Object, Supposed<'a>)>,
        others: Option<&'a Arc<Overlay>>,
    ) -> Answer<'a, Vec<PlanReport>>;

    /// The machines that deployments would get with these specs: one decision for them and for all other deployments without a machine.
    /// Deployments that have a machine are left out. `others` are changed together with them.
    fn choose<'a>(
        &'a self,
        wanted: &'a [(&'a Object, &'a Value)],
        others: Option<&'a Arc<Overlay>>,
    ) -> Answer<'a, Choices>;

    /// The effects on machines that are not among `others`, if those had their supposed states.
    fn consequences<'a>(
        &'a self,
        others: &'a Arc<Overlay>,
        pools: Option<&'a [String]>,
    ) -> Answer<'a, Consequences>;

    /// The subnets and BMCs that other racks would take over from a rack.
    fn departure(&self, rack: Uid) -> Answer<'_, departure::Departure>;

    /// The waits of an object.
    fn waits<'a>(&'a self, object: &'a Object) -> Answer<'a, Waits>;

    /// The networks, and the racks that serve them.
    fn network(&self) -> Answer<'_, serving::Network>;

    /// How racks answer for a name. `pools`: the pools whose machines and deployments may be named; `None`: all.
    fn explain_name<'a>(
        &'a self,
        asked: &'a zones::explain::Asked,
        pools: Option<&'a [String]>,
    ) -> Answer<'a, NameReport>;

    /// Checks that an operation can be requested of a machine in its present state.
    fn judge<'a>(&'a self, machine: &'a Object, verb: Verb) -> Answer<'a, Judged>;

    /// The number of racks that are connected to this process.
    fn rack_links(&self) -> usize;

    /// This process's counters of the racks' port.
    fn rack_counts(&self) -> racks::meters::Counts;

    /// The history of an object.
    fn timeline<'a>(&'a self, object: &'a Object) -> Answer<'a, Timeline>;

    /// The decisions about an object, which may be deleted; newest first, below the id `before`. With `replays`, each is decided again
    /// from its stored inputs.
    fn decisions<'a>(
        &'a self,
        kind: &'a str,
        uid: Uid,
        before: Option<i64>,
        replays: bool,
    ) -> Answer<'a, Decisions>;

    /// This process's counters.
    fn counts(&self) -> meters::Counts;
}

#[cfg(test)]
mod tests {
    use super::RECONCILED;
    use std::collections::BTreeMap;

    /// Kinds without actions of their own: the driver reads them for other objects, or they decide about rights.
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

    /// Kinds that only group other objects.
    const GROUPING: &[&str] = &["Zone", "Pool", "Space", "Fabric"];

    /// A kind that exists only for tests of generic code.
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
        let planned = || basalt_api::KINDS.iter().filter(|kind| kind.planned);
        assert!(planned().all(|kind| RECONCILED.contains(&kind.name)));
    }
}
