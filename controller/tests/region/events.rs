//! Events of the region: requests and their ends, for readers who see the object.

use crate::accounts::{issue, pools};
use crate::allocation::once;
use crate::support::{Client, Lab, driven_lab, lab};
use crate::watch::client_with;
use basalt_api::client::EventOptions;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

const EVENTS: &str = "/api/v1/events";

async fn told(client: &Client, query: &str) -> Vec<Value> {
    let page = client.get(&format!("{EVENTS}{query}")).await.json();
    page["items"].as_array().unwrap_or_else(|| panic!("no events: {page}")).clone()
}

fn said(event: &Value) -> String {
    ["kind", "name", "words"].map(|key| event[key].as_str().unwrap_or_default()).join(" ")
}

#[tokio::test]
async fn what_happens_to_objects_is_told_the_newest_first_and_page_by_page() {
    let lab = driven_lab().await;
    lab.api.declare("/api/v1/zones/a", "{}").await;
    let machine = r#"{"boot_macs":["52:54:00:00:00:01"],"commissioning":{"skip":true},
        "bmc":{"driver":"ipmi","address":"127.0.0.1","username":"admin","password":"secret"}}"#;
    lab.api.declare("/api/v1/machines/m", machine).await;
    lab.api.send("POST", "/api/v1/machines/m/operations", &[], r#"{"verb":"recommission"}"#).await;
    once("the machine has come to a phase", async || {
        let all = told(&lab.api, "?object=machine/m").await;
        all.iter().any(|it| it["sort"] == "phase" && it["actor"] == "region").then_some(())
    })
    .await;
    lab.api.send("DELETE", "/api/v1/zones/a", &[], "").await;
    let zones = told(&lab.api, "?kinds=zones").await;
    assert_eq!(
        zones.iter().map(said).collect::<Vec<_>>(),
        ["Zone a has left", "Zone a was asked to leave", "Zone a was declared"]
    );
    assert!(zones[1]["actor"].as_str().unwrap().starts_with("token "), "{zones:?}");
    assert_eq!(zones[0]["actor"], "region");
    let machines = told(&lab.api, "?kinds=machines&limit=1000").await;
    assert!(machines.iter().any(|it| said(it) == "Machine m recommission was asked for"), "{machines:?}");

    let (mut pages, mut ids, mut after) = (0, Vec::new(), String::new());
    loop {
        let page = lab.api.get(&format!("{EVENTS}?kinds=machines,zones&limit=2{after}")).await.json();
        ids.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|it| it["id"].as_str().unwrap().parse::<i64>().unwrap()),
        );
        pages += 1;
        match page["continue"].as_str() {
            Some(next) => after = format!("&continue={next}"),
            None => break,
        }
    }
    assert!(pages > 2 && ids.is_sorted_by(|a, b| a > b), "{pages} {ids:?}");
    assert_eq!(told(&lab.api, "?since=2100-01-01T00:00:00Z").await, Vec::<Value>::new());
    assert_eq!(lab.api.get(&format!("{EVENTS}?object=machine/nobody")).await.problem().1, "not_found");
    for wrong in ["?kinds=nope", "?continue=x", "?limit=0", "?object=nope/x"] {
        assert!(lab.api.get(&format!("{EVENTS}{wrong}")).await.status.is_client_error(), "{wrong}");
    }
}

#[tokio::test]
async fn who_sees_one_pool_is_told_of_its_machines_and_of_what_is_of_no_pool() {
    let lab = lab().await;
    pools(&lab.api).await;
    lab.api.declare("/api/v1/zones/a", "{}").await;
    let blue = Client::new(lab.region.address(), Some(issue(&lab, "blue", r#"{"role":"blue"}"#).await));
    let kinds = |events: &[Value]| {
        events
            .iter()
            .map(said)
            .map(|it| it.split(' ').take(2).collect::<Vec<_>>().join(" "))
            .collect::<BTreeSet<_>>()
    };
    let (all, seen) = (kinds(&told(&lab.api, "?limit=1000").await), kinds(&told(&blue, "?limit=1000").await));
    assert!(
        ["Machine red", "Machine blue", "Role blue", "Zone a"].iter().all(|it| all.contains(*it)),
        "{all:?}"
    );
    assert!(["Machine blue", "Zone a"].iter().all(|it| seen.contains(*it)), "{seen:?}");
    assert!(
        !seen.iter().any(|it| it == "Machine red"
            || it == "Deployment red"
            || it.starts_with("Role")
            || it.starts_with("ApiToken")),
        "{seen:?}"
    );
}

async fn followed(lab: &Lab, token: Option<String>) -> basalt_api::client::FollowedEvents {
    let options = EventOptions { kinds: vec!["machines".into(), "zones".into()], ..EventOptions::default() };
    client_with(lab, token).follow_events(&options)
}

#[tokio::test]
async fn who_follows_is_told_what_was_and_what_comes_and_nothing_that_is_hidden() {
    let lab = lab().await;
    pools(&lab.api).await;
    let token = issue(&lab, "blue", r#"{"role":"blue"}"#).await;
    let mut events = followed(&lab, Some(token)).await;
    let next = async |events: &mut basalt_api::client::FollowedEvents| {
        let event =
            tokio::time::timeout(Duration::from_secs(30), events.next()).await.expect("an event comes");
        let event = event.expect("an event");
        (event.name, event.words)
    };
    assert_eq!(next(&mut events).await, ("blue".to_owned(), "was declared".to_owned()));
    lab.api
        .send(
            "PATCH",
            "/api/v1/machines/red",
            &[("content-type", "application/merge-patch+json")],
            r#"{"description":"x"}"#,
        )
        .await;
    lab.api.declare("/api/v1/zones/new", "{}").await;
    assert_eq!(next(&mut events).await, ("new".to_owned(), "was declared".to_owned()));
    lab.api.declare("/api/v1/zones/newer", "{}").await;
    assert_eq!(next(&mut events).await, ("newer".to_owned(), "was declared".to_owned()));
}
