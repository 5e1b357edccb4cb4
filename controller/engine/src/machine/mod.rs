//! The planner of a machine: the only thing that causes effects on it.
//!
//! [`plan`] compares the declared state with the observations and returns the next action. It stores nothing: the same
//! input gives the same plan, and the facts that its own steps caused lead to "nothing to do".

mod attempt;
mod boot;
mod expected;
mod first_boot;
mod fleet;
mod operation;
mod power;
mod reading;
mod report;
mod script;
mod shutdown;
mod task_scripts;
mod walk;

pub(crate) use self::attempt::State;
pub use self::operation::{Refused, judge};
pub(crate) use self::power::Answer;
pub use self::report::carry_since;
pub use self::shutdown::system_runs;
pub(crate) use self::walk::Walk;

use std::time::Duration;

use basalt_api::kinds::{
    EraseMethod, MachineMode, OnFailure, OwnershipMode, PowerPolicy, PowerState, Readiness, Redeploy,
};
use basalt_api::values::{Attempt, Sha256, Timestamp};
use sha2::Digest;

use self::boot::{Keep, Success};
use self::power::Power;
use crate::disks;
use crate::facts::{BootSeen, Level, Link, Scope, StepRecord};
use crate::input::{Claim, MachineInput, Policy, later};
use crate::plan::{BootAction, BootDevice, Effect, EraseTask, Plan, TaskKind, Verb, Wait};
use crate::steps::{EffectKind, READY_TRIES, StepId};

/// The aim of a machine's plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Wait for work.
    Ready,
    /// Read the hardware.
    Commission,
    /// Run the system of the deployment.
    Deploy,
    /// Release the machine from its deployment.
    Release,
    /// Delete the machine.
    Remove,
}

/// Decides about the next action on a machine. If the clock has gone back, the planner's time stands still until the clock has caught up.
#[must_use]
pub fn plan(input: &MachineInput, policy: &Policy, now: Timestamp) -> Plan {
    let now = now.max(input.latest());
    let mut walk = Walk::new(input, policy, now);
    let goal = goal(input);
    let mut deployed = None;
    match goal {
        Goal::Ready => walk.keep_ready(),
        Goal::Commission => walk.commission(),
        Goal::Deploy => deployed = walk.deploy(),
        Goal::Release => walk.release(),
        Goal::Remove => walk.remove(),
    }
    walk.hold();
    walk.operate();
    let boot = walk.boot_action(goal, deployed.is_some());
    let report = walk.report(goal, deployed.as_ref());
    let digest = walk.digest(goal);
    walk.look_again();
    let deadlines = walk.waits.iter().filter_map(|w| w.deadline);
    let wake_at = deadlines.chain(walk.operations_end()).chain(walk.look_at).min();
    let writes = walk.writes(boot);
    let Walk { next, later, waits, operations, .. } = walk;
    let mut plan =
        Plan { next, later, waits, operations, boot, writes, notes: Vec::new(), report, wake_at, digest };
    if plan.announced().contains(&StepId::ArmInstall) || plan.waits_to(StepId::ArmInstall) {
        plan.notes = disks::notes(input);
    }
    plan
}

fn goal(input: &MachineInput) -> Goal {
    match &input.claim {
        Some(claim) if claim.deletion_requested_at.is_some() => Goal::Release,
        Some(_) => Goal::Deploy,
        None if input.deletion_requested_at.is_some() => Goal::Remove,
        None if needs_inventory(input) => Goal::Commission,
        None => Goal::Ready,
    }
}

/// True if the machine is commissioned before anything else.
pub(crate) fn needs_inventory(input: &MachineInput) -> bool {
    let seen = input.facts.inventory.as_ref().map(|i| i.at);
    match (seen, input.recommission_requested_at) {
        (None, requested) => !input.spec.commissioning.skip || requested.is_some(),
        (Some(seen), Some(requested)) => requested >= seen,
        (Some(_), None) => false,
    }
}

/// The install behind a finished deployment.
pub(crate) struct Deployed {
    pub(crate) attempt: Attempt,
    /// True if the spec has changed since, and may not be installed in place.
    pub(crate) drifted: bool,
}

/// An inventory is valid until another one is requested.
struct KeepInventory(Option<Timestamp>);

impl Keep for KeepInventory {
    fn open(&self, _: &StepRecord) -> bool {
        true
    }
    fn done(&self, _: &StepRecord, at: Timestamp) -> bool {
        self.0.is_none_or(|requested| at > requested)
    }
}

/// An install is valid as long as it is the declared one. It also stays valid if it may not be repeated.
struct KeepInstall {
    fingerprint: Sha256,
    image: Option<Sha256>,
    in_place: bool,
}

impl Keep for KeepInstall {
    fn open(&self, record: &StepRecord) -> bool {
        record.fingerprint == Some(self.fingerprint) && record.cause.image == self.image
    }
    fn done(&self, record: &StepRecord, _: Timestamp) -> bool {
        !self.in_place || record.fingerprint == Some(self.fingerprint)
    }
}

/// One successful erase is enough.
struct KeepErase;

impl Keep for KeepErase {
    fn open(&self, _: &StepRecord) -> bool {
        true
    }
    fn done(&self, _: &StepRecord, _: Timestamp) -> bool {
        true
    }
}

impl Walk<'_> {
    /// Reads the hardware, and powers off unless a deployment waits.
    fn commission(&mut self) {
        let keep = KeepInventory(self.input.recommission_requested_at);
        let seen = self.run_task(TaskKind::Inventory, Scope::Commission, &keep);
        if self.input.claim.is_some() {
            return;
        }
        if self.powers_off_when_idle() {
            self.power_off(Scope::Commission, StepId::PowerOffInventory, seen.map(|s| s.attempt));
        } else if self.input.spec.power == PowerPolicy::On {
            // The agent reboots the machine; a look at its power confirms it.
            self.announce_hold(StepId::ReadPower);
        }
    }

    /// True if a machine without work is to be off.
    fn powers_off_when_idle(&self) -> bool {
        match self.input.spec.power {
            PowerPolicy::On => false,
            PowerPolicy::Off => true,
            PowerPolicy::Auto => !self.input.spec.commissioning.keep_power,
        }
    }

    /// Keeps the declared power state of a machine without work.
    fn keep_ready(&mut self) {
        let inventory = self.arms(Scope::Commission, StepId::ArmInventory).next_back();
        let attempt = inventory.and_then(|r| r.attempt).filter(|a| self.input.facts.results.contains_key(a));
        let worked_since =
            |a: Attempt| self.input.records.iter().any(|r| r.attempt.is_some_and(|other| other > a));
        let off = self.powers_off_when_idle();
        if let Some(attempt) = attempt.filter(|a| off && !worked_since(*a)) {
            self.power_off(Scope::Commission, StepId::PowerOffInventory, Some(attempt));
        }
        match self.input.spec.power {
            PowerPolicy::On => self.hold_power(PowerState::On),
            PowerPolicy::Off => self.hold_power(PowerState::Off),
            // It is not known which system runs on a machine without an inventory, so it is not switched off.
            PowerPolicy::Auto if off && self.input.facts.inventory.is_some() => {
                self.hold_power(PowerState::Off);
            }
            PowerPolicy::Auto => {}
        }
        self.wait_for_good_hardware();
    }

    /// Installs, and waits for the installed system.
    fn deploy(&mut self) -> Option<Deployed> {
        let claim = self.input.claim.as_ref()?;
        let scope = Scope::Deployment(claim.uid);
        let in_place = claim.spec.redeploy == Redeploy::InPlace;
        let fingerprint = claim.fingerprint();
        let keep = KeepInstall { fingerprint, image: claim.image.as_ref().map(|i| i.digest), in_place };
        let installed = self.counting(scope, StepId::ArmInstall).filter(|r| self.is_done(r, &keep));
        let other = |writer: &StepRecord| writer.step != StepId::ArmInventory;
        let disturbed = self.writer().is_some_and(|(writer, ..)| other(writer));
        if installed.is_none() && needs_inventory(self.input) && !disturbed {
            self.commission();
        }
        if installed.is_none() && self.arms(scope, StepId::ArmInstall).next().is_none() {
            self.wait_for_good_hardware();
        }
        let done = self.run_task(TaskKind::Install, scope, &keep);
        if self.blocked() {
            self.announce(scope, &[StepId::BootLocal, StepId::ReadyInstall]);
            if self.input.spec.power == PowerPolicy::Off {
                self.announce_hold(StepId::SoftOff);
                self.announce_hold(StepId::HoldOff);
            }
        }
        let done = done?;
        let Success { record, attempt, at } = done;
        // A system that has reported has booted from its disk. A rack that joins later does not change that.
        let reported = self.input.facts.readiness.contains_key(&attempt);
        if !reported && !self.is_mended(at) && !self.applied(StepId::BootLocal, BootSeen::Local, at) {
            self.announce(scope, &[StepId::ReadyInstall]);
            return None;
        }
        if !self.reported(claim, scope, &done) || !self.first_boot_ended(claim, &done) {
            return None;
        }
        match self.input.spec.power {
            PowerPolicy::On | PowerPolicy::Auto => self.hold_power(PowerState::On),
            PowerPolicy::Off => self.hold_power(PowerState::Off),
        }
        if self.input.deletion_requested_at.is_some() && !self.blocked() {
            let message = format!("waiting for deployment {} to let {} go", claim.name, self.input.name);
            let fix = format!("delete deployment {}", claim.name);
            self.wait_for_person(None, "Claimed", message, self.now, fix);
        }
        Some(Deployed { attempt, drifted: record.fingerprint != Some(fingerprint) })
    }

    fn is_done(&self, record: &StepRecord, keep: &dyn Keep) -> bool {
        matches!(self.state(record), State::Succeeded(at) if keep.done(record, at))
    }

    /// True if the installed system meets the deployment's readiness check. Otherwise it waits for it.
    fn reported(&mut self, claim: &Claim, scope: Scope, installed: &Success<'_>) -> bool {
        let Success { record, attempt, at: installed_at } = *installed;
        let wanted = match claim.spec.readiness.check {
            Readiness::Installed => return true,
            Readiness::Booted => Level::Booted,
            Readiness::CloudInit => Level::CloudInit,
            Readiness::Tcp => Level::Tcp,
        };
        let seen = self.input.facts.readiness.get(&attempt);
        if seen.is_some_and(|r| r.level >= wanted) {
            return true;
        }
        if self.is_mended(installed_at) {
            return false;
        }
        let step = StepId::ReadyInstall;
        let link = self.input.facts.boot_racks.clone();
        if !self.racks_are_there(
            step,
            &link,
            "hears the reports of",
            "attach a rack to the VLAN of the machine",
        ) {
            return false;
        }
        let name = self.input.name.as_str();
        let restarts = |r: &StepRecord| r.step == StepId::RestartInstall && r.attempt == Some(attempt);
        let power = self.power(StepId::RestartInstall, restarts, Some(PowerState::On));
        let (restarted, from) = match power {
            Power::Done(_, at) => (READY_TRIES, at),
            Power::Due => (0, installed_at),
            other => {
                let cycle = (Verb::Cycle, BootDevice::Disk);
                self.act(other, (scope, StepId::RestartInstall, Some(attempt)), cycle);
                self.announce(scope, &[step]);
                return false;
            }
        };
        let since = self.listening_since(from);
        // A restart would interrupt scripts of the first boot, which begin when cloud-init has ended.
        let scripts = if seen.is_some() { record.first_boot.seconds } else { 0 };
        let limit = claim.spec.readiness.timeout.get().saturating_add(Duration::from_secs(scripts));
        let until = later(since, self.policy.scaled(limit));
        let so_far =
            seen.map_or("it has not reported yet".to_owned(), |r| format!("so far: {}", level_word(r.level)));
        let message = format!("waiting for {name} to report {}; {so_far}", level_word(wanted));
        if self.now < until {
            self.wait(step, "Readiness", message, from, until);
            let last = restarted >= READY_TRIES || self.bmc().is_none();
            if let Some(wait) = self.waits.last_mut() {
                wait.tries = Some((restarted + 1, READY_TRIES + 1));
                if last {
                    wait.remedy = "a person is asked".to_owned();
                }
            }
        } else if !self.silence_is_told(step) {
            return false;
        } else if restarted < READY_TRIES && self.bmc().is_some() {
            let cycle = (Verb::Cycle, BootDevice::Disk);
            self.act(Power::Due, (scope, StepId::RestartInstall, Some(attempt)), cycle);
            self.announce(scope, &[step]);
        } else {
            let fix = format!(
                "look at {name}'s console: the system is installed, but does not report {}; or ask for less in readiness",
                level_word(wanted)
            );
            self.wait_for_person(Some(step), "NotReady", message, from, fix);
            if let Some(wait) = self.waits.last_mut() {
                wait.tries = Some((restarted + 1, READY_TRIES + 1));
            }
        }
        false
    }

    /// Releases a machine: power off, erase as declared, power off, drop the claim.
    fn release(&mut self) {
        let Some(claim) = self.input.claim.as_ref() else { return };
        let scope = Scope::Deployment(claim.uid);
        let touched = self.arms(scope, StepId::ArmInstall).next().is_some();
        let mut unwiped = false;
        if touched {
            self.wait_for_writer_of(StepId::ArmInstall, StepId::PowerOffRelease);
            self.power_off_release(scope);
            let erase = match claim.spec.release.erase {
                EraseMethod::None => None,
                EraseMethod::Quick => Some(EraseTask::Quick),
                EraseMethod::Full => Some(EraseTask::Full),
            };
            if let Some(level) = erase {
                let erased = self.run_task(TaskKind::Erase(level), scope, &KeepErase);
                self.power_off(scope, StepId::PowerOffErase, erased.map(|s| s.attempt));
            }
            let given_up = self.waits.iter().any(|w| w.stalled);
            if given_up && claim.spec.release.on_failure == OnFailure::Abandon {
                self.waits.clear();
                self.later.clear();
                self.boot = None;
                unwiped = true;
            }
        }
        if self.blocked() {
            self.announce(scope, &[StepId::LetGo]);
            if touched && self.input.spec.power == PowerPolicy::On {
                self.announce_hold(StepId::HoldOn);
            }
        } else {
            self.begin(scope, StepId::LetGo, None, Effect::LetGo { deployment: claim.uid, unwiped });
        }
    }

    /// Powers the machine off. An installed system is asked to shut down first.
    fn power_off_release(&mut self, scope: Scope) {
        let step = StepId::PowerOffRelease;
        if self.blocked() || self.shut_down_before(scope, step) {
            self.power_off(scope, step, None);
        } else if self.blocked() {
            self.announce(scope, &[step]);
        }
    }

    /// Waits for a running task that the step `armed_by` has armed. `next` would cut the power.
    fn wait_for_writer_of(&mut self, armed_by: StepId, next: StepId) {
        if let Some((record, ..)) = self.writer()
            && record.step == armed_by
            && self.wait_for_writer(next)
        {
            self.boot = record.attempt.map(BootAction::Ephemeral);
        }
    }

    /// Powers a machine off and deletes it.
    fn remove(&mut self) {
        let managed = self.input.spec.mode == MachineMode::Managed;
        let powers_on = |s: StepId| {
            matches!(
                s,
                StepId::NetbootInventory
                    | StepId::NetbootInstall
                    | StepId::NetbootErase
                    | StepId::NetbootScript
                    | StepId::NetbootRescue
                    | StepId::RestartInstall
                    | StepId::HoldOn
            )
        };
        // Basalt does not switch off a machine that it never switched on.
        if managed && self.input.records.iter().any(|r| powers_on(r.step)) {
            self.power_off(Scope::Machine, StepId::PowerOffRemove, None);
        }
        if self.blocked() {
            self.announce(Scope::Machine, &[StepId::Forget]);
        } else {
            self.begin(Scope::Machine, StepId::Forget, None, Effect::Forget);
        }
    }

    /// Withholds every effect from a machine that a person has reserved. Waits for such effects are dropped too.
    fn hold(&mut self) {
        let spec = &self.input.spec;
        let name = &self.input.name;
        let forgets = self.next.iter().any(|s| matches!(s.effect, Effect::Forget));
        let leaves = self.input.deletion_requested_at.is_some();
        let withheld = match (self.next.first(), self.waits.first()) {
            (Some(step), _) => Some(step.step),
            (None, Some(wait)) => before_effect(wait),
            (None, None) => None,
        };
        let Some(step) = withheld else { return };
        let observed = spec.ownership.boot == OwnershipMode::Observed;
        let held = match spec.mode {
            _ if spec.locked => {
                Some(("Locked", "it is locked".to_owned(), "set locked = false on the machine"))
            }
            MachineMode::Managed if self.input.unwiped && !leaves && self.input.claim.is_none() => Some((
                "Unwiped",
                "it was let go without an erase, and may hold a former deployment's data".to_owned(),
                "wipe its disks, then delete the machine and declare it again",
            )),
            MachineMode::Managed if observed && step.spec().boots_task() => Some((
                "BootObserved",
                "what it boots is only observed".to_owned(),
                "set ownership.boot = \"managed\" on the machine",
            )),
            MachineMode::Managed => None,
            MachineMode::Rescue | MachineMode::Broken | MachineMode::Retired if forgets => None,
            mode => Some(("Mode", format!("its mode is {mode}"), "set mode = \"managed\" on the machine")),
        };
        let Some((code, why, fix)) = held else { return };
        self.waits.clear();
        let says = step.spec().says;
        let message = format!("{name} is left alone, because {why}; next would be to {says}");
        let withheld: Vec<_> =
            self.next.drain(..).map(|s| crate::plan::LaterStep { key: s.key, step: s.step }).collect();
        self.later.splice(0..0, withheld);
        self.boot = None;
        self.wait_for_person(Some(step), code, message, self.now, fix.to_owned());
    }

    /// The boot action that the racks are to have for the machine.
    fn boot_action(&self, goal: Goal, deployed: bool) -> BootAction {
        if let Some(armed) = self.boot {
            return armed;
        }
        let spec = &self.input.spec;
        let ours = spec.mode == MachineMode::Managed
            && spec.ownership.boot == OwnershipMode::Managed
            && !spec.locked
            && !self.input.unwiped;
        let installed = || {
            let claim = self.input.claim.as_ref()?;
            let record = self.counting(Scope::Deployment(claim.uid), StepId::ArmInstall)?;
            matches!(self.state(record), State::Succeeded(_)).then_some(())
        };
        match goal {
            _ if !ours || deployed => BootAction::Local,
            Goal::Deploy if installed().is_some() => BootAction::Local,
            // It is not known which system runs on a machine without commissioning, and a person may need that system.
            Goal::Commission | Goal::Remove => BootAction::Local,
            Goal::Ready | Goal::Deploy if self.is_wanted_on() => BootAction::Local,
            Goal::Ready if self.powers_off_when_idle() && self.input.facts.inventory.is_some() => {
                BootAction::PowerOff
            }
            Goal::Ready => BootAction::Local,
            Goal::Deploy | Goal::Release => BootAction::PowerOff,
        }
    }

    /// The digest over the planned actions and their scopes.
    fn digest(&self, goal: Goal) -> Sha256 {
        let input = self.input;
        let mut hash = sha2::Sha256::new();
        let mut add = |part: String| {
            hash.update(part);
            hash.update([0]);
        };
        add(format!("{} {} {goal:?}", input.uid, input.generation));
        if let Some(claim) = &input.claim {
            add(format!("{} {} {}", claim.uid, claim.generation, claim.fingerprint()));
            add(claim.image.as_ref().map(|i| i.digest.to_string()).unwrap_or_default());
        }
        for operation in &input.operations {
            add(operation.id.to_string());
        }
        Sha256::new(hash.finalize().into())
    }

    /// True if the racks that the machine needs are connected.
    fn connected(&self) -> bool {
        let there = |link: &Link| matches!(link, Link::Connected { .. });
        there(&self.input.facts.boot_racks) && (self.bmc().is_none() || there(&self.input.facts.power_rack))
    }
}

/// The step that a wait delays, if that step has an effect. `None` if something is in progress: a running task, a booting machine,
/// a BMC that has not answered yet.
fn before_effect(wait: &Wait) -> Option<StepId> {
    let step = wait.step?;
    let acts = step.spec().effect != EffectKind::Observe && wait.code != "PowerAnswer";
    (acts || wait.code == "ManualPower").then_some(step)
}

const fn level_word(level: Level) -> &'static str {
    match level {
        Level::Booted => "that it has booted",
        Level::CloudInit => "that cloud-init has finished",
        Level::Tcp => "that its port answers",
    }
}
