//! Addresses: what the database refuses, how they are given out, and what holds after any history.

use crate::common::{network, open, put, store};
use crate::dice::Dice;
use basalt_api::values::{RackId, SubnetId, Timestamp, Uid};
use basalt_db::splice::Text;
use basalt_db::{
    AddressWish, Addressed, Batch, Deletion, Key, NewFact, NoJudge, Precondition, Put, Store, StoreError,
    SubnetUse,
};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

async fn subnet(store: &Store, name: &str) -> SubnetId {
    SubnetId::from(store.get("Subnet", Key::Name(name)).await.unwrap().uid)
}

async fn new_subnet(store: &Store, name: &str, cidr: &str) -> SubnetId {
    put(store, "Subnet", name, json!({"vlan": "default.0", "cidr": cidr})).await.unwrap();
    subnet(store, name).await
}

fn wish(subnet: SubnetId, owner: Uid, purpose: &str) -> AddressWish<'_> {
    AddressWish { subnet, owner, purpose, address: None, mac: None, hostname: None, machine_macs: &[] }
}

fn owned(text: &str) -> Addressed {
    Addressed::Owned(text.parse().unwrap())
}

async fn delete(store: &Store, kind: &str, name: &str) -> Deletion {
    store.request_deletion(kind, Key::Name(name), Precondition::None, false).await.unwrap()
}

/// The address in an IpAddress's status.
async fn has(store: &Store, name: &str) -> String {
    let object = store.get("IpAddress", Key::Name(name)).await.unwrap();
    let status: Value = serde_json::from_str(object.status.get()).unwrap();
    status["address"].as_str().unwrap_or_default().to_owned()
}

/// `pointer: message` of everything that is refused.
async fn refused(store: &Store, kind: &str, name: &str, spec: Value) -> Vec<String> {
    match put(store, kind, name, spec).await {
        Err(StoreError::Refused { errors }) => {
            assert!(errors.iter().all(|e| e.hint.is_some()), "{errors:?}");
            errors.into_iter().map(|e| format!("{}: {}", e.pointer, e.message)).collect()
        }
        other => panic!("{kind} {name}: {other:?}"),
    }
}

/// The gaps of a subnet, as the database keeps them.
async fn gaps(db: &mut PgConnection, subnet: SubnetId) -> Vec<(IpAddr, IpAddr)> {
    let rows = sqlx::query("select host(first), host(last) from free_span where subnet = $1 order by last")
        .bind(subnet.get())
        .fetch_all(db)
        .await
        .unwrap();
    let address = |row: &sqlx::postgres::PgRow, column: usize| row.get::<String, _>(column).parse().unwrap();
    rows.iter().map(|row| (address(row, 0), address(row, 1))).collect()
}

#[tokio::test]
async fn the_database_itself_refuses_what_would_be_wrong() {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    network(&store).await;
    let dynamic = json!({"subnet": "lab", "start": "10.77.0.100", "end": "10.77.0.199"});
    put(&store, "IpRange", "pool", dynamic).await.unwrap();
    let reserved = json!({"subnet": "lab", "start": "10.77.0.0", "end": "10.77.0.9", "purpose": "reserved"});
    put(&store, "IpRange", "kept", reserved).await.unwrap();
    put(&store, "IpAddress", "vip", json!({"subnet": "lab", "address": "10.77.0.20"})).await.unwrap();
    put(&store, "IpRange", "spare", json!({"subnet": "lab", "start": "10.77.0.210", "end": "10.77.0.211"}))
        .await
        .unwrap();
    put(&store, "Zone", "z", json!({})).await.unwrap();

    let mut db = PgConnection::connect(&url).await.unwrap();
    let own = |address: &str| {
        format!(
            "insert into address (subnet, address, owner, purpose)
             select s.uid, '{address}', z.uid, 'x' from object s, object z where s.name = 'lab' and z.name = 'z'"
        )
    };
    let range = |first: &str, last: &str, purpose: &str| {
        format!(
            "update ip_range set span = inetrange('{first}', '{last}', '[]'), purpose = '{purpose}'
                 where range = (select uid from object where name = 'spare')"
        )
    };
    let cases = [
        (own("10.77.0.20"), "address_pkey"),
        (own("10.77.0.1"), "address_pkey"),
        (own("10.77.0.0"), "address_span_owners"),
        (own("10.77.0.255"), "address_span_owners"),
        (own("10.77.0.100"), "address_span_owners"),
        (own("10.77.0.199"), "address_span_owners"),
        (own("10.77.1.20"), "address_span_owners"),
        (own("10.76.255.255"), "address_span_owners"),
        (own("fd00::1"), "address_span_owners"),
        (own("10.77.0.20/24"), "address_address_check"),
        (range("10.77.0.199", "10.77.0.205", "dynamic"), "ip_range_disjoint"),
        (range("10.77.0.9", "10.77.0.12", "reserved"), "ip_range_disjoint"),
        (range("10.77.0.15", "10.77.0.25", "dynamic"), "address_span_owners"),
        (range("10.77.0.250", "10.77.0.255", "dynamic"), "address_span_owners"),
        (range("10.77.0.250", "10.77.1.3", "reserved"), "address_span_ranges"),
        (
            "update ip_range set purpose = 'dynamic' where purpose = 'reserved'".to_owned(),
            "address_span_owners",
        ),
        (
            "update address set class = 'gateway' where class = 'static'".to_owned(),
            "address_gateway_is_the_subnet_s",
        ),
        (
            "update address set class = 'static' where class = 'gateway'".to_owned(),
            "address_gateway_is_the_subnet_s",
        ),
    ];
    for (statement, constraint) in cases {
        let error = db.execute(AssertSqlSafe(statement.clone())).await.expect_err(&statement);
        let found = error.as_database_error().and_then(|e| e.constraint()).map(str::to_owned);
        assert_eq!(found.as_deref(), Some(constraint), "{statement}: {error}");
    }
    for (statement, why) in [
        (own("10.77.0.2"), "an address of a reserved range can be asked for by name"),
        (range("10.77.0.15", "10.77.0.25", "reserved"), "what is owned can be reserved"),
    ] {
        db.execute(AssertSqlSafe(statement)).await.expect(why);
    }
}

#[tokio::test]
async fn what_stands_against_an_address_is_said_in_words() {
    let store = store().await;
    network(&store).await;
    put(&store, "IpRange", "pool", json!({"subnet": "lab", "start": "10.77.0.100", "end": "10.77.0.199"}))
        .await
        .unwrap();
    let vip = json!({"subnet": "lab", "address": "10.77.0.20", "mac": "52:54:00:00:00:01"});
    put(&store, "IpAddress", "vip", vip).await.unwrap();
    let address = |address: &str| json!({"subnet": "lab", "address": address});
    let range = |start: &str, end: &str| json!({"subnet": "lab", "start": start, "end": end});
    let lab = |gateway: &str| json!({"vlan": "default.0", "cidr": "10.77.0.0/24", "gateway": gateway});
    let cases = [
        (
            "IpAddress",
            "x",
            address("10.77.0.20"),
            "/address: 10.77.0.20 is the address of IpAddress \"vip\" already",
        ),
        (
            "IpAddress",
            "x",
            address("10.77.0.1"),
            "/address: 10.77.0.1 is the gateway of Subnet \"lab\" already",
        ),
        (
            "IpAddress",
            "x",
            address("10.77.0.150"),
            "/address: 10.77.0.150 is in 10.77.0.100-10.77.0.199 of IpRange \"pool\", which DHCP leases to whoever asks",
        ),
        (
            "IpAddress",
            "x",
            address("10.77.0.0"),
            "/address: 10.77.0.0 is the network address of 10.77.0.0/24",
        ),
        (
            "IpAddress",
            "x",
            address("10.77.0.255"),
            "/address: 10.77.0.255 is the broadcast address of 10.77.0.0/24",
        ),
        (
            "IpAddress",
            "x",
            address("10.78.0.1"),
            "/address: 10.78.0.1 is outside 10.77.0.0/24 of Subnet \"lab\"",
        ),
        ("IpAddress", "x", address("fd00::1"), "/address: fd00::1 is outside 10.77.0.0/24 of Subnet \"lab\""),
        (
            "IpAddress",
            "x",
            json!({"subnet": "lab", "mac": "52:54:00:00:00:01"}),
            "/mac: 52:54:00:00:00:01 has 10.77.0.20 of this subnet already: IpAddress \"vip\"",
        ),
        (
            "IpRange",
            "x",
            range("10.77.0.20", "10.77.0.30"),
            "/start: 10.77.0.20-10.77.0.30 holds 10.77.0.20, the address of IpAddress \"vip\"",
        ),
        (
            "IpRange",
            "x",
            range("10.77.0.1", "10.77.0.9"),
            "/start: 10.77.0.1-10.77.0.9 holds 10.77.0.1, the gateway of Subnet \"lab\"",
        ),
        (
            "IpRange",
            "x",
            range("10.77.0.250", "10.77.0.255"),
            "/end: 10.77.0.255 is the broadcast address of 10.77.0.0/24, and DHCP cannot lease it",
        ),
        (
            "Subnet",
            "lab",
            lab("10.77.0.20"),
            "/gateway: 10.77.0.20 is the address of IpAddress \"vip\" already",
        ),
        (
            "Subnet",
            "lab",
            lab("10.77.0.150"),
            "/gateway: 10.77.0.150 is in 10.77.0.100-10.77.0.199 of IpRange \"pool\", which DHCP leases to whoever asks",
        ),
    ];
    for (kind, name, spec, expected) in cases {
        assert_eq!(refused(&store, kind, name, spec.clone()).await, [expected], "{kind} {spec}");
    }
    let owner = put(&store, "Zone", "z", json!({})).await.unwrap().object.uid;
    let wish = AddressWish {
        address: "10.77.0.150".parse().ok(),
        ..wish(subnet(&store, "lab").await, owner, "eth0")
    };
    let Addressed::Unfit(why) = store.own_address(&wish).await.unwrap() else { panic!("given") };
    assert!(why.starts_with("10.77.0.150 is in 10.77.0.100-10.77.0.199"), "{why}");
}

#[tokio::test]
async fn an_ip_address_keeps_what_it_names_or_the_next_free_one() {
    let store = store().await;
    network(&store).await;
    let any = json!({"subnet": "lab"});
    let named = |address: &str| json!({"subnet": "lab", "address": address});
    let first = put(&store, "IpAddress", "a", any.clone()).await.unwrap();
    assert_eq!(first.object.spec.get(), any.to_string(), "the spec is as it was declared");
    assert_eq!(has(&store, "a").await, "10.77.0.2", "the gateway has the first one");
    put(&store, "IpAddress", "b", any.clone()).await.unwrap();
    assert_eq!(has(&store, "b").await, "10.77.0.3");

    put(&store, "IpAddress", "a", json!({"subnet": "lab", "hostname": "a"})).await.unwrap();
    assert_eq!(has(&store, "a").await, "10.77.0.2", "another change does not move it");
    put(&store, "IpAddress", "a", named("10.77.0.9")).await.unwrap();
    assert_eq!(has(&store, "a").await, "10.77.0.9");
    put(&store, "IpAddress", "a", any.clone()).await.unwrap();
    assert_eq!(has(&store, "a").await, "10.77.0.9", "it keeps the one that it named");
    let held = "/address: 10.77.0.3 is the address of IpAddress \"b\" already";
    assert_eq!(refused(&store, "IpAddress", "a", named("10.77.0.3")).await, [held]);
    assert_eq!(has(&store, "a").await, "10.77.0.9", "a refusal changes nothing");

    put(&store, "IpAddress", "c", any.clone()).await.unwrap();
    assert_eq!(has(&store, "c").await, "10.77.0.2", "what was left is free again");
    assert!(matches!(delete(&store, "IpAddress", "b").await, Deletion::Gone));
    put(&store, "IpAddress", "d", any).await.unwrap();
    assert_eq!(has(&store, "d").await, "10.77.0.3");

    let Deletion::Waits { waits_for, .. } = delete(&store, "Subnet", "lab").await else { panic!("gone") };
    let names: Vec<_> = waits_for.iter().map(|r| (r.name.as_str(), r.pointer.as_str())).collect();
    assert_eq!(names, [("a", "/subnet"), ("c", "/subnet"), ("d", "/subnet")]);
    for name in ["a", "c", "d"] {
        delete(&store, "IpAddress", name).await;
    }
    assert!(matches!(store.get("Subnet", Key::Name("lab")).await, Err(StoreError::NotFound { .. })));
}

/// Writes several IpAddresses of `lab` in one transaction.
async fn put_all(store: &Store, wishes: &[(String, Option<&str>)]) -> Result<(), StoreError> {
    let texts: Vec<Text> = wishes
        .iter()
        .map(|(_, address)| Text::parse(json!({"subnet": "lab", "address": address}).to_string()).unwrap())
        .collect();
    let first_status = json!({});
    let puts: Vec<Put<'_>> = wishes
        .iter()
        .zip(&texts)
        .map(|((name, _), spec)| Put {
            kind: basalt_api::Kind::find("IpAddress").unwrap(),
            key: Key::Name(name),
            spec,
            at: "",
            labels: None,
            manager: None,
            precondition: Precondition::None,
            adopt: false,
            first_status: &first_status,
        })
        .collect();
    store
        .write(&Batch { puts: &puts, prune: None, dry_run: false, judge: &NoJudge, claims: &[] })
        .await
        .map(drop)
}

#[tokio::test]
async fn addresses_of_one_batch_change_places_and_share_what_is_free() {
    let store = store().await;
    network(&store).await;
    let named = |n: &str, address| (n.to_owned(), Some(address));
    put_all(&store, &[named("a", "10.77.0.5"), named("b", "10.77.0.6")]).await.unwrap();
    put_all(&store, &[named("a", "10.77.0.6"), named("b", "10.77.0.5")]).await.unwrap();
    assert_eq!(
        (has(&store, "a").await.as_str(), has(&store, "b").await.as_str()),
        ("10.77.0.6", "10.77.0.5")
    );
    let twice = put_all(&store, &[named("c", "10.77.0.9"), named("d", "10.77.0.9")]).await.unwrap_err();
    assert!(twice.to_string().contains("10.77.0.9 is the address of IpAddress \"c\" already"), "{twice}");

    let many: Vec<_> = (0..251).map(|n| (format!("n{n}"), None)).collect();
    put_all(&store, &many).await.unwrap();
    let mut seen = BTreeSet::new();
    for (name, _) in &many {
        seen.insert(has(&store, name).await);
    }
    assert_eq!(seen.len(), 251, "each has its own");
    let full = refused(&store, "IpAddress", "z", json!({"subnet": "lab"})).await;
    assert_eq!(
        full,
        ["/address: Subnet \"lab\" has no free address: all of 10.77.0.0/24 is taken or in ranges"]
    );
    let unmanaged = json!({"vlan": "default.0", "cidr": "10.78.0.0/24", "managed": false});
    put(&store, "Subnet", "other", unmanaged).await.unwrap();
    let refusal = refused(&store, "IpAddress", "z", json!({"subnet": "other"})).await;
    assert_eq!(
        refusal,
        ["/address: Subnet \"other\" is not managed: no address of 10.78.0.0/24 is given out by itself"]
    );
    put(&store, "IpAddress", "z", json!({"subnet": "other", "address": "10.78.0.5"})).await.unwrap();
}

#[tokio::test]
async fn networks_without_addresses_of_their_own_and_of_ipv6_are_given_out_whole() {
    let store = store().await;
    network(&store).await;
    let owner = put(&store, "Zone", "z", json!({})).await.unwrap().object.uid;
    let all = async |name: &str, cidr: &str| {
        let subnet = new_subnet(&store, name, cidr).await;
        let mut given = Vec::new();
        for n in 0..5 {
            match store.own_address(&wish(subnet, owner, &n.to_string())).await.unwrap() {
                Addressed::Owned(address) => given.push(address.to_string()),
                other => {
                    assert_eq!(other, Addressed::Exhausted);
                    break;
                }
            }
        }
        given
    };
    assert_eq!(all("host", "10.1.0.9/32").await, ["10.1.0.9"]);
    assert_eq!(all("link", "10.1.1.0/31").await, ["10.1.1.0", "10.1.1.1"], "RFC 3021");
    assert_eq!(all("four", "10.1.2.0/30").await, ["10.1.2.1", "10.1.2.2"]);
    assert_eq!(all("last", "255.255.255.254/31").await, ["255.255.255.254", "255.255.255.255"]);
    assert_eq!(all("link6", "fd00::/127").await, ["fd00::", "fd00::1"], "RFC 6164");
    assert_eq!(all("top6", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127").await.len(), 2);
    assert_eq!(all("wide6", "fd01::/64").await, ["fd01::1", "fd01::2", "fd01::3", "fd01::4", "fd01::5"]);

    let wide = subnet(&store, "wide6").await;
    put(
        &store,
        "IpRange",
        "r6",
        json!({"subnet": "wide6", "start": "fd01::6", "end": "fd01::ffff:ffff:ffff"}),
    )
    .await
    .unwrap();
    assert_eq!(store.own_address(&wish(wide, owner, "x")).await.unwrap(), owned("fd01::1:0:0:0"));
    let uses = store.subnet_use(&[wide.into()]).await.unwrap();
    let SubnetUse { deployments, dynamic, free, .. } = uses[&wide.into()];
    assert_eq!((deployments, dynamic, free), (6, (1 << 48) - 6, (1 << 53) - 1), "more is not said");
    put(&store, "Subnet", "wide6", json!({"vlan": "default.0", "cidr": "fd01::/64", "gateway": "fe80::1"}))
        .await
        .unwrap();
    assert_eq!(
        store.subnet_use(&[wide.into()]).await.unwrap()[&wide.into()].gateways,
        0,
        "a link-local router has no address here"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_allocators_share_a_subnet_to_the_last_address() {
    let url = basalt_db::testing::database().await;
    let regions = [open(&url, [7; 32]).await.unwrap(), open(&url, [7; 32]).await.unwrap()];
    network(&regions[0]).await;
    let subnet = new_subnet(&regions[0], "wide", "10.80.0.0/22").await;
    let owner = put(&regions[0], "Zone", "z", json!({})).await.unwrap().object.uid;
    let mut allocators = Vec::new();
    for n in 0..64 {
        let store = regions[n % 2].clone();
        allocators.push(tokio::spawn(async move {
            let mut given = Vec::new();
            for k in 0.. {
                let purpose = format!("{n}-{k}");
                match store.own_address(&wish(subnet, owner, &purpose)).await.expect("no failure") {
                    Addressed::Owned(address) => given.push(address),
                    Addressed::Exhausted => break,
                    other => panic!("{other:?}"),
                }
            }
            given
        }));
    }
    let mut given = Vec::new();
    for allocator in allocators {
        given.extend(allocator.await.unwrap());
    }
    assert_eq!(given.len(), 1022, "every address, and none twice");
    let distinct: BTreeSet<_> = given.into_iter().collect();
    assert_eq!(distinct.len(), 1022);
    assert_eq!(distinct.first().unwrap().to_string(), "10.80.0.1");
    assert_eq!(distinct.last().unwrap().to_string(), "10.80.3.254");
    let full = refused(&regions[0], "IpAddress", "late", json!({"subnet": "wide"})).await;
    assert_eq!(full.len(), 1, "{full:?}");
}

/// What `own_address` does, as one function: EXPLAIN counts what its triggers touch, too.
const TAKE: &str = "create function pg_temp.take(s uuid, o uuid, p text) returns inet language plpgsql as $$
    declare a inet;
    begin
      perform from subnet_cidr where subnet = s for update;
      select next_free into a from next_free(s, 1);
      insert into address (subnet, address, owner, purpose) values (s, a, o, p);
      return a;
    end $$";

/// Buffers that taking the next free address touches.
async fn buffers(db: &mut PgConnection, subnet: SubnetId, owner: Uid, purpose: &str) -> i64 {
    let explain = format!(
        "explain (analyze, buffers, format json) select pg_temp.take('{}', '{owner}', '{purpose}')",
        subnet.get()
    );
    let row = db.fetch_one(AssertSqlSafe(explain)).await.unwrap();
    let plan: Value = row.get(0);
    let count = |what: &str| plan[0]["Plan"][what].as_i64().unwrap();
    count("Shared Hit Blocks") + count("Shared Read Blocks")
}

#[tokio::test]
async fn the_last_address_of_a_slash_16_costs_what_the_first_did() {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    network(&store).await;
    let subnet = new_subnet(&store, "huge", "10.90.0.0/16").await;
    let owner = put(&store, "Zone", "z", json!({})).await.unwrap().object.uid;
    let mut db = PgConnection::connect(&url).await.unwrap();
    db.execute(TAKE).await.unwrap();
    for n in 0..10 {
        buffers(&mut db, subnet, owner, &format!("warm-{n}")).await;
    }
    let first = buffers(&mut db, subnet, owner, "first").await;
    // Many at once, as an apply has it, and then one at a time, each in a transaction of its own, as regions do it.
    let fill = format!(
        "do $$ begin
           for n in 1..60 loop
             insert into address (subnet, address, owner, purpose)
             select '{0}', a, '{owner}', host(a) from next_free('{0}', 1024) a;
             commit;
           end loop;
           for n in 1..65534 - 60 * 1024 - 12 loop
             perform pg_temp.take('{0}', '{owner}', n::text);
             commit;
           end loop;
         end $$",
        subnet.get()
    );
    db.execute(AssertSqlSafe(fill)).await.unwrap();
    let last = buffers(&mut db, subnet, owner, "last").await;
    assert!(gaps(&mut db, subnet).await.is_empty());
    assert_eq!(store.own_address(&wish(subnet, owner, "none")).await.unwrap(), Addressed::Exhausted);
    eprintln!("{first} buffers for the first, {last} for the last of 65534");
    assert!(
        last < first + 50,
        "the trees are higher, and nothing is walked through: {first} buffers, then {last}"
    );

    // Full of holes: every second address of a quarter is free.
    let holes = format!(
        "delete from address where subnet = '{}' and host(address)::inet < '10.90.64.0' and (address - '10.90.0.0') % 2 = 0",
        subnet.get()
    );
    db.execute(AssertSqlSafe(holes)).await.unwrap();
    assert_eq!(gaps(&mut db, subnet).await.len(), 8191);
    // What was deleted is cleaned up by whoever first comes by.
    for n in 0..10 {
        buffers(&mut db, subnet, owner, &format!("warm-hole-{n}")).await;
    }
    let hole = buffers(&mut db, subnet, owner, "hole").await;
    assert!(hole < first + 50, "{first} buffers, then {hole}");
}

#[tokio::test]
async fn an_interface_has_the_address_that_an_ip_address_keeps_for_its_mac() {
    let store = store().await;
    network(&store).await;
    let lab = subnet(&store, "lab").await;
    let macs = ["52:54:00:00:00:01".to_owned(), "52:54:00:00:00:02".to_owned()];
    for (name, address, mac) in [("a", "10.77.0.20", &macs[0]), ("b", "10.77.0.30", &macs[1])] {
        put(&store, "IpAddress", name, json!({"subnet": "lab", "address": address, "mac": mac}))
            .await
            .unwrap();
    }
    let owner = put(&store, "Zone", "z", json!({})).await.unwrap().object.uid;
    let other = put(&store, "Zone", "other", json!({})).await.unwrap().object.uid;
    let of_its_mac = AddressWish { mac: Some(&macs[0]), machine_macs: &macs, ..wish(lab, owner, "eth0") };
    for _ in 0..2 {
        assert_eq!(store.own_address(&of_its_mac).await.unwrap(), owned("10.77.0.20"));
    }
    let named = AddressWish { address: "10.77.0.30".parse().ok(), purpose: "eth1", ..of_its_mac };
    assert_eq!(
        store.own_address(&named).await.unwrap(),
        owned("10.77.0.30"),
        "kept for the machine's other MAC"
    );
    let stranger = AddressWish { machine_macs: &[], mac: None, owner: other, ..named };
    assert_eq!(store.own_address(&stranger).await.unwrap(), Addressed::HeldBy("b".to_owned()));

    let seen = store.addresses().await.unwrap();
    let of = |uid: Uid| {
        let theirs = seen.iter().filter(move |address| address.owner == uid);
        theirs.map(|it| (it.purpose.as_str(), it.address.to_string(), it.mac.is_some())).collect::<Vec<_>>()
    };
    let expected = [("eth0", "10.77.0.20".to_owned(), false), ("eth1", "10.77.0.30".to_owned(), false)];
    assert_eq!(of(owner), expected, "DHCP's reservation stays the IpAddress's");
    let uses = store.subnet_use(&[lab.into()]).await.unwrap()[&lab.into()];
    assert_eq!((uses.ip_addresses, uses.deployments), (2, 0), "nothing is counted twice");

    // The IpAddress goes; the machine has its address still, and now it is the deployment's own.
    delete(&store, "IpAddress", "a").await;
    put(&store, "IpAddress", "c", json!({"subnet": "lab"})).await.unwrap();
    assert_eq!(store.own_address(&of_its_mac).await.unwrap(), owned("10.77.0.20"));
    assert_eq!(store.subnet_use(&[lab.into()]).await.unwrap()[&lab.into()].deployments, 1);
    store.release_addresses(owner, &[]).await.unwrap();
    assert!(store.addresses().await.unwrap().iter().all(|address| address.owner != owner));
}

#[tokio::test]
async fn a_rack_s_own_address_is_given_to_nobody_who_does_not_name_it() {
    let store = store().await;
    network(&store).await;
    let lab = subnet(&store, "lab").await;
    let rack = put(&store, "Rack", "r1", json!({})).await.unwrap().object.uid;
    let hello = async |addresses: &[&str]| {
        let body = json!({"addresses": addresses});
        let hello = NewFact {
            kind: "hello".to_owned(),
            object: Some(rack),
            mac: None,
            body,
            ..lease(0, "", lab, "", 0, false)
        };
        store.store_own_fact(&hello).await.unwrap();
    };
    hello(&["127.0.0.1/8", "10.77.0.2/24", "10.77.0.4/24", "10.77.0.1/24", "fe80::1/64", "nothing"]).await;
    let uses = store.subnet_use(&[lab.into()]).await.unwrap()[&lab.into()];
    assert_eq!((uses.racks, uses.gateways, uses.free), (2, 1, 251), "the gateway is counted as one");
    for (name, expected) in [("a", "10.77.0.3"), ("b", "10.77.0.5")] {
        put(&store, "IpAddress", name, json!({"subnet": "lab"})).await.unwrap();
        assert_eq!(has(&store, name).await, expected);
    }
    put(&store, "IpAddress", "rack", json!({"subnet": "lab", "address": "10.77.0.4"})).await.unwrap();
    let uses = store.subnet_use(&[lab.into()]).await.unwrap()[&lab.into()];
    assert_eq!((uses.racks, uses.ip_addresses, uses.free), (1, 3, 249));
    hello(&["10.77.0.9/24"]).await;
    put(&store, "IpAddress", "c", json!({"subnet": "lab"})).await.unwrap();
    assert_eq!(has(&store, "c").await, "10.77.0.2", "the rack has moved");
}

/// A fact as a rack delivers it.
fn lease(seq: u64, mac: &str, subnet: SubnetId, address: &str, expires: i64, released: bool) -> NewFact {
    NewFact {
        seq,
        object: None,
        mac: Some(mac.to_owned()),
        kind: "lease".to_owned(),
        step_key: None,
        attempt: None,
        body: json!({"address": address, "hostname": "", "expires_unix_ms": expires, "released": released,
                     "subnet_uid": subnet.to_string()}),
        observed_at: Timestamp::UNIX_EPOCH,
        wakes: true,
    }
}

#[tokio::test]
async fn a_lease_is_counted_while_it_lasts_and_never_frees_what_is_somebody_s() {
    const LATER: i64 = 4_000_000_000_000;
    let store = store().await;
    network(&store).await;
    let lab = subnet(&store, "lab").await;
    put(&store, "IpRange", "pool", json!({"subnet": "lab", "start": "10.77.0.100", "end": "10.77.0.199"}))
        .await
        .unwrap();
    put(
        &store,
        "IpRange",
        "kept",
        json!({"subnet": "lab", "start": "10.77.0.2", "end": "10.77.0.9", "purpose": "reserved"}),
    )
    .await
    .unwrap();
    let macs = ["52:54:00:00:00:01", "52:54:00:00:00:02"];
    for (name, mac) in ["m1", "m2"].into_iter().zip(macs) {
        put(&store, "Machine", name, crate::common::machine(mac)).await.unwrap();
    }
    put(&store, "IpAddress", "a", json!({"subnet": "lab", "address": "10.77.0.5", "mac": macs[0]}))
        .await
        .unwrap();
    let rack = RackId::from(put(&store, "Rack", "r1", json!({})).await.unwrap().object.uid);
    let spool = uuid::Uuid::from_u128(1);
    let seen = async |facts: &[NewFact]| {
        store.store_facts(rack, "r1", spool, facts).await.unwrap();
        let of = store.subnet_use(&[lab.into()]).await.unwrap()[&lab.into()];
        assert_eq!(of.ip_addresses, 1, "the reservation is there");
        assert_eq!(has(&store, "a").await, "10.77.0.5");
        assert_eq!(
            refused(&store, "IpAddress", "b", json!({"subnet": "lab", "address": "10.77.0.5"})).await.len(),
            1
        );
        of.leases
    };
    assert_eq!(
        seen(&[lease(1, macs[0], lab, "10.77.0.5", LATER, false)]).await,
        0,
        "it is no lease of the pool"
    );
    assert_eq!(seen(&[lease(2, macs[1], lab, "10.77.0.100", LATER, false)]).await, 1);
    assert_eq!(seen(&[lease(3, macs[0], lab, "10.77.0.5", LATER, true)]).await, 1);
    assert_eq!(seen(&[lease(4, macs[0], lab, "10.77.0.5", 1, false)]).await, 1, "it ran out");
    assert_eq!(seen(&[lease(5, macs[1], lab, "10.77.0.5", LATER, true)]).await, 0, "another client's, too");
    assert_eq!(
        seen(&[lease(6, macs[1], lab, "no address", LATER, false)]).await,
        0,
        "a rack may say anything"
    );
    assert_eq!(seen(&[lease(7, macs[1], lab, "10.77.0.199", LATER, false)]).await, 1);

    let uses = store.subnet_use(&[lab.into()]).await.unwrap()[&lab.into()];
    let expected = SubnetUse {
        gateways: 1,
        ip_addresses: 1,
        deployments: 0,
        racks: 0,
        leases: 1,
        dynamic: 100,
        reserved: 8,
        free: 254 - 100 - 8 - 1,
    };
    assert_eq!(uses, expected);
    let range = async |name: &str| store.get("IpRange", Key::Name(name)).await.unwrap().uid;
    let (pool, kept) = (range("pool").await, range("kept").await);
    let used = store.range_use(&[pool, kept]).await.unwrap().into_iter().map(|(uid, of)| (uid, of.used));
    assert_eq!(used.collect::<BTreeMap<_, _>>(), BTreeMap::from([(pool, 1), (kept, 1)]));
}

/// What a subnet 10.99.0.0/27 should hold, by the last byte.
#[derive(Default, Debug)]
struct World {
    gateway: Option<u8>,
    /// By name.
    addresses: BTreeMap<String, u8>,
    /// By name: first, last, whether dynamic.
    ranges: BTreeMap<String, (u8, u8, bool)>,
}

impl World {
    fn ip(byte: u8) -> String {
        Ipv4Addr::new(10, 99, 0, byte).to_string()
    }

    fn range_of(&self, byte: u8) -> Option<&(u8, u8, bool)> {
        self.ranges.values().find(|(first, last, _)| (*first..=*last).contains(&byte))
    }

    fn owner(&self, byte: u8) -> Option<&str> {
        let gateway = (self.gateway == Some(byte)).then_some("gateway");
        gateway.or_else(|| self.addresses.iter().find(|(_, b)| **b == byte).map(|(name, _)| name.as_str()))
    }

    fn free(&self) -> impl Iterator<Item = u8> {
        (1..31).filter(|byte| self.owner(*byte).is_none() && self.range_of(*byte).is_none())
    }

    /// Whether `who` can have that address.
    fn can_have(&self, who: &str, byte: u8) -> bool {
        (1..31).contains(&byte)
            && self.owner(byte).is_none_or(|owner| owner == who)
            && self.range_of(byte).is_none_or(|(_, _, dynamic)| !dynamic)
    }

    fn can_be(&self, name: &str, range: (u8, u8, bool)) -> bool {
        let (first, last, dynamic) = range;
        let apart = |(other, (f, l, _)): (&String, &(u8, u8, bool))| other == name || last < *f || *l < first;
        let mut bytes = first..=last;
        first <= last
            && last < 32
            && self.ranges.iter().all(apart)
            && (!dynamic || bytes.all(|byte| (1..31).contains(&byte) && self.owner(byte).is_none()))
    }
}

/// One random change, in the store and in the world; both do it, or neither.
async fn change(store: &Store, world: &mut World, dice: &mut Dice) {
    let name = |dice: &mut Dice| format!("n{}", dice.roll(12));
    let byte = |dice: &mut Dice| u8::try_from(dice.roll(34)).unwrap();
    let ok = |result: Result<_, StoreError>| match result {
        Ok(_) => true,
        Err(StoreError::Refused { .. }) => false,
        Err(other) => panic!("{other:?}"),
    };
    match dice.roll(8) {
        0..=2 => {
            let (who, free) = (name(dice), world.free().next());
            let stored = ok(put(store, "IpAddress", &who, json!({"subnet": "lab"})).await);
            match (world.addresses.get(&who), free) {
                (None, None) => assert!(!stored, "{who}: nothing is free: {world:?}"),
                (had, free) => {
                    let expected = had.copied().or(free).unwrap();
                    assert!(stored);
                    assert_eq!(has(store, &who).await, World::ip(expected), "{who}: {world:?}");
                    world.addresses.insert(who, expected);
                }
            }
        }
        3 => {
            let (who, byte) = (name(dice), byte(dice));
            let spec = json!({"subnet": "lab", "address": World::ip(byte)});
            let stored = ok(put(store, "IpAddress", &who, spec).await);
            assert_eq!(stored, world.can_have(&who, byte), "{who} wants {byte}: {world:?}");
            if stored {
                world.addresses.insert(who, byte);
            }
        }
        4 => {
            let who = name(dice);
            if world.addresses.remove(&who).is_some() {
                delete(store, "IpAddress", &who).await;
            }
        }
        5 => {
            let (which, first) = (format!("r{}", dice.roll(4)), byte(dice));
            let range = (first, first.saturating_add(u8::try_from(dice.roll(8)).unwrap()), dice.roll(2) == 0);
            let purpose = if range.2 { "dynamic" } else { "reserved" };
            let spec = json!({"subnet": "lab", "start": World::ip(range.0), "end": World::ip(range.1), "purpose": purpose});
            let stored = ok(put(store, "IpRange", &which, spec).await);
            assert_eq!(stored, world.can_be(&which, range), "{which} {range:?}: {world:?}");
            if stored {
                world.ranges.insert(which, range);
            }
        }
        6 => {
            let which = format!("r{}", dice.roll(4));
            if world.ranges.remove(&which).is_some() {
                delete(store, "IpRange", &which).await;
            }
        }
        _ => {
            let byte = Some(byte(dice)).filter(|_| dice.roll(3) > 0);
            let mut spec = json!({"vlan": "default.0", "cidr": "10.99.0.0/27"});
            if let Some(byte) = byte {
                spec["gateway"] = json!(World::ip(byte));
            }
            // Outside of the network it would be refused before it came to the store.
            let fits = byte.is_none_or(|byte| (1..31).contains(&byte));
            if fits {
                let stored = ok(put(store, "Subnet", "lab", spec).await);
                assert_eq!(
                    stored,
                    byte.is_none_or(|byte| world.can_have("gateway", byte)),
                    "{byte:?}: {world:?}"
                );
                if stored {
                    world.gateway = byte;
                }
            }
        }
    }
}

#[tokio::test]
async fn whatever_happens_every_usable_address_is_free_or_taken_and_never_both() {
    for seed in 1..=4 {
        let url = basalt_db::testing::database().await;
        let store = open(&url, [7; 32]).await.unwrap();
        put(&store, "Fabric", "default", json!({})).await.unwrap();
        put(&store, "Vlan", "default.0", json!({"fabric": "default", "vid": 0})).await.unwrap();
        let lab = new_subnet(&store, "lab", "10.99.0.0/27").await;
        let mut db = PgConnection::connect(&url).await.unwrap();
        let (mut world, mut dice) = (World::default(), Dice(seed));
        let mut most = (0, 0);
        for step in 0..250 {
            change(&store, &mut world, &mut dice).await;
            most = (most.0.max(world.addresses.len()), most.1.max(world.ranges.len()));
            let mut expected: Vec<(u8, u8)> = Vec::new();
            for byte in world.free() {
                match expected.last_mut() {
                    Some((_, last)) if *last + 1 == byte => *last = byte,
                    _ => expected.push((byte, byte)),
                }
            }
            let ip = |byte: u8| IpAddr::from(Ipv4Addr::new(10, 99, 0, byte));
            let expected: Vec<_> = expected.into_iter().map(|(f, l)| (ip(f), ip(l))).collect();
            assert_eq!(gaps(&mut db, lab).await, expected, "seed {seed}, step {step}: {world:?}");
            let taken: BTreeSet<String> =
                store.addresses().await.unwrap().into_iter().map(|a| a.address.to_string()).collect();
            let ours = world.addresses.values().copied().chain(world.gateway).map(World::ip);
            assert_eq!(taken, ours.collect(), "seed {seed}, step {step}");
        }
        assert!(most.0 > 5 && most.1 > 1, "the history did something: {most:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_and_an_address_that_want_the_same_place_at_once_never_both_get_it() {
    let url = basalt_db::testing::database().await;
    let regions = [open(&url, [7; 32]).await.unwrap(), open(&url, [7; 32]).await.unwrap()];
    network(&regions[0]).await;
    let (mut ranges, mut addresses) = (0, 0);
    for n in 0..20 {
        let at = format!("10.77.0.{}", 10 + n);
        let range = json!({"subnet": "lab", "start": at, "end": at});
        let address = json!({"subnet": "lab", "address": at});
        let name = format!("x{n}");
        let (range, address) = tokio::join!(
            put(&regions[0], "IpRange", &name, range),
            put(&regions[1], "IpAddress", &name, address)
        );
        assert!(range.is_ok() != address.is_ok(), "{at}: {range:?} {address:?}");
        ranges += i32::from(range.is_ok());
        addresses += i32::from(address.is_ok());
    }
    assert_eq!(ranges + addresses, 20);
}
