//! Changing some of a spec.

use crate::support::{Answer, Lab, lab, network};
use serde_json::json;

const TYPE: (&str, &str) = ("Content-Type", "application/merge-patch+json");

async fn patch(lab: &Lab, path: &str, body: &str) -> Answer {
    lab.api.send("PATCH", path, &[TYPE], body.to_owned()).await
}

#[tokio::test]
async fn a_patch_rewrites_only_what_it_touches() {
    let lab = lab().await;
    let spec = "{ \"serial\" :\"r\\u00e4ck  1\",\n \"detail\": {\"label\": \"x\",  \"size\":1 }, \"steps\": [\"a\",\"b\"] }";
    lab.api.declare("/api/v1/samples/a", spec).await;
    let patched =
        patch(&lab, "/api/v1/samples/a", r#"{"detail":{"size":2},"steps":null,"count_wanted":3}"#).await;
    assert_eq!((patched.status.as_u16(), &patched.headers["etag"]), (200, &"\"2\"".parse().unwrap()));
    let wanted = "{ \"serial\" :\"r\\u00e4ck  1\",\n \"detail\": {\"label\": \"x\",  \"size\":2 },\"count_wanted\":3 }";
    assert!(lab.api.get("/api/v1/samples/a").await.text().contains(wanted), "{}", patched.text());
    let nothing = patch(&lab, "/api/v1/samples/a", r#"{"detail":{"size":2},"colour":null}"#).await;
    assert_eq!(nothing.headers["etag"], "\"2\"", "nothing changed");
}

#[tokio::test]
async fn a_secret_is_kept_when_omitted_and_cleared_by_null() {
    let lab = lab().await;
    let spec = r#"{"architecture":"amd64","boot_macs":["52:54:00:00:00:01"],
        "bmc":{"driver":"ipmi","address":"10.0.0.1","username":"admin","password":"hunter2"}}"#;
    lab.api.declare("/api/v1/machines/m", spec).await;
    let password = |answer: &Answer| answer.json()["spec"]["bmc"]["password"].clone();
    let kept = patch(&lab, "/api/v1/machines/m", r#"{"bmc":{"address":"10.0.0.2"}}"#).await;
    assert_eq!(password(&kept), json!({"set": true, "revision": 1}));
    let other = patch(&lab, "/api/v1/machines/m", r#"{"bmc":{"password":"hunter3"}}"#).await;
    assert_eq!(password(&other), json!({"set": true, "revision": 2}));
    let cleared = patch(&lab, "/api/v1/machines/m", r#"{"bmc":{"password":null}}"#).await;
    assert_eq!(password(&cleared), json!(null));
    let uid = cleared.json()["metadata"]["uid"].as_str().unwrap().parse().unwrap();
    assert!(lab.region.store().open_secret(uid, "/bmc/password").await.unwrap().is_none());
}

#[tokio::test]
async fn preconditions_dry_runs_and_refusals_are_those_of_a_put() {
    let lab = lab().await;
    network(&lab.api).await;
    lab.api.declare("/api/v1/zones/a", r#"{"description":"one"}"#).await;
    let conflict = lab.api.send("PATCH", "/api/v1/zones/a", &[TYPE, ("If-Match", "\"7\"")], "{}").await;
    assert_eq!(conflict.problem().1, "conflict");
    let dry = patch(&lab, "/api/v1/zones/a?dry_run=true", r#"{"description":"two"}"#).await.json();
    assert_eq!(dry["plan"]["changes"][0]["pointer"], "/description");
    assert_eq!(lab.api.get("/api/v1/zones/a").await.json()["spec"], json!({"description": "one"}));
    let cases = [
        ("/api/v1/zones/b", "{}", 404, "not_found"),
        ("/api/v1/zones/a", r#"{"descriptoin":"x"}"#, 422, "invalid"),
        ("/api/v1/zones/a", r#"{"description":"x","description":"y"}"#, 422, "invalid"),
        ("/api/v1/zones/a", "[]", 422, "invalid"),
        ("/api/v1/zones/a", "{", 422, "invalid"),
        ("/api/v1/subnets/lab", r#"{"vlan":"default.9"}"#, 422, "reference_not_found"),
        ("/api/v1/subnets/lab", r#"{"cidr":null}"#, 422, "invalid"),
    ];
    for (path, body, status, code) in cases {
        let problem = patch(&lab, path, body).await.problem();
        assert_eq!((problem.0, problem.1.as_str()), (status, code), "{path} {body}");
    }
    let plain = lab.api.send("PATCH", "/api/v1/zones/a", &[("Content-Type", "application/json")], "{}").await;
    assert_eq!((plain.problem().0, plain.problem().1.as_str()), (415, "unsupported_media_type"));
    assert!(plain.text().contains("application/merge-patch+json"), "{}", plain.text());
}

#[tokio::test]
async fn patches_of_different_fields_that_meet_are_both_kept() {
    let lab = lab().await;
    lab.api.declare("/api/v1/samples/a", r#"{"serial":"s"}"#).await;
    let fields = [r#"{"count_wanted":7}"#, r#"{"enabled":true}"#, r#"{"colour":null,"steps":["x"]}"#];
    let (one, two, three) = tokio::join!(
        patch(&lab, "/api/v1/samples/a", fields[0]),
        patch(&lab, "/api/v1/samples/a", fields[1]),
        patch(&lab, "/api/v1/samples/a", fields[2]),
    );
    assert!([one, two, three].iter().all(|answer| answer.status == 200));
    let spec = lab.api.get("/api/v1/samples/a").await.json()["spec"].clone();
    assert_eq!(
        (&spec["count_wanted"], &spec["enabled"], &spec["steps"]),
        (&json!(7), &json!(true), &json!(["x"]))
    );
}
