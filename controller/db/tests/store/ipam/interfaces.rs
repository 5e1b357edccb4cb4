//! Addresses with another holder: an IpAddress with the machine's MAC, or a rack.

use super::{delete, has, owned, refused, subnet, wish};
use crate::common::{network, put, store};
use basalt_api::values::Uid;
use basalt_db::{AddressWish, Addressed};
use serde_json::json;

#[tokio::test]
async fn an_interface_has_the_address_that_an_ip_address_keeps_for_its_mac() {
    let store = store().await;
    network(&store).await;
    let lab = subnet(&store, "lab").await;
    let macs = ["52:54:00:00:00:01".to_owned(), "52:54:00:00:00:02".to_owned()];
    for (name, address, mac) in [("a", "10.77.0.20", &macs[0]), ("b", "10.77.0.30", &macs[1])] {
        put(&store, "IpAddress", name, json!({"subnet": "lab", "address": address, "mac": mac}))
            .await
            .unwrap();
    }
    let owner = put(&store, "Zone", "z", json!({})).await.unwrap().object.uid;
    let other = put(&store, "Zone", "other", json!({})).await.unwrap().object.uid;
    let of_its_mac = AddressWish { mac: Some(&macs[0]), machine_macs: &macs, ..wish(lab, owner, "eth0") };
    for _ in 0..2 {
        assert_eq!(store.own_address(&of_its_mac).await.unwrap(), owned("10.77.0.20"));
    }
    let named = AddressWish { address: "10.77.0.30".parse().ok(), purpose: "eth1", ..of_its_mac };
    assert_eq!(
        store.own_address(&named).await.unwrap(),
        owned("10.77.0.30"),
        "kept for the machine's other MAC"
    );
    let stranger = AddressWish { machine_macs: &[], mac: None, owner: other, ..named };
    let taken = r#"10.77.0.30 is the address of IpAddress "b" already"#.to_owned();
    assert_eq!(store.address_refusal(&stranger).await.unwrap(), Some(taken.clone()));
    assert_eq!(store.own_address(&stranger).await.unwrap(), Addressed::Refused(taken));
    assert_eq!(store.address_refusal(&of_its_mac).await.unwrap(), None);

    let seen = super::addresses(&store).await;
    let of = |uid: Uid| {
        let theirs = seen.iter().filter(move |address| address.owner == uid);
        theirs.map(|it| (it.purpose.as_str(), it.address.to_string(), it.mac.is_some())).collect::<Vec<_>>()
    };
    let expected = [("eth0", "10.77.0.20".to_owned(), false), ("eth1", "10.77.0.30".to_owned(), false)];
    assert_eq!(of(owner), expected, "DHCP's reservation stays the IpAddress's");
    let uses = store.subnet_use(&[lab.into()]).await.unwrap()[&lab.into()];
    assert_eq!((uses.ip_addresses, uses.deployments), (2, 0), "nothing is counted twice");

    // Without the IpAddress, the machine keeps the address, which now belongs to the deployment.
    delete(&store, "IpAddress", "a").await;
    put(&store, "IpAddress", "c", json!({"subnet": "lab"})).await.unwrap();
    assert_eq!(store.own_address(&of_its_mac).await.unwrap(), owned("10.77.0.20"));
    assert_eq!(store.subnet_use(&[lab.into()]).await.unwrap()[&lab.into()].deployments, 1);
    store.release_addresses(owner, &[]).await.unwrap();
    assert!(super::addresses(&store).await.iter().all(|address| address.owner != owner));
}

#[tokio::test]
async fn a_rack_s_own_address_belongs_to_nobody_else() {
    let store = store().await;
    network(&store).await;
    let lab = subnet(&store, "lab").await;
    let rack = put(&store, "Rack", "r1", json!({})).await.unwrap().object.uid;
    let hello = async |addresses: &[&str]| super::hello(&store, rack, addresses).await;
    hello(&["127.0.0.1/8", "10.77.0.2/24", "10.77.0.4/24", "10.77.0.1/24", "fe80::1/64", "nothing"]).await;
    let uses = store.subnet_use(&[lab.into()]).await.unwrap()[&lab.into()];
    assert_eq!((uses.racks, uses.gateways, uses.free), (2, 1, 251), "the gateway is counted as one");
    for (name, expected) in [("a", "10.77.0.3"), ("b", "10.77.0.5")] {
        put(&store, "IpAddress", name, json!({"subnet": "lab"})).await.unwrap();
        assert_eq!(has(&store, name).await, expected);
    }
    let named = |address: &str| json!({"subnet": "lab", "address": address});
    let range = |start: &str| json!({"subnet": "lab", "start": start, "end": "10.77.0.9"});
    let taken = r#"/address: 10.77.0.4 is the address of Rack "r1" already"#;
    assert_eq!(refused(&store, "IpAddress", "rack", named("10.77.0.4")).await, [taken]);
    put(&store, "IpAddress", "kept", named("10.77.0.20")).await.unwrap();
    assert_eq!(refused(&store, "IpAddress", "kept", named("10.77.0.4")).await, [taken]);
    delete(&store, "IpAddress", "b").await;
    let holds = r#"/start: 10.77.0.4-10.77.0.9 holds 10.77.0.4, the address of Rack "r1""#;
    assert_eq!(refused(&store, "IpRange", "pool", range("10.77.0.4")).await, [holds]);
    put(&store, "IpRange", "pool", range("10.77.0.5")).await.unwrap();
    let owner = put(&store, "Zone", "z", json!({})).await.unwrap().object.uid;
    let wish = AddressWish { address: "10.77.0.4".parse().ok(), ..wish(lab, owner, "eth0") };
    let why = r#"10.77.0.4 is the address of Rack "r1" already"#.to_owned();
    assert_eq!(store.own_address(&wish).await.unwrap(), Addressed::Refused(why));

    // The rack takes addresses that others hold: the others keep them.
    hello(&["10.77.0.20/24", "10.77.0.7/24"]).await;
    let mut spec = named("10.77.0.20");
    spec["hostname"] = json!("kept");
    put(&store, "IpAddress", "kept", spec).await.unwrap();
    let mut pool = range("10.77.0.5");
    pool["description"] = json!("as before");
    put(&store, "IpRange", "pool", pool).await.unwrap();
    put(&store, "IpAddress", "c", json!({"subnet": "lab"})).await.unwrap();
    assert_eq!(has(&store, "c").await, "10.77.0.2", "the rack has moved");
}

#[tokio::test]
async fn an_interface_does_not_get_an_address_that_a_rack_has_taken_from_an_ip_address() {
    let store = store().await;
    network(&store).await;
    let lab = subnet(&store, "lab").await;
    let mac = "52:54:00:00:00:01".to_owned();
    let kept = json!({"subnet": "lab", "address": "10.77.0.20", "mac": mac});
    put(&store, "IpAddress", "kept", kept).await.unwrap();
    let rack = put(&store, "Rack", "r1", json!({})).await.unwrap().object.uid;
    super::hello(&store, rack, &["10.77.0.20/24"]).await;
    let owner = put(&store, "Zone", "z", json!({})).await.unwrap().object.uid;
    let macs = [mac];
    let any = AddressWish { mac: Some(&macs[0]), machine_macs: &macs, ..wish(lab, owner, "eth0") };
    assert_eq!(store.own_address(&any).await.unwrap(), owned("10.77.0.2"), "the next free one");
    let exact = AddressWish { address: "10.77.0.20".parse().ok(), purpose: "eth1", ..any };
    let why = r#"10.77.0.20 is the address of Rack "r1" already"#.to_owned();
    assert_eq!(store.own_address(&exact).await.unwrap(), Addressed::Refused(why));
}
