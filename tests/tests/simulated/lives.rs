//! A machine from its first boot to its removal.

use crate::fleet::{Fleet, deployment_spec, machine_spec};
use basalt_sim::{Event, Firmware};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_taken_in_deployed_and_given_back() {
    let mut fleet = Fleet::start("life", &[]).await;
    let machine = fleet.machine(1, Firmware::Uefi, |_| {});
    fleet.declare("machines", "sim1", machine_spec(&machine)).await;
    fleet.ready("machines", "sim1").await;
    let status = fleet.status("machines", "sim1").await;
    assert_eq!(status["inventory"]["cpu"]["cores"], 4);
    assert_eq!(status["inventory"]["memory_bytes"], 8_u64 << 30);
    assert_eq!(status["phase"], "Ready");

    fleet.deploy("web", "sim1").await;
    fleet.ready("deployments", "web").await;
    let status = fleet.status("deployments", "web").await;
    assert_eq!((&status["phase"], &status["machine"]), (&json!("Deployed"), &json!("sim1")));
    assert_eq!(machine.count(|event| matches!(event, Event::Installed { .. })), 1);

    let mut renamed = deployment_spec("sim1");
    renamed["hostname"] = json!("other");
    assert_eq!(fleet.refused("deployments", "web", renamed.clone()).await, ["/spec/hostname"], "not unasked");
    renamed["redeploy"] = json!("in_place");
    fleet.declare("deployments", "web", renamed).await;
    fleet.ready("deployments", "web").await;
    assert_eq!(machine.count(|event| matches!(event, Event::Installed { .. })), 2);

    fleet.delete("deployments", "web").await;
    fleet.ready("machines", "sim1").await;
    assert_eq!(machine.count(|event| matches!(event, Event::Erased { .. })), 1);
    fleet.delete("machines", "sim1").await;
    assert_eq!(machine.power_state(), basalt_bmc::PowerState::Off);
}
