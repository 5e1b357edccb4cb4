//! Checks before any write that the disks have room for the layout.

use std::collections::BTreeMap;

use basalt_api::agent::FailureCode;
use basalt_api::disk::MIB;
use basalt_api::kinds::{RaidLevel, StorageConfig};

use super::plan::Chosen;
use super::table;
use crate::failure::Failure;

/// Most bytes of each member that md and LVM reserve. md's bitmap, log and reserve grow with the member up to this size.
const RAID_OWN: u64 = 132 * MIB;
const GROUP_OWN: u64 = 5 * MIB;

/// Checks that partitions and volumes fit on the disks that were chosen for the layout.
///
/// # Errors
/// [`FailureCode::NoDisk`]: a disk is too small for its partitions, or a volume group for its volumes.
pub(super) fn check(storage: &StorageConfig, disks: &BTreeMap<String, Chosen>) -> Result<(), Failure> {
    let mut bytes: BTreeMap<&str, u64> = BTreeMap::new();
    for (disk, chosen) in disks {
        let needed = storage.taken(disk);
        if chosen.bytes < needed {
            return Err(too_small(&format!("disk {} ({disk:?})", chosen.name), chosen.bytes, needed));
        }
        for part in table::parts(storage, disk) {
            bytes.extend(part.of.map(|of| (of, part.bytes(chosen.bytes))));
        }
    }
    for (name, raid) in &storage.raids {
        let least = raid.members.iter().filter_map(|member| bytes.get(member.as_str())).min().copied();
        let members = u64::try_from(raid.members.len()).unwrap_or(u64::MAX);
        let each = least.unwrap_or(0).saturating_sub(RAID_OWN);
        bytes.insert(
            name,
            match raid.level {
                RaidLevel::Raid0 => each.saturating_mul(members),
                RaidLevel::Raid1 => each,
                RaidLevel::Raid5 => each.saturating_mul(members.saturating_sub(1)),
                RaidLevel::Raid6 => each.saturating_mul(members.saturating_sub(2)),
                RaidLevel::Raid10 => each.saturating_mul(members) / 2,
            },
        );
    }
    for (name, group) in &storage.volume_groups {
        let member =
            |member: &String| bytes.get(member.as_str()).map_or(0, |bytes| bytes.saturating_sub(GROUP_OWN));
        let has: u64 = group.members.iter().map(member).sum();
        let volumes = storage.volumes.values().filter(|volume| volume.volume_group == *name);
        // LVM allocates extents of 4 MiB.
        let needed: u64 = volumes
            .map(|volume| volume.size.map_or(4 * MIB, |size| size.bytes().next_multiple_of(4 * MIB)))
            .sum();
        if has < needed {
            return Err(too_small(&format!("volume group {name:?}"), has, needed));
        }
    }
    Ok(())
}

fn too_small(what: &str, has: u64, needed: u64) -> Failure {
    let message =
        format!("{what} has {has} bytes, and what is to be built on it needs {needed}; nothing was written");
    Failure::new(FailureCode::NoDisk, message)
}
