//! Operations on a machine: if they can be done, how far they are, and the obstacles.
//!
//! Operations come after everything that the machine's goal needs: a power command never interrupts an install. The rules
//! and their reasons are in docs/decisions/050-operations.md.

use basalt_api::kinds::{MachineMode, OwnershipMode, PowerDriver, PowerPolicy, PowerState};
use basalt_api::values::{Attempt, Timestamp};
use basalt_api::wire::{OperationState, Verb as Asked};

use super::attempt::{State, TaskSteps};
use super::before_effect;
use super::walk::Walk;
use crate::facts::{BootSeen, Link, Scope, StepRecord};
use crate::failures::AttemptFailure;
use crate::input::{MachineInput, Operation, Policy};
use crate::plan::{BootDevice, OperationSeen, Verb, Wait};
use crate::steps::StepId;

/// The reason why a request on a machine is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// One CamelCase word for programs: `Locked`, `Declared`, …
    pub code: &'static str,
    /// A sentence for people.
    pub message: String,
    /// The action that would help.
    pub fix: String,
}

/// Checks that an operation can be requested of a machine in its present state.
///
/// # Errors
/// [`Refused`]: the reason, and the action that would help.
pub fn judge(input: &MachineInput, policy: &Policy, now: Timestamp, verb: Asked) -> Result<(), Refused> {
    let walk = Walk::new(input, policy, now.max(input.latest()));
    if let Some(refused) = walk.stands_against(verb) {
        return Err(refused);
    }
    if verb == Asked::Abort {
        walk.abortable()?;
    }
    Ok(())
}

/// A step, its command, and the power that has to be read afterwards.
type PowerStep = (StepId, Verb, Option<PowerState>);

/// True for the operations that change the power.
const fn is_power(verb: Asked) -> bool {
    matches!(verb, Asked::PowerOn | Asked::PowerOff | Asked::PowerCycle)
}

/// The state of an operation.
pub(super) enum OperationProgress {
    /// It waits for something else.
    Waits(String),
    Running(String),
    /// The rescue environment runs, and people can log in.
    Open(String),
    Done(String),
    Failed(&'static str, String),
}

impl<'a> Walk<'a> {
    /// The obstacle to an operation that has not begun.
    pub(super) fn stands_against(&self, verb: Asked) -> Option<Refused> {
        let input = self.input;
        let (name, spec) = (&input.name, &input.spec);
        let refused = |code, message: String, fix: &str| Some(Refused { code, message, fix: fix.to_owned() });
        if spec.locked {
            return refused("Locked", format!("{name} is locked"), "set locked = false on the machine");
        }
        if verb == Asked::Abort {
            return None;
        }
        if input.deletion_requested_at.is_some() {
            let message = format!("{name} is being deleted");
            return refused("Deleting", message, "declare it again once it is gone");
        }
        let managed = spec.mode == MachineMode::Managed;
        if matches!(verb, Asked::Recommission | Asked::RunScript | Asked::Test) && !managed {
            let message = format!("{name} is left alone, because its mode is {}", spec.mode);
            return refused("Mode", message, "set mode = \"managed\" on the machine");
        }
        match verb {
            Asked::Recommission => return None,
            Asked::OverrideTests if input.failed_tests.stand() => return None,
            Asked::OverrideTests => {
                let message = format!("no failed test keeps {name} from being used");
                return refused("NothingToOverride", message, "see its results: basalt results");
            }
            Asked::RunScript | Asked::Rescue | Asked::Test => return self.stands_against_script(verb),
            Asked::PowerOn | Asked::PowerOff | Asked::PowerCycle | Asked::ResetBmc | Asked::Abort => {}
        }
        if spec.ownership.power == OwnershipMode::Observed {
            let message = format!("the power of {name} is only observed");
            return refused("PowerObserved", message, "set ownership.power = \"managed\" on the machine");
        }
        if self.bmc().is_none() {
            let message = format!("{name} has no BMC that Basalt can speak to");
            return refused("NoBmc", message, "declare its bmc, or press its button");
        }
        if verb == Asked::ResetBmc && self.bmc().is_some_and(|bmc| bmc.driver == PowerDriver::Webhook) {
            let message = format!("{name} is switched by a web service, and not by a BMC of its own");
            return refused("NoBmc", message, "restart that service yourself");
        }
        let against = match (spec.power, verb) {
            (PowerPolicy::On, Asked::PowerOff) => Some("on"),
            (PowerPolicy::Off, Asked::PowerOn | Asked::PowerCycle) => Some("off"),
            _ => None,
        };
        let declared = against.filter(|_| managed)?;
        let message = format!("the spec of {name} says power = {declared:?}, and it would be switched back");
        refused(
            "Declared",
            message,
            "change power in the machine's spec: \"auto\" goes along with operations",
        )
    }

    /// Checks that an attempt is in progress that can be aborted.
    fn abortable(&self) -> Result<(), Refused> {
        let name = &self.input.name;
        let nothing = || Refused {
            code: "NothingToAbort",
            message: format!("no commissioning, install, script or rescue of {name} is under way"),
            fix: "see what it does: basalt explain".to_owned(),
        };
        let latest = self.input.records.iter().rev().find(|r| r.attempt.is_some() && is_arm(r));
        let record = latest.ok_or_else(nothing)?;
        match self.state(record) {
            State::Open | State::Running { .. } if record.step == StepId::ArmErase => Err(Refused {
                code: "EraseRuns",
                message: format!("{name} is being erased, which is not aborted: its data would be half gone"),
                fix: "wait for its end, or delete its deployment with force".to_owned(),
            }),
            State::Open if self.now >= record.not_after => Err(nothing()),
            State::Open | State::Running { .. } => Ok(()),
            State::Succeeded(_) | State::Failed(..) => Err(nothing()),
        }
    }

    /// When a person aborted the attempt that this record armed. An erase cannot be aborted.
    pub(crate) fn aborted(&self, record: &StepRecord) -> Option<Timestamp> {
        let at = self.input.abort_requested_at?;
        let ended = record.attempt.and_then(|attempt| self.input.facts.results.get(&attempt));
        // A request in the same moment as the abort is newer, so its attempt is not aborted.
        let meant = record.started_at <= at && record.cause.asked.is_none_or(|asked| asked < at);
        let in_time = meant && ended.is_none_or(|end| end.at > at);
        (in_time && record.step != StepId::ArmErase).then_some(at)
    }

    /// The power operation that can go on, if any.
    fn power_operation(&self) -> Option<&'a Operation> {
        let open = self.input.operations.iter().find(|operation| is_power(operation.verb))?;
        (self.now < open.deadline && self.stands_against(open.verb).is_none()).then_some(open)
    }

    /// The last power state that a person requested. A spec with `power = "auto"` keeps it until the next task.
    pub(super) fn wish(&self) -> Option<PowerState> {
        let wish = self.input.power_wish.as_ref()?;
        let worked = self.input.records.iter().any(|r| is_arm(r) && r.started_at > wish.at);
        (!worked).then_some(wish.state)
    }

    /// True if a person's operation decides the power now, so that it is not kept at `wanted`.
    pub(crate) fn power_is_asked_for(&self, wanted: PowerState) -> bool {
        let otherwise = |wish: PowerState| self.input.spec.power == PowerPolicy::Auto && wish != wanted;
        let ends = |operation: &Operation| operation.verb == Asked::Abort && self.now < operation.deadline;
        self.power_operation().is_some()
            || self.script_goes_on()
            || self.input.operations.iter().any(ends)
            || self.wish().is_some_and(otherwise)
    }

    /// True if a person wants the machine to be on.
    pub(crate) fn is_wanted_on(&self) -> bool {
        let asked = self.power_operation().map(|operation| operation.verb != Asked::PowerOff);
        asked.unwrap_or_else(|| self.wish() == Some(PowerState::On))
    }

    /// Advances the operations as far as possible, after everything else.
    pub(crate) fn operate(&mut self) {
        for operation in &self.input.operations {
            let far = match operation.verb {
                Asked::Recommission => self.recommissioned(operation),
                Asked::Abort => self.abort(operation),
                Asked::PowerOn | Asked::PowerOff | Asked::PowerCycle => self.switch(operation),
                Asked::ResetBmc => self.reset_bmc(operation),
                Asked::RunScript | Asked::Rescue | Asked::Test => self.script(operation),
                Asked::OverrideTests => self.overridden(operation),
            };
            let seen = self.seen(operation, far);
            self.operations.push(seen);
        }
    }

    fn seen(&mut self, operation: &Operation, far: OperationProgress) -> OperationSeen {
        let over = self.now >= operation.deadline;
        let (state, reason, message) = match far {
            OperationProgress::Done(message) => (OperationState::Done, "Done", message),
            OperationProgress::Failed(code, message) => (OperationState::Failed, code, message),
            OperationProgress::Waits(message)
            | OperationProgress::Running(message)
            | OperationProgress::Open(message)
                if over && !self.script_runs(operation) =>
            {
                let scope = Scope::Operation(operation.id);
                self.next.retain(|step| step.scope != scope);
                (OperationState::Expired, "Expired", message)
            }
            OperationProgress::Waits(message) => (OperationState::Requested, "Waits", message),
            OperationProgress::Running(message) => (OperationState::Running, "Running", message),
            OperationProgress::Open(message) => (OperationState::Running, OperationState::OPEN, message),
        };
        let ended = self.script_attempt(operation).and_then(|(_, it)| self.input.facts.results.get(&it));
        let output = ended.and_then(|ended| ended.output.clone());
        OperationSeen { id: operation.id, state, reason: reason.to_owned(), message, output }
    }

    /// A recommission is done when there is an inventory later than the request.
    fn recommissioned(&self, operation: &Operation) -> OperationProgress {
        let name = &self.input.name;
        if let Some(seen) = self.input.facts.inventory.as_ref().filter(|i| i.at > operation.requested_at) {
            return OperationProgress::Done(format!(
                "attempt {} has read the hardware of {name}",
                seen.attempt
            ));
        }
        if let Some(refused) = self.stands_against(operation.verb) {
            return OperationProgress::Failed(refused.code, refused.message);
        }
        let mine = |r: &&StepRecord| r.step == StepId::ArmInventory && r.started_at >= operation.requested_at;
        let begun = self.input.records.iter().rev().find(mine);
        if begun.is_some_and(|record| self.aborted(record).is_some()) {
            return OperationProgress::Failed("Aborted", "it was aborted".to_owned());
        }
        match (begun, self.under_way(), &self.input.claim) {
            (Some(_), what, _) => {
                OperationProgress::Running(what.unwrap_or_else(|| format!("reading the hardware of {name}")))
            }
            (None, Some(what), _) => OperationProgress::Waits(what),
            (None, None, Some(claim)) => {
                OperationProgress::Waits(format!("waiting for deployment {} to let {name} go", claim.name))
            }
            (None, None, None) => OperationProgress::Waits(self.waits.first().map_or_else(
                || format!("waiting for the inventory of {name} to begin"),
                |wait| wait.message.clone(),
            )),
        }
    }

    /// Aborts an attempt and cuts the machine's power, because the agent would go on.
    fn abort(&mut self, operation: &Operation) -> OperationProgress {
        if let Some(refused) = self.stands_against(operation.verb) {
            return OperationProgress::Failed(refused.code, refused.message);
        }
        let name = self.input.name.clone();
        let latest = self.input.records.iter().rev().find(|r| r.attempt.is_some() && is_arm(r));
        let aborted =
            latest.filter(|record| matches!(self.state(record), State::Failed(AttemptFailure::Aborted, ..)));
        let Some((record, attempt)) = aborted.and_then(|record| Some((record, record.attempt?))) else {
            let message = format!("nothing of {name} was left to abort: it had ended, or was begun anew");
            return OperationProgress::Failed("NothingToAbort", message);
        };
        let booted = TaskSteps::armed_by(record.step).is_some_and(|task| {
            self.input.records.iter().any(|r| r.step == task.netboot && r.attempt == Some(attempt))
        });
        if !booted {
            return OperationProgress::Done(format!(
                "attempt {attempt} was aborted before {name} booted for it"
            ));
        }
        if self.bmc().is_none() {
            let message = format!("attempt {attempt} is aborted; nobody but you can switch {name} off");
            return OperationProgress::Done(message);
        }
        let off = [(StepId::AbortOff, Verb::Off, Some(PowerState::Off))];
        match self.drive(operation, Some(attempt), &off) {
            Ok(()) => OperationProgress::Done(format!("attempt {attempt} is aborted, and {name} is off")),
            Err(far) => far,
        }
    }

    /// Switches the power, unless another action is in progress on the machine.
    fn switch(&mut self, operation: &Operation) -> OperationProgress {
        const ON: PowerStep = (StepId::OperateOn, Verb::On, Some(PowerState::On));
        const SOFT: PowerStep = (StepId::SoftOff, Verb::SoftOff, Some(PowerState::Off));
        const OFF: PowerStep = (StepId::OperateOff, Verb::Off, Some(PowerState::Off));
        if let Some(refused) = self.stands_against(operation.verb) {
            return OperationProgress::Failed(refused.code, refused.message);
        }
        if let Some(what) = self.under_way() {
            return OperationProgress::Waits(what);
        }
        let (steps, done): (&[_], _) = match operation.verb {
            Asked::PowerOff => (&[SOFT, OFF], "is off"),
            Asked::PowerCycle => (&[SOFT, OFF, ON], "was off, and is on"),
            _ => (&[ON], "is on"),
        };
        match self.drive(operation, None, steps) {
            Ok(()) => OperationProgress::Done(format!("{} {done}", self.input.name)),
            Err(far) => far,
        }
    }

    /// Restarts the BMC. Other work on the machine is no obstacle, because it often waits for this BMC.
    fn reset_bmc(&mut self, operation: &Operation) -> OperationProgress {
        if let Some(refused) = self.stands_against(operation.verb) {
            return OperationProgress::Failed(refused.code, refused.message);
        }
        match self.drive(operation, None, &[(StepId::ResetBmc, Verb::ResetBmc, None)]) {
            Ok(()) => OperationProgress::Done(format!(
                "the BMC of {} resets itself; it answers again in some minutes, and {0} goes on meanwhile",
                self.input.name
            )),
            Err(far) => far,
        }
    }

    /// Advances power steps as far as possible, before the other waits.
    fn drive(
        &mut self,
        operation: &Operation,
        attempt: Option<Attempt>,
        steps: &[PowerStep],
    ) -> Result<(), OperationProgress> {
        let scope = Scope::Operation(operation.id);
        let held = std::mem::take(&mut self.waits);
        let mut left = steps.iter();
        let undone = left.find(|(step, verb, wants)| {
            if *verb == Verb::SoftOff {
                return !self.shut_down_before(scope, StepId::OperateOff);
            }
            let ready = *verb != Verb::On || self.boots_disk(*step, operation);
            let effect = (*verb, BootDevice::Unchanged);
            !(ready && self.drive_power((scope, *step, attempt), effect, *wants))
        });
        let mine = std::mem::replace(&mut self.waits, held);
        let Some((step, ..)) = undone else { return Ok(()) };
        let rest: Vec<StepId> = left.map(|(step, ..)| *step).collect();
        if let Some(wait) = mine.iter().find(|wait| wait.stalled) {
            let fix = wait.human.as_ref().map(|fix| format!(". To do: {fix}")).unwrap_or_default();
            return Err(OperationProgress::Failed(wait.code, format!("{}{fix}", wait.message)));
        }
        let begun = self.input.records.iter().any(|r| r.scope == scope) || !self.next.is_empty();
        let message = mine.first().map_or_else(|| step.spec().says.to_owned(), |wait| wait.message.clone());
        if self.now < operation.deadline {
            match self.next.is_empty() {
                true => drop(self.waits.splice(0..0, mine)),
                false => self.waits.clear(),
            }
            self.announce(scope, &rest);
        }
        Err(if begun { OperationProgress::Running(message) } else { OperationProgress::Waits(message) })
    }

    /// True if a machine that is switched on without a task boots its disk: no rack tells it to power off.
    fn boots_disk(&mut self, step: StepId, operation: &Operation) -> bool {
        let serves = matches!(self.input.facts.boot_racks, Link::Connected { .. } | Link::Partial { .. });
        let told_otherwise = self.boot.is_none() && self.input.facts.boot_applied == Some(BootSeen::PowerOff);
        !(serves && told_otherwise) || self.applied(step, BootSeen::Local, operation.requested_at)
    }

    /// The action in progress on the machine, during which its power must not be switched. A wait for a person is not one.
    pub(super) fn under_way(&self) -> Option<String> {
        let name = &self.input.name;
        if let Some(step) = self.next.first() {
            return Some(format!("waiting for {name} to {}", step.step.spec().says));
        }
        let stalled = self.waits.iter().any(|wait| wait.stalled);
        let acting = |wait: &&Wait| self.boot.is_some() || before_effect(wait).is_none();
        let acts = self.waits.iter().find(acting).filter(|_| !stalled);
        acts.map(|wait| wait.message.clone()).or_else(|| {
            self.writer().map(|(_, task, ..)| format!("waiting for {name} to {}", task.run.spec().says))
        })
    }

    /// When to plan again so that no operation outlives its deadline. A running script ends by its agent's silence instead.
    pub(crate) fn operations_end(&self) -> Option<Timestamp> {
        let open = self.operations.iter().filter(|seen| !seen.state.is_over());
        let asked = open.filter_map(|seen| self.input.operations.iter().find(|it| it.id == seen.id));
        asked.filter(|operation| !self.script_runs(operation)).map(|operation| operation.deadline).min()
    }
}

fn is_arm(record: &StepRecord) -> bool {
    TaskSteps::armed_by(record.step).is_some()
}
