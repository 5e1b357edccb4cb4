//! A log line in the files, as JSON, so that people can read a file without a running region.

use std::io;

use basalt_api::values::{Timestamp, Uid, printable_lines};
use basalt_api::wire::{LogLine, priority_names};
use basalt_proto::rack_v1 as wire;
use serde::{Deserialize, Serialize};

/// The largest number of characters in a text. A rack sends at most 8 KiB.
const TEXT: usize = 16 << 10;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    /// The spool to which the number `seq` belongs.
    pub(super) spool: String,
    pub(super) seq: u64,
    /// Milliseconds since 1970.
    pub(super) at: i64,
    /// The sender; only in the journal. Each other file has the lines of one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) machine: Option<Uid>,
    pub(super) priority: u8,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) address: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    time: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) host: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) app: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) procid: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) msgid: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) structured: String,
    pub(super) text: String,
}

impl Stored {
    /// Converts a line from a rack. Control characters are escaped, because the line is shown on people's terminals.
    pub(super) fn new(spool: &str, line: wire::LogLine) -> Self {
        Self {
            spool: spool.to_owned(),
            seq: line.seq,
            at: line.at_unix_ms,
            machine: None,
            priority: u8::try_from(line.priority).unwrap_or(13),
            address: clean(&line.address),
            time: clean(&line.time),
            host: clean(&line.host),
            app: clean(&line.app),
            procid: clean(&line.procid),
            msgid: clean(&line.msgid),
            structured: clean(&line.structured),
            text: clean(&line.text),
        }
    }

    /// Appends the line to the lines of a file.
    pub(super) fn append_to(&self, lines: &mut Vec<u8>) -> io::Result<()> {
        serde_json::to_writer(&mut *lines, self)?;
        lines.push(b'\n');
        Ok(())
    }

    /// True if the text, the program or the host contains `text`.
    pub(super) fn has(&self, text: &str) -> bool {
        [&self.text, &self.app, &self.host].into_iter().any(|it| it.contains(text))
    }

    /// The approximate number of bytes of the line in an answer.
    pub(super) fn size(&self) -> usize {
        200 + self.text.len() + self.structured.len()
    }

    /// The line as the API returns it.
    pub(super) fn told(self) -> LogLine {
        let (facility, severity) = priority_names(self.priority);
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        LogLine {
            at: Timestamp::from_millisecond(self.at).unwrap_or(Timestamp::UNIX_EPOCH),
            facility: facility.to_owned(),
            severity: severity.to_owned(),
            time: some(self.time),
            host: some(self.host),
            app: some(self.app),
            procid: some(self.procid),
            msgid: some(self.msgid),
            structured: some(self.structured),
            address: some(self.address),
            text: self.text,
        }
    }
}

fn clean(text: &str) -> String {
    let text: String = text.chars().take(TEXT).map(|c| if c == '\n' { ' ' } else { c }).collect();
    printable_lines(&text).into_owned()
}
