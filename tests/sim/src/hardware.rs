//! The hardware that the agent's own code finds: an invented `/sys` and `/proc`, and a sparse file as the disk.
//!
//! | bytes of the disk | hold |
//! | --- | --- |
//! | 510, 511 | 55 AA once a boot loader is installed |
//! | from 512 KiB | the Basalt marker, written by the agent's code |
//! | from 2 MiB | the installed system: its length (u32, little endian), then JSON of [`System`] |

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use basalt_agent::disk::Disks;
use basalt_agent::root::Root;
use basalt_api::agent::{DiskMarker, NoCloudSeed};
use serde::{Deserialize, Serialize};

use crate::cable::INTERFACE;
use crate::options::{Firmware, MachineOptions};

/// The only disk.
pub(crate) const DISK: &str = "vda";
const SYSTEM_AT: u64 = 2 << 20;
const MAX_SYSTEM: usize = 4 << 20;
const SIGNATURE: (u64, [u8; 2]) = (510, [0x55, 0xaa]);

/// An installed system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct System {
    /// The attempt that installed it.
    pub(crate) attempt: u64,
    /// `/etc/hostname`
    pub(crate) hostname: String,
    /// `/etc/netplan/50-basalt.yaml`
    pub(crate) netplan: String,
    /// `/var/lib/cloud/seed/nocloud/`
    pub(crate) seed: NoCloudSeed,
    /// The names of the scripts of its first boot. `None`: it has no runner for them.
    #[serde(default)]
    pub(crate) first_boot: Option<Vec<String>>,
}

/// A machine's parts.
#[derive(Debug)]
pub(crate) struct Hardware {
    directory: PathBuf,
    disk_bytes: u64,
}

impl Hardware {
    /// Builds a machine in a directory that does not exist yet.
    pub(crate) fn build(directory: &Path, options: &MachineOptions) -> io::Result<Self> {
        fs::create_dir(directory)?;
        let hardware = Self { directory: directory.to_owned(), disk_bytes: options.disk_bytes };
        for (file, text) in tree(options) {
            hardware.put(&file, text.as_bytes())?;
        }
        hardware.put("sys/firmware/dmi/tables/DMI", &memory_device(options.memory_bytes))?;
        fs::create_dir_all(directory.join("sys/block"))?;
        let virtio = directory.join("sys/bus/virtio/drivers/virtio_net");
        symlink(virtio, directory.join(format!("sys/class/net/{INTERFACE}/device/driver")))?;
        symlink(
            "../devices/pci0000:00/0000:00:03.0/virtio1/block/vda",
            directory.join("sys/block").join(DISK),
        )?;
        if options.firmware == Firmware::Uefi {
            fs::create_dir_all(directory.join("sys/firmware/efi"))?;
        }
        fs::create_dir(directory.join("dev"))?;
        hardware.show_disk_bytes(options.disk_bytes)?;
        hardware.replace_disk()?;
        Ok(hardware)
    }

    /// The root directory of the invented files, for the agent's code.
    pub(crate) fn root(&self) -> Root {
        Root::at(&self.directory)
    }

    /// A new disk, all zero.
    pub(crate) fn replace_disk(&self) -> io::Result<()> {
        File::create(self.disk())?.set_len(self.disk_bytes)
    }

    /// Sets the size of the disk in the invented `/sys`.
    pub(crate) fn show_disk_bytes(&self, bytes: u64) -> io::Result<()> {
        self.put("sys/block/vda/size", format!("{}\n", bytes / 512).as_bytes())
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    pub(crate) fn markers(&self) -> BTreeMap<String, DiskMarker> {
        Disks::new(self.root()).markers()
    }

    /// Writes a foreign partition table.
    pub(crate) fn write_foreign_data(&self) -> io::Result<()> {
        self.open()?.write_all_at(b"EFI PART, and none of yours", 512)
    }

    /// Writes a system to the disk, without a boot loader.
    pub(crate) fn write_system(&self, system: &System) -> io::Result<()> {
        let json = serde_json::to_vec(system)?;
        let length = u32::try_from(json.len()).ok().filter(|_| json.len() <= MAX_SYSTEM);
        let length = length
            .ok_or_else(|| io::Error::other(format!("a system of {} bytes does not fit", json.len())))?;
        self.open()?.write_all_at(&[&length.to_le_bytes(), json.as_slice()].concat(), SYSTEM_AT)
    }

    /// Installs the boot loader.
    pub(crate) fn make_bootable(&self) -> io::Result<()> {
        let (at, bytes) = SIGNATURE;
        self.open()?.write_all_at(&bytes, at)
    }

    /// The system that the firmware boots, if the disk has a boot loader and a whole system.
    pub(crate) fn system(&self) -> io::Result<Option<System>> {
        let disk = File::open(self.disk())?;
        let (at, expected) = SIGNATURE;
        let mut signature = [0; 2];
        disk.read_exact_at(&mut signature, at)?;
        let mut length = [0; 4];
        disk.read_exact_at(&mut length, SYSTEM_AT)?;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if signature != expected || length > MAX_SYSTEM {
            return Ok(None);
        }
        let mut json = vec![0; length];
        disk.read_exact_at(&mut json, SYSTEM_AT + 4)?;
        Ok(serde_json::from_slice(&json).ok())
    }

    fn disk(&self) -> PathBuf {
        self.directory.join("dev").join(DISK)
    }

    fn open(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.disk())
    }

    fn put(&self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.directory.join(file);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, bytes)
    }
}

/// The kernel's small files.
fn tree(options: &MachineOptions) -> Vec<(String, String)> {
    let block = "sys/devices/pci0000:00/0000:00:03.0/virtio1/block/vda";
    let net = format!("sys/class/net/{INTERFACE}");
    let id = "sys/class/dmi/id";
    let [a, b, c, d, e, f] = options.mac.0;
    let uuid = format!("62617361-6c74-2d73-696d-{a:02x}{b:02x}{c:02x}{d:02x}{e:02x}{f:02x}");
    let processor = |core| {
        format!(
            "processor\t: {core}\nmodel name\t: Basalt Simulated CPU\nphysical id\t: 0\ncore id\t\t: {core}\n\n"
        )
    };
    let files = [
        (format!("{block}/serial"), options.serial.clone()),
        (format!("{block}/queue/rotational"), "0".to_owned()),
        (format!("{block}/queue/logical_block_size"), "512".to_owned()),
        (format!("{net}/address"), options.mac.to_string()),
        (format!("{net}/carrier"), "1".to_owned()),
        (format!("{net}/speed"), "10000".to_owned()),
        (format!("{net}/device/vendor"), "0x1af4".to_owned()),
        (format!("{id}/sys_vendor"), "Basalt".to_owned()),
        (format!("{id}/product_name"), "Simulated machine".to_owned()),
        (format!("{id}/product_serial"), options.serial.clone()),
        (format!("{id}/product_uuid"), uuid),
        (format!("{id}/bios_version"), env!("CARGO_PKG_VERSION").to_owned()),
        ("sys/class/ipmi/ipmi0/dev".to_owned(), "240:0".to_owned()),
    ];
    let mut files: Vec<_> = files.into_iter().map(|(file, text)| (file, text + "\n")).collect();
    files.push(("proc/cpuinfo".to_owned(), (0..options.cores).map(processor).collect()));
    files
}

/// An SMBIOS table with one memory device, its size in MiB in the extended field (SMBIOS 3.7, §7.18).
fn memory_device(bytes: u64) -> Vec<u8> {
    let mut table = vec![0; 0x28];
    let mebibytes = u32::try_from(bytes >> 20).unwrap_or(0x7fff_ffff);
    let extended = 0x7fff_u16;
    for (at, value) in [
        (0, vec![17, 0x28]),
        (0x0c, extended.to_le_bytes().to_vec()),
        (0x1c, mebibytes.to_le_bytes().to_vec()),
    ] {
        table.splice(at..at + value.len(), value);
    }
    table.extend(b"DIMM 0\0\0");
    table.extend([127, 4, 0, 0, 0, 0]);
    table
}

#[cfg(test)]
mod tests {
    use basalt_agent::inventory;
    use basalt_api::agent as wire;

    use super::*;

    fn built(firmware: Firmware) -> (tempfile::TempDir, Hardware, MachineOptions) {
        let dir = tempfile::tempdir().unwrap();
        let options = MachineOptions::numbered(7, firmware);
        let hardware = Hardware::build(&dir.path().join("m"), &options).unwrap();
        (dir, hardware, options)
    }

    #[test]
    fn the_agents_inventory_is_what_the_options_say() {
        let (_dir, hardware, options) = built(Firmware::Uefi);
        let mac = options.mac.to_string();
        let seen = inventory::read(&hardware.root(), Some(&mac));
        assert_eq!((seen.cpu.cores, seen.cpu.threads, seen.cpu.sockets), (4, 4, 1));
        assert_eq!(
            (seen.memory_bytes, seen.firmware, seen.bmc_present),
            (8 << 30, wire::Firmware::Uefi, true)
        );
        let [disk] = seen.disks.as_slice() else { panic!("{:?}", seen.disks) };
        assert_eq!(
            (disk.name.as_str(), disk.size_bytes, disk.serial.as_str()),
            ("vda", 16 << 30, "SIM-0007")
        );
        assert_eq!(disk.transport, "virtio");
        let [nic] = seen.nics.as_slice() else { panic!("{:?}", seen.nics) };
        assert_eq!((&nic.mac, nic.speed_mbps, nic.link, nic.boot), (&mac, Some(10_000), true, true));
        assert_eq!(nic.driver, "virtio_net");
        assert_eq!((seen.dmi.serial.as_str(), seen.dmi.manufacturer.as_str()), ("SIM-0007", "Basalt"));
        let (_dir, bios, _) = built(Firmware::Bios);
        assert_eq!(inventory::read(&bios.root(), None).firmware, wire::Firmware::Bios);
    }

    #[test]
    fn a_system_boots_once_it_is_whole_and_has_a_boot_loader() {
        let (_dir, hardware, _) = built(Firmware::Bios);
        let system = System {
            attempt: 3,
            hostname: "web1".into(),
            netplan: String::new(),
            seed: NoCloudSeed { vendor_data: "x".into(), ..NoCloudSeed::default() },
            first_boot: None,
        };
        assert_eq!(hardware.system().unwrap(), None);
        hardware.write_system(&system).unwrap();
        assert_eq!(hardware.system().unwrap(), None);
        hardware.make_bootable().unwrap();
        assert_eq!(hardware.system().unwrap(), Some(system));
        hardware.replace_disk().unwrap();
        hardware.make_bootable().unwrap();
        assert_eq!(hardware.system().unwrap(), None, "a boot loader without a system");
    }

    #[test]
    fn foreign_data_is_data_to_the_agent_and_no_marker() {
        let (_dir, hardware, _) = built(Firmware::Bios);
        let disks = Disks::new(hardware.root());
        assert!(!disks.observe(DISK).unwrap().has_data);
        hardware.write_foreign_data().unwrap();
        let seen = disks.observe(DISK).unwrap();
        assert!(seen.has_data && seen.marker.is_none() && hardware.markers().is_empty());
    }
}
