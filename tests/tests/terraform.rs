//! The real Terraform against a real region: what users of the provider rely on.
//!
//! Region and provider run inside the test, on a database of its own; Terraform finds the provider through
//! `TF_REATTACH_PROVIDERS`. Needs `terraform` and PostgreSQL's binaries (`make test` brings both).

use std::process::{Output, Stdio};
use std::time::Duration;

use basalt_api::client::{Client, ClientConfig, Precondition};
use basalt_api::values::{Generation, Uid};
use basalt_api::wire::PutRequest;
use basalt_api::{Kind, Object};
use basalt_region::region::Region;
use basalt_region::settings::Settings;
use serde_json::{Value, json};
use tempfile::TempDir;
use tfplugin::Reattached;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A Terraform command that takes longer hangs.
const COMMAND: Duration = Duration::from_secs(120);

/// A region, a provider, and a user's directory.
struct World {
    dir: TempDir,
    region: Region,
    provider: Reattached,
    endpoint: String,
    token: String,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut settings = Settings::new(dir.path().join("region"));
        settings.database_url = Some(basalt_db::testing::database().await);
        settings.listen = ([127, 0, 0, 1], 0).into();
        let region = Box::pin(Region::start(settings)).await.expect("a region");
        let token = std::fs::read_to_string(dir.path().join("region/admin-token")).expect("a token");
        let provider =
            Reattached::start(terraform_provider_basalt::provider(), terraform_provider_basalt::ADDRESS)
                .expect("a provider");
        let endpoint = format!("http://{}", region.address());
        Self { dir, region, provider, endpoint, token: token.trim().to_owned() }
    }

    async fn end(self) {
        self.provider.stop().await;
        self.region.stop().await;
    }

    /// Another tool that talks to the region.
    fn client(&self, manager: &str) -> Client {
        Client::new(&ClientConfig {
            endpoints: vec![self.endpoint.clone()],
            token: Some(self.token.clone()),
            manager: Some(manager.to_owned()),
            ..ClientConfig::default()
        })
        .expect("a client")
    }

    async fn get(&self, kind: &str, name: &str) -> Object {
        self.client("test").get(described(kind), name).await.expect("an object")
    }

    async fn put(&self, manager: &str, kind: &str, name: &str, spec: Value) -> Object {
        let request = PutRequest { spec, ..PutRequest::default() };
        let written = self.client(manager).put(described(kind), name, &request, Precondition::None).await;
        written.expect("it is stored").object
    }

    /// The user's configuration from here on.
    fn config(&self, text: &str) -> &Self {
        let head = "terraform {\n  required_providers {\n    basalt = { source = \"basalt-metal/basalt\" }\n  }\n}\n";
        std::fs::write(self.dir.path().join("main.tf"), format!("{head}{text}")).expect("a configuration");
        self
    }

    fn terraform(&self, args: &[&str]) -> Command {
        let (name, value) = self.provider.env();
        let mut command = Command::new("terraform");
        command
            .args(args)
            .arg("-no-color")
            .current_dir(self.dir.path())
            .env(name, value)
            .env("TF_IN_AUTOMATION", "1")
            .env("CHECKPOINT_DISABLE", "1")
            .env("TF_CLI_CONFIG_FILE", "/dev/null")
            .env_remove("TF_LOG")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    async fn run(&self, args: &[&str]) -> Output {
        let output = tokio::time::timeout(COMMAND, self.terraform(args).output()).await;
        output.unwrap_or_else(|_| panic!("terraform {args:?} hangs")).expect("terraform on the PATH")
    }

    async fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args).await;
        let said = everything(&output);
        assert!(output.status.success(), "terraform {args:?}:\n{said}");
        said
    }

    /// Applies, and looks that there is nothing left to do.
    async fn apply(&self) -> String {
        let said = self.ok(&["apply", "-auto-approve"]).await;
        let again = self.run(&["plan", "-detailed-exitcode"]).await;
        assert_eq!(again.status.code(), Some(0), "the second plan is not empty:\n{}", everything(&again));
        said
    }

    async fn fails(&self, args: &[&str]) -> String {
        let output = self.run(args).await;
        let said = everything(&output);
        assert_eq!(output.status.code(), Some(1), "terraform {args:?}:\n{said}");
        said
    }

    /// The values of a resource in the state.
    async fn state(&self, address: &str) -> Value {
        let shown: Value = serde_json::from_slice(&self.run(&["show", "-json"]).await.stdout).expect("JSON");
        let resources = shown["values"]["root_module"]["resources"].as_array().cloned().unwrap_or_default();
        let found = resources.into_iter().find(|resource| resource["address"] == address);
        found.unwrap_or_else(|| panic!("no {address} in {shown}"))["values"].clone()
    }
}

fn described(kind: &str) -> &'static Kind {
    Kind::find(kind).unwrap_or_else(|| panic!("no kind {kind}"))
}

/// What Terraform said, without the frames and line breaks of its messages.
fn everything(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    let lines = text.lines().map(|line| line.trim_start_matches(['│', '╷', '╵', ' ']));
    lines.collect::<Vec<_>>().join("\n")
}

/// The same on one line, for sentences that Terraform wraps.
fn flat(said: &str) -> String {
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A test on a runtime that serves region and provider while Terraform runs.
fn within(test: impl AsyncFnOnce(World)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        // The region's own tokens and addresses, where a test gives none.
        let world = World::new().await;
        test(world).await;
    });
}

fn provider(world: &World) -> String {
    format!("provider \"basalt\" {{\n  endpoint = {:?}\n  token = {:?}\n}}\n", world.endpoint, world.token)
}

/// A network in which everything refers to something that is new as well.
const NETWORK: &str = r#"
resource "basalt_zone" "row" {
  name        = "row-1"
  description = "the first row"
}
resource "basalt_pool" "web" {
  name = "web"
}
resource "basalt_fabric" "core" {
  name = "core"
}
resource "basalt_vlan" "lab" {
  fabric = basalt_fabric.core.name
  vid    = 7
  dhcp   = { enabled = true }
}
resource "basalt_subnet" "lab" {
  name        = "lab"
  vlan        = basalt_vlan.lab.name
  cidr        = "10.77.0.0/24"
  gateway     = "10.77.0.1"
  dns_servers = ["10.77.0.2", "10.77.0.3"]
}
resource "basalt_ip_range" "pool" {
  name   = "lab-pool"
  subnet = basalt_subnet.lab.name
  start  = "10.77.0.100"
  end    = "10.77.0.149"
}
resource "basalt_image" "debian" {
  name         = "debian-12"
  os           = "debian"
  release      = "bookworm"
  architecture = "amd64"
  files = {
    root_tarball = {
      sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
      size   = 0
    }
  }
}
"#;

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

        // How full the subnet is does not concern Terraform.
        world.put("cli", "IpAddress", "other", json!({"subnet": "lab", "address": "10.77.0.9"})).await;
        let planned = world.ok(&["plan"]).await;
        assert!(planned.contains("No changes."), "{planned}");
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
        world.end().await;
    });
}

#[test]
fn an_object_of_another_manager_is_never_seized() {
    within(async |world| {
        let zone = world.put("cli", "Zone", "row-1", json!({"description": "mine"})).await;
        world.config(&format!(
            "{}resource \"basalt_zone\" \"row\" {{\n  name = \"row-1\"\n  description = \"theirs\"\n}}\n",
            provider(&world)
        ));
        let said = flat(&world.fails(&["apply", "-auto-approve"]).await);
        assert!(said.contains("There is a Zone \"row-1\" already, managed by \"cli\""), "{said}");
        assert!(said.contains("import"), "{said}");
        assert_eq!(world.get("Zone", "row-1").await, zone, "untouched");
        world.end().await;
    });
}

#[test]
fn our_own_object_is_adopted_where_it_is_as_declared() {
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
        world.config(&text("mine")).apply().await;
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

        // Somebody else changes both secrets, and a field.
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

/// A machine in a zone.
fn machine(zone: &str) -> String {
    format!(
        "resource \"basalt_machine\" \"m\" {{\n name = \"wrong\"\n zone = \"{zone}\"\n boot_macs = [\"52:54:00:00:00:07\"]\n}}\n"
    )
}

#[test]
fn what_is_wrong_is_told_at_its_attribute_and_nothing_is_stored() {
    within(async |world| {
        let with = |resource: &str| format!("{}{NETWORK}{resource}", provider(&world));
        for (what, text, want) in [
            ("gateway", with("").replace("\"10.77.0.1\"", "\"10.99.0.1\""), "10.99.0.1"),
            ("vid", with("").replace("vid    = 7", "vid    = 5000"), "5000"),
            ("cidr", with("").replace("10.77.0.0/24", "10.77.0.0/99"), "10.77.0.0/99"),
            ("name", with("").replace("\"row-1\"", "\"Row_1\""), "Row_1"),
            ("colour", with("").replace("  description = \"the", "  colour = \"the"), "colour"),
            ("boot_macs", with(&machine("row-1").replace("00:07", "00:zz")), "52:54:00:00:00:zz"),
        ] {
            let said = flat(&world.config(&text).fails(&["plan"]).await);
            assert!(said.contains(want) && said.contains(what), "{what}: {said}");
        }
        // Only the region knows these.
        world.config(&with("")).apply().await;
        for (text, want) in [
            (
                with(
                    "resource \"basalt_ip_range\" \"b\" {\n name = \"b\"\n subnet = \"lab\"\n start = \"10.77.0.140\"\n end = \"10.77.0.160\"\n}\n",
                ),
                "overlaps 10.77.0.100-10.77.0.149 of IpRange \"lab-pool\"",
            ),
            (
                with(
                    "resource \"basalt_ip_range\" \"b\" {\n name = \"b\"\n subnet = \"lab\"\n start = \"10.78.0.1\"\n end = \"10.78.0.9\"\n}\n",
                ),
                "10.78.0.1 is outside 10.77.0.0/24",
            ),
        ] {
            let said = flat(&world.config(&text).ok(&["plan"]).await);
            assert!(said.contains("Warning") && said.contains(want), "{said}");
        }
        // All at once: an overlap is tried again for a while.
        let range = |name: &str, start: &str, end: &str| {
            format!(
                "resource \"basalt_ip_range\" \"{name}\" {{\n name = \"{name}\"\n subnet = \"lab\"\n start = \"{start}\"\n end = \"{end}\"\n}}\n"
            )
        };
        let text = [
            range("overlapping", "10.77.0.140", "10.77.0.160"),
            range("outside", "10.78.0.1", "10.78.0.9"),
            machine("nowhere"),
            "resource \"basalt_subnet\" \"b\" {\n name = \"b\"\n vlan = \"core.8\"\n cidr = \"10.80.0.0/24\"\n}\n"
                .to_owned(),
        ];
        let said = flat(&world.config(&with(&text.concat())).fails(&["apply", "-auto-approve"]).await);
        for want in [
            "overlaps 10.77.0.100-10.77.0.149 of IpRange \"lab-pool\"",
            "10.78.0.1 is outside 10.77.0.0/24",
            "nowhere",
            "core.8",
        ] {
            assert!(said.contains(want), "{want}: {said}");
        }
        for (kind, name) in
            [("IpRange", "overlapping"), ("IpRange", "outside"), ("Machine", "wrong"), ("Subnet", "b")]
        {
            let stored = world.client("test").find(described(kind), name).await.expect("an answer");
            assert!(stored.is_none(), "{kind} {name} is stored");
        }
        world.end().await;
    });
}

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
        assert!(said.contains("There is no Zone \"row-6\""), "{said}");
        world.end().await;
    });
}

#[test]
fn a_region_that_does_not_answer_is_named() {
    within(async |world| {
        let text = "provider \"basalt\" {\n endpoint = \"http://127.0.0.1:1\"\n}\n\
                    data \"basalt_zone\" \"found\" {\n name = \"row-5\"\n}\n";
        let said = flat(&world.config(text).fails(&["plan"]).await);
        assert!(said.contains("http://127.0.0.1:1"), "{said}");
        world.end().await;
    });
}

/// A deployment that nothing but the test converges.
fn deployment(world: &World, more: &str) -> String {
    let image = NETWORK.split("resource \"basalt_image\"").nth(1).expect("an image");
    format!(
        "{}resource \"basalt_image\"{image}\nresource \"basalt_deployment\" \"web\" {{\n  name = \"web-1\"\n  \
         selector = {{}}\n  image = basalt_image.debian.name\n  {more}\n}}\n",
        provider(world)
    )
}

impl World {
    /// Plays the engine: what it would say of the deployment.
    async fn say(&self, name: &str, conditions: Value) {
        let object = self.get("Deployment", name).await;
        let store = self.region.store();
        let leases = store.claim(Uid::generate(), 100, Duration::from_secs(60)).await.expect("leases");
        let lease = leases.iter().find(|lease| lease.uid == object.metadata.uid).expect("it is due");
        let observed: Generation = object.metadata.generation;
        let status = json!({"observed_generation": observed, "conditions": conditions});
        store.write_status(lease, observed, &status).await.expect("it is written");
        for lease in &leases {
            store.finish(lease, basalt_db::Then::Again(Duration::ZERO)).await.expect("it is given back");
        }
    }

    async fn say_ready(&self, name: &str) {
        self.say(name, json!([condition("Ready", "true", "Deployed", "It is deployed.")])).await;
    }

    /// Starts a command whose output is read line by line.
    fn start(&self, args: &[&str]) -> (Child, tokio::io::Lines<BufReader<tokio::process::ChildStdout>>) {
        let mut command = self.terraform(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("terraform");
        let stdout = child.stdout.take().expect("stdout");
        (child, BufReader::new(stdout).lines())
    }

    /// Waits until the region has the deployment.
    async fn until_there(&self, name: &str) -> Object {
        let client = self.client("test");
        let there = async {
            loop {
                if let Some(object) = client.find(described("Deployment"), name).await.expect("an answer") {
                    return object;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(COMMAND, there).await.expect("terraform creates it")
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "since": "2026-01-31T12:00:00Z"})
}

async fn end_of(child: Child) -> Output {
    tokio::time::timeout(COMMAND, child.wait_with_output()).await.expect("it ends").expect("an end")
}

#[test]
fn an_interrupted_wait_goes_on_at_the_next_apply_and_nothing_is_made_twice() {
    within(async |world| {
        world.config(&deployment(&world, ""));
        let (child, _lines) = world.start(&["apply", "-auto-approve"]);
        let made = world.until_there("web-1").await;
        let pid = i32::try_from(child.id().expect("it runs")).expect("a process id");
        let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a signal");
        end_of(child).await;
        let kept = world.state("basalt_deployment.web").await;
        assert_eq!(kept["uid"], json!(made.metadata.uid));
        assert_eq!(kept["ready"], false);

        let (child, mut lines) = world.start(&["apply", "-auto-approve"]);
        while let Some(line) = lines.next_line().await.expect("output") {
            assert!(!line.contains("Destroying..."), "{line}");
            if line.contains("Modifying...") {
                world.say_ready("web-1").await;
            }
        }
        let output = end_of(child).await;
        assert!(output.status.success(), "{}", everything(&output));
        assert_eq!(world.get("Deployment", "web-1").await.metadata.uid, made.metadata.uid);
        assert_eq!(world.get("Deployment", "web-1").await.metadata.generation, made.metadata.generation);
        world.apply().await;
        world.end().await;
    });
}

#[test]
fn a_stalled_deployment_ends_the_wait_with_its_reason() {
    within(async |world| {
        world.config(&deployment(&world, ""));
        let (child, _lines) = world.start(&["apply", "-auto-approve"]);
        world.until_there("web-1").await;
        world
            .say("web-1", json!([condition("Stalled", "true", "DiskTooSmall", "No disk has 10 GiB.")]))
            .await;
        let output = end_of(child).await;
        assert!(!output.status.success());
        let said = flat(&everything(&output));
        assert!(said.contains("No disk has 10 GiB. (DiskTooSmall)"), "{said}");
        assert!(said.contains("basalt explain deployment web-1"), "{said}");
        world.end().await;
    });
}

#[test]
fn time_that_is_up_is_told_and_can_be_configured() {
    within(async |world| {
        let text = deployment(&world, "timeouts = { create = \"1s\", delete = \"1s\" }");
        let said = flat(&world.config(&text).fails(&["apply", "-auto-approve"]).await);
        assert!(said.contains("is not ready after 1 s"), "{said}");
        let said = flat(&world.fails(&["destroy", "-auto-approve"]).await);
        assert!(said.contains("is not gone after 1 s"), "{said}");
        let wrong = text.replace("create = \"1s\"", "create = \"soon\"");
        let said = flat(&world.config(&wrong).fails(&["validate"]).await);
        assert!(said.contains("timeouts.create") && said.contains("soon"), "{said}");
        world.end().await;
    });
}
