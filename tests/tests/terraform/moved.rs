//! Configurations that come from MAAS: `moved` blocks from the types of its provider, on an old state of that provider.

use serde_json::{Value, json};

use tfplugin::{Cx, Diags, Provider, Reattached, Resource, Schema, Val, async_trait};

use crate::world::{World, flat, provider, within};

/// An old state of the MAAS provider: its types, with the attributes that matter.
fn left() -> Vec<(&'static str, i64, Value)> {
    vec![
        ("maas_fabric", 0, json!({"id": "1", "name": "core"})),
        ("maas_space", 0, json!({"id": "2", "name": "inside"})),
        ("maas_resource_pool", 0, json!({"id": "3", "name": "web", "description": "the web"})),
        ("maas_zone", 0, json!({"id": "4", "name": "row-1", "description": ""})),
        (
            "maas_vlan",
            0,
            json!({"id": "5001", "fabric": "core", "vid": 7, "name": "lab", "mtu": 1500, "dhcp_on": true, "space": "inside"}),
        ),
        (
            "maas_subnet",
            0,
            json!({
                "id": "6", "name": "10.77.0.0/24", "cidr": "10.77.0.0/24", "fabric": "1", "vlan": "7", "gateway_ip": "10.77.0.1",
                "dns_servers": ["10.77.0.2"], "ip_ranges": [], "rdns_mode": 2, "allow_dns": true, "allow_proxy": true
            }),
        ),
        (
            "maas_subnet_ip_range",
            0,
            json!({"id": "7", "subnet": "6", "type": "dynamic", "start_ip": "10.77.0.100", "end_ip": "10.77.0.149", "comment": ""}),
        ),
        (
            "maas_dns_domain",
            0,
            json!({"id": "8", "name": "lab.example.com", "authoritative": true, "ttl": 60, "is_default": false}),
        ),
        (
            "maas_dns_record",
            0,
            json!({"id": "9", "name": "www", "domain": "lab.example.com", "fqdn": null, "type": "A/AAAA", "data": "10.77.0.5", "ttl": null}),
        ),
        (
            "maas_tag",
            0,
            json!({"id": "gpu", "name": "gpu", "comment": "has one", "definition": "//node[@class=\"display\"]", "kernel_opts": "", "machines": []}),
        ),
        (
            "maas_machine",
            1,
            json!({
                "id": "4y3h7n", "hostname": "brave-hen", "domain": "maas", "architecture": "amd64/generic", "power_type": "ipmi",
                "power_parameters": "{\"power_pass\": \"hush\"}", "pxe_mac_address": "52:54:00:AA:00:01", "pool": "web", "zone": "row-1"
            }),
        ),
        (
            "maas_reserved_ip",
            0,
            json!({"id": "5", "ip": "10.77.0.30", "mac_address": "52:54:00:AA:00:09", "comment": "the printer"}),
        ),
        (
            "maas_boot_source",
            0,
            json!({"id": "1", "url": "https://images.example.com/", "keyring_filename": ""}),
        ),
        (
            "maas_package_repository",
            0,
            json!({"id": "2", "name": "Our packages", "url": "http://deb.example.com/debian", "disabled_pockets": ["security"]}),
        ),
        ("maas_node_script", 0, json!({"id": "3", "name": "disks", "script": "IyEvYmluL3NoCg=="})),
        (
            "maas_user",
            0,
            json!({"id": "4", "name": "ada", "password": "hush", "email": "ada@example.com", "is_admin": true}),
        ),
        ("maas_api_key", 0, json!({"id": "4", "name": "ci", "api_key": "a:b:hush"})),
        ("maas_configuration", 0, json!({"id": "kernel_opts", "key": "kernel_opts", "value": "quiet"})),
        (
            "maas_device",
            0,
            json!({
                "id": "ge7qx3", "hostname": "switch", "domain": "maas", "zone": "default", "ip_addresses": ["10.77.0.3"],
                "network_interfaces": [{"id": 9, "name": "eth0", "mac_address": "52:54:00:AA:00:02"}]
            }),
        ),
    ]
}

/// The same objects, declared in Basalt's types.
const HERE: &str = r##"
resource "basalt_fabric" "it" {
  name = "core"
}
resource "basalt_space" "it" {
  name = "inside"
}
resource "basalt_pool" "it" {
  name        = "web"
  description = "the web"
}
resource "basalt_zone" "it" {
  name = "row-1"
}
resource "basalt_vlan" "it" {
  fabric = basalt_fabric.it.name
  vid    = 7
  space  = basalt_space.it.name
}
resource "basalt_subnet" "it" {
  name    = "lab"
  vlan    = basalt_vlan.it.name
  cidr    = "10.77.0.0/24"
  gateway = "10.77.0.1"
}
resource "basalt_ip_range" "it" {
  name   = "lab-pool"
  subnet = basalt_subnet.it.name
  start  = "10.77.0.100"
  end    = "10.77.0.149"
}
resource "basalt_domain" "it" {
  name = "lab.example.com"
  ttl  = 60
}
resource "basalt_dns_record" "it" {
  name       = "www-lab"
  domain     = basalt_domain.it.name
  owner_name = "www"
  type       = "A"
  data       = "10.77.0.5"
}
resource "basalt_tag" "it" {
  name    = "gpu"
  comment = "has one"
}
resource "basalt_machine" "it" {
  name      = "web-1"
  pool      = basalt_pool.it.name
  zone      = basalt_zone.it.name
  boot_macs = ["52:54:00:aa:00:01"]
}
resource "basalt_ip_address" "it" {
  name    = "printer"
  subnet  = basalt_subnet.it.name
  address = "10.77.0.30"
  mac     = "52:54:00:aa:00:09"
}
resource "basalt_image_source" "it" {
  name = "upstream"
  url  = "https://images.example.com/"
  selections = {
    stable = { os = "debian", release = "bookworm", architectures = ["amd64"] }
  }
}
resource "basalt_package_repository" "it" {
  name = "ours"
  url  = "http://deb.example.com/debian"
}
resource "basalt_script" "it" {
  name    = "disks"
  type    = "testing"
  content = "#!/bin/sh\n"
}
resource "basalt_user" "it" {
  name  = "ada"
  email = "ada@example.com"
}
resource "basalt_api_token" "it" {
  name = "ci"
  user = basalt_user.it.name
}
resource "basalt_settings" "it" {
  name           = "default"
  kernel_options = "quiet"
}
resource "basalt_device" "it" {
  name = "switch"
  macs = ["52:54:00:aa:00:02"]
}
"##;

const MOVES: [(&str, &str); 20] = [
    ("maas_fabric", "basalt_fabric"),
    ("maas_space", "basalt_space"),
    ("maas_resource_pool", "basalt_pool"),
    ("maas_zone", "basalt_zone"),
    ("maas_vlan", "basalt_vlan"),
    ("maas_subnet", "basalt_subnet"),
    ("maas_subnet_ip_range", "basalt_ip_range"),
    ("maas_dns_domain", "basalt_domain"),
    ("maas_dns_record", "basalt_dns_record"),
    ("maas_tag", "basalt_tag"),
    ("maas_machine", "basalt_machine"),
    ("maas_reserved_ip", "basalt_ip_address"),
    ("maas_boot_source", "basalt_image_source"),
    ("maas_package_repository", "basalt_package_repository"),
    ("maas_node_script", "basalt_script"),
    ("maas_user", "basalt_user"),
    ("maas_api_key", "basalt_api_token"),
    ("maas_configuration", "basalt_settings"),
    ("maas_device", "basalt_device"),
    ("maas_instance", "basalt_deployment"),
];

/// A MAAS provider, which users still have installed. Terraform asks it only for its schemas.
struct Maas;

#[async_trait]
impl Provider for Maas {
    fn schema(&self) -> Schema {
        Schema::default()
    }

    fn resources(&self) -> Vec<Box<dyn Resource>> {
        Vec::new()
    }

    async fn configure(&self, _: &Cx, _: &Val) -> Result<(), Diags> {
        panic!("nobody works with MAAS any more")
    }
}

impl World {
    /// Writes one of our configurations with `moved` blocks, and a state of a MAAS provider.
    fn comes_from(&mut self, source: &str, left: &[(&str, i64, Value)], text: &str) {
        self.others = vec![Reattached::start(Maas, source).expect("a provider")];
        let moves: String = left
            .iter()
            .filter_map(|(name, ..)| MOVES.iter().find(|(from, _)| from == name))
            .map(|(from, to)| format!("moved {{\n  from = {from}.it\n  to   = {to}.it\n}}\n"))
            .collect();
        self.config(&format!("{}{moves}{text}", provider(self)));
        let resources: Vec<Value> = left
            .iter()
            .map(|(name, version, attributes)| {
                json!({
                    "mode": "managed", "type": name, "name": "it", "provider": format!("provider[{source:?}]"),
                    "instances": [{"schema_version": version, "attributes": attributes, "sensitive_attributes": []}]
                })
            })
            .collect();
        let state = json!({
            "version": 4, "terraform_version": "1.11.4", "serial": 3, "lineage": "0e1a5ac2-7a1f-4b3c-9d44-2d3c6f5b8e01",
            "outputs": {}, "resources": resources, "check_results": null
        });
        std::fs::write(self.dir.path().join("terraform.tfstate"), state.to_string()).expect("a state");
    }
}

const CANONICAL: &str = "registry.terraform.io/canonical/maas";

#[test]
fn the_guide_names_what_can_be_moved() {
    let guide = include_str!("../../../provider/docs/guides/from-maas.md");
    for (from, to) in MOVES {
        let row = guide.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{from}`")));
        assert!(row.is_some_and(|row| row.contains(&format!("`{to}`"))), "{from}, {to}");
    }
}

#[test]
fn what_maas_had_and_the_region_has_is_found_and_changed_in_place() {
    within(async |mut world| {
        for (kind, name, spec) in [
            ("Fabric", "core", json!({})),
            ("Space", "inside", json!({})),
            ("Pool", "web", json!({"description": "the web"})),
            ("Zone", "row-1", json!({})),
            ("Vlan", "core.7", json!({"fabric": "core", "vid": 7, "space": "inside"})),
            ("Subnet", "lab", json!({"vlan": "core.7", "cidr": "10.77.0.0/24", "gateway": "10.77.0.1"})),
            ("IpRange", "lab-pool", json!({"subnet": "lab", "start": "10.77.0.100", "end": "10.77.0.149"})),
            ("Domain", "lab.example.com", json!({"ttl": 60})),
            (
                "DnsRecord",
                "www-lab",
                json!({"domain": "lab.example.com", "owner_name": "www", "type": "A", "data": "10.77.0.4"}),
            ),
            ("Tag", "gpu", json!({"comment": "has one"})),
            ("Machine", "hen", json!({"pool": "web", "zone": "row-1", "boot_macs": ["52:54:00:aa:00:01"]})),
            (
                "IpAddress",
                "printer",
                json!({"subnet": "lab", "address": "10.77.0.30", "mac": "52:54:00:aa:00:09"}),
            ),
            (
                "ImageSource",
                "upstream",
                json!({
                    "url": "https://images.example.com/",
                    "selections": {"stable": {"os": "debian", "release": "bookworm", "architectures": ["amd64"]}}
                }),
            ),
            ("PackageRepository", "ours", json!({"url": "http://deb.example.com/debian"})),
            ("Script", "disks", json!({"type": "testing", "content": "#!/bin/sh\n"})),
            ("User", "ada", json!({"email": "ada@example.com"})),
            ("ApiToken", "ci", json!({"user": "ada"})),
            ("Settings", "default", json!({"kernel_options": "quiet"})),
            ("Device", "switch", json!({"macs": ["52:54:00:aa:00:02"]})),
        ] {
            world.put("cli", kind, name, spec).await;
        }
        let machine = world.get("Machine", "hen").await.metadata.uid;
        world.comes_from(CANONICAL, &left(), HERE);

        let planned = world.ok(&["plan"]).await;
        for (from, to) in MOVES.iter().filter(|(from, _)| *from != "maas_instance") {
            let moved = [format!("# {from}.it has moved to {to}.it"), format!("# (moved from {from}.it)")];
            assert!(moved.iter().any(|moved| planned.contains(moved)), "{from}: {planned}");
        }
        assert!(planned.contains("Plan: 0 to add, 2 to change, 0 to destroy."), "{planned}");
        let said = flat(&planned);
        assert!(said.contains("Of maas_tag this has no counterpart: `definition`: it is XPath"), "{said}");
        assert!(said.contains("`power_parameters`: declare the account in `bmc`"), "{said}");
        for advice in ["name a role of base admin in `roles`", "one basalt_settings holds all of them"] {
            assert!(said.contains(advice), "{advice}: {said}");
        }
        assert!(!said.contains("hush"), "{said}");

        let said = world.apply().await;
        assert!(
            said.contains("0 added, 2 changed, 0 destroyed"),
            "the record's data, the machine's name: {said}"
        );
        assert_eq!(world.get("Machine", "web-1").await.metadata.uid, machine);
        assert_eq!(world.get("DnsRecord", "www-lab").await.spec["data"], "10.77.0.5");

        // A copy of the directory, with the old state.
        world.comes_from(CANONICAL, &left(), HERE);
        let said = flat(&world.ok(&["plan"]).await);
        assert!(said.contains("was written by Terraform, so another state may have it"), "{said}");
        world.end().await;
    });
}

#[test]
fn what_the_region_does_not_have_is_created() {
    within(async |mut world| {
        world.comes_from(CANONICAL, &left(), HERE);
        let said = world.apply().await;
        assert!(said.contains("19 added, 0 changed, 0 destroyed"), "{said}");
        world.end().await;
    });
}

#[test]
fn an_installed_machine_is_the_deployment_that_the_region_has_of_it() {
    within(async |mut world| {
        let files = json!({"root_tarball": {"sha256": "a".repeat(64), "size": 1024}});
        for (kind, name, spec) in [
            ("Machine", "db-1", json!({"boot_macs": ["52:54:00:aa:00:03"]})),
            (
                "Image",
                "debian-12",
                json!({"os": "debian", "release": "bookworm", "architecture": "amd64", "files": files}),
            ),
            ("Deployment", "database", json!({"machine": "db-1", "image": "debian-12"})),
        ] {
            world.put("cli", kind, name, spec).await;
        }
        let instance = json!({
            "id": "x7d3aa", "hostname": "db-1", "fqdn": "db-1.maas", "architecture": "amd64/generic", "cpu_count": 4,
            "deploy_params": [{"distro_series": "bookworm", "user_data": ""}], "network_interfaces": []
        });
        let here = r#"
            resource "basalt_deployment" "it" {
              name    = "database"
              machine = "db-1"
              image   = "debian-12"
            }
        "#;
        world.comes_from(CANONICAL, &[("maas_instance", 0, instance)], here);
        let planned = flat(&world.ok(&["plan"]).await);
        // It is not ready yet: an apply waits for that.
        for said in [
            "# (moved from maas_instance.it)",
            "~ ready = false -> (known after apply)",
            "Plan: 0 to add, 1 to change, 0 to destroy.",
            "`deploy_params`: declare `image` and `user_data`",
        ] {
            assert!(planned.contains(said), "{said}: {planned}");
        }
        let before = world.get("Deployment", "database").await.metadata;
        let said = world.deploy(&[("database", json!({"machine": "db-1"}))]).await;
        assert!(said.contains(" 0 added, ") && said.contains(" 0 destroyed"), "{said}");
        let after = world.get("Deployment", "database").await.metadata;
        assert_eq!(
            (after.uid, after.generation),
            (before.uid, before.generation),
            "nothing is installed anew"
        );
        world.end().await;
    });
}

#[test]
fn what_cannot_be_moved_is_told_before_anything_is_changed() {
    within(async |mut world| {
        let vlan = "resource \"basalt_vlan\" \"it\" {\n  fabric = \"default\"\n  vid = 7\n}\n";
        let by_number = [("maas_vlan", 0, json!({"id": "5001", "fabric": "1", "vid": 7}))];
        world.comes_from(CANONICAL, &by_number, vlan);
        let said = flat(&world.fails(&["plan"]).await);
        assert!(
            said.contains("its fabric is given by the number 1, which only MAAS can tell the name of"),
            "{said}"
        );

        let fabric = "resource \"basalt_fabric\" \"it\" {\n  name = \"core\"\n}\n";
        let newer = [("maas_fabric", 9, json!({"id": "1", "name": "core"}))];
        world.comes_from(CANONICAL, &newer, fabric);
        let said = flat(&world.fails(&["plan"]).await);
        assert!(said.contains("The state of maas_fabric has schema version 9"), "{said}");

        let somebody = [("maas_fabric", 0, json!({"id": "1", "name": "core"}))];
        world.comes_from("registry.terraform.io/somebody/maas", &somebody, fabric);
        let said = flat(&world.fails(&["plan"]).await);
        assert!(
            said.contains("maas_fabric of registry.terraform.io/somebody/maas is no basalt_fabric"),
            "{said}"
        );
        world.end().await;
    });
}
