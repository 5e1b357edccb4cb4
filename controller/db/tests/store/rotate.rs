//! A rotation of the seal key covers all sealed data.

use crate::common::{decision, machine, open, put};
use basalt_api::agent::BmcDriver;
use basalt_api::values::{Attempt, Epoch, Generation, MachineId, RackId, Uid};
use basalt_db::rotate::{Rotated, rotate};
use basalt_db::{Announcement, BmcDestination, NewBmcAccount, NewEntry, Requeue, SealKey, Store, StoreError};
use serde_json::json;
use sqlx::{Connection, PgConnection, Row};
use std::collections::BTreeSet;
use std::time::Duration;

/// Every column of bytes, and true if it is sealed. A new column must be added here, and to `rotate` if it is sealed.
const BYTES: [(&str, bool); 30] = [
    ("_sqlx_migrations.checksum", false),
    ("address.duid", false),
    ("api_token.sha256", false),
    ("attempt_key.sealed", true),
    ("authority.certificate_der", false),
    ("authority.sealed_key", true),
    ("blob.sha256", false),
    ("bmc_account.sealed", true),
    ("common_concern.body", true),
    ("common_concern.sha256", false),
    ("decision.digest", false),
    ("decision.ground", false),
    ("decision_ground.sha256", false),
    ("dns_record.data_sha256", false),
    ("entry.body", true),
    ("issued_token.sha256", false),
    ("join_secret.sha256", false),
    ("join_secret.used_by", false),
    ("login_attempt.sha256", false),
    ("rack_concern.body", true),
    ("rack_concern.sha256", false),
    ("rack_enrolment.cert_sha256", false),
    ("rack_enrolment.certificate_der", false),
    ("rack_enrolment.spki_sha256", false),
    ("region_meta.seal_check", true),
    ("retired_rack.spki_sha256", false),
    ("secret.sealed", true),
    ("session.sha256", false),
    ("stranger_attempt.sealed", true),
    ("zone.body", false),
];

/// The present content of the sealed columns.
async fn sealed(url: &str) -> Vec<(&'static str, Vec<u8>)> {
    let mut direct = PgConnection::connect(url).await.unwrap();
    let mut found = Vec::new();
    for (column, _) in BYTES.into_iter().filter(|(_, is_sealed)| *is_sealed) {
        let (table, name) = column.split_once('.').unwrap();
        let select = sqlx::AssertSqlSafe(format!("select {name} from {table}"));
        for row in sqlx::query(select).fetch_all(&mut direct).await.unwrap() {
            found.push((column, row.get(0)));
        }
    }
    found
}

struct Sealed {
    machine: MachineId,
    rack: RackId,
}

/// Records an attempt, with its key.
async fn arm(store: &Store, machine: MachineId, attempt: u64) -> Result<(), StoreError> {
    store.enqueue(machine.into(), Duration::ZERO).await?;
    let leases = store.claim(Uid::generate(), 10, Duration::from_secs(30)).await?;
    let lease = leases.iter().find(|lease| lease.uid == machine.into()).expect("it is due");
    let step = Announcement {
        lease,
        step_key: "install",
        attempt: Some(Attempt::new(attempt)),
        arms: Some(b"attempt"),
        detail: &json!({}),
        decision: &decision(),
        takes: None,
    };
    let announced = store.announce(&step).await;
    for lease in &leases {
        store.finish(lease, Requeue::WhenWoken).await?;
    }
    announced.map(drop)
}

async fn seal_everything(store: &Store) -> Sealed {
    let uid = put(store, "Machine", "m", machine("52:54:00:00:00:01")).await.unwrap().object.uid;
    let machine = uid.into();
    put(store, "User", "alice", json!({"password": "correct horse"})).await.unwrap();
    let rack = RackId::from(put(store, "Rack", "r", json!({})).await.unwrap().object.uid);
    store.put_concern(rack, "power", Generation::new(0), b"one", None).await.unwrap();
    store.put_concern(rack, "boot", Generation::new(0), b"two", None).await.unwrap();
    store.put_common("known", Generation::new(0), b"all").await.unwrap();
    let (epoch, says, racks) = (Epoch::new(1), json!({}), BTreeSet::from([rack]));
    let entry =
        NewEntry { concern: "boot", object: uid, epoch, says: &says, body: Some(b"task"), racks: &racks };
    store.put_entry(&entry).await.unwrap();
    arm(store, machine, 7).await.unwrap();
    store.authority((b"certificate", b"key")).await.unwrap();
    store.stranger_attempt(&[5; 32]).await.unwrap();
    let (attempt, username, password) = (Attempt::new(7), "basalt", b"made inside".as_slice());
    let (driver, destination) = (BmcDriver::Ipmi, &BmcDestination::default());
    let account = NewBmcAccount { attempt, username, driver, password, rotate: 0, destination };
    store.put_bmc_account(machine, &account).await.unwrap();
    Sealed { machine, rack }
}

#[tokio::test]
async fn everything_that_is_sealed_opens_with_the_new_key_alone() {
    let url = basalt_db::testing::database().await;
    let old = open(&url, [7; 32]).await.unwrap();
    let Sealed { machine, rack } = seal_everything(&old).await;
    let before = sealed(&url).await;
    let keys = [[7; 32], [8; 32]].map(|bytes| SealKey::new(&bytes).unwrap());
    let rotated = rotate(&url, (&keys[0], &keys[1]), None, || ()).await.unwrap();
    assert_eq!(rotated, Rotated::Now(8));
    let after = sealed(&url).await;
    assert_eq!(before.len(), after.len());
    for (column, _) in BYTES.iter().filter(|(_, is_sealed)| *is_sealed) {
        let kept = after.iter().any(|it| it.0 == *column && before.contains(it));
        assert!(before.iter().any(|it| it.0 == *column) && !kept, "{column} is as it was, or was not tried");
    }

    let new = open(&url, [8; 32]).await.unwrap();
    let password = new.open_secret(machine.into(), "/bmc/password").await.unwrap();
    assert_eq!(password.as_deref().map(Vec::as_slice), Some(b"hunter2".as_slice()));
    let account = new.account("alice").await.unwrap().unwrap();
    assert!(basalt_db::verify_password(b"correct horse", &account.hash));
    for (name, body) in [("boot", b"two"), ("power", b"one"), ("known", b"all")] {
        assert_eq!(new.concern(rack, name).await.unwrap().unwrap().body, body);
    }
    assert_eq!(new.entries_for(rack, "boot").await.unwrap().entries[0].body, b"task");
    let key = new.attempt_key(machine, Attempt::new(7)).await.unwrap();
    assert_eq!(key.as_deref().map(Vec::as_slice), Some(b"attempt".as_slice()));
    assert_eq!(new.authority((b"", b"")).await.unwrap().1.as_slice(), b"key");
    assert_eq!(new.stranger_attempt(&[6; 32]).await.unwrap().1.as_slice(), [5; 32]);
    let password = new.bmc_password(machine).await.unwrap();
    assert_eq!(password.as_deref().map(Vec::as_slice), Some(b"made inside".as_slice()));
    assert!(matches!(open(&url, [7; 32]).await, Err(StoreError::Seal { .. })));

    // A store with the old key seals nothing any more.
    let refused = [
        old.put_concern(rack, "power", Generation::new(1), b"three", None).await.unwrap_err(),
        old.put_common("known", Generation::new(1), b"more").await.unwrap_err(),
        arm(&old, machine, 8).await.unwrap_err(),
        old.authority((b"", b"")).await.unwrap_err(),
        put(&old, "User", "bob", json!({"password": "correct horse"})).await.unwrap_err(),
        old.ping().await.unwrap_err(),
    ];
    assert!(refused.iter().all(|error| matches!(error, StoreError::SealReplaced)), "{refused:?}");
    assert_eq!(sealed(&url).await, after);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_seals_while_the_key_is_replaced_waits_and_is_refused() {
    let url = basalt_db::testing::database().await;
    let old = open(&url, [7; 32]).await.unwrap();
    seal_everything(&old).await;
    let keys = [[7; 32], [8; 32]].map(|bytes| SealKey::new(&bytes).unwrap());
    let (began, commit) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    let rotating = {
        let url = url.clone();
        tokio::spawn(async move {
            let held = move || {
                began.0.send(()).unwrap();
                tokio::task::block_in_place(|| commit.1.recv()).unwrap();
            };
            rotate(&url, (&keys[0], &keys[1]), None, held).await.unwrap()
        })
    };
    let began = tokio::task::spawn_blocking(move || began.1.recv()).await.unwrap();
    began.unwrap();
    let writing =
        tokio::spawn(async move { put(&old, "User", "bob", json!({"password": "correct horse"})).await });
    // The write waits for the row that the rotation has locked.
    let mut direct = PgConnection::connect(&url).await.unwrap();
    let waiting = "select exists(select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database())";
    while !sqlx::query(waiting).fetch_one(&mut direct).await.unwrap().get::<bool, _>(0) {
        tokio::task::yield_now().await;
    }
    assert!(!writing.is_finished());
    commit.0.send(()).unwrap();
    rotating.await.unwrap();
    assert!(matches!(writing.await.unwrap(), Err(StoreError::SealReplaced)));
}

#[tokio::test]
async fn every_column_of_bytes_is_known_to_be_sealed_or_no_secret() {
    let url = basalt_db::testing::database().await;
    let mut direct = PgConnection::connect(&url).await.unwrap();
    let columns = "select table_name || '.' || column_name from information_schema.columns
                   where table_schema = 'public' and data_type = 'bytea' order by 1";
    let rows = sqlx::query(columns).fetch_all(&mut direct).await.unwrap();
    let found: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(found, BYTES.map(|(column, _)| column.to_owned()));
}
