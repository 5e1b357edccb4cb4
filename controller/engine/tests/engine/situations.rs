//! The messages in each situation, as one golden text for readers.

use std::fmt::Write;

use basalt_api::kinds::{MachineMode, PowerPolicy, Readiness};
use basalt_engine::explain;
use basalt_engine::facts::Link;

use crate::world::hardware::Fault;
use crate::world::{World, ready, stalled};

#[test]
fn each_situation_is_told() {
    let mut text = String::new();
    let mut tell = |title: &str, world: &World| {
        let plan = world.plan();
        let _ = writeln!(text, "## {title}");
        for line in explain(&plan, world.now) {
            let _ = writeln!(text, "{line}");
        }
        for condition in plan.report.conditions.iter().filter(|c| c.status.as_str() == "true") {
            let _ = writeln!(text, "{}: {} - {}", condition.kind, condition.reason, condition.message);
        }
        let _ = writeln!(text);
    };
    let until = |world: &mut World, code: &str| {
        let found = world.run(5, |_, plan| plan.waits.iter().any(|w| w.code == code));
        assert!(found, "{code}: {:?}", world.plan().waits);
    };
    let ready_world = || {
        let mut world = World::new();
        assert!(world.run(2, ready));
        world
    };

    let mut world = World::new();
    tell("a machine was declared", &world);
    until(&mut world, "BootRequest");
    tell("it was powered on", &world);
    until(&mut world, "TaskRuns");
    tell("its agent reads the hardware", &world);
    assert!(world.run(1, ready));
    tell("it is ready", &world);
    world.deploy(|spec| spec.readiness.check = Readiness::CloudInit);
    tell("a deployment has claimed it", &world);
    until(&mut world, "TaskRuns");
    world.advance(60);
    world.advance(60);
    tell("the deployment is installed", &world);
    let mut other = World::new();
    std::mem::swap(&mut world, &mut other);
    other.undeploy();
    tell("the deployment was deleted while it was installed", &other);
    other.input.claim.as_mut().unwrap().deletion_requested_at = None;
    let mut world = other;
    until(&mut world, "Readiness");
    tell("the installed system boots", &world);
    assert!(world.run(1, ready));
    tell("it is deployed", &world);
    world.remachine(|spec| spec.locked = true);
    world.undeploy();
    tell("the deployment was deleted, but the machine is locked", &world);
    world.remachine(|spec| spec.locked = false);
    tell("it is unlocked", &world);
    assert!(world.run(1, |world, _| world.hardware.writing(&world.tasks)));
    tell("its disks are erased", &world);
    assert!(world.run(1, ready));
    world.input.deletion_requested_at = Some(world.now);
    tell("the machine is deleted", &world);

    let mut world = World::new();
    world.deploy(|_| {});
    tell("a new machine is claimed before it was looked into", &world);

    let mut world = ready_world();
    world.deploy(|_| {});
    world.input.claim.as_mut().unwrap().image.as_mut().unwrap().available = false;
    tell("the image's file was not uploaded", &world);
    world.input.claim.as_mut().unwrap().image = None;
    tell("there is no such image", &world);

    let mut world = World::new();
    world.input.ephemeral = None;
    tell("there is no ephemeral image yet", &world);
    world.advance(600);
    tell("there is still no ephemeral image", &world);

    let mut world = World::new();
    world.input.facts.power_rack = Link::None;
    tell("no rack reaches the BMC", &world);

    let mut world = World::new();
    world.remachine(|spec| spec.bmc = None);
    world.reconcile(crate::world::Crash::Never);
    world.reconcile(crate::world::Crash::Never);
    tell("the machine has no BMC", &world);

    let mut world = ready_world();
    world.remachine(|spec| spec.mode = MachineMode::Broken);
    world.deploy(|_| {});
    tell("a broken machine is claimed", &world);

    for mode in [MachineMode::Broken, MachineMode::Retired, MachineMode::Rescue, MachineMode::Managed] {
        let mut world = World::new();
        world.input.ephemeral = None;
        world.remachine(|spec| {
            spec.mode = mode;
            spec.locked = mode == MachineMode::Managed;
            spec.boot_macs.clear();
        });
        world.advance(600);
        let title = if mode == MachineMode::Managed { "locked".to_owned() } else { mode.to_string() };
        tell(&format!("a new machine without anything it needs is {title}"), &world);
    }

    let mut world = World::new();
    world.input.facts.power_rack = Link::None;
    world.remachine(|spec| spec.locked = true);
    tell("no rack reaches the BMC of a locked machine", &world);

    let mut world = ready_world();
    world.input.unwiped = true;
    world.remachine(|spec| spec.power = PowerPolicy::On);
    tell("a machine that may hold data is to be on", &world);
    world.input.deletion_requested_at = Some(world.now);
    tell("it is deleted", &world);

    let mut world = World::new();
    until(&mut world, "TaskRuns");
    world.remachine(|spec| spec.locked = true);
    tell("a machine is locked while its agent reads the hardware", &world);

    for fault in
        [Fault::BmcPassword, Fault::BmcLies, Fault::NeverBoots, Fault::DiskTooSmall, Fault::ForeignData]
    {
        let mut world = ready_world();
        world.deploy(|_| {});
        world.hardware.faults.insert(fault);
        assert!(world.run(6, stalled), "{fault:?}");
        tell(&format!("{fault:?}"), &world);
    }
    insta::assert_snapshot!(text);
}
