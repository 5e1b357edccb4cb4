//! The list of secrets to change after the deletion of a rack (`docs/concepts/security.md`) has exactly the secrets that racks are told.

use crate::first_boot::{image, succeeded};
use crate::linked::Linked;
use crate::site::{MAC, ends, site, task, until};
use basalt_api::{KINDS, Kind, Schema, Type};
use serde_json::json;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../docs/concepts/security.md");

/// A secret or sensitive field, its value in this test as racks would be told it, and the words of the list. `None`: no rack is told it.
type Row = (&'static str, &'static [u8], Option<&'static str>);

const FIELDS: &[Row] = &[
    ("Machine.bmc.password", b"plant-bmc", Some("The password, and `k_g`, of every BMC")),
    ("Machine.bmc.k_g", b"plant-bmc-key", Some("The password, and `k_g`, of every BMC")),
    ("Deployment.user_data", b"plant-user-data", Some("Secrets in the `user_data` of deployments")),
    ("Domain.secondaries.key", &[1; 16], Some("(`key` in `secondaries` of Domains")),
    ("Settings.dns_secondaries.key", &[2; 16], Some("`dns_secondaries` of Settings")),
    ("Settings.openid.client_secret", b"plant-openid", None),
    ("User.password", b"plant-password", None),
    ("Webhook.secret", b"plant-webhook", None),
];

/// The secret and sensitive fields of a kind, as KIND.FIELD.FIELD.
fn fields(kind: &Kind) -> BTreeSet<String> {
    fn visit(path: &str, schema: &Schema, found: &mut BTreeSet<String>) {
        for field in schema.fields {
            let path = format!("{path}.{}", field.name);
            let mut ty = &field.ty;
            while let Type::List(item) | Type::Set(item) | Type::Map { value: item, .. } = ty {
                ty = item;
            }
            match ty {
                Type::Object(inner) => visit(&path, inner, found),
                ty if field.sensitive || matches!(ty, Type::Secret) => drop(found.insert(path)),
                _ => {}
            }
        }
    }
    let mut found = BTreeSet::new();
    visit(kind.name, kind.spec, &mut found);
    found
}

/// True if the rack was told these bytes in any concern.
fn has(rack: &Linked, bytes: &[u8]) -> bool {
    let concerns = rack.told().concerns;
    concerns.iter().any(|version| version.body.windows(bytes.len()).any(|it| it == bytes))
}

#[tokio::test]
async fn what_is_to_be_changed_after_the_deletion_of_a_rack_is_what_racks_are_told() {
    // The kind Sample is for tests alone.
    let kinds = KINDS.iter().filter(|kind| kind.name != "Sample");
    let all: BTreeSet<String> = kinds.flat_map(|kind| fields(kind)).collect();
    let rows: BTreeSet<String> = FIELDS.iter().map(|(field, ..)| (*field).to_owned()).collect();
    assert_eq!(rows, all, "say of every secret if racks are told it");

    let (lab, _controller, rack) = site().await;
    image(&lab).await;
    let declare = async |path: &str, spec: serde_json::Value| {
        lab.api.declare(&format!("/api/v1/{path}"), &spec.to_string()).await;
    };
    let secondary =
        |key: &str| json!({"ns1": {"address": "192.0.2.53", "key_name": "basalt.example", "key": key}});
    declare("roles/looker", json!({"base": "viewer"})).await;
    declare("users/ann", json!({"roles": ["looker"], "password": "plant-password"})).await;
    let hook = json!({"url": "https://hooks.example.com", "events": ["ready"], "secret": "plant-webhook"});
    declare("webhooks/w", hook).await;
    declare("domains/lab.example", json!({"secondaries": secondary("AQEBAQEBAQEBAQEBAQEBAQ==")})).await;
    let openid = json!({"issuer": "https://id.example.com", "client_id": "basalt", "client_secret": "plant-openid",
        "console": "https://basalt.example.com:5240"});
    let settings = json!({"dns_secondaries": secondary("AgICAgICAgICAgICAgICAg=="), "openid": openid});
    declare("settings/default", settings).await;
    let bmc = json!({"driver": "ipmi", "address": "10.77.0.101", "username": "admin", "password": "plant-bmc",
        "k_g": "plant-bmc-key"});
    declare(
        "machines/web2",
        json!({"boot_macs": ["52:54:00:00:00:0b"], "bmc": bmc, "commissioning": {"skip": true}}),
    )
    .await;
    declare("machines/web1", json!({"boot_macs": [MAC], "commissioning": {"bmc": "leave"}})).await;
    let reading = task(&rack, 0).await;
    ends(&rack, &succeeded(&reading, &[]), &reading.machine_uid).await;
    let web =
        json!({"machine": "web1", "image": "debian", "user_data": "#cloud-config\n# plant-user-data\n"});
    declare("deployments/web", web).await;

    let list =
        PAGE.split("**A deleted rack**").nth(1).and_then(|rest| rest.split("**BMC networks.**").next());
    let list = list.expect("the page has the list");
    for (field, bytes, words) in FIELDS {
        if let Some(words) = words {
            until(field, async || has(&rack, bytes).then_some(())).await;
            assert!(list.contains(words), "{field}: {list}");
        }
    }
    for (field, bytes, _) in FIELDS.iter().filter(|(.., words)| words.is_none()) {
        assert!(!has(&rack, bytes), "{field} is told a rack, and is not in the list");
    }
    // `bmc_accounts.rs` has the passwords that machines make: racks are told them in the same concern.
    assert!(list.contains("`bmc.rotate`"), "{list}");
}
