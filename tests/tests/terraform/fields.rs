//! Values of fields, on their way from the configuration to the region and back.

use basalt_api::wire::Layer;
use serde_json::{Value, json};
use terraform_provider_basalt::MANAGER;

use crate::world::{described, flat, provider, within};

#[test]
fn labels_are_declared_beside_those_of_other_tools() {
    within(async |world| {
        let text = |labels: &str| {
            format!(
                "{}resource \"basalt_zone\" \"row\" {{\n name = \"row-1\"\n {labels}\n}}\n",
                provider(&world)
            )
        };
        world.config(&text("labels = { hall = \"east\", tier = \"1\" }")).apply().await;
        let theirs = Layer { labels: [("owner".to_owned(), "ops".to_owned())].into(), ..Layer::default() };
        let zone = described("Zone");
        world.client("cli").put_layer(zone, "row-1", "cli", theirs).await.expect("it is stored");
        let labels = async || json!(world.get("Zone", "row-1").await.metadata.labels);
        assert_eq!(labels().await, json!({"hall": "east", "tier": "1", "owner": "ops"}));

        let said = world.config(&text("labels = { hall = \"west\" }")).apply().await;
        assert!(said.contains("0 added, 1 changed, 0 destroyed"), "{said}");
        assert_eq!(labels().await, json!({"hall": "west", "owner": "ops"}), "theirs stays");

        let ours = Layer { labels: [("hall".to_owned(), "moved".to_owned())].into(), ..Layer::default() };
        world.client("cli").put_layer(zone, "row-1", MANAGER, ours).await.expect("it is stored");
        let said = world.apply().await;
        assert!(said.contains("0 added, 1 changed, 0 destroyed"), "a change of ours is put right: {said}");

        world.config(&text("")).apply().await;
        assert_eq!(labels().await, json!({"owner": "ops"}), "declared no more");
        let said = flat(&world.config(&text("labels = { \"_\" = \"x\" }")).fails(&["validate"]).await);
        assert!(said.contains("\"_\" is no key of a label"), "{said}");
        world.end().await;
    });
}

#[test]
fn a_default_may_be_spelled_out_or_left_out_and_nothing_changes() {
    within(async |world| {
        let text = |more: &str| {
            let sample = "name = \"one\"\n serial = \"s-1\"\n";
            format!("{}resource \"basalt_sample\" \"one\" {{\n {sample} {more}\n}}\n", provider(&world))
        };
        world.config(&text("")).apply().await;
        assert_eq!(world.get("Sample", "one").await.spec, json!({"serial": "s-1"}), "as declared");
        assert_eq!(world.state("basalt_sample.one").await["count_wanted"], 3, "as it counts");
        for spelled in ["count_wanted = 3\n colour = \"red\"\n macs = []", ""] {
            let planned = world.config(&text(spelled)).ok(&["plan"]).await;
            assert!(planned.contains("No changes."), "{spelled}: {planned}");
        }

        world.config(&text("count_wanted = 4")).apply().await;
        let said = world.config(&text("")).apply().await;
        assert!(said.contains("4 -> 3"), "{said}");
        assert_eq!(world.get("Sample", "one").await.spec.get("count_wanted"), None, "left out again");
        world.put("cli", "Sample", "one", json!({"serial": "s-1", "count_wanted": 5})).await;
        let said = world.apply().await;
        assert!(said.contains("5 -> 3"), "somebody else's is put right: {said}");
        world.end().await;
    });
}

#[test]
fn default_labels_are_given_to_every_resource_that_says_nothing_else() {
    within(async |world| {
        let text = |defaults: &str, labels: &str| {
            let block = provider(&world).replace("\n}", &format!("\n default_labels = {defaults}\n}}"));
            let zone = |name: &str, labels: &str| {
                format!("resource \"basalt_zone\" \"{name}\" {{\n name = \"{name}\"\n {labels}\n}}\n")
            };
            let labels = format!("labels = {labels}");
            format!("{block}{}{}", zone("row-1", &labels), zone("row-2", ""))
        };
        let labels = async |name: &str| json!(world.get("Zone", name).await.metadata.labels);
        let (team, hall) = ("{ team = \"metal\" }", "{ hall = \"east\", team = \"own\" }");
        world.config(&text(team, hall)).apply().await;
        assert_eq!(labels("row-1").await, json!({"hall": "east", "team": "own"}));
        assert_eq!(labels("row-2").await, json!({"team": "metal"}));
        assert_eq!(world.state("basalt_zone.row-2").await["labels_all"], json!({"team": "metal"}));

        // A label in both places is stored once.
        world.config(&text(team, team)).apply().await;
        assert_eq!(labels("row-1").await, json!({"team": "metal"}));
        let said = world.config(&text("{ team = \"iron\" }", team)).apply().await;
        assert!(said.contains("0 added, 1 changed, 0 destroyed"), "row-2 alone: {said}");
        assert_eq!(labels("row-2").await, json!({"team": "iron"}));

        // Our labels are recognised as ours after an import.
        std::fs::remove_file(world.dir.path().join("terraform.tfstate")).expect("a state");
        let imports = ["row-1", "row-2"]
            .map(|name| format!("import {{\n to = basalt_zone.{name}\n id = \"{name}\"\n}}\n"));
        let whole = text("{ team = \"iron\" }", team) + &imports.concat();
        let said = world.config(&whole).apply().await;
        assert!(said.contains("2 imported, 0 added, 0 changed, 0 destroyed"), "{said}");

        world.config(&text("null", "null")).apply().await;
        assert_eq!(labels("row-1").await, json!({}));
        assert_eq!(labels("row-2").await, json!({}));
        let said = flat(&world.config(&text("{ \"_\" = \"x\" }", team)).fails(&["validate"]).await);
        assert!(said.contains("default_labels") && said.contains("\"_\" is no key of a label"), "{said}");
        world.end().await;
    });
}

#[test]
fn a_secret_goes_elsewhere_only_with_a_plan_that_writes_it_again() {
    within(async |world| {
        let text = |secret: &str, mac: u8| {
            format!(
                "{}resource \"basalt_sample\" \"one\" {{\n name = \"one\"\n serial = \"s\"\n mac = \"52:54:00:00:00:0{mac}\"\n {secret}\n}}\n",
                provider(&world)
            )
        };
        let revision = async || world.get("Sample", "one").await.spec["password"]["revision"].clone();
        let hidden = |version: u8| format!("password_wo = \"hunter2\"\n password_wo_version = {version}");

        world.config(&text(&hidden(1), 1)).apply().await;
        let said = flat(&world.config(&text(&hidden(1), 2)).fails(&["plan"]).await);
        let why = "mac changes, which decides where this secret is sent; raise password_wo_version, which has the secret written again";
        assert!(said.contains("The secret has to be given anew") && said.contains(why), "{said}");
        world.config(&text(&hidden(2), 2)).apply().await;
        assert_eq!(
            (world.get("Sample", "one").await.spec["mac"].clone(), revision().await),
            (json!("52:54:00:00:00:02"), json!(1))
        );

        // Every change sends the secrets of the state again.
        world.config(&text("password = \"hunter2\"", 2)).apply().await;
        world.config(&text("password = \"hunter2\"", 3)).apply().await;
        assert_eq!(
            (world.get("Sample", "one").await.spec["mac"].clone(), revision().await),
            (json!("52:54:00:00:00:03"), json!(1))
        );
        world.end().await;
    });
}

#[test]
fn a_field_of_every_sort_goes_there_and_back() {
    within(async |world| {
        let text = |password: &str, weight: u8, tail: &str| {
            format!(
                r#"{}
                resource "basalt_zone" "row" {{
                  name = "row-1"
                }}
                resource "basalt_sample" "one" {{
                  name         = "one"
                  serial       = "s-1"
                  mac          = "52-54-00-AA-00-01"
                  network      = "10.0.0.0/8"
                  patience     = "90s"
                  colour       = "dark_green"
                  zone         = basalt_zone.row.name
                  password     = {password}
                  detail       = {{ label = "x" }}
                  parts = {{
                    lid = {{
                      weight         = {weight}
                      notes          = ["b", "a"]
                      key_wo         = "hunter{weight}"
                      key_wo_version = {weight}
                    }}
                  }}
                  macs = ["52:54:00:AA:00:03", "52:54:00:aa:00:02"]
                  {tail}
                }}
                "#,
                provider(&world)
            )
        };
        world.config(&text("\"sesame\"", 1, "")).apply().await;
        let stored = world.get("Sample", "one").await.spec;
        assert_eq!(stored["mac"], "52-54-00-AA-00-01", "as it was written");
        assert_eq!(stored["password"], json!({"set": true, "revision": 1}));
        assert_eq!(stored["parts"]["lid"]["key"], json!({"set": true, "revision": 1}));

        world.config(&text("\"sesame\"", 2, "enabled = true")).apply().await;
        let stored = world.get("Sample", "one").await.spec;
        assert_eq!(stored["password"], json!({"set": true, "revision": 1}), "not written anew");
        assert_eq!(stored["parts"]["lid"]["key"]["revision"], 2, "its version was raised");
        assert_eq!(stored["enabled"], true);

        // Another client changes both secrets, and a field.
        let mut theirs = stored.clone();
        theirs["password"] = json!("other");
        theirs["parts"]["lid"]["key"] = json!("other");
        theirs["enabled"] = json!(false);
        world.put("cli", "Sample", "one", theirs).await;
        let said = world.apply().await;
        assert!(said.contains("0 added, 1 changed, 0 destroyed"), "{said}");
        let stored = world.get("Sample", "one").await.spec;
        assert_eq!(stored["password"]["revision"], 3);
        assert_eq!(stored["parts"]["lid"]["key"]["revision"], 4);
        assert_eq!(stored["enabled"], true);

        world.config(&text("null", 2, "enabled = true")).apply().await;
        assert_eq!(world.get("Sample", "one").await.spec["password"], Value::Null, "cleared");

        let kept = std::fs::read_to_string(world.dir.path().join("terraform.tfstate")).expect("a state");
        assert!(!kept.contains("hunter"), "a write-only secret is in the state");
        world.end().await;
    });
}
