//! What will happen, what is waited for, and what has happened: the types of `/plan`, `/waits` and `/timeline`.

use crate::diff::FieldChange;
use crate::schema::Effect;
use crate::values::{Duration, Name, Sha256, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a change, or the present state, will lead to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanReport {
    /// In one sentence.
    pub summary: String,
    /// What the change does to fields.
    #[serde(default)]
    pub changes: Vec<FieldChange>,
    /// The strongest of these changes' effects.
    #[serde(default)]
    pub effect: Effect,
    /// Steps in their order, those that run included.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// What is waited for.
    #[serde(default)]
    pub waits: Vec<Wait>,
    /// The machine that a selector chose or would choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Name>,
    /// The manager that declared the object until now, where the write takes it over from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_from: Option<String>,
    /// The running system that is cut off at once, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<String>,
    /// Sentences about an install to come: the disk of a storage that names none, and misfits with the hardware.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Over uid, generation, operation, changes, effect and machine; nothing that time alone changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Sha256>,
}

/// Something to be done, with what runs it and how it is going.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its entry in the table of steps: `power_on`, `install`.
    pub key: String,
    /// What it does, as a sentence.
    pub message: String,
    /// How it stands.
    pub state: StepState,
    /// Whether it destroys data.
    #[serde(default)]
    pub destructive: bool,
    /// Whether it switches the machine's power.
    #[serde(default)]
    pub power: bool,
    /// How often it was tried.
    #[serde(default)]
    pub attempts: u32,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it must be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// What went wrong the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// Its turn has not come.
    Later,
    /// It is the next one.
    Next,
    /// Its effect was ordered; its postcondition is awaited.
    Running,
    /// Its postcondition holds.
    Done,
    /// It failed, and is tried again or remedied.
    Failed,
}

/// Something that is waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// What sort of wait, for programs: `power_on`, `pxe`, `no_machine_matches`.
    pub cause: String,
    /// What is waited for, as a sentence with its values.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
    /// Until when; absent only where `human` is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// What a person must do for it to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub human: Option<String>,
    /// What happens at the deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The rule that waits, in the region's source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// What a write leads to for machines that it does not name, because they decide from what it changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Consequences {
    /// Those for which something else would be done than now, in the order of their names.
    #[serde(default)]
    pub machines: Vec<Consequence>,
    /// How many more are not ready, and are not told of: they were too many to look at, or are not the caller's to see.
    #[serde(default)]
    pub not_told: u64,
}

impl Consequences {
    /// Whether nothing follows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What would be done with one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Consequence {
    /// Its name.
    pub machine: Name,
    /// In one sentence.
    pub summary: String,
    /// Steps in their order, those that run included.
    #[serde(default)]
    pub steps: Vec<Step>,
}

/// Something that a write would run into because of other objects, as they are now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advisory {
    /// Where, as a JSON pointer into the request.
    pub pointer: String,
    /// What sort: the same codes as of errors.
    pub code: crate::problem::FieldCode,
    /// What it is, naming the value.
    pub message: String,
    /// What would be right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Advisory {
    /// Whether the write would be refused because of it, as things are. Otherwise it is only good to know.
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

/// Something that happened to an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelineEntry {
    /// When.
    pub at: Timestamp,
    /// What sort.
    pub kind: TimelineKind,
    /// Which of that sort, for programs: a fact's kind, a step's key, a condition's type.
    pub reason: String,
    /// As a sentence.
    pub message: String,
    /// Who saw or did it: a rack, an agent, a client, the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<Duration>,
    /// Details, by name.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
}

/// What sort of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
