//! Time over the network for machines of a rack (RFC 5905): a responder, a monitor of the servers that the responder's clock is compared with, and the
//! codec under both. No socket and no clock: time, addresses and randomness are arguments.
//!
//! - [`packet`] reads and writes the header of 48 octets.
//! - [`Responder`] turns a client's request into the answer to it, or into silence.
//! - [`Monitor`] asks servers, measures how far this host's clock is from theirs, and says what the responder may claim.
//!
//! The monitor never sets a clock. A host has a daemon of its own for that, and two of them fight.
//!
//! | state | it is so when | clients are told |
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
