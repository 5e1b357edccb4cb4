//! A played rack with one network and one machine.

use crate::linked::Linked;
use crate::support::{Lab, lab};
use crate::traces::ephemeral_image;
use basalt_api::agent::{Task, TaskResult};
use basalt_engine::Policy;
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::{AgentResult, BootConcern, Fact, fact};
use basalt_region::controller::Controller;
use prost::Message;
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const MAC: &str = "52:54:00:00:00:0a";

/// A rack at 10.77.0.2 that serves one network, and an image to boot machines with.
pub(crate) async fn network() -> (Lab, Controller, Linked) {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    ephemeral_image(&lab).await;
    lab.api.declare("/api/v1/fabrics/lab", "{}").await;
    lab.api.declare("/api/v1/vlans/lab.0", r#"{"fabric":"lab","vid":0,"dhcp":{"enabled":true}}"#).await;
    lab.api.declare("/api/v1/subnets/lab", r#"{"vlan":"lab.0","cidr":"10.77.0.0/24"}"#).await;
    let rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    (lab, controller, rack)
}

/// The same, and the address of a machine there.
pub(crate) async fn site() -> (Lab, Controller, Linked) {
    let (lab, controller, rack) = network().await;
    let place = json!({"subnet": "lab", "address": "10.77.0.9", "mac": MAC}).to_string();
    lab.api.declare("/api/v1/ip_addresses/web1", &place).await;
    (lab, controller, rack)
}

pub(crate) async fn until<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found().await {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::task::yield_now().await;
    }
}

pub(crate) fn last<C: Message + Default>(rack: &Linked, name: &str) -> Option<C> {
    let told = rack.told().concerns;
    let version = told.iter().rfind(|version| version.concern == name)?;
    Some(C::decode(version.body.as_slice()).expect("a concern"))
}

/// The task in the machine's boot entry, from a later attempt than `before`.
pub(crate) async fn task(rack: &Linked, before: u64) -> Task {
    until("a task", async || {
        let boot: BootConcern = last(rack, "boot")?;
        boot.machines.into_iter().find_map(|machine| match machine.action? {
            Action::Ephemeral(boot) if boot.attempt > before => {
                Some(serde_json::from_slice(&boot.task_json).expect("a task"))
            }
            _ => None,
        })
    })
    .await
}

/// Brings the result of a task.
pub(crate) async fn ends(rack: &Linked, result: &TaskResult, machine_uid: &str) {
    let json = serde_json::to_vec(result).unwrap();
    let body = Some(fact::Body::Result(AgentResult { json, address: "10.77.0.9".to_owned() }));
    let (machine_uid, attempt) = (machine_uid.to_owned(), result.attempt);
    rack.brings(Fact { machine_uid, mac: MAC.to_owned(), attempt, body, ..Fact::default() }).await;
}
