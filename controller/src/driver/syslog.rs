//! The racks to which installed systems send their logs.

use std::net::IpAddr;

use super::load::Estate;
use super::zones;

/// `HOST:PORT` for a system with these addresses, by its first subnet with a rack that accepts logs. `asks_others`: the system has its own
/// DNS servers.
pub(super) fn of_system(estate: &Estate, addresses: &[IpAddr], asks_others: bool) -> Option<String> {
    addresses.iter().find_map(|address| {
        let net = estate.nets.iter().find(|net| net.subnet.cidr.contains(*address))?;
        let racks = estate.racks.iter().filter(|rack| !rack.maintenance);
        let at = racks.flat_map(|rack| &rack.takes_logs).filter(|at| net.subnet.cidr.contains(at.ip()));
        // If a rack has several ports, the unprivileged one is used.
        let at = at.copied().max_by_key(|at| (at.port(), std::cmp::Reverse(at.ip())))?;
        Some(zones::rack_for_system(estate, net, at, asks_others))
    })
}

#[cfg(test)]
mod tests {
    use super::super::proxy::tests::{estate, net, rack};
    use super::*;

    #[test]
    fn a_system_is_told_the_port_without_privilege_of_a_rack_in_its_subnet_that_takes_logs() {
        let addresses = ["10.99.0.1", "10.77.0.9"].map(|it| it.parse::<IpAddr>().unwrap());
        let told = |ports: &[u16], maintenance, asks_others| {
            let mut rack = rack(1, "10.77.0.2", false);
            rack.takes_logs = ports.iter().map(|port| ([10, 77, 0, 2], *port).into()).collect();
            rack.maintenance = maintenance;
            of_system(&estate(vec![net(1, "lab", "10.77.0.0/24")], vec![rack]), &addresses, asks_others)
        };
        assert_eq!(told(&[514, 5247], false, false), Some("lab.rack.basalt.internal:5247".to_owned()));
        assert_eq!(told(&[514, 5247], false, true), Some("10.77.0.2:5247".to_owned()));
        assert_eq!(told(&[514], false, true), Some("10.77.0.2:514".to_owned()));
        assert_eq!((told(&[], false, false), told(&[5247], true, false)), (None, None));
    }
}
