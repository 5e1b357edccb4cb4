//! Specs of another version, which this one cannot read, are reported.

use crate::support::{lab, network};
use basalt_db::testing::clock::Hand;
use serde_json::{Value, json};

fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().expect("conditions");
    conditions.iter().find(|it| it["type"] == kind).expect("it has this condition").clone()
}

#[tokio::test]
async fn a_network_or_settings_that_cannot_be_read_are_stalled_until_they_are_declared_anew() {
    let lab = lab().await;
    network(&lab.api).await;
    lab.api.declare("/api/v1/settings/default", "{}").await;
    let mut hand = Hand::on(&lab.url).await;
    for (path, kind, bad) in [
        ("/api/v1/subnets/lab", "Subnet", r#"{"vlan":"default.0","cidr":"10.77.0.0/24","gateway":["none"]}"#),
        ("/api/v1/vlans/default.0", "Vlan", r#"{"fabric":"default","vid":0,"mtu":{"soft":1500}}"#),
        ("/api/v1/settings/default", "Settings", r#"{"fleet_budget":7}"#),
    ] {
        let good = lab.api.get(path).await.json();
        assert_eq!(condition(&good, "Stalled")["status"], "false", "{path}");
        hand.run(&format!("update object set spec = '{bad}' where kind = '{kind}'")).await;
        let list = lab.api.get(path.rsplit_once('/').expect("a name").0).await.json();
        for shown in [&lab.api.get(path).await.json(), &list["items"][0]] {
            let [ready, stalled] = ["Ready", "Stalled"].map(|kind| condition(shown, kind));
            assert_eq!((&ready["status"], &stalled["status"]), (&json!("false"), &json!("true")), "{shown}");
            assert_eq!(stalled["reason"], "CannotBeRead", "{shown}");
            let message = stalled["message"].as_str().expect("words");
            assert!(message.contains("invalid type") && message.contains("declare it anew"), "{message}");
        }
        lab.api.declare(path, &good["spec"].to_string()).await;
        let healed = lab.api.get(path).await.json();
        assert_eq!(condition(&healed, "Stalled")["status"], "false", "{path}");
        assert_eq!(condition(&healed, "Ready")["status"], "true", "{path}");
    }
}
