//! No two machines have the same BMC, in any spelling, however they are written.

use crate::common::{migrated_to, open, put, store};
use basalt_api::FieldCode;
use basalt_db::{Store, StoreError};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

/// The newest migration before the database kept BMCs unique.
const BEFORE: i64 = 13;

fn machine(n: u8, bmc: Value) -> Value {
    json!({"architecture": "amd64", "boot_macs": [format!("52:54:00:00:00:{n:02x}")], "bmc": bmc})
}

fn ipmi(address: &str) -> Value {
    json!({"driver": "ipmi", "address": address, "username": "admin", "password": "hunter2"})
}

async fn declare(store: &Store, n: u8, bmc: Value) -> Result<(), String> {
    match put(store, "Machine", &format!("m{n}"), machine(n, bmc)).await {
        Ok(_) => Ok(()),
        Err(StoreError::Refused { errors }) => {
            let [error] = errors.as_slice() else { panic!("one thing is wrong: {errors:?}") };
            assert_eq!((error.pointer.as_str(), error.code), ("/bmc/address", FieldCode::Overlap));
            Err(error.message.clone())
        }
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn however_it_is_spelled_a_bmc_is_one_machine_s() {
    let store = store().await;
    let with_port = |address: &str, port: u16| {
        let mut bmc = ipmi(address);
        bmc["port"] = json!(port);
        bmc
    };
    let same = [
        (ipmi("10.0.0.1"), ipmi("::ffff:10.0.0.1"), "10.0.0.1 port 623"),
        (ipmi("bmc-1.example.com"), ipmi("BMC-1.Example.com"), "bmc-1.example.com port 623"),
        (ipmi("2001:db8::1"), with_port("2001:DB8:0:0::1", 623), "2001:db8::1 port 623"),
        (with_port("10.0.0.1", 6230), with_port("10.0.0.1", 6230), "10.0.0.1 port 6230"),
    ];
    for (n, (first, second, what)) in (1..).zip(same) {
        declare(&store, n, first).await.unwrap();
        let message = format!("{what} is the BMC of Machine \"m{n}\" already");
        assert_eq!(declare(&store, 99, second).await, Err(message));
    }
    for n in [10, 11] {
        declare(&store, n, json!({"driver": "manual"})).await.expect("a person has no address");
    }
    declare(&store, 1, ipmi("10.0.0.9")).await.unwrap();
    declare(&store, 12, ipmi("10.0.0.1")).await.expect("what a machine gave up is another's to have");
    declare(&store, 9, Value::Null).await.unwrap();
}

#[tokio::test]
async fn networks_that_leave_out_a_machine_s_bmc_are_refused_with_its_name() {
    let store = store().await;
    for n in 1..=7 {
        declare(&store, n, ipmi(&format!("10.0.{n}.1"))).await.unwrap();
    }
    declare(&store, 8, ipmi("bmc-8.example.com")).await.unwrap();
    let allow =
        async |networks: Value| match put(&store, "Settings", "default", json!({"bmc_networks": networks}))
            .await
        {
            Err(StoreError::Refused { errors }) => {
                errors.into_iter().map(|it| format!("{}: {}", it.pointer, it.message)).collect()
            }
            other => other.map(|_| Vec::<String>::new()).unwrap(),
        };
    let networks = json!(["10.0.1.0/24", "2001:db8::/64"]);
    assert_eq!(
        allow(networks).await,
        [
            "/bmc_networks: BMCs that machines have are outside of 10.0.1.0/24, 2001:db8::/64: 10.0.2.1 of Machine \"m2\", \
          10.0.3.1 of Machine \"m3\", 10.0.4.1 of Machine \"m4\", 10.0.5.1 of Machine \"m5\", 10.0.6.1 of Machine \"m6\", 1 more"
        ]
    );
    assert_eq!(allow(json!(["10.0.0.0/21"])).await, Vec::<String>::new());
    assert_eq!(allow(json!(["10.0.0.0/22"])).await.len(), 1, "narrower than before");
    assert_eq!(allow(json!([])).await, Vec::<String>::new());
}

#[tokio::test]
async fn each_system_of_a_bmc_that_speaks_redfish_is_one_machine_s() {
    let store = store().await;
    let redfish = |system: Option<&str>, port: Option<u16>| {
        let mut bmc = json!({"driver": "redfish", "address": "10.0.0.1", "username": "admin", "options": {}});
        if let Some(system) = system {
            bmc["options"]["system"] = json!(system);
        }
        if let Some(port) = port {
            bmc["port"] = json!(port);
        }
        bmc
    };
    declare(&store, 1, redfish(Some("1"), None)).await.unwrap();
    declare(&store, 2, redfish(Some("2"), Some(443))).await.expect("it is another system");
    declare(&store, 3, redfish(None, Some(8443))).await.expect("it is another BMC");
    declare(&store, 4, ipmi("10.0.0.1")).await.expect("an advisory refuses nothing");
    let taken = "10.0.0.1 port 443 is the BMC of Machine \"m2\" already".to_owned();
    assert_eq!(declare(&store, 5, redfish(Some("2"), None)).await, Err(taken));
    declare(&store, 2, redfish(Some("3"), None)).await.unwrap();
    declare(&store, 5, redfish(Some("2"), None)).await.expect("what a machine gave up is another's to have");
}

#[tokio::test]
async fn the_only_system_of_a_bmc_is_not_beside_a_named_one() {
    let store = store().await;
    let redfish = |address: &str, system: Option<&str>| {
        let mut bmc = json!({"driver": "redfish", "address": address, "username": "admin", "options": {}});
        if let Some(system) = system {
            bmc["options"]["system"] = json!(system);
        }
        bmc
    };
    for (n, address, systems) in [(1, "10.0.0.1", [None, Some("x")]), (3, "10.0.0.2", [Some("x"), None])] {
        declare(&store, n, redfish(address, systems[0])).await.unwrap();
        let refused = declare(&store, n + 1, redfish(address, systems[1])).await;
        let message = format!(
            "{address} port 443 is the BMC of Machine \"m{n}\" already, and one of the two machines names no system of it"
        );
        assert_eq!(refused, Err(message));
        let mut other_port = redfish(address, systems[1]);
        other_port["port"] = json!(8443);
        declare(&store, n + 1, other_port).await.expect("it is another BMC");
    }
    let tries: Vec<_> = (10..18)
        .map(|n| {
            let (store, bmc) = (store.clone(), redfish("10.0.0.3", (n % 2 == 0).then_some("x")));
            tokio::spawn(async move { declare(&store, n, bmc).await })
        })
        .collect();
    let mut stored = 0;
    for attempt in tries {
        stored += usize::from(attempt.await.unwrap().is_ok());
    }
    assert_eq!(stored, 1, "one at a time");
}

#[tokio::test]
async fn a_host_of_another_machine_by_the_other_driver_is_an_advisory() {
    let store = store().await;
    let advised = async |n: u8, bmc: Value| {
        let stored = put(&store, "Machine", &format!("m{n}"), machine(n, bmc)).await.unwrap();
        stored.advisories.into_iter().map(|it| format!("{}: {}", it.pointer, it.message)).collect::<Vec<_>>()
    };
    let redfish = json!({"driver": "redfish", "address": "10.0.0.70", "username": "admin"});
    assert_eq!(advised(1, redfish.clone()).await, Vec::<String>::new());
    let words = "/bmc/address: 10.0.0.70 port 443 is the BMC of Machine \"m1\", by driver \"redfish\"";
    assert_eq!(advised(2, ipmi("10.0.0.70")).await, [words]);
    assert_eq!(advised(3, ipmi("10.0.0.71")).await, Vec::<String>::new());
    let mut renamed = redfish;
    renamed["username"] = json!("other");
    assert_eq!(advised(1, renamed).await, Vec::<String>::new(), "the host is as before");
    let webhook = json!({"driver": "webhook", "address": "10.0.0.70",
        "webhook": {"on": "/on", "off": "/off", "status": "/", "plain": false}});
    assert_eq!(advised(4, webhook).await, Vec::<String>::new(), "a service may switch many machines");
}

#[tokio::test]
async fn each_request_that_switches_on_is_one_machine_s() {
    let store = store().await;
    let webhook = |on: &str, plain: bool, port: Option<u16>| {
        let mut bmc = json!({"driver": "webhook", "address": "10.0.0.1",
            "webhook": {"on": on, "off": "/off", "status": "/", "plain": plain}});
        if let Some(port) = port {
            bmc["port"] = json!(port);
        }
        bmc
    };
    declare(&store, 1, webhook("/1/on", false, None)).await.unwrap();
    declare(&store, 2, webhook("/2/on", false, None)).await.expect("it is another request of the service");
    declare(&store, 3, webhook("/1/on", true, None)).await.expect("it is another port");
    declare(&store, 4, webhook("/1/on", false, Some(8443))).await.expect("it is another port");
    for (port, plain) in [(443, false), (80, true)] {
        let machine = if plain { "m3" } else { "m1" };
        let taken = format!("10.0.0.1 port {port} is the BMC of Machine {machine:?} already");
        assert_eq!(declare(&store, 5, webhook("/1/on", plain, Some(port))).await, Err(taken));
    }
    let longest = format!("/{}", "x".repeat(999));
    declare(&store, 6, webhook(&longest, false, None)).await.expect("it fits into the index");
    let outside = put(&store, "Settings", "default", json!({"bmc_networks": ["10.0.1.0/24"]})).await;
    let Err(StoreError::Refused { errors }) = outside else { panic!("{outside:?}") };
    assert!(errors[0].message.contains("10.0.0.1 of Machine \"m1\""), "{errors:?}");
    assert_eq!(store.bmcs().await.unwrap().len(), 5);
}

#[tokio::test]
async fn of_many_that_want_the_same_bmc_one_gets_it() {
    let store = store().await;
    let tries: Vec<_> = (0..16)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { declare(&store, n, ipmi("10.0.0.1")).await })
        })
        .collect();
    let mut stored = 0;
    for attempt in tries {
        stored += usize::from(attempt.await.unwrap().is_ok());
    }
    assert_eq!(stored, 1);
}

fn insert(n: u8) -> String {
    let (uid, spec) = (format!("00000000-0000-0000-0000-{n:012}"), machine(n, ipmi("10.0.0.1")));
    format!("insert into object (uid, kind, name, spec) values ('{uid}', 'Machine', 'm{n}', '{spec}');")
}

#[tokio::test]
async fn a_region_that_does_not_know_of_it_cannot_store_it_either() {
    let url = basalt_db::testing::database().await;
    let mut db = PgConnection::connect(&url).await.unwrap();
    db.execute(AssertSqlSafe(insert(1))).await.unwrap();
    let error = db.execute(AssertSqlSafe(insert(2))).await.unwrap_err();
    assert!(error.to_string().contains("machine_bmc_once"), "{error}");
    db.execute(AssertSqlSafe(format!("begin; {} delete from object where name = 'm1'; commit;", insert(2))))
        .await
        .expect("it is looked at when all is done");
}

#[tokio::test]
async fn machines_that_had_one_together_before_keep_it_and_nobody_joins_them() {
    let (url, mut db) = migrated_to(BEFORE).await;
    db.execute(AssertSqlSafe(insert(1) + &insert(2))).await.unwrap();
    let store = open(&url, [7; 32]).await.expect("it is migrated");
    let mut other_password = ipmi("10.0.0.1");
    other_password["password"] = json!("hunter3");
    declare(&store, 1, other_password).await.expect("what it had is not refused");
    assert!(declare(&store, 3, ipmi("10.0.0.1")).await.is_err(), "nobody joins them");
    declare(&store, 1, ipmi("10.0.0.2")).await.unwrap();
    assert!(declare(&store, 1, ipmi("10.0.0.1")).await.is_err(), "who went is like anybody else");
}
