//! GRUB's menu: the first one, and the settings with which the system's own `update-grub` makes later ones.
//!
//! The first menu is written here. `grub-mkconfig` would take ten times as long as all other work on the boot loader, to find facts that
//! are already known: one system on one file system.

use std::fs;
use std::path::Path;

use basalt_api::agent::FailureCode;

use crate::failure::Failure;
use crate::storage::Boot;

/// Kernel options and console of the new system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Menu {
    options: Vec<String>,
    serial: Option<Serial>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Serial {
    unit: String,
    speed: String,
}

impl Menu {
    /// The system gets the consoles of its installer, unless its options name others.
    pub(super) fn new(kernel_options: &str, consoles: &[String]) -> Self {
        let mut options: Vec<String> = kernel_options.split_ascii_whitespace().map(str::to_owned).collect();
        if !options.iter().any(|word| word.starts_with("console=")) {
            options.splice(0..0, consoles.iter().cloned());
        }
        let serial = options.iter().rev().find_map(|word| {
            let port = word.strip_prefix("console=ttyS")?;
            let (unit, mode) = port.split_once(',').unwrap_or((port, "115200"));
            let speed = mode.chars().take_while(char::is_ascii_digit).collect();
            unit.bytes().all(|byte| byte.is_ascii_digit()).then(|| Serial { unit: unit.to_owned(), speed })
        });
        Self { options, serial }
    }

    /// `/etc/default/grub.d/50-basalt.cfg`, which a shell reads.
    pub(super) fn defaults(&self) -> String {
        let mut text = format!(
            "GRUB_CMDLINE_LINUX_DEFAULT=\nGRUB_CMDLINE_LINUX={}\nGRUB_TIMEOUT=1\nGRUB_DISABLE_OS_PROBER=true\n",
            quoted(&self.options.join(" "))
        );
        if let Some(Serial { unit, speed }) = &self.serial {
            text.push_str(&format!(
                "GRUB_TERMINAL=\"console serial\"\nGRUB_SERIAL_COMMAND='serial --unit={unit} --speed={speed}'\n"
            ));
        }
        text
    }

    /// Writes `/boot/grub/grub.cfg` for the newest kernel in `target`.
    ///
    /// # Errors
    /// The image has no kernel, or the file cannot be written.
    pub(super) fn write(&self, target: &Path, how: &Boot) -> Result<(), Failure> {
        let boot = target.join("boot");
        let names: Vec<String> = fs::read_dir(&boot)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        let text = self.render(&names, how).ok_or_else(|| {
            Failure::new(
                FailureCode::BadImage,
                "the image has no kernel in /boot (package linux-image-amd64)",
            )
        })?;
        fs::create_dir_all(boot.join("grub"))
            .and_then(|()| fs::write(boot.join("grub/grub.cfg"), text))
            .map_err(Failure::disk("writing /boot/grub/grub.cfg"))
    }

    fn render(&self, boot: &[String], how: &Boot) -> Option<String> {
        let versions = boot.iter().filter_map(|name| name.strip_prefix("vmlinuz-"));
        let version = versions.max_by_key(|version| natural(version))?;
        let Boot { root, uuid, prefix, .. } = how;
        let mut options = vec![format!("root={root}"), "ro".to_owned()];
        options.extend(self.options.iter().map(|word| quoted(word)));
        let terminal = self.serial.as_ref().map_or_else(String::new, |Serial { unit, speed }| {
            format!(
                "serial --unit={unit} --speed={speed}\nterminal_input console serial\nterminal_output console serial\n"
            )
        });
        let initrds = [format!("initrd.img-{version}"), format!("initramfs-{version}.img")];
        let initrd = initrds.iter().find(|name| boot.contains(name));
        let initrd = initrd.map_or_else(String::new, |name| format!("  initrd {prefix}/{name}\n"));
        Some(format!(
            "# Written at installation; update-grub replaces it.\nset default=0\nset timeout=1\n{terminal}\
             search --no-floppy --fs-uuid --set=root {uuid}\n\
             menuentry 'Linux {version}' {{\n  linux {prefix}/vmlinuz-{version} {}\n{initrd}}}\n",
            options.join(" ")
        ))
    }
}

/// Sort key for versions: numbers are compared by value.
fn natural(version: &str) -> Vec<(u64, String)> {
    let parts = version.split(|c: char| !c.is_ascii_alphanumeric());
    parts
        .map(|part| part.parse().map_or_else(|_| (0, part.to_owned()), |number| (number, String::new())))
        .collect()
}

/// Quotes a word for a shell and for GRUB, which have the same rules.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consoles() -> Vec<String> {
        ["console=tty0", "console=ttyS1,57600n8"].map(str::to_owned).to_vec()
    }

    fn boot(root: &str, prefix: &'static str) -> Boot {
        Boot { root: root.to_owned(), uuid: "U".to_owned(), prefix, ..Boot::default() }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn boots_the_newest_kernel_with_its_initrd() {
        let boot =
            names(&["vmlinuz-6.1.0-9-amd64", "vmlinuz-6.1.0-10-amd64", "initrd.img-6.1.0-10-amd64", "grub"]);
        let text = Menu::new("quiet", &consoles()).render(&boot, &self::boot("UUID=U", "/boot")).unwrap();
        insta::assert_snapshot!(text, @r"
        # Written at installation; update-grub replaces it.
        set default=0
        set timeout=1
        serial --unit=1 --speed=57600
        terminal_input console serial
        terminal_output console serial
        search --no-floppy --fs-uuid --set=root U
        menuentry 'Linux 6.1.0-10-amd64' {
          linux /boot/vmlinuz-6.1.0-10-amd64 root=UUID=U ro 'console=tty0' 'console=ttyS1,57600n8' 'quiet'
          initrd /boot/initrd.img-6.1.0-10-amd64
        }
        ");
    }

    #[test]
    fn kernels_on_a_file_system_of_their_own_are_at_its_root() {
        let boot = names(&["vmlinuz-6.1", "initrd.img-6.1"]);
        let text = Menu::new("", &[]).render(&boot, &self::boot("/dev/mapper/vg-root", "")).unwrap();
        assert!(
            text.contains("linux /vmlinuz-6.1 root=/dev/mapper/vg-root ro\n  initrd /initrd.img-6.1\n"),
            "{text}"
        );
    }

    #[test]
    fn an_image_without_a_kernel_has_no_menu() {
        assert_eq!(
            Menu::new("", &[]).render(&names(&["grub", "initrd.img-1"]), &boot("UUID=U", "/boot")),
            None
        );
    }

    #[test]
    fn the_system_has_the_consoles_of_its_installer() {
        let defaults = Menu::new("quiet", &consoles()).defaults();
        assert!(
            defaults.contains("GRUB_CMDLINE_LINUX='console=tty0 console=ttyS1,57600n8 quiet'"),
            "{defaults}"
        );
        assert!(defaults.contains("'serial --unit=1 --speed=57600'"), "{defaults}");
    }

    #[test]
    fn options_that_name_a_console_replace_them_and_cannot_break_out_of_their_quotes() {
        let defaults = Menu::new("console=tty1 a='b", &consoles()).defaults();
        assert!(defaults.contains(r"GRUB_CMDLINE_LINUX='console=tty1 a='\''b'"), "{defaults}");
        assert!(!defaults.contains("SERIAL"), "{defaults}");
    }

    #[test]
    fn a_port_that_is_no_number_is_no_serial_port() {
        assert_eq!(Menu::new("console=ttyS0;reboot", &[]).serial, None);
    }
}
