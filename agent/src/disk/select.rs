//! Which disks an install goes to.

use std::collections::BTreeMap;

use basalt_api::agent::{BlobRef, DiskSelector, FailureCode};

use crate::failure::Failure;
use crate::inventory::BlockDevice;

/// Smallest disk for an image: the boot partitions and some room to run, and the image unpacked. Root tarballs
/// compress to between a half and a quarter.
#[must_use]
pub fn required_bytes(image: &BlobRef) -> u64 {
    const GIB: u64 = 1 << 30;
    image.size.saturating_mul(4).saturating_add(GIB)
}

/// A disk for each name: the smallest of the matching ones that are left; of equal ones the first by name. Those that are asked for by what
/// they are called come first, then those that must be largest: so all get one, where that can be.
///
/// # Errors
/// [`FailureCode::NoDisk`], naming every disk and why it is not the one.
pub fn select<'a>(
    devices: &'a [BlockDevice],
    wanted: &BTreeMap<String, DiskSelector>,
) -> Result<BTreeMap<String, &'a BlockDevice>, Failure> {
    let mut order: Vec<_> = wanted.iter().collect();
    order.sort_by_key(|(name, selector)| {
        let anonymous = selector.name.is_none() && selector.serial.is_none();
        (anonymous, std::cmp::Reverse(selector.min_bytes), *name)
    });
    let mut chosen: BTreeMap<String, &BlockDevice> = BTreeMap::new();
    for (name, selector) in order {
        let taken = |device: &BlockDevice| {
            let by = chosen.iter().find(|(_, taken)| taken.disk.name == device.disk.name);
            by.map(|(by, _)| format!("is taken for {by}"))
        };
        let unfit = |device: &BlockDevice| taken(device).or_else(|| mismatch(device, selector));
        let matching = devices.iter().filter(|device| unfit(device).is_none());
        let best =
            matching.min_by_key(|device| (device.disk.size_bytes, &device.disk.name)).ok_or_else(|| {
                let why: Vec<String> = devices
                    .iter()
                    .filter_map(|device| Some(format!("{} {}", device.disk.name, unfit(device)?)))
                    .collect();
                let why = if why.is_empty() {
                    "the machine shows no disk at all".to_owned()
                } else {
                    why.join("; ")
                };
                let what = if wanted.len() == 1 { "to install to".to_owned() } else { format!("for {name}") };
                Failure::new(FailureCode::NoDisk, format!("no disk {what}: {why}"))
            })?;
        chosen.insert(name.clone(), best);
    }
    Ok(chosen)
}

fn mismatch(device: &BlockDevice, selector: &DiskSelector) -> Option<String> {
    let smallest = selector.min_bytes.unwrap_or(0);
    let disk = &device.disk;
    if let Some(wanted) = &selector.name {
        let short = wanted.trim_start_matches("/dev/disk/by-id/").trim_start_matches("/dev/");
        if short != disk.name && *wanted != disk.serial && !device.ids.iter().any(|id| id == short) {
            return Some(format!("has neither name nor serial number {wanted}"));
        }
    }
    if let Some(wanted) = &selector.serial
        && *wanted != disk.serial
    {
        return Some(format!("has serial number '{}', not '{wanted}'", disk.serial));
    }
    (disk.size_bytes < smallest).then(|| format!("has {} bytes, {smallest} are needed", disk.size_bytes))
}

#[cfg(test)]
mod tests {
    use basalt_api::agent::Disk;

    use super::*;

    fn devices() -> Vec<BlockDevice> {
        [("sda", 8, "A"), ("sdb", 4, "B"), ("sdc", 4, "C"), ("sdd", 1, "D")]
            .map(|(name, gib, serial)| BlockDevice {
                disk: Disk {
                    name: name.to_owned(),
                    size_bytes: gib << 30,
                    serial: serial.to_owned(),
                    ..Disk::default()
                },
                ids: vec![format!("ata-X_{serial}")],
            })
            .to_vec()
    }

    fn chosen(selector: DiskSelector) -> Result<String, String> {
        let min_bytes = Some(selector.min_bytes.unwrap_or(2 << 30));
        all(&[("system", DiskSelector { min_bytes, ..selector })]).map(|mut names| names.remove(0))
    }

    /// The disks for these names, in their order.
    fn all(wanted: &[(&str, DiskSelector)]) -> Result<Vec<String>, String> {
        let names = wanted.iter().map(|(name, selector)| ((*name).to_owned(), selector.clone())).collect();
        let devices = devices();
        let chosen = select(&devices, &names).map_err(|failure| failure.message)?;
        Ok(wanted.iter().map(|(name, _)| chosen[*name].disk.name.clone()).collect())
    }

    fn sized(gib: u64) -> DiskSelector {
        DiskSelector { min_bytes: Some(gib << 30), ..DiskSelector::default() }
    }

    fn named(name: &str) -> DiskSelector {
        DiskSelector { name: Some(name.to_owned()), ..DiskSelector::default() }
    }

    #[test]
    fn the_smallest_that_is_large_enough() {
        assert_eq!(chosen(DiskSelector::default()).as_deref(), Ok("sdb"));
        assert_eq!(chosen(sized(5)).as_deref(), Ok("sda"));
    }

    #[test]
    fn by_name_by_id_and_by_serial_number() {
        for name in ["sdc", "/dev/sdc", "ata-X_C", "/dev/disk/by-id/ata-X_C", "C"] {
            assert_eq!(chosen(named(name)).as_deref(), Ok("sdc"), "{name}");
        }
        assert_eq!(
            chosen(DiskSelector { serial: Some("A".to_owned()), ..Default::default() }).as_deref(),
            Ok("sda")
        );
    }

    #[test]
    fn several_get_a_disk_each_and_who_can_take_few_comes_first() {
        assert_eq!(all(&[("a", sized(0)), ("b", sized(0))]).unwrap(), ["sdd", "sdb"]);
        assert_eq!(all(&[("a", sized(1)), ("b", sized(4)), ("c", sized(3))]).unwrap(), ["sdd", "sdb", "sdc"]);
        assert_eq!(all(&[("a", sized(4)), ("b", named("B"))]).unwrap(), ["sdc", "sdb"]);
        let message = all(&[("a", named("sdb")), ("b", named("B"))]).unwrap_err();
        assert!(
            message
                .starts_with("no disk for b: sda has neither name nor serial number B; sdb is taken for a"),
            "{message}"
        );
    }

    #[test]
    fn says_of_every_disk_why_it_is_not_the_one() {
        let message =
            chosen(DiskSelector { serial: Some("D".to_owned()), ..Default::default() }).unwrap_err();
        assert!(
            message.starts_with("no disk to install to: sda has serial number 'A', not 'D'"),
            "{message}"
        );
        assert!(message.contains("sdd has 1073741824 bytes, 2147483648 are needed"), "{message}");
    }
}
