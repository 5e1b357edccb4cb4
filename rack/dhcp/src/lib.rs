//! DHCP without sockets: of DHCPv4 a server, a client, and the codec between them and the network; of DHCPv6 a server, [`v6`].
//!
//! - [`ingress`] reads datagrams that nobody vouches for; [`egress`] writes them.
//! - [`Server`] decides who gets which address and what to boot (RFC 2131, 2132, 3011, 3046, 3396, 3397, 3442, 3527, 4578, 5107, 6842; PXE 2.1; UEFI
//!   HTTP boot). Its input is plain data, [`Config`]; its output is a list of [`Action`]s.
//! - [`frame`] addresses clients that have no address yet.
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
//! An offer to a client without an address goes to [`Destination::Hardware`]: the caller sends it to `address` after a
//! neighbour entry for it was made on the interface, or broadcasts it. Every few seconds the caller calls
//! [`Server::tick`]; with [`Server::set_probing`], [`Server::heard`] and [`Server::conclude`]; when the region has taken note of a lease, [`Server::acknowledge`]; when a concern arrives,
//! [`Server::set_config`].
//!
//! Several racks on one link need different dynamic ranges. What each granted, the others are told with [`Server::learn`]. All offer
//! at once.
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
