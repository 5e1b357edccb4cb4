//! Complete lives of a machine, and every fault: a failure is reported, and a repair of the cause is enough to go on.

use std::time::Duration;

use basalt_api::agent::{Disk, Firmware};
use basalt_api::kinds::{
    Bmc, Condition, ConditionStatus, EraseMethod, Health, Lifecycle, OwnershipMode, PowerDriver, PowerPolicy,
    PowerState, Readiness, Redeploy, StorageConfig,
};
use basalt_api::wire::Verb;
use basalt_engine::facts::{Level, PowerReading, PowerUnread, Progressed, Reported};
use basalt_engine::failures::PowerFailure;
use basalt_engine::machine::carry_since;
use basalt_engine::plan::Plan;
use basalt_engine::steps::{EffectKind, STEPS, StepId};

use crate::world::hardware::Fault;
use crate::world::{Crash, World, ready, stalled};

#[test]
fn a_machine_is_taken_in_deployed_and_given_back() {
    let mut world = World::new();
    let announced = world.plan().announced();
    assert!(world.run(2, ready), "{:?}", world.plan());
    assert_eq!(world.recorded, announced);
    world.deploy(|_| {});
    world.recorded.clear();
    let announced = world.plan().announced();
    assert!(world.run(2, ready), "{:?}", world.plan());
    assert!(world.plan().report.deployed);
    assert_eq!(world.recorded, announced);
    world.undeploy();
    world.recorded.clear();
    let announced = world.plan().announced();
    assert!(world.run(2, ready), "{:?}", world.plan());
    assert_eq!(world.recorded, announced);
    assert_eq!(world.recorded.last(), Some(&StepId::LetGo));
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn a_wrong_password_stops_at_one_refusal_and_goes_on_when_it_is_mended() {
    let mut world = World::new();
    world.hardware.faults.insert(Fault::BmcPassword);
    assert!(world.run(1, stalled));
    assert_eq!(world.hardware.refused_logins.len(), 1);
    world.hardware.faults.clear();
    world.remachine(|spec| spec.description = Some("the password was corrected".to_owned()));
    assert!(world.run(1, ready), "{:?}", world.plan());
    assert_eq!(world.violations, Vec::<String>::new());
}

/// Each fault, with the code of the wait that reports it.
const MISFORTUNES: &[(Fault, &str)] = &[
    (Fault::BmcUnreachable, "BmcUnreachable"),
    (Fault::BmcPassword, "BmcBadPassword"),
    (Fault::BmcLies, "PowerLies"),
    (Fault::AnswerLost, "PowerNoAnswer"),
    (Fault::NeverBoots, "NeverAsked"),
    (Fault::NeverClaims, "NeverClaimed"),
    (Fault::AgentDies, "AgentSilent"),
    (Fault::DiskTooSmall, "NoDisk"),
    (Fault::ForeignData, "ForeignData"),
    (Fault::BlobUnavailable, "BlobUnavailable"),
    (Fault::SystemSilent, "NotReady"),
    (Fault::RackRefuses, "RackApplies"),
];

#[test]
fn every_misfortune_of_a_deployment_is_named_and_mending_it_is_enough() {
    for (fault, code) in MISFORTUNES {
        let mut world = World::new();
        assert!(world.run(2, ready));
        world.deploy(|_| {});
        world.hardware.faults.insert(*fault);
        assert!(world.run(6, stalled), "{fault:?}: {:?}", world.plan().waits);
        let plan = world.plan();
        let wait = plan.waits.iter().find(|w| w.stalled).unwrap();
        assert_eq!(wait.code, *code, "{fault:?}");
        assert!(wait.human.is_some() && !wait.message.is_empty(), "{fault:?} names what to do");
        world.hardware.faults.clear();
        if wait.deadline.is_none() && matches!(fault, Fault::DiskTooSmall | Fault::ForeignData) {
            world.respec(|spec| spec.description = Some("another disk".to_owned()));
        }
        if *fault == Fault::SystemSilent {
            world.press(true);
        }
        assert!(world.run(3, |_, plan| plan.report.deployed), "{fault:?}: {:?}", world.plan().waits);
        assert_eq!(world.violations, Vec::<String>::new(), "{fault:?}");
    }
}

#[test]
fn a_name_of_two_disks_arms_nothing_until_a_person_says_which_is_meant() {
    let mut world = World::new();
    assert!(world.run(2, ready));
    let size_bytes = 64_000_000_000;
    let disk =
        |name: &str| Disk { name: name.to_owned(), serial: "S1".to_owned(), size_bytes, ..Disk::default() };
    world.input.facts.inventory.as_mut().unwrap().inventory.disks = vec![disk("vda"), disk("vdb")];
    world.deploy(|spec| spec.storage.disk = Some("S1".to_owned()));
    assert!(world.run(1, stalled), "{:?}", world.plan().waits);
    let plan = world.plan();
    let wait = plan.waits.iter().find(|wait| wait.stalled).unwrap();
    assert_eq!(wait.code, "AmbiguousDisk");
    let candidates = r#"/storage/disk: "S1" is the name of several disks: vda of 64000 MB, vdb of 64000 MB"#;
    assert!(wait.message.ends_with(candidates), "{}", wait.message);
    assert!(world.input.records.iter().all(|record| record.step != StepId::ArmInstall));
    world.respec(|spec| spec.storage.disk = Some("vda".to_owned()));
    assert!(world.run(3, |_, plan| plan.report.deployed), "{:?}", world.plan().waits);
}

#[test]
fn a_disk_that_the_machine_does_not_have_is_told_before_it_is_powered_on() {
    let cases = [
        ("vda is not sdz", serde_json::json!({"disk": "sdz"})),
        ("vda has 64000000000 bytes", serde_json::json!({"root_size": "100GB"})),
    ];
    for (why, storage) in cases {
        let mut world = World::new();
        assert!(world.run(2, ready));
        world.deploy(|spec| spec.storage = serde_json::from_value(storage).unwrap());
        let plan = world.plan();
        assert!(plan.notes.iter().any(|note| note.contains(why)), "{:?}", plan.notes);
        assert!(world.run(1, stalled), "{:?}", world.plan().waits);
        let plan = world.plan();
        let wait = plan.waits.iter().find(|wait| wait.stalled).unwrap();
        assert_eq!(wait.code, "NoDisk");
        assert!(wait.message.contains(why), "{}", wait.message);
        assert!(world.input.records.iter().all(|record| record.step != StepId::ArmInstall));
        world.respec(|spec| spec.storage = StorageConfig::default());
        assert!(world.run(3, |_, plan| plan.report.deployed), "{:?}", world.plan().waits);
    }
}

#[test]
fn a_plan_names_the_disk_that_an_undeclared_storage_takes_and_the_one_that_a_bios_boots() {
    let mut world = World::new();
    assert!(world.run(2, ready));
    let disk = |name: &str, size_bytes| Disk { name: name.to_owned(), size_bytes, ..Disk::default() };
    let inventory = &mut world.input.facts.inventory.as_mut().unwrap().inventory;
    inventory.disks = vec![disk("vda", 64_000_000_000), disk("vdb", 32_000_000_000)];
    inventory.firmware = Firmware::Bios;
    world.deploy(|_| {});
    let name = &world.input.name;
    let expected = [
        "the storage does not name its disk, and takes vdb of 32000 MB: of 2 disks the smallest that is large enough".to_owned(),
        format!(
            "{name} boots by BIOS, which takes the first disk of its own order: by itself vda, and the system goes to vdb; \
             put that first in the BIOS, or name vda in the storage"
        ),
    ];
    assert_eq!(world.plan().notes, expected);
    world.input.facts.inventory.as_mut().unwrap().inventory.firmware = Firmware::Uefi;
    assert_eq!(world.plan().notes, expected[..1]);
    world.respec(|spec| spec.storage.disk = Some("vdb".to_owned()));
    assert_eq!(world.plan().notes, [""; 0]);
}

#[test]
fn an_interface_that_the_machine_does_not_have_is_told_in_the_plan() {
    let mut world = World::new();
    assert!(world.run(2, ready));
    world.deploy(|spec| {
        let network = serde_json::json!({"interfaces": {"eno9": {"addressing": "dhcp"}}});
        spec.network = Some(serde_json::from_value(network).unwrap());
    });
    let notes = world.plan().notes;
    assert!(notes.iter().any(|note| note.contains("the machine has no interface eno9; it has")), "{notes:?}");
}

#[test]
fn a_card_under_two_names_is_told_in_the_plan() {
    let mut world = World::new();
    assert!(world.run(2, ready));
    let nic = world.input.facts.inventory.as_ref().unwrap().inventory.nics[0].clone();
    world.deploy(|spec| {
        let network = serde_json::json!({"interfaces": {
            "a": {"addressing": "dhcp", "mac": nic.mac}, nic.name.clone(): {"addressing": "dhcp"}}});
        spec.network = Some(serde_json::from_value(network).unwrap());
    });
    let why = format!("are one interface of the machine, {}", nic.name);
    let notes = world.plan().notes;
    assert!(notes.iter().any(|note| note.contains(&why)), "{notes:?}");
}

#[test]
fn a_deployment_on_unknown_hardware_waits_for_an_inventory() {
    for network in
        [serde_json::json!({}), serde_json::json!({"interfaces": {"eth0": {"addressing": "dhcp"}}})]
    {
        let mut world = World::new();
        world.input.spec.commissioning.skip = true;
        world.deploy(|spec| spec.network = Some(serde_json::from_value(network).unwrap()));
        let remedy = format!("run `basalt recommission {}`", world.input.name);
        let note = format!(
            "the network does not fit {}: the machine's network interfaces are unknown; {remedy}",
            world.input.name
        );
        assert_eq!(world.plan().notes, [note]);
        assert!(world.run(1, |_, plan| plan.waits.iter().any(|wait| wait.code == "NetworkMisfit")));
        let plan = world.plan();
        let wait = plan.waits.iter().find(|wait| wait.code == "NetworkMisfit").unwrap();
        assert!(wait.message.contains("the machine's network interfaces are unknown"), "{}", wait.message);
        assert_eq!(wait.human.as_ref(), Some(&remedy));
        // A machine that is commissioned first may have any interface.
        world.input.spec.commissioning.skip = false;
        assert_eq!(world.plan().notes, [""; 0]);
    }
}

#[test]
fn a_recommissioned_machine_voids_what_was_said_about_its_disks() {
    let mut world = World::new();
    world.hardware.faults.insert(Fault::DiskTooSmall);
    world.deploy(|_| {});
    assert!(world.run(4, stalled));
    world.hardware.faults.clear();
    world.input.recommission_requested_at = Some(world.now);
    assert!(world.run(4, |_, plan| plan.report.deployed), "{:?}", world.plan().waits);
}

#[test]
fn a_region_that_dies_at_any_step_goes_on_and_does_nothing_twice() {
    let effects = STEPS.iter().filter(|s| s.effect != EffectKind::Observe).map(|s| s.id);
    let mut killed = Vec::new();
    for point in effects {
        for crash in [Crash::BeforeRecord, Crash::AfterRecord, Crash::AfterEffect] {
            let mut world = World::new();
            world.kill_at = Some((point, crash));
            live_a_full_life(&mut world);
            assert_eq!(world.violations, Vec::<String>::new(), "{point:?} {crash:?}");
            if world.kill_at.is_none() {
                killed.push(point);
            }
        }
    }
    let missed: Vec<_> = STEPS
        .iter()
        .filter(|s| s.effect != EffectKind::Observe && !killed.contains(&s.id))
        .map(|s| s.name)
        .collect();
    assert_eq!(missed, Vec::<&str>::new(), "each step with an effect was a kill point");
}

/// A life with every step: a silent first boot, a power change by hand, an erase, a removal.
fn live_a_full_life(world: &mut World) {
    assert!(world.run(2, ready), "{:?}", world.plan());
    world.ask(Verb::Recommission);
    assert!(world.run(2, |world, _| world.hardware.running().is_some()), "{:?}", world.plan());
    world.ask(Verb::Abort);
    assert!(world.run(2, |world, _| world.input.operations.is_empty()), "{:?}", world.plan());
    world.ask(Verb::Recommission);
    assert!(world.run(2, ready), "{:?}", world.plan());
    world.ask(Verb::PowerCycle);
    assert!(world.run(2, |world, _| world.input.operations.is_empty()), "{:?}", world.plan());
    world.ask(Verb::ResetBmc);
    assert!(world.run(2, |world, _| world.input.operations.is_empty()), "{:?}", world.plan());
    assert_eq!(world.hardware.bmc_resets, 1, "{:?}", world.ended);
    world.ask(Verb::RunScript);
    assert!(world.run(2, |world, _| world.input.operations.is_empty()), "{:?}", world.plan());
    assert_eq!(world.hardware.scripts.len(), 1, "a script is run once: {:?}", world.ended);
    world.ask(Verb::Rescue);
    assert!(world.run(2, |world, _| world.input.operations.is_empty()), "{:?}", world.plan());
    assert_eq!(world.hardware.rescues.len(), 1, "{:?}", world.ended);
    world.deploy(|_| {});
    world.hardware.faults.insert(Fault::SystemSilent);
    assert!(world.run(6, stalled), "{:?}", world.plan());
    world.hardware.faults.clear();
    assert!(world.run(0, |_, _| false) || world.hardware.on);
    world.press(false);
    world.press(true);
    assert!(world.run(6, |_, plan| plan.report.deployed), "{:?}", world.plan());
    world.press(false);
    assert!(world.run(2, ready) && !world.hardware.on, "power = auto: somebody had a reason");
    assert_eq!(power_told(world), "web1 is deployed and ought to be on; its BMC says that it is off");
    world.remachine(|spec| spec.power = PowerPolicy::On);
    assert!(world.run(2, |world, plan| ready(world, plan) && world.hardware.on), "held on");
    assert_eq!(power_told(world), "");
    let installs = world.recorded.iter().filter(|s| **s == StepId::ArmInstall).count();
    assert_eq!(installs, 1, "nothing is installed twice");
    world.undeploy();
    assert!(world.run(2, ready), "{:?}", world.plan());
    world.remachine(|spec| spec.power = PowerPolicy::Auto);
    assert!(world.run(2, |world, plan| ready(world, plan) && !world.hardware.on));
    world.press(true);
    assert!(world.run(2, ready) && world.hardware.on);
    assert_eq!(power_told(world), "web1 is idle and ought to be off; its BMC says that it is on");
    world.remachine(|spec| spec.power = PowerPolicy::Off);
    assert!(world.run(2, |world, plan| ready(world, plan) && !world.hardware.on), "held off");
    world.input.deletion_requested_at = Some(world.now);
    assert!(world.run(2, |world, _| world.gone), "{:?}", world.plan());
}

/// The message of the condition about its power; empty if there is none.
fn power_told(world: &World) -> String {
    let conditions = world.plan().report.conditions;
    let told = conditions.into_iter().find(|it| it.kind == Condition::POWER_DIFFERS);
    told.map(|it| it.message).unwrap_or_default()
}

#[test]
fn power_that_cannot_be_read_is_told_and_changes_nothing() {
    let mut world = World::new();
    world.deploy(|_| {});
    assert!(world.run(3, ready));
    let digest = world.plan().digest;
    world.input.facts.unread = Some(PowerUnread {
        at: world.now,
        failure: PowerFailure::Unreachable,
        message: "no answer to 5 packets".to_owned(),
    });
    let plan = world.plan();
    let told = plan.report.conditions.iter().find(|it| it.kind == Condition::POWER_DIFFERS).unwrap();
    assert_eq!(
        (told.status, told.reason.as_str(), told.message.as_str()),
        (
            ConditionStatus::Unknown,
            "BmcUnreachable",
            "the power of web1 cannot be read: the BMC does not answer (no answer to 5 packets)"
        )
    );
    assert_eq!((plan.report.axes.health, plan.report.deployed), (Health::Degraded, true));
    assert!(plan.next.is_empty() && plan.waits.is_empty() && plan.digest == digest);
}

#[test]
fn the_power_of_a_machine_that_is_only_observed_is_told_and_not_changed() {
    let mut world = World::new();
    world.deploy(|_| {});
    assert!(world.run(3, ready));
    world.remachine(|spec| {
        spec.power = PowerPolicy::On;
        spec.ownership.power = OwnershipMode::Observed;
    });
    world.recorded.clear();
    world.press(false);
    assert!(world.run(3, ready) && world.recorded.is_empty());
    assert_eq!(power_told(&world), "web1 is deployed and ought to be on; its BMC says that it is off");
}

#[test]
fn a_reading_during_an_install_causes_nothing() {
    for power in [PowerPolicy::Auto, PowerPolicy::On, PowerPolicy::Off] {
        let mut world = World::new();
        assert!(world.run(2, ready));
        world.remachine(|spec| spec.power = power);
        assert!(world.run(2, ready));
        world.deploy(|_| {});
        assert!(world.run(3, |world, _| world.hardware.writing(&world.tasks)));
        let before = world.plan();
        for state in [PowerState::Off, PowerState::On, PowerState::Off] {
            world.input.facts.power = Some(PowerReading { state, at: world.now });
            let plan = world.plan();
            assert!(plan.next.is_empty(), "{power:?} {state:?}: {:?}", plan.next);
            assert_eq!((&plan.waits, power_told(&world).as_str()), (&before.waits, ""));
        }
    }
}

#[test]
fn a_release_asks_the_system_to_shut_down_and_then_cuts_the_power() {
    for (fault, seconds) in [(None, 30), (Some(Fault::SystemSilent), 120)] {
        let mut world = World::new();
        world.deploy(|_| {});
        assert!(world.run(3, ready));
        world.recorded.clear();
        world.hardware.faults.extend(fault);
        world.undeploy();
        let begun = world.now;
        assert_eq!(
            world.plan().announced().first(),
            Some(&StepId::SoftOff),
            "people see it: {:?}",
            world.plan()
        );
        assert!(world.run(3, ready), "{:?}", world.plan());
        assert_eq!(world.recorded.first_chunk(), Some(&[StepId::SoftOff, StepId::PowerOffRelease]));
        let cut = world.input.records.iter().find(|r| r.step == StepId::PowerOffRelease).unwrap();
        let waited = cut.started_at.duration_since(begun).as_secs();
        assert!((seconds..seconds + 30).contains(&waited), "{fault:?}: {waited} s");
        assert_eq!(world.violations, Vec::<String>::new());
    }
}

#[test]
fn a_system_that_was_perhaps_asked_to_shut_down_has_its_time() {
    let mut world = World::new();
    world.deploy(|_| {});
    assert!(world.run(3, ready));
    world.hardware.faults.insert(Fault::AnswerLost);
    world.undeploy();
    let begun = world.now;
    assert!(world.run(1, |world, _| world.hardware.felt.borrow().contains_key(&Fault::AnswerLost)));
    world.hardware.faults.clear();
    assert!(world.run(3, ready), "{:?}", world.plan());
    let cut = world.input.records.iter().find(|r| r.step == StepId::PowerOffRelease).unwrap();
    let waited = cut.started_at.duration_since(begun).as_secs();
    // 90 seconds for the answer, and two minutes for the system.
    assert!((210..240).contains(&waited), "{waited} s");
}

#[test]
fn an_agent_that_is_dead_is_asked_nothing() {
    let mut world = World::new();
    world.hardware.faults.insert(Fault::AgentDies);
    world.deploy(|_| {});
    assert!(world.run(3, stalled));
    world.undeploy();
    world.hardware.faults.clear();
    assert!(world.run(6, ready), "{:?}", world.plan());
    assert!(!world.recorded.contains(&StepId::SoftOff), "{:?}", world.recorded);
}

#[test]
fn a_deployed_machine_that_is_declared_off_is_shut_down_each_time() {
    let mut world = World::new();
    world.deploy(|_| {});
    assert!(world.run(3, ready));
    world.recorded.clear();
    world.remachine(|spec| spec.power = PowerPolicy::Off);
    assert!(world.run(1, |world, plan| ready(world, plan) && !world.hardware.on), "{:?}", world.plan());
    assert_eq!(world.recorded, [StepId::SoftOff, StepId::HoldOff]);
    world.advance(600);
    world.press(true);
    assert!(world.run(1, |world, plan| ready(world, plan) && !world.hardware.on), "{:?}", world.plan());
    assert_eq!(world.recorded, [StepId::SoftOff, StepId::HoldOff, StepId::SoftOff, StepId::HoldOff]);
}

/// The system has shut down, and the BMC has not answered the command that cuts the power.
#[test]
fn a_power_off_that_is_not_answered_is_waited_for_and_what_follows_is_told() {
    let mut world = World::new();
    world.deploy(|_| {});
    assert!(world.run(3, ready));
    world.remachine(|spec| spec.power = PowerPolicy::Off);
    while world.reads_on() {
        world.reconcile(Crash::Never);
        world.advance(600);
    }
    world.hardware.faults.insert(Fault::AnswerLost);
    while world.recorded.last() != Some(&StepId::HoldOff) {
        world.reconcile(Crash::Never);
    }
    world.hardware.faults.clear();
    let plan = world.plan();
    assert!(
        !ready(&world, &plan) && plan.waits.iter().any(|it| it.step == Some(StepId::HoldOff)),
        "{plan:?}"
    );
    world.undeploy();
    let announced = world.plan().announced();
    assert!(announced.starts_with(&[StepId::PowerOffRelease]), "{announced:?}");
    assert!(world.run(3, ready), "{:?}", world.plan());
    assert_eq!(world.violations, Vec::<String>::new());
}

/// The answer to the last command says on, and a later reading says off.
#[test]
fn a_machine_that_went_off_by_itself_is_not_switched_off() {
    let mut world = World::new();
    assert!(world.run(2, ready));
    world.recorded.clear();
    world.input.facts.answered = Some(PowerReading { state: PowerState::On, at: world.now });
    world.advance(60);
    world.input.facts.power = Some(PowerReading { state: PowerState::Off, at: world.now });
    assert!(world.run(1, ready));
    assert_eq!(world.recorded, []);
}

#[test]
fn a_changed_deployment_is_installed_again_only_in_place() {
    for (redeploy, again) in [(Redeploy::Refuse, false), (Redeploy::InPlace, true)] {
        let mut world = World::new();
        world.deploy(|spec| spec.redeploy = redeploy);
        assert!(world.run(3, ready));
        world.recorded.clear();
        world.respec(|spec| spec.hostname = Some("other".parse().unwrap()));
        assert!(world.run(3, ready), "{:?}", world.plan());
        assert_eq!(world.recorded.contains(&StepId::ArmInstall), again, "{redeploy:?}");
        assert_eq!(world.violations, Vec::<String>::new());
    }
}

#[test]
fn a_release_waits_for_the_end_of_an_install() {
    let mut world = World::new();
    world.deploy(|_| {});
    assert!(world.run(3, |world, _| world.hardware.writing(&world.tasks)));
    world.undeploy();
    let plan = world.plan();
    assert_eq!(plan.waits[0].code, "TaskRuns");
    assert!(world.run(3, ready), "{:?}", world.plan());
    assert_eq!(world.violations, Vec::<String>::new());
    assert_eq!(world.hardware.data_of, None, "erased");
}

#[test]
fn a_deployment_is_done_when_what_it_asks_for_was_seen() {
    for (check, level, done) in [
        (Readiness::Installed, None, true),
        (Readiness::Booted, None, false),
        (Readiness::Booted, Some(Level::Booted), true),
        (Readiness::CloudInit, Some(Level::Booted), false),
        (Readiness::CloudInit, Some(Level::CloudInit), true),
    ] {
        let mut world = World::new();
        assert!(world.run(2, ready));
        world.hardware.faults.insert(Fault::SystemSilent);
        world.deploy(|spec| spec.readiness.check = check);
        let ended = |world: &World| {
            let attempt = world.hardware.system?;
            world.input.facts.results.contains_key(&attempt).then_some(attempt)
        };
        assert!(world.run(3, |world, _| ended(world).is_some()), "{check:?}: {:?}", world.plan().waits);
        let attempt = ended(&world).unwrap();
        if let Some(level) = level {
            let seen = Reported { at: world.now, level, address: "10.77.0.9".to_owned() };
            world.input.facts.readiness.insert(attempt, seen);
        }
        assert_eq!(world.plan().report.deployed, done, "{check:?} {level:?}: {:?}", world.plan().waits);
    }
}

#[test]
fn a_system_has_the_time_that_its_deployment_gives_it() {
    let deadline = |timeout: &str| {
        let mut world = World::new();
        assert!(world.run(2, ready));
        world.hardware.faults.insert(Fault::SystemSilent);
        world.deploy(|spec| spec.readiness.timeout = timeout.parse().unwrap());
        assert!(world.run(3, |_, plan| plan.waits.iter().any(|it| it.code == "Readiness")));
        let plan = world.plan();
        let wait = plan.waits.iter().find(|it| it.code == "Readiness").unwrap();
        wait.deadline.unwrap().duration_since(world.now).as_secs()
    };
    let (short, long) = (deadline("15m"), deadline("2h"));
    assert!(short <= 900 && (7200 - 900..=7200).contains(&long) && long - short >= 6000, "{short} {long}");
}

#[test]
fn a_machine_without_a_bmc_that_can_be_asked_is_left_to_a_person() {
    let mut world = World::new();
    world.remachine(|spec| spec.bmc = Some(Bmc::new(PowerDriver::Manual)));
    assert!(
        world.run(1, |_, plan| plan.waits.iter().any(|it| it.code == "ManualPower")),
        "{:?}",
        world.plan()
    );
}

/// Runs until `done`. Whenever the plan asks for the power switch, a person presses it. Returns these steps, with what they are told.
fn by_hand(world: &mut World, done: impl Fn(&World, &Plan) -> bool) -> Vec<(StepId, String)> {
    let mut asked: Vec<(StepId, String)> = Vec::new();
    loop {
        // After the switch was pressed, the wait lasts until the machine's agent comes.
        let new = |plan: &Plan| {
            let mut waits = plan.waits.iter().filter(|wait| wait.code == "ManualPower");
            waits.find(|wait| asked.iter().all(|(step, _)| Some(*step) != wait.step)).cloned()
        };
        assert!(world.run(3, |world, plan| new(plan).is_some() || done(world, plan)), "{:?}", world.plan());
        let Some(wait) = new(&world.plan()) else { return asked };
        let cycles = world.hardware.power_cycles;
        assert!(!world.run(12, |world, plan| new(plan).is_none() || done(world, plan)), "it waits");
        assert!(wait.stalled && wait.deadline.is_none(), "{wait:?}");
        assert_eq!(world.hardware.power_cycles, cycles, "nobody else switches it");
        assert_eq!(wait.message, "waiting for web1 to be booted from the network by hand");
        asked.push((wait.step.unwrap(), wait.human.unwrap()));
        world.hardware.press(world.now, false);
        world.hardware.press_for_network(world.now);
    }
}

#[test]
fn a_machine_without_a_bmc_lives_its_life_while_a_person_does_what_each_wait_says() {
    let mut world = World::new();
    world.remachine(|spec| spec.bmc = Some(Bmc::new(PowerDriver::Manual)));
    let mut asked = by_hand(&mut world, ready);
    world.deploy(|_| {});
    asked.extend(by_hand(&mut world, |_, plan| plan.report.deployed));
    world.undeploy();
    asked.extend(by_hand(&mut world, ready));
    let told = |step| (step, "switch web1 off and on, and have it boot from the network".to_owned());
    assert_eq!(asked, [StepId::AskInventory, StepId::AskInstall, StepId::AskErase].map(told));
    assert_eq!(world.hardware.commands, 0, "no BMC is asked");
    world.recorded.dedup();
    let steps = [StepId::ArmInventory, StepId::ArmInstall, StepId::ArmErase, StepId::LetGo];
    assert_eq!(world.recorded, steps, "nothing is armed that the person was not asked for");
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn axes_and_conditions_say_what_is_waited_for_since_when_and_until_when() {
    let mut world = World::new();
    assert!(world.run(1, |_, plan| plan.waits.iter().any(|it| it.code == "BootRequest")));
    let mut plan = world.plan();
    let wait = plan.waits[0].clone();
    assert_eq!(plan.report.axes.operation_detail.as_deref(), Some(wait.message.as_str()));
    let conditions = &mut plan.report.conditions;
    let progressing = conditions.iter().find(|it| it.kind == Condition::PROGRESSING).unwrap();
    assert_eq!((progressing.deadline, wait.deadline.is_some()), (wait.deadline, true));
    let before = conditions.clone();
    let later = world.now.checked_add(Duration::from_secs(60)).unwrap();
    let changed = conditions.iter_mut().find(|it| it.kind == Condition::STALLED).unwrap();
    changed.status = ConditionStatus::True;
    carry_since(&before, conditions, later);
    for (was, is) in before.iter().zip(conditions.iter()) {
        let expected = if was.status == is.status { was.since } else { later };
        assert_eq!(is.since, expected, "{}", is.kind);
    }
}

#[test]
fn a_task_that_runs_says_how_far_it_is() {
    let mut world = World::new();
    assert!(world.run(1, |_, plan| plan.waits.iter().any(|it| it.code == "TaskRuns")));
    let attempt = world.input.records.iter().rev().find_map(|it| it.attempt).unwrap();
    let seen = Progressed {
        at: world.now,
        stage: "disks".to_owned(),
        percent: 40,
        message: "reads disks".to_owned(),
    };
    world.input.facts.progress.insert(attempt, seen);
    let report = world.plan().report;
    assert_eq!((report.activity.as_deref(), report.percent), (Some("reads disks"), Some(40)));
}

#[test]
fn erase_none_is_believed() {
    let mut world = World::new();
    world.deploy(|spec| spec.release.erase = EraseMethod::None);
    assert!(world.run(3, ready));
    world.undeploy();
    assert!(world.run(3, ready));
    assert!(!world.recorded.contains(&StepId::ArmErase));
    assert!(!world.hardware.on);
    assert_eq!(world.plan().report.axes.lifecycle, Lifecycle::Ready);
}

#[test]
fn a_clock_that_goes_back_stands_still_until_it_has_caught_up() {
    let mut world = World::new();
    world.deploy(|_| {});
    assert!(world.run(2, ready));
    world.press(false);
    let now = world.plan();
    for back in [1, 3600, 86_400] {
        let earlier = world.now.checked_sub(Duration::from_secs(back)).unwrap();
        assert_eq!(basalt_engine::plan(&world.input, &world.policy, earlier), now, "{back} s");
    }
}

#[test]
fn a_machine_that_is_switched_on_in_the_instant_of_its_power_off_is_powered_off_again() {
    let mut world = World::new();
    assert!(world.run(2, ready));
    world.remachine(|spec| spec.power = PowerPolicy::Off);
    world.advance(60);
    world.press(true);
    while world.reconcile(Crash::Never) {}
    assert!(!world.hardware.on, "{:?}", world.plan());
    world.press(true);
    while world.reconcile(Crash::Never) {}
    assert!(!world.hardware.on, "no time has passed: {:?}", world.plan());
    assert_eq!(world.recorded.iter().filter(|step| **step == StepId::HoldOff).count(), 2);
    assert!(world.run(1, ready), "{:?}", world.plan());
    assert_eq!(world.violations, Vec::<String>::new());
}

/// An install whose agent works when the clock jumps. The agent is taken for dead, and another attempt is armed.
fn taken_for_dead() -> World {
    let mut world = World::new();
    assert!(world.run(2, ready));
    world.deploy(|_| {});
    assert!(world.run(1, |world, _| world.hardware.writing(&world.tasks)));
    world.recorded.clear();
    world.hardware.delay(Duration::from_secs(3 * 3600));
    world.now = world.now.checked_add(Duration::from_secs(3 * 3600)).unwrap();
    assert!(world.reconcile(Crash::Never));
    assert_eq!(world.recorded, [StepId::ArmInstall]);
    world
}

#[test]
fn an_install_that_was_taken_for_dead_counts_when_it_ends_before_the_next_has_begun() {
    let mut world = taken_for_dead();
    let first = world.hardware.running();
    // The rack does not get the next attempt until the first has ended.
    while world.hardware.running() == first {
        world.advance(600);
    }
    assert!(world.run(1, |_, plan| plan.report.deployed), "{:?}", world.plan());
    assert_eq!((world.hardware.system, world.plan().report.installed_by), (first, first));
    assert_eq!(world.recorded, [StepId::ArmInstall], "nothing was begun any more");
    // The attempt that no agent has begun does not count for the next deployment.
    world.undeploy();
    assert!(world.run(2, ready), "{:?}", world.plan());
    assert_eq!((world.hardware.data_of, world.hardware.system), (None, None));
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn an_install_that_was_taken_for_dead_counts_no_more_once_what_is_declared_has_changed() {
    let mut world = taken_for_dead();
    let first = world.hardware.running();
    world.respec(|spec| {
        spec.redeploy = Redeploy::InPlace;
        spec.kernel_options = Some("quiet".to_owned());
    });
    while world.hardware.running() == first {
        world.advance(600);
    }
    assert!(world.run(3, |_, plan| plan.report.deployed), "{:?}", world.plan());
    assert!(world.hardware.system > first, "another one has installed it");
}

/// A machine whose agent took its task while the rack was disconnected. The rack reconnects without its spool.
fn written_unheard() -> World {
    let mut world = World::new();
    assert!(world.run(2, ready));
    world.deploy(|_| {});
    world.reconcile(Crash::Never);
    while !world.recorded.contains(&StepId::NetbootInstall) {
        world.reconcile(Crash::Never);
        world.advance(5);
    }
    world.connect(false, false);
    while !world.hardware.writing(&world.tasks) {
        world.advance(5);
    }
    world.connect(true, true);
    world
}

#[test]
fn a_release_does_not_cut_the_power_of_an_agent_whose_claim_was_lost() {
    let mut world = written_unheard();
    world.undeploy();
    let plan = world.plan();
    let codes: Vec<_> = plan.waits.iter().map(|wait| wait.code).collect();
    assert_eq!(codes, ["Unheard"], "{plan:?}");
    assert!(world.run(2, ready), "{:?}", world.plan());
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn an_agent_that_is_not_heard_again_delays_a_release_by_its_quiet_time_alone() {
    let mut world = written_unheard();
    // A person restarts it, and no rack reports that.
    world.hardware.press(world.now, false);
    world.hardware.press(world.now, true);
    world.undeploy();
    let until = world.plan().waits.first().and_then(|wait| wait.deadline).unwrap();
    assert!(world.run(2, ready), "{:?}", world.plan());
    let off = world.input.records.iter().find(|record| record.step == StepId::PowerOffRelease).unwrap();
    assert_eq!(off.started_at, until);
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn what_is_off_is_not_waited_for() {
    let mut world = written_unheard();
    world.advance(1);
    world.press(false);
    world.undeploy();
    let plan = world.plan();
    assert!(plan.waits.iter().all(|wait| wait.code != "Unheard"), "{plan:?}");
    assert!(world.run(2, ready), "{:?}", world.plan());
    assert_eq!(world.violations, Vec::<String>::new());
}
