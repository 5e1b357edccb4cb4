//! Syslog: datagrams, and streams in pieces.

use basalt_syslog::{Frame, Frames, MAX_OCTETS, MAX_TEXT, Message};

use crate::sequence::{messages, sequence};

/// Each message as a datagram, and all of them as the pieces of one stream.
pub fn syslog(data: &[u8]) {
    let mut frames = Frames::default();
    let read = |frame: Frame<'_>| {
        assert!(frame.octets.len() <= MAX_OCTETS);
        bounded(&Message::parse(frame));
    };
    for (_, octets) in messages(data) {
        bounded(&Message::datagram(octets));
        frames.push(octets, read);
    }
    frames.end(read);
}

fn bounded(message: &Message) {
    assert!(message.priority <= 191 && message.text.len() <= MAX_TEXT);
    let fields = [&message.time, &message.host, &message.app, &message.procid, &message.msgid];
    let texts = fields.into_iter().chain([&message.structured]).flatten().chain([&message.text]);
    for text in texts {
        assert!(text.chars().all(|c| c == '\t' || !c.is_control()), "{text:?}");
    }
}

pub(crate) fn seeds_syslog() -> Vec<Vec<u8>> {
    let old = b"<30>Nov 26 12:00:00 web1 sshd[812]: Accepted\n";
    let forwarded = b"<30>2026-11-26T12:00:00.123456+01:00 web1 cron[9]: job\n";
    let new = br#"<165>1 2003-10-11T22:14:15.003Z h evntslog 7 ID47 [a@1 b="]\"x"][c@2 d=""] An event"#;
    let bare = b"[    1.5] Linux version 6.12\x1b[1m\0\n";
    let counted = format!("{} <13>a: b", 8).into_bytes();
    vec![
        sequence([&old[..], &forwarded[..], &new[..], &bare[..]]),
        sequence([&counted[..], &counted[..3], &counted[3..]]),
        sequence([&b"<13>no end"[..]]),
    ]
}
