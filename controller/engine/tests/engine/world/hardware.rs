//! The machine, its BMC and its disk. The region's own tests use this model too.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use basalt_api::agent::{Disk, FailureCode, Outcome};
use basalt_api::kinds::PowerState;
use basalt_api::values::{Attempt, DeploymentId, Sha256, Timestamp};
use basalt_engine::facts::{Level, Scope, StepKey};
use basalt_engine::failures::PowerFailure;
use basalt_engine::plan::{BootAction, BootDevice, TaskKind, Verb};

/// A report of the hardware.
#[derive(Clone, Debug)]
pub(crate) enum Fact {
    Power(StepKey, Result<PowerState, (PowerFailure, String)>),
    BootRequest(Attempt),
    Claim(Attempt, String),
    Progress(Attempt, u8),
    Result(Attempt, Outcome),
    Readiness(Attempt, Level),
    /// The scripts of the first boot have ended: with a failure, or well.
    FirstBoot(Attempt, Option<String>),
    /// A rack read the power.
    Reading(PowerState),
}

/// A fault of the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    BmcUnreachable,
    BmcPassword,
    BmcLies,
    AnswerLost,
    NeverBoots,
    NeverClaims,
    AgentDies,
    DiskTooSmall,
    ForeignData,
    BlobUnavailable,
    SystemSilent,
    RackRefuses,
    ScriptFails,
}

pub(crate) const FAULTS: [Fault; 13] = [
    Fault::BmcUnreachable,
    Fault::BmcPassword,
    Fault::BmcLies,
    Fault::AnswerLost,
    Fault::NeverBoots,
    Fault::NeverClaims,
    Fault::AgentDies,
    Fault::DiskTooSmall,
    Fault::ForeignData,
    Fault::BlobUnavailable,
    Fault::SystemSilent,
    Fault::RackRefuses,
    Fault::ScriptFails,
];

#[derive(Clone, Copy, Debug)]
enum Event {
    FirmwareDone,
    AgentUp(Attempt),
    AgentSays(Attempt, u8),
    SystemUp(Attempt, Level),
    ScriptsEnd(Attempt),
    ShutDown,
}

type Tasks = BTreeMap<Attempt, (TaskKind, Scope, Option<Sha256>, Timestamp)>;

#[derive(Default)]
pub(crate) struct Hardware {
    pub(crate) on: bool,
    pub(crate) faults: BTreeSet<Fault>,
    /// How often each fault has had an effect.
    pub(crate) felt: RefCell<BTreeMap<Fault, u64>>,
    /// The deployment whose data is on the disk.
    pub(crate) data_of: Option<DeploymentId>,
    /// The attempt that wrote the disk's marker, and true if the attempt completed.
    pub(crate) marker: Option<(Attempt, bool)>,
    /// Attempts whose task ends with a reboot.
    pub(crate) stays_on: BTreeSet<Attempt>,
    /// The system that the disk boots.
    pub(crate) system: Option<Attempt>,
    /// True if inventories and erases have scripts.
    pub(crate) scripted: bool,
    /// True if installed systems run scripts at their first boot.
    pub(crate) first_boot: bool,
    /// Attempts whose scripts have begun.
    pub(crate) scripts: Vec<Attempt>,
    /// Attempts in which people repaired it.
    pub(crate) rescues: Vec<Attempt>,
    pub(crate) power_cycles: u32,
    pub(crate) commands: u32,
    pub(crate) refused_logins: Vec<Timestamp>,
    pub(crate) bmc_resets: u32,
    pxe_once: bool,
    agent: Option<Attempt>,
    events: Vec<(Timestamp, Event)>,
    pub(crate) answered: BTreeMap<StepKey, Result<PowerState, (PowerFailure, String)>>,
}

impl Hardware {
    pub(crate) fn has(&self, fault: Fault) -> bool {
        let has = self.faults.contains(&fault);
        if has {
            *self.felt.borrow_mut().entry(fault).or_default() += 1;
        }
        has
    }

    pub(crate) fn disk(&self) -> Disk {
        Disk { name: "vda".to_owned(), size_bytes: 64_000_000_000, ..Disk::default() }
    }

    /// The attempt whose agent is alive.
    pub(crate) fn running(&self) -> Option<Attempt> {
        self.agent.filter(|a| self.events.iter().any(|(_, e)| matches!(e, Event::AgentSays(b, _) if a == b)))
    }

    /// True if a living agent is writing to the disk.
    pub(crate) fn writing(&self, tasks: &Tasks) -> bool {
        let task = self.running().and_then(|a| tasks.get(&a)).map(|t| t.0);
        self.on && task.is_some_and(|task| task != TaskKind::Inventory || self.scripted)
    }

    /// A person presses the power button.
    pub(crate) fn press(&mut self, now: Timestamp, on: bool) {
        self.set_power(now, on);
    }

    /// A person presses the power button, and chooses the network in the firmware's menu.
    pub(crate) fn press_for_network(&mut self, now: Timestamp) {
        self.set_power(now, true);
        self.pxe_once = true;
    }

    /// A person presses the reset button, and the machine boots its former attempt again.
    pub(crate) fn restart_into(&mut self, now: Timestamp, attempt: Attempt) {
        self.set_power(now, true);
        self.events.clear();
        self.at(now, 20, Event::AgentUp(attempt));
    }

    fn set_power(&mut self, now: Timestamp, on: bool) {
        self.events.clear();
        self.agent = None;
        self.on = on;
        if on {
            self.power_cycles += 1;
            self.at(now, 30, Event::FirmwareDone);
        }
    }

    fn at(&mut self, now: Timestamp, seconds: u64, event: Event) {
        self.events.push((now.checked_add(Duration::from_secs(seconds)).unwrap(), event));
    }

    /// The rack carries out a power command. A command with the same id is carried out once.
    pub(crate) fn command(
        &mut self,
        now: Timestamp,
        key: &StepKey,
        verb: Verb,
        device: BootDevice,
    ) -> Vec<Fact> {
        if let Some(result) = self.answered.get(key) {
            return vec![Fact::Power(key.clone(), result.clone())];
        }
        self.commands += 1;
        if self.has(Fault::AnswerLost) {
            return Vec::new();
        }
        let fail = |failure, text: &str| Err((failure, text.to_owned()));
        let result = if self.has(Fault::BmcUnreachable) {
            fail(PowerFailure::Unreachable, "no answer in 20 s")
        } else if self.has(Fault::BmcPassword) {
            self.refused_logins.push(now);
            fail(PowerFailure::BadPassword, "RAKP 2: unauthorized")
        } else if self.has(Fault::BmcLies) {
            Ok(self.state())
        } else if verb == Verb::Cycle && !self.on {
            fail(PowerFailure::CompletionCode, "0xd5: not possible in the present state")
        } else {
            self.pxe_once |= device == BootDevice::PxeOnce;
            match verb {
                Verb::Status => {}
                Verb::On if self.on => {}
                Verb::On | Verb::Cycle => self.set_power(now, true),
                Verb::Off => self.set_power(now, false),
                Verb::SoftOff if self.on && self.agent.is_none() && !self.has(Fault::SystemSilent) => {
                    self.at(now, 30, Event::ShutDown);
                }
                Verb::SoftOff => {}
                Verb::ResetBmc => self.bmc_resets += 1,
            }
            // A BMC that restarts does not say how the power is.
            if verb == Verb::ResetBmc { Ok(PowerState::Unknown) } else { Ok(self.state()) }
        };
        self.answered.insert(key.clone(), result.clone());
        vec![Fact::Power(key.clone(), result)]
    }

    /// All clocks except this machine's jump ahead.
    pub(crate) fn delay(&mut self, by: Duration) {
        for (at, _) in &mut self.events {
            *at = at.checked_add(by).unwrap();
        }
    }

    fn state(&self) -> PowerState {
        if self.on { PowerState::On } else { PowerState::Off }
    }

    pub(crate) fn next_event(&self) -> Option<Timestamp> {
        self.events.iter().map(|(t, _)| *t).min()
    }

    pub(crate) fn run_until(&mut self, now: Timestamp, boot: BootAction, tasks: &Tasks) -> Vec<Fact> {
        let mut facts = Vec::new();
        while let Some(at) = self.next_event().filter(|t| *t <= now) {
            let index = self.events.iter().position(|(t, _)| *t == at).unwrap();
            let (_, event) = self.events.remove(index);
            self.happen(at, event, boot, tasks, &mut facts);
        }
        facts
    }

    fn happen(
        &mut self,
        now: Timestamp,
        event: Event,
        boot: BootAction,
        tasks: &Tasks,
        facts: &mut Vec<Fact>,
    ) {
        match event {
            Event::FirmwareDone => {
                let network = std::mem::take(&mut self.pxe_once);
                if !network {
                    return self.boot_disk(now);
                }
                if self.has(Fault::NeverBoots) {
                    return;
                }
                match boot {
                    BootAction::Local => self.boot_disk(now),
                    BootAction::PowerOff => self.set_power(now, false),
                    BootAction::Ephemeral(attempt) => {
                        facts.push(Fact::BootRequest(attempt));
                        if !self.has(Fault::NeverClaims) {
                            self.at(now, 20, Event::AgentUp(attempt));
                        }
                    }
                }
            }
            Event::AgentUp(attempt) => {
                facts.push(Fact::Claim(attempt, format!("boot{}", self.power_cycles)));
                self.agent = Some(attempt);
                self.begin(now, attempt, tasks, facts);
            }
            Event::AgentSays(attempt, percent) => {
                if percent >= 60 && self.has(Fault::AgentDies) {
                    self.agent = None;
                } else if percent >= 100 {
                    self.finish(now, attempt, tasks, facts);
                } else {
                    facts.push(Fact::Progress(attempt, percent));
                    self.at(now, 60, Event::AgentSays(attempt, percent + 20));
                }
            }
            Event::ShutDown => {
                self.set_power(now, false);
                facts.push(Fact::Reading(PowerState::Off));
            }
            Event::SystemUp(attempt, level) => {
                if self.has(Fault::SystemSilent) {
                    return;
                }
                facts.push(Fact::Readiness(attempt, level));
                if level == Level::Booted {
                    self.at(now, 60, Event::SystemUp(attempt, Level::CloudInit));
                } else if self.first_boot {
                    self.at(now, 120, Event::ScriptsEnd(attempt));
                }
            }
            Event::ScriptsEnd(attempt) => {
                let failure = "script tune ended with exit status: 3; it said last: no such device";
                let failure = self.has(Fault::ScriptFails).then(|| failure.to_owned());
                facts.push(Fact::FirstBoot(attempt, failure));
            }
        }
    }

    /// An agent checks its task and the disk before it writes.
    fn begin(&mut self, now: Timestamp, attempt: Attempt, tasks: &Tasks, facts: &mut Vec<Fact>) {
        let Some((task, scope, _, not_after)) = tasks.get(&attempt) else { return };
        let fail = |code, wrote| Outcome::Failed { code, message: "as the model says".to_owned(), wrote };
        let install = *task == TaskKind::Install;
        let writes = matches!(task, TaskKind::Install | TaskKind::Erase(_));
        let outcome = match self.marker {
            _ if now > *not_after => Some(fail(FailureCode::Expired, false)),
            Some((found, ended)) if writes && (found > attempt || (found == attempt && ended)) => {
                Some(Outcome::Superseded { found_attempt: found.get() })
            }
            _ if *task == TaskKind::Script && self.scripts.contains(&attempt) => {
                Some(fail(FailureCode::ScriptFailed, false))
            }
            _ if install && self.has(Fault::DiskTooSmall) => Some(fail(FailureCode::NoDisk, false)),
            _ if install && self.has(Fault::ForeignData) => Some(fail(FailureCode::ForeignData, false)),
            _ if install && self.has(Fault::BlobUnavailable) => {
                Some(fail(FailureCode::BlobUnavailable, false))
            }
            _ => None,
        };
        if let Some(outcome) = outcome {
            self.agent = None;
            facts.push(Fact::Result(attempt, outcome));
            return;
        }
        match task {
            TaskKind::Script => self.scripts.push(attempt),
            TaskKind::Rescue => self.rescues.push(attempt),
            TaskKind::Inventory | TaskKind::Install | TaskKind::Erase(_) => {}
        }
        if writes {
            self.marker = Some((attempt, false));
            self.system = None;
        }
        if install && let Scope::Deployment(id) = scope {
            self.data_of = Some(*id);
        }
        self.at(now, 5, Event::AgentSays(attempt, 20));
    }

    fn finish(&mut self, now: Timestamp, attempt: Attempt, tasks: &Tasks, facts: &mut Vec<Fact>) {
        let task = tasks.get(&attempt).map(|t| t.0);
        let is_install = task == Some(TaskKind::Install);
        let scripts =
            self.scripted && (is_install || matches!(task, Some(TaskKind::Inventory | TaskKind::Erase(_))));
        if scripts && self.has(Fault::ScriptFails) {
            let message = "script burn-in ended with exit status: 1".to_owned();
            let outcome = Outcome::Failed { code: FailureCode::ScriptFailed, message, wrote: is_install };
            facts.push(Fact::Result(attempt, outcome));
            return self.set_power(now, self.stays_on.contains(&attempt));
        }
        facts.push(Fact::Result(attempt, Outcome::Succeeded));
        match task {
            Some(TaskKind::Install) => {
                self.marker = Some((attempt, true));
                self.system = Some(attempt);
                self.set_power(now, true);
            }
            Some(TaskKind::Erase(_)) => {
                self.marker = Some((attempt, true));
                self.data_of = None;
                self.set_power(now, false);
            }
            _ => self.set_power(now, self.stays_on.contains(&attempt)),
        }
    }

    fn boot_disk(&mut self, now: Timestamp) {
        if let Some(attempt) = self.system {
            self.at(now, 40, Event::SystemUp(attempt, Level::Booted));
        }
    }
}
