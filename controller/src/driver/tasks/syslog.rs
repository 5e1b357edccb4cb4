//! The racks to which installed systems send their logs.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::driver::topology::estate::Estate;
use crate::driver::topology::internal_domain;

/// The receivers of the log of a system with these addresses, best first, as `HOST:PORT`: the racks by name, then each by its address. The
/// first of its subnets with a rack that accepts logs counts. `asks_others`: the system has its own DNS servers.
pub(crate) fn of_system(estate: &Estate, addresses: &[IpAddr], asks_others: bool) -> Vec<String> {
    let found = addresses.iter().find_map(|address| {
        let net = estate.nets.iter().find(|net| net.subnet.cidr.contains(*address))?;
        let racks = estate.racks.iter().filter(|rack| !rack.maintenance);
        let inside = racks.flat_map(|rack| &rack.takes_logs).filter(|at| net.subnet.cidr.contains(at.ip()));
        // If a rack has several ports, the unprivileged one is used.
        let ports: BTreeMap<IpAddr, u16> = inside.map(|at| (at.ip(), at.port())).collect();
        let ports = ports.into_iter().map(SocketAddr::from);
        let mut ports: Vec<SocketAddr> = ports.collect();
        ports.sort_by_key(|at| Reverse(at.port()));
        let best = internal_domain::rack_for_system(estate, net, *ports.first()?, asks_others);
        let others = ports.iter().map(ToString::to_string).filter(|it| *it != best);
        Some(std::iter::once(best.clone()).chain(others).collect::<Vec<_>>())
    });
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::topology::samples::{estate, net, rack};

    #[test]
    fn a_system_is_told_the_racks_of_its_subnet_that_take_logs_with_their_ports_without_privilege() {
        let addresses = ["10.99.0.1", "10.77.0.9"].map(|it| it.parse::<IpAddr>().unwrap());
        let told = |ports: &[u16], maintenance, asks_others| {
            let (mut first, mut second) = (rack(1, "10.77.0.2", false), rack(2, "10.77.0.3", false));
            first.takes_logs = ports.iter().map(|port| ([10, 77, 0, 2], *port).into()).collect();
            second.takes_logs = ports.iter().map(|port| ([10, 77, 0, 3], *port).into()).collect();
            second.maintenance = maintenance;
            let estate = estate(vec![net(1, "lab", "10.77.0.0/24")], vec![second, first]);
            of_system(&estate, &addresses, asks_others).join(" ")
        };
        let by_name = "lab.rack.basalt.internal:5247 10.77.0.2:5247 10.77.0.3:5247";
        assert_eq!(told(&[514, 5247], false, false), by_name);
        assert_eq!(told(&[514, 5247], false, true), "10.77.0.2:5247 10.77.0.3:5247");
        assert_eq!(told(&[514], true, true), "10.77.0.2:514");
        assert_eq!(told(&[], false, false), "");
    }
}
