//! The history of a machine: what happened, and how long it took.

use crate::site::{self, MAC, site, task, until};
use basalt_api::agent::{Inventory, Outcome, TaskResult};
use basalt_api::values::{Duration, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const TIMELINE: &str = "/api/v1/machines/web1/timeline";

/// The time from the entry's event to its end.
fn end_of(entry: &Value) -> Option<Timestamp> {
    let took: Duration = entry["took"].as_str()?.parse().expect("a duration");
    let at: Timestamp = entry["at"].as_str().expect("a time").parse().expect("a time");
    Some(at.checked_add(took.get()).expect("a time"))
}

#[tokio::test]
async fn a_step_that_ends_a_wait_says_how_long_it_took() {
    let (lab, _controller, rack) = site().await;
    let spec = json!({"boot_macs": [MAC], "commissioning": {"bmc": "leave"}});
    lab.api.declare("/api/v1/machines/web1", &spec.to_string()).await;
    let task = task(&rack, 0).await;
    let armed = async || {
        let timeline = lab.api.get(TIMELINE).await.json();
        let mut entries = timeline["entries"].as_array().expect("entries").iter();
        let of = |entry: &&Value| entry["reason"].as_str().is_some_and(|key| key.contains("/arm-inventory/"));
        entries.find(of).cloned().expect("the step")
    };
    assert_eq!((end_of(&armed().await), armed().await["data"].get("outcome")), (None, None), "it runs");

    let result = TaskResult {
        attempt: task.attempt,
        outcome: Outcome::Succeeded,
        inventory: Some(Inventory::default()),
        markers: BTreeMap::new(),
        timings: BTreeMap::new(),
        output: None,
        scripts: Vec::new(),
        bmc: None,
        logs: None,
    };
    site::ends(&rack, &result, &task.machine_uid).await;
    let (entry, end) = until("the step has an end", async || {
        let entry = armed().await;
        end_of(&entry).map(|end| (entry, end))
    })
    .await;
    assert_eq!(entry["data"]["outcome"], "Done", "{entry}");
    let timeline = lab.api.get(TIMELINE).await.json();
    let mut entries = timeline["entries"].as_array().expect("entries").iter();
    let result = entries.find(|entry| entry["message"] == "the task succeeded").expect("the result");
    let at: Timestamp = result["at"].as_str().expect("a time").parse().expect("a time");
    assert!(end.duration_since(at).abs().as_millis() <= 1, "the step ends with the result: {timeline}");
}
