//! DHCPv6 client (RFC 8415): one address for the boot interface, with DNS servers and search domains.
//!
//! | module | content |
//! | --- | --- |
//! | `message` | writes messages, and checks received ones before anything uses them |
//! | `exchange` | times of retransmissions (§15) |
//! | [`client`] | from SOLICIT to a lease, and the life of the lease, without sockets or clock |
//! | [`port`] | the client on an interface: its socket, its clock, and the address on the interface |
//!
//! The client requests one identity association of addresses (IA_NA) and uses one address of it. Temporary addresses, prefixes, Rapid
//! Commit, Reconfigure and authentication are not supported.

pub mod client;
mod exchange;
mod message;
pub mod port;

pub use client::{Action, Client, Event, Lease};
pub use message::Identity;
