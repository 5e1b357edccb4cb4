//! The caching proxy: the concern `proxy` of racks, and the configuration of the region's own proxy.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use basalt_api::kinds::ProxyVia;
use basalt_api::values::Cidr;
use basalt_proto::rack_v1::{self, ProxyConcern};
use basalt_proxy::{Parent, Wanted};

use crate::driver::topology::estate::Estate;

/// Clients and forbidden destinations, the same for all racks. `regions` are the addresses of regions, `HOST:PORT`.
///
/// BMCs, regions and racks are forbidden destinations: they trust hosts by their networks.
pub(crate) fn concern(estate: &Estate, regions: &BTreeSet<String>) -> ProxyConcern {
    let settings = &estate.settings;
    let clients: BTreeSet<Cidr> =
        estate.nets.iter().filter(|net| net.subnet.allow_proxy).map(|net| net.subnet.cidr).collect();
    ProxyConcern {
        enabled: settings.proxy.enabled,
        clients: clients.iter().map(ToString::to_string).collect(),
        denied: denied(estate, regions),
        upstream: settings.proxy.upstream.as_ref().map(|url| url.canonical()).unwrap_or_default(),
        via: match settings.proxy.via {
            ProxyVia::Direct => rack_v1::ProxyVia::Unspecified,
            ProxyVia::PreferRegion => rack_v1::ProxyVia::PreferRegion,
            ProxyVia::Region => rack_v1::ProxyVia::Region,
        }
        .into(),
    }
}

/// Networks of BMCs, and addresses of regions and racks.
fn denied(estate: &Estate, regions: &BTreeSet<String>) -> Vec<String> {
    let regions = regions.iter().filter_map(|region| region.parse::<SocketAddr>().ok()).map(|at| at.ip());
    let racks = estate.racks.iter().flat_map(|rack| rack.addresses.iter().copied());
    let hosts: BTreeSet<IpAddr> = regions.chain(racks).collect();
    let hosts = hosts.into_iter().map(|host| format!("{host}/{}", if host.is_ipv4() { 32 } else { 128 }));
    estate.settings.bmc_networks.iter().map(ToString::to_string).chain(hosts).collect()
}

/// The configuration of this region's own proxy, which listens on `at` of this host, with its cache in `dir`. `None`: racks do not go
/// through regions, or there is no rack.
pub(crate) fn of_region(
    estate: &Estate,
    regions: &BTreeSet<String>,
    at: SocketAddr,
    dir: &Path,
) -> Option<Wanted> {
    let proxy = &estate.settings.proxy;
    if !proxy.enabled || proxy.via == ProxyVia::Direct || estate.racks.is_empty() {
        return None;
    }
    let parents = match &proxy.upstream {
        Some(url) => vec![Parent::parse(&url.canonical())?],
        None => Vec::new(),
    };
    Some(Wanted {
        name: "region".to_owned(),
        listen: vec![at],
        // Racks come through this process.
        clients: vec![IpAddr::from(Ipv4Addr::LOCALHOST).into()],
        connections_of_one: None,
        denied: Wanted::denied(denied(estate, regions).iter().filter_map(|net| net.parse().ok())),
        direct: parents.is_empty(),
        parents,
        dir: dir.to_owned(),
        cache_mib: 0,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use basalt_api::kinds::{ProxySettings, SettingsSpec};

    use super::*;
    use crate::driver::topology::samples::{estate, net, rack};

    #[test]
    fn clients_are_of_the_subnets_that_allow_it_and_bmcs_regions_and_racks_are_no_destinations() {
        let mut closed = net(2, "closed", "10.78.0.0/24");
        closed.subnet.allow_proxy = false;
        let mut estate =
            estate(vec![net(1, "lab", "10.77.0.0/24"), closed], vec![rack(1, "10.77.0.2", true)]);
        estate.settings = Arc::new(SettingsSpec {
            bmc_networks: ["10.9.0.0/24".parse().unwrap()].into(),
            proxy: ProxySettings {
                enabled: true,
                upstream: Some("http://proxy.example.com:3128".parse().unwrap()),
                via: ProxyVia::Region,
            },
            ..SettingsSpec::default()
        });
        let regions = ["192.0.2.1:5250", "region.example.com:5250"].map(str::to_owned).into();
        let told = ProxyConcern {
            enabled: true,
            clients: vec!["10.77.0.0/24".to_owned()],
            denied: ["10.9.0.0/24", "10.77.0.2/32", "192.0.2.1/32"].map(str::to_owned).into(),
            upstream: "http://proxy.example.com:3128".to_owned(),
            via: rack_v1::ProxyVia::Region.into(),
        };
        assert_eq!(concern(&estate, &regions), told);

        let at = SocketAddr::from(([127, 0, 0, 1], 4000));
        let own = |estate: &Estate| of_region(estate, &regions, at, Path::new("/proxy"));
        let wanted = own(&estate).unwrap();
        assert_eq!((wanted.listen, wanted.direct), (vec![at], false));
        assert_eq!(wanted.clients, vec!["127.0.0.1/32".parse().unwrap()], "other hosts come as racks");
        for address in ["10.9.0.7", "10.77.0.2", "192.0.2.1"].map(|it| it.parse::<IpAddr>().unwrap()) {
            assert!(wanted.denied.iter().any(|it| it.contains(&address)), "{address}");
        }
        let with = |change: fn(&mut ProxySettings)| {
            let mut settings = (*estate.settings).clone();
            change(&mut settings.proxy);
            own(&Estate { settings: Arc::new(settings), ..estate.clone() })
        };
        assert!(with(|it| it.upstream = None).unwrap().direct);
        assert_eq!(with(|it| it.via = ProxyVia::Direct), None);
        assert_eq!(with(|it| it.enabled = false), None);
        assert_eq!(own(&Estate { racks: Vec::new(), ..estate.clone() }), None, "nobody would ask");
    }
}
