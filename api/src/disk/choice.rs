//! The disks of an install: the room that a layout needs, and a disk for each of its entries. Agent and region choose by these rules.

use super::{DiskName, DiskNameError, DiskNames, find_disks};
use crate::agent::DiskSelector;
use crate::kinds::StorageConfig;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;
/// The first partition begins here, behind the marker. In bytes.
pub const START: u64 = MIB;
/// Partition for GRUB's core, in bytes.
pub const BIOS_BOOT: u64 = MIB;
/// EFI system partition, in bytes.
pub const ESP: u64 = 512 * MIB;
/// Room for the second copy of the partition table at the end, and for alignment. In bytes.
pub const END: u64 = 2 * MIB;
/// Smallest remaining room on a disk that has a partition without a size. In bytes.
const ROOM: u64 = 64 * MIB;
const GIB: u64 = 1 << 30;
/// Inventories of older agents have no by-path names.
const NO_PATHS: &str = "this inventory has no by-path names; run `basalt recommission`";

/// Smallest disk for an image of `image` bytes: the boot partitions, the unpacked image, and some free space. Root tarballs compress to
/// between a half and a quarter.
#[must_use]
pub const fn least_bytes(image: u64) -> u64 {
    image.saturating_mul(4).saturating_add(GIB)
}

impl StorageConfig {
    /// Bytes of a disk that its partitions with a size, the boot partitions and the partition table take.
    #[must_use]
    pub fn taken(&self, disk: &str) -> u64 {
        let boot = if self.below_boot().contains(disk) { BIOS_BOOT + ESP } else { 0 };
        let sizes = self.partitions.values().filter(|partition| partition.disk == disk);
        let sizes =
            sizes.filter_map(|partition| partition.size).map(|size| size.bytes().next_multiple_of(MIB));
        sizes.fold(START + boot + END, u64::saturating_add)
    }

    /// True if a partition or volume takes the remaining room of a disk.
    #[must_use]
    pub fn has_rest(&self, disk: &str) -> bool {
        let mut parts = self.partitions.values().filter(|partition| partition.disk == disk).peekable();
        parts.peek().is_none() || parts.any(|partition| partition.size.is_none())
    }

    /// How the disks of a layout in `custom`'s terms are recognised, by their names in it, for an image of so many bytes.
    #[must_use]
    pub fn wanted_disks(&self, image: u64) -> BTreeMap<String, DiskSelector> {
        let boot: BTreeSet<&str> = self.below_boot();
        let disks = self.disks.iter().map(|(name, disk)| {
            let taken = self.taken(name);
            let mut needed = taken;
            if self.has_rest(name) {
                let is_boot = boot.contains(name.as_str());
                needed = if is_boot { needed.max(least_bytes(image)) } else { needed.saturating_add(ROOM) };
                needed = needed.max(taken.saturating_add(self.volumes_on(name)));
            }
            let declared = disk.min_size.map_or(0, |size| size.bytes());
            (name.clone(), DiskSelector { name: disk.id.clone(), min_bytes: Some(needed.max(declared)) })
        });
        disks.collect()
    }

    /// Bytes of the volumes whose volume group is on this disk alone.
    fn volumes_on(&self, disk: &str) -> u64 {
        let alone = |group: &str| {
            let below = self.stands_on(group);
            self.disks.keys().filter(|name| below.contains(name.as_str())).eq([disk])
        };
        let volumes = self.volumes.values().filter(|volume| alone(&volume.volume_group));
        let sizes =
            volumes.filter_map(|volume| volume.size).map(|size| size.bytes().next_multiple_of(4 * MIB));
        let bytes = sizes.fold(0, u64::saturating_add);
        if bytes == 0 { 0 } else { bytes.saturating_add(8 * MIB) }
    }
}

/// The reason why there is no disk for a layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// Names that do not mean one disk of their own, by entries.
    #[error("{}", .0.iter().map(|(entry, error)| format!("{entry}: {error}; write {}", error.hint())).collect::<Vec<_>>().join(". "))]
    Names(Vec<(String, DiskNameError)>),
    /// No disk fits.
    #[error("no disk {what}: {why}")]
    NoDisk {
        /// Purpose of the disk: an entry of the layout.
        what: String,
        /// Every disk, and why it does not fit.
        why: String,
    },
}

/// Chooses a disk for each entry of a layout: the named disk, or else the smallest free disk that matches. If disks are equal, the first by
/// kernel name is chosen. Entries with a name come first, then the others by the size that they need, the largest first. Returns kernel
/// names.
///
/// # Errors
/// [`ChoiceError`]
pub fn choose_disks<'a>(
    disks: &[DiskNames<'a>],
    wanted: &BTreeMap<String, DiskSelector>,
) -> Result<BTreeMap<String, &'a str>, ChoiceError> {
    let entries = wanted.iter().filter_map(|(entry, it)| Some((entry.as_str(), it.name.as_deref()?)));
    let errors = find_disks(entries, disks).errors;
    if !errors.is_empty() {
        let owned = errors.into_iter().map(|(entry, error)| (entry.to_owned(), error));
        return Err(ChoiceError::Names(owned.collect()));
    }
    let mut order: Vec<_> = wanted.iter().collect();
    order.sort_by_key(|(entry, selector)| {
        (selector.name.is_none(), std::cmp::Reverse(selector.min_bytes), *entry)
    });
    let mut chosen: BTreeMap<String, &'a str> = BTreeMap::new();
    for (entry, selector) in order {
        let taken = |disk: &DiskNames<'_>| {
            let by = chosen.iter().find(|(_, taken)| **taken == disk.kernel);
            by.map(|(by, _)| format!("is taken for {by}"))
        };
        let unfit = |disk: &DiskNames<'_>| taken(disk).or_else(|| mismatch(disk, selector));
        let matching = disks.iter().filter(|disk| unfit(disk).is_none());
        let Some(best) = matching.min_by_key(|disk| (disk.bytes, disk.kernel)) else {
            let mut why: Vec<String> =
                disks.iter().filter_map(|disk| Some(format!("{} {}", disk.kernel, unfit(disk)?))).collect();
            let is_path = selector.name.as_deref().and_then(DiskName::read).is_some_and(DiskName::is_path);
            if is_path && !disks.is_empty() && disks.iter().all(|disk| disk.paths.is_empty()) {
                why.push(NO_PATHS.to_owned());
            }
            let why =
                if why.is_empty() { "the machine shows no disk at all".to_owned() } else { why.join("; ") };
            let what = if wanted.len() == 1 { "to install to".to_owned() } else { format!("for {entry}") };
            return Err(ChoiceError::NoDisk { what, why });
        };
        chosen.insert(entry.clone(), best.kernel);
    }
    Ok(chosen)
}

fn mismatch(disk: &DiskNames<'_>, selector: &DiskSelector) -> Option<String> {
    let smallest = selector.min_bytes.unwrap_or(0);
    if let Some(wanted) = &selector.name
        && !DiskName::read(wanted).is_some_and(|name| name.is_of(disk))
    {
        return Some(format!("is not {wanted}"));
    }
    (disk.bytes < smallest).then(|| format!("has {} bytes, {smallest} are needed", disk.bytes))
}
