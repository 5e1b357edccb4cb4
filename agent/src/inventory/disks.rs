//! Block devices that a system can be installed to.

use basalt_api::agent::Disk;

use super::{numa, paths};
use crate::root::Root;

/// Prefixes of kernel names that are not disks: memory, files, optical drives, floppies, and devices made from others.
const NOT_DISKS: [&str; 10] = ["loop", "ram", "zram", "sr", "fd", "dm-", "md", "nbd", "mtdblock", "zd"];

/// All disks, sorted by kernel name. These are skipped, so that no system is installed there by accident:
///
/// - removable disks (USB sticks, a BMC's virtual media)
/// - read-only disks
/// - hidden disks (the paths of a multipath NVMe namespace)
/// - disks of size 0 (readers without a medium)
#[must_use]
pub fn block_devices(root: &Root) -> Vec<Disk> {
    let mut names = root.names("sys/block");
    names.retain(|name| {
        let set = |file: &str| root.number::<u8>(format!("sys/block/{name}/{file}")).unwrap_or(0) != 0;
        !NOT_DISKS.iter().any(|prefix| name.starts_with(prefix))
            && !set("removable")
            && !set("ro")
            && !set("hidden")
    });
    names.into_iter().filter_map(|name| device(root, name)).collect()
}

fn device(root: &Root, name: String) -> Option<Disk> {
    let base = format!("sys/block/{name}");
    let text = |file: &str| root.text(format!("{base}/{file}"));
    // Always in units of 512 bytes, whatever the block size.
    let size_bytes = root.number::<u64>(format!("{base}/size"))?.checked_mul(512).filter(|size| *size > 0)?;
    let transport = transport(&name, &root.link(&base).unwrap_or_default());
    let serial = text("serial")
        .or_else(|| text("device/serial"))
        .or_else(|| unit_serial(root, &base))
        .unwrap_or_default();
    let model = text("device/model").unwrap_or_default();
    let mut disk = Disk {
        size_bytes,
        rotational: root.number::<u8>(format!("{base}/queue/rotational")) == Some(1),
        block_bytes: root.number(format!("{base}/queue/logical_block_size")).unwrap_or(512),
        transport: transport.to_owned(),
        model,
        serial,
        firmware: firmware(root, &base).unwrap_or_default(),
        numa_node: numa_node(root, &base),
        health: None,
        name,
        ids: Vec::new(),
        paths: Vec::new(),
    };
    disk.paths = paths::of(root, &disk.name, &root.link(&base).unwrap_or_default());
    disk.ids = ids(&disk, text("wwid").or_else(|| text("device/wwid")).as_deref());
    Some(disk)
}

/// The transport of a disk, from its place in the device tree. The table lists the nearest bus first, and the first match counts.
fn transport(name: &str, path: &str) -> &'static str {
    const BY_PATH: [(&str, &str); 6] = [
        ("/virtio", "virtio"),
        ("/usb", "usb"),
        ("/end_device-", "sas"),
        ("/ata", "sata"),
        ("/rport-", "fc"),
        ("/session", "iscsi"),
    ];
    const BY_NAME: [(&str, &str); 4] =
        [("nvme", "nvme"), ("mmcblk", "mmc"), ("xvd", "xen"), ("pmem", "pmem")];
    let by_name = BY_NAME.iter().find(|(prefix, _)| name.starts_with(prefix));
    let by_path = || BY_PATH.iter().find(|(part, _)| path.contains(part));
    by_name.or_else(by_path).map_or("scsi", |(_, transport)| transport)
}

/// SCSI's unit serial number page: four bytes of head, then text.
fn unit_serial(root: &Root, base: &str) -> Option<String> {
    let page = root.bytes(format!("{base}/device/vpd_pg80"))?;
    let serial = String::from_utf8_lossy(page.get(4..)?)
        .trim_matches(|c: char| c.is_whitespace() || c == '\0')
        .to_owned();
    (!serial.is_empty()).then_some(serial)
}

/// Offset of the firmware revision in the ATA information page (SAT-4 §12.4.2): the IDENTIFY data begins at octet 60, and words 23 to 26
/// are the revision.
const ATA_FIRMWARE: std::ops::Range<usize> = 106..114;

/// The revision of the firmware. SCSI's own field has four characters, so that the revision of an ATA disk is cut there.
fn firmware(root: &Root, base: &str) -> Option<String> {
    let text = |file: &str| root.text(format!("{base}/{file}"));
    let ata = || {
        let page = root.bytes(format!("{base}/device/vpd_pg89"))?;
        // Each word of ATA has its first character in the upper octet.
        let words = page.get(ATA_FIRMWARE)?.chunks_exact(2).flat_map(|word| word.iter().rev());
        let octets: Vec<u8> = words.copied().collect();
        let revision = String::from_utf8_lossy(&octets).trim_matches([' ', '\0']).to_owned();
        (!revision.is_empty()).then_some(revision)
    };
    text("device/firmware_rev").or_else(ata).or_else(|| text("device/rev")).or_else(|| text("device/fwrev"))
}

/// The NUMA node of a disk's controller. An NVMe disk with several controllers has a node if they agree.
fn numa_node(root: &Root, base: &str) -> Option<u16> {
    let of = |address: &str| numa::of_device(root, &format!("sys/bus/pci/devices/{address}"));
    let link = root.link(base)?;
    let parts: Vec<&str> = link.split('/').collect();
    if let Some(address) = paths::pci_at(&parts).and_then(|at| parts.get(at)) {
        return of(address);
    }
    let controllers = root.names(format!("{base}/device"));
    let controllers = controllers.iter().filter(|name| name.starts_with("nvme"));
    let mut nodes = controllers.filter_map(|name| root.text(format!("{base}/device/{name}/address")));
    let first = of(&nodes.next()?)?;
    nodes.all(|address| of(&address) == Some(first)).then_some(first)
}

/// The names that udev's rules give below `/dev/disk/by-id`.
fn ids(disk: &Disk, wwid: Option<&str>) -> Vec<String> {
    let named = |text: &str| text.split_whitespace().collect::<Vec<_>>().join("_");
    let (model, serial) = (named(&disk.model), named(&disk.serial));
    let mut ids = Vec::new();
    if !serial.is_empty() {
        match disk.transport.as_str() {
            "virtio" => ids.push(format!("virtio-{serial}")),
            "nvme" => ids.push(format!("nvme-{model}_{serial}")),
            "sata" => ids.push(format!("ata-{model}_{serial}")),
            "usb" => ids.push(format!("usb-{model}_{serial}-0:0")),
            _ => ids.push(format!("scsi-{serial}")),
        }
    }
    if let Some(wwid) = wwid {
        if let Some(naa) = wwid.strip_prefix("naa.") {
            ids.extend([format!("wwn-0x{naa}"), format!("scsi-3{naa}")]);
        } else if wwid.starts_with("eui.") || wwid.starts_with("nvme.") || wwid.starts_with("uuid.") {
            ids.push(format!("nvme-{wwid}"));
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn add(root: &Path, name: &str, place: &str, files: &[(&str, &[u8])]) {
        let real = root.join("sys/devices").join(place).join("block").join(name);
        fs::create_dir_all(&real).unwrap();
        fs::create_dir_all(root.join("sys/block")).unwrap();
        symlink(format!("../devices/{place}/block/{name}"), root.join("sys/block").join(name)).unwrap();
        for (file, bytes) in files {
            fs::create_dir_all(real.join(file).parent().unwrap()).unwrap();
            fs::write(real.join(file), bytes).unwrap();
        }
    }

    fn one(name: &str, place: &str, files: &[(&str, &[u8])]) -> Disk {
        let dir = tempfile::tempdir().unwrap();
        add(dir.path(), name, place, files);
        block_devices(&Root::at(dir.path())).remove(0)
    }

    #[test]
    fn a_virtio_disk() {
        let device = one(
            "vda",
            "pci0000:00/0000:00:04.0/virtio2",
            &[
                ("size", b"20971520\n"),
                ("serial", b"disk-1"),
                ("queue/rotational", b"1\n"),
                ("queue/logical_block_size", b"512\n"),
            ],
        );
        let expected = Disk {
            name: "vda".to_owned(),
            size_bytes: 10 << 30,
            serial: "disk-1".to_owned(),
            rotational: true,
            block_bytes: 512,
            transport: "virtio".to_owned(),
            ids: vec!["virtio-disk-1".to_owned()],
            paths: ["pci-0000:00:04.0", "virtio-pci-0000:00:04.0"].map(str::to_owned).to_vec(),
            ..Disk::default()
        };
        assert_eq!(device, expected);
    }

    #[test]
    fn a_sata_disk_has_its_serial_from_the_unit_serial_page() {
        let device = one(
            "sda",
            "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0",
            &[
                ("size", b"8"),
                ("device/model", b"QEMU HARDDISK   \n"),
                ("device/vpd_pg80", b"\0\x80\0\x08 QM00001"),
                ("device/wwid", b"naa.5000c500a1b2c3d4\n"),
            ],
        );
        assert_eq!((device.serial.as_str(), device.transport.as_str()), ("QM00001", "sata"));
        assert_eq!(
            device.ids,
            ["ata-QEMU_HARDDISK_QM00001", "wwn-0x5000c500a1b2c3d4", "scsi-35000c500a1b2c3d4"]
        );
    }

    #[test]
    fn an_nvme_disk_and_a_sas_disk() {
        let nvme = one(
            "nvme0n1",
            "pci0000:00/0000:00:05.0/nvme/nvme0",
            &[
                ("size", b"8"),
                ("device/model", b"Fast 1"),
                ("device/serial", b"S1"),
                ("wwid", b"eui.0025385b71b00001"),
            ],
        );
        assert_eq!(nvme.ids, ["nvme-Fast_1_S1", "nvme-eui.0025385b71b00001"]);
        let sas = one(
            "sdb",
            "pci0000:00/0000:00:06.0/host6/port-6:0/end_device-6:0/target6:0:0/6:0:0:0",
            &[("size", b"8")],
        );
        assert_eq!(sas.transport, "sas");
    }

    #[test]
    fn the_firmware_of_an_ata_disk_is_not_cut_to_four_characters() {
        let mut page = vec![0; 572];
        page.splice(ATA_FIRMWARE, *b"1040MG74");
        let place = "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0";
        let firmware = |files: &[(&str, &[u8])]| {
            one("sda", place, &[&[("size", b"8".as_slice())], files].concat()).firmware
        };
        assert_eq!(firmware(&[("device/vpd_pg89", &page), ("device/rev", b"GM47\n")]), "0104GM47");
        assert_eq!(firmware(&[("device/vpd_pg89", b"\0\x89"), ("device/rev", b"GM47\n")]), "GM47");
        assert_eq!(firmware(&[("device/fwrev", b"0x3\n")]), "0x3");
    }

    #[test]
    fn a_disk_is_on_the_numa_node_of_its_controllers() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for (address, node) in
            [("0000:3d:00.0", "1"), ("0000:3e:00.0", "1"), ("0000:5f:00.0", "0"), ("0000:60:00.0", "-1")]
        {
            let device = root.join("sys/bus/pci/devices").join(address);
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("numa_node"), format!("{node}\n")).unwrap();
        }
        add(
            root,
            "nvme0n1",
            "pci0000:3c/0000:3c:00.0/0000:3d:00.0/nvme/nvme0",
            &[("size", b"8"), ("device/firmware_rev", b"GDC5602Q\n")],
        );
        add(root, "sda", "pci0000:60/0000:60:00.0/ata1/host0/target0:0:0/0:0:0:0", &[("size", b"8")]);
        let both = |a: &'static [u8], b: &'static [u8]| {
            [("size", b"8".as_slice()), ("device/nvme1/address", a), ("device/nvme2/address", b)]
        };
        add(
            root,
            "nvme1n1",
            "virtual/nvme-subsystem/nvme-subsys1",
            &both(b"0000:3d:00.0\n", b"0000:3e:00.0\n"),
        );
        add(
            root,
            "nvme2n1",
            "virtual/nvme-subsystem/nvme-subsys2",
            &both(b"0000:3d:00.0\n", b"0000:5f:00.0\n"),
        );
        let disks = block_devices(&Root::at(root));
        let seen: Vec<_> = disks.iter().map(|disk| (disk.name.as_str(), disk.numa_node)).collect();
        assert_eq!(seen, [("nvme0n1", Some(1)), ("nvme1n1", Some(1)), ("nvme2n1", None), ("sda", None)]);
        assert_eq!(disks[0].firmware, "GDC5602Q");
    }

    #[test]
    fn what_is_no_disk_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["loop0", "sr0", "dm-0", "md127", "zram0"] {
            add(dir.path(), name, "virtual", &[("size", b"8")]);
        }
        add(dir.path(), "sdb", "usb1/1-1", &[("size", b"8"), ("removable", b"1")]);
        add(dir.path(), "sdc", "pci0", &[("size", b"0")]);
        add(dir.path(), "nvme0c0n1", "pci1", &[("size", b"8"), ("hidden", b"1")]);
        add(dir.path(), "sdd", "pci2", &[("size", b"8"), ("ro", b"1")]);
        assert_eq!(block_devices(&Root::at(dir.path())), []);
    }
}
