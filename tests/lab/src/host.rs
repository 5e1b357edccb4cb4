//! Another host on a lab's wire: a namespace of its own, with one cable to the lab's bridge.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::Command;

use crate::error::LabError;
use crate::lab::Lab;
use crate::name::LabName;
use crate::network::{BRIDGE, Namespace};
use crate::process::supervised;

/// What its interface is called inside.
pub const INTERFACE: &str = "eth0";

/// A host; unplugged when dropped, with everything that runs on it.
#[derive(Debug)]
pub struct Host {
    namespace: Namespace,
}

impl Host {
    /// Plugs in a host called `name` (a-z, 0-9, hyphens, at most 9) with this address of the lab's network.
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

    /// Plugs it into another bridge of its lab as well, with an interface of this name, and this address of a /24. The lab's end
    /// of the cable is called `cable`.
    ///
    /// # Errors
    /// [`LabError`]: there is no such bridge.
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

    /// Lets it reach a network by a router.
    ///
    /// # Errors
    /// [`LabError`]: the router is on no network of its own.
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
