//! Clients of DHCP over InfiniBand (RFC 4390). Their messages are recognised and reported. They get no DHCPv4 leases
//! and are not booted.
//!
//! An InfiniBand hardware address has 20 octets and does not fit `chaddr`. So `hlen` is 0, and the client identifier
//! tells clients apart. The last eight octets of the address are the GUID of the port, which is printed on the card.

use std::fmt;

use crate::Mac;

/// ARP hardware type, as `htype` and in DUIDs.
pub(crate) const HTYPE: u8 = 32;
/// The client identifier has an IAID and a DUID (RFC 4361 §6.1).
const DUID: u8 = 255;
/// DUID types (RFC 8415 §11).
const DUID_LLT: u16 = 1;
const DUID_EN: u16 = 2;
const DUID_LL: u16 = 3;
/// Mellanox, whose firmware makes a DUID-EN of a GUID.
const MELLANOX: u32 = 0x02c9;
const ADDRESS: usize = 20;
const GUID: usize = 8;

/// A client that asks over InfiniBand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InfiniBand {
    /// The GUID of its port, if the message contains it.
    pub guid: Option<[u8; GUID]>,
    /// A 48-bit address that represents the client in reports; `None`: nothing tells the client apart. It is the value
    /// that iPXE puts into `chaddr`, or else the GUID without its two middle octets, or else the end of the client
    /// identifier.
    pub stand_in: Option<Mac>,
}

impl InfiniBand {
    /// Reads `chaddr` and the client identifier (option 61) of a DHCPv4 message.
    pub(crate) fn of_v4(chaddr: &[u8], identifier: &[u8]) -> Self {
        let guid = match identifier.split_first() {
            Some((&DUID, rest)) => rest.get(4..).and_then(of_duid),
            // Formats older than RFC 4390: the type, then an address or its last octets.
            Some((_, rest)) if rest.len() == GUID || rest.len() == ADDRESS => rest.last_chunk().copied(),
            _ => None,
        };
        let given: Option<[u8; 6]> = chaddr.try_into().ok();
        let given = given.filter(|it| *it != [0; 6]);
        let stand_in =
            given.or_else(|| guid.map(without_middle)).or_else(|| identifier.last_chunk().copied());
        Self { guid, stand_in: stand_in.map(unicast) }
    }

    /// Reads a DUID; `None` if it is not an InfiniBand one.
    pub(crate) fn of_duid(duid: &[u8]) -> Option<Self> {
        of_duid(duid).map(Self::of_guid)
    }

    /// Reads a hardware address; `None` if it is too short for InfiniBand.
    pub(crate) fn of_address(address: &[u8]) -> Option<Self> {
        address.last_chunk().copied().map(Self::of_guid)
    }

    fn of_guid(guid: [u8; GUID]) -> Self {
        Self { guid: Some(guid), stand_in: Some(unicast(without_middle(guid))) }
    }
}

impl fmt::Display for InfiniBand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("over InfiniBand")?;
        let Some(guid) = self.guid else { return Ok(()) };
        let [a, b, c, d] = [0, 16, 32, 48].map(|shift| u64::from_be_bytes(guid) << shift >> 48);
        write!(f, ", port GUID {a:04x}:{b:04x}:{c:04x}:{d:04x}")
    }
}

/// The GUID at the end of a DUID that has one.
fn of_duid(duid: &[u8]) -> Option<[u8; GUID]> {
    let (kind, rest) = duid.split_first_chunk::<2>()?;
    let is_infiniband = |hardware: &[u8]| hardware.first_chunk() == Some(&u16::from(HTYPE).to_be_bytes());
    let address = match u16::from_be_bytes(*kind) {
        DUID_LLT if is_infiniband(rest) => rest.get(6..)?,
        DUID_LL if is_infiniband(rest) => rest.get(2..)?,
        DUID_EN if rest.first_chunk() == Some(&MELLANOX.to_be_bytes()) => rest.get(4..)?,
        _ => return None,
    };
    address.last_chunk().copied()
}

const fn without_middle([a, b, c, _, _, f, g, h]: [u8; GUID]) -> [u8; 6] {
    [a, b, c, f, g, h]
}

/// An address that is not a group address: if the group bit is set, it is cleared and the local bit is set.
const fn unicast([first, b, c, d, e, f]: [u8; 6]) -> Mac {
    Mac([if first & 1 == 0 { first } else { (first & 0xfe) | 2 }, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUID: [u8; 8] = [0x00, 0x02, 0xc9, 0x03, 0x00, 0x12, 0x34, 0x56];

    fn of(chaddr: &[u8], identifier: &[&[u8]]) -> (String, Option<String>) {
        let it = InfiniBand::of_v4(chaddr, &identifier.concat());
        (it.to_string(), it.stand_in.map(|mac| mac.to_string()))
    }

    #[test]
    fn a_port_is_known_by_the_guid_in_its_client_identifier() {
        let expected = (
            "over InfiniBand, port GUID 0002:c903:0012:3456".to_owned(),
            Some("00:02:c9:12:34:56".to_owned()),
        );
        let prefix = [0x80, 0, 2, 8, 0xfe, 0x80, 0, 0, 0, 0, 0, 0];
        let iaid = [255, 0, 0, 0, 1];
        for identifier in [
            &[&iaid[..], &[0, 3, 0, 32], &prefix, &GUID][..],
            &[&iaid, &[0, 1, 0, 32, 1, 2, 3, 4], &prefix, &GUID],
            &[&iaid, &[0, 2, 0, 0, 0x02, 0xc9, 0], &GUID],
            &[&[32], &prefix, &GUID],
            &[&[0], &GUID],
        ] {
            assert_eq!(of(&[], identifier), expected, "{identifier:?}");
        }
    }

    #[test]
    fn a_client_without_a_guid_is_told_apart_by_what_it_has() {
        let nameless = |stand_in: Option<&str>| ("over InfiniBand".to_owned(), stand_in.map(str::to_owned));
        let of_systemd = [255, 0, 0, 0, 1, 0, 2, 0, 0, 0xab, 0x11, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(of(&[], &[&of_systemd]), nameless(Some("02:04:05:06:07:08")), "no group");
        assert_eq!(of(&[2, 1, 2, 3, 4, 5], &[]), nameless(Some("02:01:02:03:04:05")), "as iPXE has it");
        assert_eq!(of(&[0; 6], &[]), nameless(None));
        for cut in [&[][..], &[255], &[255, 0, 0, 0], &[32, 1], &[255, 0, 0, 0, 1, 0, 3, 0]] {
            let it = InfiniBand::of_v4(&[], cut);
            assert_eq!(it.guid, None, "{cut:?}");
        }
    }
}
