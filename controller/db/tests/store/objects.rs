//! Objects in the store: reads, writes, deletions, and the errors.

use crate::common::{machine, network, open, put, put_if, store};
use basalt_api::values::Generation;
use basalt_api::wire::Verb;
use basalt_api::{FieldCode, FieldError};
use basalt_db::{
    Deletion, Judge, Key, ListQuery, MachineMarks, NewOperation, Object, Precondition, Put, Removal,
    StoreError, Written,
};
use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection};
use std::time::Duration;

fn refused(error: StoreError) -> Vec<(String, FieldCode, String)> {
    match error {
        StoreError::Refused { errors } => {
            errors.into_iter().map(|e| (e.pointer, e.code, e.message)).collect()
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_spec_is_kept_byte_for_byte_and_its_generation_counts_changes() {
    let store = store().await;
    let text = "{\n  \"description\" :\"a \\u00e9 b\"  }";
    let first = put_if(&store, "Zone", "a", text, Precondition::Absent).await.unwrap();
    assert!(first.created && first.changed);
    let read = store.get("Zone", Key::Name("a")).await.unwrap();
    assert_eq!(read.spec.get(), text);
    assert_eq!((read.generation.get(), read.observed_generation.get()), (1, 1));
    let again = put_if(&store, "Zone", "a", r#"{"description":"a é b"}"#, Precondition::None).await.unwrap();
    assert!(!again.created && !again.changed, "the same meaning is no change");
    assert_eq!(again.object.generation.get(), 1);
    let changed = put(&store, "Zone", "a", json!({"description": "c"})).await.unwrap();
    assert_eq!((changed.object.generation.get(), changed.object.observed_generation.get()), (2, 2));
    assert_eq!(store.get("Zone", Key::Uid(read.uid)).await.unwrap().name, "a");
}

#[tokio::test]
async fn preconditions_are_kept() {
    let store = store().await;
    put(&store, "Zone", "a", json!({})).await.unwrap();
    let error = put_if(&store, "Zone", "a", "{}", Precondition::Absent).await.unwrap_err();
    assert_eq!(error.to_string(), r#"Zone "a" exists already, managed by "test""#);
    let at = |g| Precondition::Generation(Generation::new(g));
    assert!(matches!(put_if(&store, "Zone", "a", "{}", at(2)).await, Err(StoreError::Conflict { .. })));
    assert!(matches!(put_if(&store, "Zone", "b", "{}", at(1)).await, Err(StoreError::Conflict { .. })));
    assert!(matches!(
        put_if(&store, "Zone", "b", "{}", Precondition::Present).await,
        Err(StoreError::Conflict { .. })
    ));
    put_if(&store, "Zone", "a", r#"{"description":"x"}"#, at(1)).await.unwrap();
}

#[tokio::test]
async fn a_reference_to_nothing_is_named_by_its_pointer() {
    let store = store().await;
    let error =
        put(&store, "Subnet", "lab", json!({"vlan": "default.0", "cidr": "10.0.0.0/8"})).await.unwrap_err();
    let there_is_no = r#"there is no Vlan "default.0""#.to_owned();
    assert_eq!(refused(error), [("/vlan".to_owned(), FieldCode::ReferenceNotFound, there_is_no)]);
    assert!(matches!(store.get("Subnet", Key::Name("lab")).await, Err(StoreError::NotFound { .. })));
}

#[tokio::test]
async fn what_only_one_can_have_is_refused_naming_who_has_it() {
    let store = store().await;
    network(&store).await;
    let range = |start, end| json!({"subnet": "lab", "start": start, "end": end});
    put(&store, "IpRange", "low", range("10.77.0.10", "10.77.0.20")).await.unwrap();
    let cases = [
        (
            "IpRange",
            "x",
            range("10.77.0.20", "10.77.0.30"),
            "/start: 10.77.0.20-10.77.0.30 overlaps 10.77.0.10-10.77.0.20 of IpRange \"low\"",
        ),
        (
            "IpRange",
            "x",
            range("10.77.0.250", "10.77.1.3"),
            "/end: 10.77.1.3 is outside 10.77.0.0/24 of Subnet \"lab\"",
        ),
        (
            "Subnet",
            "x",
            json!({"vlan": "default.0", "cidr": "10.77.0.128/25"}),
            "/cidr: 10.77.0.128/25 overlaps 10.77.0.0/24 of Subnet \"lab\"",
        ),
        (
            "Vlan",
            "x",
            json!({"fabric": "default", "vid": 0}),
            "/vid: VLAN 0 of this fabric is Vlan \"default.0\" already",
        ),
    ];
    for (kind, name, spec, wanted) in cases {
        let found: Vec<String> = refused(put(&store, kind, name, spec).await.unwrap_err())
            .iter()
            .map(|(p, _, m)| format!("{p}: {m}"))
            .collect();
        assert_eq!(found, [wanted]);
    }
    put(&store, "IpRange", "low", range("10.77.0.12", "10.77.0.40"))
        .await
        .expect("it does not overlap itself");
    put(&store, "IpRange", "high", range("10.77.0.41", "10.77.0.50"))
        .await
        .expect("adjacent is not overlapping");
    put(&store, "Machine", "m1", machine("52:54:00:00:00:01")).await.unwrap();
    let error = put(&store, "Machine", "m2", machine("52-54-00-00-00-01")).await.unwrap_err();
    assert_eq!(refused(error)[0].2, r#"52-54-00-00-00-01 is a boot MAC of Machine "m1" already"#);
    put(&store, "Fabric", "other", json!({})).await.unwrap();
    put(&store, "Vlan", "other.0", json!({"fabric": "other", "vid": 0})).await.unwrap();
    let elsewhere = json!({"vlan": "other.0", "cidr": "10.77.0.0/24"});
    put(&store, "Subnet", "elsewhere", elsewhere).await.expect("another fabric may use the same addresses");
}

#[tokio::test]
async fn of_many_that_want_the_same_address_one_gets_it() {
    let store = store().await;
    let tries: Vec<_> = (0..16)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move {
                put(&store, "Machine", &format!("m{n}"), machine("52:54:00:00:00:09")).await
            })
        })
        .collect();
    let mut stored = 0;
    for attempt in tries {
        match attempt.await.unwrap() {
            Ok(_) => stored += 1,
            Err(error) => assert_eq!(refused(error)[0].1, FieldCode::Overlap),
        }
    }
    assert_eq!(stored, 1);
}

#[tokio::test]
async fn a_rename_changes_what_referrers_read_and_no_generation() {
    let store = store().await;
    network(&store).await;
    put_if(
        &store,
        "Subnet",
        "two",
        "{ \"vlan\":  \"default.0\",\"cidr\":\"10.78.0.0/24\"}",
        Precondition::None,
    )
    .await
    .unwrap();
    store.rename("Fabric", Key::Name("default"), "main").await.unwrap();
    let subnet = store.get("Subnet", Key::Name("two")).await.unwrap();
    assert_eq!(subnet.spec.get(), "{ \"vlan\":  \"main.0\",\"cidr\":\"10.78.0.0/24\"}");
    assert_eq!(subnet.generation.get(), 1);
    let vlan = store.get("Vlan", Key::Name("main.0")).await.unwrap();
    assert_eq!(vlan.spec.get(), r#"{"fabric":"main","vid":0}"#);
    assert!(matches!(store.get("Vlan", Key::Name("default.0")).await, Err(StoreError::NotFound { .. })));
    put(&store, "Fabric", "second", json!({})).await.unwrap();
    let error = store.rename("Fabric", Key::Name("main"), "second").await.unwrap_err();
    assert!(matches!(error, StoreError::Exists { .. }));
}

#[tokio::test]
async fn what_is_being_deleted_leaves_when_its_last_referrer_refers_elsewhere() {
    let store = store().await;
    for zone in ["old", "new"] {
        put(&store, "Zone", zone, json!({})).await.unwrap();
    }
    let in_zone = |zone: &str| {
        let mut spec = machine("52:54:00:00:00:01");
        spec["zone"] = json!(zone);
        spec
    };
    put(&store, "Machine", "a", in_zone("old")).await.unwrap();
    let deletion = store.request_deletion("Zone", Key::Name("old"), Precondition::None, false).await.unwrap();
    assert!(matches!(deletion, Deletion::Waits { .. }));
    put(&store, "Machine", "a", in_zone("old")).await.unwrap();
    store.get("Zone", Key::Name("old")).await.expect("it is still referred to");
    put(&store, "Machine", "a", in_zone("new")).await.unwrap();
    assert!(matches!(store.get("Zone", Key::Name("old")).await, Err(StoreError::NotFound { .. })));
}

#[tokio::test]
async fn deletion_waits_for_referrers_and_goes_on_when_they_are_gone() {
    let store = store().await;
    network(&store).await;
    let delete = |kind: &'static str, name: &'static str| {
        let store = store.clone();
        async move { store.request_deletion(kind, Key::Name(name), Precondition::None, false).await }
    };
    for _ in 0..2 {
        let Deletion::Waits { object, waits_for } = delete("Fabric", "default").await.unwrap() else {
            panic!("gone")
        };
        assert!(object.deletion_requested_at.is_some());
        assert_eq!((waits_for[0].kind.as_str(), waits_for[0].name.as_str()), ("Vlan", "default.0"));
    }
    let error = put(&store, "Fabric", "default", json!({})).await.unwrap_err();
    let said = error.to_string();
    assert!(said.starts_with(r#"Fabric "default" is being deleted, which cannot be taken back"#), "{said}");
    assert!(matches!(delete("Vlan", "default.0").await.unwrap(), Deletion::Waits { .. }));
    let error =
        put(&store, "Subnet", "new", json!({"vlan": "default.0", "cidr": "10.9.0.0/24"})).await.unwrap_err();
    assert_eq!(refused(error)[0].2, r#"Vlan "default.0" is being deleted"#);
    assert!(matches!(delete("Subnet", "lab").await.unwrap(), Deletion::Gone));
    for (kind, name) in [("Subnet", "lab"), ("Vlan", "default.0"), ("Fabric", "default")] {
        assert!(matches!(store.get(kind, Key::Name(name)).await, Err(StoreError::NotFound { .. })), "{kind}");
    }
}

#[tokio::test]
async fn secrets_are_sealed_kept_and_cleared() {
    let store = store().await;
    let spec = |password: Value| {
        let mut spec = machine("52:54:00:00:00:01");
        match password {
            Value::Bool(_) => drop(spec["bmc"].as_object_mut().unwrap().remove("password")),
            password => spec["bmc"]["password"] = password,
        }
        spec
    };
    let uid = put(&store, "Machine", "m", spec(json!("hunter2"))).await.unwrap().object.uid;
    let read = |generation: u64, revision: Value| {
        let store = store.clone();
        async move {
            let object = store.get("Machine", Key::Name("m")).await.unwrap();
            let spec: Value = serde_json::from_str(object.spec.get()).unwrap();
            assert_eq!(spec["bmc"]["password"], revision);
            assert_eq!(object.generation.get(), generation);
        }
    };
    let form = |revision| json!({"set": true, "revision": revision});
    read(1, form(1)).await;
    for keeps in [json!("hunter2"), form(1), json!(false)] {
        put(&store, "Machine", "m", spec(keeps)).await.unwrap();
        read(1, form(1)).await;
    }
    put(&store, "Machine", "m", spec(json!("correct horse"))).await.unwrap();
    read(2, form(2)).await;
    assert_eq!(store.open_secret(uid, "/bmc/password").await.unwrap().unwrap().as_slice(), b"correct horse");
    put(&store, "Machine", "m", spec(Value::Null)).await.unwrap();
    read(3, Value::Null).await;
    assert!(store.open_secret(uid, "/bmc/password").await.unwrap().is_none());
    let error = put(&store, "Machine", "m", spec(form(2))).await.unwrap_err();
    assert_eq!(refused(error)[0].0, "/bmc/password");
}

#[tokio::test]
async fn another_seal_key_is_noticed_at_once() {
    let url = basalt_db::testing::database().await;
    open(&url, [7; 32]).await.unwrap();
    open(&url, [7; 32]).await.unwrap();
    assert!(matches!(open(&url, [8; 32]).await, Err(StoreError::Seal { .. })));
}

#[tokio::test]
async fn lists_go_on_after_the_last_name() {
    let store = store().await;
    for n in 0..25 {
        put(&store, "Zone", &format!("z{n:02}"), json!({})).await.unwrap();
    }
    let (mut names, mut after) = (Vec::new(), None::<String>);
    loop {
        let query = ListQuery { kind: "Zone", after: after.as_deref(), limit: 10, ..ListQuery::default() };
        let page = store.list(&query).await.unwrap();
        names.extend(page.objects.into_iter().map(|o| o.name));
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(names, (0..25).map(|n| format!("z{n:02}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_region_that_is_older_than_the_database_leaves_the_newer_schema_alone() {
    let url = basalt_db::testing::database().await;
    let mut newer = PgConnection::connect(&url).await.unwrap();
    let migrated = "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
                    values (9999, 'from the future', true, '\\x00', 0)";
    newer.execute(migrated).await.unwrap();
    let store = open(&url, [7; 32]).await.expect("it opens");
    put(&store, "Zone", "a", json!({})).await.unwrap();
}

/// A judge that allows only objects of the pool `blue`.
struct OnlyBlue;

impl Judge for OnlyBlue {
    fn change(&self, _: &Put<'_>, _: &Object) -> Vec<FieldError> {
        Vec::new()
    }

    fn removal(&self, _: &Object) -> Vec<FieldError> {
        Vec::new()
    }

    fn approves(&self, _: &Written) -> bool {
        true
    }

    fn minds_pools(&self) -> bool {
        true
    }

    fn reach(&self, kind: &str, name: &str, pool: Option<&str>, _: Option<&str>) -> Option<FieldError> {
        let unseen = FieldError::new("", FieldCode::NotFound, format!("there is no {kind} {name:?}"), "");
        (pool != Some("blue")).then_some(unseen)
    }
}

#[tokio::test]
async fn who_waits_for_an_object_that_goes_to_another_pool_does_not_delete_or_rename_it_or_ask_anything_of_it()
 {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    for pool in ["blue", "red"] {
        put(&store, "Pool", pool, json!({})).await.unwrap();
    }
    let spec = |pool: &str| json!({"pool": pool, "boot_macs": ["52:54:00:00:00:01"]});
    put(&store, "Machine", "m", spec("blue")).await.unwrap();
    let (mut mover, mut looker) =
        (PgConnection::connect(&url).await.unwrap(), PgConnection::connect(&url).await.unwrap());
    let mut moving = mover.begin().await.unwrap();
    let moved =
        sqlx::query("update object set spec = $1::json where name = 'm'").bind(spec("red").to_string());
    moved.execute(&mut *moving).await.unwrap();
    let deleting = {
        let store = store.clone();
        let (kind, key, precondition) = ("Machine", Key::Name("m"), Precondition::None);
        tokio::spawn(async move {
            store
                .delete(Removal {
                    kind,
                    key,
                    precondition,
                    dry_run: false,
                    force: false,
                    if_unused: false,
                    judge: &OnlyBlue,
                })
                .await
                .unwrap_err()
        })
    };
    let renaming = {
        let store = store.clone();
        tokio::spawn(async move {
            store.rename_judged("Machine", Key::Name("m"), "n", (false, &OnlyBlue)).await.unwrap_err()
        })
    };
    let asking = {
        let store = store.clone();
        tokio::spawn(async move {
            let new = NewOperation {
                verb: Verb::Recommission,
                script: None,
                lasts: Duration::from_secs(60),
                request_key: None,
                tests: &[],
                because: None,
            };
            store.request_operation(Key::Name("m"), &new, (false, &OnlyBlue)).await.unwrap_err()
        })
    };
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut looker).await.unwrap() < 3 {
        tokio::task::yield_now().await;
    }
    moving.commit().await.unwrap();
    for refused in [deleting.await.unwrap(), renaming.await.unwrap(), asking.await.unwrap()] {
        assert!(matches!(refused, StoreError::NotFound { .. }), "{refused:?}");
    }
    let object = store.get("Machine", Key::Name("m")).await.unwrap();
    assert_eq!(object.deletion_requested_at, None);
    assert_eq!(store.machine_marks(object.uid.into()).await.unwrap(), MachineMarks::default());
}

/// Concurrent gets are gathered into few statements. Each caller must get its own object, in a state from after its request.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_reads_beside_many_others_reads_its_own_object_and_what_was_written_before() {
    let store = store().await;
    let clients = (0..48).map(|client: u64| {
        let store = store.clone();
        tokio::spawn(async move {
            let name = format!("z{client}");
            for written in 1..=12 {
                let description = json!({ "description": format!("{client}.{written}") });
                put(&store, "Zone", &name, description.clone()).await.expect("it is written");
                let read = store.get("Zone", Key::Name(&name)).await.expect("it is there");
                assert_eq!((read.name.as_str(), read.spec.get()), (name.as_str(), &*description.to_string()));
                let other = store.get("Pool", Key::Name(&name)).await;
                assert!(matches!(other, Err(StoreError::NotFound { .. })), "{other:?}");
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("nothing was mixed up");
    }
}
