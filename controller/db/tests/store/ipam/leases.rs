//! Leases are facts: they are counted, and own nothing.

use super::{has, lease, new_subnet, refused, subnet};
use crate::common::{network, put, store};
use basalt_api::values::RackId;
use basalt_db::{Key, NewFact, SubnetUse};
use serde_json::json;
use std::collections::BTreeMap;

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

#[tokio::test]
async fn a_machine_s_leases_of_ipv4_and_ipv6_are_both_counted() {
    const LATER: i64 = 4_000_000_000_000;
    let store = store().await;
    network(&store).await;
    let (four, six) = (subnet(&store, "lab").await, new_subnet(&store, "six", "2001:db8::/64").await);
    for (name, subnet, start, end) in [
        ("pool", "lab", "10.77.0.100", "10.77.0.199"),
        ("pool6", "six", "2001:db8::100", "2001:db8::ffff:ffff"),
    ] {
        put(&store, "IpRange", name, json!({"subnet": subnet, "start": start, "end": end})).await.unwrap();
    }
    let mac = "52:54:00:00:00:01";
    put(&store, "Machine", "m1", crate::common::machine(mac)).await.unwrap();
    let rack = RackId::from(put(&store, "Rack", "r1", json!({})).await.unwrap().object.uid);
    let ipv6 =
        NewFact { kind: "lease:ipv6".to_owned(), ..lease(2, mac, six, "2001:db8::5555", LATER, false) };
    let facts = [lease(1, mac, four, "10.77.0.100", LATER, false), ipv6];
    store.store_facts(rack, "r1", uuid::Uuid::from_u128(1), &facts).await.unwrap();
    let uses = store.subnet_use(&[four.into(), six.into()]).await.unwrap();
    assert_eq!((uses[&four.into()].leases, uses[&six.into()].leases), (1, 1));
}
