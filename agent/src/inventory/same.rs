//! The same machine on two boots, as files of the kernel. The boots differ in everything that the kernel counts, measures or numbers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::read;
use super::usb::tests::add as add_usb;
use crate::root::Root;

/// The differences between two boots of a machine.
struct Boot {
    /// Numbers that the kernel gave to the buses of USB 2 and USB 3.
    buses: [u8; 2],
    /// Numbers of USB addresses, counters, temperatures, frequencies and free memory.
    number: u32,
    /// The order in which the kernel writes the flags of the processors.
    flags: [&'static str; 4],
}

fn put(root: &Path, files: &[(&str, &str)]) {
    for (file, text) in files {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{text}\n")).unwrap();
    }
}

/// A directory of the device tree, with the link to it from a class or bus.
fn device(root: &Path, place: &str, link: &str, files: &[(&str, &str)]) {
    let real = root.join("sys/devices").join(place);
    fs::create_dir_all(&real).unwrap();
    // `sys/block/NAME` leads to `../devices`, `sys/class/net/NAME` to `../../devices`.
    let up = "../".repeat(link.matches('/').count() - 1);
    let link = root.join(link);
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink(format!("{up}devices/{place}"), &link).unwrap();
    put(&real, files);
}

fn boot(root: &Path, boot: &Boot) {
    let number = boot.number.to_string();
    let processor = |n: u32| {
        format!(
            "processor\t: {n}\nmodel name\t: Invented CPU 3000\nmicrocode\t: 0xd0003e7\ncpu MHz\t\t: {number}.1\nphysical id\t: {}\ncore id\t\t: {n}\nflags\t\t: {}\n\n",
            n / 2,
            boot.flags.join(" ")
        )
    };
    put(root, &[("proc/cpuinfo", &(0..4).map(processor).collect::<String>())]);
    put(
        root,
        &[
            ("proc/meminfo", &format!("MemTotal:       {number}000 kB")),
            ("sys/devices/system/memory/block_size_bytes", "8000000"),
            ("sys/devices/system/node/node0/cpulist", "0-1"),
            ("sys/devices/system/node/node0/memory0/state", "online"),
            ("sys/devices/system/node/node0/meminfo", &format!("Node 0 MemTotal:  {number}00 kB")),
            ("sys/devices/system/node/node1/cpulist", "2-3"),
            ("sys/devices/system/node/node1/memory64/state", "online"),
            ("sys/class/hwmon/hwmon0/temp1_input", &number),
            ("sys/class/tpm/tpm0/tpm_version_major", "2"),
            ("sys/class/dmi/id/product_serial", "5BR"),
        ],
    );
    // SMBIOS 3.7 §7.18: a memory module, so that its size is the size of the memory.
    let mut module = vec![0; 0x28];
    (module[0], module[1], module[0x0d]) = (17, 0x28, 0x20);
    module.extend(b"\0\0");
    module.extend([127, 4, 0, 0, 0, 0]);
    fs::create_dir_all(root.join("sys/firmware/dmi/tables")).unwrap();
    fs::write(root.join("sys/firmware/dmi/tables/DMI"), module).unwrap();
    device(
        root,
        "pci0000:3a/0000:3a:00.0/0000:3b:00.0/net/enp59s0",
        "sys/class/net/enp59s0",
        &[
            ("address", "52:54:00:00:00:01"),
            ("type", "1"),
            ("carrier", "1"),
            ("speed", "25000"),
            ("device/numa_node", "1"),
            ("statistics/rx_bytes", &number),
            ("ifindex", &number),
        ],
    );
    for (address, class) in [("0000:3b:00.0", "0x020000"), ("0000:3d:00.0", "0x010802")] {
        put(
            &root.join("sys/bus/pci/devices").join(address),
            &[
                ("class", class),
                ("vendor", "0x8086"),
                ("device", "0x1593"),
                ("numa_node", "1"),
                ("irq", &number),
            ],
        );
    }
    device(
        root,
        "pci0000:3c/0000:3c:00.0/0000:3d:00.0/nvme/nvme0/nvme0n1",
        "sys/block/nvme0n1",
        &[
            ("size", "8"),
            ("nsid", "1"),
            ("wwid", "eui.0025385b71b00001"),
            ("device/model", "Fast 1"),
            ("device/serial", "S1"),
            ("device/firmware_rev", "GDC5602Q"),
            ("stat", &number),
        ],
    );
    let [usb2, usb3] = boot.buses;
    let stick = [("idVendor", "0781"), ("idProduct", "5583"), ("bDeviceClass", "00"), ("devnum", &*number)];
    let place = |bus: u8| format!("pci0000:00/0000:00:14.0/usb{bus}");
    for (bus, version) in [(usb2, " 2.00"), (usb3, " 3.10")] {
        add_usb(
            root,
            &place(bus),
            &[("version", version), ("bDeviceClass", "09"), ("busnum", &bus.to_string())],
        );
        let stick = [&stick[..], &[("serial", version.trim())]].concat();
        add_usb(root, &format!("{}/{bus}-1", place(bus)), &stick);
        add_usb(root, &format!("{}/{bus}-1/{bus}-1:1.0", place(bus)), &[("bInterfaceClass", "08")]);
    }
}

#[test]
fn a_second_boot_of_the_same_machine_gives_the_same_inventory_byte_by_byte() {
    let inventory = |of: &Boot| {
        let dir = tempfile::tempdir().unwrap();
        boot(dir.path(), of);
        read(&Root::at(dir.path()), Some("52:54:00:00:00:01"))
    };
    let first = inventory(&Boot { buses: [1, 2], number: 4711, flags: ["fpu", "sse2", "avx2", "lm"] });
    let second = inventory(&Boot { buses: [4, 3], number: 815, flags: ["lm", "avx2", "fpu", "sse2"] });
    // The machine has one of each, so that an inventory without them would not do.
    assert_eq!((first.numa.len(), first.usb.len(), first.pci.len(), first.nics.len()), (2, 2, 2, 1));
    let [disk] = first.disks.as_slice() else { panic!("{:?}", first.disks) };
    assert_eq!((disk.firmware.as_str(), disk.numa_node, first.memory_bytes), ("GDC5602Q", Some(1), 8 << 30));
    assert_eq!(
        (first.cpu.flags.len(), first.nics[0].pci.as_str(), first.tpm.as_str()),
        (4, "0000:3b:00.0", "2.0")
    );
    let [first, second] = [first, second].map(|it| serde_json::to_string_pretty(&it).unwrap());
    assert_eq!(first, second);
}
