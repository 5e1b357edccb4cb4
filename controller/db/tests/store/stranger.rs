//! Undeclared machines: the results of one machine, and the end of a row.

use crate::common::{machine, open, put};
use basalt_api::values::{Attempt, RackId, Timestamp, Uid};
use basalt_db::{NewFact, STRANGER, Store, StrangerSeen, Then};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use uuid::Uuid;

const A: &str = "52:54:00:00:00:0a";
const B: &str = "52:54:00:00:00:0b";
const C: &str = "52:54:00:00:00:0c";

struct Racks {
    store: Store,
    attempt: Attempt,
    rack: Uid,
    seq: u64,
    spool: Uuid,
}

impl Racks {
    async fn new() -> Self {
        let store = open(&basalt_db::testing::database().await, [7; 32]).await.unwrap();
        let rack = put(&store, "Rack", "r", json!({})).await.unwrap().object.uid;
        let (attempt, key) = store.stranger_attempt(&[5; 32]).await.unwrap();
        assert_eq!(store.stranger_attempt(&[6; 32]).await.unwrap(), (attempt, key), "one for all");
        let racks = Self { store, attempt, rack, seq: 0, spool: Uuid::new_v4() };
        racks.due().await;
        racks
    }

    /// A rack brings a result of a machine with these MACs, the first of which it booted from.
    async fn bring(&mut self, macs: &[&str], board: Option<&str>) {
        self.seq += 1;
        let seen = StrangerSeen {
            result: json!({"attempt": self.attempt, "says": self.seq}),
            macs: macs.iter().map(|it| (*it).to_owned()).collect(),
            board: board.map(str::to_owned),
            address: "10.77.0.9".parse().ok(),
        };
        let fact = NewFact {
            seq: self.seq,
            object: None,
            mac: macs.first().map(|it| (*it).to_owned()),
            kind: STRANGER.to_owned(),
            step_key: None,
            attempt: Some(self.attempt),
            body: serde_json::to_value(seen).unwrap(),
            observed_at: Timestamp::UNIX_EPOCH,
            wakes: true,
        };
        self.store.store_facts(RackId::from(self.rack), "r", self.spool, &[fact]).await.unwrap();
    }

    /// Makes the Discovery of each new machine, as a rack's reconciliation does. Answers their names.
    async fn discover(&self) -> Vec<(String, Uid)> {
        let mut made = Vec::new();
        for name in self.store.new_strangers().await.unwrap() {
            let uid = put(&self.store, "Discovery", &name, json!({})).await.unwrap().object.uid;
            assert!(self.store.stranger(uid, &name).await.unwrap().is_some());
            made.push((name, uid));
        }
        self.due().await;
        made
    }

    async fn says(&self, (name, uid): &(String, Uid)) -> Option<Value> {
        let stranger = self.store.stranger(*uid, name).await.unwrap()?;
        stranger.body.get("says").cloned()
    }

    /// The objects that are due. They are done with then.
    async fn due(&self) -> BTreeSet<Uid> {
        let leases = self.store.claim(Uid::generate(), 100, Duration::from_secs(60)).await.unwrap();
        for lease in &leases {
            self.store.finish(lease, Then::Rest).await.unwrap();
        }
        leases.into_iter().map(|lease| lease.uid).collect()
    }
}

/// A text that PostgreSQL cannot compress, and therefore not put into an index.
fn random_text(length: usize) -> String {
    std::iter::repeat_with(|| Uuid::new_v4().to_string())
        .flat_map(|it| it.into_bytes())
        .take(length)
        .map(char::from)
        .collect()
}

#[tokio::test]
async fn a_machine_that_boots_twice_or_by_another_interface_is_one() {
    let mut racks = Racks::new().await;
    racks.bring(&[A, B], None).await;
    assert_eq!(racks.due().await, BTreeSet::from([racks.rack]), "the rack makes its Discovery");
    let found = racks.discover().await;
    assert_eq!(found[0].0, "mac-52-54-00-00-00-0a");
    racks.bring(&[B, A], None).await;
    assert_eq!(racks.due().await, BTreeSet::from([found[0].1]));
    assert_eq!(racks.discover().await, []);
    let stranger = racks.store.stranger(found[0].1, &found[0].0).await.unwrap().unwrap();
    assert_eq!((stranger.boot_mac.as_str(), stranger.macs), (B, [A, B].map(str::to_owned).into()));
    assert_eq!((stranger.source.as_str(), stranger.address), ("r", "10.77.0.9".parse().ok()));
}

#[tokio::test]
async fn a_board_is_one_machine_whatever_its_interfaces_and_no_board_is_another_s() {
    let mut racks = Racks::new().await;
    racks.bring(&[A], Some("uuid/serial")).await;
    racks.bring(&[B], Some("uuid/serial")).await;
    racks.bring(&[C], None).await;
    let found = racks.discover().await;
    assert_eq!(found.len(), 2, "the interface of the first was replaced: {found:?}");
    racks.bring(&[A], None).await;
    let third = racks.discover().await;
    assert!(
        third[0].0.starts_with("mac-52-54-00-00-00-0a-"),
        "the old interface is in another machine: {third:?}"
    );
}

#[tokio::test]
async fn a_machine_speaks_for_no_other_by_naming_its_mac() {
    let mut racks = Racks::new().await;
    racks.bring(&[A], None).await;
    let found = racks.discover().await;
    let declared = put(&racks.store, "Machine", "m", machine(B)).await.unwrap().object.uid;
    racks.due().await;
    racks.bring(&[C, A, B], None).await;
    assert_eq!(racks.due().await, BTreeSet::from([declared]));
    assert_eq!(racks.says(&found[0]).await, Some(json!(1)), "a MAC that is only named joins nothing");
    assert!(!racks.store.adopt_stranger(declared.into(), true).await.unwrap());
    assert_eq!(racks.store.latest_facts(declared).await.unwrap().len(), 0, "it did not boot from this MAC");
}

#[tokio::test]
async fn what_cannot_be_kept_of_one_machine_costs_no_other_fact() {
    let mut racks = Racks::new().await;
    racks.bring(&[A], Some(&random_text(20_000))).await;
    racks.bring(&[B], None).await;
    assert_eq!(racks.discover().await.len(), 1);
}

#[tokio::test]
async fn what_was_found_of_a_machine_becomes_its_own_once() {
    let mut racks = Racks::new().await;
    racks.bring(&[A, B], None).await;
    let found = racks.discover().await;
    let declared = put(&racks.store, "Machine", "m", machine(A)).await.unwrap().object.uid;
    racks.due().await;
    assert!(racks.store.adopt_stranger(declared.into(), true).await.unwrap());
    assert_eq!(racks.due().await, BTreeSet::from([declared, found[0].1]));
    let facts = racks.store.latest_facts(declared).await.unwrap();
    assert_eq!(facts.iter().map(|fact| fact.kind.as_str()).collect::<Vec<_>>(), ["claim", "result"]);
    assert_eq!((&facts[1].body["says"], facts[1].attempt), (&json!(1), Some(racks.attempt)));
    assert_eq!(racks.says(&found[0]).await, None);
    assert!(!racks.store.adopt_stranger(declared.into(), true).await.unwrap(), "there is nothing more");

    racks.bring(&[A, C], None).await;
    assert_eq!(racks.due().await, BTreeSet::new(), "it is the Machine, whose hardware is known");
    assert_eq!(racks.discover().await, []);
}

#[tokio::test]
async fn a_machine_that_was_declared_meanwhile_decides_about_what_was_found() {
    let mut racks = Racks::new().await;
    let declared = put(&racks.store, "Machine", "m", machine(B)).await.unwrap().object.uid;
    racks.due().await;
    racks.bring(&[A, B], None).await;
    assert_eq!(racks.due().await, BTreeSet::from([declared]));
    assert_eq!(racks.store.new_strangers().await.unwrap(), Vec::<String>::new());
    assert!(!racks.store.adopt_stranger(declared.into(), false).await.unwrap());
    assert_eq!(racks.store.latest_facts(declared).await.unwrap().len(), 0);
    assert!(!racks.store.adopt_stranger(declared.into(), true).await.unwrap(), "it was forgotten");
}

#[tokio::test]
async fn a_result_of_no_attempt_of_ours_is_nobody_s() {
    let mut racks = Racks::new().await;
    racks.attempt = Attempt::new(racks.attempt.get() + 1);
    racks.bring(&[A], None).await;
    assert_eq!(racks.due().await, BTreeSet::new());
    assert_eq!(racks.discover().await, []);
}
