//! The network device of a Redfish host interface: finds it among the machine's devices, and gives it an address (DSP0270 §8.4).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::host_interface::{Assignment, Device, HostInterface, Network};
use crate::root::Root;
use crate::{deadlines, dhcp_event, network, tool};

/// A VLAN's number has 12 bits; 0 and 4095 are reserved (IEEE 802.1Q §9.6).
const VLANS: std::ops::RangeInclusive<u32> = 1..=4094;

/// The kernel's name of the device. None: there is no such device, or it has no driver.
#[must_use]
pub fn find(root: &Root, device: &Device) -> Option<String> {
    let names = network::physical(root);
    let mac = match device {
        Device::Usb { mac, .. } | Device::Pci { mac, .. } => *mac,
    };
    let by_mac = mac.map(text).and_then(|mac| {
        names.iter().find(|name| network::mac(root, name).as_deref() == Some(mac.as_str())).cloned()
    });
    by_mac.or_else(|| names.into_iter().find(|name| is_it(root, name, device)))
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

/// True if the device behind an interface has the numbers of `device`.
fn is_it(root: &Root, name: &str, device: &Device) -> bool {
    let number = |file: &str| {
        let text = root.text(format!("sys/class/net/{name}/device/{file}"))?;
        u16::from_str_radix(text.trim_start_matches("0x"), 16).ok()
    };
    match device {
        // The parent of a USB interface is the device.
        Device::Usb { vendor, product, serial, .. } => {
            let own = || root.text(format!("sys/class/net/{name}/device/../serial")).unwrap_or_default();
            number("../idVendor") == Some(*vendor)
                && number("../idProduct") == Some(*product)
                && (serial.is_empty() || own() == *serial)
        }
        Device::Pci { ids, .. } => {
            let own = ["vendor", "device", "subsystem_vendor", "subsystem_device"].map(number);
            own == ids.map(Some)
        }
    }
}

/// The source of the machine's own address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Fixed(Network),
    Dhcp,
    /// The kernel makes one itself (RFC 4862 §5.3).
    LinkLocal,
}

/// Brings the device up and gives it an address. Returns the address of the Redfish service.
///
/// # Errors
/// The firmware's data is incomplete, or the kernel refuses the address.
pub fn configure(root: &Root, name: &str, interface: &HostInterface) -> Result<SocketAddr, String> {
    let service = interface.service.ok_or(
        "the firmware does not say the address of the BMC's Redfish service (SMBIOS type 42): update the firmware",
    )?;
    let mac = network::mac(root, name).unwrap_or_default();
    let source = source(interface, service, &mac)?;
    let failed = |error: tool::ToolError| error.to_string();
    network::up(name).map_err(|error| error.to_string())?;
    let carrier = || network::has_carrier(root, name).then_some(());
    let _ = deadlines::poll_until(deadlines::OTHER_CARRIERS, carrier);
    let mut name = name.to_owned();
    if interface.vlan != 0 {
        name = tagged(&name, interface.vlan)?;
    }
    match source {
        Source::Fixed(Network { address, prefix }) => {
            let address = format!("{address}/{prefix}");
            tool::run("busybox", &["ip", "addr", "replace", &address, "dev", &name]).map_err(failed)?;
        }
        Source::Dhcp => dhcp_event::address_alone(&name).map_err(failed)?,
        Source::LinkLocal => {}
    }
    if !matches!(service.address, IpAddr::V6(it) if it.is_unicast_link_local()) {
        // The bootstrap account must not leave by another interface, whatever networks that one has.
        let (family, length) = if service.address.is_ipv4() { ("-4", 32) } else { ("-6", 128) };
        let alone = format!("{}/{length}", service.address);
        tool::run("busybox", &["ip", family, "route", "replace", &alone, "dev", &name]).map_err(failed)?;
    }
    let index = root.number(format!("sys/class/net/{name}/ifindex")).unwrap_or(0);
    Ok(match service.address {
        IpAddr::V6(address) if address.is_unicast_link_local() => {
            SocketAddrV6::new(address, interface.port, 0, index).into()
        }
        address => SocketAddr::new(address, interface.port),
    })
}

/// The interface of a VLAN on top of another. An interface of an earlier run stays.
fn tagged(name: &str, vlan: u32) -> Result<String, String> {
    if !VLANS.contains(&vlan) {
        return Err(format!(
            "the firmware names VLAN {vlan} for the BMC's Redfish service, and there is none"
        ));
    }
    let (top, id) = (format!("bmc.{vlan}"), vlan.to_string());
    let made =
        tool::run("busybox", &["ip", "link", "add", "link", name, "name", &top, "type", "vlan", "id", &id]);
    network::up(&top).map_err(|error| match made {
        Err(first) => first.to_string(),
        Ok(_) => error.to_string(),
    })?;
    Ok(top)
}

fn source(interface: &HostInterface, service: Network, mac: &str) -> Result<Source, String> {
    Ok(match (interface.assignment, interface.host, service.address) {
        (Assignment::Static, Some(host), _) => Source::Fixed(Network { prefix: known_prefix(host), ..host }),
        (Assignment::Static, None, _) => {
            return Err(
                "the firmware says that the host's address is fixed, and names none (SMBIOS type 42): update the firmware"
                    .to_owned(),
            );
        }
        (Assignment::Dhcp, ..) => Source::Dhcp,
        (_, _, IpAddr::V6(address)) if address.is_unicast_link_local() => Source::LinkLocal,
        _ => Source::Fixed(beside(service, mac)),
    })
}

/// The length of a network's prefix. Some firmware leaves the mask empty.
fn known_prefix(network: Network) -> u8 {
    match (network.prefix, network.address) {
        (0, IpAddr::V4(_)) => 16,
        (0, IpAddr::V6(_)) => 64,
        (prefix, _) => prefix,
    }
}

/// An address in the network of the service, derived from the machine's MAC address. The network has two hosts.
fn beside(service: Network, mac: &str) -> Network {
    let own = u128::from_str_radix(&mac.replace(':', ""), 16).unwrap_or(0);
    let (bits, prefix) = match service.address {
        IpAddr::V4(it) => (u128::from(u32::from(it)), known_prefix(service)),
        IpAddr::V6(it) => (u128::from(it), known_prefix(service)),
    };
    let width: u8 = if service.address.is_ipv4() { 32 } else { 128 };
    let free = width.saturating_sub(prefix).min(32);
    let span = 1_u128 << free;
    let (network, theirs) = (bits & !(span - 1), bits & (span - 1));
    // Not the address of the network, not its broadcast address, and not that of the service.
    let candidates = (0..4).map(|step| (own + step) % span);
    let host = candidates.into_iter().find(|host| *host != 0 && *host != span - 1 && *host != theirs);
    let bits = network | host.unwrap_or(1);
    let address = match service.address {
        IpAddr::V4(_) => Ipv4Addr::from(u32::try_from(bits & u128::from(u32::MAX)).unwrap_or(0)).into(),
        IpAddr::V6(_) => Ipv6Addr::from(bits).into(),
    };
    Network { address, prefix }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_device_is_found_by_its_mac_address_or_by_its_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let net = "sys/class/net";
        for (name, mac) in
            [("eth0", "52:54:00:00:00:01"), ("usb0", "02:00:00:00:00:07"), ("usb1", "02:00:00:00:00:08")]
        {
            write(dir.path(), &format!("{net}/{name}/address"), mac);
        }
        for (file, number) in [
            ("vendor", "0x8086"),
            ("device", "0x1521"),
            ("subsystem_vendor", "0x1028"),
            ("subsystem_device", "0x0001"),
        ] {
            write(dir.path(), &format!("{net}/eth0/device/{file}"), number);
        }
        for (name, serial) in [("usb0", "A"), ("usb1", "B")] {
            let usb = dir.path().join(format!("sys/devices/{name}"));
            fs::create_dir_all(usb.join("interface")).unwrap();
            for (file, text) in [("idVendor", "046b"), ("idProduct", "ffb0"), ("serial", serial)] {
                fs::write(usb.join(file), text).unwrap();
            }
            std::os::unix::fs::symlink(
                usb.join("interface"),
                dir.path().join(format!("{net}/{name}/device")),
            )
            .unwrap();
        }
        let root = Root::at(dir.path());
        let usb = |product, serial: &str, mac| Device::Usb {
            vendor: 0x046b,
            product,
            serial: serial.to_owned(),
            mac,
        };
        assert_eq!(find(&root, &usb(0, "", Some([2, 0, 0, 0, 0, 8]))).as_deref(), Some("usb1"));
        assert_eq!(find(&root, &usb(0xffb0, "B", None)).as_deref(), Some("usb1"));
        assert_eq!(find(&root, &usb(0xffb0, "", Some([2, 0, 0, 0, 9, 9]))).as_deref(), Some("usb0"));
        assert_eq!(find(&root, &usb(0xffb0, "C", None)), None);
        let pci = |last| Device::Pci { ids: [0x8086, 0x1521, 0x1028, last], mac: None };
        assert_eq!((find(&root, &pci(1)).as_deref(), find(&root, &pci(2))), (Some("eth0"), None));
    }

    fn network(address: &str, prefix: u8) -> Network {
        Network { address: address.parse().unwrap(), prefix }
    }

    #[test]
    fn the_address_is_as_the_firmware_says() {
        let service = network("169.254.0.17", 24);
        let of = |assignment, host, service: Network| {
            let device = Device::Pci { ids: [0; 4], mac: None };
            let (hostname, service_at) = (String::new(), Some(service));
            let interface = HostInterface {
                device,
                bootstraps: None,
                assignment,
                host,
                service: service_at,
                port: 443,
                vlan: 0,
                hostname,
            };
            source(&interface, service, "52:54:00:00:00:11")
        };
        let host = network("169.254.0.18", 24);
        assert_eq!(of(Assignment::Static, Some(host), service), Ok(Source::Fixed(host)));
        assert!(of(Assignment::Static, None, service).unwrap_err().contains("names none"));
        assert_eq!(of(Assignment::Dhcp, None, service), Ok(Source::Dhcp));
        // 17 is the last octet of both the MAC address and the service's address.
        assert_eq!(
            of(Assignment::HostSelected, None, service),
            Ok(Source::Fixed(network("169.254.0.18", 24)))
        );
        let wide = network("169.254.3.1", 0);
        assert_eq!(of(Assignment::AutoConfigure, None, wide), Ok(Source::Fixed(network("169.254.0.17", 16))));
        let local = network("fe80::1", 64);
        assert_eq!(of(Assignment::AutoConfigure, None, local), Ok(Source::LinkLocal));
        let global = network("2001:db8::1", 64);
        assert_eq!(of(Assignment::Unknown, None, global), Ok(Source::Fixed(network("2001:db8::11", 64))));
    }

    #[test]
    fn a_network_of_two_addresses_has_one_that_is_free() {
        assert_eq!(beside(network("10.0.0.1", 30), "02:00:00:00:00:01"), network("10.0.0.2", 30));
        assert_eq!(beside(network("10.0.0.2", 30), "02:00:00:00:00:03"), network("10.0.0.1", 30));
    }
}
