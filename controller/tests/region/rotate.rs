//! Another seal key, by the program itself: killed at every moment, with wrong keys, and under a region that still runs.

use crate::process::{Program, command, data_dir, failing, id, signal, start, wait};
use crate::support::{Client, lab};
use basalt_db::SealKey;
use basalt_db::rotate::{RotateError, Rotated, rotate};
use basalt_region::rotate::PLACES;
use serde_json::json;
use std::path::Path;
use std::process::Command;

const MACHINE: &str = "/api/v1/machines/m";
const PASSWORD: &str = "correct horse battery";

fn machine(password: &str) -> String {
    let bmc = json!({"driver": "ipmi", "address": "127.0.0.1", "username": "admin", "password": password});
    json!({"spec": {"boot_macs": ["52:54:00:00:00:01"], "bmc": bmc, "locked": true}}).to_string()
}

fn rotation(dir: &Path) -> Command {
    let mut command = command(dir);
    command.arg("rotate-seal-key");
    command
}

fn rotated(dir: &Path) -> String {
    let output = rotation(dir).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn key(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("seal-key")).expect("a key")
}

fn end(mut region: Program) {
    signal(id(&region.child), "TERM");
    assert_eq!(wait(&mut region.child), 0);
}

/// The region opens what was sealed before: a BMC's password and a user's.
async fn opens_everything(region: &Program) {
    let same = region.api.put(&format!("{MACHINE}?dry_run=true"), &machine("hunter2")).await.json();
    assert_eq!(same["plan"]["changes"], json!([]), "{same}");
    let other = region.api.put(&format!("{MACHINE}?dry_run=true"), &machine("other")).await.json();
    assert_eq!(other["plan"]["changes"][0]["pointer"], "/bmc/password", "{other}");
    let login = json!({"user": "alice", "password": PASSWORD}).to_string();
    assert_eq!(region.api.send("POST", "/api/v1/login", &[], login).await.status, 201);
}

#[tokio::test]
async fn a_rotation_that_is_killed_at_any_moment_leaves_a_region_that_starts() {
    let dir = data_dir();
    let region = start(dir.path());
    assert_eq!(region.api.put(MACHINE, &machine("hunter2")).await.status, 201);
    region.api.declare("/api/v1/users/alice", &json!({"password": PASSWORD}).to_string()).await;
    let locked = failing(rotation(dir.path()));
    assert!(locked.contains("another region runs in"), "{locked}");
    end(region);

    for place in PLACES {
        let before = key(dir.path());
        let fired = data_dir();
        let mut killed = rotation(dir.path());
        let point = format!("rotate/{place}:{}", fired.path().display());
        let status = killed.env("BASALT_KILL_AT", point).output().expect("it runs").status;
        assert!(fired.path().join(format!("rotate.{place}")).exists(), "{place} is a place");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{place}");
        assert_eq!(key(dir.path()), before, "{place}: the key is replaced last");
        let region = start(dir.path());
        opens_everything(&region).await;
        end(region);
        assert_eq!(key(dir.path()) != before, place == "committed", "{place}");
    }

    let before = key(dir.path());
    let said = rotated(dir.path());
    assert!(said.starts_with("3 secrets are sealed with another key"), "two and the authority: {said}");
    assert_ne!(key(dir.path()), before);
    let region = start(dir.path());
    opens_everything(&region).await;
    end(region);
    std::fs::write(dir.path().join("seal-key"), &before).expect("the key before");
    let said = failing(command(dir.path()));
    assert!(said.contains("is not the one that the database's secrets are sealed with"), "{said}");
}

#[tokio::test]
async fn a_wrong_key_changes_nothing() {
    let (dir, keys) = (data_dir(), data_dir());
    let nothing = failing(rotation(dir.path()));
    assert!(nothing.contains("there is no region in"), "{nothing}");
    end(start(dir.path()));
    let before = key(dir.path());
    let file = |name: &str, text: &str| {
        std::fs::write(keys.path().join(name), text).expect("a file");
        keys.path().join(name)
    };
    let (short, other) = (file("short", "00ff"), file("other", &"07".repeat(32)));
    let (same, missing) = (file("same", &before), keys.path().join("missing"));
    let cases = [
        ("--new-key-file", &short, "is no seal key: it has to hold 64 hexadecimal digits"),
        ("--new-key-file", &missing, "make one: openssl rand -hex 32"),
        ("--new-key-file", &same, "is the one that is in use"),
        ("--seal-key-file", &other, "is not the one that the database's secrets are sealed with"),
        ("--seal-key-file", &missing, "there is no"),
    ];
    for (flag, path, says) in cases {
        let mut wrong = rotation(dir.path());
        wrong.arg(flag).arg(path);
        let said = failing(wrong);
        assert!(said.contains(says), "{flag} {}: {said}", path.display());
        assert_eq!(key(dir.path()), before);
    }
    let mut chosen = rotation(dir.path());
    let output = chosen.arg("--new-key-file").arg(&other).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(key(dir.path()).trim(), "07".repeat(32));
    end(start(dir.path()));
}

#[tokio::test]
async fn a_region_whose_key_was_replaced_under_it_seals_nothing_more_and_says_so() {
    let lab = lab().await;
    assert_eq!(lab.api.put(MACHINE, &machine("hunter2")).await.status, 201);
    let bytes = hex::decode(key(lab.dir.path()).trim()).expect("hexadecimal");
    let (old, new) = (SealKey::new(&bytes).expect("a key"), SealKey::new(&[7; 32]).expect("a key"));
    let refused = rotate(&lab.url, (&old, &new), None, || ()).await;
    assert!(matches!(refused, Err(RotateError::Alive(_))), "{refused:?}");

    // As one that was thought to be gone, and comes back.
    let rotated = rotate(&lab.url, (&old, &new), Some(lab.region.id()), || ()).await;
    assert!(matches!(rotated, Ok(Rotated::Now(1))), "{rotated:?}");
    let says = "the seal key was replaced while this region ran";
    let refused = |api: Client, path: &'static str, body: String| async move {
        let answer = api.put(path, &body).await;
        assert!(answer.status == 503 && answer.text().contains(says), "{answer:?}");
    };
    refused(lab.api.clone(), MACHINE, machine("other")).await;
    let user = json!({"spec": {"password": PASSWORD}}).to_string();
    refused(lab.api.clone(), "/api/v1/users/alice", user).await;
    assert_eq!(lab.api.get("/api/v1/users/alice").await.status, 404);
    assert!(lab.api.get("/readyz").await.text().contains(says));
    lab.api.declare("/api/v1/zones/without-a-secret", "{}").await;
    let again = rotate(&lab.url, (&old, &new), Some(lab.region.id()), || ()).await;
    assert!(matches!(again, Ok(Rotated::Before)), "{again:?}");
    let other = SealKey::new(&[8; 32]).expect("a key");
    let neither = rotate(&lab.url, (&old, &other), None, || ()).await;
    assert!(matches!(neither, Err(RotateError::OtherKey)), "{neither:?}");
}
