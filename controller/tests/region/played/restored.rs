//! A database that goes back in time: a site with two racks lives on while its database is restored from a backup. Another
//! incarnation begins, and the racks follow it. A region that was not told of the restore is refused from then on.
//!
//! The actions since the backup are not known: machines that were written since then may be written again. Everything
//! else holds as in any history. Once people have repeated their actions, the end is as if nothing had gone wrong.

#![expect(clippy::print_stdout, reason = "what happened is read by people")]

use super::decisions::differing;
use super::histories::{SHARED, undisturbed};
use super::mishaps::{Tally, drawn, event};
use super::patience::{STEP, within};
use super::wishes::{Granting, Wishes};
use super::world::{Taken, World, deployment, open};
use basalt_api::kinds::MachineStatus;
use basalt_api::values::{Attempt, MachineId};
use basalt_db::testing::churn::Dice;
use basalt_db::testing::clock::Hand;
use basalt_db::{cluster, recover};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The histories of every run.
const SEEDS: std::ops::Range<u64> = 1..3;
/// The number of further histories if a loss has not happened by then.
const MORE: u64 = 2;
/// The numbers of events before the backup, between the backup and the restore, and afterwards.
const EVENTS: [usize; 3] = [14, 18, 18];
/// The number of events between two wishes.
const PAUSE: usize = 5;
/// Minutes without mishaps before the restore, so that some work completes.
const QUIET: usize = 15;
/// Stores that are opened use the model's clock.
const CLOCK_FIRST: &str = "do $$ begin
    execute format('alter database %I set search_path = public, clock, pg_catalog', current_database());
end $$";

/// A backup of the database, with the part of the world that belongs to it.
struct Backup {
    dir: tempfile::TempDir,
    leaving: BTreeMap<String, Value>,
}

impl World {
    async fn back_up(&self) -> Backup {
        let dir = tempfile::tempdir().expect("a directory");
        let dump = dir.path().join("dump");
        within(&self.url, STEP, "a backup", cluster::dump(dir.path(), &self.url, &dump))
            .await
            .expect("saved");
        Backup { dir, leaving: self.leaving.clone() }
    }

    /// Kills the regions, except for one that is not told, and starts others on the restored database. Racks and machines live on.
    async fn restore(&mut self, backup: &Backup) {
        let url = basalt_db::testing::empty_database().await;
        let dump = backup.dir.path().join("dump");
        let loads = cluster::load(backup.dir.path(), &url, &dump);
        within(&url, STEP, "a restore", loads).await.expect("restored");
        let mut hand = Hand::on(&url).await;
        hand.run(CLOCK_FIRST).await;
        hand.set_clock(self.now).await;
        recover::recover(&url).await.expect("another incarnation");
        self.url = url;
        let before = std::mem::replace(&mut self.hand, hand);
        let mut seats = std::mem::take(&mut self.seats);
        let regions = seats.len();
        self.lost = seats.pop().map(|seat| (seat, before));
        let store = open(&self.url).await;
        self.leaving = backup.leaving.clone();
        for object in store.all("Machine").await.expect("machines") {
            let uid = MachineId::from(object.uid);
            let was = self.names.insert(object.name, uid).expect("it is played");
            if was != uid {
                let played = self.machines.remove(&was).expect("it is played");
                self.machines.insert(uid, played);
                self.racks.iter_mut().for_each(|rack| rack.renamed(was, uid));
                self.heirs.remove(&uid);
                self.heirs.values_mut().filter(|it| **it == was).for_each(|it| *it = uid);
                self.heirs.insert(was, uid);
            }
        }
        self.claims.clear();
        self.armed.clear();
        for (uid, played) in &mut self.machines {
            let rows = store.planning_steps((*uid).into(), 1000).await.expect("steps");
            let begun = rows.iter().filter_map(|row| row.attempt).collect();
            let facts = store.planning_facts((*uid).into()).await.expect("facts");
            let of = |kind: &str| -> BTreeSet<Attempt> {
                facts.iter().filter(|fact| fact.kind == kind).filter_map(|fact| fact.attempt).collect()
            };
            played.remembered(&begun, &of("claim"), &of("result"));
        }
        for seat in 0..regions {
            let store = if seat == 0 { store.clone() } else { open(&self.url).await };
            let seat = self.seat(store).await;
            self.seats.push(seat);
        }
    }

    /// Racks learn the incarnation of each line, and cut the lines of former incarnations.
    pub(super) fn introduce(&mut self) {
        for (at, rack) in self.racks.iter_mut().enumerate().filter(|(_, rack)| rack.alive) {
            for seat in self.seats.iter().filter(|seat| seat.lines[at].link.is_some()) {
                assert!(rack.hears(&seat.store.incarnation().to_string()), "{} refuses a region", rack.name);
            }
            if let Some((seat, _)) = &mut self.lost
                && seat.lines[at].link.is_some()
                && !rack.hears(&seat.store.incarnation().to_string())
            {
                seat.lines[at].link = None;
            }
        }
    }

    /// Runs the region that was not told, on its own database. Returns the number of turns with work.
    async fn haunt(&mut self) -> u64 {
        let Some((seat, hand)) = &mut self.lost else { return 0 };
        hand.set_clock(self.now).await;
        seat.store.enqueue_all().await.expect("woken");
        let mut turns = 0;
        while turns < 8
            && within(&self.url, STEP, "the lost region", seat.driver.turn()).await.expect("it answers")
        {
            turns += 1;
        }
        turns
    }

    /// The number of messages that racks have not read yet.
    fn unread(&self) -> usize {
        self.seats.iter().flat_map(|seat| &seat.lines).map(|line| line.inbox.len()).sum()
    }

    /// The racks whose concern is from a former incarnation.
    fn behind(&self) -> Vec<&str> {
        let now = self.store().incarnation().to_string();
        self.racks.iter().filter(|rack| rack.holds.0 != now).map(|rack| rack.name.as_str()).collect()
    }
}

/// The losses of restores.
#[derive(Debug, Default)]
struct Losses {
    /// Steps that were begun since the backup.
    steps: usize,
    /// Attempts that the restored database knows too little of.
    forgotten: usize,
    /// Facts that racks still had.
    spooled: usize,
    /// Turns of a region of the former incarnation after the restore.
    haunted: u64,
    /// Wishes that were granted again.
    repeated: usize,
}

impl Losses {
    /// True if something was lost, and the former incarnation went on.
    fn happened(&self) -> bool {
        self.steps.min(self.forgotten).min(self.repeated) > 0 && self.haunted > 0
    }
}

async fn live(
    world: &mut World,
    granting: &mut Granting,
    events: usize,
    (dice, tally): (&mut Dice, &mut Tally),
    what: &str,
) -> usize {
    let mut granted = 0;
    for at in 0..events {
        if at % PAUSE == PAUSE - 1 {
            granted += usize::from(granting.grant(world, dice.below(2) == 0).await.is_some());
        }
        let which = drawn(dice);
        event(world, which, dice, tally, &format!("{what}, event {at}")).await;
    }
    granted
}

async fn history(seed: u64, tally: &mut Tally, losses: &mut Losses) {
    let (mut dice, began) = (Dice::new(seed), Instant::now());
    let wishes = Wishes::draw(&mut dice, SHARED.wishes, SHARED.machines);
    println!("seed {seed}: {wishes:?}");
    let expected = undisturbed(SHARED, &wishes).await;
    let mut world = World::with_racks(SHARED.racks, 2, SHARED.machines, Taken::Read).await;
    let mut granting = Granting::begin(&wishes, &mut world).await;
    world.settle(24).await.expect("nothing is in its way");
    let [before, since, after] = EVENTS;
    live(&mut world, &mut granting, before, (&mut dice, tally), &format!("seed {seed}, before")).await;
    let backup = world.back_up().await;
    println!("  backed up, {:?}", began.elapsed());
    let (saved, recorded) = (granting.clone(), world.recorded().await);
    let what = format!("seed {seed}, since the backup");
    losses.repeated += live(&mut world, &mut granting, since, (&mut dice, tally), &what).await;
    for _ in 0..QUIET {
        world.work().await;
        world.advance(60).await;
    }
    losses.steps += world.recorded().await - recorded;
    losses.spooled += world.racks.iter().map(|rack| rack.spooled.len()).sum::<usize>();
    println!("  restored, {:?}", began.elapsed());
    world.restore(&backup).await;
    losses.forgotten += world.machines.values().map(|played| played.forgotten.len()).sum::<usize>();
    let mut granting = saved;
    for third in 0..3 {
        losses.haunted += world.haunt().await;
        let what = format!("seed {seed}, {third} thirds after the restore");
        live(&mut world, &mut granting, after / 3, (&mut dice, tally), &what).await;
    }
    while granting.grant(&mut world, true).await.is_some() {}
    world.mend().await;
    losses.haunted += world.haunt().await;
    if let Err(unsettled) = world.settle(72).await {
        panic!("seed {seed}, {wishes:?}: {unsettled}");
    }
    world.check().await;
    assert_eq!(world.violations, Vec::<String>::new(), "seed {seed}, {wishes:?}");
    assert_eq!(world.behind(), Vec::<&str>::new(), "seed {seed}: racks that do not follow");
    assert_eq!(world.unsound().await, Vec::<String>::new(), "seed {seed}, {wishes:?}");
    if !wishes.open {
        let forgotten = world.forgotten();
        let known = |line: &String| !forgotten.iter().any(|name| line.starts_with(&format!("{name} ")));
        let (picture, expected) = (world.picture().await.into_iter(), expected.into_iter());
        assert_eq!(
            picture.filter(known).collect::<Vec<_>>(),
            expected.filter(known).collect::<Vec<_>>(),
            "seed {seed}, {wishes:?}, unknown: {forgotten:?}"
        );
    }
    for machine in world.names.keys() {
        let differing = differing(&world, machine).await;
        assert_eq!(differing, Vec::<String>::new(), "seed {seed}: decided otherwise again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_whose_database_goes_back_to_a_backup_ends_as_if_nothing_had_gone_wrong() {
    let alone = std::env::var("BASALT_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    let (mut tally, mut losses) = (Tally::default(), Losses::default());
    for seed in alone.map_or(SEEDS.start..SEEDS.end + MORE, |seed| seed..seed + 1) {
        if alone.is_some() || seed < SEEDS.end || !losses.happened() {
            history(seed, &mut tally, &mut losses).await;
        }
    }
    println!("{losses:?}; {tally}");
    assert!(alone.is_some() || losses.happened(), "{losses:?}");
}

async fn phase(world: &World, name: &str) -> Option<String> {
    let object = world.find("Machine", name).await.expect("it is there");
    let status: MachineStatus = serde_json::from_str(object.status.get()).expect("a status");
    status.phase
}

#[tokio::test(flavor = "multi_thread")]
async fn racks_follow_the_life_that_was_restored_and_refuse_what_the_one_before_still_says() {
    let mut world = World::with_racks(2, 1, 2, Taken::Read).await;
    world.declare("Deployment", "web", &deployment("m0"), true).await;
    world.settle(4).await.expect("one is deployed, one is ready");
    let backup = world.back_up().await;
    let (web, m1) = (world.machines[&world.names["m0"]].hardware.system, world.names["m1"]);
    world.declare("Deployment", "later", &deployment("m1"), true).await;
    // Until a command for m1 is sent that no rack has read yet.
    for step in 0.. {
        assert!(step < 100, "no command is sent");
        while world.seats[0].driver.turn().await.expect("it answers") {}
        if world.unread() > 0 {
            break;
        }
        world.work_at_the_rack().await;
        world.advance(5).await;
    }
    let commands = world.machines[&m1].hardware.commands;
    world.rack(1, false).await;
    world.restore(&backup).await;
    world.work().await;
    assert_eq!(world.racks[0].refused, 1, "a rack that follows refuses what comes late");
    assert_eq!(world.machines[&m1].hardware.commands, commands);
    assert_eq!(world.behind(), ["rack2"], "it is away");
    world.haunt().await;
    world.settle(4).await.expect("the rack that follows suffices");
    world.rack(1, true).await;
    world.haunt().await;
    world.settle(4).await.expect("the other one follows too");
    assert_eq!(world.behind(), Vec::<&str>::new());
    assert_eq!(phase(&world, "m1").await.as_deref(), Some("Ready"), "nobody knows of its deployment");

    world.declare("Deployment", "later", &deployment("m1"), true).await;
    world.settle(24).await.expect("it is deployed");
    assert_eq!(world.machines[&world.names["m0"]].hardware.system, web, "what was known is left alone");
    assert_eq!(world.unsound().await, Vec::<String>::new());
    assert_eq!(world.violations, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_machine_boots_by_the_network_before_its_racks_have_said_so_to_the_life_that_was_restored() {
    let mut world = World::with_racks(2, 1, 1, Taken::Read).await;
    world.settle(4).await.expect("it is taken in");
    world.declare("Deployment", "web", &deployment("m0"), true).await;
    let booted = "select count(*) from step_record where step_key like '%/netboot-install/%'";
    world.until_its_agent_is_offered("m0").await;
    assert_eq!(world.hand.run(booted).await, [["0"]]);
    let backup = world.back_up().await;
    world.settle(24).await.expect("it is deployed, and its racks boot its disk");
    world.restore(&backup).await;
    world.settle(24).await.expect("it is deployed again");
    assert_eq!(world.violations, Vec::<String>::new());
    assert_eq!(world.unsound().await, Vec::<String>::new());
    assert_eq!(phase(&world, "m0").await.as_deref(), Some("Deployed"));
}
