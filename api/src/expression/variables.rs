//! The variables of a machine that expressions can read. [`VARIABLES`] is the complete table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Serialize;

use super::size::Limits;
use crate::kinds::{
    Architecture, Disk, Gpu, Interface, Inventory, MemoryModule, Neighbour, NeighbourProtocol, PciDevice,
    UsbDevice,
};
use crate::values::Mac;

/// Most elements of a list in an inventory for which an expression is evaluated.
pub const MAX_LIST: usize = 256;
/// Most bytes of a text of a machine for which an expression is evaluated.
pub const MAX_TEXT: usize = 1024;
/// The size of a machine for which every expression must be affordable when it is declared.
pub(super) const LARGE: Limits = Limits { list: 32, text: 256 };

/// A machine, in the form in which expressions read it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Name of the machine.
    pub name: &'a str,
    /// Its declared architecture.
    pub architecture: Architecture,
    /// Its zone, with the default filled in.
    pub zone: &'a str,
    /// Its pool, with the default filled in.
    pub pool: &'a str,
    /// The hardware, once it was read.
    pub inventory: Option<&'a Inventory>,
}

/// Type of a variable or field.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A text; empty if the hardware does not report it.
    Text,
    /// A whole number; 0 if the hardware does not report it.
    Number,
    /// True or false.
    Truth,
    /// An object with named fields.
    Fields(&'static [(&'static str, Shape)]),
    /// A list of values of one type.
    List(&'static Shape),
    /// The list of processor flags. This list is far longer than others and its texts are short, so the list has
    /// [bounds of its own](crate::kinds::MAX_FLAGS).
    Flags,
    /// A computed value of any type.
    Any,
}

/// A variable of expressions.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Name of the variable.
    pub name: &'static str,
    /// Type of the variable.
    pub shape: Shape,
}

use Shape::{Fields, Flags, List, Number, Text, Truth};

const fn variable(name: &'static str, shape: Shape) -> Variable {
    Variable { name, shape }
}

/// All variables, in the order of the documentation.
pub const VARIABLES: &[Variable] = &[
    variable("name", Text),
    variable("architecture", Text),
    variable("zone", Text),
    variable("pool", Text),
    variable("firmware", Text),
    variable(
        "cpu",
        Fields(&[
            ("model", Text),
            ("sockets", Number),
            ("cores", Number),
            ("threads", Number),
            ("numa_nodes", Number),
            ("microcode", Text),
            ("x86_64_level", Number),
        ]),
    ),
    variable("cpu_flags", Flags),
    variable("memory", Fields(&[("bytes", Number), ("mib", Number)])),
    variable(
        "memory_modules",
        List(&Fields(&[
            ("slot", Text),
            ("bytes", Number),
            ("technology", Text),
            ("speed", Number),
            ("manufacturer", Text),
            ("part_number", Text),
        ])),
    ),
    variable("tpm", Text),
    variable("secure_boot", Truth),
    variable(
        "dmi",
        Fields(&[
            ("manufacturer", Text),
            ("product", Text),
            ("serial", Text),
            ("uuid", Text),
            ("bios_version", Text),
        ]),
    ),
    variable("bmc", Fields(&[("present", Truth)])),
    variable("disk", Fields(&[("count", Number), ("bytes", Number)])),
    variable(
        "disks",
        List(&Fields(&[
            ("name", Text),
            ("bytes", Number),
            ("model", Text),
            ("serial", Text),
            ("transport", Text),
            ("rotational", Truth),
            ("firmware", Text),
        ])),
    ),
    variable("interface", Fields(&[("count", Number)])),
    variable(
        "interfaces",
        List(&Fields(&[
            ("name", Text),
            ("mac", Text),
            ("speed", Number),
            ("link", Truth),
            ("booted", Truth),
            ("driver", Text),
            ("firmware", Text),
        ])),
    ),
    variable(
        "neighbours",
        List(&Fields(&[
            ("interface", Text),
            ("protocol", Text),
            ("system_name", Text),
            ("chassis_id", Text),
            ("port_id", Text),
            ("port_description", Text),
            ("platform", Text),
            ("native_vlan", Number),
        ])),
    ),
    variable("gpu", Fields(&[("count", Number)])),
    variable("gpus", List(&Fields(&[("address", Text), ("vendor", Text), ("model", Text)]))),
    variable(
        "pci",
        List(&Fields(&[
            ("address", Text),
            ("vendor", Text),
            ("device", Text),
            ("class", Text),
            ("driver", Text),
        ])),
    ),
    variable(
        "usb",
        List(&Fields(&[
            ("port", Text),
            ("vendor", Text),
            ("product", Text),
            ("manufacturer", Text),
            ("product_name", Text),
            ("serial", Text),
        ])),
    ),
];

/// Variables whose values come from the hardware inventory.
pub(super) const HARDWARE: &[&str] = &[
    "firmware",
    "cpu",
    "cpu_flags",
    "memory",
    "memory_modules",
    "tpm",
    "secure_boot",
    "dmi",
    "bmc",
    "disk",
    "disks",
    "interface",
    "interfaces",
    "neighbours",
    "gpu",
    "gpus",
    "pci",
    "usb",
];

/// CEL distinguishes signed from unsigned numbers, and its literals are signed. So all numbers are signed.
fn number(unsigned: u64) -> i64 {
    i64::try_from(unsigned).unwrap_or(i64::MAX)
}

fn text(known: Option<&String>) -> &str {
    known.map_or("", String::as_str)
}

#[derive(Serialize)]
struct Processors<'a> {
    model: &'a str,
    sockets: i64,
    cores: i64,
    threads: i64,
    numa_nodes: i64,
    microcode: &'a str,
    x86_64_level: i64,
}

#[derive(Serialize)]
struct OneModule<'a> {
    slot: &'a str,
    bytes: i64,
    technology: &'a str,
    speed: i64,
    manufacturer: &'a str,
    part_number: &'a str,
}

#[derive(Serialize)]
struct Memory {
    bytes: i64,
    mib: i64,
}

#[derive(Serialize)]
struct Identity<'a> {
    manufacturer: &'a str,
    product: &'a str,
    serial: &'a str,
    uuid: &'a str,
    bios_version: &'a str,
}

#[derive(Serialize)]
struct Controller {
    present: bool,
}

#[derive(Serialize)]
struct Storage {
    count: i64,
    bytes: i64,
}

#[derive(Serialize)]
struct Several {
    count: i64,
}

#[derive(Serialize)]
struct OneDisk<'a> {
    name: &'a str,
    bytes: i64,
    model: &'a str,
    serial: &'a str,
    transport: &'a str,
    rotational: bool,
    firmware: &'a str,
}

#[derive(Serialize)]
struct OneInterface<'a> {
    name: &'a str,
    mac: String,
    speed: i64,
    link: bool,
    booted: bool,
    driver: &'a str,
    firmware: &'a str,
}

#[derive(Serialize)]
struct OneNeighbour<'a> {
    interface: &'a str,
    protocol: String,
    system_name: &'a str,
    chassis_id: &'a str,
    port_id: &'a str,
    port_description: &'a str,
    platform: &'a str,
    native_vlan: i64,
}

#[derive(Serialize)]
struct OneGpu<'a> {
    address: &'a str,
    vendor: &'a str,
    model: &'a str,
}

#[derive(Serialize)]
struct OneDevice<'a> {
    address: &'a str,
    vendor: &'a str,
    device: &'a str,
    class: &'a str,
    driver: &'a str,
}

#[derive(Serialize)]
struct OneUsbDevice<'a> {
    port: &'a str,
    vendor: &'a str,
    product: &'a str,
    manufacturer: &'a str,
    product_name: &'a str,
    serial: &'a str,
}

fn module<'a>((slot, module): (&'a String, &'a MemoryModule)) -> OneModule<'a> {
    OneModule {
        slot,
        bytes: number(module.size_bytes),
        technology: text(module.technology.as_ref()),
        speed: module.speed_mts.unwrap_or(0).into(),
        manufacturer: text(module.manufacturer.as_ref()),
        part_number: text(module.part_number.as_ref()),
    }
}

fn disk<'a>((name, disk): (&'a String, &'a Disk)) -> OneDisk<'a> {
    OneDisk {
        name,
        bytes: number(disk.size_bytes),
        model: text(disk.model.as_ref()),
        serial: text(disk.serial.as_ref()),
        transport: text(disk.transport.as_ref()),
        rotational: disk.rotational,
        firmware: text(disk.firmware.as_ref()),
    }
}

fn interface<'a>((name, interface): (&'a String, &'a Interface)) -> OneInterface<'a> {
    OneInterface {
        name,
        mac: interface.mac.to_string(),
        speed: number(interface.speed_mbps.unwrap_or(0)),
        link: interface.link,
        booted: interface.booted,
        driver: text(interface.driver.as_ref()),
        firmware: text(interface.firmware.as_ref()),
    }
}

/// Neighbours of all interfaces, each with the interface's name.
fn neighbours(found: &Inventory) -> impl Iterator<Item = (&str, &Neighbour)> {
    found.interfaces.iter().flat_map(|(name, it)| it.neighbours.values().map(move |one| (name.as_str(), one)))
}

fn neighbour<'a>((interface, it): (&'a str, &'a Neighbour)) -> OneNeighbour<'a> {
    OneNeighbour {
        interface,
        protocol: it.protocol.to_string(),
        system_name: text(it.system_name.as_ref()),
        chassis_id: &it.chassis_id,
        port_id: &it.port_id,
        port_description: text(it.port_description.as_ref()),
        platform: text(it.platform.as_ref()),
        native_vlan: it.native_vlan.unwrap_or(0).into(),
    }
}

fn device<'a>((address, device): (&'a String, &'a PciDevice)) -> OneDevice<'a> {
    OneDevice {
        address,
        vendor: &device.vendor,
        device: &device.device,
        class: &device.class,
        driver: text(device.driver.as_ref()),
    }
}

fn usb_device<'a>((port, it): (&'a String, &'a UsbDevice)) -> OneUsbDevice<'a> {
    OneUsbDevice {
        port,
        vendor: &it.vendor,
        product: &it.product,
        manufacturer: text(it.manufacturer.as_ref()),
        product_name: text(it.product_name.as_ref()),
        serial: text(it.serial.as_ref()),
    }
}

fn count<T>(map: &BTreeMap<String, T>) -> i64 {
    i64::try_from(map.len()).unwrap_or(i64::MAX)
}

/// Sets the used variables in the evaluation context.
pub(super) fn bind(context: &mut cel::Context<'_, '_>, machine: &Subject<'_>, used: &BTreeSet<&'static str>) {
    let nothing = Inventory::default();
    for root in used {
        if let Ok(value) = value(root, machine, machine.inventory.unwrap_or(&nothing)) {
            context.add_variable_from_value(*root, value);
        }
    }
}

fn value(
    root: &str,
    machine: &Subject<'_>,
    found: &Inventory,
) -> Result<cel::Value, cel::SerializationError> {
    let (cpu, dmi) = (&found.cpu, &found.dmi);
    match root {
        "name" => cel::to_value(machine.name),
        "architecture" => cel::to_value(machine.architecture.to_string()),
        "zone" => cel::to_value(machine.zone),
        "pool" => cel::to_value(machine.pool),
        "firmware" => cel::to_value(found.firmware.map(|mode| mode.to_string()).unwrap_or_default()),
        "cpu" => cel::to_value(Processors {
            model: text(cpu.model.as_ref()),
            sockets: cpu.sockets.into(),
            cores: cpu.cores.into(),
            threads: cpu.threads.into(),
            numa_nodes: cpu.numa_nodes.into(),
            microcode: text(cpu.microcode.as_ref()),
            x86_64_level: cpu.x86_64_level.unwrap_or(0).into(),
        }),
        "cpu_flags" => cel::to_value(&cpu.flags),
        "memory_modules" => cel::to_value(found.memory_modules.iter().map(module).collect::<Vec<_>>()),
        "tpm" => cel::to_value(text(found.tpm.as_ref())),
        "secure_boot" => cel::to_value(found.secure_boot.unwrap_or(false)),
        "memory" => {
            cel::to_value(Memory { bytes: number(found.memory_bytes), mib: number(found.memory_bytes >> 20) })
        }
        "dmi" => cel::to_value(Identity {
            manufacturer: text(dmi.manufacturer.as_ref()),
            product: text(dmi.product.as_ref()),
            serial: text(dmi.serial.as_ref()),
            uuid: text(dmi.uuid.as_ref()),
            bios_version: text(dmi.bios_version.as_ref()),
        }),
        "bmc" => cel::to_value(Controller { present: found.bmc_present }),
        "disk" => {
            let bytes = found.disks.values().fold(0_u64, |sum, disk| sum.saturating_add(disk.size_bytes));
            cel::to_value(Storage { count: count(&found.disks), bytes: number(bytes) })
        }
        "disks" => cel::to_value(found.disks.iter().map(disk).collect::<Vec<_>>()),
        "interface" => cel::to_value(Several { count: count(&found.interfaces) }),
        "interfaces" => cel::to_value(found.interfaces.iter().map(interface).collect::<Vec<_>>()),
        "neighbours" => cel::to_value(neighbours(found).map(neighbour).collect::<Vec<_>>()),
        "gpu" => cel::to_value(Several { count: count(&found.gpus) }),
        "gpus" => {
            let gpu = |(address, gpu): (&'_ String, &'_ Gpu)| {
                cel::to_value(OneGpu { address, vendor: &gpu.vendor, model: &gpu.model })
            };
            let gpus = found.gpus.iter().map(gpu).collect::<Result<Vec<_>, _>>()?;
            Ok(gpus.into())
        }
        "pci" => cel::to_value(found.pci.iter().map(device).collect::<Vec<_>>()),
        "usb" => cel::to_value(found.usb.iter().map(usb_device).collect::<Vec<_>>()),
        _ => Ok(cel::Value::Null),
    }
}

/// The longest list and text of a machine.
pub(super) fn limits(machine: &Subject<'_>) -> Limits {
    let own = [machine.name, machine.zone, machine.pool];
    let Some(found) = machine.inventory else {
        return Limits { list: 0, text: longest(own) };
    };
    let (cpu, dmi) = (&found.cpu, &found.dmi);
    let identity = [&cpu.model, &dmi.manufacturer, &dmi.product, &dmi.serial, &dmi.uuid, &dmi.bios_version];
    let modules = found.memory_modules.iter().flat_map(|(slot, it)| {
        let known = [&it.technology, &it.manufacturer, &it.part_number].map(|known| text(known.as_ref()));
        [slot.as_str()].into_iter().chain(known)
    });
    let security = [&found.tpm, &cpu.microcode].map(|known| text(known.as_ref()));
    let disks = found.disks.iter().flat_map(|(name, disk)| {
        let known = [&disk.model, &disk.serial, &disk.transport, &disk.firmware];
        [name.as_str()].into_iter().chain(known.map(|known| text(known.as_ref())))
    });
    let interfaces = found
        .interfaces
        .iter()
        .flat_map(|(name, it)| [name.as_str(), text(it.driver.as_ref()), text(it.firmware.as_ref())]);
    let neighbours = neighbours(found).flat_map(|(_, it)| {
        let known = [&it.system_name, &it.port_description, &it.platform].map(|known| text(known.as_ref()));
        [it.chassis_id.as_str(), &it.port_id].into_iter().chain(known)
    });
    let gpus = found.gpus.iter().flat_map(|(address, gpu)| [address.as_str(), &gpu.vendor, &gpu.model]);
    let pci = found.pci.iter().flat_map(|(address, it)| {
        [address.as_str(), &it.vendor, &it.device, &it.class, text(it.driver.as_ref())]
    });
    let usb = found.usb.iter().flat_map(|(port, it)| {
        let known = [&it.manufacturer, &it.product_name, &it.serial].map(|known| text(known.as_ref()));
        [port.as_str(), &it.vendor, &it.product].into_iter().chain(known)
    });
    let texts = own.into_iter().chain(identity.map(|known| text(known.as_ref())));
    let devices = gpus.chain(pci).chain(usb).chain(modules).chain(security);
    let lists = [
        found.disks.len(),
        found.interfaces.len(),
        found.gpus.len(),
        found.pci.len(),
        found.usb.len(),
        found.memory_modules.len(),
    ];
    Limits {
        list: lists.into_iter().fold(self::neighbours(found).count(), usize::max),
        text: longest(texts.chain(disks).chain(interfaces).chain(neighbours).chain(devices)).max(MAC),
    }
}

/// Bytes of a MAC as text. It is the longest text that has no limit of its own.
const MAC: usize = 17;

fn longest<'a>(texts: impl IntoIterator<Item = &'a str>) -> usize {
    texts.into_iter().map(str::len).max().unwrap_or(0)
}

/// A sample machine with every sort of hardware and with long texts.
pub(super) fn sample() -> Subject<'static> {
    static ONE: LazyLock<Inventory> = LazyLock::new(|| {
        let mut inventory = Inventory::default();
        let long = || Some("x".repeat(LARGE.text));
        let disk = Disk { model: long(), serial: long(), ..Disk::new(1) };
        inventory.disks.insert("sda".to_owned(), disk);
        let dmi = &mut inventory.dmi;
        (dmi.manufacturer, dmi.product, dmi.serial) = (long(), long(), long());
        inventory.cpu.model = long();
        let mut interface = Interface::new(Mac::new([0x52, 0x54, 0, 0, 0, 1]));
        let neighbour = Neighbour::new(NeighbourProtocol::Lldp, "leaf".to_owned(), "eth1".to_owned());
        interface.neighbours.insert("leaf".to_owned(), neighbour);
        inventory.interfaces.insert("eth0".to_owned(), interface);
        inventory.gpus.insert("0000:00:00.0".to_owned(), Gpu::new("nvidia".to_owned(), "20b5".to_owned()));
        let device = PciDevice::new("10de".to_owned(), "20b5".to_owned(), "030200".to_owned());
        inventory.pci.insert("0000:00:00.0".to_owned(), device);
        // Numbers that people use as divisors must not be 0.
        (inventory.cpu.sockets, inventory.cpu.cores, inventory.cpu.threads) = (1, 1, 1);
        inventory.cpu.numa_nodes = 1;
        inventory.cpu.flags.insert("sse2".to_owned());
        let usb = UsbDevice::new("0781".to_owned(), "5583".to_owned());
        inventory.usb.insert("pci-0000:00:14.0-usb2-1".to_owned(), usb);
        inventory.memory_bytes = 1 << 20;
        inventory.memory_modules.insert("DIMM_A1".to_owned(), MemoryModule::new(1 << 20));
        inventory
    });
    Subject {
        name: "machine",
        architecture: Architecture::Amd64,
        zone: "default",
        pool: "default",
        inventory: Some(&ONE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_the_shape_that_the_table_says() {
        fn has(value: &cel::Value, shape: Shape) -> bool {
            match (value, shape) {
                (cel::Value::String(_), Text)
                | (cel::Value::Int(_), Number)
                | (cel::Value::Bool(_), Truth) => true,
                (cel::Value::List(items), List(item)) => {
                    !items.is_empty() && items.iter().all(|v| has(v, *item))
                }
                (cel::Value::List(items), Flags) => !items.is_empty() && items.iter().all(|v| has(v, Text)),
                (cel::Value::Map(map), Fields(fields)) => {
                    let field = |name: &str| map.map.get(&cel::objects::Key::from(name));
                    map.map.len() == fields.len()
                        && fields.iter().all(|(name, shape)| field(name).is_some_and(|v| has(v, *shape)))
                }
                _ => false,
            }
        }
        let sample = sample();
        for variable in VARIABLES {
            let value = value(variable.name, &sample, sample.inventory.unwrap()).unwrap();
            assert!(has(&value, variable.shape), "{}: {value:?}", variable.name);
        }
        assert!(HARDWARE.iter().all(|name| VARIABLES.iter().any(|variable| variable.name == *name)));
    }
}
