//! netplan (`/etc/netplan/*.yaml`), and cloud-init's network configuration version 2, which is the same below its root.

use std::fmt::Write;

use basalt_api::values::Mac;

use super::network::{Interface, MadeOf, Network};
use super::{list, quoted};

/// The file for `/etc/netplan`.
#[must_use]
pub fn netplan(network: &Network) -> String {
    let body = sections(network);
    let body: String = body.lines().map(|line| format!("  {line}\n")).collect();
    format!("network:\n  version: 2\n  renderer: networkd\n{body}")
}

/// The file `network-config` of a NoCloud seed.
#[must_use]
pub fn cloud_init(network: &Network) -> String {
    format!("version: 2\n{}", sections(network))
}

/// netplan's name for each kind of interface.
const SECTIONS: [&str; 4] = ["ethernets", "bonds", "bridges", "vlans"];

const fn section(made_of: &MadeOf) -> &'static str {
    let [ethernets, bonds, bridges, vlans] = SECTIONS;
    match made_of {
        MadeOf::Nic(_) => ethernets,
        MadeOf::Bond { .. } => bonds,
        MadeOf::Bridge { .. } => bridges,
        MadeOf::Vlan { .. } => vlans,
    }
}

fn sections(network: &Network) -> String {
    let mut out = String::new();
    for name in SECTIONS {
        let of: Vec<_> = network.interfaces.iter().filter(|it| section(&it.made_of) == name).collect();
        if !of.is_empty() {
            out.push_str(&format!("{name}:\n"));
        }
        of.into_iter().for_each(|interface| entry(&mut out, interface));
    }
    out
}

/// True for `eth0` and the like. The kernel gives these names in the order in which it finds the hardware. An interface cannot be renamed
/// to a name that another interface has. So an interface with such a name is not renamed: it keeps the name in the installed system.
fn kernel_name(name: &str) -> bool {
    name.strip_prefix("eth").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn entry(out: &mut String, interface: &Interface) {
    // Writing to a String cannot fail.
    let mut line = |indent: usize, text: &str| {
        let _ = writeln!(out, "{:indent$}{text}", "");
    };
    let name = quoted(&interface.name);
    line(2, &format!("{name}:"));
    made_of(&mut line, interface);
    match &interface.addresses {
        Some(addresses) => {
            line(4, &format!("dhcp4: {}", addresses.dhcp));
            if addresses.dhcp {
                // The rack knows its clients by their MAC addresses.
                line(4, "dhcp-identifier: mac");
            }
            if addresses.dhcp6 {
                line(4, "dhcp6: true");
            }
            let fixed = addresses.fixed.iter().map(|it| format!("{}/{}", it.address, it.prefix_len));
            if !addresses.fixed.is_empty() {
                line(4, &format!("addresses: {}", list(fixed)));
            }
        }
        None => {
            line(4, "dhcp4: false");
            line(4, "link-local: []");
            // The boot does not wait for an interface without an address.
            line(4, "optional: true");
        }
    }
    if let Some(accepts) = interface.accept_ra {
        line(4, &format!("accept-ra: {accepts}"));
    }
    routes(&mut line, interface);
    if let Some(mtu) = interface.mtu {
        line(4, &format!("mtu: {mtu}"));
    }
    if !interface.dns_servers.is_empty() || !interface.search.is_empty() {
        line(4, "nameservers:");
        if !interface.dns_servers.is_empty() {
            line(6, &format!("addresses: {}", list(&interface.dns_servers)));
        }
        if !interface.search.is_empty() {
            line(6, &format!("search: {}", list(&interface.search)));
        }
    }
}

/// Writes one indented line.
type Line<'a> = dyn FnMut(usize, &str) + 'a;

fn made_of(line: &mut Line<'_>, interface: &Interface) {
    match &interface.made_of {
        MadeOf::Nic(mac) => {
            line(4, "match:");
            line(6, &format!("macaddress: {}", quoted(mac)));
            if !kernel_name(&interface.name) {
                line(4, &format!("set-name: {}", quoted(&interface.name)));
            }
        }
        MadeOf::Bond { members, primary, config } => {
            line(4, &format!("interfaces: {}", list(members)));
            line(4, "parameters:");
            line(6, &format!("mode: {}", quoted(config.mode.as_str())));
            line(6, &format!("mii-monitor-interval: {}", config.link_check_ms));
            if let Some(rate) = config.lacp_rate {
                line(6, &format!("lacp-rate: {}", quoted(rate.as_str())));
            }
            if let Some(policy) = config.hash_policy {
                line(6, &format!("transmit-hash-policy: {}", quoted(policy.as_str())));
            }
            let numbers = [
                ("up-delay", config.up_delay_ms),
                ("down-delay", config.down_delay_ms),
                ("gratuitous-arp", config.gratuitous_arps.map(u32::from)),
            ];
            for (name, number) in numbers {
                if let Some(number) = number {
                    line(6, &format!("{name}: {number}"));
                }
            }
            if let Some(primary) = primary {
                line(6, &format!("primary: {}", quoted(primary)));
            }
            own_mac(line, config.mac);
        }
        MadeOf::Bridge { members, config } => {
            line(4, &format!("interfaces: {}", list(members)));
            line(4, "parameters:");
            line(6, &format!("stp: {}", config.stp));
            if let Some(seconds) = config.forward_delay_s {
                line(6, &format!("forward-delay: {seconds}"));
            }
            own_mac(line, config.mac);
        }
        MadeOf::Vlan { parent, vid } => {
            line(4, &format!("id: {vid}"));
            line(4, &format!("link: {}", quoted(parent)));
        }
    }
}

fn own_mac(line: &mut Line<'_>, mac: Option<Mac>) {
    if let Some(mac) = mac {
        line(4, &format!("macaddress: {}", quoted(&mac.to_string())));
    }
}

fn routes(line: &mut Line<'_>, interface: &Interface) {
    let fixed = interface.addresses.iter().flat_map(|addresses| &addresses.fixed);
    let defaults = fixed.filter_map(|it| Some((it.gateway?, it.on_link))).map(|(gateway, on_link)| {
        let all = if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        (all.to_owned(), gateway, on_link, None)
    });
    let declared = interface.routes.iter();
    let declared = declared.map(|route| (route.to.to_string(), route.via, route.on_link, route.metric));
    let routes: Vec<_> = defaults.chain(declared).collect();
    if !routes.is_empty() {
        line(4, "routes:");
    }
    for (to, via, on_link, metric) in routes {
        line(6, &format!("- to: {}", quoted(&to)));
        line(6, &format!("  via: {}", quoted(&via.to_string())));
        if on_link {
            line(6, "  on-link: true");
        }
        if let Some(metric) = metric {
            line(6, &format!("  metric: {metric}"));
        }
    }
}
