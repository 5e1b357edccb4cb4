//! Physical network interfaces.

use basalt_api::agent::Nic;

use super::{numa, paths};
use crate::network;
use crate::root::Root;

pub(super) fn read(root: &Root, boot_mac: Option<&str>) -> Vec<Nic> {
    network::physical(root).into_iter().map(|name| nic(root, name, boot_mac)).collect()
}

fn nic(root: &Root, name: String, boot_mac: Option<&str>) -> Nic {
    let base = format!("sys/class/net/{name}");
    let mac = network::mac(root, &name).unwrap_or_default();
    let link = network::has_carrier(root, &name);
    Nic {
        // -1 stands for unknown.
        speed_mbps: root
            .number::<i64>(format!("{base}/speed"))
            .and_then(|speed| u64::try_from(speed).ok())
            .filter(|_| link),
        link,
        boot: boot_mac == Some(mac.as_str()),
        hardware: root.number(format!("{base}/type")),
        driver: root.link_name(format!("{base}/device/driver")).unwrap_or_default(),
        mac,
        name,
        numa_node: numa::of_device(root, &format!("{base}/device")),
        firmware: String::new(),
        pci: pci(root, &base).unwrap_or_default(),
        neighbours: Vec::new(),
    }
}

/// The PCI address of an adapter. An adapter on USB has none: the address in its place is the one of the USB controller.
fn pci(root: &Root, base: &str) -> Option<String> {
    let place = root.link(base)?;
    let parts: Vec<&str> = place.split('/').collect();
    let (above, below) = parts.split_at_checked(paths::pci_at(&parts)? + 1)?;
    let is_usb = below.iter().any(|part| part.starts_with("usb"));
    above.last().filter(|_| !is_usb).map(|address| (*address).to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn add(root: &Path, name: &str, mac: &str, files: &[(&str, &str)]) {
        let base = root.join("sys/class/net").join(name);
        fs::create_dir_all(base.join("device")).unwrap();
        symlink("../../../../bus/virtio/drivers/virtio_net", base.join("device/driver")).unwrap();
        fs::write(base.join("address"), format!("{mac}\n")).unwrap();
        for (file, text) in files {
            fs::write(base.join(file), text).unwrap();
        }
    }

    #[test]
    fn lists_physical_interfaces_with_speed_where_there_is_a_link() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sys/class/net/lo")).unwrap();
        add(
            dir.path(),
            "eth0",
            "52:54:00:AA:00:01",
            &[("type", "1\n"), ("carrier", "1\n"), ("speed", "25000\n"), ("device/numa_node", "1\n")],
        );
        add(
            dir.path(),
            "eth1",
            "52:54:00:aa:00:02",
            &[("carrier", "0\n"), ("speed", "-1\n"), ("device/numa_node", "-1\n")],
        );
        let nics = read(&Root::at(dir.path()), Some("52:54:00:aa:00:01"));
        let expected = Nic {
            name: "eth0".to_owned(),
            mac: "52:54:00:aa:00:01".to_owned(),
            speed_mbps: Some(25_000),
            link: true,
            boot: true,
            driver: "virtio_net".to_owned(),
            hardware: Some(1),
            numa_node: Some(1),
            firmware: String::new(),
            pci: String::new(),
            neighbours: Vec::new(),
        };
        assert_eq!(nics[0], expected);
        assert_eq!(
            (nics[1].speed_mbps, nics[1].numa_node, nics[1].link, nics[1].boot),
            (None, None, false, false)
        );
        assert_eq!(nics.len(), 2);
    }

    #[test]
    fn an_adapter_on_pci_has_its_address_and_one_on_usb_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let class = dir.path().join("sys/class/net");
        fs::create_dir_all(&class).unwrap();
        for (name, place) in [
            ("eth0", "pci0000:3a/0000:3a:00.0/0000:3b:00.1/net/eth0"),
            ("eth1", "pci0000:00/0000:00:03.0/virtio0/net/eth1"),
            ("usb0", "pci0000:00/0000:00:14.0/usb1/1-14/1-14:1.0/net/usb0"),
            ("eth2", "platform/soc/end0/net/eth2"),
        ] {
            fs::create_dir_all(dir.path().join("sys/devices").join(place).join("device")).unwrap();
            symlink(Path::new("../../devices").join(place), class.join(name)).unwrap();
        }
        let nics = read(&Root::at(dir.path()), None);
        let pci: Vec<_> = nics.iter().map(|nic| (nic.name.as_str(), nic.pci.as_str())).collect();
        assert_eq!(pci, [("eth0", "0000:3b:00.1"), ("eth1", "0000:00:03.0"), ("eth2", ""), ("usb0", "")]);
    }

    #[test]
    fn an_interface_of_infiniband_has_its_twenty_octets() {
        let dir = tempfile::tempdir().unwrap();
        let address = "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:12:34:56";
        add(dir.path(), "ib0", address, &[("type", "32\n"), ("carrier", "1\n"), ("speed", "100000\n")]);
        let nics = read(&Root::at(dir.path()), None);
        assert_eq!((nics[0].mac.as_str(), nics[0].hardware), (address, Some(32)));
    }
}
