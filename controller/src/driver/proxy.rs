//! The caching proxy: the concern `proxy` of racks, the configuration of the region's own proxy, and the proxy's URL for installed
//! systems.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use basalt_api::kinds::ProxyVia;
use basalt_api::values::Cidr;
use basalt_proto::rack_v1::{self, ProxyConcern};
use basalt_proxy::{Parent, Wanted};

use super::estate::Net;
use super::load::Estate;
use super::zones;

/// The port on which racks serve the proxy.
const PORT: u16 = 8000;

/// Clients and forbidden destinations, the same for all racks. `regions` are the addresses of regions, `HOST:PORT`.
///
/// BMCs, regions and racks are forbidden destinations: they trust hosts by their networks.
pub(super) fn concern(estate: &Estate, regions: &BTreeSet<String>) -> ProxyConcern {
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

/// The URL of the proxy for a system with these addresses, by its first subnet with a proxy. `asks_others`: the system has its own DNS
/// servers.
pub(super) fn of_system(estate: &Estate, addresses: &[IpAddr], asks_others: bool) -> Option<String> {
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
    Some(format!("http://{}", zones::rack_for_system(estate, net, (address, PORT).into(), asks_others)))
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use basalt_api::kinds::{ProxySettings, SettingsSpec, SubnetSpec, VlanSpec};
    use basalt_api::values::Timestamp;

    use super::super::estate::RackSeen;
    use super::*;

    pub(in crate::driver) fn rack(number: u128, served: &str, serves_proxy: bool) -> RackSeen {
        let served: Vec<IpAddr> = vec![served.parse().unwrap()];
        RackSeen {
            uid: uuid::Uuid::from_u128(number).into(),
            name: format!("r{number}"),
            addresses: served.clone(),
            reached: served.clone(),
            answers_dns: served.iter().copied().collect(),
            served,
            maintenance: false,
            connected: None,
            linked_to: BTreeSet::new(),
            elsewhere: false,
            last_seen: Timestamp::UNIX_EPOCH,
            serves_proxy,
            takes_logs: Default::default(),
            gives_no_address: None,
            short: BTreeMap::new(),
        }
    }

    pub(in crate::driver) fn net(number: u128, name: &str, cidr: &str) -> Net {
        Net {
            uid: uuid::Uuid::from_u128(number).into(),
            name: name.to_owned(),
            subnet: SubnetSpec::new("lab.0".parse().unwrap(), cidr.parse().unwrap()),
            vlan: VlanSpec::new("lab".parse().unwrap(), 0),
            fabric_class: None,
        }
    }

    pub(in crate::driver) fn estate(nets: Vec<Net>, racks: Vec<RackSeen>) -> Estate {
        Estate {
            nets: nets.into(),
            routes: Arc::new([]),
            racks,
            images: Arc::new([]),
            tags: Arc::new([]),
            domains: Arc::new([]),
            settings: Arc::default(),
            settings_uid: None,
            unread: None,
        }
    }

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
