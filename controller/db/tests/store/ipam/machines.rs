//! Static addresses of Machines' own interfaces: no two Machines have the same one, and nothing else gets one.

use super::statics::{at, deployment, taken};
use super::{delete, has, hello, refused, subnet, wish};
use crate::common::{machine, open, put, store};
use basalt_db::{AddressWish, Addressed, Store, StoreError};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

fn with(n: u8, network: Value) -> Value {
    let mut spec = machine(&format!("52:54:00:00:00:{n:02x}"));
    spec["network"] = network;
    spec
}

/// The network without the name of its subnet.
fn nowhere(address: &str) -> Value {
    json!({"interfaces": {"eth0": {"addressing": "static", "address": address}}})
}

async fn declare(store: &Store, n: u8, address: &str) {
    put(store, "Machine", &format!("m{n}"), with(n, at(address))).await.unwrap();
}

/// Writes several Machines in one transaction, and returns the errors.
async fn put_all(store: &Store, machines: &[(&str, Value)]) -> Result<(), Vec<String>> {
    match super::put_all(store, "Machine", machines).await {
        Ok(()) => Ok(()),
        Err(StoreError::Refused { errors }) => {
            Err(errors.into_iter().map(|e| format!("{}: {}", e.pointer, e.message)).collect())
        }
        Err(other) => panic!("{other:?}"),
    }
}

/// Removes a Machine as the driver does at the end of its deletion.
async fn gone(url: &str, machine: &str) {
    let mut db = PgConnection::connect(url).await.unwrap();
    let delete = sqlx::query("delete from object where kind = 'Machine' and name = $1");
    delete.bind(machine).execute(&mut db).await.unwrap();
}

const ETH0: &str = "/network/interfaces/eth0/address";

#[tokio::test]
async fn two_machines_never_have_the_same_address() {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    taken(&store).await;
    declare(&store, 1, "10.77.0.40").await;
    declare(&store, 1, "10.77.0.40").await;
    let theirs = [format!("{ETH0}: 10.77.0.40 is the address of Machine \"m1\" already")];
    assert_eq!(refused(&store, "Machine", "m2", with(2, at("10.77.0.40"))).await, theirs);
    assert_eq!(refused(&store, "Machine", "m2", with(2, nowhere("10.77.0.40"))).await, theirs);
    put(&store, "Machine", "m2", with(2, nowhere("10.77.0.41"))).await.unwrap();
    let theirs = [format!("{ETH0}: 10.77.0.41 is the address of Machine \"m2\" already")];
    assert_eq!(refused(&store, "Machine", "m3", with(3, at("10.77.0.41"))).await, theirs);
    let together = [("m4", with(4, at("10.77.0.44"))), ("m5", with(5, at("10.77.0.44")))];
    let errors = put_all(&store, &together).await.unwrap_err();
    assert_eq!(errors, [format!("{ETH0}: 10.77.0.44 is the address of Machine \"m4\" already")]);

    // An address that its Machine no longer declares is free at once.
    declare(&store, 1, "10.77.0.42").await;
    declare(&store, 3, "10.77.0.40").await;
    gone(&url, "m3").await;
    declare(&store, 4, "10.77.0.40").await;
    put(&store, "Machine", "m4", machine("52:54:00:00:00:04")).await.unwrap();
    declare(&store, 5, "10.77.0.40").await;
}

#[tokio::test]
async fn machines_of_one_batch_exchange_their_addresses() {
    let store = store().await;
    taken(&store).await;
    declare(&store, 1, "10.77.0.41").await;
    declare(&store, 2, "10.77.0.42").await;
    let swapped = [("m1", with(1, at("10.77.0.42"))), ("m2", with(2, at("10.77.0.41")))];
    put_all(&store, &swapped).await.unwrap();
    let theirs = [format!("{ETH0}: 10.77.0.41 is the address of Machine \"m2\" already")];
    assert_eq!(refused(&store, "Machine", "m1", with(1, at("10.77.0.41"))).await, theirs);
}

#[tokio::test]
async fn an_address_of_a_machine_is_given_to_no_other_object() {
    let store = store().await;
    taken(&store).await;
    declare(&store, 1, "10.77.0.3").await;
    let theirs = "10.77.0.3 is the address of Machine \"m1\" already";
    let named = json!({"subnet": "lab", "address": "10.77.0.3"});
    assert_eq!(refused(&store, "IpAddress", "x", named).await, [format!("/address: {theirs}")]);
    let device = json!({"addresses": ["10.77.0.3"]});
    assert_eq!(refused(&store, "Device", "d", device).await, [format!("/addresses/0: {theirs}")]);
    let lab = json!({"vlan": "default.0", "cidr": "10.77.0.0/24", "gateway": "10.77.0.3"});
    assert_eq!(refused(&store, "Subnet", "lab", lab).await, [format!("/gateway: {theirs}")]);
    let range = json!({"subnet": "lab", "start": "10.77.0.3", "end": "10.77.0.9"});
    let holds = "/start: 10.77.0.3-10.77.0.9 holds 10.77.0.3, the address of Machine \"m1\"";
    assert_eq!(refused(&store, "IpRange", "low", range).await, [holds]);
    put(&store, "Machine", "m2", machine("52:54:00:00:00:02")).await.unwrap();
    let on = |machine: &str| json!({"image": "debian", "machine": machine, "network": at("10.77.0.3")});
    assert_eq!(refused(&store, "Deployment", "web", on("m2")).await, [format!("{ETH0}: {theirs}")]);

    put(&store, "IpAddress", "any", json!({"subnet": "lab"})).await.unwrap();
    assert_eq!(has(&store, "any").await, "10.77.0.4", "the next free one is another");
    let zone = put(&store, "Zone", "z", json!({})).await.unwrap().object.uid;
    let lab = subnet(&store, "lab").await;
    let exact = AddressWish { address: "10.77.0.3".parse().ok(), ..wish(lab, zone, "eth0") };
    let why = Addressed::Refused("10.77.0.3 is the address of another Machine already".to_owned());
    assert_eq!(store.own_address(&exact).await.unwrap(), why);

    put(&store, "Deployment", "web", on("m1")).await.expect("the Deployment is on this Machine");
    put(&store, "Deployment", "web", on("m1")).await.unwrap();
    declare(&store, 1, "10.77.0.3").await;
    delete(&store, "Deployment", "web").await;
    put(&store, "Deployment", "any", deployment(at("10.77.0.3"))).await.expect("it may choose the Machine");
}

#[tokio::test]
async fn an_ip_address_with_a_mac_of_the_machine_keeps_its_address() {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    taken(&store).await;
    let mut db = PgConnection::connect(&url).await.unwrap();
    declare(&store, 1, "10.77.0.3").await;
    let kept = |mac: &str| json!({"subnet": "lab", "address": "10.77.0.3", "mac": mac});
    let (own, other) = ("52:54:00:00:00:01", "52:54:00:00:00:09");
    sqlx::query("update object set status = $1 where kind = 'Machine' and name = 'm1'")
        .bind(json!({"inventory": {"interfaces": {"eth0": {"mac": own}}}}))
        .execute(&mut db)
        .await
        .unwrap();
    let theirs = ["/address: 10.77.0.3 is the address of Machine \"m1\" already"];
    assert_eq!(refused(&store, "IpAddress", "x", kept(other)).await, theirs);
    put(&store, "IpAddress", "x", kept(own)).await.unwrap();
    assert_eq!(refused(&store, "IpAddress", "x", kept(other)).await, theirs, "it was for the Machine alone");
    declare(&store, 1, "10.77.0.3").await;
    gone(&url, "m1").await;
    put(&store, "IpAddress", "x", kept(other)).await.unwrap();
}

#[tokio::test]
async fn a_machine_keeps_an_address_that_it_had_before_the_rack() {
    let store = store().await;
    taken(&store).await;
    declare(&store, 1, "10.77.0.40").await;
    let rack = put(&store, "Rack", "r2", json!({})).await.unwrap().object.uid;
    hello(&store, rack, &["10.77.0.40/24", "10.77.0.41/24"]).await;
    let mut wider = at("10.77.0.40");
    wider["interfaces"]["eth1"] = json!({"addressing": "dhcp"});
    put(&store, "Machine", "m1", with(1, wider)).await.expect("another interface changes");
    let theirs = [format!("{ETH0}: 10.77.0.41 is the address of Rack \"r2\" already")];
    assert_eq!(refused(&store, "Machine", "m1", with(1, at("10.77.0.41"))).await, theirs);
}

#[tokio::test]
async fn a_machine_whose_address_is_a_rack_s_is_not_chosen_even_if_an_ip_address_keeps_it() {
    let store = store().await;
    taken(&store).await;
    declare(&store, 1, "10.77.0.40").await;
    let kept = json!({"subnet": "lab", "address": "10.77.0.40", "mac": "52:54:00:00:00:01"});
    put(&store, "IpAddress", "kept", kept).await.unwrap();
    let obstructed = async || {
        let found = store.machines_without_their_addresses().await.unwrap();
        found.into_values().collect::<Vec<_>>()
    };
    assert_eq!(obstructed().await, [""; 0]);
    let rack = put(&store, "Rack", "r2", json!({})).await.unwrap().object.uid;
    hello(&store, rack, &["10.77.0.40/24"]).await;
    assert_eq!(obstructed().await, ["10.77.0.40 is the address of Rack \"r2\" already"]);
}

#[tokio::test]
async fn a_gateway_or_range_that_was_there_before_the_machine_may_stay() {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    taken(&store).await;
    put(&store, "Machine", "m1", machine("52:54:00:00:00:01")).await.unwrap();
    let net = json!({"vlan": "default.0", "cidr": "10.77.0.0/24", "gateway": "10.77.0.1"});
    let range = json!({"subnet": "lab", "start": "10.77.0.200", "end": "10.77.0.209"});
    put(&store, "Subnet", "lab", net.clone()).await.unwrap();
    put(&store, "IpRange", "more", range.clone()).await.unwrap();
    // As the migration finds them.
    let mut db = PgConnection::connect(&url).await.unwrap();
    for address in ["10.77.0.1", "10.77.0.205", "10.77.0.215"] {
        let insert = sqlx::query(
            "insert into machine_address select $1, $2::inet, uid from object where kind = 'Machine' and name = 'm1'",
        );
        insert.bind(subnet(&store, "lab").await.get()).bind(address).execute(&mut db).await.unwrap();
    }
    let with = |spec: &Value, field: &str, value: Value| {
        let mut spec = spec.clone();
        spec[field] = value;
        spec
    };
    put(&store, "Subnet", "lab", with(&net, "dns_servers", json!(["10.77.0.2"])))
        .await
        .expect("the gateway stays");
    put(&store, "IpRange", "more", with(&range, "description", json!("a row")))
        .await
        .expect("the range stays");
    let wider = refused(&store, "IpRange", "more", with(&range, "end", json!("10.77.0.219"))).await;
    let theirs = |address: &str| {
        format!("/start: 10.77.0.200-10.77.0.219 holds {address}, the address of Machine \"m1\"")
    };
    assert_eq!(wider, ["10.77.0.205", "10.77.0.215"].map(theirs));
}
