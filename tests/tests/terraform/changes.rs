//! Creation, change, renaming, replacement and destruction of objects that others refer to.

use basalt_api::client::DeleteOptions;
use serde_json::json;

use crate::NETWORK;
use crate::deployments::{deployment, end_of};
use crate::world::{described, everything, flat, provider, within};

#[test]
fn a_greenfield_is_planned_without_a_warning_created_and_destroyed() {
    within(async |world| {
        world.config(&format!("{}{NETWORK}", provider(&world)));
        let planned = world.ok(&["plan"]).await;
        assert!(planned.contains("Plan: 7 to add, 0 to change, 0 to destroy."), "{planned}");
        assert!(!planned.contains("Warning"), "{planned}");
        world.apply().await;

        let subnet = world.get("Subnet", "lab").await;
        assert_eq!(subnet.metadata.manager.as_deref(), Some("terraform"));
        assert_eq!(
            subnet.spec,
            json!({
                "vlan": "core.7", "cidr": "10.77.0.0/24", "gateway": "10.77.0.1",
                "dns_servers": ["10.77.0.2", "10.77.0.3"]
            }),
            "as declared, and nothing else"
        );
        assert_eq!(world.state("basalt_vlan.lab").await["name"], "core.7");

        let said = world.ok(&["destroy", "-auto-approve"]).await;
        assert!(said.contains("7 destroyed"), "{said}");
        let left = world.client("test").list_all(described("Fabric"), &Default::default()).await;
        assert!(left.expect("a list").iter().all(|fabric| fabric.metadata.name.as_str() != "core"));
        world.end().await;
    });
}

#[test]
fn an_attribute_that_is_removed_is_gone() {
    within(async |world| {
        let whole = format!("{}{NETWORK}", provider(&world));
        world.config(&whole).apply().await;
        let less = whole
            .replace("  gateway     = \"10.77.0.1\"\n", "")
            .replace("  description = \"the first row\"\n", "");
        let said = world.config(&less).apply().await;
        assert!(said.contains("0 added, 2 changed, 0 destroyed"), "{said}");
        assert_eq!(world.get("Subnet", "lab").await.spec.get("gateway"), None);
        assert_eq!(world.get("Zone", "row-1").await.spec, json!({}));
        world.end().await;
    });
}

#[test]
fn another_name_is_a_rename_and_whoever_refers_to_it_follows() {
    within(async |world| {
        let whole = format!("{}{NETWORK}", provider(&world));
        world.config(&whole).apply().await;
        let before = world.get("Subnet", "lab").await.metadata.uid;
        let vlan = world.get("Vlan", "core.7").await.metadata.uid;

        let renamed = whole.replace("name        = \"lab\"", "name        = \"laboratory\"");
        let said = world.config(&renamed).apply().await;
        assert!(said.contains("0 added, 2 changed, 0 destroyed"), "subnet and range: {said}");
        assert_eq!(world.get("Subnet", "laboratory").await.metadata.uid, before);

        let renamed = renamed.replace("name = \"core\"", "name = \"backbone\"");
        let said = world.config(&renamed).apply().await;
        assert!(said.contains("0 added, 3 changed, 0 destroyed"), "fabric, VLAN and subnet: {said}");
        assert_eq!(world.get("Vlan", "backbone.7").await.metadata.uid, vlan);
        world.end().await;
    });
}

#[test]
fn what_cannot_be_changed_is_replaced() {
    within(async |world| {
        let whole = format!("{}{NETWORK}", provider(&world));
        world.config(&whole).apply().await;
        let before = world.get("Subnet", "lab").await.metadata.uid;
        let moved = whole.replace("10.77.0.", "10.78.0.");
        let said = world.config(&moved).apply().await;
        assert!(said.contains("2 added, 0 changed, 2 destroyed"), "subnet and range: {said}");
        assert_ne!(world.get("Subnet", "lab").await.metadata.uid, before);

        let before = world.get("Subnet", "lab").await.metadata.uid;
        let said = world.ok(&["apply", "-auto-approve", "-replace=basalt_subnet.lab"]).await;
        assert!(said.contains("2 added, 0 changed, 2 destroyed"), "subnet and range: {said}");
        assert_ne!(world.get("Subnet", "lab").await.metadata.uid, before);
        world.end().await;
    });
}

/// In a replacement the old object is deleted first, and the region keeps it while something refers to it. The plan must report that:
/// otherwise the apply would fail halfway. Terraform does not tell a provider that it will also replace the deployment.
#[test]
fn that_what_a_deployment_stands_on_is_to_be_replaced_is_told_by_the_plan() {
    within(async |world| {
        let (_, network) = NETWORK.split_at(NETWORK.find("resource \"basalt_fabric\"").expect("a fabric"));
        let (network, _) = network.split_at(network.find("resource \"basalt_image\"").expect("an image"));
        let stands_on = |subnet: &str| {
            let interface = format!("{{ addressing = \"auto\", subnet = {subnet} }}");
            let own =
                format!("redeploy = \"in_place\"\n  network = {{ interfaces = {{ eth0 = {interface} }} }}");
            deployment(&world, &own) + network
        };
        let whole = stands_on("basalt_subnet.lab.name");
        let (child, _lines) = world.config(&whole).start(&["apply", "-auto-approve"]);
        world.until_there("Deployment", "web-1").await;
        world.say_ready("web-1").await;
        let output = end_of(child).await;
        assert!(output.status.success(), "{}", everything(&output));

        let resized = |text: &str| text.replace("10.77.0.0/24", "10.77.0.0/23");
        let warns = "Warning: It is still referred to: Subnet \"lab\"";
        for (text, more) in [
            (resized(&whole), &[][..]),
            // Terraform then does not know the order.
            (resized(&stands_on("\"lab\"")), &[][..]),
            (whole.clone(), &["-replace=basalt_subnet.lab"][..]),
            (whole.clone(), &["-replace=basalt_subnet.lab", "-replace=basalt_deployment.web"][..]),
        ] {
            let said = flat(&world.config(&text).ok(&[&["plan"], more].concat()).await);
            assert!(said.contains(warns), "{said}");
            assert!(said.contains("Unless Deployment \"web-1\" is replaced in this plan as well"), "{said}");
            assert!(said.contains("declare the new one beside it, under another name"), "{said}");
        }
        let both = "lifecycle {\n    replace_triggered_by = [basalt_subnet.lab]\n  }\n  redeploy";
        let said = world.config(&resized(&whole).replace("redeploy", both)).ok(&["plan"]).await;
        assert!(said.contains("3 to add, 0 to change, 3 to destroy"), "{said}");

        // A deployment that no longer refers to the subnet causes no warning.
        let free = resized(&whole).replace("subnet = basalt_subnet.lab.name }", "}");
        let said = world.config(&free).ok(&["plan"]).await;
        assert!(said.contains("2 to add, 1 to change, 2 to destroy") && !said.contains(warns), "{said}");
        world.end().await;
    });
}

#[test]
fn a_range_gives_way_to_one_that_overlaps_it_in_the_same_apply() {
    within(async |world| {
        let whole = format!("{}{NETWORK}", provider(&world));
        world.config(&whole).apply().await;
        let other = whole
            .replace("\"basalt_ip_range\" \"pool\"", "\"basalt_ip_range\" \"other\"")
            .replace("lab-pool", "lab-other")
            .replace("10.77.0.100", "10.77.0.120");
        let said = world.config(&other).apply().await;
        assert!(said.contains("1 added, 0 changed, 1 destroyed"), "{said}");
        assert_eq!(world.get("IpRange", "lab-other").await.spec["start"], "10.77.0.120");
        world.end().await;
    });
}

#[test]
fn two_new_ranges_that_overlap_are_refused_at_once() {
    within(async |world| {
        let more = r#"
resource "basalt_ip_range" "overlapping" {
  name   = "lab-overlapping"
  subnet = basalt_subnet.lab.name
  start  = "10.77.0.140"
  end    = "10.77.0.160"
}
"#;
        let began = std::time::Instant::now();
        let text = format!("{}{NETWORK}{more}", provider(&world));
        let said = flat(&world.config(&text).fails(&["apply", "-auto-approve"]).await);
        assert!(said.contains("overlaps 10.77.0.1"), "{said}");
        assert!(began.elapsed().as_secs() < 25, "it waited for what this very run had made: {said}");
        world.end().await;
    });
}

#[test]
fn an_address_that_the_region_chose_is_used_by_others_and_kept() {
    within(async |world| {
        let more = r#"
resource "basalt_ip_address" "vip" {
  name   = "vip"
  subnet = basalt_subnet.lab.name
}
resource "basalt_zone" "shown" {
  name        = "shown"
  description = "the entry is ${basalt_ip_address.vip.status.address}"
}
"#;
        let whole = format!("{}{NETWORK}{more}", provider(&world));
        world.config(&whole).apply().await;
        assert_eq!(world.state("basalt_ip_address.vip").await["status"]["address"], "10.77.0.2");
        assert_eq!(world.get("Zone", "shown").await.spec["description"], "the entry is 10.77.0.2");
        assert_eq!(world.get("IpAddress", "vip").await.spec, json!({"subnet": "lab"}), "as declared");

        // The usage of the subnet is not part of Terraform's state.
        world.put("cli", "IpAddress", "other", json!({"subnet": "lab", "address": "10.77.0.9"})).await;
        let planned = world.ok(&["plan"]).await;
        assert!(planned.contains("No changes."), "{planned}");
        // A change that does not affect the address leaves it known for other resources.
        let described = whole.replace("\"vip\"\n  subnet", "\"vip\"\n  description = \"entry\"\n  subnet");
        let planned = world.config(&described).ok(&["plan"]).await;
        assert!(planned.contains("Plan: 0 to add, 1 to change, 0 to destroy."), "{planned}");
        assert!(!planned.contains("known after apply"), "{planned}");
        world.apply().await;
        let named = whole.replace("\"vip\"\n  subnet", "\"vip\"\n  address = \"10.77.0.7\"\n  subnet");
        let said = world.config(&named).apply().await;
        assert!(said.contains("0 added, 2 changed, 0 destroyed"), "address and zone: {said}");
        assert_eq!(world.get("Zone", "shown").await.spec["description"], "the entry is 10.77.0.7");
        let taken = named.replace("10.77.0.7", "10.77.0.9");
        let failed = world.config(&taken).fails(&["apply", "-auto-approve"]).await;
        assert!(failed.contains("10.77.0.9 is the address of IpAddress \"other\" already"), "{failed}");
        world.end().await;
    });
}

#[test]
fn what_somebody_changes_between_plan_and_apply_is_not_overwritten_and_told() {
    within(async |world| {
        let zones = |description: &str| {
            let zone = format!(
                "resource \"basalt_zone\" \"row\" {{\n  count = 3\n  name = \"row-${{count.index}}\"\n  description = {description:?}\n}}\n"
            );
            provider(&world) + &zone
        };
        world.config(&zones("one")).apply().await;
        world.config(&zones("two")).ok(&["plan", "-out=kept.tfplan"]).await;
        world.put("cli", "Zone", "row-1", json!({"description": "mine"})).await;
        let client = world.client("cli");
        let options = DeleteOptions { adopt: true, ..DeleteOptions::default() };
        client.delete(described("Zone"), "row-2", options).await.expect("it goes");

        let said = flat(&world.fails(&["apply", "kept.tfplan"]).await);
        assert_eq!(said.matches("Error: ").count(), 2, "{said}");
        for want in [
            "Error: Changed since it was planned: Zone \"row-1\"",
            "Nothing was overwritten. Plan and apply again.",
            "Error: Gone since it was planned: Zone \"row-2\"",
            "it is created anew then.",
        ] {
            assert!(said.contains(want), "{want}: {said}");
        }
        assert_eq!(world.get("Zone", "row-0").await.spec, json!({"description": "two"}));
        assert_eq!(world.get("Zone", "row-1").await.spec, json!({"description": "mine"}));
        let said = world.apply().await;
        assert!(said.contains("1 added, 1 changed, 0 destroyed"), "{said}");
        world.end().await;
    });
}
