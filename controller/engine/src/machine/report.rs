//! The report of a machine: axes, conditions, and the progress of a running task.

use basalt_api::agent::TEST_STAGE;
use basalt_api::kinds::{
    Axes, Condition, ConditionStatus, Health, InstallStage, Lifecycle, MachineMode, Operation, Sync,
};
use basalt_api::values::Timestamp;

use super::script::TESTS_FAILED;
use super::walk::Walk;
use super::{Deployed, Goal, needs_inventory};
use crate::facts::{Scope, StepRecord};
use crate::plan::{Report, Wait};
use crate::steps::StepId;

/// The agent's stages of an install, with the deployment's stage for each.
const STAGES: &[(&str, InstallStage)] = &[
    ("inventory", InstallStage::NetworkBooting),
    ("partition", InstallStage::Partitioning),
    ("filesystems", InstallStage::Partitioning),
    ("unpack", InstallStage::Writing),
    ("bootloader", InstallStage::Configuring),
    ("seed", InstallStage::Configuring),
];

impl Walk<'_> {
    pub(crate) fn report(&self, goal: Goal, deployed: Option<&Deployed>) -> Report {
        let wait = self.waits.first();
        let lifecycle = self.lifecycle(goal, deployed.is_some());
        let operation = self.operation();
        let next = self.next.first().map(|s| s.step.spec().says.to_owned());
        let drifted = deployed.is_some_and(|d| d.drifted);
        let sync = match () {
            () if drifted || self.blocked() => Sync::Drifted,
            () if !self.connected() => Sync::Unknown,
            () => Sync::InSync,
        };
        let axes = Axes {
            lifecycle,
            operation,
            operation_detail: next.or_else(|| wait.map(|w| w.message.clone())),
            health: self.health(lifecycle),
            sync,
            ownership: (&self.input.spec.ownership).into(),
        };
        let step = self.next.first().map(|s| s.step).or_else(|| wait.and_then(|w| w.step));
        let progress = self.current_attempt().and_then(|a| self.input.facts.progress.get(&a));
        let running = progress.filter(|_| wait.is_some_and(|w| w.code == "TaskRuns"));
        let differs = self.power_differs(lifecycle);
        Report {
            conditions: self.conditions(lifecycle, wait).into_iter().chain(differs).collect(),
            stage: self.stage(goal, deployed.is_some(), step, running.map(|p| p.stage.as_str())),
            percent: running.map(|p| p.percent),
            activity: running.map(|p| p.message.clone()),
            deployed: deployed.is_some(),
            installed_by: deployed.map(|d| d.attempt),
            axes,
        }
    }

    fn current_attempt(&self) -> Option<basalt_api::values::Attempt> {
        self.input.records.iter().rev().find(|r| r.attempt.is_some()).and_then(|r| r.attempt)
    }

    fn begun(&self, of: impl Fn(&StepRecord) -> bool) -> bool {
        self.input.records.iter().any(of)
    }

    fn lifecycle(&self, goal: Goal, deployed: bool) -> Lifecycle {
        let input = self.input;
        match input.spec.mode {
            MachineMode::Rescue => return Lifecycle::Rescue,
            MachineMode::Broken => return Lifecycle::Broken,
            MachineMode::Retired => return Lifecycle::Retired,
            MachineMode::Managed if self.is_in_rescue() => return Lifecycle::Rescue,
            MachineMode::Managed => {}
        }
        let of_claim = |r: &StepRecord, step| {
            r.step == step && input.claim.as_ref().is_some_and(|c| r.scope == Scope::Deployment(c.uid))
        };
        match goal {
            Goal::Ready if input.unwiped => Lifecycle::Broken,
            Goal::Ready if self.waits.iter().any(|w| w.step == Some(StepId::PowerOffInventory)) => {
                Lifecycle::Commissioning
            }
            Goal::Ready if self.is_tested() || self.waits.iter().any(|w| w.code == TESTS_FAILED) => {
                Lifecycle::Testing
            }
            Goal::Ready => Lifecycle::Ready,
            Goal::Commission if self.runs_test() => Lifecycle::Testing,
            Goal::Commission if self.begun(|r| r.scope == Scope::Commission) => Lifecycle::Commissioning,
            Goal::Commission => Lifecycle::New,
            Goal::Deploy if deployed => Lifecycle::Deployed,
            Goal::Deploy if self.begun(|r| of_claim(r, StepId::ArmInstall)) => Lifecycle::Deploying,
            Goal::Deploy if needs_inventory(input) => Lifecycle::Commissioning,
            Goal::Deploy => Lifecycle::Allocated,
            Goal::Release if self.begun(|r| of_claim(r, StepId::ArmErase)) => Lifecycle::Erasing,
            Goal::Release | Goal::Remove => Lifecycle::Releasing,
        }
    }

    /// True if the agent reports that a test runs.
    fn runs_test(&self) -> bool {
        let progress = self.current_attempt().and_then(|attempt| self.input.facts.progress.get(&attempt));
        progress.is_some_and(|progress| progress.stage == TEST_STAGE)
    }

    fn operation(&self) -> Operation {
        match self.waits.first() {
            _ if !self.next.is_empty() => Operation::Running,
            None => Operation::Idle,
            Some(wait) if wait.stalled && (wait.tries.is_some() || wait.code == TESTS_FAILED) => {
                Operation::Failed
            }
            Some(wait) if wait.stalled => Operation::Held,
            Some(_) => Operation::Waiting,
        }
    }

    fn health(&self, lifecycle: Lifecycle) -> Health {
        let failing = |w: &Wait| w.tries.is_some_and(|(tries, _)| tries > 1) || w.stalled;
        match () {
            () if self.operation() == Operation::Failed => Health::Critical,
            () if self.input.facts.alarm.is_some() || self.waits.iter().any(failing) => Health::Degraded,
            () if self.power_differs(lifecycle).is_some() => Health::Degraded,
            () if self.input.facts.power.is_none() && self.input.records.is_empty() => Health::Unknown,
            () => Health::Ok,
        }
    }

    fn conditions(&self, lifecycle: Lifecycle, wait: Option<&Wait>) -> Vec<Condition> {
        let settled = matches!(lifecycle, Lifecycle::Ready | Lifecycle::Deployed) && !self.blocked();
        let stalled = self.waits.iter().find(|w| w.stalled);
        let (reason, message) = match (self.next.first(), wait) {
            (Some(step), _) => ("Running".to_owned(), step.step.spec().says.to_owned()),
            (None, Some(wait)) => (wait.code.to_owned(), sentence(wait)),
            (None, None) => (format!("{lifecycle:?}"), "nothing is left to do".to_owned()),
        };
        let since = wait.map_or(self.now, |w| w.since);
        let deadline = wait.and_then(|w| w.deadline);
        let make = |kind: &str, holds: bool, reason: &str, message: &str| Condition {
            kind: kind.to_owned(),
            status: if holds { ConditionStatus::True } else { ConditionStatus::False },
            reason: reason.to_owned(),
            message: message.to_owned(),
            since,
            deadline,
        };
        // A stalled wait gives its own reason, whatever else is in progress.
        let why = stalled.map_or((reason.clone(), message.clone()), |it| (it.code.to_owned(), sentence(it)));
        vec![
            make(Condition::READY, settled, &reason, &message),
            make(Condition::PROGRESSING, self.blocked() && stalled.is_none(), &reason, &message),
            make(Condition::STALLED, stalled.is_some(), &why.0, &why.1),
        ]
    }

    fn stage(
        &self,
        goal: Goal,
        deployed: bool,
        step: Option<StepId>,
        word: Option<&str>,
    ) -> Option<InstallStage> {
        match goal {
            Goal::Release => return Some(InstallStage::Releasing),
            Goal::Deploy if deployed => return Some(InstallStage::Done),
            Goal::Deploy => {}
            Goal::Ready | Goal::Commission | Goal::Remove => return None,
        }
        Some(match step? {
            StepId::AskInstall | StepId::ClaimInstall => InstallStage::NetworkBooting,
            StepId::RunInstall => {
                let known = word.and_then(|w| STAGES.iter().find(|(name, _)| *name == w));
                known.map_or(InstallStage::Writing, |(_, stage)| *stage)
            }
            StepId::BootLocal => InstallStage::DiskBooting,
            StepId::ReadyInstall | StepId::RestartInstall => InstallStage::Checking,
            _ => InstallStage::PoweringOn,
        })
    }
}

/// One message with the wait, and with the action that a person must take.
fn sentence(wait: &Wait) -> String {
    match &wait.human {
        Some(human) if wait.stalled => format!("{}. To do: {human}", wait.message),
        _ => wait.message.clone(),
    }
}

/// Keeps `since` of every condition whose status has not changed.
pub fn carry_since(previous: &[Condition], next: &mut [Condition], now: Timestamp) {
    for condition in next {
        let same = previous.iter().find(|p| p.kind == condition.kind && p.status == condition.status);
        condition.since = same.map_or(now, |p| p.since);
    }
}
