//! An Ethernet hardware address: the identity of a client.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A 48-bit Ethernet address, written `52:54:00:12:34:56`.
///
/// A client is its `chaddr` and nothing else: boot ROM, initrd and installed system send different client identifiers
/// (option 61) from the same port, and must still get the same address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

/// The text is not an Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a MAC address; write six hexadecimal bytes as 52:54:00:12:34:56")]
pub struct BadMac(pub String);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = BadMac;

    /// Accepts colons or dashes, upper or lower case, two digits each.
    fn from_str(text: &str) -> Result<Self, BadMac> {
        let bad = || BadMac(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().ok_or_else(bad)?;
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(bad());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(Self(bytes)) }
    }
}

impl TryFrom<String> for Mac {
    type Error = BadMac;

    fn try_from(text: String) -> Result<Self, BadMac> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_colons_and_dashes_in_either_case() {
        let mac = Mac([0x52, 0x54, 0, 0x12, 0x34, 0xab]);
        assert_eq!("52:54:00:12:34:ab".parse(), Ok(mac));
        assert_eq!("52-54-00-12-34-AB".parse(), Ok(mac));
        assert_eq!(mac.to_string(), "52:54:00:12:34:ab");
    }

    #[test]
    fn refuses_anything_else() {
        for text in [
            "",
            "52:54:00:12:34",
            "52:54:00:12:34:ab:cd",
            "52:54:0:12:34:ab",
            "52:54:00:12:34:+b",
            "525400123456",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(BadMac(text.to_owned())));
        }
    }
}
