//! Addresses over the API.

use crate::support::{self, Client, lab};
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
