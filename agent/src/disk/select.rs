//! Which disk an install goes to.

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

/// The smallest of the matching disks; of equal ones the first by name.
///
/// # Errors
/// [`FailureCode::NoDisk`], naming every disk and why it is not the one.
pub fn select<'a>(
    devices: &'a [BlockDevice],
    selector: &DiskSelector,
    required: u64,
) -> Result<&'a BlockDevice, Failure> {
    let smallest = required.max(selector.min_bytes.unwrap_or(0));
    let matching = devices.iter().filter(|device| mismatch(device, selector, smallest).is_none());
    matching.min_by_key(|device| (device.disk.size_bytes, &device.disk.name)).ok_or_else(|| {
        let why: Vec<String> = devices
            .iter()
            .filter_map(|device| {
                Some(format!("{} {}", device.disk.name, mismatch(device, selector, smallest)?))
            })
            .collect();
        let why = if why.is_empty() { "the machine shows no disk at all".to_owned() } else { why.join("; ") };
        Failure::new(FailureCode::NoDisk, format!("no disk to install to: {why}"))
    })
}

fn mismatch(device: &BlockDevice, selector: &DiskSelector, smallest: u64) -> Option<String> {
    let disk = &device.disk;
    if let Some(wanted) = &selector.name {
        let short = wanted.trim_start_matches("/dev/disk/by-id/").trim_start_matches("/dev/");
        if short != disk.name && !device.ids.iter().any(|id| id == short) {
            return Some(format!("is not named {wanted}"));
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
        select(&devices(), &selector, 2 << 30)
            .map(|device| device.disk.name.clone())
            .map_err(|failure| failure.message)
    }

    #[test]
    fn the_smallest_that_is_large_enough() {
        assert_eq!(chosen(DiskSelector::default()).as_deref(), Ok("sdb"));
        assert_eq!(
            chosen(DiskSelector { min_bytes: Some(5 << 30), ..Default::default() }).as_deref(),
            Ok("sda")
        );
    }

    #[test]
    fn by_name_by_id_and_by_serial_number() {
        for name in ["sdc", "/dev/sdc", "ata-X_C", "/dev/disk/by-id/ata-X_C"] {
            let selector = DiskSelector { name: Some(name.to_owned()), ..Default::default() };
            assert_eq!(chosen(selector).as_deref(), Ok("sdc"), "{name}");
        }
        assert_eq!(
            chosen(DiskSelector { serial: Some("A".to_owned()), ..Default::default() }).as_deref(),
            Ok("sda")
        );
    }

    #[test]
    fn says_of_every_disk_why_it_is_not_the_one() {
        let message =
            chosen(DiskSelector { serial: Some("D".to_owned()), ..Default::default() }).unwrap_err();
        assert!(message.contains("sda has serial number 'A', not 'D'"), "{message}");
        assert!(message.contains("sdd has 1073741824 bytes, 2147483648 are needed"), "{message}");
    }
}
