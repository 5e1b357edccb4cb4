//! The walk along a machine's steps: finished steps are skipped, the first unfinished one begins or is waited for, and the rest is
//! announced.

use std::time::Duration;

use basalt_api::kinds::{Bmc, OwnershipMode, PowerDriver, PowerState};
use basalt_api::values::{Attempt, Timestamp};

use crate::deadlines::DeadlineId;
use crate::facts::{BootSeen, Cause, Link, PowerReading, Scope, StepKey, StepRecord};
use crate::input::{FirstBootScripts, MachineInput, Policy, later};
use crate::plan::{BootAction, Effect, LaterStep, OperationSeen, PlannedStep, Wait};
use crate::steps::StepId;

/// The walk so far.
pub(crate) struct Walk<'a> {
    pub(crate) input: &'a MachineInput,
    pub(crate) policy: &'a Policy,
    pub(crate) now: Timestamp,
    pub(crate) next: Vec<PlannedStep>,
    pub(crate) later: Vec<LaterStep>,
    pub(crate) waits: Vec<Wait>,
    pub(crate) operations: Vec<OperationSeen>,
    /// The attempt that the machine may boot, if one is armed for the present goal.
    pub(crate) boot: Option<BootAction>,
    /// When the power must be read again.
    pub(crate) look_at: Option<Timestamp>,
}

impl<'a> Walk<'a> {
    pub(crate) const fn new(input: &'a MachineInput, policy: &'a Policy, now: Timestamp) -> Self {
        Self {
            input,
            policy,
            now,
            next: Vec::new(),
            later: Vec::new(),
            waits: Vec::new(),
            operations: Vec::new(),
            boot: None,
            look_at: None,
        }
    }

    /// True if a step was found that is not done.
    pub(crate) fn blocked(&self) -> bool {
        !self.next.is_empty() || !self.waits.is_empty()
    }

    /// Announces later steps.
    pub(crate) fn announce(&mut self, scope: Scope, steps: &[StepId]) {
        for &step in steps {
            let (key, _) = self.key(scope, step);
            self.later.push(LaterStep { key, step });
        }
    }

    /// The key of the next try of a step, and its number.
    fn key(&self, scope: Scope, step: StepId) -> (StepKey, u32) {
        let cause = self.cause(scope);
        let generation = cause.deployment.unwrap_or(cause.machine);
        let prefix = format!("{}/{scope}/{generation}/{}/", self.input.uid, step.name());
        let tries = self
            .input
            .records
            .iter()
            .filter_map(|r| r.key.as_str().strip_prefix(&prefix)?.parse::<u32>().ok());
        let try_no = tries.max().unwrap_or(0).saturating_add(1);
        (StepKey::new(format!("{prefix}{try_no}")), try_no)
    }

    /// The inputs under which a step of this scope would begin now.
    pub(crate) fn cause(&self, scope: Scope) -> Cause {
        let claim = self.input.claim.as_ref().filter(|c| scope == Scope::Deployment(c.uid));
        Cause {
            machine: self.input.generation,
            deployment: claim.map(|c| c.generation),
            image: claim.and_then(|c| c.image.as_ref()).map(|image| image.digest),
            asked: self.input.recommission_requested_at,
            bmc_account: self.input.bmc_account,
        }
    }

    /// Begins a step.
    pub(crate) fn begin(&mut self, scope: Scope, step: StepId, attempt: Option<Attempt>, effect: Effect) {
        let (key, try_no) = self.key(scope, step);
        let life = match effect {
            Effect::Power { .. } => DeadlineId::PowerAnswer,
            Effect::Arm { .. } | Effect::LetGo { .. } | Effect::Forget => DeadlineId::AttemptLife,
        };
        let claim = self.input.claim.as_ref().filter(|c| scope == Scope::Deployment(c.uid));
        let from_machine = step == StepId::ArmInstall && claim.is_some_and(|c| c.spec.network.is_none());
        self.next.push(PlannedStep {
            key,
            step,
            scope,
            try_no,
            effect,
            attempt,
            resume: false,
            cause: self.cause(scope),
            fingerprint: claim.map(crate::input::Claim::fingerprint),
            network: self.input.spec.network.clone().filter(|_| from_machine),
            first_boot: match step {
                StepId::ArmInstall => self.input.first_boot.clone(),
                _ => FirstBootScripts::default(),
            },
            not_after: later(self.now, self.policy.deadline(life) + self.restarts(step)),
        });
    }

    /// Time that scripts of a task need to restart the machine.
    fn restarts(&self, arm: StepId) -> Duration {
        self.policy.scaled(Duration::from_secs(self.restart_seconds(arm)))
    }

    /// Repeats the effect of a step whose record was written by a process that died before the effect.
    pub(crate) fn resume(&mut self, record: &StepRecord, effect: Effect) {
        let try_no = record.key.as_str().rsplit('/').next().and_then(|t| t.parse().ok()).unwrap_or(1);
        self.next.push(PlannedStep {
            key: record.key.clone(),
            step: record.step,
            scope: record.scope,
            try_no,
            effect,
            attempt: record.attempt,
            resume: true,
            cause: record.cause.clone(),
            fingerprint: record.fingerprint,
            network: record.network.clone(),
            first_boot: record.first_boot.clone(),
            not_after: record.not_after,
        });
    }

    /// Adds a wait with a deadline from the table.
    pub(crate) fn wait(
        &mut self,
        step: StepId,
        code: &'static str,
        message: String,
        since: Timestamp,
        until: Timestamp,
    ) {
        self.waits.push(Wait {
            code,
            step: Some(step),
            message,
            since,
            deadline: Some(until),
            human: None,
            remedy: step.spec().remedy.to_owned(),
            tries: None,
            stalled: false,
        });
    }

    /// Adds a wait for a person.
    pub(crate) fn wait_for_person(
        &mut self,
        step: Option<StepId>,
        code: &'static str,
        message: String,
        since: Timestamp,
        human: String,
    ) {
        self.waits.push(Wait {
            code,
            step,
            message,
            since,
            deadline: None,
            human: Some(human),
            remedy: "it goes on at once".to_owned(),
            tries: None,
            stalled: true,
        });
    }

    /// Waits for an object or file that an operator must provide: at first with a deadline, then for a person.
    pub(crate) fn wait_for_prerequisite(
        &mut self,
        step: StepId,
        code: &'static str,
        message: String,
        fix: String,
    ) {
        let claimed = self.input.claim.as_ref().map(|c| c.claimed_at);
        let since = claimed.map_or(self.input.created_at, |at| at.max(self.input.created_at));
        let until = later(since, self.policy.deadline(DeadlineId::Prerequisite));
        if self.now >= until {
            self.wait_for_person(Some(step), code, message, since, fix);
            return;
        }
        self.wait(step, code, message, since, until);
        if let Some(wait) = self.waits.last_mut() {
            wait.remedy = "a person is asked for it".to_owned();
            wait.human = Some(fix);
        }
    }

    /// Waits while racks are disconnected. Returns true if they are connected.
    pub(crate) fn racks_are_there(&mut self, step: StepId, link: &Link, role: &str, fix: &str) -> bool {
        let name = &self.input.name;
        match link {
            Link::Connected { .. } | Link::Partial { .. } => true,
            Link::None => {
                let message = format!("waiting for a rack that {role} {name}: there is none");
                self.wait_for_prerequisite(step, "NoRack", message, fix.to_owned());
                false
            }
            Link::Away { since, racks } => {
                let message = format!("waiting for rack {racks}, which {role} {name}, to connect");
                self.wait_for_rack(step, racks, *since, message);
                false
            }
        }
    }

    /// Waits for a disconnected rack that may have the missing report. Returns true if there is no such rack.
    pub(crate) fn silence_is_told(&mut self, step: StepId) -> bool {
        let Link::Partial { since, racks } = &self.input.facts.boot_racks else { return true };
        let message = format!(
            "{} was not heard in time to {}; waiting for rack {racks}, which may have heard it, to connect",
            self.input.name,
            step.spec().says
        );
        self.wait_for_rack(step, racks, *since, message);
        false
    }

    fn wait_for_rack(&mut self, step: StepId, racks: &str, since: Timestamp, message: String) {
        let until = later(since, self.policy.deadline(DeadlineId::RackReturns));
        if self.now < until {
            self.wait(step, "RackAway", message, since, until);
            if let Some(wait) = self.waits.last_mut() {
                wait.remedy = "a person is asked to look at the rack".to_owned();
            }
        } else {
            let human =
                format!("start basalt-rack on {racks}, mend its way to the region, or delete the rack");
            self.wait_for_person(Some(step), "RackAway", message, since, human);
        }
    }

    /// The BMC, if Basalt may use it.
    pub(crate) fn bmc(&self) -> Option<&'a Bmc> {
        let managed = self.input.spec.ownership.power == OwnershipMode::Managed;
        self.input.spec.bmc.as_ref().filter(|bmc| managed && bmc.driver != PowerDriver::Manual)
    }

    /// The latest power reading, including answers to commands.
    pub(crate) fn reading(&self) -> Option<PowerReading> {
        let facts = &self.input.facts;
        let answers = facts
            .power_results
            .values()
            .filter_map(|o| o.result.as_ref().ok().map(|state| PowerReading { state: *state, at: o.at }));
        // A BMC that restarts answers without a power.
        let answers = answers.filter(|reading| reading.state != PowerState::Unknown);
        // If two readings have the same time, the one that was stored last counts.
        answers.chain(facts.power.clone()).max_by_key(|reading| reading.at)
    }

    /// The time from which a silence of the boot network is meaningful.
    pub(crate) fn listening_since(&self, at: Timestamp) -> Timestamp {
        match &self.input.facts.boot_racks {
            Link::Connected { since } => at.max(*since),
            Link::None | Link::Away { .. } | Link::Partial { .. } => at,
        }
    }

    /// True if the racks have the wanted boot instruction. Otherwise it waits for them.
    pub(crate) fn applied(&mut self, step: StepId, wanted: BootSeen, since: Timestamp) -> bool {
        if self.input.facts.boot_applied == Some(wanted) {
            return true;
        }
        let link = self.input.facts.boot_racks.clone();
        if !self.racks_are_there(
            step,
            &link,
            "serves the network of",
            "attach a rack to the VLAN that the machine boots from",
        ) {
            return false;
        }
        let since = self.listening_since(since);
        let until = later(since, self.policy.deadline(DeadlineId::RackApplies));
        let what = match wanted {
            BootSeen::Local => "local disk".to_owned(),
            BootSeen::PowerOff => "power off".to_owned(),
            BootSeen::Ephemeral(attempt) => format!("attempt {attempt}"),
        };
        let mut message =
            format!("waiting for the racks to take over {}'s boot instruction ({what})", self.input.name);
        if let Some(refused) = &self.input.facts.boot_refused {
            message = format!("{message}; one says: {refused}");
        }
        if self.now < until {
            self.wait(step, "RackApplies", message, since, until);
            if let Some(wait) = self.waits.last_mut() {
                wait.remedy = "a person is asked to look at the rack".to_owned();
            }
        } else {
            let human = "read the rack's log for why it does not apply its boot instruction".to_owned();
            self.wait_for_person(Some(step), "RackApplies", message, since, human);
        }
        false
    }

    /// True if the latest reading shows this state.
    pub(crate) fn reads(&self, state: PowerState) -> bool {
        self.reading().is_some_and(|reading| reading.state == state)
    }
}
