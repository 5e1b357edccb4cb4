//! Databases of earlier versions: they are migrated with all their data, or not changed, and the error says why.

use crate::common::{migrated_to, open, put};
use basalt_db::{Key, Store, StoreError};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

/// The newest migration before addresses were held by constraints.
const BEFORE: i64 = 3;

/// A database as a region of that version left it, with subnet `lab` 10.77.0.0/24, gateway .1, a pool from .100 to .199, and
/// the rows of `more`.
async fn old(more: &str) -> String {
    let (url, mut db) = migrated_to(BEFORE).await;
    let object = |n: u32, kind: &str, name: &str, spec: Value| {
        format!(
            "insert into object (uid, kind, name, spec) values ('{}', '{kind}', '{name}', '{spec}');",
            uid(n)
        )
    };
    let mut script = [
        object(1, "Fabric", "default", json!({})),
        object(2, "Vlan", "default.0", json!({"fabric": "default", "vid": 0})),
        object(
            3,
            "Subnet",
            "lab",
            json!({"vlan": "default.0", "cidr": "10.77.0.0/24", "gateway": "10.77.0.1"}),
        ),
        object(4, "Subnet", "six", json!({"vlan": "default.0", "cidr": "fd00::/64", "gateway": "fe80::1"})),
        object(5, "IpRange", "pool", json!({"subnet": "lab", "start": "10.77.0.100", "end": "10.77.0.199"})),
        object(
            6,
            "IpRange",
            "kept",
            json!({"subnet": "lab", "start": "10.77.0.2", "end": "10.77.0.9", "purpose": "reserved"}),
        ),
        object(7, "Deployment", "web", json!({})),
        object(8, "Deployment", "db", json!({})),
        object(9, "Rack", "r1", json!({})),
    ]
    .concat();
    for (subnet, cidr) in [(3, "10.77.0.0/24"), (4, "fd00::/64")] {
        script += &format!("insert into subnet_cidr values ('{}', '{}', '{cidr}');", uid(subnet), uid(1));
    }
    script += &range(5, "10.77.0.100", "10.77.0.199", "dynamic");
    script += &range(6, "10.77.0.2", "10.77.0.9", "reserved");
    script += &address(7, "10.77.0.10", "eth0");
    script += &address(7, "10.77.0.5", "eth1");
    db.execute(AssertSqlSafe(script + more)).await.unwrap();
    url
}

fn uid(n: u32) -> String {
    format!("00000000-0000-0000-0000-{n:012}")
}

fn range(object: u32, first: &str, last: &str, purpose: &str) -> String {
    let (object, subnet) = (uid(object), uid(3));
    format!(
        "insert into ip_range values ('{object}', '{subnet}', '{purpose}', inetrange('{first}', '{last}', '[]'));"
    )
}

fn address(owner: u32, address: &str, purpose: &str) -> String {
    let (owner, subnet) = (uid(owner), uid(3));
    format!(
        "insert into address (subnet, address, owner, purpose) values ('{subnet}', '{address}', '{owner}', '{purpose}');"
    )
}

async fn next(store: &Store, name: &str) -> String {
    put(store, "IpAddress", name, json!({"subnet": "lab"})).await.unwrap();
    let object = store.get("IpAddress", Key::Name(name)).await.unwrap();
    let status: Value = serde_json::from_str(object.status.get()).unwrap();
    status["address"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn addresses_of_before_are_held_by_constraints_afterwards() {
    let url = old("").await;
    let store = open(&url, [7; 32]).await.unwrap();
    let mut db = PgConnection::connect(&url).await.unwrap();
    let rows = sqlx::query("select host(address), class from address order by address")
        .fetch_all(&mut db)
        .await
        .unwrap();
    let rows: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected = [("10.77.0.1", "gateway"), ("10.77.0.5", "deployment"), ("10.77.0.10", "deployment")];
    assert_eq!(rows, expected.map(|(address, class)| (address.to_owned(), class.to_owned())));
    assert_eq!(next(&store, "a").await, "10.77.0.11", "what is taken or in ranges is not free");
    for name in 12..100 {
        assert_eq!(next(&store, &format!("n{name}")).await, format!("10.77.0.{name}"));
    }
    assert_eq!(next(&store, "b").await, "10.77.0.200");
    let refused = put(&store, "IpAddress", "c", json!({"subnet": "lab", "address": "10.77.0.150"})).await;
    assert!(matches!(refused, Err(StoreError::Refused { .. })), "{refused:?}");
}

#[tokio::test]
async fn what_the_constraints_would_refuse_is_named_and_nothing_is_changed() {
    let other = |address: &str| address_of_db(address);
    let cases = [
        (
            other("10.77.0.150"),
            r#"Deployment "db" has 10.77.0.150, which IpRange "pool" leases to whoever asks"#,
        ),
        (
            other("10.77.0.255"),
            r#"Deployment "db" has 10.77.0.255, which nobody of Subnet "lab" (10.77.0.0/24) can have"#,
        ),
        (
            other("10.78.0.9"),
            r#"Deployment "db" has 10.78.0.9, which nobody of Subnet "lab" (10.77.0.0/24) can have"#,
        ),
        (other("10.77.0.1"), r#"Deployment "db" has 10.77.0.1, the gateway of Subnet "lab""#),
        (
            "update ip_range set span = '[10.77.0.100,10.77.1.9]' where purpose = 'dynamic';".to_owned(),
            r#"IpRange "pool" (10.77.0.100-10.77.1.9) ends outside of Subnet "lab" (10.77.0.0/24)"#,
        ),
        (
            "update ip_range set span = '[10.77.0.200,10.77.0.255]' where purpose = 'dynamic';".to_owned(),
            r#"IpRange "pool" (10.77.0.200-10.77.0.255) leases 10.77.0.255, which no client of Subnet "lab" (10.77.0.0/24) can have"#,
        ),
        (
            "update object set spec = '{\"gateway\": \"10.77.0.120\"}' where name = 'lab';".to_owned(),
            r#"the gateway 10.77.0.120 of Subnet "lab" is leased by IpRange "pool" to whoever asks"#,
        ),
    ];
    for (more, expected) in cases {
        let url = old(&more).await;
        let error = open(&url, [7; 32]).await.expect_err(expected);
        let StoreError::Before { found } = &error else { panic!("{error:?}") };
        assert_eq!(found, &[expected]);
        assert!(
            error.to_string().contains(expected) && error.to_string().contains("the version before"),
            "{error}"
        );
        let mut db = PgConnection::connect(&url).await.unwrap();
        let schema =
            sqlx::query("select max(version) from _sqlx_migrations").fetch_one(&mut db).await.unwrap();
        assert_eq!(schema.get::<i64, _>(0), BEFORE, "the version before goes on with it");
    }
    let both = format!("{}{}", other("10.77.0.150"), address(8, "10.77.0.0", "eth1"));
    let error = open(&old(&both).await, [7; 32]).await.expect_err("two");
    assert!(matches!(&error, StoreError::Before { found } if found.len() == 2), "all at once: {error}");
}

fn address_of_db(of: &str) -> String {
    address(8, of, "eth0")
}
