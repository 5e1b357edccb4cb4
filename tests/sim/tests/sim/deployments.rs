//! Simulated machines and a real rack: whole deployments, and their faults.

use std::time::Duration;

use crate::support::{LIMIT, Rack, bmc, erase, inventory, netboot};
use basalt_api::agent::{FailureCode, MarkerState, Outcome};
use basalt_bmc::{BootDevice, PowerState, PowerVerb};
use basalt_lab::Lab;
use basalt_sim::{BootOrder, Event, Fault, Firmware, MachineOptions, ScriptKind, SimMachine, Speaker, Stage};

fn reported(event: &Event) -> bool {
    *event == Event::Reported { level: "cloud_init".into() }
}

fn delivered(attempt: u64) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::Delivered { attempt: of, .. } if *of == attempt)
}

fn wrote(attempt: u64) -> impl Fn(&Event) -> bool {
    move |event| *event == Event::WroteDisk { attempt }
}

fn installed(attempt: u64) -> impl Fn(&Event) -> bool {
    move |event| *event == Event::Installed { attempt }
}

fn outcome(machine: &SimMachine, of: u64) -> Outcome {
    let found = machine.events().into_iter().rev().find_map(|entry| match entry.event {
        Event::Delivered { attempt, outcome } if attempt == of => Some(outcome),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("attempt {of} has no result:\n{}", machine.log()))
}

#[tokio::test]
async fn a_machine_is_installed_and_boots_its_disk_and_the_old_concern_installs_nothing() {
    for firmware in [Firmware::Bios, Firmware::Uefi] {
        let lab = Lab::create("sim-install").unwrap();
        let mut rack = Rack::new(&lab);
        let machine = SimMachine::start(&lab, MachineOptions::numbered(1, firmware)).unwrap();
        rack.tell(&lab, &machine, Some(&rack.install(7)));
        netboot(&lab, &machine).await;
        let on = machine.wait_for(|event| *event == Event::PoweredOn, LIMIT).await.unwrap();
        let done = machine.wait_for(reported, LIMIT).await.unwrap();
        eprintln!(
            "{firmware:?}: {:.3} s from power on to cloud_init\n{}",
            (done.at - on.at).as_secs_f64(),
            machine.log()
        );

        let count = |which: &dyn Fn(&Event) -> bool| machine.count(which);
        assert_eq!(
            count(&|event| *event == Event::Script { kind: ScriptKind::Ephemeral }),
            1,
            "{}",
            machine.log()
        );
        assert_eq!((count(&wrote(7)), count(&installed(7))), (1, 1));
        assert_eq!(outcome(&machine, 7), Outcome::Succeeded);
        assert_eq!(
            count(&|event| matches!(event, Event::BootedDisk { attempt: 7, hostname } if hostname == "web1")),
            1
        );
        assert_eq!(count(&|event| *event == Event::Reported { level: "booted".into() }), 1);
        assert_eq!(count(&|event| matches!(event, Event::Refused { .. })), 0, "{}", machine.log());
        let loader = std::fs::metadata(match firmware {
            Firmware::Bios => "/usr/lib/ipxe/undionly.kpxe",
            Firmware::Uefi => "/usr/lib/ipxe/snponly.efi",
        });
        let size = usize::try_from(loader.unwrap().len()).unwrap();
        assert!(count(&|event| matches!(event, Event::TftpFetched { bytes, .. } if *bytes == size)) > 0);
        let marker = &machine.disk_markers()["vda"];
        assert_eq!((marker.attempt, marker.state), (7, MarkerState::Installed));

        // The rack lost its record of finished attempts, and still holds the old concern.
        rack.stop();
        std::fs::remove_file(lab.directory().join("rack/attempts")).unwrap();
        rack.start(&lab);
        let mark = machine.mark();
        bmc(&lab, &machine, |bmc| async move { bmc.power(PowerVerb::Off).await }).await.unwrap();
        netboot(&lab, &machine).await;
        machine.wait_for_after(mark, reported, LIMIT).await.unwrap();
        assert_eq!(outcome(&machine, 7), Outcome::Superseded { found_attempt: 7 });
        assert_eq!((machine.count(wrote(7)), machine.count(installed(7))), (1, 1), "{}", machine.log());
        assert_eq!(machine.count(|event| matches!(event, Event::BootedDisk { .. })), 2);
    }
}

#[tokio::test]
async fn a_machine_is_commissioned_and_switches_itself_off() {
    let lab = Lab::create("sim-inventory").unwrap();
    let mut rack = Rack::new(&lab);
    let machine = SimMachine::start(&lab, MachineOptions::numbered(1, Firmware::Uefi)).unwrap();
    rack.tell(&lab, &machine, Some(&inventory(3)));
    netboot(&lab, &machine).await;
    machine.wait_for(|event| *event == Event::PoweredOff, LIMIT).await.unwrap();
    assert_eq!(outcome(&machine, 3), Outcome::Succeeded);
    assert!(machine.disk_markers().is_empty());
    let status = bmc(&lab, &machine, |bmc| async move { bmc.power_status().await }).await.unwrap();
    assert_eq!((status, machine.power_state()), (PowerState::Off, PowerState::Off));
}

#[tokio::test]
async fn an_agent_that_dies_anywhere_installs_once_all_the_same() {
    let stages = [
        Stage::Claim,
        Stage::Task,
        Stage::Check,
        Stage::Partition,
        Stage::Unpack,
        Stage::Seed,
        Stage::Finish,
        Stage::Result,
        Stage::Leave,
    ];
    let lab = Lab::create("sim-dies").unwrap();
    let mut rack = Rack::new(&lab);
    let machine = SimMachine::start(&lab, MachineOptions::numbered(1, Firmware::Bios)).unwrap();
    for (attempt, stage) in (10..).zip(stages) {
        machine.replace_disk().unwrap();
        rack.tell(&lab, &machine, Some(&rack.install(attempt)));
        let fault = Fault::DiesAt(stage);
        machine.faults().times(fault, 1);
        let mark = machine.mark();
        netboot(&lab, &machine).await;
        machine
            .wait_for_after(mark, reported, LIMIT)
            .await
            .unwrap_or_else(|error| panic!("{stage}: {error}"));
        assert_eq!(machine.faults().fired(fault), 1, "{stage}");
        assert_eq!(machine.count(installed(attempt)), 1, "{stage}:\n{}", machine.log());
        // An unfinished installation starts again from the beginning.
        let unfinished = matches!(stage, Stage::Partition | Stage::Unpack | Stage::Seed | Stage::Finish);
        assert_eq!(
            machine.count(wrote(attempt)),
            if unfinished { 2 } else { 1 },
            "{stage}:\n{}",
            machine.log()
        );
        let boots =
            machine.events().into_iter().filter(|entry| entry.event == Event::Claimed { attempt }).count();
        assert_eq!(boots, if matches!(stage, Stage::Claim | Stage::Leave) { 1 } else { 2 }, "{stage}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_disk_or_an_image_is_told_and_putting_it_right_helps() {
    let lab = Lab::create("sim-faults").unwrap();
    let mut rack = Rack::new(&lab);
    let machine = SimMachine::start(&lab, MachineOptions::numbered(1, Firmware::Uefi)).unwrap();
    let cases = [
        (Fault::DiskTooSmall, FailureCode::NoDisk, false),
        (Fault::ForeignData, FailureCode::ForeignData, false),
        (Fault::WrongHash, FailureCode::BlobCorrupt, true),
    ];
    for (attempt, (fault, expected, writes)) in (20..).step_by(2).zip(cases) {
        machine.replace_disk().unwrap();
        machine.faults().set(&[fault]);
        rack.tell(&lab, &machine, Some(&rack.install(attempt)));
        netboot(&lab, &machine).await;
        machine.wait_for(delivered(attempt), LIMIT).await.unwrap();
        let Outcome::Failed { code, wrote, message } = outcome(&machine, attempt) else {
            panic!("{}", machine.log())
        };
        assert_eq!((code, wrote), (expected, writes), "{message}");
        assert_eq!((machine.faults().fired(fault), machine.count(installed(attempt))), (1, 0));

        machine.faults().set(&[]);
        machine.pull_plug();
        if fault == Fault::ForeignData {
            machine.replace_disk().unwrap();
        }
        rack.tell(&lab, &machine, Some(&rack.install(attempt + 1)));
        let mark = machine.mark();
        netboot(&lab, &machine).await;
        machine.wait_for_after(mark, reported, LIMIT).await.unwrap();
        assert_eq!(outcome(&machine, attempt + 1), Outcome::Succeeded);
    }
}

#[tokio::test]
async fn claims_and_results_that_come_twice_change_nothing() {
    let lab = Lab::create("sim-twice").unwrap();
    let mut rack = Rack::new(&lab);
    let machine = SimMachine::start(&lab, MachineOptions::numbered(1, Firmware::Bios)).unwrap();
    machine.faults().set(&[Fault::DuplicateClaim, Fault::DuplicateResult]);
    rack.tell(&lab, &machine, Some(&rack.install(30)));
    netboot(&lab, &machine).await;
    machine.wait_for(reported, LIMIT).await.unwrap();
    for fault in [Fault::DuplicateClaim, Fault::DuplicateResult] {
        assert_eq!(machine.faults().fired(fault), 1);
    }
    assert_eq!((machine.count(wrote(30)), machine.count(installed(30))), (1, 1));
    assert_eq!(machine.count(|event| matches!(event, Event::Refused { .. })), 0, "{}", machine.log());
}

#[tokio::test]
async fn a_power_cut_stops_everything_and_the_disk_survives_it() {
    let lab = Lab::create("sim-cut").unwrap();
    let mut rack = Rack::new(&lab);
    let machine = SimMachine::start(&lab, MachineOptions::numbered(1, Firmware::Uefi)).unwrap();
    machine.faults().times(Fault::HangsAt(Stage::Seed), 1);
    rack.tell(&lab, &machine, Some(&rack.install(40)));
    netboot(&lab, &machine).await;
    let hung = Fault::HangsAt(Stage::Seed);
    machine.wait_for(|event| *event == Event::Faulted { fault: hung }, LIMIT).await.unwrap();
    assert_eq!(machine.power_state(), PowerState::On);
    machine.pull_plug();
    assert_eq!(machine.power_state(), PowerState::Off);
    assert_eq!(machine.disk_markers()["vda"].state, MarkerState::Writing);

    // A power cut in the middle of a stage: the next event of that boot never appears, although the next boot takes longer
    // than the stage.
    machine.faults().times(Fault::Slow(Duration::from_millis(300)), 1);
    netboot(&lab, &machine).await;
    machine.wait_for(|event| matches!(event, Event::Faulted { fault: Fault::Slow(_) }), LIMIT).await.unwrap();
    bmc(&lab, &machine, |bmc| async move { bmc.power(PowerVerb::Cycle).await }).await.unwrap();
    machine.wait_for(reported, LIMIT).await.unwrap();
    assert_eq!((machine.count(wrote(40)), machine.count(installed(40))), (2, 1));
    let power = |event: &Event| matches!(event, Event::PoweredOn | Event::PoweredOff);
    let events = machine.events();
    let off_then: Vec<_> = events.windows(2).filter(|pair| pair[0].event == Event::PoweredOff).collect();
    assert_eq!(off_then.len(), 2);
    assert!(off_then.iter().all(|pair| pair[1].event == Event::PoweredOn), "{}", machine.log());
    assert_eq!(machine.count(power), 5);
    assert_eq!(machine.count(|event| matches!(event, Event::Refused { .. })), 0, "{}", machine.log());
}

#[tokio::test]
async fn the_boot_order_is_the_machines_own_unless_the_bmc_overrides_it() {
    let lab = Lab::create("sim-order").unwrap();
    let mut rack = Rack::new(&lab);
    let options =
        MachineOptions { boot_order: BootOrder::DiskFirst, ..MachineOptions::numbered(1, Firmware::Bios) };
    let machine = SimMachine::start(&lab, options).unwrap();
    rack.tell(&lab, &machine, Some(&rack.install(50)));
    netboot(&lab, &machine).await;
    machine.wait_for(reported, LIMIT).await.unwrap();
    let by_rom = |event: &Event| matches!(event, Event::DhcpAck { who: Speaker::Rom, .. });
    assert_eq!(machine.count(by_rom), 1, "the override was for one boot:\n{}", machine.log());
    let mark = machine.mark();
    bmc(&lab, &machine, |bmc| async move {
        bmc.power(PowerVerb::Off).await?;
        bmc.power(PowerVerb::On).await
    })
    .await
    .unwrap();
    machine.wait_for_after(mark, reported, LIMIT).await.unwrap();
    assert_eq!(machine.count(by_rom), 1);

    // The machine's own order is network first, but the BMC permanently says disk. Then the disk is erased, and nothing
    // boots.
    let options = MachineOptions::numbered(2, Firmware::Uefi);
    let other = SimMachine::start(&lab, options).unwrap();
    rack.tell(&lab, &other, Some(&rack.install(51)));
    netboot(&lab, &other).await;
    other.wait_for(reported, LIMIT).await.unwrap();
    assert_eq!(other.count(by_rom), 2, "network first, after the install too:\n{}", other.log());
    let mark = other.mark();
    bmc(&lab, &other, |bmc| async move {
        bmc.set_boot_device(BootDevice::Disk, false, true).await?;
        bmc.power(PowerVerb::Cycle).await
    })
    .await
    .unwrap();
    other.wait_for_after(mark, reported, LIMIT).await.unwrap();
    assert_eq!(other.count(by_rom), 2);
    rack.tell(&lab, &other, Some(&erase(52)));
    other.pull_plug();
    let mark = other.mark();
    netboot(&lab, &other).await;
    other.wait_for(|event| *event == Event::Erased { attempt: 52 }, LIMIT).await.unwrap();
    other.wait_for_after(mark, |event| *event == Event::PoweredOff, LIMIT).await.unwrap();
    assert_eq!(other.disk_markers()["vda"].state, MarkerState::Erased);
    other.faults().set(&[Fault::NeverPxeBoots]);
    other.press_power();
    other.wait_for(|event| *event == Event::NothingBoots, LIMIT).await.unwrap();
    assert_eq!(other.faults().fired(Fault::NeverPxeBoots), 1);
}

#[tokio::test]
async fn an_image_that_rots_in_the_rack_is_not_installed() {
    let lab = Lab::create("sim-rots").unwrap();
    let mut rack = Rack::new(&lab);
    let machine = SimMachine::start(&lab, MachineOptions::numbered(1, Firmware::Uefi)).unwrap();
    rack.tell(&lab, &machine, Some(&rack.install(60)));
    rack.rot_image(&lab);
    netboot(&lab, &machine).await;
    machine.wait_for(delivered(60), LIMIT).await.unwrap();
    let outcome = outcome(&machine, 60);
    assert!(
        matches!(outcome, Outcome::Failed { code: FailureCode::BlobCorrupt, wrote: true, .. }),
        "{outcome:?}"
    );
    machine.wait_for(|event| *event == Event::NothingBoots, LIMIT).await.unwrap();
    assert_eq!(machine.disk_markers()["vda"].state, MarkerState::Writing);
}

#[tokio::test]
async fn an_image_that_was_replaced_in_the_rack_is_not_even_served() {
    let lab = Lab::create("sim-replaced").unwrap();
    let mut rack = Rack::new(&lab);
    let machine = SimMachine::start(&lab, MachineOptions::numbered(1, Firmware::Uefi)).unwrap();
    rack.replace_image();
    rack.tell(&lab, &machine, Some(&rack.install(61)));
    netboot(&lab, &machine).await;
    machine.wait_for(delivered(61), LIMIT).await.unwrap();
    let outcome = outcome(&machine, 61);
    assert!(
        matches!(outcome, Outcome::Failed { code: FailureCode::BlobUnavailable, .. }),
        "{outcome:?}\n{}",
        machine.log()
    );
}
