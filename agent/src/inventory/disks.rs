//! Block devices that a system can be installed to.

use basalt_api::agent::Disk;

use super::paths;
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
