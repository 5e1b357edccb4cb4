//! Redfish (DMTF DSP0266) as a rack needs it: to power machines, and to choose what they boot.
//!
//! [`ClientCore`] is the protocol without I/O: answers go in, requests come out, and nothing panics on what a BMC says. Around it
//! stands a thin tokio shell, [`Session`], over HTTPS alone.
//!
//! ```no_run
//! # async fn example(tls: std::sync::Arc<rustls::ClientConfig>) -> Result<(), Box<dyn std::error::Error>> {
//! use basalt_redfish::{Account, Boot, Config, Device, Reset, Session};
//! let account = Account::new("admin", "secret");
//! let mut bmc = Session::open(Config::new("10.77.0.101", 443, account, tls)).await?;
//! bmc.boot_once(Boot { device: Device::Network, uefi: true }).await?;
//! bmc.reset(Reset::On).await?;
//! # Ok(()) }
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`core`] | which request follows which answer: service root, systems, the system, what is done to it |
//! | `resource` | what is read of resources (service root, ComputerSystem, ActionInfo) and of errors |
//! | `choice` | tables: which ResetType and which boot override, of those that a BMC allows |
//! | `reference` | what BMCs refer to, on themselves alone |
//! | [`session`] | the tokio shell |
//! | [`connection`] | one connection to a web server, which a driver without Redfish can use as well |
//!
//! A session speaks HTTPS alone, and to the named host alone. It does not log in to Redfish sessions: docs/decisions/063-redfish.md says why.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod choice;
pub mod connection;
pub mod core;
pub mod error;
mod reference;
mod resource;
pub mod session;

pub use crate::core::{Answer, Boot, ClientCore, Device, Method, Operation, Power, Request, Reset, Step};
pub use error::{Failure, RedfishError, told};
pub use session::{Account, Config, Session, Timing};
