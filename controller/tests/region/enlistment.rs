//! Enlistment with a simulated rack: from the boot concern to the Machine.

use crate::linked::Linked;
use crate::site::{network, until};
use crate::support::Lab;
use basalt_api::agent::{Dmi, Inventory, Neighbour, Nic, Outcome, Task, TaskAction, TaskResult, Then};
use basalt_db::MOST_OF_VLAN;
use basalt_db::testing::clock::Hand;
use basalt_proto::rack_v1::{AgentResult, BootConcern, BootRequestFact, Enlist, Fact, boot_machine, fact};
use prost::Message;
use serde_json::{Value, json};

const A: &str = "52:54:00:00:00:0a";
const B: &str = "52:54:00:00:00:0b";

/// The machines that the rack may inspect, by its latest boot concern.
fn enlist(rack: &Linked) -> Option<Enlist> {
    let told = rack.told().concerns;
    let version = told.iter().rfind(|version| version.concern == "boot")?;
    BootConcern::decode(version.body.as_slice()).expect("a concern").enlist
}

async fn told(rack: &Linked) -> Enlist {
    until("the rack is told whom it may inspect", async || enlist(rack)).await
}

/// Delivers the result of a machine with these interfaces. It booted from the first one.
async fn found(rack: &Linked, macs: &[&str], serial: &str) {
    let nic = |mac: &&str| Nic { mac: (*mac).to_owned(), hardware: Some(1), ..Nic::default() };
    found_with(rack, macs.iter().map(nic).collect(), serial).await;
}

/// The same, with all data of the interfaces.
async fn found_with(rack: &Linked, nics: Vec<Nic>, serial: &str) {
    let boot = told(rack).await.tasks.remove(0).boot.expect("a boot");
    let mac = nics[0].mac.clone();
    let result = TaskResult {
        attempt: boot.attempt,
        outcome: Outcome::Succeeded,
        inventory: Some(Inventory {
            architecture: "x86_64".to_owned(),
            nics,
            dmi: Dmi { manufacturer: "Dell Inc.".into(), serial: serial.into(), ..Dmi::default() },
            ..Inventory::default()
        }),
        markers: Default::default(),
        timings: Default::default(),
        output: None,
        scripts: Vec::new(),
        bmc: None,
        logs: None,
    };
    let json = serde_json::to_vec(&result).unwrap();
    let result = AgentResult { json, address: "10.77.0.100".to_owned() };
    let (attempt, body) = (boot.attempt, Some(fact::Body::Result(result)));
    rack.brings(Fact { mac, attempt, body, ..Fact::default() }).await;
}

async fn list(lab: &Lab, kind: &str) -> Vec<Value> {
    let answer = lab.api.get(&format!("/api/v1/{kind}?limit=500")).await;
    answer.json()["items"].as_array().expect("items").clone()
}

/// Has the region make a Machine of each undeclared one, and waits until it does.
async fn machines_are_created(lab: &Lab, rack: &Linked) {
    let vlan = json!({"fabric": "lab", "vid": 0, "dhcp": {"enabled": true}, "enlist": "create"});
    lab.api.declare("/api/v1/vlans/lab.0", &vlan.to_string()).await;
    until("machines are powered off", async || {
        let task = enlist(rack)?.tasks.remove(0).boot?.task_json;
        let task: Task = serde_json::from_slice(&task).expect("a task");
        assert_eq!((&task.action, task.scripts.len()), (&TaskAction::Inventory, 0));
        (task.then == Then::PowerOff).then_some(())
    })
    .await;
}

/// The Discovery of a machine, once it has a status.
async fn discovery(lab: &Lab) -> Value {
    let is_told = |it: &Value| it["status"]["sort"] == "unknown_mac";
    until("a Discovery", async || list(lab, "discoveries").await.into_iter().find(is_told)).await
}

#[tokio::test]
async fn what_was_found_is_a_discovery_and_the_machine_that_is_declared_takes_it_over_without_a_boot() {
    let (lab, _controller, rack) = network().await;
    found(&rack, &[A, B], "5BR47J2").await;
    let seen = discovery(&lab).await;
    assert_eq!(seen["metadata"]["name"], "mac-52-54-00-00-00-0a");
    let status = &seen["status"];
    assert_eq!((&status["mac"], &status["macs"]), (&json!(A), &json!([A, B])));
    assert_eq!((&status["vlan"], &status["racks"]), (&json!("lab.0"), &json!(["r1"])));
    assert_eq!(status["addresses"], json!(["10.77.0.100"]));
    assert_eq!(status["inventory"]["dmi"]["serial"], "5BR47J2");
    let proposal = &status["proposal"];
    assert_eq!((&proposal["name"], &proposal["boot_macs"]), (&json!("dell-inc-5br47j2"), &json!([A, B])));
    let ready = &status["conditions"][0];
    assert_eq!((&ready["type"], &ready["reason"]), (&json!("Ready"), &json!("Undeclared")));
    assert!(ready["message"].as_str().unwrap().contains("basalt accept mac-52-54-00-00-00-0a"), "{ready}");

    lab.api.declare("/api/v1/machines/web1", &json!({"boot_macs": [A]}).to_string()).await;
    let machine = until("the Machine has the hardware that was found", async || {
        let machine = lab.api.get("/api/v1/machines/web1").await.json();
        machine["status"]["inventory"].is_object().then_some(machine)
    })
    .await;
    assert_eq!(machine["status"]["inventory"]["dmi"]["serial"], "5BR47J2");
    assert!(machine["status"]["commissioned_at"].is_string(), "{}", machine["status"]);
    assert_eq!(status["proposal"]["architecture"], "amd64");
    assert_eq!(machine["status"]["axes"]["lifecycle"], "ready", "{}", machine["status"]);
    until("the Discovery is gone", async || list(&lab, "discoveries").await.is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_stranger_whom_two_racks_bring_at_once_is_one_discovery_and_one_machine() {
    let (lab, controller, r1) = network().await;
    let r2 = Linked::come(&lab, controller.rpc_address(), "r2", "10.77.0.3/24").await;
    tokio::join!(told(&r1), told(&r2));
    tokio::join!(found(&r1, &[A, B], "5BR47J2"), found(&r2, &[B, A], "5BR47J2"));
    let both = until("one Discovery that both racks have seen", async || {
        let found = list(&lab, "discoveries").await;
        let racks = found.iter().find_map(|it| Some(it["status"]["racks"].as_array()?.len()))?;
        (found.len() == 1 && racks == 2).then_some(found)
    })
    .await;
    assert_eq!(both[0]["status"]["macs"], json!([A, B]));

    // Both bring it again, and now a Machine is made of it.
    machines_are_created(&lab, &r1).await;
    tokio::join!(found(&r1, &[A, B], "5BR47J2"), found(&r2, &[B, A], "5BR47J2"));
    until("the Discovery is gone", async || list(&lab, "discoveries").await.is_empty().then_some(())).await;
    let machines = list(&lab, "machines").await;
    let names: Vec<_> = machines.iter().map(|it| it["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["dell-inc-5br47j2"]);
}

#[tokio::test]
async fn where_a_vlan_says_so_the_region_makes_a_machine_by_its_rules() {
    let (lab, _controller, rack) = network().await;
    lab.api.declare("/api/v1/zones/row-1", "{}").await;
    let rule = json!({"vendor": "Dell*", "rack": "r1", "zone": "row-1", "tags": ["new"]});
    let settings = json!({"enlistment": {"rules": {"dell": rule}}});
    lab.api.declare("/api/v1/settings/default", &settings.to_string()).await;
    machines_are_created(&lab, &rack).await;
    found(&rack, &[A], "5BR47J2").await;
    let machine = until("the Machine", async || {
        let machine = list(&lab, "machines").await.pop()?;
        machine["status"]["inventory"].is_object().then_some(machine)
    })
    .await;
    assert_eq!(
        (&machine["metadata"]["name"], &machine["metadata"]["manager"]),
        (&json!("dell-inc-5br47j2"), &json!("enlistment"))
    );
    let spec = &machine["spec"];
    assert_eq!((&spec["zone"], &spec["tags"]), (&json!("row-1"), &json!(["new"])));
    until("the Discovery is gone", async || list(&lab, "discoveries").await.is_empty().then_some(())).await;

    // Another machine with the same serial number.
    found(&rack, &[B], "5BR47J2").await;
    let name = until("a Machine by its MAC", async || {
        let machines = list(&lab, "machines").await;
        machines.iter().find(|it| it["spec"]["boot_macs"] == json!([B]))?["metadata"]["name"]
            .as_str()
            .map(str::to_owned)
    })
    .await;
    assert_eq!(name, "mac-52-54-00-00-00-0b");
}

#[tokio::test]
async fn a_rule_that_names_a_switch_is_for_the_machines_at_it() {
    let (lab, _controller, rack) = network().await;
    for zone in ["row-1", "row-2"] {
        lab.api.declare(&format!("/api/v1/zones/{zone}"), "{}").await;
    }
    let rule = |switch: &str, zone: &str| json!({"switch": switch, "zone": zone});
    let rules = json!({"row-1": rule("leaf-1.*", "row-1"), "row-2": rule("leaf-2.*", "row-2")});
    let settings = json!({"enlistment": {"rules": rules}});
    lab.api.declare("/api/v1/settings/default", &settings.to_string()).await;
    let leaf = Neighbour {
        protocol: "lldp".into(),
        chassis_id: "00:1c:73:0a:0b:0c".into(),
        port_id: "Ethernet1/7".into(),
        system_name: "leaf-2.example.com".into(),
        ..Neighbour::default()
    };
    let nic = |mac: &str, name: &str, neighbours| Nic {
        name: name.into(),
        mac: mac.into(),
        hardware: Some(1),
        neighbours,
        ..Nic::default()
    };
    found_with(&rack, vec![nic(A, "eth0", vec![]), nic(B, "eth1", vec![leaf])], "5BR47J2").await;
    let status = discovery(&lab).await["status"].take();
    assert_eq!(status["proposal"]["zone"], "row-2", "{status}");
    let seen = &status["inventory"]["interfaces"]["eth1"]["neighbours"]["leaf-2.example.com"];
    assert_eq!((&seen["protocol"], &seen["port_id"]), (&json!("lldp"), &json!("Ethernet1/7")));
}

#[tokio::test]
async fn settings_and_vlan_say_whom_a_rack_may_look_into() {
    let (lab, _controller, rack) = network().await;
    let enlist = told(&rack).await;
    let task = &enlist.tasks[0];
    assert_eq!(
        (task.networks.as_slice(), task.architecture.as_str()),
        (&["10.77.0.0/24".to_owned()][..], "amd64")
    );
    assert_eq!((enlist.at_once, enlist.tasks.len()), (16, 1), "there is no image for arm64");
    until("the VLAN says who serves it", async || {
        let vlan = lab.api.get("/api/v1/vlans/lab.0").await.json();
        (vlan["status"]["serving"] == json!(["r1"])).then_some(())
    })
    .await;
    let settings = json!({"enlistment": {"at_once": 2, "ignore": ["52:54:01"], "allow": ["52:54"]}});
    lab.api.declare("/api/v1/settings/default", &settings.to_string()).await;
    until("the rack is told the bounds", async || {
        let enlist = self::enlist(&rack)?;
        let bounds = (enlist.at_once, enlist.ignore, enlist.allow);
        (bounds == (2, vec!["52:54:01".to_owned()], vec!["52:54".to_owned()])).then_some(())
    })
    .await;
    let vlan = json!({"fabric": "lab", "vid": 0, "dhcp": {"enabled": true}, "enlist": "off"});
    lab.api.declare("/api/v1/vlans/lab.0", &vlan.to_string()).await;
    until("the rack may inspect nobody", async || self::enlist(&rack).is_none().then_some(())).await;
    lab.api.declare("/api/v1/settings/default", r#"{"enlist":"off"}"#).await;
    let vlan = json!({"fabric": "lab", "vid": 0, "dhcp": {"enabled": true}, "enlist": "discover"});
    lab.api.declare("/api/v1/vlans/lab.0", &vlan.to_string()).await;
    until("the VLAN comes before the Settings", async || self::enlist(&rack)).await;
    let vlan = json!({"fabric": "lab", "vid": 0, "dhcp": {"enabled": true}});
    lab.api.declare("/api/v1/vlans/lab.0", &vlan.to_string()).await;
    until("the Settings say that nobody is", async || self::enlist(&rack).is_none().then_some(())).await;
}

#[tokio::test]
async fn a_machine_whose_commissioning_has_scripts_is_booted_for_these() {
    let (lab, _controller, rack) = network().await;
    let script = json!({"type": "commissioning", "content": "#!/bin/sh\ntrue\n"});
    lab.api.declare("/api/v1/scripts/check", &script.to_string()).await;
    found(&rack, &[A], "5BR47J2").await;
    discovery(&lab).await;
    let machine = json!({"boot_macs": [A], "commissioning": {"scripts": ["check"]}});
    lab.api.declare("/api/v1/machines/web1", &machine.to_string()).await;
    until("the Discovery is gone", async || list(&lab, "discoveries").await.is_empty().then_some(())).await;
    let status = until("the Machine was looked at", async || {
        let machine = lab.api.get("/api/v1/machines/web1").await.json();
        machine["status"]["axes"].is_object().then(|| machine["status"].clone())
    })
    .await;
    assert_eq!((&status["inventory"], &status["axes"]["lifecycle"]), (&Value::Null, &json!("commissioning")));
}

#[tokio::test]
async fn a_machine_that_is_created_and_commissioned_boots_once_more() {
    for of_vlan in [true, false] {
        let (lab, _controller, rack) = network().await;
        let word = "create_and_commission";
        let vlan =
            json!({"fabric": "lab", "vid": 0, "dhcp": {"enabled": true}, "enlist": of_vlan.then_some(word)});
        lab.api.declare("/api/v1/vlans/lab.0", &vlan.to_string()).await;
        let of_settings = json!({"enlist": if of_vlan { "discover" } else { word }});
        lab.api.declare("/api/v1/settings/default", &of_settings.to_string()).await;
        found(&rack, &[A], "5BR47J2").await;
        until("the Machine is commissioned", async || {
            let machine = list(&lab, "machines").await.pop()?;
            (machine["status"]["axes"]["lifecycle"] == "commissioning").then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn machines_boot_the_ephemeral_image_with_the_options_of_settings_tags_and_their_own() {
    let (lab, _controller, rack) = network().await;
    lab.api.declare("/api/v1/settings/default", r#"{"kernel_options":"region=1"}"#).await;
    lab.api.declare("/api/v1/tags/gpu", r#"{"kernel_options":"tag=1"}"#).await;
    let machine = json!({"boot_macs": [A], "tags": ["gpu"], "kernel_options": "own=1"});
    lab.api.declare("/api/v1/machines/web1", &machine.to_string()).await;
    let boot = until("it is told what to boot", async || {
        let told = rack.told().concerns;
        let version = told.iter().rfind(|version| version.concern == "boot")?;
        let concern = BootConcern::decode(version.body.as_slice()).expect("a concern");
        match concern.machines.into_iter().next()?.action? {
            boot_machine::Action::Ephemeral(boot) => Some(boot),
            _ => None,
        }
    })
    .await;
    assert!(boot.kernel_options.contains("region=1 tag=1 own=1"), "{}", boot.kernel_options);
    let image = list(&lab, "images").await.remove(0)["spec"]["files"].clone();
    let told = [&boot.kernel_sha256, &boot.initrd_sha256, &boot.squashfs_sha256];
    let declared = ["kernel", "initrd", "squashfs"].map(|role| image[role]["sha256"].as_str().unwrap());
    assert_eq!(told.map(String::as_str), declared);
    let body =
        fact::Body::BootRequest(BootRequestFact { service: "tftp".to_owned(), ..BootRequestFact::default() });
    let machine_uid = lab.api.get("/api/v1/machines/web1").await.json()["metadata"]["uid"].clone();
    let machine_uid = machine_uid.as_str().unwrap().to_owned();
    let fact =
        Fact { machine_uid, mac: A.to_owned(), attempt: boot.attempt, body: Some(body), ..Fact::default() };
    rack.brings(fact).await;
    let progress = until("the boot has begun", async || {
        let machine = lab.api.get("/api/v1/machines/web1").await.json();
        Some(machine["status"]["boot"].clone()).filter(Value::is_object)
    })
    .await;
    assert_eq!((&progress["step"], &progress["rack"]), (&json!("tftp"), &json!("r1")));
    assert!(progress["at"].is_string(), "{progress}");
}

fn invented(number: usize) -> String {
    format!("02:00:00:00:{:02x}:{:02x}", number / 256, number % 256)
}

#[tokio::test]
async fn two_hundred_strangers_at_once_all_become_discoveries() {
    let (lab, _controller, rack) = network().await;
    told(&rack).await;
    for number in 0..200 {
        found(&rack, &[&invented(number)], &format!("serial-{number}")).await;
    }
    // Each needs some steps of the region, so each step of the test has its own time limit.
    for wanted in (10..=200).step_by(10) {
        until("the Discoveries", async || {
            let found = list(&lab, "discoveries").await;
            let told = found.iter().filter(|it| it["status"]["proposal"]["name"].is_string());
            (told.count() >= wanted).then_some(())
        })
        .await;
    }
    assert_eq!(list(&lab, "discoveries").await.len(), 200);
}

#[tokio::test]
async fn beyond_its_budget_enlistment_makes_no_machine_and_says_so_until_there_is_room() {
    let (lab, _controller, rack) = network().await;
    machines_are_created(&lab, &rack).await;
    let mut hand = Hand::on(&lab.url).await;
    // A day's Machines more than the budget.
    hand.run("insert into enlistment_use (vlan, made) select uid, 2000 from object where kind = 'Vlan'")
        .await;
    found(&rack, &[A], "5BR47J2").await;
    let ready = discovery(&lab).await["status"]["conditions"][0].take();
    let said = ready["message"].as_str().unwrap();
    assert_eq!(ready["reason"], "EnlistmentLimit", "{ready}");
    assert!(said.contains("lab.0 has had so many") && said.contains("basalt accept mac-"), "{said}");
    assert_eq!(list(&lab, "machines").await.len(), 0);

    // A Machine that the store refuses takes nothing from the budget.
    hand.run("update enlistment_use set made = 255, made_at = now()").await;
    let name = json!({"boot_macs": [B]}).to_string();
    for taken in ["dell-inc-taken", "mac-52-54-00-00-00-0c"] {
        let own = name.replace(":0b", if taken.starts_with("mac") { ":0e" } else { ":0d" });
        lab.api.declare(&format!("/api/v1/machines/{taken}"), &own).await;
    }
    found(&rack, &["52:54:00:00:00:0c"], "taken").await;
    until("it is refused", async || {
        let seen = lab.api.get("/api/v1/discoveries/mac-52-54-00-00-00-0c").await.json();
        (seen["status"]["conditions"][0]["reason"] == "NotCreated").then_some(())
    })
    .await;
    found(&rack, &[A], "5BR47J2").await;
    until("the Machine", async || {
        let machines = list(&lab, "machines").await;
        machines.iter().any(|it| it["metadata"]["name"] == "dell-inc-5br47j2").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_rack_says_that_undeclared_machines_of_a_full_vlan_are_left_out() {
    let (lab, _controller, rack) = network().await;
    found(&rack, &[A], "5BR47J2").await;
    discovery(&lab).await;
    let fill = format!(
        "insert into stranger (name, boot_mac, body, source, vlan)
         select 'invented-' || n, '02:00:00:00:00:01', '{{}}', 'r1', (select uid from object where kind = 'Vlan')
         from generate_series(2, {MOST_OF_VLAN}) n"
    );
    Hand::on(&lab.url).await.run(&fill).await;
    found(&rack, &[B], "other").await;
    let said = until("it is explained", async || {
        let plan = lab.api.get("/api/v1/racks/r1/plan").await.json();
        let waits = plan["waits"].as_array()?.clone();
        let wait = waits.into_iter().find(|wait| wait["cause"] == "StrangersLeftOut")?;
        Some(wait["message"].as_str()?.to_owned())
    })
    .await;
    assert!(said.starts_with("undeclared machines of lab.0 are left out"), "{said}");
    until("its status says so too", async || {
        let rack = lab.api.get("/api/v1/racks/r1").await.json();
        rack["status"]["conditions"].to_string().contains("(1 so far)").then_some(())
    })
    .await;
    let metrics = lab.api.get("/metrics").await;
    let left_out = r#"basalt_enlistment_left_out_total{vlan="lab.0"} 1"#;
    assert!(metrics.text().lines().any(|line| line == left_out), "{}", metrics.text());
}

#[tokio::test]
async fn a_discovery_of_a_machine_that_was_not_seen_for_thirty_days_goes() {
    let (lab, _controller, rack) = network().await;
    found(&rack, &[A], "5BR47J2").await;
    discovery(&lab).await;
    let mut hand = Hand::on(&lab.url).await;
    hand.run("update stranger set last_seen = now() - interval '31 days'").await;
    hand.run("update reconcile_queue set not_before = now() where kind = 'Discovery'").await;
    until("it is gone", async || list(&lab, "discoveries").await.is_empty().then_some(())).await;
    assert_eq!(hand.run("select count(*) from stranger").await, [["0"]]);
}
