//! The boot interface: found by its address, brought up, configured by DHCP.

use std::process::{Command, Stdio};

use thiserror::Error;

use crate::root::Root;
use crate::tool::{self, ToolError};
use crate::{deadlines, say};

/// Why there is no network.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// No interface has the address.
    #[error(
        "no interface has the address {mac} after {:?}; there are: {found}. Is its driver in the image?",
        deadlines::INTERFACE
    )]
    NoInterface {
        /// `BOOTIF`, or `any`.
        mac: String,
        /// Names and addresses of those that are there.
        found: String,
    },
    /// It does not come up.
    #[error("{interface} cannot be brought up: {source}")]
    Up {
        /// Kernel name.
        interface: String,
        /// Why not.
        source: ToolError,
    },
    /// No lease.
    #[error("no DHCP server gave {interface} an address within {:?}: {source}", deadlines::LEASE)]
    NoLease {
        /// Kernel name.
        interface: String,
        /// What udhcpc said.
        source: ToolError,
    },
}

/// The physical interfaces: those with a device behind them.
#[must_use]
pub fn physical(root: &Root) -> Vec<String> {
    let mut names = root.names("sys/class/net");
    names.retain(|name| root.exists(format!("sys/class/net/{name}/device")));
    names
}

/// The address of an interface, lower-case with colons.
#[must_use]
pub fn mac(root: &Root, interface: &str) -> Option<String> {
    Some(root.text(format!("sys/class/net/{interface}/address"))?.to_ascii_lowercase())
}

/// The interface with this address, or the first physical one that has a carrier where no address is known.
#[must_use]
pub fn find(root: &Root, boot_mac: Option<&str>) -> Option<String> {
    let names = physical(root);
    match boot_mac {
        Some(wanted) => names.into_iter().find(|name| mac(root, name).as_deref() == Some(wanted)),
        None => names.into_iter().find(|name| has_carrier(root, name)),
    }
}

/// Whether an interface sees its peer. False also while it is down.
#[must_use]
pub fn has_carrier(root: &Root, interface: &str) -> bool {
    root.text(format!("sys/class/net/{interface}/carrier")).as_deref() == Some("1")
}

/// Brings an interface up.
///
/// # Errors
/// [`NetworkError::Up`].
pub fn up(interface: &str) -> Result<(), NetworkError> {
    let result = tool::run("busybox", &["ip", "link", "set", interface, "up"]);
    result.map(drop).map_err(|source| NetworkError::Up { interface: interface.to_owned(), source })
}

/// Names and addresses, for a message.
#[must_use]
pub fn describe(root: &Root) -> String {
    let all: Vec<String> =
        physical(root).iter().map(|name| format!("{name} {}", mac(root, name).unwrap_or_default())).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// udhcpc's arguments in common: no client identifier, since the client is its hardware address everywhere in Basalt.
const UDHCPC: [&str; 4] = ["udhcpc", "-C", "-s", "/bin/dhcp-event"];

/// Gets a lease and applies it.
///
/// # Errors
/// [`NetworkError::NoLease`].
pub fn lease(interface: &str) -> Result<(), NetworkError> {
    let mut args = UDHCPC.to_vec();
    // Quits with a lease; a try a second, since a rack of rank k waits k x 0.4 s before it offers.
    args.extend(["-f", "-q", "-t", "60", "-T", "1", "-A", "1", "-n", "-i", interface]);
    tool::run_with("busybox", &args, b"", deadlines::LEASE)
        .map(drop)
        .map_err(|source| NetworkError::NoLease { interface: interface.to_owned(), source })
}

/// Keeps the lease for as long as the agent runs: an installation may outlast it.
pub fn keep_lease(interface: &str) {
    let mut args = UDHCPC.to_vec();
    args.extend(["-f", "-t", "10", "-T", "2", "-A", "10", "-i", interface]);
    let started = Command::new("busybox")
        .args(&args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    // The child is reaped by the first process; it ends with the machine.
    if let Err(error) = started {
        say!("the DHCP lease will not be renewed: udhcpc cannot be started: {error}");
    }
}
