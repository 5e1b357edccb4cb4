//! What was observed, and what was begun: the only things that the planner decides from.
//!
//! Every moment here is the database's: when a fact was stored, when a record was written. Clocks of racks and machines
//! are never compared; what answers a step names the step's key or the attempt.

use std::collections::BTreeMap;

use basalt_api::agent::{Inventory, LogSetup, Outcome};
use basalt_api::kinds::{NetworkConfig, PowerState};
use basalt_api::values::{Attempt, DeploymentId, Epoch, Generation, OperationId, Sha256, Timestamp};
use serde::{Deserialize, Serialize};

use crate::failures::PowerFailure;
use crate::steps::StepId;

/// The latest observations of one machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The latest power reading: of a rack of its own accord, or an answer to a command.
    pub power: Option<PowerReading>,
    /// The latest of these that answered a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered: Option<PowerReading>,
    /// Why the power could not be read, if the latest reading failed. Nothing is planned by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread: Option<PowerUnread>,
    /// The certificate that its BMC was last known by, where it has one. Nothing is planned by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bmc_certificate: Option<Sha256>,
    /// Answers to power commands, by step key.
    pub power_results: BTreeMap<StepKey, PowerOutcome>,
    /// What every rack that serves the machine said last that it boots; None where they differ, or one never said.
    pub boot_applied: Option<BootSeen>,
    /// Why a rack does not apply the boot instruction, if one said so.
    pub boot_refused: Option<String>,
    /// Boot requests answered with an attempt, by that attempt.
    pub boot_requests: BTreeMap<Attempt, BootRequest>,
    /// Claims, by attempt: the first one.
    pub claims: BTreeMap<Attempt, Claimed>,
    /// The latest progress, by attempt.
    pub progress: BTreeMap<Attempt, Progressed>,
    /// Ends of tasks, by attempt.
    pub results: BTreeMap<Attempt, Ended>,
    /// The hardware, from the latest inventory task that succeeded.
    pub inventory: Option<InventorySeen>,
    /// The highest level that an installed system reported, by the attempt that installed it.
    pub readiness: BTreeMap<Attempt, Reported>,
    /// The address that the machine leased last.
    pub lease: Option<Leased>,
    /// The latest alarm of a rack about this machine.
    pub alarm: Option<Alarm>,
    /// The rack that is the arbiter of the machine's BMC.
    pub power_rack: Link,
    /// The racks that serve the machine's boot network.
    pub boot_racks: Link,
}

/// Names one try of one step: `{machine}/{deployment, "commission", "machine" or "operation-" and its id}/{generation}/{step}/{try}`.
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
    /// What the BMC said.
    pub state: PowerState,
    /// When that was stored.
    pub at: Timestamp,
}

/// A power reading that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerUnread {
    /// When that was stored.
    pub at: Timestamp,
    /// Why, for programs.
    pub failure: PowerFailure,
    /// Why, for people.
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

/// What racks hold for a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootSeen {
    /// Boot the disk.
    Local,
    /// Power off.
    PowerOff,
    /// Boot the ephemeral environment for this attempt.
    Ephemeral(Attempt),
}

/// A machine asked for something at boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootRequest {
    /// When the latest one was stored.
    pub last_at: Timestamp,
    /// `dhcp`, `tftp`, `http`.
    pub service: String,
    /// File, script or message type.
    pub what: String,
}

/// An agent took its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// When that was stored.
    pub at: Timestamp,
    /// Random, one a boot.
    pub boot_id: String,
}

/// An agent reported progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progressed {
    /// When the latest report was stored.
    pub at: Timestamp,
    /// The agent's word for what it does.
    pub stage: String,
    /// Of the whole task.
    pub percent: u8,
    /// For people.
    pub message: String,
}

/// A task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// When that was stored.
    pub at: Timestamp,
    /// How.
    pub outcome: Outcome,
    /// What a script said, the end of it.
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
    /// What was found.
    pub inventory: Inventory,
}

/// How far an installed system has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It booted.
    Booted,
    /// cloud-init has finished.
    CloudInit,
    /// Its port accepts connections.
    Tcp,
}

/// An installed system reported itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    /// When the highest level was stored.
    pub at: Timestamp,
    /// The highest level so far.
    pub level: Level,
    /// The address it came from.
    pub address: String,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leased {
    /// When it was stored.
    pub at: Timestamp,
    /// The address.
    pub address: String,
}

/// Something that a person should see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// When it was stored.
    pub at: Timestamp,
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
}

/// Whether the racks that a machine needs are there. Silence means something only while they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// No rack has this role for the machine.
    #[default]
    None,
    /// All of them are away.
    Away {
        /// Since when.
        since: Timestamp,
        /// Which.
        racks: String,
    },
    /// Some are connected, and at least one is away: things can be done, but silence means nothing, as the machine may
    /// be talking to the one that is away.
    Partial {
        /// Since when.
        since: Timestamp,
        /// Which are away.
        racks: String,
    },
    /// All of them are connected, and have delivered what they had spooled.
    Connected {
        /// Since when.
        since: Timestamp,
    },
}

/// What a step was begun for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Taking the machine in.
    Commission,
    /// A deployment, from install to release.
    Deployment(DeploymentId),
    /// The machine itself: keeping its power as declared, removing it.
    Machine,
    /// Something that a person asked for once.
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

/// What a step was begun under. A failure belongs to its cause, and is void when the cause has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Generation of the machine's spec.
    pub machine: Generation,
    /// Generation of the deployment's spec, if it is for one.
    pub deployment: Option<Generation>,
    /// Digest of the deployment's image, if it is for one.
    pub image: Option<Sha256>,
    /// When a person last asked for the machine to be looked at again: what is mended by hand has no other trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Timestamp>,
    /// The account on the BMC, where the machine made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_account: Option<Attempt>,
}

/// A step that was begun. Written before its effect, in the transaction that allocates the attempt where there is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Unique; what racks echo.
    pub key: StepKey,
    /// Which step.
    pub step: StepId,
    /// What for.
    pub scope: Scope,
    /// The attempt that it arms, or that it belongs to.
    pub attempt: Option<Attempt>,
    /// Under which the effect was begun.
    pub epoch: Epoch,
    /// What it was begun under.
    pub cause: Cause,
    /// Hash of what an install would write: `DeploymentSpec`'s fields with effect `redeploy`.
    pub fingerprint: Option<Sha256>,
    /// Of an install, the network that its system has from the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkConfig>,
    /// When the record was written.
    pub started_at: Timestamp,
    /// When the effect was handed over: a power command to a rack's stream, anything else with the record itself.
    /// None after a crash in between; the effect is then repeated under the same key.
    pub delivered_at: Option<Timestamp>,
    /// The effect must not begin after this moment.
    pub not_after: Timestamp,
}
