//! Models of racks: each obeys the newest epoch, runs a command once, reports at least once, and serves its boot instructions.

use super::hardware::{Fact, Fault, Hardware};
use basalt_api::agent::{
    DiskMarker, FIRST_BOOT_DONE, FIRST_BOOT_FAILED, MarkerState, Nic, Outcome, TaskResult,
};
use basalt_api::kinds::PowerState;
use basalt_api::values::{Attempt, MachineId, RackId, Sha256, Timestamp, Uid};
use basalt_db::NewFact;
use basalt_engine::facts::{Level, Scope, StepKey, StepRecord};
use basalt_engine::failures::PowerFailure;
use basalt_engine::plan::{BootAction, BootDevice, EraseTask, TaskKind, Verb};
use basalt_engine::steps::StepId;
use basalt_proto::rack_v1::{PowerCommand, boot_machine, power_command};
use basalt_region::racks::observed::{self, Observed};
use std::collections::{BTreeMap, BTreeSet};

/// A rack's process, with its files.
pub(crate) struct Rack {
    pub(crate) uid: RackId,
    pub(crate) name: String,
    /// True while its process runs. Its files stay when it dies.
    pub(crate) alive: bool,
    /// The error of its clock, in seconds.
    pub(crate) clock: i64,
    pub(crate) spool: uuid::Uuid,
    /// Facts that no region has taken yet.
    pub(crate) spooled: Vec<NewFact>,
    seq: u64,
    /// Its boot concern: the incarnation of the database, and the generation.
    pub(crate) holds: (String, u64),
    /// The incarnation that it follows.
    follows: String,
    /// The incarnations that it followed before.
    retired: BTreeSet<String>,
    /// The number of commands from those that it refused.
    pub(crate) refused: u64,
    boots: BTreeMap<MachineId, BootAction>,
    bmcs: BTreeMap<MachineId, Seen>,
}

/// A rack's knowledge of a BMC, from regions of one incarnation.
#[derive(Default)]
struct Seen {
    incarnation: String,
    highest: u64,
    commands: BTreeSet<String>,
}

impl Rack {
    pub(crate) fn new(uid: RackId, name: &str) -> Self {
        Self {
            uid,
            name: name.to_owned(),
            alive: true,
            clock: 0,
            spool: Uid::generate().get(),
            spooled: Vec::new(),
            seq: 0,
            holds: (String::new(), 0),
            follows: String::new(),
            retired: BTreeSet::new(),
            refused: 0,
            boots: BTreeMap::new(),
            bmcs: BTreeMap::new(),
        }
    }

    /// A region of this incarnation connects, which retires the earlier ones. Returns false if the incarnation is retired: it is refused.
    pub(crate) fn hears(&mut self, incarnation: &str) -> bool {
        if self.retired.contains(incarnation) {
            return false;
        }
        let before = std::mem::replace(&mut self.follows, incarnation.to_owned());
        self.retired.extend(Some(before).filter(|before| !before.is_empty() && before != incarnation));
        true
    }

    /// The rack's boot instruction for a machine.
    pub(crate) fn boot(&self, machine: MachineId) -> BootAction {
        self.boots.get(&machine).copied().unwrap_or(BootAction::Local)
    }

    /// A machine gets another uid and keeps its boot instruction.
    pub(crate) fn renamed(&mut self, was: MachineId, is: MachineId) {
        let action = self.boots.remove(&was);
        self.boots.extend(action.map(|action| (is, action)));
    }

    /// Takes a machine's instruction from the boot concern.
    pub(crate) fn told(&mut self, machine: MachineId, action: Option<&boot_machine::Action>) {
        let action = match action {
            Some(boot_machine::Action::Ephemeral(it)) => BootAction::Ephemeral(Attempt::new(it.attempt)),
            Some(boot_machine::Action::PowerOff(_)) => BootAction::PowerOff,
            Some(boot_machine::Action::Local(_)) | None => BootAction::Local,
        };
        self.boots.insert(machine, action);
    }

    /// Puts an observation of a machine into the spool.
    pub(crate) fn observed(&mut self, machine: MachineId, played: &Played, fact: Fact, now: Timestamp) {
        let skewed = now.as_second().saturating_add(self.clock);
        let at = Timestamp::from_second(skewed).expect("a time");
        self.seq += 1;
        self.spooled.push(NewFact { seq: self.seq, ..new_fact(machine, played, fact, at) });
    }

    /// Carries out a power command. Returns the violation, if the command was forbidden.
    pub(crate) fn command(
        &mut self,
        now: Timestamp,
        machine: MachineId,
        played: &mut Played,
        command: &PowerCommand,
    ) -> (Vec<Fact>, Option<String>) {
        let key = StepKey::from(command.step_key.clone());
        let refused = |failure, why: &str| vec![Fact::Power(key.clone(), Err((failure, why.to_owned())))];
        if !self.hears(&command.incarnation) {
            self.refused += 1;
            return (refused(PowerFailure::StaleEpoch, "of a life of the database that is over"), None);
        }
        if command.step_key.contains("/netboot-") && self.holds.0 != command.incarnation {
            let early = format!("{} boots before {} was told what to boot", command.step_key, self.name);
            return (Vec::new(), Some(early));
        }
        let boot = self.boot(machine);
        let bmc = self.bmcs.entry(machine).or_default();
        if bmc.incarnation != command.incarnation {
            *bmc = Seen { incarnation: command.incarnation.clone(), ..Seen::default() };
        }
        if bmc.commands.contains(&command.command_id) && !played.hardware.has(Fault::AnswerLost) {
            // The result is already in the spool.
            return (Vec::new(), None);
        }
        if now.as_millisecond() > command.not_after_unix_ms {
            return (refused(PowerFailure::Expired, "too late"), None);
        }
        if command.epoch < bmc.highest {
            return (refused(PowerFailure::StaleEpoch, "older than what this BMC has seen"), None);
        }
        bmc.highest = command.epoch;
        let (facts, violation) = played.command(now, boot, command);
        if !facts.is_empty() {
            bmc.commands.insert(command.command_id.clone());
        }
        (facts, violation)
    }
}

/// A machine with its BMC, and its armed tasks.
pub(crate) struct Played {
    pub(crate) hardware: Hardware,
    pub(crate) tasks: BTreeMap<Attempt, (TaskKind, Scope, Option<Sha256>, Timestamp)>,
    /// Attempts whose agents have reported, as far as the region can know.
    pub(crate) claimed: BTreeSet<Attempt>,
    /// Attempts that wrote to the disk, but that the region's restored database does not know.
    pub(crate) forgotten: BTreeSet<Attempt>,
}

impl Played {
    pub(crate) fn new() -> Self {
        let (claimed, forgotten) = (BTreeSet::new(), BTreeSet::new());
        Self { hardware: Hardware::default(), tasks: BTreeMap::new(), claimed, forgotten }
    }

    /// True if the last writer of its disk is not known.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.hardware.marker.is_some_and(|(by, _)| self.forgotten.contains(&by))
    }

    /// The restored database has only these attempts: `claimed` of them were claimed, and `ended` have ended.
    pub(crate) fn remembered(
        &mut self,
        known: &BTreeSet<Attempt>,
        claimed: &BTreeSet<Attempt>,
        ended: &BTreeSet<Attempt>,
    ) {
        let by = self.hardware.marker.and_then(|(by, whole)| whole.then_some(by));
        let forgotten = |attempt: &Attempt| {
            let begun = known.contains(attempt);
            let heard = claimed.contains(attempt) || !self.claimed.contains(attempt);
            !begun || !heard || (by == Some(*attempt) && !ended.contains(attempt))
        };
        let forgotten: Vec<_> = self.tasks.keys().filter(|it| forgotten(it)).copied().collect();
        self.forgotten.extend(forgotten);
        self.claimed.retain(|attempt| claimed.contains(attempt));
        // The new incarnation may use the same ids.
        self.hardware.answered.clear();
    }

    /// Takes the task that a step record armed, for the agent that will ask for it.
    pub(crate) fn armed(&mut self, record: &StepRecord, task: &serde_json::Value) {
        let kind = match record.step {
            StepId::ArmInventory => TaskKind::Inventory,
            StepId::ArmInstall => TaskKind::Install,
            StepId::ArmErase => TaskKind::Erase(EraseTask::Quick),
            StepId::ArmScript => TaskKind::Script,
            StepId::ArmRescue => TaskKind::Rescue,
            _ => return,
        };
        let Some(attempt) = record.attempt else { return };
        if task["then"] == "reboot" {
            self.hardware.stays_on.insert(attempt);
        }
        self.tasks.entry(attempt).or_insert((kind, record.scope, record.fingerprint, record.not_after));
    }

    /// The effect of a power command, with this boot instruction.
    fn command(
        &mut self,
        now: Timestamp,
        boot: BootAction,
        command: &PowerCommand,
    ) -> (Vec<Fact>, Option<String>) {
        let key = StepKey::from(command.step_key.clone());
        let verb = match command.verb() {
            power_command::Verb::On => Verb::On,
            power_command::Verb::Off => Verb::Off,
            power_command::Verb::SoftOff => Verb::SoftOff,
            power_command::Verb::Cycle => Verb::Cycle,
            power_command::Verb::ResetBmc => Verb::ResetBmc,
            _ => Verb::Status,
        };
        let device = match command.boot_device() {
            power_command::BootDevice::PxeOnce => BootDevice::PxeOnce,
            power_command::BootDevice::Disk => BootDevice::Disk,
            _ => BootDevice::Unchanged,
        };
        let mut violation = None;
        let unheard = self.hardware.running().is_some_and(|attempt| self.forgotten.contains(&attempt));
        if matches!(verb, Verb::Off | Verb::Cycle) && self.hardware.writing(&self.tasks) && !unheard {
            violation =
                Some(format!("{} cuts the power of a machine whose disk is written", command.step_key));
        }
        let netboots = command.step_key.contains("/netboot-");
        if let (true, BootAction::Ephemeral(attempt)) = (netboots, boot)
            && self.claimed.contains(&attempt)
        {
            violation = Some(format!("{} boots an attempt that was claimed already", command.step_key));
        }
        (self.hardware.command(now, &key, verb, device), violation)
    }

    /// The events until `now`, with this boot instruction. Returns a violation, if there was one.
    pub(crate) fn run_until(&mut self, now: Timestamp, boot: BootAction) -> (Vec<Fact>, Option<String>) {
        let installed = self.hardware.system.zip(self.hardware.data_of);
        let installed = installed.filter(|(attempt, _)| !self.forgotten.contains(attempt));
        let facts = self.hardware.run_until(now, boot, &self.tasks);
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

/// A fact in the form in which a rack delivers it.
fn new_fact(machine: MachineId, played: &Played, fact: Fact, observed_at: Timestamp) -> NewFact {
    let (mut step_key, mut of) = (None, None);
    let observed = match fact {
        Fact::Power(key, result) => {
            step_key = Some(key.to_string());
            let (ok, power, code, message) = match result {
                Ok(state) => (true, state.to_string(), "", String::new()),
                Err((failure, message)) => (false, PowerState::Unknown.to_string(), code(failure), message),
            };
            let (verb, power, error_code, message) =
                ("status".into(), power.into(), code.into(), message.into());
            let (epoch, certificate) = (0, "".into());
            Observed::Power(observed::Power { verb, ok, power, error_code, message, epoch, certificate })
        }
        Fact::Reading(state) => {
            let [error_code, certificate] = ["", ""].map(Into::into);
            let (power, message) = (state.to_string().into(), "".into());
            Observed::Reading(observed::Reading { power, error_code, message, certificate, unchanged: false })
        }
        Fact::BootRequest(attempt) => {
            of = Some(attempt);
            let [service, what, address] = ["http", "script", ""].map(Into::into);
            Observed::BootRequest(observed::BootRequest { service, what, answer: "".into(), address })
        }
        Fact::Claim(attempt, boot_id) => {
            of = Some(attempt);
            Observed::Claim(observed::Claim { address: "".into(), boot_id: boot_id.into() })
        }
        Fact::Progress(attempt, percent) => {
            of = Some(attempt);
            let (stage, message) = ("unpack".into(), "unpacking".into());
            Observed::Progress(observed::Progress { stage, percent, message })
        }
        Fact::Result(attempt, outcome) => {
            of = Some(attempt);
            Observed::Result(Box::new(result(machine, played, attempt, outcome)))
        }
        Fact::FirstBoot(attempt, failure) => {
            of = Some(attempt);
            let level = if failure.is_some() { FIRST_BOOT_FAILED } else { FIRST_BOOT_DONE };
            let (message, address) = (failure.unwrap_or_default().into(), "10.77.0.50".into());
            Observed::Readiness(observed::Readiness { level: level.into(), message, address })
        }
        Fact::Readiness(attempt, level) => {
            of = Some(attempt);
            let level = match level {
                Level::Booted => "booted",
                Level::CloudInit => "cloud_init",
                Level::Tcp => "tcp",
            };
            let address = "10.77.0.50".into();
            Observed::Readiness(observed::Readiness { level: level.into(), message: "".into(), address })
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
        output: None,
        scripts: Vec::new(),
        bmc: None,
        logs: None,
    }
}
