//! basalt-agent: the program that runs on a machine in its ephemeral environment.
//!
//! One static binary in three places:
//!
//! 1. `/init` of the initrd ([`initrd`]): loads network drivers, configures the boot interface, fetches the squashfs with the hash on the
//!    kernel command line, and moves into it.
//! 2. First process of that squashfs ([`supervise`]): starts the worker, reaps orphans, and reboots the machine when the worker dies. Every
//!    failure ends in that reboot.
//! 3. The worker ([`work`]): claims, runs its one task ([`inventory`], [`install`], [`erase`]), sends progress and log, delivers the
//!    result, and powers off or reboots. It does not need 1 and 2: a stock live image can start it alone.
//!
//! [`disk`] decides if a disk may be written. That decision is a pure function, tested against ordinary files. The time limits of all waits
//! are in [`deadlines`].

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod blob;
pub mod bmc;
pub mod cmdline;
pub mod console;
pub mod deadlines;
pub mod dhcp6;
pub mod dhcp_event;
pub mod disk;
pub mod efi;
pub mod erase;
pub mod failure;
pub mod http;
pub mod initrd;
pub mod install;
pub mod inventory;
pub mod ipv6;
pub mod lease;
pub mod modules;
pub mod neighbours;
pub mod network;
pub mod proxy;
pub mod rack;
pub mod report;
pub mod resolv;
pub mod restarts;
pub mod results;
pub mod root;
pub mod runs;
pub mod script;
pub mod smbios;
pub mod storage;
pub mod supervise;
pub mod task_scripts;
pub mod test;
pub mod tls;
pub mod tool;
pub mod work;
