//! Runs a task in the ephemeral environment: arm, power on, boot request, claim, result.

use basalt_api::agent::FailureCode;
use basalt_api::kinds::{OwnershipMode, PowerState, StorageConfig};
use basalt_api::values::{Attempt, Timestamp};

use super::attempt::{State, TaskSteps};
use super::power::{Power, tries};
use super::walk::Walk;
use crate::disks::{self, Trouble};
use crate::facts::{BootSeen, Scope, StepRecord};
use crate::failures::AttemptFailure;
use crate::plan::{BootAction, BootDevice, Effect, TaskKind, Verb, Wait};
use crate::render::{Network, NetworkError};
use crate::steps::{BOOT_TRIES, StepId};

/// A successful attempt.
pub(crate) struct Success<'a> {
    pub(crate) record: &'a StepRecord,
    pub(crate) attempt: Attempt,
    pub(crate) at: Timestamp,
}

/// Decides if an earlier attempt may be kept.
pub(crate) trait Keep {
    /// True if an attempt that has not run yet still has the wanted task.
    fn open(&self, record: &StepRecord) -> bool;
    /// True if an attempt that succeeded at that time has the wanted result.
    fn done(&self, record: &StepRecord, at: Timestamp) -> bool;
}

impl<'a> Walk<'a> {
    /// Advances a task as far as possible. Returns the attempt when it is done.
    pub(crate) fn run_task(&mut self, task: TaskKind, scope: Scope, keep: &dyn Keep) -> Option<Success<'a>> {
        let steps = TaskSteps::of(task);
        if self.blocked() {
            self.announce(scope, &[steps.arm]);
            self.announce_from(steps, scope, steps.netboot);
            return None;
        }
        let Some(record) = self.counting(scope, steps.arm) else {
            self.arm(task, scope);
            return None;
        };
        let attempt = record.attempt?;
        match self.state(record) {
            State::Running { since, quiet_at } => {
                self.boot = Some(BootAction::Ephemeral(attempt));
                self.wait_for_run(record, steps, since, quiet_at);
            }
            State::Succeeded(at) if keep.done(record, at) => return Some(Success { record, attempt, at }),
            State::Succeeded(_) => self.arm(task, scope),
            State::Failed(failure, message, at) => self.after_failure(task, record, failure, &message, at),
            State::Open if keep.open(record) => self.boot_attempt(task, record, attempt),
            State::Open => self.arm(task, scope),
        }
        None
    }

    /// Announces the steps of a task from `from` on, including `from`.
    fn announce_from(&mut self, steps: TaskSteps, scope: Scope, from: StepId) {
        let powered = self.bmc().is_some();
        let all = [steps.arm, steps.netboot, steps.ask, steps.claim, steps.run];
        let rest = all.into_iter().skip_while(|s| *s != from).filter(|s| powered || *s != steps.netboot);
        self.announce(scope, &rest.collect::<Vec<_>>());
    }

    /// Arms a new attempt, if everything that it needs is there.
    pub(crate) fn arm(&mut self, task: TaskKind, scope: Scope) {
        let steps = TaskSteps::of(task);
        let before = self.next.len();
        if self.may_arm(task, scope) {
            self.begin(scope, steps.arm, None, Effect::Arm { task });
        } else {
            self.announce(scope, &[steps.arm]);
        }
        debug_assert!(self.next.len() > before || !self.waits.is_empty(), "arming begins or waits");
        self.announce_from(steps, scope, steps.netboot);
    }

    fn may_arm(&mut self, task: TaskKind, scope: Scope) -> bool {
        let steps = TaskSteps::of(task);
        let step = steps.arm;
        let name = self.input.name.clone();
        if self.wait_for_writer(step) {
            return false;
        }
        if self.input.spec.boot_macs.is_empty() {
            let message = format!("waiting for a MAC address to know {name} by");
            let fix = "declare the machine's boot_macs".to_owned();
            self.wait_for_prerequisite(step, "NoBootMac", message, fix);
            return false;
        }
        if self.input.ephemeral.is_none() {
            let architecture = self.input.spec.architecture;
            let message = format!("waiting for an ephemeral image for {architecture}, to boot {name} into");
            let fix =
                "build one with `basalt image build ephemeral`, upload its files, and declare the image"
                    .to_owned();
            self.wait_for_prerequisite(step, "NoEphemeralImage", message, fix);
            return false;
        }
        if !self.scripts_are_usable(task) {
            return false;
        }
        if task == TaskKind::Install
            && !(self.image_is_there() && self.network_fits() && self.disks_are_there())
        {
            return false;
        }
        let link = self.input.facts.boot_racks.clone();
        let fix = "attach a rack to the VLAN that the machine boots from";
        self.racks_are_there(step, &link, "serves the network of", fix)
            && self.power_is_known(scope)
            && (!self.may_change(steps) || self.fleet_allows(step))
    }

    fn image_is_there(&mut self) -> bool {
        let Some(claim) = self.input.claim.as_ref() else { return false };
        let image = claim.spec.image.as_str();
        match &claim.image {
            Some(resolved) if resolved.available => return true,
            Some(resolved) => {
                let message =
                    format!("waiting for the root tarball of image {image} ({})", resolved.root.sha256);
                let fix = format!("upload it: PUT /api/v1/blobs/{}", resolved.root.sha256);
                self.wait_for_prerequisite(StepId::ArmInstall, "ImageMissing", message, fix);
            }
            None => {
                let message = format!("waiting for image {image}: it does not exist, or has no root tarball");
                let fix =
                    format!("declare image {image} with a root_tarball, or name another in {}", claim.name);
                self.wait_for_prerequisite(StepId::ArmInstall, "ImageMissing", message, fix);
            }
        }
        false
    }

    fn network_fits(&mut self) -> bool {
        let Some(claim) = self.input.claim.as_ref() else { return false };
        let inventory =
            self.input.facts.inventory.as_ref().map(|seen| seen.inventory.clone()).unwrap_or_default();
        let resolved = Network::resolve_checked(self.input.network(), &inventory, &claim.assigned);
        let Err(error) = resolved else { return true };
        let why = match &error {
            NetworkError::NoAddress { purpose } => claim.unassigned.get(purpose),
            _ => None,
        };
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let message = format!("waiting for a network that fits {}: {error}{why}", self.input.name);
        let whose = match claim.spec.network {
            Some(_) => format!("deployment {}", claim.name),
            None => format!("machine {}", self.input.name),
        };
        let fix = match error {
            NetworkError::NoNic => disks::recommission(&self.input.name),
            _ => format!("change the network of {whose}"),
        };
        self.wait_for_prerequisite(StepId::ArmInstall, "NetworkMisfit", message, fix);
        false
    }

    /// True if the inventory has a disk for each one of the layout. Otherwise a person must correct the layout.
    fn disks_are_there(&mut self) -> bool {
        let Some(Trouble { code, message, hint, seen }) = disks::trouble(self.input) else { return true };
        let Some(claim) = self.input.claim.as_ref() else { return true };
        let whose = match claim.spec.storage == StorageConfig::default() {
            true => format!("machine {}", self.input.name),
            false => format!("deployment {}", claim.name),
        };
        let fix = format!("change the storage of {whose}: {hint}");
        self.wait_for_person(Some(StepId::ArmInstall), code, message, claim.claimed_at.max(seen), fix);
        false
    }

    /// Makes a machine with an armed attempt boot that attempt.
    pub(crate) fn boot_attempt(&mut self, task: TaskKind, record: &StepRecord, attempt: Attempt) {
        let steps = TaskSteps::of(task);
        let scope = record.scope;
        let on = Some(PowerState::On);
        if self.now >= record.not_after {
            // Do not arm a new attempt while the BMC waits for its next try: the new one could not be booted either.
            match self.power(steps.netboot, |r| r.step == steps.netboot && r.scope == scope, on) {
                Power::Resting(wait) => {
                    self.waits.push(*wait);
                    self.announce_from(steps, scope, steps.arm);
                }
                _ => self.arm(task, scope),
            }
            return;
        }
        self.boot = Some(BootAction::Ephemeral(attempt));
        if !self.applied(steps.arm, BootSeen::Ephemeral(attempt), record.started_at) {
            self.announce_from(steps, scope, steps.netboot);
            return;
        }
        if self.bmc().is_none() {
            let message = format!("waiting for {} to be booted from the network by hand", self.input.name);
            let name = &self.input.name;
            let mut fix = format!("switch {name} off and on, and have it boot from the network");
            if self.input.spec.ownership.power == OwnershipMode::Observed {
                fix.push_str("; or set ownership.power = \"managed\" on it");
            }
            self.wait_for_person(Some(steps.ask), "ManualPower", message, record.started_at, fix);
            self.announce_from(steps, scope, steps.claim);
            return;
        }
        let netboots = |r: &StepRecord| r.step == steps.netboot && r.scope == scope;
        match self.power(steps.netboot, netboots, on) {
            Power::Done(last, _) if last.attempt == Some(attempt) => self.await_boot(steps, scope, attempt),
            Power::Done(..) | Power::Due => self.netboot(steps, scope, attempt, Power::Due),
            other => self.netboot(steps, scope, attempt, other),
        }
    }

    fn netboot(&mut self, steps: TaskSteps, scope: Scope, attempt: Attempt, power: Power<'_>) {
        if matches!(power, Power::Due) && !self.power_is_known(scope) {
            self.announce_from(steps, scope, steps.netboot);
            return;
        }
        let verb = if self.reads(PowerState::Off) { Verb::On } else { Verb::Cycle };
        self.act(power, (scope, steps.netboot, Some(attempt)), (verb, BootDevice::PxeOnce));
        self.announce_from(steps, scope, steps.ask);
    }

    /// The machine was powered on: waits for its boot request and for its agent. Powers the machine on again if they do not
    /// come.
    fn await_boot(&mut self, steps: TaskSteps, scope: Scope, attempt: Attempt) {
        let Some((count, until, asked)) = self.boot_tries(steps, attempt, scope) else { return };
        let link = self.input.facts.boot_racks.clone();
        let (step, what) = if asked { (steps.claim, "AgentStarts") } else { (steps.ask, "BootRequest") };
        let fix = "attach a rack to the VLAN that the machine boots from";
        if self.racks_are_there(step, &link, "serves the network of", fix) {
            if self.now >= until && !self.silence_is_told(step) {
                self.announce_from(steps, scope, if asked { steps.run } else { steps.claim });
                return;
            }
            if self.now >= until {
                self.netboot(steps, scope, attempt, Power::Due);
                return;
            }
            let latest = self
                .input
                .records
                .iter()
                .rev()
                .find(|r| r.step == steps.netboot && r.attempt == Some(attempt));
            let seen = self.input.facts.boot_requests.get(&attempt).filter(|_| asked);
            let since = seen.map(|r| r.last_at).or(latest.map(|r| r.started_at)).unwrap_or(self.now);
            let mut message = format!("waiting for {} to {}", self.input.name, step.spec().says);
            if let Some(request) = seen {
                message = format!("{message}; it asked for {} by {}", request.what, request.service);
            }
            self.wait(step, what, message, since, until);
            if let Some(wait) = self.waits.last_mut() {
                wait.tries = Some((count, BOOT_TRIES));
                wait.remedy = if count < BOOT_TRIES {
                    format!("power cycle again (try {} of {BOOT_TRIES})", count + 1)
                } else {
                    "the attempt has failed, and a person is asked".to_owned()
                };
            }
        }
        self.announce_from(steps, scope, if asked { steps.run } else { steps.claim });
    }

    /// After a failed attempt: arms another one now or later, or waits for a person.
    fn after_failure(
        &mut self,
        task: TaskKind,
        record: &StepRecord,
        failure: AttemptFailure,
        message: &str,
        at: Timestamp,
    ) {
        let steps = TaskSteps::of(task);
        let rule = failure.rule();
        let streak = self.failed_in_a_row(record.scope, steps.arm);
        let (retry_at, stalled) = self.retry_at(rule, streak.max(1), at);
        let read_again = self
            .input
            .facts
            .inventory
            .as_ref()
            .is_some_and(|i| i.at > at && Some(i.attempt) != record.attempt);
        let mended = record.cause != self.cause(record.scope) || (read_again && rule.later.is_none());
        if mended || retry_at.is_some_and(|t| self.now >= t) {
            self.arm(task, record.scope);
            return;
        }
        // Keep the attempt bootable: a person who repairs the cable and presses the button need not wait for the next try.
        let bootable = matches!(failure, AttemptFailure::NeverAsked | AttemptFailure::NeverClaimed);
        if let Some(attempt) = record.attempt.filter(|_| bootable && self.now < record.not_after) {
            self.boot = Some(BootAction::Ephemeral(attempt));
        }
        let detail = if message.is_empty() { String::new() } else { format!(": {message}") };
        let attempt = record.attempt.map(|a| format!(" (attempt {a})")).unwrap_or_default();
        let machine_word = matches!(failure, AttemptFailure::Task(FailureCode::NoDisk))
            .then(|| self.disks())
            .unwrap_or_default();
        self.waits.push(Wait {
            code: rule.code,
            step: Some(steps.run),
            message: format!(
                "{} could not {}{attempt}: {}{detail}{machine_word}",
                self.input.name,
                steps.run.spec().says,
                rule.says
            ),
            since: at,
            deadline: retry_at,
            human: stalled.then(|| rule.fix.to_owned()),
            remedy: format!("{} again, with a new attempt", steps.arm.spec().says),
            tries: Some((streak.max(1), tries(rule))),
            stalled,
        });
        self.announce_from(steps, record.scope, steps.arm);
    }

    /// The machine's disks, for messages.
    fn disks(&self) -> String {
        let Some(seen) = &self.input.facts.inventory else { return String::new() };
        let disks: Vec<_> = seen
            .inventory
            .disks
            .iter()
            .map(|d| format!("{} of {} MB", d.name, d.size_bytes / 1_000_000))
            .collect();
        format!("; it has {}", if disks.is_empty() { "no disk".to_owned() } else { disks.join(", ") })
    }
}
