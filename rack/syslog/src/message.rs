//! One message: the header as far as there is one, and the text.
//!
//! | begins with | is |
//! | --- | --- |
//! | `<PRI>1 ` and the six fields of RFC 5424 section 6.2 | RFC 5424 |
//! | `<PRI>` and any of date, host and tag | RFC 3164 section 4.1; the date may be one of RFC 3339, as rsyslog forwards |
//! | no `<PRI>` | a line of the kernel, as netconsole sends: `kern.info` |
//!
//! Dates are kept as they were sent: RFC 3164 has no year and no zone, and clocks of machines are wrong. The receiver's own time orders a log.

use crate::frames::Frame;
use crate::text::{MAX_TEXT, printable};

/// Octets of a message that are read: a text of [`MAX_TEXT`], and a header.
pub const MAX_OCTETS: usize = MAX_TEXT + 2048;

/// The priority of a message without one: facility `kern`, severity `info`.
const KERNEL: u8 = 6;
/// Octets of a host's name (RFC 5424 section 6).
const HOST: usize = 255;
/// Octets of a program's name and of a process: RFC 5424 has 48 and 128, and senders of RFC 3164 have longer tags.
const NAME: usize = 128;
/// Octets of a message's type.
const MSGID: usize = 32;
/// Octets of structured data that are kept.
const STRUCTURED: usize = 1024;
/// A text of RFC 5424 that is UTF-8 begins with this mark.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// A message, printable in all its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// Facility × 8 + severity (RFC 5424 section 6.2.1), 0 to 191.
    pub priority: u8,
    /// The sender's own date, as it wrote it.
    pub time: Option<String>,
    /// The host, as the sender calls it.
    pub host: Option<String>,
    /// The program's name.
    pub app: Option<String>,
    /// The process, mostly by its number.
    pub procid: Option<String>,
    /// The type of message (RFC 5424).
    pub msgid: Option<String>,
    /// Structured data (RFC 5424 section 6.3), in brackets.
    pub structured: Option<String>,
    /// The text, without the header.
    pub text: String,
}

impl Message {
    /// Reads a datagram (RFC 5426).
    #[must_use]
    pub fn datagram(octets: &[u8]) -> Self {
        let read = octets.get(..MAX_OCTETS).unwrap_or(octets);
        Self::parse(Frame { octets: read, is_cut: read.len() < octets.len() })
    }

    /// Reads a message. Everything that follows no standard is text.
    #[must_use]
    pub fn parse(frame: Frame<'_>) -> Self {
        let octets = frame.octets.trim_ascii_end();
        let octets = octets.strip_suffix(b"\0").unwrap_or(octets).trim_ascii_end();
        let (priority, rest) = priority(octets).unwrap_or((KERNEL, octets));
        let has_header = rest.len() < octets.len();
        let (header, text) = match has_header {
            true => rfc5424(rest).unwrap_or_else(|| rfc3164(rest)),
            false => (Self::default(), rest),
        };
        Self { priority, text: printable(text, MAX_TEXT, frame.is_cut), ..header }
    }

    /// 0 (`emerg`) to 7 (`debug`).
    #[must_use]
    pub const fn severity(&self) -> u8 {
        self.priority & 7
    }
}

/// The priority, and the rest of the message.
fn priority(octets: &[u8]) -> Option<(u8, &[u8])> {
    let rest = octets.strip_prefix(b"<")?;
    let end = rest.iter().take(4).position(|&octet| octet == b'>')?;
    let (digits, rest) = (rest.get(..end)?, rest.get(end + 1..)?);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (value <= 191).then_some((value, rest))
}

/// The next word, and what follows the space behind it.
fn word(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = octets.iter().position(|&octet| octet == b' ').unwrap_or(octets.len());
    let (word, rest) = octets.split_at_checked(end)?;
    (!word.is_empty()).then(|| (word, rest.strip_prefix(b" ").unwrap_or(rest)))
}

fn name(octets: &[u8], most: usize) -> Option<String> {
    (octets != b"-" && !octets.is_empty()).then(|| printable(octets, most, false))
}

fn rfc5424(octets: &[u8]) -> Option<(Message, &[u8])> {
    let rest = octets.strip_prefix(b"1 ")?;
    let (time, rest) = word(rest)?;
    if time != b"-" && !is_rfc3339(time) {
        return None;
    }
    let (host, rest) = word(rest)?;
    let (app, rest) = word(rest)?;
    let (procid, rest) = word(rest)?;
    let (msgid, rest) = word(rest)?;
    let (structured, text) = structured(rest)?;
    let text = text.strip_prefix(b" ").unwrap_or(text);
    let header = Message {
        time: name(time, NAME),
        host: name(host, HOST),
        app: name(app, NAME),
        procid: name(procid, NAME),
        msgid: name(msgid, MSGID),
        structured: name(structured, STRUCTURED),
        ..Message::default()
    };
    Some((header, text.strip_prefix(BOM).unwrap_or(text)))
}

/// Structured data, and what follows. Brackets within quotes end nothing.
fn structured(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    if octets.first() == Some(&b'-') {
        return octets.split_at_checked(1).filter(|(_, rest)| rest.is_empty() || rest.starts_with(b" "));
    }
    let (mut end, mut is_quoted, mut is_escaped, mut is_open) = (0, false, false, false);
    for (place, &octet) in octets.iter().enumerate() {
        match octet {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' if is_open => is_quoted = !is_quoted,
            b']' if is_open && !is_quoted => (is_open, end) = (false, place + 1),
            b'[' if !is_open => is_open = true,
            _ if !is_open => break,
            _ => {}
        }
    }
    if end == 0 { None } else { octets.split_at_checked(end) }
}

fn rfc3164(octets: &[u8]) -> (Message, &[u8]) {
    let mut header = Message::default();
    let octets = octets.trim_ascii_start();
    let Some((time, mut rest)) = date(octets) else {
        // Without a date, only a tag can be told from text.
        let text = tag(octets, &mut header).unwrap_or(octets);
        return (header, text);
    };
    header.time = name(time, NAME);
    if let Some(text) = tag(rest, &mut header) {
        return (header, text);
    }
    if let Some((host, behind)) = word(rest).filter(|(host, _)| host.len() <= HOST) {
        header.host = name(host, HOST);
        rest = behind;
    }
    let text = tag(rest, &mut header).unwrap_or(rest);
    (header, text)
}

/// `Mmm dd hh:mm:ss`, or a date of RFC 3339, and what follows.
fn date(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    const LENGTH: usize = 15;
    if let Some((date, rest)) = octets.split_at_checked(LENGTH)
        && is_rfc3164_date(date)
    {
        return Some((date, rest.strip_prefix(b":").unwrap_or(rest).trim_ascii_start()));
    }
    word(octets).filter(|(date, _)| is_rfc3339(date))
}

fn is_rfc3164_date(date: &[u8]) -> bool {
    const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let is_month =
        date.get(..3).is_some_and(|month| MONTHS.chunks(3).any(|it| it.eq_ignore_ascii_case(month)));
    is_month && follows(date.get(3..).unwrap_or_default(), b" _0 00:00:00")
}

/// A date of RFC 3339, as far as it matters: to the second.
fn is_rfc3339(date: &[u8]) -> bool {
    date.get(..19).is_some_and(|date| follows(date, b"0000-00-00T00:00:00")) && date.len() <= 40
}

/// `0` stands for a digit, `_` for a digit or a space.
fn follows(octets: &[u8], pattern: &[u8]) -> bool {
    let fits = |(octet, pattern): (&u8, &u8)| match pattern {
        b'0' => octet.is_ascii_digit(),
        b'_' => octet.is_ascii_digit() || *octet == b' ',
        other => octet == other,
    };
    octets.len() == pattern.len() && octets.iter().zip(pattern).all(fits)
}

/// `program[process]: ` or `program: ` (RFC 3164 section 4.1.3): notes both, and answers the text.
fn tag<'a>(octets: &'a [u8], header: &mut Message) -> Option<&'a [u8]> {
    let end = octets.iter().take(NAME + 1).position(|octet| matches!(octet, b':' | b'[' | b' '))?;
    let (app, rest) = octets.split_at_checked(end)?;
    if app.is_empty() {
        return None;
    }
    let (procid, rest) = match rest.strip_prefix(b"[") {
        Some(rest) => {
            let end = rest.iter().take(NAME + 1).position(|octet| *octet == b']')?;
            (rest.get(..end)?, rest.get(end + 1..)?)
        }
        None => (&b""[..], rest),
    };
    let text = match rest.strip_prefix(b":") {
        Some(text) => text,
        // `program[process] text` has no colon with some senders.
        None if !procid.is_empty() && rest.starts_with(b" ") => rest,
        None => return None,
    };
    header.app = name(app, NAME);
    header.procid = name(procid, NAME);
    Some(text.strip_prefix(b" ").unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Priority, time, host, app, process and text; `-`: none.
    fn read(message: &str) -> String {
        let it = Message::datagram(message.as_bytes());
        let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let (time, host, app, procid) = (or(&it.time), or(&it.host), or(&it.app), or(&it.procid));
        format!("{}|{time}|{host}|{app}|{procid}|{}", it.priority, it.text)
    }

    #[test]
    fn headers_of_all_kinds_are_read_and_what_is_none_is_text() {
        for (message, expected) in [
            // RFC 3164 section 5.4
            (
                "<34>Oct 11 22:14:15 mymachine su: 'su root' failed on /dev/pts/8",
                "34|Oct 11 22:14:15|mymachine|su|-|'su root' failed on /dev/pts/8",
            ),
            ("<13>Feb  5 17:32:18 10.0.0.99 Use the BFG!", "13|Feb  5 17:32:18|10.0.0.99|-|-|Use the BFG!"),
            // logger(1), which names no host on a local socket
            ("<13>Nov 26 12:00:00 root: hello", "13|Nov 26 12:00:00|-|root|-|hello"),
            ("<30>Nov 26 12:00:00 web1 sshd[812]: Accepted", "30|Nov 26 12:00:00|web1|sshd|812|Accepted"),
            ("<30>sshd[812]: Accepted", "30|-|-|sshd|812|Accepted"),
            ("<6>kernel: eth0: link up", "6|-|-|kernel|-|eth0: link up"),
            // rsyslog's RSYSLOG_ForwardFormat
            (
                "<30>2026-11-26T12:00:00.123456+01:00 web1 cron[9]: job",
                "30|2026-11-26T12:00:00.123456+01:00|web1|cron|9|job",
            ),
            ("<13>no header at all", "13|-|-|-|-|no header at all"),
            ("<13>", "13|-|-|-|-|"),
            // RFC 5424 section 6.5
            (
                "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \u{feff}'su root' failed",
                "34|2003-10-11T22:14:15.003Z|mymachine.example.com|su|-|'su root' failed",
            ),
            (
                r#"<165>1 2003-10-11T22:14:15.003Z h evntslog 7 ID47 [a@1 b="]\"x"][c@2 d=""] An event"#,
                "165|2003-10-11T22:14:15.003Z|h|evntslog|7|An event",
            ),
            ("<14>1 - - - - - -", "14|-|-|-|-|"),
            // Not quite
            ("<34>1 yesterday h su - - - text", "34|-|-|-|-|1 yesterday h su - - - text"),
            (r#"<34>1 - h a - - [open x="]" text"#, r#"34|-|-|-|-|1 - h a - - [open x="]" text"#),
            // No priority
            ("[    1.5] Linux version 6.12", "6|-|-|-|-|[    1.5] Linux version 6.12"),
            ("<192>text", "6|-|-|-|-|<192>text"),
            ("<0x1>text", "6|-|-|-|-|<0x1>text"),
            ("<>text", "6|-|-|-|-|<>text"),
            ("", "6|-|-|-|-|"),
            // Ends of senders
            ("<13>a: b\r\n\0", "13|-|-|a|-|b"),
            ("<13>a: b\nc\0d", "13|-|-|a|-|b<U+000A>c<U+0000>d"),
        ] {
            assert_eq!(read(message), expected, "{message:?}");
        }
    }

    #[test]
    fn structured_data_and_the_type_are_kept() {
        let message = Message::datagram(br#"<165>1 - h a - ID47 [x@1 b="1"] text"#);
        assert_eq!(message.structured.as_deref(), Some(r#"[x@1 b="1"]"#));
        assert_eq!((message.msgid.as_deref(), message.severity()), (Some("ID47"), 5));
    }

    #[test]
    fn a_text_of_more_than_eight_kilobytes_is_cut_and_marked() {
        let whole = format!("<13>a: {}", "x".repeat(MAX_TEXT));
        let whole = Message::datagram(whole.as_bytes());
        assert!(whole.text.len() == MAX_TEXT && !whole.text.ends_with('…'));
        for length in [MAX_TEXT + 1, 60_000] {
            let long = Message::datagram(format!("<13>a: {}", "x".repeat(length)).as_bytes());
            assert!(long.text.len() <= MAX_TEXT && long.text.ends_with('…'), "{}", long.text.len());
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_and_bounded(octets: Vec<u8>, header in "(<[0-9]{0,4}>)?(1 )?") {
            let octets = [header.as_bytes(), &octets].concat();
            let message = Message::datagram(&octets);
            prop_assert!(message.priority <= 191 && message.text.len() <= MAX_TEXT);
        }
    }
}
