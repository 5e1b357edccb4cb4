//! Simulated machines. Firmware, agent and installed system use the same sans-IO cores as the products, so that a whole
//! deployment takes about a second.
//!
//! Nothing is mocked between a machine and its servers. Each power cycle of a [`SimMachine`] runs on a thread in a
//! network namespace of its own, with one cable to the bridge of a [`basalt_lab::Lab`]. DHCP, TFTP, HTTP, TLS and IPMI
//! use a real network, with the machine's own MAC and address. A power cut removes the cable first.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use basalt_lab::Lab;
//! use basalt_sim::{Event, Fault, Firmware, MachineOptions, SimMachine, Stage};
//! use std::time::Duration;
//!
//! let lab = Lab::create("example")?;
//! let machine = SimMachine::start(&lab, MachineOptions::numbered(1, Firmware::Uefi))?;
//! machine.faults().times(Fault::DiesAt(Stage::Unpack), 1);
//! // … something powers it on by IPMI …
//! machine.wait_for(|event| *event == Event::Reported { level: "cloud_init".into() }, Duration::from_secs(10)).await?;
//! assert_eq!(machine.count(|event| matches!(event, Event::Installed { .. })), 1);
//! # Ok(()) }
//! ```
//!
//! | module | is |
//! | --- | --- |
//! | [`machine`] | the handle for tests |
//! | [`options`], [`fault`], [`event`] | the parts of a machine, its faults, its events |
//! | `chassis`, `life` | power, and the thread of a power cycle |
//! | `cable` | namespace, veth, address |
//! | `hardware` | the `/sys`, `/proc` and disk that the agent's own code reads and writes |
//! | `firmware`, [`script`] | PXE ROM, iPXE, boot order |
//! | `ephemeral`, `task` | the ephemeral environment: the agent's library, without its tools |
//! | `installed` | an installed system, booted from its disk |
//! | `dhcp`, `tftp`, `web` | sockets around the client cores |
//! | `syslog` | log lines of an installed system |
//! | [`gateway`] | a web service that switches machines, beside their BMCs |
//!
//! Not simulated: renewals of leases, except on request; work of an installed system beside its reports; Secure Boot;
//! UEFI HTTP boot.

mod cable;
mod chassis;
mod dhcp;
mod ephemeral;
pub mod event;
pub mod fault;
mod firmware;
pub mod gateway;
mod hardware;
mod installed;
mod life;
pub mod machine;
pub mod options;
pub mod script;
mod syslog;
mod task;
mod tftp;
mod web;

pub use event::{Entry, Event, ScriptKind, Speaker};
pub use fault::{Fault, Faults, Stage};
pub use gateway::Gateway;
pub use machine::{SimError, SimMachine};
pub use options::{BootOrder, Firmware, MachineOptions};
