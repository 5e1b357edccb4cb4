//! Explains why a rack had no subnet for a machine. A rack knows only the subnets that it is to serve. Only the region knows why a
//! declared subnet is not among them.

use crate::driver::answers::serving::Network;
use crate::driver::topology::network::racks_of;
use basalt_api::wire::{BootEntry, Judgement};
use std::net::IpAddr;

/// The code of the judgement that is explained here.
pub(super) const NO_SUBNET: &str = "no_subnet";

/// The reason why the rack had no subnet. `None` if no subnet is declared; then the rack's own message is complete.
pub(super) fn judge(entries: &[BootEntry], network: &Network) -> Option<Judgement> {
    let entry = entries.iter().rev().find(|entry| entry.reason.as_deref() == Some(NO_SUBNET))?;
    let address: IpAddr = entry.answered.split_whitespace().find_map(|word| word.parse().ok())?;
    let net = network.nets.iter().find(|net| net.subnet.cidr.contains(address))?;
    let (subnet, vlan, heard) = (&net.name, &net.subnet.vlan, &entry.rack);
    let is_declared = format!("it asks on the link of {address}, where Subnet {subnet:?} is declared");
    let say = |code: &str, why: String, to_do: String| {
        Some(Judgement { code: code.to_owned(), message: format!("{is_declared}; {why}"), to_do })
    };
    if !net.vlan.dhcp.enabled {
        let why = format!("Vlan {vlan} has DHCP off, so no rack answers there");
        return say("dhcp_off", why, format!("set dhcp.enabled of Vlan {vlan}"));
    }
    let named = &net.vlan.dhcp.racks;
    let names: Vec<&str> = named.iter().map(basalt_api::Ref::as_str).collect();
    if !names.is_empty() && !names.contains(&heard.as_str()) {
        let names = names.join(" and ");
        let why = format!("dhcp.racks of Vlan {vlan} names {names} alone, and {heard} heard it");
        let to_do = format!(
            "add {heard} to dhcp.racks of Vlan {vlan}, or leave dhcp.racks out; if {names} should have heard it, look at the VLAN of its port, \
             and at where its relay passes requests on to"
        );
        return say("rack_not_named", why, to_do);
    }
    let rack = network.racks.iter().find(|rack| rack.name == *heard)?;
    if rack.maintenance {
        let why = format!("rack {heard}, which heard it, is in maintenance, and answers nobody");
        return say(
            "rack_in_maintenance",
            why,
            format!("end the maintenance of {heard}, or have another rack serve Vlan {vlan}"),
        );
    }
    if racks_of(net, &network.nets, &network.racks).iter().any(|it| it.uid == rack.uid) {
        let why = format!("rack {heard} is to serve it, and had not been told when it asked");
        let to_do = format!(
            "have it boot again; if it stays so, see status.concerns and status.connected of Rack {heard}"
        );
        return say("rack_not_told", why, to_do);
    }
    let why =
        format!("rack {heard}, which heard it, has no address on Vlan {vlan}, and dhcp.racks names no rack");
    let to_do = format!(
        "behind a relay: name {heard} in dhcp.racks of Vlan {vlan}; otherwise give {heard} an address in {}",
        net.subnet.cidr
    );
    say("rack_not_there", why, to_do)
}
