//! Lengths of time as people write them.

use super::{BadValue, quoted, text_value};
use std::fmt;
use std::str::FromStr;

/// A length of time: `90s`, `10m`, `1h30m`, `2d`, `250ms`. Prints in the largest units that are exact.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(std::time::Duration);

/// Milliseconds per unit, largest first; the order in which units may follow each other.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Ten years. A longer duration is a typing error, and could overflow calculations with clocks.
const LONGEST_MS: u64 = 3_650 * 86_400_000;

impl Duration {
    /// A duration of this many seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(std::time::Duration::from_secs(seconds))
    }

    /// A duration of this many milliseconds.
    #[must_use]
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(std::time::Duration::from_millis(milliseconds))
    }

    /// The duration as the standard library's type, for timers.
    #[must_use]
    pub const fn get(self) -> std::time::Duration {
        self.0
    }

    /// The duration in whole seconds, rounded down.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0.as_secs()
    }
}

impl FromStr for Duration {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| {
            BadValue::new(format!("{} is not a duration: {why}", quoted(text)), "like 90s, 10m, 1h30m or 2d")
        };
        if text == "0" {
            return Ok(Self::default());
        }
        let mut rest = text;
        let mut total: u64 = 0;
        let mut units = UNITS.iter();
        while !rest.is_empty() {
            let digits =
                rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(|| bad("it ends without a unit"))?;
            let (number, tail) = rest.split_at(digits);
            let length = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(length);
            let number: u64 = number.parse().map_err(|_| bad("a number is missing or too large"))?;
            let (_, factor) = units
                .find(|(name, _)| *name == unit)
                .ok_or_else(|| bad("the units are d, h, m, s and ms, in this order"))?;
            total = number
                .checked_mul(*factor)
                .and_then(|ms| total.checked_add(ms))
                .filter(|ms| *ms <= LONGEST_MS)
                .ok_or_else(|| bad("it is longer than ten years"))?;
            rest = tail;
        }
        if text.is_empty() {
            return Err(bad("it is empty"));
        }
        Ok(Self::from_millis(total))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        let mut text = String::new();
        for (unit, factor) in UNITS {
            if rest >= factor {
                text.push_str(&format!("{}{unit}", rest / factor));
                rest %= factor;
            }
        }
        f.pad(if text.is_empty() { "0s" } else { &text })
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<std::time::Duration> for Duration {
    fn from(d: std::time::Duration) -> Self {
        Self(d)
    }
}

text_value!(Duration, Duration);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        for (text, printed) in [
            ("90s", "1m30s"),
            ("10m", "10m"),
            ("1h30m", "1h30m"),
            ("48h", "2d"),
            ("1500ms", "1s500ms"),
            ("0", "0s"),
        ] {
            assert_eq!(text.parse::<Duration>().map(|d| d.to_string()), Ok(printed.to_owned()), "{text}");
        }
    }

    #[test]
    fn refuses_what_has_two_readings() {
        for text in ["", "10", "10 m", "m", "30s1h", "1h1h", "-5s", "1.5h", "99999999999999999999s", "11000d"]
        {
            assert!(text.parse::<Duration>().is_err(), "{text}");
        }
    }
}
