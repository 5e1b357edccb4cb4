//! Scripts that run within a task:
//!
//! | scripts of | run in the task |
//! | --- | --- |
//! | commissioning and testing | inventory |
//! | a deployment | install |
//! | a release | erase |
//!
//! The rules and their reasons are in docs/decisions/067-scripts-of-tasks.md and 109-scripts-complete.md.

use super::attempt::TaskSteps;
use super::walk::Walk;
use crate::input::{self, TaskScripts};
use crate::plan::TaskKind;
use crate::steps::StepId;

impl Walk<'_> {
    /// The scripts of the tasks that a step arms.
    fn scripts_armed_by(&self, arm: StepId) -> Option<&TaskScripts> {
        match arm {
            StepId::ArmInventory => Some(&self.input.inspection),
            StepId::ArmInstall => Some(&self.input.install),
            StepId::ArmErase => Some(&self.input.release),
            _ => None,
        }
    }

    /// Time by which the attempt of a step lives longer than usual, in seconds.
    pub(super) fn restart_seconds(&self, arm: StepId) -> u64 {
        if arm == StepId::ArmScript {
            let scripts = self.input.operations.iter().flat_map(|it| it.script.iter().chain(&it.tests));
            return input::restart_seconds(scripts);
        }
        self.scripts_armed_by(arm).map_or(0, |scripts| scripts.restart_seconds)
    }

    fn runs_scripts(&self, task: TaskSteps) -> bool {
        self.scripts_armed_by(task.arm).is_some_and(|scripts| !scripts.names.is_empty())
    }

    /// True if a task or its scripts may write to disks: the power must not be cut.
    pub(super) fn may_write(&self, task: TaskSteps) -> bool {
        task.writes || self.runs_scripts(task)
    }

    /// True if a task or its scripts may change the machine: it counts in the fleet's budget.
    pub(super) fn may_change(&self, task: TaskSteps) -> bool {
        task.changes || self.runs_scripts(task)
    }

    /// True if the scripts of a task can run. Otherwise it waits for a person.
    pub(super) fn scripts_are_usable(&mut self, task: TaskKind) -> bool {
        let arm = TaskSteps::of(task).arm;
        let unusable = self.scripts_armed_by(arm).and_then(|scripts| scripts.unusable.clone());
        let Some(why) = unusable else { return true };
        let message = format!("waiting for a script that can be run on {}: {why}", self.input.name);
        let fix = "change the script, or declare another".to_owned();
        self.wait_for_prerequisite(arm, "ScriptUnusable", message, fix);
        false
    }
}
