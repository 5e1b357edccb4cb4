//! The iPXE scripts, rendered from data alone.
//!
//! `exit 1` hands a UEFI machine on to its next boot entry; plain `exit` lands in the firmware's menu. On BIOS the disk is
//! booted by iPXE itself. Scripts contain no name or option that iPXE would interpret:
//! [`boot::check`](crate::boot::check) refuses those.

use std::net::SocketAddr;

use basalt_dhcp::Mac;
use basalt_proto::rack_v1::EphemeralBoot;

/// What to render.
#[derive(Debug)]
pub enum Script<'a> {
    /// Kernel and initrd with a task waiting.
    Ephemeral {
        /// What to boot.
        boot: &'a EphemeralBoot,
        /// The boot token.
        token: &'a str,
    },
    /// The disk.
    Local {
        /// Why, in words that follow the machine's name.
        why: &'a str,
    },
    /// Nothing.
    PowerOff,
}

/// Where the script is rendered for.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The machine's name, or its MAC when it has none.
    pub name: &'a str,
    /// The interface that boots.
    pub mac: Mac,
    /// This rack, as the machine reached it.
    pub rack: SocketAddr,
    /// SHA-256 of the public key of the rack's agent endpoint, hexadecimal.
    pub spki: &'a str,
}

/// Renders a script.
#[must_use]
pub fn render(scene: Scene<'_>, script: &Script<'_>) -> String {
    let Scene { mac, rack, spki, .. } = scene;
    let name: String =
        scene.name.chars().filter(|it| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | ':')).collect();
    match script {
        Script::Ephemeral { boot, token } => {
            let EphemeralBoot {
                attempt, kernel_sha256, initrd_sha256, squashfs_sha256, kernel_options, ..
            } = boot;
            let dashed = mac.to_string().replace(':', "-");
            let options =
                if kernel_options.is_empty() { String::new() } else { format!(" {kernel_options}") };
            format!(
                "#!ipxe\n\
                 echo Basalt: {name} boots attempt {attempt}\n\
                 kernel http://{rack}/blobs/{kernel_sha256} initrd=initrd basalt.url=https://{rack} basalt.token={token} \
                 basalt.spki={spki} basalt.root=sha256:{squashfs_sha256} BOOTIF=01-{dashed} console=tty0 console=ttyS0{options} || goto again\n\
                 initrd --name initrd http://{rack}/blobs/{initrd_sha256} || goto again\n\
                 boot || goto again\n\
                 :again\n\
                 echo Basalt: {name} could not load its image from {rack}; asking again in 10 seconds\n\
                 imgfree\n\
                 sleep 10\n\
                 dhcp netX || reboot\n\
                 chain --replace --autofree http://{rack}/ipxe?mac={mac} || reboot\n"
            )
        }
        Script::Local { why } => format!(
            "#!ipxe\n\
             echo Basalt: {name} {why}\n\
             iseq ${{platform}} efi && goto efi || goto bios\n\
             :efi\n\
             exit 1\n\
             :bios\n\
             sanboot --no-describe --drive 0x80 || exit 1\n"
        ),
        Script::PowerOff => format!(
            "#!ipxe\n\
             echo Basalt: {name} is to be off\n\
             poweroff || echo Basalt: this iPXE cannot power off; waiting for the BMC\n\
             sleep 300\n\
             reboot\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::Why;
    use crate::boot::fixtures::{ephemeral as boot, mac};

    fn scene() -> Scene<'static> {
        Scene { name: "m1", mac: mac(1), rack: "10.77.0.1:5248".parse().unwrap(), spki: "5p" }
    }

    #[test]
    fn ephemeral() {
        let mut boot = boot(17);
        boot.kernel_options = "quiet basalt.debug".into();
        insta::assert_snapshot!(render(scene(), &Script::Ephemeral { boot: &boot, token: "TOKEN" }), @r#"
        #!ipxe
        echo Basalt: m1 boots attempt 17
        kernel http://10.77.0.1:5248/blobs/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa initrd=initrd basalt.url=https://10.77.0.1:5248 basalt.token=TOKEN basalt.spki=5p basalt.root=sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc BOOTIF=01-52-54-00-00-00-01 console=tty0 console=ttyS0 quiet basalt.debug || goto again
        initrd --name initrd http://10.77.0.1:5248/blobs/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb || goto again
        boot || goto again
        :again
        echo Basalt: m1 could not load its image from 10.77.0.1:5248; asking again in 10 seconds
        imgfree
        sleep 10
        dhcp netX || reboot
        chain --replace --autofree http://10.77.0.1:5248/ipxe?mac=52:54:00:00:00:01 || reboot
        "#);
    }

    #[test]
    fn local() {
        insta::assert_snapshot!(render(scene(), &Script::Local { why: Why::Declared.words() }), @r#"
        #!ipxe
        echo Basalt: m1 boots its disk
        iseq ${platform} efi && goto efi || goto bios
        :efi
        exit 1
        :bios
        sanboot --no-describe --drive 0x80 || exit 1
        "#);
    }

    #[test]
    fn unknown_machines_are_named_by_their_mac() {
        let name = mac(9).to_string();
        let scene = Scene { name: &name, mac: mac(9), ..scene() };
        insta::assert_snapshot!(render(scene, &Script::Local { why: Why::Unknown.words() }), @r#"
        #!ipxe
        echo Basalt: 52:54:00:00:00:09 is unknown and boots its disk
        iseq ${platform} efi && goto efi || goto bios
        :efi
        exit 1
        :bios
        sanboot --no-describe --drive 0x80 || exit 1
        "#);
    }

    #[test]
    fn power_off() {
        insta::assert_snapshot!(render(scene(), &Script::PowerOff), @r#"
        #!ipxe
        echo Basalt: m1 is to be off
        poweroff || echo Basalt: this iPXE cannot power off; waiting for the BMC
        sleep 300
        reboot
        "#);
    }

    #[test]
    fn a_name_cannot_add_commands() {
        let scene = Scene { name: "x\nshell ${net0/mac} || reboot", ..scene() };
        let script = render(scene, &Script::PowerOff);
        assert_eq!(script.lines().nth(1), Some("echo Basalt: xshellnet0macreboot is to be off"));
    }
}
