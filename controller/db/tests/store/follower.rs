//! The change log's follower, against writers that commit late, out of order, or not at all.

use basalt_db::Store;
use basalt_db::change::Follower;
use serde_json::json;
use sqlx::{Connection, PgConnection, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const WRITERS: u64 = 24;
const OBJECTS: u64 = 60;
const TRANSACTIONS: u64 = 40;

/// A writer's choices: the same in every run (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// One writer: transactions of 0 to 50 ms that touch 1 to 3 objects; one in twenty is rolled back.
async fn write(url: String, seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut connection = PgConnection::connect(&url).await.expect("a connection");
    for _ in 0..TRANSACTIONS {
        // In the order of their names, so that writers wait for one another but never in a circle.
        let touched: BTreeSet<u64> = (0..=dice.below(3)).map(|_| dice.below(OBJECTS)).collect();
        let mut tx = connection.begin().await.expect("a transaction");
        for object in touched {
            sqlx::query(
                "with o as (update object set generation = generation + 1 where kind = 'Zone' and name = $1 returning *)
                 insert into change_log (object, kind, name, op, generation)
                 select uid, kind, name, 'put', generation from o",
            )
            .bind(format!("zone-{object}"))
            .execute(&mut *tx)
            .await
            .expect("an update");
            tokio::time::sleep(Duration::from_millis(dice.below(50))).await;
        }
        if dice.below(20) == 0 {
            tx.rollback().await.expect("it rolls back");
        } else {
            tx.commit().await.expect("it commits");
        }
    }
}

/// A cursor that takes the sequence at its word: what a naive follower would deliver.
async fn naive(url: String, done: Arc<AtomicBool>) -> BTreeSet<i64> {
    let mut connection = PgConnection::connect(&url).await.expect("a connection");
    let (mut seen, mut last) = (BTreeSet::new(), 0i64);
    loop {
        let finished = done.load(Ordering::Acquire);
        let rows = sqlx::query("select seq from change_log where seq > $1 order by seq").bind(last);
        for row in rows.fetch_all(&mut connection).await.expect("rows") {
            last = row.get(0);
            seen.insert(last);
        }
        if finished {
            return seen;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_follower_skips_nothing_that_a_sequence_cursor_skips_and_never_goes_back() {
    let url = basalt_db::testing::database().await;
    let store: Store = crate::common::open(&url, [7; 32]).await.expect("a store");
    for object in 0..OBJECTS {
        crate::common::put(&store, "Zone", &format!("zone-{object}"), json!({})).await.expect("a zone");
    }
    let follower = Follower::start(&store).await.expect("a follower");
    let start = follower.position();
    let mut changes = follower.subscribe();
    let ours = tokio::spawn(async move {
        let mut seen = Vec::new();
        while let Ok(change) = changes.recv().await {
            if change.name == "end" {
                break;
            }
            seen.push(change);
        }
        seen
    });
    let done = Arc::new(AtomicBool::new(false));
    let cursor = tokio::spawn(naive(url.clone(), done.clone()));

    let writers: Vec<_> = (1..=WRITERS).map(|seed| tokio::spawn(write(url.clone(), seed))).collect();
    for writer in writers {
        writer.await.expect("a writer");
    }
    done.store(true, Ordering::Release);
    let naive = cursor.await.expect("the naive cursor");
    crate::common::put(&store, "Zone", "end", json!({})).await.expect("the end");
    let ours = tokio::time::timeout(Duration::from_secs(30), ours).await.expect("in time").expect("ours");

    let mut connection = PgConnection::connect(&url).await.expect("a connection");
    let rows = sqlx::query("select seq from change_log where seq > $1 and name <> 'end'").bind(start);
    let committed: BTreeSet<i64> =
        rows.fetch_all(&mut connection).await.expect("rows").iter().map(|r| r.get(0)).collect();
    let skipped_by_naive = committed.difference(&naive).count();
    let seen: BTreeSet<i64> = ours.iter().map(|c| c.position).collect();
    let skipped_by_ours = committed.difference(&seen).count();
    eprintln!(
        "{} changes; a sequence cursor skips {skipped_by_naive}, ours {skipped_by_ours}",
        committed.len()
    );
    assert!(skipped_by_naive > 0, "this test would not notice a follower that skips");
    assert_eq!(skipped_by_ours, 0);
    assert!(seen.is_subset(&committed), "it delivered what was never committed");
    let mut at = BTreeMap::new();
    for change in &ours {
        let before = at.insert(change.uid, change.generation);
        assert!(before.is_none_or(|b| b < change.generation), "{change:?} after generation {before:?}");
    }
    store.close().await;
}

#[tokio::test]
async fn a_change_by_another_region_is_seen_without_polling() {
    let url = basalt_db::testing::database().await;
    let (here, there) = (
        crate::common::open(&url, [7; 32]).await.unwrap(),
        crate::common::open(&url, [7; 32]).await.unwrap(),
    );
    let follower = Follower::start(&here).await.unwrap();
    let mut changes = follower.subscribe();
    crate::common::put(&there, "Zone", "a", json!({})).await.unwrap();
    let change = tokio::time::timeout(Duration::from_secs(10), changes.recv()).await.unwrap().unwrap();
    assert_eq!((change.kind.as_str(), change.name.as_str()), ("Zone", "a"));
    while follower.position() < change.position {
        tokio::task::yield_now().await;
    }
}
