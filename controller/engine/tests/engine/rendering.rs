//! Golden netplan files, seeds and tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use basalt_api::agent::{
    Disk, DnfRepository, Erase, EraseLevel, Install, Inventory, NEEDS_STORAGE, Nic, Packages, Repository,
    Script, TaskAction, Then, Wipe,
};
use basalt_api::kinds::{
    self, Addressing, InterfaceConfig, NetworkConfig, RouteConfig, StorageConfig, StorageLayout,
};
use basalt_api::values::{Attempt, ByteSize};
use basalt_engine::facts::InventorySeen;
use basalt_engine::plan::{EraseTask, TaskKind};
use basalt_engine::render::{Assigned, ComposeError, Context, Network, ReportTo, Route, compose, netplan};

use crate::world::{World, at, ready};

fn inventory() -> Inventory {
    let nic = |name: &str, mac: &str, boot| Nic {
        name: name.to_owned(),
        mac: mac.to_owned(),
        boot,
        link: true,
        ..Nic::default()
    };
    Inventory {
        nics: vec![
            nic("enp1s0", "52:54:00:00:00:01", true),
            nic("enp2s0", "52:54:00:00:00:02", false),
            nic("eth2", "52:54:00:00:00:03", false),
        ],
        disks: vec![Disk { name: "vda".to_owned(), serial: "S1".to_owned(), ..Disk::default() }],
        ..Inventory::default()
    }
}

fn interface(addressing: Addressing) -> InterfaceConfig {
    InterfaceConfig { addressing, ..InterfaceConfig::default() }
}

/// The networkd units that netplan itself generates from a file, as one text.
fn generated(network: &Network) -> String {
    let bring = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/lab/peer");
    let root = Command::new(bring).arg("netplan").output().expect("tests/lab/peer");
    assert!(root.status.success(), "{}", String::from_utf8_lossy(&root.stderr));
    let root = PathBuf::from(String::from_utf8(root.stdout).expect("a path").trim_end());
    let folder = tempfile::tempdir().expect("a folder");
    let etc = folder.path().join("etc/netplan");
    std::fs::create_dir_all(&etc).expect("a folder");
    std::fs::write(etc.join("50-basalt.yaml"), netplan::netplan(network)).expect("a file");
    let mut generate = Command::new(root.join("usr/libexec/netplan/generate"));
    generate.env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"));
    let said = generate.arg("--root-dir").arg(folder.path()).output().expect("netplan's generator");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let units = std::fs::read_dir(folder.path().join("run/systemd/network")).expect("units");
    let units: BTreeSet<_> = units.map(|unit| unit.expect("a unit").path()).collect();
    units.iter().map(|unit| std::fs::read_to_string(unit).expect("a unit")).collect()
}

/// Addresses of the rack's subnets, by purpose.
fn of_both_families(purposes: &[&str]) -> BTreeMap<String, Assigned> {
    let given = |purpose: &&str| {
        let (address, prefix_len, gateway, dns) = match purpose.ends_with("six") {
            true => ("2001:db8:77::20", 64, "2001:db8:77::1", "2001:db8:77::2"),
            false => ("10.77.0.20", 24, "10.77.0.1", "10.77.0.2"),
        };
        let given = Assigned {
            address: address.parse().unwrap(),
            prefix_len,
            gateway: Some(gateway.parse().unwrap()),
            dns_servers: vec![dns.parse().unwrap(), "2001:db8::53".parse().unwrap()],
            ntp_servers: Vec::new(),
            mtu: None,
            routes: Vec::new(),
            search_domains: Vec::new(),
        };
        ((*purpose).to_owned(), given)
    };
    purposes.iter().map(given).collect()
}

fn assigned() -> BTreeMap<String, Assigned> {
    let given = Assigned {
        address: "10.77.0.20".parse().unwrap(),
        prefix_len: 24,
        gateway: Some("10.77.0.1".parse().unwrap()),
        dns_servers: vec!["10.77.0.2".parse().unwrap()],
        ntp_servers: vec!["10.77.0.2".to_owned(), "ntp.example.com".to_owned()],
        mtu: Some(9000),
        routes: Vec::new(),
        search_domains: Vec::new(),
    };
    BTreeMap::from([("enp1s0".to_owned(), given)])
}

#[test]
fn nothing_declared_is_dhcp_on_the_interface_that_booted() {
    let network = Network::resolve(None, &inventory(), &BTreeMap::new()).unwrap();
    insta::assert_snapshot!(netplan::netplan(&network), @r#"
    network:
      version: 2
      renderer: networkd
      ethernets:
        "enp1s0":
          match:
            macaddress: "52:54:00:00:00:01"
          set-name: "enp1s0"
          dhcp4: true
          dhcp-identifier: mac
    "#);
}

#[test]
fn static_dhcp_and_bare_links_are_rendered() {
    let mut config = NetworkConfig::default();
    config.interfaces.insert("enp1s0".to_owned(), interface(Addressing::Auto));
    config.interfaces.insert("enp2s0".to_owned(), interface(Addressing::LinkUp));
    let mut by_mac = interface(Addressing::Dhcp);
    by_mac.mac = Some("52:54:00:00:00:03".parse().unwrap());
    config.interfaces.insert("uplink".to_owned(), by_mac);
    config.search = vec!["example.org".parse().unwrap()];
    let network = Network::resolve(Some(&config), &inventory(), &assigned()).unwrap();
    insta::assert_snapshot!(netplan::cloud_init(&network));
}

#[test]
fn bonds_bridges_vlans_and_routes_are_rendered() {
    let config: NetworkConfig = serde_json::from_value(serde_json::json!({
        "interfaces": {"first": {"mac": "52:54:00:00:00:02", "addressing": "link_up"},
            "eth2": {"addressing": "link_up"}},
        "bonds": {"bond0": {"members": ["eth2", "first"], "mode": "802.3ad", "lacp_rate": "fast",
            "hash_policy": "layer3+4", "addressing": "dhcp", "mtu": 9000}},
        "vlans": {"bond0.7": {"parent": "bond0", "vid": 7, "addressing": "link_up"}},
        "bridges": {"br0": {"members": ["bond0.7"], "addressing": "auto", "subnet": "lab"}},
        "routes": {"office": {"interface": "br0", "destination": "192.0.2.0/24", "gateway": "10.77.0.3", "metric": 50}},
    }))
    .unwrap();
    let given = BTreeMap::from([("br0".to_owned(), assigned()["enp1s0"].clone())]);
    let network = Network::resolve(Some(&config), &inventory(), &given).unwrap();
    insta::assert_snapshot!(netplan::netplan(&network));
}

#[test]
fn an_interface_of_both_families_has_the_gateways_and_dns_servers_of_both() {
    let config: NetworkConfig = serde_json::from_value(serde_json::json!({
        "interfaces": {
            "enp1s0": {"subnet": "lab", "addresses": {"six": {"subnet": "lab6"}}},
            "enp2s0": {"addressing": "dhcp", "addresses": {"by-dhcp": {"addressing": "dhcp6"}, "by-router": {"addressing": "slaac"}}},
            "eth2": {"subnet": "lab", "addresses": {"six": {"subnet": "lab6"}}},
        },
    }))
    .unwrap();
    let given = of_both_families(&["enp1s0", "enp1s0/six", "eth2", "eth2/six"]);
    let network = Network::resolve(Some(&config), &inventory(), &given).unwrap();
    let text = netplan::netplan(&network);
    assert_eq!((text.matches("0.0.0.0/0").count(), text.matches("::/0").count()), (1, 1), "{text}");
    insta::assert_snapshot!(text);

    let units = generated(&network);
    for line in ["Address=10.77.0.20/24", "Address=2001:db8:77::20/64"] {
        assert_eq!(units.lines().filter(|it| *it == line).count(), 2, "{line}\n{units}");
    }
    for line in ["Gateway=10.77.0.1", "Gateway=2001:db8:77::1", "DHCP=yes", "IPv6AcceptRA=yes"] {
        assert_eq!(units.lines().filter(|it| *it == line).count(), 1, "{line}\n{units}");
    }
}

/// The lines of netplan about the addresses of one interface.
fn addressed(text: &str, name: &str) -> Vec<String> {
    let of = text.lines().skip_while(|line| line.trim() != format!("{name:?}:")).skip(1);
    let of = of.take_while(|line| line.starts_with("      ")).map(str::trim);
    let made = [
        "match:",
        "macaddress:",
        "set-name:",
        "interfaces:",
        "parameters:",
        "mode:",
        "mii-",
        "stp:",
        "id:",
        "link:",
    ];
    of.filter(|line| !made.iter().any(|word| line.starts_with(word))).map(str::to_owned).collect()
}

#[test]
fn each_sort_of_interface_gets_its_addresses_in_each_way() {
    let ways: [(serde_json::Value, &[&str]); 10] = [
        (
            serde_json::json!({"addressing": "auto", "subnet": "lab"}),
            &["dhcp4: false", "addresses: [\"10.77.0.20/24\"]"],
        ),
        (
            serde_json::json!({"addressing": "static", "address": "10.77.0.20"}),
            &["dhcp4: false", "addresses: [\"10.77.0.20/24\"]"],
        ),
        (serde_json::json!({"addressing": "dhcp"}), &["dhcp4: true", "dhcp-identifier: mac"]),
        (serde_json::json!({"addressing": "dhcp6"}), &["dhcp4: false", "dhcp6: true"]),
        (serde_json::json!({"addressing": "slaac"}), &["dhcp4: false", "accept-ra: true"]),
        (serde_json::json!({"addressing": "link_up"}), &["dhcp4: false", "link-local: []", "optional: true"]),
        (
            serde_json::json!({"addressing": "dhcp", "accept_ra": false}),
            &["dhcp4: true", "dhcp-identifier: mac", "accept-ra: false"],
        ),
        (
            serde_json::json!({"addressing": "dhcp", "mtu": 1400}),
            &["dhcp4: true", "dhcp-identifier: mac", "mtu: 1400"],
        ),
        (
            serde_json::json!({"addressing": "dhcp", "addresses": {"one": {"addressing": "static", "address": "10.77.0.20"}}}),
            &["dhcp4: true", "dhcp-identifier: mac", "addresses: [\"10.77.0.20/24\"]"],
        ),
        (
            serde_json::json!({"addressing": "dhcp6", "addresses": {"one": {"addressing": "dhcp"}}}),
            &["dhcp4: true", "dhcp-identifier: mac", "dhcp6: true"],
        ),
    ];
    for (way, expected) in &ways {
        for (section, name, made_of) in [
            ("interfaces", "eth2", serde_json::json!({})),
            ("bonds", "it", serde_json::json!({"members": ["enp2s0"]})),
            ("bridges", "it", serde_json::json!({"members": ["enp2s0"]})),
            ("vlans", "it", serde_json::json!({"parent": "enp2s0", "vid": 7})),
        ] {
            let mut link = way.clone();
            link.as_object_mut().unwrap().extend(made_of.as_object().unwrap().clone());
            let mut network = serde_json::json!({"interfaces": {"enp2s0": {"addressing": "link_up"}}});
            network[section][name] = link;
            let config: NetworkConfig = serde_json::from_value(network).unwrap();
            let purposes = [name.to_owned(), format!("{name}/one")];
            let given = purposes.map(|purpose| given(&purpose, "10.77.0.20", 24, None));
            let network = Network::resolve(Some(&config), &inventory(), &BTreeMap::from(given)).unwrap();
            let text = netplan::netplan(&network);
            let mut said = addressed(&text, name);
            // A bridge and a VLAN in a subnet of the default MTU are told it.
            said.retain(|line| line != "mtu: 1500");
            assert_eq!(said, *expected, "{section} {way}\n{text}");
        }
    }
}

#[test]
fn networkd_takes_each_mode_of_a_bond_with_what_belongs_to_it() {
    let units = |bond: serde_json::Value| {
        let mut bond = bond;
        bond["members"] = serde_json::json!(["eth2"]);
        bond["addressing"] = serde_json::json!("dhcp");
        let network =
            serde_json::json!({"interfaces": {"eth2": {"addressing": "link_up"}}, "bonds": {"bond0": bond}});
        let config: NetworkConfig = serde_json::from_value(network).unwrap();
        generated(&Network::resolve(Some(&config), &inventory(), &BTreeMap::new()).unwrap())
    };
    let has = |bond: serde_json::Value, line: &str| {
        let said = units(bond.clone());
        assert!(said.lines().any(|it| it == line), "{bond}: {line}\n{said}");
    };
    let modes =
        ["active-backup", "balance-rr", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"];
    for mode in modes {
        has(serde_json::json!({"mode": mode, "link_check_ms": 200}), &format!("Mode={mode}"));
        has(serde_json::json!({"mode": mode, "link_check_ms": 200}), "MIIMonitorSec=200ms");
    }
    for rate in ["slow", "fast"] {
        let line = format!("LACPTransmitRate={rate}");
        has(serde_json::json!({"mode": "802.3ad", "lacp_rate": rate}), &line);
    }
    for policy in ["layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4"] {
        let line = format!("TransmitHashPolicy={policy}");
        has(serde_json::json!({"mode": "balance-xor", "hash_policy": policy}), &line);
    }
}

#[test]
fn declared_dns_servers_take_the_place_of_the_subnets() {
    let network = |more: serde_json::Value| {
        let mut network = serde_json::json!({"interfaces": {"enp1s0": {"subnet": "lab"}}});
        network.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let config: NetworkConfig = serde_json::from_value(network).unwrap();
        netplan::netplan(&Network::resolve(Some(&config), &inventory(), &assigned()).unwrap())
    };
    assert!(network(serde_json::json!({})).contains("addresses: [\"10.77.0.2\"]"));
    let said = network(serde_json::json!({"dns_servers": ["192.0.2.53"]}));
    assert!(said.contains("addresses: [\"192.0.2.53\"]") && !said.contains("\"10.77.0.2\""), "{said}");
    assert!(!network(serde_json::json!({"dns_servers": []})).contains("nameservers"));
}

#[test]
fn an_installed_system_has_the_static_routes_of_its_subnets_in_both_families() {
    let config: NetworkConfig = serde_json::from_value(serde_json::json!({
        "interfaces": {
            "enp1s0": {"subnet": "lab", "addresses": {"six": {"subnet": "lab6"}}},
            "enp2s0": {"subnet": "lab"},
        },
        "routes": {"own": {"interface": "enp1s0", "destination": "192.0.2.0/24", "gateway": "10.77.0.9"}},
    }))
    .unwrap();
    let route = |to: &str, via: &str, metric| Route {
        to: to.parse().unwrap(),
        via: via.parse().unwrap(),
        on_link: false,
        metric,
    };
    let four = vec![
        route("10.0.0.0/8", "10.77.0.7", Some(5)),
        route("192.0.2.0/24", "10.77.0.7", None),
        route("198.51.100.0/24", "169.254.0.1", None),
        // The system is in this network itself.
        route("2001:db8:77::/64", "10.77.0.7", None),
    ];
    let spare = vec![route("10.0.0.0/8", "10.77.0.8", Some(9)), route("10.0.0.0/8", "10.77.0.7", Some(5))];
    let six = vec![route("2001:db8:9::/48", "2001:db8:77::7", None)];
    let mut given = of_both_families(&["enp1s0", "enp1s0/six", "enp2s0"]);
    for (purpose, routes) in [("enp1s0", &four), ("enp1s0/six", &six), ("enp2s0", &spare)] {
        let given = given.get_mut(purpose).unwrap();
        (given.routes, given.gateway) = (routes.clone(), None);
    }
    let network = Network::resolve(Some(&config), &inventory(), &given).unwrap();
    let of = |name: &str| {
        let it = network.interfaces.iter().find(|it| it.name == name).unwrap();
        let words = |it: &Route| format!("{} {} {} {:?}", it.to, it.via, it.on_link, it.metric);
        it.routes.iter().map(words).collect::<Vec<_>>()
    };
    let expected = [
        "192.0.2.0/24 10.77.0.9 false None",
        "10.0.0.0/8 10.77.0.7 false Some(5)",
        "198.51.100.0/24 169.254.0.1 true None",
        "2001:db8:9::/48 2001:db8:77::7 false None",
    ];
    assert_eq!(
        of("enp1s0"),
        expected,
        "a declared route takes the place of the subnet's to the same network"
    );
    assert_eq!(
        of("enp2s0"),
        ["10.0.0.0/8 10.77.0.8 false Some(9)"],
        "the spare route of the second subnet, by its metric"
    );
    let units = generated(&network);
    for line in ["Metric=5", "Metric=9", "Destination=2001:db8:9::/48", "Gateway=2001:db8:77::7"] {
        assert_eq!(units.lines().filter(|it| *it == line).count(), 1, "{line}\n{units}");
    }
}

#[test]
fn a_declared_default_route_takes_the_place_of_the_gateway_of_its_family_alone() {
    let config: NetworkConfig = serde_json::from_value(serde_json::json!({
        "interfaces": {"enp1s0": {"addresses": {"six": {"subnet": "lab6"}}}},
        "routes": {"out": {"interface": "enp1s0", "destination": "::/0", "gateway": "2001:db8:77::fe"}},
    }))
    .unwrap();
    let given = of_both_families(&["enp1s0", "enp1s0/six"]);
    let text = netplan::netplan(&Network::resolve(Some(&config), &inventory(), &given).unwrap());
    assert_eq!((text.matches("0.0.0.0/0").count(), text.matches("::/0").count()), (1, 1), "{text}");
    assert!(text.contains(r#"via: "2001:db8:77::fe""#) && text.contains(r#"via: "10.77.0.1""#), "{text}");
}

#[test]
fn a_further_address_that_is_not_assigned_is_named() {
    let config: NetworkConfig = serde_json::from_value(serde_json::json!({
        "interfaces": {"enp1s0": {"addresses": {"six": {"subnet": "lab6"}}}},
    }))
    .unwrap();
    let error = Network::resolve(Some(&config), &inventory(), &assigned()).unwrap_err();
    let words = "interface enp1s0/six has no address yet";
    assert_eq!(error.to_string(), words);
}

#[test]
fn what_bonds_and_bridges_say_of_themselves_is_rendered() {
    let config: NetworkConfig = serde_json::from_value(serde_json::json!({
        "interfaces": {"first": {"mac": "52:54:00:00:00:02", "addressing": "link_up"},
            "eth2": {"addressing": "link_up"}, "enp1s0": {"addressing": "dhcp", "accept_ra": false}},
        "bonds": {"bond0": {"members": ["eth2", "first"], "primary": "first", "gratuitous_arps": 3, "up_delay_ms": 200,
            "down_delay_ms": 0, "mac": "52:54:00:AA:00:01", "addressing": "link_up"}},
        "bridges": {"br0": {"members": ["bond0"], "stp": true, "forward_delay_s": 4, "mac": "52:54:00:aa:00:02",
            "addressing": "dhcp", "accept_ra": true}},
    }))
    .unwrap();
    let network = Network::resolve(Some(&config), &inventory(), &BTreeMap::new()).unwrap();
    insta::assert_snapshot!(netplan::netplan(&network));

    let units = generated(&network);
    for line in [
        "UpDelaySec=200ms",
        "GratuitousARP=3",
        "PrimarySlave=true",
        "ForwardDelaySec=4",
        "IPv6AcceptRA=no",
        "IPv6AcceptRA=yes",
    ] {
        assert!(units.lines().any(|it| it == line), "{line}\n{units}");
    }
}

#[test]
fn a_declared_default_route_takes_the_place_of_the_gateway() {
    let mut config = NetworkConfig::default();
    config.interfaces.insert("enp1s0".to_owned(), interface(Addressing::Auto));
    let gateway = "10.77.0.254".parse().unwrap();
    let route = RouteConfig::new("enp1s0".to_owned(), "0.0.0.0/0".parse().unwrap(), gateway);
    config.routes.insert("out".to_owned(), route);
    let network = Network::resolve(Some(&config), &inventory(), &assigned()).unwrap();
    let text = netplan::netplan(&network);
    assert_eq!(text.matches("0.0.0.0/0").count(), 1, "{text}");
    assert!(text.contains("via: \"10.77.0.254\""), "{text}");
}

/// An address of a subnet, with its purpose.
fn given(purpose: &str, address: &str, prefix_len: u8, gateway: Option<&str>) -> (String, Assigned) {
    let given = Assigned {
        address: address.parse().unwrap(),
        prefix_len,
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        dns_servers: Vec::new(),
        ntp_servers: Vec::new(),
        mtu: None,
        routes: Vec::new(),
        search_domains: Vec::new(),
    };
    (purpose.to_owned(), given)
}

#[test]
fn a_router_outside_of_the_networks_of_an_interface_is_on_its_link() {
    let config: NetworkConfig = serde_json::from_value(serde_json::json!({
        "interfaces": {
            "enp1s0": {"subnet": "routed", "addresses": {"six": {"subnet": "routed6"}}},
            "enp2s0": {"subnet": "lab"},
        },
        "routes": {
            "near": {"interface": "enp2s0", "destination": "192.0.2.0/24", "gateway": "169.254.0.1"},
            "inside": {"interface": "enp2s0", "destination": "198.51.100.0/24", "gateway": "10.77.0.1"},
            "said": {"interface": "enp2s0", "destination": "100.64.0.0/10", "gateway": "10.79.0.1", "on_link": true},
        },
    }))
    .unwrap();
    let given = BTreeMap::from([
        given("enp1s0", "203.0.113.7", 32, Some("203.0.113.1")),
        given("enp1s0/six", "2001:db8:7::7", 128, Some("fe80::1")),
        given("enp2s0", "10.77.0.20", 24, None),
    ]);
    let network = Network::resolve(Some(&config), &inventory(), &given).unwrap();
    insta::assert_snapshot!(netplan::cloud_init(&network));
    let units = generated(&network);
    let on_link: Vec<_> = units.lines().filter(|line| *line == "GatewayOnLink=true").collect();
    assert_eq!(on_link.len(), 3, "{units}");
}

#[test]
fn a_network_that_contradicts_its_addresses_is_not_installed_and_a_system_that_runs_keeps_them() {
    let config: NetworkConfig = serde_json::from_value(serde_json::json!({
        "interfaces": {"enp1s0": {}, "enp2s0": {"addressing": "link_up", "mtu": 1500}},
        "vlans": {"v7": {"parent": "enp2s0", "vid": 7, "subnet": "jumbo"}},
        "routes": {"out": {"interface": "enp1s0", "destination": "0.0.0.0/0", "gateway": "10.78.0.1"}},
    }))
    .unwrap();
    let mut given =
        BTreeMap::from([given("enp1s0", "10.77.0.20", 24, None), given("v7", "10.79.0.20", 24, None)]);
    // The MTU of the Vlan was raised after the deployment.
    given.get_mut("v7").unwrap().mtu = Some(9000);
    let error = Network::resolve_checked(Some(&config), &inventory(), &given).unwrap_err();
    let words = "/network/vlans/v7/mtu: VLAN \"v7\" has MTU 9000, and \"enp2s0\", which carries it, 1500; \
                 mtu = 9000 at enp2s0 too, or at most 1500 here. \
                 /network/routes/out/gateway: the router 10.78.0.1 is in no network of interface \"enp1s0\": 10.77.0.0/24; \
                 a router in one of them; on_link = true if it is a neighbour on the link all the same";
    assert_eq!(error.to_string(), words);

    let shown = Network::resolve(Some(&config), &inventory(), &given).unwrap();
    let fixed = shown.interfaces.iter().filter_map(|it| it.addresses.as_ref()).flat_map(|it| &it.fixed);
    let addresses: Vec<_> = fixed.map(|it| it.address.to_string()).collect();
    assert_eq!(addresses, ["10.77.0.20", "10.79.0.20"]);
}

#[test]
fn vlans_and_bridges_of_the_default_mtu_are_told_it_or_the_less_that_is_below_them() {
    let rendered = |mtu: u32| {
        let config: NetworkConfig = serde_json::from_value(serde_json::json!({
            "interfaces": {"uplink": {"mac": "52:54:00:00:00:01", "addressing": "link_up", "mtu": mtu},
                "eth2": {"addressing": "link_up", "mtu": mtu}},
            "bridges": {"br0": {"members": ["uplink"], "addressing": "link_up"},
                "br1": {"members": ["eth2"], "subnet": "lab"}},
            "vlans": {"v7": {"parent": "br0", "vid": 7, "addressing": "link_up"},
                "v8": {"parent": "v7", "vid": 8, "subnet": "lab"}, "v9": {"parent": "uplink", "vid": 9, "subnet": "lab"}},
        }))
        .unwrap();
        let given = ["br1", "v8", "v9"].map(|name| given(name, "10.77.0.20", 24, None));
        let network = Network::resolve_checked(Some(&config), &inventory(), &BTreeMap::from(given)).unwrap();
        let mtus = network.interfaces.into_iter().map(|it| (it.name, it.mtu)).collect::<BTreeMap<_, _>>();
        ["enp1s0", "br0", "v7", "br1", "v8", "v9"].map(|name| mtus[name])
    };
    let jumbo = Some(9000);
    assert_eq!(rendered(9000), [jumbo, None, None, Some(1500), Some(1500), Some(1500)]);
    let small = Some(1400);
    assert_eq!(rendered(1400), [small, None, None, small, small, small]);
}

#[test]
fn a_network_that_does_not_fit_names_what_is_there() {
    let mut config = NetworkConfig::default();
    config.interfaces.insert("eno1".to_owned(), interface(Addressing::Dhcp));
    let error = Network::resolve(Some(&config), &inventory(), &BTreeMap::new()).unwrap_err();
    let words = "the machine has no interface eno1; it has enp1s0 (52:54:00:00:00:01), \
                 enp2s0 (52:54:00:00:00:02), eth2 (52:54:00:00:00:03)";
    assert_eq!(error.to_string(), words);
    config.interfaces = BTreeMap::from([("enp2s0".to_owned(), interface(Addressing::Static))]);
    let error = Network::resolve(Some(&config), &inventory(), &BTreeMap::new()).unwrap_err();
    assert_eq!(error.to_string(), "interface enp2s0 has no address yet");
}

#[test]
fn a_card_is_declared_under_one_name() {
    let by_mac =
        |mac: &str| InterfaceConfig { mac: Some(mac.parse().unwrap()), ..interface(Addressing::Dhcp) };
    let mut config = NetworkConfig::default();
    config.interfaces.insert("enp1s0".to_owned(), by_mac("52:54:00:00:00:02"));
    config.interfaces.insert("enp2s0".to_owned(), interface(Addressing::Dhcp));
    let error = Network::resolve(Some(&config), &inventory(), &BTreeMap::new()).unwrap_err();
    let words = "enp1s0 and enp2s0 are one interface of the machine, enp2s0; declare it once";
    assert_eq!(error.to_string(), words);
    // Two cards may exchange their names.
    config.interfaces.insert("enp2s0".to_owned(), by_mac("52:54:00:00:00:01"));
    let network = Network::resolve(Some(&config), &inventory(), &BTreeMap::new()).unwrap();
    let names: BTreeSet<_> = network.interfaces.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["enp1s0", "enp2s0"]));
}

#[test]
fn members_of_a_bond_are_different_cards() {
    let mac = Some("52:54:00:00:00:02".parse().unwrap());
    let mut config = NetworkConfig::default();
    config.interfaces.insert("first".to_owned(), InterfaceConfig { mac, ..interface(Addressing::LinkUp) });
    config.interfaces.insert("enp2s0".to_owned(), interface(Addressing::LinkUp));
    let bond = serde_json::json!({"members": ["first", "enp2s0"], "addressing": "dhcp"});
    config.bonds.insert("bond0".to_owned(), serde_json::from_value(bond).unwrap());
    let error = Network::resolve(Some(&config), &inventory(), &BTreeMap::new()).unwrap_err();
    let words = "enp2s0 and first are one interface of the machine, enp2s0; declare it once";
    assert_eq!(error.to_string(), words);
}

fn deployed() -> World {
    let mut world = World::new();
    let seen = InventorySeen { at: at(1), attempt: Attempt::new(100), inventory: inventory() };
    world.input.facts.inventory = Some(seen);
    world.deploy(|spec| {
        spec.user_data = Some("#cloud-config\npackages: [nginx]\n".to_owned());
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJhc2FsdCBleGFtcGxlIGtleSwgbm90IGEgcmVhbCAx ops";
        spec.ssh_keys.insert(key.parse().unwrap());
        spec.hostname = Some("web1".parse().unwrap());
        spec.kernel_options = Some("quiet".to_owned());
        spec.storage.disk = Some("S1".to_owned());
    });
    world
}

fn context() -> Context {
    let report = ReportTo { racks: vec!["http://10.77.0.1:5248".to_owned()], token: "TOKEN".to_owned() };
    Context { attempt: Attempt::new(7), not_after: at(60), report: Some(report), ..Context::default() }
}

#[test]
fn an_install_is_composed_from_spec_and_facts() {
    let world = deployed();
    let task = compose(&world.input, TaskKind::Install, &context()).unwrap();
    let TaskAction::Install(install) = &task.action else { panic!("{task:?}") };
    let seed = &install.seed;
    let text = format!(
        "disk: {:?}\nkernel_options: {}\nthen: {:?}\n--- meta-data\n{}--- user-data\n{}--- vendor-data\n{}--- network-config\n{}",
        install.disk,
        install.kernel_options,
        task.then,
        seed.meta_data,
        seed.user_data,
        seed.vendor_data,
        seed.network_config
    );
    insta::assert_snapshot!(text);
}

fn composed(world: &World) -> Install {
    let task = compose(&world.input, TaskKind::Install, &context()).unwrap();
    let TaskAction::Install(install) = task.action else { panic!("{task:?}") };
    *install
}

#[test]
fn what_older_agents_can_do_is_asked_of_them_as_ever_and_nothing_else_is() {
    let mut world = deployed();
    let flat = composed(&world);
    assert_eq!((flat.disk.name.as_deref(), &flat.storage), (Some("S1"), &None));
    world.respec(|spec| spec.storage.root_size = Some(ByteSize::new(8 << 30)));
    let sized = composed(&world);
    assert_eq!(sized.disk.name.as_deref(), Some("S1"));
    assert_eq!(sized.storage.unwrap().partitions["root"].size, Some(ByteSize::new(8 << 30)));
    world.respec(|spec| spec.storage.layout = StorageLayout::Lvm);
    let lvm = composed(&world);
    assert_eq!(lvm.disk.name.as_deref(), Some(NEEDS_STORAGE), "they would take any disk for it");
    let storage = lvm.storage.unwrap();
    assert_eq!(storage.layout, StorageLayout::Custom, "it is written out");
    assert_eq!(storage.disks["disk"].id.as_deref(), Some("S1"));
    assert_eq!(storage.volumes["root"].volume_group, "system");
}

#[test]
fn an_installed_system_is_told_its_proxy_its_repositories_and_where_its_log_goes() {
    let world = deployed();
    assert_eq!((composed(&world).packages, composed(&world).log_to), (None, None));
    let log_to = ["lab.rack.basalt.internal:5247", "10.77.0.2:5247"].map(str::to_owned).to_vec();
    let repositories = vec![Repository { name: "lab".to_owned(), ..Repository::default() }];
    let dnf = vec![DnfRepository { name: "rpms".to_owned(), ..DnfRepository::default() }];
    let packages = Packages { proxy: Some("http://10.77.0.2:8000".to_owned()), repositories, dnf };
    let context = Context { packages: packages.clone(), log_to: log_to.clone(), ..context() };
    let TaskAction::Install(install) = compose(&world.input, TaskKind::Install, &context).unwrap().action
    else {
        panic!("an install")
    };
    assert_eq!(install.packages, Some(Box::new(packages)));
    assert_eq!((install.log_to.as_ref(), &install.log_receivers), (log_to.first(), &log_to));
}

#[test]
fn a_task_with_scripts_has_the_proxy() {
    let world = deployed();
    let proxy = Some("http://10.77.0.2:8000".to_owned());
    let told = |scripts| {
        let context = Context { proxy: proxy.clone(), scripts, ..context() };
        compose(&world.input, TaskKind::Install, &context).unwrap().proxy
    };
    assert_eq!(told(Vec::new()), None, "nobody would use it");
    assert_eq!(told(vec![Script::default()]), proxy);
}

#[test]
fn search_domains_are_those_of_the_network_else_those_of_the_subnets_of_static_addresses() {
    let mut config = NetworkConfig::default();
    config.interfaces.insert("enp1s0".to_owned(), interface(Addressing::Auto));
    config.interfaces.insert("enp2s0".to_owned(), interface(Addressing::Dhcp));
    let mut assigned = assigned();
    assigned.get_mut("enp1s0").unwrap().search_domains = vec!["lab.example.com".to_owned()];
    let rendered = |config: &NetworkConfig| {
        let network = Network::resolve(Some(config), &inventory(), &assigned).unwrap();
        network.interfaces.iter().map(|it| it.search.join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(rendered(&config), ["lab.example.com", ""], "DHCP tells those of its subnet");
    let network = Network::resolve(Some(&config), &inventory(), &assigned).unwrap();
    let told = "nameservers:\n        addresses: [\"10.77.0.2\"]\n        search: [\"lab.example.com\"]\n";
    assert!(netplan::netplan(&network).contains(told), "{}", netplan::netplan(&network));
    config.search = vec!["example.org".parse().unwrap()];
    assert_eq!(rendered(&config), ["example.org", "example.org"]);
}

#[test]
fn an_installed_system_is_told_the_ntp_servers_of_its_assigned_addresses_once() {
    let mut world = deployed();
    assert_eq!(composed(&world).ntp_servers, [""; 0], "DHCP tells it");
    let claim = world.input.claim.as_mut().unwrap();
    let mut further = assigned()["enp1s0"].clone();
    further.ntp_servers = vec!["10.78.0.2".to_owned(), "ntp.example.com".to_owned()];
    claim.assigned = assigned().into_iter().chain([("enp2s0".to_owned(), further)]).collect();
    assert_eq!(composed(&world).ntp_servers, ["10.77.0.2", "ntp.example.com", "10.78.0.2"]);
}

#[test]
fn user_data_is_passed_on_byte_for_byte_and_its_absence_is_an_empty_config() {
    let mut world = deployed();
    let composed = |world: &World| {
        let task = compose(&world.input, TaskKind::Install, &context()).unwrap();
        let TaskAction::Install(install) = task.action else { panic!() };
        install.seed.user_data
    };
    assert_eq!(composed(&world), "#cloud-config\npackages: [nginx]\n");
    world.respec(|spec| spec.user_data = None);
    assert_eq!(composed(&world), "#cloud-config\n{}\n");
}

#[test]
fn a_task_says_what_may_be_wiped_and_how_disks_are_erased() {
    for (declared, asked) in [(kinds::Wipe::IfOurs, Wipe::IfOurs), (kinds::Wipe::Always, Wipe::Always)] {
        let mut world = deployed();
        world.respec(|spec| spec.wipe = declared);
        assert_eq!(composed(&world).wipe, asked);
        for (method, level) in [(EraseTask::Quick, EraseLevel::Quick), (EraseTask::Full, EraseLevel::Full)] {
            let task = compose(&world.input, TaskKind::Erase(method), &context()).unwrap();
            assert_eq!(task.action, TaskAction::Erase(Erase { level, wipe: asked }));
        }
    }
}

#[test]
fn kernel_options_of_image_machine_and_deployment_are_those_of_the_installed_system() {
    let mut world = deployed();
    world.remachine(|spec| spec.kernel_options = Some("isolcpus=2".to_owned()));
    world.input.claim.as_mut().unwrap().image.as_mut().unwrap().kernel_options = "rootwait".to_owned();
    assert_eq!(composed(&world).kernel_options, "rootwait isolcpus=2 quiet");
}

#[test]
fn a_machine_stays_on_after_its_inventory_where_it_says_so() {
    let mut world = World::new();
    let then = |world: &World| compose(&world.input, TaskKind::Inventory, &context()).unwrap().then;
    assert_eq!(then(&world), Then::PowerOff);
    world.remachine(|spec| spec.commissioning.keep_power = true);
    assert_eq!(then(&world), Then::Reboot);
    assert!(world.run(2, ready) && world.hardware.on, "{:?}", world.plan());
}

#[test]
fn a_deployment_without_storage_has_the_machine_s() {
    let mut world = deployed();
    world.respec(|spec| spec.storage = StorageConfig::default());
    let storage = StorageConfig { disk: Some("vda".to_owned()), ..StorageConfig::default() };
    world.remachine(|spec| spec.storage = Some(storage));
    assert_eq!(composed(&world).disk.name.as_deref(), Some("vda"));
    world.respec(|spec| spec.storage.disk = Some("S1".to_owned()));
    assert_eq!(composed(&world).disk.name.as_deref(), Some("S1"));
}

#[test]
fn a_destructive_task_needs_a_deployment() {
    let mut world = deployed();
    world.input.claim = None;
    let none = |kind| compose(&world.input, kind, &context()).unwrap_err();
    assert_eq!(none(TaskKind::Install), ComposeError::NoClaim);
    assert_eq!(none(TaskKind::Erase(EraseTask::Quick)), ComposeError::NoClaim);
    assert!(compose(&world.input, TaskKind::Inventory, &context()).is_ok());
}
