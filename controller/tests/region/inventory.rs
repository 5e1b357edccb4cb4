//! Tests examples/ansible with a live region: by Ansible itself, and its recipes for other tools by the shell.

use crate::allocation::{apply, image, machine, once};
use crate::support::{Lab, driven_lab, lab};
use basalt_db::splice::Text;
use basalt_db::{Key, Precondition, Put};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The output of a program, which must succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    assert!(!said.contains("WARNING"), "{said}");
    String::from_utf8(output.stdout).expect("text")
}

fn hosts(inventory: &Value, group: &str) -> BTreeSet<String> {
    let hosts = inventory[group]["hosts"].as_array().cloned().unwrap_or_default();
    hosts.iter().filter_map(|host| host.as_str().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn ansible_sees_machines_by_zone_pool_and_tag() {
    let lab = driven_lab().await;
    for path in ["zones/row-1", "zones/row-2", "pools/web"] {
        lab.api.declare(&format!("/api/v1/{path}"), "{}").await;
    }
    for (name, zone) in [("m1", "row-1"), ("m2", "row-2"), ("m3", "row-2")] {
        let mut spec = machine(name, zone)["spec"].clone();
        if name == "m3" {
            spec["pool"] = json!("web");
            spec["tags"] = json!(["ssd"]);
        }
        lab.api.declare(&format!("/api/v1/machines/{name}"), &spec.to_string()).await;
    }
    lab.api.declare("/api/v1/tags/second-row", r#"{"expression":"zone == 'row-2'"}"#).await;
    once("both machines of the row have its tag", async || {
        let tags = async |name: &str| {
            let machine = lab.api.get(&format!("/api/v1/machines/{name}")).await.json();
            machine["status"]["tags"].clone()
        };
        let are = (tags("m2").await, tags("m3").await);
        (are == (json!(["second-row"]), json!(["second-row", "ssd"]))).then_some(())
    })
    .await;

    apply(&lab.api, vec![image()]).await;
    lab.api.declare("/api/v1/deployments/web", r#"{"image":"debian","machine":"m1"}"#).await;
    once("m1 is deployed", async || {
        let machine = lab.api.get("/api/v1/machines/m1").await.json();
        (machine["status"]["deployment"] == "web").then_some(())
    })
    .await;

    let (url, home) = (format!("http://{}", lab.region.address()), lab.dir.path().to_owned());
    let listed = tokio::task::spawn_blocking(move || {
        let programs = output(&mut Command::new(format!("{ROOT}/tests/lab/ansible")));
        let ansible = Path::new(programs.trim()).join("ansible-inventory");
        let script = format!("{ROOT}/examples/ansible/basalt_inventory.py");
        let run = |arguments: &[&str]| {
            let mut command = Command::new(&ansible);
            command.args(["-i", &script]).args(arguments).current_dir(&home).env("ANSIBLE_HOME", &home);
            command.env("BASALT_ENDPOINT", &url).env("BASALT_TOKEN_FILE", home.join("admin-token"));
            serde_json::from_str::<Value>(&output(&mut command)).expect("JSON")
        };
        let inventories = [run(&["--list"]), run(&["--host", "m3"])];
        // The commands of README, at this region.
        let readme = std::fs::read_to_string(format!("{ROOT}/examples/ansible/README.md")).expect("README");
        let block = readme.split("```").find(|block| block.contains("\nansible ")).expect("commands");
        let commands = block
            .replace("http://127.0.0.1:5240", &url)
            .replace("/var/lib/basalt/admin-token", &home.join("admin-token").display().to_string());
        let path = format!("{}:{}", programs.trim(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("bash");
        shell.args(["-euc", &commands]).current_dir(format!("{ROOT}/examples/ansible"));
        let ran = shell.env("PATH", path).env("ANSIBLE_HOME", &home).output().expect("a shell");
        (inventories, ran)
    });
    let ([inventory, host], ran) = listed.await.expect("it runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("@zone_row_1:"), "{ran:?}");
    assert!(said.contains("hosts (1):\n    m1\n"), "deployed machines of the zone: {ran:?}");
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    for (group, members) in [
        ("zone_row_1", &["m1"][..]),
        ("zone_row_2", &["m2", "m3"]),
        ("pool_default", &["m1", "m2"]),
        ("pool_web", &["m3"]),
        ("tag_ssd", &["m3"]),
        ("tag_second_row", &["m2", "m3"]),
    ] {
        assert_eq!(hosts(&inventory, group), set(members), "{group}: {inventory}");
    }
    assert_eq!(host["basalt_zone"], "row-2");
    assert_eq!(host["basalt_tags"], json!(["second-row", "ssd"]));
    assert_eq!(inventory["_meta"]["hostvars"]["m3"], host);
}

/// The commands of examples/ansible/README.md: the block with the request, and the rows of these tools.
fn recipes(tools: &[&str]) -> (String, Vec<String>) {
    let text = std::fs::read_to_string(format!("{ROOT}/examples/ansible/README.md")).expect("the README");
    let block =
        text.split("```").find(|block| block.contains("curl")).expect("a block of commands").to_owned();
    let command = |tool: &&str| {
        let row = text.lines().find(|line| line.starts_with(&format!("| {tool} |"))).expect("a row");
        row.split('`').nth(1).expect("a command").to_owned()
    };
    (block, tools.iter().map(command).collect())
}

/// A machine of a zone, with a status.
async fn seen(lab: &Lab, name: &str, zone: &str, status: Value) {
    let spec = Text::parse(json!({"zone": zone, "commissioning": {"skip": true}}).to_string()).expect("JSON");
    let put = Put {
        kind: basalt_api::Kind::find("Machine").expect("a kind"),
        key: Key::Name(name),
        spec: &spec,
        at: "",
        labels: None,
        manager: None,
        adopt: false,
        precondition: Precondition::None,
        first_status: &status,
    };
    lab.region.store().put(&put).await.expect("it is stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recipes_for_juju_chef_and_puppet_name_each_deployed_machine_of_the_zone_once() {
    let lab = lab().await;
    for zone in ["row-1", "row-2"] {
        lab.api.declare(&format!("/api/v1/zones/{zone}"), "{}").await;
    }
    let deployed = |addresses: Value| json!({"deployment": "web", "addresses": addresses});
    let two = json!({"enp1s0": "10.77.0.11", "enp1s0/six": "2001:db8::11"});
    seen(&lab, "m1", "row-1", deployed(two)).await;
    seen(&lab, "m2", "row-1", deployed(json!({"enp1s0": "10.77.0.12"}))).await;
    seen(&lab, "idle", "row-1", json!({"addresses": {"enp1s0": "10.77.0.13"}})).await;
    seen(&lab, "silent", "row-1", deployed(json!({}))).await;
    seen(&lab, "elsewhere", "row-2", deployed(json!({"enp1s0": "10.77.0.14"}))).await;
    let found = lab.api.get("/api/v1/machines?q=2001:db8::11").await.json();
    assert_eq!(found["items"][0]["metadata"]["name"], "m1", "an address finds its machine: {found}");

    let (url, home) = (format!("http://{}", lab.region.address()), lab.dir.path().to_owned());
    let ran = tokio::task::spawn_blocking(move || {
        let work = tempfile::tempdir().expect("a directory");
        // Stand-ins for the tools print their arguments. They consume standard input, as programs that call ssh do.
        for tool in ["juju", "knife", "bolt"] {
            let path = work.path().join(tool);
            std::fs::write(&path, "#!/bin/sh\ncat > /dev/null\necho \"${0##*/} $*\"\n")
                .expect("it is written");
            std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it can be run");
        }
        let (block, rows) = recipes(&["Juju", "Chef", "Puppet"]);
        let path = format!("{}:{}", work.path().display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", &format!("{block}\n{}", rows.join("\n"))]);
        shell.current_dir(work.path()).env("PATH", path).stdin(Stdio::null());
        shell.env("BASALT_ENDPOINT", &url).env("BASALT_TOKEN_FILE", home.join("admin-token"));
        output(&mut shell)
    });
    assert_eq!(
        ran.await.expect("it runs").lines().collect::<Vec<_>>(),
        [
            "juju add-machine ssh:ubuntu@10.77.0.11",
            "juju add-machine ssh:ubuntu@10.77.0.12",
            "knife bootstrap 10.77.0.11 --tags row-1",
            "knife bootstrap 10.77.0.12 --tags row-1",
            "bolt task run facts --targets 10.77.0.11,10.77.0.12",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ansible_connects_to_the_first_address_of_the_running_system() {
    let lab = lab().await;
    lab.api.declare("/api/v1/zones/row-1", "{}").await;
    let addresses = json!({"enp1s0": "10.77.0.11", "enp1s0/dhcp6": "2001:db8::11"});
    seen(&lab, "m1", "row-1", json!({"deployment": "web", "addresses": addresses})).await;
    let (url, home) = (format!("http://{}", lab.region.address()), lab.dir.path().to_owned());
    let listed = tokio::task::spawn_blocking(move || {
        let mut script = Command::new(format!("{ROOT}/examples/ansible/basalt_inventory.py"));
        script.args(["--host", "m1"]);
        script.env("BASALT_ENDPOINT", &url).env("BASALT_TOKEN_FILE", home.join("admin-token"));
        serde_json::from_str::<Value>(&output(&mut script)).expect("JSON")
    });
    let host = listed.await.expect("it runs");
    assert_eq!(host["ansible_host"], "10.77.0.11");
    assert_eq!(host["basalt_addresses"], addresses);
}
