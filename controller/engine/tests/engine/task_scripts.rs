//! Scripts that belong to commissioning and to release.

use basalt_api::agent::PACKAGES_SECONDS;
use basalt_api::kinds::{EraseMethod, FleetBudget, Lifecycle, OnFailure};
use basalt_api::wire::{OperationState, Verb};
use basalt_engine::Plan;
use basalt_engine::budget::Budget;
use basalt_engine::input::TaskScripts;
use basalt_engine::steps::StepId;

use crate::world::hardware::Fault;
use crate::world::{World, ready, stalled};

fn armed(world: &World, step: StepId) -> usize {
    world.recorded.iter().filter(|it| **it == step).count()
}

fn waits_for<'a>(plan: &'a Plan, code: &str) -> Option<&'a basalt_engine::plan::Wait> {
    plan.waits.iter().find(|wait| wait.code == code)
}

#[test]
fn a_machine_is_ready_when_its_scripts_went_well_and_not_before() {
    let mut world = World::new().with_scripts();
    world.hardware.faults.insert(Fault::ScriptFails);
    assert!(world.run(3, stalled), "{:?}", world.plan());
    let plan = world.plan();
    let wait = waits_for(&plan, "ScriptFailed").expect("it says why");
    assert!(wait.message.contains("script burn-in ended with exit status: 1"), "{}", wait.message);
    assert!(wait.human.as_ref().is_some_and(|fix| fix.contains("basalt recommission")), "{wait:?}");
    assert_eq!(plan.report.axes.lifecycle, Lifecycle::Commissioning);
    assert!(!world.run(48, |world, _| armed(world, StepId::ArmInventory) > 1), "it is not tried by itself");

    world.hardware.faults.clear();
    world.ask(Verb::Recommission);
    assert!(world.run(3, ready), "{:?}", world.plan());
    assert_eq!(world.plan().report.axes.lifecycle, Lifecycle::Ready);
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn a_machine_that_a_script_may_restart_is_silent_for_the_time_of_a_boot() {
    let at = |away: bool, minutes: i64| {
        let mut world = World::new().with_scripts();
        assert!(world.run(2, |world, _| world.hardware.running().is_some()), "{:?}", world.plan());
        let attempt = *world.input.facts.claims.keys().next_back().expect("an agent has claimed");
        // Nothing is heard of it from now on.
        world.input.facts.progress.clear();
        let checkpoint = basalt_engine::facts::Checkpointed { at: world.now, seq: 1, away };
        world.input.facts.checkpoints.insert(attempt, checkpoint);
        world.now =
            world.now.checked_add(std::time::Duration::from_secs(60 * minutes.unsigned_abs())).unwrap();
        waits_for(&world.plan(), "TaskRuns").is_some()
    };
    // 5 minutes of silence, and with a restart 10 minutes to the boot request and 5 to the claim.
    assert_eq!((at(false, 4), at(false, 6)), (true, false));
    assert_eq!((at(true, 6), at(true, 19), at(true, 21)), (true, true, false));
}

#[test]
fn an_attempt_with_restarts_lives_longer() {
    let life = |restart_seconds: u64| {
        let mut world = World::new().with_scripts();
        world.input.inspection.restart_seconds = restart_seconds;
        assert!(world.run(1, |world, _| armed(world, StepId::ArmInventory) > 0));
        let record = world.input.records.iter().find(|it| it.step == StepId::ArmInventory).unwrap();
        record.not_after.duration_since(record.started_at).as_secs()
    };
    assert_eq!((life(0), life(600)), (7200, 7800));
    let script = |may_reboot, timeout_seconds| basalt_api::agent::Script {
        may_reboot,
        timeout_seconds,
        ..Default::default()
    };
    let seconds =
        |scripts: &[basalt_api::agent::Script]| basalt_engine::input::restart_seconds(scripts.iter());
    assert_eq!(seconds(&[script(false, 60)]), 0);
    assert_eq!(seconds(&[script(false, 60), script(true, 100)]), 560);
    assert_eq!(seconds(&[script(true, u64::MAX)]), 86_400);
    let packages = vec!["fio".to_owned()];
    let with_packages = basalt_api::agent::Script { packages, ..script(true, 100) };
    assert_eq!(seconds(&[with_packages]), 5 * (100 + PACKAGES_SECONDS));
}

#[test]
fn a_deployment_does_not_begin_on_a_machine_whose_test_fails() {
    let mut world = World::new().with_scripts();
    world.hardware.faults.insert(Fault::ScriptFails);
    world.deploy(|_| {});
    assert!(world.run(3, stalled), "{:?}", world.plan());
    assert!(!world.run(48, |world, _| armed(world, StepId::ArmInstall) > 0), "{:?}", world.recorded);
}

#[test]
fn power_is_not_cut_under_a_script_of_commissioning() {
    for (scripted, expected) in [(true, OperationState::Requested), (false, OperationState::Requested)] {
        let mut world = if scripted { World::new().with_scripts() } else { World::new() };
        assert!(world.run(2, |world, _| world.hardware.running().is_some()), "{:?}", world.plan());
        world.ask(Verb::PowerCycle);
        assert_eq!(world.plan().operations[0].state, expected, "scripted: {scripted}");
        assert_eq!(world.plan().writes.is_some(), scripted, "a script may write to anything");
    }
}

#[test]
fn commissioning_with_scripts_takes_its_part_in_the_fleets_budget() {
    for (scripted, waits) in [(true, true), (false, false)] {
        let mut world = if scripted { World::new().with_scripts() } else { World::new() };
        let declared = FleetBudget { max_unavailable: Some(1), ..FleetBudget::default() };
        world.input.budget = Budget { declared, in_region: 1, ..Budget::default() };
        world.run(1, |world, plan| {
            armed(world, StepId::ArmInventory) > 0 || waits_for(plan, "FleetBudget").is_some()
        });
        assert_eq!(waits_for(&world.plan(), "FleetBudget").is_some(), waits, "scripted: {scripted}");
    }
}

#[test]
fn a_script_that_cannot_be_run_is_told_before_the_machine_is_booted() {
    let mut world = World::new();
    let why = "script burn-in cannot be run without minutes: give it a default".to_owned();
    world.input.inspection = TaskScripts { names: Vec::new(), unusable: Some(why), ..TaskScripts::default() };
    assert!(world.run(2, stalled), "{:?}", world.plan());
    let plan = world.plan();
    let wait = waits_for(&plan, "ScriptUnusable").expect("it says why");
    assert!(wait.message.contains("cannot be run without minutes") && wait.human.is_some(), "{wait:?}");
    assert_eq!(armed(&world, StepId::ArmInventory), 0);
    world.input.inspection = TaskScripts::default();
    assert!(world.run(2, ready), "{:?}", world.plan());
}

#[test]
fn an_install_whose_script_fails_is_not_tried_again_until_a_person_says_so() {
    let mut world = World::new().with_scripts();
    assert!(world.run(3, ready), "{:?}", world.plan());
    world.hardware.faults.insert(Fault::ScriptFails);
    world.deploy(|_| {});
    assert!(world.run(3, stalled), "{:?}", world.plan());
    let plan = world.plan();
    let wait = waits_for(&plan, "ScriptFailed").expect("it says why");
    assert!(wait.message.contains("script burn-in ended with exit status: 1"), "{}", wait.message);
    assert!(!world.run(48, |world, _| armed(world, StepId::ArmInstall) > 1), "it is not tried by itself");

    world.hardware.faults.clear();
    world.ask(Verb::Recommission);
    assert!(world.run(3, |_, plan| plan.report.deployed), "{:?}", world.plan());
    assert_eq!(armed(&world, StepId::ArmInstall), 2);
    assert_eq!(world.violations, Vec::<String>::new());
}

#[test]
fn a_script_of_a_deployment_that_cannot_be_run_is_told_before_anything_is_written() {
    let mut world = World::new();
    assert!(world.run(2, ready), "{:?}", world.plan());
    let why = "script seed is of type testing, and scripts of a deployment takes those of type deployment";
    world.input.install =
        TaskScripts { names: Vec::new(), unusable: Some(why.to_owned()), ..TaskScripts::default() };
    world.deploy(|_| {});
    assert!(world.run(2, stalled), "{:?}", world.plan());
    let plan = world.plan();
    let wait = waits_for(&plan, "ScriptUnusable").expect("it says why");
    assert!(wait.message.contains("is of type testing") && wait.human.is_some(), "{wait:?}");
    assert_eq!(armed(&world, StepId::ArmInstall), 0);
    world.input.install = TaskScripts::default();
    assert!(world.run(3, |_, plan| plan.report.deployed), "{:?}", world.plan());
    // The scripts of a running system's deployment may be any: nothing runs them.
    let why = Some("there is no Script \"seed\"".to_owned());
    world.input.install = TaskScripts { names: Vec::new(), unusable: why, ..TaskScripts::default() };
    assert!(!world.run(48, |_, plan| !plan.report.deployed), "{:?}", world.plan());
    assert_eq!(armed(&world, StepId::ArmInstall), 1);
}

#[test]
fn a_release_whose_script_fails_holds_the_machine_or_abandons_it() {
    for on_failure in [OnFailure::Hold, OnFailure::Abandon] {
        let mut world = World::new().with_scripts();
        world.deploy(|spec| {
            spec.release.erase = EraseMethod::Quick;
            spec.release.on_failure = on_failure;
        });
        assert!(world.run(3, |_, plan| plan.report.deployed), "{:?}", world.plan());
        world.hardware.faults.insert(Fault::ScriptFails);
        world.undeploy();
        match on_failure {
            OnFailure::Hold => {
                assert!(world.run(3, stalled), "{:?}", world.plan());
                assert!(waits_for(&world.plan(), "ScriptFailed").is_some() && world.input.claim.is_some());
            }
            OnFailure::Abandon => {
                assert!(world.run(3, |world, _| world.input.claim.is_none()), "{:?}", world.plan());
                assert!(world.input.unwiped, "nobody erased its disks");
            }
        }
        assert_eq!(world.violations, Vec::<String>::new());
    }
}
