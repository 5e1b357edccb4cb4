//! IPMI 2.0 over LAN (RMCP+): the power and the boot device of machines.
//!
//! Two sans-IO cores implement the protocol: [`client::ClientCore`] and [`server::ServerCore`]. Time and randomness are
//! arguments, bytes go in and out, and no input from the network causes a panic. Around them are two thin tokio shells:
//! [`BmcClient`], which the rack uses, and [`BmcServer`], the BMC of simulated and emulated machines.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use basalt_bmc::{BmcClient, BmcConfig, BootDevice, Credentials, PowerVerb};
//! let credentials = Credentials::new("admin", "secret")?;
//! let bmc = BmcClient::new(BmcConfig::new("10.77.0.101:623".parse()?, credentials));
//! bmc.set_boot_device(BootDevice::Pxe, true, true).await?;
//! bmc.power(PowerVerb::On).await?;
//! # Ok(()) }
//! ```
//!
//! | module | content |
//! | --- | --- |
//! | [`suite`] | cipher suites as a table: 3 and 17 |
//! | `crypto` | RAKP authentication codes, session keys, sealing of packets |
//! | `packet` | RMCP and session headers (IPMI 2.0 §13.6) |
//! | `rakp` | Open Session and RAKP 1-4 payloads (§13.17-13.24) |
//! | [`message`] | IPMI LAN messages and completion codes (§13.8, §5.2) |
//! | [`command`] | the commands in use, with types (§20, §22, §28) |
//! | `window` | the window of new sequence numbers (§6.12.13) |
//! | [`client`], [`server`] | the cores |
//! | `answers` | the server's answer to each command |
//! | [`accounts`], `manage` | the server's users and LAN settings, and the commands that change them (§22, §23) |
//! | `inside` | the server as its own machine sees it, for QEMU's `ipmi-bmc-extern` |
//! | [`transport`], [`shell`] | the tokio shells |
//!
//! Never used: IPMI 1.5 sessions, cipher suites without integrity or confidentiality, anonymous logins.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod accounts;
mod answers;
pub mod bootstrap;
pub mod client;
pub mod command;
pub mod credentials;
mod crypto;
pub mod error;
pub mod faults;
mod inside;
mod manage;
pub mod message;
mod packet;
mod rakp;
pub mod random;
pub mod server;
pub mod shell;
pub mod suite;
pub mod transport;
mod window;
mod wire;

pub use accounts::{Accounts, Lan, Lockout, PasswordPolicy};
pub use bootstrap::Bootstrap;
pub use command::{BootDevice, BootOverride, DeviceId, PowerState, PowerVerb};
pub use credentials::{BmcKey, CredentialError, Credentials, Password, Privilege, Username};
pub use error::{BmcError, Failure};
pub use faults::{Fault, Faults};
pub use message::CompletionCode;
pub use server::{ServerConfig, User};
pub use shell::{BmcServer, ChassisBackend};
pub use suite::CipherSuite;
pub use transport::{BmcClient, BmcConfig, BmcSession, Timing};
