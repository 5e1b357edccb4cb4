//! Names of addresses: the zones that the addresses of a network are in. Pure.
//!
//! A network is in the zones of its octets (RFC 1035 §3.5) or nibbles (RFC 3596 §2.5): 10.77.0.0/22 is in four zones, 10.77.0.0/25 in the zone of
//! 10.77.0.0/24. With RFC 2317, an IPv4 network smaller than /24 has a zone of its own, and the zone around it has an alias for each address.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use basalt_api::kinds::Rdns;
use basalt_api::values::Cidr;

/// The longest prefix of a zone of octets, and of nibbles. The label that is left names the host.
const LONGEST: (u8, u8) = (24, 124);

/// A zone of addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReverseZone {
    /// Its name, without the final dot.
    pub origin: String,
    /// The addresses whose names are in it, or in zones of its own.
    pub network: Cidr,
    /// True for a zone of RFC 2317, which has one label more than the zone around it.
    pub is_classless: bool,
}

/// The zones of a network.
#[must_use]
pub fn zones(network: Cidr, mode: Rdns) -> Vec<ReverseZone> {
    if mode == Rdns::Disabled {
        return Vec::new();
    }
    let mut zones: Vec<_> = around(network).collect();
    zones.extend(classless(network).filter(|_| mode == Rdns::Rfc2317));
    zones
}

/// The zone of RFC 2317 that a network has.
#[must_use]
pub fn classless(network: Cidr) -> Option<ReverseZone> {
    let IpAddr::V4(first) = network.network() else { return None };
    let length = network.prefix_len();
    let [.., last] = first.octets();
    let parent = around(network).next().filter(|_| length > LONGEST.0)?;
    Some(ReverseZone { origin: format!("{last}-{length}.{}", parent.origin), network, is_classless: true })
}

/// The name of an address, without the final dot: `12.0.77.10.in-addr.arpa`.
#[must_use]
pub fn pointer(address: IpAddr) -> String {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    origin(address, bits)
}

/// The zones of octets or nibbles that hold a network.
fn around(network: Cidr) -> impl Iterator<Item = ReverseZone> {
    let (first, length) = (network.network(), network.prefix_len());
    let (step, longest, bits) = if first.is_ipv4() { (8, LONGEST.0, 32) } else { (4, LONGEST.1, 128) };
    let of_zone = length.div_ceil(step).saturating_mul(step).clamp(step, longest);
    let count = 1_u128 << of_zone.saturating_sub(length);
    (0..count).filter_map(move |number| {
        let first = nth(first, number << (bits - of_zone));
        let network = Cidr::containing(first, of_zone).ok()?;
        Some(ReverseZone { origin: origin(network.network(), of_zone), network, is_classless: false })
    })
}

fn nth(first: IpAddr, offset: u128) -> IpAddr {
    match first {
        IpAddr::V4(it) => Ipv4Addr::from(u32::from(it) | u32::try_from(offset).unwrap_or(0)).into(),
        IpAddr::V6(it) => Ipv6Addr::from(u128::from(it) | offset).into(),
    }
}

/// The labels of the first `bits` of an address, in reverse.
fn origin(address: IpAddr, bits: u8) -> String {
    let mut name = String::new();
    match address {
        IpAddr::V4(it) => {
            for octet in it.octets().into_iter().take(usize::from(bits / 8)).rev() {
                let _ = write!(name, "{octet}.");
            }
            name.push_str("in-addr.arpa");
        }
        IpAddr::V6(it) => {
            let nibbles = it.octets().into_iter().flat_map(|octet| [octet >> 4, octet & 15]);
            for nibble in nibbles.take(usize::from(bits / 4)).collect::<Vec<_>>().into_iter().rev() {
                let _ = write!(name, "{nibble:x}.");
            }
            name.push_str("ip6.arpa");
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origins(network: &str, mode: Rdns) -> Vec<String> {
        zones(network.parse().unwrap(), mode).into_iter().map(|zone| zone.origin).collect()
    }

    #[test]
    fn a_network_is_in_the_zones_of_its_octets_or_nibbles() {
        let cases: [(&str, &[&str]); 7] = [
            ("10.77.0.0/24", &["0.77.10.in-addr.arpa"]),
            ("10.77.0.128/25", &["0.77.10.in-addr.arpa"]),
            ("10.77.0.4/32", &["0.77.10.in-addr.arpa"]),
            ("10.77.4.0/23", &["4.77.10.in-addr.arpa", "5.77.10.in-addr.arpa"]),
            ("10.76.0.0/15", &["76.10.in-addr.arpa", "77.10.in-addr.arpa"]),
            ("fd00:1::/32", &["1.0.0.0.0.0.d.f.ip6.arpa"]),
            ("fd00::/127", &[&format!("{}0.0.d.f.ip6.arpa", "0.".repeat(27))]),
        ];
        for (network, wanted) in cases {
            assert_eq!(origins(network, Rdns::Enabled), wanted, "{network}");
            assert!(origins(network, Rdns::Disabled).is_empty());
        }
    }

    #[test]
    fn a_small_network_has_a_zone_of_its_own_if_it_is_asked_for() {
        let wanted = ["2.0.192.in-addr.arpa", "128-26.2.0.192.in-addr.arpa"];
        assert_eq!(origins("192.0.2.128/26", Rdns::Rfc2317), wanted);
        assert_eq!(origins("192.0.2.0/24", Rdns::Rfc2317), ["2.0.192.in-addr.arpa"]);
        assert_eq!(origins("fd00::/120", Rdns::Rfc2317).len(), 1);
    }

    #[test]
    fn an_address_has_a_name() {
        assert_eq!(pointer("10.77.0.12".parse().unwrap()), "12.0.77.10.in-addr.arpa");
        assert_eq!(pointer("fd00::12".parse().unwrap()), format!("2.1.{}0.0.d.f.ip6.arpa", "0.".repeat(26)));
    }
}
