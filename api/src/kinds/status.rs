//! The common part of every status: conditions. Machines and deployments also have axes, and one word computed from
//! the axes.

use crate::values::{Generation, Timestamp};
use basalt_api_derive::Model;
use serde_json::{Map, Value};

/// The fields at the beginning of every status.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct CommonStatus {
    /// The generation of the spec that this status is about.
    #[field(volatile, default = 0)]
    pub observed_generation: Generation,
    /// The default values of this version for fields that the spec leaves out, by the names of the fields.
    #[field(volatile)]
    pub effective: Option<Map<String, Value>>,
    /// The conditions Ready, Progressing and Stalled, and others that the kind reports.
    #[field(volatile)]
    pub conditions: Vec<Condition>,
}

impl CommonStatus {
    /// The condition of type `kind`.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.kind == kind)
    }
}

/// One statement about an object, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct Condition {
    /// The type of the condition: `Ready`, `Progressing`, `Stalled`, …
    #[field(name = "type")]
    pub kind: String,
    /// The truth value of the condition.
    pub status: ConditionStatus,
    /// The reason, as one CamelCase word for programs.
    pub reason: String,
    /// The reason, as a sentence for people.
    pub message: String,
    /// The time since which `status` has its value.
    pub since: Timestamp,
    /// The time at which the wait behind the condition gives up. Absent: there is no such wait.
    pub deadline: Option<Timestamp>,
}

impl Condition {
    /// The object is as its spec says.
    pub const READY: &'static str = "Ready";
    /// Basalt works on the object.
    pub const PROGRESSING: &'static str = "Progressing";
    /// Nothing more will happen by itself: the reason names the action that a person must take. It ends the wait of a client.
    pub const STALLED: &'static str = "Stalled";
    /// The power of a machine is not as wanted. Unknown: the power cannot be read. Absent: the power is as wanted, or no power
    /// state is expected now.
    pub const POWER_DIFFERS: &'static str = "PowerDiffers";
    /// A secondary of a Domain has an older copy of the zone or none, or does not answer. Absent: all copies are current, or racks
    /// have not asked yet.
    pub const SECONDARY_BEHIND: &'static str = "SecondaryBehind";
}

/// The truth value of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// Nobody can tell if the condition holds.
    Unknown,
}

/// The state of a machine or deployment, as five independent axes. The word `phase` is computed from them for people, and no code
/// decides from it.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Axes {
    /// The stage in the life of the object.
    #[field(default = Lifecycle::New)]
    pub lifecycle: Lifecycle,
    /// The state of the present work on the object.
    #[field(default = Operation::Idle)]
    pub operation: Operation,
    /// The step that runs, or the event that is waited for.
    pub operation_detail: Option<String>,
    /// The health of the object.
    #[field(default = Health::Unknown)]
    pub health: Health,
    /// Agreement of the object with its spec.
    #[field(default = Sync::Unknown)]
    pub sync: Sync,
    /// The concerns that Basalt manages or only observes.
    #[field(default)]
    pub ownership: Ownership,
}

/// The stage in the life of a machine or deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Lifecycle {
    /// The object is declared, and no work on it has begun.
    New,
    /// The hardware is being read.
    Commissioning,
    /// The hardware is being tested.
    Testing,
    /// The machine is free to be deployed.
    Ready,
    /// A deployment has claimed the machine.
    Allocated,
    /// The system is being installed.
    Deploying,
    /// The machine runs the system that its deployment declares.
    Deployed,
    /// The machine is being given back.
    Releasing,
    /// The disks are being erased.
    Erasing,
    /// A person works on the machine: its mode is `rescue`, or it has booted the rescue environment.
    Rescue,
    /// A person or the region has set the machine aside.
    Broken,
    /// The machine is out of service for good.
    Retired,
}

/// The state of the work on a machine or deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Operation {
    /// No work runs, and none is due.
    Idle,
    /// A step runs.
    Running,
    /// The work waits for an event, until a deadline.
    Waiting,
    /// A person must act.
    Held,
    /// The fleet budget postpones the work.
    Delayed,
    /// The last attempt failed.
    Failed,
}

/// The health of a machine or deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Health {
    /// No fault is known.
    Ok,
    /// The object works, and needs care.
    Degraded,
    /// The object does not do its work.
    Critical,
    /// Nothing recent is known.
    Unknown,
}

/// Agreement of an object with its spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Sync {
    /// The object is as declared.
    InSync,
    /// The object differs from its spec.
    Drifted,
    /// The facts are too old for a comparison.
    Unknown,
}

/// Ownership of a machine, by the concerns that Basalt can leave to somebody else.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Ownership {
    /// The power of the machine.
    #[field(default = OwnershipMode::Managed)]
    pub power: OwnershipMode,
    /// The system that the machine boots.
    #[field(default = OwnershipMode::Managed)]
    pub boot: OwnershipMode,
}

/// The part that Basalt takes in a concern of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum OwnershipMode {
    /// Basalt brings the machine into the declared state.
    Managed,
    /// Basalt reads the state, and changes nothing.
    Observed,
}

/// One word for people that sums up the axes, like `Deploying` or `Failed deploying`. For display only: code decides from the axes.
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
