//! What was decided, and whether it would be again.

use crate::values::{Generation, Sha256, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
/// Answer to `GET /api/v1/{plural}/{name}/decisions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decisions {
    /// The newest first.
    pub decisions: Vec<Decision>,
    /// Goes into the next request as `before`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// A decision that began a step, or chose a deployment's machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Rises in the order of deciding.
    pub id: i64,
    /// When.
    pub at: Timestamp,
    /// What was begun, as a sentence.
    pub message: String,
    /// The step's key; of a choice `UID/allocate/EPOCH`.
    pub step_key: String,
    /// The epoch of the lease that it was begun under.
    pub epoch: u64,
    /// Generation of the machine's spec.
    pub generation: Generation,
    /// The planner's version.
    pub planner: String,
    /// Over what was to be done.
    pub digest: Sha256,
    /// With `replay=true`: all of it, decided again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<DecisionDetail>,
}

/// What a decision rested on, and what follows from that now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionDetail {
    /// The planner's now: the database's clock.
    pub now: Timestamp,
    /// The facts that it rested on.
    pub facts: Vec<i64>,
    /// The step records that it rested on.
    pub steps: Vec<i64>,
    /// The plan, whole.
    pub plan: Value,
    /// What the planner decides from the same again.
    pub replay: Replay,
}

/// What became of a replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// In one word.
    pub verdict: ReplayVerdict,
    /// In one sentence.
    pub message: String,
    /// The version of the planner that replayed it.
    pub planner: String,
    /// Where the plans differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<ReplayDifference>,
}

/// What became of a replay, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayVerdict {
    /// The plan is the same.
    Same,
    /// The plan is another one.
    Different,
    /// What it rested on is not there any more.
    Impossible,
}

/// One place where plans differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayDifference {
    /// Where, as a JSON pointer into the plan.
    pub pointer: String,
    /// What was decided.
    pub decided: Value,
    /// What is decided now.
    pub replayed: Value,
}
