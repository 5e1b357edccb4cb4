//! Machines whose power a web service switches, in place of BMCs.

use basalt_api::wire::{OperationState, Verb};
use basalt_bmc::PowerState;
use basalt_sim::{Event, Firmware, Gateway, SimMachine};
use basalt_tests::fleet::{Fleet, machine_spec};
use serde_json::{Value, json};
use std::net::SocketAddr;

const PORT: u16 = 8080;

/// The machine's spec with the service at this address.
fn switched_by(address: SocketAddr, machine: &SimMachine) -> Value {
    let (mut spec, path) = (machine_spec(machine), format!("/{}", machine.options().name));
    spec["bmc"] = json!({
        "driver": "webhook",
        "address": address.ip().to_string(),
        "port": address.port(),
        "password": "a-token",
        "webhook": {"on": format!("{path}/on"), "off": format!("{path}/off"), "status": path, "plain": true},
    });
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_of_one_web_service_are_taken_in_deployed_and_given_back() {
    let mut fleet = Fleet::start("webhook", &[]).await;
    let machines = [1, 2].map(|number| fleet.machine(number, Firmware::Uefi, |_| {}));
    let address = SocketAddr::from((machines[0].options().bmc_address, PORT));
    let gateway = Gateway::start(fleet.site.lab(), address, "a-token", &[&machines[0], &machines[1]])
        .expect("a gateway");
    // The service is on the rack's host, and webhooks reach only named networks.
    fleet.declare("settings", "default", json!({"bmc_networks": ["10.77.0.0/24"]})).await;
    for machine in &machines {
        fleet.declare("machines", &machine.options().name, switched_by(address, machine)).await;
    }
    fleet.ready("machines", "sim1").await;
    fleet.ready("machines", "sim2").await;
    let mut taken = switched_by(address, &machines[0]);
    taken["boot_macs"] = json!(["52:54:00:51:00:99"]);
    assert_eq!(fleet.refused("machines", "sim3", taken).await, ["/spec/bmc/address"]);

    fleet.deploy("web", "sim1").await;
    fleet.ready("deployments", "web").await;
    assert_eq!(machines[0].count(|event| matches!(event, Event::Installed { .. })), 1);
    let posts =
        |heard: &[String], path: &str| heard.iter().filter(|it| *it == &format!("POST {path}")).count();

    // No request asks the system to shut down, so the power is cut and switched on again.
    let before = gateway.heard().len();
    fleet.ask("sim1", &Verb::PowerCycle.into()).await;
    fleet.operation_is("sim1", OperationState::Done).await;
    let heard = gateway.heard().split_off(before);
    assert_eq!((posts(&heard, "/sim1/off"), posts(&heard, "/sim1/on")), (1, 1), "{heard:?}");

    let mut spec = switched_by(address, &machines[0]);
    spec["bmc"]["webhook"]["soft_off"] = json!("/sim1/shutdown");
    fleet.declare("machines", "sim1", spec).await;
    fleet.delete("deployments", "web").await;
    fleet.ready("machines", "sim1").await;
    let heard = gateway.heard();
    assert_eq!(machines[0].count(|event| matches!(event, Event::Erased { .. })), 1);
    assert_eq!(posts(&heard, "/sim1/shutdown"), 1, "{heard:?}");
    assert_eq!(posts(&heard, "/sim2/on"), 1, "the other one was switched on to be read: {heard:?}");
    fleet.delete("machines", "sim1").await;
    fleet.delete("machines", "sim2").await;
    assert_eq!(machines.each_ref().map(SimMachine::power_state), [PowerState::Off; 2]);
}
