//! An object whose reconciliation fails harms no other object, is visible, and recovers by itself.

use super::world::{Taken, World, deployment};
use basalt_api::values::Uid;
use basalt_region::driver::Machinery;
use basalt_region::driver::poison::guarded;
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
    // A region with other rules has started: it looks at everything.
    world.missed = true;
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
    // The pause grows with the number of failures.
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

/// Another version of the region with other limits accepted it, or a person wrote it into the database.
#[tokio::test(flavor = "multi_thread")]
async fn a_stored_expression_that_would_exhaust_memory_is_passed_over_and_its_tag_says_so() {
    let mut world = World::new(1, 1, Taken::Read).await;
    let harmless = json!({"expression": "name != 'x'"});
    world.declare("Tag", "grown", &harmless, true).await;
    world.settle(4).await.expect("they are taken in");
    let has_tag = "select count(*) from machine_tag";
    assert_eq!(world.hand.run(has_tag).await, [["1"]]);

    let grows = format!("[name]{}.exists(a, a == \"x\")", ".map(a, a + a + a + a)".repeat(13));
    let store = format!("update object set spec = '{}' where kind = 'Tag'", json!({"expression": grows}));
    world.hand.run(&store).await;
    // A region with another limit has started: it looks at everything.
    world.missed = true;
    world.declare("Deployment", "web", &deployment("m0"), true).await;
    world.settle(4).await.expect("the machine is deployed");
    let found = conditions(&world, "Tag", "grown").await;
    let said = |n: usize| (found[n]["type"].clone(), found[n]["status"].clone(), found[n]["reason"].clone());
    let refused = json!("ExpressionRefused");
    assert_eq!(said(0), (json!("Ready"), json!("false"), refused.clone()), "{found}");
    assert_eq!(said(2), (json!("Stalled"), json!("true"), refused), "{found}");
    assert!(found[0]["message"].as_str().expect("words").contains("steps for a machine"), "{found}");
    assert_eq!(world.hand.run(has_tag).await, [["0"]], "no machine has it by that");

    world.declare("Tag", "grown", &harmless, true).await;
    world.settle(4).await.expect("it is repaired");
    assert_eq!(conditions(&world, "Tag", "grown").await[0]["reason"], "Evaluated");
    assert_eq!(world.hand.run(has_tag).await, [["1"]]);
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

/// The other reconciled kinds: an object of each, and an unreadable spec for it.
const OTHERS: [(&str, &str, &str); 4] = [
    ("Deployment", "old", r#"{"image": 7}"#),
    ("Rack", "rack2", r#"{"maintenance": "perhaps"}"#),
    ("Image", "spare", r#"{"os": 7}"#),
    ("Tag", "odd", r#"{"expression": 7}"#),
];

#[tokio::test(flavor = "multi_thread")]
async fn whatever_cannot_be_read_harms_no_other_is_told_so_and_heals_once_it_is_repaired() {
    let mut world = World::with_racks(2, 1, 2, Taken::Read).await;
    world.declare("Tag", "odd", &json!({"expression": "true"}), true).await;
    let spare = json!({"os": "debian", "release": "11", "architecture": "amd64", "files": {}});
    world.declare("Image", "spare", &spare, true).await;
    world.declare("Deployment", "old", &deployment("m1"), true).await;
    world.settle(4).await.expect("everything is well");
    let mut specs = Vec::new();
    for (kind, name, broken) in OTHERS {
        let of = format!("where kind = '{kind}' and name = '{name}'");
        let spec = world.hand.run(&format!("select spec from object {of}")).await[0][0].clone();
        let newer = format!("update object set spec = '{broken}', generation = generation + 1 {of}");
        world.hand.run(&newer).await;
        specs.push(format!("update object set spec = '{spec}' {of}"));
    }
    let installed = world.machines[&world.names["m1"]].hardware.system;
    world.declare("Deployment", "web", &deployment("m0"), true).await;
    for _ in 0..40 {
        world.scan().await;
        world.work().await;
        world.advance(30).await;
    }
    let web = world.find("Deployment", "web").await.expect("it is there");
    let status: Value = serde_json::from_str(web.status.get()).expect("JSON");
    assert_eq!(status["phase"], "Deployed", "{status}");
    for (kind, name, _) in OTHERS {
        let found = conditions(&world, kind, name).await;
        let stalled = found.as_array().expect("conditions").iter().find(|it| it["type"] == "Stalled");
        let stalled = stalled.expect("it is said of every kind");
        assert_eq!(
            (stalled["status"].as_str(), stalled["reason"].as_str()),
            (Some("true"), Some("CannotBeWorkedOn"))
        );
        let said = stalled["message"].as_str().expect("words");
        assert!(said.contains(&format!("the spec of {kind} {name:?}")), "{said}");
    }
    let failing = world.store().failing_gauges().await.expect("gauges");
    let failing: Vec<_> = failing.iter().map(|it| it.kind.as_str()).collect();
    assert!(OTHERS.iter().all(|(kind, ..)| failing.contains(kind)), "{failing:?}");

    // Repair the specs, as if another version of the region could read them.
    for repair in specs {
        world.hand.run(&repair).await;
    }
    let later = world.now.checked_add(Duration::from_secs(301)).expect("a time");
    world.set(later).await;
    world.scan().await;
    world.settle(1).await.expect("it heals by itself");
    for (kind, name, _) in OTHERS {
        let found = conditions(&world, kind, name).await;
        assert!(!found.to_string().contains("CannotBeWorkedOn"), "{kind}: {found}");
    }
    assert_eq!(world.store().failing_gauges().await.expect("gauges"), []);
    assert_eq!(world.machines[&world.names["m1"]].hardware.system, installed, "it was left alone");
    assert_eq!(world.violations, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_whose_handler_panics_is_told_so_and_others_go_on() {
    let mut world = World::new(1, 2, Taken::Read).await;
    world.settle(4).await.expect("both are taken in");
    let m0 = Uid::from(world.names["m0"]);
    world.store().enqueue(m0, Duration::ZERO).await.expect("woken");
    let driver = world.seats[0].driver.clone();
    let leases = driver.store.claim(driver.owner, 8, Duration::from_secs(10)).await.expect("leases");
    let lease = leases.iter().find(|lease| lease.uid == m0).expect("it is due");
    let panics = async {
        assert_eq!(lease.kind, "Disk", "no disk of m0");
        Ok(basalt_db::Requeue::WhenWoken)
    };
    let failure = guarded(panics).await.expect_err("it panics");
    driver.give_up(lease, &failure).await.expect("given back");
    let found = conditions(&world, "Machine", "m0").await;
    assert_eq!((found[2]["type"].as_str(), found[2]["status"].as_str()), (Some("Stalled"), Some("true")));
    let said = found[2]["message"].as_str().expect("words");
    assert!(said.contains("a fault in the region itself: ") && said.contains("no disk of m0"), "{said}");
    assert_eq!(driver.counts().failures[&("Machine".to_owned(), "panic")], 1);
    world.declare("Deployment", "web", &deployment("m1"), true).await;
    world.settle(4).await.expect("the other is deployed, and m0 is worked on again");
    assert_eq!(world.store().failing_gauges().await.expect("gauges"), []);
}
