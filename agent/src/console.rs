//! Messages of the agent: on the console for people, and in a log file whose content is sent to the rack.

use std::fs::OpenOptions;
use std::io::Write;

/// All messages since the machine started. `/run` survives the move into the squashfs.
pub const LOG_FILE: &str = "/run/basalt.log";

/// Writes one sentence to the console and the log.
pub fn say(message: &str) {
    let line = format!("basalt: {message}\n");
    // A failure of console or log must not stop a task.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(LOG_FILE) {
        let _ = file.write_all(format!("{:9.3} {message}\n", uptime()).as_bytes());
    }
}

/// Seconds since the kernel started; 0 if the kernel does not report it.
#[must_use]
pub fn uptime() -> f64 {
    std::fs::read_to_string("/proc/uptime")
        .ok()
        .and_then(|text| text.split_ascii_whitespace().next()?.parse().ok())
        .unwrap_or(0.0)
}

/// Writes a formatted sentence to the console and the log.
#[macro_export]
macro_rules! say {
    ($($part:tt)*) => { $crate::console::say(&format!($($part)*)) };
}
