//! Declaring, reading, changing and deleting objects.

use crate::support::{lab, network};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_spec_is_returned_byte_for_byte_with_its_generation_as_etag() {
    let lab = lab().await;
    let spec = "{ \"description\" :\"r\\u00e4ck  1\"\n }";
    let body = format!("{{\"spec\": {spec}, \"metadata\": {{\"labels\": {{\"env\": \"lab\"}}}}}}");
    let made =
        lab.api.send("PUT", "/api/v1/zones/a", &[("X-Basalt-Manager", "terraform")], body.clone()).await;
    assert_eq!((made.status.as_u16(), &made.headers["etag"]), (201, &"\"1\"".parse().unwrap()));
    let read = lab.api.get("/api/v1/zones/a").await;
    assert!(read.text().contains(spec), "{}", read.text());
    let object = read.json();
    assert_eq!(object["metadata"]["manager"], "terraform");
    assert_eq!(object["metadata"]["labels"], json!({"env": "lab"}));
    assert_eq!(object["status"]["observed_generation"], 1);
    assert_eq!(object["status"]["conditions"][0]["type"], "Ready");
    assert_eq!(object["status"]["conditions"][0]["status"], "true");
    let uid = object["metadata"]["uid"].as_str().unwrap();
    assert_eq!(lab.api.get(&format!("/api/v1/zones/uid:{uid}")).await.json(), object);
    let again = lab.api.put("/api/v1/zones/a", read.text()).await;
    assert_eq!(
        (again.status.as_u16(), &again.headers["etag"]),
        (200, &"\"1\"".parse().unwrap()),
        "what was read can be written back"
    );
}

#[tokio::test]
async fn preconditions_decide_before_anything_is_written() {
    let lab = lab().await;
    lab.api.declare("/api/v1/zones/a", "{}").await;
    let put = |header: (&'static str, &'static str), body: &'static str| {
        let api = lab.api.clone();
        async move { api.send("PUT", "/api/v1/zones/a", &[header], body).await }
    };
    let new = r#"{"spec":{"description":"new"}}"#;
    let exists = put(("If-None-Match", "*"), new).await;
    assert_eq!((exists.problem().0, exists.problem().1.as_str()), (412, "exists"));
    let conflict = put(("If-Match", "\"7\""), new).await;
    assert_eq!(conflict.problem().1, "conflict");
    assert_eq!(lab.api.get("/api/v1/zones/a").await.json()["spec"], json!({}));
    let changed = put(("If-Match", "\"1\""), new).await;
    assert_eq!((changed.status.as_u16(), &changed.headers["etag"]), (200, &"\"2\"".parse().unwrap()));
}

#[tokio::test]
async fn what_is_wrong_with_a_spec_alone_is_said_all_at_once() {
    let lab = lab().await;
    let body = r#"{"spec":{"vlan":"default.0","cidr":"10.77.0.0/24","gatway":"10.77.0.1","managed":"yes"}}"#;
    for path in ["/api/v1/subnets/lab", "/api/v1/subnets/lab?dry_run=true"] {
        let (status, code, errors) = lab.api.put(path, body).await.problem();
        assert_eq!((status, code.as_str()), (422, "invalid"));
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(errors.iter().any(|e| e.starts_with("/spec/gatway:")), "{errors:?}");
        assert!(errors.iter().any(|e| e.starts_with("/spec/managed:")), "{errors:?}");
    }
    let cases = [
        ("/api/v1/zones/A_1", r#"{"spec":{}}"#, "/metadata/name"),
        ("/api/v1/zones/a", r#"{"spec":{},"kind":"Pool"}"#, "/kind"),
        ("/api/v1/zones/a", r#"{"spec":{},"metadata":{"name":"b"}}"#, "/metadata/name"),
        ("/api/v1/zones/a", r#"{"spec":{"description":"x","description":"y"}}"#, "/spec/description"),
        ("/api/v1/vlans/default.1", r#"{"spec":{"fabric":"default","vid":2}}"#, "/metadata/name"),
    ];
    for (path, body, pointer) in cases {
        let (status, _, errors) = lab.api.put(path, body).await.problem();
        assert_eq!(status, 422);
        assert!(errors[0].starts_with(pointer), "{errors:?}");
    }
    for body in
        ["", "{", "[]", r#"{"spec":{}} x"#, r#"{"spec":{},"specs":{}}"#, "{\"spec\":{\"a\":\"\u{0}\"}}"]
    {
        assert_eq!(lab.api.put("/api/v1/zones/a", body).await.problem().0, 422, "{body}");
    }
    let deep = format!(r#"{{"spec":{}1{}}}"#, "[".repeat(100), "]".repeat(100));
    assert_eq!(lab.api.put("/api/v1/zones/a", &deep).await.problem().0, 422);
    let large = format!(r#"{{"spec":{{"description":"{}"}}}}"#, "x".repeat(3 << 20));
    assert_eq!(lab.api.put("/api/v1/zones/a", &large).await.problem().1, "too_large");
    assert_eq!(lab.api.get("/api/v1/zones").await.json()["items"], json!([]));
}

#[tokio::test]
async fn an_overlap_names_both_and_a_missing_reference_its_pointer() {
    let lab = lab().await;
    network(&lab.api).await;
    let range =
        |start: &str, end: &str| format!(r#"{{"spec":{{"subnet":"lab","start":"{start}","end":"{end}"}}}}"#);
    let first = lab.api.put("/api/v1/ip_ranges/low", &range("10.77.0.10", "10.77.0.20")).await;
    assert_eq!(first.status, 201);
    let (status, code, errors) =
        lab.api.put("/api/v1/ip_ranges/high", &range("10.77.0.15", "10.77.0.30")).await.problem();
    assert_eq!((status, code.as_str()), (409, "overlap"));
    assert_eq!(
        errors,
        [r#"/spec/start: 10.77.0.15-10.77.0.30 overlaps 10.77.0.10-10.77.0.20 of IpRange "low""#]
    );
    let body = r#"{"spec":{"vlan":"default.7","cidr":"10.78.0.0/24"}}"#;
    let (status, code, errors) = lab.api.put("/api/v1/subnets/other", body).await.problem();
    assert_eq!((status, code.as_str()), (422, "reference_not_found"));
    assert_eq!(errors, [r#"/spec/vlan: there is no Vlan "default.7""#]);
    let replaced = r#"{"spec":{"vlan":"default.0","cidr":"10.79.0.0/24"}}"#;
    let (_, code, errors) = lab.api.put("/api/v1/subnets/lab", replaced).await.problem();
    assert_eq!(
        (code.as_str(), errors),
        ("invalid", vec!["/spec/cidr: cidr cannot change after creation".to_owned()])
    );
}

#[tokio::test]
async fn what_is_protected_is_not_deleted() {
    let lab = lab().await;
    let machine = r#"{"boot_macs":["52:54:00:00:00:09"],"locked":LOCKED}"#;
    lab.api.declare("/api/v1/machines/m", &machine.replace("LOCKED", "true")).await;
    for path in ["/api/v1/machines/m", "/api/v1/machines/m?dry_run=true"] {
        let refused = lab.api.send("DELETE", path, &[], "").await;
        assert_eq!(refused.status, 409, "{}", refused.text());
        assert!(refused.text().contains("locked = true; set it to false first"), "{}", refused.text());
    }
    lab.api.declare("/api/v1/machines/m", &machine.replace("LOCKED", "false")).await;
    assert!(lab.api.send("DELETE", "/api/v1/machines/m", &[], "").await.status.is_success());
}

#[tokio::test]
async fn a_dry_run_stores_nothing_and_says_what_is_missing_as_an_advisory() {
    let lab = lab().await;
    let body = r#"{"spec":{"vlan":"default.0","cidr":"10.77.0.0/24"}}"#;
    let tried = lab.api.put("/api/v1/subnets/lab?dry_run=true", body).await;
    assert_eq!(tried.status, 200);
    let tried = tried.json();
    assert_eq!(tried["object"]["metadata"]["generation"], 1);
    assert_eq!(tried["advisories"][0]["pointer"], "/spec/vlan");
    assert_eq!(tried["advisories"][0]["code"], "reference_not_found");
    assert_eq!(lab.api.get("/api/v1/subnets/lab").await.status, 404);
    lab.api.declare("/api/v1/zones/a", "{}").await;
    let tried = lab.api.put("/api/v1/zones/a?dry_run=true", r#"{"spec":{"description":"x"}}"#).await.json();
    assert_eq!(tried["plan"]["changes"][0]["pointer"], "/description");
    let tried = lab.api.send("DELETE", "/api/v1/zones/a?dry_run=true", &[], "").await;
    assert_eq!((tried.status.as_u16(), &tried.json()["object"]["metadata"]["name"]), (200, &json!("a")));
    assert_eq!(tried.json()["plan"]["summary"], "Zone \"a\" will be gone.");
    assert_eq!(lab.api.get("/api/v1/zones/a").await.json()["metadata"]["generation"], 1);
    assert_eq!(
        lab.api.put("/api/v1/zones/b?dryrun=true", r#"{"spec":{}}"#).await.problem().0,
        422,
        "a misspelt dry_run does not write"
    );
    assert_eq!(lab.api.get("/api/v1/zones/b").await.status, 404);
}

#[tokio::test]
async fn deletion_waits_and_says_for_whom() {
    let lab = lab().await;
    network(&lab.api).await;
    for _ in 0..2 {
        let waits = lab.api.delete("/api/v1/vlans/default.0").await;
        assert_eq!(waits.status, 202);
        let conditions = waits.json()["status"]["conditions"].clone();
        assert_eq!(conditions[1]["reason"], "Referenced");
        let message = conditions[1]["message"].as_str().unwrap();
        assert!(message.contains(r#"Subnet "lab" (/vlan)"#), "{message}");
    }
    let refused = lab.api.put("/api/v1/vlans/default.0", r#"{"spec":{"fabric":"default","vid":0}}"#).await;
    assert_eq!((refused.problem().0, refused.problem().1.as_str()), (409, "deleting"));
    let waiter = {
        let api = lab.api.clone();
        tokio::spawn(async move { api.get("/api/v1/vlans/default.0?wait=Deleted&timeout=30s").await })
    };
    assert_eq!(lab.api.delete("/api/v1/subnets/lab").await.status, 204);
    assert_eq!(waiter.await.unwrap().status, 404);
    assert_eq!(lab.api.delete("/api/v1/vlans/default.0").await.problem().1, "not_found");
}

#[tokio::test]
async fn a_rename_keeps_references() {
    let lab = lab().await;
    network(&lab.api).await;
    lab.api
        .declare("/api/v1/ip_ranges/r", r#"{"subnet":"lab","start":"10.77.0.10","end":"10.77.0.20"}"#)
        .await;
    let renamed = lab.api.send("POST", "/api/v1/subnets/lab/rename", &[], r#"{"name":"main"}"#).await;
    assert_eq!((renamed.status.as_u16(), &renamed.json()["metadata"]["name"]), (200, &json!("main")));
    let range = lab.api.get("/api/v1/ip_ranges/r").await;
    assert_eq!(range.json()["spec"]["subnet"], "main");
    assert_eq!(range.headers["etag"], "\"1\"");
    assert_eq!(lab.api.get("/api/v1/subnets/lab").await.status, 404);
    lab.api.declare("/api/v1/subnets/other", r#"{"vlan":"default.0","cidr":"10.78.0.0/24"}"#).await;
    let taken = lab.api.send("POST", "/api/v1/subnets/other/rename", &[], r#"{"name":"main"}"#).await;
    assert_eq!(taken.problem().1, "exists");
}

#[tokio::test]
async fn secrets_never_come_back() {
    let lab = lab().await;
    let spec = |password: &str| {
        format!(
            r#"{{"architecture":"amd64","boot_macs":["52:54:00:00:00:01"],
                "bmc":{{"driver":"ipmi","address":"10.0.0.1","username":"admin","password":{password}}}}}"#
        )
    };
    lab.api.declare("/api/v1/machines/m", &spec("\"hunter2-in-plain\"")).await;
    let read = lab.api.get("/api/v1/machines/m").await;
    assert_eq!(read.json()["spec"]["bmc"]["password"], json!({"set": true, "revision": 1}));
    lab.api.declare("/api/v1/machines/m", &spec("{\"set\":true,\"revision\":1}")).await;
    let tried = lab
        .api
        .put("/api/v1/machines/m?dry_run=true", &format!("{{\"spec\":{}}}", spec("\"another-in-plain\"")))
        .await;
    assert_eq!(tried.json()["plan"]["changes"].as_array().unwrap().len(), 1);
    for answer in [&read, &tried, &lab.api.get("/api/v1/machines").await] {
        assert!(!answer.text().contains("in-plain"), "{}", answer.text());
    }
    let dump = std::process::Command::new(pg_dump()).arg(&lab.url).output().unwrap();
    let dump = String::from_utf8_lossy(&dump.stdout).into_owned();
    assert!(dump.contains("52:54:00:00:00:01"), "the dump is not one");
    assert!(
        !dump.contains("in-plain") && !dump.contains(&hex::encode("in-plain")),
        "a plaintext is in the database"
    );
}

fn pg_dump() -> std::path::PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = versions.map(|v| v.path().join("bin/pg_dump")).filter(|p| p.exists()).collect();
    found.sort();
    found.pop().unwrap_or_else(|| "pg_dump".into())
}

#[tokio::test]
async fn a_wait_ends_when_it_holds_or_its_time_is_up() {
    let lab = lab().await;
    lab.api.declare("/api/v1/zones/a", "{}").await;
    let answer = lab.api.get("/api/v1/zones/a?wait=Ready&generation=1&timeout=30s").await;
    assert_eq!(answer.json()["metadata"]["generation"], 1);
    let waiter = {
        let api = lab.api.clone();
        tokio::spawn(async move { api.get("/api/v1/zones/a?wait=Ready&generation=2&timeout=30s").await })
    };
    lab.api.declare("/api/v1/zones/a", r#"{"description":"x"}"#).await;
    let answer = tokio::time::timeout(Duration::from_secs(20), waiter).await.unwrap().unwrap();
    assert_eq!(answer.json()["metadata"]["generation"], 2);
    let begin = Instant::now();
    let late = lab.api.get("/api/v1/zones/a?wait=Ready&generation=3&timeout=100ms").await;
    assert_eq!((late.status.as_u16(), &late.json()["metadata"]["generation"]), (200, &json!(2)));
    assert!(begin.elapsed() >= Duration::from_millis(100));
}

#[tokio::test]
async fn lists_are_paged_filtered_and_sparse() {
    let lab = lab().await;
    for name in ["a", "b", "c", "web-1", "web-2"] {
        let labels = if name.starts_with("web") { r#"{"role":"web"}"# } else { "{}" };
        let body = format!(r#"{{"spec":{{}},"metadata":{{"labels":{labels}}}}}"#);
        lab.api.put(&format!("/api/v1/pools/{name}"), &body).await;
    }
    let names = |page: &Value| -> Vec<String> {
        page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|o| o["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = lab.api.get("/api/v1/pools?limit=3").await.json();
    assert_eq!(names(&first), ["a", "b", "c"]);
    let second = lab
        .api
        .get(&format!("/api/v1/pools?limit=3&continue={}", first["continue"].as_str().unwrap()))
        .await
        .json();
    assert_eq!(
        (names(&second), second.get("continue")),
        (vec!["web-1".to_owned(), "web-2".to_owned()], None)
    );
    assert!(second["position"].as_str().unwrap().contains(':'));
    assert_eq!(names(&lab.api.get("/api/v1/pools?labels=role=web").await.json()), ["web-1", "web-2"]);
    assert_eq!(names(&lab.api.get("/api/v1/pools?q=eb-2").await.json()), ["web-2"]);
    lab.api.declare("/api/v1/pools/c", r#"{"description":"Höhle of 52:54:00:AA"}"#).await;
    for (text, found) in [
        ("54:00:aa", &["c"][..]),
        ("h%C3%B6hle", &["c"]),
        ("web", &["web-1", "web-2"]),
        ("description", &[]),
        ("%25", &[]),
    ] {
        assert_eq!(names(&lab.api.get(&format!("/api/v1/pools?q={text}")).await.json()), found, "{text}");
    }
    let sparse = lab.api.get("/api/v1/pools?limit=1&fields=metadata.name,spec").await.json();
    assert_eq!(sparse["items"], json!([{"metadata": {"name": "a"}, "spec": {}}]));
    for wrong in ["limt=1", "fields=nope", "fields=spec.nope", "labels=app!=site", "labels=app"] {
        assert_eq!(lab.api.get(&format!("/api/v1/pools?{wrong}")).await.problem().0, 422, "{wrong}");
    }
    let (status, _, at) = lab.api.get("/api/v1/pools/a?wait=Reedy").await.problem();
    assert!(status == 422 && at[0].starts_with("/wait: "), "{at:?}");
}

#[tokio::test]
async fn the_kind_with_one_of_everything_goes_through_unchanged() {
    let lab = lab().await;
    assert_eq!(lab.api.get("/api/v1/samples").await.json()["items"], json!([]));
    let document = lab.api.get("/openapi.json").await.json();
    for kind in basalt_api::KINDS {
        assert!(document["paths"].get(format!("/api/v1/{}", kind.plural)).is_some(), "{}", kind.plural);
    }
    assert_eq!(lab.api.get("/api/v1/nothings").await.problem().1, "no_such_path");
    let racks = lab.api.put("/api/v1/racks/r1", r#"{"spec":{}}"#).await;
    assert_eq!(racks.problem().1, "not_found", "racks enrol themselves");
}

#[tokio::test]
async fn what_a_spec_leaves_out_is_told_beside_it() {
    let lab = lab().await;
    lab.api.declare("/api/v1/fabrics/default", "{}").await;
    let spec = r#"{"fabric":"default","vid":0,"mtu":9000,"dhcp":{"enabled":false}}"#;
    lab.api.declare("/api/v1/vlans/default.0", spec).await;
    let read = lab.api.get("/api/v1/vlans/default.0").await;
    assert!(read.text().contains(spec), "the spec stays as it was declared: {}", read.text());
    let effective = json!({"dhcp": {"lease_time": "10m"}});
    assert_eq!(read.json()["status"]["effective"], effective);
    assert_eq!(lab.api.get("/api/v1/vlans/default.0").await.json(), read.json(), "it does not change");
    assert_eq!(lab.api.get("/api/v1/vlans").await.json()["items"][0], read.json());
    let sparse = lab.api.get("/api/v1/vlans?fields=metadata.name,status.effective").await.json();
    let only = json!({"metadata": {"name": "default.0"}, "status": {"effective": effective}});
    assert_eq!(sparse["items"][0], only);
    let tried =
        lab.api.put("/api/v1/vlans/default.0?dry_run=true", r#"{"spec":{"fabric":"default","vid":0}}"#);
    assert_eq!(tried.await.json()["object"]["status"]["effective"]["mtu"], 1500);
}
