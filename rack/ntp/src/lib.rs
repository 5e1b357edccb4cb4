//! Time over the network for a rack's machines (RFC 5905): a responder, a monitor that compares the responder's clock
//! with NTP servers, and their codec. No socket and no clock: time, addresses and randomness are arguments.
//!
//! - [`packet`] decodes and encodes the header of 48 octets.
//! - [`Responder`] turns a client's request into its answer, or drops it.
//! - [`Monitor`] asks servers, measures the difference between this host's clock and theirs, and decides what the
//!   responder may claim.
//!
//! The monitor never sets a clock. The host's own NTP daemon does that; two programs would interfere with each other.
//!
//! | state | condition | clients are told |
//! | --- | --- | --- |
//! | synced | more than half of the answering servers agree, and the clock is less than 128 ms off their median | the best server's stratum + 1, and the error that was measured |
//! | adrift | no server is known, none answers, they disagree, or the clock is 128 ms to 1 s off | stratum 10 or more, and an error that grows |
//! | bad | the clock is more than 1 s off | not to use this clock: leap indicator 3, stratum 16 |
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod monitor;
pub mod packet;
pub mod responder;
pub mod time;

mod limit;
mod source;

pub use monitor::{Claim, Monitor, Report, State};
pub use responder::{Dropped, Reaction, Responder};
pub use source::{SourceReport, SourceState};
pub use time::{Now, Timestamp};

/// UDP port of servers.
pub const PORT: u16 = 123;
