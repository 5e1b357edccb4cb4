//! Logs of machines: answer to `GET /api/v1/machines/{name}/logs`.
//!
//! With `follow=true` the same lines are sent as server-sent events, and then new ones. Event `line` has a [`LogLine`]. Event `ping` means
//! that there is nothing new. Event `cut` is the last. The `id` of an event is a position, from which a client can resume
//! (`Last-Event-ID`).

use crate::values::Timestamp;
use basalt_api_derive::Shape;
use serde::{Deserialize, Serialize};

/// Lines of a machine's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct Logs {
    /// The requested lines, in the order of their arrival.
    pub lines: Vec<LogLine>,
    /// True if there are earlier lines. Request them with `until` of the first line.
    #[serde(default)]
    pub more: bool,
}

/// A line, printable in all its parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct LogLine {
    /// Time of arrival at the rack, by the rack's clock.
    pub at: Timestamp,
    /// `kern`, `user`, `daemon`, … (RFC 5424 section 6.2.1).
    pub facility: String,
    /// `emerg` to `debug`.
    pub severity: String,
    /// The sender's own date, as it wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The name that the sender gives itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The program. `basalt-agent`: the agent and its scripts; `basalt-rack`: a note about missing lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// The process, mostly by its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub procid: Option<String>,
    /// The type of message (RFC 5424).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub msgid: Option<String>,
    /// Structured data (RFC 5424 section 6.3), in brackets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<String>,
    /// IP address of the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The text. A text that was cut ends with `…`.
    pub text: String,
}

/// Names of facilities, by number.
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
    "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6",
    "local7",
];

/// Names of severities, by number.
const SEVERITIES: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// The names of a priority's facility and severity (RFC 5424 section 6.2.1).
#[must_use]
pub fn priority_names(priority: u8) -> (&'static str, &'static str) {
    let facility = FACILITIES.get(usize::from(priority / 8)).copied().unwrap_or("user");
    (facility, SEVERITIES.get(usize::from(priority % 8)).copied().unwrap_or("notice"))
}
