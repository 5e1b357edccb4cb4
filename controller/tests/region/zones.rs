//! DNS zones in the racks' documents: their content, and the cases in which their serials rise.

use crate::linked::Linked;
use crate::support::{Lab, lab};
use basalt_api::values::{RackId, Timestamp};
use basalt_db::{Key, NewFact};
use basalt_engine::Policy;
use basalt_proto::rack_v1::{DhcpConcern, DnsConcern, DnsZone, Fact, ServiceHealth, fact};
use basalt_region::controller::Controller;
use basalt_region::racks::observed::new_fact;
use prost::Message;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// A subnet with a dynamic range, a default domain, and a rack.
async fn furnished() -> (Lab, Controller, Linked) {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    crate::leases::furnish(&lab).await;
    lab.api.declare("/api/v1/domains/lab.example", r#"{"ttl":60}"#).await;
    lab.api.declare("/api/v1/settings/default", r#"{"default_domain":"lab.example"}"#).await;
    let rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    (lab, controller, rack)
}

fn last(rack: &Linked) -> DnsConcern {
    let told = rack.told().concerns;
    let version = told.iter().rfind(|version| version.concern == "dns");
    version.map(|it| DnsConcern::decode(it.body.as_slice()).expect("a concern")).unwrap_or_default()
}

/// The latest version of a zone at the rack: its serial and its records.
fn zone(rack: &Linked, origin: &str) -> Option<(u32, Vec<String>)> {
    let zone = last(rack).zones.into_iter().find(|zone| zone.origin == origin)?;
    Some((zone.serial, lines(&zone)))
}

fn lines(zone: &DnsZone) -> Vec<String> {
    let line =
        |it: &basalt_proto::rack_v1::DnsRecord| format!("{} {} {} {}", it.owner, it.ttl, it.rtype, it.data);
    zone.records.iter().map(line).collect()
}

/// Waits until the rack has a zone with exactly these records, and returns its serial.
async fn until(rack: &Linked, origin: &str, records: &[&str]) -> u32 {
    let began = Instant::now();
    loop {
        match zone(rack, origin) {
            Some((serial, lines)) if lines == records => return serial,
            other => assert!(began.elapsed() < PATIENCE, "{origin} is {other:?} instead of {records:?}"),
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_is_declared_has_names_and_addresses_have_them_too() {
    let (lab, _controller, rack) = furnished().await;
    lab.api.declare("/api/v1/devices/switch", r#"{"addresses":["10.77.0.3","fd00::3"]}"#).await;
    let kept = r#"{"subnet":"lab","address":"10.77.0.9","hostname":"printer"}"#;
    lab.api.declare("/api/v1/ip_addresses/kept", kept).await;
    let record = r#"{"domain":"lab.example","owner_name":"www","type":"CNAME","data":"switch.lab.example"}"#;
    lab.api.declare("/api/v1/dns_records/www", record).await;
    let hosts = [
        "@ 60 NS ns.basalt.internal.",
        "printer 60 A 10.77.0.9",
        "switch 60 A 10.77.0.3",
        "switch 60 AAAA fd00::3",
        "www 60 CNAME switch.lab.example.",
    ];
    let first = until(&rack, "lab.example", &hosts).await;
    let pointers =
        ["3 300 PTR switch.lab.example.", "9 300 PTR printer.lab.example.", "@ 300 NS ns.basalt.internal."];
    until(&rack, "0.77.10.in-addr.arpa", &pointers).await;
    let racks = ["@ 15 NS ns.basalt.internal.", "lab.rack 15 A 10.77.0.2", "ns 15 A 10.77.0.2"];
    until(&rack, "basalt.internal", &racks).await;
    let told = last(&rack);
    let computed = told.zones.iter().find(|zone| zone.origin == "lab.example").map(|zone| &zone.computed);
    assert_eq!(
        computed.map(|it| (it[0].start.as_str(), it[0].end.as_str())),
        Some(("10.77.0.100", "10.77.0.199"))
    );
    assert_eq!(told.recursion, ["10.77.0.0/24"]);

    // Another TTL changes the content. A new declaration of the same content does not.
    lab.api.declare("/api/v1/domains/lab.example", r#"{"ttl":61}"#).await;
    let raised = hosts.map(|line| line.replace(" 60 ", " 61 "));
    let second = until(&rack, "lab.example", &raised.each_ref().map(String::as_str)).await;
    lab.api.declare("/api/v1/domains/lab.example", r#"{"ttl":61,"description":"the same"}"#).await;
    let declared = json!({"domain": "lab.example", "owner_name": "x", "type": "TXT", "data": "last"});
    lab.api.declare("/api/v1/dns_records/x", &declared.to_string()).await;
    let mut with_text: Vec<&str> = raised.iter().map(String::as_str).collect();
    with_text.push("x 61 TXT last");
    let third = until(&rack, "lab.example", &with_text).await;
    assert_eq!((second, third), (first + 1, second + 1));
    // The status of a Domain is written after its zone.
    let began = Instant::now();
    loop {
        let status = lab.api.get("/api/v1/domains/lab.example").await.json()["status"].clone();
        if status["serial"] == json!(third) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{status}");
        tokio::task::yield_now().await;
    }

    // A deleted object has no names.
    lab.api.delete("/api/v1/devices/switch").await;
    until(&rack, "0.77.10.in-addr.arpa", &["9 300 PTR printer.lab.example.", "@ 300 NS ns.basalt.internal."])
        .await;
    lab.api.delete("/api/v1/dns_records/x").await;
    let left = ["@ 61 NS ns.basalt.internal.", "printer 61 A 10.77.0.9", "www 61 CNAME switch.lab.example."];
    until(&rack, "lab.example", &left).await;
}

#[tokio::test]
async fn a_domain_of_other_servers_is_forwarded_and_one_in_the_regions_own_is_refused_in_words() {
    let (lab, _controller, rack) = furnished().await;
    let other = r#"{"authoritative":false,"forward_to":["192.0.2.53"]}"#;
    lab.api.declare("/api/v1/domains/corp.example", other).await;
    lab.api.declare("/api/v1/domains/x.basalt.internal", "{}").await;
    let settings = r#"{"default_domain":"lab.example","upstream_dns":["192.0.2.1","192.0.2.2"]}"#;
    lab.api.declare("/api/v1/settings/default", settings).await;
    let began = Instant::now();
    while last(&rack).forwards.is_empty() || last(&rack).upstream.is_empty() {
        assert!(began.elapsed() < PATIENCE, "{:?}", last(&rack));
        tokio::task::yield_now().await;
    }
    let told = last(&rack);
    assert_eq!(told.forwards[0].domain, "corp.example");
    assert_eq!(
        (told.forwards[0].servers.clone(), told.upstream),
        (vec!["192.0.2.53".to_owned()], vec!["192.0.2.1".to_owned(), "192.0.2.2".to_owned()])
    );
    let reason = |domain: &'static str| {
        let path = format!("/api/v1/domains/{domain}");
        let api = &lab.api;
        async move {
            let status: Value = api.get(&path).await.json()["status"].clone();
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.into_iter().find(|it| it["type"] == "Ready").unwrap_or_default();
            (ready["status"].clone(), ready["reason"].clone())
        }
    };
    // Each Domain has its own reconciliation, and a rack may be told of both before.
    let began = Instant::now();
    while reason("x.basalt.internal").await.1 != json!("Internal") {
        assert!(began.elapsed() < PATIENCE);
    }
    while reason("corp.example").await != (json!("true"), json!("Forwarded")) {
        assert!(began.elapsed() < PATIENCE);
    }
    assert!(!last(&rack).zones.iter().any(|zone| zone.origin.starts_with("x.")));
}

#[tokio::test]
async fn racks_are_told_the_secondaries_of_a_domain_with_their_keys_and_nobody_else_is_shown_them() {
    let (lab, _controller, rack) = furnished().await;
    until(&rack, "lab.example", &["@ 60 NS ns.basalt.internal."]).await;
    let path = "/api/v1/domains/lab.example";
    let declared = |secret: &str| {
        let secondary = json!({"address": "192.0.2.53", "key_name": "basalt.example", "key": secret});
        json!({"ttl": 60, "secondaries": {"ns1": secondary}}).to_string()
    };
    let told = async |secret: &[u8]| {
        let began = Instant::now();
        while last(&rack).secondaries.first().is_none_or(|it| it.secret != secret) {
            assert!(began.elapsed() < PATIENCE, "{:?}", last(&rack));
            tokio::task::yield_now().await;
        }
        last(&rack)
    };
    lab.api.declare(path, &declared("AAAAAAAAAAAAAAAAAAAAAA==")).await;
    let first = told(&[0; 16]).await;
    let it = &first.secondaries[0];
    let named = (it.name.as_str(), it.address.as_str(), it.port, it.key.as_str());
    assert_eq!(it.zones, ["lab.example"]);
    assert_eq!(named, ("lab.example ns1", "192.0.2.53", 53, "basalt.example"));
    let shown = lab.api.get(path).await.json()["spec"]["secondaries"]["ns1"]["key"].clone();
    assert_eq!(shown["set"], json!(true), "{shown}");
    assert!(!shown.to_string().contains("AAAAAAAA"), "{shown}");

    // The rack receives the new secret, and the zone keeps its serial.
    lab.api.declare(path, &declared("AQEBAQEBAQEBAQEBAQEBAQ==")).await;
    let second = told(&[1; 16]).await;
    let serial =
        |told: &DnsConcern| told.zones.iter().find(|it| it.origin == "lab.example").map(|it| it.serial);
    assert_eq!(serial(&first), serial(&second));
    lab.api.declare(path, r#"{"ttl": 60}"#).await;
    let began = Instant::now();
    while !last(&rack).secondaries.is_empty() {
        assert!(began.elapsed() < PATIENCE);
        tokio::task::yield_now().await;
    }

    // A secondary without a key gets no copy, and the Domain reports that.
    let without = json!({"ns2": {"address": "192.0.2.55", "key_name": "basalt.example"}});
    lab.api.declare(path, &json!({"ttl": 60, "secondaries": without}).to_string()).await;
    let began = Instant::now();
    loop {
        let status = lab.api.get(path).await.json()["status"].clone();
        if status["conditions"].to_string().contains("secondary ns2 has no key") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{status}");
        tokio::task::yield_now().await;
    }
    assert!(last(&rack).secondaries.is_empty());
}

#[tokio::test]
async fn secondaries_of_the_settings_copy_all_zones_and_a_catalog_that_names_them() {
    let (lab, _controller, rack) = furnished().await;
    lab.api.declare("/api/v1/devices/switch", r#"{"addresses":["10.77.0.3"]}"#).await;
    until(&rack, "0.77.10.in-addr.arpa", &["3 300 PTR switch.lab.example.", "@ 300 NS ns.basalt.internal."])
        .await;
    assert!(zone(&rack, "catalog.basalt.internal").is_none(), "nobody reads it");
    let secondary =
        json!({"address": "192.0.2.53", "key_name": "basalt.example", "key": "AAAAAAAAAAAAAAAAAAAAAA=="});
    let settings = json!({"default_domain": "lab.example", "dns_secondaries": {"ns1": secondary}});
    lab.api.declare("/api/v1/settings/default", &settings.to_string()).await;
    let domain = async |name: &str| {
        let got = lab.api.get(&format!("/api/v1/domains/{name}")).await.json();
        got["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    // The label is the first half of the SHA-256 of the zone's name.
    let of_addresses = "b41868112e0b32807074c607c0a04440.zones 0 PTR 0.77.10.in-addr.arpa.";
    let wanted = async |domains: &[&str]| {
        let mut lines: Vec<String> =
            ["@ 0 NS invalid.", "version 0 TXT 2", of_addresses].map(str::to_owned).into();
        for name in domains {
            lines.push(format!("{}.zones 0 PTR {name}.", domain(name).await));
        }
        lines.sort();
        lines
    };
    let told = async |lines: &[String]| {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        until(&rack, "catalog.basalt.internal", &lines).await
    };
    let first = told(&wanted(&["lab.example"]).await).await;
    let told_of = last(&rack).secondaries;
    assert_eq!((told_of.len(), told_of[0].name.as_str(), &told_of[0].secret[..]), (1, "ns1", &[0; 16][..]));
    assert_eq!(told_of[0].zones, ["catalog.basalt.internal", "lab.example", "0.77.10.in-addr.arpa"]);

    lab.api.declare("/api/v1/domains/hall.example", "{}").await;
    let second = told(&wanted(&["hall.example", "lab.example"]).await).await;
    assert_eq!(second, first + 1);
    let other = r#"{"authoritative":false,"forward_to":["192.0.2.53"]}"#;
    lab.api.declare("/api/v1/domains/hall.example", other).await;
    let third = told(&wanted(&["lab.example"]).await).await;
    assert_eq!(third, second + 1);
}

#[tokio::test]
async fn a_domain_says_which_secondary_has_which_serial_and_warns_of_those_that_are_behind() {
    let (lab, _controller, _rack) = furnished().await;
    let path = "/api/v1/domains/lab.example";
    let secondary =
        |address| json!({"address": address, "key_name": "a.example", "key": "AAAAAAAAAAAAAAAAAAAAAA=="});
    let secondaries = json!({"ns1": secondary("192.0.2.53"), "ns2": secondary("192.0.2.54")});
    lab.api.declare(path, &json!({"ttl": 60, "secondaries": secondaries}).to_string()).await;
    let store = lab.region.store();
    let r1 = RackId::from(store.get("Rack", Key::Name("r1")).await.expect("a rack").uid);
    let says = async |seq, name: &str, message: &str, serial, answered_ago_ms| {
        let service = format!("secondary lab.example {name}");
        let (ok, message) = (message == "it holds the zones as they are", message.to_owned());
        let health = ServiceHealth { service, ok, message, serial, answered_ago_ms };
        let fact = Fact { seq, body: Some(fact::Body::Health(health)), ..Fact::default() };
        let fact = NewFact { object: Some(r1.into()), ..new_fact(fact, 0) };
        store.store_facts(r1, "r1", uuid::Uuid::from_u128(1), &[fact]).await.expect("it is stored");
    };
    let until = async |holds: &dyn Fn(&Value) -> bool| {
        let began = Instant::now();
        loop {
            let status = lab.api.get(path).await.json()["status"].clone();
            if holds(&status) {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "{status}");
            tokio::task::yield_now().await;
        }
    };
    let behind = |status: &Value| {
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|it| it["type"] == "SecondaryBehind")
    };
    says(1, "ns1", "it holds the zones as they are", Some(7), Some(0)).await;
    let status = until(&|status| status["secondaries"]["ns1"]["state"] == "current").await;
    assert_eq!(status["secondaries"]["ns1"]["serial"], 7);
    assert!(status["secondaries"].get("ns2").is_none() && behind(&status).is_none(), "{status}");

    // A secondary that answers with an older copy is behind. A secondary that does not answer is silent.
    says(2, "ns1", "it holds an older version of the zone", Some(7), Some(0)).await;
    says(3, "ns2", "192.0.2.54:53: it does not answer", None, Some(3_600_000)).await;
    let status = until(&|status| status["secondaries"]["ns2"]["state"] == "silent").await;
    let [ns1, ns2] = ["ns1", "ns2"].map(|name| status["secondaries"][name].clone());
    assert_eq!((&ns1["state"], &ns1["serial"]), (&json!("behind"), &json!(7)));
    let message = "rack r1: 192.0.2.54:53: it does not answer";
    assert_eq!((&ns2["serial"], &ns2["message"]), (&Value::Null, &json!(message)));
    let at = |it: &Value| it["answered_at"].as_str().and_then(|at| at.parse().ok()).expect("a time");
    let (first, second): (Timestamp, Timestamp) = (at(&ns1), at(&ns2));
    assert!((3590..3700).contains(&first.duration_since(second).as_secs()), "{first} {second}");
    let told = behind(&status).expect("a condition");
    assert_eq!((&told["status"], &told["reason"]), (&json!("true"), &json!("Silent")));
    let words = told["message"].as_str().unwrap_or_default();
    assert!(
        words.contains("ns1") && words.contains(message) && words.contains("last answered at"),
        "{words}"
    );
    let ready = &status["conditions"][0];
    assert_eq!((&ready["type"], &ready["status"]), (&json!("Ready"), &json!("true")), "the zone is served");
    assert!(ready["message"].as_str().is_some_and(|it| it.ends_with(words)), "{ready}");

    // The warning ends when the copies are current, and the state ends with the declaration.
    says(4, "ns1", "it holds the zones as they are", Some(8), Some(0)).await;
    says(5, "ns2", "it holds the zones as they are", Some(8), Some(0)).await;
    let status = until(&|status| behind(status).is_none()).await;
    assert_eq!(status["secondaries"]["ns1"]["serial"], 8, "{status}");
    lab.api.declare(path, r#"{"ttl": 60}"#).await;
    until(&|status| status.get("secondaries").is_none_or(|it| it == &json!({}))).await;
}

#[tokio::test]
async fn hosts_of_declared_networks_may_ask_for_any_name() {
    let (lab, _controller, rack) = furnished().await;
    let settings =
        |clients: Value| json!({"default_domain": "lab.example", "dns_clients": clients}).to_string();
    lab.api.declare("/api/v1/settings/default", &settings(json!(["192.0.2.0/24", "10.77.0.0/24"]))).await;
    let began = Instant::now();
    while last(&rack).recursion != ["10.77.0.0/24", "192.0.2.0/24"] {
        assert!(began.elapsed() < PATIENCE, "{:?}", last(&rack).recursion);
        tokio::task::yield_now().await;
    }
    let body = json!({"spec": {"dns_clients": ["0.0.0.0/0"]}}).to_string();
    let refused = lab.api.send("PUT", "/api/v1/settings/default", &[], body).await;
    assert_eq!(refused.status, 422, "racks must not be open resolvers");
}

#[tokio::test]
async fn clients_are_told_the_racks_that_answer_dns_unless_their_subnet_names_others() {
    let (lab, _controller, rack) = furnished().await;
    let servers = || {
        let told = rack.told().concerns;
        let dhcp = told.iter().rfind(|version| version.concern == "dhcp")?;
        let dhcp = DhcpConcern::decode(dhcp.body.as_slice()).expect("a concern");
        Some(dhcp.subnets.first()?.dns_servers.clone())
    };
    let until = async |wanted: &[&str]| {
        let began = Instant::now();
        while servers().is_none_or(|servers| servers != wanted) {
            assert!(began.elapsed() < PATIENCE, "{:?} instead of {wanted:?}", servers());
            tokio::task::yield_now().await;
        }
    };
    until(&[]).await;
    let store = lab.region.store();
    let r1 = RackId::from(store.get("Rack", Key::Name("r1")).await.expect("a rack").uid);
    let says = async |seq, ok| {
        let health = ServiceHealth { service: "dns 10.77.0.2".to_owned(), ok, ..ServiceHealth::default() };
        let fact = Fact { seq, body: Some(fact::Body::Health(health)), ..Fact::default() };
        let fact = NewFact { object: Some(r1.into()), ..new_fact(fact, 0) };
        store.store_facts(r1, "r1", uuid::Uuid::from_u128(1), &[fact]).await.expect("it is stored");
    };
    says(1, true).await;
    until(&["10.77.0.2"]).await;
    says(2, false).await;
    until(&[]).await;
    says(3, true).await;
    until(&["10.77.0.2"]).await;
    let subnet = |more: &str| format!(r#"{{"vlan":"default.0","cidr":"10.77.0.0/24"{more}}}"#);
    lab.api.declare("/api/v1/subnets/lab", &subnet(r#","dns_servers":["192.0.2.9"]"#)).await;
    until(&["192.0.2.9"]).await;
    lab.api.declare("/api/v1/subnets/lab", &subnet(r#","allow_dns":false"#)).await;
    until(&[]).await;
}

#[tokio::test]
async fn a_device_has_its_name_in_its_own_domain_and_racks_in_the_one_that_settings_name() {
    let (lab, _controller, rack) = furnished().await;
    lab.api.declare("/api/v1/domains/hall.example", "{}").await;
    let device = r#"{"addresses":["10.77.0.3"],"domain":"hall.example"}"#;
    lab.api.declare("/api/v1/devices/switch", device).await;
    until(&rack, "hall.example", &["@ 300 NS ns.basalt.internal.", "switch 300 A 10.77.0.3"]).await;
    let settings = r#"{"default_domain":"lab.example","internal_domain":"own.example"}"#;
    lab.api.declare("/api/v1/settings/default", settings).await;
    let racks = ["@ 15 NS ns.own.example.", "lab.rack 15 A 10.77.0.2", "ns 15 A 10.77.0.2"];
    until(&rack, "own.example", &racks).await;
}
