//! Formats a stored line as an RFC 5424 message.
//!
//! | part | value |
//! | --- | --- |
//! | TIMESTAMP | when the rack received the line, because the clocks of machines are wrong when they boot |
//! | HOSTNAME | the machine's name; for an unknown sender, the host name in the line, or its address |
//! | APP-NAME, PROCID, MSGID | as in the line |
//! | STRUCTURED-DATA | as in the line; if it has none, `origin` with the sender's address (RFC 5424 §7.2.3) |
//! | MSG | the text in UTF-8, without a byte order mark (MSG-ANY of §6): receivers keep the mark as part of the text |

use basalt_api::values::Timestamp;

use crate::logs::line::Stored;

/// The largest number of characters in each header field (RFC 5424 §6).
const HOST: usize = 255;
const APP: usize = 48;
const PROCID: usize = 128;
const MSGID: usize = 32;

/// Formats a line. `machine` is the name of the machine that sent it.
pub(super) fn message(line: &Stored, machine: Option<&str>) -> Vec<u8> {
    let at = Timestamp::from_millisecond(line.at).unwrap_or(Timestamp::UNIX_EPOCH);
    let said = Some(line.host.as_str()).filter(|host| !host.is_empty());
    let host = machine.or(said).unwrap_or(&line.address);
    let header = format!(
        "<{priority}>1 {at:.3} {host} {app} {procid} {msgid} {structured}",
        priority = line.priority.min(191),
        host = word(host, HOST),
        app = word(&line.app, APP),
        procid = word(&line.procid, PROCID),
        msgid = word(&line.msgid, MSGID),
        structured = structured(line),
    );
    let mut message = header.into_bytes();
    if !line.text.is_empty() {
        message.push(b' ');
        message.extend_from_slice(line.text.as_bytes());
    }
    message
}

/// Appends a frame with octet counting (RFC 6587 §3.4.1, RFC 5425 §4.3).
pub(super) fn counted(message: &[u8], frames: &mut Vec<u8>) {
    frames.extend_from_slice(message.len().to_string().as_bytes());
    frames.push(b' ');
    frames.extend_from_slice(message);
}

/// A header field: printable US-ASCII without spaces. Other characters become `_`, and an empty field becomes `-`.
fn word(text: &str, most: usize) -> String {
    let word: String = text.chars().take(most).map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect();
    if word.is_empty() { "-".to_owned() } else { word }
}

/// The line's structured data. The rack has parsed them as RFC 5424 elements, so they begin and end with brackets.
fn structured(line: &Stored) -> String {
    match (line.structured.as_str(), line.address.as_str()) {
        (own, _) if own.starts_with('[') && own.ends_with(']') => own.to_owned(),
        (_, "") => "-".to_owned(),
        (_, address) => format!("[origin ip=\"{}\"]", word(address, HOST).replace(['"', '\\', ']'], "_")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_proto::rack_v1::LogLine;

    fn line() -> LogLine {
        LogLine {
            seq: 1,
            at_unix_ms: 1_704_096_000_123,
            priority: 38,
            address: "10.77.0.9".into(),
            host: "localhost".into(),
            app: "sshd".into(),
            procid: "77".into(),
            text: "hello".into(),
            ..LogLine::default()
        }
    }

    fn text(line: LogLine, machine: Option<&str>) -> String {
        String::from_utf8(message(&Stored::new("spool", line), machine)).unwrap()
    }

    #[test]
    fn a_line_bears_the_machines_name_and_the_time_of_the_rack() {
        let told = "<38>1 2024-01-01T08:00:00.123Z web1 sshd 77 - [origin ip=\"10.77.0.9\"] hello";
        assert_eq!(text(line(), Some("web1")), told);
        assert!(text(line(), None).contains("Z localhost sshd"));
        assert!(text(LogLine { host: String::new(), ..line() }, None).contains("Z 10.77.0.9 sshd"));
        let bare = LogLine { at_unix_ms: 0, priority: 6, text: "oops".into(), ..LogLine::default() };
        assert_eq!(text(bare, None), "<6>1 1970-01-01T00:00:00.000Z - - - - - oops");
    }

    #[test]
    fn a_sender_cannot_break_the_header_or_the_frame() {
        let own = LogLine { structured: "[a@1 b=\"c\"]".into(), ..line() };
        assert!(text(own, None).contains(" 77 - [a@1 b=\"c\"] hello"));
        let long = LogLine { app: "a b\u{e9}".repeat(50), host: "a b".into(), ..line() };
        let long = text(long, None);
        assert!(long.contains(" a_b a_b_a_b_"), "{long}");
        assert_eq!(long.split(' ').nth(3).map(str::len), Some(48));
        let mut frames = Vec::new();
        counted("é".as_bytes(), &mut frames);
        assert_eq!(frames, "2 é".as_bytes());
    }
}
