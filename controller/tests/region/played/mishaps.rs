//! All mishaps of a site in a history, with their counts.

use super::faults::Mortal;
use super::hardware::Fault;
use super::patience::{STEP, within};
use super::world::World;
use basalt_db::testing::churn::Dice;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The largest number of polls of one turn.
const POLLS: u64 = 60;
/// The number of time steps within which a machine in commissioning must feel a fault.
const FELT: usize = 200;
/// Faults that have no lasting effect once they are repaired.
pub(crate) const FAULTS: [Fault; 6] = [
    Fault::BmcUnreachable,
    Fault::BmcLies,
    Fault::AnswerLost,
    Fault::NeverBoots,
    Fault::NeverClaims,
    Fault::AgentDies,
];
/// All mishaps, each with its share among the others. Every history begins with them, in this order.
pub(crate) const MISHAPS: [(&str, u64); 18] = [
    (CRASH, 8),
    (BOTH, 4),
    ("hardware fault", 3),
    (STALE, 3),
    ("lost wake-up", 2),
    ("facts cut off", 3),
    ("line down", 2),
    ("rack dies", 1),
    ("clock back", 1),
    ("rack's clock off by a day", 1),
    ("line up", 2),
    ("rack comes back", 2),
    ("restart within the lease", 1),
    ("other rack is heard first", 1),
    (AHEAD, 3),
    ("hardware fault", 1),
    ("hardware mended", 2),
    ("full scan", 1),
];
const CRASH: &str = "crash";
const BOTH: &str = "crash of both regions at work";
const STALE: &str = "stale lease";
/// Its effect on a machine in progress is tested in `clock`.
pub(crate) const AHEAD: &str = "clock ahead";

/// Counts the mishaps, the faults that machines felt, and the polls at which turns died.
#[derive(Default)]
pub(crate) struct Tally {
    mishaps: BTreeMap<&'static str, u64>,
    felt: BTreeMap<Fault, u64>,
    died_at: BTreeSet<u64>,
}

impl Tally {
    fn count(&mut self, mishap: &'static str) {
        *self.mishaps.entry(mishap).or_default() += 1;
    }

    /// Counts the faults that the machines of a world have felt so far.
    pub(crate) fn felt(&mut self, world: &World) {
        for played in world.machines.values() {
            for (fault, times) in played.hardware.felt.borrow().iter() {
                *self.felt.entry(*fault).or_default() += times;
            }
        }
    }

    /// The mishaps and faults that never happened.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mishaps = MISHAPS.iter().filter(|(mishap, _)| !self.mishaps.contains_key(mishap));
        let faults = FAULTS.iter().filter(|fault| !self.felt.contains_key(fault));
        mishaps.map(|(mishap, _)| (*mishap).to_owned()).chain(faults.map(|it| format!("{it:?}"))).collect()
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { mishaps, felt, died_at } = self;
        write!(f, "{mishaps:?}; felt: {felt:?}; turns died at {} different awaits", died_at.len())
    }
}

pub(crate) fn small(dice: &mut Dice, bound: usize) -> usize {
    usize::try_from(dice.below(bound as u64)).expect("small")
}

/// The number of polls before a turn dies. Small numbers are drawn more often: on a busy host, a whole turn is polled a dozen times.
fn polls(dice: &mut Dice) -> u64 {
    let drawn = dice.below(POLLS);
    1 + drawn * drawn / POLLS
}

/// One turn of a region, until its end or its death.
pub(crate) async fn turn(world: &mut World, seat: usize, polls: u64, tally: &mut Tally) {
    let driver = world.seats[seat].driver.clone();
    let mut turn = Mortal::new(async move { driver.turn().await }, polls);
    if (&mut turn).await.is_none() {
        tally.count(CRASH);
        tally.died_at.insert(turn.polled);
        drop(turn);
        world.restart(seat).await;
    }
}

/// Both regions work at the same time, and either may die.
async fn both(world: &mut World, polls: [u64; 2], tally: &mut Tally) {
    let [a, b] = [0, 1].map(|seat| world.seats[seat].driver.clone());
    let a = Mortal::new(async move { a.turn().await }, polls[0]);
    let b = Mortal::new(async move { b.turn().await }, polls[1]);
    let ends = tokio::join!(a, b);
    for (seat, died) in [(0, ends.0.is_none()), (1, ends.1.is_none())] {
        if died {
            tally.count(BOTH);
            world.restart(seat).await;
        }
    }
}

/// A region freezes in the middle of its work for longer than its lease, while the other one works. Then it goes on.
async fn stale(world: &mut World, polls: u64, tally: &mut Tally) {
    let driver = world.seats[0].driver.clone();
    let mut frozen = Mortal::new(async move { driver.turn().await }, polls);
    if (&mut frozen).await.is_some() {
        return;
    }
    let later = world.now.checked_add(Duration::from_secs(11)).expect("a time");
    world.set(later).await;
    let other = world.seats[1].driver.clone();
    let others = async {
        for _ in 0..4 {
            let _ = other.turn().await;
        }
        world.play().await;
    };
    let mut others = std::pin::pin!(others);
    // It keeps its locks in the database until it goes on.
    let ended = tokio::time::timeout(Duration::from_millis(300), &mut others).await;
    frozen.revive();
    if ended.is_ok() {
        let _ = frozen.await;
    } else {
        let _ = tokio::join!(frozen, others);
    }
    tally.count(STALE);
}

/// Draws one of [`MISHAPS`] by its share.
pub(crate) fn drawn(dice: &mut Dice) -> &'static str {
    let mut left = dice.below(MISHAPS.iter().map(|(_, share)| share).sum());
    for (mishap, share) in MISHAPS {
        match left.checked_sub(share) {
            Some(rest) => left = rest,
            None => return mishap,
        }
    }
    unreachable!("it is less than all shares")
}

/// Causes a mishap, if it is possible. The most frequent ones are counted where they happen.
pub(crate) async fn mishap(world: &mut World, mishap: &'static str, dice: &mut Dice, tally: &mut Tally) {
    let (seat, rack) = (small(dice, 2), small(dice, world.racks.len()));
    match mishap {
        CRASH => return turn(world, seat, polls(dice), tally).await,
        BOTH => return both(world, [polls(dice), polls(dice)], tally).await,
        STALE => return stale(world, polls(dice), tally).await,
        "facts cut off" => {
            world.play().await;
            let mut racks = 0..world.racks.len();
            let Some((seat, rack)) = racks.find_map(|it| Some((world.taker(it)?, it))) else { return };
            let polls = 1 + dice.below(12);
            if let Some(through) = Mortal::new(world.handing_over(seat, rack), polls).await {
                return world.handed_over(rack, through.expect("stored"));
            }
        }
        "lost wake-up" => {
            world.hand.run("delete from reconcile_queue where lease_until is null").await;
        }
        "line down" => world.line(seat, rack, false).await,
        "line up" => world.line(seat, rack, true).await,
        "rack dies" => world.rack(rack, false).await,
        "rack comes back" => {
            let Some(dead) = world.racks.iter().position(|rack| !rack.alive) else { return };
            world.rack(dead, true).await;
        }
        "other rack is heard first" => world.nearest = (world.nearest + 1) % world.racks.len(),
        "clock back" => {
            let back = Duration::from_secs(1 + dice.below(600));
            let earlier = world.now.checked_sub(back).expect("a time");
            world.set(earlier).await;
        }
        AHEAD => {
            let at_work = world.machines.values().any(|played| played.hardware.next_event().is_some());
            if at_work {
                return;
            }
            world.jump(Duration::from_secs(600 * (1 + dice.below(12)))).await;
        }
        "rack's clock off by a day" => world.racks[rack].clock = [-86_400, 86_400][seat],
        "hardware fault" => strike(world, FAULTS[small(dice, FAULTS.len())]),
        // A fault that no machine has felt yet stays.
        "hardware mended" => {
            for hardware in world.machines.values_mut().map(|played| &mut played.hardware) {
                let felt = hardware.felt.borrow();
                hardware.faults.retain(|fault| !felt.contains_key(fault));
            }
        }
        "restart within the lease" => {
            let owner = world.seats[seat].driver.owner;
            world.restart(seat).await;
            world.store().release_all(owner).await.expect("released");
        }
        _ => world.scan().await,
    }
    tally.count(mishap);
}

/// Causes a mishap, lets a region work and time pass, and checks that nothing forbidden has happened.
pub(crate) async fn event(
    world: &mut World,
    which: &'static str,
    dice: &mut Dice,
    tally: &mut Tally,
    what: &str,
) {
    let url = world.url.clone();
    let happens = async {
        mishap(world, which, dice, tally).await;
        for _ in 0..dice.below(4) {
            turn(world, small(dice, 2), u64::MAX, tally).await;
        }
        world.advance([5, 30, 60, 120][small(dice, 4)]).await;
        world.check().await;
    };
    within(&url, STEP, format!("{what}, {which}"), happens).await;
    assert_eq!(world.violations, Vec::<String>::new(), "{what}, {which}");
}

fn strike(world: &mut World, fault: Fault) {
    for played in world.machines.values_mut() {
        played.hardware.faults.insert(fault);
    }
}

/// All machines have a fault until one of them, in commissioning, has felt it.
pub(crate) async fn feel(world: &mut World, fault: Fault) {
    strike(world, fault);
    let felt = |world: &World| {
        let mut played = world.machines.values();
        played.any(|it| it.hardware.felt.borrow().contains_key(&fault))
    };
    for _ in 0..FELT {
        if felt(world) {
            break;
        }
        world.work().await;
        world.advance(60).await;
    }
    assert!(felt(world), "nobody has felt {fault:?}");
    world.machines.values_mut().for_each(|it| assert!(it.hardware.faults.remove(&fault)));
}
