//! Disks by the names that people write: a kernel name, a serial number, a WWN, a link under `/dev/disk/by-id` or `/dev/disk/by-path`.
//!
//! A layout overwrites the disks that it names, so a name must select a single disk. Agent and region resolve names by these rules:
//!
//! | text | means the disk with |
//! | --- | --- |
//! | `/dev/disk/by-id/X` | the link X, or the WWN that X spells |
//! | `/dev/disk/by-path/X` | the link X |
//! | `/dev/X` | the kernel name X |
//! | `X` | the kernel name X, the serial number X, a link X, or the WWN that X spells |
//!
//! A WWN has many spellings: `wwn-0x5000c500a1b2c3d4`, `scsi-35000c500a1b2c3d4`, `0x5000C500A1B2C3D4`, `naa.5000c500a1b2c3d4`,
//! `50:00:c5:00:a1:b2:c3:d4`.

use crate::kinds::StorageConfig;
use crate::problem::{FieldCode, FieldError};
use crate::{agent, kinds};
use std::borrow::Cow;
use std::collections::BTreeMap;

mod choice;

pub use choice::{BIOS_BOOT, ChoiceError, END, ESP, MIB, START, choose_disks, least_bytes};

/// Most candidates that an error names.
const NAMED: usize = 8;

/// A name that a disk can be known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskName<'a> {
    form: Form,
    text: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Kernel,
    Id,
    Path,
    Any,
}

/// Directories of names, the longest first.
const DIRECTORIES: [(&str, Form); 3] =
    [("/dev/disk/by-id/", Form::Id), ("/dev/disk/by-path/", Form::Path), ("/dev/", Form::Kernel)];

impl<'a> DiskName<'a> {
    /// Parses a name. `None`: the text is not a name.
    #[must_use]
    pub fn read(text: &'a str) -> Option<Self> {
        let mut forms = DIRECTORIES.into_iter();
        let form = forms.find_map(|(directory, form)| Some((form, text.strip_prefix(directory)?)));
        let (form, text) = form.unwrap_or((Form::Any, text));
        (!text.trim().is_empty()).then_some(Self { form, text })
    }

    /// The name without its directory. For a WWN, its digits.
    #[must_use]
    pub fn plain(self) -> Cow<'a, str> {
        wwn(self.text).map_or(Cow::Borrowed(self.text), Cow::Owned)
    }

    /// True if the disk has this name.
    #[must_use]
    pub fn is_of(self, disk: &DiskNames<'_>) -> bool {
        let is = |form: Form| self.form == form || self.form == Form::Any;
        let among = |links: &[String]| links.iter().any(|link| link == self.text);
        (is(Form::Kernel) && self.text == disk.kernel)
            || (self.form == Form::Any && self.text == disk.serial)
            || (is(Form::Id) && (among(disk.links) || self.is_wwn_of(disk)))
            || (is(Form::Path) && among(disk.paths))
    }

    /// True if the text can only be a link under `/dev/disk/by-path`.
    fn is_path(self) -> bool {
        let is_bus = PATH_PREFIXES.iter().any(|prefix| self.text.starts_with(prefix));
        self.form == Form::Path || (self.form == Form::Any && is_bus)
    }

    fn is_wwn_of(self, disk: &DiskNames<'_>) -> bool {
        wwn(self.text).is_some_and(|own| disk.links.iter().any(|link| wwn(link).as_ref() == Some(&own)))
    }
}

/// Buses with which udev begins the names of links under `/dev/disk/by-path`.
const PATH_PREFIXES: [&str; 4] = ["pci-", "platform-", "acpi-", "ccw-"];

/// Prefixes of a WWN in the names of udev, of the kernel and of vendors' tools.
const WWN_PREFIXES: [&str; 8] = ["wwn-0x", "nvme-eui.", "scsi-3", "scsi-2", "wwn-", "naa.", "eui.", "0x"];

/// The digits of a worldwide name of 64 or 128 bits (NAA, EUI-64), in lower case. `None`: the text is not a WWN.
fn wwn(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let digits = WWN_PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(&text);
    let digits: String = digits.chars().filter(|c| !matches!(c, ':' | '-')).collect();
    let is_wwn = matches!(digits.len(), 16 | 32) && digits.chars().all(|c| c.is_ascii_hexdigit());
    is_wwn.then_some(digits)
}

/// A disk of a machine, and all of its names.
#[derive(Clone, Copy, Debug)]
pub struct DiskNames<'a> {
    kernel: &'a str,
    serial: &'a str,
    links: &'a [String],
    paths: &'a [String],
    bytes: u64,
}

impl<'a> DiskNames<'a> {
    /// The kernel name.
    #[must_use]
    pub const fn kernel(&self) -> &'a str {
        self.kernel
    }
}

impl std::fmt::Display for DiskNames<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} MB", self.kernel, self.bytes / 1_000_000)?;
        if !self.links.is_empty() {
            write!(f, " ({})", self.links.join(", "))?;
        }
        Ok(())
    }
}

impl agent::Disk {
    /// All names of the disk.
    #[must_use]
    pub fn names(&self) -> DiskNames<'_> {
        let Self { name, serial, ids, paths, size_bytes, .. } = self;
        DiskNames { kernel: name, serial, links: ids, paths, bytes: *size_bytes }
    }
}

impl kinds::Disk {
    /// All names of the disk. `kernel` is its key in the inventory.
    #[must_use]
    pub fn names<'a>(&'a self, kernel: &'a str) -> DiskNames<'a> {
        let serial = self.serial.as_deref().unwrap_or_default();
        DiskNames { kernel, serial, links: &self.ids, paths: &self.paths, bytes: self.size_bytes }
    }
}

/// The reason why a name does not select a single disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskNameError {
    /// The name is empty.
    #[error("{0:?} names no disk")]
    Empty(String),
    /// Several disks have the name.
    #[error("{name:?} is the name of several disks: {candidates}")]
    Ambiguous {
        /// The name as it was written.
        name: String,
        /// The disks that have the name.
        candidates: String,
    },
    /// Another entry of the layout names the same disk.
    #[error("{name:?} is disk {disk}, which {other:?} names already")]
    Repeated {
        /// The name as it was written.
        name: String,
        /// The disk's kernel name.
        disk: String,
        /// The other entry.
        other: String,
    },
}

impl DiskNameError {
    /// Advice for a person.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Empty(_) => {
                "a kernel name, a serial number, a WWN, or a name under /dev/disk/by-id or /dev/disk/by-path; or leave it out"
            }
            Self::Ambiguous { .. } => {
                "a name that one of them alone has, like its kernel name; recommission the machine if its disks have changed"
            }
            Self::Repeated { .. } => "another disk for one of the two",
        }
    }
}

/// The result of a search for named disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedDisks<'a> {
    /// Kernel names of disks by the entries of a layout. An entry is absent if no disk has its name.
    pub found: BTreeMap<&'a str, &'a str>,
    /// Entries that do not select a single disk, and the reasons.
    pub errors: Vec<(&'a str, DiskNameError)>,
}

/// Finds the disks that the entries of a layout name. `wanted` has entries and names.
pub fn find_disks<'a>(
    wanted: impl IntoIterator<Item = (&'a str, &'a str)>,
    disks: &[DiskNames<'a>],
) -> NamedDisks<'a> {
    let (mut named, mut owners) = (NamedDisks::default(), BTreeMap::<&str, &str>::new());
    for (entry, text) in wanted {
        let Some(name) = DiskName::read(text) else {
            named.errors.push((entry, DiskNameError::Empty(text.to_owned())));
            continue;
        };
        let matching: Vec<_> = disks.iter().filter(|disk| name.is_of(disk)).collect();
        let (name, kernel) = match matching.as_slice() {
            [] => continue,
            [one] => (text.to_owned(), one.kernel),
            several => {
                let mut candidates: Vec<_> = several.iter().take(NAMED).map(ToString::to_string).collect();
                if let Some(more) = several.len().checked_sub(NAMED).filter(|more| *more > 0) {
                    candidates.push(format!("{more} more"));
                }
                let candidates = candidates.join(", ");
                let error = DiskNameError::Ambiguous { name: text.to_owned(), candidates };
                named.errors.push((entry, error));
                continue;
            }
        };
        match owners.get(kernel) {
            Some(other) => {
                let (disk, other) = (kernel.to_owned(), (*other).to_owned());
                named.errors.push((entry, DiskNameError::Repeated { name, disk, other }));
            }
            None => {
                owners.insert(kernel, entry);
                named.found.insert(entry, kernel);
            }
        }
    }
    named
}

/// A disk name in a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeclaredName<'a> {
    /// JSON pointer into the spec.
    pub(crate) pointer: String,
    /// The layout's own word for the disk.
    pub(crate) entry: &'a str,
    /// The name as it was written.
    pub(crate) text: &'a str,
}

impl StorageConfig {
    /// The names that it has for disks.
    pub(crate) fn declared_names(&self) -> Vec<DeclaredName<'_>> {
        let disk = self.disk.iter().map(|text| DeclaredName {
            pointer: "/storage/disk".to_owned(),
            entry: "disk",
            text,
        });
        let disks = self.disks.iter().filter_map(|(entry, disk)| {
            let pointer = crate::pointer::child(&crate::pointer::child("/storage/disks", entry), "id");
            Some(DeclaredName { pointer, entry, text: disk.id.as_deref()? })
        });
        disk.chain(disks).collect()
    }

    /// True if it names a disk.
    #[must_use]
    pub fn names_disks(&self) -> bool {
        !self.declared_names().is_empty()
    }

    /// Checks the disk names of a layout against the disks of a machine. A name without a disk is not an error: the disk may be plugged in
    /// after the machine was commissioned.
    #[must_use]
    pub fn misnamed_disks(&self, disks: &[DiskNames<'_>]) -> Vec<FieldError> {
        let declared = self.declared_names();
        let named = find_disks(declared.iter().map(|name| (name.entry, name.text)), disks);
        let errors = named.errors.into_iter().filter_map(|(entry, error)| {
            let name = declared.iter().find(|name| name.entry == entry)?;
            Some(FieldError::new(name.pointer.clone(), FieldCode::Rule, error.to_string(), error.hint()))
        });
        errors.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Two disks of one serial number, and a third.
    fn disks() -> Vec<agent::Disk> {
        [("sda", "S1", "wwn-1"), ("sdb", "S1", "wwn-2"), ("sdc", "", "wwn-3")]
            .map(|(name, serial, id)| agent::Disk {
                name: name.to_owned(),
                serial: serial.to_owned(),
                size_bytes: 4_000_000_000,
                ids: vec![id.to_owned(), format!("wwn-0x5000c500a1b2c3d{}", &id[4..])],
                paths: vec![format!("pci-0000:00:1f.2-ata-{}", &id[4..])],
                ..agent::Disk::default()
            })
            .to_vec()
    }

    fn wrong(storage: Value) -> Vec<String> {
        let storage: StorageConfig = serde_json::from_value(storage).unwrap();
        let disks = disks();
        let names: Vec<_> = disks.iter().map(agent::Disk::names).collect();
        let errors = storage.misnamed_disks(&names);
        errors.iter().map(|error| format!("{}: {}", error.pointer, error.message)).collect()
    }

    #[test]
    fn a_name_that_one_disk_has_is_that_disk_s() {
        for name in [
            "sda",
            "/dev/sda",
            "wwn-1",
            "/dev/disk/by-id/wwn-1",
            "/dev/disk/by-path/pci-0000:00:1f.2-ata-1",
            "not-there",
        ] {
            assert_eq!(wrong(json!({"disk": name})), [""; 0], "{name}");
        }
    }

    #[test]
    fn a_directory_says_which_sort_of_name_it_is() {
        let disks = disks();
        let is = |text: &str| {
            let name = DiskName::read(text).unwrap();
            disks.iter().filter(|disk| name.is_of(&disk.names())).count()
        };
        assert_eq!((is("/dev/disk/by-id/sda"), is("/dev/wwn-1"), is("/dev/S1")), (0, 0, 0));
        assert_eq!(is("/dev/disk/by-id/pci-0000:00:1f.2-ata-1"), 0);
        assert_eq!(is("/dev/disk/by-path/pci-0000:00:1f.2-ata-1"), 1);
        assert_eq!(is("pci-0000:00:1f.2-ata-1"), 1);
    }

    #[test]
    fn a_wwn_is_one_name_in_all_spellings() {
        let disks = disks();
        for text in [
            "wwn-0x5000c500a1b2c3d2",
            "/dev/disk/by-id/wwn-0x5000c500a1b2c3d2",
            "/dev/disk/by-id/wwn-0x5000C500A1B2C3D2",
            "/dev/disk/by-id/scsi-35000c500a1b2c3d2",
            "0x5000C500A1B2C3D2",
            "5000C500A1B2C3D2",
            "naa.5000c500a1b2c3d2",
            "50:00:c5:00:a1:b2:c3:d2",
        ] {
            let name = DiskName::read(text).unwrap();
            let has: Vec<_> =
                disks.iter().filter(|disk| name.is_of(&disk.names())).map(|it| &it.name).collect();
            assert_eq!(has, ["sdb"], "{text}");
        }
        assert_eq!(wwn("nvme-eui.0025385B71B00001"), wwn("eui.0025385b71b00001"));
        assert_eq!(wwn("scsi-20025385b71b00001"), wwn("eui.0025385b71b00001"));
        assert_eq!(wwn("S1"), None);
    }

    #[test]
    fn a_name_of_several_disks_names_them_all() {
        let message = r#"/storage/disk: "S1" is the name of several disks: sda of 4000 MB (wwn-1, wwn-0x5000c500a1b2c3d1), sdb of 4000 MB (wwn-2, wwn-0x5000c500a1b2c3d2)"#;
        assert_eq!(wrong(json!({"disk": "S1"})), [message]);
        let both = wrong(json!({"layout": "raid1", "disks": {"a": {"id": "S1"}, "b": {"id": "S1"}}}));
        assert_eq!(both.len(), 2, "{both:?}");
        assert!(both.iter().all(|error| error.contains("several disks")), "{both:?}");
    }

    #[test]
    fn two_names_of_one_disk_are_not_two_disks() {
        assert_eq!(
            wrong(json!({"layout": "raid1", "disks": {"a": {"id": "sda"}, "b": {"id": "wwn-1"}}})),
            [r#"/storage/disks/b/id: "wwn-1" is disk sda, which "a" names already"#]
        );
    }

    #[test]
    fn a_disk_that_has_another_name_is_told_and_why_no_path_is_known() {
        let mut disks = disks();
        let why = |disks: &[agent::Disk], name: &str| {
            let selector = agent::DiskSelector { name: Some(name.to_owned()), min_bytes: None };
            let names: Vec<_> = disks.iter().map(agent::Disk::names).collect();
            choose_disks(&names, &[("root".to_owned(), selector)].into()).unwrap_err().to_string()
        };
        let (path, wwn) = ("/dev/disk/by-path/pci-0000:00:1f.2-ata-9", "wwn-0x5000c500a1b2c3d9");
        for name in [path, wwn, "sdz"] {
            let wanted =
                format!("no disk to install to: sda is not {name}; sdb is not {name}; sdc is not {name}");
            assert_eq!(why(&disks, name), wanted);
        }
        disks.iter_mut().for_each(|disk| disk.paths.clear());
        for name in [path, "pci-0000:00:1f.2-ata-9"] {
            let said = why(&disks, name);
            let ends = "; this inventory has no by-path names; run `basalt recommission`";
            assert!(said.ends_with(ends), "{said}");
        }
        assert!(why(&disks, wwn).ends_with(&format!("sdc is not {wwn}")));
    }

    #[test]
    fn an_empty_name_is_not_the_disk_without_a_serial_number() {
        for name in ["", " ", "/dev/", "/dev/disk/by-id/"] {
            assert_eq!(wrong(json!({"disk": name})), [format!("/storage/disk: {name:?} names no disk")]);
        }
    }
}
