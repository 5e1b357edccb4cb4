//! Partition tables: the partitions of a disk and their offsets.

use basalt_api::disk::{BIOS_BOOT, END, ESP, MIB, START};
use basalt_api::kinds::{FilesystemType, StorageConfig};

/// Partition number of the EFI system partition, on disks that have one.
pub const ESP_NUMBER: u32 = 2;

/// One partition of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    /// Name in the layout: of the partition, or of the disk if it is used whole. `None` for boot partitions.
    pub(super) of: Option<&'a str>,
    pub(super) number: u32,
    name: &'a str,
    kind: &'static str,
    start: u64,
    /// Size in bytes. `None`: the remaining room.
    size: Option<u64>,
}

impl Part<'_> {
    /// Size in bytes on a disk of `disk` bytes.
    pub(super) fn bytes(&self, disk: u64) -> u64 {
        self.size.unwrap_or_else(|| disk.saturating_sub(self.start + END))
    }
}

/// The partitions of a disk. On a boot disk, the first is for GRUB's core with BIOS, and the second for its EFI program with UEFI. So the
/// disk boots with both firmwares.
pub(super) fn parts<'a>(storage: &'a StorageConfig, disk: &'a str) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    let (mut number, mut start) = (0, START);
    let mut add = |of: Option<&'a str>, name: &'a str, kind: &'static str, size: Option<u64>| {
        number += 1;
        parts.push(Part { of, number, name, kind, start, size });
        start += size.unwrap_or(0).next_multiple_of(MIB);
    };
    if storage.below_boot().contains(disk) {
        add(None, "bios", "21686148-6449-6E6F-744E-656564454649", Some(BIOS_BOOT));
        add(None, "esp", "C12A7328-F81F-11D2-BA4B-00A0C93EC93B", Some(ESP));
    }
    let mut own: Vec<_> = storage.partitions.iter().filter(|(_, partition)| partition.disk == disk).collect();
    // Partitions with a size come first.
    own.sort_by_key(|(name, partition)| (partition.size.is_none(), *name));
    for (name, partition) in &own {
        add(Some(name), name, kind(storage, name), partition.size.map(|size| size.bytes()));
    }
    if own.is_empty() {
        add(Some(disk), disk, kind(storage, disk), None);
    }
    parts
}

/// The type GUID of a partition, by its content.
fn kind(storage: &StorageConfig, name: &str) -> &'static str {
    let in_raid =
        |raid: &basalt_api::kinds::StorageRaid| raid.members.contains(name) || raid.spares.contains(name);
    if storage.raids.values().any(in_raid) {
        return "A19D880F-05FC-4D3B-A006-743F0F84911E";
    }
    if storage.volume_groups.values().any(|group| group.members.contains(name)) {
        return "E6D6D379-F507-44C2-A23C-238F2A3DF928";
    }
    match storage.filesystems.values().find(|filesystem| filesystem.device == name).map(|it| it.r#type) {
        Some(FilesystemType::Swap) => "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F",
        Some(FilesystemType::Vfat) => "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7",
        Some(FilesystemType::Ext4 | FilesystemType::Xfs) | None => "0FC63DAF-8483-4772-8E79-3D69D8477DE4",
    }
}

/// The input script of sfdisk.
pub(super) fn script(parts: &[Part<'_>]) -> String {
    let mut text = "label: gpt\n".to_owned();
    for Part { name, kind, start, size, .. } in parts {
        let size = size.map(|size| format!("size={}MiB, ", size.div_ceil(MIB))).unwrap_or_default();
        text.push_str(&format!("start={}MiB, {size}type={kind}, name={name}\n", start / MIB));
    }
    text
}

/// Device file of a partition. If the name of the disk ends in a digit, a `p` comes before the number.
#[must_use]
pub(super) fn device(disk: &str, number: u32) -> String {
    let infix = if disk.ends_with(|c: char| c.is_ascii_digit()) { "p" } else { "" };
    format!("/dev/{disk}{infix}{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_disks_whose_name_ends_in_a_digit_have_a_p() {
        assert_eq!(device("vda", 3), "/dev/vda3");
        assert_eq!(device("nvme0n1", 2), "/dev/nvme0n1p2");
    }
}
