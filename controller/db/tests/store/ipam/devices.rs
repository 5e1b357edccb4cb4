//! Addresses of Devices are never allocated.

use super::{delete, has};
use crate::common::{migrated_to, network, open, put, store};
use basalt_db::{Store, StoreError};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor};

async fn device(store: &Store, name: &str, addresses: &[&str]) -> Result<(), Vec<(String, String)>> {
    said(put(store, "Device", name, json!({ "addresses": addresses })).await.map(drop))
}

async fn ip(store: &Store, name: &str, address: &str) -> Result<(), Vec<(String, String)>> {
    said(put(store, "IpAddress", name, json!({"subnet": "lab", "address": address})).await.map(drop))
}

fn said(result: Result<(), StoreError>) -> Result<(), Vec<(String, String)>> {
    match result {
        Ok(()) => Ok(()),
        Err(StoreError::Refused { errors }) => {
            Err(errors.into_iter().map(|error| (error.pointer, error.message)).collect())
        }
        Err(other) => panic!("{other}"),
    }
}

fn at(pointer: &str, message: &str) -> Result<(), Vec<(String, String)>> {
    Err(vec![(pointer.to_owned(), message.to_owned())])
}

/// The address that would be allocated next.
async fn next(store: &Store) -> String {
    put(store, "IpAddress", "next", json!({"subnet": "lab"})).await.expect("there is one");
    let next = has(store, "next").await;
    delete(store, "IpAddress", "next").await;
    next
}

async fn subnet(store: &Store, gateway: &str) {
    let spec = json!({"vlan": "default.0", "cidr": "10.77.0.0/24", "gateway": gateway});
    put(store, "Subnet", "lab", spec).await.expect("the subnet");
}

#[tokio::test]
async fn what_a_device_has_is_given_to_nobody_until_it_has_it_no_more() {
    let store = store().await;
    network(&store).await;
    device(&store, "printer", &["10.77.0.2", "fd00::2", "10.77.0.3"]).await.unwrap();
    assert_eq!(next(&store).await, "10.77.0.4");
    let is_a_printer = r#"10.77.0.3 is the address of Device "printer" already"#;
    assert_eq!(ip(&store, "a", "10.77.0.3").await, at("/address", is_a_printer));
    assert_eq!(device(&store, "other", &["10.77.0.9", "10.77.0.3"]).await, at("/addresses/1", is_a_printer));
    device(&store, "printer", &["10.77.0.3"]).await.unwrap();
    assert_eq!(next(&store).await, "10.77.0.2");
    delete(&store, "Device", "printer").await;
    ip(&store, "a", "10.77.0.3").await.expect("it went with the device");
    let is_an_ip = r#"10.77.0.3 is the address of IpAddress "a" already"#;
    assert_eq!(device(&store, "printer", &["10.77.0.3"]).await, at("/addresses/0", is_an_ip));
}

#[tokio::test]
async fn an_address_that_dhcp_leases_or_that_no_host_has_is_no_device_s() {
    let store = store().await;
    network(&store).await;
    device(&store, "printer", &["10.77.0.60"]).await.unwrap();
    let pool = |start: &str| json!({"subnet": "lab", "start": start, "end": "10.77.0.99"});
    let refused = said(put(&store, "IpRange", "pool", pool("10.77.0.50")).await.map(drop));
    let holds = r#"10.77.0.50-10.77.0.99 holds 10.77.0.60, the address of Device "printer""#;
    assert_eq!(refused, at("/start", holds));
    put(&store, "IpRange", "pool", pool("10.77.0.70")).await.unwrap();
    let (_, leased) = device(&store, "copier", &["10.77.0.70"]).await.unwrap_err().remove(0);
    assert!(leased.contains(r#"of IpRange "pool", which DHCP leases to whoever asks"#), "{leased}");
    let edge = "10.77.0.255 is the broadcast address of 10.77.0.0/24";
    assert_eq!(device(&store, "copier", &["10.77.0.255"]).await, at("/addresses/0", edge));
}

#[tokio::test]
async fn a_rack_s_own_address_is_no_device_s_unless_the_device_had_it_before() {
    let store = store().await;
    network(&store).await;
    device(&store, "old", &["10.77.0.4"]).await.unwrap();
    let rack = put(&store, "Rack", "r1", json!({})).await.unwrap().object.uid;
    super::hello(&store, rack, &["10.77.0.2/24", "10.77.0.4/24", "10.77.0.1/24"]).await;
    let is_the_rack = r#"10.77.0.2 is the address of Rack "r1" already"#;
    assert_eq!(device(&store, "new", &["10.77.0.9", "10.77.0.2"]).await, at("/addresses/1", is_the_rack));
    device(&store, "router", &["10.77.0.1"]).await.expect("the Subnet has the gateway's address");
    device(&store, "old", &["10.77.0.4", "10.77.0.6"]).await.expect("it had the address before the rack");
    assert_eq!(device(&store, "old", &["10.77.0.4", "10.77.0.2"]).await, at("/addresses/1", is_the_rack));
    let is_owned = async || {
        let all = super::addresses(&store).await;
        all.iter().any(|it| it.address.to_string() == "10.77.0.4")
    };
    subnet(&store, "10.77.0.10").await;
    assert!(is_owned().await, "a change of the subnet takes no address from a device");
    assert_eq!(next(&store).await, "10.77.0.3");

    // The subnet comes back. The rack and the device were there before, and the address is the rack's.
    delete(&store, "Subnet", "lab").await;
    subnet(&store, "10.77.0.1").await;
    assert!(!is_owned().await);
}

#[tokio::test]
async fn a_gateway_may_be_a_device_s() {
    let store = store().await;
    network(&store).await;
    device(&store, "router", &["10.77.0.1"]).await.expect("the subnet says that it is its gateway");
    subnet(&store, "10.77.0.9").await;
    let is_the_router = r#"10.77.0.1 is the address of Device "router" already"#;
    assert_eq!(ip(&store, "a", "10.77.0.1").await, at("/address", is_the_router));
    subnet(&store, "10.77.0.1").await;
    assert_eq!(next(&store).await, "10.77.0.2", "the former gateway is nobody's, and this one is");
}

#[tokio::test]
async fn a_subnet_that_comes_finds_the_devices_in_it_and_none_keeps_it() {
    let store = store().await;
    device(&store, "printer", &["10.77.0.2"]).await.expect("in no subnet that anybody knows of");
    network(&store).await;
    assert_eq!(next(&store).await, "10.77.0.3");
    delete(&store, "Subnet", "lab").await;
    network(&store).await;
    assert_eq!(next(&store).await, "10.77.0.3");
}

#[tokio::test]
async fn where_fabrics_use_the_same_addresses_a_device_has_what_nobody_else_has() {
    let store = store().await;
    network(&store).await;
    put(&store, "Fabric", "other", json!({})).await.unwrap();
    put(&store, "Vlan", "other.0", json!({"fabric": "other", "vid": 0})).await.unwrap();
    put(&store, "Subnet", "elsewhere", json!({"vlan": "other.0", "cidr": "10.77.0.0/16"})).await.unwrap();
    let elsewhere = |address: &str| json!({"subnet": "elsewhere", "address": address});
    put(&store, "IpAddress", "a", elsewhere("10.77.0.5")).await.unwrap();
    device(&store, "printer", &["10.77.0.5", "10.77.0.6"]).await.expect("it is the one in lab");
    assert!(ip(&store, "b", "10.77.0.5").await.is_err());
    let taken = said(put(&store, "IpAddress", "b", elsewhere("10.77.0.6")).await.map(drop));
    assert!(taken.is_err(), "nobody knows in which of the two it is");
    assert!(device(&store, "copier", &["10.77.0.5"]).await.is_err(), "it is taken in both");
}

#[tokio::test]
async fn of_many_that_want_the_same_address_one_gets_it() {
    let store = store().await;
    network(&store).await;
    let tries: Vec<_> = (0..16)
        .map(|n| {
            let (store, name) = (store.clone(), format!("n{n}"));
            tokio::spawn(async move {
                match n % 2 {
                    0 => device(&store, &name, &["10.77.0.7"]).await,
                    _ => ip(&store, &name, "10.77.0.7").await,
                }
            })
        })
        .collect();
    let mut had = 0;
    for attempt in tries {
        had += usize::from(attempt.await.unwrap().is_ok());
    }
    assert_eq!(had, 1);
}

#[tokio::test]
async fn devices_and_their_subnet_may_come_in_any_order_and_at_once() {
    let store = store().await;
    put(&store, "Fabric", "default", json!({})).await.unwrap();
    put(&store, "Vlan", "default.0", json!({"fabric": "default", "vid": 0})).await.unwrap();
    let devices: Vec<_> = (2..18)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { device(&store, &format!("d{n}"), &[&format!("10.77.0.{n}")]).await })
        })
        .collect();
    subnet(&store, "10.77.0.1").await;
    for device in devices {
        device.await.unwrap().unwrap();
    }
    assert_eq!(next(&store).await, "10.77.0.18");
}

#[tokio::test]
async fn devices_of_before_have_what_was_free() {
    let (url, mut db) = migrated_to(13).await;
    let uid = |n: u32| format!("00000000-0000-0000-0000-{n:012}");
    let object = |n: u32, kind: &str, name: &str, spec: Value| {
        let uid = uid(n);
        format!("insert into object (uid, kind, name, spec) values ('{uid}', '{kind}', '{name}', '{spec}');")
    };
    let script = [
        object(1, "Subnet", "lab", json!({"vlan": "default.0", "cidr": "10.77.0.0/24"})),
        object(2, "IpAddress", "a", json!({"subnet": "lab"})),
        object(
            3,
            "Device",
            "printer",
            json!({"addresses": ["10.77.0.1", "10.77.0.2", "10.77.0.255", "fd00::1"]}),
        ),
        object(4, "Device", "copier", json!({"addresses": ["10.77.0.2", "10.77.0.3"]})),
        object(5, "Device", "switch", json!({"macs": ["52:54:00:00:00:01"]})),
        format!("insert into subnet_cidr values ('{}', '{}', '10.77.0.0/24');", uid(1), uid(1)),
        format!(
            "insert into address values ('{}', '10.77.0.1', '{}', 'static', null, null, now(), 'static');",
            uid(1),
            uid(2)
        ),
    ];
    db.execute(AssertSqlSafe(script.concat())).await.unwrap();
    let store = open(&url, [7; 32]).await.expect("it is migrated");
    assert_eq!(next(&store).await, "10.77.0.4");
}
