//! Obtains an address for the boot interface. IPv4 by DHCP and IPv6 by routers or DHCPv6 run side by side until an address can reach the
//! rack.

use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::dhcp6::port::{Files, Port, seed};
use crate::dhcp6::{Client, Identity};
use crate::network::{NetworkError, UDHCPC};
use crate::{deadlines, ipv6, say, tool};

/// Configuration of the resolver.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The lease of DHCPv6. `/run` survives the move into the squashfs.
const LEASE6: &str = "/run/basalt-lease6.json";
/// Interval at which both families are checked.
const TICK: Duration = Duration::from_millis(20);

/// Paths of the files in the running system.
#[must_use]
pub fn files() -> Files {
    Files { lease: PathBuf::from(LEASE6), resolv: PathBuf::from(RESOLV_CONF) }
}

/// The address family that reaches the rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// An IPv4 address: the rack's address is IPv4.
    V4,
    /// An IPv6 address: the rack's address is this one.
    V6(Ipv6Addr),
    /// An address of either family: the rack is known by a host name.
    Either,
}

impl Needs {
    /// The family for the host of `https://HOST:PORT`.
    #[must_use]
    pub fn of(url: &str) -> Self {
        let authority = url.strip_prefix("https://").unwrap_or(url);
        let authority = authority.split('/').next().unwrap_or_default();
        if let Some((host, _)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            return host.parse().map_or(Self::Either, Self::V6);
        }
        let host = authority.split(':').next().unwrap_or_default();
        if host.parse::<Ipv4Addr>().is_ok() { Self::V4 } else { Self::Either }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::V4 => "IPv4 address",
            Self::V6(_) => "IPv6 address",
            Self::Either => "address",
        }
    }

    /// True if the search is over. `v4` and `v6`: there is an address. `both`: no address of the other family will come.
    const fn is_met(self, v4: bool, v6: bool, both: bool) -> bool {
        match self {
            Self::V4 => v4,
            Self::V6(_) => v6,
            Self::Either => (v4 && v6) || ((v4 || v6) && both),
        }
    }
}

/// Obtains an address of the needed family, and applies it.
///
/// # Errors
/// [`NetworkError::NoAddress`].
pub fn obtain(interface: &str, mac: &str, needs: Needs, files: &Files) -> Result<(), NetworkError> {
    let end = Instant::now() + deadlines::LEASE;
    let mut v4 = V4::start(interface);
    let mut v6 = V6::new(interface, mac, needs, files);
    let mut first = None;
    loop {
        v4.look();
        v6.look();
        if v4.is_ready() || v6.is_ready() {
            first = first.or_else(|| Some(Instant::now()));
        }
        let is_late = first.is_some_and(|at: Instant| at.elapsed() > deadlines::OTHER_FAMILY);
        let alone = is_late || (v4.is_over() && v6.is_ready()) || (v6.is_over() && v4.is_ready());
        if needs.is_met(v4.is_ready(), v6.is_ready(), alone) {
            break;
        }
        let is_hopeless = match needs {
            Needs::V4 => v4.is_over(),
            Needs::V6(_) => v6.is_over(),
            Needs::Either => v4.is_over() && v6.is_over(),
        };
        if is_hopeless || Instant::now() >= end {
            return Err(NetworkError::NoAddress {
                interface: interface.to_owned(),
                what: needs.words(),
                v4: v4.trouble(),
                v6: v6.trouble(),
            });
        }
        v6.wait();
    }
    if let Needs::V6(rack) = needs {
        lead_to(rack, interface);
    }
    Ok(())
}

/// Adds a route for the rack on the interface's link if no route leads to it. The rack's own router advertisements announce no prefix.
fn lead_to(rack: Ipv6Addr, interface: &str) {
    let route = |args: &[&str]| tool::run("busybox", &[&["ip", "-6", "route"], args].concat());
    if route(&["get", &rack.to_string()]).is_ok() {
        return;
    }
    match route(&["replace", &format!("{rack}/128"), "dev", interface]) {
        Ok(_) => say!("no router leads to {rack}: looking for it on the link of {interface}"),
        Err(error) => say!("no router leads to {rack}: {error}"),
    }
}

/// The process udhcpc, until it has a lease.
struct V4 {
    child: Result<Child, String>,
    done: Option<Result<(), String>>,
}

impl V4 {
    fn start(interface: &str) -> Self {
        // udhcpc sends one request each second. It exits when it has a lease (`-q`), or after 60 requests without one (`-n`).
        let child = Command::new("busybox")
            .args(UDHCPC)
            .args(["-f", "-q", "-t", "60", "-T", "1", "-A", "1", "-n", "-i", interface])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let child = child.map_err(|error| format!("udhcpc cannot be started: {error}"));
        let done = child.as_ref().err().cloned().map(Err);
        Self { child, done }
    }

    fn look(&mut self) {
        let (None, Ok(child)) = (&self.done, &mut self.child) else { return };
        self.done = match child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) if status.success() => Some(Ok(())),
            Ok(Some(status)) => {
                let mut said = String::new();
                // The process has ended, and its output is short.
                let _ = child.stderr.take().map(|pipe| pipe.take(64 * 1024).read_to_string(&mut said));
                Some(Err(format!("udhcpc ended with {status}: {}", tool::tail(&said))))
            }
            Err(error) => Some(Err(format!("udhcpc: {error}"))),
        };
    }

    const fn is_ready(&self) -> bool {
        matches!(self.done, Some(Ok(())))
    }

    /// True if no lease will come.
    const fn is_over(&self) -> bool {
        self.done.is_some()
    }

    fn trouble(&self) -> String {
        match &self.done {
            Some(Err(trouble)) => trouble.clone(),
            Some(Ok(())) => "there is an address".to_owned(),
            None => "no DHCP server answers".to_owned(),
        }
    }
}

impl Drop for V4 {
    fn drop(&mut self) {
        if let (None, Ok(child)) = (&self.done, &mut self.child) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The kernel's addresses, and DHCPv6 if it is needed.
struct V6 {
    interface: String,
    mac: Option<[u8; 6]>,
    needs: Needs,
    files: Files,
    port: Option<Port>,
    /// Time since when the link-local address is usable.
    since: Option<Instant>,
    /// True if an address from the kernel is usable.
    is_made: bool,
    is_managed: bool,
    /// The reason why no address will come.
    dead: Option<String>,
}

impl V6 {
    fn new(interface: &str, mac: &str, needs: Needs, files: &Files) -> Self {
        Self {
            interface: interface.to_owned(),
            mac: octets(mac),
            needs,
            files: files.clone(),
            port: None,
            since: None,
            is_made: false,
            is_managed: false,
            dead: None,
        }
    }

    fn look(&mut self) {
        let Some(addresses) = ipv6::addresses(&self.interface) else {
            self.dead = Some("the kernel has no IPv6".to_owned());
            return;
        };
        let Some(own) = addresses.iter().find(|it| it.is_link_local && !it.is_tentative).copied() else {
            if let Some(own) = addresses.iter().find(|it| it.is_link_local && it.is_taken) {
                self.dead =
                    Some(format!("another host has {}, the address of {}", own.address, self.interface));
            }
            return;
        };
        let since = *self.since.get_or_insert_with(Instant::now);
        let made: Vec<_> =
            addresses.iter().filter(|it| !it.is_link_local && !it.is_permanent && !it.is_taken).collect();
        self.is_made = made.iter().any(|it| !it.is_tentative);
        self.is_managed = ipv6::is_managed(own.index);
        // If no router announces DHCPv6, it is only tried when SLAAC gave no address in time and the rack may be reached by IPv6.
        let is_alone = made.is_empty() && since.elapsed() > deadlines::SLAAC && self.needs != Needs::V4;
        if !self.is_managed && !is_alone {
            return;
        }
        if let (None, Some(mac)) = (&self.port, self.mac) {
            let client = Client::new(Identity::of(mac), seed());
            match Port::open(&self.interface, own, client, self.files.clone()) {
                Ok(port) => self.port = Some(port),
                Err(error) => say!("DHCPv6 on {}: {error}", self.interface),
            }
        }
        if let Some(port) = &mut self.port {
            port.start();
        }
    }

    /// Sleeps for one interval; a running DHCPv6 client handles datagrams meanwhile.
    fn wait(&mut self) {
        match &mut self.port {
            Some(port) if port.is_started() => port.step(TICK),
            _ => std::thread::sleep(TICK),
        }
    }

    fn is_ready(&self) -> bool {
        let is_leased = self.port.as_ref().is_some_and(|port| port.lease().is_some());
        let is_patient = self.since.is_some_and(|since| since.elapsed() < deadlines::MANAGED);
        is_leased || (self.is_made && !(self.is_managed && is_patient))
    }

    const fn is_over(&self) -> bool {
        self.dead.is_some()
    }

    fn trouble(&self) -> String {
        let refusal = self.port.as_ref().and_then(Port::refusal);
        match (&self.dead, refusal, self.since) {
            (Some(dead), ..) => dead.clone(),
            (_, Some(refusal), _) => refusal.to_owned(),
            (_, _, None) => "there is no link-local address: is the link up?".to_owned(),
            _ if self.is_managed => {
                "routers say that addresses come by DHCPv6, and no server answers".to_owned()
            }
            _ if self.is_ready() => "there is an address".to_owned(),
            _ => "no router announces a prefix, and no DHCPv6 server answers".to_owned(),
        }
    }
}

/// Parses a MAC address like `52:54:00:00:00:01`.
#[must_use]
pub fn octets(mac: &str) -> Option<[u8; 6]> {
    let octets: Option<Vec<u8>> = mac.split(':').map(|octet| u8::from_str_radix(octet, 16).ok()).collect();
    octets?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_follows_from_the_racks_address() {
        for (url, needs) in [
            ("https://10.77.0.1:5248", Needs::V4),
            ("https://[2001:db8::1]:5248", Needs::V6("2001:db8::1".parse().unwrap())),
            ("https://[2001:db8::1]", Needs::V6("2001:db8::1".parse().unwrap())),
            ("https://rack.example:5248", Needs::Either),
            ("https://rack.example/", Needs::Either),
        ] {
            assert_eq!(Needs::of(url), needs, "{url}");
        }
    }

    #[test]
    fn a_name_is_looked_up_with_both_families_or_with_the_one_there_is() {
        assert!(Needs::Either.is_met(true, true, false));
        assert!(!Needs::Either.is_met(true, false, false) && Needs::Either.is_met(false, true, true));
        assert!(Needs::V4.is_met(true, false, false) && !Needs::V4.is_met(false, true, true));
        let v6 = Needs::V6(Ipv6Addr::LOCALHOST);
        assert!(v6.is_met(false, true, false) && !v6.is_met(true, false, true));
    }

    #[test]
    fn a_hardware_address_is_six_octets() {
        assert_eq!(octets("52:54:00:00:00:0a"), Some([0x52, 0x54, 0, 0, 0, 10]));
        assert_eq!(octets("52:54:00:00:00"), None);
    }
}
