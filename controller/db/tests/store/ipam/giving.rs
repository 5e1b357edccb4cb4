//! Giving addresses: declared ones, and the next free one, in networks of every size.

use super::{delete, has, new_subnet, owned, refused, subnet, wish};
use crate::common::{network, put, store};
use basalt_db::{Addressed, Deletion, Key, Store, StoreError, SubnetUse};
use serde_json::json;
use std::collections::BTreeSet;

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
    let spec = |address: &Option<&str>| json!({"subnet": "lab", "address": address});
    let specs: Vec<_> = wishes.iter().map(|(name, address)| (name.as_str(), spec(address))).collect();
    super::put_all(store, "IpAddress", &specs).await
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
                    assert!(matches!(other, Addressed::Refused(_)), "{other:?}");
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
