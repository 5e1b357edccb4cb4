//! Without any region, racks hold enough data for machines to boot, and for attempts in progress to end.

use basalt_sim::{Event, Fault, Firmware, SimMachine, Speaker, Stage};

use crate::store;
use basalt_tests::fleet::{Fleet, LIMIT, machine_spec};

const LOADER: Fault = Fault::HeldAt(Stage::Loader);
const UNPACK: Fault = Fault::HeldAt(Stage::Unpack);

async fn declared(fleet: &Fleet, machine: &SimMachine) {
    let name = &machine.options().name;
    fleet.declare("machines", name, machine_spec(machine)).await;
    fleet.ready("machines", name).await;
}

async fn deployed(fleet: &Fleet, machine: &SimMachine) {
    declared(fleet, machine).await;
    let name = &machine.options().name;
    fleet.deploy(name, name).await;
    fleet.ready("deployments", name).await;
}

/// Deploys to a machine that stays at the stage of the fault. Returns the mark of its log from before.
async fn held(fleet: &Fleet, machine: &SimMachine, fault: Fault) -> usize {
    let mark = machine.mark();
    machine.faults().set(&[fault]);
    let name = &machine.options().name;
    fleet.deploy(name, name).await;
    let held = machine.wait_for_after(mark, |event| *event == Event::Faulted { fault }, LIMIT).await;
    held.expect("it gets there");
    mark
}

async fn boots_its_disk(machine: &SimMachine, mark: usize) {
    let booted = machine.wait_for_after(mark, |event| matches!(event, Event::BootedDisk { .. }), LIMIT).await;
    booted.expect("it boots its disk");
}

/// Switches the machine off and on by hand; it boots its disk.
async fn boots_its_disk_again(machine: &SimMachine) {
    let mark = machine.mark();
    machine.pull_plug();
    machine.press_power();
    boots_its_disk(machine, mark).await;
    let tasks = machine.events().split_off(mark);
    assert!(!tasks.iter().any(|entry| matches!(entry.event, Event::Claimed { .. })), "{}", machine.log());
}

/// The facts of a machine's attempt that the rack reported, in the order of their storage, until the last
/// one.
async fn told(fleet: &Fleet, machine: &str, attempt: u64) -> Vec<String> {
    let query = format!(
        "select kind || coalesce(' ' || (body->>'level'), '') from fact_history
         where object = (select uid from object where kind = 'Machine' and name = '{machine}')
           and id >= (select min(id) from fact_history where kind = 'claim' and attempt = {attempt})
           and kind in ('claim', 'result', 'readiness') order by id"
    );
    store::rows(fleet, &query).await
}

/// Facts that are stored more than once.
async fn repeated(fleet: &Fleet) -> Vec<String> {
    let query = "select kind, mac, body, observed_at from fact_history where source = 'rack-1'
                 group by kind, mac, step_key, attempt, body, observed_at having count(*) > 1";
    store::rows(fleet, query).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_that_starts_without_a_region_boots_every_machine_and_ends_what_was_begun() {
    let mut fleet = Fleet::start("alone", &[]).await;
    let old = fleet.machine(1, Firmware::Uefi, |_| {});
    let unknown = fleet.machine(2, Firmware::Bios, |_| {});
    let armed = fleet.machine(3, Firmware::Bios, |_| {});
    let begun = fleet.machine(4, Firmware::Uefi, |_| {});
    deployed(&fleet, &old).await;
    deployed(&fleet, &unknown).await;
    fleet.let_go("deployments", "sim2").await;
    fleet.let_go("machines", "sim2").await;
    declared(&fleet, &armed).await;
    declared(&fleet, &begun).await;
    // One machine is switched on for its attempt, and one is in the middle of it.
    let armed_mark = held(&fleet, &armed, LOADER).await;
    let begun_mark = held(&fleet, &begun, UNPACK).await;

    fleet.site.kill_region();
    fleet.site.kill_rack(1);
    fleet.site.start_rack_alone(1).await.expect("the rack starts without a region");

    for (machine, mark) in [(&armed, armed_mark), (&begun, begun_mark)] {
        machine.faults().set(&[]);
        boots_its_disk(machine, mark).await;
        let reported = |event: &Event| *event == Event::Reported { level: "cloud_init".to_owned() };
        machine.wait_for_after(mark, reported, LIMIT).await.expect("it says that it is up");
    }
    let renewal = old.mark();
    old.renew_lease();
    let renewed = |event: &Event| matches!(event, Event::DhcpAck { who: Speaker::System, .. });
    old.wait_for_after(renewal, renewed, LIMIT).await.expect("its lease is renewed");
    boots_its_disk_again(&old).await;
    boots_its_disk_again(&unknown).await;
    assert!(!fleet.site.region_runs(), "no region was needed");

    fleet.site.start_region().await.expect("the region comes back");
    for (machine, mark) in [(&armed, armed_mark), (&begun, begun_mark)] {
        let name = &machine.options().name;
        fleet.ready("deployments", name).await;
        fleet.settled(name).await;
        let since = machine.events().split_off(mark);
        let times = |which: fn(&Event) -> bool| since.iter().filter(|entry| which(&entry.event)).count();
        assert_eq!(times(|event| *event == Event::PoweredOn), 1, "{}", machine.log());
        assert_eq!(times(|event| *event == Event::PoweredOff), 0, "{}", machine.log());
        assert_eq!(times(|event| matches!(event, Event::WroteDisk { .. })), 1, "{}", machine.log());
        let attempt = since.iter().find_map(|entry| match entry.event {
            Event::Installed { attempt } => Some(attempt),
            _ => None,
        });
        let story = told(&fleet, name, attempt.expect("it was installed")).await;
        assert_eq!(story, ["claim", "result", "readiness booted", "readiness cloud_init"]);
    }
    assert_eq!(repeated(&fleet).await, Vec::<String>::new());
}
