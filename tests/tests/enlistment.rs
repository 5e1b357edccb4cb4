//! Two emulated undeclared machines, with BIOS and with UEFI firmware, become Discoveries. `basalt accept` makes a Machine of one.
//!
//! Needs root, the programs in the target directory and the ephemeral image (`make end-to-end` brings all of them).
#![expect(clippy::print_stdout, reason = "what happened is read by people")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use basalt_api::agent::Verdict;
use basalt_api::client::{Client, ListOptions, Precondition};
use basalt_api::wire::PutRequest;
use basalt_api::{Kind, Object};
use basalt_bmc::PowerVerb;
use basalt_lab::images;
use basalt_lab::site::{Site, quickstart_machines};
use serde_json::{Value, json};
use tokio::process::Command;

/// Time limit for firmware and Linux under emulation, twice at once, on a busy host.
const PATIENCE: Duration = Duration::from_secs(1200);

fn ephemeral_image() -> PathBuf {
    let cache = std::env::var_os("BASALT_CACHE_DIR").map(PathBuf::from);
    let default = || Path::new(&std::env::var_os("HOME").expect("a home directory")).join(".cache/basalt");
    cache.unwrap_or_else(default).join("images/ephemeral")
}

async fn declare(client: &Client, kind: &str, name: &str, spec: Value) {
    let request = PutRequest { spec, ..PutRequest::default() };
    let put = client.put(Kind::find(kind).expect("a kind"), name, &request, Precondition::None).await;
    put.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
}

async fn list(client: &Client, kind: &str) -> Vec<Object> {
    client.list_all(Kind::find(kind).expect("a kind"), &ListOptions::default()).await.expect("a list")
}

/// Uploads the ephemeral image. Returns its spec.
async fn uploaded(client: &Client) -> Value {
    let image = ephemeral_image();
    images::upload(client, &image).await.expect("an image; `make images` builds it");
    let manifest = std::fs::read(image.join("image.json")).expect("a manifest");
    let mut spec: Value = serde_json::from_slice(&manifest).expect("JSON");
    for (_, file) in spec["files"].as_object_mut().expect("files") {
        file.as_object_mut().expect("a file").remove("file");
    }
    let fields = spec.as_object_mut().expect("an object");
    fields.retain(|name, _| ["os", "release", "architecture", "files"].contains(&name.as_str()));
    fields.insert("purpose".to_owned(), json!("ephemeral"));
    spec
}

/// The Discovery of the machine with this serial number, once it exists.
async fn discovery(site: &Site, client: &Client, machine: &str, serial: &str) -> Object {
    let end = Instant::now() + PATIENCE;
    loop {
        let found = list(client, "Discovery").await;
        if let Some(found) = found.into_iter().find(|it| it.status["inventory"]["dmi"]["serial"] == serial) {
            return found;
        }
        let log = site.machine(machine).expect("a machine").serial_log_path();
        assert!(
            Instant::now() < end,
            "{machine} is not found; its console:\n{}",
            basalt_lab::site::tail(&log)
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_that_nobody_declared_are_found_and_one_is_accepted() {
    let mut site = Site::create("enlistment").expect("root, and the programs");
    site.add_machines(quickstart_machines()).await.expect("machines");
    site.start_region().await.expect("a region");
    site.start_rack(1).await.expect("a rack");
    let client = site.client().expect("a client");
    declare(&client, "Image", "ephemeral", uploaded(&client).await).await;
    declare(&client, "Fabric", "lab", json!({})).await;
    declare(&client, "Vlan", "lab.0", json!({"fabric": "lab", "vid": 0, "dhcp": {"enabled": true}})).await;
    declare(&client, "Subnet", "lab", json!({"vlan": "lab.0", "cidr": "10.77.0.0/24"})).await;
    declare(
        &client,
        "IpRange",
        "lab",
        json!({"subnet": "lab", "start": "10.77.0.150", "end": "10.77.0.199"}),
    )
    .await;

    site.rack_holds(1, "boot", "enlist").await.expect("the rack knows whom it may inspect");

    let machines = [("bios", "BASALT-0001", "bios"), ("uefi", "BASALT-0002", "uefi")];
    let began = Instant::now();
    let disk = |name: &str| {
        let disk = std::fs::metadata(site.machine(name).expect("a machine").disk_path()).expect("a disk");
        std::os::unix::fs::MetadataExt::blocks(&disk)
    };
    let before = machines.map(|(name, ..)| disk(name));
    for (name, ..) in machines {
        site.machine(name).expect("a machine").power(PowerVerb::On).await.expect("it is switched on");
    }
    let mut found = Vec::new();
    for (name, serial, firmware) in machines {
        let discovery = discovery(&site, &client, name, serial).await;
        println!("{name} is found {:.0?} after it was switched on", began.elapsed());
        let inventory = &discovery.status["inventory"];
        assert_eq!((&inventory["firmware"], &inventory["cpu"]["cores"]), (&json!(firmware), &json!(1)));
        assert!(inventory["disks"].as_object().is_some_and(|disks| disks.len() == 1), "{inventory:#}");
        found.push(discovery.metadata.name.to_string());
    }
    assert_eq!(machines.map(|(name, ..)| disk(name)), before, "nothing is written to their disks");
    assert_eq!(list(&client, "Machine").await.len(), 0);

    basalt(&site, &["accept", &found[1], "--name", "db1"]).await;
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let machines = list(&client, "Machine").await;
        let status = &machines[0].status;
        if status["axes"]["lifecycle"] == "ready" {
            assert_eq!(machines[0].metadata.name.as_str(), "db1");
            assert_eq!(status["inventory"]["dmi"]["serial"], "BASALT-0002");
            break;
        }
        assert!(Instant::now() < end, "{status:#}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let left: Vec<String> =
        list(&client, "Discovery").await.iter().map(|it| it.metadata.name.to_string()).collect();
    assert_eq!(left, [found[0].clone()], "the other one still waits for somebody");

    sets_its_bmc_up(&site, &client, "uefi", "db1").await;
}

/// Machine `declared` is the emulated machine `name`. Its BMC was found with it, but has no known account. The agent creates an account
/// when it reads the hardware again; for that a person switches the machine on. From then on the region controls its power.
async fn sets_its_bmc_up(site: &Site, client: &Client, name: &str, declared: &str) {
    let own = site.machine(name).expect("a machine");
    let found = get(client, declared).await.status["bmc"].clone();
    assert_eq!((&found["driver"], &found["channel"]), (&json!("ipmi"), &json!(1)), "{found:#}");
    assert_eq!(found["address"], json!(own.config().bmc_address));
    assert_eq!((&found["account"], &found["problem"]), (&Value::Null, &Value::Null), "{found:#}");

    let seen = "#!/bin/sh\nipmitool user list 1\nipmitool lan print 1\n";
    declare(client, "Script", "bmc-seen", json!({"type": "commissioning", "content": seen})).await;
    let mut spec = get(client, declared).await.spec;
    spec["commissioning"]["scripts"] = json!(["bmc-seen"]);
    spec["commissioning"]["testing"] = json!(["basalt-disks", "basalt-network"]);
    declare(client, "Machine", declared, spec).await;
    basalt(site, &["recommission", declared]).await;
    site.rack_holds(1, "boot", declared).await.expect("the rack has what the machine is to boot");
    own.power(PowerVerb::Cycle).await.expect("somebody switches it on");
    let began = Instant::now();
    let bmc = loop {
        let status = get(client, declared).await.status;
        if status["bmc"]["account"]["checked"] == true && status["power"]["state"] == "off" {
            break status["bmc"].clone();
        }
        let log = basalt_lab::site::tail(&own.serial_log_path());
        assert!(began.elapsed() < PATIENCE, "{:#}\n{status:#}\n{log}", status["bmc"]);
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    println!(
        "{declared} has an account on its BMC, and is switched off by it, after {:.0?}",
        began.elapsed()
    );
    assert_eq!((&bmc["account"]["username"], &bmc["account"]["revision"]), (&json!("basalt"), &json!(1)));
    assert_eq!(own.power_status().await.expect("the BMC answers").to_string(), "off");

    // ipmitool sees the same inside the machine and from the network.
    let address = own.config().bmc_address.to_string();
    let asks =
        ["-I", "lanplus", "-C", "17", "-U", "admin", "-P", "secret", "-H", &address, "user", "list", "1"];
    let outside = site.lab().command("ipmitool").expect("a command").args(asks).output().expect("ipmitool");
    let outside = String::from_utf8_lossy(&outside.stdout).into_owned();
    let row = outside.lines().find(|line| line.contains("basalt")).expect("a user").to_owned();
    assert!(row.contains("OPERATOR"), "{outside}");
    let user: Vec<&str> = row.split_whitespace().collect();
    for words in [user, vec!["IP Address", &address]] {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let log = basalt(site, &["logs", declared, "--output", "json"]).await;
            if log.lines().any(|seen| words.iter().all(|word| seen.contains(word))) {
                break;
            }
            assert!(Instant::now() < end, "{words:?} is not in\n{log}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    has_good_hardware(site, client, declared).await;
}

/// The machine tested its disk and its network while its hardware was read. It tests memory and processor on request, and the region alone
/// switches it on for that.
async fn has_good_hardware(site: &Site, client: &Client, declared: &str) {
    let rows = client.test_results(declared, None, true).await.expect("the results").items;
    let found: Vec<(&str, Verdict)> = rows.iter().map(|row| (row.script.as_str(), row.verdict)).collect();
    assert_eq!(found, [("basalt-disks", Verdict::Passed), ("basalt-network", Verdict::Passed)], "{rows:#?}");
    assert!(rows[0].figures.get("mib_read").is_some_and(|read| *read > 0.0), "{:#?}", rows[0]);

    let began = Instant::now();
    let tests = ["--test", "basalt-memory", "--test", "basalt-cpu", "--parameter", "seconds=5"];
    let said = basalt(site, &[&["test", declared, "--wait", "--yes"], tests.as_slice()].concat()).await;
    println!("{declared} has tested memory and processor after {:.0?}: {said}", began.elapsed());
    let shown = basalt(site, &["results", declared]).await;
    for test in ["basalt-cpu", "basalt-disks", "basalt-memory", "basalt-network"] {
        let passed = |line: &str| line.contains(test) && line.contains("passed");
        assert!(shown.lines().any(passed), "{test} did not pass:\n{shown}");
    }
    println!("{shown}");
}

async fn get(client: &Client, name: &str) -> Object {
    let machines = list(client, "Machine").await;
    machines.into_iter().find(|it| it.metadata.name.as_str() == name).expect("a machine")
}

/// The output of the command.
async fn basalt(site: &Site, arguments: &[&str]) -> String {
    let mut command = Command::new(site.programs().path("basalt"));
    command.args(arguments).env("BASALT_ENDPOINT", site.endpoint());
    let said = command.output().await.expect("basalt");
    assert!(said.status.success(), "{arguments:?}: {said:?}");
    String::from_utf8_lossy(&said.stdout).into_owned()
}
