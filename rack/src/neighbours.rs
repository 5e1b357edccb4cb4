//! The hardware address of the host at an IPv4 address, from the kernel's ARP table.

use std::collections::HashMap;
use std::net::IpAddr;

use basalt_dhcp::Mac;

/// The file of the ARP table (proc(5)).
const TABLE: &str = "/proc/net/arp";
/// The flag of a complete entry, from linux/if_arp.h.
const ATF_COM: u32 = 2;

/// The hardware address of a host that this host has recently communicated with on a link. `None` for a host behind a
/// router, and for IPv6.
#[must_use]
pub fn mac_of(address: IpAddr) -> Option<Mac> {
    all().get(&address).copied()
}

/// All hosts in the table.
#[must_use]
pub fn all() -> HashMap<IpAddr, Mac> {
    std::fs::read_to_string(TABLE).map(|table| read(&table)).unwrap_or_default()
}

fn read(table: &str) -> HashMap<IpAddr, Mac> {
    let host = |line: &str| {
        let mut columns = line.split_whitespace();
        let address = columns.next()?.parse().ok()?;
        let flags = u32::from_str_radix(columns.nth(1)?.strip_prefix("0x")?, 16).ok()?;
        let mac = columns.next()?.parse().ok()?;
        (flags & ATF_COM != 0).then_some((address, mac))
    };
    table.lines().skip(1).filter_map(host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_entries_say_a_mac() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
            10.9.0.50        0x1         0x2         52:54:00:00:00:01     *        rack0\n\
            10.9.0.51        0x1         0x0         00:00:00:00:00:00     *        rack0\n";
        let known = read(table);
        let mac = |address: &str| known.get(&address.parse().unwrap()).map(ToString::to_string);
        assert_eq!(mac("10.9.0.50").as_deref(), Some("52:54:00:00:00:01"));
        assert_eq!((mac("10.9.0.51"), mac("10.9.0.5")), (None, None));
    }
}
