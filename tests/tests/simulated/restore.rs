//! The region is lost and restored from a backup. Its racks follow it, and running systems continue to run.

use std::process::Command;

use basalt_sim::{Event, Firmware};
use basalt_tests::fleet::{Fleet, machine_spec};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn racks_follow_a_region_that_was_restored() {
    let mut fleet = Fleet::start("restore", &[]).await;
    let first = fleet.machine(1, Firmware::Bios, |_| {});
    fleet.declare("machines", "sim1", machine_spec(&first)).await;
    fleet.ready("machines", "sim1").await;
    fleet.deploy("web", "sim1").await;
    fleet.ready("deployments", "web").await;
    let (dir, backup) = (fleet.site.directory().join("region"), fleet.site.directory().join("backup"));
    let program = fleet.site.programs().path("basalt-region");
    let run = |verb: &str| {
        let output = Command::new(&program).arg(verb).arg("--data-dir").arg(&dir).arg(&backup).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run("backup");

    // All later changes are lost. The rack has seen them, and the disk of this machine shows its attempts.
    let second = fleet.machine(2, Firmware::Uefi, |_| {});
    fleet.declare("machines", "sim2", machine_spec(&second)).await;
    fleet.ready("machines", "sim2").await;
    fleet.deploy("lost", "sim2").await;
    fleet.ready("deployments", "lost").await;
    fleet.site.stop_region().await.expect("it stops");
    let key = std::fs::read(dir.join("seal-key")).expect("a key");
    std::fs::remove_dir_all(&dir).expect("the region's host is lost");
    std::fs::create_dir(&dir).expect("a new host");
    std::fs::write(dir.join("seal-key"), key).expect("the key was kept apart");
    run("restore");
    fleet.site.start_region().await.expect("it starts");

    fleet.ready("deployments", "web").await;
    assert_eq!(fleet.status("deployments", "web").await["phase"], "Deployed");
    // The forgotten machine is declared again, and can be installed: its disk accepts the new attempts.
    fleet.declare("machines", "sim2", machine_spec(&second)).await;
    fleet.ready("machines", "sim2").await;
    fleet.deploy("again", "sim2").await;
    fleet.ready("deployments", "again").await;
    let installs =
        |machine: &basalt_sim::SimMachine| machine.count(|event| matches!(event, Event::Installed { .. }));
    assert_eq!((installs(&first), installs(&second)), (1, 2), "{}", second.log());
    let touched = first.count(|event| matches!(event, Event::PoweredOff | Event::Reset));
    assert_eq!(touched, 2, "the system that ran was disturbed:\n{}", first.log());
    assert_eq!(fleet.status("racks", "rack-1").await["connected"], json!(true));
}
