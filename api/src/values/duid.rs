//! DHCP unique identifiers (RFC 8415 §11).

use super::{BadValue, quoted, text_value};
use std::fmt;
use std::str::FromStr;

/// Identifier of a host in DHCPv6: a type of two bytes and 1 to 128 more bytes. Prints as `00:04:1b:…`. Also parses `00-04-1B-…` and
/// `00041b…`, in upper or lower case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duid(Vec<u8>);

impl Duid {
    /// Fewest bytes of a DUID, with the two bytes of the type.
    pub const MIN_LEN: usize = 3;
    /// Most bytes of a DUID, with the two bytes of the type.
    pub const MAX_LEN: usize = 130;

    /// From its bytes.
    ///
    /// # Errors
    /// There are too few or too many bytes, or the type is 0, which no host has.
    pub fn new(bytes: &[u8]) -> Result<Self, BadValue> {
        let count = bytes.len();
        if !(Self::MIN_LEN..=Self::MAX_LEN).contains(&count) {
            let message = format!("a DUID of {count} bytes: it has {} to {}", Self::MIN_LEN, Self::MAX_LEN);
            return Err(BadValue::new(message, "all of it, the type's two bytes at its start included"));
        }
        if bytes.starts_with(&[0, 0]) {
            let hint = "all of it, from its type on: 00:01, 00:02, 00:03 or 00:04, mostly";
            return Err(BadValue::new("a DUID of type 0, which no host has", hint));
        }
        Ok(Self(bytes.to_vec()))
    }

    /// Its bytes, as on the wire.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for Duid {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || {
            BadValue::new(
                format!("{} is not a DUID", quoted(text)),
                "its bytes in hexadecimal, two digits each, like 00:03:00:01:52:54:00:12:34:56",
            )
        };
        let grouped = |separator| text.split(separator).all(|group| group.len() == 2);
        let digits = match (grouped(':'), grouped('-')) {
            (true, _) => text.replace(':', ""),
            (_, true) => text.replace('-', ""),
            _ => text.to_owned(),
        };
        let (pairs, odd) = digits.as_bytes().as_chunks::<2>();
        if pairs.is_empty() || !odd.is_empty() {
            return Err(bad());
        }
        let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|it| u8::try_from(it).ok());
        let byte = |[high, low]: &[u8; 2]| Some(nibble(*high)? << 4 | nibble(*low)?);
        let bytes: Vec<u8> = pairs.iter().map(byte).collect::<Option<_>>().ok_or_else(bad)?;
        Self::new(&bytes)
            .map_err(|error| BadValue { message: format!("{} is {}", quoted(text), error.message), ..error })
    }
}

impl fmt::Display for Duid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: Vec<String> = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        f.pad(&bytes.join(":"))
    }
}

impl fmt::Debug for Duid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

text_value!(Duid, Duid);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_usual_spelling() {
        for text in [
            "00:03:00:01:52:54:00:ab:cd:ef",
            "00-03-00-01-52-54-00-AB-CD-EF",
            "00030001525400abcdef",
            "00030001525400ABCDEF",
        ] {
            let read = text.parse::<Duid>().map(|duid| duid.to_string());
            assert_eq!(read, Ok("00:03:00:01:52:54:00:ab:cd:ef".to_owned()), "{text}");
        }
    }

    #[test]
    fn refuses_what_no_host_calls_itself() {
        for (text, why) in [
            ("", "\"\" is not a DUID"),
            ("00:03:0", "\"00:03:0\" is not a DUID"),
            ("0:3:0:1", "is not a DUID"),
            ("00:03-01", "is not a DUID"),
            ("00:03:0g", "is not a DUID"),
            ("00:03:é", "is not a DUID"),
            ("000300015", "is not a DUID"),
            ("00:03", "\"00:03\" is a DUID of 2 bytes: it has 3 to 130"),
            (&"ab".repeat(131), "is a DUID of 131 bytes"),
            ("00:00:01", "is a DUID of type 0"),
        ] {
            let error = text.parse::<Duid>().unwrap_err();
            assert!(error.message.contains(why), "{error}");
        }
        for bytes in [3, 130] {
            assert_eq!("ab".repeat(bytes).parse::<Duid>().map(|duid| duid.bytes().len()), Ok(bytes));
        }
    }
}
