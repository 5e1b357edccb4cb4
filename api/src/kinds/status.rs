//! What every kind reports: conditions and, for what has a life of its own, the axes; and the one word computed from
//! them.

use crate::values::{Generation, Timestamp};
use basalt_api_derive::Model;
use serde_json::{Map, Value};

/// The fields that every status begins with.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct CommonStatus {
    /// The generation of the spec that this status is about.
    #[field(volatile, default = 0)]
    pub observed_generation: Generation,
    /// What fields mean that the spec leaves out, under the names they have there: the defaults of this version.
    #[field(volatile)]
    pub effective: Option<Map<String, Value>>,
    /// Ready, Progressing and Stalled, and whatever else the kind tells.
    #[field(volatile)]
    pub conditions: Vec<Condition>,
}

impl CommonStatus {
    /// The condition of that type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.kind == kind)
    }
}

/// One statement about an object, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct Condition {
    /// What is stated: `Ready`, `Progressing`, `Stalled`, …
    #[field(name = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, as one CamelCase word for programs.
    pub reason: String,
    /// Why, as a sentence for people.
    pub message: String,
    /// Since when `status` is what it is.
    pub since: Timestamp,
    /// When a wait behind it gives up, if there is one.
    pub deadline: Option<Timestamp>,
}

impl Condition {
    /// The object is as its spec says.
    pub const READY: &'static str = "Ready";
    /// Basalt is at work on the object.
    pub const PROGRESSING: &'static str = "Progressing";
    /// Nothing more will happen by itself: the reason says what a person must do. Ends a client's wait.
    pub const STALLED: &'static str = "Stalled";
    /// The power of a machine is not as it ought to be. Unknown: it cannot be read. Absent: it is as it ought to be, or nothing is
    /// expected of it now.
    pub const POWER_DIFFERS: &'static str = "PowerDiffers";
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It cannot be told.
    Unknown,
}

/// The five independent answers to "how is it?". No code decides from the word computed of them.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Axes {
    /// Where it is in its life.
    #[field(default = Lifecycle::New)]
    pub lifecycle: Lifecycle,
    /// What is being done to it.
    #[field(default = Operation::Idle)]
    pub operation: Operation,
    /// The step that runs, or what is waited for.
    pub operation_detail: Option<String>,
    /// How well it is.
    #[field(default = Health::Unknown)]
    pub health: Health,
    /// Whether it is as its spec says.
    #[field(default = Sync::Unknown)]
    pub sync: Sync,
    /// Who is in charge, concern by concern.
    #[field(default)]
    pub ownership: Ownership,
}

/// Where a machine or deployment is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Lifecycle {
    /// Known, not yet looked at.
    New,
    /// Its hardware is being read.
    Commissioning,
    /// Its hardware is being tested.
    Testing,
    /// Free to be deployed.
    Ready,
    /// Claimed by a deployment.
    Allocated,
    /// Being installed.
    Deploying,
    /// Runs what its deployment declares.
    Deployed,
    /// Being given back.
    Releasing,
    /// Its disks are being erased.
    Erasing,
    /// Somebody works on it: its mode says so, or it is in the rescue environment.
    Rescue,
    /// Set aside by a person or by the region.
    Broken,
    /// Out of service for good.
    Retired,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Operation {
    /// Nothing, and nothing is due.
    Idle,
    /// A step runs.
    Running,
    /// Something is waited for, until a deadline.
    Waiting,
    /// A person must act.
    Held,
    /// The fleet budget says later.
    Delayed,
    /// The last attempt failed.
    Failed,
}

/// How well it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Health {
    /// Nothing wrong is known.
    Ok,
    /// It works, but something needs care.
    Degraded,
    /// It does not do its work.
    Critical,
    /// Nothing recent is known.
    Unknown,
}

/// Whether it is as its spec says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Sync {
    /// As declared.
    InSync,
    /// Not as declared.
    Drifted,
    /// The facts are too old to tell.
    Unknown,
}

/// Ownership of a machine, by the concerns that Basalt can leave to somebody else.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Ownership {
    /// Its power.
    #[field(default = OwnershipMode::Managed)]
    pub power: OwnershipMode,
    /// What it boots.
    #[field(default = OwnershipMode::Managed)]
    pub boot: OwnershipMode,
}

/// Who is in charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum OwnershipMode {
    /// Basalt makes it as declared.
    Managed,
    /// Basalt looks, and changes nothing.
    Observed,
}

/// The one word a person reads, like `Deploying` or `Failed deploying`. For display only: code decides from the axes.
#[must_use]
pub fn phase(axes: &Axes) -> &'static str {
    use Lifecycle as L;
    let failed = axes.operation == Operation::Failed;
    match (axes.lifecycle, failed) {
        (L::New, false) => "New",
        (L::New, true) => "Failed",
        (L::Commissioning, false) => "Commissioning",
        (L::Commissioning, true) => "Failed commissioning",
        (L::Testing, false) => "Testing",
        (L::Testing, true) => "Failed testing",
        (L::Ready, _) => "Ready",
        (L::Allocated, _) => "Allocated",
        (L::Deploying, false) => "Deploying",
        (L::Deploying, true) => "Failed deploying",
        (L::Deployed, _) => "Deployed",
        (L::Releasing, false) => "Releasing",
        (L::Releasing, true) => "Failed releasing",
        (L::Erasing, false) => "Erasing",
        (L::Erasing, true) => "Failed erasing",
        (L::Rescue, _) => "Rescue",
        (L::Broken, _) => "Broken",
        (L::Retired, _) => "Retired",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phase_says_which_work_failed() {
        let mut axes = Axes { lifecycle: Lifecycle::Deploying, ..Axes::default() };
        assert_eq!(phase(&axes), "Deploying");
        axes.operation = Operation::Failed;
        assert_eq!(phase(&axes), "Failed deploying");
        axes.lifecycle = Lifecycle::Deployed;
        assert_eq!(phase(&axes), "Deployed", "a failed refresh does not undeploy a machine");
    }
}
