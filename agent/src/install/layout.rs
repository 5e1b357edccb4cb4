//! The disk's layout: partitions, file systems, and their place below the target directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use basalt_api::agent::FailureCode;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, unmount,
};

use crate::deadlines;
use crate::disk::WritableDisk;
use crate::failure::Failure;
use crate::tool;

/// Where the new root is mounted.
pub(super) const TARGET: &str = "/target";

const MIB: u64 = 1 << 20;

/// sfdisk's script. The first partition begins at 1 MiB, behind the marker. GRUB's core goes into the first when the
/// firmware is BIOS, its EFI program into the second when it is UEFI: either boots the disk.
const PARTITIONS: &str = "\
label: gpt
start=1MiB, size=1MiB, type=21686148-6449-6E6F-744E-656564454649, name=bios
start=2MiB, size=512MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=esp
start=514MiB, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4, name=root
";

/// Partition number of the EFI system partition.
pub(super) const ESP: u32 = 2;
const ROOT: u32 = 3;

/// The identities of one installation.
#[derive(Clone, Debug)]
pub struct Layout {
    disk: String,
    /// UUID of the root file system.
    pub root_uuid: String,
    /// UUID of the EFI system partition as Linux shows it: `ABCD-1234`.
    pub esp_uuid: String,
}

impl Layout {
    /// A layout with new identities for the disk of this kernel name.
    ///
    /// # Errors
    /// The kernel gives no randomness.
    pub fn new(disk: &str) -> Result<Self, Failure> {
        let random = || {
            fs::read_to_string("/proc/sys/kernel/random/uuid")
                .map(|uuid| uuid.trim().to_owned())
                .map_err(|error| Failure::new(FailureCode::Other, format!("no random UUID: {error}")))
        };
        let volume: String = random()?.chars().filter(char::is_ascii_hexdigit).take(8).collect();
        let (high, low) = volume.split_at_checked(4).unwrap_or(("BA5A", "0001"));
        Ok(Self {
            disk: disk.to_owned(),
            root_uuid: random()?,
            esp_uuid: format!("{high}-{low}").to_ascii_uppercase(),
        })
    }

    /// Device file of a partition: names that end in a digit take a `p`.
    fn partition(&self, number: u32) -> String {
        let infix = if self.disk.ends_with(|c: char| c.is_ascii_digit()) { "p" } else { "" };
        format!("/dev/{}{infix}{number}", self.disk)
    }

    /// Writes the partition table over whatever was there, leaving the marker.
    ///
    /// # Errors
    /// The disk cannot be written, or the kernel does not take the partitions over.
    pub fn write(&self, disk: &WritableDisk) -> Result<(), Failure> {
        write_table(disk)?;
        let root = self.partition(ROOT);
        deadlines::poll_until(deadlines::DEVICES, || Path::new(&root).exists().then_some(())).ok_or_else(
            || {
                Failure::new(
                    FailureCode::DiskError,
                    format!("{root} did not appear after the partition table was written"),
                )
            },
        )
    }

    /// Makes the file systems.
    ///
    /// # Errors
    /// A program failed.
    pub fn make_filesystems(&self) -> Result<(), Failure> {
        let volume = self.esp_uuid.replace('-', "");
        tool::run("mkfs.vfat", &["-F", "32", "-n", "ESP", "-i", &volume, &self.partition(ESP)])?;
        // Tables are initialised after the first boot, not now. Features newer than the boot loaders of older
        // systems are left out: the image decides which GRUB has to read this.
        let lazy = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
        let features = "^orphan_file,^metadata_csum_seed";
        let root = self.partition(ROOT);
        tool::run(
            "mkfs.ext4",
            &["-q", "-F", "-L", "root", "-U", &self.root_uuid, "-E", lazy, "-O", features, &root],
        )?;
        Ok(())
    }

    /// Mounts the file systems and what programs inside expect below [`TARGET`].
    ///
    /// # Errors
    /// The kernel refuses a mount.
    pub fn mount(&self) -> Result<Mounted, Failure> {
        let mut mounted = Mounted(Vec::new());
        // Until it is complete the installation is worth nothing, so it need not be ordered on disk.
        mounted.add(&self.partition(ROOT), "", "ext4", c"data=writeback,nobarrier,noauto_da_alloc")?;
        mounted.add(&self.partition(ESP), "boot/efi", "vfat", c"umask=0077")?;
        self.link_uuids().map_err(Failure::disk("naming the new file systems"))?;
        Ok(mounted)
    }

    /// There is no udev here, and GRUB asks for its names.
    fn link_uuids(&self) -> std::io::Result<()> {
        fs::create_dir_all("/dev/disk/by-uuid")?;
        for (uuid, number) in [(&self.root_uuid, ROOT), (&self.esp_uuid, ESP)] {
            let link = format!("/dev/disk/by-uuid/{uuid}");
            let _ = fs::remove_file(&link);
            symlink(self.partition(number), link)?;
        }
        Ok(())
    }
}

/// Zeroes both ends of the disk, where signatures of its former content may be, then writes the table.
fn write_table(disk: &WritableDisk) -> Result<(), Failure> {
    let path = disk.path().display().to_string();
    let failed = || Failure::disk::<std::io::Error>(format!("clearing {path}"));
    disk.zero(0, 4 * MIB).map_err(failed())?;
    disk.zero(disk.size().saturating_sub(MIB), MIB).map_err(failed())?;
    disk.sync().map_err(failed())?;
    let args = ["--wipe", "never", "--wipe-partitions", "never", "--quiet", &path];
    tool::run_with("sfdisk", &args, PARTITIONS.as_bytes(), deadlines::TOOL)?;
    Ok(())
}

/// File systems below [`TARGET`], to be unmounted in reverse.
#[derive(Debug)]
pub struct Mounted(Vec<String>);

impl Mounted {
    fn add(&mut self, source: &str, below: &str, kind: &str, data: &std::ffi::CStr) -> Result<(), Failure> {
        let target = Path::new(TARGET).join(below).display().to_string();
        let failed = format!("mounting {source} on {target}");
        fs::create_dir_all(&target).map_err(Failure::disk(&failed))?;
        mount(source, &target, kind, MountFlags::NOATIME, Some(data)).map_err(Failure::disk(&failed))?;
        self.0.push(target);
        Ok(())
    }

    /// Writes everything back and unmounts.
    ///
    /// # Errors
    /// A file system cannot be written back or is still in use.
    pub fn unmount(mut self) -> Result<(), Failure> {
        while let Some(target) = self.0.pop() {
            unmount(&target, UnmountFlags::empty()).map_err(Failure::disk(format!("unmounting {target}")))?;
        }
        Ok(())
    }
}

/// The kernel's file systems inside the target, for as long as programs of the image run.
#[derive(Debug)]
pub(super) struct Inside(Vec<String>);

impl Inside {
    /// Binds them.
    ///
    /// # Errors
    /// The kernel refuses a mount.
    pub(super) fn bind() -> Result<Self, Failure> {
        let mut inside = Self(Vec::new());
        for directory in ["dev", "proc", "sys"] {
            let target = format!("{TARGET}/{directory}");
            let failed = format!("mounting {target}");
            fs::create_dir_all(&target).map_err(Failure::disk(&failed))?;
            mount_bind_recursive(format!("/{directory}"), &target).map_err(Failure::disk(&failed))?;
            mount_change(&target, MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
                .map_err(Failure::disk(&failed))?;
            inside.0.push(target);
        }
        Ok(inside)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        while let Some(target) = self.0.pop() {
            // Should one stay, unmounting the root reports it.
            let _ = unmount(&target, UnmountFlags::DETACH);
        }
    }
}

#[cfg(test)]
mod tests {
    use basalt_api::agent::{Task, TaskAction, Then, Wipe};

    use super::*;
    use crate::disk::rules::{self, Verdict};
    use crate::disk::{Disks, marker};
    use crate::root::Root;

    #[test]
    fn partitions_of_disks_whose_name_ends_in_a_digit_have_a_p() {
        assert_eq!(Layout::new("vda").unwrap().partition(3), "/dev/vda3");
        assert_eq!(Layout::new("nvme0n1").unwrap().partition(2), "/dev/nvme0n1p2");
    }

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
            action: TaskAction::Inventory,
            then: Then::Reboot,
        };
        let observed = disks.observe("vda").unwrap();
        let Ok(Verdict::Proceed(permit)) = rules::install(&task, Wipe::Always, &observed, &[]) else {
            panic!()
        };
        let disk = disks.begin("vda", &task, &permit).unwrap();
        write_table(&disk).unwrap();

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
