//! The cost of a reconciliation does not grow with the fleet, and the topology in memory equals the database.

use super::seats::Seat;
use super::statements::Statements;
use super::world::{Taken, World, deployment, machine, open, put};
use basalt_api::Kind;
use basalt_db::testing::clock::Hand;
use basalt_db::{Batch, Key, NoJudge, Overlay, Precondition, Put, splice};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The number of machines whose disks are being written; the budget allows no more.
const WRITING: usize = 8;

/// The spec of machine `n`. The fleet has more machines than one /24 of BMCs has addresses.
fn nth_machine(n: usize) -> Value {
    let mut spec = machine(n);
    spec["bmc"]["address"] = format!("10.78.{}.{}", n / 256, n % 256).into();
    spec
}

/// A fleet of machines, each with a Deployment and an address, all of them in the budget, and as many subnets. No work is due on them.
async fn fleet(machines: usize) -> World {
    let mut world = World::with_racks(1, 0, 1, Taken::Read).await;
    let store = open(&world.url).await;
    put(&store, "Settings", "default", &json!({"fleet_budget": {"max_unavailable": WRITING}})).await;
    let mut objects: Vec<(&str, String, Value)> = Vec::new();
    objects.extend((1..machines).map(|n| ("Machine", format!("m{n}"), nth_machine(n))));
    objects.extend((0..machines).map(|n| ("Deployment", format!("d{n}"), deployment(&format!("m{n}")))));
    let subnet =
        |n: usize| json!({"vlan": "default.0", "cidr": format!("10.{}.{}.0/24", 100 + n / 256, n % 256)});
    objects.extend((0..machines).map(|n| ("Subnet", format!("s{n}"), subnet(n))));
    let texts: Vec<_> =
        objects.iter().map(|(.., spec)| splice::Text::parse(spec.to_string()).expect("JSON")).collect();
    let puts = objects.iter().zip(&texts).map(|((kind, name, _), spec)| Put {
        kind: Kind::find(kind).expect("a kind"),
        key: Key::Name(name),
        spec,
        at: "",
        labels: None,
        manager: Some("test"),
        adopt: true,
        precondition: Precondition::None,
        first_status: &Value::Null,
    });
    let puts: Vec<_> = puts.collect();
    let batch = Batch { puts: &puts, prune: None, dry_run: false, judge: &NoJudge, allocation: None };
    store.write(&batch).await.expect("a fleet");
    store.close().await;
    world
        .hand
        .run(&format!(
            "insert into machine_claim (machine, deployment, epoch)
               select m.uid, d.uid, 0 from object m join object d on d.spec->>'machine' = m.name and d.kind = 'Deployment'
               where m.kind = 'Machine';
             insert into address (subnet, address, owner, purpose)
               select s.uid, '10.77.100.0'::inet + (row_number() over ())::int, d.uid, 'enp1s0'
               from object d join object s on s.kind = 'Subnet' and s.name = 'lab' where d.kind = 'Deployment';
             insert into fleet_slot (machine, zone, attempt)
               select uid, 'a', case when n <= {WRITING} then n end
               from (select uid, row_number() over (order by name) n from object where kind = 'Machine' and name <> 'm0') m"
        ))
        .await;
    world
}

/// A region process that has read the topology and has one machine to reconcile.
async fn seat(world: &mut World) -> Seat {
    let seat = world.seat(open(&world.url).await).await;
    seat.driver.estate().await.expect("the database answers");
    world.hand.run("delete from reconcile_queue").await;
    world.hand.run("vacuum").await;
    seat.store.enqueue(world.names["m0"].into(), Duration::ZERO).await.expect("woken");
    seat
}

/// The rows of all tables and indexes that statements have read. Other sessions report them when they end; this one reports them at once.
async fn looked_at(hand: &mut Hand) -> Rows {
    let others = "select count(*) from pg_stat_activity where datname = current_database()
        and pid <> pg_backend_pid() and backend_type = 'client backend'";
    while hand.run(others).await != [["0"]] {
        tokio::task::yield_now().await;
    }
    hand.run("select pg_stat_force_next_flush()").await;
    let rows = "select relname, seq_tup_read from pg_stat_user_tables where schemaname = 'public'
        union all select indexrelname, idx_tup_read from pg_stat_user_indexes where schemaname = 'public'";
    let number = |text: &String| text.parse().expect("a number");
    hand.run(rows).await.into_iter().map(|row| (row[0].clone(), number(&row[1]))).collect()
}

/// The number of rows by table or index.
type Rows = BTreeMap<String, i64>;

/// The difference of each number.
fn more(after: &Rows, before: &Rows) -> Rows {
    after.iter().map(|(name, rows)| (name.clone(), rows - before.get(name).unwrap_or(&0))).collect()
}

/// The cost of one reconciliation of a machine: its statements, and the rows that the database read for them.
async fn cost(machines: usize) -> (Statements, Rows) {
    let mut world = fleet(machines).await;
    let (mut marks, mut statements) = (Vec::new(), Statements::default());
    // Two runs without the work come first, so that the state before the last run is the same as before the second.
    for works in [false, false, true] {
        let seat = seat(&mut world).await;
        if works {
            let (worked, counted) = Statements::of(seat.driver.turn()).await;
            assert!(worked.expect("the store answers"), "there is a machine to work on");
            statements = counted;
        }
        seat.store.close().await;
        drop(seat);
        marks.push(looked_at(&mut world.hand).await);
    }
    let begun = world
        .hand
        .run("select count(*) from step_record where object = (select uid from object where name = 'm0')")
        .await;
    assert_ne!(begun, [["0"]], "it began a step");
    // Both differences contain the start of a process; the last one contains the work as well.
    let mut rows = more(&more(&marks[2], &marks[1]), &more(&marks[1], &marks[0]));
    rows.retain(|_, rows| *rows != 0);
    (statements, rows)
}

/// True if the cost among many machines is at most a tenth above the cost among few. It may be lower: PostgreSQL reads small indexes
/// whole.
fn is_as_cheap(few: u64, many: u64) -> bool {
    many * 10 <= few * 11
}

#[tokio::test]
async fn a_machine_costs_the_same_among_300_as_among_10() {
    let (few, few_rows) = cost(10).await;
    let (many, many_rows) = cost(300).await;
    let looked_at = [&few_rows, &many_rows].map(|rows| rows.values().sum::<i64>().unsigned_abs());
    for (machines, of, looked_at) in [(10, &few, looked_at[0]), (300, &many, looked_at[1])] {
        let (statements, rows) = (of.count(), of.rows);
        eprintln!("{machines} machines: {statements} statements, {rows} rows, {looked_at} looked at");
    }
    assert_eq!(few.by_words, many.by_words);
    assert!(few.count() > 20, "statements are counted: {few:?}");
    assert!(is_as_cheap(few.rows, many.rows), "{few:?} {many:?}");
    assert!(is_as_cheap(looked_at[0], looked_at[1]), "{few_rows:?}\n{many_rows:?}");
}

#[tokio::test]
async fn those_who_need_a_changed_topology_at_once_share_one_reading_of_it() {
    let world = World::with_racks(1, 1, 1, Taken::AsTheyAre).await;
    let driver = &world.seats[0].driver;
    driver.estate().await.expect("read");
    let (estate, kept) = Statements::of(driver.estate()).await;
    assert_eq!((estate.expect("read").tags.len(), kept.count()), (0, 1), "the position alone is read");
    put(&driver.store, "Tag", "gpu", &json!({})).await;
    let (estates, read) = Statements::of(async {
        let one = || driver.estate();
        tokio::join!(one(), one(), one(), one())
    })
    .await;
    for estate in [estates.0, estates.1, estates.2, estates.3] {
        assert_eq!(estate.expect("read").tags.len(), 1);
    }
    assert_eq!(read.by_words["select position from topology"], 4 + 1, "{read:?}");
    assert_eq!(read.by_words["select uid, kind, name, …"], 1, "{read:?}");
}

#[tokio::test]
async fn racks_come_and_go_without_a_change_of_the_topology() {
    let mut world = World::with_racks(1, 1, 1, Taken::AsTheyAre).await;
    let driver = world.seats[0].driver.clone();
    let position = driver.store.topology_position().await.expect("read");
    let estate = driver.estate().await.expect("read");
    assert_eq!(estate.racks[0].connected, Some(world.now));
    world.line(0, 0, false).await;
    // Another region hears from the rack.
    world.set(world.now.checked_add(Duration::from_secs(60)).expect("a time")).await;
    let beside = world.seat(open(&world.url).await).await;
    let estate = driver.estate().await.expect("read");
    assert_eq!((estate.racks[0].connected, estate.racks[0].last_seen), (None, world.now));
    assert_eq!(driver.store.topology_position().await.expect("read"), position);
    beside.store.close().await;
}

#[tokio::test]
async fn a_dry_run_sees_its_own_topology_and_nobody_else_does() {
    let world = World::with_racks(1, 1, 1, Taken::AsTheyAre).await;
    let driver = &world.seats[0].driver;
    let subnet = world.find("Subnet", "lab").await.expect("a subnet");
    let is_there = |estate: basalt_region::driver::topology::estate::Estate| {
        estate.nets.iter().any(|net| net.name == "lab")
    };
    let supposing = |gone| driver.store.supposing(Arc::new(Overlay::one(&subnet, gone)));
    for (store, expected) in
        [(supposing(true), false), (driver.store.clone(), true), (supposing(false), true)]
    {
        assert_eq!(is_there(driver.topology.estate(&store).await.expect("read")), expected);
    }
}
