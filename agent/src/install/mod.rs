//! Installing a root tarball on one disk, so that BIOS and UEFI boot it and it needs Basalt no more.
//!
//! Layout (GPT): BIOS boot partition, EFI system partition, root. The disk's marker says `writing` before anything
//! else is written and `installed` after everything else is durable.

mod bootloader;
mod configure;
mod layout;
mod menu;
mod unpack;

use std::path::Path;

use basalt_api::agent::{FailureCode, Install, MarkerState, Outcome};

use crate::deadlines;
use crate::disk::rules::{self, Verdict};
use crate::disk::{Disks, select};
use crate::failure::Failure;
use crate::inventory::{self, BlockDevice};
use crate::report::Reporter;
use crate::root::Root;
use crate::work::Context;

pub use layout::Layout;

/// Installs.
///
/// # Errors
/// The task has expired, no disk fits, the disk is not Basalt's to overwrite, or a step failed.
pub fn run(
    context: &Context<'_>,
    install: &Install,
    disks: &mut Disks,
    reporter: &mut Reporter,
) -> Result<Outcome, Failure> {
    not_expired(context)?;
    reporter.stage("check", 2, "choosing the disk and reading the markers of all disks");
    let target = target(install, disks)?;
    let name = target.disk.name.as_str();
    let observed = disks.observe(name)?;
    let others = disks
        .devices()
        .iter()
        .filter(|device| device.disk.name != name)
        .map(|device| disks.observe(&device.disk.name))
        .collect::<Result<Vec<_>, _>>()?;
    let permit = match rules::install(context.task, install.wipe, &observed, &others)? {
        Verdict::Proceed(permit) => permit,
        Verdict::Superseded(found_attempt) => return Ok(Outcome::Superseded { found_attempt }),
    };
    let disk = disks.begin(name, context.task, &permit)?;

    reporter.stage("partition", 4, &format!("writing a partition table to {name}"));
    let layout = Layout::new(name)?;
    layout.write(&disk)?;
    reporter.stage("filesystems", 6, "making file systems");
    layout.make_filesystems()?;
    let mounted = layout.mount()?;

    reporter.stage("unpack", 10, "fetching and unpacking the image");
    unpack::run(context.session.client(), &install.image, layout::TARGET, reporter)?;
    reporter.stage("seed", 75, "writing host name, network configuration and cloud-init seed");
    let menu = menu::Menu::new(&install.kernel_options, &context.boot.consoles);
    configure::write(install, &menu, &layout)?;
    reporter.stage("bootloader", 80, "installing GRUB");
    bootloader::install(disk.path(), inventory::firmware(&Root::system()))?;
    menu.write(Path::new(layout::TARGET), &layout.root_uuid)?;
    reporter.stage("finish", 95, "writing everything back to the disk");
    mounted.unmount()?;
    disk.finish(MarkerState::Installed).map_err(Failure::disk(format!("finishing disk {name}")))?;
    Ok(Outcome::Succeeded)
}

/// A destructive task is void after its `not_after`: the region may have decided something else since.
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

/// The disk that the selector names, once it is there.
fn target(install: &Install, disks: &Disks) -> Result<BlockDevice, Failure> {
    let required = select::required_bytes(&install.image);
    let choose = || select::select(&disks.devices(), &install.disk, required).cloned();
    match deadlines::poll_until(deadlines::INSTALL_DISK, || choose().ok()) {
        Some(device) => Ok(device),
        None => choose(),
    }
}
