//! This host's network interfaces, and the addresses that the rack serves.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use basalt_dhcp::Mac;
use basalt_proto::rack_v1::Interface;
use ipnet::{Ipv4Net, Ipv6Net};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::LinkAddr;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use tokio::net::UdpSocket;

/// An interface whose clients are served.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Served {
    /// The name of the interface.
    pub interface: String,
    /// The kernel's index of the interface.
    pub index: u32,
    /// Its hardware address; `None` if it has no Ethernet frames.
    pub mac: Option<Mac>,
    /// The addresses that services are bound to; at least one.
    pub addresses: Vec<Ipv4Addr>,
}

/// An interface whose clients are served by DHCPv6.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Served6 {
    /// The name of the interface.
    pub interface: String,
    /// The kernel's index of the interface.
    pub index: u32,
    /// Its link-local addresses.
    pub link_local: Vec<Ipv6Addr>,
    /// Its other addresses, at least one.
    pub addresses: Vec<Ipv6Addr>,
}

/// A served interface's link-local address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// The interface's name.
    pub interface: String,
    /// The kernel's index of the interface.
    pub index: u32,
    /// The link-local address.
    pub address: Ipv6Addr,
}

/// The hardware type of Ethernet: ARPHRD_ETHER in linux/if_arp.h.
const ETHERNET: u16 = 1;

#[derive(Debug, Default)]
struct Found {
    is_up: bool,
    has_carrier: bool,
    mac: Option<Mac>,
    ethernet: bool,
    addresses: BTreeSet<Ipv4Net>,
    addresses6: BTreeSet<Ipv6Net>,
    link_local: BTreeSet<Ipv6Addr>,
}

fn list() -> io::Result<BTreeMap<String, Found>> {
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    for entry in getifaddrs()? {
        let interface = found.entry(entry.interface_name).or_default();
        interface.is_up |= entry.flags.contains(InterfaceFlags::IFF_UP);
        interface.has_carrier |= entry.flags.contains(InterfaceFlags::IFF_RUNNING);
        let Some(address) = entry.address else { continue };
        if let Some(link) = address.as_link_addr() {
            interface.mac = link.addr().map(Mac);
            interface.ethernet = link.hatype() == ETHERNET;
        } else if let Some(v4) = address.as_sockaddr_in() {
            let mask = entry.netmask.and_then(|mask| mask.as_sockaddr_in().map(|mask| mask.ip()));
            let network = Ipv4Net::with_netmask(v4.ip(), mask.unwrap_or(Ipv4Addr::BROADCAST));
            interface.addresses.extend(network);
        } else if let Some(v6) = address.as_sockaddr_in6() {
            let mask = entry.netmask.and_then(|mask| mask.as_sockaddr_in6().map(|mask| mask.ip()));
            let mask = mask.unwrap_or(Ipv6Addr::from(u128::MAX));
            match v6.ip() {
                ip if ip.is_unicast_link_local() => drop(interface.link_local.insert(ip)),
                ip if ip.is_loopback() => {}
                ip => interface.addresses6.extend(Ipv6Net::with_netmask(ip, mask)),
            }
        }
    }
    Ok(found)
}

/// The MTU of Ethernet, in bytes, used if the interface's own is unknown.
const ETHERNET_MTU: u16 = 1500;

/// The MTU of the interface that has this address, in bytes; at most 65,535.
#[must_use]
pub fn mtu(address: IpAddr) -> u16 {
    let has_it = |entry: &nix::ifaddrs::InterfaceAddress| {
        let Some(its) = &entry.address else { return false };
        let v4 = its.as_sockaddr_in().map(|it| IpAddr::from(it.ip()));
        v4.or_else(|| its.as_sockaddr_in6().map(|it| it.ip().into())) == Some(address)
    };
    let name = getifaddrs().ok().and_then(|mut all| all.find(has_it)).map(|entry| entry.interface_name);
    let text = name.and_then(|name| std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok());
    let mtu = text.and_then(|text| text.trim().parse::<u32>().ok());
    mtu.map_or(ETHERNET_MTU, |mtu| u16::try_from(mtu).unwrap_or(u16::MAX))
}

/// The VRF of an interface. The routes of its packets come from the VRF's table.
#[must_use]
pub fn vrf(interface: &str) -> Option<String> {
    let master = std::fs::canonicalize(format!("/sys/class/net/{interface}/master")).ok()?;
    let about = std::fs::read_to_string(master.join("uevent")).ok()?;
    let is_vrf = about.lines().any(|line| line == "DEVTYPE=vrf");
    is_vrf.then(|| master.file_name()?.to_str().map(str::to_owned)).flatten()
}

/// A socket for datagrams to hosts behind routers. It is bound to an address of the interface and not to the interface
/// itself, so the routing table decides the way. It receives nothing: datagrams from other interfaces must not be
/// served.
///
/// # Errors
/// `io::Error`: the socket cannot be opened or bound.
pub fn routed(interface: &str, from: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(from), Type::DGRAM, Some(Protocol::UDP))?;
    if from.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.attach_filter(&[DROP])?;
    if let Some(vrf) = vrf(interface) {
        socket.bind_device(Some(vrf.as_bytes()))?;
    }
    socket.bind(&from.into())?;
    UdpSocket::from_std(socket.into())
}

/// A BPF program that drops every packet: `BPF_RET | BPF_K` with 0 (linux/filter.h).
const DROP: SockFilter = SockFilter::new(0x06, 0, 0, 0);

/// Every interface with its addresses, for the rack's hello.
///
/// # Errors
/// `io::Error`: the interfaces cannot be listed.
pub fn describe() -> io::Result<Vec<Interface>> {
    let describe = |(name, it): (String, Found)| Interface {
        name,
        mac: it.mac.map(|mac| mac.to_string()).unwrap_or_default(),
        addresses: it
            .addresses
            .iter()
            .map(ToString::to_string)
            .chain(it.addresses6.iter().map(ToString::to_string))
            .collect(),
    };
    Ok(list()?.into_iter().map(describe).collect())
}

/// The current addresses of the named interfaces, without link-local ones. The flag is true if each interface has one.
///
/// # Errors
/// `io::Error`: the interfaces cannot be listed.
pub fn addresses(interfaces: &[String]) -> io::Result<(Vec<IpAddr>, bool)> {
    let found = list()?;
    let of = |name: &String| {
        let found = found.get(name)?;
        let v4 = found.addresses.iter().map(|it| IpAddr::from(it.addr()));
        let v6 = found.addresses6.iter().map(|it| IpAddr::from(it.addr()));
        Some(v4.chain(v6).collect::<Vec<_>>())
    };
    let of_each: Vec<Vec<IpAddr>> = interfaces.iter().map(|name| of(name).unwrap_or_default()).collect();
    let each_has_one = of_each.iter().all(|it| !it.is_empty());
    Ok((of_each.into_iter().flatten().collect(), each_has_one))
}

/// The reason why machines on a named interface cannot be served now, and the remedy. Interfaces without a problem are
/// left out.
///
/// # Errors
/// `io::Error`: the interfaces cannot be listed.
pub fn problems(interfaces: &[String]) -> io::Result<BTreeMap<String, String>> {
    let found = list()?;
    let problem = |name: &String| {
        let Some(it) = found.get(name) else {
            let others: Vec<&str> = found.keys().map(String::as_str).collect();
            return Some(format!(
                "there is no interface {name} on this host: name one of {} with --interface, or see why it is not there",
                others.join(", ")
            ));
        };
        match (it.is_up, it.has_carrier, it.addresses.is_empty() && it.addresses6.is_empty()) {
            (false, _, _) => {
                Some(format!("{name} is down, and nobody is served there: `ip link set {name} up`"))
            }
            (_, _, true) => Some(format!(
                "{name} has no IP address, and nobody is served there: give it one, as `ip address add ADDRESS/LENGTH dev {name}`"
            )),
            (_, false, _) => Some(format!(
                "{name} has no link, so that nobody is heard there: look at its cable and the port of the switch"
            )),
            _ => None,
        }
    };
    Ok(interfaces.iter().filter_map(|name| Some((name.clone(), problem(name)?))).collect())
}

/// The named interfaces that have an IPv4 address now.
///
/// # Errors
/// `io::Error`: the interfaces cannot be listed.
pub fn served(interfaces: &[String]) -> io::Result<BTreeSet<Served>> {
    let mut served = BTreeSet::new();
    for (name, found) in list()?.into_iter().filter(|(name, _)| interfaces.contains(name)) {
        let addresses: Vec<_> = found.addresses.iter().map(Ipv4Net::addr).collect();
        if !addresses.is_empty() {
            let (index, mac) = (if_nametoindex(name.as_str())?, found.mac.filter(|_| found.ethernet));
            served.insert(Served { interface: name, index, mac, addresses });
        }
    }
    Ok(served)
}

/// The named interfaces that have an IPv6 address now other than a link-local one.
///
/// # Errors
/// `io::Error`: the interfaces cannot be listed.
pub fn served6(interfaces: &[String]) -> io::Result<BTreeSet<Served6>> {
    let mut served = BTreeSet::new();
    for (name, found) in list()?.into_iter().filter(|(name, _)| interfaces.contains(name)) {
        let addresses: Vec<_> = found.addresses6.iter().map(Ipv6Net::addr).collect();
        if !addresses.is_empty() {
            let (index, link_local) =
                (if_nametoindex(name.as_str())?, found.link_local.into_iter().collect());
            served.insert(Served6 { interface: name, index, link_local, addresses });
        }
    }
    Ok(served)
}

/// The hardware address and index of an interface, as packet sockets need them for binding.
///
/// # Errors
/// `io::Error`: the interfaces cannot be listed, or the interface does not exist.
pub fn link_address(interface: &str) -> io::Result<LinkAddr> {
    let mut all = getifaddrs()?.filter(|entry| entry.interface_name == interface);
    let found = all.find_map(|entry| entry.address?.as_link_addr().copied());
    found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

/// The current link-local addresses of the named interfaces: one for each interface that has any and is served.
///
/// # Errors
/// `io::Error`: the interfaces cannot be listed.
pub fn links(interfaces: &[String]) -> io::Result<BTreeSet<Link>> {
    let mut links = BTreeSet::new();
    for (name, found) in list()?.into_iter().filter(|(name, _)| interfaces.contains(name)) {
        if let Some(address) = found.link_local.first().filter(|_| !found.addresses.is_empty()) {
            links.insert(Link { index: if_nametoindex(name.as_str())?, interface: name, address: *address });
        }
    }
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_loopback() {
        let served = served(&["lo".to_owned()]).unwrap();
        assert!(served.iter().any(|it| it.addresses.contains(&Ipv4Addr::LOCALHOST) && it.index > 0));
        assert_eq!(served.first().unwrap().mac, None, "loopback has no frames");
        let described = describe().unwrap();
        let lo = described.iter().find(|it| it.name == "lo").unwrap();
        assert!(lo.addresses.contains(&"127.0.0.1/8".to_owned()));
    }

    #[test]
    fn an_interface_that_is_not_there_is_told_with_those_that_are() {
        let problems = problems(&["lo".to_owned(), "nosuch0".to_owned()]).unwrap();
        assert_eq!(problems.keys().collect::<Vec<_>>(), ["nosuch0"]);
        let problem = &problems["nosuch0"];
        assert!(
            problem.starts_with("there is no interface nosuch0 on this host: name one of ")
                && problem.contains("lo"),
            "{problem}"
        );
    }

    #[test]
    fn an_interface_that_is_not_there_serves_nothing() {
        let named = ["lo".to_owned(), "nosuch0".to_owned()];
        assert!(served(&named[1..]).unwrap().is_empty());
        let localhost = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert!(addresses(&named[..1]).is_ok_and(|(of, each)| of.contains(&localhost) && each));
        assert!(addresses(&named).is_ok_and(|(of, each)| of.contains(&localhost) && !each));
    }

    #[test]
    fn the_mtu_is_that_of_the_interface_with_the_address() {
        assert_eq!(mtu(Ipv4Addr::LOCALHOST.into()), u16::MAX);
        assert_eq!(mtu(Ipv4Addr::new(192, 0, 2, 77).into()), ETHERNET_MTU, "nothing here has it");
    }
}
