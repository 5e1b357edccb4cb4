//! Converts names, addresses and descriptions into the form that people read.

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::MAX_TEXT;

/// A text on one line. `None` if it has no visible character.
pub(crate) fn line(octets: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(octets);
    // Some devices end a text with a NUL, and descriptions may have several lines.
    let text = text.trim_matches(|c: char| c == '\0' || c.is_whitespace());
    let mut line = String::new();
    for c in text.chars() {
        let shown = match c {
            _ if c.is_whitespace() => ' ',
            _ if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        };
        if shown == ' ' && line.ends_with(' ') {
            continue;
        }
        if line.len() + shown.len_utf8() > MAX_TEXT {
            break;
        }
        line.push(shown);
    }
    line.truncate(line.trim_end().len());
    (!line.is_empty()).then_some(line)
}

/// An identifier as text. Octets that are not text become [`hex`].
pub(crate) fn name(octets: &[u8]) -> Option<String> {
    let end = octets.iter().rposition(|octet| *octet != 0)?;
    let trimmed = octets.get(..=end)?;
    let is_text = std::str::from_utf8(trimmed).is_ok_and(|text| !text.chars().any(char::is_control));
    if is_text { line(trimmed) } else { Some(hex(octets)) }
}

/// Pairs of hexadecimal digits with colons between them, as MAC addresses are written.
pub(crate) fn hex(octets: &[u8]) -> String {
    let mut text = String::new();
    for octet in octets.iter().take(MAX_TEXT / 3) {
        let separator = if text.is_empty() { "" } else { ":" };
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{octet:02x}");
    }
    text
}

/// An address without its family: four octets of IPv4, sixteen of IPv6.
pub(crate) fn ip(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(octets).ok().map(IpAddr::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_line_without_control_characters() {
        assert_eq!(line(b"Cisco IOS\r\n  Version 15\0"), Some("Cisco IOS Version 15".to_owned()));
        assert_eq!(line(b"a\x1b[31mb"), Some("a\u{fffd}[31mb".to_owned()));
        assert_eq!(line("Bühne 3".as_bytes()), Some("Bühne 3".to_owned()));
        assert_eq!(line(b" \0"), None);
        let long = line("ü".repeat(300).as_bytes()).unwrap();
        assert_eq!((long.len(), long.chars().last()), (254, Some('ü')));
    }

    #[test]
    fn an_identifier_that_is_no_text_is_written_in_hexadecimal() {
        assert_eq!(name(b"Ethernet1/7\0").as_deref(), Some("Ethernet1/7"));
        assert_eq!(name(&[0, 1, 2, 0xff]).as_deref(), Some("00:01:02:ff"));
        assert_eq!(name(b"a\nb").as_deref(), Some("61:0a:62"));
        assert_eq!(name(&[0, 0]), None);
        assert_eq!(hex(&[0xab; 300]).len(), MAX_TEXT - 1);
    }
}
