//! A watch that moves from one region to another one on the same database.

use crate::support::{Lab, lab, region_beside};
use crate::watch::{of_zones, short, told, zone};
use basalt_api::client::{Client, ClientConfig, WatchOptions};
use basalt_api::watch::What;
use basalt_db::testing::churn::Dice;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use tokio::sync::watch;

const WRITERS: usize = 8;
const ZONES: usize = 25;

fn client(lab: &Lab, regions: &[SocketAddr]) -> Client {
    let endpoints = regions.iter().map(|address| format!("http://{address}")).collect();
    Client::new(&ClientConfig { endpoints, token: lab.api.token.clone(), ..ClientConfig::default() }).unwrap()
}

/// Writers that each declare zones at a region, one after the other. They write the second half when `go_on` allows it.
fn write(api: &crate::support::Client, go_on: &watch::Receiver<bool>) -> tokio::task::JoinSet<()> {
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (api, mut go_on) = (api.clone(), go_on.clone());
        writers.spawn(async move {
            for number in 0..ZONES {
                if number == ZONES / 2 {
                    go_on.wait_for(|go_on| *go_on).await.expect("a reader");
                }
                api.declare(&format!("/api/v1/zones/w{writer}-{number}"), "{}").await;
            }
        });
    }
    writers
}

/// Checks that every zone came once, and those of one writer in their order.
fn each_once(told: &[String]) {
    let distinct: BTreeSet<&String> = told.iter().collect();
    assert_eq!((distinct.len(), told.len()), (WRITERS * ZONES, WRITERS * ZONES), "{told:?}");
    for writer in 0..WRITERS {
        let start = format!("put w{writer}-");
        let theirs: Vec<_> = told.iter().filter(|event| event.starts_with(&start)).cloned().collect();
        let order: Vec<_> = (0..ZONES).map(|number| format!("{start}{number} 1")).collect();
        assert_eq!(theirs, order);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_its_region_cuts_goes_on_at_the_other_one_with_everything_once() {
    let lab = lab().await;
    let (other, dir) = region_beside(&lab).await;
    let client = client(&lab, &[lab.region.address(), other.address()]);
    let (_, since) = client.list_to_watch(zone(), &BTreeMap::new()).await.unwrap();
    let mut watch = client.watch(of_zones(since));
    let at_the_other = crate::support::Client::new(other.address(), lab.api.token.clone());
    // A slow reader would have everything in its socket before its region stops, so some zones are written only after the cut.
    let (cut, was_cut) = watch::channel(false);
    let mut writers = write(&at_the_other, &was_cut);
    let mut events = Vec::new();
    let (mut first, mut cuts) = (Some(lab.region), 0);
    while events.len() < WRITERS * ZONES {
        let event = told(&mut watch).await;
        match event.what {
            What::Cut(_) => {
                cuts += 1;
                cut.send_replace(true);
            }
            _ => events.push(short(&event)),
        }
        if events.len() == WRITERS * ZONES / 4
            && let Some(region) = first.take()
        {
            tokio::spawn(region.stop());
        }
    }
    while let Some(written) = writers.join_next().await {
        written.expect("a writer");
    }
    assert!(cuts >= 1 && watch.resumed() >= 1, "cut {cuts} times, resumed {} times", watch.resumed());
    each_once(&events);
    at_the_other.declare("/api/v1/zones/end", "{}").await;
    assert_eq!(short(&told(&mut watch).await), "put end 1", "and nothing else comes");
    other.stop().await;
    drop(dir);
}

/// The other region may be behind or ahead. It must neither skip nor repeat an event.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_back_and_forth_between_regions_is_told_everything_once() {
    let lab = lab().await;
    let (other, dir) = region_beside(&lab).await;
    let clients = [client(&lab, &[lab.region.address()]), client(&lab, &[other.address()])];
    let (_, mut since) = clients[0].list_to_watch(zone(), &BTreeMap::new()).await.unwrap();
    let mut writers = write(&lab.api, &watch::channel(true).1);
    let mut dice = Dice::new(7);
    let (mut events, mut turns) = (Vec::new(), 0);
    while events.len() < WRITERS * ZONES {
        let mut watch = clients[turns % 2].watch(WatchOptions { since, ..of_zones(None) });
        for _ in 0..=dice.below(6) {
            if events.len() < WRITERS * ZONES {
                events.push(short(&told(&mut watch).await));
            }
        }
        since = watch.position().map(str::to_owned);
        turns += 1;
    }
    while let Some(written) = writers.join_next().await {
        written.expect("a writer");
    }
    assert!(turns > 20, "{turns} turns");
    each_once(&events);
    other.stop().await;
    drop(dir);
}
