//! Networks in CIDR notation (RFC 4632, RFC 4291 §2.3).

use super::{BadValue, quoted, text_value};
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network, IPv4 or IPv6, with no host bits set: `10.77.0.0/24`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr(IpNet);

/// How a host of a network reaches a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// By the network itself, or by the link-local network that every interface of IPv6 has.
    Network,
    /// As a neighbour on the same link, outside of the network: the route has to say `on-link`.
    OnLink,
}

impl Cidr {
    /// The network of `address` with a prefix of `prefix_len` bits.
    ///
    /// # Errors
    /// `prefix_len` is longer than the address.
    pub fn containing(address: IpAddr, prefix_len: u8) -> Result<Self, BadValue> {
        IpNet::new(address, prefix_len).map(|net| Self(net.trunc())).map_err(|_| {
            BadValue::new(
                format!("/{prefix_len} is too long for {address}"),
                if address.is_ipv4() { "0 to 32" } else { "0 to 128" },
            )
        })
    }

    /// The network as the type of the crate `ipnet`.
    #[must_use]
    pub const fn net(self) -> IpNet {
        self.0
    }

    /// First address: the network's own in IPv4, the subnet-router anycast address in IPv6.
    #[must_use]
    pub fn network(self) -> IpAddr {
        self.0.network()
    }

    /// Last address: the broadcast address in IPv4.
    #[must_use]
    pub fn broadcast(self) -> IpAddr {
        self.0.broadcast()
    }

    /// Number of bits of the network prefix.
    #[must_use]
    pub fn prefix_len(self) -> u8 {
        self.0.prefix_len()
    }

    /// True if `address` lies in this network.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    /// True if the two networks share an address.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.0.contains(&other.0) || other.0.contains(&self.0)
    }

    /// True if `address` lies in this network and an interface can have it. False for the network and broadcast address, except in /31 and
    /// /32. In IPv6 false for the subnet-router anycast address only, except in /127 and /128.
    #[must_use]
    pub fn is_host(self, address: IpAddr) -> bool {
        if !self.contains(address) {
            return false;
        }
        match self.0 {
            IpNet::V4(net) if net.prefix_len() < 31 => {
                address != self.network() && address != self.broadcast()
            }
            IpNet::V6(net) if net.prefix_len() < 127 => address != self.network(),
            _ => true,
        }
    }

    /// True if the network is one address alone, as routed hosts have it: /32 or /128.
    #[must_use]
    pub fn is_single(self) -> bool {
        self.0.prefix_len() == self.0.max_prefix_len()
    }

    /// How a host of this network reaches `router`. A router outside of the network is a neighbour in two cases:
    ///
    /// 1. its address is link-local,
    /// 2. the network is a single address, which has no room for a router.
    ///
    /// Any other router outside of the network is a typing error. `None`: no router can have this address, or it is out of reach.
    #[must_use]
    pub fn reach(self, router: IpAddr) -> Option<Reach> {
        if router.is_ipv4() != self.network().is_ipv4() || !is_unicast(router) {
            return None;
        }
        match router {
            // RFC 4861 §4.2: routers of an IPv6 network announce themselves by their link-local address.
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(Reach::Network),
            ip if self.contains(ip) => (self.is_host(ip) && !self.is_single()).then_some(Reach::Network),
            ip => (self.is_single() || is_link_local(ip)).then_some(Reach::OnLink),
        }
    }
}

/// True if `address` can be one host's: not unspecified, multicast, broadcast or loopback.
#[must_use]
pub const fn is_unicast(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(ip) if ip.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || address.is_loopback() || is_broadcast)
}

/// True if `address` is link-local (RFC 3927, RFC 4291 §2.5.6).
#[must_use]
pub const fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

impl FromStr for Cidr {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let Ok(net) = text.parse::<IpNet>() else {
            let hint = match text.parse::<IpAddr>() {
                Ok(IpAddr::V4(_)) => format!("add the prefix length, like {text}/24"),
                Ok(IpAddr::V6(_)) => format!("add the prefix length, like {text}/64"),
                Err(_) => "a network like 10.77.0.0/24 or 2001:db8::/64".to_owned(),
            };
            return Err(BadValue::new(format!("{} is not a network", quoted(text)), hint));
        };
        if net.addr() != net.network() {
            return Err(BadValue::new(
                format!("{} has bits set beyond its prefix", quoted(text)),
                format!("the network is {}", net.trunc()),
            ));
        }
        Ok(Self(net))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.to_string())
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

text_value!(Cidr, Cidr);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_network_when_host_bits_are_set() {
        let error = "10.77.0.5/24".parse::<Cidr>().unwrap_err();
        assert_eq!(error.hint, "the network is 10.77.0.0/24");
        assert_eq!("10.77.0.0".parse::<Cidr>().unwrap_err().hint, "add the prefix length, like 10.77.0.0/24");
    }

    #[test]
    fn knows_which_addresses_an_interface_can_have() {
        let host = |net: &str, ip: &str| net.parse::<Cidr>().unwrap().is_host(ip.parse().unwrap());
        assert!(host("10.0.0.0/24", "10.0.0.1"));
        assert!(!host("10.0.0.0/24", "10.0.0.0"));
        assert!(!host("10.0.0.0/24", "10.0.0.255"));
        assert!(!host("10.0.0.0/24", "10.0.1.1"));
        assert!(host("10.0.0.0/31", "10.0.0.0"), "RFC 3021");
        assert!(host("2001:db8::/64", "2001:db8::ffff:ffff:ffff:ffff"));
        assert!(!host("2001:db8::/64", "2001:db8::"), "subnet-router anycast, RFC 4291 §2.6.1");
    }

    #[test]
    fn a_router_is_in_the_network_or_a_neighbour_on_the_link() {
        let reach = |net: &str, ip: &str| net.parse::<Cidr>().unwrap().reach(ip.parse().unwrap());
        for (net, router, expected) in [
            ("10.0.0.0/24", "10.0.0.1", Some(Reach::Network)),
            ("10.0.0.0/31", "10.0.0.1", Some(Reach::Network)),
            ("2001:db8::/64", "2001:db8::1", Some(Reach::Network)),
            ("2001:db8::/64", "fe80::1", Some(Reach::Network)),
            ("2001:db8::7/128", "fe80::1", Some(Reach::Network)),
            ("203.0.113.7/32", "203.0.113.1", Some(Reach::OnLink)),
            ("2001:db8::7/128", "2001:db8:1::1", Some(Reach::OnLink)),
            ("10.0.0.0/24", "169.254.0.1", Some(Reach::OnLink)),
            ("10.0.0.0/24", "10.1.0.1", None),
            ("10.0.0.0/24", "10.0.0.255", None),
            ("10.0.0.0/24", "fe80::1", None),
            ("203.0.113.7/32", "203.0.113.7", None),
            ("203.0.113.7/32", "0.0.0.0", None),
            ("203.0.113.7/32", "224.0.0.1", None),
        ] {
            assert_eq!(reach(net, router), expected, "{router} from {net}");
        }
    }

    #[test]
    fn overlap_is_symmetric() {
        let net = |t: &str| t.parse::<Cidr>().unwrap();
        assert!(net("10.0.0.0/8").overlaps(net("10.9.0.0/16")));
        assert!(net("10.9.0.0/16").overlaps(net("10.0.0.0/8")));
        assert!(!net("10.8.0.0/16").overlaps(net("10.9.0.0/16")));
        assert!(!net("10.0.0.0/8").overlaps(net("::/0")));
    }
}
