//! Checkpoints of scripts that may restart their machine, at a played rack: from the fact to the boot entry.

use crate::linked::Linked;
use crate::site::{MAC, last, site, task, until};
use basalt_api::agent::{Checkpoint, RunInProgress};
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::{AgentCheckpoint, BootConcern, Fact, fact::Body};
use serde_json::json;

/// The checkpoint in the machine's boot entry.
fn told(rack: &Linked) -> Option<Checkpoint> {
    let boot: BootConcern = last(rack, "boot")?;
    let action = boot.machines.into_iter().find_map(|machine| machine.action)?;
    let Action::Ephemeral(boot) = action else { return None };
    serde_json::from_slice(&boot.checkpoint).ok()
}

#[tokio::test]
async fn the_latest_checkpoint_of_a_task_is_told_to_the_racks_that_boot_its_machine() {
    let (lab, _controller, rack) = site().await;
    let script =
        json!({"type": "commissioning", "content": "#!/bin/sh\n", "may_reboot": true, "timeout": "2h"});
    lab.api.declare("/api/v1/scripts/flash", &script.to_string()).await;
    let spec = json!({"boot_macs": [MAC], "commissioning": {"scripts": ["flash"], "bmc": "leave"}});
    lab.api.declare("/api/v1/machines/web1", &spec.to_string()).await;
    let task = task(&rack, 0).await;
    assert!(task.may_reboot(), "{task:?}");
    let life = task.not_after_unix_ms - lab.region.store().now().await.unwrap().as_millisecond();
    let hours = life as f64 / 3_600_000.0;
    assert!((11.9..=12.0).contains(&hours), "the usual two hours, and two for each of five boots: {hours}");
    assert_eq!(told(&rack), None);
    for (seq, boot) in [(1, 1), (2, 2)] {
        let run = Some(RunInProgress { name: "flash".to_owned(), device: None, boot });
        let checkpoint = Checkpoint { seq, run, ..Checkpoint::default() };
        let json = serde_json::to_vec(&checkpoint).unwrap();
        let body = Some(Body::Checkpoint(AgentCheckpoint { json }));
        let (machine_uid, attempt) = (task.machine_uid.clone(), task.attempt);
        rack.brings(Fact { machine_uid, mac: MAC.to_owned(), attempt, body, ..Fact::default() }).await;
        until("the checkpoint is told", async || told(&rack).filter(|it| *it == checkpoint)).await;
    }
    let timeline = lab.api.get("/api/v1/machines/web1/timeline").await.text().to_owned();
    assert!(timeline.contains("script flash may restart the machine, boot 2"), "{timeline}");
}
