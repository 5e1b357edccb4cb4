//! Which hardware address the host at an IPv4 address has, as the kernel found out to speak with it.

use std::net::IpAddr;

use basalt_dhcp::Mac;

/// The kernel's table (proc(5)).
const TABLE: &str = "/proc/net/arp";
/// linux/if_arp.h: the entry is complete.
const ATF_COM: u32 = 2;

/// The hardware address of a host on a link of this one that has just been spoken with; `None` also of one behind a router, and of IPv6.
#[must_use]
pub fn mac_of(address: IpAddr) -> Option<Mac> {
    in_table(&std::fs::read_to_string(TABLE).ok()?, address)
}

fn in_table(table: &str, address: IpAddr) -> Option<Mac> {
    table.lines().skip(1).find_map(|line| {
        let mut columns = line.split_whitespace();
        let is_it = columns.next()?.parse::<IpAddr>().ok()? == address;
        let flags = u32::from_str_radix(columns.nth(1)?.strip_prefix("0x")?, 16).ok()?;
        let mac = columns.next()?.parse().ok()?;
        (is_it && flags & ATF_COM != 0).then_some(mac)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_entries_say_a_mac() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
            10.9.0.50        0x1         0x2         52:54:00:00:00:01     *        rack0\n\
            10.9.0.51        0x1         0x0         00:00:00:00:00:00     *        rack0\n";
        let mac = |address: &str| in_table(table, address.parse().unwrap()).map(|mac| mac.to_string());
        assert_eq!(mac("10.9.0.50").as_deref(), Some("52:54:00:00:00:01"));
        assert_eq!((mac("10.9.0.51"), mac("10.9.0.5")), (None, None));
    }
}
