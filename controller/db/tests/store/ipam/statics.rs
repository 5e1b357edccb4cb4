//! Static addresses of deployments' interfaces: checked when they are declared, and owned from then on.

use super::{delete, has, refused, subnet};
use crate::common::{machine, network, open, put, store};
use basalt_db::{Addressed, Key, Store};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

/// A range, an IpAddress, a Device, and a rack at 10.77.0.2.
pub(super) async fn taken(store: &Store) {
    network(store).await;
    let range = json!({"subnet": "lab", "start": "10.77.0.100", "end": "10.77.0.199"});
    put(store, "IpRange", "pool", range).await.unwrap();
    put(store, "IpAddress", "vip", json!({"subnet": "lab", "address": "10.77.0.20"})).await.unwrap();
    put(store, "Device", "printer", json!({"addresses": ["10.77.0.30"]})).await.unwrap();
    let rack = put(store, "Rack", "r1", json!({})).await.unwrap().object.uid;
    super::hello(store, rack, &["10.77.0.2/24"]).await;
    let image = json!({"os": "debian", "release": "12", "architecture": "amd64", "files": {}});
    put(store, "Image", "debian", image).await.unwrap();
}

pub(super) fn at(address: &str) -> Value {
    json!({"interfaces": {"eth0": {"addressing": "static", "subnet": "lab", "address": address}}})
}

/// A deployment on any machine.
pub(super) fn deployment(network: Value) -> Value {
    json!({"image": "debian", "selector": {}, "network": network})
}

#[tokio::test]
async fn a_static_address_is_judged_as_an_ip_address_is() {
    let store = store().await;
    taken(&store).await;
    put(&store, "Deployment", "first", deployment(at("10.77.0.40"))).await.unwrap();
    let cases = [
        ("10.78.0.5", "10.78.0.5 is outside 10.77.0.0/24 of Subnet \"lab\""),
        ("10.77.0.0", "10.77.0.0 is the network address of 10.77.0.0/24"),
        ("10.77.0.255", "10.77.0.255 is the broadcast address of 10.77.0.0/24"),
        ("10.77.0.1", "10.77.0.1 is the gateway of Subnet \"lab\" already"),
        ("10.77.0.2", "10.77.0.2 is the address of Rack \"r1\" already"),
        ("10.77.0.20", "10.77.0.20 is the address of IpAddress \"vip\" already"),
        ("10.77.0.30", "10.77.0.30 is the address of Device \"printer\" already"),
        ("10.77.0.40", "10.77.0.40 is the address of Deployment \"first\" already"),
        (
            "10.77.0.150",
            "10.77.0.150 is in 10.77.0.100-10.77.0.199 of IpRange \"pool\", which DHCP leases to whoever asks",
        ),
    ];
    for (address, message) in cases {
        let expected = [format!("/network/interfaces/eth0/address: {message}")];
        assert_eq!(refused(&store, "Deployment", "web", deployment(at(address))).await, expected);
        let further = json!({"interfaces": {"eth0": {"addressing": "dhcp", "addresses": {
            "more": {"addressing": "static", "subnet": "lab", "address": address}}}}});
        let expected = [format!("/network/interfaces/eth0/addresses/more/address: {message}")];
        assert_eq!(refused(&store, "Deployment", "web", deployment(further)).await, expected);
    }
    let mut nowhere = at("10.77.0.150");
    nowhere["interfaces"]["eth0"].as_object_mut().unwrap().remove("subnet");
    let all = refused(&store, "Deployment", "web", deployment(nowhere)).await;
    assert!(all[0].contains("of IpRange \"pool\""), "the subnet is found by the address: {all:?}");
    let mut m = machine("52:54:00:00:00:01");
    m["network"] = at("10.77.0.2");
    let expected = ["/network/interfaces/eth0/address: 10.77.0.2 is the address of Rack \"r1\" already"];
    assert_eq!(refused(&store, "Machine", "m", m).await, expected);
}

#[tokio::test]
async fn a_deployment_owns_its_static_address_before_it_has_a_machine() {
    let store = store().await;
    taken(&store).await;
    let web = put(&store, "Deployment", "web", deployment(at("10.77.0.3"))).await.unwrap().object.uid;
    put(&store, "IpAddress", "any", json!({"subnet": "lab"})).await.unwrap();
    assert_eq!(has(&store, "any").await, "10.77.0.4", "the next free one is another");
    let named = json!({"subnet": "lab", "address": "10.77.0.3"});
    let theirs = ["/address: 10.77.0.3 is the address of Deployment \"web\" already"];
    assert_eq!(refused(&store, "IpAddress", "x", named.clone()).await, theirs);

    // Once the deployment has a machine, the driver adds the host name for DHCP.
    let lab = subnet(&store, "lab").await;
    let wish = basalt_db::AddressWish {
        address: "10.77.0.3".parse().ok(),
        hostname: Some("web"),
        ..super::wish(lab, web, "eth0")
    };
    assert_eq!(store.own_address(&wish).await.unwrap(), super::owned("10.77.0.3"));
    let all = super::addresses(&store).await;
    let own = all.iter().find(|it| it.owner == web).unwrap();
    assert_eq!(own.hostname.as_deref(), Some("web"));

    // An address that the deployment no longer declares is free at once.
    put(&store, "Deployment", "web", deployment(at("10.77.0.5"))).await.unwrap();
    put(&store, "IpAddress", "x", named).await.unwrap();
    delete(&store, "Deployment", "web").await;
    let other = put(&store, "Zone", "z", json!({})).await.unwrap().object.uid;
    let gone = store.get("Deployment", Key::Name("web")).await.is_err();
    let wish =
        basalt_db::AddressWish { address: "10.77.0.5".parse().ok(), ..super::wish(lab, other, "eth0") };
    let Addressed::Refused(why) = store.own_address(&wish).await.unwrap() else {
        assert!(gone);
        return;
    };
    assert!(!gone, "{why}");
    put(&store, "Deployment", "heir", deployment(at("10.77.0.5")))
        .await
        .expect("it waits until the other is gone");
}

#[tokio::test]
async fn an_address_that_an_ip_address_keeps_for_a_machine_is_for_its_deployments_alone() {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    taken(&store).await;
    let mut db = PgConnection::connect(&url).await.unwrap();
    for (name, mac) in [("m1", "52:54:00:00:00:01"), ("m2", "52:54:00:00:00:02")] {
        put(&store, "Machine", name, machine(mac)).await.unwrap();
        sqlx::query("update object set status = $2 where kind = 'Machine' and name = $1")
            .bind(name)
            .bind(json!({"inventory": {"interfaces": {"eth0": {"mac": mac.to_uppercase()}}}}))
            .execute(&mut db)
            .await
            .unwrap();
    }
    let kept = json!({"subnet": "lab", "address": "10.77.0.50", "mac": "52:54:00:00:00:01"});
    put(&store, "IpAddress", "kept", kept).await.unwrap();
    let on = |machine: &str| json!({"image": "debian", "machine": machine, "network": at("10.77.0.50")});
    let theirs =
        ["/network/interfaces/eth0/address: 10.77.0.50 is the address of IpAddress \"kept\" already"];
    assert_eq!(refused(&store, "Deployment", "b", on("m2")).await, theirs);
    put(&store, "Deployment", "a", on("m1")).await.unwrap();
    put(&store, "Deployment", "any", deployment(at("10.77.0.50")))
        .await
        .expect("its machine is not known yet");
}

#[tokio::test]
async fn a_network_is_compared_with_the_subnets_of_its_addresses() {
    let store = store().await;
    taken(&store).await;
    put(&store, "Vlan", "default.9", json!({"fabric": "default", "vid": 9, "mtu": 9000})).await.unwrap();
    put(&store, "Subnet", "jumbo", json!({"vlan": "default.9", "cidr": "10.79.0.0/24"})).await.unwrap();
    let routed = json!({"vlan": "default.9", "cidr": "203.0.113.7/32", "gateway": "203.0.113.1"});
    put(&store, "Subnet", "routed", routed).await.unwrap();
    let route = |subnet: &str, gateway: &str| {
        deployment(json!({"interfaces": {"eth0": {"subnet": subnet}},
            "routes": {"out": {"interface": "eth0", "destination": "0.0.0.0/0", "gateway": gateway}}}))
    };
    for (subnet, gateway) in [("lab", "10.77.0.9"), ("lab", "169.254.0.1"), ("routed", "203.0.113.1")] {
        put(&store, "Deployment", "web", route(subnet, gateway)).await.unwrap();
    }
    assert_eq!(
        refused(&store, "Deployment", "web", route("lab", "10.78.0.1")).await,
        [
            r#"/network/routes/out/gateway: the router 10.78.0.1 is in no network of interface "eth0": 10.77.0.0/24"#
        ]
    );
    let message =
        r#"/network/routes/out/gateway: the router is fd00::1, and interface "eth0" has no IPv6 address"#;
    let mut six = route("lab", "fd00::1");
    six["network"]["routes"]["out"]["destination"] = json!("::/0");
    assert_eq!(refused(&store, "Deployment", "web", six).await, [message]);

    let vlan = |subnet: &str| {
        let mut spec = machine("52:54:00:00:00:01");
        spec["network"] = json!({"interfaces": {"eth0": {"subnet": subnet}},
            "vlans": {"v9": {"parent": "eth0", "vid": 9, "addressing": "static", "address": "10.79.0.9"}}});
        spec
    };
    let message = r#"/network/vlans/v9/mtu: VLAN "v9" has MTU 9000, and "eth0", which carries it, 1500"#;
    assert_eq!(refused(&store, "Machine", "m", vlan("lab")).await, [message]);
    put(&store, "Machine", "m", vlan("jumbo")).await.unwrap();
}

#[tokio::test]
async fn a_machine_s_address_is_compared_with_those_of_deployments_on_other_machines() {
    let store = store().await;
    taken(&store).await;
    let with = |mac: &str, address: &str| {
        let mut spec = machine(mac);
        spec["network"] = at(address);
        spec
    };
    put(&store, "Machine", "m1", machine("52:54:00:00:00:01")).await.unwrap();
    let on = |machine: &str| json!({"image": "debian", "machine": machine});
    let mut first = on("m1");
    first["network"] = at("10.77.0.40");
    put(&store, "Deployment", "first", first).await.unwrap();
    let theirs = "10.77.0.40 is the address of Deployment \"first\" already";
    let at_machine = [format!("/network/interfaces/eth0/address: {theirs}")];
    assert_eq!(refused(&store, "Machine", "m2", with("52:54:00:00:00:02", "10.77.0.40")).await, at_machine);
    put(&store, "Machine", "m1", with("52:54:00:00:00:01", "10.77.0.40"))
        .await
        .expect("it is its deployment's");

    // A deployment without a network gets the addresses of its machine.
    put(&store, "Machine", "m2", with("52:54:00:00:00:02", "10.77.0.41")).await.unwrap();
    put(&store, "Deployment", "any", deployment(at("10.77.0.41"))).await.unwrap();
    let theirs = "/machine: 10.77.0.41 is the address of Deployment \"any\" already";
    assert_eq!(refused(&store, "Deployment", "second", on("m2")).await, [theirs]);
    let again = with("52:54:00:00:00:03", "10.77.0.41");
    let theirs = "/network/interfaces/eth0/address: 10.77.0.41 is the address of Machine \"m2\" already";
    assert_eq!(refused(&store, "Machine", "m3", again).await, [theirs]);
    let mut own = on("m2");
    own["network"] = at("10.77.0.42");
    put(&store, "Deployment", "second", own).await.expect("it has a network of its own");
    delete(&store, "Deployment", "second").await;
    put(&store, "Deployment", "any", deployment(at("10.77.0.43"))).await.unwrap();
    put(&store, "Deployment", "third", on("m2")).await.expect("the address is free");
}
