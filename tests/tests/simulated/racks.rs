//! Two racks on one network: one is enough, and they do not disturb each other.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use basalt_api::wire::OperationState;
use basalt_dhcp::Mac;
use basalt_sim::{Event, Fault, Firmware, SimMachine, Stage};
use serde_json::json;

use basalt_tests::fleet::{Fleet, LIMIT, LOOK, machine_spec};

/// The last address of each machine.
pub(crate) fn addresses(machines: &[SimMachine]) -> BTreeMap<Ipv4Addr, Mac> {
    let last = |machine: &SimMachine| {
        machine.events().iter().rev().find_map(|entry| match entry.event {
            Event::DhcpAck { address, .. } => Some(address),
            _ => None,
        })
    };
    machines.iter().filter_map(|machine| Some((last(machine)?, machine.options().mac))).collect()
}

pub(crate) async fn deployed(fleet: &Fleet, machines: &[SimMachine]) {
    for machine in machines {
        let name = &machine.options().name;
        fleet.declare("machines", name, machine_spec(machine)).await;
        fleet.deploy(name, name).await;
    }
    for machine in machines {
        fleet.ready("deployments", &machine.options().name).await;
        assert_eq!(machine.count(|event| matches!(event, Event::Installed { .. })), 1, "{}", machine.log());
    }
}

/// Waits until the status of a machine has its system's last leased address.
async fn shows_its_address(fleet: &Fleet, machine: &SimMachine) {
    let (name, end) = (&machine.options().name, Instant::now() + LIMIT);
    loop {
        let leased = addresses(std::slice::from_ref(machine)).into_keys().next();
        let leased = leased.map(|address| address.to_string());
        let shown = fleet.status("machines", name).await["addresses"].take();
        let shown: Vec<_> = shown.as_object().into_iter().flat_map(|shown| shown.values()).cloned().collect();
        if leased.is_some() && shown == [json!(leased)] {
            return;
        }
        assert!(Instant::now() < end, "{name} leased {leased:?}, and shows {shown:?}");
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn either_of_two_racks_is_enough() {
    let mut fleet = Fleet::start("racks", &[]).await;
    fleet.site.start_rack(2).await.expect("the second rack joins");
    fleet.leases("lab", "rack-2").await;

    let machines: Vec<_> = (1..=4).map(|number| fleet.machine(number, Firmware::Uefi, |_| {})).collect();
    deployed(&fleet, &machines).await;
    assert_eq!(addresses(&machines).len(), machines.len(), "no two machines share an address");
    shows_its_address(&fleet, machines.first().expect("a machine")).await;

    fleet.site.kill_rack(1);
    let machine = fleet.machine(5, Firmware::Bios, |_| {});
    deployed(&fleet, std::slice::from_ref(&machine)).await;

    fleet.site.start_rack(1).await.expect("the first rack comes back");
    fleet.site.kill_rack(2);
    let machine = fleet.machine(6, Firmware::Uefi, |_| {});
    deployed(&fleet, std::slice::from_ref(&machine)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_that_dies_in_the_middle_of_an_install_is_replaced_by_the_other() {
    let mut fleet = Fleet::start("spare", &[]).await;
    let machine = fleet.machine(1, Firmware::Bios, |_| {});
    fleet.declare("machines", "sim1", machine_spec(&machine)).await;
    fleet.ready("machines", "sim1").await;
    machine.faults().set(&[Fault::Slow(Duration::from_secs(3))]);
    fleet.deploy("web", "sim1").await;
    let begins = machine.wait_for(|event| matches!(event, Event::WroteDisk { .. }), LIMIT).await;
    begins.expect("the install begins");
    fleet.site.start_rack(2).await.expect("the second rack joins");
    fleet.leases("lab", "rack-2").await;
    fleet.site.kill_rack(1);
    assert_eq!(machine.count(|event| matches!(event, Event::Installed { .. })), 0, "in the middle");
    machine.faults().set(&[]);
    fleet.ready("deployments", "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_began_by_one_rack_is_not_begun_again_by_the_other() {
    let mut fleet = Fleet::start("once", &[]).await;
    let machine = fleet.machine(1, Firmware::Bios, |_| {});
    fleet.declare("machines", "sim1", machine_spec(&machine)).await;
    fleet.declare("scripts", "flash", json!({ "type": "testing", "content": "#!/bin/sh\n" })).await;
    fleet.ready("machines", "sim1").await;
    fleet.settled("sim1").await;
    machine.faults().set(&[Fault::HeldAt(Stage::Result)]);
    fleet.run_script("sim1", "flash").await;
    let runs = machine.wait_for(|event| matches!(event, Event::RanScript { .. }), LIMIT).await;
    runs.expect("the script runs");
    fleet.operation_is("sim1", OperationState::Running).await;
    fleet.site.start_rack(2).await.expect("the second rack joins");
    fleet.leases("lab", "rack-2").await;
    fleet.site.kill_rack(1);

    // A power cut and a new start.
    machine.pull_plug();
    machine.faults().set(&[]);
    machine.press_power();

    let ended = fleet.operation_is("sim1", OperationState::Failed).await;
    assert!(ended.message.contains("flash is not run a second time"), "{ended:?}");
    assert_eq!(machine.count(|event| matches!(event, Event::RanScript { .. })), 1, "{}", machine.log());
}
