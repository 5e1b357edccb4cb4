//! Changes of a part of a spec.

use crate::support::{Answer, Lab, lab, network};
use serde_json::{Value, json};

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
    let kept = patch(&lab, "/api/v1/machines/m", r#"{"bmc":{"username":"root"}}"#).await;
    assert_eq!(password(&kept), json!({"set": true, "revision": 1}));
    let other = patch(&lab, "/api/v1/machines/m", r#"{"bmc":{"password":"hunter3"}}"#).await;
    assert_eq!(password(&other), json!({"set": true, "revision": 2}));
    let cleared = patch(&lab, "/api/v1/machines/m", r#"{"bmc":{"password":null}}"#).await;
    assert_eq!(password(&cleared), json!(null));
    let uid = cleared.json()["metadata"]["uid"].as_str().unwrap().parse().unwrap();
    assert!(lab.region.store().open_secret(uid, "/bmc/password").await.unwrap().is_none());
}

#[tokio::test]
async fn a_secret_is_sent_nowhere_else_without_being_given_anew() {
    let lab = lab().await;
    let bmc = |more: Value| {
        let mut bmc = json!({"driver": "redfish", "address": "10.0.0.1", "username": "admin"});
        bmc.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"boot_macs": ["52:54:00:00:00:01"], "bmc": bmc})
    };
    let declared = bmc(json!({"password": "hunter2"}));
    lab.api.declare("/api/v1/machines/m", &declared.to_string()).await;
    lab.api
        .declare("/api/v1/webhooks/w", r#"{"url":"https://one.example.com","events":["ready"],"secret":"k"}"#)
        .await;

    let read = json!({"set": true, "revision": 1});
    let elsewhere = [
        ("address", json!("10.0.0.2")),
        ("driver", json!("ipmi")),
        ("port", json!(8443)),
        ("tls", json!({"verify": false})),
    ];
    for (field, value) in elsewhere {
        let change = json!({ field: value });
        let omitted = bmc(change.clone());
        let mut said = change.clone();
        said["password"] = read.clone();
        let documents =
            json!({"documents": [{"kind": "Machine", "metadata": {"name": "m"}, "spec": omitted}]});
        for query in ["", "?dry_run=true"] {
            let machine = format!("/api/v1/machines/m{query}");
            let answers = [
                patch(&lab, &machine, &json!({"bmc": change}).to_string()).await,
                patch(&lab, &machine, &json!({"bmc": said}).to_string()).await,
                lab.api.put(&machine, &json!({"spec": omitted}).to_string()).await,
                lab.api.put(&machine, &json!({"spec": bmc(said.clone())}).to_string()).await,
                lab.api.send("POST", &format!("/api/v1/apply{query}"), &[], documents.to_string()).await,
            ];
            let why =
                format!("spec/bmc/password: bmc.{field} changes, which decides where this secret is sent");
            for answer in answers {
                let (status, code, errors) = answer.problem();
                assert_eq!((status, code.as_str(), errors.len()), (422, "invalid", 1), "{}", answer.text());
                assert!(errors[0].ends_with(&why), "{errors:?}");
            }
        }
    }
    let hook = patch(&lab, "/api/v1/webhooks/w", r#"{"url":"https://two.example.com"}"#).await;
    let errors = hook.problem().2;
    assert_eq!(errors, ["/spec/secret: url changes, which decides where this secret is sent"]);

    // A change of other fields keeps the secret, and so does another spelling of the same address.
    let same = r#"{"bmc":{"address":"10.0.0.1","username":"root","tls":null,"options":{"system":"1"}}}"#;
    let kept = patch(&lab, "/api/v1/machines/m", same).await.json();
    assert_eq!(kept["spec"]["bmc"]["password"], read);
    // A write that contains or clears the secret may change the address.
    let known =
        patch(&lab, "/api/v1/machines/m", r#"{"bmc":{"address":"10.0.0.2","password":"hunter2"}}"#).await;
    assert_eq!(known.json()["spec"]["bmc"]["password"], read, "{}", known.text());
    let cleared =
        patch(&lab, "/api/v1/machines/m", r#"{"bmc":{"address":"10.0.0.3","password":null}}"#).await;
    assert_eq!(cleared.status, 200, "{}", cleared.text());
}

#[tokio::test]
async fn the_key_of_a_bmc_is_used_with_no_other_bmc() {
    let lab = lab().await;
    let spec = r#"{"boot_macs":["52:54:00:00:00:01"],"bmc":{"driver":"ipmi","address":"10.0.0.1","username":"admin","k_g":"0x0102"}}"#;
    lab.api.declare("/api/v1/machines/m", spec).await;
    for (field, value) in [("address", json!("10.0.0.2")), ("port", json!(6230))] {
        let change = json!({"bmc": {field: value}}).to_string();
        let why = format!("/spec/bmc/k_g: bmc.{field} changes, which decides where this secret is sent");
        for query in ["", "?dry_run=true"] {
            let (status, code, errors) =
                patch(&lab, &format!("/api/v1/machines/m{query}"), &change).await.problem();
            assert_eq!((status, code.as_str(), errors), (422, "invalid", vec![why.clone()]));
        }
    }
    let driver = patch(&lab, "/api/v1/machines/m", r#"{"bmc":{"driver":"redfish"}}"#).await.problem();
    assert_eq!((driver.0, driver.2.len()), (422, 1), "only IPMI has such keys: {driver:?}");
    let kept =
        patch(&lab, "/api/v1/machines/m", r#"{"bmc":{"username":"root","options":{"cipher_suite":3}}}"#)
            .await;
    assert_eq!(kept.json()["spec"]["bmc"]["k_g"], json!({"set": true, "revision": 1}), "{}", kept.text());
    let cleared = patch(
        &lab,
        "/api/v1/machines/m",
        r#"{"bmc":{"driver":"redfish","k_g":null,"options":{"cipher_suite":null}}}"#,
    )
    .await;
    assert_eq!(cleared.status, 200, "{}", cleared.text());
}

#[tokio::test]
async fn the_requests_of_a_web_service_decide_where_its_password_goes() {
    let lab = lab().await;
    let spec = json!({"boot_macs": ["52:54:00:00:00:01"], "bmc": {"driver": "webhook", "address": "pdu.example.com", "password": "hunter2",
        "webhook": {"on": "/3/on", "off": "/3/off", "status": "/3"}}});
    lab.api.declare("/api/v1/machines/m", &spec.to_string()).await;
    for (field, value) in [("plain", json!(true)), ("on", json!("/4/on")), ("soft_off", json!("/3/shutdown"))]
    {
        let change = json!({"bmc": {"webhook": {field: value}}});
        for query in ["", "?dry_run=true"] {
            let machine = format!("/api/v1/machines/m{query}");
            let (status, _, errors) = patch(&lab, &machine, &change.to_string()).await.problem();
            let why = "/spec/bmc/password: bmc.webhook changes, which decides where this secret is sent";
            assert_eq!((status, errors), (422, vec![why.to_owned()]), "{field}");
        }
    }
    let kept = patch(&lab, "/api/v1/machines/m", r#"{"bmc":{"webhook":{"plain":false}},"tags":["a"]}"#).await;
    assert_eq!(
        kept.json()["spec"]["bmc"]["password"],
        json!({"set": true, "revision": 1}),
        "{}",
        kept.text()
    );
    let given = r#"{"bmc":{"password":"hunter2","webhook":{"plain":true}}}"#;
    assert_eq!(patch(&lab, "/api/v1/machines/m", given).await.status, 200);
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
async fn what_another_manager_declared_is_patched_and_deleted_only_with_adopt() {
    let lab = lab().await;
    let (cli, terraform) = (("X-Basalt-Manager", "cli"), ("X-Basalt-Manager", "terraform"));
    let spec = r#"{"spec":{"description":"theirs"}}"#;
    let zone = "/api/v1/zones/a";
    assert_eq!(lab.api.send("PUT", zone, &[terraform], spec.to_owned()).await.status, 201);
    let patched = async |query: &str, headers: &[(&str, &str)]| {
        let headers = [&[TYPE], headers].concat();
        let path = format!("{zone}{query}");
        lab.api.send("PATCH", &path, &headers, r#"{"description":"ours"}"#.to_owned()).await
    };
    let managed = r#"Zone "a" is managed by "terraform""#;
    for headers in [&[cli][..], &[]] {
        for query in ["", "?dry_run=true"] {
            let (status, _, errors) = patched(query, headers).await.problem();
            assert_eq!((status, errors), (422, vec![format!("/spec: {managed}")]), "{headers:?} {query}");
            let refused = lab.api.send("DELETE", &format!("{zone}{query}"), headers, "").await;
            assert_eq!(refused.problem().1, "locked");
            assert!(refused.json()["detail"].as_str().unwrap().contains("is managed by"), "{refused:?}");
        }
    }
    let renamed = async |query: &str, headers: &[(&str, &str)]| {
        let path = format!("{zone}/rename{query}");
        lab.api.send("POST", &path, headers, r#"{"name":"b"}"#).await
    };
    for query in ["", "?dry_run=true"] {
        let refused = renamed(query, &[cli]).await;
        assert_eq!(refused.problem().1, "locked");
        assert!(refused.text().contains("rename it with terraform, or say adopt"), "{refused:?}");
    }
    // The Vlans of a Fabric have its name in theirs.
    let fabric = "/api/v1/fabrics/g";
    lab.api.send("PUT", fabric, &[cli], r#"{"spec":{}}"#).await;
    let vlan = r#"{"spec":{"fabric":"g","vid":5}}"#;
    assert_eq!(lab.api.send("PUT", "/api/v1/vlans/g.5", &[terraform], vlan).await.status, 201);
    let refused = lab.api.send("POST", &format!("{fabric}/rename"), &[cli], r#"{"name":"h"}"#).await;
    assert_eq!(refused.problem().1, "locked");
    assert!(refused.text().contains(r#"Vlan \"g.5\" is managed by"#), "{refused:?}");
    assert_eq!(lab.api.get("/api/v1/vlans/g.5").await.status, 200);
    assert_eq!(renamed("?dry_run=true", &[terraform]).await.status, 200);
    assert_eq!(renamed("?dry_run=true&adopt=true", &[cli]).await.status, 200);
    assert_eq!(lab.api.get(zone).await.json()["spec"]["description"], "theirs");
    let mine = lab.api.send("PATCH", zone, &[TYPE, terraform], r#"{"description":"still theirs"}"#).await;
    assert_eq!(mine.status, 200, "{}", mine.text());
    let plan = patched("?adopt=true&dry_run=true", &[cli]).await.json()["plan"].clone();
    assert_eq!(plan["taken_from"], "terraform", "{plan}");
    let ours = patched("?adopt=true", &[cli]).await;
    assert_eq!(ours.json()["metadata"]["manager"], "cli");
    assert_eq!(lab.api.send("DELETE", zone, &[terraform], "").await.problem().1, "locked");
    assert_eq!(lab.api.send("DELETE", &format!("{zone}?adopt=true"), &[terraform], "").await.status, 204);
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
