//! The identity of a client: its DUID and its hardware address.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use dhcproto::v6::OptionCode;
use serde::{Deserialize, Serialize};

use super::ingress::Packet;
use crate::Mac;
use crate::infiniband::InfiniBand;

const HARDWARE_ETHERNET: u16 = 1;
const HARDWARE_INFINIBAND: u16 = 32;
const DUID_LLT: u16 = 1;
const DUID_LL: u16 = 3;
const FORGOTTEN: [u8; 2] = [0, 0];

/// A DHCP unique identifier (RFC 8415 §11): 1 to 130 opaque bytes, written in hexadecimal.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Duid(Vec<u8>);

/// The text is not a DUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a DUID; write 1 to 130 hexadecimal bytes, with or without colons")]
pub struct BadDuid(pub String);

impl Duid {
    /// The longest DUID, in bytes, with its type (RFC 8415 §11.1).
    pub const MAX_LEN: usize = 130;

    /// `None` if it is empty or too long.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (1..=Self::MAX_LEN).contains(&bytes.len()).then(|| Self(bytes.to_vec()))
    }

    /// A placeholder for a client whose DUID is unknown, with its hardware address if that is known. Its type 0 is not
    /// assigned.
    pub(super) fn forgotten(mac: Option<Mac>) -> Self {
        Self([&FORGOTTEN[..], mac.as_ref().map_or(&[], |mac| &mac.0)].concat())
    }

    pub(super) fn is_forgotten(&self) -> bool {
        self.0.starts_with(&FORGOTTEN)
    }

    /// A DUID-UUID (RFC 6355).
    #[must_use]
    pub fn of_uuid(uuid: [u8; 16]) -> Self {
        Self([&[0, 4], uuid.as_slice()].concat())
    }

    /// The bytes as sent on the wire.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The Ethernet address in a DUID-LLT or DUID-LL. The host had it when the DUID was made; the interface that asks
    /// may have another one.
    #[must_use]
    pub fn mac(&self) -> Option<Mac> {
        let (kind, rest) = self.0.split_first_chunk::<2>()?;
        let (hardware, rest) = rest.split_first_chunk::<2>()?;
        if u16::from_be_bytes(*hardware) != HARDWARE_ETHERNET {
            return None;
        }
        let address = match u16::from_be_bytes(*kind) {
            DUID_LLT => rest.get(4..)?,
            DUID_LL => rest,
            _ => return None,
        };
        unicast(address.try_into().ok()?)
    }
}

impl fmt::Display for Duid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let colon = if index == 0 { "" } else { ":" };
            write!(f, "{colon}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Duid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Duid {
    type Err = BadDuid;

    fn from_str(text: &str) -> Result<Self, BadDuid> {
        let bad = || BadDuid(text.to_owned());
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
        let (pairs, odd) = digits.as_chunks::<2>();
        if !odd.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(bad());
        }
        let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        bytes.and_then(|bytes| Self::new(&bytes)).ok_or_else(bad)
    }
}

impl TryFrom<String> for Duid {
    type Error = BadDuid;

    fn try_from(text: String) -> Result<Self, BadDuid> {
        text.parse()
    }
}

impl From<Duid> for String {
    fn from(duid: Duid) -> Self {
        duid.to_string()
    }
}

/// The client's Ethernet address from the most reliable source: the relay that received the message (RFC 6939), the
/// link-local source address, the DUID. `None`: none of them has it.
pub(super) fn mac(packet: &Packet, from: Ipv6Addr, duid: Option<&Duid>) -> Option<Mac> {
    heard(packet, from).or_else(|| duid?.mac())
}

/// The client's Ethernet address without its DUID. A client can write any address into a DUID; the other sources must
/// match its link.
#[must_use]
pub fn heard(packet: &Packet, from: Ipv6Addr) -> Option<Mac> {
    let relay = packet.relays.last();
    let told = relay.and_then(|relay| relay.options.raw(OptionCode::ClientLinklayerAddr)).and_then(ethernet);
    let source = relay.map_or(from, |relay| relay.peer);
    told.or_else(|| of_link_local(source))
}

/// The client's identity, if it sends over InfiniBand according to its relay or its DUID.
#[must_use]
pub fn infiniband(packet: &Packet) -> Option<InfiniBand> {
    let relay = packet.relays.last();
    let told = relay.and_then(|relay| relay.options.raw(OptionCode::ClientLinklayerAddr));
    if let Some((hardware, address)) = told.and_then(|it| it.split_first_chunk::<2>()) {
        let is_infiniband = u16::from_be_bytes(*hardware) == HARDWARE_INFINIBAND;
        return InfiniBand::of_address(address).filter(|_| is_infiniband);
    }
    InfiniBand::of_duid(packet.options.raw(OptionCode::ClientId)?)
}

/// Reads option 79 (RFC 6939 §4): hardware type, then address.
fn ethernet(value: &[u8]) -> Option<Mac> {
    let (hardware, address) = value.split_first_chunk::<2>()?;
    let address = (u16::from_be_bytes(*hardware) == HARDWARE_ETHERNET).then_some(address)?;
    unicast(address.try_into().ok()?)
}

/// Reads a modified EUI-64 interface identifier (RFC 4291, appendix A): the Ethernet address with ff:fe in the middle
/// and one bit inverted.
fn of_link_local(address: Ipv6Addr) -> Option<Mac> {
    let [_, _, _, _, _, _, _, _, a, b, c, 0xff, 0xfe, d, e, f] = address.octets() else { return None };
    if !address.is_unicast_link_local() {
        return None;
    }
    unicast([a ^ 2, b, c, d, e, f])
}

fn unicast(bytes: [u8; 6]) -> Option<Mac> {
    let [first, ..] = bytes;
    (first & 1 == 0 && bytes != [0; 6]).then_some(Mac(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duid_is_read_and_written_in_hexadecimal() {
        let duid: Duid = "00:03:00:01:52:54:00:00:00:01".parse().unwrap();
        assert_eq!("00030001525400000001".parse(), Ok(duid.clone()));
        assert_eq!(duid.to_string(), "00:03:00:01:52:54:00:00:00:01");
        for text in ["", "0", "0g", &"00".repeat(131)] {
            assert_eq!(text.parse::<Duid>(), Err(BadDuid(text.to_owned())));
        }
    }

    #[test]
    fn only_those_of_link_layer_addresses_say_a_mac() {
        let mac = |text: &str| text.parse::<Duid>().unwrap().mac().map(|mac| mac.to_string());
        assert_eq!(mac("00030001525400000001").as_deref(), Some("52:54:00:00:00:01"));
        assert_eq!(mac("00010001aabbccdd525400000001").as_deref(), Some("52:54:00:00:00:01"));
        assert_eq!(mac("00030020525400000001"), None, "InfiniBand");
        assert_eq!(mac("00030001535400000001"), None, "a group");
        assert_eq!(mac("000300015254000000"), None, "too short");
        assert_eq!(mac("000400112233445566778899aabbccddeeff"), None, "a UUID");
    }

    #[test]
    fn an_eui_64_says_a_mac() {
        let mac = |text: &str| of_link_local(text.parse().unwrap()).map(|mac| mac.to_string());
        assert_eq!(mac("fe80::5054:ff:fe00:1").as_deref(), Some("52:54:00:00:00:01"));
        assert_eq!(mac("fe80::5054:ff:0:1"), None);
        assert_eq!(mac("2001:db8::5054:ff:fe00:1"), None, "anybody may have such an address");
    }
}
