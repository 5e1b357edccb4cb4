//! The change log's follower, against writers that commit late, out of order, or not at all.

use basalt_db::change::Follower;
use basalt_db::testing::churn::{Churn, naive_cursor};
use basalt_db::{Changed, Store};
use serde_json::json;
use sqlx::{Connection, PgConnection, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const WRITERS: u64 = 24;
const OBJECTS: u64 = 60;
const TRANSACTIONS: u64 = 40;

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
    let finished = done.clone();
    let cursor = tokio::spawn(naive_cursor(url.clone(), move || finished.load(Ordering::Acquire)));

    let churn = Churn { url: url.clone(), objects: OBJECTS, transactions: TRANSACTIONS, whole_lives: false };
    let writers: Vec<_> = (1..=WRITERS).map(|seed| tokio::spawn(churn.clone().write(seed))).collect();
    for writer in writers {
        writer.await.expect("a writer");
    }
    done.store(true, Ordering::Release);
    let (naive, _) = cursor.await.expect("the naive cursor");
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

/// A watcher that resumes anywhere in a page learns of each object that left its pool.
#[tokio::test]
async fn whoever_resumes_within_a_page_is_told_of_every_pool_that_objects_left() {
    let store = crate::common::store().await;
    for pool in ["blue", "red", "green"] {
        crate::common::put(&store, "Pool", pool, json!({})).await.unwrap();
    }
    let machine = |number: usize, pool: &str| json!({"pool": pool, "boot_macs": [format!("52:54:00:00:00:{number:02x}")]});
    let goes = async |number: usize, pool: &str| {
        crate::common::put(&store, "Machine", &format!("m{number}"), machine(number, pool)).await.unwrap();
    };
    for (number, pool) in [(0, "blue"), (1, "blue"), (0, "red"), (1, "green"), (0, "green"), (1, "blue")] {
        goes(number, pool).await;
    }
    let through = store.last_position().await.unwrap();
    let all = store.changed(0, through, None, 1000).await.unwrap().changed;
    let left = |of: &[Changed]| -> BTreeSet<(String, String)> {
        of.iter().filter_map(|change| Some((change.name.clone(), change.left.clone()?))).collect()
    };
    let moved = [("m0", "blue"), ("m0", "red"), ("m1", "blue"), ("m1", "green")];
    assert_eq!(left(&all), moved.map(|(name, pool)| (name.to_owned(), pool.to_owned())).into());
    for told in 0..all.len() {
        let (before, last) = (&all[..=told], all[told].position);
        let rest = store.changed(last, through, None, 1000).await.unwrap().changed;
        let both: BTreeSet<_> = left(before).union(&left(&rest)).cloned().collect();
        assert_eq!(both, left(&all), "resumed after {}", all[told].name);
        let now = |name: &str| {
            before.iter().chain(&rest).rfind(|change| change.name == name).map(|it| it.pool.clone())
        };
        assert_eq!((now("m0"), now("m1")), (Some(Some("green".to_owned())), Some(Some("blue".to_owned()))));
    }
}
