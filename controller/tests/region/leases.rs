//! Racks of one network get each other's leases.

use crate::linked::Linked;
use crate::support::{Lab, lab};
use crate::tags::report_inventory;
use basalt_api::agent::{Inventory, Nic};
use basalt_api::values::RackId;
use basalt_db::{Key, NewFact};
use basalt_engine::Policy;
use basalt_proto::rack_v1::rack_lease::Grantor;
use basalt_proto::rack_v1::{DhcpConcern, DhcpInForceFact, Fact, LeaseFact, RackLease, fact};
use basalt_region::controller::Controller;
use basalt_region::racks::observed::new_fact;
use prost::Message;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
/// The time of the rack's clock, which may be wrong.
const RACK_NOW_MS: i64 = 1_000_000;

pub(crate) async fn furnish(lab: &Lab) {
    lab.api.declare("/api/v1/fabrics/default", "{}").await;
    let vlan = r#"{"fabric":"default","vid":0,"dhcp":{"enabled":true}}"#;
    lab.api.declare("/api/v1/vlans/default.0", vlan).await;
    lab.api.declare("/api/v1/subnets/lab", r#"{"vlan":"default.0","cidr":"10.77.0.0/24"}"#).await;
    let pool = r#"{"subnet":"lab","start":"10.77.0.100","end":"10.77.0.199"}"#;
    lab.api.declare("/api/v1/ip_ranges/pool", pool).await;
}

async fn uid(lab: &Lab, kind: &str, name: &str) -> uuid::Uuid {
    lab.region.store().get(kind, Key::Name(name)).await.expect("it is there").uid.get()
}

/// The first lease sent to a rack of which `holds` is true.
async fn told(rack: &Linked, holds: impl Fn(&RackLease) -> bool) -> RackLease {
    let began = Instant::now();
    loop {
        let told = rack.told().leases;
        if let Some(lease) = told.iter().flat_map(|told| &told.leases).find(|lease| holds(lease)) {
            return lease.clone();
        }
        assert!(began.elapsed() < PATIENCE, "the rack is told {told:?}");
        tokio::task::yield_now().await;
    }
}

/// The number of the rack's delegation, once it is no longer the only rack.
async fn shared_delegation(rack: &Linked) -> u64 {
    let began = Instant::now();
    loop {
        let told = rack.told().concerns;
        let dhcp = told.iter().filter(|version| version.concern == "dhcp");
        let mut dhcp = dhcp.map(|version| DhcpConcern::decode(version.body.as_slice()).expect("a concern"));
        if let Some(concern) = dhcp.find(|it| it.subnets.iter().any(|subnet| subnet.shared)) {
            return concern.delegation;
        }
        assert!(began.elapsed() < PATIENCE, "the rack is told {told:?}");
        tokio::task::yield_now().await;
    }
}

/// A rack's fact that it has leased this address for this time.
fn lease(seq: u64, mac: &str, hostname: &str, subnet: uuid::Uuid, lasts: Duration) -> NewFact {
    let lease = LeaseFact {
        address: "10.77.0.100".into(),
        hostname: hostname.into(),
        expires_unix_ms: RACK_NOW_MS + i64::try_from(lasts.as_millis()).expect("not that long"),
        subnet_uid: subnet.to_string(),
        ..LeaseFact::default()
    };
    let (mac, body) = (mac.into(), Some(fact::Body::Lease(lease)));
    new_fact(Fact { seq, mac, body, ..Fact::default() }, RACK_NOW_MS)
}

/// Stores that a rack has leased an address of the subnet `lab` for this time.
pub(crate) async fn leased(lab: &Lab, rack: &str, mac: &str, hostname: &str, lasts: Duration) {
    let fact = lease(1, mac, hostname, uid(lab, "Subnet", "lab").await, lasts);
    let uid = RackId::from(uid(lab, "Rack", rack).await);
    let stored = lab.region.store().store_facts(uid, rack, uuid::Uuid::from_u128(1), &[fact]).await;
    stored.expect("it is stored");
}

#[tokio::test]
async fn a_machine_has_an_address_until_its_lease_ends() {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    furnish(&lab).await;
    let _rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    let mac = "52:54:00:00:00:01";
    let machine = format!(r#"{{"boot_macs":["{mac}"],"commissioning":{{"skip":true}}}}"#);
    lab.api.declare("/api/v1/machines/m", &machine).await;
    let nics = vec![Nic { name: "enp1s0".to_owned(), mac: mac.to_owned(), boot: true, ..Nic::default() }];
    report_inventory(&lab, "m", 1, Inventory { nics, ..Inventory::default() }).await;
    let until = async |wanted: Value| {
        let began = Instant::now();
        loop {
            let status = lab.api.get("/api/v1/machines/m").await.json()["status"].clone();
            if status["addresses"] == wanted {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{wanted} in {status}");
        }
    };
    // Long enough for a slow host to see the address before the lease ends.
    leased(&lab, "r1", mac, "m", Duration::from_secs(10)).await;
    until(json!({"enp1s0": "10.77.0.100"})).await;
    until(Value::Null).await;
    let status = lab.api.get("/api/v1/machines/m").await.json()["status"].clone();
    assert_eq!(status["last_leased"], json!({"enp1s0": "10.77.0.100"}), "it shows the network all the same");
}

#[tokio::test]
async fn a_rack_hears_what_another_leases_while_it_runs_and_all_of_it_when_it_comes() {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    furnish(&lab).await;
    let rpc = controller.rpc_address();
    let first = Linked::come(&lab, rpc, "r1", "10.77.0.2/24").await;
    let r1 = RackId::from(uid(&lab, "Rack", "r1").await);
    let subnet_uid = uid(&lab, "Subnet", "lab").await.to_string();
    let leased = |seq, address: &str, released| {
        let lease = LeaseFact {
            address: address.into(),
            hostname: "m1".into(),
            expires_unix_ms: RACK_NOW_MS + 3_600_000,
            released,
            subnet_uid: subnet_uid.clone(),
            kept_unix_ms: RACK_NOW_MS + 4_200_000,
        };
        let (mac, body) = ("52:54:00:00:00:01".into(), Some(fact::Body::Lease(lease)));
        new_fact(Fact { seq, mac, body, ..Fact::default() }, RACK_NOW_MS)
    };
    let store = lab.region.store();
    let said = async |facts: &[_]| {
        store.store_facts(r1, "r1", uuid::Uuid::from_u128(1), facts).await.expect("they are stored");
    };
    said(&[leased(1, "10.77.0.100", false)]).await;

    let second = Linked::come(&lab, rpc, "r2", "10.77.0.3/24").await;
    let in_force = DhcpInForceFact { delegation: shared_delegation(&first).await, ..Default::default() };
    let in_force = Fact { seq: 2, body: Some(fact::Body::DhcpInForce(in_force)), ..Fact::default() };
    said(&[new_fact(in_force, RACK_NOW_MS)]).await;
    let known = told(&second, |lease| lease.address == "10.77.0.100").await;
    assert_eq!(known.by(), Grantor::Owner, "of a rack's own block");
    assert_eq!((&*known.mac, &*known.hostname, known.given_back), ("52:54:00:00:00:01", "m1", false));
    for (ms, whole) in [(known.ends_in_ms, 3_600_000), (known.kept_for_ms, 4_200_000)] {
        assert!(ms <= whole && ms > whole - 60_000, "{ms} of {whole}, whatever the rack's clock says");
    }
    assert!(second.told().leases.iter().any(|told| told.complete));

    said(&[leased(3, "10.77.0.101", false), leased(4, "10.77.0.100", true)]).await;
    told(&second, |lease| lease.address == "10.77.0.101" && !lease.given_back).await;
    told(&second, |lease| lease.address == "10.77.0.100" && lease.given_back).await;
    assert!(
        !first.told().leases.iter().flat_map(|told| &told.leases).any(|lease| lease.by() != Grantor::Self_),
        "nobody else leased anything"
    );
    let ended = LeaseFact {
        address: "10.77.0.102".into(),
        expires_unix_ms: RACK_NOW_MS - 1,
        subnet_uid: subnet_uid.clone(),
        ..LeaseFact::default()
    };
    let (mac, body) = ("52:54:00:00:00:01".into(), Some(fact::Body::Lease(ended)));
    said(&[new_fact(Fact { seq: 5, mac, body, ..Fact::default() }, RACK_NOW_MS)]).await;
    let current = store.current_leases(&["52:54:00:00:00:01".to_owned()]).await.expect("leases");
    let current: Vec<_> = current.iter().map(|lease| lease.address.to_string()).collect();
    assert_eq!(current, ["10.77.0.101"], "one was given back, one has ended");
    drop((first, second));

    let again = Linked::come(&lab, rpc, "r1", "10.77.0.2/24").await;
    let own = told(&again, |lease| lease.address == "10.77.0.101").await;
    assert_eq!(own.by(), Grantor::Self_, "it may have lost its lease file");
}

#[tokio::test]
async fn a_selector_knows_the_networks_of_a_machine_by_its_addresses() {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    furnish(&lab).await;
    let vlan = lab.api.get("/api/v1/subnets/lab").await.json()["spec"]["vlan"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/vlans/{vlan}");
    let mut spec = lab.api.get(&path).await.json()["spec"].clone();
    let fabric = spec["fabric"].as_str().unwrap().to_owned();
    lab.api.declare(&format!("/api/v1/fabrics/{fabric}"), r#"{"class":"10g"}"#).await;
    lab.api.declare("/api/v1/spaces/inside", "{}").await;
    lab.api.declare("/api/v1/spaces/outside", "{}").await;
    spec["space"] = json!("inside");
    lab.api.declare(&path, &spec.to_string()).await;
    let image = crate::allocation::image()["spec"].to_string();
    lab.api.declare("/api/v1/images/debian", &image).await;
    let _rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    let mac = "52:54:00:00:00:01";
    let machine = format!(r#"{{"boot_macs":["{mac}"],"commissioning":{{"skip":true}}}}"#);
    lab.api.declare("/api/v1/machines/m", &machine).await;
    let nics = vec![Nic { name: "enp1s0".to_owned(), mac: mac.to_owned(), ..Nic::default() }];
    report_inventory(&lab, "m", 1, Inventory { nics, ..Inventory::default() }).await;
    leased(&lab, "r1", mac, "m", Duration::from_secs(3600)).await;
    crate::allocation::once("it has its address", async || {
        let status = lab.api.get("/api/v1/machines/m").await.json()["status"].clone();
        status["addresses"].is_object().then_some(())
    })
    .await;
    // A rack is linked before its Hello, which has its addresses, is stored.
    crate::allocation::once("the address of the rack is counted", async || {
        let status = lab.api.get("/api/v1/subnets/lab").await.json()["status"].clone();
        let of = &status["by_purpose"];
        (of["racks"] == json!(1) && of["dynamic"] == json!(100)).then_some(())
    })
    .await;
    let would_get = async |wish: Value| {
        let spec = json!({"image": "debian", "selector": {"interfaces": {"it": wish}}});
        let body = json!({ "spec": spec }).to_string();
        let tried = lab.api.put("/api/v1/deployments/d?dry_run=true", &body).await.json();
        assert!(tried["plan"].is_object(), "{tried}");
        !tried["plan"].to_string().contains("waiting for a machine that matches")
    };
    for (field, right, wrong) in
        [("fabric_class", "10g", "1g"), ("space", "inside", "outside"), ("subnet", "lab", "")]
    {
        assert!(would_get(json!({ (field): right })).await, "{field}");
        if !wrong.is_empty() {
            assert!(!would_get(json!({ (field): wrong })).await, "{field}");
        }
    }
    assert!(would_get(json!({"vlan": vlan, "fabric": fabric})).await);
}
