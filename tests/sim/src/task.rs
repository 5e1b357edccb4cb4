//! A simulated task of the agent. It uses the agent's own rules about disks, its markers and hashes, but makes
//! no partitions and runs no programs.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use basalt_agent::blob::BlobError;
use basalt_agent::disk::rules::{self, Observed, Permit, Verdict};
use basalt_agent::disk::{Disks, WritableDisk, select};
use basalt_agent::failure::Failure;
use basalt_agent::install::not_expired;
use basalt_agent::restarts::{Asks, Restarts};
use basalt_agent::work::Context;
use basalt_agent::{inventory, runs, storage, task_scripts};
use basalt_api::agent::{
    Checkpoint, Erase, EraseLevel, FailureCode, Install, MarkerState, Outcome, Progress, Script, ScriptEnd,
    TaskAction, TaskResult,
};
use sha2::{Digest, Sha256};

use crate::ephemeral::blob;
use crate::event::Event;
use crate::fault::{Fault, Stage};
use crate::hardware::System;
use crate::life::{BLINK, Life, Stop};

const MIB: u64 = 1 << 20;
/// Size of a disk that is too small for any image.
const TOO_SMALL: u64 = 64 * MIB;

/// Name of a script that fails on every simulated machine.
pub(crate) const FAILS: &str = "fails";

/// Reasons why a task stops.
enum Halt {
    /// The machine stopped.
    Stop(Stop),
    /// The task failed.
    Failed(Failure),
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

struct Work<'a> {
    life: &'a Life,
    context: &'a Context<'a>,
    disks: Disks,
    seq: u64,
    log: String,
    stage: Option<(Stage, Instant)>,
    timings: BTreeMap<String, f64>,
    output: Option<String>,
    scripts: Vec<ScriptEnd>,
}

/// Runs the task to its result, which may be a failure.
pub(crate) fn perform(life: &Life, context: &Context<'_>) -> Result<TaskResult, Stop> {
    let hardware = &life.chassis().hardware;
    let small = life.fault(|fault| fault == Fault::DiskTooSmall)?.is_some();
    let shown = hardware.show_disk_bytes(if small { TOO_SMALL } else { hardware.disk_bytes() });
    if let Err(error) = shown {
        life.refused(format!("the invented hardware of {}: {error}", life.options().name))?;
        return Err(Stop::Hang);
    }
    let disks = Disks::new(hardware.root());
    let mut work = Work {
        life,
        context,
        disks,
        seq: 0,
        log: String::new(),
        stage: None,
        timings: BTreeMap::new(),
        output: None,
        scripts: Vec::new(),
    };
    work.stage(Stage::Inventory, 1, "reading the hardware")?;
    let inventory = inventory::read(&hardware.root(), context.boot.boot_mac.as_deref());
    let done = match &context.task.action {
        TaskAction::Inventory => work.inspect(),
        TaskAction::Install(install) => work.install(install),
        TaskAction::Erase(erase) => work.erase(erase),
        TaskAction::Script(script) => work.script(script),
    };
    let outcome = match done {
        Ok(outcome) => outcome,
        Err(Halt::Stop(stop)) => return Err(stop),
        Err(Halt::Failed(Failure { code, message })) => {
            Outcome::Failed { code, message, wrote: work.disks.wrote() }
        }
    };
    work.close_stage();
    // The task does not wait for its progress and log to arrive.
    let _undelivered = context.session.log(0, work.log.as_bytes());
    life.check()?;
    Ok(TaskResult {
        attempt: context.task.attempt,
        outcome,
        inventory: Some(inventory),
        markers: work.disks.markers(),
        timings: work.timings,
        output: work.output,
        scripts: work.scripts,
        bmc: None,
        logs: None,
    })
}

impl Work<'_> {
    /// Enters a stage: tells the rack, then lets faults fire.
    fn stage(&mut self, stage: Stage, percent: u8, message: &str) -> Result<(), Stop> {
        self.close_stage();
        self.stage = Some((stage, Instant::now()));
        self.life.event(Event::Stage { attempt: self.context.task.attempt, stage })?;
        self.seq += 1;
        self.log.push_str(&format!("{stage}: {message}\n"));
        let (stage_name, message) = (stage.name().to_owned(), message.to_owned());
        let progress = Progress { seq: self.seq, stage: stage_name, percent, message };
        let _undelivered = self.context.session.progress(&progress);
        self.life.suffer(stage)
    }

    fn close_stage(&mut self) {
        if let Some((stage, began)) = self.stage.take() {
            self.timings.insert(stage.name().to_owned(), began.elapsed().as_secs_f64());
        }
    }

    /// The observation of a disk, after the fault has put foreign data on it.
    fn observe(&self, name: &str) -> Result<Observed, Halt> {
        let seen = self.disks.observe(name)?;
        let blank = seen.marker.is_none() && !seen.has_data;
        if !blank || self.life.fault(|fault| fault == Fault::ForeignData)?.is_none() {
            return Ok(seen);
        }
        self.on_disk(name, || self.life.chassis().hardware.write_foreign_data())?;
        Ok(self.disks.observe(name)?)
    }

    /// Writes to a disk; a power cut cannot interrupt that.
    fn on_disk<T>(&self, name: &str, work: impl FnOnce() -> io::Result<T>) -> Result<T, Halt> {
        Ok(self.life.act(|_| work())?.map_err(Failure::disk(format!("writing disk {name}")))?)
    }

    /// Sets the marker to `writing`.
    fn begin(&mut self, name: &str, permit: &Permit) -> Result<WritableDisk, Halt> {
        let (task, log, disks) = (self.context.task, &self.life.chassis().log, &mut self.disks);
        let begun = self.life.act(|_| {
            let disk = disks.begin(name, task, permit)?;
            log.push(Event::WroteDisk { attempt: task.attempt });
            Ok::<_, Failure>(disk)
        });
        Ok(begun??)
    }

    /// Sets the marker to its final state.
    fn finish(&self, name: &str, disk: WritableDisk, state: MarkerState) -> Result<(), Halt> {
        let attempt = self.context.task.attempt;
        self.on_disk(name, || {
            disk.finish(state)?;
            self.life.chassis().log.push(match state {
                MarkerState::Installed => Event::Installed { attempt },
                MarkerState::Erased | MarkerState::Writing => Event::Erased { attempt },
            });
            Ok(())
        })
    }

    fn install(&mut self, install: &Install) -> Result<Outcome, Halt> {
        not_expired(self.context)?;
        self.stage(Stage::Check, 2, "choosing the disk and reading the markers of all disks")?;
        let devices = self.disks.devices();
        let wanted = storage::wanted(install);
        let chosen = select::select(&devices, &wanted.disks)?;
        let Some(name) = chosen.values().next().map(|disk| disk.name.clone()) else {
            return Err(Failure::new(FailureCode::NoDisk, "the layout has no disk").into());
        };
        let observed = self.observe(&name)?;
        let permit = match rules::install(self.context.task, install.wipe, &[observed], &[])? {
            Verdict::Proceed(permit) => permit,
            Verdict::Superseded(found_attempt) => return Ok(Outcome::Superseded { found_attempt }),
        };
        let disk = self.begin(&name, &permit)?;
        self.stage(Stage::Partition, 4, &format!("writing a partition table to {name}"))?;
        self.on_disk(&name, || disk.zero(0, 2 * MIB))?;
        self.stage(Stage::Unpack, 10, "fetching and unpacking the image")?;
        self.unpack(install)?;
        self.stage(Stage::Seed, 75, "writing host name, network configuration and cloud-init seed")?;
        let first_boot = install.first_boot.as_deref().map(|first_boot| {
            let (ends, scripts) =
                task_scripts::of_first_boot(first_boot, &self.life.chassis().hardware.root());
            self.scripts.extend(ends);
            scripts.into_iter().map(|script| script.name).collect()
        });
        let system = System {
            attempt: self.context.task.attempt,
            hostname: install.hostname.clone(),
            netplan: install.netplan.clone(),
            seed: install.seed.clone(),
            first_boot,
        };
        let hardware = &self.life.chassis().hardware;
        self.on_disk(&name, || hardware.write_system(&system))?;
        self.on_disk(&name, || hardware.make_bootable())?;
        self.task_scripts()?;
        self.stage(Stage::Finish, 95, "writing everything back to the disk")?;
        self.finish(&name, disk, MarkerState::Installed)?;
        Ok(Outcome::Succeeded)
    }

    fn unpack(&self, install: &Install) -> Result<(), Halt> {
        let bad =
            |_| Failure::new(FailureCode::BadImage, format!("{:?} is no SHA-256", install.image.sha256));
        let sha256: [u8; 32] = hex::decode(&install.image.sha256)
            .map_err(drop)
            .and_then(|bytes| bytes.try_into().map_err(drop))
            .map_err(bad)?;
        let wrong = self.life.fault(|fault| fault == Fault::WrongHash)?.is_some();
        let mut damaged = Sha256::new();
        // The damage: one wrong byte in front of the others.
        damaged.update([1]);
        let length = blob(self.life, self.context.session.client(), sha256, |bytes| {
            if wrong {
                damaged.update(bytes);
            }
        })?
        .map_err(Failure::from)?;
        if !wrong {
            return Ok(());
        }
        let (expected, found) = (install.image.sha256.clone(), hex::encode(damaged.finalize()));
        Err(Failure::from(BlobError::Corrupt { expected, found, length: length + 1 }).into())
    }

    /// Writes the command line of the script as its output. The script itself must not run on this host.
    fn script(&mut self, script: &Script) -> Result<Outcome, Halt> {
        self.stage(Stage::Check, 2, &format!("running script {}", script.name))?;
        if script.repeats {
            return self.rescue();
        }
        if self.context.again {
            let message = format!("script {} is not run a second time", script.name);
            return Err(Failure::new(FailureCode::ScriptFailed, message).into());
        }
        let root = self.life.chassis().hardware.root();
        let runs = runs::of(std::slice::from_ref(script), &root);
        if let Some(failure) = task_scripts::not_run(&runs) {
            return Err(failure.into());
        }
        for run in &runs {
            let said = [vec![run.label()], run.arguments()].concat().join(" ");
            self.output.get_or_insert_default().push_str(&format!("{said}\n"));
            self.life.event(Event::RanScript { attempt: self.context.task.attempt })?;
        }
        Ok(Outcome::Succeeded)
    }

    /// Reports the address for SSH, and waits until the person has left.
    fn rescue(&mut self) -> Result<Outcome, Halt> {
        let name = &self.life.options().name;
        let message = format!("script rescue has run for 1 s: ssh root@{name}, host key SHA256:none");
        self.stage(Stage::Check, 3, &message)?;
        while !self.life.act(|power| power.left)? {
            std::thread::sleep(BLINK);
        }
        Ok(Outcome::Succeeded)
    }

    /// Runs the scripts of a task without an installation.
    fn inspect(&mut self) -> Result<Outcome, Halt> {
        if self.context.task.scripts.is_empty() {
            return Ok(Outcome::Succeeded);
        }
        not_expired(self.context)?;
        let names: Vec<String> = self.disks.devices().into_iter().map(|device| device.name).collect();
        let observed = names.iter().map(|name| self.observe(name)).collect::<Result<Vec<_>, _>>()?;
        match rules::outranked(self.context.task, &observed) {
            Some(found_attempt) => Ok(Outcome::Superseded { found_attempt }),
            None => self.scripts_of_inventory().map(|()| Outcome::Succeeded),
        }
    }

    /// As [`Self::task_scripts`], with restarts: a script that may restart the machine has it restarted for itself, and then for the next one.
    fn scripts_of_inventory(&mut self) -> Result<(), Halt> {
        let Context { task, session, checkpoint, again, .. } = *self.context;
        if !task.may_reboot() {
            return self.task_scripts();
        }
        // A simulated attempt has a shorter life than a boot of real firmware.
        let left_ms = || i64::MAX;
        let mut ledger = |it: &Checkpoint| session.checkpoint(it).map_err(|error| error.to_string());
        let mut restarts = Restarts::new(checkpoint, again, &left_ms, &mut ledger);
        restarts.arrive().map_err(|why| Failure::new(FailureCode::Other, why))?;
        for run in runs::of(&task.scripts, &self.life.chassis().hardware.root()) {
            if let Some(end) = restarts.end_of(&run) {
                self.scripts.push(end);
                continue;
            }
            self.stage(Stage::Check, 2, &format!("running script {}", run.label()))?;
            self.life.event(Event::RanScript { attempt: task.attempt })?;
            let end = task_scripts::named(&run);
            if !run.script.may_reboot {
                restarts.add(std::slice::from_ref(&end));
                self.scripts.push(end);
                continue;
            }
            let asks = |run: &runs::Run<'_>| if run.boot == 1 { Asks::Again } else { Asks::Next };
            match restarts.carry_out(&run, |run| (end, Some(asks(run)))) {
                Ok(end) => self.scripts.push(end),
                Err(_) => return Err(Stop::Reset.into()),
            }
        }
        Ok(task_scripts::judge(&self.scripts)?)
    }

    /// Records each script of the task. A script called `fails` fails.
    fn task_scripts(&mut self) -> Result<(), Halt> {
        let task = self.context.task;
        for run in runs::of(&task.scripts, &self.life.chassis().hardware.root()) {
            if let Some(reason) = &run.skipped {
                self.scripts.push(task_scripts::left_out(&run, reason));
                continue;
            }
            let label = run.label();
            self.stage(Stage::Check, 2, &format!("running script {label}"))?;
            let fails = run.script.name == FAILS;
            let failure = fails.then(|| format!("script {label} ended with exit status: 1"));
            self.life.event(Event::RanScript { attempt: task.attempt })?;
            self.scripts.push(ScriptEnd { failure, ..task_scripts::named(&run) });
        }
        Ok(task_scripts::judge(&self.scripts)?)
    }

    fn erase(&mut self, erase: &Erase) -> Result<Outcome, Halt> {
        not_expired(self.context)?;
        self.stage(Stage::Check, 2, "reading the markers of all disks")?;
        let names: Vec<String> = self.disks.devices().into_iter().map(|device| device.name).collect();
        let observed = names.iter().map(|name| self.observe(name)).collect::<Result<Vec<_>, _>>()?;
        let permit = match rules::erase(self.context.task, erase.wipe, &observed)? {
            Verdict::Proceed(permit) => permit,
            Verdict::Superseded(found_attempt) => return Ok(Outcome::Superseded { found_attempt }),
        };
        self.task_scripts()?;
        for disk in observed.iter().filter(|disk| rules::finished(self.context.task, disk).is_none()) {
            let name = &disk.name;
            let disk = self.begin(name, &permit)?;
            self.stage(Stage::Erase, 10, &format!("erasing {name}"))?;
            let (size, ends) = (disk.size(), 2 * MIB);
            let parts = match erase.level {
                EraseLevel::Quick => vec![(0, ends), (size.saturating_sub(ends), ends)],
                EraseLevel::Full => vec![(0, size)],
            };
            for (from, length) in parts {
                self.on_disk(name, || disk.zero(from, length))?;
            }
            self.finish(name, disk, MarkerState::Erased)?;
        }
        Ok(Outcome::Succeeded)
    }
}
