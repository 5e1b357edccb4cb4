//! Options whose values have a form of their own: search lists (RFC 3397) and routes (RFC 3442).

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;

use crate::{Route, Subnet};

/// The clients that get an option that an operator declares as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Every client gets it.
    Always,
    /// Clients that ask for it by its number (option 55).
    Asked,
    /// Clients that send it themselves.
    Repeated,
    /// No client: the option belongs to messages that this server does not send.
    Never,
}

/// The options that an RFC restricts. Every other one is always sent.
const RULES: [(u8, Told); 16] = [
    (80, Told::Never), // rapid commit, of ACKs that answer a DISCOVER (RFC 4039 §3)
    (90, Told::Never), // authentication (RFC 3118)
    (91, Told::Never), // and 92: of answers to lease queries (RFC 4388 §6.1)
    (92, Told::Never),
    (108, Told::Asked), // IPv6-only preferred: whoever takes it goes without IPv4 (RFC 8925 §3.3)
    (116, Told::Repeated), // auto-configure (RFC 2563 §2.3)
    (118, Told::Never), // subnet selection, which the server repeats itself (RFC 3011 §2)
    (145, Told::Never), // the nonce of FORCERENEW (RFC 6704 §3.1.1)
    (151, Told::Never), // to 157: of answers to bulk lease queries (RFC 6926 §6.2)
    (152, Told::Never),
    (153, Told::Never),
    (154, Told::Never),
    (155, Told::Never),
    (156, Told::Never),
    (157, Told::Never),
    (249, Told::Asked), // routes, as Windows asked for them before RFC 3442
];

/// The clients that get an option.
pub(crate) fn told(code: u8) -> Told {
    RULES.iter().find(|(known, _)| *known == code).map_or(Told::Always, |(_, told)| *told)
}

/// A pointer to an earlier name (RFC 1035 §4.1.4): two set bits, then the offset of the name.
const POINTER: u16 = 0xc000;

/// The value of option 119. Names share their ends. Pointers count from the first byte of the whole value, even if the
/// option is sent in parts (RFC 3397 §2).
pub(crate) fn search_list(domains: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut written: HashMap<String, u16> = HashMap::new();
    for domain in domains {
        let domain = domain.to_ascii_lowercase();
        let mut rest = domain.as_str();
        loop {
            if let Some(at) = written.get(rest) {
                out.extend((POINTER | at).to_be_bytes());
                break;
            }
            if rest.is_empty() {
                out.push(0);
                break;
            }
            // A name beyond the reach of a pointer is written in full.
            if let Some(at) = u16::try_from(out.len()).ok().filter(|at| *at < POINTER >> 2) {
                written.insert(rest.to_owned(), at);
            }
            let (label, further) = rest.split_once('.').unwrap_or((rest, ""));
            out.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
            out.extend(label.as_bytes());
            rest = further;
        }
    }
    out
}

/// The value of option 121. A client that uses it ignores option 3 (RFC 3442), so the default route is among these
/// routes. A router that is a neighbour on the link gets its own route via 0.0.0.0, before the routes through it
/// ("Local Subnet Routes"). `None`: option 3 is enough.
pub(crate) fn routes(subnet: &Subnet) -> Option<Vec<u8>> {
    let routes = &subnet.routes;
    let is_named = routes.iter().any(|route| route.to.prefix_len() == 0);
    let default = subnet.gateway.filter(|_| !is_named);
    let default = default.map(|via| Route { to: ipnet::Ipv4Net::default(), via });
    let routers: BTreeSet<Ipv4Addr> = routes.iter().chain(&default).map(|route| route.via).collect();
    let neighbours = routers.into_iter().filter(|router| subnet.has_on_link(*router));
    let neighbours: Vec<_> = neighbours
        .map(|router| Route { to: ipnet::Ipv4Net::from(router), via: Ipv4Addr::UNSPECIFIED })
        .collect();
    if routes.is_empty() && neighbours.is_empty() {
        return None;
    }
    let mut out = Vec::new();
    for route in neighbours.into_iter().chain(routes.iter().copied()).chain(default) {
        let significant = usize::from(route.to.prefix_len().div_ceil(8));
        out.push(route.to.prefix_len());
        out.extend(route.to.network().octets().iter().take(significant));
        out.extend(route.via.octets());
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 3397 §2.
    #[test]
    fn names_share_their_ends() {
        let domains = ["eng.apple.com".to_owned(), "marketing.apple.com".to_owned()];
        let expected = b"\x03eng\x05apple\x03com\x00\x09marketing\xc0\x04";
        assert_eq!(search_list(&domains), expected);
        let whole = ["apple.com".to_owned(), "Apple.com".to_owned(), "com".to_owned()];
        assert_eq!(search_list(&whole), b"\x05apple\x03com\x00\xc0\x00\xc0\x06");
    }

    /// The table of RFC 3442, "Classless Route Option Format".
    #[test]
    fn a_route_has_only_the_octets_that_count() {
        let via = Ipv4Addr::new(10, 0, 0, 1);
        let value = |to: &str, gateway| {
            let mut subnet = Subnet::new("lab", "10.0.0.0/24".parse().unwrap());
            subnet.gateway = gateway;
            subnet.routes = vec![Route { to: to.parse().unwrap(), via }];
            routes(&subnet).unwrap()
        };
        for (to, octets) in [
            ("0.0.0.0/0", &[0][..]),
            ("10.0.0.0/8", &[8, 10]),
            ("10.17.0.0/16", &[16, 10, 17]),
            ("10.27.129.0/24", &[24, 10, 27, 129]),
            ("10.229.0.128/25", &[25, 10, 229, 0, 128]),
            ("10.198.122.47/32", &[32, 10, 198, 122, 47]),
        ] {
            assert_eq!(value(to, None), [octets, &[10, 0, 0, 1]].concat(), "{to}");
        }
        let out = Some(Ipv4Addr::new(10, 0, 0, 254));
        assert_eq!(
            value("10.0.0.0/8", out),
            [8, 10, 10, 0, 0, 1, 0, 10, 0, 0, 254],
            "the way out is a route too"
        );
        assert_eq!(value("0.0.0.0/0", out), [0, 10, 0, 0, 1], "unless another one is");
    }

    #[test]
    fn a_gateway_outside_of_a_network_of_one_address_is_a_neighbour_first() {
        let mut subnet = Subnet::new("routed", "203.0.113.7/32".parse().unwrap());
        subnet.gateway = Some(Ipv4Addr::new(203, 0, 113, 1));
        let neighbour = [32, 203, 0, 113, 1, 0, 0, 0, 0];
        assert_eq!(routes(&subnet).unwrap(), [&neighbour[..], &[0, 203, 0, 113, 1]].concat());
        let mut subnet = Subnet::new("lab", "10.0.0.0/24".parse().unwrap());
        subnet.gateway = Some(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(routes(&subnet), None, "option 3 says it");
    }
}
