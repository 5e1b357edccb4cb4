//! Backup and restore by the program itself; in between the region's directory is lost.

use crate::process::{Program, command, data_dir, failing, id, of_manual, signal, start, wait};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const MACHINE: &str = "/api/v1/machines/m";

fn machine(password: &str) -> String {
    let bmc = json!({"driver": "ipmi", "address": "127.0.0.1", "username": "admin", "password": password});
    json!({"spec": {"boot_macs": ["52:54:00:00:00:01"], "bmc": bmc, "locked": true}}).to_string()
}

fn run(dir: &Path, args: &[&str]) -> String {
    let output = command(dir).args(args).output().expect("it runs");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs the manual's command for a backup of this directory, or for its restoration.
fn as_documented(verb: &str, dir: &Path, backup: &str) -> String {
    let dir = dir.to_str().expect("a path");
    let mut command = of_manual(verb, &[("/var/lib/basalt", dir), ("/srv/backup/2026-11-21", backup)]);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(dir: &Path, args: &[&str]) -> String {
    let mut command = command(dir);
    command.args(args);
    failing(command)
}

async fn incarnation(region: &Program) -> Value {
    region.api.get("/version").await.json()["incarnation"].clone()
}

fn end(mut region: Program) {
    signal(id(&region.child), "TERM");
    assert_eq!(wait(&mut region.child), 0);
}

#[tokio::test]
async fn a_lost_region_comes_back_from_its_backup() {
    let (dir, safe) = (data_dir(), data_dir());
    let backup = safe.path().join("backup");
    let saved = backup.to_str().expect("a path");
    let bytes = b"the bytes of an image";
    let sha256 = hex::encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes));
    let blob = format!("/api/v1/blobs/{sha256}");

    let region = start(dir.path());
    assert_eq!(region.api.put(MACHINE, &machine("hunter2-in-plain")).await.status, 201);
    assert_eq!(region.api.send("PUT", &blob, &[], bytes.as_slice()).await.status, 201);
    for (name, mode) in
        [("postgres.log", 0o600), ("blobs", 0o700), ("admin-token", 0o600), ("seal-key", 0o600)]
    {
        let found = std::fs::metadata(dir.path().join(name)).expect(name).permissions().mode();
        assert_eq!(found & 0o777, mode, "{name}: other accounts of this host read nothing");
    }
    let before = incarnation(&region).await;
    let position = region.api.get("/api/v1/machines").await.json()["position"].clone();
    assert!(as_documented("backup", dir.path(), saved).contains("1 blobs"));
    assert!(refused(dir.path(), &["backup", saved]).contains("is there already"));
    assert!(refused(dir.path(), &["recover"]).contains("another region runs"));
    region.api.declare("/api/v1/zones/later", "{}").await;
    std::fs::copy(dir.path().join("seal-key"), safe.path().join("seal-key")).expect("the key");
    for file in walk(&backup) {
        let content = std::fs::read(&file).expect("a file");
        assert!(!content.windows(8).any(|it| it == b"in-plain"), "{} holds a plaintext", file.display());
    }
    end(region);
    drop(dir);

    let dir = data_dir();
    let missing = refused(dir.path(), &["restore", saved]);
    assert!(missing.contains("copy the one of the lost region there"), "{missing}");
    std::fs::write(dir.path().join("seal-key"), "00".repeat(32)).expect("another key");
    let other = refused(dir.path(), &["restore", saved]);
    assert!(other.contains("is not the one that the backup's secrets are sealed with"), "{other}");
    assert!(!dir.path().join("postgres").exists(), "a refusal leaves nothing");
    std::fs::copy(safe.path().join("seal-key"), dir.path().join("seal-key")).expect("the key");
    let restored = as_documented("restore", dir.path(), saved);
    assert!(restored.contains("with 1 blobs"), "{restored}");
    assert!(refused(dir.path(), &["restore", saved]).contains("holds a region already"));

    let region = start(dir.path());
    assert_ne!(incarnation(&region).await, before);
    assert_ne!(region.api.get("/api/v1/machines").await.json()["position"], position);
    assert_eq!(region.api.get("/api/v1/zones/later").await.status, 404);
    assert_eq!(region.api.get(&blob).await.body.as_ref(), bytes);
    let same = region.api.put(&format!("{MACHINE}?dry_run=true"), &machine("hunter2-in-plain")).await.json();
    assert_eq!(same["plan"]["changes"], json!([]), "the secret is the same: {same}");
    let other = region.api.put(&format!("{MACHINE}?dry_run=true"), &machine("another")).await.json();
    assert_eq!(other["plan"]["changes"][0]["pointer"], "/bmc/password");
    end(region);
    let renewed = run(dir.path(), &["recover"]);
    assert!(renewed.contains(" is over, "), "{renewed}");
    end(start(dir.path()));
}

#[tokio::test]
async fn what_is_damaged_is_not_taken_for_whole() {
    let (dir, safe) = (data_dir(), data_dir());
    let backup = safe.path().join("backup");
    let saved = backup.to_str().expect("a path");
    assert!(refused(dir.path(), &["backup", saved]).contains("there is no region in"));
    assert!(!backup.exists());
    let region = start(dir.path());
    let bytes = b"the bytes of an image";
    let sha256 = hex::encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes));
    region.api.send("PUT", &format!("/api/v1/blobs/{sha256}"), &[], bytes.as_slice()).await;
    end(region);
    // The region is stopped: its database is started for the backup.
    run(dir.path(), &["backup", saved]);
    assert!(!dir.path().join("postgres/postmaster.pid").exists(), "PostgreSQL goes on");

    let manifest = std::fs::read_to_string(backup.join("manifest.json")).expect("a manifest");
    let key = std::fs::read_to_string(dir.path().join("seal-key")).expect("a key");
    let target = data_dir();
    std::fs::write(target.path().join("seal-key"), key).expect("the key");
    let cases = [
        (manifest.replace("\"format\": 1", "\"format\": 2"), "format 2"),
        (manifest.replace("\"schema\": ", "\"schema\": 99"), "restore it with that version or a newer one"),
        ("{".to_owned(), "is no whole backup"),
    ];
    for (text, says) in cases {
        std::fs::write(backup.join("manifest.json"), text).expect("it is written");
        let said = refused(target.path(), &["restore", saved]);
        assert!(said.contains(says), "{said}");
    }
    std::fs::write(backup.join("manifest.json"), &manifest).expect("it is written");
    let dump = std::fs::read(backup.join("database.dump")).expect("a dump");
    std::fs::write(backup.join("database.dump"), &dump[..dump.len() / 2]).expect("it is written");
    let said = refused(target.path(), &["restore", saved]);
    assert!(said.contains("pg_restore failed"), "{said}");
    assert!(!target.path().join("postgres").exists(), "half a region was left");

    std::fs::write(backup.join("database.dump"), &dump).expect("it is written");
    let place = backup.join("blobs").join(&sha256[..2]).join(&sha256);
    std::fs::remove_file(&place).expect("the blob");
    std::fs::write(&place, b"other bytes").expect("it is written");
    let said = run(target.path(), &["restore", saved]);
    assert!(said.contains("with 0 blobs") && said.contains("1 blobs are lost"), "{said}");
    let region = start(target.path());
    assert_eq!(region.api.get(&format!("/api/v1/blobs/{sha256}")).await.status, 404);
    end(region);
}

fn walk(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        match entry.path().is_dir() {
            true => files.extend(walk(&entry.path())),
            false => files.push(entry.path()),
        }
    }
    files
}
