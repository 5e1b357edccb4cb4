//! Network types that the standard library lacks.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A MAC address. It is read as `aa:bb:cc:00:11:22`, `AA-BB-CC-00-11-22`, `aabb.cc00.1122` or `aabbcc001122`, and written in the first
/// form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

/// An address and a prefix length: `10.0.0.0/24`, or a host address with the length. It keeps host bits; only the spelling of the address
/// may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    /// The address, its host bits included.
    pub address: IpAddr,
    /// Length of the prefix in bits: up to 32 for IPv4, up to 128 for IPv6.
    pub length: u8,
}

/// The reason why a text is neither.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(&'static str);

impl FromStr for Mac {
    type Err = Unreadable;
    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let wrong = Unreadable("it is six bytes in hexadecimal, as in 52:54:00:12:34:56");
        let width = match text.find([':', '-', '.']).map(|at| (at, text.as_bytes().get(at))) {
            None => 12,
            Some((2, Some(b':' | b'-'))) => 2,
            Some((4, Some(b'.'))) => 4,
            Some(_) => return Err(wrong),
        };
        let separator = text.chars().nth(width);
        let mut digits = String::with_capacity(12);
        for (i, character) in text.chars().enumerate() {
            match (i % (width + 1) == width, character) {
                (true, character) if Some(character) == separator => {}
                (false, digit) if digit.is_ascii_hexdigit() => digits.push(digit),
                _ => return Err(wrong),
            }
        }
        if digits.len() != 12 || text.ends_with([':', '-', '.']) {
            return Err(wrong);
        }
        let number = u64::from_str_radix(&digits, 16).map_err(|_| wrong)?;
        let [_, _, bytes @ ..] = number.to_be_bytes();
        Ok(Self(bytes))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Cidr {
    type Err = Unreadable;
    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let parts = text.split_once('/').and_then(|(address, length)| {
            Some(Self { address: address.parse().ok()?, length: length.parse().ok()? })
        });
        let most = |it: &Self| if it.address.is_ipv4() { 32 } else { 128 };
        let wrong = "it is an address and the length of a prefix, as in 10.0.0.0/24 or 2001:db8::/64";
        parts.filter(|it| it.length <= most(it)).ok_or(Unreadable(wrong))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_is_read_in_every_usual_spelling_and_no_other() {
        for text in ["aa:bb:cc:00:11:22", "AA-BB-CC-00-11-22", "aabb.cc00.1122", "AABBCC001122"] {
            assert_eq!(
                text.parse::<Mac>().map(|mac| mac.to_string()).as_deref(),
                Ok("aa:bb:cc:00:11:22"),
                "{text}"
            );
        }
        for text in [
            "",
            "aa",
            "aa:bb:cc:00:11",
            "aa:bb:cc:00:11:22:33",
            "aa:bb-cc:00:11:22",
            "aa:bb:cc:00:11:22:",
            "ga:bb:cc:00:11:22",
            "äa:bb:cc:00:11:2",
            "a:bb:cc:00:11:222",
            "aabb:cc00:1122",
        ] {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_prefix_is_no_longer_than_its_address() {
        for (text, want) in [
            ("10.0.0.1/24", Some("10.0.0.1/24")),
            ("2001:DB8:0::/32", Some("2001:db8::/32")),
            ("10.0.0.0/33", None),
            ("::/129", None),
            ("10.0.0.0", None),
            ("10.0.0/8", None),
        ] {
            assert_eq!(text.parse::<Cidr>().ok().map(|it| it.to_string()).as_deref(), want, "{text}");
        }
    }
}
