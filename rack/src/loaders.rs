//! The boot loaders that the rack serves by TFTP and HTTP, as a table of names, and the choice of loader that DHCP
//! names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use basalt_dhcp::{Boot, BootMode, Firmware};
use basalt_proto::rack_v1::{BootAnswers, BootLoader, DhcpConcern};

use crate::dhcp::config::firmware;

/// The names that clients may request. Each has the files that distributions install for it, in the loader directory or
/// elsewhere; the first one found is used.
const LOADERS: &[(&str, &[&str])] = &[
    ("undionly.kpxe", &["undionly.kpxe"]),
    ("ipxe.pxe", &["ipxe.pxe"]),
    ("ipxe.efi", &["ipxe.efi"]),
    ("snponly.efi", &["snponly.efi", "snponly-x86_64.efi"]),
    ("shimx64.efi", &["shimx64.efi", "/usr/lib/shim/shimx64.efi.signed"]),
    // Shim requests this name from its own directory. The file is GRUB's network image, which only distributions sign.
    ("grubx64.efi", &["grubnetx64.efi", "/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed"]),
    ("lpxelinux.0", &["lpxelinux.0", "/usr/lib/PXELINUX/lpxelinux.0"]),
    ("ldlinux.c32", &["ldlinux.c32", "/usr/lib/syslinux/modules/bios/ldlinux.c32"]),
    ("poweroff.c32", &["poweroff.c32", "/usr/lib/syslinux/modules/bios/poweroff.c32"]),
    ("ipxe-arm64.efi", &["ipxe-arm64.efi", "ipxe-arm64/ipxe.efi"]),
    ("snponly-arm64.efi", &["snponly-arm64.efi", "ipxe-arm64/snponly.efi"]),
];
/// Loaders without which common machines cannot boot.
const NEEDED: [&str; 2] = ["undionly.kpxe", "snponly.efi"];
/// The loader that x86-64 UEFI is given if the chosen one is not installed.
const FALLBACK: BootLoader = BootLoader::Unspecified;
/// The largest loader, in bytes; a larger file is not a loader.
const MAX_BYTES: u64 = 64 << 20;

/// The loader for x86-64 UEFI by choice: its name, the files that must be installed for it, and their packages.
const fn choice(loader: BootLoader) -> (&'static str, &'static [&'static str], &'static str) {
    match loader {
        BootLoader::Unspecified => ("snponly.efi", &["snponly.efi"], "`ipxe`"),
        BootLoader::ShimGrub => {
            ("shimx64.efi", &["shimx64.efi", "grubx64.efi"], "`shim-signed` and `grub-efi-amd64-signed`")
        }
    }
}

/// Like [`choice`], for any firmware.
const fn started(
    firmware: Firmware,
    loader: BootLoader,
) -> (&'static str, &'static [&'static str], &'static str) {
    match firmware {
        Firmware::Bios => ("undionly.kpxe", &["undionly.kpxe"], "`ipxe`"),
        Firmware::EfiX64 => choice(loader),
        Firmware::EfiArm64 => ("snponly-arm64.efi", &["snponly-arm64.efi"], "`ipxe`"),
    }
}

/// The firmware types that must have a loader: those of these architectures. An empty list stands for all, but then
/// only the loaders for x86-64 must be there.
fn boots(architectures: &[String]) -> Vec<Firmware> {
    match architectures {
        [] => vec![Firmware::Bios, Firmware::EfiX64],
        some => some.iter().flat_map(|it| firmware(it)).copied().collect(),
    }
}

/// The loader names that DHCP sends for a choice.
#[must_use]
pub fn named(loader: BootLoader) -> basalt_dhcp::Loaders {
    basalt_dhcp::Loaders { efi_x64: choice(loader).0.to_owned(), ..basalt_dhcp::Loaders::default() }
}

/// How the clients of a subnet get their addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Ipv4,
    Ipv6,
    BesideAnother,
}

/// The installed loaders.
#[derive(Debug, Clone)]
pub struct Loaders {
    dir: PathBuf,
    /// The root directory for absolute paths in the table. Tests use another one.
    root: PathBuf,
}

impl Loaders {
    /// Loaders in this directory.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), root: PathBuf::from("/") }
    }

    /// The file of a loader; `None` for an unknown name, or if it is not installed. A leading slash in the name is
    /// ignored.
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

    /// The needed loaders that are not installed.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        NEEDED.into_iter().filter(|name| self.path(name).is_none()).collect()
    }

    /// True if all files of a choice are installed.
    fn has(&self, loader: BootLoader) -> bool {
        choice(loader).1.iter().all(|name| self.path(name).is_some())
    }

    /// The reason why iPXE is named instead of the choice.
    fn replaced(&self, loader: BootLoader, beside_another: bool) -> Option<String> {
        if loader == FALLBACK || !self.has(FALLBACK) {
            return None;
        }
        if beside_another {
            return Some("GRUB asks the server that gave the address for its files".to_owned());
        }
        let missing = self.missing_of(Firmware::EfiX64, loader);
        let are = if missing.len() > 1 { "are" } else { "is" };
        (!missing.is_empty()).then(|| format!("{} {are} not installed on this rack", missing.join(" and ")))
    }

    /// Makes DHCP name iPXE instead of a choice that is not installed or would not find this rack. With Secure Boot a
    /// machine refuses iPXE; other machines boot.
    pub(crate) fn replace_absent(&self, loader: BootLoader, boot: &mut Boot) {
        if let Some(reason) = self.replaced(loader, boot.mode == BootMode::Proxy) {
            boot.loaders = named(FALLBACK);
            boot.replaced = Some(reason);
        }
    }

    /// The loaders that machines need and that are not installed, as text with the remedy.
    #[must_use]
    pub fn lacking(&self, concern: &DhcpConcern) -> Option<String> {
        let none = BootAnswers::None;
        let v4 = concern.subnets.iter().filter(|it| it.boot() != none);
        let v4 = v4.map(|it| {
            let place = if it.boot() == BootAnswers::Proxy { Place::BesideAnother } else { Place::Ipv4 };
            (&it.cidr, &it.architectures, it.loader(), place)
        });
        let v6 = concern.subnets6.iter().filter(|it| it.boot() != none);
        let v6 = v6.map(|it| (&it.cidr, &it.architectures, it.loader(), Place::Ipv6));
        let mut absent: BTreeMap<(Firmware, BootLoader, bool), Vec<&str>> = BTreeMap::new();
        for (cidr, architectures, loader, place) in v4.chain(v6) {
            for firmware in
                boots(architectures).into_iter().filter(|it| *it != Firmware::Bios || place != Place::Ipv6)
            {
                let beside_another =
                    place == Place::BesideAnother && firmware == Firmware::EfiX64 && loader != FALLBACK;
                if beside_another || !self.missing_of(firmware, loader).is_empty() {
                    absent.entry((firmware, loader, beside_another)).or_default().push(cidr);
                }
            }
        }
        let sentences = absent.iter().map(|(of, cidrs)| self.sentence(*of, cidrs));
        Some(sentences.collect::<Vec<_>>().join("; ")).filter(|text| !text.is_empty())
    }

    fn missing_of(&self, firmware: Firmware, loader: BootLoader) -> Vec<&'static str> {
        let (_, files, _) = started(firmware, loader);
        files.iter().copied().filter(|name| self.path(name).is_none()).collect()
    }

    fn sentence(
        &self,
        (firmware, loader, beside_another): (Firmware, BootLoader, bool),
        cidrs: &[&str],
    ) -> String {
        let (name, _, packages) = started(firmware, loader);
        let missing = self.missing_of(firmware, loader);
        let are = if missing.len() > 1 { "are" } else { "is" };
        let (why, what_to_do) = match beside_another {
            true => (
                "another DHCP server gives the addresses, whom GRUB asks for its files".to_owned(),
                match self.has(FALLBACK) {
                    true => "choose ipxe there, or have this rack give the addresses".to_owned(),
                    false => "choose ipxe there, and install `ipxe`, or have this rack give the addresses"
                        .to_owned(),
                },
            ),
            false => (
                format!("{} {are} not installed in {}", missing.join(" and "), self.dir.display()),
                format!("install {packages}"),
            ),
        };
        let instead = match firmware == Firmware::EfiX64 && self.replaced(loader, beside_another).is_some() {
            true => format!("it is told to boot {}, which Secure Boot refuses", choice(FALLBACK).0),
            false => "it cannot boot from the network".to_owned(),
        };
        let (of, cidrs) = (firmware, cidrs.join(" and "));
        format!("{of} of {cidrs} is to boot {name}, and {why}: {instead}; {what_to_do}")
    }

    /// The directory of the loaders.
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
            (boot.loaders.efi_x64, boot.replaced)
        };
        let install = |name: &str| std::fs::write(dir.path().join(name), b"loader").unwrap();
        let lacking = || loaders.lacking(&concern).unwrap();
        assert_eq!(named(), ("shimx64.efi".to_owned(), None), "nothing is there that could be named");
        assert!(lacking().contains("shimx64.efi and grubx64.efi are not installed"), "{}", lacking());
        assert!(
            lacking().contains("it cannot boot from the network; install `shim-signed`"),
            "{}",
            lacking()
        );
        install("snponly.efi");
        install("shimx64.efi");
        assert_eq!(
            named(),
            ("snponly.efi".to_owned(), Some("grubx64.efi is not installed on this rack".to_owned()))
        );
        assert!(
            lacking().starts_with("x86 BIOS of 10.77.0.0/24 is to boot undionly.kpxe, and"),
            "{}",
            lacking()
        );
        install("undionly.kpxe");
        let of_uefi = "x86-64 UEFI of 10.77.0.0/24 is to boot shimx64.efi, and grubx64.efi is not installed";
        assert!(lacking().starts_with(of_uefi), "{}", lacking());
        assert!(lacking().contains("it is told to boot snponly.efi"), "{}", lacking());
        let signed = dir.path().join("usr/lib/grub/x86_64-efi-signed");
        std::fs::create_dir_all(&signed).unwrap();
        std::fs::write(signed.join("grubnetx64.efi.signed"), b"GRUB").unwrap();
        assert_eq!((named(), loaders.lacking(&concern)), (("shimx64.efi".to_owned(), None), None));

        let mut beside = concern.clone();
        beside.subnets[0].set_boot(BootAnswers::Proxy);
        let lacking = loaders.lacking(&beside).unwrap();
        assert!(lacking.contains("another DHCP server gives the addresses"), "{lacking}");
        let mut boot =
            Boot { mode: BootMode::Proxy, loaders: super::named(BootLoader::ShimGrub), ..Boot::default() };
        loaders.replace_absent(BootLoader::ShimGrub, &mut boot);
        assert_eq!(boot.loaders.efi_x64, "snponly.efi");
    }

    #[test]
    fn what_no_machine_is_to_boot_is_not_missed() {
        let loaders = Loaders { dir: "/nowhere".into(), root: "/nowhere".into() };
        let lacking =
            |subnet| loaders.lacking(&DhcpConcern { subnets: vec![subnet], ..DhcpConcern::default() });
        let subnet = |boot: BootAnswers, architectures: &[&str]| basalt_proto::rack_v1::DhcpSubnet {
            boot: boot.into(),
            architectures: architectures.iter().map(ToString::to_string).collect(),
            ..Default::default()
        };
        assert_eq!(lacking(subnet(BootAnswers::None, &[])), None);
        let of_arm = lacking(subnet(BootAnswers::Unspecified, &["arm64"])).unwrap();
        assert!(of_arm.starts_with("arm64 UEFI") && !of_arm.contains("BIOS"), "{of_arm}");
    }
}
