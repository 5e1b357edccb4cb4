//! Undeclared machines: the results of one machine, and the end of a row.

use crate::common::{machine, network, open, put};
use basalt_api::values::{Attempt, RackId, Timestamp, Uid};
use basalt_db::testing::clock::Hand;
use basalt_db::{FORGET, MADE, MOST_OF_VLAN, NewFact, Requeue, STRANGER, Store, StrangerSeen};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ops::Range;
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
    url: String,
}

impl Racks {
    async fn new() -> Self {
        let url = basalt_db::testing::database().await;
        let store = open(&url, [7; 32]).await.unwrap();
        let rack = put(&store, "Rack", "r", json!({})).await.unwrap().object.uid;
        let (attempt, key) = store.stranger_attempt(&[5; 32]).await.unwrap();
        assert_eq!(store.stranger_attempt(&[6; 32]).await.unwrap(), (attempt, key), "one for all");
        let racks = Self { store, attempt, rack, seq: 0, spool: Uuid::new_v4(), url };
        racks.due().await;
        racks
    }

    /// A rack brings a result of a machine with these MACs, the first of which it booted from.
    async fn bring(&mut self, macs: &[&str], board: Option<&str>) {
        self.seq += 1;
        let result = json!({"attempt": self.attempt, "says": self.seq});
        let fact = self.result(macs, board, "10.77.0.9", result);
        self.store.store_facts(RackId::from(self.rack), "r", self.spool, &[fact]).await.unwrap();
    }

    fn result(&self, macs: &[&str], board: Option<&str>, address: &str, result: Value) -> NewFact {
        let seen = StrangerSeen {
            result,
            macs: macs.iter().map(|it| (*it).to_owned()).collect(),
            board: board.map(str::to_owned),
            address: address.parse().ok(),
        };
        NewFact {
            seq: self.seq,
            object: None,
            mac: macs.first().map(|it| (*it).to_owned()),
            kind: STRANGER.to_owned(),
            step_key: None,
            attempt: Some(self.attempt),
            body: serde_json::to_value(seen).unwrap(),
            observed_at: Timestamp::UNIX_EPOCH,
            wakes: true,
        }
    }

    /// A rack brings results of machines with invented MACs in the VLAN of this address.
    async fn bring_invented(&mut self, numbers: Range<i64>, address: &str, result: &Value) {
        let mut facts = Vec::new();
        for number in numbers {
            self.seq += 1;
            facts.push(self.result(&[&invented(number)], None, address, result.clone()));
        }
        self.store.store_facts(RackId::from(self.rack), "r", self.spool, &facts).await.unwrap();
    }

    /// Runs a statement in the database.
    async fn sql(&self, statement: &str) -> Vec<Vec<String>> {
        Hand::on(&self.url).await.run(statement).await
    }

    /// The number of rows by the VLAN's name, and their bytes.
    async fn rows(&self) -> Vec<(String, i64, i64)> {
        let rows = self.sql(
            "select o.name, count(*), sum(octet_length(s.body::text)) from stranger s join object o on o.uid = s.vlan group by o.name order by o.name",
        );
        let number = |text: &str| text.parse().unwrap();
        rows.await.iter().map(|row| (row[0].clone(), number(&row[1]), number(&row[2]))).collect()
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
            self.store.finish(lease, Requeue::WhenWoken).await.unwrap();
        }
        leases.into_iter().map(|lease| lease.uid).collect()
    }
}

fn invented(number: i64) -> String {
    format!("02:00:00:00:{:02x}:{:02x}", number / 256, number % 256)
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
    assert_eq!((stranger.rack(), stranger.address), ("r", "10.77.0.9".parse().ok()));
    assert_eq!((stranger.boot_mac.as_str(), stranger.macs), (B, [A, B].map(str::to_owned).into()));
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

#[tokio::test]
async fn one_host_that_invents_machines_fills_its_vlan_and_no_other() {
    let mut racks = Racks::new().await;
    network(&racks.store).await;
    let other = json!({"fabric": "default", "vid": 1});
    put(&racks.store, "Vlan", "default.1", other).await.unwrap();
    put(&racks.store, "Subnet", "other", json!({"vlan": "default.1", "cidr": "10.78.0.0/24"})).await.unwrap();
    racks.due().await;
    let found = json!({"attempt": racks.attempt, "inventory": {"dmi": {"serial": "x".repeat(1000)}}});
    racks.bring_invented(0..MOST_OF_VLAN + 500, "10.77.0.9", &found).await;
    let bytes = |rows: i64| rows * i64::try_from(found.to_string().len() + 20).unwrap();
    let rows = racks.rows().await;
    assert_eq!((rows[0].0.as_str(), rows[0].1, rows.len()), ("default.0", MOST_OF_VLAN, 1), "{rows:?}");
    assert!(rows[0].2 <= bytes(MOST_OF_VLAN), "{rows:?}");
    assert_eq!(racks.due().await, BTreeSet::from([racks.rack]), "its status says it");
    let left_out = racks.store.strangers_left_out().await.unwrap();
    assert_eq!(
        (left_out[0].vlan.as_str(), left_out[0].count, left_out[0].is_recent),
        ("default.0", 500, true)
    );

    racks.bring_invented(5000..5200, "10.78.0.9", &found).await;
    let rows = racks.rows().await;
    assert_eq!(rows[1].1, 200, "a rack of servers on another VLAN: {rows:?}");
    racks.bring_invented(0..100, "10.77.0.9", &found).await;
    let left_out = racks.store.strangers_left_out().await.unwrap();
    assert_eq!((left_out.len(), left_out[0].count), (1, 500), "known machines are not left out");

    // Machines that were not seen for long give way, the oldest first.
    racks
        .sql(
            "update stranger set last_seen = now() - interval '31 days' where boot_mac = '02:00:00:00:00:05'",
        )
        .await;
    racks.bring_invented(6000..6002, "10.77.0.9", &found).await;
    assert_eq!(racks.rows().await[0].1, MOST_OF_VLAN);
    let [gone, come, refused] = [invented(5), invented(6000), invented(6001)];
    let here = format!("select boot_mac from stranger where boot_mac in ('{gone}', '{come}', '{refused}')");
    assert_eq!(racks.sql(&here).await, [[come]]);
    assert!(FORGET < Duration::from_secs(31 * 86_400));
}

#[tokio::test]
async fn an_inspection_that_fails_keeps_the_inventory_of_the_one_before() {
    let mut racks = Racks::new().await;
    let found = json!({"attempt": racks.attempt, "inventory": {}, "says": 1});
    racks.bring_invented(0..1, "10.77.0.9", &found).await;
    let machine = racks.discover().await.remove(0);
    let failed = json!({"attempt": racks.attempt, "error": "no answer"});
    racks.bring_invented(0..1, "10.77.0.10", &failed).await;
    assert_eq!(racks.says(&machine).await, Some(json!(1)));
    let kept = racks.sql("select has_inventory, host(address) from stranger").await;
    assert_eq!(kept, [["t", "10.77.0.10"]], "it was seen again");
}

#[tokio::test]
async fn a_failed_inspection_gives_way_to_an_inventory_and_an_inventory_to_nothing() {
    let mut racks = Racks::new().await;
    network(&racks.store).await;
    let (found, failed) =
        (json!({"attempt": racks.attempt, "inventory": {}}), json!({"attempt": racks.attempt}));
    racks.bring_invented(0..1, "10.77.0.9", &failed).await;
    let discovery = racks.discover().await.remove(0).1;
    racks.bring_invented(1..MOST_OF_VLAN, "10.77.0.9", &found).await;
    racks.due().await;
    let first = format!("select count(*) from stranger where boot_mac = '{}'", invented(0));
    racks.bring_invented(5000..5001, "10.77.0.9", &failed).await;
    assert_eq!(racks.sql(&first).await, [["1"]], "one without an inventory takes no place");
    racks.bring_invented(5001..5003, "10.77.0.9", &found).await;
    assert_eq!(racks.sql(&first).await, [["0"]]);
    assert_eq!(racks.due().await, BTreeSet::from([racks.rack, discovery]), "its Discovery goes");
    assert_eq!(racks.rows().await[0].1, MOST_OF_VLAN);
    assert_eq!(racks.store.strangers_left_out().await.unwrap()[0].count, 2);
}

#[tokio::test]
async fn enlistment_makes_a_few_racks_of_machines_at_once_and_then_one_a_minute() {
    let racks = Racks::new().await;
    network(&racks.store).await;
    let take = async |wanted: usize| {
        let mut taken = 0;
        while taken < wanted && racks.store.take_enlistment("default.0").await.unwrap() {
            taken += 1;
        }
        taken
    };
    assert_eq!(take(200).await, 200, "a rack of servers");
    assert_eq!(take(9_999).await, MADE as usize - 200);
    racks.store.return_enlistment("default.0").await.unwrap();
    assert_eq!(take(9_999).await, 1);
    racks.sql("update enlistment_use set made_at = now() - interval '10 minutes'").await;
    assert_eq!(take(9_999).await, 10);
    racks.sql("update enlistment_use set made_at = now() - interval '1 year'").await;
    assert_eq!(take(9_999).await, MADE as usize);
    assert!(!racks.store.take_enlistment("nothing").await.unwrap());
}
