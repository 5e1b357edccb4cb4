//! The boot interface: the search by MAC address, and the start of the interface. [`lease`] obtains its addresses.

use std::process::{Command, Stdio};

use thiserror::Error;

use crate::root::Root;
use crate::tool::{self, ToolError};
use crate::{deadlines, dhcp6, lease, say};

/// The reason why there is no network.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// No interface has the MAC address.
    #[error(
        "no interface has the address {mac} after {:?}; there are: {found}. Is its driver in the image?",
        deadlines::INTERFACE
    )]
    NoInterface {
        /// The wanted MAC address from `BOOTIF`, or `any`.
        mac: String,
        /// Names and MAC addresses of the interfaces that exist.
        found: String,
    },
    /// The interface cannot be brought up.
    #[error("{interface} cannot be brought up: {source}")]
    Up {
        /// Kernel name of the interface.
        interface: String,
        /// The error of the program `ip`.
        source: ToolError,
    },
    /// The interface got no IP address.
    #[error(
        "{interface} got no {what} within {:?}, and the rack is reached by one. IPv4: {v4}. IPv6: {v6}. Is there a DHCP server, or a router, on its network?",
        deadlines::LEASE
    )]
    NoAddress {
        /// Kernel name of the interface.
        interface: String,
        /// The address family, in words.
        what: &'static str,
        /// The reason why there is no IPv4 address.
        v4: String,
        /// The reason why there is no IPv6 address.
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

/// The MAC address of an interface, lower-case with colons.
#[must_use]
pub fn mac(root: &Root, interface: &str) -> Option<String> {
    Some(root.text(format!("sys/class/net/{interface}/address"))?.to_ascii_lowercase())
}

/// The interface with this MAC address. Without one, the first physical interface with a carrier.
#[must_use]
pub fn find(root: &Root, boot_mac: Option<&str>) -> Option<String> {
    let names = physical(root);
    match boot_mac {
        Some(wanted) => names.into_iter().find(|name| mac(root, name).as_deref() == Some(wanted)),
        None => names.into_iter().find(|name| has_carrier(root, name)),
    }
}

/// True if an interface has a carrier. False while the interface is down.
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

/// Names and MAC addresses of the interfaces, for a message.
#[must_use]
pub fn describe(root: &Root) -> String {
    let all: Vec<String> =
        physical(root).iter().map(|name| format!("{name} {}", mac(root, name).unwrap_or_default())).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// Common arguments of udhcpc. It sends no client identifier, since Basalt identifies clients by their hardware address.
pub(crate) const UDHCPC: [&str; 4] = ["udhcpc", "-C", "-s", "/bin/dhcp-event"];

/// Renews the leases while the agent runs, since an install may take longer than a lease.
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
    // The first process reaps the child, which ends with the machine.
    if let Err(error) = started {
        say!("the DHCP lease will not be renewed: udhcpc cannot be started: {error}");
    }
}
