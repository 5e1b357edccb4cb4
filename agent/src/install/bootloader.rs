//! GRUB, from the image itself, so that the system can maintain it with its own packages later.
//!
//! If the image has GRUB for BIOS and for UEFI, both are installed, so that the machine boots after a change of its firmware mode. The one
//! for the present firmware is required. Every disk of a mirror gets them, so that it boots alone.

use std::fs;
use std::path::Path;

use basalt_api::agent::{FailureCode, Firmware};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::target::{Inside, TARGET};
use crate::failure::Failure;
use crate::storage::{ESP_NUMBER, Esp};
use crate::{deadlines, efi, say, tool};

/// Mount point of the other EFI system partitions, one after the other.
const OTHER_ESP: &str = "/run/basalt-esp";

/// Installs the boot loader on the disks of these EFI system partitions. The first one is mounted.
///
/// # Errors
/// The image has no GRUB for this firmware, or GRUB fails.
pub(super) fn install(esps: &[Esp], firmware: Firmware) -> Result<(), Failure> {
    let has = |path: &str| Path::new(TARGET).join(path).exists();
    let (bios, uefi) = (has("usr/lib/grub/i386-pc"), has("usr/lib/grub/x86_64-efi"));
    for (missing, what) in [
        (!has("usr/sbin/grub-install"), "grub-install (package grub2-common)"),
        (firmware == Firmware::Bios && !bios, "GRUB for BIOS (package grub-pc-bin)"),
        (firmware == Firmware::Uefi && !uefi, "GRUB for UEFI (package grub-efi-amd64-bin)"),
    ] {
        if missing {
            return Err(Failure::new(FailureCode::BadImage, format!("the image lacks {what}")));
        }
    }
    let inside = Inside::bind()?;
    let name = os_id();
    if uefi {
        let id = format!("--bootloader-id={name}");
        let args = ["--target=x86_64-efi", "--efi-directory=/boot/efi", "--no-nvram", &id];
        tool::run_in(TARGET, "grub-install", &args, deadlines::TOOL)?;
        copy_to_fallback(&name)?;
        esps.iter().skip(1).try_for_each(copy_to)?;
    }
    if bios {
        for Esp { disk, .. } in esps {
            let disk = format!("/dev/{disk}");
            tool::run_in(TARGET, "grub-install", &["--target=i386-pc", &disk], deadlines::TOOL)?;
        }
    }
    drop(inside);
    if firmware == Firmware::Uefi {
        register(esps, &name);
    }
    Ok(())
}

/// `ID` of os-release. The distribution's own packages maintain the directory of this name on the ESP.
fn os_id() -> String {
    let text = fs::read_to_string(Path::new(TARGET).join("etc/os-release")).unwrap_or_default();
    let id = text.lines().find_map(|line| line.strip_prefix("ID=")).unwrap_or("linux");
    id.trim_matches('"').chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect()
}

/// Copies the loader to the path that firmware tries without a boot entry, since a new mainboard has no entries.
fn copy_to_fallback(name: &str) -> Result<(), Failure> {
    let efi = Path::new(TARGET).join("boot/efi/EFI");
    let copy = || {
        fs::create_dir_all(efi.join("BOOT"))?;
        fs::copy(efi.join(name).join("grubx64.efi"), efi.join("BOOT/BOOTX64.EFI"))
    };
    copy().map(drop).map_err(Failure::disk("copying GRUB to EFI/BOOT/BOOTX64.EFI"))
}

/// Copies the files of the first EFI system partition to another one.
fn copy_to(esp: &Esp) -> Result<(), Failure> {
    let failed = format!("mounting {} on {OTHER_ESP}", esp.device);
    fs::create_dir_all(OTHER_ESP).map_err(Failure::disk(&failed))?;
    mount(&*esp.device, OTHER_ESP, "vfat", MountFlags::empty(), Some(c"umask=0077"))
        .map_err(Failure::disk(&failed))?;
    let copied = tool::run("cp", &["--recursive", &format!("{TARGET}/boot/efi/EFI"), OTHER_ESP]);
    unmount(OTHER_ESP, UnmountFlags::empty()).map_err(Failure::disk(format!("unmounting {}", esp.device)))?;
    copied.map(drop).map_err(Failure::from)
}

/// Adds the firmware's boot entries, with the first disk first. A firmware that refuses is no failure: the fallback path still boots.
fn register(esps: &[Esp], name: &str) {
    if let Err(error) = efi::mount_variables() {
        say!("the firmware's variables cannot be reached: {error}");
        return;
    }
    let done = tool::run("efibootmgr", &[]).and_then(|entries| {
        // Entries of earlier installs point to partitions that no longer exist.
        for number in entries_labelled(&entries, name) {
            tool::run("efibootmgr", &["--quiet", "--delete-bootnum", "--bootnum", number])?;
        }
        let loader = format!("\\EFI\\{name}\\grubx64.efi");
        let part = ESP_NUMBER.to_string();
        // Firmware tries the entry that was created last first.
        esps.iter().rev().try_for_each(|Esp { disk, .. }| {
            let disk = format!("/dev/{disk}");
            let args = [
                "--quiet", "--create", "--disk", &disk, "--part", &part, "--label", name, "--loader", &loader,
            ];
            tool::run("efibootmgr", &args).map(drop)
        })
    });
    if let Err(error) = done {
        say!("the firmware took no boot entry, EFI/BOOT/BOOTX64.EFI has to do: {error}");
    }
}

/// Numbers of the entries with this label, from efibootmgr's list (`Boot0007* LABEL TAB HD(…)`).
fn entries_labelled<'a>(list: &'a str, label: &str) -> Vec<&'a str> {
    let entries = list.lines().filter_map(|line| {
        let (number, rest) = line.strip_prefix("Boot")?.split_at_checked(4)?;
        let text = rest.strip_prefix('*').or_else(|| rest.strip_prefix(' '))?.trim_start();
        let found = text.split('\t').next()?.trim_end();
        (number.bytes().all(|b| b.is_ascii_hexdigit()) && found == label).then_some(number)
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_boot_entries_of_earlier_installations() {
        let list = "BootCurrent: 0003\nTimeout: 0 seconds\nBootOrder: 0007,0003\n\
            Boot0003* UEFI PXEv4 (MAC:525400000001)\tPciRoot(0x0)\n\
            Boot0007* debian\tHD(2,GPT,1)/File(\\EFI\\debian\\grubx64.efi)\nBoot000A  debian\tHD(2,GPT,2)\nBoot000B* debian-old\tHD\n";
        assert_eq!(entries_labelled(list, "debian"), ["0007", "000A"]);
        assert!(entries_labelled(list, "ubuntu").is_empty());
    }
}
