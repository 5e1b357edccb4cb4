//! DHCPv6 client (RFC 8415): one address for the boot interface, and the DNS servers and search domains beside it.
//!
//! | module | what |
//! | --- | --- |
//! | `message` | writes what is sent, and judges what came: nothing of the network is believed before |
//! | `exchange` | when a message is sent again (§15) |
//! | [`client`] | from SOLICIT to a lease, and the life of the lease, without sockets or clock |
//! | [`port`] | the client on an interface: its socket, its time, and the address on the interface |
//!
//! It asks for one identity association of addresses (IA_NA) and takes one address of it. Temporary addresses, prefixes, Rapid Commit,
//! Reconfigure and authentication are not spoken.

pub mod client;
mod exchange;
mod message;
pub mod port;

pub use client::{Action, Client, Event, Lease};
pub use message::Identity;
