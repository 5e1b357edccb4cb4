//! The variables of UEFI firmware, as files.

use std::path::PathBuf;
use std::{fs, io};

use rustix::mount::{MountFlags, mount};

use crate::root::Root;

/// This directory exists if the machine was booted by UEFI and the driver is loaded.
const VARIABLES: &str = "/sys/firmware/efi/efivars";

/// Mounts the variables, unless they are mounted or there are none.
///
/// # Errors
/// The kernel refuses.
pub fn mount_variables() -> io::Result<()> {
    let is_empty = fs::read_dir(VARIABLES).is_ok_and(|mut entries| entries.next().is_none());
    if is_empty {
        mount("efivarfs", VARIABLES, "efivarfs", MountFlags::empty(), None)?;
    }
    Ok(())
}

/// The variables of the boot manager (UEFI 2.10 §3.3), below [`Root`].
const BOOT_CURRENT: &str = "sys/firmware/efi/efivars/BootCurrent-8be4df61-93ca-11d2-aa0d-00e098032b8c";
const BOOT_NEXT: &str = "sys/firmware/efi/efivars/BootNext-8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// Attributes of `BootNext`: kept without power, for boot services and for the system.
const ATTRIBUTES: [u8; 4] = 7_u32.to_le_bytes();

/// Makes the firmware use this boot's entry once more. False: the machine was not booted by UEFI.
///
/// # Errors
/// `BootCurrent` cannot be read or has no number, or `BootNext` cannot be written.
pub fn boot_again(root: &Root) -> io::Result<bool> {
    let current = match fs::read(root.path(PathBuf::from(BOOT_CURRENT))) {
        Ok(current) => current,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    // Four octets of attributes, and the number of the entry.
    let entry = current.get(4..6).ok_or_else(|| io::Error::other("BootCurrent has no number"))?;
    fs::write(root.path(PathBuf::from(BOOT_NEXT)), [&ATTRIBUTES, entry].concat())?;
    Ok(true)
}

/// Takes [`boot_again`] back.
pub fn boot_by_order(root: &Root) {
    let _ = fs::remove_file(root.path(PathBuf::from(BOOT_NEXT)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_of_this_boot_is_the_next_one_until_that_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        assert!(!boot_again(&root).unwrap(), "no UEFI");
        let file = |name: &str| dir.path().join(name);
        fs::create_dir_all(file(BOOT_CURRENT).parent().unwrap()).unwrap();
        fs::write(file(BOOT_CURRENT), [6, 0, 0, 0, 3, 1]).unwrap();
        assert!(boot_again(&root).unwrap());
        assert_eq!(fs::read(file(BOOT_NEXT)).unwrap(), [7, 0, 0, 0, 3, 1]);
        boot_by_order(&root);
        assert!(!file(BOOT_NEXT).exists());
        fs::write(file(BOOT_CURRENT), [6, 0, 0, 0]).unwrap();
        assert!(boot_again(&root).is_err());
    }
}
