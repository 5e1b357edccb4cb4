//! Addresses: what the database refuses, how they are given out, and what holds after any history.

mod cost;
mod devices;
mod giving;
mod history;
mod interfaces;
mod leases;
mod machines;
mod racing;
mod refusals;
mod statics;

use crate::common::put;
use basalt_api::values::{SubnetId, Timestamp, Uid};
use basalt_db::splice::Text;
use basalt_db::{
    Address, AddressWish, Addressed, Batch, Deletion, Key, NewFact, NoJudge, Precondition, Put, Store,
    StoreError,
};
use serde_json::{Value, json};
use sqlx::{PgConnection, Row};
use std::net::IpAddr;

pub(super) async fn subnet(store: &Store, name: &str) -> SubnetId {
    SubnetId::from(store.get("Subnet", Key::Name(name)).await.unwrap().uid)
}

/// Writes several objects of a kind in one transaction.
async fn put_all(store: &Store, kind: &str, specs: &[(&str, Value)]) -> Result<(), StoreError> {
    let texts: Vec<Text> = specs.iter().map(|(_, spec)| Text::parse(spec.to_string()).unwrap()).collect();
    let first_status = json!({});
    let put = |(name, spec)| Put {
        kind: basalt_api::Kind::find(kind).unwrap(),
        key: Key::Name(name),
        spec,
        at: "",
        labels: None,
        manager: None,
        precondition: Precondition::None,
        adopt: false,
        first_status: &first_status,
    };
    let puts: Vec<Put<'_>> = specs.iter().map(|(name, _)| *name).zip(&texts).map(put).collect();
    let batch = Batch { puts: &puts, prune: None, dry_run: false, judge: &NoJudge, allocation: None };
    store.write(&batch).await.map(drop)
}

/// The addresses of all subnets.
pub(super) async fn addresses(store: &Store) -> Vec<Address> {
    let subnets = store.all("Subnet").await.unwrap();
    let subnets: Vec<SubnetId> = subnets.iter().map(|it| SubnetId::from(it.uid)).collect();
    store.addresses_in(&subnets).await.unwrap()
}

pub(super) async fn new_subnet(store: &Store, name: &str, cidr: &str) -> SubnetId {
    put(store, "Subnet", name, json!({"vlan": "default.0", "cidr": cidr})).await.unwrap();
    subnet(store, name).await
}

pub(super) fn wish(subnet: SubnetId, owner: Uid, purpose: &str) -> AddressWish<'_> {
    AddressWish { subnet, owner, purpose, address: None, mac: None, hostname: None, machine_macs: &[] }
}

pub(super) fn owned(text: &str) -> Addressed {
    Addressed::Owned(text.parse().unwrap())
}

pub(super) async fn delete(store: &Store, kind: &str, name: &str) -> Deletion {
    store.request_deletion(kind, Key::Name(name), Precondition::None, false).await.unwrap()
}

/// The address in an IpAddress's status.
pub(super) async fn has(store: &Store, name: &str) -> String {
    let object = store.get("IpAddress", Key::Name(name)).await.unwrap();
    let status: Value = serde_json::from_str(object.status.get()).unwrap();
    status["address"].as_str().unwrap_or_default().to_owned()
}

/// `pointer: message` of everything that is refused.
pub(super) async fn refused(store: &Store, kind: &str, name: &str, spec: Value) -> Vec<String> {
    match put(store, kind, name, spec).await {
        Err(StoreError::Refused { errors }) => {
            assert!(errors.iter().all(|e| e.hint.is_some()), "{errors:?}");
            errors.into_iter().map(|e| format!("{}: {}", e.pointer, e.message)).collect()
        }
        other => panic!("{kind} {name}: {other:?}"),
    }
}

/// The gaps of a subnet, as the database keeps them.
pub(super) async fn gaps(db: &mut PgConnection, subnet: SubnetId) -> Vec<(IpAddr, IpAddr)> {
    let rows = sqlx::query("select host(first), host(last) from free_span where subnet = $1 order by last")
        .bind(subnet.get())
        .fetch_all(db)
        .await
        .unwrap();
    let address = |row: &sqlx::postgres::PgRow, column: usize| row.get::<String, _>(column).parse().unwrap();
    rows.iter().map(|row| (address(row, 0), address(row, 1))).collect()
}

/// A fact as a rack delivers it.
pub(super) fn lease(
    seq: u64,
    mac: &str,
    subnet: SubnetId,
    address: &str,
    expires: i64,
    released: bool,
) -> NewFact {
    NewFact {
        seq,
        object: None,
        mac: Some(mac.to_owned()),
        kind: "lease".to_owned(),
        step_key: None,
        attempt: None,
        body: json!({"address": address, "hostname": "", "expires_unix_ms": expires, "released": released,
                     "subnet_uid": subnet.to_string()}),
        observed_at: Timestamp::UNIX_EPOCH,
        wakes: true,
    }
}

/// The rack's report of its own addresses, with prefix lengths.
pub(super) async fn hello(store: &Store, rack: Uid, addresses: &[&str]) {
    let hello = NewFact {
        seq: 0,
        object: Some(rack),
        mac: None,
        kind: "hello".to_owned(),
        step_key: None,
        attempt: None,
        body: json!({"addresses": addresses}),
        observed_at: Timestamp::UNIX_EPOCH,
        wakes: true,
    };
    store.store_own_fact(&hello).await.unwrap();
}
