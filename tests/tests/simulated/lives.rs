//! A machine from its first boot to its removal, with and without kills.

use crate::fleet::{Fleet, LIMIT, deployment_spec, machine_spec};
use basalt_engine::steps::{EffectKind, STEPS, StepId};
use basalt_region::driver::kill::PLACES;
use basalt_sim::{Event, Firmware};
use serde_json::json;

/// Steps that a machine's usual life does not take, and why they have no kill point here.
const ELSEWHERE: &[(StepId, &str)] = &[
    (StepId::RestartInstall, "the remedy of a system that does not report; tried with the silent system"),
    (StepId::HoldOn, "a button pressed by hand is unseen until power is polled"),
    (StepId::HoldOff, "a button pressed by hand is unseen until power is polled"),
];

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

    fleet.delete("deployments", "web").await;
    fleet.ready("machines", "sim1").await;
    assert_eq!(machine.count(|event| matches!(event, Event::Erased { .. })), 1);
    fleet.delete("machines", "sim1").await;
    assert_eq!(machine.power_state(), basalt_bmc::PowerState::Off);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_killed_at_every_step_goes_on_and_does_nothing_twice() {
    let mut fleet = Fleet::start("kill", &[]).await;
    let steps = STEPS.iter().filter(|step| step.effect != EffectKind::Observe);
    let steps: Vec<_> =
        steps.filter(|step| ELSEWHERE.iter().all(|(elsewhere, _)| *elsewhere != step.id)).collect();
    for (number, place) in (1..).zip(PLACES) {
        let points: Vec<String> = steps.iter().map(|step| format!("{}/{place}", step.name)).collect();
        killed_at(&mut fleet, number, &points).await;
    }
}

/// One machine's whole life, during which the region dies at each of these points.
async fn killed_at(fleet: &mut Fleet, number: u8, points: &[String]) {
    let fired = fleet.site.directory().join(format!("killed-{number}"));
    std::fs::create_dir(&fired).expect("a directory for what fired");
    let kill = format!("{}:{}", points.join(","), fired.display());
    fleet.restart_region(&[("BASALT_KILL_AT", &kill)]).await;
    let machine = fleet.machine(number, Firmware::Bios, |_| {});
    let name = format!("sim{number}");
    fleet.declare("machines", &name, machine_spec(&machine)).await;
    fleet.ready_through_kills("machines", &name).await;
    fleet.declare_through_kills("deployments", &name, deployment_spec(&name)).await;
    fleet.ready_through_kills("deployments", &name).await;
    fleet.delete_through_kills("deployments", &name).await;
    fleet.ready_through_kills("machines", &name).await;
    fleet.delete_through_kills("machines", &name).await;
    let reached = |point: &&String| fired.join(point.replace('/', ".")).exists();
    let missed: Vec<_> = points.iter().filter(|point| !reached(point)).collect();
    assert!(missed.is_empty(), "the region was never killed at {missed:?}\n{}", machine.log());
    let writes = machine.count(|event| matches!(event, Event::WroteDisk { .. }));
    let installs = machine.count(|event| matches!(event, Event::Installed { .. }));
    let erases = machine.count(|event| matches!(event, Event::Erased { .. }));
    assert_eq!((writes, installs, erases), (2, 1, 1), "{}", machine.log());
    assert_eq!(machine.power_state(), basalt_bmc::PowerState::Off);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_rack_comes_back_and_the_install_ends() {
    let mut fleet = Fleet::start("rack", &[]).await;
    let machine = fleet.machine(1, Firmware::Bios, |_| {});
    fleet.declare("machines", "sim1", machine_spec(&machine)).await;
    fleet.deploy("web", "sim1").await;
    machine
        .wait_for(|event| matches!(event, Event::WroteDisk { .. }), LIMIT)
        .await
        .expect("the install begins");
    fleet.site.kill_rack(1);
    fleet.site.start_rack(1).await.expect("the rack starts again");
    fleet.ready("deployments", "web").await;
}
