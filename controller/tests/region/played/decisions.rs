//! Replays every decision of a complete life from its stored inputs.

use super::world::{Taken, World, deployment};
use basalt_api::wire::ReplayVerdict;
use basalt_region::driver::Machinery;
use std::collections::BTreeSet;

/// Replays every decision about a machine. Returns those with another result.
pub(crate) async fn differing(world: &World, name: &str) -> Vec<String> {
    let object = world.find("Machine", name).await.expect("it is there");
    let decisions = world.seats[0]
        .driver
        .decisions(&object.kind, object.uid, None, true)
        .await
        .expect("decisions")
        .decisions;
    assert!(!decisions.is_empty(), "{name} was decided about");
    let replays = decisions.into_iter().map(|d| (d.step_key, d.detail.expect("all of it").replay));
    replays
        .filter(|(_, replay)| replay.verdict != ReplayVerdict::Same)
        .map(|(step, replay)| format!("{step}: {replay:?}"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_decision_of_a_life_is_the_same_when_it_is_replayed() {
    let mut world = World::new(1, 1, Taken::Read).await;
    world.settle(4).await.expect("it is taken in");
    world.declare("Deployment", "web", &deployment("m0"), true).await;
    world.settle(4).await.expect("it is deployed");
    world.delete("Deployment", "web").await;
    world.settle(4).await.expect("it is given back");
    let driver = world.seats[0].driver.clone();
    let object = world.find("Machine", "m0").await.expect("it is there");
    let decisions =
        driver.decisions(&object.kind, object.uid, None, true).await.expect("decisions").decisions;
    let steps: BTreeSet<&str> = decisions.iter().filter_map(|d| d.step_key.rsplit('/').nth(1)).collect();
    for step in ["arm-inventory", "netboot-install", "arm-erase", "let-go"] {
        assert!(steps.contains(step), "{steps:?}");
    }
    assert_eq!(differing(&world, "m0").await, Vec::<String>::new());
    let of_power_off = async || {
        let decisions =
            driver.decisions(&object.kind, object.uid, None, true).await.expect("decisions").decisions;
        let off =
            decisions.into_iter().find(|d| d.step_key.contains("/power-off-erase/")).expect("powered off");
        off.detail.expect("all of it").replay
    };
    // If the agent had failed, another attempt would have been armed.
    world
        .hand
        .run("update fact_history set body = jsonb_set(body, '{outcome}', '{\"type\":\"failed\",\"code\":\"internal\",\"message\":\"x\",\"wrote\":true}')
              where kind = 'result'")
        .await;
    let replay = of_power_off().await;
    assert_eq!(replay.verdict, ReplayVerdict::Different);
    assert!(replay.differences.iter().any(|d| d.pointer.starts_with("/next")), "{replay:?}");
    // Facts are not kept for ever.
    world.hand.run("delete from fact_history where kind = 'result'").await;
    let replay = of_power_off().await;
    assert_eq!(replay.verdict, ReplayVerdict::Impossible);
    assert!(replay.message.contains("fact "), "{}", replay.message);
}
