//! The console in Debian's Chromium, against a real region: what people do, from login to logout.
//!
//! `controller/ui/tests/browser` has the steps. This file makes the estate and names the region's program, which the steps start and kill.
//! With `BASALT_SCREENSHOTS` set to a folder, pictures of each page are put there (`make ui-screenshots`).

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use basalt_api::agent::{Inventory, Outcome, TaskResult};
use basalt_api::client::{Client, ClientConfig};
use basalt_api::values::{Attempt, RackId, Timestamp};
use basalt_api::wire::{ApplyRequest, Document};
use basalt_api::{Kind, Object};
use basalt_db::splice::Text;
use basalt_db::{Key, NewFact, Precondition, Put};
use basalt_engine::Policy;
use basalt_lab::site::Programs;
use basalt_proto::rack_v1::{BootTraceEntry, BootTraceFact, Fact, LogBatch, LogLine, fact::Body};
use basalt_region::controller::Controller;
use basalt_region::racks::observed::{self, Observed};
use basalt_region::region::Region;
use basalt_region::settings::Settings;
use basalt_tests::browser;
use serde_json::{Value, json};
use tempfile::TempDir;

const PASSWORD: &str = "correct horse battery";
const GIB: u64 = 1 << 30;

/// A region's directory and database, with an estate in it.
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
        logs(region).await;
        report(region, "web1").await;
        let machine = Kind::find("Machine").expect("a kind");
        let known = |machine: Object| machine.status["inventory"]["memory_bytes"] == 256 * GIB;
        while !known(client.get(machine, "web1").await.expect("the machine")) {
            tokio::task::yield_now().await;
        }
    }
}

/// Five rows of machines, networks, people.
fn documents() -> Vec<Document> {
    let mut all = Vec::new();
    let mut declare = |kind: &str, name: &str, spec: Value| {
        all.push(json!({"kind": kind, "metadata": {"name": name}, "spec": spec}));
    };
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
    declare("Deployment", "shop", json!({"image": "debian-12", "machine": "web6"}));
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
        // A broken machine is not read again: the steps ask for that.
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

/// As a rack would have it made.
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

/// As a rack tells of a machine and of a stranger that boot.
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

/// As a rack delivers what a machine says: a line a second until now, more of them than a page shows at first.
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
}

/// As the agent of a machine reports what it is made of.
async fn report(region: &Region, machine: &str) {
    let object = region.store().get("Machine", Key::Name(machine)).await.expect("it is there").uid;
    let inventory = json!({
        "architecture": "x86_64", "firmware": "uefi", "memory_bytes": 256 * GIB, "bmc_present": true,
        "cpu": {"model": "EPYC 9354P", "sockets": 1, "cores": 32, "threads": 64},
        "dmi": {"manufacturer": "Supermicro", "product": "AS-1115CS-TNR", "serial": "S123456", "bios_version": "1.4"},
        "nics": [
            {"name": "enp1s0f0", "mac": "52:54:00:00:01:01", "speed_mbps": 25_000, "link": true, "driver": "mlx5_core"},
            {"name": "enp1s0f1", "mac": "52:54:00:00:01:02", "link": false, "driver": "mlx5_core"},
        ],
        "disks": [
            {"name": "nvme0n1", "size_bytes": 1920 * GIB, "model": "MZQL21T9HCJR", "serial": "S64GNE0R", "transport": "nvme"},
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

/// A port that nobody has at this moment: the region comes back on it.
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
    let mut command = Command::new(browser::program());
    browser::set_up(&mut command);
    command
        .args(["node", "--test", "--test-reporter=spec", "tests/browser/console.mjs"])
        .env("REGION", Programs::find().expect("programs").path("basalt-region"))
        .env("REGION_ARGS", region.join("\n"))
        .env("REGION_URL", format!("http://{address}"))
        .env("TOKEN", &world.token);
    let ended =
        tokio::task::spawn_blocking(move || command.status()).await.expect("it ends").expect("it runs");
    assert!(ended.success(), "the browser's steps failed: {ended}");
}
