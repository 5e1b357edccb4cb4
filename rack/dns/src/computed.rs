//! Names that are computed from addresses: `ip-10-77-0-12` is 10.77.0.12, `ip-fd00--1` is fd00::1.
//!
//! The label is `ip-` and the address with a hyphen for each dot or colon; IPv6 in the form of RFC 5952. If it would
//! end with a hyphen, a zero follows: `ip-fd00--0` is fd00::. Each address has exactly one name; other spellings do not
//! exist.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use hickory_proto::rr::Name;

use crate::name::{WireName, to_key, to_wire};
use crate::records::{RrSet, rtype};
use crate::zone::Zone;

const PREFIX: &str = "ip-";
const IN_ADDR_ARPA: &[u8] = b"\x07in-addr\x04arpa\x00";
const IP6_ARPA: &[u8] = b"\x03ip6\x04arpa\x00";

/// Computed names in a domain. The domain's zone has A or AAAA records for the names; reverse zones have PTR records
/// for the addresses.
#[derive(Debug, Clone)]
pub struct Computed {
    domain: Name,
    key: Box<[u8]>,
    /// The first and last addresses of the ranges, in order and disjoint.
    v4: Vec<(u128, u128)>,
    v6: Vec<(u128, u128)>,
    ttl: u32,
}

impl Computed {
    /// Names in `domain` of the addresses in `ranges`. A range whose ends are of different families has no address.
    #[must_use]
    pub fn new(domain: Name, ranges: impl IntoIterator<Item = RangeInclusive<IpAddr>>, ttl: u32) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for range in ranges {
            match (range.start(), range.end()) {
                (IpAddr::V4(first), IpAddr::V4(last)) => {
                    v4.push((first.to_bits().into(), last.to_bits().into()))
                }
                (IpAddr::V6(first), IpAddr::V6(last)) => v6.push((first.to_bits(), last.to_bits())),
                _ => {}
            }
        }
        Self { key: to_key(&domain), domain, v4: in_order(v4), v6: in_order(v6), ttl }
    }

    /// The name of an address, if it is in the ranges.
    #[must_use]
    pub fn name(&self, address: IpAddr) -> Option<Name> {
        let (ranges, bits) = match address {
            IpAddr::V4(address) => (&self.v4, address.to_bits().into()),
            IpAddr::V6(address) => (&self.v6, address.to_bits()),
        };
        let label = label(address).filter(|_| meets(ranges, bits, bits))?;
        self.domain.prepend_label(label.as_bytes()).ok()
    }

    /// The record of the name that the last `labels` labels of `name` form. `None`: there is no such name.
    /// `Some(None)`: it has no records, but names below it have.
    #[expect(clippy::option_option, reason = "a name without records is not a missing name")]
    pub(crate) fn find(&self, zone: &Zone, name: &WireName, labels: usize) -> Option<Option<RrSet>> {
        let first = name.labels().checked_sub(labels)?;
        if zone.key() == &*self.key && labels == zone.labels() + 1 {
            let address = address(name.label(first)?)?;
            self.name(address)?;
            return Some(Some(RrSet::address(address, self.ttl)));
        }
        let (first_address, last_address) = match labels.checked_sub(2)? {
            1.. if name.last(2) == IN_ADDR_ARPA => v4_block(name, first)?,
            1.. if name.last(2) == IP6_ARPA => v6_block(name, first)?,
            _ => return None,
        };
        if first_address == last_address {
            let target = to_wire(&self.name(first_address)?);
            return Some(Some(RrSet::new(rtype::PTR, self.ttl, [&target[..]])));
        }
        let exists = match (first_address, last_address) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                meets(&self.v4, first.to_bits().into(), last.to_bits().into())
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => meets(&self.v6, first.to_bits(), last.to_bits()),
            _ => false,
        };
        exists.then_some(None)
    }
}

fn in_order(mut ranges: Vec<(u128, u128)>) -> Vec<(u128, u128)> {
    ranges.retain(|(first, last)| first <= last);
    ranges.sort_unstable();
    ranges.dedup_by(|next, before| {
        let touch = next.0 <= before.1;
        if touch {
            before.1 = before.1.max(next.1);
        }
        touch
    });
    ranges
}

/// True if one of the ranges overlaps the block.
fn meets(ranges: &[(u128, u128)], first: u128, last: u128) -> bool {
    let at = ranges.partition_point(|range| range.1 < first);
    ranges.get(at).is_some_and(|range| range.0 <= last)
}

/// The label of an address. IPv4-mapped IPv6 addresses have none.
fn label(address: IpAddr) -> Option<String> {
    let text = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => Some(address.to_string()).filter(|text| !text.contains('.'))?,
    };
    let zero = if text.ends_with(':') { "0" } else { "" };
    Some(format!("{PREFIX}{}{zero}", text.replace(['.', ':'], "-")))
}

/// The address for a label in lower case.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let rest = text.strip_prefix(PREFIX)?;
    let v4 = || rest.replace('-', ".").parse().map(IpAddr::V4).ok();
    let v6 = || rest.replace('-', ":").parse().map(IpAddr::V6).ok();
    v4().or_else(v6).filter(|address| label(*address).is_some_and(|it| it == text))
}

/// The addresses below a name of in-addr.arpa, whose leftmost label has the number `first`. A label that is no number may stand before
/// the last octet (RFC 2317 §4).
fn v4_block(name: &WireName, first: usize) -> Option<(IpAddr, IpAddr)> {
    let (mut bits, mut octets, mut is_octet) = (0_u32, 0, true);
    for number in (first..name.labels().checked_sub(2)?).rev() {
        let text = std::str::from_utf8(name.label(number)?).ok()?;
        let octet = text.parse::<u8>().ok().filter(|octet| octet.to_string() == text);
        is_octet = octet.is_some();
        match octet {
            Some(octet) if octets < 4 => (bits, octets) = (bits << 8 | u32::from(octet), octets + 1),
            None if octets == 3 => {}
            _ => return None,
        }
    }
    is_octet.then_some(())?;
    let free = 8 * (4 - octets);
    let host = u32::MAX.checked_shr(32 - free).unwrap_or(0);
    let base = bits.checked_shl(free).unwrap_or(0);
    Some((Ipv4Addr::from_bits(base).into(), Ipv4Addr::from_bits(base | host).into()))
}

/// The addresses below a name of ip6.arpa (RFC 3596 §2.5).
fn v6_block(name: &WireName, first: usize) -> Option<(IpAddr, IpAddr)> {
    let (mut bits, mut nibbles) = (0_u128, 0);
    for number in (first..name.labels().checked_sub(2)?).rev() {
        let [nibble] = name.label(number)? else { return None };
        bits = bits << 4 | u128::from(char::from(*nibble).to_digit(16).filter(|_| nibbles < 32)?);
        nibbles += 1;
    }
    let free = 4 * (32 - nibbles);
    let host = u128::MAX.checked_shr(128 - free).unwrap_or(0);
    let base = bits.checked_shl(free).unwrap_or(0);
    Some((Ipv6Addr::from_bits(base).into(), Ipv6Addr::from_bits(base | host).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_one_label_and_each_label_one_address() {
        for (text, expected) in [
            ("10.77.0.12", Some("ip-10-77-0-12")),
            ("fd00::1", Some("ip-fd00--1")),
            ("fd00::", Some("ip-fd00--0")),
            ("2001:db8:1:2:3:4:5:6", Some("ip-2001-db8-1-2-3-4-5-6")),
            ("::ffff:10.0.0.1", None),
        ] {
            let it: IpAddr = text.parse().unwrap();
            assert_eq!(label(it).as_deref(), expected);
            assert_eq!(expected.and_then(|label| address(label.as_bytes())), expected.map(|_| it));
        }
        for other in [
            "ip-010-77-0-12",
            "ip-10-77-0",
            "ip-fd00--",
            "ip-fd00-0-0-0-0-0-0-1",
            "ip-",
            "ip",
            "x",
            "ip-10.77.0.12",
            "ip-fd00:-1",
        ] {
            assert_eq!(address(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn ranges_are_put_in_order() {
        assert_eq!(in_order(vec![(9, 12), (1, 3), (5, 4), (2, 7), (11, 11)]), [(1, 7), (9, 12)]);
        assert!(meets(&[(1, 7), (9, 12)], 8, 9));
        assert!(!meets(&[(1, 7), (9, 12)], 8, 8) && !meets(&[], 0, u128::MAX));
    }
}
