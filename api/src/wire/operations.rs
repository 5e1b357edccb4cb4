//! Operations: one-time requests to machines.

use crate::plan::PlanReport;
use crate::problem::Problem;
use crate::values::{Duration, OperationId, SshPublicKey, Timestamp};
use basalt_api_derive::Shape;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
/// Body of `POST /api/v1/machines/{name}/operations`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationRequest {
    /// The requested operation.
    pub verb: Verb,
    /// Name of the script, for the verb `run_script`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Values of the script's parameters by name, for the verb `run_script`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Keys that may log in over SSH, for the verb `rescue`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ssh_keys: BTreeSet<SshPublicKey>,
    /// Longest duration of the rescue. Absent: [`RESCUE_LASTS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// Scripts of type `testing`, for the verb `test`. Empty: those of the machine's `commissioning.testing`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tests: BTreeSet<String>,
    /// The reason for `override_tests`, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Most machines of one request.
pub const MAX_OPERATIONS: usize = 1000;

/// Body of `POST /api/v1/operations`: one operation of many machines, by names or by a filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationsRequest {
    /// Names of the machines. Empty if `filter` is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// All machines that fit this filter; see [`crate::filter`].
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The operation, the same for each of them.
    pub operation: OperationRequest,
}

/// Answer of `POST /api/v1/operations`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Shape)]
pub struct OperationsAnswer {
    /// One result for each machine, in the order of the requested names. With a filter, by name.
    pub items: Vec<OperationResult>,
}

/// The result of one of many machines: accepted, tried or refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct OperationResult {
    /// The machine's name. For a refusal, as it was requested.
    pub machine: String,
    /// The operation, if it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// The plan, if the request was a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanReport>,
    /// The refusal, if the operation was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// Answer to `GET /api/v1/machines/{name}/actions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Shape)]
pub struct Actions {
    /// One entry for each verb.
    pub items: Vec<Action>,
}

/// A verb, and the reason why a machine refuses it now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct Action {
    /// The verb of the operation.
    pub verb: Verb,
    /// The refusal that the caller would get; absent if the machine accepts the verb.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// Longest duration of a rescue that names none.
pub const RESCUE_LASTS: Duration = Duration::from_secs(4 * 3600);

/// Most keys that a rescue takes.
pub const RESCUE_KEYS: usize = 32;

/// The shortest and the longest rescue.
pub const RESCUE_LIMITS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(7 * 86400)];

impl From<Verb> for OperationRequest {
    fn from(verb: Verb) -> Self {
        Self {
            verb,
            script: None,
            parameters: BTreeMap::new(),
            ssh_keys: BTreeSet::new(),
            duration: None,
            tests: BTreeSet::new(),
            reason: None,
        }
    }
}

/// The verb of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Shape)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Switch it on.
    PowerOn,
    /// Switch it off, at once.
    PowerOff,
    /// Switch it off, then on.
    PowerCycle,
    /// Read its hardware again. Steps that failed are tried again at once.
    Recommission,
    /// End the commissioning, install, script or rescue that is under way; its power is cut.
    Abort,
    /// Run a script on it, in the ephemeral environment.
    RunScript,
    /// Boot it into an environment in memory, so that people can repair it over SSH.
    Rescue,
    /// Test its hardware, in the ephemeral environment.
    Test,
    /// Make it available although hardware tests failed.
    OverrideTests,
    /// Restart its BMC. The machine itself goes on.
    ResetBmc,
}

impl Verb {
    /// Every verb of an operation, once.
    pub const ALL: [Self; 10] = [
        Self::PowerOn,
        Self::PowerOff,
        Self::PowerCycle,
        Self::Recommission,
        Self::Abort,
        Self::RunScript,
        Self::Rescue,
        Self::Test,
        Self::OverrideTests,
        Self::ResetBmc,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PowerOn => "power_on",
            Self::PowerOff => "power_off",
            Self::PowerCycle => "power_cycle",
            Self::Recommission => "recommission",
            Self::Abort => "abort",
            Self::RunScript => "run_script",
            Self::Rescue => "rescue",
            Self::Test => "test",
            Self::OverrideTests => "override_tests",
            Self::ResetBmc => "reset_bmc",
        }
    }
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Progress of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Shape)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// It was accepted and has not begun.
    Requested,
    /// It has begun.
    Running,
    /// It ended with success.
    Done,
    /// It ended with a failure.
    Failed,
    /// A later operation replaced it.
    Superseded,
    /// Its deadline passed before it was done.
    Expired,
}

impl OperationState {
    /// The reason word of a running rescue once people can log in. The message names the address.
    pub const OPEN: &'static str = "Open";

    /// Every state of an operation, once.
    pub const ALL: [Self; 6] =
        [Self::Requested, Self::Running, Self::Done, Self::Failed, Self::Superseded, Self::Expired];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Superseded => "superseded",
            Self::Expired => "expired",
        }
    }

    /// True if the operation has ended.
    #[must_use]
    pub const fn is_over(self) -> bool {
        !matches!(self, Self::Requested | Self::Running)
    }
}

/// The header with a key of the request. A request with the same key is a repeat: the region answers it like the first one.
pub const IDEMPOTENCY_HEADER: &str = "Idempotency-Key";

/// An operation that was requested on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct Operation {
    /// Id of the operation.
    pub id: OperationId,
    /// The machine's name.
    pub machine: String,
    /// The verb that was requested.
    pub verb: Verb,
    /// Name of the script that is run, at the time of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Names of the test Scripts that are run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<String>,
    /// Progress of the operation.
    pub state: OperationState,
    /// The reason of the state, as one CamelCase word for programs.
    pub reason: String,
    /// The present wait, work or result, for a person.
    pub message: String,
    /// Output of the script, the last 16 KiB of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The caller: `user NAME`, `token NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// Time when it was accepted.
    pub accepted_at: Timestamp,
    /// Time when it expires.
    pub deadline: Timestamp,
    /// Time when it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_at: Option<Timestamp>,
    /// Time when it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Path of this operation in the API.
    pub path: String,
}

/// Answer to `GET …/operations`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct OperationList {
    /// Operations, the newest first.
    pub items: Vec<Operation>,
}
