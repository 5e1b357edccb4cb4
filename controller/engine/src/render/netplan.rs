//! netplan (`/etc/netplan/*.yaml`), and cloud-init's network configuration version 2, which is the same below its root.

use std::fmt::Write;
use std::net::IpAddr;

use super::network::{Interface, Method, Network};
use super::{list, quoted};

/// The file for `/etc/netplan`.
#[must_use]
pub fn netplan(network: &Network) -> String {
    let body = ethernets(network);
    let body: String = body.lines().map(|line| format!("  {line}\n")).collect();
    format!("network:\n  version: 2\n  renderer: networkd\n{body}")
}

/// The file `network-config` of a NoCloud seed.
#[must_use]
pub fn cloud_init(network: &Network) -> String {
    format!("version: 2\n{}", ethernets(network))
}

fn ethernets(network: &Network) -> String {
    let mut out = String::from("ethernets:\n");
    for interface in &network.interfaces {
        ethernet(&mut out, interface);
    }
    out
}

/// `eth0` and its like belong to the kernel, which gives them out in the order in which it finds the hardware: an
/// interface cannot be renamed to one that is taken, so those keep the name that the installed system gives them.
fn kernel_name(name: &str) -> bool {
    name.strip_prefix("eth").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn ethernet(out: &mut String, interface: &Interface) {
    // Writing to a String cannot fail.
    let mut line = |indent: usize, text: &str| {
        let _ = writeln!(out, "{:indent$}{text}", "");
    };
    let name = quoted(&interface.name);
    line(2, &format!("{name}:"));
    line(4, "match:");
    line(6, &format!("macaddress: {}", quoted(&interface.mac)));
    if !kernel_name(&interface.name) {
        line(4, &format!("set-name: {name}"));
    }
    match &interface.method {
        Method::Dhcp => {
            line(4, "dhcp4: true");
            // The rack knows its clients by their MAC addresses.
            line(4, "dhcp-identifier: mac");
        }
        Method::Static { address: (address, prefix), gateway } => {
            line(4, "dhcp4: false");
            line(4, &format!("addresses: {}", list([format!("{address}/{prefix}")])));
            if let Some(gateway) = gateway {
                let all = if matches!(gateway, IpAddr::V4(_)) { "0.0.0.0/0" } else { "::/0" };
                line(4, "routes:");
                line(6, &format!("- to: {}", quoted(all)));
                line(6, &format!("  via: {}", quoted(&gateway.to_string())));
            }
        }
        Method::LinkUp => {
            line(4, "dhcp4: false");
            line(4, "link-local: []");
            // The boot does not wait for an interface without an address.
            line(4, "optional: true");
        }
    }
    if let Some(mtu) = interface.mtu {
        line(4, &format!("mtu: {mtu}"));
    }
    if !interface.dns_servers.is_empty() || !interface.search.is_empty() {
        line(4, "nameservers:");
        if !interface.dns_servers.is_empty() {
            line(6, &format!("addresses: {}", list(&interface.dns_servers)));
        }
        if !interface.search.is_empty() {
            line(6, &format!("search: {}", list(&interface.search)));
        }
    }
}
