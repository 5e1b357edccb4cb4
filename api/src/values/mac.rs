//! Ethernet addresses (EUI-48, IEEE 802).

use super::{BadValue, quoted, text_value};
use std::fmt;
use std::str::FromStr;

/// An Ethernet address. Prints as `52:54:00:12:34:56`. Also parses `52-54-00-12-34-56`, `5254.0012.3456` and `525400123456`, in upper or
/// lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac([u8; 6]);

impl Mac {
    /// From its six bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    /// Its six bytes, as on the wire.
    #[must_use]
    pub const fn bytes(self) -> [u8; 6] {
        self.0
    }

    /// True for group addresses, broadcast included: no interface has one as its own.
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        let [first, ..] = self.0;
        first & 1 == 1
    }

    /// True for `00:00:00:00:00:00`.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == [0; 6]
    }
}

impl FromStr for Mac {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || {
            BadValue::new(
                format!("{} is not a MAC address", quoted(text)),
                "six bytes in hexadecimal, like 52:54:00:12:34:56",
            )
        };
        let grouped = |separator: char, digits: usize| {
            text.split(separator).all(|g| g.len() == digits) && text.split(separator).count() * digits == 12
        };
        if !(grouped(':', 2) || grouped('-', 2) || grouped('.', 4) || text.len() == 12) {
            return Err(bad());
        }
        let mut nibbles = Vec::with_capacity(12);
        for c in text.chars().filter(|c| !matches!(c, ':' | '-' | '.')) {
            nibbles.push(c.to_digit(16).and_then(|d| u8::try_from(d).ok()).ok_or_else(bad)?);
        }
        let bytes: Vec<u8> = nibbles
            .chunks_exact(2)
            .filter_map(|pair| match pair {
                [high, low] => Some(high << 4 | low),
                _ => None,
            })
            .collect();
        bytes.try_into().map(Self).map_err(|_| bad())
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        f.pad(&format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"))
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

text_value!(Mac, Mac);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_usual_spelling() {
        for text in
            ["52:54:00:ab:cd:ef", "52-54-00-AB-CD-EF", "5254.00ab.cdef", "525400abcdef", "52:54:00:AB:cd:ef"]
        {
            assert_eq!(
                text.parse::<Mac>().map(|m| m.to_string()),
                Ok("52:54:00:ab:cd:ef".to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn refuses_what_is_not_six_bytes() {
        for text in [
            "",
            "52:54:00:ab:cd",
            "52:54:00:ab:cd:ef:00",
            "5254:00ab:cdef",
            "52:54:00:ab:cd:eg",
            "5254.00-ab.cdef",
        ] {
            let error = text.parse::<Mac>().unwrap_err();
            assert!(error.message.contains(&format!("{text:?}")), "{error}");
        }
    }
}
