//! Boot loaders that the rack hands out, by TFTP and HTTP: a table of names, and nothing else; and which of them its DHCP names.

use std::path::{Path, PathBuf};

use basalt_dhcp::Boot;
use basalt_proto::rack_v1::{BootLoader, DhcpConcern};

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
/// What is named to x86-64 UEFI in place of a loader that is not there.
const FALLBACK: BootLoader = BootLoader::Unspecified;
/// A loader is smaller; anything larger is not one.
const MAX_BYTES: u64 = 64 << 20;

/// What x86-64 UEFI loads by a choice: the name, all that has to be there for it, and the packages that it is in.
const fn choice(loader: BootLoader) -> (&'static str, &'static [&'static str], &'static str) {
    match loader {
        BootLoader::Unspecified => ("snponly.efi", &["snponly.efi"], "`ipxe`"),
        BootLoader::ShimGrub => {
            ("shimx64.efi", &["shimx64.efi", "grubx64.efi"], "`shim-signed` and `grub-efi-amd64-signed`")
        }
    }
}

/// The names that DHCP tells by a choice.
#[must_use]
pub fn named(loader: BootLoader) -> basalt_dhcp::Loaders {
    basalt_dhcp::Loaders { efi_x64: choice(loader).0.to_owned(), ..basalt_dhcp::Loaders::default() }
}

/// The directory.
#[derive(Debug, Clone)]
pub struct Loaders {
    dir: PathBuf,
    /// What the names that begin with a slash are under.
    root: PathBuf,
}

impl Loaders {
    /// Loaders in this directory.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), root: PathBuf::from("/") }
    }

    /// The file of a loader; `None` for any other name, and when it is not installed. A leading slash is ignored.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        let name = name.strip_prefix('/').unwrap_or(name);
        let (_, files) = LOADERS.iter().find(|(known, _)| *known == name)?;
        let is_loader =
            |path: &PathBuf| path.metadata().is_ok_and(|it| it.is_file() && it.len() <= MAX_BYTES);
        let at = |file: &&str| match file.strip_prefix('/') {
            Some(installed) => self.root.join(installed),
            None => self.dir.join(file),
        };
        files.iter().map(at).find(is_loader)
    }

    /// Needed loaders that are not installed.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        NEEDED.into_iter().filter(|name| self.path(name).is_none()).collect()
    }

    /// Whether all of a choice is there.
    fn has(&self, loader: BootLoader) -> bool {
        choice(loader).1.iter().all(|name| self.path(name).is_some())
    }

    /// Has DHCP name iPXE where what was chosen is not installed and iPXE is: with Secure Boot a machine refuses it, others boot.
    pub(crate) fn replace_absent(&self, loader: BootLoader, boot: &mut Boot) {
        if !self.has(loader) && self.has(FALLBACK) {
            boot.instead_of = Some(std::mem::replace(&mut boot.loaders, named(FALLBACK)).efi_x64);
        }
    }

    /// What racks are told to name and is not installed, in words with what to do.
    #[must_use]
    pub fn lacking(&self, concern: &DhcpConcern) -> Option<String> {
        let v4 = concern.subnets.iter().map(|it| (it.loader(), &it.cidr));
        let v6 = concern.subnets6.iter().map(|it| (it.loader(), &it.cidr));
        let is_absent = |(loader, _): &(BootLoader, &String)| *loader != FALLBACK && !self.has(*loader);
        let absent: Vec<_> = v4.chain(v6).filter(is_absent).collect();
        let (loader, _) = absent.first()?;
        let cidrs: Vec<&str> = absent.iter().map(|(_, cidr)| cidr.as_str()).collect();
        let (name, files, packages) = choice(*loader);
        let missing: Vec<&str> = files.iter().copied().filter(|name| self.path(name).is_none()).collect();
        Some(format!(
            "x86-64 UEFI of {} is to boot {name}, and {} {} not installed: it is told to boot {}, which Secure Boot refuses; install the packages {packages}",
            cidrs.join(" and "),
            missing.join(" and "),
            if missing.len() > 1 { "are" } else { "is" },
            choice(FALLBACK).0,
        ))
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

    #[test]
    fn what_is_chosen_is_named_once_all_of_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let loaders = Loaders { dir: dir.path().to_owned(), root: dir.path().to_owned() };
        let subnet = basalt_proto::rack_v1::DhcpSubnet {
            cidr: "10.77.0.0/24".into(),
            loader: BootLoader::ShimGrub.into(),
            ..Default::default()
        };
        let concern = DhcpConcern { subnets: vec![subnet], ..DhcpConcern::default() };
        let named = || {
            let mut boot = Boot { loaders: named(BootLoader::ShimGrub), ..Boot::default() };
            loaders.replace_absent(BootLoader::ShimGrub, &mut boot);
            (boot.loaders.efi_x64, boot.instead_of)
        };
        assert_eq!(named(), ("shimx64.efi".to_owned(), None), "nothing is there that could be named");
        std::fs::write(dir.path().join("snponly.efi"), b"iPXE").unwrap();
        std::fs::write(dir.path().join("shimx64.efi"), b"shim").unwrap();
        assert_eq!(named(), ("snponly.efi".to_owned(), Some("shimx64.efi".to_owned())));
        let lacking = loaders.lacking(&concern).unwrap();
        assert!(
            lacking.starts_with(
                "x86-64 UEFI of 10.77.0.0/24 is to boot shimx64.efi, and grubx64.efi is not installed"
            ),
            "{lacking}"
        );
        let signed = dir.path().join("usr/lib/grub/x86_64-efi-signed");
        std::fs::create_dir_all(&signed).unwrap();
        std::fs::write(signed.join("grubnetx64.efi.signed"), b"GRUB").unwrap();
        assert_eq!((named(), loaders.lacking(&concern)), (("shimx64.efi".to_owned(), None), None));
    }
}
