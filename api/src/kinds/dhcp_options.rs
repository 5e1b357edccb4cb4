//! DHCPv4 options by their number, as VLANs, subnets and machines declare them.

use std::collections::BTreeMap;

use crate::validate::Rule;

/// DHCP options that racks send or read themselves: mask, router, DNS servers, host name, MTU, broadcast address, NTP servers,
/// address and lease. Also message type and server, boot file, client and its architecture, search list, and the routes of RFC
/// 3442.
const OWN: [u8; 27] = [
    1, 3, 6, 12, 26, 28, 42, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 66, 67, 82, 93, 94, 97, 119, 121,
];

/// Reports the errors of the options at `pointer`.
pub(super) fn rules(options: &BTreeMap<String, String>, pointer: &str, rule: &mut Rule<'_>) {
    for (number, value) in options {
        let pointer = crate::pointer::child(pointer, number);
        match number.parse::<u8>().ok().filter(|n| (1..=254).contains(n) && n.to_string() == *number) {
            None => rule.broken(pointer, format!("{number:?} is no option's number"), "1 to 254, like 150"),
            Some(own) if OWN.contains(&own) => rule.broken(
                pointer,
                format!("racks send and read option {own} themselves"),
                "the field that says it: gateway, dns_servers, ntp_servers, search_domains, mtu, lease_time; or another option",
            ),
            Some(_) => {
                let hex = value.strip_prefix("hex:");
                let is_bytes = |hex: &str| hex.len().is_multiple_of(2) && hex.bytes().all(|b| b.is_ascii_hexdigit());
                let length = hex.map_or(value.len(), |hex| hex.len() / 2);
                if !hex.is_none_or(is_bytes) || !(1..=255).contains(&length) {
                    rule.broken(
                        pointer,
                        format!("{value:?} is no value of an option"),
                        "a text or address of 1 to 255 bytes, or bytes like hex:0a4d0001",
                    );
                }
            }
        }
    }
}
