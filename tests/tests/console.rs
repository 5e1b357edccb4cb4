//! The console in Debian's Chromium, against a real region: a user's work from login to logout.
//!
//! `controller/ui/tests/browser` has the steps. This file creates the objects, and gives the steps the region's program, which they start
//! and kill. With `BASALT_SCREENSHOTS` set to a folder, the steps save pictures of each page there (`make ui-screenshots`).

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use basalt_api::agent::{Inventory, Outcome, Script, TaskResult, Verdict};
use basalt_api::client::{Client, ClientConfig, DeleteOptions};
use basalt_api::kinds::ScriptParallel;
use basalt_api::values::{Attempt, MachineId, RackId, Timestamp, Uid};
use basalt_api::wire::{ApplyRequest, Document, OperationState, Verb};
use basalt_api::{Kind, Object};
use basalt_db::splice::Text;
use basalt_db::{
    Key, NewFact, NewOperation, NoJudge, Options, Precondition, Put, SealKey, Store, TestResult,
};
use basalt_engine::Policy;
use basalt_lab::site::Programs;
use basalt_proto::rack_v1::{BootTraceEntry, BootTraceFact, CacheFact, Fact, LogBatch, LogLine, fact::Body};
use basalt_region::controller::Controller;
use basalt_region::racks::observed::{self, Observed};
use basalt_region::region::Region;
use basalt_region::settings::Settings;
use basalt_tests::browser;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixListener;

const PASSWORD: &str = "correct horse battery";
const GIB: u64 = 1 << 30;

/// A region's directory and database, with objects in it.
struct World {
    dir: TempDir,
    database_url: String,
    token: String,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let database_url = basalt_db::testing::database().await;
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let settings = Settings {
            database_url: Some(database_url.clone()),
            listen: anywhere,
            rpc_listen: anywhere,
            ..Settings::new(dir.path().join("region"))
        };
        let region = Box::pin(Region::start(settings)).await.expect("a region");
        Controller::start(&region, anywhere, Policy::default(), Vec::new()).await.expect("a driver");
        let token = std::fs::read_to_string(dir.path().join("region/admin-token")).expect("a token");
        let world = Self { dir, database_url, token: token.trim().to_owned() };
        world.furnish(&region).await;
        region.stop().await;
        world
    }

    async fn furnish(&self, region: &Region) {
        let config = ClientConfig {
            endpoints: vec![format!("http://{}", region.address())],
            token: Some(self.token.clone()),
            ..ClientConfig::default()
        };
        let client = Client::new(&config).expect("a client");
        let request = ApplyRequest { documents: documents(), ..ApplyRequest::default() };
        client.apply(&request, false).await.expect("the estate is stored");
        observe(region, "Rack", "r1", json!({})).await;
        let seen = json!({"sort": "unknown_mac", "mac": "52:54:00:00:00:99", "hostname": "printer",
            "first_seen_at": "2026-01-01T00:00:00Z", "last_seen_at": "2026-01-01T00:00:00Z"});
        observe(region, "Discovery", "printer", seen).await;
        boots(region).await;
        cache(region).await;
        logs(region).await;
        report(region, "web1").await;
        operations(region, "web1").await;
        tests(region, "web1").await;
        letters(region, &client).await;
        let machine = Kind::find("Machine").expect("a kind");
        let known = |machine: Object| machine.status["inventory"]["memory_bytes"] == 256 * GIB;
        while !known(client.get(machine, "web1").await.expect("the machine")) {
            tokio::task::yield_now().await;
        }
    }
}

/// The declarations: five rows of machines, networks, people.
fn documents() -> Vec<Document> {
    let mut all = Vec::new();
    let mut declare = |kind: &str, name: &str, spec: Value| {
        all.push(json!({"kind": kind, "metadata": {"name": name}, "spec": spec}));
    };
    declare("Webhook", "tickets", json!({"url": "http://127.0.0.1:9/hook", "events": ["deleted"]}));
    declare("ApiToken", "ci", json!({"role": "viewer", "description": "reads machines for CI"}));
    declare(
        "Script",
        "read-firmware",
        json!({"type": "commissioning", "content": "#!/bin/sh\nlspci -vv | grep -i firmware\n", "description": "firmware of cards",
        "parameters": {
            "speed": {"type": "choice", "choices": ["fast", "slow"], "default": "slow", "description": "How long it looks."},
            "rounds": {"type": "runtime", "min": 1, "max": 9},
        }}),
    );
    for name in ["join-cluster", "mount-shares"] {
        declare(
            "Script",
            name,
            json!({"type": "deployment", "when": "first_boot", "content": "#!/bin/sh\n"}),
        );
    }
    let key = "MDEyMzQ1Njc4OWFiY2RlZg==";
    let secondary = json!({"address": "10.0.0.53", "key_name": "basalt.example.com", "key": key});
    declare("Domain", "lab.example", json!({"secondaries": {"ns1": secondary}}));
    declare(
        "Settings",
        "default",
        json!({"dns_secondaries": {"ns2": secondary}, "remote_syslog": {"siem": {"address": "127.0.0.1:9", "protocol": "tls"}}}),
    );
    for row in 1..=4 {
        declare("Zone", &format!("row-{row}"), json!({"description": format!("row {row} of the hall")}));
    }
    for pool in ["web", "batch"] {
        declare("Pool", pool, json!({}));
    }
    declare("Fabric", "lab", json!({}));
    for vid in [10, 20] {
        declare("Vlan", &format!("lab.{vid}"), json!({"fabric": "lab", "vid": vid}));
        let cidr = format!("10.0.{vid}.0/24");
        declare(
            "Subnet",
            &format!("lab-{vid}"),
            json!({"vlan": format!("lab.{vid}"), "cidr": cidr, "gateway": format!("10.0.{vid}.1")}),
        );
    }
    for (name, purpose, start, end) in [("leases", "dynamic", 100, 199), ("kept", "reserved", 240, 250)] {
        let (start, end) = (format!("10.0.10.{start}"), format!("10.0.10.{end}"));
        declare("IpRange", name, json!({"subnet": "lab-10", "purpose": purpose, "start": start, "end": end}));
    }
    declare("Device", "printer-2", json!({"macs": ["52:54:00:00:aa:01"], "addresses": ["10.0.10.9"]}));
    let files = json!({"root_tarball": {"sha256": "0".repeat(64)}});
    declare(
        "Image",
        "debian-12",
        json!({"os": "debian", "release": "12", "architecture": "amd64", "files": files}),
    );
    for (user, role) in [("root", "admin"), ("ann", "operator"), ("eve", "viewer")] {
        declare("Role", role, json!({"base": role}));
        declare("User", user, json!({"password": PASSWORD, "roles": [role]}));
    }
    let scripts = ["join-cluster", "mount-shares"];
    declare("Deployment", "shop", json!({"image": "debian-12", "machine": "web6", "scripts": scripts}));
    declare(
        "Deployment",
        "search",
        json!({"image": "debian-12", "selector": {"pool": "batch", "min_cores": 64}}),
    );
    for number in 1..=60 {
        let mut spec = json!({"zone": format!("row-{}", number % 4 + 1), "boot_macs": [format!("52:54:00:00:{number:02x}:01")]});
        spec["pool"] = json!(if number % 3 == 0 { "batch" } else { "web" });
        if number % 4 != 0 {
            let address = format!("10.9.0.{number}");
            spec["bmc"] =
                json!({"driver": "redfish", "address": address, "username": "admin", "password": "s"});
        }
        // A broken machine refuses `recommission`: the steps check that.
        match number {
            1 => spec["description"] = json!("first"),
            4 | 20 => spec["mode"] = json!("broken"),
            33 => spec["mode"] = json!("retired"),
            _ => {}
        }
        if number % 2 == 0 {
            spec["commissioning"] = json!({"skip": true});
        }
        declare("Machine", &format!("web{number}"), spec);
    }
    all.into_iter().map(|it| serde_json::from_value(it).expect("a document")).collect()
}

/// Creates an object, as the facts of a rack would.
async fn observe(region: &Region, kind: &str, name: &str, status: Value) {
    let spec = Text::parse("{}".to_owned()).expect("JSON");
    let put = Put {
        kind: Kind::find(kind).expect("a kind"),
        key: Key::Name(name),
        spec: &spec,
        at: "",
        labels: None,
        manager: None,
        adopt: false,
        precondition: Precondition::None,
        first_status: &status,
    };
    region.store().put(&put).await.expect("it is stored");
}

/// Reports the boot of a machine and of an undeclared one, as a rack does.
async fn boots(region: &Region) {
    let rack = RackId::from(region.store().get("Rack", Key::Name("r1")).await.expect("a rack").uid);
    let entry =
        |at_s: i64, service: &str, client: &str, asked: &str, answered: &str, reason: &str| BootTraceEntry {
            at_unix_ms: 1_790_000_000_000 + at_s * 1000,
            service: service.into(),
            client: client.into(),
            asked: asked.into(),
            answered: answered.into(),
            reason: reason.into(),
            times: 1,
            opens: asked.starts_with("DISCOVER"),
            ..BootTraceEntry::default()
        };
    let known = vec![
        entry(0, "dhcp", "firmware", "DISCOVER, x86-64 UEFI", "OFFER 10.0.10.20, ipxe.efi", ""),
        entry(1, "dhcp", "firmware", "REQUEST 10.0.10.20", "ACK 10.0.10.20", ""),
        entry(2, "tftp", "", "ipxe.efi", "1.1 MB in 0.4 s", ""),
        entry(4, "dhcp", "ipxe", "DISCOVER, iPXE", "OFFER 10.0.10.20, boot.ipxe", ""),
        entry(5, "http", "", "script of web1", "its own script", ""),
    ];
    let refused = "not answered: no subnet is configured for 10.0.30.2";
    let stranger = vec![entry(0, "dhcp", "firmware", "DISCOVER, x86 BIOS", refused, "no_subnet")];
    for (seq, (mac, entries)) in (1..).zip([("52:54:00:00:01:01", known), ("52:54:00:00:00:99", stranger)]) {
        let body = Body::BootTrace(BootTraceFact { entries, lost: 0, others_lost: 0 });
        let fact = Fact { seq, mac: mac.to_owned(), body: Some(body), ..Fact::default() };
        let facts = [observed::new_fact(fact, 0)];
        region.store().store_facts(rack, "r1", uuid::Uuid::from_u128(1), &facts).await.expect("it is stored");
    }
}

/// Reports a boot while it goes on, as the rack r1 does: each line of the steps is one entry of its trace, as JSON.
async fn play_boots(store: Store, listener: UnixListener) {
    let rack = RackId::from(store.get("Rack", Key::Name("r1")).await.expect("a rack").uid);
    let (stream, _) = listener.accept().await.expect("the steps connect");
    let mut lines = BufReader::new(stream).lines();
    let mut seq = 0;
    while let Ok(Some(line)) = lines.next_line().await {
        seq += 1;
        let told: Value = serde_json::from_str(&line).expect("an entry");
        let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
        let entry = BootTraceEntry {
            at_unix_ms: Timestamp::now().as_millisecond(),
            service: text("service"),
            client: text("client"),
            opens: text("asked").starts_with("DISCOVER"),
            asked: text("asked"),
            answered: text("answered"),
            reason: text("reason"),
            times: 1,
            ..BootTraceEntry::default()
        };
        let body = Body::BootTrace(BootTraceFact { entries: vec![entry], lost: 0, others_lost: 0 });
        let fact = Fact { seq, mac: text("mac"), body: Some(body), ..Fact::default() };
        let facts = [observed::new_fact(fact, 0)];
        store.store_facts(rack, "r1", uuid::Uuid::from_u128(4), &facts).await.expect("it is stored");
    }
}

/// The store of a region that runs as a process of its own.
async fn store_of(data: &Path, url: &str) -> Store {
    let key = std::fs::read_to_string(data.join("seal-key")).expect("a seal key");
    let key = SealKey::new(&hex::decode(key.trim()).expect("hex")).expect("a key");
    let patience = Duration::from_secs(30);
    let options =
        Options { url: url.to_owned(), connections: 2, reconciled: vec![], worked_on: vec![], patience };
    Store::open(options, key).await.expect("it opens")
}

/// Reports what the cache of a rack holds, as the rack does: the file of the image debian-12, and another one.
async fn cache(region: &Region) {
    let rack = RackId::from(region.store().get("Rack", Key::Name("r1")).await.expect("a rack").uid);
    let held = vec![vec![0; 32]];
    let cache = CacheFact { files: 2, bytes: 3 * GIB, limit_bytes: 50 * GIB, held, more: 0 };
    let fact = Fact { seq: 1, body: Some(Body::Cache(cache)), ..Fact::default() };
    let facts = [NewFact { object: Some(rack.into()), ..observed::new_fact(fact, 0) }];
    region.store().store_facts(rack, "r1", uuid::Uuid::from_u128(3), &facts).await.expect("it is stored");
}

/// Delivers a machine's log, as a rack does: a line a second until now, more lines than a page shows at first.
async fn logs(region: &Region) {
    let uid = async |kind, name| region.store().get(kind, Key::Name(name)).await.expect("it is there").uid;
    let (rack, machine) = (uid("Rack", "r1").await, uid("Machine", "web1").await);
    let now = Timestamp::now().as_millisecond();
    let line = |seq: u64| {
        let (priority, app, text) = match seq {
            _ if seq.is_multiple_of(300) => (27, "sshd", "error: no route to the gateway".to_owned()),
            _ if seq.is_multiple_of(70) => (4, "", format!("eth0: link is down, {seq}")),
            _ => (30, "systemd", format!("Started session {seq} of user root.")),
        };
        LogLine {
            seq,
            at_unix_ms: now - i64::try_from(1500 - seq).expect("few") * 1000,
            machine_uid: machine.to_string(),
            priority,
            app: app.to_owned(),
            text,
            ..LogLine::default()
        }
    };
    let batch =
        LogBatch { spool_uid: uuid::Uuid::from_u128(1).to_string(), lines: (1..=1500).map(line).collect() };
    region.logs().store(RackId::from(rack), batch).expect("they are stored");

    // The scripts of a first boot: one ended well, one failed.
    let machine = uid("Machine", "web6").await;
    let told = [
        "running script join-cluster",
        "join-cluster: the token is good",
        "script join-cluster ended well",
        "running script mount-shares",
        "mount-shares: mount.nfs: no route to host",
        "script mount-shares ended with exit status: 32; it said last: mount.nfs: no route to host",
    ];
    let lines = (1..).zip(told).map(|(seq, text)| LogLine {
        seq,
        at_unix_ms: now,
        machine_uid: machine.to_string(),
        priority: 30,
        app: "basalt-first-boot".to_owned(),
        text: text.to_owned(),
        ..LogLine::default()
    });
    let batch = LogBatch { spool_uid: uuid::Uuid::from_u128(2).to_string(), lines: lines.collect() };
    region.logs().store(RackId::from(rack), batch).expect("they are stored");
}

/// Reports a machine's inventory, as its agent does.
async fn report(region: &Region, machine: &str) {
    let object = region.store().get("Machine", Key::Name(machine)).await.expect("it is there").uid;
    let inventory = json!({
        "architecture": "x86_64", "firmware": "uefi", "memory_bytes": 256 * GIB, "bmc_present": true,
        "tpm": "2.0", "secure_boot": true,
        "bmc": {"manufacturer": "Supermicro", "firmware": "1.74", "ipmi_version": "2.0", "channel": 1,
            "address": "10.9.0.1", "address_source": "static", "mac": "52:54:00:00:bb:01"},
        "memory_modules": [
            {"slot": "DIMM_A1", "size_bytes": 128 * GIB, "technology": "DDR5", "speed_mts": 4800, "manufacturer": "Samsung", "serial": "M1"},
            {"slot": "DIMM_B1", "size_bytes": 128 * GIB, "technology": "DDR5", "speed_mts": 4800, "manufacturer": "Samsung", "serial": "M2"},
        ],
        "cpu": {"model": "EPYC 9354P", "sockets": 1, "cores": 32, "threads": 64, "numa_nodes": 2, "microcode": "0xa101144",
            "flags": ["cmov", "cx8", "fpu", "fxsr", "lm", "mmx", "sse", "sse2", "syscall"]},
        "numa": [{"number": 0, "cpus": "0-15,32-47", "memory_bytes": 128 * GIB},
            {"number": 1, "cpus": "16-31,48-63", "memory_bytes": 128 * GIB}],
        "usb": [{"port": "pci-0000:00:14.0-usb2-1.4", "vendor": "0557", "product": "2419", "classes": ["03"],
            "manufacturer": "ATEN", "product_name": "Virtual keyboard"}],
        "dmi": {"manufacturer": "Supermicro", "product": "AS-1115CS-TNR", "serial": "S123456", "bios_version": "1.4"},
        "nics": [
            {"name": "enp1s0f0", "mac": "52:54:00:00:01:01", "speed_mbps": 25_000, "link": true, "driver": "mlx5_core",
             "firmware": "20.31.1014", "pci": "0000:01:00.0", "numa_node": 1,
             "neighbours": [{"protocol": "lldp", "chassis_id": "02:42:ac:11:00:02", "port_id": "Ethernet12", "system_name": "leaf-3",
                "port_description": "to web1", "native_vlan": 10}]},
            {"name": "enp1s0f1", "mac": "52:54:00:00:01:02", "link": false, "driver": "mlx5_core"},
        ],
        "disks": [
            {"name": "nvme0n1", "size_bytes": 1920 * GIB, "model": "MZQL21T9HCJR", "serial": "S64GNE0R", "transport": "nvme",
             "firmware": "GDC5602Q", "numa_node": 1, "health": "degraded"},
            {"name": "nvme1n1", "size_bytes": 3840 * GIB, "model": "MZQL23T8HCLS", "serial": "S64HNE0T", "transport": "nvme"},
        ],
    });
    let inventory: Inventory = serde_json::from_value(inventory).expect("an inventory");
    let result = TaskResult {
        attempt: 1,
        outcome: Outcome::Succeeded,
        inventory: Some(inventory),
        markers: BTreeMap::new(),
        timings: BTreeMap::new(),
        output: None,
        scripts: Vec::new(),
        bmc: None,
        logs: None,
    };
    let (kind, body) = Observed::Result(Box::new(result)).stored();
    let fact = NewFact {
        seq: 1,
        object: Some(object),
        mac: None,
        kind,
        step_key: None,
        attempt: Some(Attempt::new(1)),
        body,
        observed_at: Timestamp::now(),
        wakes: true,
    };
    region.store().store_own_fact(&fact).await.expect("it is stored");
}

/// A script that has ended, and power commands.
async fn operations(region: &Region, machine: &str) {
    let script = Script {
        name: "read-firmware".into(),
        content: "#!/bin/sh\n".into(),
        arguments: Vec::new(),
        timeout_seconds: 60,
        repeats: false,
        may_reboot: false,
        packages: Vec::new(),
        test: false,
        hardware: Vec::new(),
        per_device: None,
        device: None,
        parallel: ScriptParallel::default(),
    };
    let said: String = (0..40)
        .map(|slot| format!("slot {slot}: firmware 22.31.{slot:02}, serial 88A0T{slot:03}\n"))
        .collect();
    let asked = [
        (Verb::PowerCycle, None, OperationState::Done, "The power was off and is on again.", None),
        (
            Verb::RunScript,
            Some(&script),
            OperationState::Failed,
            "The script ended with status 3.",
            Some("no such device\n"),
        ),
        (Verb::RunScript, Some(&script), OperationState::Done, "The script has run.", Some(said.as_str())),
    ];
    for (verb, script, state, message, output) in asked {
        let new = NewOperation {
            verb,
            script,
            tests: &[],
            because: None,
            lasts: Duration::from_secs(600),
            request_key: None,
        };
        let (_, operation) = region
            .store()
            .request_operation(Key::Name(machine), &new, (false, &NoJudge))
            .await
            .expect("it is asked for");
        region
            .store()
            .note_operation(operation.id, state, ("Ended", message, output))
            .await
            .expect("it is noted");
    }
}

/// Test runs on eight days: a disk that becomes slower until it fails, and good memory.
async fn tests(region: &Region, machine: &str) {
    let machine = region.store().get("Machine", Key::Name(machine)).await.expect("it is there").uid;
    let row =
        |day: u32, script: &str, device: &str, verdict, figures: &[(&str, f64)], message: &str| TestResult {
            attempt: Attempt::new(day.into()),
            script: script.into(),
            device: device.into(),
            narrow: false,
            verdict,
            figures: figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            message: message.into(),
            output: format!("{script} {device}: run {day}\n"),
            seconds: 42.0,
            at: Timestamp::from_millisecond(1_790_000_000_000 + i64::from(day) * 86_400_000).expect("a time"),
        };
    let mut rows = Vec::new();
    for day in 1..=8 {
        let (read, written) = (3200.0 - 280.0 * f64::from(day), 20.0 * f64::from(day));
        let slow = if day == 8 { Verdict::Failed } else { Verdict::Passed };
        let says =
            if day == 8 { "reads 960 MB/s, and at least 1000 are expected" } else { "reads as it should" };
        rows.push(row(
            day,
            "basalt-disks",
            "nvme0n1",
            slow,
            &[("read_mb_per_s", read), ("percentage_used", written)],
            says,
        ));
        rows.push(row(
            day,
            "basalt-disks",
            "nvme1n1",
            Verdict::Passed,
            &[("read_mb_per_s", 3100.0 + read / 100.0)],
            "reads as it should",
        ));
    }
    rows.push(row(8, "basalt-memory", "", Verdict::Passed, &[], "256 GiB were written and read"));
    rows.push(row(8, "basalt-gpus", "", Verdict::Skipped, &[], "not for this hardware: no GPU"));
    region.store().put_test_results(MachineId::from(machine), &rows).await.expect("they are stored");
}

/// Two deliveries that the region gave up.
async fn letters(region: &Region, client: &Client) {
    let zone = Kind::find("Zone").expect("a kind");
    for name in ["old-hall", "older-hall"] {
        let document = json!({"kind": "Zone", "metadata": {"name": name}, "spec": {}});
        let documents = vec![serde_json::from_value(document).expect("a document")];
        client
            .apply(&ApplyRequest { documents, ..ApplyRequest::default() }, false)
            .await
            .expect("it is stored");
        client.delete(zone, name, DeleteOptions::default()).await.expect("it goes");
    }
    let store = region.store();
    let webhook = store.get("Webhook", Key::Name("tickets")).await.expect("it is there").uid;
    let (owner, lease) = (Uid::from(uuid::Uuid::from_u128(1)), Duration::from_secs(60));
    let claimed = store.claim_deliveries(webhook, owner, 10, lease).await.expect("they are claimed");
    // The discovery of a declared machine's MAC address may be deleted at any time, so skip its deliveries.
    for delivery in claimed.into_iter().filter(|it| it.object.kind == zone.name) {
        store
            .give_up(webhook, &delivery, "answered 500 Internal Server Error")
            .await
            .expect("it is given up");
    }
}

/// A port that is free at this moment: the region restarts on it.
fn port() -> u16 {
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    taken.local_addr().expect("its address").port()
}

#[tokio::test(flavor = "multi_thread")]
async fn people_work_with_the_console_from_login_to_logout() {
    let world = World::new().await;
    let address = format!("127.0.0.1:{}", port());
    let region = [
        format!("--data-dir={}", world.dir.path().join("region").display()),
        format!("--database-url={}", world.database_url),
        format!("--listen={address}"),
        "--rpc-listen=127.0.0.1:0".to_owned(),
        "--watch-bookmark=1s".to_owned(),
    ];
    let store = store_of(&world.dir.path().join("region"), &world.database_url).await;
    let boots = world.dir.path().join("boots");
    let played = tokio::spawn(play_boots(store, UnixListener::bind(&boots).expect("a socket")));
    let mut command = Command::new(browser::program());
    browser::set_up(&mut command);
    command
        .args(["node", "--test", "--test-reporter=spec", "tests/browser/console.mjs"])
        .env("REGION", Programs::find().expect("programs").path("basalt-region"))
        .env("REGION_ARGS", region.join("\n"))
        .env("REGION_URL", format!("http://{address}"))
        .env("BOOTS", boots)
        .env("TOKEN", &world.token);
    let ended =
        tokio::task::spawn_blocking(move || command.status()).await.expect("it ends").expect("it runs");
    played.abort();
    assert!(ended.success(), "the browser's steps failed: {ended}");
}
