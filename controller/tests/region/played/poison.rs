//! An object that cannot be worked on harms no other, is visible, and heals by itself.

use super::world::{Taken, World, deployment};
use basalt_region::driver::Machinery;
use serde_json::{Value, json};
use std::time::Duration;

async fn conditions(world: &World, kind: &str, name: &str) -> Value {
    let object = world.find(kind, name).await.expect("it is there");
    let status: Value = serde_json::from_str(object.status.get()).expect("JSON");
    status["conditions"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_whose_spec_cannot_be_read_harms_no_other_and_heals_once_it_is_repaired() {
    let mut world = World::new(1, 2, Taken::Read).await;
    world.settle(4).await.expect("both are taken in");
    let spec = world.hand.run("select spec from object where name = 'm0'").await[0][0].clone();
    world.hand.run("update object set spec = '{\"architecture\": [\"none\"]}' where name = 'm0'").await;
    world.declare("Deployment", "web", &deployment("m1"), true).await;
    for _ in 0..40 {
        world.scan().await;
        world.work().await;
        world.advance(30).await;
    }
    let unsettled = world.unsettled().await;
    assert!(unsettled.len() == 1 && unsettled[0].starts_with("Machine m0: "), "{unsettled:?}");
    let found = conditions(&world, "Machine", "m0").await;
    let stalled = &found[2];
    assert_eq!(
        (stalled["type"].as_str(), stalled["status"].as_str()),
        (Some("Stalled"), Some("true")),
        "{found}"
    );
    assert_eq!(stalled["reason"], "CannotBeWorkedOn");
    assert!(stalled["message"].as_str().expect("words").contains("the spec of Machine"), "{stalled}");
    assert!(stalled["deadline"].is_string(), "it is tried again: {stalled}");
    let store = world.store().clone();
    let failing = store.failing_gauges().await.expect("gauges");
    assert_eq!((failing[0].kind.as_str(), failing[0].objects), ("Machine", 1));
    let stalls = store.phase_gauges().await.expect("gauges");
    assert_eq!(stalls.iter().map(|gauge| gauge.stalled).sum::<i64>(), 1, "{stalls:?}");
    let failures = world.seats[0].driver.counts().failures;
    assert!(failures[&("Machine".to_owned(), "error")] > 2, "{failures:?}");
    // The longer it fails, the longer it rests.
    let rests = world
        .hand
        .run("select extract(epoch from not_before - now()) from reconcile_queue where error is not null");
    let rests: f64 = rests.await[0][0].parse().expect("seconds");
    assert!(rests > 60.0, "{rests}");

    world.hand.run(&format!("update object set spec = '{spec}' where name = 'm0'")).await;
    let later = world.now.checked_add(Duration::from_secs(301)).expect("a time");
    world.set(later).await;
    world.settle(1).await.expect("it heals by itself");
    assert_eq!(store.failing_gauges().await.expect("gauges"), []);
    assert_eq!(world.violations, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_is_on_record_with_its_end_and_counted_once() {
    let mut world = World::new(2, 1, Taken::Read).await;
    world.declare("Deployment", "web", &deployment("m0"), true).await;
    world.settle(4).await.expect("it is deployed");
    let open = "select step_key from step_record where finished_at is null or outcome is null";
    assert_eq!(world.hand.run(open).await, Vec::<Vec<String>>::new(), "all of them ended");
    let outcomes = world.hand.run("select distinct outcome->>'result' from step_record").await;
    assert_eq!(outcomes, [["done"]]);
    let [a, b] = [0, 1].map(|seat| world.seats[seat].driver.counts());
    let counted: u64 = a.outcomes.values().chain(b.outcomes.values()).sum();
    assert_eq!(usize::try_from(counted).expect("few"), world.recorded().await);
    let installs =
        [&a, &b].iter().filter_map(|counts| counts.steps.get("arm-install")).map(|h| h.seconds).sum::<f64>();
    assert!(installs > 100.0, "an install takes minutes: {installs}");
    let phases: Vec<_> = a.phases.keys().chain(b.phases.keys()).map(|(_, phase)| phase.as_str()).collect();
    assert!(phases.contains(&"Deploying"), "{phases:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_fleets_budget_cannot_be_read_nothing_is_powered_on_or_installed() {
    let mut world = World::new(1, 1, Taken::Read).await;
    world.declare("Settings", "default", &json!({"fleet_budget": {"max_unavailable": 1}}), true).await;
    world.settle(4).await.expect("it is taken in");
    world.hand.run("update object set spec = '{\"fleet_budget\": 7}' where kind = 'Settings'").await;
    world.declare("Deployment", "web", &deployment("m0"), true).await;
    let before = world.recorded().await;
    for _ in 0..5 {
        world.scan().await;
        world.work().await;
        world.advance(600).await;
    }
    assert_eq!(world.recorded().await, before, "nothing is begun");
    let object = world.find("Machine", "m0").await.expect("it is there");
    let waits = world.seats[0].driver.waits(&object).await.expect("waits").waits;
    let said = waits.iter().find(|wait| wait.cause == "FleetBudget").map(|wait| wait.message.as_str());
    assert!(said.is_some_and(|said| said.contains("the spec of Settings \"default\"")), "{waits:?}");

    world.hand.run("update object set spec = '{}' where kind = 'Settings'").await;
    world.scan().await;
    world.settle(4).await.expect("it goes on by itself");
    assert_eq!(world.violations, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_could_not_be_read_is_looked_at_again_once_it_can() {
    let mut world = World::new(1, 1, Taken::AsTheyAre).await;
    world.declare("Tag", "odd", &json!({"expression": "true"}), true).await;
    world.settle(1).await.expect("the machine has it");
    let spec = world.hand.run("select spec from object where name = 'odd'").await[0][0].clone();
    let newer =
        "update object set spec = '{\"expression\": 7}', generation = generation + 1 where name = 'odd'";
    world.hand.run(newer).await;
    world.scan().await;
    world.work().await;
    let found = conditions(&world, "Tag", "odd").await;
    assert!(found.to_string().contains("the spec of Tag"), "{found}");

    // As if another version of the region read it: what is declared is the same generation.
    world.hand.run(&format!("update object set spec = '{spec}' where name = 'odd'")).await;
    let later = world.now.checked_add(Duration::from_secs(301)).expect("a time");
    world.set(later).await;
    world.scan().await;
    world.settle(1).await.expect("it heals by itself");
    let found = conditions(&world, "Tag", "odd").await;
    assert_eq!(found[0]["reason"], "Evaluated", "{found}");
}
