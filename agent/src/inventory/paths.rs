//! The names that udev would give a disk below `/dev/disk/by-path`. They identify the port of the disk.
//!
//! There is no udev in the ephemeral environment. The names are built from the disk's place in the device tree, like systemd's `path_id`
//! does.
//!
//! | attached by | name |
//! | --- | --- |
//! | virtio | `pci-ADDRESS`, `virtio-pci-ADDRESS` |
//! | NVMe | `pci-ADDRESS-nvme-NAMESPACE` |
//! | SATA | `pci-ADDRESS-ata-PORT.TARGET`, `pci-ADDRESS-ata-PORT` |
//! | SAS | `pci-ADDRESS-sas-phyN-lun-L`, behind an expander `pci-ADDRESS-sas-expSAS-phyN-lun-L` |
//! | USB | `pci-ADDRESS-usb-0:PORT-scsi-0:0:0:L` |
//! | another SCSI host | `pci-ADDRESS-scsi-HOST:CHANNEL:TARGET:LUN`, where hosts of a controller are counted from 0 |

use crate::root::Root;

/// Names of the disk with this kernel name, from its link in `/sys/block`. Empty for other kinds of attachment.
pub(super) fn of(root: &Root, name: &str, link: &str) -> Vec<String> {
    let parts: Vec<&str> = link.split('/').collect();
    let Some(at) = pci_at(&parts) else { return Vec::new() };
    let (above, below) = parts.split_at(at + 1);
    let pci = format!("pci-{}", above.last().copied().unwrap_or_default());
    if name.starts_with("nvme") {
        let namespace = root.number::<u32>(format!("sys/block/{name}/nsid"));
        return namespace.map(|id| format!("{pci}-nvme-{id}")).into_iter().collect();
    }
    let Some(scsi) = Scsi::of(below) else {
        let is_virtio = below.iter().any(|part| part.starts_with("virtio"));
        return if is_virtio { vec![pci.clone(), format!("virtio-{pci}")] } else { Vec::new() };
    };
    let first = |prefix: &str| below.iter().find(|part| part.starts_with(prefix)).copied();
    if let Some(ata) = first("ata") {
        let Some(port) = root.number::<u32>(format!("sys/class/ata_port/{ata}/port_no")) else {
            return Vec::new();
        };
        // Behind a port multiplier, disks differ by channel; otherwise by target.
        let device = if scsi.channel == 0 { scsi.target } else { scsi.channel };
        return vec![format!("{pci}-ata-{port}.{device}"), format!("{pci}-ata-{port}")];
    }
    if let Some(end) = first("end_device-") {
        return sas(root, &parts, end, &scsi).map(|sas| format!("{pci}-{sas}")).into_iter().collect();
    }
    if first("rport-").is_some() || first("session").is_some() {
        return Vec::new();
    }
    let usb = below.iter().rfind(|part| part.contains('-') && part.contains(':') && !part.contains("target"));
    let usb = usb.and_then(|part| part.split_once('-')).map(|(_, port)| format!("usb-0:{port}-"));
    let host = scsi.host - first_host(root, &parts).unwrap_or(0).min(scsi.host);
    let Scsi { channel, target, lun, .. } = scsi;
    vec![format!("{pci}-{}scsi-{host}:{channel}:{target}:{lun}", usb.unwrap_or_default())]
}

/// The position of the last PCI address in a place of the device tree.
pub(super) fn pci_at(parts: &[&str]) -> Option<usize> {
    parts.iter().rposition(|part| is_pci(part))
}

/// True for the address of a function on PCI: `0000:00:1f.2`.
pub(super) fn is_pci(part: &str) -> bool {
    let mut fields = part.split([':', '.']);
    let mut field = |digits: std::ops::RangeInclusive<usize>| {
        fields
            .next()
            .is_some_and(|it| digits.contains(&it.len()) && it.chars().all(|c| c.is_ascii_hexdigit()))
    };
    field(4..=8)
        && field(2..=2)
        && field(2..=2)
        && field(1..=1)
        && fields.next().is_none()
        && part.contains('.')
}

/// The place of a disk on its SCSI host.
struct Scsi {
    host: u32,
    channel: u32,
    target: u32,
    lun: u32,
}

impl Scsi {
    /// From the part `HOST:CHANNEL:TARGET:LUN`.
    fn of(parts: &[&str]) -> Option<Self> {
        parts.iter().find_map(|part| {
            let numbers: Result<Vec<u32>, _> = part.split(':').map(str::parse).collect();
            match numbers.ok()?.as_slice() {
                [host, channel, target, lun] => {
                    Some(Self { host: *host, channel: *channel, target: *target, lun: *lun })
                }
                _ => None,
            }
        })
    }
}

/// The least number of the SCSI hosts of a disk's controller.
fn first_host(root: &Root, parts: &[&str]) -> Option<u32> {
    let number = |name: &str| name.strip_prefix("host")?.parse::<u32>().ok();
    let at = parts.iter().position(|part| number(part).is_some())?;
    let place: Vec<&str> = parts.get(..at)?.iter().copied().filter(|part| *part != "..").collect();
    root.names(format!("sys/{}", place.join("/"))).iter().filter_map(|name| number(name)).min()
}

fn sas(root: &Root, parts: &[&str], end: &str, scsi: &Scsi) -> Option<String> {
    let device = |name: &str, file: &str| root.text(format!("sys/class/sas_device/{name}/{file}"));
    let lun = scsi.lun;
    let port = parts.iter().rfind(|part| part.starts_with("port-"))?;
    let phys = root.number::<u32>(format!("sys/class/sas_port/{port}/num_phys"))?;
    if phys != 1 {
        return Some(format!("sas-{}-lun-{lun}", device(end, "sas_address")?));
    }
    let phy = device(end, "phy_identifier")?;
    match parts.iter().rfind(|part| part.starts_with("expander-")) {
        Some(expander) => Some(format!("sas-exp{}-phy{phy}-lun-{lun}", device(expander, "sas_address")?)),
        None => Some(format!("sas-phy{phy}-lun-{lun}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn paths(name: &str, link: &str, files: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = dir.path().join("sys").join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        of(&Root::at(dir.path()), name, &format!("../devices/{link}"))
    }

    #[test]
    fn a_port_is_named_as_udev_names_it() {
        let scsi = "target2:0:0/2:0:0:0/block/sda";
        let sata = paths(
            "sda",
            &format!("pci0000:00/0000:00:1f.2/ata3/host2/{scsi}"),
            &[("class/ata_port/ata3/port_no", "1\n")],
        );
        assert_eq!(sata, ["pci-0000:00:1f.2-ata-1.0", "pci-0000:00:1f.2-ata-1"]);
        let nvme = paths(
            "nvme0n1",
            "pci0000:00/0000:00:1d.0/0000:3d:00.0/nvme/nvme0/nvme0n1",
            &[("block/nvme0n1/nsid", "1\n")],
        );
        assert_eq!(nvme, ["pci-0000:3d:00.0-nvme-1"]);
        let virtio_scsi = paths(
            "sda",
            &format!("pci0000:00/0000:00:05.0/virtio2/host2/{scsi}"),
            &[("devices/pci0000:00/0000:00:05.0/virtio2/host2/uevent", "")],
        );
        assert_eq!(virtio_scsi, ["pci-0000:00:05.0-scsi-0:0:0:0"]);
        let usb = paths(
            "sdb",
            "pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdb",
            &[("devices/pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/uevent", "")],
        );
        assert_eq!(usb, ["pci-0000:00:14.0-usb-0:1:1.0-scsi-0:0:0:0"]);
        assert_eq!(paths("mmcblk0", "platform/mmc0/mmc0:0001/block/mmcblk0", &[]), [""; 0]);
    }

    #[test]
    fn a_disk_on_sas_is_named_by_its_phy() {
        let end = "end_device-0:0:2";
        let files = [
            ("class/sas_port/port-0:0:2/num_phys", "1"),
            ("class/sas_device/end_device-0:0:2/phy_identifier", "2"),
            ("class/sas_device/end_device-0:2/phy_identifier", "3"),
            ("class/sas_port/port-0:2/num_phys", "1"),
            ("class/sas_device/expander-0:0/sas_address", "0x500056b3"),
        ];
        let scsi = "target0:0:2/0:0:2:0/block/sda";
        let link = format!("pci0000:00/0000:02:00.0/host0/port-0:0/expander-0:0/port-0:0:2/{end}/{scsi}");
        assert_eq!(paths("sda", &link, &files), ["pci-0000:02:00.0-sas-exp0x500056b3-phy2-lun-0"]);
        let link = format!("pci0000:00/0000:02:00.0/host0/port-0:2/end_device-0:2/{scsi}");
        assert_eq!(paths("sda", &link, &files), ["pci-0000:02:00.0-sas-phy3-lun-0"]);
    }
}
