//! Concerns that all racks share: stored once, and told to every rack. The log of the entries from which one of them is made.

use crate::common::{machine, open, put, store};
use basalt_api::values::{Epoch, Generation, RackId, Uid};
use basalt_db::testing::clock::Hand;
use basalt_db::{ConcernAck, ConcernHead, ConcernWrite, Key, KnownNews, NewEntry, Precondition, Store};
use serde_json::json;
use std::collections::BTreeSet;

async fn rack(store: &Store, name: &str) -> RackId {
    RackId::from(put(store, "Rack", name, json!({})).await.unwrap().object.uid)
}

async fn know(store: &Store, machine: Uid, epoch: u64, says: &str) {
    let (says, racks) = (json!({"name": says}), BTreeSet::new());
    let body = Some(says["name"].as_str().unwrap().as_bytes());
    let entry = NewEntry {
        concern: "known",
        object: machine,
        epoch: Epoch::new(epoch),
        says: &says,
        body,
        racks: &racks,
    };
    store.put_entry(&entry).await.unwrap();
}

/// Deletes an object that nothing refers to.
async fn remove(store: &Store, kind: &str, name: &str, uid: Uid) {
    store.request_deletion(kind, Key::Name(name), Precondition::None, false).await.unwrap();
    store.finalise(uid).await.unwrap();
}

/// The bodies and the deletions of a reading.
fn told(news: KnownNews) -> (bool, Vec<String>, Vec<Uid>) {
    let bodies = news.entries.into_iter().map(|it| String::from_utf8(it.body).unwrap()).collect();
    (news.is_whole, bodies, news.gone)
}

#[tokio::test]
async fn a_common_concern_is_written_once_and_every_rack_has_it() {
    let store = store().await;
    let (at, racks) = (Generation::new, [rack(&store, "r1").await, rack(&store, "r2").await]);
    assert_eq!(store.common_heads().await.unwrap(), []);
    assert_eq!(store.put_common("known", at(0), b"a").await.unwrap(), ConcernWrite::Written(at(1)));
    assert_eq!(store.put_common("known", at(0), b"a").await.unwrap(), ConcernWrite::Unchanged(at(1)));
    assert_eq!(store.put_common("known", at(0), b"b").await.unwrap(), ConcernWrite::Stale(at(1)));
    assert_eq!(store.put_common("known", at(1), b"b").await.unwrap(), ConcernWrite::Written(at(2)));
    store.put_concern(racks[0], "dhcp", at(0), b"own", None).await.unwrap();
    let names = async |rack| {
        let heads = store.concern_heads(rack).await.unwrap();
        heads.into_iter().map(|head| (head.name, head.generation)).collect::<Vec<_>>()
    };
    assert_eq!(names(racks[0]).await, [("dhcp".to_owned(), at(1)), ("known".to_owned(), at(2))]);
    assert_eq!(names(racks[1]).await, [("known".to_owned(), at(2))]);
    let concern = store.concern(racks[1], "known").await.unwrap().unwrap();
    assert_eq!(concern.body, b"b");
    let head = ConcernHead { name: concern.name, generation: at(2), sha256: concern.sha256 };
    assert_eq!(store.common_heads().await.unwrap(), [head]);
    remove(&store, "Rack", "r2", racks[1].into()).await;
    assert_eq!(names(racks[1]).await, [], "a deleted rack is told nothing");
    assert_eq!(store.concern(racks[1], "known").await.unwrap(), None);
}

#[tokio::test]
async fn the_first_generation_of_a_common_concern_is_above_each_that_a_rack_knows() {
    let store = store().await;
    let rack = rack(&store, "r1").await;
    store.put_concern(rack, "images", Generation::new(0), b"of this rack", None).await.unwrap();
    let (concern, generation) = ("dns".to_owned(), Generation::new(41));
    let ack = ConcernAck { concern, generation, outcome: "applied".to_owned(), message: String::new() };
    store.put_concern_ack(rack, &ack).await.unwrap();
    for (concern, generation) in [("dns", 42), ("images", 2), ("known", 1)] {
        let written = store.put_common(concern, Generation::new(0), b"a").await.unwrap();
        assert_eq!(written, ConcernWrite::Written(Generation::new(generation)), "{concern}");
    }
    let images = store.concern(rack, "images").await.unwrap().unwrap();
    assert_eq!(images.body, b"a", "the copy that a region of the version before wrote does not count");
    let heads = store.concern_heads(rack).await.unwrap();
    assert_eq!(heads.iter().map(|head| head.name.as_str()).collect::<Vec<_>>(), ["dns", "images", "known"]);
}

#[tokio::test]
async fn a_reader_of_known_entries_reads_all_at_first_and_then_what_changed() {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    let mut machines = Vec::new();
    for name in ["a", "b", "c"] {
        let mac = format!("52:54:00:00:00:0{name}");
        let uid = put(&store, "Machine", name, machine(&mac)).await.unwrap().object.uid;
        know(&store, uid, 1, name).await;
        machines.push(uid);
    }
    let first = store.known_since(None).await.unwrap().unwrap();
    let mut position = first.position;
    assert_eq!(told(first), (true, vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], Vec::new()));
    assert_eq!(store.known_since(Some(position)).await.unwrap(), None);

    know(&store, machines[0], 2, "a2").await;
    know(&store, machines[1], 2, "b").await;
    remove(&store, "Machine", "c", machines[2]).await;
    let news = store.known_since(Some(position)).await.unwrap().unwrap();
    assert_eq!(news.position, position + 2, "the same content is no change");
    position = news.position;
    assert_eq!(told(news), (false, vec!["a2".to_owned()], vec![machines[2]]));

    for (moved, reason) in [(-1, "the database went back in time"), (10_000, "deletions are forgotten")] {
        let since = Some(position - moved);
        let (is_whole, bodies, gone) = told(store.known_since(since).await.unwrap().unwrap());
        assert_eq!((is_whole, bodies.len(), gone.len()), (true, 2, 0), "{reason}");
    }
    let mut hand = Hand::on(&url).await;
    hand.run("update known_log set position = position + 10000").await;
    remove(&store, "Machine", "b", machines[1]).await;
    assert_eq!(hand.run("select count(*) from known_gone").await, [["1"]], "the oldest one is forgotten");
}
