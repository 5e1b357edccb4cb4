//! Addresses over the API.

use crate::accounts::issue;
use crate::dhcp::Played;
use crate::support::{self, Client, Lab, lab};
use basalt_api::values::RackId;
use basalt_db::Key;
use basalt_proto::rack_v1::{Fact, LeaseFact, fact};
use basalt_region::racks::observed::new_fact;
use serde_json::{Value, json};

/// The subnet `lab` with a gateway.
async fn network(api: &Client) {
    support::network(api).await;
    let subnet = r#"{"vlan":"default.0","cidr":"10.77.0.0/24","gateway":"10.77.0.1"}"#;
    api.declare("/api/v1/subnets/lab", subnet).await;
}

#[tokio::test]
async fn an_address_that_the_region_chose_is_in_the_status_and_not_in_the_spec() {
    let lab = lab().await;
    network(&lab.api).await;
    let dry = lab.api.put("/api/v1/ip_addresses/a?dry_run=true", r#"{"spec":{"subnet":"lab"}}"#).await;
    assert_eq!((dry.status.as_u16(), &dry.json()["advisories"]), (200, &json!([])));
    assert_eq!(lab.api.get("/api/v1/ip_addresses/a").await.status, 404, "a dry run takes nothing");
    let made = lab.api.put("/api/v1/ip_addresses/a", r#"{"spec":{"subnet":"lab"}}"#).await;
    assert_eq!(made.status, 201);
    for answer in [made, lab.api.get("/api/v1/ip_addresses/a").await] {
        let object = answer.json();
        assert_eq!(object["spec"], json!({"subnet": "lab"}));
        assert_eq!(object["status"]["address"], "10.77.0.2");
        assert_eq!(object["status"]["conditions"][0]["status"], "true");
    }
    let body = r#"{"spec":{"subnet":"lab","address":"10.77.0.2"}}"#;
    let (status, code, errors) = lab.api.put("/api/v1/ip_addresses/b", body).await.problem();
    assert_eq!((status, code.as_str()), (409, "overlap"));
    assert_eq!(errors, [r#"/spec/address: 10.77.0.2 is the address of IpAddress "a" already"#]);
    let dry = lab.api.put("/api/v1/ip_addresses/b?dry_run=true", body).await;
    assert_eq!(dry.json()["advisories"][0]["pointer"], "/spec/address");
    let changed =
        lab.api.put("/api/v1/ip_addresses/a", r#"{"spec":{"subnet":"lab","address":"10.77.0.7"}}"#).await;
    assert_eq!((changed.status.as_u16(), &changed.json()["status"]["address"]), (200, &json!("10.77.0.7")));
    assert_eq!(lab.api.put("/api/v1/ip_addresses/b", body).await.status, 201, "what was left is free");
    assert_eq!(lab.api.delete("/api/v1/ip_addresses/a").await.status, 204);
    let kept = lab.api.delete("/api/v1/subnets/lab").await;
    assert_eq!(kept.status, 202);
    let message = &kept.json()["status"]["conditions"][0]["message"];
    assert!(message.as_str().is_some_and(|m| m.contains(r#"IpAddress "b" (/subnet)"#)), "{message}");
}

#[tokio::test]
async fn a_static_address_of_a_deployment_is_judged_by_plan_and_write_where_it_stands() {
    let lab = lab().await;
    network(&lab.api).await;
    let files = json!({"root_tarball": {"sha256": "ab".repeat(32)}});
    let image = json!({"os": "debian", "release": "12", "architecture": "amd64", "files": files});
    lab.api.declare("/api/v1/images/debian", &image.to_string()).await;
    let body = |address: &str| {
        let eth0 = json!({"addressing": "static", "subnet": "lab", "address": address});
        let network = json!({"interfaces": {"eth0": eth0}});
        json!({"spec": {"image": "debian", "selector": {}, "network": network}}).to_string()
    };
    let gateway = "10.77.0.1 is the gateway of Subnet \"lab\" already";
    for (address, status, code, message) in [
        ("10.77.0.1", 409, "overlap", gateway),
        ("10.78.0.9", 422, "invalid", "10.78.0.9 is outside 10.77.0.0/24 of Subnet \"lab\""),
    ] {
        let dry = lab.api.put("/api/v1/deployments/web?dry_run=true", &body(address)).await;
        let told = &dry.json()["advisories"][0];
        let at = "/spec/network/interfaces/eth0/address";
        assert_eq!((&told["pointer"], &told["message"]), (&json!(at), &json!(message)));
        let (is, word, errors) = lab.api.put("/api/v1/deployments/web", &body(address)).await.problem();
        assert_eq!((is, word.as_str()), (status, code));
        assert_eq!(errors, [format!("{at}: {message}")]);
    }
    assert_eq!(lab.api.put("/api/v1/deployments/web", &body("10.77.0.9")).await.status, 201);
}

#[tokio::test]
async fn what_is_in_a_subnet_that_cannot_be_is_refused_with_it() {
    let lab = lab().await;
    network(&lab.api).await;
    for (vlan, cidr, is_told) in [
        ("default.0", "10.77.0.0/25", "/documents/0/spec/cidr: 10.77.0.0/25 overlaps"),
        ("nope.1", "10.78.0.0/25", "/documents/0/spec/vlan: there is no Vlan"),
    ] {
        let ip = cidr.trim_end_matches("0/25");
        let documents = json!([
            {"kind": "Subnet", "metadata": {"name": "new"}, "spec": {"vlan": vlan, "cidr": cidr}},
            {"kind": "IpRange", "metadata": {"name": "in"}, "spec": {"subnet": "new", "purpose": "reserved",
                "start": format!("{ip}10"), "end": format!("{ip}20")}},
            {"kind": "IpAddress", "metadata": {"name": "named"}, "spec": {"subnet": "new", "address": format!("{ip}30")}},
            {"kind": "IpAddress", "metadata": {"name": "any"}, "spec": {"subnet": "new"}},
        ]);
        let body = json!({"documents": documents}).to_string();
        let dry = lab.api.send("POST", "/api/v1/apply?dry_run=true", &[], body.clone()).await;
        assert_eq!(dry.status.as_u16(), 200, "{dry:?}");
        let real = lab.api.send("POST", "/api/v1/apply", &[], body).await;
        assert!(real.status.is_client_error(), "{real:?}");
        let (_, _, errors) = real.problem();
        assert!(errors.iter().any(|error| error.starts_with(is_told)), "{errors:?}");
        for path in ["/api/v1/subnets/new", "/api/v1/ip_ranges/in", "/api/v1/ip_addresses/any"] {
            assert_eq!(lab.api.get(path).await.status, 404, "{path}");
        }
    }
}

#[tokio::test]
async fn a_space_says_how_many_vlans_it_has() {
    let lab = lab().await;
    network(&lab.api).await;
    let count = async || lab.api.get("/api/v1/spaces/inside").await.json()["status"]["vlans"].clone();
    lab.api.declare("/api/v1/spaces/inside", "{}").await;
    assert_eq!(count().await, json!(0));
    for vid in [0, 7] {
        let vlan = json!({"fabric": "default", "vid": vid, "space": "inside"}).to_string();
        lab.api.declare(&format!("/api/v1/vlans/default.{vid}"), &vlan).await;
    }
    assert_eq!(count().await, json!(2));
    lab.api.declare("/api/v1/vlans/default.0", r#"{"fabric":"default","vid":0}"#).await;
    let list = lab.api.get("/api/v1/spaces").await.json();
    assert_eq!(list["items"][0]["status"]["vlans"], 1);
}

#[tokio::test]
async fn subnets_and_ranges_say_how_full_they_are() {
    let lab = lab().await;
    network(&lab.api).await;
    let reserved = r#"{"subnet":"lab","start":"10.77.0.10","end":"10.77.0.19","purpose":"reserved"}"#;
    lab.api.declare("/api/v1/ip_ranges/kept", reserved).await;
    lab.api.declare("/api/v1/ip_addresses/a", r#"{"subnet":"lab","address":"10.77.0.12"}"#).await;
    lab.api.declare("/api/v1/ip_addresses/b", r#"{"subnet":"lab"}"#).await;
    let expected = json!({"used": 3, "free": 254 - 10 - 2, "by_purpose": {
        "gateways": 1, "ip_addresses": 2, "deployments": 0, "racks": 0, "leases": 0, "dynamic": 0, "reserved": 10}});
    let one = lab.api.get("/api/v1/subnets/lab").await.json();
    let list = lab.api.get("/api/v1/subnets").await.json();
    for subnet in [&one, &list["items"][0]] {
        let said: Value = ["used", "free", "by_purpose"]
            .map(|field| (field.to_owned(), subnet["status"][field].clone()))
            .into_iter()
            .collect::<serde_json::Map<_, _>>()
            .into();
        assert_eq!(said, expected);
    }
    assert_eq!(lab.api.get("/api/v1/ip_ranges/kept").await.json()["status"]["used"], 1);
}

/// Clients with these MACs lease these addresses of `lab` from a rack. One gave its address back.
async fn lease(lab: &Lab, rack: &str, leases: &[(&str, &str, bool)]) {
    let store = lab.region.store();
    let uid = store.get("Rack", Key::Name(rack)).await.expect("a rack").uid;
    let subnet = store.get("Subnet", Key::Name("lab")).await.expect("a subnet").uid;
    let facts = leases.iter().zip(100..).map(|((address, mac, released), seq)| {
        let lease = LeaseFact {
            address: (*address).into(),
            hostname: "host".into(),
            expires_unix_ms: 3_600_000,
            released: *released,
            subnet_uid: subnet.to_string(),
            kept_unix_ms: 3_600_000,
        };
        let (mac, body) = ((*mac).into(), Some(fact::Body::Lease(lease)));
        new_fact(Fact { seq, mac, body, ..Fact::default() }, 0)
    });
    let facts: Vec<_> = facts.collect();
    store
        .store_facts(RackId::from(uid), rack, uuid::Uuid::from_u128(1), &facts)
        .await
        .expect("they are stored");
}

/// Address, source, owner, machine or device of each entry.
async fn listed(api: &Client, query: &str) -> Vec<String> {
    let (mut entries, mut next) = (Vec::new(), String::new());
    loop {
        let answer = api.get(&format!("/api/v1/addresses?{query}{next}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let page = answer.json();
        for entry in page["items"].as_array().expect("items") {
            let words =
                ["address", "source", "owner", "machine", "device", "rack"].map(|name| entry[name].as_str());
            entries.push(words.into_iter().flatten().collect::<Vec<_>>().join(" "));
        }
        match page["continue"].as_str() {
            Some(position) => next = format!("&continue={position}"),
            None => return entries,
        }
    }
}

#[tokio::test]
async fn every_source_says_who_has_which_address_and_pools_keep_theirs() {
    let lab = lab().await;
    network(&lab.api).await;
    let declare =
        async |path: &str, spec: Value| lab.api.declare(&format!("/api/v1/{path}"), &spec.to_string()).await;
    for pool in ["pools/blue", "pools/red"] {
        declare(pool, json!({})).await;
    }
    declare("roles/blue", json!({"base": "viewer", "pools": ["blue"]})).await;
    for (name, pool, mac, address) in [
        ("own", "blue", "52:54:00:00:0b:01", "10.77.0.10"),
        ("other", "red", "52:54:00:00:0f:01", "10.77.0.33"),
    ] {
        let eth0 = json!({"addressing": "static", "subnet": "lab", "address": address});
        let network = json!({"interfaces": {"eth0": eth0}});
        declare(&format!("machines/{name}"), json!({"pool": pool, "boot_macs": [mac], "network": network}))
            .await;
    }
    declare("devices/phone", json!({"macs": ["52:54:00:00:0c:01"], "addresses": ["10.77.0.7"]})).await;
    declare(
        "ip_addresses/printer",
        json!({"subnet": "lab", "address": "10.77.0.8", "mac": "52:54:00:00:0f:01"}),
    )
    .await;
    let files = json!({"root_tarball": {"sha256": "ab".repeat(32)}});
    declare(
        "images/debian",
        json!({"os": "debian", "release": "12", "architecture": "amd64", "files": files}),
    )
    .await;
    for (deployment, machine, address) in [("db", "own", "10.77.0.9"), ("web", "other", "10.77.0.33")] {
        let eth0 = json!({"addressing": "static", "subnet": "lab", "address": address});
        let network = json!({"interfaces": {"eth0": eth0}});
        declare(
            &format!("deployments/{deployment}"),
            json!({"image": "debian", "machine": machine, "network": network}),
        )
        .await;
    }
    Played::come_at(&lab, "r1", &["10.77.0.2/24"]).await;
    let leases = [
        ("10.77.0.100", "52:54:00:00:0b:01", false),
        ("10.77.0.101", "52:54:00:00:0f:01", false),
        ("10.77.0.102", "52:54:00:00:0c:01", false),
        ("10.77.0.103", "52:54:00:00:00:99", false),
        ("10.77.0.104", "52:54:00:00:0b:01", true),
    ];
    lease(&lab, "r1", &leases).await;

    let all = listed(&lab.api, "").await;
    assert_eq!(
        all,
        [
            "10.77.0.1 gateway lab",
            "10.77.0.2 rack r1",
            "10.77.0.7 device phone",
            "10.77.0.8 ip_address printer other",
            "10.77.0.9 deployment db",
            "10.77.0.10 machine own own",
            "10.77.0.33 deployment web",
            "10.77.0.33 machine other other",
            "10.77.0.100 lease own r1",
            "10.77.0.101 lease other r1",
            "10.77.0.102 lease phone r1",
            "10.77.0.103 lease r1",
        ]
    );
    for page in 1..=3 {
        assert_eq!(listed(&lab.api, &format!("limit={page}")).await, all, "page by page");
    }
    assert_eq!(listed(&lab.api, "source=lease&subnet=lab&limit=1").await, all[8..]);
    assert_eq!(listed(&lab.api, "source=machine").await, [all[5].as_str(), all[7].as_str()]);
    assert_eq!(listed(&lab.api, "source=device").await, [all[2].as_str()]);
    assert_eq!(listed(&lab.api, "address=10.77.0.33").await, all[6..8]);
    assert_eq!(lab.api.get("/api/v1/addresses?subnet=nope").await.problem().1, "not_found");

    let blue = Client::new(lab.region.address(), Some(issue(&lab, "blue", r#"{"role":"blue"}"#).await));
    let seen: Vec<&str> = all.iter().map(|line| line.strip_suffix(" other").unwrap_or(line)).collect();
    let seen: Vec<&str> = [&seen[..6], &seen[8..9], &seen[10..11]].concat();
    assert_eq!(listed(&blue, "limit=2").await, seen, "strangers may be machines of other pools");
}
