//! Scripts for boot loaders, rendered from one description in three languages.
//!
//! `exit 1` makes a UEFI machine go on to its next boot entry; plain `exit` opens the firmware's menu. On BIOS, iPXE
//! itself boots the disk. Scripts contain no name or option that iPXE would interpret: [`render`] removes
//! such characters from names, and [`boot::check_ephemeral`](crate::boot::check_ephemeral) refuses such options. For
//! GRUB each word is quoted. PXELINUX interprets nothing in its lines.

use std::net::SocketAddr;

use basalt_dhcp::Mac;
use basalt_proto::rack_v1::EphemeralBoot;

/// The action that a script carries out.
#[derive(Debug)]
pub enum Script<'a> {
    /// Boots a kernel and an initrd for an attempt.
    Ephemeral {
        /// The images and options to boot.
        boot: &'a EphemeralBoot,
        /// The boot token for the kernel's command line.
        token: &'a str,
    },
    /// Boots the disk.
    Local {
        /// The reason, as text that follows the machine's name.
        why: &'a str,
    },
    /// Waits a few seconds and requests the script again.
    Wait,
    /// Turns the machine off.
    PowerOff,
}

/// The machine and the rack that a script is for.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The machine's name, or its MAC when it has none.
    pub name: &'a str,
    /// The hardware address of the interface that boots.
    pub mac: Mac,
    /// This rack's address, as the machine reached it.
    pub rack: SocketAddr,
    /// SHA-256 of the public key of the rack's agent endpoint, hexadecimal.
    pub spki: &'a str,
}

/// The language of a script, by boot loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// iPXE scripts, plain text from `#!ipxe` on.
    Ipxe,
    /// GRUB 2, as in the signed network images of distributions.
    Grub,
    /// PXELINUX with HTTP: `lpxelinux.0`.
    Pxelinux,
}

impl Language {
    /// The name of the boot loader, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipxe => "iPXE",
            Self::Grub => "GRUB",
            Self::Pxelinux => "PXELINUX",
        }
    }
}

/// Renders a script.
#[must_use]
pub fn render(language: Language, scene: Scene<'_>, script: &Script<'_>) -> String {
    let keep = |it: &char| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | ':');
    let name: String = scene.name.chars().filter(keep).collect();
    match language {
        Language::Ipxe => ipxe(&name, scene, script),
        Language::Grub => grub(&name, scene, script),
        Language::Pxelinux => pxelinux(&name, scene, script),
    }
}

/// The kernel's command line.
fn command_line(scene: Scene<'_>, boot: &EphemeralBoot, token: &str) -> String {
    let Scene { mac, rack, spki, .. } = scene;
    let EphemeralBoot { squashfs_sha256, kernel_options, .. } = boot;
    let dashed = mac.to_string().replace(':', "-");
    let consoles: String = CONSOLES
        .iter()
        .filter(|device| !names_console(kernel_options, device))
        .map(|device| format!(" console={device}"))
        .collect();
    let options = if kernel_options.is_empty() { String::new() } else { format!(" {kernel_options}") };
    format!(
        "basalt.url=https://{rack} basalt.token={token} basalt.spki={spki} basalt.root=sha256:{squashfs_sha256} \
         BOOTIF=01-{dashed}{consoles}{options}"
    )
}

/// The consoles of every machine. The last one becomes `/dev/console`.
const CONSOLES: [&str; 2] = ["tty0", "ttyS0"];

/// True if the options name a console on this device, at any speed.
fn names_console(options: &str, device: &str) -> bool {
    let consoles = options.split_ascii_whitespace().filter_map(|word| word.strip_prefix("console="));
    consoles.map(|console| console.split(',').next().unwrap_or(console)).any(|named| named == device)
}

fn ipxe(name: &str, scene: Scene<'_>, script: &Script<'_>) -> String {
    let Scene { mac, rack, .. } = scene;
    match script {
        Script::Ephemeral { boot, token } => {
            let EphemeralBoot { attempt, kernel_sha256, initrd_sha256, .. } = boot;
            let command_line = command_line(scene, boot, token);
            format!(
                "#!ipxe\n\
                 echo Basalt: {name} boots attempt {attempt}\n\
                 kernel http://{rack}/blobs/{kernel_sha256} initrd=initrd {command_line} || goto again\n\
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
        Script::Wait => format!(
            "#!ipxe\n\
             echo Basalt: {name} waits for its turn; asking again in 10 seconds\n\
             sleep 10\n\
             dhcp netX || reboot\n\
             chain --replace --autofree http://{rack}/ipxe?mac={mac} || reboot\n"
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

/// The EFI programs that start an installed system: those of distributions, then the default path.
const GRUB_STARTS: &str = "/EFI/debian/shimx64.efi /EFI/ubuntu/shimx64.efi /EFI/BOOT/BOOTX64.EFI";

/// Commands without a menu, since GRUB runs them as it reads them. Debian's signed GRUB has no HTTP; Ubuntu's has.
fn grub(name: &str, scene: Scene<'_>, script: &Script<'_>) -> String {
    let rack = scene.rack;
    match script {
        Script::Ephemeral { boot, token } => {
            let EphemeralBoot { attempt, kernel_sha256, initrd_sha256, .. } = boot;
            let command_line: Vec<String> =
                command_line(scene, boot, token).split_whitespace().map(grub_word).collect();
            format!(
                "echo 'Basalt: {name} boots attempt {attempt}'\n\
                 for from in '(http,{rack})' '(tftp,{})'; do\n\
                 if linux $from/blobs/{kernel_sha256} {}; then\n\
                 if initrd $from/blobs/{initrd_sha256}; then\n\
                 boot\n\
                 fi\n\
                 fi\n\
                 done\n\
                 echo 'Basalt: {name} could not load its image from {rack}; starting again in 10 seconds'\n\
                 sleep 10\n\
                 reboot\n",
                rack.ip(),
                command_line.join(" ")
            )
        }
        // Some GRUBs do not pass control back to the firmware when they exit. So the script looks for an EFI program on
        // the disk itself.
        Script::Local { why } => format!(
            "echo 'Basalt: {name} {why}'\n\
             for file in {GRUB_STARTS}; do\n\
             if search --no-floppy --set=root --file $file; then\n\
             if chainloader ($root)$file; then\n\
             boot\n\
             fi\n\
             fi\n\
             done\n\
             exit 1\n"
        ),
        Script::Wait => format!(
            "echo 'Basalt: {name} waits for its turn; starting again in 10 seconds'\nsleep 10\nreboot\n"
        ),
        Script::PowerOff => format!("echo 'Basalt: {name} is to be off'\nhalt\n"),
    }
}

/// Quotes a word so that GRUB takes it literally.
fn grub_word(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn pxelinux(name: &str, scene: Scene<'_>, script: &Script<'_>) -> String {
    let rack = scene.rack;
    let (says, does) = match script {
        Script::Ephemeral { boot, token } => {
            let EphemeralBoot { attempt, kernel_sha256, initrd_sha256, .. } = boot;
            let does = format!(
                "KERNEL http://{rack}/blobs/{kernel_sha256}\n\
                 INITRD http://{rack}/blobs/{initrd_sha256}\n\
                 APPEND {}\n",
                command_line(scene, boot, token)
            );
            (format!("boots attempt {attempt}"), does)
        }
        // -1: the next boot device of the firmware.
        Script::Local { why } => ((*why).to_owned(), "LOCALBOOT -1\n".to_owned()),
        // PXELINUX cannot wait and request the file again.
        Script::Wait => ("boots its disk".to_owned(), "LOCALBOOT -1\n".to_owned()),
        Script::PowerOff => ("is to be off".to_owned(), "COM32 poweroff.c32\n".to_owned()),
    };
    format!("SAY Basalt: {name} {says}\nDEFAULT basalt\nPROMPT 0\nTIMEOUT 0\nLABEL basalt\n{does}")
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
        insta::assert_snapshot!(render(Language::Ipxe, scene(), &Script::Ephemeral { boot: &boot, token: "TOKEN" }), @r#"
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
    fn a_console_that_the_options_name_is_named_by_them_alone() {
        let consoles = |options: &str| {
            let boot = EphemeralBoot { kernel_options: options.into(), ..boot(17) };
            let line = command_line(scene(), &boot, "TOKEN");
            let consoles = line.split(' ').filter(|word| word.starts_with("console=")).map(str::to_owned);
            consoles.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(consoles("quiet"), "console=tty0 console=ttyS0");
        assert_eq!(consoles("console=ttyS0"), "console=tty0 console=ttyS0");
        assert_eq!(consoles("console=ttyS0,115200n8 quiet"), "console=tty0 console=ttyS0,115200n8");
        assert_eq!(consoles("console=ttyS1"), "console=tty0 console=ttyS0 console=ttyS1");
    }

    #[test]
    fn local() {
        insta::assert_snapshot!(render(Language::Ipxe, scene(), &Script::Local { why: Why::Declared.words() }), @r#"
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
        insta::assert_snapshot!(render(Language::Ipxe, scene, &Script::Local { why: Why::Unknown.words() }), @r#"
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
        insta::assert_snapshot!(render(Language::Ipxe, scene(), &Script::PowerOff), @r#"
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
        let script = render(Language::Ipxe, scene, &Script::PowerOff);
        assert_eq!(script.lines().nth(1), Some("echo Basalt: xshellnet0macreboot is to be off"));
    }

    #[test]
    fn grub_and_pxelinux_read_the_same() {
        let boot = EphemeralBoot { kernel_options: "quiet a='b;c'".into(), ..boot(17) };
        let scripts = [
            Script::Ephemeral { boot: &boot, token: "TOKEN" },
            Script::Local { why: Why::Declared.words() },
            Script::Wait,
            Script::PowerOff,
        ];
        let rendered =
            |language| scripts.iter().map(|it| render(language, scene(), it)).collect::<Vec<_>>().join("\n");
        insta::assert_snapshot!(rendered(Language::Grub), @r#"
        echo 'Basalt: m1 boots attempt 17'
        for from in '(http,10.77.0.1:5248)' '(tftp,10.77.0.1)'; do
        if linux $from/blobs/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 'basalt.url=https://10.77.0.1:5248' 'basalt.token=TOKEN' 'basalt.spki=5p' 'basalt.root=sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc' 'BOOTIF=01-52-54-00-00-00-01' 'console=tty0' 'console=ttyS0' 'quiet' 'a='\''b;c'\'''; then
        if initrd $from/blobs/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb; then
        boot
        fi
        fi
        done
        echo 'Basalt: m1 could not load its image from 10.77.0.1:5248; starting again in 10 seconds'
        sleep 10
        reboot

        echo 'Basalt: m1 boots its disk'
        for file in /EFI/debian/shimx64.efi /EFI/ubuntu/shimx64.efi /EFI/BOOT/BOOTX64.EFI; do
        if search --no-floppy --set=root --file $file; then
        if chainloader ($root)$file; then
        boot
        fi
        fi
        done
        exit 1

        echo 'Basalt: m1 waits for its turn; starting again in 10 seconds'
        sleep 10
        reboot

        echo 'Basalt: m1 is to be off'
        halt
        "#);
        insta::assert_snapshot!(rendered(Language::Pxelinux), @r#"
        SAY Basalt: m1 boots attempt 17
        DEFAULT basalt
        PROMPT 0
        TIMEOUT 0
        LABEL basalt
        KERNEL http://10.77.0.1:5248/blobs/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
        INITRD http://10.77.0.1:5248/blobs/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
        APPEND basalt.url=https://10.77.0.1:5248 basalt.token=TOKEN basalt.spki=5p basalt.root=sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc BOOTIF=01-52-54-00-00-00-01 console=tty0 console=ttyS0 quiet a='b;c'

        SAY Basalt: m1 boots its disk
        DEFAULT basalt
        PROMPT 0
        TIMEOUT 0
        LABEL basalt
        LOCALBOOT -1

        SAY Basalt: m1 boots its disk
        DEFAULT basalt
        PROMPT 0
        TIMEOUT 0
        LABEL basalt
        LOCALBOOT -1

        SAY Basalt: m1 is to be off
        DEFAULT basalt
        PROMPT 0
        TIMEOUT 0
        LABEL basalt
        COM32 poweroff.c32
        "#);
    }
}
