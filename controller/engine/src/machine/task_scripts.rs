//! Scripts that belong to a task: those of commissioning and testing to an inventory, those of a release to an erase. What exactly
//! holds, and why, is in docs/decisions/067-scripts-of-tasks.md.

use super::attempt::TaskSteps;
use super::walk::Walk;
use crate::input::TaskScripts;
use crate::plan::TaskKind;
use crate::steps::StepId;

impl Walk<'_> {
    /// The scripts of the tasks that a step arms.
    fn scripts_armed_by(&self, arm: StepId) -> Option<&TaskScripts> {
        match arm {
            StepId::ArmInventory => Some(&self.input.inspection),
            StepId::ArmErase => Some(&self.input.release),
            _ => None,
        }
    }

    fn runs_scripts(&self, task: TaskSteps) -> bool {
        self.scripts_armed_by(task.arm).is_some_and(|scripts| !scripts.names.is_empty())
    }

    /// Whether a task may write to disks, or to whatever its scripts write to: its power must not be cut.
    pub(super) fn may_write(&self, task: TaskSteps) -> bool {
        task.writes || self.runs_scripts(task)
    }

    /// Whether a task may change the machine by itself: it takes its part in the fleet's budget.
    pub(super) fn may_change(&self, task: TaskSteps) -> bool {
        task.changes || self.runs_scripts(task)
    }

    /// Whether the scripts of a task can be run; waits for a person otherwise.
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
