//! Installs a root tarball on the machine's disks. The system boots by BIOS and UEFI, and without Basalt.
//!
//! [`crate::storage`] decides the layout of the disks. Before any other write, the markers of all disks say `writing`. They say `installed`
//! after all other data is durable on all disks.

mod bootloader;
mod configure;
mod first_boot;
mod logs;
mod menu;
pub mod packages;
mod scripts;
mod system;
mod target;
mod unpack;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use basalt_api::agent::{FailureCode, Install, LogSetup, MarkerState, Outcome, ScriptEnd};

use crate::deadlines;
use crate::disk::rules::{self, Verdict};
use crate::disk::{Disks, WritableDisk, select};
use crate::failure::Failure;
use crate::inventory;
use crate::report::Reporter;
use crate::root::Root;
use crate::storage::{self, Chosen, Wanted, build};
use crate::work::Context;

use target::{Mounted, TARGET};

/// Runs an install task. Sets `logs` to the way in which the new system sends its log, and adds the ends of its scripts to `ends`.
///
/// # Errors
/// The task has expired, disks are missing or too small, one is foreign, or a step or a script failed.
pub fn run(
    context: &Context<'_>,
    install: &Install,
    disks: &mut Disks,
    reporter: &mut Reporter,
    logs: &mut Option<LogSetup>,
    ends: &mut Vec<ScriptEnd>,
) -> Result<Outcome, Failure> {
    not_expired(context)?;
    reporter.stage("check", 2, "choosing the disks and reading the markers of all disks");
    let wanted = storage::wanted(install);
    let chosen = choose(&wanted, disks)?;
    let plan = storage::plan(&wanted.storage, &chosen, &install.hostname, &mut build::random_uuid)?;
    let names: BTreeSet<&str> = chosen.values().map(|disk| disk.name.as_str()).collect();
    let (targets, others): (Vec<_>, Vec<_>) =
        disks.observe_all()?.into_iter().partition(|disk| names.contains(disk.name.as_str()));
    let permit = match rules::install(context.task, install.wipe, &targets, &others)? {
        Verdict::Proceed(permit) => permit,
        Verdict::Superseded(found_attempt) => return Ok(Outcome::Superseded { found_attempt }),
    };
    let open = names
        .iter()
        .map(|name| Ok(((*name).to_owned(), disks.begin(name, context.task, &permit)?)))
        .collect::<Result<BTreeMap<String, WritableDisk>, Failure>>()?;

    let list = names.into_iter().collect::<Vec<_>>().join(", ");
    reporter.stage("partition", 4, &format!("writing a partition table to {list}"));
    build::write_tables(&plan, &open)?;
    reporter.stage("filesystems", 6, "making file systems, and what they are on");
    build::make(&plan)?;
    let mounted = Mounted::all(&plan.mounts)?;

    reporter.stage("unpack", 10, "fetching and unpacking the image");
    unpack::run(context.session.client(), &install.image, TARGET, reporter)?;
    reporter.stage("seed", 75, "writing host name, network configuration and cloud-init seed");
    let menu = menu::Menu::new(&install.kernel_options, &context.boot.consoles);
    *logs = configure::write(install, &menu, &plan)?;
    first_boot::write(install, Path::new(TARGET), ends)?;
    system::has_programs(&plan)?;
    reporter.stage("bootloader", 80, "installing GRUB");
    bootloader::install(&plan.boot.esps, inventory::firmware(&Root::system()))?;
    system::update_initramfs(&plan)?;
    // A script may have added a kernel, so the menu is written afterwards.
    scripts::run(context, reporter, ends)?;
    menu.write(Path::new(TARGET), &plan.boot)?;
    reporter.stage("finish", 95, &format!("writing everything back to {list}"));
    mounted.unmount()?;
    build::close(&plan)?;
    for (name, disk) in &open {
        disk.sync().map_err(Failure::disk(format!("writing disk {name}")))?;
    }
    for (name, disk) in open {
        disk.finish(MarkerState::Installed).map_err(Failure::disk(format!("finishing disk {name}")))?;
    }
    Ok(Outcome::Succeeded)
}

/// A destructive task is invalid after its `not_after`, since the region may have decided otherwise in the meantime.
///
/// # Errors
/// [`FailureCode::Expired`].
pub fn not_expired(context: &Context<'_>) -> Result<(), Failure> {
    let (now, limit) = (context.clock.now_unix_ms(), context.task.not_after_unix_ms);
    if now <= limit {
        return Ok(());
    }
    let late = now.saturating_sub(limit) / 1000;
    Err(Failure::new(
        FailureCode::Expired,
        format!("the task had to begin {late} s ago (not_after {limit}, now {now}); nothing was written"),
    ))
}

/// Waits for the disks that the layout names. A name that is not a valid disk name fails at once: waiting would not help.
fn choose(wanted: &Wanted, disks: &Disks) -> Result<BTreeMap<String, Chosen>, Failure> {
    let choose = || {
        let devices = disks.devices();
        let chosen = select::select(&devices, &wanted.disks)?;
        let chosen = chosen
            .into_iter()
            .map(|(entry, disk)| (entry, Chosen { name: disk.name.clone(), bytes: disk.size_bytes }));
        Ok(chosen.collect())
    };
    let settled = |chosen: Result<_, Failure>| match chosen {
        Err(failure) if failure.code == FailureCode::NoDisk => None,
        chosen => Some(chosen),
    };
    deadlines::poll_until(deadlines::INSTALL_DISK, || settled(choose())).unwrap_or_else(choose)
}
