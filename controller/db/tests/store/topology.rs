//! The position of the topology: the writes that raise it, and its guarantees to readers and writers.

use crate::common::{machine, open, put, store};
use basalt_api::values::{Generation, RackId, Timestamp, Uid};
use basalt_db::testing::clock::Hand;
use basalt_db::{Batch, Blob, Key, NewFact, NoJudge, Precondition, Put, Store, TOPOLOGY_KINDS, splice::Text};
use serde_json::{Value, json};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

/// Reads the position repeatedly.
struct Watched<'a>(&'a Store, i64);

impl<'a> Watched<'a> {
    async fn from_now(store: &'a Store) -> Self {
        Self(store, store.topology_position().await.unwrap())
    }

    /// The difference from the previous reading.
    async fn moved(&mut self) -> i64 {
        let now = self.0.topology_position().await.unwrap();
        now - std::mem::replace(&mut self.1, now)
    }
}

/// One object of each kind, with two specs. An object follows the objects that it refers to.
fn one_of_each() -> Vec<(&'static str, &'static str, Value, Value)> {
    let image = |options: &str| {
        let mut image = json!({"os": "debian", "release": "12", "architecture": "amd64", "files": {}});
        image["kernel_options"] = options.into();
        image
    };
    let subnet = |gateway: &str| json!({"vlan": "lab.7", "cidr": "10.77.0.0/24", "gateway": gateway});
    let route =
        |gateway: &str| json!({"source": "lab", "destination_cidr": "10.0.0.0/8", "gateway": gateway});
    vec![
        ("Domain", "lab.example", json!({}), json!({"ttl": 60})),
        ("Fabric", "lab", json!({}), json!({"class": "10g"})),
        (
            "Vlan",
            "lab.7",
            json!({"fabric": "lab", "vid": 7}),
            json!({"fabric": "lab", "vid": 7, "mtu": 9000}),
        ),
        ("Subnet", "lab", subnet("10.77.0.1"), subnet("10.77.0.254")),
        ("StaticRoute", "out", route("10.77.0.7"), route("10.77.0.8")),
        ("Image", "debian", image("quiet"), image("debug")),
        ("Tag", "gpu", json!({}), json!({"kernel_options": "quiet"})),
        ("Settings", "default", json!({}), json!({"kernel_options": "quiet"})),
        ("Rack", "rack1", json!({}), json!({"maintenance": true})),
    ]
}

#[tokio::test]
async fn objects_of_its_kinds_move_it_when_they_come_change_and_go() {
    let store = store().await;
    let mut position = Watched::from_now(&store).await;
    let each = one_of_each();
    let mut kinds: Vec<_> = each.iter().map(|(kind, ..)| *kind).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, TOPOLOGY_KINDS);
    for (kind, name, spec, changed) in &each {
        put(&store, kind, name, spec.clone()).await.unwrap();
        assert_eq!(position.moved().await, 1, "{kind} is declared");
        put(&store, kind, name, spec.clone()).await.unwrap();
        assert_eq!(position.moved().await, 0, "{kind} is declared as it is");
        put(&store, kind, name, changed.clone()).await.unwrap();
        assert_eq!(position.moved().await, 1, "{kind} is changed");
    }
    for (kind, name, ..) in each.iter().rev() {
        store.request_deletion(kind, Key::Name(name), Precondition::None, false).await.unwrap();
        assert_eq!(position.moved().await, 1, "{kind} is deleted");
    }
}

#[tokio::test]
async fn machines_other_kinds_and_statuses_do_not_move_it() {
    let store = store().await;
    put(&store, "Rack", "rack1", json!({})).await.unwrap();
    let mut position = Watched::from_now(&store).await;
    put(&store, "Zone", "a", json!({})).await.unwrap();
    put(&store, "Machine", "m", machine("52:54:00:00:00:01")).await.unwrap();
    let leases = store.claim(Uid::generate(), 10, LEASE).await.unwrap();
    let mut kinds: Vec<_> = leases.iter().map(|lease| lease.kind.as_str()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["Machine", "Rack"]);
    for lease in &leases {
        let status = json!({"observed_generation": 1, "phase": "Ready"});
        store.write_status(lease, Generation::new(1), &status).await.unwrap();
    }
    assert_eq!(position.moved().await, 0);
}

fn fact(object: Uid, kind: &str, body: Value) -> NewFact {
    NewFact {
        seq: 0,
        object: Some(object),
        mac: None,
        kind: kind.to_owned(),
        step_key: None,
        attempt: None,
        body,
        observed_at: Timestamp::UNIX_EPOCH,
        wakes: true,
    }
}

#[tokio::test]
async fn a_rack_moves_it_by_where_it_serves_by_addresses_that_are_short_and_by_its_links() {
    let store = store().await;
    let rack = put(&store, "Rack", "rack1", json!({})).await.unwrap().object.uid;
    let mut position = Watched::from_now(&store).await;
    let hello = |address: &str| fact(rack, "hello", json!({"addresses": [address]}));
    let short = |ok: bool| fact(rack, "health:addresses 10.77.0.0/24", json!({"ok": ok}));
    for (said, moves, what) in [
        (hello("10.77.0.2/24"), 1, "it introduces itself"),
        (hello("10.77.0.2/24"), 0, "it dials again"),
        (hello("10.77.0.3/24"), 1, "it has another address"),
        (short(false), 1, "no address is free"),
        (short(true), 1, "there are some again"),
        (fact(rack, "health:start", json!({"ok": true})), 1, "its links of before count no more"),
        (fact(rack, "health:link region:5250", json!({"ok": true})), 1, "a link of it"),
        (fact(rack, "health:proxy", json!({"ok": true})), 1, "its proxy"),
        (fact(rack, "health:dhcp eth0", json!({"ok": true})), 0, "a service of it"),
        (fact(rack, "lease", json!({"address": "10.77.0.9"})), 0, "a lease"),
    ] {
        store.store_own_fact(&said).await.unwrap();
        assert_eq!(position.moved().await, moves, "{what}");
    }
    let spooled = NewFact { seq: 1, ..hello("10.77.0.4/24") };
    store.store_facts(RackId::from(rack), "rack1", Uid::generate().get(), &[spooled]).await.unwrap();
    assert_eq!(position.moved().await, 1, "it said so to another region");
}

#[tokio::test]
async fn a_blob_moves_it_when_it_comes_and_goes() {
    let store = store().await;
    let mut position = Watched::from_now(&store).await;
    let blob = Blob { sha256: [7; 32], size: 1000, location: "here".to_owned() };
    store.put_blob(&blob).await.unwrap();
    assert_eq!(position.moved().await, 1);
    store.put_blob(&blob).await.unwrap();
    store.use_blob(&blob.sha256).await.unwrap();
    assert_eq!(store.collect_blobs(Duration::from_secs(3600)).await.unwrap(), []);
    assert_eq!(position.moved().await, 0, "it is held as it was");
    assert_eq!(store.collect_blobs(Duration::ZERO).await.unwrap().len(), 1);
    assert_eq!(position.moved().await, 1);
}

#[tokio::test]
async fn a_transaction_moves_it_once_and_a_dry_run_never() {
    let store = store().await;
    let mut position = Watched::from_now(&store).await;
    let kind = basalt_api::Kind::find("Tag").unwrap();
    let (spec, names) = (Text::parse("{}").unwrap(), ["a", "b", "c"]);
    let puts = names.map(|name| Put {
        kind,
        key: Key::Name(name),
        spec: &spec,
        at: "",
        labels: None,
        manager: Some("test"),
        adopt: true,
        precondition: Precondition::None,
        first_status: &Value::Null,
    });
    let batch = |dry_run| Batch { puts: &puts, prune: None, dry_run, judge: &NoJudge, allocation: None };
    store.write(&batch(true)).await.unwrap();
    assert_eq!(position.moved().await, 0);
    store.write(&batch(false)).await.unwrap();
    assert_eq!(position.moved().await, 1);
}

/// Each transaction declares one tag. So at position P there are exactly P tags more than at position 0.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_writer_is_lost_and_no_reader_sees_a_position_with_other_content() {
    const WRITERS: i64 = 8;
    const TAGS: i64 = 30;
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    let start = store.topology_position().await.unwrap();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for tag in 0..TAGS {
                    put(&store, "Tag", &format!("t{writer}-{tag}"), json!({})).await.expect("no deadlock");
                }
            })
        })
        .collect();
    let (mut seen, mut readings) = (0, 0);
    while seen < WRITERS * TAGS {
        let mut rows = store.topology().await.unwrap();
        let tags = i64::try_from(rows.take("Tag").len()).unwrap();
        assert_eq!(rows.position - start, tags);
        assert!(tags >= seen, "it went back");
        readings += i32::from(tags > seen);
        seen = tags;
    }
    assert!(readings > 5, "this test would not notice a torn reading");
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(store.topology_position().await.unwrap() - start, WRITERS * TAGS);
}

/// At the commit, a deferred constraint may wait for another transaction while this one holds the position: a deadlock.
#[tokio::test]
async fn no_deferred_constraint_waits_while_a_transaction_holds_the_position() {
    let mut hand = Hand::on(&basalt_db::testing::database().await).await;
    let deferred = "select conname from pg_constraint
        where condeferrable and oid not in (select tgconstraint from pg_trigger where tgfoid in ('move_topology'::regproc, 'move_known'::regproc))";
    // A transaction that changes both, the deletion of a machine, locks the log of `known` first.
    // The writers of this one lock the BMC's place first.
    assert_eq!(hand.run(deferred).await, [["machine_bmc_once"]]);
}
