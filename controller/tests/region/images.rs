//! The files in an image's status.

use crate::allocation::once;
use crate::support::{Lab, driven_lab};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const IMAGE: &str = "/api/v1/images/debian";

fn hash(bytes: &[u8]) -> String {
    hex::encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes))
}

/// Declares the image with these files.
async fn declare(lab: &Lab, files: &Value) {
    let spec = json!({"os": "debian", "release": "bookworm", "architecture": "amd64", "files": files});
    lab.api.declare(IMAGE, &spec.to_string()).await;
}

async fn upload(lab: &Lab, bytes: &'static [u8]) {
    let path = format!("/api/v1/blobs/{}", hash(bytes));
    assert_eq!(lab.api.send("PUT", &path, &[], bytes).await.status, 201);
}

/// The status of this generation, once these files are missing.
async fn once_missing(lab: &Lab, generation: u64, missing: &[&str]) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let status = lab.api.get(IMAGE).await.json()["status"].clone();
        // An empty set is left out.
        let are = status["missing"].as_array().cloned().unwrap_or_default();
        if are == missing && status["observed_generation"] == generation {
            return status;
        }
        assert!(Instant::now() < deadline, "{missing:?} are to be missing: {status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    let all = status["conditions"].as_array().expect("conditions");
    all.iter().find(|c| c["type"] == kind).expect("the condition")
}

#[tokio::test]
async fn an_image_says_which_of_its_files_have_not_been_uploaded() {
    let lab = driven_lab().await;
    let files = json!({"root_tarball": {"sha256": hash(b"root")}, "kernel": {"sha256": hash(b"kernel")}});
    declare(&lab, &files).await;
    let status = once_missing(&lab, 1, &["kernel", "root_tarball"]).await;
    for (kind, holds) in [("Ready", "false"), ("Progressing", "false"), ("Stalled", "true")] {
        let condition = condition(&status, kind);
        assert_eq!((&condition["status"], &condition["reason"]), (&json!(holds), &json!("FilesMissing")));
    }
    let message = condition(&status, "Ready")["message"].as_str().expect("words");
    assert!(message.contains(&format!("kernel (sha256 {})", hash(b"kernel"))), "{message}");
    let digest = status["digest"].clone();
    assert_eq!(digest.as_str().map(str::len), Some(64));

    upload(&lab, b"root").await;
    once_missing(&lab, 1, &["kernel"]).await;
    upload(&lab, b"kernel").await;
    let status = once_missing(&lab, 1, &[]).await;
    let ready = condition(&status, "Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("true"), &json!("Complete")));
    assert_eq!(condition(&status, "Stalled")["status"], "false");
    assert_eq!(status["digest"], digest, "it is of what is declared, not of what is there");

    declare(&lab, &json!({"root_tarball": {"sha256": hash(b"another")}})).await;
    let status = once_missing(&lab, 2, &["root_tarball"]).await;
    assert_eq!(condition(&status, "Ready")["status"], "false");
    assert_ne!(status["digest"], digest);
}

#[tokio::test]
async fn an_image_that_nothing_can_install_says_so_and_so_do_its_deployments() {
    let lab = driven_lab().await;
    upload(&lab, b"root").await;
    declare(&lab, &json!({"squashfs": {"sha256": hash(b"root")}})).await;
    let status = once_missing(&lab, 1, &[]).await;
    assert_eq!(condition(&status, "Stalled")["reason"], "NotInstallable");
    let ready = condition(&status, "Ready");
    assert_eq!(ready["status"], "false");
    assert_eq!(ready["message"], "nothing can install squashfs yet: declare a root_tarball among its files");

    lab.api
        .declare(
            "/api/v1/machines/m1",
            r#"{"boot_macs":["52:54:00:00:00:01"],"commissioning":{"skip":true}}"#,
        )
        .await;
    lab.api.get("/api/v1/machines/m1?wait=Ready&generation=1&timeout=20s").await;
    let (web, spec) = ("/api/v1/deployments/web", r#"{"image":"debian","machine":"m1"}"#);
    let tried = lab.api.put(&format!("{web}?dry_run=true"), &format!("{{\"spec\":{spec}}}")).await.json();
    let waits = "waiting for image debian to have a root_tarball: nothing installs another form of it yet";
    assert_eq!((&tried["plan"]["waits"][0]["message"], &tried["plan"]["steps"]), (&json!(waits), &json!([])));
    lab.api.declare(web, spec).await;
    let stalled = lab.api.get(&format!("{web}?wait=Stalled&generation=1&timeout=20s")).await.json();
    let stalled = condition(&stalled["status"], "Stalled");
    assert_eq!((&stalled["status"], &stalled["reason"]), (&json!("true"), &json!("NotInstallable")));

    let tried = lab.api.delete(&format!("{web}?dry_run=true")).await.json();
    assert_eq!(tried["plan"]["summary"], "web: it has no machine, and leaves at once");

    // Once there is a file to install, it gets its machine.
    declare(&lab, &json!({"root_tarball": {"sha256": hash(b"root")}})).await;
    once("it has its machine", async || {
        let web = lab.api.get(web).await.json();
        (web["status"]["machine"] == "m1").then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_image_of_blobs_that_are_there_is_ready_and_leaves_at_once() {
    let lab = driven_lab().await;
    upload(&lab, b"root").await;
    declare(&lab, &json!({"root_tarball": {"sha256": hash(b"root")}})).await;
    let ready = lab.api.get(&format!("{IMAGE}?wait=Ready&generation=1&timeout=20s")).await.json();
    assert_eq!(condition(&ready["status"], "Ready")["status"], "true", "{ready}");
    assert_eq!(lab.api.delete(IMAGE).await.status, 204, "nothing has to be done for its leaving");
}
