//! Boot loaders that the rack hands out, by TFTP and HTTP: a table of names, and nothing else.

use std::path::{Path, PathBuf};

/// Names that clients may ask for, and where in the loader directory, or elsewhere, distributions put them, best first.
const LOADERS: &[(&str, &[&str])] = &[
    ("undionly.kpxe", &["undionly.kpxe"]),
    ("ipxe.pxe", &["ipxe.pxe"]),
    ("ipxe.efi", &["ipxe.efi"]),
    ("snponly.efi", &["snponly.efi", "snponly-x86_64.efi"]),
    ("shimx64.efi", &["shimx64.efi", "/usr/lib/shim/shimx64.efi.signed"]),
    // By this name shim asks for it, beside itself. It is the image with GRUB's network, that nobody but a distribution signs.
    ("grubx64.efi", &["grubnetx64.efi", "/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed"]),
    ("lpxelinux.0", &["lpxelinux.0", "/usr/lib/PXELINUX/lpxelinux.0"]),
    ("ldlinux.c32", &["ldlinux.c32", "/usr/lib/syslinux/modules/bios/ldlinux.c32"]),
    ("poweroff.c32", &["poweroff.c32", "/usr/lib/syslinux/modules/bios/poweroff.c32"]),
    ("ipxe-arm64.efi", &["ipxe-arm64.efi", "ipxe-arm64/ipxe.efi"]),
    ("snponly-arm64.efi", &["snponly-arm64.efi", "ipxe-arm64/snponly.efi"]),
];
/// Those without which a common machine cannot boot.
const NEEDED: [&str; 2] = ["undionly.kpxe", "snponly.efi"];
/// A loader is smaller; anything larger is not one.
const MAX_BYTES: u64 = 64 << 20;

/// The directory.
#[derive(Debug, Clone)]
pub struct Loaders {
    dir: PathBuf,
}

impl Loaders {
    /// Loaders in this directory.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The file of a loader; `None` for any other name, and when it is not installed. A leading slash is ignored.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        let name = name.strip_prefix('/').unwrap_or(name);
        let (_, files) = LOADERS.iter().find(|(known, _)| *known == name)?;
        let is_loader =
            |path: &PathBuf| path.metadata().is_ok_and(|it| it.is_file() && it.len() <= MAX_BYTES);
        files.iter().map(|file| self.dir.join(file)).find(is_loader)
    }

    /// Needed loaders that are not installed.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        NEEDED.into_iter().filter(|name| self.path(name).is_none()).collect()
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_table_lead_to_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("undionly.kpxe"), b"loader").unwrap();
        std::fs::write(dir.path().join("secret"), b"secret").unwrap();
        let loaders = Loaders::new(dir.path());
        assert!(loaders.path("undionly.kpxe").is_some());
        assert!(loaders.path("/undionly.kpxe").is_some());
        for name in ["secret", "../undionly.kpxe", "snponly.efi", "", "//undionly.kpxe"] {
            assert_eq!(loaders.path(name), None, "{name:?}");
        }
        assert_eq!(loaders.missing(), ["snponly.efi"]);
    }
}
