//! The envelope: Ethernet, and the SNAP header of CDP.

use crate::Refused;
use crate::octets::Octets;

/// Group addresses of LLDP (802.1AB §7.1): nearest bridge, nearest bridge that is no two-port relay, nearest customer bridge.
pub const LLDP_GROUPS: [[u8; 6]; 3] = [
    [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e],
    [0x01, 0x80, 0xc2, 0x00, 0x00, 0x03],
    [0x01, 0x80, 0xc2, 0x00, 0x00, 0x00],
];
/// Group address of CDP.
pub const CDP_GROUP: [u8; 6] = [0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xcc];
/// EtherType of LLDP (802.1AB §7.4).
pub const LLDP_ETHERTYPE: u16 = 0x88cc;

/// EtherType of a VLAN tag (802.1Q §9.6). Some adapters tag LLDP with VLAN 0, for its priority.
const TAG: u16 = 0x8100;
/// Numbers up to this are lengths of the payload, not types (802.3 §3.2.6).
const MAX_LENGTH: u16 = 1500;
/// LLC of SNAP (802.2), then OUI and type of CDP.
const CDP_HEADER: [u8; 8] = [0xaa, 0xaa, 0x03, 0x00, 0x00, 0x0c, 0x20, 0x00];

/// The payload of a frame, without padding where its length is known.
#[derive(Debug)]
pub(crate) enum Payload<'a> {
    Lldp(&'a [u8]),
    Cdp(&'a [u8]),
}

pub(crate) fn payload(frame: &[u8]) -> Result<Payload<'_>, Refused> {
    let mut octets = Octets(frame);
    let truncated = Refused::Truncated("the Ethernet header");
    let to = octets.take(6).ok_or(truncated)?;
    octets.take(6).ok_or(truncated)?;
    let mut kind = octets.u16().ok_or(truncated)?;
    if kind == TAG {
        octets.take(2).ok_or(truncated)?;
        kind = octets.u16().ok_or(truncated)?;
    }
    if kind == LLDP_ETHERTYPE && LLDP_GROUPS.iter().any(|group| group == to) {
        return Ok(Payload::Lldp(octets.rest()));
    }
    if kind > MAX_LENGTH || to != CDP_GROUP {
        return Err(Refused::OtherProtocol);
    }
    let payload = octets.take(kind.into()).ok_or(Refused::Truncated("the payload"))?;
    // Others that are sent to this address: VTP, DTP, PAgP, UDLD.
    payload.strip_prefix(&CDP_HEADER).map(Payload::Cdp).ok_or(Refused::OtherProtocol)
}
