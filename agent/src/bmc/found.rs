//! Reads the BMC's manufacturer, firmware and network address, and changes nothing.

use std::net::{Ipv4Addr, Ipv6Addr};

use basalt_api::agent::{AddressSource, Bmc};

use super::{GET_CHANNEL_INFO, GET_DEVICE_ID, GET_LAN_PARAMETER, Interface, Refusal};

/// Channels that may be LANs (§6.3).
const CHANNELS: std::ops::RangeInclusive<u8> = 1..=11;
/// Medium types of a LAN: 802.3, and others (table 6-3).
const LAN: [u8; 2] = [0x04, 0x06];

/// Manufacturers of BMCs, by their enterprise numbers (IANA).
const MAKERS: [(u32, &str); 13] = [
    (2, "IBM"),
    (11, "HP"),
    (343, "Intel"),
    (674, "Dell"),
    (2011, "Huawei"),
    (2623, "ASUSTek"),
    (5771, "Cisco"),
    (7244, "Quanta"),
    (10_368, "Fujitsu"),
    (10_876, "Supermicro"),
    (15_370, "Giga-Byte"),
    (19_046, "Lenovo"),
    (47_196, "Hewlett Packard Enterprise"),
];

/// Reads the BMC. `None` if it does not answer the first question, Get Device ID.
pub fn read(bmc: &mut impl Interface) -> Option<Bmc> {
    let device = bmc.ask(GET_DEVICE_ID, &[]).ok()?;
    let [_, _, major, minor, version, _, m0, m1, m2, p0, p1, ..] = device.as_slice() else { return None };
    let maker = u32::from_le_bytes([*m0, *m1, m2 & 0x0f, 0]);
    let name = MAKERS.iter().find(|(number, _)| *number == maker).map(|(_, name)| (*name).to_owned());
    let mut found = Bmc {
        manufacturer: name.unwrap_or_else(|| format!("enterprise {maker}")),
        product_id: u16::from_le_bytes([*p0, *p1]),
        // The minor version is two decimal digits in BCD (§20.1).
        firmware: format!("{}.{:02x}", major & 0x7f, minor),
        ipmi_version: format!("{}.{}", version & 0x0f, version >> 4),
        ..Bmc::default()
    };
    if let Ok(Some(channel)) = lan_channel(bmc) {
        found.channel = Some(channel);
        read_lan(bmc, channel, &mut found);
    }
    Some(found)
}

/// The first channel that is a LAN with an address; else the first that is a LAN.
///
/// # Errors
/// The BMC does not answer.
pub(super) fn lan_channel(bmc: &mut impl Interface) -> Result<Option<u8>, Refusal> {
    let mut first = None;
    for channel in CHANNELS {
        let info = match bmc.ask(GET_CHANNEL_INFO, &[channel]) {
            Ok(info) => info,
            Err(Refusal::Code(..)) => continue,
            Err(silence) => return Err(silence),
        };
        if !info.get(1).is_some_and(|medium| LAN.contains(&(medium & 0x7f))) {
            continue;
        }
        if address(bmc, channel).is_some() {
            return Ok(Some(channel));
        }
        first = first.or(Some(channel));
    }
    Ok(first)
}

fn read_lan(bmc: &mut impl Interface, channel: u8, found: &mut Bmc) {
    found.address = address(bmc, channel).map(|it| it.to_string());
    found.address_source = parameter(bmc, channel, 4, 0).and_then(|it| match it.first()? & 0x0f {
        1 => Some(AddressSource::Static),
        2 => Some(AddressSource::Dhcp),
        _ => None,
    });
    if let Some([a, b, c, d, e, g]) = parameter(bmc, channel, 5, 0).and_then(|it| it.first_chunk().copied())
        && [a, b, c, d, e, g] != [0; 6]
    {
        found.mac = Some(format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"));
    }
    if found.address.is_none() {
        found.address = address6(bmc, channel).map(|it| it.to_string());
    }
}

/// A LAN parameter (§23.2), without its revision octet.
fn parameter(bmc: &mut impl Interface, channel: u8, parameter: u8, selector: u8) -> Option<Vec<u8>> {
    let answer = bmc.ask(GET_LAN_PARAMETER, &[channel, parameter, selector, 0]).ok()?;
    answer.get(1..).map(<[u8]>::to_vec)
}

/// The IPv4 address (parameter 3).
fn address(bmc: &mut impl Interface, channel: u8) -> Option<Ipv4Addr> {
    let octets: [u8; 4] = parameter(bmc, channel, 3, 0)?.first_chunk().copied()?;
    let address = Ipv4Addr::from(octets);
    (!address.is_unspecified() && !address.is_link_local()).then_some(address)
}

/// Parameters 56 and 59: static and dynamic addresses, each with its number, source, 16 octets, prefix length and status.
fn address6(bmc: &mut impl Interface, channel: u8) -> Option<Ipv6Addr> {
    [56, 59].into_iter().find_map(|number| {
        let answer = parameter(bmc, channel, number, 0)?;
        let octets: [u8; 16] = answer.get(2..)?.first_chunk().copied()?;
        let address = Ipv6Addr::from(octets);
        (!address.is_unspecified() && !address.is_unicast_link_local()).then_some(address)
    })
}
