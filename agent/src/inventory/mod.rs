//! The machine's hardware, read from the kernel's files. Each part is a pure function of a [`Root`]. For some values the kernel has no files:
//! programs ask the devices for them ([`ask`]).
//!
//! The same hardware gives the same inventory on every boot. The order of a list and the names in it come from places in the machine, not
//! from the order in which the kernel found the devices. Counters and temperatures are left out.

mod answers;
mod cpu;
mod disks;
mod dmi;
mod memory;
mod nics;
mod numa;
mod paths;
mod pci;
#[cfg(test)]
mod same;
mod security;
mod usb;

use std::path::Path;

use basalt_api::agent::{Firmware, Inventory};
use basalt_api::hardware::{FIRMWARE, Hardware};

use crate::modules;
use crate::root::Root;

pub use answers::ask;
pub use disks::block_devices;

/// Reads the whole inventory. Values that the kernel does not report stay empty.
#[must_use]
pub fn read(root: &Root, boot_mac: Option<&str>) -> Inventory {
    let memory_modules = memory::modules(root);
    let numa = numa::nodes(root);
    Inventory {
        architecture: std::env::consts::ARCH.to_owned(),
        firmware: firmware(root),
        cpu: cpu::read(root, &numa),
        memory_bytes: memory::bytes(&memory_modules).or_else(|| usable_memory(root)).unwrap_or(0),
        memory_modules,
        tpm: security::tpm(root),
        secure_boot: security::secure_boot(root),
        disks: block_devices(root),
        nics: nics::read(root, boot_mac),
        pci: pci::read(root),
        dmi: dmi::identification(root),
        bmc_present: !root.names("sys/class/ipmi").is_empty(),
        bmc: None,
        numa,
        usb: usb::read(root),
    }
}

/// The machine's hardware, for the hardware filters of Scripts.
#[must_use]
pub fn hardware(root: &Root) -> Hardware {
    let text = |file: &str| root.text(Path::new("sys/class/dmi/id").join(file));
    let firmware = FIRMWARE.iter().filter_map(|(name, file)| Some((*name, text(file)?)));
    Hardware { modaliases: modules::modaliases(&root.path("sys/devices")), firmware: firmware.collect() }
}

/// The firmware by which the ephemeral environment was booted.
#[must_use]
pub fn firmware(root: &Root) -> Firmware {
    if root.exists("sys/firmware/efi") { Firmware::Uefi } else { Firmware::Bios }
}

/// `MemTotal`: memory without the parts that firmware and kernel reserve. Used if DMI does not report the size.
fn usable_memory(root: &Root) -> Option<u64> {
    meminfo(root, "MemTotal")
}

/// Bytes in a line of `/proc/meminfo`.
pub(crate) fn meminfo(root: &Root, name: &str) -> Option<u64> {
    let text = root.text("proc/meminfo")?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_the_kernel_has_where_dmi_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        std::fs::write(dir.path().join("proc/meminfo"), "MemTotal:        2014340 kB\nMemFree: 1 kB\n")
            .unwrap();
        let inventory = read(&Root::at(dir.path()), None);
        assert_eq!(inventory.memory_bytes, 2_014_340 * 1024);
    }

    #[test]
    fn an_empty_tree_is_an_empty_inventory() {
        let dir = tempfile::tempdir().unwrap();
        let inventory = read(&Root::at(dir.path()), Some("52:54:00:00:00:01"));
        assert_eq!(inventory.firmware, Firmware::Bios);
        assert!(inventory.disks.is_empty() && inventory.nics.is_empty() && !inventory.bmc_present);
    }
}
