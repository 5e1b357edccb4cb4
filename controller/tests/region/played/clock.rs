//! The database's clock jumps ahead: nothing begins at a site at rest, and waits that are over are retried. (Histories also set the
//! clock back.)

use super::patience::{STEP, within};
use super::world::{Taken, World, deployment};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

async fn deploying() -> World {
    let mut world = World::new(1, 1, Taken::Read).await;
    world.settle(4).await.expect("it is taken in");
    world.declare("Deployment", "web", &deployment("m0"), true).await;
    world
}

/// Goes on until the machine has reached this state.
async fn until(world: &mut World, come: impl Fn(&World) -> bool) {
    for _ in 0..1000 {
        if come(world) {
            return;
        }
        world.work().await;
        world.advance(5).await;
    }
    panic!("it does not come so far: {:?}", world.unsettled().await);
}

/// The number of times that a step was begun.
async fn begun(world: &mut World, step: &str) -> usize {
    let count = format!("select count(*) from step_record where step_key like '%/{step}/%'");
    world.hand.run(&count).await[0][0].parse().expect("a number")
}

/// The numbers of installs and erases at the end, and the violations.
async fn after(mut world: World) -> (usize, usize, Vec<String>) {
    world.settle(24).await.expect("it is deployed");
    assert_eq!(world.unsound().await, Vec::<String>::new());
    let (installs, erases) = (begun(&mut world, "arm-install").await, begun(&mut world, "arm-erase").await);
    (installs, erases, world.violations)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_at_rest_rests_on_when_the_clock_jumps_by_a_month() {
    let mut world = World::new(1, 2, Taken::Read).await;
    world.declare("Deployment", "web", &deployment("m0"), true).await;
    world.settle(4).await.expect("one is deployed, one is ready");
    let (before, recorded) = (world.picture().await, world.recorded().await);
    world.jump(30 * 24 * HOUR).await;
    for _ in 0..10 {
        world.scan().await;
        world.work().await;
        world.advance(600).await;
    }
    assert_eq!((world.picture().await, world.recorded().await), (before, recorded));
    assert_eq!(world.violations, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_boots_when_the_clock_jumps_is_booted_again() {
    let mut world = deploying().await;
    until(&mut world, |world| {
        let mut played = world.machines.values();
        played.any(|it| it.hardware.on && it.hardware.data_of.is_none() && it.hardware.running().is_none())
    })
    .await;
    world.jump(3 * HOUR).await;
    let (installs, erases, violations) = after(world).await;
    assert!(installs <= 2 && erases == 0, "{installs} installs, {erases} erases");
    assert_eq!(violations, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_system_that_is_about_to_report_when_the_clock_jumps_is_not_installed_again() {
    let mut world = deploying().await;
    until(&mut world, |world| world.machines.values().any(|it| it.hardware.system.is_some())).await;
    world.work_at_the_rack().await;
    world.jump(3 * HOUR).await;
    assert_eq!(after(world).await, (1, 0, Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_install_whose_end_is_on_its_way_when_the_clock_jumps_is_not_begun_again() {
    let mut world = deploying().await;
    until(&mut world, |world| world.machines.values().any(|it| it.hardware.writing(&it.tasks))).await;
    // The rack sees the end of the agent, and has not delivered that yet.
    let later = world.now.checked_add(HOUR).expect("a time");
    world.set(later).await;
    world.play().await;
    let system = |world: &World| world.machines.values().find_map(|it| it.hardware.system);
    let first = system(&world);
    assert!(first.is_some(), "the agent came to its end");
    world.jump(3 * HOUR).await;
    let driver = world.seats[0].driver.clone();
    while within(&world.url, STEP, "a turn", driver.turn()).await.expect("the store answers") {}
    assert_eq!(begun(&mut world, "arm-install").await, 2, "it was taken for dead");
    let later = world.now.checked_add(Duration::from_secs(1)).expect("a time");
    world.set(later).await;
    world.settle(24).await.expect("it is deployed");
    assert_eq!(system(&world), first, "nobody has written to its disk again");
    assert_eq!(begun(&mut world, "netboot-install").await, 1, "nor begun to");
    assert_eq!(after(world).await, (2, 0, Vec::new()));
}

/// After the jump, the region has heard nothing for hours. It takes the agent for dead, as after any such silence, and begins the
/// install again, even if the agent completes meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_install_that_runs_when_the_clock_jumps_is_begun_again_and_nothing_else_is() {
    let mut world = deploying().await;
    until(&mut world, |world| world.machines.values().any(|it| it.hardware.writing(&it.tasks))).await;
    world.jump(3 * HOUR).await;
    let (installs, erases, violations) = after(world).await;
    assert_eq!((installs, erases), (2, 0));
    let of_this = |it: &String| it.contains("installs again what") || it.contains("cuts the power");
    assert!(violations.iter().all(of_this), "{violations:?}");
}
