//! What is asked of machines.

use crate::plan::PlanReport;
use crate::problem::Problem;
use crate::values::{Duration, OperationId, SshPublicKey, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
/// Body of `POST /api/v1/machines/{name}/operations`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationRequest {
    /// What to do.
    pub verb: Verb,
    /// Which script, where the verb is `run_script`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// What the script is given, by the names of its parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Who may come in, where the verb is `rescue`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ssh_keys: BTreeSet<SshPublicKey>,
    /// How long the rescue lasts at most; [`RESCUE_LASTS`] unless it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// Scripts of type `testing`, where the verb is `test`. Empty: those of the machine's `commissioning.testing`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tests: BTreeSet<String>,
    /// The reason for `override_tests`, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Machines that one request asks, at most.
pub const MAX_OPERATIONS: usize = 1000;

/// Body of `POST /api/v1/operations`: one operation of many machines, by names or by a filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationsRequest {
    /// The machines; empty with a filter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// All machines that fit this filter; see [`crate::filter`].
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The operation, the same for each of them.
    pub operation: OperationRequest,
}

/// Answer of `POST /api/v1/operations`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationsAnswer {
    /// One of each machine, in the order of the names; of a filter, by name.
    pub items: Vec<OperationResult>,
}

/// The result of one of many machines: accepted, tried or refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationResult {
    /// The machine's name; as it was asked for where it is refused.
    pub machine: String,
    /// It was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// The plan, where it was only tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanReport>,
    /// It was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// Answer to `GET /api/v1/machines/{name}/actions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Actions {
    /// One of each verb.
    pub items: Vec<Action>,
}

/// A verb, and what stands against it now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// The operation that the machine takes or refuses.
    pub verb: Verb,
    /// The refusal that the caller would have; none where the machine takes the verb.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// How long a rescue lasts where nobody says it.
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

/// What can be asked of a machine once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Switch it on.
    PowerOn,
    /// Switch it off, at once.
    PowerOff,
    /// Switch it off, then on.
    PowerCycle,
    /// Read its hardware again; what failed on it is tried again at once.
    Recommission,
    /// End the commissioning, install, script or rescue that is under way; its power is cut.
    Abort,
    /// Run a script on it, in the ephemeral environment.
    RunScript,
    /// Boot it into an environment in memory, for people to mend it over SSH.
    Rescue,
    /// Test its hardware, in the ephemeral environment.
    Test,
    /// Give it away although tests of its hardware failed.
    OverrideTests,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::PowerOn,
        Self::PowerOff,
        Self::PowerCycle,
        Self::Recommission,
        Self::Abort,
        Self::RunScript,
        Self::Rescue,
        Self::Test,
        Self::OverrideTests,
    ];

    /// As it is written.
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
        }
    }
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// It was accepted, and waits.
    Requested,
    /// It has begun.
    Running,
    /// It did what it should.
    Done,
    /// It did not.
    Failed,
    /// Something else was asked for instead.
    Superseded,
    /// Its time was over before it was done.
    Expired,
}

impl OperationState {
    /// The reason of a rescue that runs, once people can come in: its message says where.
    pub const OPEN: &'static str = "Open";

    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Requested, Self::Running, Self::Done, Self::Failed, Self::Superseded, Self::Expired];

    /// As it is written.
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

    /// Whether nothing more happens to it.
    #[must_use]
    pub const fn is_over(self) -> bool {
        !matches!(self, Self::Requested | Self::Running)
    }
}

/// Says that a repeat of a request is the same: the first one is answered again.
pub const IDEMPOTENCY_HEADER: &str = "Idempotency-Key";

/// Something that was asked of a machine once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its id.
    pub id: OperationId,
    /// The machine's name.
    pub machine: String,
    /// What is to be done.
    pub verb: Verb,
    /// The script that is run, as it was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// The tests that are run, by the names of their Scripts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<String>,
    /// How far it is.
    pub state: OperationState,
    /// Why, as one CamelCase word for programs.
    pub reason: String,
    /// What it waits for, does, did, or why not, for people.
    pub message: String,
    /// What the script said, the last 16 KiB of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Who asked: `user NAME`, `token NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it expires.
    pub deadline: Timestamp,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_at: Option<Timestamp>,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Where to look.
    pub path: String,
}

/// Answer to `GET …/operations`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationList {
    /// The newest first.
    pub items: Vec<Operation>,
}
