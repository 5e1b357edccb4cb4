//! Inventory: the hardware of a machine, as its agent found it.
//!
//! The report of the agent ([`crate::agent::Inventory`]) has lists and plain strings. The inventory in a status has maps by
//! natural key, and typed values.

use super::{Architecture, TestVerdict};
use crate::agent;
use crate::values::{Attempt, Mac, MachineId, UntrustedName};
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The hardware of a machine, as its agent found it.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Inventory {
    /// Processor architecture of the machine.
    pub architecture: Option<Architecture>,
    /// The firmware mode in which the machine booted when its hardware was read.
    pub firmware: Option<FirmwareMode>,
    /// The processors of the machine, taken together.
    #[field(default)]
    pub cpu: Cpu,
    /// Size of the installed memory, in bytes.
    #[field(default = 0)]
    pub memory_bytes: u64,
    /// Memory modules, by their sockets.
    pub memory_modules: BTreeMap<String, MemoryModule>,
    /// Version of the TPM: `2.0` or `1.2`. Absent: there is none, or the firmware hides it.
    pub tpm: Option<String>,
    /// True: UEFI Secure Boot was on when the hardware was read. Absent: the firmware does not say.
    pub secure_boot: Option<bool>,
    /// Identification of the machine by SMBIOS.
    #[field(default)]
    pub dmi: Dmi,
    /// True: the machine has a BMC.
    #[field(default = false)]
    pub bmc_present: bool,
    /// Ethernet interfaces, by kernel name.
    pub interfaces: BTreeMap<String, Interface>,
    /// Interfaces that are not Ethernet, by kernel name. Basalt neither boots a machine from them nor configures them.
    pub other_interfaces: BTreeMap<String, OtherInterface>,
    /// Disks, by kernel name.
    pub disks: BTreeMap<String, Disk>,
    /// PCI devices for storage, network, display and acceleration, by their PCI address.
    pub pci: BTreeMap<String, PciDevice>,
    /// Graphics processors, by their PCI address.
    pub gpus: BTreeMap<String, Gpu>,
    /// NUMA nodes, by their numbers. `numa_node` of interfaces, disks and PCI devices names one of them.
    pub numa: BTreeMap<String, NumaNode>,
    /// USB devices without hubs, by their ports: the PCI address of the controller, the version of USB, and the path of ports from
    /// there, as in `pci-0000:00:14.0-usb2-1.4`.
    pub usb: BTreeMap<String, UsbDevice>,
}

/// The processors of a machine, taken together.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Cpu {
    /// Model name of the processors.
    pub model: Option<String>,
    /// Number of processor packages.
    #[field(default = 0)]
    pub sockets: u32,
    /// Number of cores in all packages.
    #[field(default = 0)]
    pub cores: u32,
    /// Number of hardware threads in all cores.
    #[field(default = 0)]
    pub threads: u32,
    /// Number of NUMA nodes. 0: not known.
    #[field(default = 0)]
    pub numa_nodes: u32,
    /// Revision of the microcode, as the kernel writes it: `0xd0003e7`.
    pub microcode: Option<String>,
    /// The level of the x86-64 instruction set that the processors implement (x86-64 psABI): 1 to 4. Absent: they are not x86-64, or
    /// their flags are not known.
    pub x86_64_level: Option<u8>,
    /// Features that every processor has, by the kernel's names: `avx2`, `sse4_2`.
    pub flags: BTreeSet<String>,
}

/// A NUMA node: processors and the memory that is near to them.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct NumaNode {
    /// Numbers of the hardware threads of the node: `0-15,32-47`. Absent: the node has only memory.
    pub cpus: Option<String>,
    /// Size of the node's memory in whole blocks of the kernel, in bytes. Absent: not known.
    pub memory_bytes: Option<u64>,
}

/// A USB device that is no hub.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct UsbDevice {
    /// USB vendor id: `0bda`.
    pub vendor: String,
    /// USB product id, given by the vendor: `8153`.
    pub product: String,
    /// USB classes of the device's interfaces: `03` is a keyboard or mouse, `08` is mass storage, `e0` is wireless.
    pub classes: BTreeSet<String>,
    /// Name of the manufacturer, as the device says it.
    pub manufacturer: Option<String>,
    /// Name of the product, as the device says it.
    pub product_name: Option<String>,
    /// Serial number, as the device says it.
    pub serial: Option<String>,
}

/// A memory module.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct MemoryModule {
    /// Size of the module, in bytes.
    pub size_bytes: u64,
    /// Memory technology: `DDR5`.
    pub technology: Option<String>,
    /// Rated speed of the module, in megatransfers per second.
    pub speed_mts: Option<u32>,
    /// Manufacturer of the module.
    pub manufacturer: Option<String>,
    /// Part number of the manufacturer.
    pub part_number: Option<String>,
    /// Serial number of the module.
    pub serial: Option<String>,
}

/// The firmware mode in which a machine boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum FirmwareMode {
    /// PC BIOS, or UEFI in its BIOS compatibility mode.
    Bios,
    /// UEFI in its native mode.
    Uefi,
}

/// Identification of a machine by SMBIOS (DSP0134 types 0 to 3).
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Dmi {
    /// Manufacturer of the system.
    pub manufacturer: Option<String>,
    /// Product name of the system.
    pub product: Option<String>,
    /// Serial number of the system.
    pub serial: Option<String>,
    /// UUID of the system.
    pub uuid: Option<String>,
    /// Version of the firmware.
    pub bios_version: Option<String>,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Interface {
    /// MAC address of the interface.
    pub mac: Mac,
    /// Speed in Mb/s. Absent: there is no link, or the driver does not say.
    #[field(volatile)]
    pub speed_mbps: Option<u64>,
    /// True: the interface has a link.
    #[field(volatile, default = false)]
    pub link: bool,
    /// True: the machine booted from this interface.
    #[field(volatile, default = false)]
    pub booted: bool,
    /// Name of the kernel driver.
    pub driver: Option<String>,
    /// The NUMA node that the interface is attached to.
    pub numa_node: Option<u16>,
    /// Version of the adapter's firmware, as its driver reports it.
    pub firmware: Option<String>,
    /// PCI address of the adapter.
    pub pci: Option<String>,
    /// Devices at the other end of the link, by name, as they announced themselves by LLDP or CDP.
    pub neighbours: BTreeMap<String, Neighbour>,
}

/// A device at the other end of a link, as it announced itself when the hardware was read.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Neighbour {
    /// The protocol of the announcement. For a device that speaks both, it is LLDP.
    pub protocol: NeighbourProtocol,
    /// Identity of the device: a MAC address, an IP address or a name. With CDP: the device id.
    pub chassis_id: String,
    /// Identity of the device's port: a name or a MAC address.
    pub port_id: String,
    /// Description of the port.
    pub port_description: Option<String>,
    /// Name of the device.
    pub system_name: Option<String>,
    /// Hardware and software of the device.
    pub system_description: Option<String>,
    /// Model of the device. Only CDP announces it.
    pub platform: Option<String>,
    /// Enabled functions of the device: `bridge`, `router`, `wlan`, `telephone`, `repeater`, `docsis`, `station`, `other`.
    pub capabilities: BTreeSet<String>,
    /// Management addresses of the device.
    pub addresses: BTreeSet<IpAddr>,
    /// Id of the VLAN of untagged frames on the port.
    pub native_vlan: Option<u16>,
    /// Names of the VLANs on the port, by their ids.
    pub vlans: BTreeMap<String, String>,
    /// Number of the link aggregate that has the port as a member. Absent: none has it.
    pub aggregate: Option<u32>,
    /// The longest frame that the port accepts, in bytes, with header and checksum.
    pub max_frame: Option<u16>,
}

/// The protocol of a neighbour's announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum NeighbourProtocol {
    /// Link Layer Discovery Protocol, IEEE 802.1AB.
    Lldp,
    /// Cisco Discovery Protocol.
    Cdp,
}

/// A network interface that is not Ethernet, or has no Ethernet address.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct OtherInterface {
    /// The link technology: `infiniband`, `ethernet` without a readable address, or the kernel's number (ARPHRD in
    /// `linux/if_arp.h`).
    pub technology: String,
    /// Hardware address of the interface, as the kernel writes it. InfiniBand addresses have twenty octets, and the last eight
    /// are the GUID of the port.
    pub hardware_address: Option<String>,
    /// Speed in Mb/s. Absent: there is no link, or the driver does not say.
    #[field(volatile)]
    pub speed_mbps: Option<u64>,
    /// True: the interface has a link.
    #[field(volatile, default = false)]
    pub link: bool,
    /// Name of the kernel driver.
    pub driver: Option<String>,
    /// The NUMA node that the interface is attached to.
    pub numa_node: Option<u16>,
    /// Version of the adapter's firmware, as its driver reports it.
    pub firmware: Option<String>,
    /// PCI address of the adapter.
    pub pci: Option<String>,
}

/// A disk of a machine.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Disk {
    /// Size of the disk, in bytes.
    pub size_bytes: u64,
    /// Logical block size, in bytes.
    pub block_bytes: Option<u32>,
    /// Model of the disk.
    pub model: Option<String>,
    /// Serial number of the disk.
    pub serial: Option<String>,
    /// Names of the disk under `/dev/disk/by-id`.
    pub ids: Vec<String>,
    /// Names of the disk under `/dev/disk/by-path`.
    pub paths: Vec<String>,
    /// Attachment of the disk: `virtio`, `nvme`, `sata`, `sas`.
    pub transport: Option<String>,
    /// True: the disk has rotating platters, as the kernel reports it.
    #[field(default = false)]
    pub rotational: bool,
    /// Revision of the disk's firmware.
    pub firmware: Option<String>,
    /// The NUMA node that the disk's controller is attached to.
    pub numa_node: Option<u16>,
    /// The disk's report of its own health (SMART): `passed`, `degraded` or `failed`, as the hardware test `disks` judges it, without the
    /// temperature. Absent: the disk reports none.
    #[field(volatile)]
    pub health: Option<TestVerdict>,
    /// Basalt's marker on the disk.
    #[field(volatile)]
    pub marker: Option<DiskMarker>,
}

/// A PCI device.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct PciDevice {
    /// PCI vendor id: `10de`.
    pub vendor: String,
    /// PCI device id, given by the vendor: `20b5`.
    pub device: String,
    /// PCI class, subclass and programming interface: `030200`.
    pub class: String,
    /// Name of the kernel driver.
    pub driver: Option<String>,
    /// The NUMA node that the device is attached to.
    pub numa_node: Option<u16>,
}

/// A graphics processor.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Gpu {
    /// The vendor: `nvidia`, `amd`, `intel`.
    pub vendor: String,
    /// The model, as the PCI device id: `20b5`.
    pub model: String,
}

/// PCI vendors of processors for graphics and computing. Displays of BMCs and emulators have other vendors.
const GPU_VENDORS: [(&str, &str); 3] = [("10de", "nvidia"), ("1002", "amd"), ("8086", "intel")];
/// PCI classes of such processors: VGA, XGA, 3D controllers, other displays, processing accelerators.
const GPU_CLASSES: [&str; 5] = ["0300", "0301", "0302", "0380", "1200"];

/// Basalt's marker on a disk: the machine that owns the disk, and the attempt that wrote to it.
#[derive(Clone, Debug, PartialEq, Eq, Model)]
pub struct DiskMarker {
    /// The machine for which the marker was written.
    pub machine: MachineId,
    /// The attempt that wrote the marker.
    pub attempt: Attempt,
    /// The progress of that attempt.
    pub state: MarkerState,
}

/// The progress of a destructive attempt on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum MarkerState {
    /// The attempt has begun. The content of the disk is not reliable.
    Writing,
    /// An operating system was installed completely.
    Installed,
    /// The disk was erased.
    Erased,
}

impl Inventory {
    /// Converts the report of an agent, with the markers that it found. Interfaces without a readable MAC address become
    /// [`Inventory::other_interfaces`]. Markers without a readable machine are left out.
    #[must_use]
    pub fn from_agent(found: &agent::Inventory, markers: &BTreeMap<String, agent::DiskMarker>) -> Self {
        Self {
            architecture: match found.architecture.as_str() {
                "x86_64" => Some(Architecture::Amd64),
                "aarch64" => Some(Architecture::Arm64),
                _ => None,
            },
            firmware: Some(match found.firmware {
                agent::Firmware::Bios => FirmwareMode::Bios,
                agent::Firmware::Uefi => FirmwareMode::Uefi,
            }),
            cpu: Cpu {
                model: known(&found.cpu.model),
                sockets: found.cpu.sockets,
                cores: found.cpu.cores,
                threads: found.cpu.threads,
                numa_nodes: found.cpu.numa_nodes,
                microcode: known(&found.cpu.microcode),
                x86_64_level: x86_64_level(&found.cpu.flags).filter(|_| found.architecture == "x86_64"),
                flags: flags(&found.cpu.flags),
            },
            memory_bytes: found.memory_bytes,
            memory_modules: found.memory_modules.iter().map(|it| (it.slot.clone(), module(it))).collect(),
            tpm: known(&found.tpm),
            secure_boot: found.secure_boot,
            dmi: Dmi {
                manufacturer: known(&found.dmi.manufacturer),
                product: known(&found.dmi.product),
                serial: known(&found.dmi.serial),
                uuid: known(&found.dmi.uuid),
                bios_version: known(&found.dmi.bios_version),
            },
            bmc_present: found.bmc_present,
            interfaces: found.nics.iter().filter_map(interface).collect(),
            other_interfaces: found.nics.iter().filter_map(other_interface).collect(),
            disks: found.disks.iter().map(|d| (d.name.clone(), disk(d, markers.get(&d.name)))).collect(),
            pci: found.pci.iter().map(|d| (d.address.clone(), pci(d))).collect(),
            gpus: found.pci.iter().filter_map(gpu).collect(),
            numa: found.numa.iter().take(MAX_NUMA_NODES).map(numa).collect(),
            usb: found.usb.iter().take(MAX_USB_DEVICES).filter_map(usb).collect(),
        }
    }
}

/// Most processor flags that are kept. Processors have up to 200.
pub const MAX_FLAGS: usize = 512;
/// Most bytes of a processor flag. The longest has 20.
pub const MAX_FLAG_BYTES: usize = 32;
/// Most NUMA nodes that are kept. Kernels are built for at most 1,024; machines have up to 64.
pub const MAX_NUMA_NODES: usize = 256;
/// Most bytes of the list of a node's threads. 2,048 threads in turn on two nodes have 5,000.
const MAX_CPUS_BYTES: usize = 8192;
/// Most USB devices that are kept. A bus has at most 127.
pub const MAX_USB_DEVICES: usize = 128;
/// Most classes of a USB device that are kept.
const MAX_USB_CLASSES: usize = 32;

/// The flags, without texts that no kernel would report.
fn flags(found: &[String]) -> BTreeSet<String> {
    found.iter().filter(|flag| is_flag(flag)).take(MAX_FLAGS).cloned().collect()
}

/// True for a text that can be the flag of a processor.
pub(super) fn is_flag(text: &str) -> bool {
    (1..=MAX_FLAG_BYTES).contains(&text.len())
        && text.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'_')
}

/// Flags that each level of x86-64 adds (x86-64 psABI 1.0, table 3.1), by the kernel's names. The kernel shows `avx512f` and the like
/// only if it saves the registers, as levels 3 and 4 require.
const X86_64_LEVELS: [&[&str]; 4] = [
    &["cmov", "cx8", "fpu", "fxsr", "lm", "mmx", "sse", "sse2", "syscall"],
    &["cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"],
    &["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"],
    &["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"],
];

/// The highest level with all flags of it and of the lower levels.
fn x86_64_level(flags: &[String]) -> Option<u8> {
    let has = |wanted: &&str| flags.iter().any(|flag| flag == wanted);
    let levels = X86_64_LEVELS.iter().take_while(|added| added.iter().all(&has)).count();
    u8::try_from(levels).ok().filter(|level| *level > 0)
}

fn numa(found: &agent::NumaNode) -> (String, NumaNode) {
    let is_list = |text: &String| {
        text.len() <= MAX_CPUS_BYTES && text.bytes().all(|octet| matches!(octet, b'0'..=b'9' | b',' | b'-'))
    };
    let node = NumaNode { cpus: known(&found.cpus).filter(is_list), memory_bytes: found.memory_bytes };
    (found.number.to_string(), node)
}

fn usb(found: &agent::UsbDevice) -> Option<(String, UsbDevice)> {
    let mut device = UsbDevice::new(printable(&found.vendor)?, printable(&found.product)?);
    device.classes =
        found.classes.iter().take(MAX_USB_CLASSES).filter_map(|class| printable(class)).collect();
    device.manufacturer = printable(&found.manufacturer);
    device.product_name = printable(&found.product_name);
    device.serial = printable(&found.serial);
    Some((printable(&found.port)?, device))
}

fn module(found: &agent::MemoryModule) -> MemoryModule {
    MemoryModule {
        size_bytes: found.size_bytes,
        technology: known(&found.technology),
        speed_mts: found.speed_mts,
        manufacturer: known(&found.manufacturer),
        part_number: known(&found.part_number),
        serial: known(&found.serial),
    }
}

fn pci(found: &agent::PciDevice) -> PciDevice {
    let mut device = PciDevice::new(found.vendor.clone(), found.device.clone(), found.class.clone());
    device.driver = known(&found.driver);
    device.numa_node = found.numa_node;
    device
}

fn gpu(found: &agent::PciDevice) -> Option<(String, Gpu)> {
    let (_, vendor) = GPU_VENDORS.iter().find(|(number, _)| *number == found.vendor)?;
    let is_gpu = GPU_CLASSES.iter().any(|class| found.class.starts_with(class));
    is_gpu.then(|| (found.address.clone(), Gpu::new((*vendor).to_owned(), found.device.clone())))
}

/// ARPHRD_ETHER and ARPHRD_INFINIBAND of `linux/if_arp.h`.
const ETHERNET: u16 = 1;
const INFINIBAND: u16 = 32;

/// The address of an interface that Basalt can boot and configure.
fn mac(nic: &agent::Nic) -> Option<Mac> {
    nic.mac.parse().ok().filter(|_| nic.hardware.is_none_or(|it| it == ETHERNET))
}

fn other_interface(nic: &agent::Nic) -> Option<(String, OtherInterface)> {
    if mac(nic).is_some() {
        return None;
    }
    let interface = OtherInterface {
        technology: match nic.hardware {
            None | Some(ETHERNET) => "ethernet".to_owned(),
            Some(INFINIBAND) => "infiniband".to_owned(),
            Some(number) => number.to_string(),
        },
        hardware_address: known(&nic.mac),
        speed_mbps: nic.speed_mbps,
        link: nic.link,
        driver: known(&nic.driver),
        numa_node: nic.numa_node,
        firmware: printable(&nic.firmware),
        pci: printable(&nic.pci),
    };
    Some((nic.name.clone(), interface))
}

fn interface(nic: &agent::Nic) -> Option<(String, Interface)> {
    let interface = Interface {
        mac: mac(nic)?,
        speed_mbps: nic.speed_mbps,
        link: nic.link,
        booted: nic.boot,
        driver: known(&nic.driver),
        numa_node: nic.numa_node,
        firmware: printable(&nic.firmware),
        pci: printable(&nic.pci),
        neighbours: neighbours(&nic.neighbours),
    };
    Some((nic.name.clone(), interface))
}

/// Most neighbours of one interface that are kept.
pub const MAX_NEIGHBOURS: usize = 4;

/// Neighbours by name. A device without a name has its chassis id as its name. The name of a second port of the same device ends with
/// the port id.
fn neighbours(found: &[agent::Neighbour]) -> BTreeMap<String, Neighbour> {
    let mut named = BTreeMap::new();
    for it in found.iter().take(MAX_NEIGHBOURS) {
        let Some(neighbour) = neighbour(it) else { continue };
        let mut name = neighbour.system_name.clone().unwrap_or_else(|| it.chassis_id.clone());
        if named.contains_key(&name) {
            name = format!("{name} {}", it.port_id);
        }
        named.insert(name, neighbour);
    }
    named
}

fn neighbour(found: &agent::Neighbour) -> Option<Neighbour> {
    Some(Neighbour {
        protocol: match found.protocol.as_str() {
            "lldp" => NeighbourProtocol::Lldp,
            "cdp" => NeighbourProtocol::Cdp,
            _ => return None,
        },
        chassis_id: found.chassis_id.clone(),
        port_id: found.port_id.clone(),
        port_description: known(&found.port_description),
        system_name: known(&found.system_name),
        system_description: known(&found.system_description),
        platform: known(&found.platform),
        capabilities: found.capabilities.iter().cloned().collect(),
        addresses: found.addresses.iter().filter_map(|address| address.parse().ok()).collect(),
        native_vlan: found.native_vlan,
        vlans: found.vlans.iter().map(|(id, name)| (id.to_string(), name.clone())).collect(),
        aggregate: found.aggregate,
        max_frame: found.max_frame,
    })
}

fn disk(found: &agent::Disk, marker: Option<&agent::DiskMarker>) -> Disk {
    Disk {
        size_bytes: found.size_bytes,
        block_bytes: (found.block_bytes > 0).then_some(found.block_bytes),
        model: known(&found.model),
        serial: known(&found.serial),
        ids: found.ids.clone(),
        paths: found.paths.clone(),
        transport: known(&found.transport),
        rotational: found.rotational,
        firmware: printable(&found.firmware),
        numa_node: found.numa_node,
        health: found.health.map(|verdict| match verdict {
            agent::Verdict::Skipped => TestVerdict::Skipped,
            agent::Verdict::Passed => TestVerdict::Passed,
            agent::Verdict::Degraded => TestVerdict::Degraded,
            agent::Verdict::Failed => TestVerdict::Failed,
        }),
        marker: marker.and_then(|m| {
            Some(DiskMarker {
                machine: m.machine_uid.parse().ok()?,
                attempt: Attempt::new(m.attempt),
                state: match m.state {
                    agent::MarkerState::Writing => MarkerState::Writing,
                    agent::MarkerState::Installed => MarkerState::Installed,
                    agent::MarkerState::Erased => MarkerState::Erased,
                },
            })
        }),
    }
}

/// The text without blanks around it. `None`: it is empty, as hardware reports a value that it does not know.
fn known(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// A text that a device chooses, as one printable line of at most 256 characters. `None`: it is empty.
fn printable(text: &str) -> Option<String> {
    known(&UntrustedName::new(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn neighbours_are_known_by_their_names_or_else_by_their_chassis() {
        let heard = |system: &str, chassis: &str, port: &str| agent::Neighbour {
            protocol: "lldp".to_owned(),
            system_name: system.to_owned(),
            chassis_id: chassis.to_owned(),
            port_id: port.to_owned(),
            addresses: vec!["10.0.0.1".to_owned(), "none".to_owned()],
            vlans: BTreeMap::from([(7, "office".to_owned())]),
            ..Default::default()
        };
        let odd = agent::Neighbour { protocol: "edp".to_owned(), ..heard("x", "x", "x") };
        let all = [heard("leaf-1", "m", "Eth1"), heard("leaf-1", "m", "Eth2"), heard("", "00:1c", "7"), odd];
        let found = neighbours(&all);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["00:1c", "leaf-1", "leaf-1 Eth2"]);
        let leaf = &found["leaf-1"];
        assert_eq!((leaf.addresses.len(), leaf.vlans["7"].as_str()), (1, "office"));
        let many: Vec<_> = (0..100).map(|number| heard("", &number.to_string(), "1")).collect();
        assert_eq!(neighbours(&many).len(), MAX_NEIGHBOURS);
    }

    #[test]
    fn everything_that_an_agent_found_is_in_the_inventory() {
        let machine = "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e";
        let neighbour = json!({"protocol": "cdp", "chassis_id": "leaf", "port_id": "Eth7", "port_description": "to rack 3",
            "system_name": "leaf-1", "system_description": "IOS 15.2", "platform": "WS-C3750", "capabilities": ["bridge", "router"],
            "addresses": ["192.0.2.7"], "native_vlan": 7, "vlans": {"7": "office"}, "aggregate": 12, "max_frame": 9216});
        let found: agent::Inventory = serde_json::from_value(json!({
            "architecture": "aarch64", "firmware": "uefi", "memory_bytes": 68_719_476_736_u64, "tpm": "2.0", "secure_boot": true,
            "bmc_present": true,
            "cpu": {"model": "Invented", "sockets": 2, "cores": 32, "threads": 64, "numa_nodes": 4, "microcode": "0xd0",
                "flags": ["fp", "asimd"]},
            "numa": [{"number": 1, "cpus": "0-15,32-47", "memory_bytes": 34_359_738_368_u64}, {"number": 2}],
            "usb": [{"port": "pci-0000:00:14.0-usb2-1.4", "vendor": "0781", "product": "5583", "classes": ["08"],
                "manufacturer": "Acme\u{7}", "product_name": "Stick", "serial": "77"}],
            "memory_modules": [{"slot": "DIMM A1", "size_bytes": 34_359_738_368_u64, "technology": "DDR5", "speed_mts": 4800,
                "manufacturer": "Acme", "part_number": "M321", "serial": "77"}],
            "dmi": {"manufacturer": "Dell Inc.", "product": "R650", "serial": "5BR", "uuid": "u-1", "bios_version": "1.7"},
            "nics": [
                {"name": "eth0", "mac": "52:54:00:00:00:01", "hardware": 1, "speed_mbps": 25_000, "link": true, "boot": true,
                    "driver": "ice", "numa_node": 1, "firmware": "4.40 0x8001", "pci": "0000:3b:00.1", "neighbours": [neighbour]},
                {"name": "ib0", "mac": "80:00:02", "hardware": 32, "speed_mbps": 100_000, "link": true, "driver": "mlx5_core",
                    "numa_node": 2, "firmware": "20.31", "pci": "0000:5e:00.0"},
            ],
            "disks": [{"name": "sda", "size_bytes": 4096, "block_bytes": 512, "model": "QEMU", "serial": "S1", "ids": ["wwn-1"],
                "paths": ["pci-1"], "transport": "sata", "rotational": true, "firmware": "2.5+", "numa_node": 1,
                "health": "degraded"}],
            "pci": [{"address": "0000:3b:00.0", "vendor": "10de", "device": "20b5", "class": "030200", "driver": "nvidia", "numa_node": 1}],
        }))
        .unwrap();
        let marker = agent::DiskMarker {
            machine_uid: machine.to_owned(),
            attempt: 7,
            state: agent::MarkerState::Erased,
        };
        let inventory = Inventory::from_agent(&found, &BTreeMap::from([("sda".to_owned(), marker)]));
        let neighbour = json!({"protocol": "cdp", "chassis_id": "leaf", "port_id": "Eth7", "port_description": "to rack 3",
            "system_name": "leaf-1", "system_description": "IOS 15.2", "platform": "WS-C3750", "capabilities": ["bridge", "router"],
            "addresses": ["192.0.2.7"], "native_vlan": 7, "vlans": {"7": "office"}, "aggregate": 12, "max_frame": 9216});
        let expected = json!({
            "architecture": "arm64", "firmware": "uefi", "memory_bytes": 68_719_476_736_u64, "tpm": "2.0", "secure_boot": true,
            "bmc_present": true,
            "cpu": {"model": "Invented", "sockets": 2, "cores": 32, "threads": 64, "numa_nodes": 4, "microcode": "0xd0",
                "flags": ["asimd", "fp"]},
            "numa": {"1": {"cpus": "0-15,32-47", "memory_bytes": 34_359_738_368_u64}, "2": {}},
            "usb": {"pci-0000:00:14.0-usb2-1.4": {"vendor": "0781", "product": "5583", "classes": ["08"],
                "manufacturer": "Acme<U+0007>", "product_name": "Stick", "serial": "77"}},
            "memory_modules": {"DIMM A1": {"size_bytes": 34_359_738_368_u64, "technology": "DDR5", "speed_mts": 4800,
                "manufacturer": "Acme", "part_number": "M321", "serial": "77"}},
            "dmi": {"manufacturer": "Dell Inc.", "product": "R650", "serial": "5BR", "uuid": "u-1", "bios_version": "1.7"},
            "interfaces": {"eth0": {"mac": "52:54:00:00:00:01", "speed_mbps": 25_000, "link": true, "booted": true, "driver": "ice",
                "numa_node": 1, "firmware": "4.40 0x8001", "pci": "0000:3b:00.1", "neighbours": {"leaf-1": neighbour}}},
            "other_interfaces": {"ib0": {"technology": "infiniband", "hardware_address": "80:00:02", "speed_mbps": 100_000,
                "link": true, "driver": "mlx5_core", "numa_node": 2, "firmware": "20.31", "pci": "0000:5e:00.0"}},
            "disks": {"sda": {"size_bytes": 4096, "block_bytes": 512, "model": "QEMU", "serial": "S1", "ids": ["wwn-1"],
                "paths": ["pci-1"], "transport": "sata", "rotational": true, "firmware": "2.5+", "numa_node": 1,
                "health": "degraded", "marker": {"machine": machine, "attempt": 7, "state": "erased"}}},
            "pci": {"0000:3b:00.0": {"vendor": "10de", "device": "20b5", "class": "030200", "driver": "nvidia", "numa_node": 1}},
            "gpus": {"0000:3b:00.0": {"vendor": "nvidia", "model": "20b5"}},
        });
        assert_eq!(serde_json::to_value(&inventory).unwrap(), expected);
    }

    #[test]
    fn the_level_of_x86_64_is_the_highest_whose_flags_are_all_there() {
        let level = |levels: usize, without: &str| {
            let flags = X86_64_LEVELS.iter().take(levels).flat_map(|added| added.iter());
            let flags = flags.filter(|flag| **flag != without).map(|flag| (*flag).to_owned()).collect();
            let cpu = agent::Cpu { flags, ..Default::default() };
            let found =
                agent::Inventory { architecture: "x86_64".to_owned(), cpu, ..agent::Inventory::default() };
            let other = agent::Inventory { architecture: "aarch64".to_owned(), ..found.clone() };
            assert_eq!(Inventory::from_agent(&other, &BTreeMap::new()).cpu.x86_64_level, None);
            Inventory::from_agent(&found, &BTreeMap::new()).cpu.x86_64_level
        };
        let levels: Vec<_> = (0..=4).map(|levels| level(levels, "")).collect();
        assert_eq!(levels, [None, Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!((level(4, "avx512vl"), level(4, "movbe"), level(4, "lm")), (Some(3), Some(2), None));
    }

    #[test]
    fn an_inventory_keeps_a_bounded_part_of_a_report_that_lies() {
        let long = "x".repeat(10_000);
        let found = agent::Inventory {
            cpu: agent::Cpu {
                flags: (0..5000).map(|n| format!("flag{n}")).chain([long.clone(), "a b".into()]).collect(),
                ..Default::default()
            },
            numa: (0..5000)
                .map(|number| agent::NumaNode { number, cpus: long.clone(), memory_bytes: None })
                .collect(),
            usb: (0..5000)
                .map(|n| agent::UsbDevice {
                    port: format!("{n}"),
                    vendor: long.clone(),
                    product: long.clone(),
                    classes: (0..5000).map(|class| format!("{class}")).collect(),
                    manufacturer: long.clone(),
                    product_name: long.clone(),
                    serial: long.clone(),
                })
                .collect(),
            nics: vec![agent::Nic { name: "ib0".to_owned(), firmware: long.clone(), ..Default::default() }],
            disks: vec![agent::Disk { name: "sda".to_owned(), firmware: long, ..Default::default() }],
            ..agent::Inventory::default()
        };
        let kept = Inventory::from_agent(&found, &BTreeMap::new());
        assert_eq!(
            (kept.cpu.flags.len(), kept.numa.len(), kept.usb.len()),
            (MAX_FLAGS, MAX_NUMA_NODES, MAX_USB_DEVICES)
        );
        assert!(kept.numa.values().all(|node| node.cpus.is_none()));
        let size = serde_json::to_string(&kept).unwrap().len();
        assert!(size < 400_000, "{size} bytes");
        let firmware = [&kept.disks["sda"].firmware, &kept.other_interfaces["ib0"].firmware];
        assert!(firmware.iter().all(|it| it.as_ref().unwrap().chars().count() == 256));
    }

    #[test]
    fn what_an_agent_reports_becomes_maps_by_name() {
        let found = agent::Inventory {
            architecture: "x86_64".to_owned(),
            disks: vec![agent::Disk { name: "vda".to_owned(), size_bytes: 1 << 33, ..Default::default() }],
            nics: vec![
                agent::Nic {
                    name: "ens3".to_owned(),
                    mac: "52:54:00:00:00:01".to_owned(),
                    ..Default::default()
                },
                agent::Nic {
                    name: "ib0".to_owned(),
                    mac: "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:12:34:56".to_owned(),
                    hardware: Some(32),
                    speed_mbps: Some(100_000),
                    link: true,
                    driver: "mlx5_core".to_owned(),
                    ..Default::default()
                },
                agent::Nic { name: "eth9".to_owned(), hardware: Some(1), ..Default::default() },
                agent::Nic {
                    name: "fw0".to_owned(),
                    mac: "00:11:22:33:44:55".to_owned(),
                    hardware: Some(24),
                    ..Default::default()
                },
            ],
            pci: [("0000:00:02.0", "1234", "030000"), ("0000:3b:00.0", "10de", "030200")]
                .map(|(address, vendor, class)| agent::PciDevice {
                    address: address.to_owned(),
                    vendor: vendor.to_owned(),
                    device: "20b5".to_owned(),
                    class: class.to_owned(),
                    ..Default::default()
                })
                .into(),
            ..Default::default()
        };
        let marker = agent::DiskMarker {
            machine_uid: "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e".to_owned(),
            attempt: 7,
            state: agent::MarkerState::Installed,
        };
        let inventory = Inventory::from_agent(&found, &BTreeMap::from([("vda".to_owned(), marker)]));
        assert_eq!(inventory.architecture, Some(Architecture::Amd64));
        assert_eq!(inventory.interfaces.keys().collect::<Vec<_>>(), ["ens3"]);
        let others = &inventory.other_interfaces;
        let technologies: Vec<_> = others.iter().map(|(name, it)| (name.as_str(), &*it.technology)).collect();
        assert_eq!(technologies, [("eth9", "ethernet"), ("fw0", "24"), ("ib0", "infiniband")]);
        let ib0 = &others["ib0"];
        let guid = ib0.hardware_address.as_deref().and_then(|it| it.strip_suffix("00:02:c9:03:00:12:34:56"));
        assert!(guid.is_some() && ib0.link && ib0.speed_mbps == Some(100_000), "{ib0:?}");
        assert_eq!(others["eth9"].hardware_address, None);
        assert_eq!(inventory.pci.len(), 2);
        let gpus: Vec<_> =
            inventory.gpus.iter().map(|(at, gpu)| (at.as_str(), gpu.vendor.as_str())).collect();
        assert_eq!(gpus, [("0000:3b:00.0", "nvidia")], "an emulated display is none");
        assert_eq!(inventory.disks["vda"].marker.as_ref().unwrap().attempt, Attempt::new(7));
    }
}
