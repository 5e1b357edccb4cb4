//! Runs of clients: a later run adopts a creation that was cut off, and adopts no other object.

use crate::accounts::issue;
use crate::support::{Answer, Client, Lab, lab};
use basalt_db::testing::clock::Hand;
use serde_json::json;

const FIRST: &str = "0197d3c4-5f6a-7b8c-9d0e-000000000001";
const SECOND: &str = "0197d3c4-5f6a-7b8c-9d0e-000000000002";
const THIRD: &str = "0197d3c4-5f6a-7b8c-9d0e-000000000003";
const ZONE: &str = "/api/v1/zones/row-1";

/// Creates the zone in a run, as Terraform's provider does.
async fn create(client: &Client, run: &str, description: &str) -> Answer {
    let headers = [("x-basalt-run", run), ("if-none-match", "*"), ("x-basalt-manager", "terraform")];
    let body = json!({"spec": {"description": description}}).to_string();
    client.send("PUT", ZONE, &headers, body).await
}

async fn report(client: &Client, run: &str, body: serde_json::Value) {
    let answer = client.send("POST", &format!("/api/v1/runs/{run}"), &[], body.to_string()).await;
    assert_eq!(answer.status, 204, "{answer:?}");
}

fn uid(answer: &Answer) -> String {
    answer.json()["metadata"]["uid"].as_str().expect("a uid").to_owned()
}

/// That it is refused, and never becomes free.
fn exists(answer: &Answer) {
    assert_eq!((answer.problem().0, answer.problem().1.as_str()), (412, "exists"));
    assert_eq!(answer.json().get("retry_after"), None, "{}", answer.text());
}

/// As if so many seconds had passed.
async fn pass(lab: &Lab, seconds: u32) {
    let later = format!("update run set renewed_at = renewed_at - interval '{seconds} s'");
    Hand::on(&lab.url).await.run(&later).await;
}

#[tokio::test]
async fn a_run_takes_up_a_creation_whose_run_has_ended_or_is_not_renewed() {
    let lab = lab().await;
    let made = create(&lab.api, FIRST, "a").await;
    assert_eq!(made.status, 201);
    let again = create(&lab.api, FIRST, "a").await;
    assert_eq!(
        (again.status.as_u16(), uid(&again)),
        (200, uid(&made)),
        "a repeated request is the same creation"
    );

    let other = create(&lab.api, SECOND, "a").await;
    assert_eq!(other.problem().1, "exists");
    let free_in = other.json()["retry_after"].as_u64().expect("it says when");
    assert!((1..=30).contains(&free_in), "{free_in}");
    pass(&lab, 20).await;
    report(&lab.api, FIRST, json!({})).await;
    pass(&lab, 20).await;
    assert_eq!(create(&lab.api, SECOND, "a").await.problem().1, "exists", "it was renewed");

    pass(&lab, 11).await;
    let taken = create(&lab.api, SECOND, "a").await;
    assert_eq!((taken.status.as_u16(), uid(&taken)), (200, uid(&made)));
    assert_eq!(taken.json()["metadata"]["generation"], 1, "nothing is changed by that");
    assert_eq!(create(&lab.api, FIRST, "a").await.problem().1, "exists", "it is the second run's now");

    report(&lab.api, SECOND, json!({"ends": true})).await;
    assert_eq!(uid(&create(&lab.api, THIRD, "a").await), uid(&made), "at once");
}

#[tokio::test]
async fn nothing_else_is_taken_up() {
    let lab = lab().await;
    // Not in a run: nobody can have lost it.
    let body = r#"{"spec":{"description":"a"}}"#;
    let plain = lab.api.send("PUT", ZONE, &[("x-basalt-manager", "terraform")], body).await;
    assert_eq!(plain.status, 201);
    exists(&create(&lab.api, FIRST, "a").await);
    assert_eq!(lab.api.delete(&format!("{ZONE}?adopt=true")).await.status, 204);

    create(&lab.api, FIRST, "a").await;
    report(&lab.api, FIRST, json!({"ends": true})).await;
    exists(&create(&lab.api, SECOND, "b").await);
    lab.api.declare("/api/v1/roles/admin", r#"{"base":"admin"}"#).await;
    let other = Client::new(lab.region.address(), Some(issue(&lab, "other", r#"{"role":"admin"}"#).await));
    exists(&create(&other, SECOND, "a").await);
    // Another user does not end or renew what is not theirs.
    report(&other, FIRST, json!({})).await;
    let tried = format!("{ZONE}?dry_run=true");
    let headers = [("x-basalt-run", SECOND), ("if-none-match", "*"), ("x-basalt-manager", "terraform")];
    assert_eq!(lab.api.send("PUT", &tried, &headers, body).await.status, 200, "a plan sees that it is free");
    // Another tool has changed it, and back.
    for description in ["c", "a"] {
        let changed = json!({"spec": {"description": description}}).to_string();
        lab.api.send("PUT", ZONE, &[("x-basalt-manager", "cli")], changed).await;
    }
    exists(&create(&lab.api, SECOND, "a").await);
}

#[tokio::test]
async fn whoever_keeps_an_object_confirms_it_with_the_role_viewer() {
    let lab = lab().await;
    let made = uid(&create(&lab.api, FIRST, "a").await);
    lab.api.declare("/api/v1/roles/viewer", r#"{"base":"viewer"}"#).await;
    let viewer = Client::new(lab.region.address(), Some(issue(&lab, "looker", r#"{"role":"viewer"}"#).await));
    report(&viewer, SECOND, json!({"confirms": [made]})).await;
    report(&lab.api, FIRST, json!({"ends": true})).await;
    exists(&create(&lab.api, THIRD, "a").await);
    let left =
        Hand::on(&lab.url).await.run("select id from run union all select object from unconfirmed").await;
    assert_eq!(left, Vec::<Vec<String>>::new(), "what is confirmed leaves nothing behind");
}

#[tokio::test]
async fn a_bad_run_is_refused_and_creates_nothing() {
    let lab = lab().await;
    let refused = create(&lab.api, "yesterday", "a").await;
    assert_eq!(refused.problem().1, "invalid");
    assert_eq!(lab.api.get(ZONE).await.status, 404);
    let path = format!("/api/v1/runs/{FIRST}");
    let many = json!({"confirms": vec![FIRST; 10_001]}).to_string();
    assert_eq!(lab.api.send("POST", &path, &[], many).await.problem().1, "invalid");
}
