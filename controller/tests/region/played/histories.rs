//! Random histories with crashes at every await: whatever happens, nothing forbidden does, and the end is as if nothing had.
//!
//! Seeds are fixed. `BASALT_HISTORIES=n` plays n more, and `BASALT_SEED=s` one alone.

#![expect(clippy::print_stdout, reason = "what happened is read by people")]

use super::decisions::differing;
use super::faults::Mortal;
use super::hardware::Fault;
use super::world::{Taken, World, deployment, machine};
use basalt_db::testing::churn::Dice;
use basalt_db::{Key, NoJudge};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Histories of every run.
const SEEDS: std::ops::Range<u64> = 1..5;
/// What happens in one.
const EVENTS: u64 = 45;
/// Most polls of one turn.
const POLLS: u64 = 60;
/// Faults that pass by themselves once they are mended.
const FAULTS: [Fault; 6] = [
    Fault::BmcUnreachable,
    Fault::BmcLies,
    Fault::AnswerLost,
    Fault::NeverBoots,
    Fault::NeverClaims,
    Fault::AgentDies,
];
/// Everything that is done to the regions; each of them has to happen.
const MISHAPS: [&str; 10] = [
    "crash",
    "crash of both regions at work",
    "facts cut off",
    "stale lease",
    "lost wake-up",
    "line down",
    "clock back",
    "rack's clock off by a day",
    "hardware fault",
    "restart within the lease",
];

/// One number of every mishap.
const EACH: [u64; 12] = [0, 9, 18, 13, 16, 20, 22, 23, 24, 28, 13, 17];

/// What people do. It is the same in the run that nothing disturbs.
#[derive(Clone, Debug)]
enum Wish {
    Deploy,
    Undeploy,
    Redeploy(u64),
    Power(&'static str),
    Recommission,
}

/// Counts what happened, and at which poll a turn died.
#[derive(Default)]
struct Tally {
    mishaps: BTreeMap<&'static str, u64>,
    died_at: BTreeSet<u64>,
}

impl Tally {
    fn count(&mut self, mishap: &'static str) {
        *self.mishaps.entry(mishap).or_default() += 1;
    }
}

fn wishes(dice: &mut Dice) -> Vec<Wish> {
    let mut wishes = Vec::new();
    let mut deployed = false;
    for n in 0..5 {
        let wish = match dice.below(6) {
            0..=2 if !deployed => Wish::Deploy,
            0 | 1 => Wish::Undeploy,
            2 | 3 if deployed => Wish::Redeploy(n),
            4 => Wish::Power(["on", "off", "auto"][usize::try_from(dice.below(3)).expect("small")]),
            _ => Wish::Recommission,
        };
        deployed = match wish {
            Wish::Deploy => true,
            Wish::Undeploy => false,
            _ => deployed,
        };
        wishes.push(wish);
    }
    wishes
}

async fn grant(world: &mut World, wish: &Wish, number: usize, current: &mut Option<String>, wakes: bool) {
    match wish {
        Wish::Deploy => {
            let name = format!("d{number}");
            world.declare("Deployment", &name, &deployment("m0"), wakes).await;
            *current = Some(name);
        }
        Wish::Undeploy => {
            let name = current.take().expect("it is deployed");
            world.delete("Deployment", &name).await;
        }
        Wish::Redeploy(n) => {
            let mut spec = deployment("m0");
            spec["kernel_options"] = json!(format!("n={n}"));
            world.declare("Deployment", current.as_deref().expect("it is deployed"), &spec, wakes).await;
        }
        Wish::Power(power) => {
            let mut spec = machine(0);
            spec["power"] = json!(power);
            world.declare("Machine", "m0", &spec, wakes).await;
        }
        Wish::Recommission => {
            let uid = world.names["m0"];
            world
                .store()
                .request_recommission(Key::Uid(uid.into()), (false, &NoJudge))
                .await
                .expect("asked for");
        }
    }
}

/// The same wishes, and nothing goes wrong.
async fn undisturbed(wishes: &[Wish]) -> Vec<String> {
    let mut world = World::new(1, 1, Taken::Read).await;
    let mut current = None;
    for (number, wish) in wishes.iter().enumerate() {
        world.settle(24).await.expect("nothing is in its way");
        grant(&mut world, wish, number, &mut current, true).await;
    }
    world.settle(24).await.expect("nothing is in its way");
    assert_eq!(world.violations, Vec::<String>::new());
    world.picture().await
}

/// One turn of a region, or as much of it as it lives to see.
async fn turn(world: &mut World, seat: usize, polls: u64, tally: &mut Tally) {
    let driver = world.seats[seat].driver.clone();
    let mut turn = Mortal::new(async move { driver.turn().await }, polls);
    if (&mut turn).await.is_none() {
        tally.count("crash");
        tally.died_at.insert(turn.polled);
        drop(turn);
        world.restart(seat).await;
    }
}

/// Both regions at work at once; either may die.
async fn both(world: &mut World, polls: [u64; 2], tally: &mut Tally) {
    let [a, b] = [0, 1].map(|seat| world.seats[seat].driver.clone());
    let a = Mortal::new(async move { a.turn().await }, polls[0]);
    let b = Mortal::new(async move { b.turn().await }, polls[1]);
    let ends = tokio::join!(a, b);
    for (seat, died) in [(0, ends.0.is_none()), (1, ends.1.is_none())] {
        if died {
            tally.count("crash of both regions at work");
            world.restart(seat).await;
        }
    }
}

/// A region stands still in the middle of its work, long enough to lose its lease, while the other one goes on; then it wakes.
async fn stale(world: &mut World, polls: u64, tally: &mut Tally) {
    let driver = world.seats[0].driver.clone();
    let mut frozen = Mortal::new(async move { driver.turn().await }, polls);
    if (&mut frozen).await.is_some() {
        return;
    }
    let later = world.now.checked_add(Duration::from_secs(11)).expect("a time");
    world.set(later).await;
    let other = world.seats[1].driver.clone();
    let mut at_work = tokio::spawn(async move {
        for _ in 0..4 {
            let _ = other.turn().await;
        }
    });
    // What it holds of the database it holds until it goes on.
    let ended = tokio::time::timeout(Duration::from_millis(300), &mut at_work).await;
    world.play().await;
    frozen.revive();
    let _ = frozen.await;
    if ended.is_err() {
        at_work.await.expect("it goes on");
    }
    tally.count("stale lease");
}

async fn mishap(world: &mut World, which: u64, dice: &mut Dice, tally: &mut Tally) {
    let seat = usize::try_from(dice.below(2)).expect("small");
    match which {
        0..=8 => turn(world, seat, 1 + dice.below(POLLS), tally).await,
        9..=12 => both(world, [1 + dice.below(POLLS), 1 + dice.below(POLLS)], tally).await,
        13..=15 => stale(world, 1 + dice.below(POLLS), tally).await,
        16 | 17 => {
            world.play().await;
            if world.has_line(seat) && !world.spooled.is_empty() {
                let polls = 1 + dice.below(12);
                match Mortal::new(world.handing_over(seat), polls).await {
                    Some(through) => world.handed_over(through.expect("stored")),
                    None => tally.count("facts cut off"),
                }
            }
        }
        18 | 19 => {
            world.hand.run("delete from reconcile_queue where lease_until is null").await;
            tally.count("lost wake-up");
        }
        20 => {
            world.line(seat, false).await;
            tally.count("line down");
        }
        21 => world.line(seat, true).await,
        22 => {
            let back = Duration::from_secs(1 + dice.below(600));
            let earlier = world.now.checked_sub(back).expect("a time");
            world.set(earlier).await;
            tally.count("clock back");
        }
        23 => {
            world.rack_clock = [-86_400, 86_400][seat];
            tally.count("rack's clock off by a day");
        }
        24 | 25 => {
            let fault = FAULTS[usize::try_from(dice.below(6)).expect("small")];
            for played in world.machines.values_mut() {
                played.hardware.faults.insert(fault);
            }
            tally.count("hardware fault");
        }
        26 | 27 => world.machines.values_mut().for_each(|played| played.hardware.faults.clear()),
        28 => {
            let owner = world.seats[seat].driver.owner;
            world.restart(seat).await;
            world.store().release_all(owner).await.expect("released");
            tally.count("restart within the lease");
        }
        _ => world.scan().await,
    }
}

async fn history(seed: u64, tally: &mut Tally) {
    let mut dice = Dice::new(seed);
    let wishes = wishes(&mut dice);
    let expected = undisturbed(&wishes).await;
    let mut world = World::new(2, 1, Taken::Read).await;
    let (mut current, mut left) = (None, wishes.iter().enumerate().collect::<Vec<_>>());
    left.reverse();
    for event in 0..EVENTS {
        if event % 9 == 4
            && let Some((number, wish)) = left.pop()
        {
            grant(&mut world, wish, number, &mut current, dice.below(2) == 0).await;
        }
        // Each of them once in turn, and then whatever comes.
        let which = usize::try_from(event).ok().and_then(|n| EACH.get(n).copied());
        let which = which.unwrap_or_else(|| dice.below(30));
        mishap(&mut world, which, &mut dice, tally).await;
        for _ in 0..dice.below(4) {
            turn(&mut world, usize::try_from(dice.below(2)).expect("small"), u64::MAX, tally).await;
        }
        world.advance([5, 30, 60, 120][usize::try_from(dice.below(4)).expect("small")]).await;
        world.check().await;
        assert_eq!(world.violations, Vec::<String>::new(), "seed {seed}, event {event}, {wishes:?}");
    }
    // Everything is mended.
    world.machines.values_mut().for_each(|played| played.hardware.faults.clear());
    for seat in 0..2 {
        world.line(seat, true).await;
    }
    world.scan().await;
    if let Err(unsettled) = world.settle(72).await {
        panic!("seed {seed}, {wishes:?}: {unsettled}");
    }
    world.check().await;
    assert_eq!(world.violations, Vec::<String>::new(), "seed {seed}, {wishes:?}");
    assert_eq!(world.picture().await, expected, "seed {seed}, {wishes:?}");
    assert_eq!(differing(&world, "m0").await, Vec::<String>::new(), "seed {seed}: decided otherwise again");
    // Planning again, now or later, yields nothing.
    let recorded = world.recorded().await;
    for _ in 0..5 {
        world.advance(900).await;
        world.scan().await;
        world.work().await;
    }
    assert_eq!(world.recorded().await, recorded, "seed {seed}: something was begun that was done");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_history_is_safe_and_ends_as_if_nothing_had_gone_wrong() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let more = number("BASALT_HISTORIES").unwrap_or(0);
    let alone = number("BASALT_SEED");
    let seeds = alone.map_or(SEEDS.start..SEEDS.end + more, |seed| seed..seed + 1);
    let mut tally = Tally::default();
    for seed in seeds {
        history(seed, &mut tally).await;
    }
    println!("{:?}; turns died at {} different awaits", tally.mishaps, tally.died_at.len());
    if alone.is_none() {
        let missing: Vec<_> = MISHAPS.iter().filter(|mishap| !tally.mishaps.contains_key(*mishap)).collect();
        assert!(missing.is_empty(), "never happened: {missing:?}");
    }
}
