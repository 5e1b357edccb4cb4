//! What the planner answers: steps, waits, what the machine is to boot, and a report.

use basalt_api::agent::EraseLevel;
use basalt_api::kinds::{Axes, Condition, InstallStage, NetworkConfig};
use basalt_api::values::{Attempt, DeploymentId, Epoch, OperationId, Sha256, Timestamp};
use basalt_api::wire::OperationState;
use serde::{Deserialize, Serialize};

use crate::facts::{Cause, Scope, StepKey, StepRecord};
use crate::steps::{EffectKind, StepId};

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// What is to be begun now: one step at most, as a machine has one power button.
    pub next: Vec<PlannedStep>,
    /// What is announced to follow if nothing fails, in order.
    pub later: Vec<LaterStep>,
    /// What is waited for. Empty when there is something to begin, or nothing to do.
    pub waits: Vec<Wait>,
    /// How far what was asked for once is: all of the input's operations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<OperationSeen>,
    /// What the racks are to hold for this machine.
    pub boot: BootAction,
    /// The attempt that writes the machine's disks, or may begin to at any moment: its part in the fleet's budget.
    pub writes: Option<Attempt>,
    /// How the machine is.
    pub report: Report,
    /// Sentences for people about an install to come: the disk of a storage that names none, and misfits with the hardware. They decide nothing.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// When to plan again though no fact arrives: the earliest deadline.
    pub wake_at: Option<Timestamp>,
    /// SHA-256 over what is to be done, and for whom; time alone does not change it.
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
    /// Its key: record this, then do the effect.
    pub key: StepKey,
    /// Which step.
    pub step: StepId,
    /// What for.
    pub scope: Scope,
    /// Which try this is, counting from 1.
    pub try_no: u32,
    /// What to do.
    pub effect: Effect,
    /// The attempt it belongs to; an arming step gets its own from the driver.
    pub attempt: Option<Attempt>,
    /// A record with this key exists; only its effect has to be done (again).
    pub resume: bool,
    /// Goes into the record.
    pub cause: Cause,
    /// Goes into the record.
    pub fingerprint: Option<Sha256>,
    /// Goes into the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkConfig>,
    /// Goes into the record: the effect must not begin after this moment.
    pub not_after: Timestamp,
}

impl PlannedStep {
    /// The record to store before the effect begins. `attempt` is the newly allocated one where the step arms.
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
            started_at: now,
            delivered_at: (self.step.spec().effect != EffectKind::Power).then_some(now),
            not_after: self.not_after,
        }
    }
}

/// A step that follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaterStep {
    /// The key it would have now.
    pub key: StepKey,
    /// Which step.
    pub step: StepId,
}

/// What a step does to the world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Effect {
    /// Send a power command with the step's key as `step_key` and `command_id`. A rack that has seen the id answers
    /// what it answered.
    Power {
        /// What to do.
        verb: Verb,
        /// What to boot next; set before the verb.
        device: BootDevice,
    },
    /// Take the next number of the attempt sequence and a fresh attempt key, compose the task, and record all of it.
    /// The plan's `boot` names the attempt from then on.
    Arm {
        /// Which task.
        task: TaskKind,
    },
    /// Drop the claim and delete the deployment's object.
    LetGo {
        /// Whose claim.
        deployment: DeploymentId,
        /// Mark the machine unwiped.
        unwiped: bool,
    },
    /// Delete the machine's object.
    Forget,
}

/// A power command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Read.
    Status,
    /// On.
    On,
    /// The system is asked to shut down.
    SoftOff,
    /// Off, at once.
    Off,
    /// Off and on.
    Cycle,
}

/// What the BMC is told about the next boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootDevice {
    /// Nothing.
    Unchanged,
    /// The network, once.
    PxeOnce,
    /// The disk.
    Disk,
}

/// A task of the ephemeral environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    /// Read the hardware.
    Inventory,
    /// Install.
    Install,
    /// Erase.
    Erase(#[serde(with = "erase_level")] EraseTask),
    /// Run the script that was asked for.
    Script,
    /// Let people mend the machine.
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

/// What the racks are to hold for a machine: its entry in the boot concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootAction {
    /// Boot the disk.
    Local,
    /// Power off.
    PowerOff,
    /// The recorded attempt: key, task and time limit are in its record.
    Ephemeral(Attempt),
}

/// Something that is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// One CamelCase word for programs.
    pub code: &'static str,
    /// The step that cannot go on.
    pub step: Option<StepId>,
    /// What is waited for: "waiting for web1 to ask for DHCP".
    pub message: String,
    /// Since when.
    pub since: Timestamp,
    /// Until when. None only where `human` is set.
    pub deadline: Option<Timestamp>,
    /// What a person has to do, where only a person can help.
    pub human: Option<String>,
    /// What happens at the deadline, or once the person has acted.
    pub remedy: String,
    /// Which try this is, of how many before a person is asked.
    pub tries: Option<(u32, u32)>,
    /// Nothing more happens without a person, or not soon: a client need not wait.
    pub stalled: bool,
}

/// How far an operation is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperationSeen {
    /// Which.
    pub id: OperationId,
    /// How far.
    pub state: OperationState,
    /// One CamelCase word for programs.
    pub reason: String,
    /// For people: what it waits for, does, did, or why not.
    pub message: String,
    /// What its script said, the end of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// How a machine is, and the deployment on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The axes; the phase is computed from them.
    pub axes: Axes,
    /// Ready, Progressing, Stalled.
    pub conditions: Vec<Condition>,
    /// What is done for the deployment.
    pub stage: Option<InstallStage>,
    /// Of the running task.
    pub percent: Option<u8>,
    /// In words, of the running task.
    pub activity: Option<String>,
    /// The deployment on this machine is as its readiness asks.
    pub deployed: bool,
    /// The attempt that installed what is on the disk.
    pub installed_by: Option<Attempt>,
}
