//! The URL of the caching proxy for systems.

use std::net::IpAddr;

use crate::driver::topology::estate::Estate;
use crate::driver::topology::internal_domain;
use crate::driver::topology::network::Net;

/// The port on which racks serve the proxy.
const PORT: u16 = 8000;

/// The URL of the proxy for a system with these addresses, by its first subnet with a proxy. `asks_others`: the system has its own DNS
/// servers.
pub(crate) fn of_system(estate: &Estate, addresses: &[IpAddr], asks_others: bool) -> Option<String> {
    let inside = |address: IpAddr| estate.nets.iter().find(|net| net.subnet.cidr.contains(address));
    addresses.iter().copied().filter_map(inside).find_map(|net| of_subnet(estate, net, asks_others))
}

/// The URL of a subnet's proxy.
fn of_subnet(estate: &Estate, net: &Net, asks_others: bool) -> Option<String> {
    if !estate.settings.proxy.enabled || !net.subnet.allow_proxy {
        return None;
    }
    let serving = estate.racks.iter().filter(|rack| rack.serves_proxy && !rack.maintenance);
    let address = serving.flat_map(|rack| &rack.served).copied().find(|it| net.subnet.cidr.contains(*it))?;
    Some(format!(
        "http://{}",
        internal_domain::rack_for_system(estate, net, (address, PORT).into(), asks_others)
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use basalt_api::kinds::SettingsSpec;

    use super::*;
    use crate::driver::topology::samples::{estate, net, rack};

    #[test]
    fn a_system_is_told_the_racks_of_its_subnet_by_name_if_it_asks_them_and_one_of_them_has_the_proxy() {
        let addresses = ["10.99.0.1", "10.77.0.9"].map(|it| it.parse::<IpAddr>().unwrap());
        let told = |change: fn(&mut Net, &mut SettingsSpec), serves| {
            let (mut net, mut settings) = (net(1, "lab", "10.77.0.0/24"), SettingsSpec::default());
            change(&mut net, &mut settings);
            let mut estate =
                estate(vec![net], vec![rack(1, "10.77.0.2", false), rack(2, "10.77.0.3", serves)]);
            estate.settings = Arc::new(settings);
            of_system(&estate, &addresses, false)
        };
        let by_name = Some("http://lab.rack.basalt.internal:8000".to_owned());
        assert_eq!(told(|_, _| (), true), by_name);
        let other_dns = |net: &mut Net, _: &mut SettingsSpec| {
            net.subnet.dns_servers = Some(vec!["192.0.2.53".parse().unwrap()]);
        };
        assert_eq!(told(other_dns, true), Some("http://10.77.0.3:8000".to_owned()));
        assert_eq!(told(|_, _| (), false), None, "no rack has it");
        assert_eq!(told(|net, _| net.subnet.allow_proxy = false, true), None);
        assert_eq!(told(|_, settings| settings.proxy.enabled = false, true), None);
    }
}
