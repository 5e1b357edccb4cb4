//! A store with its own database, and shortcuts for writes into it.

use basalt_api::Kind;
use basalt_api::values::{Generation, Sha256, Timestamp};
use basalt_db::splice::Text;
use basalt_db::{Key, NewDecision, Options, Precondition, Put, SealKey, Store, StoreError, Stored};
use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection};
use std::time::Duration;

const RECONCILED: [&str; 3] = ["Machine", "Deployment", "Rack"];
const WORKED_ON: [&str; 6] = ["Machine", "Deployment", "Rack", "Domain", "Subnet", "Discovery"];

pub(crate) async fn store() -> Store {
    open(&basalt_db::testing::database().await, [7; 32]).await.expect("it opens")
}

pub(crate) async fn open(url: &str, key: [u8; 32]) -> Result<Store, StoreError> {
    let options = Options {
        url: url.to_owned(),
        connections: 40,
        reconciled: RECONCILED.map(str::to_owned).to_vec(),
        worked_on: WORKED_ON.map(str::to_owned).to_vec(),
        patience: Duration::from_secs(30),
    };
    Store::open(options, SealKey::new(&key).expect("32 bytes")).await
}

/// A database with the migrations up to `version`, and a connection to it.
pub(crate) async fn migrated_to(version: i64) -> (String, PgConnection) {
    let url = basalt_db::testing::database().await;
    let mut db = PgConnection::connect(&url).await.expect("it answers");
    db.execute("drop schema public cascade; create schema public").await.expect("it is empty");
    let mut migrations = sqlx::migrate!("../../migrations");
    let then: Vec<_> = migrations.iter().filter(|it| it.version <= version).cloned().collect();
    migrations.migrations = then.into();
    migrations.run(&mut db).await.expect("it is migrated");
    (url, db)
}

fn kind(name: &str) -> &'static Kind {
    Kind::find(name).expect("a kind")
}

/// Creates or replaces an object, without a condition.
pub(crate) async fn put(store: &Store, kind: &str, name: &str, spec: Value) -> Result<Stored, StoreError> {
    put_if(store, kind, name, &spec.to_string(), Precondition::None).await
}

pub(crate) async fn put_if(
    store: &Store,
    kind_name: &str,
    name: &str,
    spec: &str,
    precondition: Precondition,
) -> Result<Stored, StoreError> {
    let text = Text::parse(spec).expect("JSON");
    let put = Put {
        kind: kind(kind_name),
        key: Key::Name(name),
        spec: &text,
        at: "",
        labels: None,
        manager: Some("test"),
        adopt: true,
        precondition,
        first_status: &json!({"conditions": []}),
    };
    store.put(&put).await
}

/// Fabric `default`, VLAN `default.0`, subnet `lab` 10.77.0.0/24.
pub(crate) async fn network(store: &Store) {
    put(store, "Fabric", "default", json!({})).await.expect("a fabric");
    put(store, "Vlan", "default.0", json!({"fabric": "default", "vid": 0})).await.expect("a VLAN");
    let subnet = json!({"vlan": "default.0", "cidr": "10.77.0.0/24", "gateway": "10.77.0.1"});
    put(store, "Subnet", "lab", subnet).await.expect("a subnet");
}

pub(crate) fn machine(mac: &str) -> Value {
    // As unique as its MAC.
    let address = format!("bmc-{}", mac.to_lowercase().replace(':', "-"));
    json!({"architecture": "amd64", "boot_macs": [mac],
           "bmc": {"driver": "ipmi", "address": address, "username": "admin", "password": "hunter2"}})
}

/// A decision, for steps in tests.
pub(crate) fn decision() -> NewDecision {
    NewDecision {
        generation: Generation::new(1),
        planner: "1".to_owned(),
        now: Timestamp::UNIX_EPOCH,
        ground: json!({"name": "m"}),
        seen: json!({}),
        facts: vec![1, 2],
        steps: vec![(3, None), (4, Some(Timestamp::from_second(5).unwrap()))],
        digest: Sha256::new([9; 32]),
        plan: json!({"next": []}),
    }
}
