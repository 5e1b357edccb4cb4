//! The rack: obeys the newest epoch, runs a command once, reports at least once.

use super::hardware::{Fact, Fault, Hardware};
use basalt_api::agent::{DiskMarker, MarkerState, Nic, Outcome, TaskResult};
use basalt_api::kinds::PowerState;
use basalt_api::values::{Attempt, MachineId, Sha256, Timestamp};
use basalt_db::NewFact;
use basalt_engine::facts::{Level, Scope, StepKey, StepRecord};
use basalt_engine::failures::PowerFailure;
use basalt_engine::plan::{BootAction, BootDevice, EraseTask, TaskKind, Verb};
use basalt_engine::steps::StepId;
use basalt_proto::rack_v1::{PowerCommand, boot_machine, power_command};
use basalt_region::racks::observed::{self, Observed};
use std::collections::{BTreeMap, BTreeSet};

/// A machine and its BMC, with what the rack knows of them.
pub(crate) struct Played {
    pub(crate) hardware: Hardware,
    pub(crate) boot: BootAction,
    pub(crate) tasks: BTreeMap<Attempt, (TaskKind, Scope, Option<Sha256>, Timestamp)>,
    /// Attempts whose agents have been heard of, as far as the region can know.
    pub(crate) claimed: BTreeSet<Attempt>,
    highest: u64,
    seen: BTreeSet<String>,
}

impl Played {
    pub(crate) fn new() -> Self {
        Self {
            hardware: Hardware::default(),
            boot: BootAction::Local,
            tasks: BTreeMap::new(),
            claimed: BTreeSet::new(),
            highest: 0,
            seen: BTreeSet::new(),
        }
    }

    /// What a step record armed, for the agent that will ask for it.
    pub(crate) fn armed(&mut self, record: &StepRecord, task: &serde_json::Value) {
        let kind = match record.step {
            StepId::ArmInventory => TaskKind::Inventory,
            StepId::ArmInstall => TaskKind::Install,
            StepId::ArmErase => TaskKind::Erase(EraseTask::Quick),
            _ => return,
        };
        let Some(attempt) = record.attempt else { return };
        if task["then"] == "reboot" {
            self.hardware.stays_on.insert(attempt);
        }
        self.tasks.entry(attempt).or_insert((kind, record.scope, record.fingerprint, record.not_after));
    }

    /// What the boot concern says of it.
    pub(crate) fn told(&mut self, action: Option<&boot_machine::Action>) {
        self.boot = match action {
            Some(boot_machine::Action::Ephemeral(it)) => BootAction::Ephemeral(Attempt::new(it.attempt)),
            Some(boot_machine::Action::PowerOff(_)) => BootAction::PowerOff,
            Some(boot_machine::Action::Local(_)) | None => BootAction::Local,
        };
    }

    /// Carries out a power command, as a rack does; says what must not have been asked for.
    pub(crate) fn command(&mut self, now: Timestamp, command: &PowerCommand) -> (Vec<Fact>, Option<String>) {
        let key = StepKey::from(command.step_key.clone());
        let refused = |failure, why: &str| vec![Fact::Power(key.clone(), Err((failure, why.to_owned())))];
        if self.seen.contains(&command.command_id) && !self.hardware.has(Fault::AnswerLost) {
            // Its result is in the spool.
            return (Vec::new(), None);
        }
        if now.as_millisecond() > command.not_after_unix_ms {
            return (refused(PowerFailure::Expired, "too late"), None);
        }
        if command.epoch < self.highest {
            return (refused(PowerFailure::StaleEpoch, "older than what this BMC has seen"), None);
        }
        self.highest = command.epoch;
        let verb = match command.verb() {
            power_command::Verb::On => Verb::On,
            power_command::Verb::Off => Verb::Off,
            power_command::Verb::Cycle => Verb::Cycle,
            _ => Verb::Status,
        };
        let device = match command.boot_device() {
            power_command::BootDevice::PxeOnce => BootDevice::PxeOnce,
            power_command::BootDevice::Disk => BootDevice::Disk,
            _ => BootDevice::Unchanged,
        };
        let mut violation = None;
        if matches!(verb, Verb::Off | Verb::Cycle) && self.hardware.writing(&self.tasks) {
            violation =
                Some(format!("{} cuts the power of a machine whose disk is written", command.step_key));
        }
        let netboots = command.step_key.contains("/netboot-");
        if let (true, BootAction::Ephemeral(attempt)) = (netboots, self.boot)
            && self.claimed.contains(&attempt)
        {
            violation = Some(format!("{} boots an attempt that was claimed already", command.step_key));
        }
        let facts = self.hardware.command(now, &key, verb, device);
        if !facts.is_empty() {
            self.seen.insert(command.command_id.clone());
        }
        (facts, violation)
    }

    /// What happens until `now`; says what must not have happened.
    pub(crate) fn run_until(&mut self, now: Timestamp) -> (Vec<Fact>, Option<String>) {
        let installed = self.hardware.system.zip(self.hardware.data_of);
        let facts = self.hardware.run_until(now, self.boot, &self.tasks);
        let wiped = installed.filter(|_| self.hardware.system.is_none());
        let violation = wiped.and_then(|(old, owner)| {
            let (by, _) = self.hardware.marker?;
            let (_, scope, fingerprint, _) = self.tasks.get(&by)?;
            let (_, _, was, _) = self.tasks.get(&old)?;
            let (kind, ..) = self.tasks.get(&by)?;
            let same = *kind == TaskKind::Install && *scope == Scope::Deployment(owner) && fingerprint == was;
            same.then(|| format!("attempt {by} installs again what attempt {old} installed"))
        });
        let reused = installed.and_then(|(old, owner)| {
            let (by, _) = self.hardware.marker.filter(|(by, _)| *by != old)?;
            let (kind, scope, ..) = self.tasks.get(&by)?;
            let other = *kind == TaskKind::Install && *scope != Scope::Deployment(owner);
            other.then(|| format!("attempt {by} installs over the data of deployment {owner}"))
        });
        (facts, violation.or(reused))
    }
}

/// A fact as a rack delivers it.
pub(crate) fn new_fact(machine: MachineId, played: &Played, fact: Fact, observed_at: Timestamp) -> NewFact {
    let (mut step_key, mut of) = (None, None);
    let observed = match fact {
        Fact::Power(key, result) => {
            step_key = Some(key.to_string());
            let (ok, power, code, message) = match result {
                Ok(state) => (true, state.to_string(), "", String::new()),
                Err((failure, message)) => (false, PowerState::Unknown.to_string(), code(failure), message),
            };
            let (verb, error_code) = ("status".to_owned(), code.to_owned());
            Observed::Power(observed::Power { verb, ok, power, error_code, message, epoch: 0 })
        }
        Fact::BootRequest(attempt) => {
            of = Some(attempt);
            let [service, what, answer, address] = ["http", "script", "", ""].map(str::to_owned);
            Observed::BootRequest(observed::BootRequest { service, what, answer, address })
        }
        Fact::Claim(attempt, boot_id) => {
            of = Some(attempt);
            Observed::Claim(observed::Claim { address: String::new(), boot_id })
        }
        Fact::Progress(attempt, percent) => {
            of = Some(attempt);
            let (stage, message) = ("unpack".to_owned(), "unpacking".to_owned());
            Observed::Progress(observed::Progress { stage, percent, message })
        }
        Fact::Result(attempt, outcome) => {
            of = Some(attempt);
            Observed::Result(Box::new(result(machine, played, attempt, outcome)))
        }
        Fact::Readiness(attempt, level) => {
            of = Some(attempt);
            let level = match level {
                Level::Booted => "booted",
                Level::CloudInit => "cloud_init",
                Level::Tcp => "tcp",
            };
            let address = "10.77.0.50".to_owned();
            Observed::Readiness(observed::Readiness {
                level: level.to_owned(),
                message: String::new(),
                address,
            })
        }
    };
    let (kind, body) = observed.stored();
    let wakes = observed.wakes();
    NewFact {
        seq: 0,
        object: Some(machine.into()),
        mac: None,
        kind,
        step_key,
        attempt: of,
        body,
        observed_at,
        wakes,
    }
}

const fn code(failure: PowerFailure) -> &'static str {
    match failure {
        PowerFailure::Unreachable => "unreachable",
        PowerFailure::BadPassword => "bad_password",
        PowerFailure::CompletionCode => "completion_code",
        PowerFailure::StaleEpoch => "stale_epoch",
        PowerFailure::Expired => "expired",
        _ => "other",
    }
}

fn result(machine: MachineId, played: &Played, attempt: Attempt, outcome: Outcome) -> TaskResult {
    let nic =
        Nic { name: "enp1s0".to_owned(), mac: "52:54:00:00:00:01".to_owned(), boot: true, ..Nic::default() };
    let inventory = basalt_api::agent::Inventory {
        disks: vec![played.hardware.disk()],
        nics: vec![nic],
        ..basalt_api::agent::Inventory::default()
    };
    let mut markers = BTreeMap::new();
    if let Some((by, true)) = played.hardware.marker {
        let (machine_uid, state) = (machine.to_string(), MarkerState::Installed);
        markers.insert("vda".to_owned(), DiskMarker { machine_uid, attempt: by.get(), state });
    }
    TaskResult {
        attempt: attempt.get(),
        outcome,
        inventory: Some(inventory),
        markers,
        timings: BTreeMap::new(),
    }
}
