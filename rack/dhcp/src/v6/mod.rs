//! DHCPv6 without sockets (RFC 8415): a server, and the codec between it and the network.
//!
//! | module | what |
//! | --- | --- |
//! | [`ingress`] | reads datagrams that nobody vouches for, out of up to eight relays |
//! | `server` | configuration and leases; one entry for every event |
//! | `exchange` | one message and its answer |
//! | `reply` | writes the answer, and wraps it for the relays |
//! | `boot` | what a boot client is told (RFC 5970, UEFI HTTP boot, iPXE) |
//! | `lease` | who has which address until when |
//! | `identity` | who a client is: its DUID, and its hardware address where it can be known (RFC 6939) |
//! | `network` | which subnets a client may have an address of |
//! | `config` | what a server is told |
//!
//! It works as the DHCPv4 server beside it does: [`Action`]s are carried out in order, a lease is durable before its client hears
//! of it, time is an argument. There is no offer: an ADVERTISE holds nothing, so that whoever asks in many names costs no memory, and the
//! REPLY says which address it became (RFC 8415 §18.2.10.1). Addresses are not probed: a client does so itself, and declines (§18.2.10.1).
//! Temporary addresses and prefixes are not given (IA_TA and IA_PD are answered with NoAddrsAvail and NoPrefixAvail), nor is the
//! Server Unicast option.

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
