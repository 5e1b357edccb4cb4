//! The disks of an installed system, and what is built on them.
//!
//! `flat`, `lvm` and `raid1` stand for maps that could be written out as `custom`: [`StorageConfig::expanded`] writes them.

use crate::values::ByteSize;
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};

/// The disks of an installed system, and what is built on them: partitions on disks, RAIDs of those, volume groups of all of these, volumes
/// in them, file systems on top. Names of disks, partitions, RAIDs, volume groups and volumes are of one kind: each is there once.
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct StorageConfig {
    /// What is built. Every disk that carries the system gets boot partitions for BIOS and UEFI as well; those are not declared.
    #[field(default = StorageLayout::Flat)]
    pub layout: StorageLayout,
    /// The disk that gets the system, where `layout` is `flat` or `lvm`. A kernel name, a serial number, a WWN, or a name under
    /// `/dev/disk/by-id` or `/dev/disk/by-path`, which one disk of the machine has. Absent: the smallest fixed disk that is large enough.
    #[field(server_chosen)]
    pub disk: Option<String>,
    /// Size of the root file system, where `layout` is `flat` or `lvm`. Absent: what is left of the disk.
    pub root_size: Option<ByteSize>,
    /// Disks, by names of your own. With `raid1` those that mirror each other; none: any two. All of them are overwritten.
    pub disks: BTreeMap<String, StorageDisk>,
    /// Parts of disks, by names of your own. A disk that is used whole needs none.
    pub partitions: BTreeMap<String, StoragePartition>,
    /// Software RAIDs, by the name that each gets.
    pub raids: BTreeMap<String, StorageRaid>,
    /// LVM volume groups, by the name that each gets.
    pub volume_groups: BTreeMap<String, StorageVolumeGroup>,
    /// LVM logical volumes, by the name that each gets.
    pub volumes: BTreeMap<String, StorageVolume>,
    /// File systems and swap spaces, by names of your own. One of them is mounted at `/`.
    pub filesystems: BTreeMap<String, StorageFilesystem>,
}

/// What is built of the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum StorageLayout {
    /// One ext4 root file system on a disk.
    Flat,
    /// One ext4 root file system on the volume `root` of the volume group `system`, on a disk.
    Lvm,
    /// One ext4 root file system on two disks that mirror each other, or more: the machine boots when one dies.
    Raid1,
    /// What `disks`, `partitions`, `raids`, `volume_groups`, `volumes` and `filesystems` say.
    Custom,
}

/// How a disk is recognised. What says nothing is any fixed disk: of those that fit the smallest is taken, and each for one name.
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct StorageDisk {
    /// A kernel name, a serial number, a WWN, or a name under `/dev/disk/by-id` or `/dev/disk/by-path`, which one disk of the machine has.
    /// Each names another disk. Absent: any disk.
    pub id: Option<String>,
    /// Least size. It has room for its partitions in any case.
    pub min_size: Option<ByteSize>,
}

/// A part of a disk. Those with a size come first, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct StoragePartition {
    /// The disk, by its name in `disks`.
    pub disk: String,
    /// Its size. Absent: what is left of the disk.
    pub size: Option<ByteSize>,
}

/// A software RAID (Linux md).
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct StorageRaid {
    /// How it spreads data.
    pub level: RaidLevel,
    /// The disks and partitions it is made of, each on a disk of its own.
    pub members: BTreeSet<String>,
    /// Disks and partitions that take the place of members that fail.
    pub spares: BTreeSet<String>,
}

/// How a RAID spreads data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum RaidLevel {
    /// Striped: two members or more, and all is lost with one of them.
    Raid0,
    /// Mirrored: two members or more, of which one suffices.
    Raid1,
    /// Striped with parity: three members or more, of which one may fail.
    Raid5,
    /// Striped with two parities: four members or more, of which two may fail.
    Raid6,
    /// Everything on two members, striped: three members or more, of which one may fail.
    Raid10,
}

impl RaidLevel {
    /// How few members it can have.
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
    /// The disks, partitions and RAIDs it is made of.
    pub members: BTreeSet<String>,
}

/// An LVM logical volume.
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct StorageVolume {
    /// The volume group, by its name in `volume_groups`.
    pub volume_group: String,
    /// Its size. Absent: what the others leave of the volume group.
    pub size: Option<ByteSize>,
}

/// A file system, or a swap space.
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct StorageFilesystem {
    /// What it is on: the name of a disk, partition, RAID or volume.
    pub device: String,
    /// Its type.
    #[field(default = FilesystemType::Ext4)]
    pub r#type: FilesystemType,
    /// Where it is mounted, like `/srv/data`. Absent: nowhere. A swap space is used without.
    pub mount: Option<String>,
    /// Mount options, separated by commas, as in `fstab`. Absent: the usual ones.
    pub options: Option<String>,
    /// Its label. Absent: none.
    pub label: Option<String>,
}

/// The type of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum FilesystemType {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// FAT32.
    Vfat,
    /// Swap space.
    Swap,
}

impl StorageConfig {
    /// The same in `custom`'s terms: what is built and nothing else.
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

    /// What a partition, RAID, volume group or volume is made of, by names.
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

    /// Everything that something stands on, itself among it, by names.
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

    /// What a file system that is mounted there stands on, itself not among it; nothing where there is none.
    #[must_use]
    pub fn below_mount(&self, mount: &str) -> BTreeSet<&str> {
        let mounted = self.filesystems.values().find(|filesystem| filesystem.mount.as_deref() == Some(mount));
        mounted.map(|filesystem| self.stands_on(&filesystem.device)).unwrap_or_default()
    }

    /// What a boot loader reads the kernel from: the file system at `/boot`, else the one at `/`. See [`Self::below_mount`].
    #[must_use]
    pub fn below_boot(&self) -> BTreeSet<&str> {
        let boot = self.below_mount("/boot");
        if boot.is_empty() { self.below_mount("/") } else { boot }
    }
}
