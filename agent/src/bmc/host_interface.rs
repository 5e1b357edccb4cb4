//! Parser for the Redfish host interface in the firmware's table (SMBIOS type 42; DSP0270 1.3 §8): the network device that leads to the
//! BMC, and the addresses at its two ends. Pure functions without I/O.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::smbios::{Structure, structures};

/// Management Controller Host Interface (SMBIOS 3.7 §7.43).
const HOST_INTERFACE: u8 = 42;
/// A network host interface (DSP0270 table 2).
const NETWORK: u8 = 0x40;
/// The protocol "Redfish over IP" (SMBIOS 3.7 §7.43.2).
const REDFISH_OVER_IP: u8 = 4;
/// Bit 0 of the device's characteristics: Get Bootstrap Account Credentials is there (DSP0270 §8.3.7).
const BOOTSTRAPS: u16 = 1;
/// A USB string descriptor (USB 2.0 table 9-5).
const USB_STRING: u8 = 3;

/// A Redfish host interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostInterface {
    /// The network device that leads to the BMC.
    pub device: Device,
    /// True if the BMC gives bootstrap accounts by IPMI. `None`: unknown, as for devices of version 1.
    pub bootstraps: Option<bool>,
    /// The source of the host's address.
    pub assignment: Assignment,
    /// The host's address, for [`Assignment::Static`].
    pub host: Option<Network>,
    /// The address of the Redfish service. `None`: the firmware does not name it.
    pub service: Option<Network>,
    /// The TCP port of the service.
    pub port: u16,
    /// The VLAN of the service. 0: none.
    pub vlan: u32,
    /// The name of the service, for its certificate.
    pub hostname: String,
}

/// A network device, as the firmware names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// A USB device.
    Usb {
        /// USB vendor id (idVendor).
        vendor: u16,
        /// USB product id (idProduct).
        product: u16,
        /// Serial number. Empty: any.
        serial: String,
        /// The MAC address of the host's end. Devices of version 1 have none.
        mac: Option<[u8; 6]>,
    },
    /// A PCI function.
    Pci {
        /// Vendor, device, vendor of the subsystem, subsystem.
        ids: [u16; 4],
        /// The MAC address of the host's end. Devices of version 1 have none.
        mac: Option<[u8; 6]>,
    },
}

/// The source of the host's address (DSP0270 table 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// The firmware has fixed it.
    Static,
    /// The BMC is a DHCP server.
    Dhcp,
    /// A link-local address (RFC 3927, RFC 4862).
    AutoConfigure,
    /// The host chooses one in the network of the service.
    HostSelected,
    /// The firmware does not name it.
    Unknown,
}

/// An address and the length of its network's prefix, in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The address, IPv4 or IPv6.
    pub address: IpAddr,
    /// 0 to 32, or 0 to 128.
    pub prefix: u8,
}

/// The Redfish host interfaces of a table. Damaged structures and interfaces of other kinds are skipped.
pub fn host_interfaces(table: &[u8]) -> impl Iterator<Item = HostInterface> {
    structures(table).filter(|it| it.kind == HOST_INTERFACE).filter_map(|it| read(&it))
}

/// Offset 4: interface type. 5: length n of the interface data. 6: interface data. 6+n: number of protocols. 7+n: the protocols.
fn read(structure: &Structure<'_>) -> Option<HostInterface> {
    let [NETWORK, length, rest @ ..] = structure.bytes.get(4..)? else { return None };
    let (specific, rest) = rest.split_at_checked((*length).into())?;
    let (count, mut rest) = rest.split_first()?;
    let (kind, descriptor) = specific.split_first()?;
    let (device, bootstraps) = device(*kind, descriptor, structure)?;
    for _ in 0..*count {
        let [protocol, length, after @ ..] = rest else { return None };
        let (record, after) = after.split_at_checked((*length).into())?;
        if *protocol == REDFISH_OVER_IP {
            return redfish_over_ip(&mut Octets(record), device, bootstraps);
        }
        rest = after;
    }
    None
}

/// The device descriptor (DSP0270 §8.3.2 to §8.3.6). In version 2, the first octet counts the device type and itself.
fn device(kind: u8, descriptor: &[u8], structure: &Structure<'_>) -> Option<(Device, Option<bool>)> {
    let mut octets = Octets(descriptor);
    Some(match kind {
        2 => {
            let [vendor, product] = octets.words()?;
            (Device::Usb { vendor, product, serial: usb_string(octets.0), mac: None }, None)
        }
        3 => (Device::Pci { ids: octets.words()?, mac: None }, None),
        4 => {
            octets.take::<1>()?;
            let [vendor, product] = octets.words()?;
            let [serial] = octets.take()?;
            let mac = mac(octets.take()?);
            let bootstraps = bootstraps(&mut octets);
            (Device::Usb { vendor, product, serial: structure.string(serial), mac }, bootstraps)
        }
        5 => {
            octets.take::<1>()?;
            let ids = octets.words()?;
            let mac = mac(octets.take()?);
            // Segment, bus, device and function are skipped: the kernel may number buses differently.
            octets.take::<4>()?;
            (Device::Pci { ids, mac }, bootstraps(&mut octets))
        }
        _ => return None,
    })
}

/// The characteristics exist since version 1.3 of the specification.
fn bootstraps(octets: &mut Octets<'_>) -> Option<bool> {
    octets.words().map(|[characteristics]| characteristics & BOOTSTRAPS != 0)
}

fn mac(octets: [u8; 6]) -> Option<[u8; 6]> {
    (octets != [0; 6] && octets != [0xff; 6]).then_some(octets)
}

/// A USB string descriptor: its length, its type, UTF-16.
fn usb_string(descriptor: &[u8]) -> String {
    let [length, USB_STRING, ..] = *descriptor else { return String::new() };
    let text = descriptor.get(2..length.into()).unwrap_or_default();
    let units: Vec<u16> = text
        .chunks_exact(2)
        .map(|pair| match *pair {
            [low, high] => u16::from_le_bytes([low, high]),
            _ => 0,
        })
        .collect();
    String::from_utf16_lossy(&units).trim_matches('\0').trim().to_owned()
}

/// The protocol record (DSP0270 §8.4.1, table 8).
fn redfish_over_ip(
    octets: &mut Octets<'_>,
    device: Device,
    bootstraps: Option<bool>,
) -> Option<HostInterface> {
    let _uuid = octets.take::<16>()?;
    let [assignment] = octets.take()?;
    let host = octets.network()?;
    let [_discovery] = octets.take()?;
    let service = octets.network()?;
    let [port] = octets.words()?;
    let vlan = u32::from_le_bytes(octets.take()?);
    let [length] = octets.take()?;
    let hostname = octets.0.get(..length.into()).unwrap_or_default();
    let hostname = String::from_utf8_lossy(hostname).trim_end_matches('\0').to_owned();
    let assignment = match assignment {
        1 => Assignment::Static,
        2 => Assignment::Dhcp,
        3 => Assignment::AutoConfigure,
        4 => Assignment::HostSelected,
        _ => Assignment::Unknown,
    };
    Some(HostInterface { device, bootstraps, assignment, host, service, port, vlan, hostname })
}

/// The octets not yet read.
struct Octets<'a>(&'a [u8]);

impl Octets<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    /// Words of 16 bits, the low octet first.
    fn words<const N: usize>(&mut self) -> Option<[u16; N]> {
        let mut words = [0; N];
        for word in &mut words {
            *word = u16::from_le_bytes(self.take()?);
        }
        Some(words)
    }

    /// Format (1: IPv4, 2: IPv6), 16 octets of address, 16 of mask. The inner value is `None` if there is no address.
    fn network(&mut self) -> Option<Option<Network>> {
        let [format] = self.take()?;
        let address: [u8; 16] = self.take()?;
        let mask: [u8; 16] = self.take()?;
        let address = match format {
            1 => IpAddr::V4(Ipv4Addr::from(*address.first_chunk::<4>()?)),
            2 => IpAddr::V6(Ipv6Addr::from(address)),
            _ => return Some(None),
        };
        let ones = u128::from_be_bytes(mask).leading_ones();
        let prefix = u8::try_from(if address.is_ipv4() { ones.min(32) } else { ones }).ok()?;
        Some((!address.is_unspecified()).then_some(Network { address, prefix }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A structure of type 42 with one protocol record.
    fn structure(specific: &[u8], record: &[u8], strings: &[u8]) -> Vec<u8> {
        let mut bytes = vec![42, 0, 0x2a, 0, 0x40, u8::try_from(specific.len()).unwrap()];
        bytes.extend(specific);
        bytes.extend([1, 4, u8::try_from(record.len()).unwrap()]);
        bytes.extend(record);
        bytes[1] = u8::try_from(bytes.len()).unwrap();
        bytes.extend(strings);
        bytes.extend([0, 0]);
        bytes
    }

    fn v4(address: [u8; 4]) -> Vec<u8> {
        [&address[..], &[0; 12]].concat()
    }

    fn record(assignment: u8, host: [u8; 4], service: [u8; 4], name: &[u8]) -> Vec<u8> {
        let mut record = vec![0x11; 16];
        record.extend([assignment, 1]);
        record.extend([v4(host), v4([255, 255, 255, 0])].concat());
        record.extend([1, 1]);
        record.extend([v4(service), v4([255, 255, 255, 0])].concat());
        record.extend([0xbb, 0x01, 7, 0, 0, 0, u8::try_from(name.len()).unwrap()]);
        record.extend(name);
        record
    }

    const USB_V2: [u8; 17] = [4, 0x11, 0x6b, 0x04, 0x04, 0x01, 1, 2, 0, 0, 0, 0, 7, 1, 0, 0xff, 0xff];

    #[test]
    fn a_usb_device_of_version_2_says_its_mac_address_and_that_it_bootstraps() {
        let table = structure(&USB_V2, &record(1, [169, 254, 0, 2], [169, 254, 0, 17], b"bmc\0"), b"S-7\0");
        let found: Vec<_> = host_interfaces(&table).collect();
        let network = |last: u8| Some(Network { address: [169, 254, 0, last].into(), prefix: 24 });
        let expected = HostInterface {
            device: Device::Usb {
                vendor: 0x046b,
                product: 0x0104,
                serial: "S-7".to_owned(),
                mac: Some([2, 0, 0, 0, 0, 7]),
            },
            bootstraps: Some(true),
            assignment: Assignment::Static,
            host: network(2),
            service: network(17),
            port: 443,
            vlan: 7,
            hostname: "bmc".to_owned(),
        };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn a_usb_device_of_version_1_has_its_serial_number_in_utf_16() {
        let specific = [2, 0x6b, 0x04, 0x04, 0x01, 8, 3, b'S', 0, b'-', 0, b'7', 0];
        let table = structure(&specific, &record(2, [0; 4], [10, 0, 0, 1], b""), b"");
        let found = host_interfaces(&table).next().unwrap();
        let serial = "S-7".to_owned();
        assert_eq!(found.device, Device::Usb { vendor: 0x046b, product: 0x0104, serial, mac: None });
        assert_eq!((found.assignment, found.host, found.bootstraps), (Assignment::Dhcp, None, None));
    }

    #[test]
    fn pci_functions_have_four_numbers() {
        let one = [3, 0x86, 0x80, 0x21, 0x15, 0x28, 0x10, 1, 0];
        let two = [
            5, 0x18, 0x86, 0x80, 0x21, 0x15, 0x28, 0x10, 1, 0, 2, 0, 0, 0, 0, 9, 0, 0, 3, 8, 0, 0, 0xff, 0xff,
        ];
        let ids = [0x8086, 0x1521, 0x1028, 1];
        let record = record(4, [0; 4], [10, 0, 0, 1], b"");
        let table = [structure(&one, &record, b""), structure(&two, &record, b"")].concat();
        let found: Vec<_> = host_interfaces(&table).map(|it| (it.device, it.bootstraps)).collect();
        let mac = Some([2, 0, 0, 0, 0, 9]);
        assert_eq!(found, [(Device::Pci { ids, mac: None }, None), (Device::Pci { ids, mac }, Some(false))]);
    }

    #[test]
    fn ipv6_has_a_mask_of_16_octets() {
        let mut record = vec![0; 16];
        let address: [u8; 16] = "fe80::1".parse::<Ipv6Addr>().unwrap().octets();
        let mask = [&[0xff; 8][..], &[0; 8]].concat();
        record.extend(
            [&[3, 2][..], &address, &mask, &[1, 2], &address, &mask, &[0xbb, 1, 0, 0, 0, 0, 0]].concat(),
        );
        let found = host_interfaces(&structure(&USB_V2, &record, b"")).next().map(|it| it.service);
        assert_eq!(found, Some(Some(Network { address: "fe80::1".parse().unwrap(), prefix: 64 })));
    }

    #[test]
    fn damaged_and_foreign_structures_are_left_out() {
        let record = record(1, [169, 254, 0, 2], [169, 254, 0, 17], b"bmc");
        let whole = structure(&USB_V2, &record, b"");
        let kcs = vec![42, 9, 0, 0, 0x02, 1, 0, 0, 0, 0, 0];
        assert_eq!(host_interfaces(&[kcs, whole.clone()].concat()).count(), 1);
        let oem = structure(&[0x80, 1, 2, 3], &record, b"");
        let short = structure(&USB_V2, &record[..90], b"");
        let mut overlong = whole.clone();
        overlong[5] = 0xf0;
        let mut ipmi = whole.clone();
        ipmi[6 + 17 + 1] = 2;
        for table in [oem, short, overlong, ipmi] {
            assert_eq!(host_interfaces(&table).count(), 0, "{table:02x?}");
        }
        // A truncated host name does not matter: the certificate's name is not checked.
        let mut cut = whole;
        cut[6 + 17 + 3 + 90] = 200;
        assert_eq!(host_interfaces(&cut).next().map(|it| it.hostname), Some(String::new()));
    }

    proptest! {
        #[test]
        fn never_fails_on_any_table(octets in proptest::collection::vec(any::<u8>(), 0..600)) {
            host_interfaces(&octets).count();
        }

        #[test]
        fn never_fails_on_a_damaged_structure(at in 0_usize..140, octet: u8) {
            let mut table = structure(&USB_V2, &record(1, [169, 254, 0, 2], [169, 254, 0, 17], b"bmc"), b"S\0");
            if let Some(it) = table.get_mut(at) {
                *it = octet;
            }
            host_interfaces(&table).count();
        }
    }
}
