//! Reads the power again where the last reading must be outdated, so that the region follows the machine's real state.
//!
//! | doubt | read again |
//! | --- | --- |
//! | the machine reads as off, and its loader, agent or system was heard since | at once, and then each [`DeadlineId::RetryLater`] |
//! | a power command failed because the power did not follow in time | after [`DeadlineId::RetryLater`] |

use basalt_api::kinds::{MachineMode, PowerState};
use basalt_api::values::Timestamp;

use super::power::{Answer, wanted_by};
use super::walk::Walk;
use crate::deadlines::DeadlineId;
use crate::facts::{Scope, StepRecord};
use crate::failures::PowerFailure;
use crate::input::later;
use crate::plan::{BootDevice, Verb};
use crate::steps::{EffectKind, StepId};

impl Walk<'_> {
    /// Reads the power again where that is due and nothing else is begun. The next plan has the waits again: nothing waits for
    /// the answer. A machine that waits for the fleet's budget keeps its place in the queue.
    pub(super) fn look_again(&mut self) {
        let spec = &self.input.spec;
        let left_alone = spec.locked || spec.mode != MachineMode::Managed || self.bmc().is_none();
        let queues = self.waits.iter().any(|wait| wait.code == "FleetBudget");
        if left_alone || queues || !self.next.is_empty() {
            return;
        }
        let pause = self.policy.deadline(DeadlineId::RetryLater);
        let looks = |r: &StepRecord| r.step == StepId::ReadPower && r.scope == Scope::Machine;
        let looked = self.input.records.iter().rev().find(|r| looks(r)).map(|r| r.started_at);
        let heard = self.heard_while_off().map(|at| looked.map_or(at, |looked| at.max(later(looked, pause))));
        let late = self.not_followed().map(|at| later(at, pause));
        let Some(due) = [heard, late].into_iter().flatten().min() else { return };
        if self.now < due {
            self.look_at = Some(due);
            return;
        }
        let power = self.power(StepId::ReadPower, |r| looks(r) && r.started_at >= due, None);
        let waits = std::mem::take(&mut self.waits);
        self.act(power, (Scope::Machine, StepId::ReadPower, None), (Verb::Status, BootDevice::Unchanged));
        self.waits = if self.next.is_empty() { waits } else { Vec::new() };
    }

    /// When the machine was last heard, if it reads as off since before that.
    fn heard_while_off(&self) -> Option<Timestamp> {
        let facts = &self.input.facts;
        let off = self.reading().filter(|reading| reading.state == PowerState::Off)?;
        let requests = facts.boot_requests.values().map(|it| it.last_at);
        let agents = facts.claims.values().map(|it| it.at).chain(facts.progress.values().map(|it| it.at));
        let systems = facts.readiness.values().map(|it| it.at);
        requests.chain(agents).chain(systems).max().filter(|heard| *heard > off.at)
    }

    /// When the last power command ended, if the power had not followed, and was not read since.
    fn not_followed(&self) -> Option<Timestamp> {
        let moves =
            |r: &&StepRecord| r.step.spec().effect == EffectKind::Power && r.step != StepId::ReadPower;
        let last = self.input.records.iter().rev().find(moves)?;
        match self.answer(last, wanted_by(last.step)) {
            Answer::Bad(PowerFailure::Moving | PowerFailure::NotMoved, _, at) => {
                Some(at).filter(|at| self.reading().is_none_or(|reading| reading.at <= *at))
            }
            _ => None,
        }
    }
}
