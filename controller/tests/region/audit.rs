//! The audit log has an entry for every write, and none for anything else.

use crate::support::{Client, Lab, lab, network};
use crate::tried::{OF_USERS, WRITES, furnished, headers, session, with_token_of};
use basalt_api::routes::{ROUTES, RouteId as Id};
use basalt_api::values::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Kind, name, before, after; `TIME` stands for any time.
type Left = (&'static str, &'static str, &'static str, &'static str);

/// The entries that each of [`WRITES`] adds to the log, by route and path.
const LEFT: &[(Id, &str, &[Left])] = &[
    (Id::Write, "/api/v1/zones/new", &[("Zone", "new", "null", "{}")]),
    (Id::Write, "/api/v1/zones/a", &[("Zone", "a", "{}", r#"{"description":"other"}"#)]),
    (Id::Write, "/api/v1/users/bob", &[("User", "bob", "null", r#"{"password":{"set":true,"revision":1}}"#)]),
    (
        Id::Patch,
        "/api/v1/zones/a",
        &[("Zone", "a", r#"{"description":"other"}"#, r#"{"description":"patched"}"#)],
    ),
    (Id::Delete, "/api/v1/zones/b", &[("Zone", "b", "{}", "null")]),
    (
        Id::Delete,
        "/api/v1/machines/leaving",
        &[("Machine", "leaving", r#"{"boot_macs":["52:54:00:00:00:02"]}"#, "null")],
    ),
    (
        Id::Rename,
        "/api/v1/fabrics/default/rename",
        &[
            ("Fabric", "default", r#"{"name":"default"}"#, r#"{"name":"main"}"#),
            ("Vlan", "default.0", r#"{"name":"default.0"}"#, r#"{"name":"main.0"}"#),
        ],
    ),
    (
        Id::WriteLayer,
        "/api/v1/machines/m/layers/cmdb",
        &[(
            "Machine",
            "m",
            r#"{"layer":{"cmdb":null}}"#,
            r#"{"layer":{"cmdb":{"labels":{"row":"1"},"tags":["gpu"]}}}"#,
        )],
    ),
    (
        Id::Operate,
        "/api/v1/machines/m/operations",
        &[("Machine", "m", "null", r#"{"operation":"recommission"}"#)],
    ),
    (Id::OperateMany, "/api/v1/operations", &[("Machine", "m", "null", r#"{"operation":"recommission"}"#)]),
    (Id::Apply, "/api/v1/apply", &[("Zone", "c", "null", "{}")]),
    (Id::ReportRun, "/api/v1/runs/0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e", &[]),
    (Id::Login, "/api/v1/login", &[("User", "alice", "null", r#"{"session":"opened"}"#)]),
    (
        Id::ChangePassword,
        "/api/v1/password",
        &[
            (
                "User",
                "alice",
                r#"{"password":{"set":true,"revision":1},"roles":["viewer"]}"#,
                r#"{"password":{"set":true,"revision":2},"roles":["viewer"]}"#,
            ),
            ("User", "alice", "null", r#"{"session":"opened"}"#),
        ],
    ),
    (
        Id::Logout,
        "/api/v1/logout",
        &[("User", "alice", r#"{"session":"opened"}"#, r#"{"session":"closed"}"#)],
    ),
    (
        Id::IssueApiToken,
        "/api/v1/api_tokens/ci/issue",
        &[("ApiToken", "ci", r#"{"issued_at":null}"#, r#"{"issued_at":"TIME"}"#)],
    ),
    (
        Id::RevokeApiToken,
        "/api/v1/api_tokens/ci/revoke",
        &[("ApiToken", "ci", r#"{"issued_at":"TIME"}"#, r#"{"issued_at":null}"#)],
    ),
    (
        Id::Discard,
        "/api/v1/webhooks/hook/discard",
        &[("Webhook", "hook", r#"{"failed":1}"#, r#"{"failed":0}"#)],
    ),
    (
        Id::Redeliver,
        "/api/v1/webhooks/hook/redeliver",
        &[(
            "Webhook",
            "hook",
            r#"{"failed":0,"disabled":"answered 410"}"#,
            r#"{"failed":0,"disabled":null}"#,
        )],
    ),
    (
        Id::MakeJoinToken,
        "/api/v1/join_tokens",
        &[("JoinToken", "any", "null", r#"{"rack":null,"lifetime_seconds":3600}"#)],
    ),
    (
        Id::PutBlob,
        "/api/v1/blobs/2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
        &[(
            "Blob",
            "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
            "null",
            r#"{"size":5}"#,
        )],
    ),
];

/// Repeated requests that change nothing.
const AGAIN: &[(Id, &str, &str)] = &[
    (Id::Write, "/api/v1/zones/new", r#"{"spec":{}}"#),
    (Id::Patch, "/api/v1/zones/a", r#"{"description":"patched"}"#),
    (Id::Delete, "/api/v1/machines/leaving", ""),
    (Id::Rename, "/api/v1/fabrics/main/rename", r#"{"name":"main"}"#),
    (Id::WriteLayer, "/api/v1/machines/m/layers/cmdb", r#"{"labels":{"row":"1"},"tags":["gpu"]}"#),
    (Id::Apply, "/api/v1/apply", r#"{"documents":[{"kind":"Zone","metadata":{"name":"c"},"spec":{}}]}"#),
    (Id::RevokeApiToken, "/api/v1/api_tokens/ci/revoke", ""),
    (Id::Redeliver, "/api/v1/webhooks/hook/redeliver", "{}"),
    (Id::Discard, "/api/v1/webhooks/hook/discard", "{}"),
];

/// Replaces every time by `TIME`.
fn timeless(value: &Value) -> Value {
    match value {
        Value::String(text) if text.parse::<Timestamp>().is_ok() => json!("TIME"),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), timeless(value))).collect(),
        other => other.clone(),
    }
}

#[tokio::test]
async fn every_endpoint_that_writes_says_who_from_where_by_what_and_how_it_was_and_is() {
    let lab = furnished().await;
    let mut session = session(&lab).await;
    let admin = lab.api.get("/api/v1/whoami").await.json()["actor"].as_str().unwrap().to_owned();
    let mut told = entries(&lab, "?limit=1000").await.len();
    let (mut audited, mut secrets) = (BTreeSet::new(), Vec::new());
    for (id, at, body) in WRITES {
        let (method, request) = (id.route().method, id.route().to_string());
        let client = if OF_USERS.contains(id) { &session } else { &lab.api };
        let done = client.send(method, at, headers(method), *body).await;
        assert!(done.status.is_success(), "{method} {at}: {done:?}");
        let answer: Value = serde_json::from_slice(&done.body).unwrap_or_default();
        if *id == Id::ChangePassword {
            session = with_token_of(&lab, &done);
        }
        secrets.extend(answer["token"].as_str().map(str::to_owned));
        let log = entries(&lab, "?limit=1000").await;
        let fresh = &log[..log.len() - told];
        told = log.len();
        let actor = if OF_USERS.contains(id) { "user alice" } else { admin.as_str() };
        for entry in fresh {
            assert_eq!(entry["actor"], actor, "{method} {at}: {entry}");
            assert_eq!(entry["address"], "127.0.0.1", "{method} {at}: {entry}");
            assert_eq!(entry["request"], request, "{method} {at}: {entry}");
        }
        let left = LEFT.iter().find(|left| (left.0, left.1) == (*id, *at));
        let (_, _, left) = left.unwrap_or_else(|| panic!("LEFT does not say what {method} {at} leaves"));
        let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let wanted = left.iter().map(|it| (json!(it.0), json!(it.1), parsed(it.2), parsed(it.3)));
        let found = fresh.iter().rev().map(|entry| {
            let side = |side: &str| timeless(&entry[side]);
            (side("kind"), side("name"), side("before"), side("after"))
        });
        assert_eq!(found.collect::<Vec<_>>(), wanted.collect::<Vec<_>>(), "{method} {at}");
        audited.insert(*id);
    }
    let writes = ROUTES.iter().filter(|route| !route.is_read());
    assert_eq!(audited, writes.map(|route| route.id).collect(), "what writes is in the log");
    let log = lab.api.get("/api/v1/audit?limit=1000").await;
    assert!(secrets.len() == 4 && secrets.iter().all(|secret| !log.text().contains(secret)), "{secrets:?}");

    for (id, at, body) in AGAIN {
        let method = id.route().method;
        let done = lab.api.send(method, at, headers(method), *body).await;
        assert!(done.status.is_success(), "{method} {at}: {done:?}");
        let log = entries(&lab, "?limit=1000").await;
        assert_eq!(log.len(), told, "{method} {at} writes nothing: {}", log[0]);
    }
}

#[tokio::test]
async fn who_labels_and_manages_an_object_is_in_the_log_beside_its_spec() {
    let lab = lab().await;
    let put = async |manager: &str, body: Value| {
        let manager = [("x-basalt-manager", manager)];
        let put = lab.api.send("PUT", "/api/v1/zones/a", &manager, body.to_string()).await;
        assert!(put.status.is_success(), "{put:?}");
    };
    let zone = |row: &str, words: &str| json!({"metadata": {"labels": {"row": row}}, "spec": {"description": words}});
    put("terraform", zone("1", "one")).await;
    put("terraform", zone("2", "one")).await;
    put("terraform", zone("3", "two")).await;
    let log = entries(&lab, "?object=zones/a").await;
    let sides: Vec<_> = log.iter().rev().map(|e| (e["before"].clone(), e["after"].clone())).collect();
    let spec = |words: &str| json!({"description": words});
    let labels = |row: &str| json!({"manager": "terraform", "labels": {"terraform": {"row": row}}});
    let wanted = [
        (Value::Null, spec("one")),
        (labels("1"), labels("2")),
        (spec("one"), spec("two")),
        (labels("2"), labels("3")),
    ];
    assert_eq!(sides, wanted);
}

/// Declares an image, and a deployment of it with this user data.
pub(crate) async fn deployment_with(api: &Client, user_data: &str) {
    let file = json!({"sha256": "0".repeat(64), "size": 7});
    let image =
        json!({"os": "debian", "release": "12", "architecture": "amd64", "files": {"root_tarball": file}});
    api.declare("/api/v1/images/i", &image.to_string()).await;
    let spec = json!({"image": "i", "selector": {}, "user_data": user_data});
    api.declare("/api/v1/deployments/d", &spec.to_string()).await;
}

#[tokio::test]
async fn the_log_says_that_user_data_changed_and_never_what_they_were() {
    let lab = lab().await;
    for user_data in ["#cloud-config\npassword: one\n", "#cloud-config\npassword: two\n"] {
        deployment_with(&lab.api, user_data).await;
    }
    lab.api.declare("/api/v1/deployments/d", &json!({"image": "i", "selector": {}}).to_string()).await;
    assert_eq!(lab.api.delete("/api/v1/deployments/d").await.status, 202);
    let log = entries(&lab, "?object=deployments/d").await;
    let at = |entry: &Value, side: &str| entry[side]["user_data"].clone();
    let told: Vec<_> = log.iter().rev().map(|entry| (at(entry, "before"), at(entry, "after"))).collect();
    let (kept, changed) = (json!("(sensitive)"), json!("(sensitive, changed)"));
    let nothing = Value::Null;
    let wanted = [
        (nothing.clone(), changed.clone()),
        (kept.clone(), changed),
        (kept, nothing.clone()),
        (nothing.clone(), nothing),
    ];
    assert_eq!(told, wanted);
    assert!(!lab.api.get("/api/v1/audit?limit=1000").await.text().contains("password:"));
}

#[tokio::test]
async fn taking_a_layer_away_is_in_the_log_as_well() {
    let lab = lab().await;
    network(&lab.api).await;
    let layer = json!({"labels": {"row": "1"}, "tags": []});
    for body in [layer.to_string(), "{}".to_owned()] {
        assert_eq!(lab.api.put("/api/v1/subnets/lab/layers/cmdb", &body).await.status, 200);
    }
    let log = entries(&lab, "?object=subnets/lab&limit=1").await;
    assert_eq!(
        (&log[0]["before"], &log[0]["after"]),
        (&json!({"layer": {"cmdb": layer}}), &json!({"layer": {"cmdb": null}}))
    );
}

async fn entries(lab: &Lab, query: &str) -> Vec<Value> {
    let answer = lab.api.get(&format!("/api/v1/audit{query}")).await;
    assert_eq!(answer.status.as_u16(), 200, "{answer:?}");
    answer.json()["items"].as_array().unwrap().clone()
}

fn brief(entry: &Value) -> (String, String, String) {
    let word = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    (word("request"), word("kind"), word("name"))
}

fn owned(request: &str, kind: &str, name: &str) -> (String, String, String) {
    (request.to_owned(), kind.to_owned(), name.to_owned())
}

#[tokio::test]
async fn every_write_leaves_one_entry_that_says_who_what_and_how_it_was() {
    let lab = lab().await;
    lab.api.declare("/api/v1/zones/a", r#"{"description":"one"}"#).await;
    lab.api.declare("/api/v1/zones/a", r#"{"description":"two"}"#).await;
    lab.api.declare("/api/v1/zones/a", r#"{"description":"two"}"#).await; // it is there already
    lab.api.send("POST", "/api/v1/zones/a/rename", &[], r#"{"name":"b"}"#).await;
    lab.api.delete("/api/v1/zones/b").await;
    let bytes = "twelve bytes";
    let sha = hex::encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes.as_bytes()));
    let half = [("content-range", "bytes 0-5/12")];
    lab.api.send("PUT", &format!("/api/v1/blobs/{sha}"), &half, "twelve").await;
    let rest = [("content-range", "bytes 6-11/12")];
    assert_eq!(
        lab.api.send("PUT", &format!("/api/v1/blobs/{sha}"), &rest, " bytes").await.status.as_u16(),
        201
    );
    let admin = lab.api.get("/api/v1/whoami").await.json()["actor"].clone();
    let log = entries(&lab, "").await;
    let put = "PUT /api/v1/{plural}/{name}";
    let wanted = [
        owned("PUT /api/v1/blobs/{sha256}", "Blob", &sha),
        owned("DELETE /api/v1/{plural}/{name}", "Zone", "b"),
        owned("POST /api/v1/{plural}/{name}/rename", "Zone", "a"),
        owned(put, "Zone", "a"),
        owned(put, "Zone", "a"),
    ];
    assert_eq!(log.iter().map(brief).collect::<Vec<_>>(), wanted, "the newest first, and one each");
    for entry in &log {
        assert_eq!((&entry["actor"], &entry["address"]), (&admin, &json!("127.0.0.1")));
    }
    let [blob, deleted, renamed, changed, created] = log.as_slice() else { unreachable!() };
    assert_eq!(blob["after"], json!({"size": 12}));
    assert_eq!((&deleted["before"], &deleted["after"]), (&json!({"description": "two"}), &Value::Null));
    assert_eq!((&renamed["before"], &renamed["after"]), (&json!({"name": "a"}), &json!({"name": "b"})));
    assert_eq!((&changed["before"], &changed["generation"]), (&json!({"description": "one"}), &json!(2)));
    assert_eq!(changed["after"], json!({"description": "two"}));
    assert_eq!((&created["before"], &created["generation"]), (&Value::Null, &json!(1)));
    assert_eq!(created["uid"], deleted["uid"]);
}

#[tokio::test]
async fn an_object_is_asked_about_by_its_name_of_today_and_answers_for_those_before() {
    let lab = lab().await;
    lab.api.declare("/api/v1/zones/a", "{}").await;
    lab.api.send("POST", "/api/v1/zones/a/rename", &[], r#"{"name":"b"}"#).await;
    lab.api.declare("/api/v1/zones/a", "{}").await;
    let requests = async |of: &str| {
        let log = entries(&lab, &format!("?object={of}")).await;
        log.iter().map(|entry| entry["request"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (put, rename) = ("PUT /api/v1/{plural}/{name}", "POST /api/v1/{plural}/{name}/rename");
    assert_eq!(requests("zone/b").await, [rename, put]);
    assert_eq!(requests("zone/a").await, [put, rename, put], "the one of today, and who was called so");
    assert_eq!(requests("zone/c").await, Vec::<String>::new());
}

#[tokio::test]
async fn what_writes_nothing_leaves_no_entry() {
    let lab = lab().await;
    lab.api.declare("/api/v1/zones/a", "{}").await;
    let refused = [
        ("PUT", "/api/v1/zones/c?dry_run=true", "{\"spec\":{}}", 200),
        ("DELETE", "/api/v1/zones/a?dry_run=true", "", 200),
        ("PUT", "/api/v1/zones/a", "{\"spec\":{\"colour\":1}}", 422),
        ("PUT", "/api/v1/vlans/none.0", "{\"spec\":{\"fabric\":\"none\",\"vid\":0}}", 422),
        ("DELETE", "/api/v1/zones/z", "", 404),
        ("POST", "/api/v1/zones/z/rename", "{\"name\":\"y\"}", 404),
        ("POST", "/api/v1/machines/m/operations", "{\"verb\":\"recommission\"}", 404),
        ("GET", "/api/v1/zones/a", "", 200),
        ("GET", "/api/v1/zones", "", 200),
        ("GET", "/api/v1/audit", "", 200),
    ];
    for (method, path, body, status) in refused {
        let answer = lab.api.send(method, path, &[], body).await;
        assert_eq!(answer.status.as_u16(), status, "{method} {path}: {answer:?}");
    }
    let stale = lab.api.send("PUT", "/api/v1/zones/a", &[("if-match", "\"9\"")], "{\"spec\":{}}").await;
    assert_eq!(stale.status.as_u16(), 409);
    lab.region.store().put_token("v", "viewer-token", "viewer", None).await.unwrap();
    let viewer = Client::new(lab.region.address(), Some("viewer-token".to_owned()));
    assert_eq!(viewer.put("/api/v1/zones/a", "{\"spec\":{}}").await.status.as_u16(), 403);
    assert_eq!(viewer.get("/api/v1/audit").await.status.as_u16(), 403);
    assert_eq!(entries(&lab, "").await.len(), 1, "the zone's creation alone");
}

#[tokio::test]
async fn secrets_are_logged_in_read_form() {
    let lab = lab().await;
    let spec = |password: &str| {
        json!({"boot_macs": ["52:54:00:00:00:01"],
               "bmc": {"driver": "ipmi", "address": "10.0.0.1", "username": "admin", "password": password}})
        .to_string()
    };
    lab.api.declare("/api/v1/machines/m", &spec("open-sesame-1")).await;
    lab.api.declare("/api/v1/machines/m", &spec("open-sesame-2")).await;
    let text = lab.api.get("/api/v1/audit").await.text().to_owned();
    assert!(!text.contains("open-sesame"), "{text}");
    let log = entries(&lab, "?object=machines/m").await;
    let revision = |side: &str| log[0][side]["bmc"]["password"]["revision"].clone();
    assert_eq!((revision("before"), revision("after")), (json!(1), json!(2)));
}

#[tokio::test]
async fn the_log_is_read_by_object_actor_and_time_in_pages() {
    let lab = lab().await;
    for name in ["a", "b", "c"] {
        lab.api.declare(&format!("/api/v1/zones/{name}"), "{}").await;
    }
    lab.region.store().put_token("ci", "ci-token", "operator", None).await.unwrap();
    let ci = Client::new(lab.region.address(), Some("ci-token".to_owned()));
    ci.declare("/api/v1/pools/a", "{}").await;
    let names = |log: Vec<Value>| log.iter().map(|e| brief(e).2).collect::<Vec<_>>();
    assert_eq!(names(entries(&lab, "?object=Zone").await), ["c", "b", "a"]);
    assert_eq!(entries(&lab, "?object=zones/a").await.len(), 1);
    let log = entries(&lab, "?actor=token%20ci").await;
    assert_eq!(brief(&log[0]).1, "Pool");
    let uid = log[0]["uid"].as_str().unwrap();
    assert_eq!(entries(&lab, &format!("?object=uid:{uid}")).await.len(), 1);
    assert_eq!(entries(&lab, "?since=2999-01-01T00:00:00Z").await.len(), 0);
    let first = lab.api.get("/api/v1/audit?limit=3").await.json();
    let next = first["continue"].as_str().unwrap().to_owned();
    let second = lab.api.get(&format!("/api/v1/audit?limit=3&continue={next}")).await.json();
    let all = [&first, &second].map(|p| p["items"].as_array().unwrap().clone()).concat();
    assert_eq!(names(all), ["a", "c", "b", "a"]);
    assert!(second["continue"].is_null());
    for bad in ["?limit=0", "?limit=1001", "?continue=x", "?object=uid:x", "?since=x", "?who=me"] {
        assert_eq!(lab.api.get(&format!("/api/v1/audit{bad}")).await.status.as_u16(), 422, "{bad}");
    }
}

#[tokio::test]
async fn an_apply_leaves_an_entry_for_each_object_that_it_writes_or_prunes() {
    let lab = lab().await;
    let apply = async |query: &str, documents: Value, prune: &str| {
        let body = json!({"documents": documents, "prune": prune}).to_string();
        let manager = [("x-basalt-manager", "gitops")];
        lab.api.send("POST", &format!("/api/v1/apply{query}"), &manager, body).await
    };
    let zone = |name: &str, words: &str| json!({"kind": "Zone", "metadata": {"name": name, "labels": {"set": "x"}}, "spec": {"description": words}});
    let all = json!([zone("a", "one"), zone("b", "one"), zone("c", "one")]);
    assert_eq!(apply("?dry_run=true", all.clone(), "set=x").await.status.as_u16(), 200);
    assert_eq!(entries(&lab, "").await.len(), 0);
    assert_eq!(apply("", all, "set=x").await.status.as_u16(), 200);
    assert_eq!(apply("", json!([zone("a", "one"), zone("b", "two")]), "set=x").await.status.as_u16(), 200);
    let mut log: Vec<_> =
        entries(&lab, "").await.iter().map(|e| (brief(e).2, e["after"].is_null())).collect();
    assert!(log.len() == 5, "three created, one changed, one pruned: {log:?}");
    log.truncate(2);
    log.sort();
    assert_eq!(log, [("b".to_owned(), false), ("c".to_owned(), true)]);
}
