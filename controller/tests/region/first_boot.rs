//! Scripts of the first boot, with a played rack: from the declaration to the condition Ready.

use crate::linked::Linked;
use crate::site::{MAC, ends, site, task, until};
use crate::support::Lab;
use basalt_api::agent::{
    FIRST_BOOT_DONE, FIRST_BOOT_FAILED, Inventory, Nic, Outcome, ScriptEnd, Task, TaskAction, TaskResult,
};
use basalt_db::Blob;
use basalt_proto::rack_v1::{Fact, ReadinessFact, fact::Body};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// An image that can be installed.
pub(crate) async fn image(lab: &Lab) {
    let blob = Blob { sha256: [4; 32], size: 1000, location: "here".to_owned() };
    lab.region.store().put_blob(&blob).await.unwrap();
    let files = json!({"root_tarball": {"sha256": hex::encode(blob.sha256), "size": 1000}});
    let image = json!({"os": "debian", "release": "12", "architecture": "amd64", "files": files});
    lab.api.declare("/api/v1/images/debian", &image.to_string()).await;
}

/// The result of a task that succeeded, with the ends of these scripts.
pub(crate) fn succeeded(task: &Task, scripts: &[&str]) -> TaskResult {
    let nic = Nic { name: "eth0".to_owned(), mac: MAC.to_owned(), boot: true, ..Nic::default() };
    let end = |name: &&str| ScriptEnd { name: (*name).to_owned(), ..ScriptEnd::default() };
    TaskResult {
        attempt: task.attempt,
        outcome: Outcome::Succeeded,
        inventory: Some(Inventory { nics: vec![nic], ..Inventory::default() }),
        markers: BTreeMap::new(),
        timings: BTreeMap::new(),
        output: None,
        scripts: scripts.iter().map(end).collect(),
        bmc: None,
        logs: None,
    }
}

/// The installed system reports.
async fn reports(rack: &Linked, task: &Task, level: &str, message: &str) {
    let (level, message, address) = (level.to_owned(), message.to_owned(), "10.77.0.9".to_owned());
    let body = Some(Body::Readiness(ReadinessFact { level, message, address }));
    let (machine_uid, attempt) = (task.machine_uid.clone(), task.attempt);
    rack.brings(Fact { machine_uid, mac: MAC.to_owned(), attempt, body, ..Fact::default() }).await;
}

/// The condition Ready of the deployment, once it has this reason.
async fn ready(lab: &Lab, reason: &str) -> Value {
    until(&format!("Ready has the reason {reason}"), async || {
        let status = lab.api.get("/api/v1/deployments/web").await.json()["status"].clone();
        let conditions = status["conditions"].as_array()?;
        conditions.iter().find(|it| it["type"] == "Ready" && it["reason"] == reason).cloned()
    })
    .await
}

#[tokio::test]
async fn a_deployment_is_ready_when_the_scripts_of_its_first_boot_went_well() {
    let (lab, _controller, rack) = site().await;
    image(&lab).await;
    let script = |when: &str| json!({"type": "deployment", "when": when, "content": "#!/bin/sh\n", "packages": ["jq"]});
    lab.api.declare("/api/v1/scripts/seed", &script("install").to_string()).await;
    lab.api.declare("/api/v1/scripts/tune", &script("first_boot").to_string()).await;
    let machine = json!({"boot_macs": [MAC], "commissioning": {"bmc": "leave"}});
    lab.api.declare("/api/v1/machines/web1", &machine.to_string()).await;
    let reading = task(&rack, 0).await;
    ends(&rack, &succeeded(&reading, &[]), &reading.machine_uid).await;
    let deployment = json!({"machine": "web1", "image": "debian", "scripts": ["seed", "tune"]});
    lab.api.declare("/api/v1/deployments/web", &deployment.to_string()).await;

    let task = task(&rack, reading.attempt).await;
    let names: Vec<&str> = task.scripts.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["seed"], "it runs in the install");
    assert_eq!(task.scripts[0].packages, ["jq"]);
    let TaskAction::Install(install) = &task.action else { panic!("{task:?}") };
    let work = &install.first_boot.as_ref().expect("scripts of the first boot").work;
    let names: Vec<&str> = work.scripts.iter().map(|it| it.name.as_str()).collect();
    assert_eq!((names, &work.scripts[0].packages), (vec!["tune"], &vec!["jq".to_owned()]));
    assert!(work.report.iter().all(|url| url.starts_with("http://10.77.0.2:5248/report/")), "{work:?}");

    ends(&rack, &succeeded(&task, &["seed", "tune"]), &task.machine_uid).await;
    reports(&rack, &task, "booted", "").await;
    let waits = ready(&lab, "FirstBoot").await;
    assert_eq!(waits["message"], "waiting for web1 to run its scripts of the first boot: tune");
    let failed = "script tune ended with exit status: 3; it said last: no such device";
    reports(&rack, &task, FIRST_BOOT_FAILED, failed).await;
    let waits = ready(&lab, "FirstBootFailed").await;
    assert!(waits["message"].as_str().unwrap().contains(failed), "{waits}");
    let status = lab.api.get("/api/v1/deployments/web").await.json()["status"].clone();
    assert_eq!(status["phase"], "Failed deploying", "{status}");
    let timeline = lab.api.get("/api/v1/machines/web1/timeline").await.text().to_owned();
    assert!(
        timeline.contains(&format!("the installed system reports first_boot_failed: {failed}")),
        "{timeline}"
    );

    // A person has mended the system.
    reports(&rack, &task, FIRST_BOOT_DONE, "").await;
    assert_eq!(ready(&lab, "Deployed").await["status"], "true");
}
