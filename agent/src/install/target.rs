//! The new root: its file systems, mounted below the target directory, and the kernel's file systems inside it.

use std::fs;
use std::path::Path;

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, unmount,
};

use crate::failure::Failure;
use crate::storage;

/// Mount point of the new root.
pub(super) const TARGET: &str = "/target";

/// File systems below [`TARGET`], to be unmounted in reverse.
#[derive(Debug)]
pub(super) struct Mounted(Vec<String>);

impl Mounted {
    /// Mounts these file systems in order.
    ///
    /// # Errors
    /// The kernel refuses a mount.
    pub(super) fn all(mounts: &[storage::Mount]) -> Result<Self, Failure> {
        let mut mounted = Self(Vec::new());
        for storage::Mount { source, at, kind, data } in mounts {
            let target = Path::new(TARGET).join(at).display().to_string();
            let failed = format!("mounting {source} on {target}");
            fs::create_dir_all(&target).map_err(Failure::disk(&failed))?;
            mount(source, &target, *kind, MountFlags::NOATIME, Some(*data))
                .map_err(Failure::disk(&failed))?;
            mounted.0.push(target);
        }
        Ok(mounted)
    }

    /// Writes all data back and unmounts.
    ///
    /// # Errors
    /// A file system cannot be written back or is still in use.
    pub(super) fn unmount(mut self) -> Result<(), Failure> {
        while let Some(target) = self.0.pop() {
            unmount(&target, UnmountFlags::empty()).map_err(Failure::disk(format!("unmounting {target}")))?;
        }
        Ok(())
    }
}

/// The kernel's file systems inside the target, while programs of the image run.
#[derive(Debug)]
pub(super) struct Inside(Vec<String>);

impl Inside {
    /// Bind-mounts `/dev`, `/proc` and `/sys`.
    ///
    /// # Errors
    /// The kernel refuses a mount.
    pub(super) fn bind() -> Result<Self, Failure> {
        let mut inside = Self(Vec::new());
        for directory in ["dev", "proc", "sys"] {
            let target = format!("{TARGET}/{directory}");
            let failed = format!("mounting {target}");
            fs::create_dir_all(&target).map_err(Failure::disk(&failed))?;
            mount_bind_recursive(format!("/{directory}"), &target).map_err(Failure::disk(&failed))?;
            mount_change(&target, MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
                .map_err(Failure::disk(&failed))?;
            inside.0.push(target);
        }
        Ok(inside)
    }

    /// The same, with a `/run` in memory: files that scripts leave there are not on the disk.
    ///
    /// # Errors
    /// The kernel refuses a mount.
    pub(super) fn bind_with_run() -> Result<Self, Failure> {
        let mut inside = Self::bind()?;
        let target = format!("{TARGET}/run");
        mount("tmpfs", &target, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=0755"))
            .map_err(Failure::disk(format!("mounting {target}")))?;
        inside.0.push(target);
        Ok(inside)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        while let Some(target) = self.0.pop() {
            // A failure is ignored: if a mount stays, unmounting the root reports it.
            let _ = unmount(&target, UnmountFlags::DETACH);
        }
    }
}
