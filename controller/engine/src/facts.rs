//! Observations and step records: the only things that the planner decides from.
//!
//! Every time here is of the database's clock: when a fact was stored, or a record written. Clocks of racks and machines
//! are never compared. A fact that answers a step names the step's key or the attempt.

use std::collections::BTreeMap;

use basalt_api::agent::{Inventory, LogSetup, Outcome};
use basalt_api::kinds::{NetworkConfig, PowerState};
use basalt_api::values::{Attempt, DeploymentId, Epoch, Generation, OperationId, Sha256, Timestamp};
use serde::{Deserialize, Serialize};

use crate::failures::PowerFailure;
use crate::input::FirstBootScripts;
use crate::steps::StepId;

/// The latest observations of one machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The latest power reading: a rack's own, or an answer to a command.
    pub power: Option<PowerReading>,
    /// The latest reading that answered a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered: Option<PowerReading>,
    /// The reason why the latest reading failed, if it did. It decides nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread: Option<PowerUnread>,
    /// The last known certificate of the machine's BMC, if the BMC has one. It decides nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bmc_certificate: Option<Sha256>,
    /// Answers to power commands, by step key.
    pub power_results: BTreeMap<StepKey, PowerOutcome>,
    /// The boot instruction that every rack serving the machine has reported. `None` if they differ, or if one has not reported.
    pub boot_applied: Option<BootSeen>,
    /// The error of a rack that does not apply the boot instruction, if any.
    pub boot_refused: Option<String>,
    /// The boot requests that were answered with an attempt, by attempt.
    pub boot_requests: BTreeMap<Attempt, BootRequest>,
    /// The first claim of each attempt.
    pub claims: BTreeMap<Attempt, Claimed>,
    /// The latest progress of each attempt.
    pub progress: BTreeMap<Attempt, Progressed>,
    /// The latest checkpoint of each attempt with one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub checkpoints: BTreeMap<Attempt, Checkpointed>,
    /// The results of tasks, by attempt.
    pub results: BTreeMap<Attempt, Ended>,
    /// The hardware, from the latest successful inventory task.
    pub inventory: Option<InventorySeen>,
    /// The highest level that an installed system has reported, by the attempt that installed it.
    pub readiness: BTreeMap<Attempt, Reported>,
    /// The latest reports of installed systems about the scripts of their first boot, by the attempt that installed them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub first_boot: BTreeMap<Attempt, FirstBootEnded>,
    /// The machine's latest DHCP lease.
    pub lease: Option<Leased>,
    /// The latest alarm of a rack about this machine.
    pub alarm: Option<Alarm>,
    /// The rack that is the arbiter of the machine's BMC.
    pub power_rack: Link,
    /// The racks that serve the machine's boot network.
    pub boot_racks: Link,
}

/// The key of one try of one step: `{machine}/{deployment, "commission", "machine" or "operation-" and its id}/{generation}/{step}/{try}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepKey(String);

impl StepKey {
    pub(crate) const fn new(key: String) -> Self {
        Self(key)
    }

    /// The text, as racks echo it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for StepKey {
    fn from(key: String) -> Self {
        Self(key)
    }
}

impl std::fmt::Display for StepKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// A power reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerReading {
    /// The state that the BMC reported.
    pub state: PowerState,
    /// When the reading was stored.
    pub at: Timestamp,
}

/// A power reading that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerUnread {
    /// When the failure was stored.
    pub at: Timestamp,
    /// The failure, for programs.
    pub failure: PowerFailure,
    /// The failure as a sentence.
    pub message: String,
}

/// A rack's answer to a power command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerOutcome {
    /// When it was stored.
    pub at: Timestamp,
    /// The power, read after the command; or why the command failed.
    pub result: Result<PowerState, (PowerFailure, String)>,
}

/// The boot instruction of the racks for a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootSeen {
    /// Boot the disk.
    Local,
    /// Power the machine off.
    PowerOff,
    /// Boot the ephemeral environment for this attempt.
    Ephemeral(Attempt),
}

/// A machine's request at boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootRequest {
    /// When the latest request was stored.
    pub last_at: Timestamp,
    /// The protocol: `dhcp`, `tftp`, `http`.
    pub service: String,
    /// The requested file or script, or the message type.
    pub what: String,
}

/// An agent has taken its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// When the claim was stored.
    pub at: Timestamp,
    /// A random id, a new one for each boot.
    pub boot_id: String,
}

/// An agent has reported progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progressed {
    /// When the latest report was stored.
    pub at: Timestamp,
    /// The agent's word for its present stage.
    pub stage: String,
    /// The progress of the whole task, in percent.
    pub percent: u8,
    /// A sentence for people.
    pub message: String,
}

/// A task has written down its progress, so that the machine can restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpointed {
    /// When the checkpoint was stored.
    pub at: Timestamp,
    /// The number of the checkpoint.
    pub seq: u64,
    /// True if the machine may be restarting: then an agent is silent for the time of a boot.
    pub away: bool,
}

/// A task has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// When the result was stored.
    pub at: Timestamp,
    /// The result of the task.
    pub outcome: Outcome,
    /// The end of the script's output.
    pub output: Option<String>,
    /// How an installed system sends its log.
    pub logs: Option<LogSetup>,
}

/// A machine's hardware.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InventorySeen {
    /// When it was stored.
    pub at: Timestamp,
    /// The attempt that reported it.
    pub attempt: Attempt,
    /// The hardware that was found.
    pub inventory: Inventory,
}

/// A stage of readiness of an installed system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The system has booted.
    Booted,
    /// cloud-init has finished.
    CloudInit,
    /// Its port accepts connections.
    Tcp,
}

/// An installed system has reported its level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    /// When the highest level was stored.
    pub at: Timestamp,
    /// The highest level so far.
    pub level: Level,
    /// The address that the report came from.
    pub address: String,
}

/// The scripts of an installed system's first boot have ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstBootEnded {
    /// When the report was stored.
    pub at: Timestamp,
    /// The failed scripts with their errors, in one sentence. `None`: all ended well.
    pub failure: Option<String>,
}

/// A DHCP lease of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leased {
    /// When it was stored.
    pub at: Timestamp,
    /// The leased address.
    pub address: String,
}

/// An event that a person should see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// When it was stored.
    pub at: Timestamp,
    /// The type of the alarm, for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

/// The connection to the racks that a machine needs. A machine's silence is meaningful only while they are connected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// No rack has this role for the machine.
    #[default]
    None,
    /// All racks with this role are disconnected.
    Away {
        /// When this state began.
        since: Timestamp,
        /// The names of the racks.
        racks: String,
    },
    /// Some racks are connected, and at least one is not. Actions are possible, but silence is not meaningful: the machine may talk to
    /// a disconnected rack. The driver does not report this state: with one connected rack it reports `Connected`.
    Partial {
        /// When this state began.
        since: Timestamp,
        /// The names of the disconnected racks.
        racks: String,
    },
    /// Silence is meaningful. The driver reports this state if at least one rack is connected: the others are spares.
    Connected {
        /// When this state began.
        since: Timestamp,
    },
}

/// The purpose of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Taking the machine in.
    Commission,
    /// A deployment, from install to release.
    Deployment(DeploymentId),
    /// The machine itself: keeping its declared power state, or removing it.
    Machine,
    /// A one-time request of a person.
    Operation(OperationId),
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Commission => f.write_str("commission"),
            Self::Deployment(id) => write!(f, "{id}"),
            Self::Machine => f.write_str("machine"),
            Self::Operation(id) => write!(f, "operation-{id}"),
        }
    }
}

/// The inputs under which a step was begun. A failure belongs to its cause, and is void when the cause has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Generation of the machine's spec.
    pub machine: Generation,
    /// Generation of the deployment's spec, if the step is for a deployment.
    pub deployment: Option<Generation>,
    /// Digest of the deployment's image, if the step is for a deployment.
    pub image: Option<Sha256>,
    /// When a person last requested recommissioning: a repair by hand leaves no other trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Timestamp>,
    /// The attempt in which the machine made the BMC account that is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_account: Option<Attempt>,
}

/// A step that was begun. The record is written before the effect, in the transaction that allocates the step's attempt, if any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The step's unique key, which racks echo.
    pub key: StepKey,
    /// The row of the table of steps.
    pub step: StepId,
    /// The purpose of the step.
    pub scope: Scope,
    /// The attempt that the step arms or belongs to.
    pub attempt: Option<Attempt>,
    /// The epoch in which the effect was begun.
    pub epoch: Epoch,
    /// The inputs under which the step was begun.
    pub cause: Cause,
    /// The hash of the content that an install writes: the fields of `DeploymentSpec` with effect `redeploy`.
    pub fingerprint: Option<Sha256>,
    /// The network that an installed system takes from the machine. Only for an install.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkConfig>,
    /// The scripts that an installed system runs at its first boot. Only for an install.
    #[serde(default, skip_serializing_if = "FirstBootScripts::are_none")]
    pub first_boot: FirstBootScripts,
    /// When the record was written.
    pub started_at: Timestamp,
    /// When the effect was handed over: a power command to a rack's stream, any other effect with the record itself.
    /// `None` if the region died in between; the effect is then repeated under the same key.
    pub delivered_at: Option<Timestamp>,
    /// The effect must not begin after this moment.
    pub not_after: Timestamp,
}
