//! The results of steps, computed from facts for the records. No decision depends on them.

use basalt_api::kinds::PowerState;
use basalt_api::values::Timestamp;
use serde::{Deserialize, Serialize};

use crate::facts::StepRecord;
use crate::input::{MachineInput, Policy};
use crate::machine::{Answer, State, Walk};
use crate::steps::{EffectKind, StepId};

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Ending {
    /// Its postcondition held.
    Done,
    /// Its postcondition did not hold in time.
    Failed {
        /// One CamelCase word for programs, as in waits.
        code: String,
        /// A sentence for people.
        message: String,
    },
}

impl Ending {
    /// One word for programs: `Done`, or the code of the failure.
    #[must_use]
    pub fn word(&self) -> &str {
        match self {
            Self::Done => "Done",
            Self::Failed { code, .. } => code,
        }
    }
}

/// The result of a step, and when it was known. `None` while the step runs.
#[must_use]
pub fn ending(
    input: &MachineInput,
    policy: &Policy,
    now: Timestamp,
    record: &StepRecord,
) -> Option<(Timestamp, Ending)> {
    let walk = Walk::new(input, policy, now.max(input.latest()));
    let failed = |code: &str, message: String| Ending::Failed { code: code.to_owned(), message };
    match record.step.spec().effect {
        EffectKind::Power => match walk.answer(record, wanted(record.step)) {
            Answer::Undelivered | Answer::Due(_) => None,
            Answer::Good(at) => Some((at, Ending::Done)),
            Answer::Bad(failure, message, at) => Some((at, failed(failure.rule().code, message))),
        },
        EffectKind::Arm => match walk.state(record) {
            State::Running { .. } => None,
            State::Succeeded(at) => Some((at, Ending::Done)),
            State::Failed(failure, message, at) => Some((at, failed(failure.rule().code, message))),
            State::Open => {
                let same = |other: &&StepRecord| other.step == record.step && other.scope == record.scope;
                let after = |other: &&StepRecord| other.attempt > record.attempt;
                let next = input.records.iter().find(|other| same(other) && after(other));
                let over = next
                    .map(|next| next.started_at)
                    .or((now >= record.not_after).then_some(record.not_after));
                over.map(|at| (at, failed("NeverRan", "no machine booted it in its time".to_owned())))
            }
        },
        EffectKind::LetGo | EffectKind::Forget | EffectKind::Observe => {
            Some((record.delivered_at.unwrap_or(record.started_at), Ending::Done))
        }
    }
}

/// The power state that must be read after a step.
fn wanted(step: StepId) -> Option<PowerState> {
    use StepId::{
        AbortOff, HoldOff, OperateOff, PowerOffErase, PowerOffInventory, PowerOffRelease, PowerOffRemove,
        ReadPower, SoftOff,
    };
    match step {
        ReadPower | SoftOff => None,
        PowerOffInventory | PowerOffRelease | PowerOffErase | PowerOffRemove | HoldOff | OperateOff
        | AbortOff => Some(PowerState::Off),
        _ => Some(PowerState::On),
    }
}
