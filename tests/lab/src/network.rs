//! A lab's network: a namespace with a bridge, a tap for each machine, an address for each BMC. It is made with `ip`, without
//! a shell.

use std::collections::HashSet;
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::LabError;
use crate::process::{self, run};

/// Name of the bridge that every lab has.
pub const BRIDGE: &str = "br0";
/// The host's address on the bridge, where racks run, with its prefix.
pub(crate) const BRIDGE_ADDRESS: &str = "10.77.0.1/24";
/// MAC address of the bridge.
const BRIDGE_MAC: &str = "52:54:00:77:00:01";
/// Time limit for the processes of a namespace to die.
const DEATH: Duration = Duration::from_secs(10);

/// Name of a namespace.
#[derive(Clone, Debug)]
pub(crate) struct Namespace(pub(crate) String);

impl Namespace {
    /// Every namespace that `ip` knows.
    pub(crate) fn names() -> Result<Vec<String>, LabError> {
        let list = run("ip", &["netns", "list"])?;
        Ok(list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
    }

    pub(crate) fn create(&self) -> Result<(), LabError> {
        run("ip", &["netns", "add", &self.0])?;
        self.ip(&["link", "set", "lo", "up"])?;
        self.add_bridge(BRIDGE, BRIDGE_MAC)?;
        self.ip(&["address", "add", BRIDGE_ADDRESS, "dev", BRIDGE])
    }

    /// Adds a bridge without spanning tree and multicast snooping, so that a port forwards from its first packet. Its
    /// MAC address is fixed. Otherwise the bridge would use the lowest address of its ports, which changes with each cable.
    pub(crate) fn add_bridge(&self, name: &str, mac: &str) -> Result<(), LabError> {
        let still = ["stp_state", "0", "forward_delay", "0", "mcast_snooping", "0"];
        self.ip(&[&["link", "add", name, "address", mac, "type", "bridge"][..], &still].concat())?;
        self.ip(&["link", "set", name, "up"])
    }

    /// Creates a host without an interface.
    pub(crate) fn create_host(&self) -> Result<(), LabError> {
        run("ip", &["netns", "add", &self.0])?;
        self.ip(&["link", "set", "lo", "up"])
    }

    /// Gives a host an interface, whose cable ends at a lab's bridge.
    pub(crate) fn plug(
        &self,
        lab: &str,
        bridge: &str,
        cable: &str,
        interface: &str,
        address: Ipv4Addr,
    ) -> Result<(), LabError> {
        let veth = ["type", "veth", "peer", "name", interface, "netns", &self.0];
        run("ip", &[&["-n", lab, "link", "add", cable][..], &veth].concat())?;
        run("ip", &["-n", lab, "link", "set", cable, "master", bridge, "up"])?;
        self.ip(&["address", "add", &format!("{address}/24"), "dev", interface])?;
        self.ip(&["link", "set", interface, "up"])
    }

    pub(crate) fn add_route(&self, network: &str, router: Ipv4Addr) -> Result<(), LabError> {
        self.ip(&["route", "add", network, "via", &router.to_string()])
    }

    pub(crate) fn add_tap(&self, tap: &str) -> Result<(), LabError> {
        self.ip(&["tuntap", "add", tap, "mode", "tap"])?;
        self.ip(&["link", "set", tap, "master", BRIDGE, "up"])
    }

    pub(crate) fn add_address(&self, address: Ipv4Addr) -> Result<(), LabError> {
        self.ip(&["address", "add", &format!("{address}/32"), "dev", "lo"])
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), LabError> {
        run("ip", &[&["-n", &self.0], arguments].concat()).map(drop)
    }

    /// Kills every process inside, then removes the namespace. No error if it is already gone.
    pub(crate) fn remove(&self) -> Result<(), LabError> {
        if !self.path().exists() {
            return Ok(());
        }
        let removed = self.kill_processes().and_then(|()| run("ip", &["netns", "delete", &self.0]));
        match removed {
            // Another process removed it at the same time.
            Err(_) if !self.path().exists() => Ok(()),
            result => result.map(drop),
        }
    }

    fn kill_processes(&self) -> Result<(), LabError> {
        let deadline = Instant::now() + DEATH;
        loop {
            let inside: Vec<_> =
                self.pids()?.into_iter().filter_map(|pid| Some((pid, process::open(pid)?))).collect();
            if inside.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let what = format!("the end of the processes in {}", self.0);
                return Err(LabError::TimedOut { what, limit: DEATH });
            }
            // A pid may be reused after it was listed. If it is listed again, it belongs to the process of our handle.
            let still: HashSet<i32> = self.pids()?.into_iter().collect();
            for (_, handle) in inside.iter().filter(|(pid, _)| still.contains(pid)) {
                let _gone_already = pidfd_send_signal(handle, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn pids(&self) -> Result<Vec<i32>, LabError> {
        let this = rustix::process::getpid().as_raw_nonzero().get();
        let list = run("ip", &["netns", "pids", &self.0])?;
        Ok(list.lines().filter_map(|line| line.trim().parse().ok()).filter(|pid| *pid != this).collect())
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.0)
    }

    /// Moves the calling thread, and threads it will start, into the namespace.
    pub(crate) fn enter(&self) -> Result<(), LabError> {
        let file = File::open(self.path()).map_err(LabError::file(self.path()))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| LabError::System { what: "enter the lab's namespace", source: error.into() })
    }
}
