//! A subnet is served by the racks that report to answer there, as long as they report so.

use crate::leases::furnish;
use crate::linked::Linked;
use crate::support::{Lab, lab};
use basalt_engine::Policy;
use basalt_proto::rack_v1::DhcpConcern;
use basalt_region::controller::Controller;
use prost::Message;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until the rack's last DHCP concern has this many subnets.
async fn serves(rack: &Linked, subnets: usize) {
    let began = Instant::now();
    loop {
        let told = rack.told().concerns;
        let last = told.iter().rfind(|version| version.concern == "dhcp");
        let last = last.map(|version| DhcpConcern::decode(version.body.as_slice()).expect("a concern"));
        if last.as_ref().is_some_and(|concern| concern.subnets.len() == subnets) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "not {subnets} subnets: {last:?}");
        tokio::task::yield_now().await;
    }
}

/// Waits until the rack's status has these VLANs, or none. The status is written after the concern was sent.
async fn shows(lab: &Lab, vlans: &serde_json::Value) {
    let began = Instant::now();
    loop {
        let shown = lab.api.get("/api/v1/racks/r1").await.json()["status"]["vlans"].clone();
        if shown == *vlans {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "not {vlans}: {shown}");
    }
}

#[tokio::test]
async fn a_rack_that_answers_nobody_is_no_rack_of_an_older_version_and_one_that_comes_to_answer_is_heard() {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    furnish(&lab).await;
    let rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    serves(&rack, 1).await;
    rack.answers_at(&[]).await;
    serves(&rack, 0).await;
    shows(&lab, &serde_json::Value::Null).await;
    rack.answers_at(&["10.77.0.2"]).await;
    serves(&rack, 1).await;
    shows(&lab, &serde_json::json!(["default.0"])).await;
}

#[tokio::test]
async fn deleting_a_rack_says_who_serves_its_subnets_and_bmcs_then() {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    furnish(&lab).await;
    let machine =
        r#"{"commissioning":{"skip":true},"bmc":{"driver":"ipmi","address":"10.77.0.9","username":"a"}}"#;
    lab.api.declare("/api/v1/machines/m1", machine).await;
    let r1 = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    serves(&r1, 1).await;
    let said = async |method: &str, body: &str| {
        let headers = [("X-Basalt-Manager", "cli"), ("Content-Type", "application/merge-patch+json")];
        let answer = lab.api.send(method, "/api/v1/racks/r1?dry_run=true", &headers, body.to_owned()).await;
        answer.json()["plan"]["summary"].as_str().unwrap_or_default().to_owned()
    };
    let then = |who: &str| {
        format!(
            " DHCP in subnet \"lab\" (VLAN default.0) is then answered by {who}. The power of 1 machine (m1) is then switched by {who}."
        )
    };
    assert_eq!(said("DELETE", "").await, format!("Rack \"r1\" will leave.{}", then("nobody")));
    let r2 = Linked::come(&lab, controller.rpc_address(), "r2", "10.77.0.3/24").await;
    serves(&r2, 1).await;
    assert_eq!(said("DELETE", "").await, format!("Rack \"r1\" will leave.{}", then("r2")));
    let aside = said("PATCH", r#"{"maintenance":true}"#).await;
    assert_eq!(aside, format!("Rack \"r1\" serves nobody from then on.{}", then("r2")));
}
