//! SHA-256 digests, which name blobs by their content.

use super::{BadValue, quoted, text_value};
use std::fmt;
use std::str::FromStr;

/// A SHA-256 digest (FIPS 180-4), which is also the name of a blob. Prints as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// From the digest's bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest's bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for Sha256 {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || {
            BadValue::new(
                format!("{} is not a SHA-256 digest", quoted(text)),
                "64 hexadecimal digits, as printed by sha256sum",
            )
        };
        let mut nibbles = Vec::with_capacity(64);
        if text.len() != 64 {
            return Err(bad());
        }
        for c in text.chars() {
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

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

text_value!(Sha256, Sha256);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_lower_case_and_reads_both() {
        let lower = "00ff".repeat(16);
        assert_eq!(lower.to_uppercase().parse::<Sha256>().map(|d| d.to_string()), Ok(lower));
        for text in [String::new(), "0".repeat(63), "g".repeat(64), "é".repeat(32)] {
            assert!(text.parse::<Sha256>().is_err(), "{text}");
        }
    }
}
