//! DHCP without sockets: a DHCPv4 server, a DHCPv4 client and their codec, and a DHCPv6 server, [`v6`].
//!
//! - [`ingress`] reads untrusted datagrams; [`egress`] writes them.
//! - [`Server`] decides who gets which address and what to boot (RFC 2131, 2132, 3011, 3046, 3396, 3397, 3442, 3527, 4578, 5107, 6842; PXE 2.1; UEFI
//!   HTTP boot). Its input is plain data, [`Config`]; its output is a list of [`Action`]s.
//! - [`frame`] builds frames to clients that have no address yet.
//! - [`Client`] gets an address, for simulated machines and for the agent.
//!
//! Time and randomness are arguments. A caller owns the sockets, the lease file and the clock:
//!
//! ```
//! use basalt_dhcp::{Action, Arrival, Config, Server, Subnet, Time, ingress};
//! # fn append_and_sync(_: &basalt_dhcp::Lease) -> std::io::Result<()> { Ok(()) }
//! # fn ask_by_arp(_: u32, _: std::net::Ipv4Addr) {}
//! # fn send(_: Arrival, _: std::net::SocketAddrV4, _: &[u8]) {}
//!
//! let mut config = Config::default();
//! config.subnets.push(Subnet::new("lab", "10.77.0.0/24".parse().unwrap()));
//! let mut server = Server::new(config).unwrap();
//! server.restore([/* the leases of the file, in order */]);
//!
//! # let datagram = [0u8; 300];
//! let via = Arrival { interface: 2, local: "10.77.0.2".parse().unwrap(), unicast: false };
//! match ingress::parse(&datagram) {
//!     Err(malformed) => { /* count it */ }
//!     Ok(packet) => {
//!         for action in server.handle(Time(1_700_000_000_000), via, &packet) {
//!             match action {
//!                 // Durable before the client hears of it; otherwise it hears nothing.
//!                 Action::Persist(lease) => if append_and_sync(&lease).is_err() { break },
//!                 Action::Send { via, to, bytes } => send(via, to.socket_addr(), &bytes),
//!                 Action::Probe { interface, address } => ask_by_arp(interface, address),
//!                 Action::Report(_event) => { /* log, count, tell the region */ }
//!             }
//!         }
//!     }
//! }
//! ```
//!
//! An offer to a client without an address goes to [`Destination::Hardware`]: the caller makes a neighbour entry for
//! `address` on the interface and sends to it, or broadcasts. The caller also calls:
//!
//! - [`Server::tick`] every few seconds;
//! - [`Server::heard`] and [`Server::conclude`], if it uses [`Server::set_probing`];
//! - [`Server::acknowledge`], when the region has stored a lease;
//! - [`Server::set_config`], when a new configuration arrives.
//!
//! Several racks on one link need different dynamic ranges; each of them answers every client. [`Server::learn`] gives
//! a rack the leases that the others granted.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod client;
pub mod detect;
pub mod egress;
pub mod frame;
pub mod ingress;
pub mod v6;

mod config;
mod elsewhere;
mod exchange;
mod holders;
mod infiniband;
mod lease;
mod mac;
mod network;
mod occupancy;
mod options;
mod probe;
mod proxy;
mod pxe;
mod relay;
mod server;
mod time;
mod told;

pub use client::Client;
pub use config::{
    AddressRange, Boot, BootMode, Config, ConfigError, Loaders, RawOption, Reservation, Route, Subnet,
};
pub use elsewhere::GRACE;
pub use infiniband::InfiniBand;
pub use lease::{Lease, LeaseState};
pub use mac::{BadMac, Mac};
pub use occupancy::Occupancy;
pub use proxy::BOOT_SERVER_PORT;
pub use pxe::{Architecture, BootClient, BootIdentity, Declared, Firmware, OtherArchitecture, Transport};
pub use server::{Action, Arrival, CLIENT_PORT, Destination, Event, Ignored, SERVER_PORT, Server};
pub use time::Time;
pub use told::{Grantor, Told};
