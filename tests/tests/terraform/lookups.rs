//! Data sources, and the number of their requests.

use std::collections::BTreeMap;

use basalt_api::client::Precondition;
use basalt_api::wire::{PutMetadata, PutRequest};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::deployments::{condition, end_of};
use crate::world::{World, described, everything, flat, provider, within};

#[test]
fn a_data_source_finds_what_others_made() {
    within(async |world| {
        world.put("cli", "Zone", "row-5", json!({"description": "made by hand"})).await;
        let text = format!(
            "{}data \"basalt_zone\" \"found\" {{\n name = \"row-5\"\n}}\n\
             output \"said\" {{\n value = data.basalt_zone.found.description\n}}\n",
            provider(&world)
        );
        let said = world.config(&text).ok(&["apply", "-auto-approve"]).await;
        assert!(said.contains("said = \"made by hand\""), "{said}");
        let said = flat(&world.config(&text.replace("row-5", "row-6")).fails(&["plan"]).await);
        let near = "There is no Zone \"row-6\". The nearest names that there are: \"row-5\"";
        assert!(said.contains(near), "{said}");
        let webhook = text.replace("basalt_zone", "basalt_webhook").replace(".description", ".url");
        let said = flat(&world.config(&webhook).fails(&["plan"]).await);
        assert!(said.contains("There is no Webhook \"row-5\". There is no Webhook at all"), "{said}");
        world.end().await;
    });
}

#[test]
fn a_field_of_what_is_found_is_not_what_it_is_found_by_and_that_is_told() {
    within(async |world| {
        let text = "data \"basalt_subnet\" \"lab\" {\n  cidr = \"10.77.0.0/24\"\n}\n";
        let said = world.config(&format!("{}{text}", provider(&world))).fails(&["validate"]).await;
        assert_eq!(said.matches("Error: ").count(), 1, "{said}");
        assert!(flat(&said).contains("find = \"cidr=10.77.0.0/24\""), "{said}");
        world.end().await;
    });
}

#[test]
fn one_is_found_and_imported_by_what_it_alone_has() {
    within(async |world| {
        world.put("cli", "Zone", "row-1", json!({})).await;
        for (name, mac) in [("node-1", "52:54:00:00:00:01"), ("node-2", "52:54:00:00:00:02")] {
            world.put("cli", "Machine", name, json!({"boot_macs": [mac], "zone": "row-1"})).await;
        }
        let data = |find: &str| {
            let data = format!("data \"basalt_machine\" \"found\" {{\n find = {find:?}\n}}\n");
            format!(
                "{}{data}output \"said\" {{\n value = data.basalt_machine.found.name\n}}\n",
                provider(&world)
            )
        };
        let said = world.config(&data("boot_macs=52-54-00-00-00-02")).ok(&["apply", "-auto-approve"]).await;
        assert!(said.contains("said = \"node-2\""), "{said}");
        for (find, want) in [
            ("zone=row-1", "more than one Machine with zone=row-1: node-1, node-2"),
            (
                "boot_macs=52:54:00:00:00:03",
                "There is no Machine with boot_macs=52:54:00:00:00:03. The nearest that there is: 52:54:00:00:00:01, 52:54:00:00:00:02.",
            ),
            ("mac=52:54:00:00:00:03", "there is no field \"mac\""),
            ("phase=ready", "what is observed is status.phase."),
        ] {
            let said = flat(&world.config(&data(find)).fails(&["plan"]).await);
            assert!(said.contains(want), "{said}");
        }
        let import = format!(
            "{}resource \"basalt_machine\" \"one\" {{\n name = \"node-1\"\n zone = \"row-1\"\n \
             boot_macs = [\"52:54:00:00:00:01\"]\n}}\n\
             import {{\n to = basalt_machine.one\n id = \"boot_macs=52:54:00:00:00:01\"\n}}\n",
            provider(&world)
        );
        let said = world.config(&import).apply().await;
        assert!(said.contains("1 imported, 0 added, 0 changed, 0 destroyed"), "{said}");
        world.end().await;
    });
}

#[test]
fn many_are_found_by_label_and_by_part_of_their_name() {
    within(async |world| {
        for (name, hall) in [("row-1", "east"), ("row-2", "west"), ("cage-1", "east")] {
            let labels = BTreeMap::from([("hall".to_owned(), hall.to_owned())]);
            let metadata = PutMetadata { labels: Some(labels), ..PutMetadata::default() };
            let request =
                PutRequest { metadata, spec: json!({"description": name}), ..PutRequest::default() };
            let written =
                world.client("cli").put(described("Zone"), name, &request, Precondition::Absent).await;
            written.expect("it is stored");
        }
        let filters = [
            ("all", ""),
            ("east", "labels = { hall = \"east\" }"),
            ("rows", "name_contains = \"row-\""),
            ("both", "labels = { hall = \"east\" }\n name_contains = \"row-\""),
            ("none", "labels = { hall = \"north\" }"),
        ];
        let mut text = provider(&world);
        for (name, filter) in filters {
            // A new region already has a zone, without labels.
            let all = format!("data.basalt_zones.{name}.zones : k => [z.description, z.labels.hall]");
            text.push_str(&format!(
                "data \"basalt_zones\" \"{name}\" {{\n {filter}\n}}\n\
                 output \"{name}\" {{\n value = {{ for k, z in {all} if length(z.labels) > 0 }}\n}}\n"
            ));
        }
        world.config(&text).ok(&["apply", "-auto-approve"]).await;
        let shown: Value =
            serde_json::from_slice(&world.run(&["output", "-json"]).await.stdout).expect("JSON");
        let found = |name: &str| shown[name]["value"].clone();
        let (row_1, row_2, cage_1) = (["row-1", "east"], ["row-2", "west"], ["cage-1", "east"]);
        assert_eq!(found("all"), json!({"row-1": row_1, "row-2": row_2, "cage-1": cage_1}));
        assert_eq!(found("east"), json!({"row-1": row_1, "cage-1": cage_1}));
        assert_eq!(found("rows"), json!({"row-1": row_1, "row-2": row_2}));
        assert_eq!(found("both"), json!({"row-1": row_1}));
        assert_eq!(found("none"), json!({}));

        let wrong = text.replace("hall = \"north\"", "\"_\" = \"north\"");
        let said = flat(&world.config(&wrong).fails(&["validate"]).await);
        assert!(said.contains("\"_\" is no key of a label"), "{said}");
        world.end().await;
    });
}

#[test]
fn many_are_found_by_what_they_are() {
    within(async |world| {
        world.put("cli", "Zone", "row-1", json!({})).await;
        let machine = |mac: u8| json!({"boot_macs": [format!("52:54:00:00:00:{mac:02x}")]});
        for (number, name) in ["web-1", "web-2", "db-1"].into_iter().enumerate() {
            let mut spec = machine(u8::try_from(number).expect("a few"));
            if name != "web-1" {
                spec["zone"] = json!("row-1");
                spec["tags"] = json!(["fast", name]);
            }
            world.put("cli", "Machine", name, spec).await;
        }
        let filters = [
            ("row", "where = { zone = \"row-1\" }", json!(["db-1", "web-2"])),
            ("default", "where = { zone = \"default\" }", json!(["web-1"])),
            (
                "fast",
                "where = { zone = \"row-1\", tags = \"fast\" }\n name_contains = \"web\"",
                json!(["web-2"]),
            ),
            ("exact", "filter = \"spec.tags:(=web-2,=none)\"", json!(["web-2"])),
            ("narrow", "filter = \"spec.zone=row-1 name:web,db\"", json!(["db-1", "web-2"])),
            ("mac", "where = { boot_macs = \"52-54-00-00-00-02\" }", json!(["db-1"])),
            ("none", "where = { zone = \"row-1\", pool = \"web\" }", json!([])),
        ];
        let mut text = provider(&world);
        for (name, filter, _) in &filters {
            text.push_str(&format!(
                "data \"basalt_machines\" \"{name}\" {{\n {filter}\n}}\n\
                 output \"{name}\" {{\n value = keys(data.basalt_machines.{name}.machines)\n}}\n"
            ));
        }
        world.config(&text).ok(&["apply", "-auto-approve"]).await;
        let shown: Value =
            serde_json::from_slice(&world.run(&["output", "-json"]).await.stdout).expect("JSON");
        for (name, filter, names) in filters {
            assert_eq!(shown[name]["value"], names, "{filter}");
        }

        let wrong = text.replace("pool = \"web\"", "pol = \"web\"");
        let said = flat(&world.config(&wrong).fails(&["validate"]).await);
        assert!(said.contains("there is no field \"pol\"; there are architecture, zone, pool"), "{said}");
        let wrong = text.replace("name:web,db", "nam:web");
        let said = flat(&world.config(&wrong).fails(&["validate"]).await);
        assert!(said.contains("at character 17: there is no nam to filter by"), "{said}");
        world.end().await;
    });
}

#[test]
fn what_nobody_declares_is_told_with_all_that_is_seen_of_it() {
    within(async |world| {
        let mut seen = json!({"sort": "rogue_dhcp", "mac": "52:54:00:00:00:09", "addresses": ["10.77.0.9"], "vlan": "core.7",
            "racks": ["r1"], "first_seen_at": "2026-01-31T12:00:00Z", "last_seen_at": "2026-01-31T12:05:00Z"});
        world.enrol("Discovery", "dhcp-10-77-0-9-lab").await;
        world.observe("Discovery", "dhcp-10-77-0-9-lab", seen.clone()).await;
        world.enrol("Rack", "r1").await;
        let services = json!({"dhcp": {"state": "running", "message": "on eth1"}});
        world
            .observe("Rack", "r1", json!({"connected": true, "version": "0.1.0", "services": services}))
            .await;
        let text = format!(
            "{}data \"basalt_discoveries\" \"all\" {{\n where = {{ \"status.sort\" = \"rogue_dhcp\" }}\n}}\n\
             data \"basalt_rack\" \"one\" {{\n name = \"r1\"\n}}\n\
             output \"seen\" {{\n value = {{ for name, it in data.basalt_discoveries.all.discoveries : name => it.status }}\n}}\n\
             output \"rack\" {{\n value = data.basalt_rack.one.status\n}}\n\
             resource \"basalt_device\" \"known\" {{\n for_each = data.basalt_discoveries.all.discoveries\n \
             name = each.key\n macs = [each.value.status.mac]\n addresses = each.value.status.addresses\n}}\n",
            provider(&world)
        );
        world.config(&text).apply().await;
        let outputs = || async {
            serde_json::from_slice::<Value>(&world.run(&["output", "-json"]).await.stdout).expect("JSON")
        };
        let shown = outputs().await;
        let told = &shown["seen"]["value"]["dhcp-10-77-0-9-lab"];
        for (field, value) in seen.as_object().expect("fields") {
            assert_eq!(told[field], *value, "{field}");
        }
        let rack = &shown["rack"]["value"];
        assert_eq!((&rack["connected"], &rack["version"]), (&json!(true), &json!("0.1.0")));
        assert_eq!(rack["services"]["dhcp"]["state"], "running");
        let device = world.get("Device", "dhcp-10-77-0-9-lab").await.spec;
        assert_eq!(device, json!({"macs": ["52:54:00:00:00:09"], "addresses": ["10.77.0.9"]}));

        // A fact that changes by itself changes outputs, and nothing else.
        seen["last_seen_at"] = json!("2026-01-31T12:10:00Z");
        world.observe("Discovery", "dhcp-10-77-0-9-lab", seen).await;
        let said = flat(&world.ok(&["plan"]).await);
        assert!(said.contains("Changes to Outputs:") && said.contains("2026-01-31T12:10:00Z"), "{said}");
        assert!(said.contains("without changing any real infrastructure"), "{said}");
        world.end().await;
    });
}

#[test]
fn a_machine_is_told_with_its_phase_and_power_where_it_is_read_and_not_where_it_is_declared() {
    within(async |world| {
        let text = format!(
            "{}resource \"basalt_machine\" \"one\" {{\n name = \"node-1\"\n boot_macs = [\"52:54:00:00:00:01\"]\n}}\n",
            provider(&world)
        );
        world.config(&text);
        let (child, _lines) = world.start(&["apply", "-auto-approve"]);
        world.until_there("Machine", "node-1").await;
        let mut status = json!({"lifecycle": "ready", "tags": ["fast"], "addresses": {"enp1s0": "10.77.0.9"},
            "power": {"state": "on", "observed_at": "2026-01-31T12:00:00Z"},
            "conditions": [condition("Ready", "true", "Ready", "It is ready.")]});
        world.observe("Machine", "node-1", status.clone()).await;
        let output = end_of(child).await;
        assert!(output.status.success(), "{}", everything(&output));

        let data = "data \"basalt_machine\" \"one\" {\n name = \"node-1\"\n}\n\
                    output \"said\" {\n value = data.basalt_machine.one.status\n}\n";
        world.config(&format!("{text}{data}")).apply().await;
        let shown: Value =
            serde_json::from_slice(&world.run(&["output", "-json"]).await.stdout).expect("JSON");
        let told = &shown["said"]["value"];
        assert_eq!((&told["phase"], &told["power"]["state"]), (&json!("Ready"), &json!("on")));
        assert_eq!(told["tags"], json!(["fast"]));
        assert_eq!(told["addresses"], json!({"enp1s0": "10.77.0.9"}));
        let kept = world.state("basalt_machine.one").await;
        let names: Vec<_> = kept["status"].as_object().expect("a status").keys().collect();
        assert_eq!(names, ["bmc", "inventory"], "a state has none of it");

        status["power"]["state"] = json!("off");
        world.observe("Machine", "node-1", status).await;
        world.config(&text).ok(&["apply", "-auto-approve"]).await;
        let said = world.ok(&["plan"]).await;
        assert!(said.contains("No changes."), "{said}");
        world.end().await;
    });
}

#[test]
fn a_refresh_of_many_objects_costs_a_few_requests() {
    within(async |world| {
        let text = format!(
            "{}resource \"basalt_zone\" \"rows\" {{\n count = 150\n name = \"row-${{count.index}}\"\n}}\n",
            provider(&world)
        );
        world.config(&text).ok(&["apply", "-auto-approve"]).await;
        let before = reads(&world).await;
        let said = world.ok(&["plan"]).await;
        assert!(said.contains("No changes."), "{said}");
        let cost = reads(&world).await - before;
        assert!((1..=5).contains(&cost), "150 objects cost {cost} reads");
        world.end().await;
    });
}

#[test]
fn many_imports_by_a_field_cost_a_few_requests() {
    const MANY: usize = 40;
    within(async |world| {
        for number in 0..MANY {
            let spec = json!({"description": format!("number {number}")});
            world.put("cli", "Zone", &format!("row-{number}"), spec).await;
        }
        let text = format!(
            "{}locals {{\n  all = toset([for number in range({MANY}) : tostring(number)])\n}}\n\
             resource \"basalt_zone\" \"rows\" {{\n  for_each = local.all\n  name = \"row-${{each.key}}\"\n  \
             description = \"number ${{each.key}}\"\n}}\n\
             import {{\n  for_each = local.all\n  to = basalt_zone.rows[each.key]\n  id = \"description=number ${{each.key}}\"\n}}\n",
            provider(&world)
        );
        world.config(&text);
        let before = reads(&world).await;
        let said = world.ok(&["plan"]).await;
        assert!(
            said.contains(&format!("Plan: {MANY} to import, 0 to add, 0 to change, 0 to destroy.")),
            "{said}"
        );
        let cost = reads(&world).await - before;
        assert!((1..=5).contains(&cost), "{MANY} imports cost {cost} reads");
        world.end().await;
    });
}

/// The number of objects and lists that the region was asked for.
async fn reads(world: &World) -> u64 {
    let mut region = TcpStream::connect(world.region.address()).await.expect("a region");
    let ask = format!(
        "GET /metrics HTTP/1.1\r\nHost: region\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        world.token
    );
    region.write_all(ask.as_bytes()).await.expect("it listens");
    let mut said = String::new();
    region.read_to_string(&mut said).await.expect("it answers");
    let counts = said.lines().filter(|line| {
        line.starts_with("basalt_api_requests_total{method=\"GET\",endpoint=\"/api/v1/{plural}")
    });
    counts.map(|line| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok()).expect("a count")).sum()
}
