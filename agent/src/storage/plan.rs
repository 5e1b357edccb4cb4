//! Turns layout and disks into partition tables, calls of programs, mounts, `fstab` and `mdadm.conf`.

use std::collections::BTreeMap;
use std::ffi::CStr;

use basalt_api::kinds::{FilesystemType, RaidLevel, StorageConfig, StorageFilesystem};

use super::call::Call;
use super::space;
use super::table::{self, ESP_NUMBER};
use crate::failure::Failure;

/// Configuration of LVM without udev, which does not run here, and without the files that LVM keeps between calls.
const LVM: &str = "activation { udev_sync=0 udev_rules=0 monitoring=0 } \
    devices { obtain_device_list_from_udev=0 external_device_info_source=\"none\" } backup { backup=0 archive=0 }";

/// Inode tables and journal are initialised after the first boot.
const EXT4_LAZY: &str = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
/// Newer ext4 features are disabled, since GRUB of the image may be too old to read them.
const EXT4_FEATURES: &str = "^orphan_file,^metadata_csum_seed";

/// A disk of the machine, chosen for a disk of the layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Kernel name of the disk.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// All actions for a layout, and the files of the new system that depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Kernel modules that no device asks for.
    pub modules: Vec<&'static str>,
    /// Partition tables: a disk's kernel name, sfdisk's script, and the device files that appear.
    pub tables: Vec<(String, String, Vec<String>)>,
    /// Calls after the partitions exist, in this order.
    pub calls: Vec<Call>,
    /// Calls at the end, after all file systems were unmounted.
    pub close: Vec<Call>,
    /// Mounts, in this order.
    pub mounts: Vec<Mount>,
    /// Device files by the UUIDs of their contents.
    pub uuids: BTreeMap<String, String>,
    /// Content of `/etc/fstab`.
    pub fstab: String,
    /// Content of `/etc/mdadm/mdadm.conf`, if there are RAIDs.
    pub mdadm_conf: Option<String>,
    /// Programs that the image must have, and their packages.
    pub programs: Vec<(&'static str, &'static str)>,
    /// True if the initramfs needs the programs and configuration of this plan.
    pub initramfs: bool,
    /// Data for the boot loader.
    pub boot: Boot,
}

/// A file system that is mounted during the install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Path of the device file.
    pub source: String,
    /// Mount point below the new root, without a leading slash.
    pub at: String,
    /// Type of the file system.
    pub kind: &'static str,
    /// Mount options during the install. The new system uses other ones.
    pub data: &'static CStr,
}

/// Data for the boot loader of a system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// EFI system partitions, one on each disk that boots. The first is mounted.
    pub esps: Vec<Esp>,
    /// `root=` of the kernel command line.
    pub root: String,
    /// UUID of the file system with the kernels.
    pub uuid: String,
    /// Directory of the kernels on that file system: `/boot` or empty.
    pub prefix: &'static str,
}

/// An EFI system partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Esp {
    /// Kernel name of its disk.
    pub disk: String,
    /// Path of the device file.
    pub device: String,
}

/// A function that makes UUIDs.
type Identity<'a> = &'a mut dyn FnMut() -> Result<String, Failure>;

/// Plans a layout in `custom`'s terms. The disks are by their names in the layout. `identity` makes UUIDs.
///
/// # Errors
/// A partition or volume has no room, or no UUID can be made.
pub fn plan(
    storage: &StorageConfig,
    disks: &BTreeMap<String, Chosen>,
    hostname: &str,
    identity: Identity<'_>,
) -> Result<Plan, Failure> {
    space::check(storage, disks)?;
    let mut planner = Planner { storage, plan: Plan::default(), devices: BTreeMap::new(), identity };
    planner.partitions(disks);
    planner.raids(hostname)?;
    planner.volumes();
    let fstab = planner.filesystems()?;
    planner.boot(fstab);
    Ok(planner.plan)
}

struct Planner<'a> {
    storage: &'a StorageConfig,
    plan: Plan,
    /// Device files by the names of the layout.
    devices: BTreeMap<&'a str, String>,
    identity: Identity<'a>,
}

/// A line of `fstab`.
struct Line {
    uuid: String,
    device: String,
    mount: String,
    kind: FilesystemType,
    options: Option<String>,
}

impl<'a> Planner<'a> {
    fn device(&self, name: &str) -> String {
        self.devices.get(name).cloned().unwrap_or_default()
    }

    fn devices<'n>(&self, names: impl IntoIterator<Item = &'n String>) -> Vec<String> {
        names.into_iter().map(|name| self.device(name)).collect()
    }

    fn call(&mut self, call: Call) {
        self.plan.calls.push(call);
    }

    /// Removes signatures of former content, which may start at the same offset.
    fn wipe(&mut self, device: &str) {
        self.call(Call::new("wipefs", "--all --force --quiet").and(device));
    }

    fn partitions(&mut self, disks: &'a BTreeMap<String, Chosen>) {
        for (disk, Chosen { name, .. }) in disks {
            let parts = table::parts(self.storage, disk);
            let files: Vec<String> = parts.iter().map(|part| table::device(name, part.number)).collect();
            for (part, file) in parts.iter().zip(&files) {
                if let Some(of) = part.of {
                    self.devices.insert(of, file.clone());
                    self.wipe(file);
                } else if part.number == ESP_NUMBER {
                    self.plan.boot.esps.push(Esp { disk: name.clone(), device: file.clone() });
                }
            }
            self.plan.tables.push((name.clone(), table::script(&parts), files));
        }
    }

    fn raids(&mut self, hostname: &str) -> Result<(), Failure> {
        let mut lines = Vec::new();
        for (index, (name, raid)) in self.storage.raids.iter().enumerate() {
            let device = format!("/dev/md{index}");
            let (level, module) = match raid.level {
                RaidLevel::Raid0 => ("0", "raid0"),
                RaidLevel::Raid1 => ("1", "raid1"),
                RaidLevel::Raid5 => ("5", "raid456"),
                RaidLevel::Raid6 => ("6", "raid456"),
                RaidLevel::Raid10 => ("10", "raid10"),
            };
            self.plan.modules.extend(["md_mod", module]);
            let uuid = md_uuid(&(self.identity)()?);
            let mut call = Call::new("mdadm", "--create --run --quiet --metadata=1.2").all([
                format!("--homehost={hostname}"),
                format!("--name={name}"),
                format!("--uuid={uuid}"),
                format!("--level={level}"),
                format!("--raid-devices={}", raid.members.len()),
            ]);
            if !raid.spares.is_empty() {
                call = call.and(format!("--spare-devices={}", raid.spares.len()));
            }
            if raid.level != RaidLevel::Raid0 {
                // With a bitmap, a RAID compares only the recently written parts after a power cut.
                call = call.and("--bitmap=internal");
            }
            let members = self.devices(raid.members.iter().chain(&raid.spares));
            self.call(call.and(&device).all(members));
            self.wipe(&device);
            self.plan.close.push(Call::new("mdadm", "--stop --quiet").and(&device));
            lines.push(format!("ARRAY /dev/md/{name} metadata=1.2 UUID={uuid}\n"));
            self.devices.insert(name, device);
        }
        if !lines.is_empty() {
            let head = "HOMEHOST <system>\nMAILADDR root\n";
            self.plan.mdadm_conf = Some(head.to_owned() + &lines.concat());
            self.plan.programs.push(("mdadm", "mdadm"));
        }
        Ok(())
    }

    fn volumes(&mut self) {
        let mut close = Vec::new();
        for (name, group) in &self.storage.volume_groups {
            let members = self.devices(&group.members);
            // Volume groups on other disks must not be touched.
            let lvm = |command: &str| {
                Call::new("lvm", command).all(["--config", LVM, "--devices", &members.join(",")])
            };
            self.call(lvm("pvcreate").all(["--yes", "-ff"]).all(members.iter().cloned()));
            self.call(lvm("vgcreate").all(["--yes", name]).all(members.iter().cloned()));
            let mut volumes: Vec<_> =
                self.storage.volumes.iter().filter(|(_, volume)| volume.volume_group == *name).collect();
            volumes.sort_by_key(|(volume, it)| (it.size.is_none(), *volume));
            for (volume, it) in volumes {
                let size = it.size.map_or_else(
                    || "--extents=100%FREE".to_owned(),
                    |size| format!("--size={}b", size.bytes().next_multiple_of(512)),
                );
                self.call(lvm("lvcreate").all([
                    "--yes",
                    "--wipesignatures=y",
                    &size,
                    &format!("--name={volume}"),
                    name,
                ]));
                self.devices.insert(volume, format!("/dev/mapper/{}-{}", doubled(name), doubled(volume)));
            }
            close.push(lvm("vgchange").all(["--quiet", "--activate=n", name]));
        }
        if !close.is_empty() {
            self.plan.modules.push("dm_mod");
            self.plan.programs.push(("lvm", "lvm2"));
        }
        // Volumes are closed first, because they are on RAIDs.
        close.append(&mut self.plan.close);
        self.plan.close = close;
    }

    fn filesystems(&mut self) -> Result<Vec<Line>, Failure> {
        let mut lines = Vec::new();
        for filesystem in self.storage.filesystems.values() {
            let StorageFilesystem { device, r#type, mount, options, label } = filesystem;
            let device = self.device(device);
            let uuid = self.make(*r#type, &device, label.as_deref())?;
            let mount = match (mount, r#type) {
                (Some(mount), _) => mount.clone(),
                (None, FilesystemType::Swap) => "none".to_owned(),
                (None, _) => continue,
            };
            lines.push(Line { uuid, device, mount, kind: *r#type, options: options.clone() });
        }
        let esps = self.plan.boot.esps.clone();
        for (index, esp) in esps.iter().enumerate() {
            let uuid = self.make(FilesystemType::Vfat, &esp.device, Some("ESP"))?;
            if index == 0 {
                // With a mirror the system must also boot without the disk of this partition.
                let options = if esps.len() > 1 { "umask=0077,nofail" } else { "umask=0077" };
                let (device, mount) = (esp.device.clone(), "/boot/efi".to_owned());
                let options = Some(options.to_owned());
                lines.push(Line { uuid, device, mount, kind: FilesystemType::Vfat, options });
            }
        }
        lines.sort_by(|one, other| one.mount.cmp(&other.mount));
        Ok(lines)
    }

    /// Makes a file system. Returns its UUID in the form that Linux shows.
    fn make(&mut self, kind: FilesystemType, device: &str, label: Option<&str>) -> Result<String, Failure> {
        let uuid = (self.identity)()?;
        let labelled = |call: Call, option: &str| match label {
            Some(label) => call.all([option, label]),
            None => call,
        };
        let (call, uuid) = match kind {
            FilesystemType::Ext4 => {
                let call = labelled(Call::new("mkfs.ext4", "-q -F"), "-L");
                (call.all(["-U", &uuid, "-E", EXT4_LAZY, "-O", EXT4_FEATURES]), uuid)
            }
            FilesystemType::Xfs => {
                let call = labelled(Call::new("mkfs.xfs", "-q -f -K"), "-L");
                (call.all(["-m", &format!("uuid={uuid}")]), uuid)
            }
            FilesystemType::Swap => {
                let call = labelled(Call::new("mkswap", "--force"), "--label");
                (call.all(["--uuid", &uuid]), uuid)
            }
            FilesystemType::Vfat => {
                let digits: String = uuid.chars().filter(char::is_ascii_hexdigit).take(8).collect();
                let volume = digits.to_ascii_uppercase();
                let call = labelled(Call::new("mkfs.vfat", "-F 32"), "-n");
                let (high, low) = volume.split_at_checked(4).unwrap_or((&volume, ""));
                (call.all(["-i", &volume]), format!("{high}-{low}"))
            }
        };
        self.call(call.and(device));
        self.plan.uuids.insert(uuid.clone(), device.to_owned());
        Ok(uuid)
    }

    fn boot(&mut self, lines: Vec<Line>) {
        let uuid_of =
            |mount: &str| lines.iter().find(|line| line.mount == mount).map(|line| line.uuid.clone());
        let root = uuid_of("/").unwrap_or_default();
        let device = lines.iter().find(|line| line.mount == "/").map(|line| line.device.clone());
        let boot = &mut self.plan.boot;
        // The same path as in GRUB's own menu.
        boot.root = match device.filter(|device| device.starts_with("/dev/mapper/")) {
            Some(device) => device,
            None => format!("UUID={root}"),
        };
        (boot.uuid, boot.prefix) = match uuid_of("/boot") {
            Some(uuid) => (uuid, ""),
            None => (root, "/boot"),
        };
        let early = ["/", "/usr"].map(|mount| self.storage.below_mount(mount));
        let built = |name: &&str| {
            self.storage.raids.contains_key(*name) || self.storage.volume_groups.contains_key(*name)
        };
        self.plan.initramfs = early.iter().flatten().any(built);
        for line in &lines {
            self.plan.fstab.push_str(&line.fstab());
            self.plan.mounts.extend(line.while_installing());
        }
    }
}

impl Line {
    fn fstab(&self) -> String {
        let Self { uuid, mount, kind, options, .. } = self;
        let usual = match kind {
            FilesystemType::Ext4 if mount == "/" => "errors=remount-ro",
            FilesystemType::Swap => "sw",
            FilesystemType::Ext4 | FilesystemType::Xfs | FilesystemType::Vfat => "defaults",
        };
        let pass = match kind {
            FilesystemType::Xfs | FilesystemType::Swap => 0,
            FilesystemType::Ext4 | FilesystemType::Vfat if mount == "/" || mount == "/boot/efi" => 1,
            FilesystemType::Ext4 | FilesystemType::Vfat => 2,
        };
        format!("UUID={uuid} {mount} {kind} {} 0 {pass}\n", options.as_deref().unwrap_or(usual))
    }

    fn while_installing(&self) -> Option<Mount> {
        let (kind, data) = match self.kind {
            // A crash during the install makes it worthless anyway, so the order of writes does not matter.
            FilesystemType::Ext4 => ("ext4", c"data=writeback,nobarrier,noauto_da_alloc"),
            FilesystemType::Xfs => ("xfs", c""),
            FilesystemType::Vfat => ("vfat", c"umask=0077"),
            FilesystemType::Swap => return None,
        };
        let at = self.mount.trim_start_matches('/').to_owned();
        Some(Mount { source: self.device.clone(), at, kind, data })
    }
}

/// A UUID in md's form: four groups of eight digits.
fn md_uuid(uuid: &str) -> String {
    let digits: Vec<char> = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    digits.chunks(8).map(|group| group.iter().collect::<String>()).collect::<Vec<_>>().join(":")
}

/// A name in the device mapper's form for names of volumes.
fn doubled(name: &str) -> String {
    name.replace('-', "--")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const GIB: u64 = 1 << 30;

    fn planned(storage: Value, disks: &[(&str, &str)]) -> Result<Plan, Failure> {
        let storage: StorageConfig = serde_json::from_value(storage).unwrap();
        let disks = disks
            .iter()
            .map(|(name, disk)| ((*name).to_owned(), Chosen { name: (*disk).to_owned(), bytes: 20 * GIB }));
        let mut count = 0;
        let mut identity = || {
            count += 1;
            Ok(format!("{count:08}-0000-4000-8000-{count:012}"))
        };
        plan(&storage.expanded(), &disks.collect(), "web1", &mut identity)
    }

    /// A plan as text, for comparison.
    fn text(storage: Value, disks: &[(&str, &str)]) -> String {
        let plan = planned(storage, disks).unwrap();
        let mut text = String::new();
        for (disk, script, files) in &plan.tables {
            text += &format!("-- {disk}: {}\n{script}", files.join(" "));
        }
        let calls = |calls: &[Call]| calls.iter().map(|call| format!("{call}\n")).collect::<String>();
        text += &format!("-- calls\n{}", calls(&plan.calls).replace(LVM, "LVM"));
        text += "-- mounts\n";
        for Mount { source, at, kind, .. } in &plan.mounts {
            text += &format!("{source} /{at} {kind}\n");
        }
        text += &format!("-- close\n{}", calls(&plan.close).replace(LVM, "LVM"));
        text += &format!("-- fstab\n{}", plan.fstab);
        text += &format!("-- mdadm.conf\n{}", plan.mdadm_conf.as_deref().unwrap_or("none\n"));
        let Boot { esps, root, uuid, prefix } = &plan.boot;
        let esps: Vec<_> = esps.iter().map(|esp| format!("{}: {}", esp.disk, esp.device)).collect();
        text += &format!("-- boot\n{} root={root} kernels on {uuid} in {prefix:?}\n", esps.join(", "));
        text += &format!(
            "modules {:?}, programs {:?}, initramfs {}",
            plan.modules, plan.programs, plan.initramfs
        );
        text
    }

    #[test]
    fn flat_is_a_partition_on_one_disk() {
        insta::assert_snapshot!(text(json!({}), &[("disk", "vda")]));
    }

    #[test]
    fn lvm_is_a_volume_on_one_disk() {
        insta::assert_snapshot!(text(json!({"layout": "lvm", "root_size": "8GiB"}), &[("disk", "nvme0n1")]));
    }

    #[test]
    fn raid1_is_two_disks_that_each_boot() {
        insta::assert_snapshot!(text(json!({"layout": "raid1"}), &[("disk1", "sda"), ("disk2", "sdb")]));
    }

    #[test]
    fn each_level_of_a_raid_is_made_of_its_members() {
        for (level, members) in [("raid0", 2), ("raid1", 2), ("raid5", 3), ("raid6", 4), ("raid10", 4)] {
            let names = ["b", "c", "d", "e"];
            let disks = names.map(|name| (name.to_owned(), json!({})));
            let mut disks = serde_json::Map::from_iter(disks);
            disks.insert("a".to_owned(), json!({}));
            let storage = json!({"layout": "custom", "disks": disks, "partitions": {"root": {"disk": "a"}},
                "raids": {"bulk": {"level": level, "members": names[..members]}},
                "filesystems": {"root": {"device": "root", "mount": "/"}, "srv": {"device": "bulk", "mount": "/srv"}}});
            let said = text(storage, &[("a", "sda"), ("b", "sdb"), ("c", "sdc"), ("d", "sdd"), ("e", "sde")]);
            let wanted = format!("--level={} --raid-devices={members} ", &level["raid".len()..]);
            assert!(said.contains(&wanted), "{wanted}\n{said}");
        }
    }

    #[test]
    fn custom_is_everything() {
        let storage = json!({"layout": "custom",
            "disks": {"a": {}, "b": {}, "c": {}, "d": {}},
            "partitions": {"boot": {"disk": "a", "size": "1GiB"}, "a-data": {"disk": "a"},
                "swap": {"disk": "b", "size": "2GiB"}, "b-data": {"disk": "b"}},
            "raids": {"bulk": {"level": "raid5", "members": ["a-data", "b-data", "c"], "spares": ["d"]}},
            "volume_groups": {"vg-1": {"members": ["bulk"]}},
            "volumes": {"root": {"volume_group": "vg-1", "size": "4GiB"}, "srv": {"volume_group": "vg-1"},
                "scratch": {"volume_group": "vg-1", "size": "1GiB"}},
            "filesystems": {"boot": {"device": "boot", "mount": "/boot"}, "root": {"device": "root", "mount": "/", "label": "root"},
                "srv": {"device": "srv", "type": "xfs", "mount": "/srv/data", "options": "noatime,nofail", "label": "srv"},
                "scratch": {"device": "scratch", "type": "vfat"}, "swap": {"device": "swap", "type": "swap"}}});
        insta::assert_snapshot!(text(storage, &[("a", "sda"), ("b", "sdb"), ("c", "sdc"), ("d", "sdd")]));
    }

    #[test]
    fn what_has_no_room_is_refused_before_anything_is_written() {
        let refused =
            |storage: Value| planned(storage, &[("disk", "vda"), ("disk2", "vdb")]).unwrap_err().message;
        assert!(refused(json!({"layout": "flat", "root_size": "20GiB"})).starts_with(
            r#"disk vda ("disk") has 21474836480 bytes, and what is to be built on it needs 22015901696"#
        ));
        assert!(
            refused(json!({"layout": "lvm", "root_size": "20GiB"}))
                .starts_with(r#"volume group "system" has "#)
        );
    }
}
