//! The client on an interface: its socket, its clock, and the effects of a lease on the system.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::message::MAX_DATAGRAM;
use super::{Action, Client, Event, Identity, Lease};
use crate::{ipv6, resolv, say, tool};

/// All_DHCP_Relay_Agents_and_Servers (RFC 8415 §7.1), and the ports of both sides (§7.2).
const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
const SERVER_PORT: u16 = 547;
const CLIENT_PORT: u16 = 546;
/// The prefix covers one address. Routers announce which other addresses are on the link (RFC 5942).
const LENGTH: u8 = 128;

/// Files with the leased data.
#[derive(Clone, Debug)]
pub struct Files {
    /// The lease, for a later process that continues with it.
    pub lease: PathBuf,
    /// The file `resolv.conf`.
    pub resolv: PathBuf,
}

/// A client on an interface.
#[derive(Debug)]
pub struct Port {
    interface: String,
    index: u32,
    socket: UdpSocket,
    client: Client,
    files: Files,
    lease: Option<Lease>,
    /// True until the kernel has checked if another host has the address.
    is_probing: bool,
}

impl Port {
    /// A client on an interface whose link-local address is usable.
    ///
    /// # Errors
    /// The socket cannot be bound: another client is running.
    pub fn open(
        interface: &str,
        link_local: ipv6::Address,
        client: Client,
        files: Files,
    ) -> io::Result<Self> {
        // A socket that is bound to this address receives only from this interface.
        let socket =
            UdpSocket::bind(SocketAddrV6::new(link_local.address, CLIENT_PORT, 0, link_local.index))?;
        let (interface, index) = (interface.to_owned(), link_local.index);
        Ok(Self { interface, index, socket, client, files, lease: None, is_probing: false })
    }

    /// Starts the client, unless it is running.
    pub fn start(&mut self) {
        if !self.client.is_running() {
            say!(
                "asking for an address of {} by DHCPv6, {:.1} s after the kernel",
                self.interface,
                now().as_secs_f64()
            );
            self.handle(Event::Start);
        }
    }

    /// The lease, once its address is usable.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref().filter(|_| !self.is_probing)
    }

    /// True if the client is running.
    #[must_use]
    pub const fn is_started(&self) -> bool {
        self.client.is_running()
    }

    /// The last refusal of a server, if there is no lease.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.client.refusal()
    }

    /// Handles received datagrams and due timers for at most this long.
    pub fn step(&mut self, most: Duration) {
        if self.is_probing {
            self.probe();
        }
        let wait = self.client.wake().map_or(most, |at| at.saturating_sub(now()).min(most));
        let mut buffer = vec![0; MAX_DATAGRAM + 1];
        // A zero timeout would mean no timeout.
        let heard = self
            .socket
            .set_read_timeout(Some(wait.max(Duration::from_millis(1))))
            .and_then(|()| self.socket.recv_from(&mut buffer));
        match heard {
            Ok((length, _)) => self.handle(Event::Datagram(buffer.get(..length).unwrap_or_default())),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => {
                say!("listening for DHCPv6 on {}: {error}", self.interface);
                std::thread::sleep(wait);
            }
        }
        self.handle(Event::Timer);
    }

    fn handle(&mut self, event: Event<'_>) {
        for action in self.client.handle(now(), event) {
            match action {
                Action::Send(bytes) => self.send(&bytes),
                Action::Bound(lease) => self.apply(lease),
                Action::Lost(address) => self.withdraw(address),
            }
        }
    }

    /// Sends a datagram. A failed send is like a lost datagram: the client retransmits it.
    fn send(&self, bytes: &[u8]) {
        let to = SocketAddrV6::new(SERVERS, SERVER_PORT, 0, self.index);
        if let Err(error) = self.socket.send_to(bytes, to) {
            say!("sending DHCPv6 on {}: {error}", self.interface);
        }
    }

    /// Reads the result of the kernel's address check, which lasts a second (RFC 4862 §5.4). If another host has the address, the kernel
    /// removes an address with a lifetime, and marks one without.
    fn probe(&mut self) {
        let Some(leased) = self.lease.as_ref().map(|lease| lease.address) else { return };
        let addresses = ipv6::addresses(&self.interface).unwrap_or_default();
        match addresses.iter().find(|it| it.address == leased) {
            Some(address) if !address.is_taken && address.is_tentative => {}
            Some(address) if !address.is_taken => {
                self.is_probing = false;
                say!(
                    "{} has {leased} by DHCPv6, {:.1} s after the kernel",
                    self.interface,
                    now().as_secs_f64()
                );
            }
            _ => {
                say!("another host has {leased}, which was leased to {}; declining it", self.interface);
                self.handle(Event::Taken);
            }
        }
    }

    fn apply(&mut self, lease: Lease) {
        let is_new = self.lease.as_ref().is_none_or(|before| before.address != lease.address);
        if let Err(error) = set_address(&self.interface, &lease) {
            say!("{} was not set on {}: {error}", lease.address, self.interface);
            return;
        }
        if is_new {
            // The rack identifies the machine by its lease, and refuses a claim from another address.
            ipv6::stop_making_addresses(&self.interface);
            let others = ipv6::addresses(&self.interface).unwrap_or_default();
            let is_made =
                |it: &&ipv6::Address| !it.is_link_local && !it.is_permanent && it.address != lease.address;
            others.iter().filter(is_made).for_each(|it| remove(&self.interface, it.address, it.prefix));
        }
        if let Err(error) = note(&self.files.lease, &lease) {
            say!(
                "the lease of {} will not be renewed: {}: {error}",
                lease.address,
                self.files.lease.display()
            );
        }
        let servers: Vec<IpAddr> = lease.dns_servers.iter().copied().map(IpAddr::V6).collect();
        // A failure is ignored: the rack is reached by address, so names are not required.
        let _ = resolv::set(&self.files.resolv, true, &servers, &lease.search);
        self.is_probing |= is_new;
        self.lease = Some(lease);
    }

    fn withdraw(&mut self, address: Ipv6Addr) {
        say!("{} no longer has {address}", self.interface);
        remove(&self.interface, address, LENGTH);
        self.lease = None;
        self.is_probing = false;
        let _ = fs::remove_file(&self.files.lease);
    }
}

/// Adds the address, or updates its lifetimes.
fn set_address(interface: &str, lease: &Lease) -> Result<(), tool::ToolError> {
    let now = now();
    let left = |at: Duration| at.saturating_sub(now).as_secs().to_string();
    let (valid, preferred) = (lease.valid.map(left), lease.preferred.map(left));
    let address = format!("{}/{LENGTH}", lease.address);
    let mut args = vec!["ip", "-6", "addr", "replace", &address, "dev", interface];
    for (name, value) in [("valid_lft", &valid), ("preferred_lft", &preferred)] {
        if let Some(value) = value {
            args.extend([name, value]);
        }
    }
    tool::run("busybox", &args).map(drop)
}

/// Removes the address. It may be gone already.
fn remove(interface: &str, address: Ipv6Addr, prefix: u8) {
    let address = format!("{address}/{prefix}");
    let _ = tool::run("busybox", &["ip", "-6", "addr", "del", &address, "dev", interface]);
}

/// Writes the lease atomically, since this process may be replaced by another at any time.
fn note(path: &Path, lease: &Lease) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(lease).map_err(io::Error::other)?)?;
    fs::rename(new, path)
}

/// Continues with the lease that an earlier process noted, as long as this process runs. Does nothing without such a lease.
pub fn keep(interface: &str, mac: [u8; 6], files: Files) {
    let Some(lease) =
        fs::read(&files.lease).ok().and_then(|bytes| serde_json::from_slice::<Lease>(&bytes).ok())
    else {
        return;
    };
    let servers: Vec<IpAddr> = lease.dns_servers.iter().copied().map(IpAddr::V6).collect();
    let _ = resolv::set(&files.resolv, true, &servers, &lease.search);
    let addresses = ipv6::addresses(interface).unwrap_or_default();
    let Some(link_local) = addresses.into_iter().find(|it| it.is_link_local) else {
        say!("the lease of {} will not be renewed: {interface} has no link-local address", lease.address);
        return;
    };
    let client = Client::resume(Identity::of(mac), seed(), lease.clone());
    match Port::open(interface, link_local, client, files) {
        Ok(mut port) => {
            port.lease = Some(lease);
            std::thread::spawn(move || {
                loop {
                    port.step(Duration::from_secs(3600));
                }
            });
        }
        Err(error) => say!("the lease of {} will not be renewed: {error}", lease.address),
    }
}

/// Time since the machine's boot. It is the same in the initrd and in the ephemeral root.
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// A seed that other hosts on the link cannot know.
pub(crate) fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
