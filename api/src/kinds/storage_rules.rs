//! The rules for disks, and for the storage built on them, that need no look at a machine.

use super::storage::{
    FilesystemType, RaidLevel, StorageConfig, StorageFilesystem, StorageLayout, StorageRaid,
};
use crate::disk::{DeclaredName, DiskName, DiskNameError};
use crate::pointer::child;
use crate::validate::Rule;
use crate::values::ByteSize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// All names in a storage, with the field of [`StorageConfig`] that declares each.
type Names<'a> = BTreeMap<&'a str, &'static str>;

/// Fields whose entries can be members of a RAID.
const OF_RAIDS: &[&str] = &["disks", "partitions"];
/// Fields whose entries can be members of a volume group.
const OF_GROUPS: &[&str] = &["disks", "partitions", "raids"];
/// Fields whose entries can hold a file system.
const OF_FILESYSTEMS: &[&str] = &["disks", "partitions", "raids", "volumes"];

/// Most bytes of a name: the limit of Linux md.
const LONGEST_NAME: usize = 32;
/// Names that LVM reserves: beginnings of names, and texts within names.
const RESERVED: (&[&str], &[&str]) = (
    &["snapshot", "pvmove"],
    &[
        "_cdata", "_cmeta", "_corig", "_cpool", "_cvol", "_iorig", "_mimage", "_mlog", "_pmspare", "_rimage",
        "_rmeta", "_tdata", "_tmeta", "_vdata", "_vorigin", "_wcorig",
    ],
);
/// Mount points that the system or Basalt uses itself.
const TAKEN_PLACES: [&str; 5] = ["/boot/efi", "/dev", "/proc", "/run", "/sys"];

impl FilesystemType {
    /// The least size, and most characters of the label.
    const fn limits(self) -> (ByteSize, usize) {
        const MIB: u64 = 1 << 20;
        match self {
            Self::Ext4 => (ByteSize::new(8 * MIB), 16),
            Self::Xfs => (ByteSize::new(300 * MIB), 12),
            Self::Vfat => (ByteSize::new(64 * MIB), 11),
            Self::Swap => (ByteSize::new(MIB), 15),
        }
    }
}

pub(super) fn storage_rules(storage: &StorageConfig, rule: &mut Rule<'_>) {
    if !fits_layout(storage, rule) {
        return;
    }
    names_of_disks(storage, rule);
    let storage = storage.expanded();
    let names = names(&storage, rule);
    for (name, partition) in &storage.partitions {
        let at = child(&child("/storage/partitions", name), "disk");
        is_one_of(("partition", name), &partition.disk, (&names, &["disks"]), &at, rule);
    }
    for (name, raid) in &storage.raids {
        members_of_raid(&storage, name, raid, &names, rule);
    }
    for (name, group) in &storage.volume_groups {
        let at = child(&child("/storage/volume_groups", name), "members");
        if group.members.is_empty() {
            rule.missing(&at, format!("volume group {name:?} is made of nothing"), "what it is made of");
        }
        for member in &group.members {
            is_one_of(("volume group", name), member, (&names, OF_GROUPS), &at, rule);
        }
    }
    for (name, volume) in &storage.volumes {
        let at = child(&child("/storage/volumes", name), "volume_group");
        is_one_of(("volume", name), &volume.volume_group, (&names, &["volume_groups"]), &at, rule);
    }
    for (name, filesystem) in &storage.filesystems {
        let at = child(&child("/storage/filesystems", name), "device");
        is_one_of(("file system", name), &filesystem.device, (&names, OF_FILESYSTEMS), &at, rule);
        of_filesystem(&storage, name, filesystem, rule);
    }
    each_is_used_once(&storage, rule);
    sizes(&storage, rule);
    mounts(&storage, rule);
    boots(&storage, rule);
}

/// True if the layout uses every declared field, and has the fields that it needs. Otherwise reports the errors.
fn fits_layout(storage: &StorageConfig, rule: &mut Rule<'_>) -> bool {
    let layout = storage.layout;
    let one_disk = matches!(layout, StorageLayout::Flat | StorageLayout::Lvm);
    let custom = layout == StorageLayout::Custom;
    let given = [
        ("disk", storage.disk.is_some(), one_disk),
        ("root_size", storage.root_size.is_some(), one_disk),
        ("disks", !storage.disks.is_empty(), !one_disk),
        ("partitions", !storage.partitions.is_empty(), custom),
        ("raids", !storage.raids.is_empty(), custom),
        ("volume_groups", !storage.volume_groups.is_empty(), custom),
        ("volumes", !storage.volumes.is_empty(), custom),
        ("filesystems", !storage.filesystems.is_empty(), custom),
    ];
    let mut fits = true;
    for (field, _, _) in given.into_iter().filter(|(_, given, has_use)| *given && !has_use) {
        fits = false;
        let instead = match (field, layout) {
            ("disk", StorageLayout::Raid1) => {
                "leave it out, and name the disks in disks, or say layout = \"flat\""
            }
            ("disk" | "root_size", _) => "leave it out, or say layout = \"flat\" or \"lvm\"",
            _ => "leave it out, or say layout = \"custom\" and write all of them out",
        };
        rule.broken(child("/storage", field), format!("layout \"{layout}\" has no use for {field}"), instead);
    }
    if layout == StorageLayout::Raid1 && storage.disks.len() == 1 {
        fits = false;
        rule.broken(
            "/storage/disks",
            "layout \"raid1\" mirrors disks, and has one",
            "two disks or more, or none named",
        );
    }
    if custom && storage.filesystems.is_empty() {
        fits = false;
        rule.missing(
            "/storage/filesystems",
            "layout \"custom\" is what the other fields say, and they mount nothing at /",
            "disks, and a file system on them with mount = \"/\"",
        );
    }
    fits
}

/// Each `id` of a disk is the name of a disk, and no two are the same.
fn names_of_disks(storage: &StorageConfig, rule: &mut Rule<'_>) {
    let mut owners: BTreeMap<Cow<'_, str>, &str> = BTreeMap::new();
    for DeclaredName { pointer, entry, text } in storage.declared_names() {
        let Some(name) = DiskName::read(text) else {
            let error = DiskNameError::Empty(text.to_owned());
            rule.broken(pointer, error.to_string(), error.hint());
            continue;
        };
        if let Some(other) = owners.insert(name.plain(), entry) {
            rule.broken(
                pointer,
                format!("{text:?} is the name of disk {other:?} as well"),
                "each disk by a name of its own, or without id: then each gets another disk",
            );
        }
    }
}

fn names<'a>(storage: &'a StorageConfig, rule: &mut Rule<'_>) -> Names<'a> {
    fn keys<V>(map: &BTreeMap<String, V>) -> Vec<&str> {
        map.keys().map(String::as_str).collect()
    }
    let sorts = [
        ("disks", keys(&storage.disks)),
        ("partitions", keys(&storage.partitions)),
        ("raids", keys(&storage.raids)),
        ("volume_groups", keys(&storage.volume_groups)),
        ("volumes", keys(&storage.volumes)),
    ];
    let mut names = Names::new();
    for (sort, name) in sorts.iter().flat_map(|(sort, names)| names.iter().map(move |name| (*sort, *name))) {
        let at = child(&child("/storage", sort), name);
        if let Some(other) = names.insert(name, sort) {
            rule.broken(&at, format!("{name:?} is the name of one of {other} as well"), "a name of its own");
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
        if !begins || name.len() > LONGEST_NAME || !name.chars().all(plain) {
            rule.broken(
                &at,
                format!("{name:?} is no name for storage"),
                format!("a letter, then letters, digits, - and _, up to {LONGEST_NAME} characters"),
            );
        }
        let (beginnings, parts) = RESERVED;
        let reserved = beginnings.iter().any(|beginning| name.starts_with(beginning))
            || parts.iter().any(|part| name.contains(part));
        if sort == "volumes" && reserved {
            rule.broken(&at, format!("LVM keeps names like {name:?} for itself"), "another name");
        }
    }
    names
}

/// True if the name `wanted` is declared in one of the fields `sorts`. Otherwise reports the error at `at`.
fn is_one_of(
    (word, name): (&str, &str),
    wanted: &str,
    (names, sorts): (&Names<'_>, &[&str]),
    at: &str,
    rule: &mut Rule<'_>,
) -> bool {
    let found = names.get(wanted);
    if found.is_some_and(|sort| sorts.contains(sort)) {
        return true;
    }
    let can: Vec<_> = names.iter().filter(|(_, sort)| sorts.contains(sort)).map(|(name, _)| *name).collect();
    let can = if can.is_empty() { "none is declared".to_owned() } else { can.join(", ") };
    let message = match found {
        Some(sort) => format!("{word} {name:?} names {wanted:?}, which is one of {sort}"),
        None => format!("{word} {name:?} names {wanted:?}, and nothing has that name"),
    };
    rule.broken(at, message, format!("one of {}: {can}", sorts.join(", ")));
    false
}

fn members_of_raid(
    storage: &StorageConfig,
    name: &str,
    raid: &StorageRaid,
    names: &Names<'_>,
    rule: &mut Rule<'_>,
) {
    let at = child("/storage/raids", name);
    let (level, has, least) = (raid.level, raid.members.len(), raid.level.least_members());
    if has < least {
        rule.broken(
            child(&at, "members"),
            format!("RAID {name:?} is of level \"{level}\" and has {has} members"),
            format!("{least} members or more"),
        );
    }
    if level == RaidLevel::Raid0 && !raid.spares.is_empty() {
        rule.broken(
            child(&at, "spares"),
            format!("RAID {name:?} is of level \"raid0\": no spare can take the place of a member"),
            "leave the spares out, or take another level",
        );
    }
    let mut on: BTreeMap<&str, &str> = BTreeMap::new();
    for (field, member) in
        raid.members.iter().map(|m| ("members", m)).chain(raid.spares.iter().map(|m| ("spares", m)))
    {
        let at = child(&at, field);
        if !is_one_of(("RAID", name), member, (names, OF_RAIDS), &at, rule) {
            continue;
        }
        let disk = storage.partitions.get(member).map_or(member, |partition| &partition.disk);
        if let Some(other) = on.insert(disk, member).filter(|other| other != member) {
            rule.broken(
                &at,
                format!("RAID {name:?} has {other:?} and {member:?}, which are both on disk {disk:?}"),
                "each on a disk of its own",
            );
        }
    }
}

fn of_filesystem(storage: &StorageConfig, name: &str, filesystem: &StorageFilesystem, rule: &mut Rule<'_>) {
    let at = child("/storage/filesystems", name);
    let StorageFilesystem { device, r#type, mount, options, label } = filesystem;
    let (least, longest) = r#type.limits();
    let partition = storage.partitions.get(device).and_then(|partition| partition.size);
    let size = partition.or_else(|| storage.volumes.get(device).and_then(|volume| volume.size));
    if let Some(size) = size.filter(|size| *size < least) {
        rule.broken(
            child(&at, "device"),
            format!(
                "{device:?} has {size}, and a file system of type \"{type}\" needs {least}",
                r#type = r#type
            ),
            format!("{least} or more"),
        );
    }
    let is_plain =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() && !"\"'\\#".contains(c));
    if let Some(label) = label.as_ref().filter(|label| !is_plain(label) || label.len() > longest) {
        rule.broken(
            child(&at, "label"),
            format!("{label:?} is no label for a file system of type \"{type}\"", r#type = r#type),
            format!("up to {longest} letters, digits and signs without spaces, like data"),
        );
    }
    if let Some(options) = options.as_ref().filter(|options| !is_plain(options)) {
        rule.broken(
            child(&at, "options"),
            format!("{options:?} are no mount options"),
            "separated by commas, without spaces, like noatime,nofail",
        );
    }
    let Some(mount) = mount else {
        if options.is_some() && *r#type != FilesystemType::Swap {
            rule.broken(
                child(&at, "options"),
                format!("file system {name:?} has mount options, and is mounted nowhere"),
                "leave them out, or say where it is mounted",
            );
        }
        return;
    };
    let at = child(&at, "mount");
    if *r#type == FilesystemType::Swap {
        rule.broken(at, format!("swap space {name:?} is not mounted at {mount:?}"), "leave mount out");
        return;
    }
    let clean = |part: &str| is_plain(part) && part != "." && part != "..";
    let is_path = mount == "/" || mount.strip_prefix('/').is_some_and(|path| path.split('/').all(clean));
    let taken = TAKEN_PLACES.iter().find(|taken| {
        mount.strip_prefix(**taken).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    if !is_path {
        rule.broken(at, format!("{mount:?} is no place to mount at"), "a path from the root, like /srv/data");
    } else if let Some(taken) = taken {
        rule.broken(at, format!("{mount:?} is within {taken}, which is not yours to mount"), "another place");
    } else if mount == "/" && *r#type == FilesystemType::Vfat {
        rule.broken(
            child(&child("/storage/filesystems", name), "type"),
            "no system runs on a root file system of type \"vfat\"",
            "\"ext4\" or \"xfs\"",
        );
    }
}

/// Each disk, partition, RAID and volume is used once. Each declared disk is used.
fn each_is_used_once(storage: &StorageConfig, rule: &mut Rule<'_>) {
    let mut used: BTreeMap<&str, String> = BTreeMap::new();
    let mut note = |what: &'_ str, by: String, at: String, rule: &mut Rule<'_>| match used.get(what) {
        Some(other) => rule.broken(
            at,
            format!("{what:?} is used by {other} and by {by}"),
            "each disk, partition, RAID and volume for one thing",
        ),
        None => {
            let what = storage_name(storage, what);
            used.extend(what.map(|what| (what, by)));
        }
    };
    for (name, raid) in &storage.raids {
        for (field, members) in [("members", &raid.members), ("spares", &raid.spares)] {
            let at = child(&child("/storage/raids", name), field);
            members.iter().for_each(|member| note(member, format!("RAID {name:?}"), at.clone(), rule));
        }
    }
    for (name, group) in &storage.volume_groups {
        let at = child(&child("/storage/volume_groups", name), "members");
        group
            .members
            .iter()
            .for_each(|member| note(member, format!("volume group {name:?}"), at.clone(), rule));
    }
    for (name, filesystem) in &storage.filesystems {
        let at = child(&child("/storage/filesystems", name), "device");
        note(&filesystem.device, format!("file system {name:?}"), at, rule);
    }
    for disk in storage.disks.keys() {
        let at = child("/storage/disks", disk);
        let partition = storage.partitions.iter().find(|(_, partition)| partition.disk == *disk);
        match (partition, used.get(disk.as_str())) {
            (Some((partition, _)), Some(by)) => rule.broken(
                at,
                format!("disk {disk:?} has partition {partition:?}, and is used whole by {by}"),
                "a partition of it for that, or no partitions",
            ),
            (None, None) => rule.broken(
                at,
                format!("nothing is built on disk {disk:?}"),
                "leave out what is to be left alone: all disks that are declared are overwritten",
            ),
            _ => {}
        }
    }
}

/// The same name, with the lifetime of `storage`.
fn storage_name<'a>(storage: &'a StorageConfig, name: &str) -> Option<&'a str> {
    let disk = storage.disks.get_key_value(name).map(|(name, _)| name.as_str());
    disk.or_else(|| storage.partitions.get_key_value(name).map(|(name, _)| name.as_str()))
        .or_else(|| storage.raids.get_key_value(name).map(|(name, _)| name.as_str()))
        .or_else(|| storage.volumes.get_key_value(name).map(|(name, _)| name.as_str()))
}

/// Without a size, a partition or volume takes all free space: at most one of a disk or volume group may do so.
fn sizes(storage: &StorageConfig, rule: &mut Rule<'_>) {
    let partitions = storage.partitions.iter().map(|(name, it)| ("partitions", name, &it.disk, it.size));
    let volumes = storage.volumes.iter().map(|(name, it)| ("volumes", name, &it.volume_group, it.size));
    let mut rests: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for (sort, name, of, size) in partitions.chain(volumes) {
        let at = child(&child(&child("/storage", sort), name), "size");
        match size {
            Some(size) if size.bytes() < 1 << 20 => {
                rule.broken(at, format!("{name:?} has {size}, less than can be told apart"), "1MiB or more");
            }
            Some(_) => {}
            None => {
                if let Some(other) = rests.insert((sort, of), name) {
                    rule.missing(
                        at,
                        format!("{other:?} and {name:?} both take what is left of {of:?}"),
                        "the size of one of them",
                    );
                }
            }
        }
    }
}

/// Each mount point has one file system. The root has one.
fn mounts(storage: &StorageConfig, rule: &mut Rule<'_>) {
    let mut places: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, filesystem) in &storage.filesystems {
        let Some(mount) = &filesystem.mount else { continue };
        if let Some(other) = places.insert(mount, name) {
            let at = child(&child("/storage/filesystems", name), "mount");
            rule.broken(
                at,
                format!("{other:?} and {name:?} are both mounted at {mount}"),
                "each at a place of its own",
            );
        }
    }
    if !places.contains_key("/") {
        rule.missing("/storage/filesystems", "no file system is mounted at /", "one with mount = \"/\"");
    }
}

/// The boot loader can read the kernel. GRUB is on each disk of a mirror, and reads RAIDs of level `raid1` only.
fn boots(storage: &StorageConfig, rule: &mut Rule<'_>) {
    let below: BTreeSet<&str> = storage.below_boot();
    for (name, raid) in storage.raids.iter().filter(|(name, _)| below.contains(name.as_str())) {
        if raid.level != RaidLevel::Raid1 {
            rule.broken(
                child(&child("/storage/raids", name), "level"),
                format!("the kernel is read from RAID {name:?} of level \"{}\" before anything runs that knows it", raid.level),
                "level \"raid1\", or a file system of its own for /boot that is not on it",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Kind;
    use serde_json::{Value, json};

    /// Errors of a storage: pointers below `/storage`, with messages.
    fn wrong(storage: &Value) -> Vec<String> {
        let spec = json!({"image": "debian", "machine": "m", "storage": storage});
        let errors = crate::validate(Kind::find("Deployment").unwrap(), &spec);
        errors.iter().map(|e| format!("{}: {}", e.pointer.replacen("/storage", "", 1), e.message)).collect()
    }

    /// Two disks with a mirrored root and a volume group, changed by a merge patch.
    fn custom(patch: Value) -> Value {
        let mut storage = json!({"layout": "custom",
            "disks": {"a": {"id": "S1"}, "b": {"id": "S2"}},
            "partitions": {"a1": {"disk": "a", "size": "8GiB"}, "b1": {"disk": "b", "size": "8GiB"},
                "a2": {"disk": "a"}, "b2": {"disk": "b"}},
            "raids": {"md-root": {"level": "raid1", "members": ["a1", "b1"]}},
            "volume_groups": {"data": {"members": ["a2", "b2"]}},
            "volumes": {"swap": {"volume_group": "data", "size": "1GiB"}, "srv": {"volume_group": "data"}},
            "filesystems": {"root": {"device": "md-root", "mount": "/"}, "swap": {"device": "swap", "type": "swap"},
                "srv": {"device": "srv", "type": "xfs", "mount": "/srv", "options": "noatime", "label": "srv"}}});
        merge(&mut storage, patch);
        storage
    }

    fn merge(into: &mut Value, patch: Value) {
        match (into, patch) {
            (Value::Object(into), Value::Object(patch)) => {
                for (key, value) in patch {
                    if value.is_null() {
                        into.remove(&key);
                    } else {
                        merge(into.entry(key).or_insert(Value::Null), value);
                    }
                }
            }
            (into, patch) => *into = patch,
        }
    }

    #[track_caller]
    fn refused(patch: Value, expected: &[&str]) {
        assert_eq!(wrong(&custom(patch)), expected);
    }

    #[test]
    fn what_fits_together_is_taken() {
        refused(json!({}), &[]);
        for storage in [
            json!({}),
            json!({"disk": "sda", "root_size": "8GiB"}),
            json!({"layout": "lvm", "disk": "sda", "root_size": "8GiB"}),
            json!({"layout": "raid1"}),
            json!({"layout": "raid1", "disks": {"left": {"id": "S1"}, "right": {"min_size": "1TB"}}}),
        ] {
            assert_eq!(wrong(&storage), [""; 0], "{storage}");
        }
    }

    #[test]
    fn a_layout_has_what_it_has_a_use_for() {
        assert_eq!(
            wrong(&json!({"disks": {"a": {}}, "raids": {"r": {"level": "raid1", "members": ["a"]}}})),
            [
                r#"/disks: layout "flat" has no use for disks"#,
                r#"/raids: layout "flat" has no use for raids"#
            ]
        );
        assert_eq!(
            wrong(&json!({"layout": "raid1", "disk": "sda", "root_size": "8GiB"})),
            [
                r#"/disk: layout "raid1" has no use for disk"#,
                r#"/root_size: layout "raid1" has no use for root_size"#
            ]
        );
        assert_eq!(
            wrong(&json!({"layout": "raid1", "disks": {"a": {}}})),
            [r#"/disks: layout "raid1" mirrors disks, and has one"#]
        );
        assert_eq!(
            wrong(&json!({"layout": "custom", "disks": {"a": {}}})),
            [r#"/filesystems: layout "custom" is what the other fields say, and they mount nothing at /"#]
        );
    }

    #[test]
    fn what_is_named_is_there_and_of_the_right_sort() {
        refused(
            json!({"raids": {"md-root": {"members": ["a1", "c1"]}}}),
            &[r#"/raids/md-root/members: RAID "md-root" names "c1", and nothing has that name"#],
        );
        refused(
            json!({"volumes": {"srv": {"volume_group": "md-root"}}}),
            &[r#"/volumes/srv/volume_group: volume "srv" names "md-root", which is one of raids"#],
        );
        refused(
            json!({"filesystems": {"srv": {"device": "data"}}}),
            &[r#"/filesystems/srv/device: file system "srv" names "data", which is one of volume_groups"#],
        );
        refused(
            json!({"raids": {"outer": {"level": "raid1", "members": ["md-root", "inner"]}}}),
            &[
                r#"/raids/outer/members: RAID "outer" names "inner", and nothing has that name"#,
                r#"/raids/outer/members: RAID "outer" names "md-root", which is one of raids"#,
                r#"/filesystems/root/device: "md-root" is used by RAID "outer" and by file system "root""#,
            ],
        );
    }

    #[test]
    fn a_disk_is_named_by_a_text_of_its_own() {
        for name in ["", "  ", "/dev/disk/by-id/"] {
            let error = format!("{name:?} names no disk");
            assert_eq!(wrong(&json!({"disk": name})), [format!("/disk: {error}")]);
            refused(json!({"disks": {"a": {"id": name}}}), &[&format!("/disks/a/id: {error}")]);
        }
        refused(
            json!({"disks": {"b": {"id": "S1"}}}),
            &[r#"/disks/b/id: "S1" is the name of disk "a" as well"#],
        );
        refused(
            json!({"disks": {"a": {"id": "sda"}, "b": {"id": "/dev/sda"}}}),
            &[r#"/disks/b/id: "/dev/sda" is the name of disk "a" as well"#],
        );
    }

    #[test]
    fn everything_carries_one_thing() {
        refused(
            json!({"volume_groups": {"data": {"members": ["a1", "a2", "b2"]}}}),
            &[r#"/volume_groups/data/members: "a1" is used by RAID "md-root" and by volume group "data""#],
        );
        refused(
            json!({"filesystems": {"more": {"device": "a", "mount": "/more"}}}),
            &[r#"/disks/a: disk "a" has partition "a1", and is used whole by file system "more""#],
        );
        refused(json!({"disks": {"c": {}}}), &[r#"/disks/c: nothing is built on disk "c""#]);
    }

    #[test]
    fn a_raid_has_the_members_that_its_level_needs_each_on_its_own_disk() {
        refused(
            json!({"raids": {"md-root": {"members": ["a1"], "spares": ["b1"]}}}),
            &[r#"/raids/md-root/members: RAID "md-root" is of level "raid1" and has 1 members"#],
        );
        refused(
            json!({"volume_groups": {"data": {"members": ["b2"]}},
                "raids": {"md-root": {"members": ["a1", "a2"]}}}),
            &[r#"/raids/md-root/members: RAID "md-root" has "a1" and "a2", which are both on disk "a""#],
        );
        refused(
            json!({"volume_groups": {"data": {"members": ["fast"]}},
                "disks": {"c": {}}, "raids": {"fast": {"level": "raid0", "members": ["a2", "b2"], "spares": ["c"]}}}),
            &[
                r#"/raids/fast/spares: RAID "fast" is of level "raid0": no spare can take the place of a member"#,
            ],
        );
    }

    #[test]
    fn a_kernel_is_read_from_what_grub_can_read() {
        let three = json!({"disks": {"c": {}}, "raids": {"md-root": {"level": "raid5", "members": ["a1", "b1", "c"]}}});
        refused(
            three.clone(),
            &[
                r#"/raids/md-root/level: the kernel is read from RAID "md-root" of level "raid5" before anything runs that knows it"#,
            ],
        );
        let mut with_boot = three;
        merge(
            &mut with_boot,
            json!({"partitions": {"boot": {"disk": "a", "size": "1GiB"}},
                "filesystems": {"boot": {"device": "boot", "mount": "/boot"}}}),
        );
        refused(with_boot, &[]);
    }

    #[test]
    fn one_part_of_a_disk_takes_the_rest_and_parts_have_room_for_what_is_on_them() {
        refused(
            json!({"partitions": {"a1": {"size": null}}}),
            &[r#"/partitions/a2/size: "a1" and "a2" both take what is left of "a""#],
        );
        refused(
            json!({"volumes": {"swap": {"size": "1KiB"}, "srv": {"size": "200MiB"}}}),
            &[
                r#"/filesystems/srv/device: "srv" has 200MiB, and a file system of type "xfs" needs 300MiB"#,
                r#"/filesystems/swap/device: "swap" has 1KiB, and a file system of type "swap" needs 1MiB"#,
                r#"/volumes/swap/size: "swap" has 1KiB, less than can be told apart"#,
            ],
        );
    }

    #[test]
    fn there_is_one_file_system_at_each_place_and_one_at_the_root() {
        refused(
            json!({"filesystems": {"srv": {"mount": "/"}}}),
            &[r#"/filesystems/srv/mount: "root" and "srv" are both mounted at /"#],
        );
        refused(
            json!({"filesystems": {"root": {"mount": null}}}),
            &["/filesystems: no file system is mounted at /"],
        );
        for place in ["srv", "/srv/", "/a//b", "/a/../b", "/a b", ""] {
            refused(
                json!({"filesystems": {"srv": {"mount": place}}}),
                &[&format!("/filesystems/srv/mount: {place:?} is no place to mount at")],
            );
        }
        refused(
            json!({"filesystems": {"srv": {"mount": "/boot/efi"}}}),
            &[r#"/filesystems/srv/mount: "/boot/efi" is within /boot/efi, which is not yours to mount"#],
        );
        refused(
            json!({"filesystems": {"swap": {"mount": "/swap"}}}),
            &[r#"/filesystems/swap/mount: swap space "swap" is not mounted at "/swap""#],
        );
        refused(
            json!({"filesystems": {"root": {"type": "vfat"}}}),
            &[r#"/filesystems/root/type: no system runs on a root file system of type "vfat""#],
        );
    }

    #[test]
    fn names_labels_and_options_are_such_that_linux_takes_them() {
        refused(
            json!({"disks": {"a": null, "a2": {"id": "S1"}}, "partitions": {"a1": {"disk": "b"}, "a2": {"disk": "b"}}}),
            &[
                r#"/partitions/a2: "a2" is the name of one of disks as well"#,
                r#"/raids/md-root/members: RAID "md-root" has "a1" and "b1", which are both on disk "b""#,
                r#"/partitions/b2/size: "a2" and "b2" both take what is left of "b""#,
            ],
        );
        refused(
            json!({"volumes": {"no name": {"volume_group": "data", "size": "1GiB"}, "x_tmeta": {"volume_group": "data", "size": "1GiB"}}}),
            &[
                r#"/volumes/no name: "no name" is no name for storage"#,
                r#"/volumes/x_tmeta: LVM keeps names like "x_tmeta" for itself"#,
            ],
        );
        refused(
            json!({"filesystems": {"srv": {"label": "much-too-long", "options": "a b"}}}),
            &[
                r#"/filesystems/srv/label: "much-too-long" is no label for a file system of type "xfs""#,
                r#"/filesystems/srv/options: "a b" are no mount options"#,
            ],
        );
    }
}
