//! The disks of an installed system, and what is built on them.
//!
//! The layouts `flat`, `lvm` and `raid1` are short forms of `custom`: [`StorageConfig::expanded`] writes them out.

use crate::values::ByteSize;
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};

/// The disks of an installed system, and what is built on them. Partitions are on disks. RAIDs consist of disks and partitions,
/// volume groups of disks, partitions and RAIDs. Logical volumes are in volume groups. File systems are on disks, partitions,
/// RAIDs and volumes. All these disks, partitions, RAIDs, volume groups and volumes share one set of names: each name occurs
/// once.
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct StorageConfig {
    /// The layout of the disks. Each disk that carries the system also gets boot partitions for BIOS and UEFI; they are not
    /// declared.
    #[field(default = StorageLayout::Flat)]
    pub layout: StorageLayout,
    /// The disk for the system, if `layout` is `flat` or `lvm`. The value is a kernel name, a serial number, a WWN, or a name
    /// under `/dev/disk/by-id` or `/dev/disk/by-path`, and exactly one disk of the machine has it. Absent: the smallest fixed
    /// disk that is large enough.
    #[field(server_chosen)]
    pub disk: Option<String>,
    /// Size of the root file system, if `layout` is `flat` or `lvm`. Absent: all free space of the disk.
    pub root_size: Option<ByteSize>,
    /// Disks of the layouts `raid1` and `custom`, by names of your own. With `raid1`, these disks mirror each other; if none is
    /// declared, any two do. All declared disks are overwritten.
    pub disks: BTreeMap<String, StorageDisk>,
    /// Partitions of disks, by names of your own. A disk that is used as a whole needs none.
    pub partitions: BTreeMap<String, StoragePartition>,
    /// Software RAIDs, by the names that they get.
    pub raids: BTreeMap<String, StorageRaid>,
    /// LVM volume groups, by the names that they get.
    pub volume_groups: BTreeMap<String, StorageVolumeGroup>,
    /// LVM logical volumes, by the names that they get.
    pub volumes: BTreeMap<String, StorageVolume>,
    /// File systems and swap spaces, by names of your own. One of them is mounted at `/`.
    pub filesystems: BTreeMap<String, StorageFilesystem>,
}

/// The layout of an installed system's disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum StorageLayout {
    /// One ext4 root file system on a disk.
    Flat,
    /// One ext4 root file system on the volume `root` of the volume group `system`, on a disk.
    Lvm,
    /// One ext4 root file system on a mirror of two or more disks: the machine boots when a disk fails.
    Raid1,
    /// The layout that `disks`, `partitions`, `raids`, `volume_groups`, `volumes` and `filesystems` declare.
    Custom,
}

/// The conditions by which a disk is found. Without conditions it may be any fixed disk: the smallest one that fits is taken.
/// Each name gets a different disk.
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct StorageDisk {
    /// A kernel name, a serial number, a WWN, or a name under `/dev/disk/by-id` or `/dev/disk/by-path`. Exactly one disk of the
    /// machine has it. Each `id` means a different disk. Absent: any disk.
    pub id: Option<String>,
    /// The least size of the disk. In any case the disk has room for its partitions.
    pub min_size: Option<ByteSize>,
}

/// A partition of a disk. Partitions with a size come first, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct StoragePartition {
    /// The name of the disk in `disks`.
    pub disk: String,
    /// The size of the partition. Absent: all free space of the disk.
    pub size: Option<ByteSize>,
}

/// A software RAID (Linux md).
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct StorageRaid {
    /// The RAID level.
    pub level: RaidLevel,
    /// The disks and partitions of the RAID, each on a disk of its own.
    pub members: BTreeSet<String>,
    /// Disks and partitions that replace members that fail.
    pub spares: BTreeSet<String>,
}

/// A RAID level of Linux md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum RaidLevel {
    /// Striped: two or more members. If one of them fails, all data is lost.
    Raid0,
    /// Mirrored: two or more members. One of them is enough.
    Raid1,
    /// Striped with parity: three or more members. One of them may fail.
    Raid5,
    /// Striped with two parities: four or more members. Two of them may fail.
    Raid6,
    /// Striped, with each block on two members: three or more members. One of them may fail.
    Raid10,
}

impl RaidLevel {
    /// The least number of members.
    #[must_use]
    pub const fn least_members(self) -> usize {
        match self {
            Self::Raid0 | Self::Raid1 => 2,
            Self::Raid5 | Self::Raid10 => 3,
            Self::Raid6 => 4,
        }
    }
}

/// An LVM volume group.
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct StorageVolumeGroup {
    /// The disks, partitions and RAIDs of the volume group.
    pub members: BTreeSet<String>,
}

/// An LVM logical volume.
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct StorageVolume {
    /// The name of the volume group in `volume_groups`.
    pub volume_group: String,
    /// The size of the volume. Absent: all space of the volume group that other volumes leave.
    pub size: Option<ByteSize>,
}

/// A file system, or a swap space.
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct StorageFilesystem {
    /// The name of the disk, partition, RAID or volume that holds the file system.
    pub device: String,
    /// The type of the file system.
    #[field(default = FilesystemType::Ext4)]
    pub r#type: FilesystemType,
    /// The mount point, like `/srv/data`. Absent: the file system is not mounted. A swap space is used without a mount point.
    pub mount: Option<String>,
    /// Mount options, separated by commas, as in `fstab`. Absent: the default options.
    pub options: Option<String>,
    /// The label of the file system. Absent: none.
    pub label: Option<String>,
}

/// The type of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum FilesystemType {
    /// The file system ext4.
    Ext4,
    /// The file system XFS.
    Xfs,
    /// The file system FAT32.
    Vfat,
    /// A swap space instead of a file system.
    Swap,
}

impl StorageConfig {
    /// The same storage written out as layout `custom`.
    #[must_use]
    pub fn expanded(&self) -> Self {
        let mut all = Self { layout: StorageLayout::Custom, disk: None, root_size: None, ..self.clone() };
        let any = |id: Option<&String>| StorageDisk { id: id.cloned(), min_size: None };
        let members: BTreeSet<String> = match self.layout {
            StorageLayout::Custom => return all,
            StorageLayout::Raid1 if self.disks.is_empty() => ["disk1", "disk2"].map(str::to_owned).into(),
            StorageLayout::Raid1 => self.disks.keys().cloned().collect(),
            StorageLayout::Flat | StorageLayout::Lvm => BTreeSet::from(["disk".to_owned()]),
        };
        for disk in &members {
            all.disks.entry(disk.clone()).or_insert_with(|| any(self.disk.as_ref()));
        }
        let root = || "root".to_owned();
        match self.layout {
            StorageLayout::Flat => {
                let mut partition = StoragePartition::new("disk".to_owned());
                partition.size = self.root_size;
                all.partitions.insert(root(), partition);
            }
            StorageLayout::Lvm => {
                let mut volume = StorageVolume::new("system".to_owned());
                volume.size = self.root_size;
                all.volume_groups.insert("system".to_owned(), StorageVolumeGroup { members });
                all.volumes.insert(root(), volume);
            }
            StorageLayout::Raid1 | StorageLayout::Custom => {
                let raid = StorageRaid { level: RaidLevel::Raid1, members, spares: BTreeSet::new() };
                all.raids.insert(root(), raid);
            }
        }
        let mut filesystem = StorageFilesystem::new(root());
        filesystem.mount = Some("/".to_owned());
        filesystem.label = Some(root());
        all.filesystems.insert(root(), filesystem);
        all
    }

    /// The names of the parts that a partition, RAID, volume group or volume directly consists of.
    #[must_use]
    pub fn made_of(&self, name: &str) -> Vec<&str> {
        let mut below: Vec<&str> = Vec::new();
        below.extend(self.partitions.get(name).map(|partition| partition.disk.as_str()));
        below.extend(self.volumes.get(name).map(|volume| volume.volume_group.as_str()));
        if let Some(raid) = self.raids.get(name) {
            below.extend(raid.members.iter().chain(&raid.spares).map(String::as_str));
        }
        below.extend(
            self.volume_groups.get(name).into_iter().flat_map(|group| &group.members).map(String::as_str),
        );
        below
    }

    /// The names of everything below a name, including the name itself.
    #[must_use]
    pub fn stands_on<'a>(&'a self, name: &'a str) -> BTreeSet<&'a str> {
        let (mut all, mut open) = (BTreeSet::new(), vec![name]);
        while let Some(next) = open.pop() {
            if all.insert(next) {
                open.extend(self.made_of(next));
            }
        }
        all
    }

    /// The names of everything below the file system that is mounted at `mount`. Empty: no file system is mounted there.
    #[must_use]
    pub fn below_mount(&self, mount: &str) -> BTreeSet<&str> {
        let mounted = self.filesystems.values().find(|filesystem| filesystem.mount.as_deref() == Some(mount));
        mounted.map(|filesystem| self.stands_on(&filesystem.device)).unwrap_or_default()
    }

    /// The names of everything below the file system that holds the kernel: the one at `/boot`, else the one at `/`. See
    /// [`Self::below_mount`].
    #[must_use]
    pub fn below_boot(&self) -> BTreeSet<&str> {
        let boot = self.below_mount("/boot");
        if boot.is_empty() { self.below_mount("/") } else { boot }
    }
}
