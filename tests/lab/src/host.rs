//! Another host in a lab's network: a namespace with one cable to the lab's bridge.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::Command;

use crate::error::LabError;
use crate::lab::Lab;
use crate::name::LabName;
use crate::network::{BRIDGE, Namespace};
use crate::process::supervised;

/// Name of its first interface.
pub const INTERFACE: &str = "eth0";

/// A host. Dropping it removes the cable, and everything that runs on the host.
#[derive(Debug)]
pub struct Host {
    namespace: Namespace,
}

impl Host {
    /// Connects a host called `name` (a-z, 0-9, hyphens, at most 9) with this address of the lab's network.
    ///
    /// # Errors
    /// [`LabError`]: a bad name, no `ip`.
    pub fn connect(lab: &Lab, name: &str, address: Ipv4Addr) -> Result<Self, LabError> {
        let full = LabName::new(&format!("{}-{name}", lab.name().label), lab.name().owner)?;
        let host = Self { namespace: Namespace(full.to_string()) };
        host.namespace.create_host()?;
        host.namespace.plug(lab.namespace(), BRIDGE, &format!("host-{name}"), INTERFACE, address)?;
        Ok(host)
    }

    /// Connects it also to another bridge of its lab, with an interface of this name and this address in a /24. `cable` is the
    /// name of the lab's end of the cable.
    ///
    /// # Errors
    /// [`LabError`]: the bridge does not exist.
    pub fn plug(
        &self,
        lab: &Lab,
        bridge: &str,
        cable: &str,
        interface: &str,
        address: Ipv4Addr,
    ) -> Result<(), LabError> {
        self.namespace.plug(lab.namespace(), bridge, cable, interface, address)
    }

    /// Adds a route to a network through a router.
    ///
    /// # Errors
    /// [`LabError`]: the router is on none of its own networks.
    pub fn add_route(&self, network: &str, router: Ipv4Addr) -> Result<(), LabError> {
        self.namespace.add_route(network, router)
    }

    /// A command that will run on this host and end with this process.
    ///
    /// # Errors
    /// [`LabError::NoProgram`].
    pub fn command(&self, program: impl AsRef<OsStr>) -> Result<Command, LabError> {
        let enter = ["ip", "netns", "exec", &self.namespace.0].map(OsStr::new);
        supervised(enter.into_iter().chain([program.as_ref()]))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Err(error) = self.namespace.remove() {
            tracing::error!(%error, "host {} was not removed; the next lab's start tries again", self.namespace.0);
        }
    }
}
