//! Executes a plan.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use basalt_api::agent::FailureCode;

use super::call::Call;
use super::plan::Plan;
use crate::disk::WritableDisk;
use crate::failure::Failure;
use crate::modules::Index;
use crate::root::Root;
use crate::{deadlines, say, tool};

const MIB: u64 = 1 << 20;

/// A new UUID.
///
/// # Errors
/// The kernel cannot provide random bytes.
pub fn random_uuid() -> Result<String, Failure> {
    fs::read_to_string("/proc/sys/kernel/random/uuid")
        .map(|uuid| uuid.trim().to_owned())
        .map_err(|error| Failure::new(FailureCode::Other, format!("no random UUID: {error}")))
}

/// Writes the partition tables over any previous content, except the markers. `disks` are by kernel name.
///
/// # Errors
/// A disk is in use or cannot be written, or the kernel does not accept the new partitions.
pub fn write_tables(plan: &Plan, disks: &BTreeMap<String, WritableDisk>) -> Result<(), Failure> {
    load_modules(plan);
    for name in disks.keys() {
        release(&Root::system(), name)?;
    }
    for (name, script, files) in &plan.tables {
        let disk = disks.get(name).ok_or_else(|| {
            Failure::new(FailureCode::Other, format!("disk {name} was planned for and not opened"))
        })?;
        write_table(disk, script)?;
        for file in files {
            deadlines::poll_until(deadlines::DEVICES, || Path::new(file).exists().then_some(())).ok_or_else(
                || {
                    let message = format!("{file} did not appear after the partition table was written");
                    Failure::new(FailureCode::DiskError, message)
                },
            )?;
        }
    }
    Ok(())
}

/// Builds RAIDs, volumes and file systems on the partitions. Makes the links by UUID that udev would make: there is no udev here, and GRUB
/// needs the links.
///
/// # Errors
/// A program failed.
pub fn make(plan: &Plan) -> Result<(), Failure> {
    if plan.mdadm_conf.is_some() {
        // New RAIDs are synchronised later, while the system runs. A kernel without this file has no RAID driver and needs no limit.
        let _ = fs::write("/proc/sys/dev/raid/speed_limit_max", "1000");
    }
    for call in &plan.calls {
        call.run()?;
    }
    let link = |uuid: &str, device: &str| {
        let link = format!("/dev/disk/by-uuid/{uuid}");
        let _ = fs::remove_file(&link);
        symlink(device, link)
    };
    fs::create_dir_all("/dev/disk/by-uuid")
        .and_then(|()| plan.uuids.iter().try_for_each(|(uuid, device)| link(uuid, device)))
        .map_err(Failure::disk("naming the new file systems"))
}

/// Closes volumes and RAIDs, so that they are clean.
///
/// # Errors
/// One of them is still in use.
pub fn close(plan: &Plan) -> Result<(), Failure> {
    plan.close.iter().try_for_each(|call| call.run().map(drop)).map_err(Failure::from)
}

/// Loads the modules of RAIDs and volumes before their programs run: no device asks for these modules. If one is missing, the call that
/// needs it fails.
fn load_modules(plan: &Plan) {
    if plan.modules.is_empty() {
        return;
    }
    let loaded = Index::of_running_kernel()
        .and_then(|index| plan.modules.iter().try_for_each(|module| index.insert(module)));
    if let Err(error) = loaded {
        say!("modules for RAIDs and volumes were not loaded: {error}");
    }
}

/// Stops RAIDs and volumes that the kernel has assembled on a disk or its partitions, so that the disk can be partitioned again.
fn release(root: &Root, name: &str) -> Result<(), Failure> {
    let base = format!("sys/class/block/{name}");
    let parts = root.names(&base).into_iter().filter(|part| root.exists(format!("{base}/{part}/partition")));
    for part in parts {
        release(root, &part)?;
    }
    for holder in root.names(format!("{base}/holders")) {
        release(root, &holder)?;
        let file = format!("/dev/{holder}");
        let call = if holder.starts_with("md") {
            Call::new("mdadm", "--stop --quiet").and(file)
        } else {
            let name = root.text(format!("sys/class/block/{holder}/dm/name")).unwrap_or(holder);
            Call::new("dmsetup", "remove --noudevsync").and(name)
        };
        call.run()?;
    }
    Ok(())
}

/// Zeroes both ends of the disk, which may hold signatures of its former content, then writes the table.
fn write_table(disk: &WritableDisk, script: &str) -> Result<(), Failure> {
    let path = disk.path().display().to_string();
    let failed = || Failure::disk::<std::io::Error>(format!("clearing {path}"));
    disk.zero(0, 4 * MIB).map_err(failed())?;
    disk.zero(disk.size().saturating_sub(MIB), MIB).map_err(failed())?;
    disk.sync().map_err(failed())?;
    let args = ["--wipe", "never", "--wipe-partitions", "never", "--quiet", &path];
    tool::run_with("sfdisk", &args, script.as_bytes(), deadlines::TOOL)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use basalt_api::agent::{Task, TaskAction, Then, Wipe};
    use basalt_api::kinds::StorageConfig;

    use super::*;
    use crate::disk::rules::{self, Verdict};
    use crate::disk::{Disks, marker};
    use crate::storage::{Chosen, plan};

    #[test]
    fn the_partition_table_leaves_the_marker_and_clears_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("dev")).unwrap();
        let file = fs::File::create(dir.path().join("dev/vda")).unwrap();
        file.set_len(1 << 30).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![0xee; 4 << 20], 0).unwrap();
        let mut disks = Disks::new(Root::at(dir.path()));
        let task = Task {
            attempt: 7,
            not_after_unix_ms: 0,
            machine_uid: "m".to_owned(),
            scripts: Vec::new(),
            proxy: None,
            bmc: None,
            action: TaskAction::Inventory,
            then: Then::Reboot,
        };
        let observed = disks.observe("vda").unwrap();
        let Ok(Verdict::Proceed(permit)) = rules::install(&task, Wipe::Always, &[observed], &[]) else {
            panic!()
        };
        let disk = disks.begin("vda", &task, &permit).unwrap();
        let chosen = BTreeMap::from([("disk".to_owned(), Chosen { name: "vda".to_owned(), bytes: 1 << 30 })]);
        let plan =
            plan(&StorageConfig::default().expanded(), &chosen, "m", &mut || Ok("u".to_owned())).unwrap();
        write_table(&disk, &plan.tables[0].1).unwrap();

        assert_eq!(disks.observe("vda").unwrap().marker.unwrap().attempt, 7);
        let bytes = fs::read(disks.path("vda")).unwrap();
        let marker = usize::try_from(marker::OFFSET).unwrap();
        assert_eq!(&bytes[512..520], b"EFI PART");
        assert!(bytes[40 * 512..marker].iter().all(|byte| *byte == 0));
        assert!(bytes[marker + marker::LENGTH..4 << 20].iter().all(|byte| *byte == 0));
        let dump = tool::run("sfdisk", &["--dump", disks.path("vda").to_str().unwrap()]).unwrap();
        let starts: Vec<&str> =
            dump.lines().filter_map(|line| line.split("start=").nth(1)?.split(',').next()).collect();
        assert_eq!(starts.iter().map(|s| s.trim()).collect::<Vec<_>>(), ["2048", "4096", "1052672"]);
    }
}
