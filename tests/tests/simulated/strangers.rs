//! Undeclared machines: they are inspected, boot their disks, and become Machines.

use std::time::{Duration, Instant};

use basalt_api::agent::Outcome;
use basalt_sim::{Event, Firmware, SimMachine, Speaker};
use serde_json::json;

use basalt_tests::fleet::{Fleet, LIMIT, machine_spec};

/// Number of undeclared machines that are switched on at once; in a soak test, all addresses of a
/// lab are used.
const MANY: u16 = 12;

/// Waits until the machine was inspected and has tried its disk, which is empty.
async fn looked_into(machine: &SimMachine, mark: usize) {
    let is_result = |event: &Event| matches!(event, Event::Delivered { outcome: Outcome::Succeeded, .. });
    machine.wait_for_after(mark, is_result, LIMIT).await.expect("it is inspected");
    machine
        .wait_for_after(mark, |event| *event == Event::NothingBoots, LIMIT)
        .await
        .expect("it boots its disk");
    let wrote = |event: &Event| matches!(event, Event::WroteDisk { .. });
    assert_eq!(machine.count(wrote), 0, "{}", machine.log());
    assert!(machine.disk_markers().is_empty());
}

fn claims(machine: &SimMachine) -> usize {
    machine.count(|event| matches!(event, Event::Claimed { .. }))
}

/// Waits until there is this number of Discoveries of machines.
async fn discoveries(fleet: &Fleet, wanted: usize) -> Vec<String> {
    let end = Instant::now() + LIMIT;
    loop {
        let found = fleet.list("discoveries").await;
        let machines = found.iter().filter(|it| it.status["sort"] == "unknown_mac");
        let names: Vec<String> = machines.map(|it| it.metadata.name.to_string()).collect();
        if names.len() == wanted {
            return names;
        }
        assert!(Instant::now() < end, "{wanted} Discoveries are wanted, and these are there: {names:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_is_looked_into_once_and_the_machine_that_is_declared_needs_no_boot() {
    let mut fleet = Fleet::start("strangers", &[]).await;
    fleet.site.rack_holds(1, "boot", "enlist").await.expect("the rack knows whom it may inspect");
    let machines = [fleet.machine(1, Firmware::Bios, |_| {}), fleet.machine(2, Firmware::Uefi, |_| {})];
    for machine in &machines {
        machine.press_power();
        looked_into(machine, 0).await;
    }
    let found = discoveries(&fleet, 2).await;
    assert_eq!(found, ["mac-52-54-00-51-00-01", "mac-52-54-00-51-00-02"]);
    let status = fleet.status("discoveries", &found[0]).await;
    assert_eq!(status["inventory"]["dmi"]["serial"], "SIM-0001", "{status:#}");
    assert_eq!(status["proposal"]["name"], "basalt-sim-0001");

    // The machine is switched off and on again within the hour.
    let again = machines[0].mark();
    machines[0].pull_plug();
    machines[0].press_power();
    let nothing = |event: &Event| *event == Event::NothingBoots;
    machines[0].wait_for_after(again, nothing, LIMIT).await.expect("it boots its disk");
    assert_eq!(claims(&machines[0]), 1, "{}", machines[0].log());

    // Without a region, no machine is inspected.
    fleet.site.kill_region();
    let third = fleet.machine(3, Firmware::Bios, |_| {});
    third.press_power();
    third.wait_for(nothing, LIMIT).await.expect("it boots its disk");
    assert_eq!(claims(&third), 0, "{}", third.log());
    fleet.site.start_region().await.expect("the region starts again");

    let name = machines[1].options().name.as_str();
    fleet.declare("machines", name, machine_spec(&machines[1])).await;
    fleet.ready("machines", name).await;
    assert_eq!(claims(&machines[1]), 1, "what was found before is its inventory: {}", machines[1].log());
    assert_eq!(discoveries(&fleet, 1).await, ["mac-52-54-00-51-00-01"]);
    fleet.deploy("web", name).await;
    fleet.ready("deployments", "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_strangers_at_once_wait_for_their_turns_and_each_becomes_one_machine() {
    let mut fleet = Fleet::start("crowd", &[]).await;
    fleet.site.start_rack(2).await.expect("a second rack joins");
    fleet.leases("lab", "rack-2").await;
    let settings = json!({"enlist": "create", "enlistment": {"at_once": 2, "name": "{serial}", "ignore": ["52:54:00:51:00:01"]}});
    fleet.declare("settings", "default", settings).await;
    for rack in [1, 2] {
        fleet.site.rack_holds(rack, "boot", "2 at once").await.expect("the rack knows the bounds");
    }
    let strangers: Vec<_> = (1..=MANY).map(|number| fleet.machine(number, Firmware::Uefi, |_| {})).collect();
    let began = Instant::now();
    strangers.iter().for_each(SimMachine::press_power);
    for stranger in &strangers[1..] {
        let off = stranger.wait_for(|event| *event == Event::PoweredOff, LIMIT).await;
        off.unwrap_or_else(|error| panic!("it is inspected, and powers itself off: {error}"));
        assert_eq!(claims(stranger), 1, "{}", stranger.log());
    }
    let asked = |event: &Event| matches!(event, Event::DhcpAck { who: Speaker::Ipxe, .. });
    assert!(strangers.iter().any(|it| it.count(asked) > 2), "some had to wait, and asked again");
    for number in 2..=MANY {
        fleet.ready("machines", &format!("sim-{number:04}")).await;
    }
    println!("{} strangers are Machines after {:.1} s", MANY - 1, began.elapsed().as_secs_f64());
    discoveries(&fleet, 0).await;
    assert_eq!(claims(&strangers[0]), 0, "it is ignored: {}", strangers[0].log());
    assert_eq!(fleet.list("machines").await.len(), usize::from(MANY) - 1);
}
