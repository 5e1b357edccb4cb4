//! A person locks a machine, or declares another architecture, while its racks offer it an agent: the offer is withdrawn.

use super::world::{Taken, World, machine};
use basalt_engine::plan::BootAction;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn racks_are_told_once_that_a_machine_that_was_locked_boots_its_disk() {
    let mut world = World::with_racks(2, 2, 1, Taken::Read).await;
    world.until_its_agent_is_offered("m0").await;
    let held = world.racks[0].holds.1;
    let mut locked = machine(0);
    locked["locked"] = json!(true);
    world.declare("Machine", "m0", &locked, true).await;
    world.work().await;
    for _ in 0..5 {
        world.scan().await;
        world.work().await;
        world.advance(60).await;
    }
    assert_eq!(world.racks[0].holds.1, held + 1, "the instruction goes back and forth");
    let unsettled = world.unsettled().await;
    assert!(unsettled[0].contains("m0 is left alone, because it is locked"), "{unsettled:?}");

    world.declare("Machine", "m0", &machine(0), true).await;
    world.settle(4).await.expect("it is taken in");
    assert_eq!(world.violations, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_that_was_armed_is_withdrawn_when_another_architecture_is_declared() {
    let mut world = World::new(1, 1, Taken::Read).await;
    world.until_its_agent_is_offered("m0").await;
    let uid = world.names["m0"];
    let mut other = machine(0);
    other["architecture"] = json!("arm64");
    world.declare("Machine", "m0", &other, true).await;
    world.work().await;
    assert!(matches!(world.racks[0].boot(uid), BootAction::Local), "{:?}", world.unsettled().await);

    world.declare("Machine", "m0", &machine(0), true).await;
    world.settle(4).await.expect("it is taken in");
    assert_eq!(world.violations, Vec::<String>::new());
}
