//! Wake-ups of many objects: who is due at once, who waits, and that nobody is left out.

use crate::common::{machine, open, put};
use basalt_api::values::{Timestamp, Uid};
use basalt_db::testing::clock::Hand;
use basalt_db::wake::TURNS;
use basalt_db::{Key, Precondition, Requeue, Store};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

/// Machines, of which all are settled but the first ones. The clock of their database stands still.
struct Fleet {
    store: Store,
    hand: Hand,
    machines: Vec<Uid>,
    open: BTreeSet<Uid>,
}

impl Fleet {
    async fn new(many: usize, open_ones: usize) -> Self {
        let url = basalt_db::testing::database().await;
        let mut hand = Hand::on(&url).await;
        hand.take_clock().await;
        hand.set_clock(Timestamp::from_second(1_800_000_000).unwrap()).await;
        let store = open(&url, [7; 32]).await.unwrap();
        let mut machines = Vec::new();
        for number in 0..many {
            let spec = machine(&format!("52:54:00:00:{:02x}:{:02x}", number / 256, number % 256));
            machines.push(put(&store, "Machine", &format!("m{number}"), spec).await.unwrap().object.uid);
        }
        let open = machines.iter().take(open_ones).copied().collect();
        let fleet = Self { store, hand, machines, open };
        fleet.handle().await;
        fleet
    }

    /// Handles all that is due, and returns it. Every object but the open ones is Ready then.
    async fn handle(&self) -> BTreeSet<Uid> {
        let leases = self.store.claim(Uid::generate(), 10_000, LEASE).await.unwrap();
        for lease in &leases {
            let is_ready = !self.open.contains(&lease.uid);
            let condition = |kind: &str, holds: bool| json!({"type": kind, "status": holds.to_string()});
            let conditions = [condition("Ready", is_ready), condition("Progressing", !is_ready)];
            let object = self.store.get_by_uid(lease.uid).await.unwrap().unwrap();
            let status = json!({"conditions": conditions});
            self.store.write_status(lease, object.generation, &status).await.unwrap();
            self.store.finish(lease, Requeue::WhenWoken).await.unwrap();
        }
        leases.into_iter().map(|lease| lease.uid).collect()
    }

    async fn pass(&mut self, time: Duration) {
        let now = self.store.now().await.unwrap();
        self.hand.set_clock(now.checked_add(time).unwrap()).await;
    }
}

#[tokio::test]
async fn a_kind_is_woken_at_once_if_it_is_not_settled_and_else_at_a_pace() {
    let mut fleet = Fleet::new(115, 5).await;
    fleet.store.enqueue_kind("Machine").await.unwrap();
    let now = fleet.handle().await;
    assert_eq!(now.len(), 105, "five that are under way, and a hundred that are settled");
    assert!(fleet.open.is_subset(&now));
    let late = *fleet.machines.iter().rfind(|uid| !now.contains(uid)).unwrap();
    assert!(fleet.handle().await.is_empty(), "ten wait");
    fleet.store.enqueue(late, Duration::ZERO).await.unwrap();
    assert_eq!(fleet.handle().await, BTreeSet::from([late]), "something else wakes it");
    fleet.pass(Duration::from_millis(150)).await;
    assert_eq!(fleet.handle().await.len(), 5, "one each 30 ms");
    fleet.pass(Duration::from_millis(150)).await;
    assert_eq!(fleet.handle().await.len(), 4);
    assert_eq!(fleet.store.next_due().await.unwrap(), None);
}

#[tokio::test]
async fn each_scan_has_what_is_not_settled_and_each_settled_object_is_in_one_of_them() {
    let mut fleet = Fleet::new(64, 1).await;
    let mut times: BTreeMap<Uid, usize> = BTreeMap::new();
    for turn in 0..TURNS {
        fleet.store.enqueue_turn(turn).await.unwrap();
        let scanned = fleet.handle().await;
        assert!(scanned.len() < 32, "{} of 64", scanned.len());
        for uid in scanned {
            *times.entry(uid).or_default() += 1;
        }
        fleet.pass(Duration::from_secs(60)).await;
    }
    assert_eq!(times.remove(&fleet.machines[0]), Some(usize::from(TURNS)), "it is not settled");
    assert_eq!(times.into_values().collect::<Vec<_>>(), vec![1; 63]);
}

#[tokio::test]
async fn a_spec_that_no_status_knows_and_a_wished_deletion_make_an_object_open() {
    let fleet = Fleet::new(3, 0).await;
    put(&fleet.store, "Machine", "m0", machine("52:54:00:00:09:09")).await.unwrap();
    fleet.store.request_deletion("Machine", Key::Name("m1"), Precondition::None, false).await.unwrap();
    // The wake-ups of these changes are lost.
    for lease in fleet.store.claim(Uid::generate(), 10, LEASE).await.unwrap() {
        fleet.store.finish(&lease, Requeue::WhenWoken).await.unwrap();
    }
    let free = (0..TURNS).map(|turn| fleet.store.enqueue_turn(turn));
    let mut scanned = Vec::new();
    for scan in free {
        scan.await.unwrap();
        let leases = fleet.store.claim(Uid::generate(), 10, LEASE).await.unwrap();
        for lease in &leases {
            fleet.store.finish(lease, Requeue::WhenWoken).await.unwrap();
        }
        scanned.extend(leases.into_iter().map(|lease| lease.uid));
    }
    let times = |number: usize| scanned.iter().filter(|uid| **uid == fleet.machines[number]).count();
    assert_eq!([times(0), times(1), times(2)], [usize::from(TURNS), usize::from(TURNS), 1]);
}

#[tokio::test]
async fn a_region_that_starts_handles_all_objects_once_and_wakes_none_twice() {
    let mut fleet = Fleet::new(103, 1).await;
    fleet.store.enqueue_all().await.unwrap();
    assert_eq!(fleet.handle().await.len(), 101);
    fleet.store.enqueue_all().await.unwrap();
    fleet.pass(Duration::from_secs(300)).await;
    assert_eq!(fleet.handle().await.len(), 103);
    assert_eq!(fleet.store.next_due().await.unwrap(), None);
}
