//! LLDP (IEEE 802.1AB-2016 §8 and §9.2.7.7).
//!
//! | type | TLV | section |
//! | --- | --- | --- |
//! | 0 | end | §8.5.1 |
//! | 1, 2, 3 | chassis id, port id, time to live: the first three, once each | §8.5.2 to §8.5.4 |
//! | 4, 5, 6 | port description, system name, system description | §8.5.5 to §8.5.7 |
//! | 7 | system capabilities | §8.5.8 |
//! | 8 | management address | §8.5.9 |
//! | 127 | of an organisation: OUI and subtype | §8.6 |
//!
//! | OUI | subtype | TLV |
//! | --- | --- | --- |
//! | 00-80-C2 | 1 | port VLAN id (802.1Q §D.2.1) |
//! | 00-80-C2 | 3 | VLAN name (802.1Q §D.2.3) |
//! | 00-80-C2 | 7 | link aggregation (802.1AX Annex F) |
//! | 00-12-0F | 3 | link aggregation, as it was before (802.3-2008 §79.3.3) |
//! | 00-12-0F | 4 | maximum frame size (802.3 §79.3.4) |

use std::net::IpAddr;

use crate::octets::Octets;
use crate::text::{hex, ip, line, name};
use crate::{CAPABILITIES, MAX_VLANS, Neighbour, Protocol, Refused};

const END: u16 = 0;
const CHASSIS_ID: u16 = 1;
const PORT_ID: u16 = 2;
const TIME_TO_LIVE: u16 = 3;
const PORT_DESCRIPTION: u16 = 4;
const SYSTEM_NAME: u16 = 5;
const SYSTEM_DESCRIPTION: u16 = 6;
const CAPABILITY: u16 = 7;
const MANAGEMENT_ADDRESS: u16 = 8;
const ORGANISATION: u16 = 127;

const IEEE_802_1: [u8; 3] = [0x00, 0x80, 0xc2];
const IEEE_802_3: [u8; 3] = [0x00, 0x12, 0x0f];

/// Subtypes of a chassis id (Table 8-2) and of a port id (Table 8-3) that are addresses. The others are texts.
const CHASSIS_MAC: u8 = 4;
const CHASSIS_ADDRESS: u8 = 5;
const PORT_MAC: u8 = 3;
const PORT_ADDRESS: u8 = 4;

/// IANA's numbers of address families.
const IPV4: u8 = 1;
const IPV6: u8 = 2;

/// Highest id of a VLAN (802.1Q §9.6).
const MAX_VLAN: u16 = 4094;

struct Tlv<'a> {
    kind: u16,
    value: &'a [u8],
}

/// The next TLV (§8.4): seven bits of type, nine of length.
fn next<'a>(octets: &mut Octets<'a>) -> Result<Tlv<'a>, Refused> {
    let header = octets.u16().ok_or(Refused::Truncated("the header of a TLV"))?;
    let value = octets.take((header & 0x1ff).into()).ok_or(Refused::Truncated("a TLV"))?;
    Ok(Tlv { kind: header >> 9, value })
}

pub(crate) fn read(payload: &[u8]) -> Result<Neighbour, Refused> {
    let mut octets = Octets(payload);
    let mut mandatory = |kind: u16, what: &'static str| {
        let tlv = next(&mut octets)?;
        if tlv.kind == kind { Ok(tlv.value) } else { Err(Refused::Missing(what)) }
    };
    let chassis = mandatory(CHASSIS_ID, "chassis id")?;
    let port = mandatory(PORT_ID, "port id")?;
    let ttl = Octets(mandatory(TIME_TO_LIVE, "time to live")?).u16();
    let chassis_id = id(chassis, CHASSIS_MAC, CHASSIS_ADDRESS).ok_or(Refused::Missing("chassis id"))?;
    let port_id = id(port, PORT_MAC, PORT_ADDRESS).ok_or(Refused::Missing("port id"))?;
    let ttl_seconds = ttl.ok_or(Refused::Missing("time to live"))?;
    let mut neighbour = Neighbour::new(Protocol::Lldp, chassis_id, port_id, ttl_seconds);
    while !octets.is_empty() {
        let tlv = next(&mut octets)?;
        match tlv.kind {
            END => break,
            CHASSIS_ID => return Err(Refused::Missing("chassis id")),
            PORT_ID => return Err(Refused::Missing("port id")),
            TIME_TO_LIVE => return Err(Refused::Missing("time to live")),
            _ => optional(&tlv, &mut neighbour),
        }
    }
    Ok(neighbour)
}

/// Reads an optional TLV. A TLV that breaks a rule is skipped. If a text occurs twice, the first counts (§9.2.7.7.2).
fn optional(tlv: &Tlv<'_>, to: &mut Neighbour) {
    match tlv.kind {
        PORT_DESCRIPTION => keep(&mut to.port_description, line(tlv.value)),
        SYSTEM_NAME => keep(&mut to.system_name, line(tlv.value)),
        SYSTEM_DESCRIPTION => keep(&mut to.system_description, line(tlv.value)),
        CAPABILITY => capabilities(Octets(tlv.value), to),
        MANAGEMENT_ADDRESS => to.add_address(management_address(Octets(tlv.value))),
        ORGANISATION => drop(of_organisation(Octets(tlv.value), to)),
        _ => {}
    }
}

fn keep<T>(place: &mut Option<T>, value: Option<T>) {
    if place.is_none() {
        *place = value;
    }
}

/// The value of a chassis id or port id: a subtype, then one to 255 octets.
fn id(value: &[u8], mac: u8, address: u8) -> Option<String> {
    let (subtype, value) = value.split_first()?;
    match *subtype {
        _ if value.is_empty() || value.len() > 255 => None,
        kind if kind == mac => Some(hex(value)),
        kind if kind == address => {
            let known = network_address(Octets(value)).map(|address| address.to_string());
            known.or_else(|| Some(hex(value)))
        }
        _ => name(value),
    }
}

/// A family, and an address of it.
fn network_address(mut octets: Octets<'_>) -> Option<IpAddr> {
    let family = octets.u8()?;
    let address = ip(octets.rest())?;
    matches!((family, address), (IPV4, IpAddr::V4(_)) | (IPV6, IpAddr::V6(_))).then_some(address)
}

/// Two bit sets: the capabilities, and the enabled ones among them. Bit 7, the last word, is the capability of a station.
fn capabilities(mut octets: Octets<'_>, to: &mut Neighbour) {
    let (Some(able), Some(enabled)) = (octets.u16(), octets.u16()) else { return };
    let both = able & enabled;
    let words = CAPABILITIES.iter().enumerate().filter(|(bit, _)| both >> bit & 1 == 1);
    to.capabilities.extend(words.map(|(_, word)| *word));
}

/// The management address. Its length includes the family. Number and object identifier of the interface follow and are not read.
fn management_address(mut octets: Octets<'_>) -> Option<IpAddr> {
    let length = octets.u8()?;
    network_address(Octets(octets.take(length.into())?))
}

fn of_organisation(mut octets: Octets<'_>, to: &mut Neighbour) -> Option<()> {
    let oui: [u8; 3] = octets.take(3)?.try_into().ok()?;
    match (oui, octets.u8()?) {
        // Zero: the port has no VLAN for untagged frames.
        (IEEE_802_1, 1) => keep(&mut to.native_vlan, octets.u16().filter(is_vlan)),
        (IEEE_802_1, 3) => {
            let vlan = octets.u16().filter(is_vlan)?;
            let length = octets.u8()?;
            let name = line(octets.take(length.into())?)?;
            if to.vlans.len() < MAX_VLANS {
                to.vlans.entry(vlan).or_insert(name);
            }
        }
        (IEEE_802_1, 7) | (IEEE_802_3, 3) => {
            let is_member = octets.u8()? & 2 != 0;
            let number = octets.u32()?;
            keep(&mut to.aggregate, is_member.then_some(number));
        }
        (IEEE_802_3, 4) => keep(&mut to.max_frame, octets.u16()),
        _ => {}
    }
    Some(())
}

fn is_vlan(id: &u16) -> bool {
    (1..=MAX_VLAN).contains(id)
}
