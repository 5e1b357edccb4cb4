//! The fleet's budget in a machine's walk: a step above the budget waits, with a message.

use std::time::Duration;

use basalt_api::values::Attempt;

use super::attempt::TaskSteps;
use super::walk::Walk;
use crate::budget::Exceeded;
use crate::facts::StepRecord;
use crate::input::later;
use crate::plan::{BootAction, Verb};
use crate::steps::StepId;

/// The pause before another look at the budget, in case the wake-up was lost.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

impl Walk<'_> {
    /// True if the fleet's budget allows writing the machine's disks now. Otherwise it waits.
    pub(crate) fn fleet_allows(&mut self, step: StepId) -> bool {
        let exceeded = self.input.budget.against_disks(self.now);
        self.within_budget(step, exceeded)
    }

    /// True if the fleet's budget allows powering the machine on now. Otherwise it waits.
    pub(crate) fn fleet_powers(&mut self, step: StepId, verb: Verb) -> bool {
        let exceeded = match verb {
            Verb::On | Verb::Cycle => self.input.budget.against_power_on(self.now),
            Verb::Status | Verb::Off | Verb::SoftOff | Verb::ResetBmc => None,
        };
        self.within_budget(step, exceeded)
    }

    fn within_budget(&mut self, step: StepId, exceeded: Option<Exceeded>) -> bool {
        let Some(Exceeded { why, until }) = exceeded else { return true };
        let look_again = later(self.now, self.policy.scaled(LOOK_AGAIN));
        let until = until.filter(|until| *until > self.now).unwrap_or(look_again);
        let since = self.input.budget.waits_since.unwrap_or(self.now);
        let message = format!("{} waits for the fleet budget: {why}", self.input.name);
        self.wait(step, "FleetBudget", message, since, until);
        if let Some(wait) = self.waits.last_mut() {
            wait.remedy = "it is begun as soon as there is room".to_owned();
        }
        false
    }

    /// The attempt that writes the machine's disks, or may begin to at any moment.
    pub(crate) fn writes(&self, boot: BootAction) -> Option<Attempt> {
        let changes =
            |record: &&StepRecord| TaskSteps::armed_by(record.step).is_some_and(|task| self.may_change(task));
        let running = self.writer().map(|(record, ..)| record).filter(changes).and_then(|it| it.attempt);
        let armed = self
            .input
            .records
            .iter()
            .rev()
            .filter(changes)
            .find(|record| record.attempt.is_some_and(|attempt| boot == BootAction::Ephemeral(attempt)));
        running.or(armed.and_then(|record| record.attempt))
    }
}
