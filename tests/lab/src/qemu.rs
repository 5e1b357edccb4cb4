//! A machine's QEMU command line.
//!
//! Three options are missing on purpose: `-kernel`, `-cdrom`, and any `bootindex`. With a boot index, OVMF rewrites its own
//! boot entries at each start and loses the entry of an installer.

use std::path::Path;

use crate::machine::{BootOrder, Firmware};
use crate::program::BmcProgramConfig;
use crate::vars::{DISK_SLOT, NIC_SLOT};

/// Name of the emulator's program.
pub(crate) const QEMU: &str = "qemu-system-x86_64";
const OVMF_CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
/// Fresh UEFI variables; each machine has a copy of its own.
pub(crate) const OVMF_VARS: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";

/// The boot order of a BIOS machine; a UEFI machine has its order in its variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BiosBoot {
    /// The order at every boot of this power-on.
    pub(crate) order: BootOrder,
    /// Another order for the first boot.
    pub(crate) once: Option<BootOrder>,
}

/// SeaBIOS's letters: `c` is the disk, `n` the network.
fn letters(order: BootOrder) -> &'static str {
    match order {
        BootOrder::DiskFirst => "cn",
        BootOrder::NetworkFirst => "nc",
    }
}

/// The whole command line, QEMU's name first.
pub(crate) fn command_line(config: &BmcProgramConfig, boot: BiosBoot) -> Vec<String> {
    let machine = &config.machine;
    let file = |name: &str| escape(&config.directory.join(name));
    let [.., m4, m5] = machine.mac.0;
    let mut line: Vec<String> = Vec::new();
    let mut option = |name: &str, value: String| line.extend([name.to_owned(), value]);
    option("-name", machine.name.clone());
    // With graphics off, SeaBIOS and its ROMs write to the serial port.
    option("-machine", "q35,accel=tcg,graphics=off".to_owned());
    // An old CPU without AVX, fast string moves and nested virtualisation. Under load, QEMU 7.2's emulation of the features
    // of `max` has made programs abort at their start and systems hang in a reset; it is also slower.
    option("-cpu", "Nehalem".to_owned());
    option("-m", machine.memory_mib.to_string());
    option("-smp", machine.cpus.to_string());
    option("-display", "none".to_owned());
    option("-vga", "none".to_owned());
    option("-monitor", "none".to_owned());
    option("-chardev", format!("file,id=serial,path={},append=on", file("serial.log")));
    option("-serial", "chardev:serial".to_owned());
    // QEMU connects to us, so we need no polling.
    option("-chardev", format!("socket,id=qmp,path={}", escape(&config.qmp_path())));
    option("-mon", "chardev=qmp,mode=control".to_owned());
    let product = "manufacturer=Basalt,product=Lab machine";
    let uuid = format!("00000000-0000-4000-8000-{:012x}", u64::from(m4) << 8 | u64::from(m5));
    option("-smbios", format!("type=1,{product},serial={},uuid={uuid}", machine.serial));
    option("-netdev", format!("tap,id=net,ifname={},script=no,downscript=no", config.tap));
    let nic = format!("virtio-net-pci,netdev=net,mac={},addr={NIC_SLOT:#x}", machine.mac);
    option(
        "-device",
        match machine.firmware {
            Firmware::Bios => nic,
            // Without iPXE's ROM, OVMF uses its own PXE driver, as hardware does.
            Firmware::Uefi => format!("{nic},romfile="),
        },
    );
    option("-drive", format!("file={},format=qcow2,if=none,id=disk", file("disk.qcow2")));
    option("-device", format!("virtio-blk-pci,drive=disk,serial={},addr={DISK_SLOT:#x}", machine.serial));
    option("-device", "virtio-rng-pci".to_owned());
    // The machine sees the same BMC as the network. QEMU 7.2 crashes if the socket is connected before the device exists.
    // With `reconnect`, it connects later.
    option("-chardev", format!("socket,id=ipmi,path={},reconnect=1", escape(&config.inside_path())));
    option("-device", "ipmi-bmc-extern,id=bmc,chardev=ipmi".to_owned());
    option("-device", "isa-ipmi-kcs,bmc=bmc".to_owned());
    match machine.firmware {
        Firmware::Bios => {
            let once = boot.once.map(|once| format!(",once={}", letters(once))).unwrap_or_default();
            option("-boot", format!("order={}{once}", letters(boot.order)));
        }
        Firmware::Uefi => {
            option("-drive", format!("if=pflash,format=raw,readonly=on,file={OVMF_CODE}"));
            option("-drive", format!("if=pflash,format=raw,file={}", file("vars.fd")));
        }
    }
    [vec![QEMU.to_owned(), "-nodefaults".to_owned()], line].concat()
}

/// QEMU separates an option's values with commas; a comma in a path must be doubled.
fn escape(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::MachineConfig;

    fn line(firmware: Firmware, once: Option<BootOrder>) -> String {
        let config = BmcProgramConfig {
            machine: MachineConfig::numbered(1, firmware),
            directory: "/lab/m1".into(),
            tap: "tap1".to_owned(),
        };
        command_line(&config, BiosBoot { order: BootOrder::DiskFirst, once }).join(" ")
    }

    #[test]
    fn nothing_boots_but_the_network_and_the_own_disk() {
        for firmware in [Firmware::Bios, Firmware::Uefi] {
            let line = line(firmware, None);
            for forbidden in ["bootindex", "-kernel", "-cdrom", "-no-reboot", "accel=kvm"] {
                assert!(!line.contains(forbidden), "{forbidden} in {line}");
            }
            assert!(line.contains("accel=tcg"));
        }
    }

    #[test]
    fn a_bios_machine_boots_the_network_once() {
        assert!(line(Firmware::Bios, Some(BootOrder::NetworkFirst)).ends_with("-boot order=cn,once=nc"));
        assert!(line(Firmware::Bios, None).ends_with("-boot order=cn"));
        assert!(!line(Firmware::Uefi, None).contains("-boot"));
    }
}
