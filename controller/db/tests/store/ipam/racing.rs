//! Many callers want addresses at the same time, through two regions.

use super::{new_subnet, refused, wish};
use crate::common::{network, open, put};
use basalt_api::values::{SubnetId, Uid};
use basalt_db::{Addressed, Store};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::IpAddr;

const ALLOCATORS: usize = 64;

async fn regions() -> [Store; 2] {
    let url = basalt_db::testing::database().await;
    let regions = [open(&url, [7; 32]).await.unwrap(), open(&url, [7; 32]).await.unwrap()];
    network(&regions[0]).await;
    regions
}

/// The addresses that allocators at both regions get, each up to `most`. None may come twice.
async fn share(regions: &[Store; 2], subnet: SubnetId, owner: Uid, most: usize) -> BTreeSet<IpAddr> {
    let mut allocators = Vec::new();
    for n in 0..ALLOCATORS {
        let store = regions[n % 2].clone();
        allocators.push(tokio::spawn(async move {
            let mut given = Vec::new();
            for k in 0..most {
                let purpose = format!("{n}-{k}");
                match store.own_address(&wish(subnet, owner, &purpose)).await.expect("no failure") {
                    Addressed::Owned(address) => given.push(address),
                    Addressed::Refused(_) => break,
                }
            }
            given
        }));
    }
    let mut given = Vec::new();
    for allocator in allocators {
        given.extend(allocator.await.unwrap());
    }
    let distinct: BTreeSet<_> = given.iter().copied().collect();
    assert_eq!(distinct.len(), given.len(), "none twice");
    distinct
}

/// The first and the last address.
fn ends(addresses: &BTreeSet<IpAddr>) -> [String; 2] {
    [addresses.first(), addresses.last()].map(|end| end.map(ToString::to_string).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_allocators_share_a_subnet_to_the_last_address() {
    let regions = regions().await;
    let owner = put(&regions[0], "Zone", "z", json!({})).await.unwrap().object.uid;
    // In IPv6 the first address is the subnet-router anycast address, and the last one is an ordinary address.
    for (name, cidr, count, first, last) in [
        ("wide", "10.80.0.0/22", 1022, "10.80.0.1", "10.80.3.254"),
        ("small6", "fd00:80::/120", 255, "fd00:80::1", "fd00:80::ff"),
    ] {
        let subnet = new_subnet(&regions[0], name, cidr).await;
        let given = share(&regions, subnet, owner, usize::MAX).await;
        assert_eq!((given.len(), ends(&given)), (count, [first, last].map(str::to_owned)), "{cidr}");
        let full = refused(&regions[0], "IpAddress", "late", json!({"subnet": name})).await;
        assert_eq!(full.len(), 1, "{full:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_allocators_of_a_slash_64_are_never_sent_away() {
    let regions = regions().await;
    let owner = put(&regions[0], "Zone", "z", json!({})).await.unwrap().object.uid;
    let subnet = new_subnet(&regions[0], "wide6", "fd00:64::/64").await;
    let given = share(&regions, subnet, owner, 8).await;
    assert_eq!((given.len(), ends(&given)), (512, ["fd00:64::1", "fd00:64::200"].map(str::to_owned)));
    // Free addresses are found on both sides of a dynamic range.
    let range = json!({"subnet": "wide6", "start": "fd00:64::210", "end": "fd00:64::ffff:ffff"});
    put(&regions[0], "IpRange", "pool", range).await.unwrap();
    let other = put(&regions[0], "Zone", "other", json!({})).await.unwrap().object.uid;
    let given = share(&regions, subnet, other, 1).await;
    assert_eq!((given.len(), ends(&given)), (64, ["fd00:64::201", "fd00:64::1:0:30"].map(str::to_owned)));
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
