//! MAC addresses and networks.

use std::net::IpAddr;

use basalt_api::values::{Cidr, Mac};
use basalt_api::{BadValue, Semantic};
use tfplugin::{Refusal, Type, Val};

use super::Texts;

/// Normalises the spelling of a MAC address.
pub(super) const MAC_NORMALIZE: Texts = Texts {
    name: "mac_normalize",
    summary: "The usual spelling of a MAC address",
    description: "Spells a MAC address in lower case and with colons, as `52:54:00:12:34:56`. Hyphens, dots and no \
                  separators at all are understood. Useful for keys of `for_each`, where spellings count.",
    parameters: &[("mac", "The address, such as `52-54-00-12-34-56` or `5254.0012.3456`.")],
    is_variadic: false,
    returns: Type::String,
    call: |texts| {
        let [mac] = texts else { return Ok(Val::Null) };
        parsed::<Mac>(0, mac).map(|mac| mac.to_string().into())
    },
};

/// True if an address or a network lies in a network.
pub(super) const CIDR_CONTAINS: Texts = Texts {
    name: "cidr_contains",
    summary: "Whether an address or a network lies in a network",
    description: "True where every address of the second argument is one of the first, as a `precondition` on a \
                  subnet's gateway needs it.",
    parameters: &[
        ("cidr", "The network, such as `10.77.0.0/24`."),
        ("inner", "An address, such as `10.77.0.1`, or a network, such as `10.77.0.128/25`."),
    ],
    is_variadic: false,
    returns: Type::Bool,
    call: |texts| {
        let [outer, inner] = texts else { return Ok(Val::Null) };
        let outer: Cidr = parsed(0, outer)?;
        let (first, last) = if inner.contains('/') {
            parsed(1, inner).map(|inner: Cidr| (inner.network(), inner.broadcast()))?
        } else {
            address(1, inner).map(|address| (address, address))?
        };
        Ok((outer.contains(first) && outer.contains(last)).into())
    },
};

/// True if two networks share addresses.
pub(super) const CIDR_OVERLAPS: Texts = Texts {
    name: "cidr_overlaps",
    summary: "Whether two networks share an address",
    description: "True where at least one address is in both networks: the region refuses such subnets of one fabric.",
    parameters: &[("a", "A network, such as `10.77.0.0/24`."), ("b", "Another network.")],
    is_variadic: false,
    returns: Type::Bool,
    call: |texts| {
        let [a, b] = texts else { return Ok(Val::Null) };
        let (a, b): (Cidr, Cidr) = (parsed(0, a)?, parsed(1, b)?);
        Ok(a.overlaps(b).into())
    },
};

fn parsed<T: std::str::FromStr<Err = BadValue>>(argument: usize, text: &str) -> Result<T, Refusal> {
    text.parse().map_err(|bad| refusal(argument, &bad))
}

fn address(argument: usize, text: &str) -> Result<IpAddr, Refusal> {
    let canonical = Semantic::Ip.canonical(text).map_err(|bad| refusal(argument, &bad))?;
    canonical.parse().map_err(|_| Refusal::of(argument, format!("{text:?} is not an IP address")))
}

fn refusal(argument: usize, bad: &BadValue) -> Refusal {
    Refusal::of(argument, format!("{}; {}.", bad.message, bad.hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(function: &Texts, arguments: &[&str]) -> Result<Val, Refusal> {
        (function.call)(arguments)
    }

    #[test]
    fn a_mac_address_has_one_spelling() {
        for text in ["52-54-00-AA-00-01", "5254.00aa.0001", "525400AA0001", "52:54:00:aa:00:01"] {
            assert_eq!(ask(&MAC_NORMALIZE, &[text]), Ok("52:54:00:aa:00:01".into()), "{text}");
        }
        let refusal = ask(&MAC_NORMALIZE, &["52-54-zz"]).expect_err("no address");
        assert!(refusal.argument == Some(0) && refusal.why.contains("52-54-zz"), "{refusal}");
    }

    #[test]
    fn what_lies_in_a_network_lies_in_it_whole() {
        for (outer, inner, want) in [
            ("10.77.0.0/24", "10.77.0.255", true),
            ("10.77.0.0/24", "10.77.1.0", false),
            ("10.77.0.0/24", "10.77.0.128/25", true),
            ("10.77.0.0/24", "10.77.0.0/23", false),
            ("2001:db8::/32", "2001:DB8::1", true),
            ("10.77.0.0/24", "2001:db8::1", false),
        ] {
            assert_eq!(ask(&CIDR_CONTAINS, &[outer, inner]), Ok(want.into()), "{inner} in {outer}");
        }
        let refusal = ask(&CIDR_CONTAINS, &["10.77.0.0/24", "10.77.0.300"]).expect_err("no address");
        assert!(refusal.argument == Some(1) && refusal.why.contains("10.77.0.300"), "{refusal}");
    }

    #[test]
    fn networks_overlap_whichever_comes_first() {
        assert_eq!(ask(&CIDR_OVERLAPS, &["10.0.0.0/8", "10.77.0.0/24"]), Ok(true.into()));
        assert_eq!(ask(&CIDR_OVERLAPS, &["10.77.0.0/24", "10.0.0.0/8"]), Ok(true.into()));
        assert_eq!(ask(&CIDR_OVERLAPS, &["10.77.0.0/24", "10.78.0.0/24"]), Ok(false.into()));
        let refusal = ask(&CIDR_OVERLAPS, &["10.77.0.0/24", "10.78.0.7/24"]).expect_err("bits beyond");
        assert!(refusal.argument == Some(1) && refusal.why.contains("10.78.0.0/24"), "{refusal}");
    }
}
