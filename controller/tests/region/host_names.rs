//! How racks answer for names, in the region's words: records, their objects, zones, and the racks that hold them.

use crate::accounts::issue;
use crate::leases::leased;
use crate::linked::Linked;
use crate::support::{Client, Lab, lab};
use crate::tags::report_inventory;
use basalt_api::agent::{Inventory, Nic};
use basalt_api::values::RackId;
use basalt_db::Key;
use basalt_engine::Policy;
use basalt_region::controller::Controller;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// A subnet with a dynamic range, a default domain with hosts and records, and a rack.
async fn furnished() -> (Lab, Controller, Linked) {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    crate::leases::furnish(&lab).await;
    lab.api.declare("/api/v1/domains/lab.example", r#"{"ttl":60}"#).await;
    let settings = r#"{"default_domain":"lab.example","upstream_dns":["192.0.2.1"]}"#;
    lab.api.declare("/api/v1/settings/default", settings).await;
    let rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    lab.api.declare("/api/v1/devices/switch", r#"{"addresses":["10.77.0.3"]}"#).await;
    let kept = r#"{"subnet":"lab","address":"10.77.0.9","hostname":"printer"}"#;
    lab.api.declare("/api/v1/ip_addresses/kept", kept).await;
    for (name, owner, rtype, data) in [
        ("www", "www", "CNAME", "switch.lab.example"),
        ("out", "out", "CNAME", "a.corp.example"),
        ("one", "one", "CNAME", "two.lab.example"),
        ("two", "two", "CNAME", "one.lab.example"),
        ("star", "*.apps", "A", "10.77.0.50"),
        ("deep", "a.b", "TXT", "a text"),
        ("sub", "sub", "NS", "ns.sub.lab.example"),
        ("glue", "ns.sub", "A", "192.0.2.77"),
        ("off", "off", "NS", "ns.far.example"),
    ] {
        let record = json!({"domain": "lab.example", "owner_name": owner, "type": rtype, "data": data});
        lab.api.declare(&format!("/api/v1/dns_records/{name}"), &record.to_string()).await;
    }
    lab.api.declare("/api/v1/domains/far.example", "{}").await;
    let server = r#"{"domain":"far.example","owner_name":"ns","type":"A","data":"10.88.0.53"}"#;
    lab.api.declare("/api/v1/dns_records/far-server", server).await;
    let other = r#"{"authoritative":false,"forward_to":["192.0.2.53"]}"#;
    lab.api.declare("/api/v1/domains/corp.example", other).await;
    let it = (lab, controller, rack);
    until(&it.0.api, "printer", |told| told["outcome"] == "answered").await;
    until(&it.0.api, "10.77.0.9", |told| told["outcome"] == "answered").await;
    until(&it.0.api, "ns.sub.lab.example", |told| told["servers"] == json!(["192.0.2.77"])).await;
    until(&it.0.api, "x.off.lab.example", |told| told["servers"] == json!(["10.88.0.53"])).await;
    until(&it.0.api, "lab.rack.basalt.internal", |told| told["outcome"] == "answered").await;
    it
}

async fn told(api: &Client, name: &str) -> Value {
    api.get(&format!("/api/v1/names/{name}")).await.json()
}

/// Asks until the answer is as it should be, and returns it.
async fn until(api: &Client, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let told = told(api, name).await;
        if holds(&told) {
            return told;
        }
        assert!(began.elapsed() < PATIENCE, "{name}: {told}");
        tokio::task::yield_now().await;
    }
}

/// The records of an answer: `OWNER TTL TYPE DATA of WILDCARD from KIND NAME, …`.
fn records(told: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |it: &Value| {
        let from: Vec<_> = it["from"].as_array().unwrap().iter().collect();
        let from: Vec<_> =
            from.iter().map(|of| format!("{} {}", text(&of["kind"]), text(&of["name"]))).collect();
        let star = it["wildcard"].as_str().map(|star| format!(" of {star}")).unwrap_or_default();
        let (owner, rtype, data) = (text(&it["owner"]), text(&it["type"]), text(&it["data"]));
        format!("{owner} {} {rtype} {data}{star} from {}", it["ttl"], from.join(", "))
    };
    told["records"].as_array().expect("records").iter().map(line).collect()
}

#[tokio::test]
async fn a_name_is_told_with_its_records_and_their_objects() {
    let (lab, _controller, _rack) = furnished().await;
    for (name, wanted, words) in [
        (
            "printer",
            &["printer.lab.example 60 A 10.77.0.9 from IpAddress kept"][..],
            "zone lab.example answers",
        ),
        (
            "Switch.Lab.Example.",
            &["switch.lab.example 60 A 10.77.0.3 from Device switch"],
            "zone lab.example",
        ),
        (
            "www.lab.example",
            &[
                "www.lab.example 60 CNAME switch.lab.example. from DnsRecord www",
                "switch.lab.example 60 A 10.77.0.3 from Device switch",
            ],
            "www.lab.example is an alias of switch.lab.example; ",
        ),
        (
            "x.y.apps.lab.example",
            &["x.y.apps.lab.example 60 A 10.77.0.50 of *.apps.lab.example from DnsRecord star"],
            "of the wildcard *.apps.lab.example",
        ),
        ("a.b", &["a.b.lab.example 60 TXT a text from DnsRecord deep"], "queries for A and AAAA get no data"),
        (
            "ip-10-77-0-112",
            &["ip-10-77-0-112.lab.example 60 A 10.77.0.112 from IpRange pool"],
            "zone lab.example answers",
        ),
        (
            "10.77.0.9",
            &["9.0.77.10.in-addr.arpa 300 PTR printer.lab.example. from IpAddress kept"],
            "zone 0.77.10.in-addr.arpa answers",
        ),
        (
            "10.77.0.112",
            &["112.0.77.10.in-addr.arpa 300 PTR ip-10-77-0-112.lab.example. from IpRange pool"],
            "zone 0.77.10.in-addr.arpa answers",
        ),
        (
            "lab.rack.basalt.internal",
            &["lab.rack.basalt.internal 15 A 10.77.0.2 from Subnet lab, Rack r1"],
            "zone basalt.internal answers",
        ),
        (
            "lab.example",
            &["lab.example 60 NS ns.basalt.internal. from "],
            "it has no address, so queries for A and AAAA get no data",
        ),
    ] {
        let path = if name == "a.b" { "a.b.lab.example" } else { name };
        let told = told(&lab.api, path).await;
        assert_eq!(records(&told), wanted, "{name}: {told}");
        assert_eq!(told["outcome"], "answered", "{name}");
        assert!(told["message"].as_str().unwrap().contains(words), "{name}: {told}");
    }
    // The status of a Domain is written after its zone.
    let began = Instant::now();
    let told = loop {
        let told = told(&lab.api, "www").await;
        let status = lab.api.get("/api/v1/domains/lab.example").await.json()["status"]["serial"].clone();
        if told["zones"][0]["serial"] == status {
            break told;
        }
        assert!(began.elapsed() < PATIENCE, "status has serial {status}: {told}");
        tokio::task::yield_now().await;
    };
    assert_eq!(told["zones"][0]["from"], json!([{"kind": "Domain", "name": "lab.example"}]));
}

#[tokio::test]
async fn a_name_without_an_answer_is_told_in_words() {
    let (lab, _controller, _rack) = furnished().await;
    lab.api.declare("/api/v1/domains/x.basalt.internal", "{}").await;
    for (name, outcome, words, servers) in [
        ("pinter", "no_name", "zone lab.example has no name pinter.lab.example", &[][..]),
        ("pinter", "no_name", "there is printer.lab.example", &[]),
        ("b.lab.example", "no_data", "has no records, only names below it", &[]),
        ("one.lab.example", "no_data", "leads to one.lab.example again", &[]),
        (
            "x.sub.lab.example",
            "delegated",
            "zone lab.example delegates sub.lab.example to other servers: racks ask 192.0.2.77",
            &["192.0.2.77"],
        ),
        (
            "x.off.lab.example",
            "delegated",
            "zone lab.example delegates off.lab.example to other servers: racks ask 10.88.0.53",
            &["10.88.0.53"],
        ),
        (
            "a.corp.example",
            "forwarded",
            "Domain corp.example is declared and is not authoritative: racks ask 192.0.2.53",
            &["192.0.2.53"],
        ),
        (
            "out.lab.example",
            "forwarded",
            "out.lab.example is an alias of a.corp.example; Domain corp",
            &["192.0.2.53"],
        ),
        ("printer.lab.exmaple", "upstream", "there is Domain lab.example", &["192.0.2.1"]),
        ("www.debian.org", "upstream", "racks ask 192.0.2.1 (upstream_dns of the Settings)", &["192.0.2.1"]),
        (
            "a.x.basalt.internal",
            "no_name",
            "Domain x.basalt.internal is not served, because basalt.internal is the region's own domain",
            &[],
        ),
    ] {
        let told = told(&lab.api, name).await;
        assert_eq!(told["outcome"], outcome, "{name}: {told}");
        assert!(told["message"].as_str().unwrap().contains(words), "{name}: {told}");
        assert_eq!(told["servers"], json!(servers), "{name}");
    }
}

#[tokio::test]
async fn racks_are_told_with_the_zones_that_they_hold() {
    let (lab, controller, _rack) = furnished().await;
    let silent = Linked::come_silent(&lab, controller.rpc_address(), "r2", "10.77.0.4/24").await;
    let of = |told: &Value, place: usize| told["racks"][place].clone();
    let told = until(&lab.api, "printer", |told| {
        of(told, 0)["holds"] == true
            && of(told, 1)["message"].as_str().is_some_and(|it| it.contains("has not acknowledged"))
    });
    let told = told.await;
    assert_eq!((of(&told, 0)["rack"].as_str(), of(&told, 1)["rack"].as_str()), (Some("r1"), Some("r2")));
    let serial = told["zones"][0]["serial"].as_u64().unwrap();
    let words = of(&told, 0)["message"].as_str().unwrap().to_owned();
    assert!(
        words.starts_with(&format!("holds lab.example at serial {serial}; answers DNS at no address")),
        "{words}"
    );
    assert_eq!(of(&told, 1)["holds"], false);
    assert!(of(&told, 1)["since"].is_string(), "{told}");

    // A zone that is written after the document is not held yet.
    let store = lab.region.store();
    let r1 = RackId::from(store.get("Rack", Key::Name("r1")).await.expect("a rack").uid);
    let began = Instant::now();
    let state = loop {
        let states = store.document_states("dns").await.expect("states");
        let state = states.into_iter().find(|it| it.rack == r1).expect("the rack");
        if state.ack.as_ref().is_some_and(|ack| ack.generation == state.generation) {
            break state;
        }
        assert!(began.elapsed() < PATIENCE, "{state:?}");
        tokio::task::yield_now().await;
    };
    let row = store.zones(&["lab.example".to_owned()]).await.expect("zones").pop().expect("the zone");
    assert!(state.written_at.is_some_and(|at| at >= row.updated_at), "{state:?} {row:?}");
    assert!(state.ack.as_ref().is_some_and(|ack| ack.is_applied()));
    drop(silent);
}

#[tokio::test]
async fn a_machine_that_is_not_seen_has_no_name() {
    let (lab, _controller, _rack) = furnished().await;
    for path in ["pools/blue", "pools/red"] {
        lab.api.declare(&format!("/api/v1/{path}"), "{}").await;
    }
    let mac = "52:54:00:00:00:01";
    let in_pool = async |pool: &str| {
        let spec = json!({"pool": pool, "boot_macs": [mac], "commissioning": {"skip": true}});
        lab.api.declare("/api/v1/machines/mover", &spec.to_string()).await;
    };
    in_pool("blue").await;
    let nics = vec![Nic { name: "enp1s0".to_owned(), mac: mac.to_owned(), ..Nic::default() }];
    report_inventory(&lab, "mover", 1, Inventory { nics, ..Inventory::default() }).await;
    leased(&lab, "r1", mac, "mover", Duration::from_secs(3600)).await;
    lab.api.declare("/api/v1/roles/blue", r#"{"base":"viewer","pools":["blue"]}"#).await;
    let blue = Client::new(lab.region.address(), Some(issue(&lab, "blue", r#"{"role":"blue"}"#).await));

    let named = ["mover.lab.example 60 A 10.77.0.100 from Machine mover"];
    until(&blue, "mover", |told| records(told) == named).await;
    let pointer = ["100.0.77.10.in-addr.arpa 300 PTR mover.lab.example. from Machine mover"];
    until(&blue, "10.77.0.100", |told| records(told) == pointer).await;
    let computed = told(&blue, "ip-10-77-0-100").await["records"][0]["from"].clone();
    assert_eq!(computed[0]["note"], "leased to mover, which calls itself \"mover\"");

    in_pool("red").await;
    assert_eq!(records(&told(&lab.api, "mover").await), named, "who sees all pools is told");
    let as_it = async |client: &Client, name: &str, hidden: &str| {
        let mut told = told(client, name).await;
        told["racks"].take();
        told.to_string().replace(hidden, "it")
    };
    assert_eq!(as_it(&blue, "mover", "mover").await, as_it(&blue, "absent", "absent").await);
    assert_eq!(as_it(&blue, "10.77.0.100", "100").await, as_it(&blue, "10.77.0.101", "101").await);
    let by_label = [as_it(&blue, "ip-10-77-0-100", "100").await, as_it(&blue, "ip-10-77-0-101", "101").await];
    assert_eq!(by_label[0], by_label[1]);
    assert!(by_label[0].contains("machines and deployments that you do not see are left out"));
    assert_eq!(told(&blue, "mver").await["near"], json!([]), "a similar name is not told");
    assert_eq!(told(&lab.api, "mver").await["near"], json!(["mover.lab.example"]));
    assert_eq!(records(&told(&blue, "www").await).len(), 2, "objects of no pool are told");
}
