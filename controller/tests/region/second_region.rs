//! Two regions on one database, set up by the guide's commands, with two real racks: one region alone is enough.

use crate::enrolment::region;
use crate::linked::Linked;
use crate::process::{Program, id, signal, wait};
use crate::support::{Client, admin_token, lab, region_beside};
use basalt_engine::Policy;
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Given;
use basalt_region::controller::Controller;
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const GUIDE: &str = include_str!("../../../docs/guides/second-region.md");

/// The time limit for quick reactions. A rack dials at least every five seconds, and learns of a new region within five.
const SOON: Duration = Duration::from_secs(20);

/// The names of the racks.
const RACKS: [&str; 2] = ["r1", "r2"];

/// All code blocks of the guide in this language, joined.
fn blocks(language: &str) -> String {
    let (mut text, mut within) = (String::new(), false);
    for line in GUIDE.lines() {
        match line.strip_prefix("```") {
            Some(begun) => within = begun == language,
            None if within => text.push_str(&format!("{line}\n")),
            None => {}
        }
    }
    text
}

/// The hosts of the guide, all on this host: each has a loopback address and a directory.
struct Hosts {
    dir: TempDir,
    addresses: [String; 2],
    database: String,
}

impl Hosts {
    async fn new() -> Self {
        static TAKEN: AtomicU8 = AtomicU8::new(1);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let first = TAKEN.fetch_add(2, Ordering::Relaxed);
        let addresses = [first, first + 1].map(|host| format!("127.{}.{low}.{host}", 64 | (high & 63)));
        let dir = tempfile::tempdir().expect("a directory");
        Self { dir, addresses, database: basalt_db::testing::database().await }
    }

    /// A text of the guide, adapted to this host.
    fn localised(&self, host: usize, text: &str) -> String {
        let etc = self.dir.path().join("etc");
        text.replace("10.0.0.1", &self.addresses[0])
            .replace("10.0.0.2", &self.addresses[1])
            .replace("/var/lib/basalt", self.data(host).to_str().expect("text"))
            .replace("/etc/basalt", etc.to_str().expect("text"))
            .lines()
            .map(|line| match line.starts_with("database-url") {
                true => format!("database-url = {:?}\n", self.database),
                false => format!("{line}\n"),
            })
            .collect()
    }

    fn data(&self, host: usize) -> PathBuf {
        self.dir.path().join(format!("host-{host}"))
    }

    fn log(&self, host: usize) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("log-{host}"))).unwrap_or_default()
    }

    /// Runs every command except the last, which starts a region.
    fn set_up(&self) {
        std::fs::create_dir(self.dir.path().join("etc")).expect("a directory");
        // In the guide a package creates the account.
        let commands = self.localised(0, &blocks("sh")).replace(" -o basalt -g basalt", "");
        for line in commands.lines().filter(|line| !line.starts_with("basalt-region")) {
            let status = Command::new("sh").args(["-c", line]).status().expect("a shell");
            assert!(status.success(), "{line}");
        }
    }

    /// Starts the region of a host by the guide's command, with ports of its own.
    fn start(&self, host: usize, further: &[&str]) -> Program {
        let config = self.dir.path().join(format!("etc/region-{host}.toml"));
        std::fs::write(&config, self.localised(host, &blocks("toml"))).expect("a file");
        let commands = blocks("sh");
        let started = commands.lines().find(|line| line.starts_with("basalt-region")).expect("a start");
        assert_eq!(started, "basalt-region --config /etc/basalt/region.toml");
        let mut command = Command::new(env!("CARGO_BIN_EXE_basalt-region"));
        let rpc = format!("{}:5250", self.addresses[host]);
        command.arg("--config").arg(config).args(["--listen", "127.0.0.1:0", "--rpc-listen", &rpc]);
        command.args(["--connections", "6", "--log", "warn"]).args(further).stdin(Stdio::null());
        command.env("BASALT_PROXY_PROGRAM", "/nowhere/squid");
        let log = self.dir.path().join(format!("log-{host}"));
        command.stderr(std::fs::File::options().create(true).append(true).open(log).expect("a log"));
        crate::process::start_with(command, &self.data(host))
    }

    /// Starts a rack with a token of this region.
    async fn rack(&self, region: &Client, name: &str) -> Daemon {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").port();
        let udp =
            || UdpSocket::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").port();
        let end = Instant::now() + SOON;
        let token = loop {
            let answer = region.send("POST", "/api/v1/join_tokens", &[], "{}").await;
            match answer.status.as_u16() {
                201 => break answer.json()["token"].as_str().expect("a token").to_owned(),
                503 if Instant::now() < end => tokio::time::sleep(Duration::from_millis(50)).await,
                _ => panic!("{answer:?}"),
            }
        };
        let given = Given {
            data_dir: Some(self.dir.path().join(name)),
            join: Some(token),
            name: Some(name.into()),
            http_port: Some(tcp),
            dhcp_port: Some(udp()),
            dhcp_client_port: Some(udp()),
            tftp_port: Some(udp()),
            dns_port: Some(udp()),
            ntp_port: Some(udp()),
            proxy_program: Some("/nowhere/squid".into()),
            ..Given::default()
        };
        Daemon::start(given.settle().expect("settings")).await.expect("the rack joins")
    }
}

/// Waits until the region reports this about the rack.
async fn says(region: &Client, rack: &str, what: &str, holds: impl Fn(&Value, &Value) -> bool) {
    let end = Instant::now() + SOON;
    let path = format!("/api/v1/racks/{rack}");
    loop {
        let rack = region.get(&path).await.json();
        let plan = region.get(&format!("{path}/plan")).await.json();
        if holds(&rack["status"], &plan) {
            return;
        }
        assert!(Instant::now() < end, "{what}: {rack:#}\n{plan:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn ready(status: &Value) -> Option<&str> {
    let conditions = status["conditions"].as_array()?;
    let ready = conditions.iter().find(|it| it["type"] == "Ready" && it["status"] == "true")?;
    ready["message"].as_str()
}

/// Waits until both racks are linked to this region, by the latest event about each, and no region is missing.
async fn are_linked(region: &Client, to: &str) {
    let is_whole = |said: &str| !said.contains("does not answer");
    for rack in RACKS {
        last_word_is_a_link(region, rack, &format!("region {to}:5250")).await;
        says(region, rack, "nothing is missing", |status, plan| {
            ready(status).is_some_and(is_whole) && plan["summary"].as_str().is_some_and(is_whole)
        })
        .await;
    }
}

/// Waits until the latest event about the rack and this region is a link.
async fn last_word_is_a_link(region: &Client, rack: &str, named: &str) {
    let end = Instant::now() + SOON;
    loop {
        let timeline = region.get(&format!("/api/v1/racks/{rack}/timeline")).await.json();
        let entries = timeline["entries"].as_array().cloned().unwrap_or_default();
        let mut about =
            entries.iter().filter_map(|entry| entry["message"].as_str()).filter(|it| it.contains(named));
        if about.next_back() == Some(format!("is linked to {named}").as_str()) {
            return;
        }
        assert!(Instant::now() < end, "{named}: {entries:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until both racks are Ready, report that this region is away, and have applied a new entry.
async fn go_on_without(region: &Client, away: &str, mac: &str) {
    let missing = format!("region {away}:5250 does not answer it");
    let mut before = Vec::new();
    let applied = |status: &Value| status["concerns"]["known"]["applied"].as_u64().unwrap_or_default();
    for rack in RACKS {
        says(region, rack, "one region is missing", |status, plan| {
            let wait = &plan["waits"][0];
            let names = |it: &Value| it.as_str().is_some_and(|it| it.starts_with(&missing));
            ready(status).is_some_and(|said| said.contains(&format!("{missing} since 2")))
                && names(&wait["message"])
                && wait["since"].is_string()
        })
        .await;
        before.push((rack, applied(&region.get(&format!("/api/v1/racks/{rack}")).await.json()["status"])));
    }
    let spec = json!({ "boot_macs": [mac] }).to_string();
    region.declare(&format!("/api/v1/machines/{}", mac.replace(':', "-")), &spec).await;
    for (rack, before) in before {
        says(region, rack, "a change is applied", |status, _| applied(status) > before).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn either_of_two_regions_is_enough_and_each_rack_says_which_one_is_away() {
    let hosts = Hosts::new().await;
    hosts.set_up();
    let mut first = hosts.start(0, &[]);
    // One rack joins before there is a second region, the other one by the second region.
    let mut racks = vec![hosts.rack(&first.api, RACKS[0]).await];
    says(&first.api, RACKS[0], "the rack is connected", |status, _| status["connected"] == true).await;
    let mut second = hosts.start(1, &[]);
    racks.push(hosts.rack(&second.api, RACKS[1]).await);
    are_linked(&first.api, &hosts.addresses[0]).await;
    are_linked(&second.api, &hosts.addresses[1]).await;

    signal(id(&first.child), "KILL");
    wait(&mut first.child);
    go_on_without(&second.api, &hosts.addresses[0], "52:54:00:00:00:02").await;
    let mut first = hosts.start(0, &[]);
    are_linked(&first.api, &hosts.addresses[0]).await;

    signal(id(&second.child), "KILL");
    wait(&mut second.child);
    go_on_without(&first.api, &hosts.addresses[1], "52:54:00:00:00:03").await;
    let second = hosts.start(1, &[]);
    are_linked(&second.api, &hosts.addresses[1]).await;

    // Stop the region as a service manager does, while a rack is linked.
    let warned = hosts.log(0);
    signal(id(&first.child), "TERM");
    assert_eq!(wait(&mut first.child), 0);
    // A link that does not end by itself is abandoned after five seconds, with a warning.
    assert_eq!(hosts.log(0).strip_prefix(&warned), Some(""), "nothing to warn of");
    for rack in racks {
        rack.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_with_the_address_of_another_one_says_so_and_names_the_setting() {
    let hosts = Hosts::new().await;
    hosts.set_up();
    let url = format!("https://{}:5250", hosts.addresses[0]);
    let _first = hosts.start(0, &["--rpc-url", &url]);
    let _second = hosts.start(1, &["--rpc-url", &url]);
    let end = Instant::now() + SOON;
    let told = |log: String| log.contains("has the same address for racks") && log.contains("--rpc-url");
    while !told(hosts.log(1)) {
        assert!(Instant::now() < end, "{}", hosts.log(1));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_that_reaches_one_region_is_connected_whichever_region_is_asked() {
    let (lab, controller) = region().await;
    let (beside, dir) = region_beside(&lab).await;
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    Controller::start(&beside, anywhere, Policy::default(), Vec::new()).await.expect("it starts");
    let other = Client::new(beside.address(), Some(admin_token(dir.path())));
    let rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    says(&other, "r1", "it is connected", |status, plan| {
        let told = plan["summary"].as_str().is_some_and(|it| it.starts_with("r1: the rack is connected"));
        told && ready(status).is_some() && status["last_seen"].is_string()
    })
    .await;
    drop(rack);
    says(&other, "r1", "it is away, and no region is to blame", |_, plan| {
        let causes = plan["waits"].as_array().into_iter().flatten().map(|wait| &wait["cause"]);
        causes.eq(["RackAway"])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_older_than_what_the_region_knows_of_itself_is_told_of_too() {
    let lab = lab().await;
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let door = tokio::net::TcpListener::bind(anywhere).await.expect("a port");
    let entry = door.local_addr().expect("its address");
    // No region answers at either entry.
    let entries = [entry, SocketAddr::from(([127, 0, 0, 1], 1))].map(|at| format!("https://{at}"));
    let controller =
        Controller::start(&lab.region, anywhere, Policy::default(), entries.into()).await.expect("it starts");
    let _rack = Linked::come(&lab, controller.rpc_address(), "r1", "10.77.0.2/24").await;
    says(&lab.api, "r1", "the rack is connected", |status, _| status["connected"] == true).await;

    let region = controller.rpc_address();
    tokio::spawn(async move {
        while let Ok((mut dialled, _)) = door.accept().await {
            let mut inner = tokio::net::TcpStream::connect(region).await.expect("the region answers");
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut dialled, &mut inner).await });
        }
    });
    last_word_is_a_link(&lab.api, "r1", &format!("region {entry}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_stops_at_once_while_it_dials_an_entry_that_does_not_answer() {
    let lab = lab().await;
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let door = tokio::net::TcpListener::bind(anywhere).await.expect("a port");
    let entries = [door.local_addr().expect("its address"), SocketAddr::from(([127, 0, 0, 1], 1))]
        .map(|at| format!("https://{at}"));
    let controller =
        Controller::start(&lab.region, anywhere, Policy::default(), entries.into()).await.expect("it starts");
    let _dialled = door.accept().await.expect("it dials");
    let began = Instant::now();
    lab.region.begin_to_stop();
    controller.ended().await;
    assert!(began.elapsed() < Duration::from_secs(2), "it took {:?} to stop", began.elapsed());
}
