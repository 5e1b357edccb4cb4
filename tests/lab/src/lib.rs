//! Emulated machines with BMCs, in a network namespace of their own, for end-to-end tests and the demo.
//!
//! A [`Lab`] is a namespace with a bridge `br0` (10.77.0.1/24). Each [`Machine`] has a tap on that bridge, an empty disk,
//! and a BMC at an address of its own. Only the BMC's program starts QEMU, on a command by IPMI: without `-kernel`,
//! without `-cdrom`, without a boot index. So a machine can boot only over the network or from its own disk.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use basalt_bmc::{BootDevice, PowerVerb};
//! use basalt_lab::{Firmware, Lab, MachineConfig};
//! use std::time::Duration;
//!
//! let mut lab = Lab::create("example")?;
//! let _rack = lab.spawn(lab.command("basalt-rack")?)?;
//! let machine = lab.add_machine(MachineConfig::numbered(1, Firmware::Uefi)).await?;
//! machine.set_boot_device(BootDevice::Pxe, true).await?;
//! machine.power(PowerVerb::On).await?;
//! lab.wait_for_serial(&machine, "login:", Duration::from_secs(120)).await?;
//! # Ok(()) }
//! ```
//!
//! Nothing outlives its owner. Every process is started through `basalt-lab supervise`, which ends it when the process
//! that made the lab is gone. A lab's name contains its owner's pid and start time, so that the next start of any lab can
//! remove the lab of a killed owner ([`sweep`]). The host's own network is never touched.
//!
//! | module | what |
//! | --- | --- |
//! | `name`, `process` | a lab's owner; start and end of processes |
//! | `network` | namespace, bridge, taps, made with `ip` |
//! | [`lab`], [`machine`] | the library's main types |
//! | [`host`] | other hosts in a lab's network |
//! | `qemu`, `qmp`, `vars` | a machine's command line, its monitor, its UEFI variables |
//! | [`chassis`], [`program`] | the BMC program |
//! | [`site`], [`images`], [`terraform`] | a region, a rack and Terraform on top of the machines |
//! | [`demo`], [`bench`] | `make demo`, `make bench-boot_to_ready` |

pub mod bench;
pub mod chassis;
pub mod demo;
pub mod error;
pub mod host;
pub mod images;
pub mod lab;
pub mod machine;
mod name;
mod network;
pub mod process;
pub mod program;
mod qemu;
mod qmp;
pub mod site;
pub mod terraform;
mod vars;

pub use error::LabError;
pub use host::Host;
pub use lab::{Lab, list, sweep, take_down};
pub use machine::{BootOrder, Firmware, Mac, Machine, MachineConfig};
pub use network::BRIDGE;
pub use process::LabProcess;
