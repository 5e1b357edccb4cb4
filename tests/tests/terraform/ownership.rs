//! Objects that existed before: imported, or left alone.

use basalt_api::client::{Client, ClientConfig, DeleteOptions, PatchOptions, Precondition};
use basalt_api::wire::PutRequest;
use serde_json::json;

use crate::world::{World, described, flat, provider, within};

#[test]
fn what_is_imported_by_name_or_uid_needs_no_change() {
    within(async |world| {
        let zone = world.put("cli", "Zone", "row-9", json!({"description": "the last row"})).await;
        world.put("cli", "Pool", "web", json!({})).await;
        let text = format!(
            r#"{}
            resource "basalt_zone" "row" {{
              name        = "row-9"
              description = "the last row"
            }}
            resource "basalt_pool" "web" {{
              name = "web"
            }}
            import {{
              to = basalt_zone.row
              id = "{}"
            }}
            import {{
              to = basalt_pool.web
              id = "web"
            }}
            "#,
            provider(&world),
            zone.metadata.uid
        );
        let said = world.config(&text).apply().await;
        assert!(said.contains("2 imported, 0 added, 0 changed, 0 destroyed"), "{said}");
        assert!(flat(&said).contains("Zone \"row-9\" is managed by \"cli\" until"), "{said}");
        world.end().await;
    });
}

#[test]
fn what_is_imported_and_not_there_is_told_with_what_there_is() {
    within(async |world| {
        let zone = world.put("cli", "Zone", "row-9", json!({})).await;
        let text =
            format!("{}resource \"basalt_zone\" \"row\" {{\n  name = \"row-9\"\n}}\n", provider(&world));
        world.config(&text);
        let uid = "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e";
        for (id, want) in [
            (
                "row-8",
                "There is no Zone \"row-8\". The nearest names that there are: \"row-9\". To have it created, leave the import out.",
            ),
            (uid, "There is no Zone of this uid."),
            ("uid:7", "\"7\" is not"),
            ("Row 9", "A Zone is imported by its name (1 to 63 of a-z"),
            ("colour=red", "there is no field \"colour\""),
            ("description=x", "There is no Zone with description=x."),
        ] {
            let said = flat(&world.fails(&["import", "basalt_zone.row", id]).await);
            assert!(said.contains(want), "{id}: {said}");
        }
        for id in [
            "name=row-9".to_owned(),
            format!("uid={}", zone.metadata.uid),
            format!("uid:{}", zone.metadata.uid),
        ] {
            world.ok(&["import", "basalt_zone.row", &id]).await;
            world.ok(&["state", "rm", "basalt_zone.row"]).await;
        }
        world.end().await;
    });
}

#[test]
fn what_nobody_manages_is_in_the_way_all_the_same_and_the_plan_says_so() {
    within(async |world| {
        let config = ClientConfig {
            endpoints: vec![world.endpoint.clone()],
            token: Some(world.token.clone()),
            ..ClientConfig::default()
        };
        let nobody = Client::new(&config).expect("a client");
        let empty = PutRequest { spec: json!({}), ..PutRequest::default() };
        let there = nobody.put(described("Zone"), "row-1", &empty, Precondition::None).await;
        assert_eq!(there.expect("it is stored").object.metadata.manager, None);
        world.config(&format!(
            "{}resource \"basalt_zone\" \"row\" {{\n  name = \"row-1\"\n}}\n",
            provider(&world)
        ));
        let said = flat(&world.ok(&["plan"]).await);
        assert!(said.contains("Warning: It exists already: Zone \"row-1\""), "{said}");
        assert!(said.contains("managed by nobody in particular. Unless it goes before the apply"), "{said}");
        let said = flat(&world.fails(&["apply", "-auto-approve"]).await);
        assert!(said.contains("managed by nobody in particular. Nothing was changed."), "{said}");
        world.end().await;
    });
}

#[test]
fn an_object_of_another_manager_is_never_seized() {
    within(async |world| {
        let zone = world.put("cli", "Zone", "row-1", json!({"description": "mine"})).await;
        let configuration = format!(
            "{}resource \"basalt_zone\" \"row\" {{\n  name = \"row-1\"\n  description = \"theirs\"\n}}\n",
            provider(&world)
        );
        world.config(&configuration);
        let said = world.fails(&["apply", "-auto-approve"]).await;
        let on_one_line = flat(&said);
        assert!(on_one_line.contains("There is a Zone \"row-1\" already, managed by \"cli\""), "{said}");
        assert!(on_one_line.contains("or: terraform import basalt_zone.NAME row-1"), "{said}");
        assert_eq!(world.get("Zone", "row-1").await, zone, "untouched");

        // The advice of the error works as it is printed, apart from the resource's own name.
        let (_, block) = said.rsplit_once("import {").expect("a block");
        let (block, _) = block.split_once('}').expect("its end");
        let lines = block.lines().map(|line| line.trim_start_matches(['│', ' '])).collect::<Vec<_>>();
        let block = lines.join("\n").replace("NAME", "row");
        let said = world.config(&format!("{configuration}import {{{block}\n}}\n")).apply().await;
        assert!(said.contains("1 imported, 0 added, 1 changed, 0 destroyed"), "{said}");
        world.end().await;
    });
}

#[test]
fn what_another_state_may_hold_is_left_alone_also_where_it_is_as_declared() {
    within(async |world| {
        world.put("terraform", "Zone", "row-1", json!({"description": "mine"})).await;
        let text = |description: &str| {
            format!(
                "{}resource \"basalt_zone\" \"row\" {{\n  name = \"row-1\"\n  description = \"{description}\"\n}}\n",
                provider(&world)
            )
        };
        let said = flat(&world.config(&text("other")).fails(&["apply", "-auto-approve"]).await);
        assert!(said.contains("and declared differently"), "{said}");
        let before = world.get("Zone", "row-1").await;
        let said = flat(&world.config(&text("mine")).fails(&["apply", "-auto-approve"]).await);
        assert!(
            said.contains("and as it is declared here: another configuration or another resource"),
            "{said}"
        );
        assert_eq!(world.get("Zone", "row-1").await, before, "untouched");
        let import = "import {\n  to = basalt_zone.row\n  id = \"row-1\"\n}\n";
        world.config(&format!("{}{import}", text("mine"))).apply().await;
        world.end().await;
    });
}

#[test]
fn a_replacement_that_comes_first_under_the_same_name_is_refused_and_nothing_is_destroyed() {
    within(async |world| {
        let text = |lifecycle: &str| {
            format!(
                "{}resource \"basalt_zone\" \"row\" {{\n  name = \"row-1\"\n  {lifecycle}\n}}\n",
                provider(&world)
            )
        };
        world.config(&text("lifecycle {\n create_before_destroy = true\n}")).apply().await;
        let made = world.get("Zone", "row-1").await;
        let said = world.fails(&["apply", "-auto-approve", "-replace=basalt_zone.row"]).await;
        assert!(flat(&said).contains("take create_before_destroy out of the lifecycle"), "{said}");
        assert_eq!(world.get("Zone", "row-1").await.metadata.uid, made.metadata.uid);
        world.apply().await;

        let said = world.config(&text("")).ok(&["apply", "-auto-approve", "-replace=basalt_zone.row"]).await;
        assert!(said.contains("1 added, 0 changed, 1 destroyed"), "{said}");
        assert_ne!(world.get("Zone", "row-1").await.metadata.uid, made.metadata.uid);
        world.end().await;
    });
}

#[test]
fn one_object_is_not_taken_by_two_resources() {
    within(async |world| {
        let zone =
            |address: &str| format!("resource \"basalt_zone\" \"{address}\" {{\n  name = \"row-1\"\n}}\n");
        world.config(&format!("{}{}{}", provider(&world), zone("a"), zone("b")));
        let said = flat(&world.fails(&["apply", "-auto-approve"]).await);
        assert!(
            said.contains("Another basalt_zone of this configuration is Zone \"row-1\" already"),
            "{said}"
        );
        let listed = world.ok(&["state", "list"]).await;
        assert_eq!(listed.lines().count(), 1, "{listed}");
        world.end().await;
    });
}

/// A domain, and a record that names it as text, so that Terraform does not know the dependency.
fn domain_with_record(world: &World, fields: &str) -> String {
    format!(
        "{}resource \"basalt_domain\" \"lab\" {{\n  name = \"lab.example.com\"\n  {fields}\n}}\n\
         resource \"basalt_dns_record\" \"www\" {{\n  name = \"www\"\n  domain = \"lab.example.com\"\n  \
         owner_name = \"www\"\n  type = \"A\"\n  data = \"10.77.0.9\"\n  depends_on = [basalt_domain.lab]\n}}\n",
        provider(world)
    )
}

#[test]
fn a_second_resource_of_a_name_is_refused_by_the_plan_and_replaces_nothing() {
    within(async |world| {
        let text = domain_with_record(&world, "");
        world.config(&text).apply().await;
        for fields in ["", "description = \"copied\""] {
            let copy = format!(
                "resource \"basalt_domain\" \"copy\" {{\n  name = \"lab.example.com\"\n  {fields}\n}}\n"
            );
            let said = flat(&world.config(&format!("{text}{copy}")).fails(&["plan"]).await);
            assert!(said.contains("It is declared twice"), "{said}");
            assert!(!said.contains("must be replaced"), "{said}");
        }
        // With a `moved` block, the same object has another address.
        let moved = text.replace("\"basalt_domain\" \"lab\"", "\"basalt_domain\" \"copy\"");
        let moved = moved.replace("basalt_domain.lab", "basalt_domain.copy");
        let block = "moved {\n  from = basalt_domain.lab\n  to = basalt_domain.copy\n}\n";
        let said = world.config(&format!("{moved}{block}")).apply().await;
        assert!(said.contains("0 added, 0 changed, 0 destroyed"), "{said}");
        world.end().await;
    });
}

#[test]
fn what_is_being_deleted_takes_no_change_and_its_users_stay() {
    within(async |world| {
        world.config(&domain_with_record(&world, "")).apply().await;
        let options = DeleteOptions { adopt: true, ..DeleteOptions::default() };
        let going = world.client("cli").delete(described("Domain"), "lab.example.com", options).await;
        assert!(going.expect("an answer").is_some(), "the record has a name in it");
        let changed = domain_with_record(&world, "description = \"changed\"");
        let said = flat(&world.config(&changed).fails(&["plan"]).await);
        assert!(said.contains("is being deleted, which cannot be taken back"), "{said}");
        assert!(!said.contains("must be replaced"), "{said}");
        world.end().await;
    });
}

#[test]
fn what_another_state_may_hold_is_told_by_the_plan() {
    within(async |world| {
        world.put("terraform", "Zone", "row-1", json!({})).await;
        world.config(&format!(
            "{}resource \"basalt_zone\" \"row\" {{\n  name = \"row-1\"\n}}\n",
            provider(&world)
        ));
        let said = flat(&world.ok(&["plan"]).await);
        assert!(said.contains("It exists already: Zone \"row-1\""), "{said}");
        assert!(said.contains("Otherwise the apply fails, and leaves it as it is."), "{said}");
        assert!(said.contains("import { to = basalt_zone.NAME id = \"row-1\" }"), "{said}");
        world.end().await;
    });
}

#[test]
fn what_another_tool_took_over_is_told_before_it_is_taken_back() {
    within(async |world| {
        let zone = "resource \"basalt_zone\" \"row\" {\n  name = \"row-1\"\n}\n";
        world.config(&format!("{}{zone}", provider(&world))).apply().await;
        let (client, theirs) = (world.client("cli"), json!({"description": "theirs"}));
        let options = PatchOptions { adopt: true, ..PatchOptions::default() };
        client.patch(described("Zone"), "row-1", &theirs, options).await.expect("it is stored");
        assert_eq!(world.get("Zone", "row-1").await.metadata.manager.as_deref(), Some("cli"));

        let said = flat(&world.ok(&["plan"]).await);
        assert!(said.contains("Warning: Another tool manages it: Zone \"row-1\""), "{said}");
        world.ok(&["apply", "-auto-approve"]).await;
        let said = flat(&world.ok(&["plan", "-detailed-exitcode"]).await);
        assert!(!said.contains("Another tool"), "{said}");
        assert_eq!(world.get("Zone", "row-1").await.metadata.manager.as_deref(), Some("terraform"));
        world.end().await;
    });
}

#[test]
fn what_is_in_use_is_not_destroyed_and_stays_as_good_as_it_was() {
    within(async |world| {
        let zone = "resource \"basalt_zone\" \"row\" {\n  name = \"row-1\"\n}\n";
        world.config(&format!("{}{zone}", provider(&world))).apply().await;
        let user = json!({"boot_macs": ["52:54:00:00:00:01"], "zone": "row-1"});
        world.put("cli", "Machine", "m", user).await;
        let planned = flat(&world.ok(&["plan", "-destroy"]).await);
        assert!(planned.contains("It is in use: Zone \"row-1\""), "{planned}");
        assert!(planned.contains("Machine \"m\", which Terraform does not manage"), "{planned}");
        let said = flat(&world.fails(&["apply", "-auto-approve", "-destroy"]).await);
        assert!(said.contains("t is referred to by Machine \"m\""), "{said}");
        let zone = world.get("Zone", "row-1").await;
        assert!(zone.metadata.deletion_requested_at.is_none(), "and nobody asked it to go: {zone:?}");
        world.ok(&["plan", "-detailed-exitcode"]).await;
        world.end().await;
    });
}

#[test]
fn what_something_else_still_refers_to_is_not_planned_to_be_destroyed() {
    within(async |world| {
        let zone = "resource \"basalt_zone\" \"row\" {\n  name = \"row-1\"\n}\n";
        let machine = |zone: &str| {
            let mac = "boot_macs = [\"52:54:00:00:00:01\"]";
            format!(
                "resource \"basalt_machine\" \"one\" {{\n  name = \"m-1\"\n  zone = {zone}\n  {mac}\n}}\n"
            )
        };
        let head = provider(&world);
        world.config(&format!("{head}{zone}{}", machine("basalt_zone.row.name"))).apply().await;

        let said = flat(&world.config(&format!("{head}{}", machine("\"row-1\""))).fails(&["plan"]).await);
        assert!(said.contains("Error: It is still referred to: Zone \"row-1\""), "{said}");
        assert!(said.contains("Machine \"m-1\" stays and refers to it"), "{said}");

        // Another address without a `moved` block, even if the reference follows it, must not replace the object.
        let elsewhere =
            format!("{head}{}{}", zone.replace("\"row\"", "\"line\""), machine("basalt_zone.line.name"));
        let said = flat(&world.config(&elsewhere).fails(&["plan"]).await);
        assert!(said.contains("Error: It is still referred to: Zone \"row-1\""), "{said}");
        assert!(said.contains("a moved block says so") && !said.contains("is replaced"), "{said}");
        let moved = "moved {\n  from = basalt_zone.row\n  to = basalt_zone.line\n}\n";
        world.config(&format!("{elsewhere}{moved}")).ok(&["plan"]).await;

        // No error if the machine no longer refers to the zone, or is also destroyed.
        for rest in [machine("null"), String::new()] {
            world.config(&format!("{head}{rest}")).ok(&["plan"]).await;
        }
        world.end().await;
    });
}

#[test]
fn one_that_is_in_the_way_of_its_own_replacement_is_told_as_such() {
    within(async |world| {
        let text = |fabric: &str| {
            let made = format!("resource \"basalt_fabric\" \"{fabric}\" {{\n  name = \"{fabric}\"\n}}\n");
            let vlan = format!(
                "resource \"basalt_vlan\" \"{fabric}\" {{\n  fabric = basalt_fabric.{fabric}.name\n  vid = 7\n}}\n"
            );
            format!("{made}{vlan}")
        };
        let range = |subnet: &str| {
            format!(
                "resource \"basalt_ip_range\" \"pool\" {{\n  name = \"pool\"\n  subnet = basalt_subnet.{subnet}.name\n  start = \"10.77.0.5\"\n  \
                 end = \"10.77.0.9\"\n  lifecycle {{\n    create_before_destroy = true\n  }}\n}}\n"
            )
        };
        let subnet = |name: &str| {
            format!(
                "resource \"basalt_subnet\" \"{name}\" {{\n  name = \"{name}\"\n  vlan = basalt_vlan.{name}.name\n  cidr = \"10.77.0.0/24\"\n}}\n"
            )
        };
        let both: String = ["a", "b"].iter().map(|name| text(name) + &subnet(name)).collect();
        let head = provider(&world);
        world.config(&format!("{head}{both}{}", range("a"))).apply().await;
        let said = flat(
            &world.config(&format!("{head}{both}{}", range("b"))).fails(&["apply", "-auto-approve"]).await,
        );
        assert!(
            said.contains("take create_before_destroy out of the lifecycle of this basalt_ip_range"),
            "{said}"
        );
        world.end().await;
    });
}
