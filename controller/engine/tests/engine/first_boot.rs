//! Scripts of the first boot of an installed system.

use basalt_api::agent::{PACKAGES_SECONDS, Script, TaskAction};
use basalt_api::kinds::{Lifecycle, Operation, Readiness};
use basalt_api::values::Attempt;
use basalt_engine::facts::FirstBootEnded;
use basalt_engine::input::FirstBootScripts;
use basalt_engine::plan::{Plan, TaskKind, Wait};
use basalt_engine::render::{Context, compose};
use basalt_engine::steps::StepId;

use crate::world::hardware::Fault;
use crate::world::{World, ready, stalled};

fn wait<'a>(plan: &'a Plan, code: &str) -> Option<&'a Wait> {
    plan.waits.iter().find(|wait| wait.code == code)
}

/// The attempt that installed the system.
fn installed(world: &World) -> Attempt {
    world.hardware.system.expect("a system")
}

#[test]
fn a_deployment_is_ready_when_the_scripts_of_its_first_boot_went_well() {
    for check in [Readiness::Installed, Readiness::Booted, Readiness::CloudInit] {
        let mut world = World::new().with_first_boot();
        world.deploy(|spec| spec.readiness.check = check);
        assert!(world.run(3, |_, plan| wait(plan, "FirstBoot").is_some()), "{check:?}: {:?}", world.plan());
        let plan = world.plan();
        let message = &wait(&plan, "FirstBoot").unwrap().message;
        assert_eq!(message, "waiting for web1 to run its scripts of the first boot: join, tune");
        assert_eq!(plan.report.axes.lifecycle, Lifecycle::Deploying);
        assert!(!world.input.facts.first_boot.contains_key(&installed(&world)), "they have not ended");
        assert!(world.run(1, ready), "{check:?}: {:?}", world.plan());
        assert!(world.input.facts.first_boot.contains_key(&installed(&world)), "{check:?}");
        assert_eq!(world.plan().report.axes.lifecycle, Lifecycle::Deployed);
        assert_eq!(world.violations, Vec::<String>::new());
    }
}

#[test]
fn a_deployment_without_such_scripts_does_not_wait_for_them() {
    let mut world = World::new();
    world.deploy(|_| {});
    assert!(world.run(3, ready), "{:?}", world.plan());
    assert!(world.input.facts.first_boot.is_empty());
    // The running system stays as it is, so scripts that are declared now count from the next install on.
    world.input.first_boot = FirstBootScripts { names: vec!["join".to_owned()], seconds: 60 };
    assert!(ready(&world, &world.plan()), "{:?}", world.plan());
    // And scripts that are no longer declared have been run by the system that was installed with them.
    let mut world = World::new().with_first_boot();
    world.deploy(|_| {});
    assert!(world.run(3, |_, plan| wait(plan, "FirstBoot").is_some()));
    world.input.first_boot = FirstBootScripts::default();
    assert!(wait(&world.plan(), "FirstBoot").is_some());
}

#[test]
fn a_script_that_failed_is_named_until_a_person_has_mended_the_system() {
    let mut world = World::new().with_first_boot();
    world.hardware.faults.insert(Fault::ScriptFails);
    world.deploy(|_| {});
    assert!(world.run(3, stalled), "{:?}", world.plan());
    let plan = world.plan();
    let failed = wait(&plan, "FirstBootFailed").expect("it says why");
    let message = "scripts of the first boot failed on web1: script tune ended with exit status: 3; it said last: no such device";
    assert_eq!(failed.message, message);
    let fix = failed.human.as_deref().unwrap_or_default();
    assert!(fix.contains("read the log of web1") && fix.contains("run --again"), "{fix}");
    assert!(!plan.report.deployed);
    assert_eq!(plan.report.axes.operation, Operation::Failed);
    let restarts = world.recorded.iter().filter(|step| **step == StepId::RestartInstall).count();
    assert_eq!(restarts, 0, "another boot runs no script");

    let ended = FirstBootEnded { at: world.now, failure: None };
    world.input.facts.first_boot.insert(installed(&world), ended);
    assert!(ready(&world, &world.plan()), "{:?}", world.plan());
}

#[test]
fn a_system_that_reports_no_end_of_cloud_init_is_not_restarted_while_scripts_may_run() {
    let mut world = World::new().with_first_boot();
    world.deploy(|spec| {
        spec.readiness.check = Readiness::CloudInit;
        spec.readiness.timeout = "10m".parse().unwrap();
    });
    assert!(world.run(3, |_, plan| wait(plan, "Readiness").is_some()), "{:?}", world.plan());
    let limit = |world: &World| {
        let plan = world.plan();
        let waits = wait(&plan, "Readiness").unwrap();
        waits.deadline.unwrap().duration_since(waits.since).as_secs()
    };
    assert_eq!(limit(&world), 600, "nothing has been heard of it");
    assert!(world.run(3, |world, _| !world.input.facts.readiness.is_empty()), "{:?}", world.plan());
    assert_eq!(limit(&world), 600 + 1500);
}

#[test]
fn silence_is_awaited_for_the_time_of_all_scripts_and_then_a_person_is_asked() {
    let mut world = World::new().with_first_boot();
    world.deploy(|spec| spec.readiness.timeout = "10m".parse().unwrap());
    assert!(world.run(3, |_, plan| wait(plan, "FirstBoot").is_some()));
    let plan = world.plan();
    let waits = wait(&plan, "FirstBoot").unwrap();
    let limit = waits.deadline.unwrap().duration_since(waits.since).as_secs();
    assert_eq!(limit, 600 + 1500 + 60, "cloud-init, both scripts, and the way of the report");
    world.now = waits.deadline.unwrap();
    let plan = world.plan();
    let silent = wait(&plan, "FirstBootSilent").unwrap_or_else(|| panic!("{plan:?}"));
    let message =
        "web1 has not reported the end of its scripts of the first boot within 35 minutes: join, tune";
    assert_eq!(silent.message, message);
    assert!(silent.stalled && silent.human.as_ref().is_some_and(|fix| fix.contains("journalctl")));
}

#[test]
fn the_time_of_the_scripts_is_the_sum_of_their_limits() {
    let script = |name: &str, timeout_seconds, packages: &[&str]| Script {
        name: name.to_owned(),
        timeout_seconds,
        packages: packages.iter().map(|it| (*it).to_owned()).collect(),
        ..Script::default()
    };
    let scripts = FirstBootScripts::of(&[script("a", 60, &[]), script("b", 600, &["jq", "curl"])]);
    assert_eq!(scripts.names, ["a", "b"]);
    assert_eq!(scripts.seconds, 660 + PACKAGES_SECONDS);
    let endless = FirstBootScripts::of(&[script("a", u64::MAX, &["jq"]), script("b", 1, &[])]);
    assert_eq!(endless.seconds, u64::MAX);
}

#[test]
fn the_task_of_an_install_has_the_scripts_and_where_to_report() {
    let mut world = World::new();
    assert!(world.run(2, ready), "its hardware is known");
    world.deploy(|spec| spec.readiness.timeout = "10m".parse().unwrap());
    let script = Script { name: "tune".to_owned(), ..Script::default() };
    let report = basalt_engine::render::ReportTo {
        racks: vec!["http://10.77.0.1:5248".to_owned()],
        token: "T".to_owned(),
    };
    let context = |first_boot| Context { first_boot, report: Some(report.clone()), ..Context::default() };
    let composed = |context: &Context| {
        let task = compose(&world.input, TaskKind::Install, context).unwrap();
        let TaskAction::Install(install) = task.action else { panic!("{task:?}") };
        install.first_boot
    };
    assert_eq!(composed(&context(Vec::new())), None);
    let first_boot = composed(&context(vec![script.clone()])).expect("scripts");
    assert_eq!(first_boot.work.scripts, [script]);
    assert_eq!(first_boot.work.report, ["http://10.77.0.1:5248/report/T"]);
    assert_eq!(first_boot.work.cloud_init_seconds, 600);
    assert_eq!(first_boot.work.environment["BASALT_MACHINE_UID"], world.input.uid.to_string());
    assert!(first_boot.unit.contains("ExecStart=/usr/bin/env python3 /var/lib/basalt-first-boot/run\n"));
}
