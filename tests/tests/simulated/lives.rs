//! A machine from its first boot to its removal.

use basalt_api::wire::{OperationRequest, OperationState, Verb};
use basalt_sim::{Event, Firmware};
use basalt_tests::fleet::{Fleet, deployment_spec, machine_spec};
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

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_may_restart_the_machine_is_followed_by_the_next_one() {
    let fleet = Fleet::start("restarts", &[("BASALT_DEADLINE_DIVISOR", "5")]).await;
    // A simulated script that may restart the machine has itself run again, and then the next one.
    for (name, may_reboot) in [("a-look", false), ("flash", true), ("set-bios", false)] {
        let script = json!({ "type": "commissioning", "content": "#!/bin/sh\n", "may_reboot": may_reboot });
        fleet.declare("scripts", name, script).await;
    }
    let machine = fleet.machine(1, Firmware::Uefi, |_| {});
    let mut spec = machine_spec(&machine);
    spec["commissioning"] = json!({ "scripts": ["a-look", "flash", "set-bios"] });
    fleet.declare("machines", "sim1", spec).await;
    fleet.ready("machines", "sim1").await;
    let count = |what: fn(&Event) -> bool| machine.count(what);
    let ran = count(|it| matches!(it, Event::RanScript { .. }));
    let powered = count(|it| matches!(it, Event::PoweredOn));
    let claimed = count(|it| matches!(it, Event::Claimed { .. }));
    assert_eq!((ran, powered, claimed), (4, 1, 3), "one attempt, three boots: {}", machine.log());
    let history = fleet.story("machines", "sim1").await;
    for says in ["script flash may restart the machine, boot 2", "a script has the machine restarted"] {
        assert!(history.contains(says), "{says}: {history}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_is_ready_when_the_scripts_of_its_first_boot_went_well() {
    let mut fleet = Fleet::start("first-boot", &[]).await;
    // A simulated machine does not run scripts; one called `fails` fails.
    let first_boot = json!({ "type": "deployment", "when": "first_boot", "content": "#!/bin/sh\n" });
    let install = json!({ "type": "deployment", "content": "#!/bin/sh\n" });
    for (name, spec) in [("join", &first_boot), ("fails", &first_boot), ("seed", &install)] {
        fleet.declare("scripts", name, spec.clone()).await;
    }
    let machine = fleet.machine(1, Firmware::Uefi, |_| {});
    fleet.declare("machines", "sim1", machine_spec(&machine)).await;
    let mut deployment = deployment_spec("sim1");
    deployment["scripts"] = json!(["join", "seed"]);
    fleet.declare("deployments", "web", deployment.clone()).await;
    fleet.ready("deployments", "web").await;
    let reported = |level: &str| {
        machine.count(|it| matches!(it, Event::Reported { level: reported } if reported == level))
    };
    assert_eq!((reported("first_boot"), reported("first_boot_failed")), (1, 0));
    assert_eq!(machine.count(|it| matches!(it, Event::RanScript { .. })), 1, "seed ran in the install");

    deployment["scripts"] = json!(["fails", "join"]);
    deployment["redeploy"] = json!("in_place");
    deployment["hostname"] = json!("other");
    fleet.declare("deployments", "web", deployment).await;
    let says = ["script fails ended with exit status: 1", "read the log of sim1"];
    fleet.waits_saying("deployments", "web", &says).await;
    fleet.stalled("deployments", "web").await;
    assert_eq!(machine.count(|it| matches!(it, Event::Installed { .. })), 2, "it is not installed again");
    fleet.delete("deployments", "web").await;
    fleet.ready("machines", "sim1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_ready_when_its_scripts_went_well_and_runs_others_before_it_is_erased() {
    let mut fleet = Fleet::start("scripts", &[]).await;
    // A simulated machine does not run scripts; one called `fails` fails.
    for (name, when) in [("set-bios", "commissioning"), ("fails", "commissioning"), ("leave-rack", "release")]
    {
        fleet.declare("scripts", name, json!({ "type": when, "content": "#!/bin/sh\n" })).await;
    }
    let disk = json!({ "disk": { "type": "storage" } });
    let each = json!({ "type": "commissioning", "content": "#!/bin/sh\n", "parameters": disk });
    fleet.declare("scripts", "each-disk", each).await;
    let other =
        json!({ "type": "commissioning", "content": "#!/bin/sh\n", "hardware": ["system_vendor:Other*"] });
    fleet.declare("scripts", "other-vendor", other).await;
    let machine = fleet.machine(1, Firmware::Uefi, |_| {});
    let ran = |machine: &basalt_sim::SimMachine| machine.count(|it| matches!(it, Event::RanScript { .. }));
    let mut spec = machine_spec(&machine);
    spec["commissioning"] = json!({ "scripts": ["fails", "set-bios"] });
    fleet.declare("machines", "sim1", spec.clone()).await;
    fleet
        .waits_saying("machines", "sim1", &["script fails ended with exit status: 1", "basalt recommission"])
        .await;
    // Waits are computed on request, and may be newer than the status.
    fleet.stalled("machines", "sim1").await;
    let status = fleet.status("machines", "sim1").await;
    assert_eq!((&status["phase"], ran(&machine)), (&json!("Failed commissioning"), 2), "{status}");

    spec["commissioning"] = json!({ "scripts": ["leave-rack"] });
    fleet.declare("machines", "sim1", spec.clone()).await;
    fleet
        .waits_saying(
            "machines",
            "sim1",
            &["script leave-rack is of type release", "takes those of type commissioning"],
        )
        .await;

    spec["commissioning"] = json!({ "scripts": ["each-disk", "other-vendor", "set-bios"] });
    fleet.declare("machines", "sim1", spec).await;
    fleet.ready("machines", "sim1").await;
    assert_eq!(ran(&machine), 4, "other-vendor is for other hardware");
    let asked = OperationRequest { script: Some("other-vendor".to_owned()), ..Verb::RunScript.into() };
    fleet.ask("sim1", &asked).await;
    let ended = fleet.operation_is("sim1", OperationState::Failed).await;
    let says = "script other-vendor was not run: no hardware of the machine matches system_vendor:Other*";
    assert!(ended.message.contains(says), "{}", ended.message);
    let asked = OperationRequest { script: Some("each-disk".to_owned()), ..Verb::RunScript.into() };
    fleet.ask("sim1", &asked).await;
    let ended = fleet.operation_is("sim1", OperationState::Done).await;
    assert_eq!(ended.output.as_deref(), Some("each-disk on vda --disk=vda\n"));
    fleet.ready("machines", "sim1").await;

    let mut deployment = deployment_spec("sim1");
    deployment["release"] = json!({ "erase": "none", "scripts": ["leave-rack"] });
    assert_eq!(fleet.refused("deployments", "web", deployment.clone()).await, ["/spec/release/scripts"]);
    deployment["release"] = json!({ "scripts": ["leave-rack"] });
    deployment["scripts"] = json!(["leave-rack"]);
    fleet.declare("deployments", "web", deployment.clone()).await;
    let says = ["script leave-rack is of type release", "takes those of type deployment"];
    fleet.waits_saying("deployments", "web", &says).await;
    fleet.declare("scripts", "seed", json!({ "type": "deployment", "content": "#!/bin/sh\n" })).await;
    deployment["scripts"] = json!(["seed"]);
    fleet.declare("deployments", "web", deployment.clone()).await;
    fleet.ready("deployments", "web").await;
    assert_eq!(ran(&machine), 6, "the new system was seeded");
    deployment["scripts"] = json!([]);
    fleet.declare("deployments", "web", deployment).await;
    fleet.ready("deployments", "web").await;
    assert_eq!(machine.count(|it| matches!(it, Event::Installed { .. })), 1, "it stays as it is");
    fleet.delete("deployments", "web").await;
    fleet.ready("machines", "sim1").await;
    assert_eq!((ran(&machine), machine.count(|it| matches!(it, Event::Erased { .. }))), (7, 1));

    // The same script as a test: its failure is a finding, and the commissioning succeeds.
    fleet.declare("scripts", "fails", json!({ "type": "testing", "content": "#!/bin/sh\n" })).await;
    let test = OperationRequest { tests: ["fails".to_owned()].into(), ..Verb::Test.into() };
    fleet.ask("sim1", &test).await;
    let ended = fleet.operation_is("sim1", OperationState::Failed).await;
    assert!(ended.message.contains("script fails ended with exit status: 1"), "{}", ended.message);
    fleet.waits_saying("machines", "sim1", &["failed a test: fails", "basalt test sim1 --test fails"]).await;
    fleet.stalled("machines", "sim1").await;
    assert_eq!(fleet.status("machines", "sim1").await["axes"]["lifecycle"], "testing");
    let reason = Some("a spare machine".to_owned());
    let accepts = OperationRequest { reason, ..Verb::OverrideTests.into() };
    fleet.ask("sim1", &accepts).await;
    fleet.ready("machines", "sim1").await;
    assert_eq!(ran(&machine), 8);
}
