//! A life in which regions die at many awaits: each turn dies at an await, begins again, and dies at a later one, until it completes.
//! The first await differs from turn to turn, so that over many turns all awaits are hit.

#![expect(clippy::print_stdout, reason = "what happened is read by people")]

use super::decisions::differing;
use super::faults::Mortal;
use super::patience::{STEP, within};
use super::world::{Taken, World, deployment};
use std::collections::BTreeSet;

/// The largest number of polls of one turn.
const MOST: u64 = 2000;
/// The number of polls between two deaths of a turn. With 1, every turn dies at every await, for many minutes.
const STRIDE: u64 = 151;
/// The number of different awaits at which turns must die. Some 50 are usual. On a busy host a turn is polled only a dozen times, because
/// answers have arrived before its next poll.
const AWAITS: usize = 8;

/// The awaits at which turns died.
#[derive(Default)]
struct Deaths {
    turns: u64,
    times: u64,
    at: BTreeSet<u64>,
}

/// One turn, which dies repeatedly, each time later, until it completes. Returns true if there was work.
async fn turn(world: &mut World, deaths: &mut Deaths) -> bool {
    deaths.turns += 1;
    let mut polls = 1 + deaths.turns % STRIDE;
    loop {
        let driver = world.seats[0].driver.clone();
        let owner = driver.owner;
        let mut turn = Mortal::new(async move { driver.turn().await }, polls);
        let what = format!("a turn that dies after {polls} polls");
        if let Some(worked) = within(&world.url, STEP, what, &mut turn).await {
            return worked.expect("the store answers");
        }
        drop(turn);
        deaths.times += 1;
        deaths.at.insert(polls);
        world.restart(0).await;
        world.store().release_all(owner).await.expect("its leases are free");
        polls += STRIDE;
        assert!(polls <= MOST, "a turn has no end");
    }
}

/// Runs drivers and racks until none has work now.
async fn work(world: &mut World, deaths: &mut Deaths) {
    let mut busy = true;
    while busy {
        busy = false;
        while turn(world, deaths).await {
            busy = true;
            world.check().await;
            assert_eq!(world.violations, Vec::<String>::new());
        }
        world.work_at_the_rack().await;
    }
}

/// Goes on until everything is as declared and at rest.
async fn settle(world: &mut World, deaths: &mut Deaths) {
    let end = world.now.as_second() + 24 * 3600;
    loop {
        work(world, deaths).await;
        let unsettled = world.unsettled().await;
        if unsettled.is_empty() {
            return;
        }
        assert!(world.now.as_second() < end, "{unsettled:?}");
        world.advance(60).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn regions_that_die_at_await_after_await_bring_a_machine_through_its_life() {
    let mut world = World::new(1, 1, Taken::Read).await;
    let mut deaths = Deaths::default();
    settle(&mut world, &mut deaths).await;
    world.declare("Deployment", "web", &deployment("m0"), true).await;
    settle(&mut world, &mut deaths).await;
    world.delete("Deployment", "web").await;
    settle(&mut world, &mut deaths).await;
    let Deaths { turns, times, at } = deaths;
    println!("in {turns} turns regions died {times} times, at {} different awaits", at.len());
    assert!(at.len() >= AWAITS, "they died at {} different awaits", at.len());
    assert_eq!(world.unsound().await, Vec::<String>::new());
    assert_eq!(differing(&world, "m0").await, Vec::<String>::new());
}
