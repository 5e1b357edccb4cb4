//! Tags of one machine from several configurations and tools.

use std::collections::BTreeSet;

use basalt_api::client::DeleteOptions;
use basalt_api::values::Name;
use basalt_api::wire::Layer;
use serde_json::{Value, json};
use tfplugin::Val;
use tfplugin::testing::MiniCore;

use crate::world::{World, described, flat, provider, within};

const M1: &str = r#"
resource "basalt_machine" "m1" {
  name      = "m1"
  boot_macs = ["52:54:00:00:00:01"]
  tags      = ["own"]
}
"#;

/// A resource with tags for `m1`.
fn tags(address: &str, manager: Option<&str>, tags: &[&str]) -> String {
    let manager = manager.map(|manager| format!("  manager = {manager:?}\n")).unwrap_or_default();
    format!(
        "resource \"basalt_machine_tags\" \"{address}\" {{\n  machine = basalt_machine.m1.name\n{manager}  tags = {tags:?}\n}}\n"
    )
}

impl World {
    async fn layers(&self, machine: &str) -> Value {
        let layers = self.client("test").layers(described("Machine"), machine).await.expect("layers");
        json!(layers.layers)
    }

    /// Another tool sets a label and tags of a machine.
    async fn give(&self, manager: &str, machine: &str, tags: &[&str]) {
        let tags: BTreeSet<_> = tags.iter().map(|tag| tag.parse().expect("a tag")).collect();
        let layer = Layer { labels: [("by".to_owned(), manager.to_owned())].into(), tags };
        let given = self.client(manager).put_layer(described("Machine"), machine, manager, layer).await;
        given.expect("it is stored");
    }
}

fn layer(by: Option<&str>, tags: &[&str]) -> Value {
    let labels = by.map_or(json!({}), |by| json!({"by": by}));
    json!({"labels": labels, "tags": tags})
}

#[test]
fn tags_of_several_stand_side_by_side_and_each_resource_minds_its_own() {
    within(async |world| {
        let head = provider(&world) + M1;
        world.config(&head).apply().await;
        world.give("cli", "m1", &["rented"]).await;
        world.give("monitoring", "m1", &[]).await;
        let both = tags("gpu", None, &["gpu", "fast"]) + &tags("seen", Some("monitoring"), &["scraped"]);
        let said = world.config(&format!("{head}{both}")).apply().await;
        assert!(said.contains("2 added, 0 changed, 0 destroyed"), "{said}");
        let [gpu, seen] = [layer(None, &["fast", "gpu"]), layer(Some("monitoring"), &["scraped"])];
        let cli = layer(Some("cli"), &["rented"]);
        assert_eq!(world.layers("m1").await, json!({"cli": cli, "monitoring": seen, "terraform-tags": gpu}));
        assert_eq!(
            world.get("Machine", "m1").await.spec["tags"],
            json!(["own"]),
            "that is the machine's own"
        );

        // The tags of other managers never change a plan.
        world.observe("Machine", "m1", json!({"tags": ["own", "rented", "gpu", "fast", "scraped"]})).await;
        world.give("cli", "m1", &["rented", "leased"]).await;
        let said = world.ok(&["plan", "-detailed-exitcode"]).await;
        assert!(said.contains("No changes"), "{said}");

        // A foreign change of these tags is reverted, and the labels of their layer stay.
        world.give("monitoring", "m1", &["stray"]).await;
        let said = world.apply().await;
        assert!(said.contains("0 added, 1 changed, 0 destroyed"), "{said}");
        assert_eq!(world.layers("m1").await["monitoring"], seen);
        world.give("monitoring", "m1", &[]).await;
        let said = world.apply().await;
        assert!(said.contains("1 added, 0 changed, 0 destroyed"), "they were taken away: {said}");

        let other = tags("gpu", None, &["gpu"]) + &tags("seen", Some("monitoring"), &["scraped"]);
        let said = world.config(&format!("{head}{other}")).apply().await;
        assert!(said.contains("0 added, 1 changed, 0 destroyed"), "{said}");
        let said = world.config(&format!("{head}{}", tags("gpu", None, &["gpu"]))).apply().await;
        assert!(said.contains("0 added, 0 changed, 1 destroyed"), "{said}");
        let cli = layer(Some("cli"), &["leased", "rented"]);
        let want = json!({"cli": cli, "monitoring": layer(Some("monitoring"), &[]), "terraform-tags": layer(None, &["gpu"])});
        assert_eq!(world.layers("m1").await, want, "the tags went, and nothing else");
        world.end().await;
    });
}

#[test]
fn what_has_tags_already_is_announced_and_refused_and_imported() {
    within(async |world| {
        world.put("cli", "Machine", "m1", json!({"boot_macs": ["52:54:00:00:00:01"]})).await;
        world.give("terraform-tags", "m1", &["gpu"]).await;
        let text = |more: &str| {
            format!(
                "{}resource \"basalt_machine_tags\" \"it\" {{\n  machine = \"m1\"\n  tags = [\"gpu\"]\n}}\n{more}",
                provider(&world)
            )
        };
        let said = flat(&world.config(&text("")).ok(&["plan"]).await);
        assert!(said.contains("\"terraform-tags\" has given Machine \"m1\" tags already: gpu."), "{said}");
        assert!(said.contains("As things are now, the apply would fail."), "{said}");
        let said = world.fails(&["apply", "-auto-approve"]).await;
        assert!(
            flat(&said).contains("give this one a manager of its own"),
            "equal tags may be another's: {said}"
        );
        assert_eq!(world.layers("m1").await["terraform-tags"], layer(Some("terraform-tags"), &["gpu"]));

        let block = "import {\n  to = basalt_machine_tags.it\n  id = \"m1/terraform-tags\"\n}\n";
        let said = world.config(&text(block)).apply().await;
        assert!(said.contains("1 imported, 0 added, 0 changed, 0 destroyed"), "{said}");
        for (id, want) in [
            ("m2", "There is no Machine \"m2\""),
            ("m1/nobody", "\"nobody\" gives Machine \"m1\" no tags"),
            ("/x", "imported by MACHINE/MANAGER"),
        ] {
            world.ok(&["state", "rm", "-backup=-", "basalt_machine_tags.it"]).await;
            let said = flat(&world.fails(&["import", "basalt_machine_tags.it", id]).await);
            assert!(said.contains(want), "{id}: {said}");
            world.ok(&["import", "basalt_machine_tags.it", "m1"]).await;
        }

        // A second state of the same layer notices the changes of the first one.
        world.give("terraform-tags", "m1", &["gpu", "theirs"]).await;
        let said = world.config(&text("")).ok(&["plan"]).await;
        assert!(said.contains("- \"theirs\""), "{said}");
        world.end().await;
    });
}

#[test]
fn tags_follow_a_machine_that_is_renamed_and_not_another_one() {
    within(async |world| {
        let text = |name: &str| {
            provider(&world) + &M1.replace("\"m1\"\n", &format!("{name:?}\n")) + &tags("gpu", None, &["gpu"])
        };
        world.config(&text("m1")).apply().await;
        let said = world.config(&text("m2")).apply().await;
        assert!(said.contains("0 added, 2 changed, 0 destroyed"), "{said}");
        assert_eq!(world.layers("m2").await["terraform-tags"], layer(None, &["gpu"]));

        // A rename by another client is read, and the tags follow it.
        let machine = described("Machine");
        let name: Name = "m3".parse().expect("a name");
        world.client("cli").rename(machine, "m2", &name, true).await.expect("it is renamed");
        let said = world.config(&text("m3")).apply().await;
        assert!(said.contains("0 added, 0 changed, 0 destroyed"), "{said}");

        world.put("cli", "Machine", "m9", json!({"boot_macs": ["52:54:00:00:00:09"]})).await;
        let other = text("m3").replace("machine = basalt_machine.m1.name", "machine = \"m9\"");
        let said = world.config(&other).apply().await;
        assert!(said.contains("1 added, 0 changed, 1 destroyed"), "{said}");
        assert_eq!(world.layers("m3").await, json!({}));
        assert_eq!(world.layers("m9").await["terraform-tags"], layer(None, &["gpu"]));

        // The tags are deleted with their machine.
        let force = DeleteOptions { force: true, adopt: true, ..DeleteOptions::default() };
        world.client("cli").delete(machine, "m9", force).await.expect("it is deleted");
        let said = flat(&world.fails(&["apply", "-auto-approve"]).await);
        assert!(said.contains("There is no Machine \"m9\"."), "{said}");
        world.end().await;
    });
}

#[test]
fn the_machine_and_the_tags_may_be_known_only_after_the_plan() {
    within(async |world| {
        let text = format!(
            "{}resource \"terraform_data\" \"of\" {{\n  input = {{ machine = basalt_machine.m1.name, manager = \"lab\", tag = \"gpu\" }}\n}}\n\
             resource \"basalt_machine_tags\" \"it\" {{\n  machine = terraform_data.of.output.machine\n  manager = \
             terraform_data.of.output.manager\n  tags = [terraform_data.of.output.tag, \"fast\"]\n}}\n",
            provider(&world) + M1
        );
        let said = world.config(&text).apply().await;
        assert!(said.contains("3 added, 0 changed, 0 destroyed"), "{said}");
        assert_eq!(world.layers("m1").await, json!({"lab": layer(None, &["fast", "gpu"])}));
        world.end().await;
    });
}

#[test]
fn what_is_no_tag_or_no_manager_is_refused_before_anything_is_asked() {
    within(async |world| {
        for (given, want) in [
            ("tags = []", "There are no tags in it"),
            ("tags = [\"a b\"]", "\"a b\" is not a tag"),
            ("tags = [\"a\"]\n  manager = \"a b\"", "\"a b\" is not the name of a manager"),
        ] {
            let text = format!(
                "{}resource \"basalt_machine_tags\" \"it\" {{\n  machine = \"m1\"\n  {given}\n}}\n",
                provider(&world)
            );
            let said = flat(&world.config(&text).fails(&["validate"]).await);
            assert!(said.contains(want), "{given}: {said}");
        }
        world.end().await;
    });
}

#[test]
fn the_resource_keeps_the_contract() {
    within(async |world| {
        world.put("cli", "Machine", "m1", json!({"boot_macs": ["52:54:00:00:00:01"]})).await;
        world.put("cli", "Machine", "m2", json!({"boot_macs": ["52:54:00:00:00:02"]})).await;
        let block = [("endpoint", world.endpoint.clone().into()), ("token", world.token.clone().into())];
        let start = MiniCore::start(terraform_provider_basalt::provider(), &Val::from(block)).await;
        let mut core = start.expect("it starts");
        let config = |machine: &str, manager: Val, tags: &[&str]| {
            let tags = Val::List(tags.iter().map(|tag| (*tag).into()).collect());
            Val::from([("machine", machine.into()), ("manager", manager), ("tags", tags)])
        };
        let configs = [
            config("m1", Val::Null, &["gpu"]),
            config("m1", Val::Null, &["gpu", "fast"]),
            config("m1", "lab".into(), &["fast"]),
            config("m2", "lab".into(), &["fast"]),
            config("m2", "lab".into(), &[]),
        ];
        let id = |state: &Val| {
            Some(format!("{}/{}", state.get("machine").as_str()?, state.get("manager").as_str()?))
        };
        let lived = core.live("basalt_machine_tags", &configs, id).await;
        let lived = lived.unwrap_or_else(|broken| panic!("{broken}"));
        assert_eq!(
            [lived.created, lived.updated, lived.refused, lived.imported, lived.identified],
            [3, 1, 1, 4, 4]
        );
        assert_eq!([world.layers("m1").await, world.layers("m2").await], [json!({}), json!({})]);
        core.stop().await;
        world.end().await;
    });
}
