//! TFTP for network boot: a read-only server, a client, and the codec under both (RFC 1350, 2347, 2348, 2349, 7440).
//!
//! - [`packet`] reads and writes datagrams.
//! - [`request`] turns a first datagram into a file to send, or the ERROR to answer with.
//! - [`Transfer`] sends one file: events in, datagrams out, no socket and no clock.
//! - [`Client`] fetches one, for simulated machines and tests.
//! - [`Admission`] bounds how many transfers run.
//! - [`server`] is the shell with the sockets:
//!
//! ```no_run
//! use basalt_tftp::server::{self, FileSource, OpenError, Settings};
//! use bytes::Bytes;
//!
//! struct Loaders;
//!
//! impl FileSource for Loaders {
//!     async fn open(&self, path: &str, _client: std::net::SocketAddr) -> Result<Bytes, OpenError> {
//!         if path == "snponly.efi" { Ok(Bytes::from_static(b"...")) } else { Err(OpenError::NotFound) }
//!     }
//! }
//!
//! # async fn run(stop: tokio::sync::oneshot::Receiver<()>) -> std::io::Result<()> {
//! let socket = tokio::net::UdpSocket::bind("10.77.0.2:69").await?;
//! let stop = async { let _ = stop.await; };
//! server::serve(vec![socket], Loaders, Settings::default(), |event| { let _ = event; }, stop).await?;
//! # Ok(()) }
//! ```
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod client;
pub mod packet;
pub mod request;
pub mod server;
pub mod transfer;

mod limits;
mod negotiation;
mod rto;

pub use client::Client;
pub use limits::{Admission, Busy, Limits};
pub use negotiation::{Caps, Negotiated};
pub use transfer::{Outcome, Transfer};
