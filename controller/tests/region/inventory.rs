//! examples/ansible, by Ansible itself against a live region.

use crate::allocation::{machine, once};
use crate::support::driven_lab;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// What a program prints, which has to succeed.
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
    once("the tag is there", async || {
        let machine = lab.api.get("/api/v1/machines/m3").await.json();
        (machine["status"]["tags"] == json!(["second-row", "ssd"])).then_some(())
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
        [run(&["--list"]), run(&["--host", "m3"])]
    });
    let [inventory, host] = listed.await.expect("it runs");
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
