//! A rack is sent the changes of a concern, and the whole concern when it needs it.

use crate::linked::{Linked, Told};
use crate::metrics::scrape;
use crate::support::{Lab, lab, region_beside};
use basalt_engine::Policy;
use basalt_proto::rack_v1::{ConcernDelta, KnownConcern};
use basalt_region::controller::Controller;
use prost::Message;
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
/// Machines before the first change that is measured.
const MANY: usize = 20;

/// A region with machines, and a rack that knows them.
async fn fleet() -> (Lab, Controller, Linked) {
    let lab = lab().await;
    let controller = Controller::start(&lab.region, ANYWHERE, Policy::default(), Vec::new()).await.unwrap();
    let rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    for number in 0..MANY {
        declare(&lab, number).await;
    }
    until_known(&rack, MANY).await;
    (lab, controller, rack)
}

async fn declare(lab: &Lab, number: usize) {
    let machine = json!({"architecture": "amd64", "boot_macs": [format!("52:54:00:00:00:{number:02x}")]});
    lab.api.declare(&format!("/api/v1/machines/m{number}"), &machine.to_string()).await;
}

/// The machines in the latest version of concern `known`.
fn known(told: &Told) -> usize {
    let version = told.concerns.iter().rfind(|version| version.concern == "known");
    version.map_or(0, |it| KnownConcern::decode(it.body.as_slice()).expect("a concern").machines.len())
}

/// The deltas of concern `known`.
fn deltas(told: &Told) -> Vec<ConcernDelta> {
    let is_known = |delta: &&ConcernDelta| delta.version.as_ref().is_some_and(|it| it.concern == "known");
    told.deltas.iter().filter(is_known).cloned().collect()
}

/// True if the latest version of concern `known` came as a delta.
fn is_changed(told: &Told) -> bool {
    let last = told.concerns.iter().rfind(|version| version.concern == "known").expect("a version");
    deltas(told).iter().any(|delta| delta.version.as_ref().is_some_and(|it| it.sha256 == last.sha256))
}

async fn until_known(rack: &Linked, machines: usize) {
    let began = Instant::now();
    while known(&rack.told()) != machines {
        assert!(began.elapsed() < PATIENCE, "it knows {} of {machines} machines", known(&rack.told()));
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_change_of_one_machine_costs_no_more_bytes_than_the_machine() {
    let (lab, _controller, rack) = fleet().await;
    declare(&lab, MANY).await;
    until_known(&rack, MANY + 1).await;
    let told = rack.told();
    assert!(is_changed(&told));
    let length: usize = deltas(&told).last().expect("a delta").parts.iter().map(Message::encoded_len).sum();
    let whole = told.concerns.iter().rfind(|it| it.concern == "known").expect("a version").body.len();
    assert!(length < 2 * whole / MANY, "{length} of {whole} bytes");
}

#[tokio::test]
async fn a_rack_that_holds_another_body_asks_for_the_whole_one_and_gets_changes_again() {
    let (lab, _controller, rack) = fleet().await;
    rack.forgets_concerns();
    declare(&lab, MANY).await;
    until_known(&rack, MANY + 1).await;
    assert!(!is_changed(&rack.told()));
    let asked = scrape(&lab).await[r#"basalt_rack_concern_answers_total{outcome="needs_whole"}"#];
    assert!(asked >= 1.0, "{asked}");
    declare(&lab, MANY + 1).await;
    until_known(&rack, MANY + 2).await;
    assert!(is_changed(&rack.told()));
}

#[tokio::test]
async fn another_region_goes_on_with_what_the_rack_holds_after_the_first_one_is_gone() {
    let (lab, _controller, rack) = fleet().await;
    let (beside, _dir) = region_beside(&lab).await;
    let other = Controller::start(&beside, ANYWHERE, Policy::default(), Vec::new()).await.unwrap();
    let before = rack.told().concerns.len();
    let rack = rack.moves_to(other.rpc_address()).await;
    declare(&lab, MANY).await;
    until_known(&rack, MANY + 1).await;
    let told = rack.told();
    let versions = told.concerns.iter().skip(before).filter(|it| it.concern == "known").count();
    assert_eq!(
        (versions, is_changed(&told)),
        (1, false),
        "it held the one before, which this region never sent"
    );
    declare(&lab, MANY + 1).await;
    until_known(&rack, MANY + 2).await;
    assert!(is_changed(&rack.told()));
}
