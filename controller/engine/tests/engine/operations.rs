//! Operations that a person requests: in each situation they are done, wait or are refused, and they always end.

use basalt_api::kinds::{
    FailedTestsPolicy, FleetBudget, Lifecycle, MachineMode, OwnershipMode, PowerDriver, PowerPolicy, phase,
};
use basalt_api::wire::{OperationState, Verb};
use basalt_engine::Plan;
use basalt_engine::budget::Budget;
use basalt_engine::facts::Progressed;
use basalt_engine::input::FailedTests;
use basalt_engine::machine::{judge, system_runs};
use basalt_engine::plan::BootAction;
use basalt_engine::steps::StepId;

use crate::world::hardware::Fault;
use crate::world::{World, ready, stalled};

fn done(world: &World, _: &Plan) -> bool {
    world.input.operations.is_empty()
}

fn ready_machine() -> World {
    let mut world = World::new();
    assert!(world.run(2, ready));
    world
}

fn deployed_machine() -> World {
    let mut world = ready_machine();
    world.deploy(|_| {});
    assert!(world.run(3, |_, plan| plan.report.deployed));
    world.recorded.clear();
    world
}

/// The result of the only operation so far.
fn ended(world: &World) -> (Verb, OperationState, &str) {
    assert_eq!(world.violations, Vec::<String>::new());
    let [(verb, state, why)] = world.ended.as_slice() else { panic!("{:?}", world.ended) };
    (*verb, *state, why)
}

fn refused(world: &World, verb: Verb) -> Option<&'static str> {
    judge(&world.input, &world.policy, world.now, verb).err().map(|refused| refused.code)
}

#[test]
fn an_idle_machine_is_switched_on_and_stays_on_until_there_is_work() {
    let mut world = ready_machine();
    assert!(!world.hardware.on);
    world.ask(Verb::PowerOn);
    assert!(world.run(1, done), "{:?}", world.plan());
    assert_eq!(ended(&world), (Verb::PowerOn, OperationState::Done, "Done: web1 is on"));
    assert_eq!(world.plan().boot, BootAction::Local, "it is not told to switch itself off");
    assert!(
        world.run(3, ready) && world.hardware.on,
        "its spec has power = auto: nothing switches it off again"
    );
    world.deploy(|_| {});
    assert!(world.run(3, |_, plan| plan.report.deployed));
    world.undeploy();
    assert!(world.run(3, |world, plan| ready(world, plan) && !world.hardware.on), "the wish is long over");
}

#[test]
fn power_that_followed_too_late_is_read_again() {
    let mut world = ready_machine();
    world.ask(Verb::PowerOn);
    assert!(world.run(1, done), "{:?}", world.plan());
    world.reads_off_too_early(StepId::OperateOn);
    world.recorded.clear();
    assert!(world.run(1, |world, _| world.reads_on()), "{:?}", world.plan());
    assert_eq!(world.recorded, [StepId::ReadPower]);
    assert!(world.hardware.on && world.run(3, ready), "once is enough");
    assert_eq!(world.recorded, [StepId::ReadPower]);
}

#[test]
fn a_machine_that_is_heard_while_it_reads_as_off_has_its_power_read_again() {
    let mut world = World::new();
    assert!(world.run(1, |world, _| world.hardware.running().is_some()));
    world.reads_off_too_early(StepId::NetbootInventory);
    let heard = world.now;
    assert!(world.run(1, |world, _| world.reads_on()), "{:?}", world.plan());
    assert!(world.now.duration_since(heard).as_secs() < 60, "at once");
    assert!(world.run(2, ready));
}

#[test]
fn a_deployed_machine_is_switched_off_and_its_deployment_stays() {
    let mut world = deployed_machine();
    let runs = |world: &World| system_runs(&world.input, &world.policy, world.now);
    assert!(runs(&world), "it is shut down");
    world.ask(Verb::PowerOff);
    assert!(world.run(1, done), "{:?}", world.plan());
    assert!(!runs(&world));
    assert!(world.run(2, ready) && !world.hardware.on && world.plan().report.deployed);
    assert_eq!(world.recorded, [StepId::SoftOff, StepId::OperateOff]);
}

#[test]
fn a_bmc_is_reset_and_the_system_goes_on() {
    let mut world = deployed_machine();
    world.ask(Verb::ResetBmc);
    assert!(world.run(1, done), "{:?}", world.plan());
    assert_eq!((world.recorded.as_slice(), world.hardware.bmc_resets), (&[StepId::ResetBmc][..], 1));
    assert!(world.hardware.on && world.plan().report.deployed);
    let (_, state, why) = ended(&world);
    assert_eq!(state, OperationState::Done);
    assert!(why.contains("the BMC of web1 resets itself") && why.contains("web1 goes on meanwhile"), "{why}");
    assert!(world.run(2, ready) && world.recorded == [StepId::ResetBmc], "{:?}", world.recorded);
}

#[test]
fn a_bmc_is_reset_while_a_disk_is_written() {
    let mut world = ready_machine();
    world.deploy(|_| {});
    assert!(world.run(3, |world, _| world.hardware.writing(&world.tasks)));
    world.ask(Verb::ResetBmc);
    assert!(world.run(1, done), "{:?}", world.plan());
    assert!(world.hardware.bmc_resets == 1 && world.hardware.writing(&world.tasks));
    assert!(world.run(3, |_, plan| plan.report.deployed));
    assert_eq!(ended(&world).1, OperationState::Done);
}

#[test]
fn a_reset_that_the_bmc_refuses_says_why() {
    let mut world = ready_machine();
    world.hardware.faults.insert(Fault::BmcPassword);
    world.ask(Verb::ResetBmc);
    assert!(world.run(1, done), "{:?}", world.plan());
    let (_, state, why) = ended(&world);
    assert_eq!(state, OperationState::Failed);
    assert!(why.starts_with("BmcBadPassword: cannot reset the BMC of web1"), "{why}");
}

#[test]
fn a_bmc_that_has_no_reset_is_not_asked_for_one() {
    let mut world = ready_machine();
    assert_eq!(refused(&world, Verb::ResetBmc), None);
    for (driver, code) in [
        (PowerDriver::Redfish, None),
        (PowerDriver::Webhook, Some("NoBmc")),
        (PowerDriver::Manual, Some("NoBmc")),
    ] {
        world.input.spec.bmc.as_mut().unwrap().driver = driver;
        assert_eq!(refused(&world, Verb::ResetBmc), code, "{driver}");
    }
    world.input.spec.bmc.as_mut().unwrap().driver = PowerDriver::Ipmi;
    world.input.spec.ownership.power = OwnershipMode::Observed;
    assert_eq!(refused(&world, Verb::ResetBmc), Some("PowerObserved"));
    world.input.spec.locked = true;
    assert_eq!(refused(&world, Verb::ResetBmc), Some("Locked"));
}

#[test]
fn a_power_cycle_is_off_and_then_on() {
    let mut world = deployed_machine();
    world.ask(Verb::PowerCycle);
    assert!(world.run(1, done), "{:?}", world.plan());
    assert_eq!(world.recorded, [StepId::SoftOff, StepId::OperateOff, StepId::OperateOn]);
    assert!(world.hardware.on && world.plan().report.deployed);
    assert_eq!(ended(&world).1, OperationState::Done);
}

#[test]
fn power_is_not_touched_while_a_disk_is_written() {
    let mut world = ready_machine();
    world.deploy(|_| {});
    assert!(world.run(3, |world, _| world.hardware.writing(&world.tasks)));
    world.ask(Verb::PowerCycle);
    let seen = world.plan().operations.remove(0);
    assert_eq!(
        (seen.state, seen.message.as_str()),
        (OperationState::Requested, world.plan().waits[0].message.as_str())
    );
    assert!(world.run(3, done), "{:?}", world.plan());
    assert_eq!(ended(&world).1, OperationState::Done);
    assert!(world.plan().report.deployed);
}

#[test]
fn what_cannot_be_done_in_time_expires_and_says_for_what_it_waited() {
    let mut world = ready_machine();
    world.connect(false, false);
    world.ask(Verb::PowerOn);
    let end = world.input.operations[0].deadline;
    world.run(2, done);
    let (_, state, why) = ended(&world);
    assert!(matches!(state, OperationState::Expired | OperationState::Failed), "{state:?}");
    assert!(why.contains("rack1") && world.now <= end, "{why}");
    world.connect(true, false);
    assert!(world.run(1, ready) && !world.hardware.on, "nothing is done that nobody waits for any more");
}

#[test]
fn an_aborted_install_leaves_the_machine_off_and_goes_on_when_somebody_says_so() {
    let mut world = ready_machine();
    world.deploy(|_| {});
    assert!(world.run(3, |world, _| world.hardware.writing(&world.tasks)));
    assert_eq!(refused(&world, Verb::Abort), None);
    world.ask(Verb::Abort);
    assert!(world.run(1, done), "{:?}", world.plan());
    assert_eq!((ended(&world).1, world.hardware.on), (OperationState::Done, false));
    let plan = world.plan();
    assert!(stalled(&world, &plan) && plan.waits[0].code == "Aborted", "{:?}", plan.waits);
    assert_eq!(plan.boot, BootAction::PowerOff);
    assert!(!world.run(5, |_, plan| plan.report.deployed), "it is not begun again by itself");
    assert_eq!(refused(&world, Verb::Abort), Some("NothingToAbort"));
    world.ask(Verb::Recommission);
    assert!(world.run(3, |_, plan| plan.report.deployed), "{:?}", world.plan());
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn what_is_aborted_before_it_booted_powers_nothing() {
    let mut world = World::new();
    world.connect(false, false);
    assert_eq!(refused(&world, Verb::Abort), Some("NothingToAbort"));
    world.connect(true, false);
    while !world.recorded.contains(&StepId::ArmInventory) {
        world.reconcile(crate::world::Crash::Never);
    }
    world.recorded.clear();
    world.ask(Verb::Abort);
    assert!(world.run(1, done), "{:?}", world.plan());
    assert_eq!(world.recorded, Vec::<StepId>::new());
    assert!(world.run(5, stalled));
}

#[test]
fn situations_decide_what_can_be_asked() {
    let world = ready_machine();
    for verb in [Verb::PowerOn, Verb::PowerOff, Verb::PowerCycle, Verb::Recommission, Verb::RunScript] {
        assert_eq!(refused(&world, verb), None, "{verb}");
    }
    let changed = |change: &dyn Fn(&mut World)| {
        let mut world = ready_machine();
        change(&mut world);
        Verb::ALL.map(|verb| refused(&world, verb).unwrap_or("ok"))
    };
    let (nothing, unfailed) = ("NothingToAbort", "NothingToOverride");
    let locked = changed(&|world| world.remachine(|spec| spec.locked = true));
    assert_eq!(locked, ["Locked"; 10]);
    let observed = changed(&|world| world.remachine(|spec| spec.ownership.boot = OwnershipMode::Observed));
    assert_eq!(
        observed,
        ["ok", "ok", "ok", "ok", nothing, "BootObserved", "BootObserved", "BootObserved", unfailed, "ok"]
    );
    let deployed = changed(&|world| world.deploy(|_| {}));
    assert_eq!(deployed, ["ok", "ok", "ok", "ok", nothing, "Claimed", "ok", "Claimed", unfailed, "ok"]);
    let no_bmc = changed(&|world| world.remachine(|spec| spec.bmc = None));
    assert_eq!(no_bmc, ["NoBmc", "NoBmc", "NoBmc", "ok", nothing, "ok", "ok", "ok", unfailed, "NoBmc"]);
    let observed = changed(&|world| world.remachine(|spec| spec.ownership.power = OwnershipMode::Observed));
    assert_eq!(
        observed,
        [
            "PowerObserved",
            "PowerObserved",
            "PowerObserved",
            "ok",
            nothing,
            "ok",
            "ok",
            "ok",
            unfailed,
            "PowerObserved"
        ]
    );
    let off = changed(&|world| world.remachine(|spec| spec.power = PowerPolicy::Off));
    assert_eq!(off, ["Declared", "ok", "Declared", "ok", nothing, "ok", "ok", "ok", unfailed, "ok"]);
    let on = changed(&|world| world.remachine(|spec| spec.power = PowerPolicy::On));
    assert_eq!(on, ["ok", "Declared", "ok", "ok", nothing, "ok", "ok", "ok", unfailed, "ok"]);
    let leaving = changed(&|world| world.input.deletion_requested_at = Some(world.now));
    assert_eq!(
        leaving,
        [
            "Deleting", "Deleting", "Deleting", "Deleting", nothing, "Deleting", "Deleting", "Deleting",
            "Deleting", "Deleting"
        ]
    );
    for mode in [MachineMode::Broken, MachineMode::Rescue, MachineMode::Retired] {
        let mended = changed(&|world| world.remachine(|spec| spec.mode = mode));
        assert_eq!(
            mended,
            ["ok", "ok", "ok", "Mode", nothing, "Mode", "ok", "Mode", unfailed, "ok"],
            "a person mends there: {mode}"
        );
    }
}

/// A machine whose disk failed a test just now.
fn machine_with_a_bad_disk() -> World {
    let mut world = ready_machine();
    world.input.failed_tests = FailedTests {
        tests: ["basalt-disks".to_owned()].into(),
        findings: vec!["basalt-disks sda: 12 sectors cannot be read".to_owned()],
        at: Some(world.now),
        accepted_at: None,
    };
    world
}

#[test]
fn a_machine_whose_hardware_failed_a_test_is_given_to_nobody() {
    let world = machine_with_a_bad_disk();
    let plan = world.plan();
    assert_eq!(phase(&plan.report.axes), "Failed testing");
    let wait = &plan.waits[0];
    assert_eq!((wait.code, wait.stalled), ("TestsFailed", true));
    assert!(
        wait.message.contains("sda: 12 sectors")
            && wait.human.as_ref().unwrap().contains("--test basalt-disks`"),
        "{wait:?}"
    );
}

#[test]
fn nothing_is_installed_on_hardware_that_failed_a_test() {
    let mut world = machine_with_a_bad_disk();
    world.deploy(|_| {});
    world.recorded.clear();
    let plan = world.plan();
    assert_eq!(plan.waits[0].code, "TestsFailed", "{plan:?}");
    assert!(plan.next.is_empty(), "{plan:?}");
    world.input.failed_tests.accepted_at = world.now.checked_add(std::time::Duration::from_secs(1)).ok();
    assert!(world.run(3, |_, plan| plan.report.deployed), "{:?}", world.plan());
}

#[test]
fn failed_tests_are_ignored_where_the_spec_says_so() {
    let mut world = machine_with_a_bad_disk();
    world.remachine(|spec| spec.commissioning.failed_tests = FailedTestsPolicy::Ignore);
    assert_eq!(phase(&world.plan().report.axes), "Ready");
}

#[test]
fn an_override_counts_for_what_failed_before_it() {
    let mut world = machine_with_a_bad_disk();
    assert_eq!(refused(&world, Verb::OverrideTests), None);
    world.now = world.now.checked_add(std::time::Duration::from_secs(1)).unwrap();
    world.ask(Verb::OverrideTests);
    assert_eq!(phase(&world.plan().report.axes), "Ready");
    assert!(world.run(1, done), "{:?}", world.plan());
    world.now = world.now.checked_add(std::time::Duration::from_secs(60)).unwrap();
    world.input.failed_tests.at = Some(world.now);
    assert_eq!(phase(&world.plan().report.axes), "Failed testing", "it failed again");
}

#[test]
fn a_machine_with_failed_tests_is_tested_again_when_somebody_asks() {
    let mut world = machine_with_a_bad_disk();
    world.ask(Verb::Test);
    assert_eq!(world.plan().announced()[..2], [StepId::ArmScript, StepId::NetbootScript]);
    assert!(world.run(1, done), "{:?}", world.plan());
    let (verb, state, why) = world.ended.last().unwrap();
    assert_eq!((*verb, *state), (Verb::Test, OperationState::Done), "{why}");
    assert!(why.contains("basalt results web1"), "{why}");
}

#[test]
fn a_machine_that_is_mended_by_hand_is_switched_as_asked_and_nothing_else_is_done_to_it() {
    let mut world = ready_machine();
    world.remachine(|spec| spec.mode = MachineMode::Broken);
    world.recorded.clear();
    world.ask(Verb::PowerOn);
    assert!(world.run(1, done), "{:?}", world.plan());
    assert!(world.run(2, |_, plan| plan.next.is_empty()) && world.hardware.on);
    assert_eq!(world.recorded, [StepId::OperateOn]);
}

#[test]
fn a_script_is_run_on_an_idle_machine_once_and_the_machine_is_off_again() {
    let mut world = ready_machine();
    world.recorded.clear();
    world.ask(Verb::RunScript);
    let announced = world.plan().announced();
    assert_eq!(announced, [StepId::ArmScript, StepId::NetbootScript]);
    assert!(world.run(2, done), "{:?}", world.plan());
    let (verb, state, why) = ended(&world);
    assert_eq!((verb, state), (Verb::RunScript, OperationState::Done), "{why}");
    assert!(why.starts_with("Done: attempt ") && why.ends_with("has run script probe on web1"), "{why}");
    assert!(world.run(2, ready) && !world.hardware.on, "{:?}", world.plan());
    assert_eq!(world.hardware.scripts.len(), 1);
    assert_eq!(world.recorded[..2], announced);
}

#[test]
fn a_script_leaves_a_machine_on_that_is_declared_on() {
    let mut world = World::new();
    world.remachine(|spec| spec.power = PowerPolicy::On);
    assert!(world.run(2, |world, plan| ready(world, plan) && world.hardware.on));
    world.ask(Verb::RunScript);
    assert!(world.run(2, done), "{:?}", world.plan());
    assert_eq!(ended(&world).1, OperationState::Done);
    assert!(world.run(2, |world, plan| ready(world, plan) && world.hardware.on), "{:?}", world.plan());
}

#[test]
fn a_script_is_told_to_have_failed_and_is_not_run_again() {
    let mut world = ready_machine();
    world.ask(Verb::RunScript);
    assert!(world.run(2, |world, _| world.hardware.running().is_some()));
    // A person restarts the machine in the middle, and it boots from the network again.
    let attempt = world.hardware.running().unwrap();
    world.hardware.restart_into(world.now, attempt);
    assert!(world.run(2, done), "{:?}", world.plan());
    let (_, state, why) = ended(&world);
    assert_eq!(state, OperationState::Failed);
    assert!(why.starts_with("ScriptFailed: script probe on web1 (attempt "), "{why}");
    assert_eq!(world.hardware.scripts, [attempt], "its agent refused the second time");
    assert!(world.run(2, ready) && !world.hardware.on);
}

#[test]
fn an_agent_that_dies_with_a_script_ends_it() {
    let mut world = ready_machine();
    world.hardware.faults.insert(Fault::AgentDies);
    world.ask(Verb::RunScript);
    assert!(world.run(2, done), "{:?}", world.plan());
    let (_, state, why) = ended(&world);
    assert!(state == OperationState::Failed && why.starts_with("AgentSilent"), "{state:?} {why}");
    assert_eq!(world.hardware.scripts.len(), 1);
}

#[test]
fn a_script_that_never_comes_up_is_told_after_three_boots() {
    let mut world = ready_machine();
    world.hardware.faults.insert(Fault::NeverBoots);
    world.ask(Verb::RunScript);
    assert!(world.run(3, done), "{:?}", world.plan());
    let (_, state, why) = ended(&world);
    assert!(matches!(state, OperationState::Failed | OperationState::Expired), "{state:?} {why}");
    assert!(why.contains("never asked") || why.contains("ask for DHCP"), "{why}");
    world.hardware.faults.clear();
    assert!(world.run(2, ready) && !world.hardware.on, "{:?}", world.plan());
    assert_eq!(world.hardware.scripts, []);
}

#[test]
fn a_deployment_waits_for_a_script_that_runs_and_goes_before_one_that_does_not() {
    let mut world = ready_machine();
    world.ask(Verb::RunScript);
    assert!(world.run(2, |world, _| world.hardware.running().is_some()));
    world.deploy(|_| {});
    assert!(world.run(3, |_, plan| plan.report.deployed), "{:?}", world.plan());
    assert_eq!(ended(&world).1, OperationState::Done);

    let mut world = ready_machine();
    world.ask(Verb::RunScript);
    world.deploy(|_| {});
    assert!(world.run(3, |_, plan| plan.report.deployed), "{:?}", world.plan());
    let (_, state, why) = ended(&world);
    assert!(state == OperationState::Failed && why.starts_with("Claimed"), "{why}");
    assert_eq!(world.hardware.scripts, []);
}

#[test]
fn a_script_is_aborted_with_the_power_of_its_machine() {
    let mut world = ready_machine();
    world.ask(Verb::RunScript);
    assert!(world.run(2, |world, _| world.hardware.running().is_some()));
    assert_eq!(refused(&world, Verb::Abort), None);
    world.ask(Verb::Abort);
    assert!(world.run(1, done), "{:?}", world.plan());
    let ends: Vec<_> = world.ended.iter().map(|(verb, state, _)| (*verb, *state)).collect();
    let (script, abort) = ((Verb::RunScript, OperationState::Failed), (Verb::Abort, OperationState::Done));
    assert!(ends == [script, abort] || ends == [abort, script], "{:?}", world.ended);
    assert!(world.run(1, ready) && !world.hardware.on, "{:?}", world.plan());
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn a_script_without_what_it_needs_says_what_to_do_at_once() {
    let mut world = ready_machine();
    world.input.ephemeral = None;
    world.ask(Verb::RunScript);
    assert!(world.run(1, done), "{:?}", world.plan());
    let (_, state, why) = ended(&world);
    assert_eq!(state, OperationState::Failed);
    assert!(why.contains("ephemeral image") && why.contains("basalt image build ephemeral"), "{why}");
}

#[test]
fn a_deployed_machine_is_mended_and_then_runs_its_own_system_again() {
    let mut world = deployed_machine();
    let system = world.hardware.system;
    world.recorded.clear();
    world.ask(Verb::Rescue);
    assert_eq!(world.plan().announced(), [StepId::ArmRescue, StepId::NetbootRescue]);
    assert!(world.run(2, |world, _| world.hardware.running().is_some()), "{:?}", world.plan());
    assert_eq!(world.plan().report.axes.lifecycle, Lifecycle::Rescue);
    assert!(world.run(2, done), "{:?}", world.plan());
    assert_eq!(world.plan().report.axes.lifecycle, Lifecycle::Deployed);
    let (verb, state, why) = ended(&world);
    assert_eq!((verb, state), (Verb::Rescue, OperationState::Done), "{why}");
    assert!(why.starts_with("Done: the rescue of web1 has ended"), "{why}");
    assert!(world.run(2, |world, plan| plan.report.deployed && ready(world, plan)), "{:?}", world.plan());
    assert!(world.hardware.on && world.hardware.system == system && system.is_some());
    let told = [StepId::ArmRescue, StepId::NetbootRescue, StepId::ReadPower];
    assert_eq!(world.recorded, told, "its disk is not installed anew");
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn where_people_come_in_is_told_for_as_long_as_they_can() {
    let mut world = deployed_machine();
    world.ask(Verb::Rescue);
    assert!(world.run(2, |world, _| world.hardware.running().is_some()), "{:?}", world.plan());
    let attempt = world.hardware.running().unwrap();
    let says = |world: &mut World, message: &str| {
        let progress = Progressed {
            at: world.now,
            stage: "run_script".to_owned(),
            percent: 2,
            message: message.to_owned(),
        };
        world.input.facts.progress.insert(attempt, progress);
        let seen = world.plan().operations[0].clone();
        (seen.state, seen.reason, seen.message)
    };
    let (state, reason, _) = says(&mut world, "script rescue has run for 1 s");
    assert_eq!((state, reason.as_str()), (OperationState::Running, "Running"));
    let line = "ssh root@192.0.2.7, host key SHA256:abc, until 2026-01-01 16:00 UTC";
    let (state, reason, message) = says(&mut world, &format!("script rescue has run for 9 s: {line}"));
    assert_eq!((state, reason.as_str()), (OperationState::Running, OperationState::OPEN));
    assert_eq!(message, format!("people can come in: {line}"));
    let waits = world.plan().waits;
    assert_eq!(waits[0].message, format!("web1 runs the rescue environment; people can come in: {line}"));
}

#[test]
fn a_system_that_does_not_report_can_be_mended_before_its_time_is_over() {
    let mut world = ready_machine();
    world.hardware.faults.insert(Fault::SystemSilent);
    world.deploy(|_| {});
    let silent = |_: &World, plan: &Plan| plan.waits.iter().any(|wait| wait.code == "Readiness");
    assert!(world.run(3, silent), "{:?}", world.plan());
    world.advance(1);
    world.ask(Verb::Rescue);
    assert_eq!(world.plan().announced()[..2], [StepId::ArmRescue, StepId::NetbootRescue], "at once");
    assert!(world.run(1, |world, _| world.hardware.running().is_some()), "{:?}", world.plan());
    world.hardware.faults.clear();
    assert!(world.run(2, |world, plan| plan.report.deployed && ready(world, plan)), "{:?}", world.plan());
    assert_eq!(ended(&world).1, OperationState::Done);
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn a_rescue_waits_for_the_end_of_an_install_and_a_release_for_the_end_of_a_rescue() {
    let mut world = ready_machine();
    world.deploy(|_| {});
    assert!(world.run(2, |world, _| world.hardware.running().is_some()), "{:?}", world.plan());
    world.ask(Verb::Rescue);
    assert_eq!(world.plan().operations[0].state, OperationState::Requested);
    assert!(world.run(3, done), "{:?}", world.plan());
    assert_eq!(ended(&world).1, OperationState::Done);
    assert_eq!(world.hardware.rescues.len(), 1);

    let mut world = deployed_machine();
    world.ask(Verb::Rescue);
    assert!(world.run(2, |world, _| world.hardware.running().is_some()), "{:?}", world.plan());
    world.input.claim.as_mut().unwrap().deletion_requested_at = Some(world.now);
    assert!(world.run(3, |world, _| world.input.claim.is_none()), "{:?}", world.plan());
    assert_eq!(ended(&world).1, OperationState::Done);
    assert_eq!(world.violations, Vec::<String>::new(), "its power was not cut under whoever mends it");
}

#[test]
fn a_system_that_was_installed_before_a_rescue_booted_is_not_cut_off_as_it_boots_first() {
    for asked_first in [true, false] {
        let mut world = ready_machine();
        if asked_first {
            world.ask(Verb::Rescue);
            assert!(world.run(1, |world, _| world.recorded.contains(&StepId::NetbootRescue)));
            world.deploy(|_| {});
        } else {
            world.deploy(|_| {});
            assert!(world.run(1, |world, _| world.recorded.contains(&StepId::NetbootInstall)));
            world.ask(Verb::Rescue);
        }
        let reported = |world: &World| !world.input.facts.readiness.is_empty();
        while !done(&world, &world.plan()) {
            assert!(reported(&world) || world.hardware.rescues.is_empty(), "{:?}", world.plan());
            assert!(world.run(1, |world, plan| done(world, plan) || !world.hardware.rescues.is_empty()));
            if !world.hardware.rescues.is_empty() {
                assert!(reported(&world) && !asked_first, "{:?}", world.recorded);
                assert!(world.run(2, done), "{:?}", world.plan());
            }
        }
        let (_, state, why) = ended(&world);
        match asked_first {
            true => assert!(state == OperationState::Failed && why.starts_with("Overtaken"), "{why}"),
            false => assert_eq!(state, OperationState::Done, "{why}"),
        }
        assert!(world.run(3, |world, plan| plan.report.deployed && ready(world, plan)), "{:?}", world.plan());
    }
}

#[test]
fn a_rescue_that_runs_outlives_the_hour_in_which_it_had_to_begin_and_nobody_looks_without_end() {
    let mut world = deployed_machine();
    world.ask(Verb::Rescue);
    assert!(world.run(2, |world, _| world.hardware.running().is_some()), "{:?}", world.plan());
    world.input.operations[0].deadline = world.now;
    let plan = world.plan();
    assert_eq!(plan.operations[0].state, OperationState::Running, "{plan:?}");
    assert!(plan.wake_at > Some(world.now), "{:?}", plan.wake_at);
    assert!(world.run(2, done), "{:?}", world.plan());
    assert_eq!(ended(&world).1, OperationState::Done);
}

#[test]
fn a_rescue_is_no_part_of_the_fleets_budget_and_a_script_is() {
    let spent = || {
        let declared = FleetBudget { max_unavailable: Some(1), ..FleetBudget::default() };
        Budget { declared, in_region: 1, ..Budget::default() }
    };
    let mut world = ready_machine();
    world.input.budget = spent();
    world.ask(Verb::RunScript);
    assert_eq!(world.plan().next, []);
    let waits = |plan: &Plan| plan.waits.iter().any(|wait| wait.code == "FleetBudget");
    assert!(waits(&world.plan()), "{:?}", world.plan());

    let mut world = ready_machine();
    world.input.budget = spent();
    world.ask(Verb::Rescue);
    assert!(world.run(1, |world, _| world.hardware.running().is_some()), "{:?}", world.plan());
    assert_eq!(world.plan().writes, None, "installs of others do not wait for it");
    assert!(world.run(2, done), "{:?}", world.plan());
}

#[test]
fn a_machine_is_mended_whatever_its_mode_is_and_left_off() {
    for mode in [MachineMode::Broken, MachineMode::Rescue, MachineMode::Retired] {
        let mut world = ready_machine();
        world.remachine(|spec| spec.mode = mode);
        world.ask(Verb::Rescue);
        assert!(world.run(2, done), "{mode}: {:?}", world.plan());
        assert_eq!(ended(&world).1, OperationState::Done, "{mode}");
        assert!(world.run(1, |world, _| !world.hardware.on), "{mode}: {:?}", world.plan());
    }
}

#[test]
fn a_rescue_that_is_aborted_leaves_a_deployed_machine_running_its_system() {
    let mut world = deployed_machine();
    world.ask(Verb::Rescue);
    assert!(world.run(2, |world, _| world.hardware.running().is_some()), "{:?}", world.plan());
    world.ask(Verb::Abort);
    assert!(world.run(1, done), "{:?}", world.plan());
    let back = |world: &World, plan: &Plan| plan.report.deployed && ready(world, plan) && world.hardware.on;
    assert!(world.run(2, back), "{:?}", world.plan());
    assert_eq!(world.violations, Vec::<String>::new());
}
