//! The planner's output: steps, waits, the machine's boot action, and a report.

use basalt_api::agent::EraseLevel;
use basalt_api::kinds::{Axes, Condition, InstallStage, NetworkConfig};
use basalt_api::values::{Attempt, DeploymentId, Epoch, OperationId, Sha256, Timestamp};
use basalt_api::wire::OperationState;
use serde::{Deserialize, Serialize};

use crate::facts::{Cause, Scope, StepKey, StepRecord};
use crate::input::FirstBootScripts;
use crate::steps::{EffectKind, StepId};

/// The result of one run of the planner.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The steps to begin now: at most one, because a machine has one power button.
    pub next: Vec<PlannedStep>,
    /// The steps that follow in this order if nothing fails.
    pub later: Vec<LaterStep>,
    /// The present waits. Empty when a step is to begin, or when nothing is left to do.
    pub waits: Vec<Wait>,
    /// The state of each operation in the input.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<OperationSeen>,
    /// The boot action that the racks are to have for this machine.
    pub boot: BootAction,
    /// The attempt that writes the machine's disks, or may begin to at any moment. It counts in the fleet's budget.
    pub writes: Option<Attempt>,
    /// The state of the machine.
    pub report: Report,
    /// Notes for people about an install to come: the disk of a storage that names none, and misfits with the hardware. They decide
    /// nothing.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// When to plan again although no fact has arrived: the earliest deadline.
    pub wake_at: Option<Timestamp>,
    /// SHA-256 over the planned actions and their scopes. The passage of time alone does not change it.
    pub digest: Sha256,
}

impl Plan {
    /// True if a wait keeps this step from beginning.
    pub(crate) fn waits_to(&self, step: StepId) -> bool {
        self.waits.iter().any(|wait| wait.step == Some(step))
    }

    /// The announced sequence: steps with an effect, in order.
    #[must_use]
    pub fn announced(&self) -> Vec<StepId> {
        let later = self.later.iter().map(|s| s.step);
        let all = self.next.iter().map(|s| s.step).chain(later);
        all.filter(|s| s.spec().effect != EffectKind::Observe).collect()
    }
}

/// A step to begin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedStep {
    /// The step's key. Record the step under it, then do the effect.
    pub key: StepKey,
    /// The row of the table of steps.
    pub step: StepId,
    /// The purpose of the step.
    pub scope: Scope,
    /// The number of this try, from 1.
    pub try_no: u32,
    /// The effect to cause.
    pub effect: Effect,
    /// The attempt that the step belongs to. An arming step gets its own from the driver.
    pub attempt: Option<Attempt>,
    /// True if a record with this key exists: only the effect is to be repeated.
    pub resume: bool,
    /// The cause, for the record.
    pub cause: Cause,
    /// The fingerprint of an install, for the record.
    pub fingerprint: Option<Sha256>,
    /// The network of an install, for the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkConfig>,
    /// The scripts of the first boot after an install, for the record.
    #[serde(skip_serializing_if = "FirstBootScripts::are_none")]
    pub first_boot: FirstBootScripts,
    /// The effect must not begin after this time. It goes into the record.
    pub not_after: Timestamp,
}

impl PlannedStep {
    /// The record to store before the effect begins. `attempt` is the newly allocated one if the step arms.
    #[must_use]
    pub fn record(&self, attempt: Option<Attempt>, epoch: Epoch, now: Timestamp) -> StepRecord {
        StepRecord {
            key: self.key.clone(),
            step: self.step,
            scope: self.scope,
            attempt: attempt.or(self.attempt),
            epoch,
            cause: self.cause.clone(),
            fingerprint: self.fingerprint,
            network: self.network.clone(),
            first_boot: self.first_boot.clone(),
            started_at: now,
            delivered_at: (self.step.spec().effect != EffectKind::Power).then_some(now),
            not_after: self.not_after,
        }
    }
}

/// A step that follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaterStep {
    /// The key that it would have now.
    pub key: StepKey,
    /// The row of the table of steps.
    pub step: StepId,
}

/// The effect of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Effect {
    /// Send a power command with the step's key as `step_key` and `command_id`. A rack that has seen the id repeats its first
    /// answer.
    Power {
        /// The power command.
        verb: Verb,
        /// The device for the next boot; it is set before the command.
        device: BootDevice,
    },
    /// Take the next number of the attempt sequence and a fresh attempt key, compose the task, and record all of it.
    /// The plan's `boot` names the attempt from then on.
    Arm {
        /// The kind of the task.
        task: TaskKind,
    },
    /// Drop the claim and delete the deployment's object.
    LetGo {
        /// The deployment whose claim is dropped.
        deployment: DeploymentId,
        /// True to mark the machine unwiped.
        unwiped: bool,
    },
    /// Delete the machine's object.
    Forget,
}

/// A power command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Read the power state.
    Status,
    /// Switch the machine on.
    On,
    /// Ask the system to shut down.
    SoftOff,
    /// Switch off at once.
    Off,
    /// Switch off and on.
    Cycle,
    /// Restart the BMC itself. The machine is not touched.
    ResetBmc,
}

/// The boot device to set for the next boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootDevice {
    /// Leave the setting unchanged.
    Unchanged,
    /// The network, once.
    PxeOnce,
    /// The disk, from now on.
    Disk,
}

/// A task of the ephemeral environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    /// Read the hardware.
    Inventory,
    /// Install a deployment's system.
    Install,
    /// Erase the disks.
    Erase(#[serde(with = "erase_level")] EraseTask),
    /// Run the script or tests of an operation.
    Script,
    /// Run the rescue environment, in which people repair the machine.
    Rescue,
}

/// How thoroughly to erase; ordered, unlike the wire's [`EraseLevel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EraseTask {
    /// [`EraseLevel::Quick`]
    Quick,
    /// [`EraseLevel::Full`]
    Full,
}

impl From<EraseTask> for EraseLevel {
    fn from(task: EraseTask) -> Self {
        match task {
            EraseTask::Quick => Self::Quick,
            EraseTask::Full => Self::Full,
        }
    }
}

mod erase_level {
    use super::EraseTask;
    use basalt_api::agent::EraseLevel;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(task: &EraseTask, to: S) -> Result<S::Ok, S::Error> {
        EraseLevel::from(*task).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<EraseTask, D::Error> {
        Ok(match EraseLevel::deserialize(from)? {
            EraseLevel::Quick => EraseTask::Quick,
            EraseLevel::Full => EraseTask::Full,
        })
    }
}

/// The racks' instruction for a machine's boot: its entry in the boot concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootAction {
    /// Boot the disk.
    Local,
    /// Power the machine off.
    PowerOff,
    /// Boot the environment for this attempt. Key, task and time limit are in the attempt's record.
    Ephemeral(Attempt),
}

/// A wait of the planner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// One CamelCase word for programs.
    pub code: &'static str,
    /// The step that waits.
    pub step: Option<StepId>,
    /// A sentence for people: "waiting for web1 to ask for DHCP".
    pub message: String,
    /// When the wait began.
    pub since: Timestamp,
    /// When the wait ends. `None` only if `human` is set.
    pub deadline: Option<Timestamp>,
    /// The action that a person must take, if only a person can help.
    pub human: Option<String>,
    /// The action at the deadline, or after the person has acted.
    pub remedy: String,
    /// The number of this try, and the number of tries before a person is asked.
    pub tries: Option<(u32, u32)>,
    /// True if nothing more happens without a person, or nothing soon: a client need not wait.
    pub stalled: bool,
}

/// The state of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperationSeen {
    /// The operation's id.
    pub id: OperationId,
    /// The operation's state.
    pub state: OperationState,
    /// One CamelCase word for programs.
    pub reason: String,
    /// A sentence for people: a wait, an action, a result, or a reason.
    pub message: String,
    /// The end of the script's output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// The state of a machine, and of the deployment on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The axes, from which the phase is computed.
    pub axes: Axes,
    /// The conditions Ready, Progressing and Stalled.
    pub conditions: Vec<Condition>,
    /// The stage of the deployment's install.
    pub stage: Option<InstallStage>,
    /// The progress of the running task, in percent.
    pub percent: Option<u8>,
    /// The present action of the running task, as a sentence.
    pub activity: Option<String>,
    /// True if the deployment on this machine meets its readiness check.
    pub deployed: bool,
    /// The attempt that installed the system on the disk.
    pub installed_by: Option<Attempt>,
}
