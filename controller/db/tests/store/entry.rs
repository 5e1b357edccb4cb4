//! Entries: the racks that hold them, their progress, and the machines and racks that wake.

use crate::common::{machine, open, put};
use basalt_api::values::{Epoch, Generation, RackId, Uid};
use basalt_db::testing::clock::Hand;
use basalt_db::{ConcernAck, ConcernWrite, Key, NewEntry, Precondition, Progress, Requeue, Store};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

struct World {
    store: Store,
    machine: Uid,
    racks: [RackId; 2],
}

async fn world() -> World {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    let machine = put(&store, "Machine", "m", machine("52:54:00:00:00:01")).await.unwrap().object.uid;
    let mut racks = Vec::new();
    for name in ["r1", "r2"] {
        racks.push(RackId::from(put(&store, "Rack", name, json!({})).await.unwrap().object.uid));
    }
    World { store, machine, racks: racks.try_into().unwrap() }
}

impl World {
    async fn put(&self, epoch: u64, says: &str, body: Option<&[u8]>, racks: &[RackId]) {
        let (says, racks) = (json!(says), racks.iter().copied().collect());
        let (epoch, object) = (Epoch::new(epoch), self.machine);
        let entry = NewEntry { concern: "boot", object, epoch, says: &says, body, racks: &racks };
        self.store.put_entry(&entry).await.unwrap();
    }

    /// Writes a rack's document. Returns the bodies of its entries and its generation.
    async fn tell(&self, rack: usize) -> (Vec<Vec<u8>>, Generation) {
        let base = self.store.concern_generation(self.racks[rack], "boot").await.unwrap();
        let read = self.store.entries_for(self.racks[rack], "boot").await.unwrap();
        let bodies: Vec<Vec<u8>> = read.entries.iter().map(|entry| entry.body.clone()).collect();
        let body = bodies.concat();
        let written =
            self.store.put_concern(self.racks[rack], "boot", base, &body, Some(&read)).await.unwrap();
        match written {
            ConcernWrite::Written(at) | ConcernWrite::Unchanged(at) => (bodies, at),
            ConcernWrite::Stale(_) => panic!("nobody else writes"),
        }
    }

    async fn answer(&self, rack: usize, generation: Generation, outcome: &str) {
        let (concern, outcome, message) = ("boot".to_owned(), outcome.to_owned(), "no room".to_owned());
        let ack = ConcernAck { concern, generation, outcome, message };
        self.store.put_concern_ack(self.racks[rack], &ack).await.unwrap();
    }

    /// The content of the entry, and its racks: whether the rack is in the scope, and its progress.
    async fn state(&self) -> (Value, Vec<(usize, bool, Progress)>) {
        let state = self.store.entry_states(self.machine).await.unwrap().remove("boot").unwrap();
        let place = |rack| self.racks.iter().position(|it| *it == rack).unwrap();
        let mut holders: Vec<_> =
            state.holders.into_iter().map(|it| (place(it.rack), it.wanted, it.progress)).collect();
        holders.sort_by_key(|(place, ..)| *place);
        (state.says, holders)
    }

    /// Claims the objects that are awake, returns their names, and lets them sleep again.
    async fn woken(&self) -> BTreeSet<String> {
        let mut woken = BTreeSet::new();
        for lease in self.store.claim(Uid::generate(), 10, Duration::from_secs(30)).await.unwrap() {
            woken.insert(self.store.get_by_uid(lease.uid).await.unwrap().unwrap().name);
            self.store.finish(&lease, Requeue::WhenWoken).await.unwrap();
        }
        woken
    }
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn an_entry_reaches_the_racks_of_its_scope_and_counts_once_each_has_applied_it() {
    let world = world().await;
    let [r1, r2] = world.racks;
    world.woken().await;
    world.put(1, "install", Some(b"task"), &[r1]).await;
    assert_eq!(world.woken().await, names(&["r1"]), "nobody else has anything to do");
    world.put(1, "install", Some(b"task"), &[r1]).await;
    assert_eq!(world.woken().await, names(&[]), "the same changes nothing");

    assert_eq!(world.tell(1).await.0, Vec::<Vec<u8>>::new(), "r2 does not learn of it");
    let (bodies, first) = world.tell(0).await;
    assert_eq!(bodies, [b"task"]);
    assert_eq!(world.state().await, (json!("install"), vec![(0, true, Progress::Waits)]));
    world.answer(0, first, "failed").await;
    assert_eq!(world.state().await.1, [(0, true, Progress::Refused("no room".to_owned()))]);
    world.woken().await;
    world.answer(0, first, "applied").await;
    assert_eq!(world.state().await.1, [(0, true, Progress::Applied)]);
    assert_eq!(world.woken().await, names(&["m", "r1"]));
    world.answer(0, first, "already_there").await;
    assert_eq!(world.woken().await, names(&["r1"]), "the machine has nothing new to decide");

    // After a new version, all racks wait again. An answer to the previous document does not count.
    world.put(2, "erase", Some(b"other"), &[r1, r2]).await;
    assert_eq!(world.state().await.1, [(0, true, Progress::Waits), (1, true, Progress::Waits)]);
    let told = [world.tell(0).await.1, world.tell(1).await.1];
    world.answer(0, first, "already_there").await;
    world.answer(1, told[1], "applied").await;
    assert_eq!(world.state().await.1, [(0, true, Progress::Waits), (1, true, Progress::Applied)]);
    world.answer(0, told[0], "applied").await;
    assert_eq!(world.state().await.1, [(0, true, Progress::Applied), (1, true, Progress::Applied)]);
}

#[tokio::test]
async fn a_rack_that_leaves_the_scope_is_waited_for_until_it_has_given_the_entry_up() {
    let world = world().await;
    let [r1, r2] = world.racks;
    world.put(1, "install", Some(b"task"), &[r1, r2]).await;
    for rack in [0, 1] {
        let (_, at) = world.tell(rack).await;
        world.answer(rack, at, "applied").await;
    }
    world.put(2, "install", Some(b"task"), &[r2]).await;
    assert_eq!(world.state().await.1, [(0, false, Progress::Waits), (1, true, Progress::Applied)]);
    let (bodies, at) = world.tell(0).await;
    assert_eq!(bodies, Vec::<Vec<u8>>::new());
    assert_eq!(world.state().await.1[0], (0, false, Progress::Waits), "it was told, and has not answered");
    world.answer(0, at, "failed").await;
    assert_eq!(world.state().await.1[0], (0, false, Progress::Refused("no room".to_owned())));
    world.answer(0, at, "applied").await;
    assert_eq!(world.state().await.1, [(1, true, Progress::Applied)], "nothing of it is left at the first");

    // An entry without a body is in no document. A write under an older epoch has no effect.
    world.put(3, "local", None, &[]).await;
    world.put(2, "install", Some(b"task"), &[r1]).await;
    assert_eq!(world.state().await, (json!("local"), vec![(1, false, Progress::Waits)]));
    let (_, at) = world.tell(1).await;
    world.answer(1, at, "applied").await;
    assert_eq!(world.state().await, (json!("local"), Vec::new()));
}

#[tokio::test]
async fn a_document_is_due_until_it_is_written_from_the_latest_entries() {
    let world = world().await;
    let [r1, r2] = world.racks;
    let due = async || {
        let mut due = Vec::new();
        for rack in world.racks {
            due.push(world.store.due_concerns(rack).await.unwrap().len());
        }
        due
    };
    world.put(1, "install", Some(b"task"), &[r1, r2]).await;
    assert_eq!(due().await, [1, 1]);
    world.tell(0).await;
    assert_eq!(due().await, [0, 1]);
    world.put(1, "install", Some(b"task"), &[r1, r2]).await;
    assert_eq!(due().await, [0, 1], "the same entry is no change");
    world.tell(1).await;

    let base = world.store.concern_generation(r1, "boot").await.unwrap();
    let before = world.store.entries_for(r1, "boot").await.unwrap();
    world.put(2, "erase", Some(b"other"), &[r1]).await;
    world.store.put_concern(r1, "boot", base, b"later", Some(&before)).await.unwrap();
    assert_eq!(
        due().await,
        [1, 1],
        "the document was read before the entry changed, and one rack left its scope"
    );
    let (_, at) = world.tell(1).await;
    world.answer(1, at, "applied").await;
    world.tell(0).await;
    assert_eq!(due().await, [0, 0], "an entry that a rack has given up is in no document");

    world.store.request_deletion("Machine", Key::Name("m"), Precondition::None, false).await.unwrap();
    world.store.finalise(world.machine).await.unwrap();
    assert_eq!(due().await, [1, 0], "the entry of a deleted machine is still in a document");
    assert_eq!(world.tell(0).await.0, Vec::<Vec<u8>>::new());
    assert_eq!(due().await, [0, 0]);
}

#[tokio::test]
async fn a_document_that_was_composed_before_a_rack_left_the_scope_still_names_it() {
    let world = world().await;
    let [r1, _] = world.racks;
    world.put(1, "install", Some(b"task"), &[r1]).await;
    let base = world.store.concern_generation(r1, "boot").await.unwrap();
    let before = world.store.entries_for(r1, "boot").await.unwrap();
    world.put(2, "local", None, &[]).await;
    let written = world.store.put_concern(r1, "boot", base, b"task", Some(&before)).await.unwrap();
    let ConcernWrite::Written(at) = written else { panic!("{written:?}") };
    world.answer(0, at, "applied").await;
    assert_eq!(world.state().await.1, [(0, false, Progress::Waits)], "the rack holds the task");
    let (_, at) = world.tell(0).await;
    world.answer(0, at, "applied").await;
    assert_eq!(world.state().await.1, []);
}

#[tokio::test]
async fn a_rack_that_left_the_scope_before_it_was_told_gives_nothing_up_and_the_machine_is_woken() {
    let world = world().await;
    let [r1, _] = world.racks;
    let (_, at) = world.tell(0).await;
    world.answer(0, at, "applied").await;
    world.put(1, "install", Some(b"task"), &[r1]).await;
    world.put(2, "local", None, &[]).await;
    world.woken().await;
    assert_eq!(world.state().await.1, [(0, false, Progress::Waits)]);
    assert_eq!(world.tell(0).await.1, at, "the document is the same");
    assert_eq!(world.state().await.1, []);
    assert_eq!(world.woken().await, names(&["m"]));
}

#[tokio::test]
async fn a_body_is_sealed_and_goes_with_its_machine() {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    let machine = put(&store, "Machine", "m", machine("52:54:00:00:00:01")).await.unwrap().object.uid;
    let racks =
        BTreeSet::from([RackId::from(put(&store, "Rack", "r1", json!({})).await.unwrap().object.uid)]);
    let (says, body) = (json!({"generation": 1}), b"a marker in the clear".as_slice());
    let (epoch, body) = (Epoch::new(1), Some(body));
    let entry = NewEntry { concern: "power", object: machine, epoch, says: &says, body, racks: &racks };
    store.put_entry(&entry).await.unwrap();
    let mut hand = Hand::on(&url).await;
    let stored = hand.run("select encode(body, 'escape') from entry").await;
    assert!(!stored[0][0].contains("marker"), "{stored:?}");
    hand.run("delete from object where kind = 'Machine'").await;
    assert_eq!(hand.run("select count(*) from rack_entry").await, [["0"]]);
}
