//! The kernel's own IPv6 configuration: it receives router advertisements, makes addresses from their prefixes (SLAAC, RFC 4862), and
//! checks if another host has an address.

use std::fs;
use std::net::Ipv6Addr;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Settings of an interface, by file name.
const SETTINGS: [(&str, &str); 3] = [
    // Some stock images disable IPv6.
    ("disable_ipv6", "0"),
    ("accept_ra", "1"),
    ("autoconf", "1"),
];
/// Columns of `/proc/net/if_inet6` (linux/if_addr.h).
const SCOPE_GLOBAL: u8 = 0x00;
const SCOPE_LINK: u8 = 0x20;
const FAILED: u8 = 0x08;
const TENTATIVE: u8 = 0x40;
const PERMANENT: u8 = 0x80;

/// rtnetlink's numbers (linux/rtnetlink.h, linux/if_link.h).
const GET_LINK: u16 = 18;
const NEW_LINK: u16 = 16;
const REQUEST_DUMP: u16 = 0x301;
const FAMILY_INET6: u8 = 10;
const PROTOCOL_INFO: u16 = 12;
const INET6_FLAGS: u16 = 1;
/// Mask for the type of an attribute without its flags.
const TYPE_MASK: u16 = 0x3fff;
/// Interface flag: the last router advertisement had the M flag (include/net/if_inet6.h).
const MANAGED: u32 = 0x40;
/// Most datagrams of one answer. Each interface is one message of the answer.
const MAX_PARTS: usize = 256;

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The IPv6 address.
    pub address: Ipv6Addr,
    /// Prefix length in bits. The kernel needs it to find the address.
    pub prefix: u8,
    /// The interface's number.
    pub index: u32,
    /// True for `fe80::/10`. Other addresses are valid beyond the link.
    pub is_link_local: bool,
    /// True while the kernel checks if another host has the address.
    pub is_tentative: bool,
    /// True if another host has the address.
    pub is_taken: bool,
    /// True if the address has no lifetime: it does not come from a router.
    pub is_permanent: bool,
}

/// Makes the kernel listen to routers on this interface, and make addresses from their prefixes. Call it before the interface is up.
pub fn listen_to_routers(interface: &str) {
    for (name, value) in SETTINGS {
        set(interface, name, value);
    }
}

/// Makes the kernel add no address and no route from routers on this interface.
pub fn ignore_routers(interface: &str) {
    set(interface, "accept_ra", "0");
}

/// Stops addresses from announced prefixes. The interface has a leased address, by which the rack identifies the machine.
pub fn stop_making_addresses(interface: &str) {
    set(interface, "autoconf", "0");
}

/// Writes a setting. A kernel without IPv6 has no such file, and the message says so.
fn set(interface: &str, name: &str, value: &str) {
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/{name}"), value);
}

/// The addresses of an interface, also tentative ones. `None` if the kernel has no IPv6.
#[must_use]
pub fn addresses(interface: &str) -> Option<Vec<Address>> {
    // `thread-self`, since `self` is the main thread, which may be in another network namespace.
    fs::read_to_string("/proc/thread-self/net/if_inet6").ok().map(|text| listed(&text, interface))
}

fn listed(text: &str, interface: &str) -> Vec<Address> {
    let address = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let octets = u128::from_str_radix(words.next()?, 16).ok()?;
        let index = u32::from_str_radix(words.next()?, 16).ok()?;
        let prefix = u8::from_str_radix(words.next()?, 16).ok()?;
        let scope = u8::from_str_radix(words.next()?, 16).ok()?;
        let flags = u8::from_str_radix(words.next()?, 16).ok()?;
        (words.next() == Some(interface) && matches!(scope, SCOPE_GLOBAL | SCOPE_LINK)).then_some(Address {
            address: octets.into(),
            prefix,
            index,
            is_link_local: scope == SCOPE_LINK,
            is_tentative: flags & TENTATIVE != 0,
            is_taken: flags & FAILED != 0,
            is_permanent: flags & PERMANENT != 0,
        })
    };
    text.lines().filter_map(address).collect()
}

/// True if the last router advertisement said that addresses come by DHCPv6 (the M flag, RFC 4861 §4.2).
#[must_use]
pub fn is_managed(index: u32) -> bool {
    flags(index).is_ok_and(|flags| flags.is_some_and(|flags| flags & MANAGED != 0))
}

fn flags(index: u32) -> rustix::io::Result<Option<u32>> {
    // Without a protocol: NETLINK_ROUTE is 0.
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut request = Vec::with_capacity(32);
    request.extend(32u32.to_ne_bytes());
    request.extend(GET_LINK.to_ne_bytes());
    request.extend(REQUEST_DUMP.to_ne_bytes());
    request.extend([0; 8]);
    request.push(FAMILY_INET6);
    request.resize(32, 0);
    rustix::net::sendto(&socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut buffer = vec![0; 64 * 1024];
    for _ in 0..MAX_PARTS {
        let (_, length) = rustix::net::recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        let part = buffer.get(..length).unwrap_or_default();
        match found(part, index) {
            Found::Flags(flags) => return Ok(Some(flags)),
            Found::Nothing => {}
            Found::End => break,
        }
    }
    Ok(None)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Flags(u32),
    Nothing,
    End,
}

/// Searches the messages of one datagram from the kernel.
fn found(mut bytes: &[u8], index: u32) -> Found {
    while let Some((length, _)) = bytes.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_ne_bytes(*length)).unwrap_or(usize::MAX);
        let Some(message) = bytes.get(..length) else { return Found::End };
        let field = |range| message.get::<std::ops::Range<usize>>(range).unwrap_or_default();
        if field(4..6) != NEW_LINK.to_ne_bytes() {
            // The end of the list, or an error.
            return Found::End;
        }
        if field(20..24) == index.to_ne_bytes() {
            let attributes = message.get(32..).unwrap_or_default();
            let flags = attribute(attributes, PROTOCOL_INFO).and_then(|inner| attribute(inner, INET6_FLAGS));
            let flags = flags.and_then(|value| value.first_chunk().copied().map(u32::from_ne_bytes));
            return flags.map_or(Found::Nothing, Found::Flags);
        }
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
    }
    Found::Nothing
}

/// The value of an attribute. Each attribute starts at a multiple of four bytes.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (length, rest) = bytes.split_first_chunk::<2>()?;
        let (kind, _) = rest.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_ne_bytes(*length));
        let value = bytes.get(4..length)?;
        if u16::from_ne_bytes(*kind) & TYPE_MASK == wanted {
            return Some(value);
        }
        bytes = bytes.get(aligned(length)..)?;
    }
}

const fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_list_of_addresses() {
        let text = "fe80000000000000d0021efffe59dfda 03 40 20 c0     eth0\n\
                    20010db8000000000000000000000005 03 80 00 08     eth0\n\
                    20010db8000000000000000000000006 04 80 00 80     eth1\n\
                    00000000000000000000000000000001 01 80 10 80       lo\n";
        let [own, leased] = listed(text, "eth0").try_into().unwrap();
        assert_eq!((own.index, own.prefix), (3, 64));
        assert_eq!((own.is_link_local, own.is_tentative, own.is_permanent), (true, true, true));
        assert_eq!(leased.address, "2001:db8::5".parse::<Ipv6Addr>().unwrap());
        assert_eq!((leased.is_link_local, leased.is_tentative, leased.is_taken), (false, false, true));
        assert_eq!(listed("nonsense\n", "eth0"), []);
    }

    #[test]
    fn the_kernel_answers_for_every_interface_and_for_none_that_is_not_there() {
        let lo = fs::read_to_string("/sys/class/net/lo/ifindex").unwrap().trim().parse().unwrap();
        if addresses("lo").is_some() {
            assert!(flags(lo).unwrap().is_some());
        }
        assert!(!is_managed(lo));
        assert_eq!(flags(u32::MAX).unwrap(), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            let _ = found(&bytes, 1);
            let _ = attribute(&bytes, INET6_FLAGS);
        }
    }
}
