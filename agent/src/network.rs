//! The boot interface: found by its address, and brought up. Its addresses: [`lease`].

use std::process::{Command, Stdio};

use thiserror::Error;

use crate::root::Root;
use crate::tool::{self, ToolError};
use crate::{deadlines, dhcp6, lease, say};

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
    /// No address.
    #[error(
        "{interface} got no {what} within {:?}, and the rack is reached by one. IPv4: {v4}. IPv6: {v6}. Is there a DHCP server, or a router, on its network?",
        deadlines::LEASE
    )]
    NoAddress {
        /// Kernel name.
        interface: String,
        /// What kind of address.
        what: &'static str,
        /// Why there is none of IPv4.
        v4: String,
        /// Why there is none of IPv6.
        v6: String,
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
pub(crate) const UDHCPC: [&str; 4] = ["udhcpc", "-C", "-s", "/bin/dhcp-event"];

/// Keeps the leases for as long as the agent runs: an installation may outlast them.
pub fn keep_leases(interface: &str, mac: &str) {
    if let Some(mac) = lease::octets(mac) {
        dhcp6::port::keep(interface, mac, lease::files());
    }
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
