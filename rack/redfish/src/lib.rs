//! A Redfish client (DMTF DSP0266) for the power and the boot device of machines.
//!
//! [`ClientCore`] is the protocol without I/O: answers go in, requests come out, and no answer of a BMC causes a panic.
//! Around it is a thin tokio shell, [`Session`], over HTTPS only.
//!
#![cfg_attr(feature = "session", doc = "```no_run")]
#![cfg_attr(not(feature = "session"), doc = "```ignore")]
//! # async fn example(tls: std::sync::Arc<rustls::ClientConfig>) -> Result<(), Box<dyn std::error::Error>> {
//! use basalt_redfish::{Account, Boot, Config, Device, Reset, Session};
//! let account = Account::new("admin", "secret");
//! let mut bmc = Session::open(Config::new("10.77.0.101", 443, account, tls)).await?;
//! bmc.boot_once(Boot { device: Device::Network, uefi: true }).await?;
//! bmc.reset(Reset::On).await?;
//! # Ok(()) }
//! ```
//!
//! | module | content |
//! | --- | --- |
//! | [`core`] | the requests in their order: service root, systems, the system, the operation |
//! | [`service`] | the service as its own machine reaches it: one request after the other, by a [`service::Exchange`] |
//! | [`accounts`] | an account by AccountService |
//! | [`manager`] | the BMC itself: firmware, address in the network, credential bootstrapping |
//! | `resource` | the properties that are read from resources (service root, ComputerSystem, ActionInfo) and errors |
//! | `choice` | tables for the choice of the ResetType and of the boot override among those that a BMC allows |
//! | `reference` | references in a BMC's answers: only paths on the BMC itself are accepted |
//! | [`session`] | the tokio shell |
//! | [`connection`] | one connection to a web server, which drivers for other protocols use as well |
//!
//! A session only uses HTTPS, and only connects to the configured host. It does not log in to Redfish sessions, for the
//! reasons in docs/decisions/063-redfish.md.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod accounts;
mod choice;
#[cfg(feature = "session")]
pub mod connection;
pub mod core;
pub mod error;
pub mod header;
pub mod manager;
mod reference;
mod resource;
pub mod service;
#[cfg(feature = "session")]
pub mod session;

pub use crate::core::{Answer, Boot, ClientCore, Device, Method, Operation, Power, Request, Reset, Step};
pub use error::{Failure, RedfishError, told};
#[cfg(feature = "session")]
pub use session::{Account, Config, Session, Timing};
