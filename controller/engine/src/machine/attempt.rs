//! The state of an attempt to run a task on a machine. It is computed from facts and never stored.

use std::time::Duration;

use basalt_api::agent::Outcome;
use basalt_api::kinds::PowerState;
use basalt_api::values::{Attempt, Timestamp};

use super::power::Power;
use super::walk::Walk;
use crate::deadlines::DeadlineId;
use crate::facts::{BootRequest, Link, Scope, StepRecord};
use crate::failures::AttemptFailure;
use crate::input::later;
use crate::plan::TaskKind;
use crate::steps::{BOOT_TRIES, StepId};

/// The steps of one kind of task.
#[derive(Clone, Copy)]
pub(crate) struct TaskSteps {
    pub(crate) arm: StepId,
    pub(crate) netboot: StepId,
    pub(crate) ask: StepId,
    pub(crate) claim: StepId,
    pub(crate) run: StepId,
    /// The deadline after which a silent agent counts as dead.
    pub(crate) quiet: DeadlineId,
    /// True if it writes to disks: its power must not be cut.
    pub(crate) writes: bool,
    /// True if it changes the machine by itself: it counts in the fleet's budget.
    pub(crate) changes: bool,
}

const INVENTORY: TaskSteps = TaskSteps {
    arm: StepId::ArmInventory,
    netboot: StepId::NetbootInventory,
    ask: StepId::AskInventory,
    claim: StepId::ClaimInventory,
    run: StepId::RunInventory,
    quiet: DeadlineId::InventoryQuiet,
    writes: false,
    changes: false,
};
const INSTALL: TaskSteps = TaskSteps {
    arm: StepId::ArmInstall,
    netboot: StepId::NetbootInstall,
    ask: StepId::AskInstall,
    claim: StepId::ClaimInstall,
    run: StepId::RunInstall,
    quiet: DeadlineId::InstallQuiet,
    writes: true,
    changes: true,
};
const ERASE: TaskSteps = TaskSteps {
    arm: StepId::ArmErase,
    netboot: StepId::NetbootErase,
    ask: StepId::AskErase,
    claim: StepId::ClaimErase,
    run: StepId::RunErase,
    quiet: DeadlineId::EraseQuiet,
    writes: true,
    changes: true,
};

const SCRIPT: TaskSteps = TaskSteps {
    arm: StepId::ArmScript,
    netboot: StepId::NetbootScript,
    ask: StepId::AskScript,
    claim: StepId::ClaimScript,
    run: StepId::RunScript,
    quiet: DeadlineId::InstallQuiet,
    // The content of a script is not known: it may write firmware.
    writes: true,
    changes: true,
};
const RESCUE: TaskSteps = TaskSteps {
    arm: StepId::ArmRescue,
    netboot: StepId::NetbootRescue,
    ask: StepId::AskRescue,
    claim: StepId::ClaimRescue,
    run: StepId::RunRescue,
    quiet: DeadlineId::InstallQuiet,
    // A person in the rescue shell may write to the disks.
    writes: true,
    changes: false,
};
const ALL: [TaskSteps; 5] = [INVENTORY, INSTALL, ERASE, SCRIPT, RESCUE];

impl TaskSteps {
    pub(crate) const fn of(task: TaskKind) -> Self {
        match task {
            TaskKind::Inventory => INVENTORY,
            TaskKind::Install => INSTALL,
            TaskKind::Erase(_) => ERASE,
            TaskKind::Script => SCRIPT,
            TaskKind::Rescue => RESCUE,
        }
    }

    /// The task that this step arms.
    pub(crate) fn armed_by(step: StepId) -> Option<Self> {
        ALL.into_iter().find(|t| t.arm == step)
    }

    /// The task for which this step powers the machine on.
    pub(crate) fn netbooted_by(step: StepId) -> Option<Self> {
        ALL.into_iter().find(|t| t.netboot == step)
    }
}

/// The state of an attempt.
pub(crate) enum State {
    /// Armed, and no agent has claimed it.
    Open,
    /// An agent runs it, and counts as dead if it is silent until `quiet_at`.
    Running {
        since: Timestamp,
        quiet_at: Timestamp,
    },
    Succeeded(Timestamp),
    Failed(AttemptFailure, String, Timestamp),
}

impl<'a> Walk<'a> {
    /// The state of the attempt that this record armed.
    pub(crate) fn state(&self, record: &StepRecord) -> State {
        let facts = &self.input.facts;
        let (Some(attempt), Some(task)) = (record.attempt, TaskSteps::armed_by(record.step)) else {
            return State::Open;
        };
        if let Some(at) = self.aborted(record) {
            return State::Failed(AttemptFailure::Aborted, String::new(), at);
        }
        if let Some(end) = facts.results.get(&attempt) {
            return match &end.outcome {
                Outcome::Failed { code, message, .. } => {
                    State::Failed(AttemptFailure::Task(*code), message.clone(), end.at)
                }
                Outcome::Superseded { found_attempt } if task.writes && *found_attempt == attempt.get() => {
                    State::Succeeded(end.at)
                }
                Outcome::Superseded { found_attempt } => {
                    State::Failed(AttemptFailure::Outranked, format!("found attempt {found_attempt}"), end.at)
                }
                Outcome::Succeeded if !task.writes && facts.inventory.is_none() => {
                    State::Failed(AttemptFailure::Empty, String::new(), end.at)
                }
                Outcome::Succeeded => State::Succeeded(end.at),
            };
        }
        // A progress report shows that the claim was lost on its way.
        let claimed = facts.claims.get(&attempt).map(|c| c.at);
        let reported = facts.progress.get(&attempt).map(|p| p.at);
        let checkpoint = facts.checkpoints.get(&attempt);
        if let Some(heard) = claimed.max(reported).max(checkpoint.map(|it| it.at)) {
            let boot =
                self.policy.deadline(DeadlineId::BootRequest) + self.policy.deadline(DeadlineId::Claim);
            let away = if checkpoint.is_some_and(|it| it.away) { boot } else { Duration::ZERO };
            let quiet_at = later(self.listening_since(heard), self.policy.deadline(task.quiet) + away);
            let deaf = !matches!(facts.boot_racks, Link::Connected { .. });
            return if deaf || self.now < quiet_at {
                State::Running { since: claimed.unwrap_or(heard), quiet_at }
            } else {
                let said = facts
                    .progress
                    .get(&attempt)
                    .map(|p| format!("last heard: {} at {} %", p.stage, p.percent));
                State::Failed(
                    AttemptFailure::Silent,
                    said.unwrap_or_else(|| "it never reported".to_owned()),
                    quiet_at,
                )
            };
        }
        match self.boot_given_up(task, attempt, record.scope) {
            Some((failure, at)) => State::Failed(failure, format!("powered on {BOOT_TRIES} times"), at),
            None => State::Open,
        }
    }

    /// The failure of an attempt for which the machine was powered on in vain as often as allowed.
    fn boot_given_up(
        &self,
        task: TaskSteps,
        attempt: Attempt,
        scope: Scope,
    ) -> Option<(AttemptFailure, Timestamp)> {
        let (tries, deadline, asked) = self.boot_tries(task, attempt, scope)?;
        let heard = matches!(self.input.facts.boot_racks, Link::Connected { .. });
        let failure = if asked { AttemptFailure::NeverClaimed } else { AttemptFailure::NeverAsked };
        (heard && tries >= BOOT_TRIES && self.now >= deadline).then_some((failure, deadline))
    }

    /// The number of times the machine was powered on for this attempt, the deadline of the last one, and true if the machine
    /// has sent a boot request since.
    pub(crate) fn boot_tries(
        &self,
        task: TaskSteps,
        attempt: Attempt,
        scope: Scope,
    ) -> Option<(u32, Timestamp, bool)> {
        let mine = |r: &&StepRecord| r.step == task.netboot && r.scope == scope && r.attempt == Some(attempt);
        let good = |r: &&StepRecord| {
            let wants = Some(PowerState::On);
            matches!(self.power(task.netboot, |other| other.key == r.key, wants), Power::Done(..))
        };
        let all: Vec<_> = self.input.records.iter().filter(mine).filter(good).collect();
        let last = all.last()?;
        let answered = self.input.facts.power_results.get(&last.key)?.at;
        let asked =
            self.input.facts.boot_requests.get(&attempt).is_some_and(|r| r.last_at >= last.started_at);
        let more = if asked { self.policy.deadline(DeadlineId::Claim) } else { Duration::ZERO };
        let patience = self.policy.deadline(DeadlineId::BootRequest) + more;
        Some((
            u32::try_from(all.len()).unwrap_or(u32::MAX),
            later(self.listening_since(answered), patience),
            asked,
        ))
    }

    /// The records that armed a task in a scope, oldest first.
    pub(crate) fn arms(
        &self,
        scope: Scope,
        step: StepId,
    ) -> impl DoubleEndedIterator<Item = &'a StepRecord> + use<'a> {
        self.input.records.iter().filter(move |r| r.step == step && r.scope == scope && r.attempt.is_some())
    }

    /// The attempt that counts in a scope: normally the latest one. An earlier one counts if it was taken for dead but has succeeded late,
    /// and the later ones have the same content and no agent: then the disk has the wanted system.
    pub(crate) fn counting(&self, scope: Scope, step: StepId) -> Option<&'a StepRecord> {
        let mut arms = self.arms(scope, step).rev();
        let latest = arms.next()?;
        let same =
            |r: &&StepRecord| r.fingerprint == latest.fingerprint && r.cause.image == latest.cause.image;
        arms.take_while(same).find(|record| self.ended_late(record, latest)).or(Some(latest))
    }

    /// True if an attempt succeeded after the latest one was armed, and no agent has reported for a later one.
    fn ended_late(&self, record: &StepRecord, latest: &StepRecord) -> bool {
        let facts = &self.input.facts;
        let State::Succeeded(at) = self.state(record) else { return false };
        let Some(attempt) = record.attempt.filter(|_| at > latest.started_at) else { return false };
        let heard = [facts.claims.keys().max(), facts.progress.keys().max(), facts.results.keys().max()];
        // A machine that sent its boot request before that end may claim soon.
        let asked = |(of, request): (&Attempt, &BootRequest)| *of > attempt && request.last_at <= at;
        heard.into_iter().flatten().all(|latest| *latest <= attempt) && !facts.boot_requests.iter().any(asked)
    }

    /// The number of attempts in a row that failed under the present cause.
    pub(crate) fn failed_in_a_row(&self, scope: Scope, step: StepId) -> u32 {
        let cause = self.cause(scope);
        let mut count = 0;
        for record in self.arms(scope, step).rev() {
            match self.state(record) {
                State::Failed(..) if record.cause == cause => count += 1,
                // The time ran out while something else prevented the attempt.
                State::Open => {}
                State::Failed(..) | State::Running { .. } | State::Succeeded(_) => break,
            }
        }
        count
    }

    /// The attempt that writes to the machine's disks now, if any.
    pub(crate) fn writer(&self) -> Option<(&'a StepRecord, TaskSteps, Timestamp, Timestamp)> {
        self.input.records.iter().rev().find_map(|record| {
            let task = TaskSteps::armed_by(record.step).filter(|t| self.may_write(*t))?;
            match self.state(record) {
                State::Running { since, quiet_at } => Some((record, task, since, quiet_at)),
                _ => None,
            }
        })
    }

    /// Waits for the end of a task that writes to disks. Returns false if there is none.
    pub(crate) fn wait_for_writer(&mut self, step: StepId) -> bool {
        let Some((record, task, since, quiet_at)) = self.writer() else { return false };
        self.wait_for_run(record, task, since, quiet_at);
        if let Some(wait) = self.waits.last_mut() {
            wait.remedy = format!("its agent counts as dead, and the next step is to {}", step.spec().says);
        }
        true
    }

    /// Waits for a report of an agent that may be writing to disks although no report arrived. The machine was powered on for its attempt,
    /// then racks were disconnected, and one of them may have lost a report. Returns true if there may be such an agent.
    pub(crate) fn wait_for_unheard(&mut self, step: StepId) -> bool {
        let Some((task, since, until)) = self.unheard().filter(|(.., until)| self.now < *until) else {
            return false;
        };
        let message = format!(
            "{} was powered on to {}, and the racks were away since; waiting for word of its agent, which may be writing",
            self.input.name,
            task.run.spec().says
        );
        self.wait(task.run, "Unheard", message, since, until);
        if let Some(wait) = self.waits.last_mut() {
            wait.remedy = format!("nothing runs on it, and the next step is to {}", step.spec().says);
        }
        true
    }

    /// The last task for which the machine was powered on, if it writes to disks and its silence is not meaningful yet. The times are
    /// the beginning and the end of that period.
    fn unheard(&self) -> Option<(TaskSteps, Timestamp, Timestamp)> {
        let (task, booted) = self.input.records.iter().rev().find_map(|record| {
            let task = TaskSteps::netbooted_by(record.step)?;
            Some((task, record))
        })?;
        let attempt = booted.attempt.filter(|_| self.may_write(task))?;
        let armed = self.input.records.iter().find(|r| r.step == task.arm && r.attempt == Some(attempt))?;
        let gone_off = self.reading().is_some_and(|r| r.state == PowerState::Off && r.at > booted.started_at);
        if gone_off || !matches!(self.state(armed), State::Open) {
            return None;
        }
        let since = match &self.input.facts.boot_racks {
            Link::Connected { since } if *since > booted.started_at => *since,
            Link::Away { since, .. } | Link::Partial { since, .. } => booted.started_at.max(*since),
            Link::Connected { .. } | Link::None => return None,
        };
        Some((task, since, later(since, self.policy.deadline(task.quiet))))
    }

    /// Waits for a running task.
    pub(crate) fn wait_for_run(
        &mut self,
        record: &StepRecord,
        task: TaskSteps,
        since: Timestamp,
        quiet_at: Timestamp,
    ) {
        let link = self.input.facts.boot_racks.clone();
        if !self.racks_are_there(
            task.run,
            &link,
            "relays the agent of",
            "attach a rack to the VLAN that the machine boots from",
        ) {
            return;
        }
        if self.now >= quiet_at && !self.silence_is_told(task.run) {
            return;
        }
        let progress = record.attempt.and_then(|a| self.input.facts.progress.get(&a));
        let doing =
            progress.map(|p| format!(" ({} {} %: {})", p.stage, p.percent, p.message)).unwrap_or_default();
        let message = format!("waiting for {} to {}{doing}", self.input.name, task.run.spec().says);
        self.wait(task.run, "TaskRuns", message, since, quiet_at);
    }
}
