//! The types of `/plan`, `/waits` and `/timeline`: the future steps of an object, its waits and its history.

use crate::diff::FieldChange;
use crate::schema::Effect;
use crate::values::{Duration, Name, Sha256, Timestamp};
use basalt_api_derive::Shape;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The steps and waits that follow from a change, or from the present state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Shape)]
pub struct PlanReport {
    /// The plan in one sentence.
    pub summary: String,
    /// The fields that the change sets, alters or removes.
    #[serde(default)]
    pub changes: Vec<FieldChange>,
    /// The strongest of these changes' effects.
    #[serde(default)]
    pub effect: Effect,
    /// Steps in their order, with those already run.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// Conditions that hold up the steps.
    #[serde(default)]
    pub waits: Vec<Wait>,
    /// The machine that a selector chose, or would choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Name>,
    /// The previous manager of the object, if the write takes the object over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_from: Option<String>,
    /// A sentence about the running system that the change ends at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<String>,
    /// Sentences about the next install: the chosen disk of a storage layout that names none, and mismatches with the hardware.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Digest over uid, generation, operation, changes, effect and machine. Time alone does not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Sha256>,
}

/// One action of a plan, with its progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct Step {
    /// Its entry in the table of steps: `power_on`, `install`.
    pub key: String,
    /// The action, as a sentence.
    pub message: String,
    /// Progress of the step.
    pub state: StepState,
    /// True if the step destroys data.
    #[serde(default)]
    pub destructive: bool,
    /// True if the step switches the machine's power.
    #[serde(default)]
    pub power: bool,
    /// Number of attempts.
    #[serde(default)]
    pub attempts: u32,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it must be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The error of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Progress of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// Earlier steps come first.
    Later,
    /// The next step to run.
    Next,
    /// Its effect was ordered; its postcondition is awaited.
    Running,
    /// Its postcondition holds.
    Done,
    /// It failed; it will be retried or remedied.
    Failed,
}

/// A condition that holds up an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct Wait {
    /// The sort of wait, for programs: `power_on`, `pxe`, `no_machine_matches`.
    pub cause: String,
    /// The condition with its values, as a sentence.
    pub message: String,
    /// Time when the wait began.
    pub since: Timestamp,
    /// Time when the wait ends at the latest. Absent only if `human` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The action of a person that ends the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub human: Option<String>,
    /// The region's action at the deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The rule that waits, in the region's source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// Indirect effects of a write: machines that the write does not name, but whose plans depend on the objects that it changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Shape)]
pub struct Consequences {
    /// Machines whose plan changes, in the order of their names.
    #[serde(default)]
    pub machines: Vec<Consequence>,
    /// Number of further machines that are not ready and not in the list: there were too many to examine, or the caller may not see them.
    #[serde(default)]
    pub not_told: u64,
    /// The tags whose expressions change, with the machines that gain and lose them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<TagChange>,
}

impl Consequences {
    /// True if no plan of another machine changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The new plan of one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct Consequence {
    /// Name of the machine.
    pub machine: Name,
    /// The new plan in one sentence.
    pub summary: String,
    /// Steps in their order, with those already run.
    #[serde(default)]
    pub steps: Vec<Step>,
}

/// The machines that gain or lose one tag because its expression changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct TagChange {
    /// Name of the tag.
    pub tag: Name,
    /// Number of machines that gain the tag.
    #[serde(default)]
    pub gained: u64,
    /// Number of machines that lose the tag.
    #[serde(default)]
    pub lost: u64,
    /// Names of machines that gain the tag: at most 100, and only those that the caller may see.
    #[serde(default)]
    pub gains: Vec<Name>,
    /// Names of machines that lose the tag: at most 100, and only those that the caller may see.
    #[serde(default)]
    pub loses: Vec<Name>,
    /// Number of machines for which the new expression cannot be computed. They do not have the tag.
    #[serde(default)]
    pub errors: u64,
    /// Number of machines that were not examined, because there are too many.
    #[serde(default)]
    pub not_examined: u64,
}

impl std::fmt::Display for TagChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let machines = |count: u64, one: &str, many: &str| match count {
            1 => format!("1 machine {one}"),
            _ => format!("{count} machines {many}"),
        };
        let named = |names: &[Name]| match names {
            [] => String::new(),
            names => format!(" ({})", names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")),
        };
        let Self { tag, gained, lost, gains, loses, errors, not_examined } = self;
        let mut parts = Vec::new();
        if *gained > 0 {
            parts.push(machines(*gained, "gains it", "gain it") + &named(gains));
        }
        if *lost > 0 {
            parts.push(machines(*lost, "loses it", "lose it") + &named(loses));
        }
        if parts.is_empty() {
            parts.push("no machine gains or loses it".to_owned());
        }
        if *errors > 0 {
            parts.push(format!("it cannot be computed for {}", machines(*errors, "", "").trim_end()));
        }
        if *not_examined > 0 {
            parts.push(machines(*not_examined, "was not examined", "were not examined"));
        }
        write!(f, "Tag {tag}: {}", parts.join("; "))
    }
}

/// A conflict of a write with the present state of other objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct Advisory {
    /// JSON pointer into the request.
    pub pointer: String,
    /// The sort of conflict, with the same codes as errors.
    pub code: crate::problem::FieldCode,
    /// The conflict with its value, for a person.
    pub message: String,
    /// A valid value, or a remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Advisory {
    /// True if the write would be refused for this reason now. False for advice only.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.code != crate::problem::FieldCode::Dormant
    }
}

impl From<crate::problem::FieldError> for Advisory {
    fn from(error: crate::problem::FieldError) -> Self {
        Self { pointer: error.pointer, code: error.code, message: error.message, hint: error.hint }
    }
}

/// One event in the history of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Shape)]
pub struct TimelineEntry {
    /// Time of the event.
    pub at: Timestamp,
    /// The sort of event.
    pub kind: TimelineKind,
    /// The event within its sort, for programs: a fact's kind, a step's key, a condition's type.
    pub reason: String,
    /// The event as a sentence.
    pub message: String,
    /// The observer or actor: a rack, an agent, a client, the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Duration of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<Duration>,
    /// Details, by name.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
}

/// The sort of a timeline entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(rename_all = "snake_case")]
pub enum TimelineKind {
    /// A spec was changed.
    Change,
    /// Something was observed.
    Fact,
    /// A step was ordered, ended, or failed.
    Step,
    /// A condition changed.
    Condition,
}
