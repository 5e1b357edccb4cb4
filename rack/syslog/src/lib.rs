//! Syslog, the receiving side: messages of RFC 3164 and RFC 5424 and the kernel's bare lines (netconsole), streams of them (RFC 6587), and a
//! limit for each sender. No socket and no clock: octets, addresses and time are arguments.
//!
//! - [`Message::parse`] reads a message. It never fails: a message that follows no standard is all text.
//! - [`Frames`] takes a stream apart.
//! - [`Limiter`] says which datagrams of a sender are one too many, and counts them.
//!
//! | limit | is |
//! | --- | --- |
//! | octets of a message that are read | [`MAX_OCTETS`] |
//! | octets of its text that are kept | [`MAX_TEXT`]; a text that was cut ends with `…` |
//! | messages of one sender | [`limit::BURST`] at once, one more each [`limit::INTERVAL`] |
//! | senders that are known at once | [`limit::SENDERS`] |
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod frames;
pub mod limit;
mod message;
mod text;

pub use frames::{Frame, Frames};
pub use limit::Limiter;
pub use message::{MAX_OCTETS, Message};
pub use text::{MAX_TEXT, printable};

/// UDP and TCP port of syslog (RFC 5426; TCP by custom).
pub const PORT: u16 = 514;
