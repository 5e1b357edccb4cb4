//! Decisions of the planner, and their replay.

use crate::values::{Generation, Sha256, Timestamp};
use basalt_api_derive::Shape;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
/// Answer to `GET /api/v1/{plural}/{name}/decisions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Shape)]
pub struct Decisions {
    /// Decisions, the newest first.
    pub decisions: Vec<Decision>,
    /// Goes into the next request as `before`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// A decision that began a step, or chose a deployment's machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct Decision {
    /// Rises from decision to decision.
    pub id: i64,
    /// Time of the decision.
    pub at: Timestamp,
    /// The step that was begun, as a sentence.
    pub message: String,
    /// The step's key. For the choice of a machine: `UID/allocate/EPOCH`.
    pub step_key: String,
    /// The epoch of the lease under which the step was begun.
    pub epoch: u64,
    /// Generation of the machine's spec.
    pub generation: Generation,
    /// The planner's version.
    pub planner: String,
    /// Digest of the planned work.
    pub digest: Sha256,
    /// All input and output of the decision, with a replay. Only with `replay=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<DecisionDetail>,
}

/// The input of a decision, and the result of a replay with the same input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct DecisionDetail {
    /// The time that the planner used: the database's clock.
    pub now: Timestamp,
    /// Ids of the facts that the decision used.
    pub facts: Vec<i64>,
    /// Ids of the step records that the decision used.
    pub steps: Vec<i64>,
    /// The complete plan.
    pub plan: Map<String, Value>,
    /// The planner's result for the same input now.
    pub replay: Replay,
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct Replay {
    /// The result in one word.
    pub verdict: ReplayVerdict,
    /// The result in one sentence.
    pub message: String,
    /// The version of the planner that replayed it.
    pub planner: String,
    /// The places where the two plans differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<ReplayDifference>,
}

/// The result of a replay in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(rename_all = "snake_case")]
pub enum ReplayVerdict {
    /// The plan is the same.
    Same,
    /// The plan differs.
    Different,
    /// The input of the decision is no longer stored.
    Impossible,
}

/// One place where two plans differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct ReplayDifference {
    /// JSON pointer into the plan.
    pub pointer: String,
    /// The value in the plan of the decision.
    pub decided: Value,
    /// The value in the plan of the replay.
    pub replayed: Value,
}
