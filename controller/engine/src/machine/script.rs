//! Requested scripts, and the rescue environment, which is one: booted when no other action is in progress on the machine.
//!
//! A script runs once. A rescue is for machines that a person repairs, so it is begun in every mode, and also on machines of
//! deployments. The rules and their reasons are in docs/decisions/059-scripts.md and 060-rescue.md.

use basalt_api::kinds::{FailedTestsPolicy, OwnershipMode};
use basalt_api::values::{Attempt, Timestamp};
use basalt_api::wire::Verb as Asked;

use super::attempt::{State, TaskSteps};
use super::operation::{OperationProgress, Refused};
use super::walk::Walk;
use crate::facts::{Scope, StepRecord};
use crate::input::Operation;
use crate::plan::{BootAction, TaskKind, Wait};
use crate::steps::StepId;

/// The code of the wait for hardware that passes its tests.
pub(super) const TESTS_FAILED: &str = "TestsFailed";

/// The beginning of the line in which the rescue environment reports its ssh address.
const OPEN: &str = "ssh root@";

impl<'a> Walk<'a> {
    /// The obstacle to a script, as long as no script runs.
    pub(super) fn stands_against_script(&self, verb: Asked) -> Option<Refused> {
        let (input, name) = (self.input, &self.input.name);
        if let Some(claim) = input.claim.as_ref().filter(|_| verb != Asked::Rescue) {
            let message = format!("{name} runs the system of deployment {}", claim.name);
            let fix = format!("delete deployment {}, or do it in its system by other means", claim.name);
            return Some(Refused { code: "Claimed", message, fix });
        }
        if input.spec.ownership.boot == OwnershipMode::Observed {
            let message = format!("what {name} boots is only observed");
            let fix = "set ownership.boot = \"managed\" on the machine".to_owned();
            return Some(Refused { code: "BootObserved", message, fix });
        }
        None
    }

    /// True if a script waits for the machine or runs on it. The script then decides about the power.
    pub(super) fn script_goes_on(&self) -> bool {
        let mut operations = self.input.operations.iter();
        operations.any(|it| boots(it.verb) && self.goes_on(it))
    }

    /// True if a rescue was requested after this install, or its environment is armed. A person then works on the machine, although its
    /// system has not reported yet.
    pub(super) fn is_mended(&self, installed_at: Timestamp) -> bool {
        let mut rescues = self.input.operations.iter().filter(|it| it.verb == Asked::Rescue);
        rescues.any(|it| {
            let asked = it.requested_at > installed_at || self.script_attempt(it).is_some();
            asked && self.goes_on(it)
        })
    }

    /// True if an install was armed after an attempt that has not run. The attempt must not interrupt the first boot of the new system.
    fn is_overtaken(&self, armed: &StepRecord) -> bool {
        let later = self.input.records.iter().rev().take_while(|record| record.key != armed.key);
        later.into_iter().any(|record| record.step == StepId::ArmInstall)
    }

    fn goes_on(&self, operation: &Operation) -> bool {
        let attempt = self.script_attempt(operation);
        match attempt.map(|(record, _)| (self.state(record), self.is_overtaken(record))) {
            Some((State::Running { .. }, _)) => true,
            Some((State::Succeeded(_) | State::Failed(..), _) | (State::Open, true)) => false,
            Some((State::Open, false)) | None => {
                self.now < operation.deadline && self.stands_against(operation.verb).is_none()
            }
        }
    }

    /// The attempt to run an operation's script; there is one at most.
    pub(super) fn script_attempt(&self, operation: &Operation) -> Option<(&'a StepRecord, Attempt)> {
        let arm = TaskSteps::of(task(operation)).arm;
        let record = self.arms(Scope::Operation(operation.id), arm).next_back()?;
        Some((record, record.attempt?))
    }

    /// True if the operation's script runs. It ends by its own time limit, or by its agent's silence.
    pub(super) fn script_runs(&self, operation: &Operation) -> bool {
        let attempt = self.script_attempt(operation);
        attempt.is_some_and(|(record, _)| matches!(self.state(record), State::Running { .. }))
    }

    /// True if a person works on it in the rescue environment. It is not given away meanwhile.
    pub(super) fn is_in_rescue(&self) -> bool {
        self.input.operations.iter().any(|it| it.verb == Asked::Rescue && self.script_runs(it))
    }

    /// True if requested tests of its hardware run.
    pub(super) fn is_tested(&self) -> bool {
        self.input.operations.iter().any(|it| it.verb == Asked::Test && self.script_runs(it))
    }

    /// Waits if the hardware failed a test. Such a machine is not given away, unless a person overrides the tests or the spec ignores them.
    pub(super) fn wait_for_good_hardware(&mut self) {
        if let Some(wait) = self.failed_tests() {
            self.waits.push(wait);
        }
    }

    fn failed_tests(&self) -> Option<Wait> {
        let (input, failed) = (self.input, &self.input.failed_tests);
        let blocks = input.spec.commissioning.failed_tests == FailedTestsPolicy::Block;
        let since = failed.at.filter(|_| blocks && failed.stand())?;
        let name = &input.name;
        Some(Wait {
            code: TESTS_FAILED,
            step: None,
            message: format!("the hardware of {name} failed a test: {}", failed.findings.join("; ")),
            since,
            deadline: None,
            human: Some(format!(
                "mend it and run `basalt test {name}{}`, or run `basalt override-tests {name} --reason TEXT`",
                failed.tests.iter().map(|test| format!(" --test {test}")).collect::<String>()
            )),
            remedy: "it goes on when the tests pass, or are overridden".to_owned(),
            tries: None,
            stalled: true,
        })
    }

    /// The result of tests that ran. Their rows are stored before the machine is planned.
    fn tested(&self, operation: &Operation, attempt: Attempt, what: &str) -> OperationProgress {
        let (name, failed) = (&self.input.name, &self.input.failed_tests);
        let is_mine = operation.tests.iter().any(|test| failed.tests.contains(&test.name));
        if is_mine && failed.at.is_some_and(|at| at >= operation.requested_at) {
            let findings = failed.findings.join("; ");
            return OperationProgress::Failed(
                TESTS_FAILED,
                format!("attempt {attempt} has run {what} on {name}: {findings}"),
            );
        }
        OperationProgress::Done(format!(
            "attempt {attempt} has run {what} on {name}; `basalt results {name}` shows what was found"
        ))
    }

    /// The result of an override. The transaction that accepts the operation already overrides the tests.
    pub(super) fn overridden(&self, operation: &Operation) -> OperationProgress {
        OperationProgress::Done(format!(
            "failed tests of {} before {} are overridden",
            self.input.name, operation.requested_at
        ))
    }

    /// Runs a script, unless another action is in progress on the machine. It runs once: a failure is reported, not retried.
    pub(super) fn script(&mut self, operation: &Operation) -> OperationProgress {
        let name = self.input.name.clone();
        let what = words(operation);
        let scope = Scope::Operation(operation.id);
        let attempt = self.script_attempt(operation);
        let state = attempt.map(|(record, attempt)| (record, attempt, self.state(record)));
        match state {
            Some((_, attempt, State::Succeeded(_))) if operation.verb == Asked::Rescue => {
                return OperationProgress::Done(format!(
                    "the rescue of {name} has ended (attempt {attempt})"
                ));
            }
            Some((_, attempt, State::Succeeded(_))) if operation.verb == Asked::Test => {
                return self.tested(operation, attempt, &what);
            }
            Some((_, attempt, State::Succeeded(_))) => {
                return OperationProgress::Done(format!("attempt {attempt} has run {what} on {name}"));
            }
            Some((_, attempt, State::Failed(failure, message, _))) => {
                let rule = failure.rule();
                let detail = if message.is_empty() { String::new() } else { format!(": {message}") };
                let message = format!("{what} on {name} (attempt {attempt}): {}{detail}", rule.says);
                return OperationProgress::Failed(rule.code, message);
            }
            Some((record, attempt, State::Running { since, quiet_at })) => {
                self.boot.get_or_insert(BootAction::Ephemeral(attempt));
                let held = std::mem::take(&mut self.waits);
                self.wait_for_run(record, TaskSteps::of(task(operation)), since, quiet_at);
                let mut mine = std::mem::replace(&mut self.waits, held);
                let open = self.open(operation, attempt);
                if let (Some(open), Some(wait)) =
                    (&open, mine.iter_mut().find(|wait| wait.code == "TaskRuns"))
                {
                    wait.message = format!("{name} runs the rescue environment; {open}");
                }
                let message = mine.first().map(|wait| wait.message.clone()).unwrap_or_default();
                if self.next.is_empty() {
                    self.waits.splice(0..0, mine);
                }
                return match open {
                    Some(open) => OperationProgress::Open(open),
                    None => OperationProgress::Running(message),
                };
            }
            Some((.., State::Open)) | None => {}
        }
        if let Some(refused) = self.stands_against(operation.verb) {
            return OperationProgress::Failed(refused.code, refused.message);
        }
        if attempt.is_some_and(|(record, _)| self.is_overtaken(record)) {
            let message = format!("{name} was installed before it had booted for {what}: ask again");
            return OperationProgress::Failed("Overtaken", message);
        }
        if let Some(what) = self.under_way() {
            return OperationProgress::Waits(what);
        }
        if attempt.is_some_and(|(record, _)| self.now >= record.not_after) {
            return OperationProgress::Failed(
                "NeverRan",
                format!("{name} did not boot for {what} in its time"),
            );
        }
        let (held, announced) = (std::mem::take(&mut self.waits), self.later.len());
        match attempt {
            Some((record, attempt)) => self.boot_attempt(task(operation), record, attempt),
            None => self.arm(task(operation), scope),
        }
        let mine = std::mem::replace(&mut self.waits, held);
        let by_hand = |wait: &&Wait| wait.code == "ManualPower";
        let gives_up = mine.iter().find(|wait| wait.stalled && !by_hand(wait));
        if gives_up.is_some() || self.now >= operation.deadline {
            self.later.truncate(announced);
            self.boot = None;
        }
        if let Some(wait) = gives_up {
            let fix = wait.human.as_ref().map(|fix| format!(". To do: {fix}")).unwrap_or_default();
            return OperationProgress::Failed(wait.code, format!("{}{fix}", wait.message));
        }
        let begins = self.next.first().map(|step| step.step).unwrap_or(TaskSteps::of(task(operation)).run);
        let message = mine.first().map_or_else(|| begins.spec().says.to_owned(), |wait| wait.message.clone());
        if self.now < operation.deadline {
            match self.next.is_empty() {
                true => drop(self.waits.splice(0..0, mine)),
                false => self.waits.clear(),
            }
        }
        if attempt.is_some() {
            OperationProgress::Running(message)
        } else {
            OperationProgress::Waits(message)
        }
    }

    /// The ssh address of a rescue environment that is open.
    fn open(&self, operation: &Operation, attempt: Attempt) -> Option<String> {
        let progress = self.input.facts.progress.get(&attempt).filter(|_| operation.verb == Asked::Rescue)?;
        let line = progress.message.get(progress.message.find(OPEN)?..)?;
        Some(format!("people can come in: {line}"))
    }
}

/// The task that the machine boots for an operation.
fn task(operation: &Operation) -> TaskKind {
    if operation.verb == Asked::Rescue { TaskKind::Rescue } else { TaskKind::Script }
}

/// True if the machine boots the ephemeral environment for this operation.
pub(super) const fn boots(verb: Asked) -> bool {
    matches!(verb, Asked::RunScript | Asked::Rescue | Asked::Test)
}

/// The name of the operation's script or tests, for messages.
fn words(operation: &Operation) -> String {
    match (&operation.script, operation.verb) {
        (_, Asked::Test) => {
            let names: Vec<&str> = operation.tests.iter().map(|test| test.name.as_str()).collect();
            let noun = if names.len() == 1 { "test" } else { "tests" };
            format!("{noun} {}", names.join(", "))
        }
        (_, Asked::Rescue) => "the rescue environment".to_owned(),
        (Some(script), _) => format!("script {}", script.name),
        (None, _) => "a script".to_owned(),
    }
}
