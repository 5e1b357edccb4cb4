//! The process that holds a port of this host, found in /proc (proc(5)): the error `address already in use` does not
//! name it.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

/// A process that holds a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The process id.
    pub pid: u32,
    /// The name of its program.
    pub program: String,
}

/// A port's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// A UDP port.
    Udp,
    /// A TCP port that a process listens on.
    Tcp,
}

/// TCP_LISTEN of linux/tcp_states.h, in hexadecimal.
const LISTENS: &str = "0A";

/// The process that holds the port at this address or at all addresses. `None`: there is none, or this process may not
/// inspect it.
#[must_use]
pub fn of(protocol: Protocol, address: IpAddr, port: u16) -> Option<Holder> {
    let name = match (protocol, address) {
        (Protocol::Udp, IpAddr::V4(_)) => "udp",
        (Protocol::Udp, IpAddr::V6(_)) => "udp6",
        (Protocol::Tcp, IpAddr::V4(_)) => "tcp",
        (Protocol::Tcp, IpAddr::V6(_)) => "tcp6",
    };
    let sockets = |name: &str| fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
    // An IPv6 socket may accept IPv4 too.
    let both = sockets(&format!("{}6", name.trim_end_matches('6')));
    let inodes = inodes(&sockets(name), protocol, address, port);
    let either = inodes_of_all(&both, protocol, port);
    inodes.into_iter().chain(either).find_map(|inode| process(&format!("socket:[{inode}]")))
}

/// The error for a port that cannot be bound, with the process that holds it. `advice`: what else to do about that
/// process.
#[must_use]
pub fn refused(
    service: &str,
    protocol: Protocol,
    at: SocketAddr,
    error: &io::Error,
    advice: &str,
) -> io::Error {
    let holder = match error.kind() {
        io::ErrorKind::AddrInUse => of(protocol, at.ip(), at.port()),
        _ => None,
    };
    let holder = holder.map_or(String::new(), |Holder { pid, program }| {
        format!("; process {pid} ({program}) has it: end that program, {advice}")
    });
    io::Error::new(error.kind(), format!("cannot bind {service} on {at}: {error}{holder}"))
}

/// True if the process has this file open.
#[must_use]
pub fn has_open(pid: u32, file: &Path) -> bool {
    let Ok(file) = file.canonicalize() else { return false };
    open_files(pid).any(|open| open == file)
}

/// The inodes of the sockets that are bound to the port, at this address or at all addresses.
fn inodes(table: &str, protocol: Protocol, address: IpAddr, port: u16) -> Vec<String> {
    let is_wanted = |bound: &str| bound == hexadecimal(address) || bound.bytes().all(|byte| byte == b'0');
    rows(table, protocol, port)
        .filter(|(bound, _)| is_wanted(bound))
        .map(|(_, inode)| inode.to_owned())
        .collect()
}

fn inodes_of_all(table: &str, protocol: Protocol, port: u16) -> Vec<String> {
    inodes(table, protocol, Ipv4Addr::UNSPECIFIED.to_ipv6_compatible().into(), port)
}

/// The address and inode of each socket of the port.
fn rows(table: &str, protocol: Protocol, port: u16) -> impl Iterator<Item = (&str, &str)> {
    table.lines().skip(1).filter_map(move |line| {
        let mut columns = line.split_whitespace();
        let (address, bound) = columns.nth(1)?.split_once(':')?;
        let (state, inode) = (columns.nth(1)?, columns.nth(5)?);
        let is_wanted =
            u16::from_str_radix(bound, 16) == Ok(port) && (protocol == Protocol::Udp || state == LISTENS);
        is_wanted.then_some((address, inode))
    })
}

/// The address in the form of the tables: words of four bytes, each in this host's byte order.
fn hexadecimal(address: IpAddr) -> String {
    let octets = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let word = |word: &[u8]| word.try_into().map(u32::from_ne_bytes).unwrap_or_default();
    octets.chunks(4).map(|bytes| format!("{:08X}", word(bytes))).collect()
}

fn process(socket: &str) -> Option<Holder> {
    let entries = fs::read_dir("/proc").ok()?;
    let mut pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|&pid| open_files(pid).any(|open| open.as_os_str() == socket))?;
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(Holder { pid, program: program.trim().to_owned() })
}

fn open_files(pid: u32) -> impl Iterator<Item = std::path::PathBuf> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn this_process_is_found_by_the_ports_that_it_holds() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let six = TcpListener::bind("[::1]:0").unwrap();
        let everywhere = UdpSocket::bind("0.0.0.0:0").unwrap();
        let localhost = IpAddr::from([127, 0, 0, 1]);
        for (protocol, address, port) in [
            (Protocol::Tcp, localhost, tcp.local_addr().unwrap().port()),
            (Protocol::Udp, localhost, udp.local_addr().unwrap().port()),
            (Protocol::Udp, localhost, everywhere.local_addr().unwrap().port()),
            (Protocol::Tcp, "::1".parse().unwrap(), six.local_addr().unwrap().port()),
        ] {
            let holder = of(protocol, address, port).map(|holder| holder.pid);
            assert_eq!(holder, Some(std::process::id()), "{protocol:?} {address}");
        }
        let port = tcp.local_addr().unwrap().port();
        drop(tcp);
        assert_eq!(of(Protocol::Tcp, localhost, port), None);
    }

    #[test]
    fn a_port_that_another_program_has_is_refused_and_the_program_is_named() {
        let held = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = held.local_addr().unwrap();
        let error = UdpSocket::bind(at).unwrap_err();
        let told = refused("DNS", Protocol::Udp, at, &error, "or not").to_string();
        let named = format!("process {} (", std::process::id());
        assert!(told.contains(&named) && told.contains("end that program"), "{told}");
    }

    #[test]
    fn a_process_is_known_by_the_files_that_it_has_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let file = fs::File::create(&path).unwrap();
        assert!(has_open(std::process::id(), &path));
        drop(file);
        assert!(!has_open(std::process::id(), &path));
    }
}
