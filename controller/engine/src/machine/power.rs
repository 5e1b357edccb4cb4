//! Power commands: one at a time, never while a disk is written, and done only when a reading shows the wanted state.
//!
//! For `power = "on"` and `"off"` the planner acts on readings too. For `auto` it uses only answers to commands.

use basalt_api::kinds::{PowerPolicy, PowerState};
use basalt_api::values::{Attempt, Timestamp};

use super::walk::Walk;
use crate::facts::{Link, PowerReading, Scope, StepRecord};
use crate::failures::{PowerFailure, Rule};
use crate::input::later;
use crate::plan::{BootDevice, Effect, Verb, Wait};
use crate::steps::{EffectKind, StepId};

/// The state of a power step.
pub(crate) enum Power<'a> {
    /// It may begin, or begin again.
    Due,
    /// Its record exists, but its effect may not have happened.
    Undelivered(&'a StepRecord),
    /// The answer has not arrived yet.
    Answering(&'a StepRecord, Timestamp),
    /// It failed, and waits before the next try.
    Resting(Box<Wait>),
    /// The last try succeeded.
    Done(&'a StepRecord, Timestamp),
}

/// The state of one record.
pub(crate) enum Answer {
    Undelivered,
    Due(Timestamp),
    Good(Timestamp),
    Bad(PowerFailure, String, Timestamp),
}

const ATTACH: &str = "enrol a rack that can reach the BMC";

impl<'a> Walk<'a> {
    pub(crate) fn answer(&self, record: &StepRecord, wants: Option<PowerState>) -> Answer {
        if let Some(outcome) = self.input.facts.power_results.get(&record.key) {
            return match (&outcome.result, wants) {
                (Err((failure, message)), _) => Answer::Bad(*failure, message.clone(), outcome.at),
                (Ok(read), Some(wanted)) if moved(*read, wanted) => Answer::Good(outcome.at),
                (Ok(read), Some(wanted)) => Answer::Bad(
                    PowerFailure::NotMoved,
                    format!("asked for {wanted}, reads {read}"),
                    outcome.at,
                ),
                (Ok(_), None) => Answer::Good(outcome.at),
            };
        }
        let until = match &self.input.facts.power_rack {
            Link::Connected { since } => record.not_after.max(*since),
            // The answer may still be in the rack's spool.
            Link::Away { .. } | Link::Partial { .. } | Link::None => {
                record.not_after.max(later(self.now, std::time::Duration::from_secs(1)))
            }
        };
        // The rack may have died with the command before it reconnected. A repeated command has no second effect.
        let lost = |delivered: &Timestamp| matches!(&self.input.facts.power_rack, Link::Connected { since } if delivered < since);
        match (self.now < until, record.delivered_at.filter(|delivered| !lost(delivered))) {
            (true, Some(_)) => Answer::Due(until),
            (true, None) if self.now < record.not_after => Answer::Undelivered,
            _ => Answer::Bad(PowerFailure::NoAnswer, String::new(), record.not_after),
        }
    }

    /// The state of a power step. `of` selects its records; `wants` is the power state that must be read afterwards.
    pub(crate) fn power(
        &self,
        step: StepId,
        of: impl Fn(&StepRecord) -> bool,
        wants: Option<PowerState>,
    ) -> Power<'a> {
        let mut streak = 0_u32;
        let mut first: Option<(PowerFailure, String, Timestamp)> = None;
        let mut since = self.now;
        for record in self.input.records.iter().rev().filter(|r| of(r)) {
            match self.answer(record, wants) {
                Answer::Undelivered if first.is_none() => return Power::Undelivered(record),
                Answer::Due(until) if first.is_none() => return Power::Answering(record, until),
                Answer::Good(at) if first.is_none() => return Power::Done(record, at),
                Answer::Bad(..) if record.cause != self.cause(record.scope) => break,
                Answer::Bad(failure, message, at) => {
                    streak += 1;
                    since = at;
                    first.get_or_insert((failure, message, at));
                }
                Answer::Undelivered | Answer::Due(_) | Answer::Good(_) => break,
            }
        }
        let Some((failure, message, at)) = first else { return Power::Due };
        let rule = failure.rule();
        let (retry_at, stalled) = self.retry_at(rule, streak, at);
        if retry_at.is_some_and(|t| self.now >= t) {
            return Power::Due;
        }
        let bmc = self.bmc().and_then(|b| b.address.as_ref()).map(|a| format!(" at {a}")).unwrap_or_default();
        let detail = if message.is_empty() { String::new() } else { format!(" ({message})") };
        Power::Resting(Box::new(Wait {
            code: rule.code,
            step: Some(step),
            message: format!(
                "cannot {} {} by its BMC{bmc}: {}{detail}",
                verb_words(step),
                self.input.name,
                rule.says
            ),
            since,
            deadline: retry_at,
            human: stalled.then(|| rule.fix.to_owned()),
            remedy: "it is tried again".to_owned(),
            tries: Some((streak, tries(rule))),
            stalled,
        }))
    }

    /// When a thing that failed `streak` times in a row is retried, and true if a person is asked meanwhile.
    pub(crate) fn retry_at(&self, rule: &Rule, streak: u32, at: Timestamp) -> (Option<Timestamp>, bool) {
        let quick = usize::try_from(streak).ok().and_then(|n| rule.quick.get(n.saturating_sub(1)));
        match quick {
            Some(seconds) => {
                let pause = match seconds {
                    0 => std::time::Duration::ZERO,
                    s => self.policy.scaled(std::time::Duration::from_secs(*s)),
                };
                (Some(later(at, pause)), false)
            }
            None => (rule.later.map(|id| later(at, self.policy.deadline(id))), true),
        }
    }

    /// Advances a power step as far as possible. Returns true if it is done.
    pub(crate) fn drive_power(
        &mut self,
        (scope, step, attempt): (Scope, StepId, Option<Attempt>),
        effect: (Verb, BootDevice),
        wants: Option<PowerState>,
    ) -> bool {
        let power = self.power(step, |r| r.step == step && r.scope == scope && r.attempt == attempt, wants);
        match power {
            Power::Done(..) => return true,
            other => self.act(other, (scope, step, attempt), effect),
        }
        false
    }

    /// Begins, repeats or waits for a power step that is not done.
    pub(crate) fn act(
        &mut self,
        power: Power<'_>,
        (scope, step, attempt): (Scope, StepId, Option<Attempt>),
        (verb, device): (Verb, BootDevice),
    ) {
        let effect = Effect::Power { verb, device };
        match power {
            Power::Done(..) => {}
            Power::Resting(wait) => self.waits.push(*wait),
            Power::Answering(record, until) => self.wait_for_answer(record, until),
            Power::Undelivered(record) if self.may_power(step, verb, Some(record)) => {
                self.resume(record, effect);
            }
            Power::Due if self.may_power(step, verb, None) && self.fleet_powers(step, verb) => {
                self.begin(scope, step, attempt, effect);
            }
            Power::Due => self.announce(scope, &[step]),
            Power::Undelivered(_) => {}
        }
    }

    fn wait_for_answer(&mut self, record: &StepRecord, until: Timestamp) {
        let link = self.input.facts.power_rack.clone();
        if !self.racks_are_there(record.step, &link, "switches the power of", ATTACH) {
            return;
        }
        let message =
            format!("waiting for the BMC of {} to answer: {}", self.input.name, record.step.spec().says);
        self.wait(record.step, "PowerAnswer", message, record.started_at, until);
    }

    /// True if a power command may be sent now. Otherwise it waits for the obstacle.
    fn may_power(&mut self, step: StepId, verb: Verb, resumed: Option<&StepRecord>) -> bool {
        let is_harmless = matches!(step, StepId::ReadPower | StepId::ResetBmc);
        if !is_harmless && self.wait_for_writer(step) {
            return false;
        }
        if matches!(verb, Verb::Off | Verb::Cycle) && self.wait_for_unheard(step) {
            return false;
        }
        let open = self.input.records.iter().rev().find_map(|r| {
            let other =
                r.step.spec().effect == EffectKind::Power && resumed.is_none_or(|mine| mine.key != r.key);
            match self.answer(r, None) {
                Answer::Due(until) if other => Some((r, until)),
                Answer::Undelivered if other => Some((r, r.not_after)),
                _ => None,
            }
        });
        if let Some((record, until)) = open {
            self.wait_for_answer(record, until);
            return false;
        }
        let link = self.input.facts.power_rack.clone();
        self.racks_are_there(step, &link, "switches the power of", ATTACH)
    }

    /// Asks the BMC for the power state if it is not known. Returns true if it is known, or if there is no BMC to ask.
    pub(crate) fn power_is_known(&mut self, scope: Scope) -> bool {
        let refused = self.input.facts.power_results.values().filter_map(|o| match &o.result {
            Err((PowerFailure::CompletionCode, _)) => Some(o.at),
            _ => None,
        });
        // Most BMCs refuse to cycle a machine that is off, so the state may differ from the last reading.
        let refused = refused.max();
        self.power_is_known_since(scope, refused, self.reading())
    }

    /// Like [`Self::power_is_known`], for a reading later than `since`.
    fn power_is_known_since(
        &mut self,
        scope: Scope,
        since: Option<Timestamp>,
        reading: Option<PowerReading>,
    ) -> bool {
        let read = reading.map(|reading| reading.at);
        if self.bmc().is_none() || (read.is_some() && read > since) {
            return true;
        }
        let step = StepId::ReadPower;
        let asked =
            |r: &StepRecord| r.step == step && r.scope == scope && since.is_none_or(|at| r.started_at >= at);
        match self.power(step, asked, None) {
            // The answer has the same time as `since`.
            Power::Done(..) => true,
            other => {
                self.act(other, (scope, step, None), (Verb::Status, BootDevice::Unchanged));
                false
            }
        }
    }

    /// Powers off. Returns true if the BMC has confirmed it, or if there is no BMC.
    pub(crate) fn power_off(&mut self, scope: Scope, step: StepId, attempt: Option<Attempt>) -> bool {
        if self.blocked() {
            if self.bmc().is_some() {
                self.announce(scope, &[step]);
            }
            return false;
        }
        self.bmc().is_none()
            || self.drive_power(
                (scope, step, attempt),
                (Verb::Off, BootDevice::Unchanged),
                Some(PowerState::Off),
            )
    }

    /// The reading by which the power is held. With `power = "auto"` only answers to commands count: Basalt corrects a state that its own
    /// work left, and leaves a state that a person switched by hand.
    fn held_by(&self) -> Option<PowerReading> {
        match self.input.spec.power {
            PowerPolicy::Auto => self.input.facts.answered.clone(),
            PowerPolicy::On | PowerPolicy::Off => self.reading(),
        }
    }

    /// Keeps the power in the declared state while no other action is in progress.
    pub(crate) fn hold_power(&mut self, wanted: PowerState) {
        let (step, verb) =
            if wanted == PowerState::Off { (StepId::HoldOff, Verb::Off) } else { (StepId::HoldOn, Verb::On) };
        if self.bmc().is_none() || self.blocked() || self.power_is_asked_for(wanted) {
            return;
        }
        // If the reading has the same time as the end of a task, Basalt's command came after that end.
        let held_by = self.held_by();
        let went_off = self.went_off().filter(|at| held_by.as_ref().is_none_or(|it| it.at < *at));
        if wanted == PowerState::On
            && went_off.is_some()
            && !self.power_is_known_since(Scope::Machine, went_off, held_by.clone())
        {
            return;
        }
        let opposite = if wanted == PowerState::Off { PowerState::On } else { PowerState::Off };
        // No command is needed if the last reading is the wanted state.
        let is_held = self.reads(wanted);
        let seen = held_by.filter(|r| r.state == opposite && !is_held).map(|r| r.at);
        let shuts_down = self.shuts_down_to_hold().filter(|_| wanted == PowerState::Off);
        let since = seen.or(shuts_down.map(|r| r.started_at));
        let power = match (self.power(step, |r| r.step == step, Some(wanted)), since) {
            // A command that was sent is waited for, even if the power reads as wanted before its answer.
            (power @ Power::Answering(..), _) => power,
            (_, None) => return,
            // The power was as declared, and has changed since. A reading at the same time was stored later, and is no answer to this
            // step, because it shows the opposite state.
            (Power::Done(_, at), Some(seen)) if at <= seen => Power::Due,
            (power, Some(_)) => power,
        };
        if wanted == PowerState::Off && matches!(power, Power::Due) && !self.shut_down_before_hold() {
            if self.blocked() {
                self.announce(Scope::Machine, &[step]);
            }
            return;
        }
        self.act(power, (Scope::Machine, step, None), (verb, BootDevice::Unchanged));
    }

    /// Announces a step that restores the declared power state, if the steps before it leave another one.
    pub(crate) fn announce_hold(&mut self, step: StepId) {
        if self.bmc().is_some() {
            self.announce(Scope::Machine, &[step]);
        }
    }

    /// When the machine may have switched itself off: at the end of an inventory, an erase, a script or a rescue.
    fn went_off(&self) -> Option<Timestamp> {
        let ends = |r: &&StepRecord| {
            use StepId as S;
            matches!(r.step, S::ArmInventory | S::ArmErase | S::ArmScript | S::ArmRescue)
        };
        let records = self.input.records.iter().filter(ends);
        records.filter_map(|r| self.input.facts.results.get(&r.attempt?)).map(|end| end.at).max()
    }
}

/// True if the power state followed the command. An unknown reading is enough to go on with a boot, but not to be sure that it is off.
fn moved(read: PowerState, wanted: PowerState) -> bool {
    read == wanted || (read == PowerState::Unknown && wanted == PowerState::On)
}

/// The number of tries before a person is asked.
pub(crate) fn tries(rule: &Rule) -> u32 {
    u32::try_from(rule.quick.len()).unwrap_or(u32::MAX).saturating_add(1)
}

fn verb_words(step: StepId) -> &'static str {
    match wanted_by(step) {
        None if step == StepId::SoftOff => "shut down the system of",
        None if step == StepId::ResetBmc => "reset the BMC of",
        None => "read the power of",
        Some(PowerState::Off) => "power off",
        Some(_) => "power on",
    }
}

/// The power state that a power step causes.
pub(super) fn wanted_by(step: StepId) -> Option<PowerState> {
    match step {
        StepId::ReadPower | StepId::SoftOff | StepId::ResetBmc => None,
        StepId::PowerOffInventory
        | StepId::PowerOffRelease
        | StepId::PowerOffErase
        | StepId::PowerOffRemove
        | StepId::OperateOff
        | StepId::AbortOff
        | StepId::HoldOff => Some(PowerState::Off),
        _ => Some(PowerState::On),
    }
}
