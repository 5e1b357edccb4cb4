//! DNS for racks and regions: zones that are answered from memory, and what a forwarder needs (RFC 1034, 1035, 2181, 2308, 4592, 6891).
//!
//! - [`Zone`] is one authoritative zone. [`Computed`] adds names that are made of addresses when they are asked.
//! - [`Zones`] are all zones of a server: the longest suffix answers.
//! - [`answer()`] reads a query and says what to do: send a reply, ask another server, or nothing.
//! - [`Forwarder`] takes the questions for other servers. It keeps answers, and asks once for many clients.
//! - [`Secondaries`] are the servers that may copy zones ([`Transfer`]), and are told of changes ([`Asked`]).
//! - [`Response`] is the answer of another server.
//! - [`document`] has the zones of the region's documents.
//!
//! No sockets and no clock: the caller has them. Records come as types of hickory-proto. They are kept as bytes of the wire, and answers
//! are written from those bytes (docs/decisions/086-dns-core.md).
//!
//! ```
//! use std::sync::Arc;
//! use basalt_dns::{Answer, Name, RData, Record, Soa, Transport, Zone, Zones, answer, rdata};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let origin = Name::from_ascii("example.com.")?;
//! let www = Record::from_rdata(Name::from_ascii("www.example.com.")?, 300, RData::A(rdata::A::new(192, 0, 2, 1)));
//! let zones = Zones::from_iter([Arc::new(Zone::new(Soa::new(origin, 1), vec![www])?)]);
//!
//! let header = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00";
//!
//! let query = [header, &b"\x03www\x07example\x03com\x00\x00\x01\x00\x01"[..]].concat();
//!
//! let Answer::Reply(reply) = answer(&zones, &query, Transport::Udp, false) else { panic!("the zone is ours") };
//! assert_eq!(reply[reply.len() - 4..], [192, 0, 2, 1]);
//! # Ok(()) }
//! ```
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod answer;
mod cache;
mod computed;
pub mod document;
mod forwarder;
mod name;
mod query;
mod question;
mod records;
mod reply;
mod response;
mod secondary;
mod transfer;
mod tsig;
mod zone;
mod zones;

pub use answer::{Answer, Transport, answer};
pub use computed::Computed;
pub use forwarder::{Counts, Forwarder, Generation, Limits, Next, Outcome, Upstream};
pub use hickory_proto::rr::{Name, RData, Record, RecordType, rdata};
pub use question::{Key, Question};
pub use response::{BadResponse, Response};
pub use secondary::{Asked, Secondaries, Secondary, Served, is_newer};
pub use transfer::{Messages, Transfer};
pub use tsig::TsigKey;
pub use zone::{BadZone, Origin, Reason, Soa, Zone};
pub use zones::Zones;
