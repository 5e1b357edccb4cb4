//! Switches a running system off in an orderly way: the BMC presses the power button, and the system has
//! [`DeadlineId::SoftOff`] to shut down. Then the power is cut.
//!
//! Only the installed system of a deployment is asked. Ephemeral environments, boot loaders and firmware ignore the button.

use basalt_api::agent::Outcome;
use basalt_api::kinds::{PowerState, Readiness};
use basalt_api::values::Timestamp;

use super::attempt::TaskSteps;
use super::power::{Answer, Power};
use super::walk::Walk;
use crate::deadlines::DeadlineId;
use crate::facts::{Scope, StepRecord};
use crate::failures::PowerFailure;
use crate::input::{MachineInput, Policy, later};
use crate::plan::{BootDevice, Verb};
use crate::steps::StepId;

const STEP: StepId = StepId::SoftOff;

/// True if a power off now asks a system to shut down first.
#[must_use]
pub fn system_runs(input: &MachineInput, policy: &Policy, now: Timestamp) -> bool {
    Walk::new(input, policy, now.max(input.latest())).system_runs()
}

impl<'a> Walk<'a> {
    /// Asks the system to shut down before the first `then` of the scope. True when the machine is off, the deadline has passed, or the
    /// system cannot be asked.
    pub(super) fn shut_down_before(&mut self, scope: Scope, then: StepId) -> bool {
        let of_scope = |step| move |r: &&'a StepRecord| r.step == step && r.scope == scope;
        if self.input.records.iter().any(|r| of_scope(then)(&r)) {
            return true;
        }
        let asked = self.input.records.iter().rev().find(of_scope(STEP));
        self.shut_down(scope, asked)
    }

    /// As [`Self::shut_down_before`], for a machine that is to be held off.
    pub(super) fn shut_down_before_hold(&mut self) -> bool {
        match self.held_off() {
            // The power off did not work: repeat it without another request.
            Some(r) if r.step == StepId::HoldOff && !self.is_off_by(r) => true,
            _ => self.shut_down(Scope::Machine, self.shuts_down_to_hold()),
        }
    }

    /// The request to shut down, if the power off of the hold is still to come.
    pub(super) fn shuts_down_to_hold(&self) -> Option<&'a StepRecord> {
        self.held_off().filter(|r| r.step == STEP && !self.is_long_over(r))
    }

    fn held_off(&self) -> Option<&'a StepRecord> {
        let holds = |r: &&StepRecord| r.scope == Scope::Machine && matches!(r.step, STEP | StepId::HoldOff);
        self.input.records.iter().rev().find(holds)
    }

    fn is_off_by(&self, record: &StepRecord) -> bool {
        matches!(self.answer(record, Some(PowerState::Off)), Answer::Good(_))
    }

    /// True if this shutdown is too old to count: [`DeadlineId::SoftOff`] and [`DeadlineId::RetryLater`] have passed since its `not_after`.
    /// If the machine runs now, it was switched on after the shutdown.
    fn is_long_over(&self, record: &StepRecord) -> bool {
        let time = self.policy.deadline(DeadlineId::SoftOff) + self.policy.deadline(DeadlineId::RetryLater);
        self.now >= later(record.not_after, time)
    }

    fn shut_down(&mut self, scope: Scope, asked: Option<&'a StepRecord>) -> bool {
        let effect = (Verb::SoftOff, BootDevice::Unchanged);
        let step = (scope, STEP, None);
        let Some(record) = asked else {
            if !self.system_runs() {
                return true;
            }
            self.act(Power::Due, step, effect);
            return false;
        };
        match self.answer(record, None) {
            Answer::Undelivered => self.act(Power::Undelivered(record), step, effect),
            Answer::Due(until) => self.act(Power::Answering(record, until), step, effect),
            // The BMC cannot press the power button.
            Answer::Bad(PowerFailure::Unsupported, ..) => return true,
            // After any other failure the request may have reached the system.
            Answer::Bad(_, _, at) | Answer::Good(at) => {
                let until = later(at, self.policy.deadline(DeadlineId::SoftOff));
                let is_off = self
                    .reading()
                    .is_some_and(|it| it.state == PowerState::Off && it.at >= record.started_at);
                if is_off || self.now >= until {
                    return true;
                }
                let message = format!("waiting for the system of {} to shut down", self.input.name);
                self.wait(STEP, "ShutsDown", message, at, until);
            }
        }
        false
    }

    /// True if the system of the deployment runs: it was installed, and it has reported or need not report. The last task that was booted
    /// has succeeded, and the last power reading is on.
    fn system_runs(&self) -> bool {
        let Some(claim) = self.input.claim.as_ref().filter(|_| self.bmc().is_some()) else { return false };
        let succeeded = |r: &StepRecord| {
            let ended = r.attempt.and_then(|attempt| self.input.facts.results.get(&attempt));
            ended.is_some_and(|ended| ended.outcome == Outcome::Succeeded)
        };
        let installed = self.counting(Scope::Deployment(claim.uid), StepId::ArmInstall);
        let Some(installed) = installed.filter(|r| succeeded(r)) else { return false };
        let has_reported = claim.spec.readiness.check == Readiness::Installed
            || installed.attempt.is_some_and(|attempt| self.input.facts.readiness.contains_key(&attempt));
        let booted = self.input.records.iter().rev().find(|r| TaskSteps::netbooted_by(r.step).is_some());
        self.reads(PowerState::On) && has_reported && booted.is_none_or(succeeded)
    }
}
