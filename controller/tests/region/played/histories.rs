//! Random histories with crashes at every await: nothing forbidden happens, and the end is the same as without mishaps.
//!
//! Seeds are fixed. `BASALT_HISTORIES=n` plays n more histories, and `BASALT_SEED=s` plays only one.

#![expect(clippy::print_stdout, reason = "what happened is read by people")]

use super::decisions::differing;
use super::mishaps::{AHEAD, FAULTS, MISHAPS, Tally, drawn, event, feel, mishap};
use super::wishes::{Granting, Wishes};
use super::world::{Taken, World};
use basalt_db::testing::churn::Dice;
use std::time::{Duration, Instant};

/// The size of a site and of its histories.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) racks: usize,
    pub(crate) machines: usize,
    /// The number of events per history.
    events: usize,
    /// The number of wishes per history.
    pub(crate) wishes: usize,
}

/// One machine and one rack.
const SMALL: Site = Site { racks: 1, machines: 1, events: 45, wishes: 5 };
/// Machines that are chosen by selectors, and racks that replace each other.
pub(crate) const SHARED: Site = Site { racks: 2, machines: 2, events: 54, wishes: 6 };
/// The histories of every run, per site.
const SEEDS: std::ops::Range<u64> = 1..3;
/// The number of further histories if a mishap has not happened by then.
const MORE: u64 = 8;
const HOUR: Duration = Duration::from_secs(3600);
/// The number of hardware faults at the beginning of a history: two histories have all of them.
const FELT: usize = FAULTS.len() / 2;

/// Runs the same wishes without mishaps.
pub(crate) async fn undisturbed(site: Site, wishes: &Wishes) -> Vec<String> {
    let mut world = World::with_racks(site.racks, 1, site.machines, Taken::Read).await;
    let mut granting = Granting::begin(wishes, &mut world).await;
    world.settle(24).await.expect("nothing is in its way");
    while let Some(wish) = granting.grant(&mut world, true).await {
        if granting.settles() {
            world.settle(24).await.unwrap_or_else(|unsettled| panic!("{wish}: {unsettled}"));
            // Two wishes never have the same time.
            world.advance(1).await;
        }
    }
    assert_eq!(world.violations, Vec::<String>::new(), "{wishes:?}");
    assert_eq!(world.unsound().await, Vec::<String>::new(), "{wishes:?}");
    world.picture().await
}

async fn history(site: Site, seed: u64, tally: &mut Tally) {
    let (mut dice, began) = (Dice::new(seed), Instant::now());
    let wishes = Wishes::draw(&mut dice, site.wishes, site.machines);
    println!("seed {seed} of {site:?}: {wishes:?}");
    let expected = undisturbed(site, &wishes).await;
    println!("  undisturbed for {:?}", began.elapsed());
    let mut world = World::with_racks(site.racks, 2, site.machines, Taken::Read).await;
    let mut granting = Granting::begin(&wishes, &mut world).await;
    let pause = site.events / (wishes.count() + 1);
    let half = if seed.is_multiple_of(2) { &FAULTS[..FELT] } else { &FAULTS[FELT..] };
    for fault in half {
        feel(&mut world, *fault).await;
    }
    for at in 0..site.events {
        if at % pause == pause - 1 {
            granting.grant(&mut world, dice.below(2) == 0).await;
        }
        // Each mishap once, and then random ones.
        let which = MISHAPS.get(at).map(|(mishap, _)| *mishap);
        let which = which.unwrap_or_else(|| drawn(&mut dice));
        event(&mut world, which, &mut dice, tally, &format!("seed {seed}, event {at}")).await;
    }
    while granting.grant(&mut world, true).await.is_some() {}
    tally.felt(&world);
    world.mend().await;
    if let Err(unsettled) = world.settle(72).await {
        panic!("seed {seed}, {wishes:?}: {unsettled}");
    }
    world.check().await;
    assert_eq!(world.violations, Vec::<String>::new(), "seed {seed}, {wishes:?}");
    assert_eq!(world.unsound().await, Vec::<String>::new(), "seed {seed}, {wishes:?}");
    if !wishes.open {
        assert_eq!(world.picture().await, expected, "seed {seed}, {wishes:?}");
    }
    for machine in world.names.keys() {
        let differing = differing(&world, machine).await;
        assert_eq!(differing, Vec::<String>::new(), "seed {seed}: decided otherwise again");
    }
    // The last system has sent all its reports.
    let later = world.now.checked_add(HOUR).expect("a time");
    world.set(later).await;
    world.work().await;
    // Another plan, now or later, has no steps.
    let recorded = world.recorded().await;
    mishap(&mut world, AHEAD, &mut dice, tally).await;
    for _ in 0..5 {
        world.advance(900).await;
        world.scan().await;
        world.work().await;
    }
    assert_eq!(world.recorded().await, recorded, "seed {seed}: something was begun that was done");
    println!("  done after {:?}", began.elapsed());
}

async fn histories(site: Site) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let more = number("BASALT_HISTORIES").unwrap_or(0);
    let alone = number("BASALT_SEED");
    let seeds = alone.map_or(SEEDS.start..SEEDS.end + more, |seed| seed..seed + 1);
    let mut tally = Tally::default();
    for seed in seeds {
        history(site, seed, &mut tally).await;
    }
    if alone.is_none() {
        let further = SEEDS.end + more..SEEDS.end + more + MORE;
        for seed in further {
            if !tally.missing().is_empty() {
                history(site, seed, &mut tally).await;
            }
        }
        let missing = tally.missing();
        assert!(missing.is_empty(), "never happened: {missing:?}; {tally}");
    }
    println!("{tally}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_history_is_safe_and_ends_as_if_nothing_had_gone_wrong() {
    histories(SMALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_history_of_a_shared_site_is_safe_and_ends_as_if_nothing_had_gone_wrong() {
    histories(SHARED).await;
}
