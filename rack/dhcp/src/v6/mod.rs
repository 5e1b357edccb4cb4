//! DHCPv6 without sockets (RFC 8415): a server and its codec.
//!
//! | module | what |
//! | --- | --- |
//! | [`ingress`] | reads untrusted datagrams, out of up to eight relay messages |
//! | `server` | configuration and leases; one function for each event |
//! | `exchange` | one message and its answer |
//! | `reply` | writes the answer, and wraps it for the relays |
//! | `boot` | boot options (RFC 5970, UEFI HTTP boot, iPXE) |
//! | `lease` | which client has which address until when |
//! | `identity` | a client's DUID, and its hardware address if it is known (RFC 6939) |
//! | `network` | the subnets that a client may get an address from |
//! | `config` | the configuration of a server |
//!
//! It works like the DHCPv4 server: the caller carries out [`Action`]s in order, a lease is durable before its client
//! receives it, and time is an argument. Differences:
//!
//! - An ADVERTISE reserves no address, so a client that asks under many names costs no memory. The REPLY says which
//!   address the client got (RFC 8415 §18.2.10.1).
//! - Addresses are not probed: clients do that themselves and decline (§18.2.10.1).
//! - Temporary addresses and prefixes are not given: IA_TA and IA_PD get NoAddrsAvail and NoPrefixAvail.
//! - The Server Unicast option is not sent.

pub mod ingress;

mod boot;
mod config;
mod exchange;
mod identity;
mod lease;
mod network;
mod reply;
mod server;

pub use boot::client as boot_client;
pub use config::{AddressRange, Client, Config, ConfigError, Reservation, Subnet};
pub use identity::{BadDuid, Duid, heard as hardware_address, infiniband};
pub use lease::{Lease, MAX_LEASES};
pub use server::{Action, Arrival, Destination, Event, Ignored, Refusal, Server, Told};

/// The port that servers and relays listen on.
pub const SERVER_PORT: u16 = 547;
/// The port that clients listen on.
pub const CLIENT_PORT: u16 = 546;
