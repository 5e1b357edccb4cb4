//! The variables of UEFI firmware, as files.

use std::{fs, io};

use rustix::mount::{MountFlags, mount};

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
