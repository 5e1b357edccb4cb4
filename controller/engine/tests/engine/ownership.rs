//! Machines that Basalt is not in charge of altogether.

use basalt_api::kinds::OwnershipMode::{Managed, Observed};
use basalt_api::kinds::PowerPolicy;
use basalt_engine::plan::{BootAction, Effect};

use crate::world::{Crash, World, ready, stalled};

/// Lets time pass, and collects what is begun meanwhile.
fn begun(world: &mut World) -> Vec<Effect> {
    let mut effects = Vec::new();
    for _ in 0..20 {
        effects.extend(world.plan().next.iter().map(|step| step.effect.clone()));
        world.reconcile(Crash::Never);
        world.advance(60);
    }
    effects
}

#[test]
fn a_bmc_is_sent_no_command_where_power_is_observed_and_a_person_boots_the_machine() {
    let mut world = World::new();
    world.remachine(|spec| {
        spec.ownership.power = Observed;
        spec.power = PowerPolicy::On;
    });
    let effects = begun(&mut world);
    assert!(!effects.is_empty(), "its inventory is armed");
    assert!(!effects.iter().any(|it| matches!(it, Effect::Power { .. })), "{effects:?}");
    let plan = world.plan();
    assert_eq!(plan.waits[0].code, "ManualPower");
    assert!(plan.waits[0].human.as_ref().unwrap().contains("ownership.power = \"managed\""));
    assert_eq!((plan.report.axes.ownership.power, plan.report.axes.ownership.boot), (Observed, Managed));
    world.remachine(|spec| spec.ownership.power = Managed);
    assert!(world.run(2, ready), "taken over, it is worked on as any other: {:?}", world.plan().waits);
}

#[test]
fn a_machine_whose_boot_is_observed_goes_to_its_disk_and_no_task_is_armed() {
    let mut world = World::new();
    world.remachine(|spec| spec.ownership.boot = Observed);
    assert!(world.run(1, stalled));
    assert!(!begun(&mut world).iter().any(|it| matches!(it, Effect::Arm { .. })));
    let plan = world.plan();
    assert_eq!((plan.waits[0].code, plan.boot), ("BootObserved", BootAction::Local));
    world.remachine(|spec| spec.ownership.boot = Managed);
    assert!(world.run(2, ready));
    assert_eq!(world.plan().boot, BootAction::PowerOff);
    world.remachine(|spec| spec.ownership.boot = Observed);
    assert_eq!(world.plan().boot, BootAction::Local, "what it runs may be wanted");
    assert!(ready(&world, &world.plan()), "nothing is to be booted, and nobody is asked");
}
