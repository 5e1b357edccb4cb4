//! USB devices without hubs, each with its port.
//!
//! The kernel numbers buses in the order of discovery, and devices in the order of attachment. The inventory has neither number.
//! A port is named by the PCI address of the controller, the version of USB, and the path of ports from the root hub:
//! `pci-0000:00:14.0-usb2-1.4`. A controller has one root hub for each version, and their ports have the same numbers.

use basalt_api::agent::UsbDevice;
use basalt_api::kinds::MAX_USB_DEVICES;

use super::paths;
use crate::root::Root;

const DEVICES: &str = "sys/bus/usb/devices";
/// USB 2.0 §9.6.1, `bDeviceClass`.
const HUB: &str = "09";
/// The interfaces of the device say their classes.
const BY_INTERFACE: &str = "00";

/// The devices, sorted by port.
pub(super) fn read(root: &Root) -> Vec<UsbDevice> {
    let names = root.names(DEVICES);
    // `1-1.4` is a device, `1-1.4:1.0` an interface of it, and `usb1` the root hub of a bus.
    let devices = names.iter().filter(|name| name.contains('-') && !name.contains(':'));
    let mut found: Vec<_> = devices.filter_map(|name| device(root, name, &names)).collect();
    found.sort();
    found.truncate(MAX_USB_DEVICES);
    found
}

fn device(root: &Root, name: &str, names: &[String]) -> Option<UsbDevice> {
    let text = |file: &str| root.text(format!("{DEVICES}/{name}/{file}"));
    let own = text("bDeviceClass").unwrap_or_default();
    if own == HUB {
        return None;
    }
    let interfaces =
        names.iter().filter(|it| it.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')));
    let class = |interface: &String| root.text(format!("{DEVICES}/{interface}/bInterfaceClass"));
    let mut classes: Vec<_> = interfaces.filter_map(class).collect();
    if classes.is_empty() && own != BY_INTERFACE {
        classes.push(own);
    }
    classes.sort();
    classes.dedup();
    Some(UsbDevice {
        port: port(root, name)?,
        vendor: text("idVendor")?,
        product: text("idProduct")?,
        classes,
        manufacturer: text("manufacturer").unwrap_or_default(),
        product_name: text("product").unwrap_or_default(),
        serial: text("serial").unwrap_or_default(),
    })
}

/// The name of a device's port.
fn port(root: &Root, name: &str) -> Option<String> {
    let link = root.link(format!("{DEVICES}/{name}"))?;
    let parts: Vec<&str> = link.split('/').collect();
    let is_bus = |part: &&str| part.strip_prefix("usb").is_some_and(|number| number.parse::<u32>().is_ok());
    let at = parts.iter().position(is_bus)?;
    let (bus, controller) = (parts.get(at)?, parts.get(at.checked_sub(1)?)?);
    let attached = if paths::is_pci(controller) { "pci" } else { "platform" };
    // ` 2.00`
    let version = root.text(format!("{DEVICES}/{bus}/version"))?;
    let (version, _) = version.split_once('.')?;
    let (_, ports) = name.split_once('-')?;
    Some(format!("{attached}-{controller}-usb{version}-{ports}"))
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    /// Adds a directory of a device, a bus or an interface, with its files.
    pub(in super::super) fn add(root: &Path, place: &str, files: &[(&str, &str)]) {
        let real = root.join("sys/devices").join(place);
        let (devices, name) = (root.join(DEVICES), real.file_name().unwrap());
        fs::create_dir_all(&real).unwrap();
        fs::create_dir_all(&devices).unwrap();
        symlink(Path::new("../../../devices").join(place), devices.join(name)).unwrap();
        for (file, text) in files {
            fs::write(real.join(file), format!("{text}\n")).unwrap();
        }
    }

    const STICK: [(&str, &str); 6] = [
        ("bDeviceClass", "00"),
        ("idVendor", "0781"),
        ("idProduct", "5583"),
        ("manufacturer", "SanDisk"),
        ("product", "Ultra Fit"),
        ("serial", "4C530001"),
    ];

    #[test]
    fn a_device_is_known_by_its_port_and_hubs_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let bus = "pci0000:00/0000:00:14.0/usb1";
        add(root, bus, &[("version", " 2.00"), ("bDeviceClass", "09")]);
        add(
            root,
            &format!("{bus}/1-1"),
            &[("bDeviceClass", "09"), ("idVendor", "1d6b"), ("idProduct", "0002")],
        );
        add(root, &format!("{bus}/1-1/1-1.4"), &STICK);
        add(root, &format!("{bus}/1-1/1-1.4/1-1.4:1.0"), &[("bInterfaceClass", "08")]);
        add(root, &format!("{bus}/1-1/1-1.4/1-1.4:1.1"), &[("bInterfaceClass", "03")]);
        add(root, &format!("{bus}/1-1/1-1.40"), &[("bDeviceClass", "ff")]);
        let other = "platform/xhci-hcd.0/usb2";
        add(root, other, &[("version", " 3.10")]);
        let billboard = [("bDeviceClass", "11"), ("idVendor", "0bda"), ("idProduct", "8153")];
        add(root, &format!("{other}/2-1"), &billboard);
        let expected = UsbDevice {
            port: "pci-0000:00:14.0-usb2-1.4".to_owned(),
            vendor: "0781".to_owned(),
            product: "5583".to_owned(),
            classes: ["03", "08"].map(str::to_owned).to_vec(),
            manufacturer: "SanDisk".to_owned(),
            product_name: "Ultra Fit".to_owned(),
            serial: "4C530001".to_owned(),
        };
        let found = read(&Root::at(root));
        assert_eq!((found.len(), &found[0]), (2, &expected), "{found:?}");
        assert_eq!(
            (found[1].port.as_str(), &*found[1].classes),
            ("platform-xhci-hcd.0-usb3-1", &["11".to_owned()][..])
        );
    }
}
