//! The internal domain: the names by which installed systems find the racks of their subnet.

use std::net::{IpAddr, SocketAddr};

use basalt_api::kinds::SettingsSpec;

use crate::driver::topology::estate::Estate;
use crate::driver::topology::network::{self, Net};

/// The internal domain, where the Settings name none.
const INTERNAL: &str = "basalt.internal";

/// True for the internal domain, and for names below and above it.
pub(crate) fn is_internal(settings: &SettingsSpec, name: &str) -> bool {
    let internal = internal_domain(settings);
    let below = |name: &str, domain: &str| name == domain || name.ends_with(&format!(".{domain}"));
    below(name, &internal) || below(&internal, name)
}

/// The name of the racks that are there in a subnet.
pub(crate) fn rack_name(settings: &SettingsSpec, net: &Net) -> String {
    format!("{}.rack.{}", net.name, internal_domain(settings))
}

/// The racks of a subnet for an installed system, as `HOST:PORT`. HOST is the name of the racks in the internal domain, so that the system
/// finds a rack that joins later. If the system asks DNS servers that do not know this name, the result is `at`, the address of one rack.
pub(crate) fn rack_for_system(estate: &Estate, net: &Net, at: SocketAddr, asks_others: bool) -> String {
    match asks_racks(estate, net, asks_others) {
        true => format!("{}:{}", rack_name(&estate.settings, net), at.port()),
        false => at.to_string(),
    }
}

/// The racks of an installed system with these addresses, as `HOST:PORT` by name. The first of its subnets with racks counts. `None`: it
/// has no such subnet, or asks DNS servers that do not know the name.
pub(crate) fn racks_by_name(
    estate: &Estate,
    addresses: &[IpAddr],
    port: u16,
    asks_others: bool,
) -> Option<String> {
    let served = |net: &Net| {
        let racks = estate.racks.iter().filter(|rack| !rack.maintenance);
        racks.flat_map(|rack| &rack.served).any(|at| net.subnet.cidr.contains(*at))
    };
    addresses.iter().find_map(|address| {
        let net = estate.nets.iter().find(|net| net.subnet.cidr.contains(*address))?;
        let knows = served(net) && asks_racks(estate, net, asks_others);
        knows.then(|| format!("{}:{port}", rack_name(&estate.settings, net)))
    })
}

/// True if systems of the subnet ask racks for names. `asks_others`: the system has its own DNS servers.
fn asks_racks(estate: &Estate, net: &Net, asks_others: bool) -> bool {
    !asks_others
        && net.subnet.dns_servers.is_none()
        && !network::name_servers(net, &estate.nets, &estate.racks, None).is_empty()
}

pub(crate) fn internal_domain(settings: &SettingsSpec) -> String {
    settings.internal_domain.as_ref().map_or(INTERNAL, |name| name.as_str()).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::topology::network::RackSeen;
    use crate::driver::topology::samples::{estate, net, rack};

    #[test]
    fn a_system_finds_racks_by_the_name_of_its_first_subnet_with_racks_if_it_asks_them_for_names() {
        let addresses = ["10.99.0.1", "10.78.0.9", "10.77.0.9"].map(|it| it.parse::<IpAddr>().unwrap());
        let told = |change: fn(&mut Net, &mut RackSeen), asks_others| {
            let (mut net_of_rack, mut rack) = (net(2, "lab", "10.77.0.0/24"), rack(1, "10.77.0.2", false));
            change(&mut net_of_rack, &mut rack);
            let estate = estate(vec![net(1, "behind", "10.78.0.0/24"), net_of_rack], vec![rack]);
            racks_by_name(&estate, &addresses, 5248, asks_others)
        };
        assert_eq!(told(|_, _| (), false), Some("lab.rack.basalt.internal:5248".to_owned()));
        assert_eq!(told(|_, _| (), true), None);
        let of_subnet = |net: &mut Net, _: &mut RackSeen| {
            net.subnet.dns_servers = Some(vec!["192.0.2.53".parse().unwrap()]);
        };
        assert_eq!(told(of_subnet, false), None);
        assert_eq!(told(|net, _| net.subnet.allow_dns = false, false), None, "racks do not answer it");
        assert_eq!(told(|_, rack| rack.maintenance = true, false), None);
    }
}
