//! CDP. Cisco describes it in documents about its switches; there is no standard.
//!
//! A header of version, time to live and checksum, then TLVs: two octets of type, two of length, which counts these four. The checksum is
//! not verified: devices compute it differently for an odd number of octets, and the checksum of the Ethernet frame was right.
//!
//! | type | TLV |
//! | --- | --- |
//! | 0001, 0014 | device id, system name |
//! | 0002, 0016 | addresses, management addresses |
//! | 0003 | port id |
//! | 0004 | capabilities |
//! | 0005, 0006 | software version, platform |
//! | 000a | native VLAN |

use std::net::IpAddr;

use crate::octets::Octets;
use crate::text::{ip, line, name};
use crate::{Neighbour, Protocol, Refused};

const DEVICE_ID: u16 = 0x01;
const ADDRESSES: u16 = 0x02;
const PORT_ID: u16 = 0x03;
const CAPABILITY: u16 = 0x04;
const VERSION: u16 = 0x05;
const PLATFORM: u16 = 0x06;
const NATIVE_VLAN: u16 = 0x0a;
const SYSTEM_NAME: u16 = 0x14;
const MANAGEMENT_ADDRESSES: u16 = 0x16;

/// Bits of the capabilities, and words for them.
const CAPABILITIES: [(u32, &str); 6] = [
    (0x01, "router"),
    (0x02, "bridge"),
    (0x04, "bridge"),
    (0x08, "bridge"),
    (0x10, "station"),
    (0x40, "repeater"),
];

pub(crate) fn read(payload: &[u8]) -> Result<Neighbour, Refused> {
    let mut octets = Octets(payload);
    let truncated = Refused::Truncated("the header of CDP");
    let version = octets.u8().ok_or(truncated)?;
    if !matches!(version, 1 | 2) {
        return Err(Refused::Version(version));
    }
    let ttl = octets.u8().ok_or(truncated)?;
    octets.take(2).ok_or(truncated)?;
    let mut found = Neighbour::new(Protocol::Cdp, String::new(), String::new(), ttl.into());
    while !octets.is_empty() {
        let truncated = Refused::Truncated("a TLV");
        let kind = octets.u16().ok_or(truncated)?;
        let length = usize::from(octets.u16().ok_or(truncated)?);
        let value = length.checked_sub(4).and_then(|length| octets.take(length)).ok_or(truncated)?;
        match kind {
            DEVICE_ID if found.chassis_id.is_empty() => found.chassis_id = name(value).unwrap_or_default(),
            PORT_ID if found.port_id.is_empty() => found.port_id = name(value).unwrap_or_default(),
            SYSTEM_NAME => found.system_name = line(value),
            VERSION => found.system_description = line(value),
            PLATFORM => found.platform = line(value),
            CAPABILITY => {
                let bits = Octets(value).u32().unwrap_or(0);
                let words = CAPABILITIES.iter().filter(|(bit, _)| bits & bit != 0);
                found.capabilities.extend(words.map(|(_, word)| *word));
            }
            NATIVE_VLAN => {
                found.native_vlan = Octets(value).u16().filter(|id| (1..=4094).contains(id));
            }
            ADDRESSES | MANAGEMENT_ADDRESSES => drop(addresses(Octets(value), &mut found)),
            _ => {}
        }
    }
    if found.chassis_id.is_empty() {
        return Err(Refused::Missing("device id"));
    }
    if found.port_id.is_empty() {
        return Err(Refused::Missing("port id"));
    }
    // Devices without this TLV have their name in the device id.
    found.system_name = found.system_name.or_else(|| Some(found.chassis_id.clone()));
    Ok(found)
}

/// A count, then for each address: the protocol as type, length and octets, and the address as length and octets. Addresses of protocols
/// other than IP have other lengths.
fn addresses(mut octets: Octets<'_>, to: &mut Neighbour) -> Option<()> {
    let count = octets.u32()?;
    for _ in 0..count {
        octets.u8()?;
        let length = octets.u8()?;
        octets.take(length.into())?;
        let length = octets.u16()?;
        let address: Option<IpAddr> = ip(octets.take(length.into())?);
        to.add_address(address);
    }
    Some(())
}
