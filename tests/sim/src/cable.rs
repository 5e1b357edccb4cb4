//! The network of one power cycle: a namespace with one interface, whose cable ends at the lab's bridge.

use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use basalt_dhcp::Mac;
use basalt_lab::process::Owner;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Name of the interface at the machine's end.
pub(crate) const INTERFACE: &str = "eth0";

/// Dropping it removes the cable: no packet leaves the machine from then on.
#[derive(Debug)]
pub(crate) struct Cable {
    lab: String,
    /// Name of the interface at the lab's end.
    link: String,
    namespace: String,
}

impl Cable {
    /// Makes a namespace and connects it. Its name has the form of a lab's name, so that the next lab removes the
    /// one of a killed process.
    pub(crate) fn connect(lab: &str, bridge: &str, mac: Mac) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let owner = Owner::current().map_err(io::Error::other)?;
        let namespace = format!("bl.sim-{number}.{owner}");
        let cable = Self { lab: lab.to_owned(), link: format!("sim{number}"), namespace };
        let Self { link, namespace, .. } = &cable;
        ip(&["netns", "add", namespace], "")?;
        // The lab's end is up first, so the machine's firmware finds a link at its start.
        ip(
            &["-n", lab, "-batch", "-"],
            &format!(
                "link add {link} type veth peer name {INTERFACE} address {mac} netns {namespace}\n\
                 link set {link} master {bridge} up\n"
            ),
        )?;
        ip(&["-n", namespace, "-batch", "-"], &format!("link set lo up\nlink set {INTERFACE} up\n"))?;
        Ok(cable)
    }

    /// Moves the calling thread, and threads it will start, into the machine's network.
    pub(crate) fn enter(&self) -> io::Result<()> {
        enter(&self.namespace)?;
        // With reverse-path filtering, a machine without an address would not receive the answers of its DHCP
        // server.
        for interface in ["all", INTERFACE] {
            let _kept = std::fs::write(format!("/proc/sys/net/ipv4/conf/{interface}/rp_filter"), "0");
        }
        Ok(())
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // Both may already be gone, together with the lab.
        let _gone = ip(&["-n", &self.lab, "link", "delete", &self.link], "");
        let _gone = ip(&["netns", "delete", &self.namespace], "");
    }
}

/// Sets the interface's only address.
pub(crate) fn configure(
    namespace: &str,
    address: Ipv4Addr,
    prefix: u8,
    gateway: Option<Ipv4Addr>,
) -> io::Result<()> {
    let mut batch = format!(
        "address flush dev {INTERFACE}\naddress add {address}/{prefix} broadcast + dev {INTERFACE}\n"
    );
    if let Some(gateway) = gateway {
        batch.push_str(&format!("route replace default via {gateway}\n"));
    }
    ip(&["-n", namespace, "-batch", "-"], &batch)
}

/// Removes all addresses of the interface.
pub(crate) fn unconfigure(namespace: &str) -> io::Result<()> {
    ip(&["-n", namespace, "address", "flush", "dev", INTERFACE], "")
}

/// Adds an address to the lab's loopback interface.
pub(crate) fn add_address(lab: &str, address: Ipv4Addr) -> io::Result<()> {
    ip(&["-n", lab, "address", "replace", &format!("{address}/32"), "dev", "lo"], "")
}

/// Moves the calling thread, and threads it will start, into a namespace.
pub(crate) fn enter(namespace: &str) -> io::Result<()> {
    let file = File::open(Path::new("/run/netns").join(namespace))?;
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
}

fn ip(arguments: &[&str], input: &str) -> io::Result<()> {
    let failed = |what: &str| io::Error::other(format!("`ip {}` {what}", arguments.join(" ")));
    let mut child = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&format!("does not start: {error}; install iproute2")))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(&format!("failed: {}", String::from_utf8_lossy(&output.stderr).trim())))
}
