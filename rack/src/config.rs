//! The configuration files that GRUB and PXELINUX request.
//!
//! | boot loader | request |
//! | --- | --- |
//! | GRUB, signed | `grub.cfg` in `/grub`, or in `/debian-installer/amd64/grub` if signed for installation; it loads the next one |
//! | GRUB | `grub.cfg-01-aa-bb-…` in the same directory, or the same name with colons |
//! | PXELINUX | `pxelinux.cfg/01-aa-bb-…`, after a file by the machine's UUID, which does not exist |

use basalt_dhcp::Mac;

use crate::script::Language;

/// The directories where signed GRUBs look.
const GRUB_DIRS: [&str; 2] = ["grub/", "debian-installer/amd64/grub/"];

/// `grub.cfg`, the same for all machines: it makes GRUB request the file for the MAC that it booted from.
pub const GRUB: &str = "source $prefix/grub.cfg-$net_default_mac\n";

/// The content of such a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Config {
    /// The text [`GRUB`].
    Grub,
    /// The script for the machine with this MAC.
    Script(Language, Mac),
}

/// The file with this path. A slash at its beginning is ignored.
#[must_use]
pub fn named(path: &str) -> Option<Config> {
    let path = path.strip_prefix('/').unwrap_or(path);
    if let Some(name) = path.strip_prefix("pxelinux.cfg/") {
        return Some(Config::Script(Language::Pxelinux, mac(name)?));
    }
    let name = GRUB_DIRS.iter().find_map(|dir| path.strip_prefix(dir))?.strip_prefix("grub.cfg")?;
    match name {
        "" => Some(Config::Grub),
        name => Some(Config::Script(Language::Grub, mac(name.strip_prefix('-')?)?)),
    }
}

/// Reads `01-aa-bb-…`, where 01 is the Ethernet hardware type, or `aa:bb:…`.
fn mac(name: &str) -> Option<Mac> {
    match name.strip_prefix("01-") {
        Some(dashed) => dashed.replace('-', ":").parse().ok(),
        None => name.contains(':').then(|| name.parse().ok())?,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_that_loaders_ask_for() {
        let script = |language| Some(Config::Script(language, Mac([0x52, 0x54, 0, 0, 0, 0xab])));
        for (path, expected) in [
            ("grub/grub.cfg", Some(Config::Grub)),
            ("/debian-installer/amd64/grub/grub.cfg", Some(Config::Grub)),
            ("/grub/grub.cfg-01-52-54-00-00-00-ab", script(Language::Grub)),
            ("debian-installer/amd64/grub/grub.cfg-52:54:00:00:00:ab", script(Language::Grub)),
            ("pxelinux.cfg/01-52-54-00-00-00-ab", script(Language::Pxelinux)),
            ("grub/x86_64-efi/grub.cfg", None),
            ("grub/grub.cfg-01-52-54", None),
            ("grub/grub.cfg-", None),
            ("grub.cfg", None),
            ("pxelinux.cfg/default", None),
            ("pxelinux.cfg/0A4D0032", None),
            ("undionly.kpxe", None),
        ] {
            assert_eq!(named(path), expected, "{path}");
        }
    }
}
