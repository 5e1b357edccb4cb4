//! A machine whose power a web service switches: its rack receives the declared requests.

use crate::leases::furnish;
use crate::linked::Linked;
use crate::redfish::{is_of, told};
use crate::support::lab;
use basalt_engine::Policy;
use basalt_proto::rack_v1::bmc::Trust;
use basalt_proto::rack_v1::{Bmc, BmcWebhook};
use basalt_region::controller::Controller;
use serde_json::json;
use std::net::SocketAddr;

#[tokio::test]
async fn a_rack_is_told_the_requests_and_the_patterns() {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    furnish(&lab).await;
    let rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    let machine = |mut bmc: serde_json::Value| {
        bmc["driver"] = json!("webhook");
        bmc["address"] = json!("10.77.0.101");
        bmc["password"] = json!("secret");
        let spec = json!({"boot_macs": ["52:54:00:00:00:01"], "commissioning": {"skip": true}, "power": "off", "bmc": bmc});
        spec.to_string()
    };
    let least = json!({"on": "/3/on", "off": "/3/off", "status": "/3"});
    lab.api
        .declare("/api/v1/machines/m", &machine(json!({"webhook": least, "tls": {"verify": false}})))
        .await;
    let bmc: Bmc = told(&rack, is_of(1)).await.bmcs.swap_remove(0);
    assert_eq!(
        [bmc.driver, bmc.address, bmc.username, bmc.password],
        ["webhook", "10.77.0.101", "", "secret"]
    );
    assert_eq!((bmc.port, bmc.trust), (0, Some(Trust::Unverified(true))));
    let BmcWebhook { on, off, status, cycle, soft_off, says_on, says_off, plain } = bmc.webhook.unwrap();
    assert_eq!([on, off, status, cycle, soft_off], ["/3/on", "/3/off", "/3", "", ""]);
    assert!(says_on.contains("running") && says_off.contains("stopped") && !plain, "{says_on} {says_off}");

    let most = json!({"on": "/3/on", "off": "/3/off", "status": "/3", "cycle": "/3/cycle", "soft_off": "/3/shutdown", "says_on": "up",
        "says_off": "down", "plain": true});
    let spec = machine(json!({"webhook": most, "username": "admin", "port": 8080}));
    lab.api.declare("/api/v1/machines/m", &spec).await;
    let bmc: Bmc = told(&rack, is_of(2)).await.bmcs.swap_remove(0);
    assert_eq!((bmc.username.as_str(), bmc.port, bmc.trust), ("admin", 8080, None));
    let expected = BmcWebhook {
        on: "/3/on".into(),
        off: "/3/off".into(),
        status: "/3".into(),
        cycle: "/3/cycle".into(),
        soft_off: "/3/shutdown".into(),
        says_on: "up".into(),
        says_off: "down".into(),
        plain: true,
    };
    assert_eq!(bmc.webhook, Some(expected));
}

#[tokio::test]
async fn a_rack_is_told_the_key_of_a_bmc_and_nobody_else_is() {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    furnish(&lab).await;
    let rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    let machine = |key: serde_json::Value| {
        let bmc = json!({"driver": "ipmi", "address": "10.77.0.101", "username": "admin", "password": "secret", "k_g": key});
        json!({"boot_macs": ["52:54:00:00:00:01"], "commissioning": {"skip": true}, "power": "off", "bmc": bmc}).to_string()
    };
    let text = *b"twenty octets of key";
    let short = *b"short\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let cases = [
        (json!("twenty octets of key"), json!({"set": true, "revision": 1}), &text[..]),
        (json!("0x73686f7274"), json!({"set": true, "revision": 2}), &short),
        (json!(null), json!(null), &[]),
    ];
    for (generation, (key, read, told_of)) in (1..).zip(cases) {
        lab.api.declare("/api/v1/machines/m", &machine(key)).await;
        let bmc: Bmc = told(&rack, is_of(generation)).await.bmcs.swap_remove(0);
        assert_eq!((bmc.k_g.as_slice(), bmc.password.as_str()), (told_of, "secret"));
        let stored = lab.api.get("/api/v1/machines/m").await;
        assert_eq!(stored.json()["spec"]["bmc"]["k_g"], read);
        assert!(
            !stored.text().contains("twenty") && !stored.text().contains("73686f7274"),
            "{}",
            stored.text()
        );
    }
}

#[tokio::test]
async fn a_rack_is_told_the_cipher_suite_and_the_privilege_of_a_session() {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let controller = Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.unwrap();
    furnish(&lab).await;
    let rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    let cases = [
        (json!({}), (0, "")),
        (json!({"cipher_suite": 3, "privilege": "administrator"}), (3, "administrator")),
        (json!({"cipher_suite": 17, "privilege": "operator"}), (17, "operator")),
    ];
    for (generation, (options, expected)) in (1..).zip(cases) {
        let bmc = json!({"driver": "ipmi", "address": "10.77.0.101", "username": "admin", "password": "secret", "options": options});
        let spec = json!({"boot_macs": ["52:54:00:00:00:01"], "commissioning": {"skip": true}, "power": "off", "bmc": bmc});
        lab.api.declare("/api/v1/machines/m", &spec.to_string()).await;
        let bmc: Bmc = told(&rack, is_of(generation)).await.bmcs.swap_remove(0);
        assert_eq!(
            (bmc.driver.as_str(), bmc.cipher_suite, bmc.privilege.as_str()),
            ("ipmi", expected.0, expected.1)
        );
    }
}
