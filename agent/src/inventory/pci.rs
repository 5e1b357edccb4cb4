//! PCI devices of the classes that do a machine's work. Bridges, timers and USB are skipped.

use basalt_api::agent::PciDevice;

use super::numa;
use crate::root::Root;

/// Mass storage, network, display, co-processors, encryption, processing accelerators.
const CLASSES: [&str; 6] = ["01", "02", "03", "0b", "10", "12"];

pub(super) fn read(root: &Root) -> Vec<PciDevice> {
    let mut addresses = root.names("sys/bus/pci/devices");
    addresses.sort();
    addresses.into_iter().filter_map(|address| device(root, address)).collect()
}

fn device(root: &Root, address: String) -> Option<PciDevice> {
    let base = format!("sys/bus/pci/devices/{address}");
    let number = |file: &str| {
        let text = root.text(format!("{base}/{file}"))?;
        Some(text.trim().strip_prefix("0x")?.to_ascii_lowercase())
    };
    let class = number("class")?;
    CLASSES.iter().any(|wanted| class.starts_with(wanted)).then_some(())?;
    Some(PciDevice {
        vendor: number("vendor")?,
        device: number("device")?,
        driver: root.link_name(format!("{base}/driver")).unwrap_or_default(),
        numa_node: numa::of_device(root, &base),
        class,
        address,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn lists_what_works_and_leaves_out_bridges() {
        let dir = tempfile::tempdir().unwrap();
        for (address, class, vendor) in
            [("0000:3b:00.0", "0x030200", "0x10DE"), ("0000:00:00.0", "0x060000", "0x8086")]
        {
            let base = dir.path().join("sys/bus/pci/devices").join(address);
            fs::create_dir_all(&base).unwrap();
            for (file, text) in
                [("class", class), ("vendor", vendor), ("device", "0x20b5"), ("numa_node", "1")]
            {
                fs::write(base.join(file), format!("{text}\n")).unwrap();
            }
        }
        let expected = PciDevice {
            address: "0000:3b:00.0".to_owned(),
            vendor: "10de".to_owned(),
            device: "20b5".to_owned(),
            class: "030200".to_owned(),
            driver: String::new(),
            numa_node: Some(1),
        };
        assert_eq!(read(&Root::at(dir.path())), [expected]);
    }
}
