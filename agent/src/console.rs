//! What the agent says: on the console for who watches, and in a file from which it is streamed to the rack.

use std::fs::OpenOptions;
use std::io::Write;

/// All that was said since the machine started; `/run` survives the move into the squashfs.
pub const LOG_FILE: &str = "/run/basalt.log";

/// Says one sentence.
pub fn say(message: &str) {
    let line = format!("basalt: {message}\n");
    // Neither console nor log may stop a task.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(LOG_FILE) {
        let _ = file.write_all(format!("{:9.3} {message}\n", uptime()).as_bytes());
    }
}

/// Seconds since the kernel started; 0 where it does not say.
#[must_use]
pub fn uptime() -> f64 {
    std::fs::read_to_string("/proc/uptime")
        .ok()
        .and_then(|text| text.split_ascii_whitespace().next()?.parse().ok())
        .unwrap_or(0.0)
}

/// Says a formatted sentence.
#[macro_export]
macro_rules! say {
    ($($part:tt)*) => { $crate::console::say(&format!($($part)*)) };
}
