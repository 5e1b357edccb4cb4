//! Amounts of bytes as people write them.

use super::{BadValue, quoted, text_value};
use std::fmt;
use std::str::FromStr;

/// An amount of memory or disk: `16GiB`, `500GB`, `512MiB`. Prints in the largest binary unit that is exact.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

/// Bytes per unit.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl ByteSize {
    /// An amount of this many bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The amount in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || {
            BadValue::new(
                format!("{} is not an amount of bytes", quoted(text)),
                "like 16GiB, 512MiB or 500GB",
            )
        };
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| bad())?;
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        number
            .checked_mul(*factor)
            .filter(|bytes| *bytes <= crate::MAX_INT.unsigned_abs())
            .map(Self)
            .ok_or_else(bad)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The largest unit, binary or decimal, of which the amount is a whole number: the spelling that a person most likely used.
        let whole = UNITS.iter().filter(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor));
        let (unit, factor) = whole.max_by_key(|(_, factor)| *factor).copied().unwrap_or(("B", 1));
        f.pad(&format!("{}{unit}", self.0 / factor))
    }
}

impl fmt::Debug for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

text_value!(ByteSize, Bytes);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        for (text, printed) in [
            ("16GiB", "16GiB"),
            ("1024MiB", "1GiB"),
            ("500GB", "500GB"),
            ("4GB", "4GB"),
            ("1000MB", "1GB"),
            ("1500kB", "1500kB"),
            ("2048kB", "2000KiB"),
            ("0GiB", "0B"),
            ("7B", "7B"),
        ] {
            assert_eq!(text.parse::<ByteSize>().map(|d| d.to_string()), Ok(printed.to_owned()), "{text}");
        }
        for text in ["", "16", "GiB", "16 GiB", "16gib", "99999999TiB", "-1B"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }
}
