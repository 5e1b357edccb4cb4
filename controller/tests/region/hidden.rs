//! A caller learns nothing about machines and deployments in hidden pools: neither their names nor any of their values.

use crate::accounts::issue;
use crate::allocation::{apply, image, once};
use crate::leases::leased;
use crate::linked::Linked;
use crate::support::{Client, Lab, lab, network};
use crate::tags::report_inventory;
use crate::tried::headers;
use crate::watch::{client_with, told, zone};
use basalt_api::Kind;
use basalt_api::agent::{Cpu, Disk, Dmi, Inventory, MemoryModule, Neighbour, Nic, PciDevice, UsbDevice};
use basalt_api::client::WatchOptions;
use basalt_api::routes::{ROUTES, RouteId as Id};
use basalt_api::watch::What;
use basalt_engine::Policy;
use basalt_region::controller::Controller;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A part of every name and value in the hidden pool.
const MARK: &str = "zqx";
/// The number of cores, and the bytes of memory and disk, of a machine in the hidden pool. No other number has these digits.
const NUMBER: u32 = 1_979_197_919;

/// A MAC, a BMC and an address in the hidden pool. A caller who uses one of them in a request knows it already.
const MAC: &str = "52:54:00:00:0f:01";
const BMC: &str = "10.0.0.66";
const ADDRESS: &str = "10.77.0.33";

/// Requests that touch hidden objects without naming them: route, path, body. Writes are tried as dry runs too.
const REQUESTS: &[(Id, &str, &str)] = &[
    (Id::Metrics, "/metrics", ""),
    (Id::List, "/api/v1/devices?fields=spec", ""),
    (Id::ReadLayers, "/api/v1/devices/phone/layers", ""),
    (Id::Plan, "/api/v1/deployments/web/plan", ""),
    (Id::Plan, "/api/v1/machines/own/plan", ""),
    (Id::Waits, "/api/v1/deployments/web/waits", ""),
    (Id::Timeline, "/api/v1/deployments/web/timeline", ""),
    (Id::Timeline, "/api/v1/machines/own/timeline", ""),
    // The rack boots machines of all pools, and has leased an address to a hidden machine.
    (Id::Plan, "/api/v1/racks/r1/plan", ""),
    (Id::Waits, "/api/v1/racks/r1/waits", ""),
    (Id::Timeline, "/api/v1/racks/r1/timeline", ""),
    (Id::Patch, "/api/v1/racks/r1", r#"{"maintenance":true}"#),
    (Id::Delete, "/api/v1/racks/r1?if_unused=true", ""),
    (Id::Logs, "/api/v1/machines/own/logs", ""),
    (Id::TestResults, "/api/v1/machines/own/results", ""),
    (Id::Decisions, "/api/v1/deployments/db/decisions?replay=true", ""),
    (Id::Decisions, "/api/v1/deployments/spread/decisions?replay=true", ""),
    (Id::Decisions, "/api/v1/machines/own/decisions?replay=true", ""),
    (Id::ListOperations, "/api/v1/machines/own/operations", ""),
    (Id::ReadOperation, "/api/v1/machines/own/operations/00000000-0000-0000-0000-000000000001", ""),
    (Id::Boots, "/api/v1/boots/own", ""),
    (Id::Boots, "/api/v1/boots/52:54:00:00:0f:01", ""),
    (Id::HostName, "/api/v1/names/10.77.0.33", ""),
    (Id::HostName, "/api/v1/names/zq-web.lab.example", ""),
    (Id::Watch, "/api/v1/watch?since=nowhere", ""),
    (Id::WhoAmI, "/api/v1/whoami", ""),
    (Id::ReportRun, "/api/v1/runs/0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e", r#"{"ends":true}"#),
    (Id::Addresses, "/api/v1/addresses", ""),
    (Id::Addresses, "/api/v1/addresses?address=10.77.0.33", ""),
    (Id::Events, "/api/v1/events?limit=1000", ""),
    (Id::Events, "/api/v1/events?object=machine/taken", ""),
    (Id::Audit, "/api/v1/audit", ""),
    (Id::ListDeliveries, "/api/v1/webhooks/hook/deliveries", ""),
    // MACs, BMCs and addresses can belong to only one object.
    (Id::Write, "/api/v1/machines/new", r#"{"spec":{"pool":"blue","boot_macs":["52:54:00:00:0f:01"]}}"#),
    (
        Id::Write,
        "/api/v1/machines/new",
        r#"{"spec":{"pool":"blue","boot_macs":["52:54:00:00:0b:09"],"bmc":{"driver":"ipmi","address":"10.0.0.66","username":"admin"}}}"#,
    ),
    (Id::Write, "/api/v1/devices/new", r#"{"spec":{"macs":["52:54:00:00:0f:01"]}}"#),
    (Id::Write, "/api/v1/devices/new", r#"{"spec":{"addresses":["10.77.0.33"]}}"#),
    (Id::Write, "/api/v1/ip_addresses/new", r#"{"spec":{"subnet":"lab","address":"10.77.0.33"}}"#),
    (
        Id::Write,
        "/api/v1/ip_ranges/new",
        r#"{"spec":{"subnet":"lab","start":"10.77.0.20","end":"10.77.0.90"}}"#,
    ),
    // The choice of machines for deployments.
    (
        Id::Write,
        "/api/v1/deployments/new",
        r#"{"spec":{"image":"debian","selector":{"pool":"blue","min_cores":64}}}"#,
    ),
    (
        Id::Write,
        "/api/v1/deployments/new",
        r#"{"spec":{"image":"debian","selector":{"min_cores":64,"pool":"red"}}}"#,
    ),
    (Id::Write, "/api/v1/deployments/new", r#"{"spec":{"image":"debian","selector":{"min_cores":64}}}"#),
    (
        Id::Write,
        "/api/v1/deployments/new",
        r#"{"spec":{"image":"debian","selector":{"pool":"blue","spread_by":"zone","spread_group":"together"}}}"#,
    ),
    // References from hidden objects and to hidden objects.
    (Id::Write, "/api/v1/tags/odd", r#"{"spec":{"expression":"gpus[0].vendor != 'amd'"}}"#),
    (Id::Patch, "/api/v1/devices/phone", r#"{"description":"other"}"#),
    (Id::Patch, "/api/v1/devices/phone", r#"{"parent":"own"}"#),
    (Id::Delete, "/api/v1/devices/phone", ""),
    (Id::Delete, "/api/v1/zones/hall", ""),
    (Id::Delete, "/api/v1/zones/hall?if_unused=true", ""),
    (Id::Delete, "/api/v1/pools/red?if_unused=true", ""),
    (Id::Delete, "/api/v1/images/debian", ""),
    (Id::Delete, "/api/v1/subnets/lab?if_unused=true", ""),
    (Id::Rename, "/api/v1/zones/hall/rename", r#"{"name":"other"}"#),
    (Id::Rename, "/api/v1/machines/own/rename", r#"{"name":"taken"}"#),
    (Id::WriteLayer, "/api/v1/devices/phone/layers/cmdb", "{}"),
    (Id::Operate, "/api/v1/machines/own/operations", r#"{"verb":"recommission"}"#),
    (
        Id::Apply,
        "/api/v1/apply",
        r#"{"documents":[
            {"kind":"Machine","metadata":{"name":"new"},"spec":{"pool":"blue","boot_macs":["52:54:00:00:0f:01"]}},
            {"kind":"Machine","metadata":{"name":"taken"},"spec":{"pool":"blue"}},
            {"kind":"Deployment","metadata":{"name":"new"},"spec":{"image":"debian","selector":{"pool":"blue","min_cores":64}}},
            {"kind":"Device","metadata":{"name":"phone"},"spec":{"macs":["52:54:00:00:0f:01"]}}]}"#,
    ),
    (
        Id::Apply,
        "/api/v1/apply",
        r#"{"documents":[{"kind":"Device","metadata":{"name":"phone"},"spec":{"macs":["52:54:00:00:0c:01"]}}]}"#,
    ),
    (Id::Actions, "/api/v1/machines/own/actions", ""),
    (
        Id::OperateMany,
        "/api/v1/operations",
        r#"{"where":"pool:red,blue name:z,o","operation":{"verb":"power_on"}}"#,
    ),
    (Id::Login, "/api/v1/login", r#"{"user":"ann","password":"wrong horse battery"}"#),
    (Id::Logout, "/api/v1/logout", ""),
    (Id::ReportRun, "/api/v1/runs/one", "{}"),
    (Id::ChangePassword, "/api/v1/password", "{}"),
    (Id::IssueApiToken, "/api/v1/api_tokens/blue/issue", ""),
    (Id::RevokeApiToken, "/api/v1/api_tokens/blue/revoke", ""),
    (Id::Redeliver, "/api/v1/webhooks/hook/redeliver", "{}"),
    (Id::Discard, "/api/v1/webhooks/hook/discard", "{}"),
    (Id::MakeJoinToken, "/api/v1/join_tokens", "{}"),
    (Id::HeadBlob, "/api/v1/blobs/00", ""),
    (Id::GetBlob, "/api/v1/blobs/00", ""),
    (Id::PutBlob, "/api/v1/blobs/00", ""),
];

/// The pool `blue` has a claimed machine and a deployment that waits for one. All values in the pool `red` contain `MARK`.
async fn fleet() -> (Lab, Linked) {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await;
    network(&lab.api).await;
    let rpc = controller.expect("it starts").rpc_address();
    let rack = Linked::come(&lab, rpc, "r1", "10.77.0.2/24").await;
    leased(&lab, "r1", MAC, "zqx-host", Duration::from_secs(3600)).await;
    for path in ["zones/hall", "pools/blue", "pools/red"] {
        lab.api.declare(&format!("/api/v1/{path}"), "{}").await;
    }
    apply(&lab.api, vec![image()]).await;
    let by_red = &[("x-basalt-manager", "zqx-manager")][..];
    let put = async |by: &[(&str, &str)], path: &str, spec: Value, labels: Value| {
        let body = json!({"spec": spec, "metadata": {"labels": labels}}).to_string();
        let answer = lab.api.send("PUT", &format!("/api/v1/{path}"), by, body).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
    };
    let red = |more: Value| {
        let mut spec =
            json!({"pool": "red", "zone": "hall", "description": "zqx", "commissioning": {"skip": true}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let labels = json!({"zqx-label": "zqx"});
    let bmc = json!({"driver": "ipmi", "address": BMC, "username": "zqx", "password": "zqx"});
    let first = red(json!({"boot_macs": [MAC], "bmc": bmc, "tags": ["zqx"]}));
    put(by_red, "machines/zqx-1", first, labels.clone()).await;
    put(by_red, "machines/zqx-2", red(json!({"mode": "broken"})), labels.clone()).await;
    put(by_red, "machines/taken", red(json!({})), labels.clone()).await;
    report_inventory(&lab, "zqx-1", 1, hardware()).await;
    let interface = json!({"addressing": "static", "subnet": "lab", "address": ADDRESS});
    let selector = json!({"pool": "red", "tags": ["zqx"], "spread_by": "zone", "spread_group": "together"});
    let web = json!({"image": "debian", "selector": selector, "hostname": "zqx-host", "user_data": "#cloud-config\n# zqx\n",
        "description": "zqx", "network": {"interfaces": {"zqx0": interface}}});
    put(by_red, "deployments/zqx-web", web, labels.clone()).await;
    put(
        &[],
        "devices/phone",
        json!({"macs": ["52:54:00:00:0c:01"], "parent": "zqx-1", "zone": "hall"}),
        json!({}),
    )
    .await;
    put(&[], "tags/odd", json!({"expression": "gpus[0].vendor != 'nvidia'"}), json!({})).await;

    let own = json!({"pool": "blue", "zone": "hall", "boot_macs": ["52:54:00:00:0b:01"], "commissioning": {"skip": true}, "locked": true});
    put(&[], "machines/own", own, json!({})).await;
    put(&[], "deployments/db", json!({"image": "debian", "machine": "own"}), json!({})).await;
    let free = json!({"pool": "blue", "zone": "hall", "commissioning": {"skip": true}});
    put(&[], "machines/free", free, json!({})).await;
    once("the hidden deployment has its machine", async || {
        let web = lab.api.get("/api/v1/deployments/zqx-web").await.json();
        (web["status"]["machine"] == "zqx-1").then_some(())
    })
    .await;
    let selector = json!({"pool": "blue", "spread_by": "zone", "spread_group": "together"});
    put(&[], "deployments/spread", json!({"image": "debian", "selector": selector}), json!({})).await;
    let selector = json!({"pool": "blue", "min_cores": 64});
    put(&[], "deployments/web", json!({"image": "debian", "selector": selector}), json!({})).await;
    lab.api.declare("/api/v1/roles/blue", r#"{"base":"operator","pools":["blue"]}"#).await;
    lab.api.declare("/api/v1/roles/blue-viewer", r#"{"base":"viewer","pools":["blue"]}"#).await;

    // Wait until the region has computed everything that mentions hidden objects.
    once("the deployment of the group has its machine", async || {
        let spread = lab.api.get("/api/v1/deployments/spread").await.json();
        (spread["status"]["machine"] == "free").then_some(())
    })
    .await;
    once("the hidden hardware is known", async || {
        let machine = lab.api.get("/api/v1/machines/zqx-1").await;
        machine.text().contains(&NUMBER.to_string()).then_some(())
    })
    .await;
    once("the waiting deployment says why", async || {
        let web = lab.api.get("/api/v1/deployments/web").await;
        web.text().contains("waiting for a machine").then_some(())
    })
    .await;
    once("the tag cannot be computed for a machine", async || {
        let odd = lab.api.get("/api/v1/tags/odd").await;
        odd.text().contains("zqx-1: ").then_some(())
    })
    .await;
    once("the hidden deployment has its address", async || {
        let taken = lab.api.put(
            "/api/v1/ip_addresses/new?dry_run=true",
            r#"{"spec":{"subnet":"lab","address":"10.77.0.33"}}"#,
        );
        taken.await.text().contains("zqx-web").then_some(())
    })
    .await;
    (lab, rack)
}

/// An inventory with the mark in every text, and with the number.
fn hardware() -> Inventory {
    let text = || MARK.to_owned();
    let bytes = u64::from(NUMBER);
    let neighbour = Neighbour {
        protocol: "lldp".to_owned(),
        chassis_id: text(),
        port_id: text(),
        port_description: text(),
        system_name: text(),
        system_description: text(),
        vlans: [(7, text())].into(),
        ..Neighbour::default()
    };
    Inventory {
        cpu: Cpu { model: text(), microcode: text(), cores: NUMBER, flags: vec![text()], ..Cpu::default() },
        memory_bytes: bytes,
        disks: vec![Disk {
            name: format!("{MARK}d"),
            size_bytes: bytes,
            model: text(),
            serial: text(),
            ids: vec![text()],
            paths: vec![text()],
            firmware: text(),
            ..Disk::default()
        }],
        nics: vec![Nic {
            name: format!("{MARK}0"),
            mac: MAC.to_owned(),
            driver: text(),
            firmware: text(),
            neighbours: vec![neighbour],
            ..Nic::default()
        }],
        pci: vec![PciDevice {
            address: text(),
            vendor: text(),
            device: text(),
            driver: text(),
            ..PciDevice::default()
        }],
        dmi: Dmi {
            manufacturer: text(),
            product: text(),
            serial: text(),
            uuid: text(),
            bios_version: text(),
        },
        memory_modules: vec![MemoryModule {
            slot: text(),
            manufacturer: text(),
            part_number: text(),
            serial: text(),
            ..MemoryModule::default()
        }],
        usb: vec![UsbDevice {
            port: text(),
            manufacturer: text(),
            product_name: text(),
            serial: text(),
            ..UsbDevice::default()
        }],
        ..Inventory::default()
    }
}

/// Changes hidden objects, and objects whose status or spec mentions hidden ones. Returns after the region has followed all changes.
async fn touch(lab: &Lab, word: &str) {
    let by_red = ("x-basalt-manager", "zqx-manager");
    for (path, change) in [
        ("machines/zqx-1", json!({"description": format!("zqx {word}")})),
        ("deployments/zqx-web", json!({"description": format!("zqx {word}")})),
        ("deployments/web", json!({"description": word})),
        ("devices/phone", json!({"description": word})),
        ("tags/odd", json!({"comment": word, "expression": format!("gpus[0].vendor != '{word}'")})),
    ] {
        let mut headers = headers("PATCH").to_vec();
        headers.extend(path.contains(MARK).then_some(by_red));
        let answer = lab.api.send("PATCH", &format!("/api/v1/{path}"), &headers, change.to_string()).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
        once("the region has followed it", async || {
            let object = lab.api.get(&format!("/api/v1/{path}")).await.json();
            let seen = &object["status"]["observed_generation"];
            // A Device has no status that the region computes.
            (seen.is_null() || *seen == object["metadata"]["generation"]).then_some(())
        })
        .await;
    }
}

/// Begins a watch. A position from before the region knew of the token is refused, and the client lists again.
async fn begin_watch(lab: &Lab, token: &str) -> (TcpStream, String) {
    let watcher = client_with(lab, Some(token.to_owned()));
    once("the watch begins", async || {
        let (_, since) = watcher.list_to_watch(zone(), &BTreeMap::new()).await.unwrap();
        let since = since.expect("a position");
        let mut socket = TcpStream::connect(lab.region.address()).await.expect("it listens");
        let request =
            format!("GET /api/v1/watch?since={since} HTTP/1.0\r\nauthorization: Bearer {token}\r\n\r\n");
        socket.write_all(request.as_bytes()).await.expect("it reads");
        let begun = next_part(&mut socket).await;
        begun.starts_with("HTTP/1.0 200").then_some((socket, begun))
    })
    .await
}

async fn next_part(socket: &mut TcpStream) -> String {
    let mut part = [0; 4096];
    let read = tokio::time::timeout(Duration::from_secs(20), socket.read(&mut part)).await;
    String::from_utf8_lossy(&part[..read.expect("in time").expect("it answers")]).into_owned()
}

/// The events of a watch, to the first one with `last`.
async fn frames((mut socket, mut frames): (TcpStream, String), last: &str) -> String {
    while !frames.contains(last) {
        let part = next_part(&mut socket).await;
        assert!(!part.is_empty(), "the watch has ended: {frames}");
        frames.push_str(&part);
    }
    frames
}

/// True if a text has something of the hidden pool.
fn has_mark(text: &str) -> bool {
    text.contains(MARK) || text.contains(&NUMBER.to_string())
}

/// Paths of all objects in kinds without pools, and of hidden objects by uid.
async fn reads(lab: &Lab) -> Vec<String> {
    let mut paths = Vec::new();
    for kind in basalt_api::KINDS {
        let list = format!("/api/v1/{}", kind.plural);
        let listed = lab.api.get(&list).await.json();
        for object in listed["items"].as_array().into_iter().flatten() {
            let (name, uid) = (object["metadata"]["name"].as_str(), object["metadata"]["uid"].as_str());
            paths.extend(name.filter(|name| !name.contains(MARK)).map(|name| format!("{list}/{name}")));
            paths.extend(uid.map(|uid| format!("{list}/uid:{uid}")));
        }
        paths.extend([list.clone(), format!("{list}?layers=true&q=zq"), format!("{list}?where=zq")]);
    }
    paths
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_names_anything_of_a_pool_that_is_not_seen() {
    let asked: BTreeSet<_> = REQUESTS.iter().map(|row| row.0).chain([Id::List, Id::Read]).collect();
    let missing: Vec<_> =
        ROUTES.iter().filter(|route| route.role.is_some() && !asked.contains(&route.id)).collect();
    assert!(missing.is_empty(), "nobody asks these: {missing:?}");

    let (lab, _rack) = fleet().await;
    let reads = reads(&lab).await;
    let (mut wrong, mut words) = (Vec::new(), Vec::new());
    for role in ["blue-viewer", "blue"] {
        let token = issue(&lab, role, &json!({"role": role}).to_string()).await;
        let caller = Client::new(lab.region.address(), Some(token.clone()));
        let watch = begin_watch(&lab, &token).await;
        touch(&lab, role).await;
        let last = format!("last-of-{role}");
        lab.api.declare(&format!("/api/v1/zones/{last}"), "{}").await;
        let seen = frames(watch, &last).await;
        for name in ["web", "phone", "odd"] {
            assert!(seen.contains(&format!(r#""name":"{name}""#)), "{role}: no event of {name}: {seen}");
        }
        if has_mark(&seen) {
            wrong.push(format!("{role}: the watch: {seen}"));
        }
        let spread = caller.get("/api/v1/deployments/spread/decisions").await;
        if !spread.text().contains("zone hall holds 0 of its group") {
            wrong.push(format!("{role}: the group: {}", spread.text()));
        }

        let mut told = 0;
        let mut ask = async |method: &str, path: &str, body: &str| {
            let answer = caller.send(method, path, headers(method), body.to_owned()).await;
            assert!(answer.status.as_u16() < 500, "{method} {path}: {answer:?}");
            told += usize::from(answer.text().contains("that you do not see"));
            if has_mark(answer.text()) {
                wrong.push(format!("{role}: {method} {path} {body}: {}", answer.text()));
            }
        };
        for path in &reads {
            ask("GET", path, "").await;
        }
        for (id, path, body) in REQUESTS {
            let (route, method) = (id.route(), id.route().method);
            if route.dry_run.is_some() {
                let more = if path.contains('?') { "&" } else { "?" };
                ask(method, &format!("{path}{more}dry_run=true"), body).await;
            }
            if !path.contains("api_tokens") {
                ask(method, path, body).await;
            }
        }
        words.push((role, told));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(words.iter().all(|(_, told)| *told > 5), "there are conflicts with what is hidden: {words:?}");
}

#[tokio::test]
async fn what_somebody_declares_in_a_pool_is_read_there_as_it_was_declared() {
    let lab = lab().await;
    for path in ["pools/blue", "pools/red"] {
        lab.api.declare(&format!("/api/v1/{path}"), "{}").await;
    }
    apply(&lab.api, vec![image()]).await;
    lab.api
        .declare("/api/v1/machines/elsewhere", r#"{"pool":"red","boot_macs":["52:54:00:00:0f:01"]}"#)
        .await;
    lab.api.declare("/api/v1/roles/blue", r#"{"base":"operator","pools":["blue"]}"#).await;
    let blue = Client::new(lab.region.address(), Some(issue(&lab, "blue", r#"{"role":"blue"}"#).await));
    let user_data =
        "#cloud-config\nfinal_message: Machine \"$HOSTNAME\" is up, and Machine \"elsewhere\" is not\n";
    let spec = json!({"image": "debian", "selector": {"pool": "blue"}, "user_data": user_data});
    let written = blue.put("/api/v1/deployments/web", &json!({"spec": spec}).to_string()).await;
    assert_eq!(written.json()["spec"], spec, "{written:?}");
    assert_eq!(blue.get("/api/v1/deployments/web").await.json()["spec"], spec);
    assert_eq!(blue.get("/api/v1/deployments?q=HOSTNAME").await.json()["items"][0]["spec"], spec);
}

#[tokio::test]
async fn what_somebody_is_to_create_is_called_by_its_name() {
    let lab = lab().await;
    lab.api.declare("/api/v1/pools/blue", "{}").await;
    lab.api.declare("/api/v1/roles/blue", r#"{"base":"operator","pools":["blue"]}"#).await;
    let blue = Client::new(lab.region.address(), Some(issue(&lab, "blue", r#"{"role":"blue"}"#).await));
    let spec = r#"{"pool":"blue","boot_macs":["52:54:00:00:0b:01"]}"#;
    let document = &format!(r#"{{"kind":"Machine","metadata":{{"name":"new"}},"spec":{spec}}}"#);
    let written = blue.put("/api/v1/machines/new?dry_run=true", &format!(r#"{{"spec":{spec}}}"#)).await;
    assert_eq!(written.json()["plan"]["summary"], "Machine \"new\" will be created.", "{written:?}");
    let applied = async |documents: &str| {
        let body = format!(r#"{{"documents":[{documents}]}}"#);
        blue.send("POST", "/api/v1/apply?dry_run=true", headers("POST"), body).await.text().to_string()
    };
    let once = applied(document).await;
    assert!(once.contains(r#"Machine \"new\" will be created."#), "{once}");
    let twice = applied(&format!("{document},{document}")).await;
    assert!(twice.contains(r#"Machine \"new\" stands in /documents/0 already"#), "{twice}");
}

#[tokio::test]
async fn what_is_hidden_is_as_good_as_missing() {
    let lab = lab().await;
    for path in ["pools/blue", "pools/red"] {
        lab.api.declare(&format!("/api/v1/{path}"), "{}").await;
    }
    lab.api
        .declare("/api/v1/machines/elsewhere", r#"{"pool":"red","boot_macs":["52:54:00:00:0f:01"]}"#)
        .await;
    lab.api.declare("/api/v1/machines/own", r#"{"pool":"blue","boot_macs":["52:54:00:00:0b:01"]}"#).await;
    lab.api.declare("/api/v1/roles/blue", r#"{"base":"operator","pools":["blue"]}"#).await;
    let token = issue(&lab, "blue", r#"{"role":"blue"}"#).await;
    let blue = Client::new(lab.region.address(), Some(token.clone()));
    let tried = async |parent: &str| {
        let body = json!({"spec": {"macs": ["52:54:00:00:0c:02"], "parent": parent}}).to_string();
        let answer = blue.put("/api/v1/devices/d?dry_run=true", &body).await.json();
        (answer["object"]["spec"]["parent"].clone(), answer["advisories"].to_string().replace(parent, "it"))
    };
    assert_eq!(tried("elsewhere").await, tried("nowhere").await);
    assert!(tried("elsewhere").await.1.contains("there is no Machine"));
    assert_eq!(tried("own").await, (json!("own"), "[]".to_owned()));

    // Text that a caller declares is returned unchanged, even if it names a hidden object.
    let described = async |name: &str| {
        let spec = json!({"pool": "blue", "description": format!("see Machine \"{name}\""), "boot_macs": ["52:54:00:00:0b:01"]});
        let body = json!({"spec": spec}).to_string();
        let mut answer = blue.put("/api/v1/machines/own?dry_run=true", &body).await.json();
        assert_eq!(answer["object"]["spec"], spec);
        assert_eq!(answer["plan"]["changes"][0]["new"], spec["description"]);
        answer["object"]["metadata"]["updated_at"].take();
        answer.to_string().replace(name, "it")
    };
    assert_eq!(described("elsewhere").await, described("nowhere").await);

    // A search does not match a hidden name.
    lab.api.declare("/api/v1/devices/found", r#"{"macs":["52:54:00:00:0c:03"],"parent":"elsewhere"}"#).await;
    let found = async |client: &Client| {
        client.get("/api/v1/devices?q=elsewher").await.json()["items"].as_array().unwrap().len()
    };
    assert_eq!((found(&lab.api).await, found(&blue).await), (1, 0));

    // A Device shows its machine only to callers who see that machine.
    let device = Kind::find("Device").unwrap();
    let client = client_with(&lab, Some(token));
    let (_, since) = client.list_to_watch(device, &BTreeMap::new()).await.unwrap();
    let mut watch = client.watch(WatchOptions { kinds: vec![device], since, ..WatchOptions::default() });
    for (mac, parent, shown) in
        [("52:54:00:00:0c:04", "elsewhere", Value::Null), ("52:54:00:00:0c:05", "own", json!("own"))]
    {
        let path = format!("/api/v1/devices/of-{parent}");
        lab.api.declare(&path, &json!({"macs": [mac], "parent": parent}).to_string()).await;
        assert_eq!(blue.get(&path).await.json()["spec"]["parent"], shown);
        // Earlier changes may arrive again.
        let of = loop {
            match told(&mut watch).await.what {
                What::Put(object) if path.ends_with(object.metadata.name.as_str()) => break object,
                _ => {}
            }
        };
        assert_eq!(of.spec["parent"], shown);
    }
}
