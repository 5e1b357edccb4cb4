//! The border between the API and the engine's driver: the API stores declarations, and asks the driver for plans, waits and histories.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use basalt_api::plan::{Consequences, PlanReport};
use basalt_api::values::{DeploymentId, Timestamp, Uid};
use basalt_api::wire::{Decisions, NameReport, Timeline, Verb, Waits};
use basalt_db::{Allocation, Object, Overlay, StoreError};
use basalt_engine::select::{Choice, Ground};
use serde_json::Value;

use crate::driver::allocate;
use crate::driver::answers::{departure, names, serving};
use crate::driver::machine::operation::RequestedOperation;
use crate::driver::meters;
use crate::racks;

/// A future result of the driver.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The supposed state of an object, for a plan in a dry run.
#[derive(Clone, Copy, Debug, Default)]
pub struct SupposedState<'a> {
    /// The object's spec.
    pub spec: Option<&'a Value>,
    /// The machine that it would get, or the reason for none, as decided together with other deployments.
    pub choice: Option<&'a Choice>,
    /// The operation that would be requested.
    pub asked: Option<RequestedOperation<'a>>,
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
        these: Vec<(&'a Object, SupposedState<'a>)>,
        others: Option<&'a Arc<Overlay>>,
    ) -> Answer<'a, Vec<PlanReport>>;

    /// The machines that deployments would get with these specs. One decision is made for all deployments without a machine.
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
        asked: &'a names::Asked,
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
