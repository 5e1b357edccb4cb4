//! `dry_run`: every write either shows its result or refuses the parameter, and writes nothing.

use crate::allocation::{apply, image, machine, once};
use crate::support::{Answer, Client, Lab, driven_lab, lab, network};
use crate::tags::report_inventory;
use basalt_api::agent::{Disk, Firmware, Inventory, Nic};
use basalt_api::routes::{ROUTES, RouteId as Id};
use basalt_db::testing::clock::Hand;
use basalt_region::racks::join_token::Joiner;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The SHA-256 of `hello`.
const HELLO: &str = "/api/v1/blobs/2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

/// Every endpoint that writes, with a request that would succeed: route, path, body.
pub(crate) const WRITES: &[(Id, &str, &str)] = &[
    (Id::Write, "/api/v1/zones/new", r#"{"spec":{}}"#),
    (Id::Write, "/api/v1/zones/a", r#"{"spec":{"description":"other"}}"#),
    (Id::Write, "/api/v1/users/bob", r#"{"spec":{"password":"correct horse battery"}}"#),
    (Id::Patch, "/api/v1/zones/a", r#"{"description":"patched"}"#),
    (Id::Delete, "/api/v1/zones/b", ""),
    (Id::Delete, "/api/v1/machines/leaving", ""),
    (Id::Rename, "/api/v1/fabrics/default/rename", r#"{"name":"main"}"#),
    (Id::WriteLayer, "/api/v1/machines/m/layers/cmdb", r#"{"labels":{"row":"1"},"tags":["gpu"]}"#),
    (Id::Operate, "/api/v1/machines/m/operations", r#"{"verb":"recommission"}"#),
    (Id::OperateMany, "/api/v1/operations", r#"{"names":["m"],"operation":{"verb":"recommission"}}"#),
    (Id::Apply, "/api/v1/apply", r#"{"documents":[{"kind":"Zone","metadata":{"name":"c"},"spec":{}}]}"#),
    (Id::ReportRun, "/api/v1/runs/0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e", r#"{"ends":true}"#),
    (Id::Login, "/api/v1/login", r#"{"user":"alice","password":"correct horse battery"}"#),
    (
        Id::ChangePassword,
        "/api/v1/password",
        r#"{"present":"correct horse battery","password":"another horse altogether"}"#,
    ),
    (Id::Logout, "/api/v1/logout", ""),
    (Id::IssueApiToken, "/api/v1/api_tokens/ci/issue", ""),
    (Id::RevokeApiToken, "/api/v1/api_tokens/ci/revoke", ""),
    // The only dead letter is deleted here, so the redelivery after it just enables the webhook.
    (Id::Discard, "/api/v1/webhooks/hook/discard", "{}"),
    (Id::Redeliver, "/api/v1/webhooks/hook/redeliver", "{}"),
    (Id::MakeJoinToken, "/api/v1/join_tokens", "{}"),
    (Id::PutBlob, HELLO, "hello"),
];

/// Those of [`WRITES`] for users only: a token has no session and no password.
pub(crate) const OF_USERS: [Id; 3] = [Id::Login, Id::Logout, Id::ChangePassword];

/// Queries that are misspelt, or that are neither true nor false.
const MISSPELT: [&str; 4] = ["dry-run=true", "dry_run=yes", "dry_run", "dry_run=true&dry_run=true"];

/// All stored data: a hash of each table, and the blobs, without the heartbeats of regions.
async fn kept(lab: &Lab, hand: &mut Hand) -> BTreeMap<String, String> {
    let tables = hand.run(
        "select table_name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'
         and table_name <> 'region_process' order by 1",
    );
    let of = |row: &Vec<String>| {
        let rows = "string_agg(whole::text, chr(10) order by whole::text)";
        format!("select '{0}', coalesce(md5({rows}), '') from public.\"{0}\" whole", row[0])
    };
    let hashes: Vec<String> = tables.await.iter().map(of).collect();
    let rows = hand.run(&hashes.join(" union all ")).await;
    let mut kept: BTreeMap<String, String> =
        rows.into_iter().map(|mut row| (row.remove(0), row.remove(0))).collect();
    assert!(kept.len() > 20, "{kept:?}");
    let mut directories = vec![lab.dir.path().join("blobs")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.path().is_dir() {
                true => directories.push(entry.path()),
                false => drop(kept.insert(entry.path().display().to_string(), "a file".to_owned())),
            }
        }
    }
    kept
}

fn different(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    names.into_iter().filter(|name| before.get(*name) != now.get(*name)).cloned().collect()
}

/// A region with all objects that [`WRITES`] names.
pub(crate) async fn furnished() -> Lab {
    let lab = lab().await;
    network(&lab.api).await;
    for zone in ["a", "b"] {
        lab.api.declare(&format!("/api/v1/zones/{zone}"), "{}").await;
    }
    for (name, mac) in [("m", "52:54:00:00:00:01"), ("leaving", "52:54:00:00:00:02")] {
        lab.api.declare(&format!("/api/v1/machines/{name}"), &json!({"boot_macs": [mac]}).to_string()).await;
    }
    let run = [("x-basalt-run", "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e"), ("if-none-match", "*")];
    let made = lab.api.send("PUT", "/api/v1/spaces/made", &run, r#"{"spec":{}}"#).await;
    assert_eq!(made.status, 201, "{made:?}");
    lab.api.declare("/api/v1/roles/viewer", r#"{"base":"viewer"}"#).await;
    let alice = r#"{"password":"correct horse battery","roles":["viewer"]}"#;
    lab.api.declare("/api/v1/users/alice", alice).await;
    lab.api.declare("/api/v1/api_tokens/ci", r#"{"role":"viewer"}"#).await;
    lab.api.declare("/api/v1/webhooks/hook", r#"{"url":"http://127.0.0.1:9/"}"#).await;
    let gone = "insert into webhook_state (webhook, disabled_at, disabled_reason)
                select uid, now(), 'answered 410' from object where kind = 'Webhook'";
    let letter = "with event as (insert into webhook_event (object, kind, name, generation, event, body)
                    select uid, 'Zone', 'old', 1, 'deleted', '{}' from object where kind = 'Webhook' returning id, object)
                  insert into webhook_delivery (webhook, event, object, state) select object, id, object, 'dead' from event";
    let mut hand = Hand::on(&lab.url).await;
    hand.run(gone).await;
    hand.run(letter).await;
    let nobody = CertificateDer::from(vec![0]);
    let urls = vec![format!("https://{}", lab.region.address())];
    lab.region.set_joiner(Joiner::new(lab.region.store().clone(), &nobody, urls));
    lab
}

/// A client with a session.
pub(crate) async fn session(lab: &Lab) -> Client {
    let anybody = Client::new(lab.region.address(), None);
    let login = WRITES.iter().find(|row| row.0 == Id::Login).unwrap();
    with_token_of(lab, &anybody.send("POST", login.1, &[], login.2).await)
}

/// A client with the token of an answer.
pub(crate) fn with_token_of(lab: &Lab, answer: &Answer) -> Client {
    Client::new(lab.region.address(), answer.json()["token"].as_str().map(str::to_owned))
}

/// The headers of a request with this method.
pub(crate) fn headers(method: &str) -> &'static [(&'static str, &'static str)] {
    if method == "PATCH" { &[("content-type", "application/merge-patch+json")] } else { &[] }
}

#[tokio::test]
async fn no_write_writes_anything_when_it_is_only_tried() {
    let writes: BTreeSet<_> = ROUTES.iter().filter(|route| !route.is_read()).map(|route| route.id).collect();
    let of_table: BTreeSet<_> = WRITES.iter().map(|row| row.0).collect();
    assert_eq!(writes, of_table, "the table has every route that writes");

    let lab = furnished().await;
    let mut session = session(&lab).await;
    let mut hand = Hand::on(&lab.url).await;
    let mut before = kept(&lab, &mut hand).await;
    for (id, at, body) in WRITES {
        let method = id.route().method;
        let client = if OF_USERS.contains(id) { &session } else { &lab.api };
        let ask =
            async |query: &str| client.send(method, &format!("{at}{query}"), headers(method), *body).await;

        let tried = ask("?dry_run=true").await;
        if id.route().dry_run.is_some() {
            assert_eq!(tried.status, 200, "{method} {at}: {tried:?}");
            let said = tried.json();
            let summary =
                ["/plan/summary", "/summary", "/items/0/plan/summary"].iter().find_map(|at| said.pointer(at));
            assert!(
                summary.and_then(Value::as_str).is_some_and(|it| it.ends_with('.')),
                "{method} {at}: {said}"
            );
        } else {
            let (status, code, errors) = tried.problem();
            assert_eq!((status, code.as_str()), (422, "invalid"), "{method} {at}");
            assert!(errors[0].contains("dry_run"), "{method} {at}: {errors:?}");
        }
        for misspelt in MISSPELT {
            let status = ask(&format!("?{misspelt}")).await.status;
            assert_eq!(status, 422, "{method} {at}?{misspelt}");
        }
        let now = kept(&lab, &mut hand).await;
        assert_eq!(different(&before, &now), [""; 0], "{method} {at} was tried, and has written");

        // The same request without dry_run must write.
        let done = ask("").await;
        assert!(done.status.is_success(), "{method} {at}: {done:?}");
        if *id == Id::ChangePassword {
            session = with_token_of(&lab, &done);
        }
        let after = kept(&lab, &mut hand).await;
        assert!(!different(&now, &after).is_empty(), "{method} {at} writes nothing, and shows nothing here");
        before = after;
    }
}

#[tokio::test]
async fn a_rename_that_is_tried_says_who_follows_and_who_reads_the_new_name() {
    let lab = lab().await;
    network(&lab.api).await;
    lab.api.declare("/api/v1/fabrics/taken", "{}").await;
    let path = "/api/v1/fabrics/default/rename?dry_run=true";
    let tried = lab.api.send("POST", path, &[], r#"{"name":"main"}"#).await.json();
    assert_eq!(tried["object"]["metadata"]["name"], "main");
    assert_eq!(
        tried["plan"]["summary"],
        r#"Fabric "default" will be called "main". With it, Vlan "default.0" will be called "main.0". These refer to what is renamed, and read its new name: Vlan "default.0" (/fabric), Subnet "lab" (/vlan)."#
    );
    assert_eq!((&tried["plan"]["changes"], &tried["plan"]["effect"]), (&json!([]), &json!("none")));
    assert_eq!(lab.api.send("POST", path, &[], r#"{"name":"taken"}"#).await.problem().1, "exists");
    assert_eq!(lab.api.get("/api/v1/vlans/default.0").await.json()["spec"]["fabric"], "default");

    // A caller who sees one pool gets no names of machines in others.
    crate::accounts::pools(&lab.api).await;
    lab.api.declare("/api/v1/zones/z", "{}").await;
    let machine = json!({"pool": "red", "zone": "z", "boot_macs": ["52:54:00:00:00:01"]});
    lab.api.declare("/api/v1/machines/red", &machine.to_string()).await;
    let blue = crate::accounts::issue(&lab, "blue", r#"{"role":"blue"}"#).await;
    let blue = Client::new(lab.region.address(), Some(blue));
    let (path, body) = ("/api/v1/zones/z/rename?dry_run=true", r#"{"name":"y"}"#);
    let said = |answer: Value| answer["plan"]["summary"].as_str().unwrap_or_default().to_owned();
    assert_eq!(said(blue.send("POST", path, &[], body).await.json()), r#"Zone "z" will be called "y"."#);
    assert!(said(lab.api.send("POST", path, &[], body).await.json()).ends_with(r#"Machine "red" (/zone)."#));
}

#[tokio::test]
async fn an_operation_that_is_tried_lists_its_steps_and_asks_for_nothing() {
    let lab = driven_lab().await;
    let machine = json!({
        "boot_macs": ["52:54:00:00:00:01"], "commissioning": {"skip": true},
        "bmc": {"driver": "ipmi", "address": "127.0.0.1", "username": "admin", "password": "secret"},
    });
    lab.api.declare("/api/v1/machines/m", &machine.to_string()).await;
    let keys = |plan: &Value| -> Vec<String> {
        let steps = plan["steps"].as_array().unwrap().iter();
        steps.map(|it| it["key"].as_str().unwrap().split('/').nth(3).unwrap().to_owned()).collect()
    };
    let before = keys(&lab.api.get("/api/v1/machines/m/plan").await.json());
    let path = "/api/v1/machines/m/operations?dry_run=true";
    let tried = lab.api.send("POST", path, &[], r#"{"verb":"recommission"}"#).await;
    assert_eq!(tried.status, 200, "{}", tried.text());
    let plan = tried.json()["plan"].clone();
    assert_eq!(keys(&plan)[..2], ["arm-inventory", "netboot-inventory"]);
    assert_eq!(plan["steps"][0]["state"], "next");
    assert!(plan["steps"].as_array().unwrap().iter().any(|step| step["power"] == true), "{plan}");
    assert!(plan["steps"].as_array().unwrap().iter().all(|step| step["destructive"] == false), "{plan}");
    let after = keys(&lab.api.get("/api/v1/machines/m/plan").await.json());
    assert_eq!((&after, before.iter().any(|key| key == "arm-inventory")), (&before, false));
    assert_eq!(
        lab.api.get("/api/v1/audit?object=machines/m").await.json()["items"].as_array().unwrap().len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_that_is_tried_is_held_against_the_disks_and_interfaces_of_its_machine() {
    let lab = driven_lab().await;
    apply(
        &lab.api,
        vec![image(), json!({"kind": "Zone", "metadata": {"name": "a"}, "spec": {}}), machine("m", "a")],
    )
    .await;
    let disk = |name: &str, size_bytes| Disk { name: name.into(), size_bytes, ..Disk::default() };
    let inventory = Inventory {
        firmware: Firmware::Bios,
        disks: vec![disk("vda", 64_000_000_000), disk("vdb", 32_000_000_000)],
        nics: vec![Nic { name: "enp1s0".into(), mac: "52:54:00:00:00:01".into(), ..Nic::default() }],
        ..Inventory::default()
    };
    report_inventory(&lab, "m", 1, inventory).await;
    once("the machine can be chosen", async || {
        let status = lab.api.get("/api/v1/machines/m").await.json()["status"].clone();
        (status["axes"]["lifecycle"] == "ready" && status["inventory"].is_object()).then_some(())
    })
    .await;
    let notes = async |more: Value| {
        let mut spec = json!({"image": "debian", "machine": "m"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let tried = lab
            .api
            .send("PUT", "/api/v1/deployments/web?dry_run=true", &[], json!({"spec": spec}).to_string())
            .await;
        assert!(tried.status.is_success(), "{}", tried.text());
        tried.json()["plan"]["notes"].clone()
    };
    let misfit = notes(json!({"storage": {"disk": "sdz"}})).await;
    let said = misfit[0].as_str().unwrap_or_default();
    assert!(
        said.starts_with("the storage does not fit the disks of m: ") && said.contains("sdz"),
        "{misfit}"
    );
    assert_eq!(
        notes(json!({})).await,
        json!([
            "the storage does not name its disk, and takes vdb of 32000 MB: of 2 disks the smallest that is large enough",
            "m boots by BIOS, which takes the first disk of its own order: by itself vda, and the system goes to vdb; \
             put that first in the BIOS, or name vda in the storage",
        ])
    );
    let network = json!({"interfaces": {"eno9": {"addressing": "dhcp"}}});
    let misfit = notes(json!({"storage": {"disk": "vda"}, "network": network})).await;
    let said = misfit[0].as_str().unwrap_or_default();
    assert!(said.contains("the machine has no interface eno9; it has enp1s0"), "{misfit}");
    assert_eq!(notes(json!({"storage": {"disk": "vda"}})).await, Value::Null, "nothing to tell");
}

#[tokio::test]
async fn a_token_s_text_that_is_tried_out_is_made_for_nobody_and_the_one_before_stays_good() {
    let lab = lab().await;
    lab.api.declare("/api/v1/roles/viewer", r#"{"base":"viewer"}"#).await;
    lab.api.declare("/api/v1/api_tokens/ci", r#"{"role":"viewer"}"#).await;
    let tried = async |verb: &str| {
        let path = format!("/api/v1/api_tokens/ci/{verb}?dry_run=true");
        lab.api.send("POST", &path, &[], "").await.json()
    };
    assert_eq!(tried("issue").await["plan"]["summary"], r#"ApiToken "ci" gets a text."#);
    let nothing = r#"ApiToken "ci" has no text: nothing will change."#;
    assert_eq!(tried("revoke").await["plan"]["summary"], nothing);
    let text = crate::accounts::issue(&lab, "ci", r#"{"role":"viewer"}"#).await;
    for verb in ["issue", "revoke"] {
        let tried = tried(verb).await;
        let summary = tried["plan"]["summary"].as_str().unwrap();
        assert!(summary.contains("is good no more") && tried.get("token").is_none(), "{verb}: {tried}");
    }
    let ci = Client::new(lab.region.address(), Some(text));
    assert_eq!(ci.get("/api/v1/zones").await.status, 200);
}
