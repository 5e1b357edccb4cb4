//! The connection to the region: several endpoints of which one fails in the middle of an apply, a lost answer, and the number of
//! simultaneous requests.

use std::process::Output;

use tokio::sync::oneshot::Receiver;

use crate::deployments::{end_of, interrupt};
use crate::gate::{At, Gate, Held};
use crate::world::{COMMAND, World, described, everything, flat, provider_at, within};

/// Number of independent zones.
const ZONES: usize = 60;

fn zones() -> String {
    format!(
        "resource \"basalt_zone\" \"place\" {{\n  count = {ZONES}\n  name  = \"place-${{count.index}}\"\n}}\n"
    )
}

async fn gate(world: &World) -> Gate {
    Gate::before(world.region.address()).await
}

/// Runs an apply, and `then` once a write is held.
async fn applied(
    world: &World,
    parallelism: u8,
    held: Receiver<Held>,
    then: impl AsyncFnOnce(Held),
) -> Output {
    let mut apply = world.terraform(&["apply", "-auto-approve", &format!("-parallelism={parallelism}")]);
    let both = async { tokio::join!(apply.output(), async { then(held.await.expect("a write")).await }) };
    let (output, ()) = tokio::time::timeout(COMMAND, both).await.expect("it ends");
    output.expect("terraform on the PATH")
}

#[test]
fn an_apply_goes_on_by_another_endpoint_when_the_one_it_uses_is_gone() {
    for at in [At::Request, At::Answer] {
        within(async |world| {
            let (first, second) = (gate(&world).await, gate(&world).await);
            let endpoints = format!("http://{},http://{}", first.address, second.address);
            world.config(&format!("{}{}", provider_at(&endpoints, &world), zones()));
            let held = first.hold(10, at);
            let output = applied(&world, 4, held, async move |_lost| drop(first)).await;
            let said = flat(&everything(&output));
            assert!(output.status.success(), "{at:?}: {said}");
            assert!(said.contains(&format!("{ZONES} added, 0 changed, 0 destroyed")), "{at:?}: {said}");
            assert!(second.most_at_once() > 0, "{at:?}");
            // The first endpoint is still named first, and still down.
            let again = world.run(&["plan", "-detailed-exitcode"]).await;
            assert_eq!(again.status.code(), Some(0), "{at:?}: {}", everything(&again));
            world.end().await;
        });
    }
}

#[test]
fn a_rename_whose_answer_is_lost_is_no_second_object() {
    for at in [At::Request, At::Answer] {
        within(async |world| {
            let gate = gate(&world).await;
            let zone = |name: &str| {
                let head = provider_at(&format!("http://{}", gate.address), &world);
                format!("{head}resource \"basalt_zone\" \"row\" {{\n  name = {name:?}\n}}\n")
            };
            world.config(&zone("row-1")).apply().await;
            let before = world.get("Zone", "row-1").await.metadata.uid;

            world.config(&zone("row-2"));
            let output = applied(&world, 1, gate.hold(0, at), async |lost| drop(lost)).await;
            assert!(output.status.success(), "it is asked for again: {at:?}: {}", everything(&output));
            let again = world.run(&["plan", "-detailed-exitcode"]).await;
            assert_eq!(again.status.code(), Some(0), "{at:?}: {}", everything(&again));
            assert_eq!(world.get("Zone", "row-2").await.metadata.uid, before, "{at:?}");
            let old = world.client("test").find(described("Zone"), "row-1").await.expect("an answer");
            assert_eq!(old, None, "{at:?}");
            world.end().await;
        });
    }
}

#[test]
fn an_interruption_ends_a_write_that_nobody_answers_and_the_next_apply_takes_it_over() {
    for at in [At::Request, At::Answer] {
        within(async |world| {
            let gate = gate(&world).await;
            let head = provider_at(&format!("http://{}", gate.address), &world);
            let patient = head.replace("{\n", "{\n  retry_timeout = \"1h\"\n  request_timeout = \"1h\"\n");
            world.config(&format!("{patient}resource \"basalt_zone\" \"row\" {{\n  name = \"row-1\"\n}}\n"));
            let held = gate.hold(0, at);
            let (child, _lines) = world.start(&["apply", "-auto-approve"]);
            let held = tokio::time::timeout(COMMAND, held).await.expect("it writes").expect("a write");
            interrupt(&child);
            let output = end_of(child).await;
            let said = flat(&everything(&output));
            assert!(!output.status.success(), "{at:?}: {said}");
            assert!(said.contains("Interrupted: Zone \"row-1\""), "{at:?}: {said}");
            assert!(said.contains("takes over what this apply made"), "{at:?}: {said}");
            drop(held);
            let said = world.apply().await;
            assert!(said.contains("1 added, 0 changed, 0 destroyed"), "{at:?}: {said}");
            world.end().await;
        });
    }
}

#[test]
fn no_more_requests_are_under_way_at_once_than_the_provider_says() {
    const MOST: usize = 3;
    within(async |world| {
        let gate = gate(&world).await;
        let head = provider_at(&format!("http://{}", gate.address), &world);
        let bounded = head.replace("{\n", &format!("{{\n  max_parallel = {MOST}\n"));
        world
            .config(&format!("{bounded}{}", zones()))
            .ok(&["apply", "-auto-approve", "-parallelism=20"])
            .await;
        assert_eq!(gate.most_at_once(), MOST, "and as many as it says there are");
        world.ok(&["destroy", "-auto-approve", "-parallelism=20"]).await;
        assert_eq!(gate.most_at_once(), MOST);

        world.config(&format!("{head}{}", zones())).ok(&["apply", "-auto-approve", "-parallelism=20"]).await;
        assert!(gate.most_at_once() > MOST, "without a bound there are more: {}", gate.most_at_once());
        world.end().await;
    });
}
