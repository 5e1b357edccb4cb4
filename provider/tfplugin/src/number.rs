//! Numbers of any size, each with one canonical spelling.

use std::fmt;

/// A number. Terraform's numbers have no limits, so a number outside of `i64` is kept as exact
/// decimal text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Num {
    /// A whole number that fits into 64 bits.
    Int(i64),
    /// Any other number, in its canonical spelling: no exponent, no leading or trailing zeros.
    Dec(String),
}

/// Largest number of digits. Only malicious input has more.
const MAX_DIGITS: usize = 4096;

impl Num {
    /// Reads decimal text such as `-12`, `0.10` or `1e-3`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(value) = text.parse::<i64>() {
            return Some(Self::Int(value));
        }
        if text.len() > MAX_DIGITS {
            return None;
        }
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let point = i64::try_from(whole.len()).ok()? + i64::from(exponent);
        let len = i64::try_from(digits.len()).ok()?;
        if point.unsigned_abs() > MAX_DIGITS as u64 {
            return None;
        }
        let (whole, fraction) = if point <= 0 {
            let zeros = usize::try_from(-point).ok()?;
            (String::new(), format!("{}{digits}", "0".repeat(zeros)))
        } else if point >= len {
            let zeros = usize::try_from(point - len).ok()?;
            (format!("{digits}{}", "0".repeat(zeros)), String::new())
        } else {
            let (whole, fraction) = digits.split_at(usize::try_from(point).ok()?);
            (whole.to_owned(), fraction.to_owned())
        };
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        let sign = if negative { "-" } else { "" };
        let canonical =
            if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") };
        Some(canonical.parse::<i64>().map_or(Self::Dec(canonical), Self::Int))
    }

    /// The exact value of a binary floating-point number. None for infinities and NaN.
    #[must_use]
    pub fn from_f64(value: f64) -> Option<Self> {
        // The smallest double has 1074 decimal places, and every double ends there.
        value.is_finite().then(|| format!("{value:.1074}")).and_then(|text| Self::parse(&text))
    }
}

impl fmt::Display for Num {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Dec(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_has_one_spelling() {
        for (text, want) in [
            ("7", "7"),
            ("-0", "0"),
            ("1e3", "1000"),
            ("1.50", "1.5"),
            ("0.10", "0.1"),
            ("00.25e1", "2.5"),
            ("25e-3", "0.025"),
            ("18446744073709551615", "18446744073709551615"),
        ] {
            assert_eq!(Num::parse(text).map(|n| n.to_string()).as_deref(), Some(want), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_number_is_refused() {
        for text in ["", "-", ".", "1.2.3", "0x10", "1e999999", "NaN", "ten"] {
            assert_eq!(Num::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_double_becomes_exactly_what_it_stands_for() {
        assert_eq!(Num::from_f64(0.5), Some(Num::Dec("0.5".into())));
        assert_eq!(Num::from_f64(-3.0), Some(Num::Int(-3)));
        assert_eq!(Num::from_f64(f64::INFINITY), None);
        assert_ne!(Num::from_f64(0.1), Num::parse("0.1"), "the nearest double is not 0.1");
    }
}
