//! `POST /api/v1/apply`: many objects, all or none.

use crate::support::{Answer, Client, driven_lab, lab, network};
use serde_json::{Value, json};

const TERRAFORM: (&str, &str) = ("X-Basalt-Manager", "terraform");

async fn apply(api: &Client, query: &str, manager: &str, body: &Value) -> Answer {
    let path = format!("/api/v1/apply{query}");
    api.send("POST", &path, &[("X-Basalt-Manager", manager)], body.to_string()).await
}

fn document(kind: &str, name: &str, spec: Value) -> Value {
    json!({"kind": kind, "metadata": {"name": name, "labels": {"app": "lab"}}, "spec": spec})
}

fn range(name: &str, start: &str, end: &str) -> Value {
    document("IpRange", name, json!({"subnet": "lab", "start": start, "end": end}))
}

/// The documents of a network, in the wrong order.
fn site() -> Vec<Value> {
    vec![
        range("dynamic", "10.77.0.100", "10.77.0.150"),
        document("Subnet", "lab", json!({"vlan": "default.0", "cidr": "10.77.0.0/24"})),
        document("Machine", "m1", json!({"boot_macs": ["52:54:00:00:00:01"], "zone": "row-1"})),
        document("Vlan", "default.0", json!({"fabric": "default", "vid": 0})),
        document("Zone", "row-1", json!({})),
        document("Fabric", "default", json!({})),
    ]
}

fn actions(answer: &Value) -> Vec<&str> {
    answer["results"].as_array().unwrap().iter().map(|r| r["action"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn documents_in_any_order_refer_to_one_another() {
    let lab = lab().await;
    let answer = apply(&lab.api, "", "cli", &json!({"documents": site()})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(actions(&answer.json()), ["created"; 6]);
    let machine = lab.api.get("/api/v1/machines/m1").await.json();
    assert_eq!(machine["metadata"]["manager"], "cli");
    assert_eq!(machine["metadata"]["labels"], json!({"app": "lab"}));
    let again = apply(&lab.api, "", "cli", &json!({"documents": site()})).await.json();
    assert_eq!(actions(&again), ["unchanged"; 6]);
    assert_eq!(again["summary"], "0 created, 0 changed, 0 deleted, 6 unchanged.");
    let after = lab.api.get("/api/v1/machines/m1").await.json();
    assert_eq!(after["metadata"]["updated_at"], machine["metadata"]["updated_at"]);
}

#[tokio::test]
async fn one_wrong_document_and_nothing_is_stored() {
    let lab = lab().await;
    let mut documents = site();
    documents[4]["spec"] = json!({"colour": "red"});
    documents[1]["spec"]["gateway"] = json!("10.78.0.1");
    let (status, code, errors) = apply(&lab.api, "", "cli", &json!({"documents": documents})).await.problem();
    assert_eq!((status, code.as_str()), (422, "invalid"));
    assert_eq!(
        errors.iter().map(|e| e.split(':').next().unwrap()).collect::<Vec<_>>(),
        ["/documents/1/spec/gateway", "/documents/4/spec/colour"]
    );
    let mut documents = site();
    documents.push(range("second", "10.77.0.140", "10.77.0.160"));
    documents.push(document("Machine", "m2", json!({"boot_macs": ["52:54:00:00:00:01"], "zone": "row-2"})));
    let (status, code, errors) = apply(&lab.api, "", "cli", &json!({"documents": documents})).await.problem();
    assert_eq!((status, code.as_str()), (422, "reference_not_found"), "{errors:?}");
    assert_eq!(errors, [r#"/documents/7/spec/zone: there is no Zone "row-2""#]);
    documents[7]["spec"]["zone"] = json!("row-1");
    let (status, _, errors) = apply(&lab.api, "", "cli", &json!({"documents": documents})).await.problem();
    assert_eq!(status, 409);
    assert_eq!(
        errors,
        [
            r#"/documents/6/spec/start: 10.77.0.140-10.77.0.160 overlaps 10.77.0.100-10.77.0.150 of IpRange "dynamic""#,
            r#"/documents/7/spec/boot_macs/0: 52:54:00:00:00:01 is a boot MAC of Machine "m1" already"#,
        ]
    );
    for plural in ["fabrics", "vlans", "subnets", "ip_ranges", "zones", "machines"] {
        assert_eq!(lab.api.get(&format!("/api/v1/{plural}")).await.json()["items"], json!([]), "{plural}");
    }
}

#[tokio::test]
async fn documents_that_are_none_are_refused_one_by_one() {
    let lab = lab().await;
    let cases = json!([
        {"kind": "Zone", "metadata": {"name": "a"}, "spec": {}},
        {"kind": "Zone", "metadata": {"name": "a"}, "spec": {}},
        {"kind": "Zoo", "metadata": {"name": "b"}, "spec": {}},
        {"kind": "Zone", "metadata": {}, "spec": {}},
        {"kind": "Zone", "metadata": {"name": "c"}},
        {"kind": "Zone", "metadata": {"name": "d"}, "spec": {}, "specs": {}},
        {"kind": "Zone", "metadata": {"name": "default.0"}, "spec": {}},
        7,
    ]);
    let (status, _, errors) = apply(&lab.api, "", "cli", &json!({"documents": cases})).await.problem();
    assert_eq!(status, 422);
    let pointers: Vec<&str> = errors.iter().map(|e| e.split(':').next().unwrap()).collect();
    assert_eq!(
        pointers,
        [
            "/documents/1",
            "/documents/2/kind",
            "/documents/3/metadata/name",
            "/documents/4/spec",
            "/documents/5/specs",
            "/documents/6/metadata/name",
            "/documents/7"
        ]
    );
    let too_many = vec![json!(0); 10_001];
    let refused = apply(&lab.api, "", "cli", &json!({"documents": too_many})).await.problem();
    assert_eq!((refused.0, refused.1.as_str()), (413, "too_large"));
    let racks = json!({"documents": [document("Rack", "r1", json!({}))]});
    assert_eq!(apply(&lab.api, "", "cli", &racks).await.problem().0, 404);
    assert_eq!(lab.api.get("/api/v1/zones").await.json()["items"], json!([]));
}

#[tokio::test]
async fn a_dry_run_lists_changes_and_stores_nothing() {
    let lab = lab().await;
    network(&lab.api).await;
    lab.api.declare("/api/v1/zones/row-1", "{}").await;
    let documents = json!({"documents": [
        document("Zone", "row-1", json!({"description": "by the door"})),
        document("Machine", "m1", json!({"boot_macs": ["52:54:00:00:00:01"],
            "bmc": {"driver": "ipmi", "address": "10.0.0.1", "username": "admin", "password": "in-plain"}})),
        document("IpRange", "far", json!({"subnet": "lab", "start": "10.78.0.1", "end": "10.78.0.9"})),
    ]});
    let answer = apply(&lab.api, "?dry_run=true", "cli", &documents).await;
    assert!(!answer.text().contains("in-plain"), "{}", answer.text());
    let answer = answer.json();
    assert_eq!(actions(&answer), ["updated", "created", "created"]);
    let zone = &answer["results"][0]["plan"];
    assert_eq!(zone["changes"], json!([{"pointer": "/description", "new": "by the door", "effect": "none"}]));
    assert_eq!(answer["advisories"][0]["pointer"], "/documents/2/spec/start");
    assert_eq!(lab.api.get("/api/v1/machines/m1").await.status, 404);
    assert_eq!(lab.api.get("/api/v1/zones/row-1").await.json()["metadata"]["generation"], 1);
}

#[tokio::test]
async fn a_digest_applies_exactly_the_plan_that_was_seen() {
    let lab = lab().await;
    lab.api.declare("/api/v1/zones/a", "{}").await;
    let mut request = json!({"documents": [
        {"kind": "Zone", "metadata": {"name": "a"}, "spec": {"description": "new"}},
        {"kind": "Pool", "metadata": {"name": "p"}, "spec": {}},
    ], "adopt": true});
    let seen = apply(&lab.api, "?dry_run=true", "cli", &request).await.json();
    let same = apply(&lab.api, "?dry_run=true", "cli", &request).await.json();
    assert_eq!(seen["digest"], same["digest"], "time alone changes nothing");
    request["digest"] = seen["digest"].clone();

    lab.api.declare("/api/v1/zones/a", r#"{"description":"somebody else's"}"#).await;
    let (status, code, _) = apply(&lab.api, "", "cli", &request).await.problem();
    assert_eq!((status, code.as_str()), (409, "stale_plan"));
    assert_eq!(lab.api.get("/api/v1/pools/p").await.status, 404, "half of a plan");

    request["digest"] = Value::Null;
    let now = apply(&lab.api, "?dry_run=true", "cli", &request).await.json();
    assert_ne!(now["digest"], seen["digest"]);
    request["digest"] = now["digest"].clone();
    let done = apply(&lab.api, "", "cli", &request).await.json();
    assert_eq!(actions(&done), ["updated", "created"]);
    let (_, code, _) = apply(&lab.api, "", "cli", &request).await.problem();
    assert_eq!(code, "stale_plan", "it was applied already");
}

#[tokio::test]
async fn a_digest_holds_for_what_a_plan_does_not_show_as_well() {
    let lab = lab().await;
    let document = |password: &str, label: &str, user_data: &str| {
        json!({"documents": [
            {"kind": "Zone", "metadata": {"name": "a"}, "spec": {}},
            {"kind": "Machine", "metadata": {"name": "m", "labels": {"l": label}}, "spec": {
                "zone": "a", "boot_macs": ["52:54:00:00:00:01"],
                "bmc": {"driver": "ipmi", "address": "10.0.0.1", "username": "u", "password": password}}},
            {"kind": "Image", "metadata": {"name": "i"}, "spec": {"os": "debian", "release": "12", "architecture": "amd64",
                "files": {"root_tarball": {"sha256": "0".repeat(64), "size": 7}}}},
            {"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"image": "i", "machine": "m", "user_data": user_data}},
        ]})
    };
    let seen =
        apply(&lab.api, "?dry_run=true", "cli", &document("secret-1", "x", "#cloud-config\n")).await.json();
    let mut digests = vec![seen["digest"].clone()];
    for (password, label, user_data) in [
        ("secret-2", "x", "#cloud-config\n"),
        ("secret-1", "y", "#cloud-config\n"),
        ("secret-1", "x", "#cloud-config\nruncmd: []\n"),
    ] {
        let mut other = document(password, label, user_data);
        digests.push(apply(&lab.api, "?dry_run=true", "cli", &other).await.json()["digest"].clone());
        other["digest"] = seen["digest"].clone();
        let refused = apply(&lab.api, "", "cli", &other).await;
        let (status, code, _) = refused.problem();
        assert_eq!((status, code.as_str()), (409, "stale_plan"), "{}", refused.text());
    }
    digests.sort_by_key(Value::to_string);
    digests.dedup();
    assert_eq!(digests.len(), 4, "each is another plan");
    let mut same = document("secret-1", "x", "#cloud-config\n");
    same["digest"] = seen["digest"].clone();
    assert_eq!(actions(&apply(&lab.api, "", "cli", &same).await.json()), ["created"; 4]);
}

#[tokio::test]
async fn what_is_not_declared_any_more_is_pruned() {
    let lab = lab().await;
    lab.api.declare("/api/v1/zones/by-hand", "{}").await;
    let request = |documents: Vec<Value>| json!({"documents": documents, "prune": "app=lab"});
    apply(&lab.api, "", "cli", &request(site())).await.json();
    // Another range replaces the first one; the machine and its zone are removed.
    let mut fewer = site();
    fewer.remove(4);
    fewer.remove(2);
    fewer[0] = range("other", "10.77.0.120", "10.77.0.130");
    let tried = apply(&lab.api, "?dry_run=true", "cli", &request(fewer.clone())).await.json();
    assert_eq!(lab.api.get("/api/v1/ip_ranges/dynamic").await.status, 200);
    let done = apply(&lab.api, "", "cli", &request(fewer.clone())).await;
    assert_eq!(done.status, 200, "{}", done.text());
    for answer in [&tried, &done.json()] {
        let names: Vec<&str> = answer["results"].as_array().unwrap()[4..]
            .iter()
            .map(|r| (r["name"].as_str().unwrap(), assert_eq!(r["action"], "deleted")).0)
            .collect();
        assert_eq!(names, ["dynamic", "m1", "row-1"]);
    }
    assert_eq!(tried["results"][6]["plan"]["summary"], r#"Zone "row-1" goes after Machine "m1"."#);
    assert_eq!(lab.api.get("/api/v1/ip_ranges/dynamic").await.status, 404);
    assert_eq!(lab.api.get("/api/v1/ip_ranges/other").await.status, 200);
    assert_eq!(lab.api.get("/api/v1/zones/by-hand").await.status, 200);
    // A driver completes the machine's deletion, and the zone waits for the machine.
    let machine = lab.api.get("/api/v1/machines/m1").await.json();
    assert!(machine["metadata"]["deletion_requested_at"].is_string(), "{machine}");
    let zone = lab.api.get("/api/v1/zones/row-1").await.json();
    assert_eq!(zone["status"]["conditions"][0]["reason"], "Referenced");

    let unlabelled =
        json!({"documents": [{"kind": "Zone", "metadata": {"name": "z"}, "spec": {}}], "prune": "app=lab"});
    let (_, _, errors) = apply(&lab.api, "", "cli", &unlabelled).await.problem();
    assert_eq!(errors.len(), 1, "{errors:?}");
    let nobody = lab.api.send("POST", "/api/v1/apply", &[], request(Vec::new()).to_string()).await;
    assert_eq!(nobody.problem().0, 422);
}

#[tokio::test]
async fn what_is_pruned_cannot_be_referred_to_and_what_is_protected_stays() {
    let lab = lab().await;
    let request = |documents: Vec<Value>| json!({"documents": documents, "prune": "app=lab"});
    apply(&lab.api, "", "cli", &request(site())).await.json();
    let without_zone: Vec<Value> = site().into_iter().filter(|d| d["kind"] != "Zone").collect();
    let moved = |documents: &[Value], zone: Value| {
        let mut documents = documents.to_vec();
        let machine = documents.iter_mut().find(|d| d["kind"] == "Machine").unwrap();
        machine["spec"]["zone"] = zone;
        documents.push(document("Zone", "row-2", json!({})));
        documents
    };
    let refused = {
        let mut documents = moved(&without_zone, json!("row-1"));
        documents.push(document(
            "Machine",
            "m2",
            json!({"boot_macs": ["52:54:00:00:00:02"], "zone": "row-1"}),
        ));
        apply(&lab.api, "", "cli", &request(documents)).await
    };
    let (_, code, errors) = refused.problem();
    assert_eq!(code, "reference_not_found");
    assert_eq!(errors, [r#"/documents/6/spec/zone: Zone "row-1" is being deleted"#]);
    assert_eq!(refused.json()["errors"][0]["hint"], "wait until it is gone, or name another Zone");
    let done = apply(&lab.api, "", "cli", &request(moved(&without_zone, json!("row-2")))).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(lab.api.get("/api/v1/zones/row-1").await.status, 404);

    let locked = r#"{"boot_macs":["52:54:00:00:00:01"],"zone":"row-2","locked":true}"#;
    lab.api
        .send("PUT", "/api/v1/machines/m1", &[("X-Basalt-Manager", "cli")], format!(r#"{{"spec":{locked}}}"#))
        .await;
    let (_, _, errors) = apply(&lab.api, "", "cli", &request(Vec::new())).await.problem();
    assert_eq!(errors, [r#"/prune: Machine "m1" has locked = true"#]);
    assert_eq!(lab.api.get("/api/v1/subnets/lab").await.status, 200);
}

#[tokio::test]
async fn nothing_is_taken_from_another_manager_unless_it_is_asked_for() {
    let lab = lab().await;
    lab.api.send("PUT", "/api/v1/zones/a", &[TERRAFORM], r#"{"spec":{"description":"theirs"}}"#).await;
    let same = json!({"documents": [document("Zone", "a", json!({"description": "theirs"}))]});
    let answer = apply(&lab.api, "", "cli", &same).await.json();
    assert_eq!(actions(&answer), ["updated"], "it adds its labels");
    let zone = lab.api.get("/api/v1/zones/a").await.json();
    assert_eq!(
        (&zone["metadata"]["manager"], &zone["metadata"]["generation"]),
        (&json!("terraform"), &json!(1))
    );
    assert_eq!(zone["metadata"]["labels"], json!({"app": "lab"}));

    let mut other = json!({"documents": [document("Zone", "a", json!({"description": "ours"}))]});
    for query in ["", "?dry_run=true"] {
        let (_, _, errors) = apply(&lab.api, query, "cli", &other).await.problem();
        assert_eq!(errors, [r#"/documents/0/spec: Zone "a" is managed by "terraform""#]);
    }
    other["adopt"] = json!(true);
    let plan = apply(&lab.api, "?dry_run=true", "cli", &other).await.json();
    assert_eq!(plan["results"][0]["plan"]["taken_from"], "terraform", "{plan}");
    assert_eq!(apply(&lab.api, "", "cli", &other).await.status, 200);
    let again = apply(&lab.api, "?dry_run=true", "cli", &other).await.json();
    assert_eq!(actions(&again), ["unchanged"], "it is taken over once");
    assert_eq!(lab.api.get("/api/v1/zones/a").await.json()["metadata"]["manager"], "cli");
}

#[tokio::test]
async fn a_dry_run_says_which_machines_are_switched() {
    let lab = driven_lab().await;
    let bmc = json!({"driver": "ipmi", "address": "127.0.0.1", "username": "admin", "password": "secret"});
    let documents = json!({"documents": [
        document("Machine", "m1", json!({"boot_macs": ["52:54:00:00:00:01"], "bmc": bmc})),
        document("Zone", "z", json!({})),
    ]});
    let answer = apply(&lab.api, "?dry_run=true", "cli", &documents).await.json();
    let steps = answer["results"][0]["plan"]["steps"].as_array().unwrap();
    let keys: Vec<&str> =
        steps.iter().map(|s| s["key"].as_str().unwrap().split('/').nth(3).unwrap()).collect();
    assert_eq!(keys[..2], ["arm-inventory", "netboot-inventory"]);
    assert_eq!(steps[0]["state"], "next", "no rack takes it yet");
    assert_eq!(answer["results"][1]["plan"]["steps"], json!([]));
    assert_eq!(answer["blast_radius"], json!({"power": ["m1"], "disks": []}));
    assert_eq!(
        answer["summary"],
        "2 created, 0 changed, 0 deleted, 0 unchanged; the power of 1 machine is switched."
    );
}
