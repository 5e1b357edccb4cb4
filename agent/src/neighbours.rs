//! Listens for switches on the machine's links, by LLDP and CDP.
//!
//! [`Listener::start`] makes each Ethernet link receive multicast, and listens while the task continues. [`Listener::collect`] waits until
//! each link with a carrier has received LLDP, at most until [`LISTEN`](deadlines::LISTEN) after the start. Switches announce themselves
//! every 30 seconds.
//!
//! | link | is waited for |
//! | --- | --- |
//! | of an adapter | yes |
//! | of an adapter that only virtual machines have ([`VIRTUAL`]) | no: bridges of hypervisors do not pass LLDP on. An announcement that arrives in time counts |
//! | without a carrier | no |
//!
//! If a device speaks both protocols, only LLDP is used. Otherwise two inventories of the same machine could differ by the order of
//! arrival.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use basalt_api::agent::{self, Nic, TO_THE_BMC};
use basalt_api::kinds::MAX_NEIGHBOURS;
use basalt_lldp::{LLDP_ETHERTYPE, Neighbour, Protocol};
use nix::sys::socket::{LinkAddr, recvfrom};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, mount};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::root::Root;
use crate::{deadlines, network, say};

/// Drivers of adapters that only virtual machines have.
pub const VIRTUAL: [&str; 4] = ["hv_netvsc", "virtio_net", "vif", "vmxnet3"];

/// ARPHRD_ETHER of `linux/if_arp.h`.
const ETHERNET: u16 = 1;
/// ETH_P_802_2 of `linux/if_ether.h`: frames with LLC, which CDP has.
const LLC: u16 = 0x0004;
/// IFF_ALLMULTI of `linux/if.h`.
const ALL_MULTICAST: u32 = 0x200;
/// Largest frame that is read. Longer frames are truncated, and the parser refuses truncated ones.
const MAX_FRAME: usize = 9216;
/// Interval at which the thread checks if the listener still exists.
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Most frames that are read from one socket at once.
const BATCH: usize = 64;

/// A link that is listened to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Kernel name of the interface.
    pub name: String,
    /// The kernel's number of the interface.
    pub index: usize,
    /// True if [`Listener::collect`] waits for an announcement on the link.
    pub is_awaited: bool,
}

/// The machine's Ethernet links.
#[must_use]
pub fn links(root: &Root) -> Vec<Link> {
    network::physical(root).into_iter().filter_map(|name| link(root, name)).collect()
}

/// The link of one interface, if that is Ethernet.
#[must_use]
pub fn link(root: &Root, name: String) -> Option<Link> {
    let base = format!("sys/class/net/{name}");
    let driver = root.link_name(format!("{base}/device/driver")).unwrap_or_default();
    let is_ethernet = root.number(format!("{base}/type")) == Some(ETHERNET);
    let index = root.number(format!("{base}/ifindex"))?;
    let is_silent = [VIRTUAL, TO_THE_BMC].concat().contains(&driver.as_str());
    is_ethernet.then_some(Link { name, index, is_awaited: !is_silent })
}

/// Neighbours by the index of the link.
type Heard = BTreeMap<usize, BTreeSet<Neighbour>>;

/// Listens until it is collected or dropped, at most for [`LISTEN`](deadlines::LISTEN).
#[derive(Debug)]
pub struct Listener {
    links: Vec<Link>,
    heard: Arc<Mutex<Heard>>,
    end: Instant,
}

impl Listener {
    /// Begins to listen on these links, also before they are up.
    ///
    /// # Errors
    /// A packet socket cannot be opened: that needs `CAP_NET_RAW`.
    pub fn start(root: &Root, links: Vec<Link>) -> io::Result<Self> {
        stop_firmware_agents(root, &links);
        let sockets = [packet_socket(LLDP_ETHERTYPE)?, packet_socket(LLC)?];
        for link in &links {
            if let Err(error) = hear_multicast(root, &link.name) {
                say!(
                    "{} may not hear its switch: it cannot be made to hear all multicast: {error}",
                    link.name
                );
            }
        }
        let this = Self { links, heard: Arc::default(), end: Instant::now() + deadlines::LISTEN };
        let (heard, end) = (Arc::clone(&this.heard), this.end);
        let indexes: BTreeSet<usize> = this.links.iter().map(|link| link.index).collect();
        std::thread::spawn(move || listen(&sockets, &indexes, &heard, end));
        Ok(this)
    }

    /// Waits for links that have a carrier and have not received LLDP. Returns the neighbours by interface name.
    #[must_use]
    pub fn collect(self, root: &Root) -> BTreeMap<String, Vec<agent::Neighbour>> {
        let left = self.end.saturating_duration_since(Instant::now());
        let _ = deadlines::poll_until(left, || self.silent(root).is_empty().then_some(()));
        self.neighbours()
    }

    /// Neighbours that were heard so far, by the names of interfaces.
    #[must_use]
    pub fn neighbours(&self) -> BTreeMap<String, Vec<agent::Neighbour>> {
        let heard = self.heard();
        let of = |link: &Link| Some((link.name.clone(), reported(heard.get(&link.index)?)));
        self.links.iter().filter_map(of).collect()
    }

    /// Interfaces that [`Self::collect`] would still wait for.
    #[must_use]
    pub fn silent(&self, root: &Root) -> Vec<&str> {
        let heard = self.heard();
        let is_silent = |link: &&Link| {
            let spoke = heard.get(&link.index).is_some_and(|all| all.iter().any(is_lldp));
            link.is_awaited && !spoke && network::has_carrier(root, &link.name)
        };
        self.links.iter().filter(is_silent).map(|link| link.name.as_str()).collect()
    }
    fn heard(&self) -> Heard {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Gives the interfaces of an inventory their neighbours.
pub fn fill(nics: &mut [Nic], mut heard: BTreeMap<String, Vec<agent::Neighbour>>) {
    for nic in nics {
        nic.neighbours = heard.remove(&nic.name).unwrap_or_default();
    }
}

fn is_lldp(neighbour: &Neighbour) -> bool {
    neighbour.protocol == Protocol::Lldp
}

/// The neighbours of a link. If there are any by LLDP, those by CDP are dropped.
fn reported(heard: &BTreeSet<Neighbour>) -> Vec<agent::Neighbour> {
    let speaks_lldp = heard.iter().any(is_lldp);
    let counting = heard.iter().filter(|neighbour| is_lldp(neighbour) || !speaks_lldp);
    counting.take(MAX_NEIGHBOURS).map(in_words).collect()
}

fn in_words(neighbour: &Neighbour) -> agent::Neighbour {
    let text = |known: &Option<String>| known.clone().unwrap_or_default();
    agent::Neighbour {
        protocol: match neighbour.protocol {
            Protocol::Lldp => "lldp".to_owned(),
            Protocol::Cdp => "cdp".to_owned(),
        },
        chassis_id: neighbour.chassis_id.clone(),
        port_id: neighbour.port_id.clone(),
        port_description: text(&neighbour.port_description),
        system_name: text(&neighbour.system_name),
        system_description: text(&neighbour.system_description),
        platform: text(&neighbour.platform),
        capabilities: neighbour.capabilities.iter().map(|word| (*word).to_owned()).collect(),
        addresses: neighbour.addresses.iter().map(ToString::to_string).collect(),
        native_vlan: neighbour.native_vlan,
        vlans: neighbour.vlans.clone(),
        aggregate: neighbour.aggregate,
        max_frame: neighbour.max_frame,
    }
}

fn listen(sockets: &[OwnedFd; 2], links: &BTreeSet<usize>, heard: &Arc<Mutex<Heard>>, end: Instant) {
    let mut buffer = vec![0; MAX_FRAME];
    // The other reference belongs to the listener.
    while Instant::now() < end && Arc::strong_count(heard) > 1 {
        let mut ready = sockets.each_ref().map(|socket| PollFd::new(socket, PollFlags::IN));
        if let Err(error) = poll(&mut ready, Some(&GLANCE))
            && error != rustix::io::Errno::INTR
        {
            say!("listening for switches ended: {error}");
            return;
        }
        for socket in sockets {
            receive(socket, &mut buffer, |link, frame| {
                if let (true, Ok(found)) = (links.contains(&link), basalt_lldp::read(frame)) {
                    note(&mut heard.lock().unwrap_or_else(PoisonError::into_inner), link, found);
                }
            });
        }
    }
}

/// Some of the frames that wait in a socket, each with the index of its link.
fn receive(socket: &OwnedFd, buffer: &mut [u8], mut each: impl FnMut(usize, &[u8])) {
    for _ in 0..BATCH {
        // The kernel's report that an interface went down also ends the loop. The next call reads further frames.
        let Ok((length, Some(from))) = recvfrom::<LinkAddr>(socket.as_raw_fd(), buffer) else { return };
        each(from.ifindex(), buffer.get(..length).unwrap_or_default());
    }
}

/// Stores a neighbour by device and port. A later announcement replaces an earlier one.
fn note(heard: &mut Heard, link: usize, found: Neighbour) {
    let of_link = heard.entry(link).or_default();
    let is_same = |it: &Neighbour| {
        (it.protocol, &it.chassis_id, &it.port_id) == (found.protocol, &found.chassis_id, &found.port_id)
    };
    of_link.retain(|it| !is_same(it));
    let of_protocol = of_link.iter().filter(|it| it.protocol == found.protocol).count();
    // A neighbour that leaves sends a time to live of 0.
    if found.ttl_seconds > 0 && of_protocol < MAX_NEIGHBOURS {
        of_link.insert(found);
    }
}

/// Frames of this EtherType, of all interfaces.
fn packet_socket(ethertype: u16) -> io::Result<OwnedFd> {
    let number = NonZeroU32::new(u32::from(ethertype.to_be())).map(rustix::net::Protocol::from_raw);
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::PACKET, SocketType::RAW, flags, number)?)
}

/// Makes an adapter pass multicast frames, which it drops by default.
fn hear_multicast(root: &Root, interface: &str) -> io::Result<()> {
    let path = format!("sys/class/net/{interface}/flags");
    let flags = root.text(&path).and_then(|text| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok());
    let flags = flags.ok_or_else(|| io::Error::other(format!("/{path} cannot be read")))?;
    fs::write(root.path(&path), format!("{:#x}", flags | ALL_MULTICAST))
}

/// Stops the LLDP agents in the firmware of Intel's 700 series, which take LLDP frames before the kernel sees them. They start again at the
/// next boot.
///
/// The 800 series (`ice`) has such agents too. But its driver would store the change permanently, and an inventory must not write.
fn stop_firmware_agents(root: &Root, links: &[Link]) {
    const COMMANDS: &str = "sys/kernel/debug/i40e";
    let device = |link: &Link| {
        let base = format!("sys/class/net/{}/device", link.name);
        let is_concerned = root.link_name(format!("{base}/driver")).as_deref() == Some("i40e");
        root.link_name(base).filter(|_| is_concerned)
    };
    let devices: Vec<String> = links.iter().filter_map(device).collect();
    if devices.is_empty() {
        return;
    }
    if !root.exists(COMMANDS)
        && let Err(error) = mount(
            "debugfs",
            root.path("sys/kernel/debug"),
            "debugfs",
            MountFlags::empty(),
            None::<&std::ffi::CStr>,
        )
    {
        say!("firmware of network adapters may hide LLDP: debugfs cannot be mounted: {error}");
    }
    for device in devices {
        let path = root.path(Path::new(COMMANDS).join(&device).join("command"));
        if let Err(error) = fs::write(&path, "lldp stop") {
            say!("firmware of the adapter {device} may hide LLDP: {}: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn played() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        (dir, root)
    }

    fn add(root: &Root, name: &str, index: usize, driver: &str, files: &[(&str, &str)]) {
        let base = root.path(format!("sys/class/net/{name}"));
        let device = root.path(format!("sys/devices/0000:3b:00.{index}"));
        fs::create_dir_all(&base).unwrap();
        fs::create_dir_all(&device).unwrap();
        symlink(&device, base.join("device")).unwrap();
        symlink(format!("../../bus/pci/drivers/{driver}"), device.join("driver")).unwrap();
        fs::write(base.join("ifindex"), index.to_string()).unwrap();
        for (file, text) in [("type", "1\n"), ("flags", "0x1003\n"), ("carrier", "1\n")].iter().chain(files) {
            fs::write(base.join(file), text).unwrap();
        }
    }

    fn heard(protocol: Protocol, chassis: &str, ttl: u16) -> Neighbour {
        let value = |kind: u8, subtype: u8, text: &str| {
            let length = u8::try_from(text.len() + 1).unwrap();
            [&[kind << 1, length, subtype][..], text.as_bytes()].concat()
        };
        let [high, low] = ttl.to_be_bytes();
        let header = [&basalt_lldp::LLDP_GROUPS[0][..], &[0; 6], &LLDP_ETHERTYPE.to_be_bytes()].concat();
        let frame = [header, value(1, 7, chassis), value(2, 7, "1"), vec![6, 2, high, low]].concat();
        Neighbour { protocol, ..basalt_lldp::read(&frame).unwrap() }
    }

    fn chassis(of: &[agent::Neighbour]) -> Vec<&str> {
        of.iter().map(|it| it.chassis_id.as_str()).collect()
    }

    #[test]
    fn links_with_a_carrier_are_waited_for_until_they_speak_lldp() {
        let (_dir, root) = played();
        add(&root, "eno1", 1, "ixgbe", &[]);
        add(&root, "eno2", 2, "ixgbe", &[("carrier", "0\n")]);
        add(&root, "ens3", 3, "virtio_net", &[]);
        add(&root, "ib0", 4, "mlx5_core", &[("type", "32\n")]);
        let links = links(&root);
        let end = Instant::now() + deadlines::LISTEN;
        let listener = Listener { links, heard: Arc::default(), end };
        assert_eq!(listener.silent(&root), ["eno1"], "no carrier, a virtual adapter, InfiniBand");
        let note = |found| note(&mut listener.heard.lock().unwrap(), 1, found);
        note(heard(Protocol::Cdp, "leaf-1", 180));
        assert_eq!(listener.silent(&root), ["eno1"], "the switch may speak LLDP too");
        note(heard(Protocol::Lldp, "leaf-1", 120));
        let found = listener.collect(&root);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["eno1"]);
        assert_eq!((found["eno1"].len(), found["eno1"][0].protocol.as_str()), (1, "lldp"));
    }

    #[test]
    fn what_is_reported_depends_neither_on_the_order_nor_on_time() {
        let report = |all: &[Neighbour]| {
            let mut of_links = Heard::new();
            all.iter().for_each(|one| note(&mut of_links, 1, one.clone()));
            reported(&of_links[&1])
        };
        let all = ["b", "a"].map(|name| heard(Protocol::Lldp, name, 120));
        let [first, second] = all.clone();
        assert_eq!(chassis(&report(&all)), ["a", "b"]);
        let later = Neighbour { ttl_seconds: 90, ..second.clone() };
        assert_eq!(report(&[second.clone(), later, first]), report(&all));
        let leaves = Neighbour { ttl_seconds: 0, ..second.clone() };
        assert!(report(&[second, leaves]).is_empty());
        let many: Vec<_> = (0..50).map(|n| heard(Protocol::Lldp, &n.to_string(), 120)).collect();
        assert_eq!(report(&many).len(), MAX_NEIGHBOURS);
    }

    #[test]
    fn interfaces_are_made_to_hear_multicast() {
        let (_dir, root) = played();
        add(&root, "eno1", 1, "ixgbe", &[]);
        hear_multicast(&root, "eno1").unwrap();
        assert_eq!(root.text("sys/class/net/eno1/flags").as_deref(), Some("0x1203"));
        assert!(hear_multicast(&root, "eno9").is_err());
    }

    #[test]
    fn firmware_of_intels_700_series_stops_taking_lldp() {
        let (_dir, root) = played();
        add(&root, "eno1", 1, "i40e", &[]);
        add(&root, "eno2", 2, "ice", &[]);
        let commands = root.path("sys/kernel/debug/i40e/0000:3b:00.1");
        fs::create_dir_all(&commands).unwrap();
        stop_firmware_agents(&root, &links(&root));
        assert_eq!(fs::read_to_string(commands.join("command")).unwrap(), "lldp stop");
        let others = root.names("sys/kernel/debug/i40e");
        assert_eq!(others, ["0000:3b:00.1"], "the agent of ice would stay stopped for ever");
    }
}
