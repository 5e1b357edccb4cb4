//! Measures the list of 10,000 machines in Debian's Chromium: the time to the first rows, and the time of a filter over all rows.
//!
//! Also the bytes until the first rows, and the memory of a page before and after some minutes of a busy fleet: 1,000 changes a minute.
//! `BASALT_BUSY_SECONDS` is that time: 300 without it, 3600 for an hour.
//!
//! `cargo bench -p basalt-tests --bench ui_10000` prints two lines of JSON. Needs PostgreSQL's binaries and npm. The region runs in this
//! process.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use basalt_api::client::{Client, ClientConfig};
use basalt_api::wire::{ApplyRequest, Document};
use basalt_api::{Kind, Object};
use basalt_engine::Policy;
use basalt_region::controller::Controller;
use basalt_region::region::Region;
use basalt_region::settings::Settings;
use basalt_tests::browser;
use serde_json::{Value, json};

const MACHINES: usize = 10_000;

/// Largest number of documents of one apply.
const DOCUMENTS: usize = 5_000;

/// Time limit for the reconciliation of all machines.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Limits in milliseconds: time to the first rows, and time of a filter.
const ALLOWED: [(&str, f64); 2] = [("rows", 1000.0), ("filter", 100.0)];

/// The busy time without `BASALT_BUSY_SECONDS`, in seconds.
const BUSY_SECONDS: u64 = 300;
/// Machines that are changed at once, each second: about 1,000 a minute.
const CHANGES: usize = 17;

const PASSWORD: &str = "correct horse battery";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = Settings {
        database_url: Some(basalt_db::testing::database().await),
        listen: anywhere,
        rpc_listen: anywhere,
        ..Settings::new(dir.path().join("region"))
    };
    let region = Box::pin(Region::start(settings)).await?;
    Controller::start(&region, anywhere, Policy::default(), Vec::new()).await?;
    let url = format!("http://{}", region.address());
    let token = std::fs::read_to_string(dir.path().join("region/admin-token"))?;
    let config = ClientConfig {
        endpoints: vec![url.clone()],
        token: Some(token.trim().to_owned()),
        ..ClientConfig::default()
    };
    let client = Client::new(&config)?;
    furnish(&client).await?;
    let mut steps = Command::new(browser::program());
    browser::set_up(&mut steps);
    steps.args(["node", "tests/browser/bench.mjs"]);
    let busy =
        std::env::var("BASALT_BUSY_SECONDS").ok().and_then(|it| it.parse().ok()).unwrap_or(BUSY_SECONDS);
    steps.env("REGION_URL", url).env("PASSWORD", PASSWORD).env("MACHINES", MACHINES.to_string());
    let mut steps = steps.env("BUSY_SECONDS", busy.to_string()).stdout(Stdio::piped()).spawn()?;
    let said = BufReader::new(steps.stdout.take().ok_or("no output")?).lines();
    let (runtime, mut changes, mut last) = (tokio::runtime::Handle::current(), None, String::new());
    let (ended, figures) = tokio::task::spawn_blocking(move || {
        for line in said.map_while(Result::ok) {
            match line.as_str() {
                "busy" => changes = Some(runtime.spawn(change(client.clone()))),
                "calm" => drop(changes.take().map(|task| task.abort())),
                _ => last = line,
            }
        }
        (steps.wait(), last)
    })
    .await?;
    region.stop().await;
    if !ended?.success() {
        return Err("the browser's steps failed".into());
    }
    let figures: Value = serde_json::from_str(&figures)?;
    for (name, allowed) in ALLOWED {
        let took = figures[name].as_f64().ok_or_else(|| format!("no time of {name} in {figures}"))?;
        let line = json!({
            "bench": format!("ui_10000_{name}"),
            "basalt": took.round(),
            "peer": "the time that a person does not wait for",
            "peer_value": allowed,
            "ratio": (allowed / took * 100.0).round() / 100.0,
            "unit": "ms",
            "figures": figures,
        });
        #[allow(clippy::print_stdout, reason = "the result")]
        {
            println!("{line}");
        }
    }
    Ok(())
}

/// Declares a viewer and the machines, and waits until each machine has the status of its spec.
async fn furnish(client: &Client) -> Result<(), Box<dyn Error>> {
    let people = [
        json!({"kind": "Role", "metadata": {"name": "viewer"}, "spec": {"base": "viewer"}}),
        json!({"kind": "User", "metadata": {"name": "eve"}, "spec": {"password": PASSWORD, "roles": ["viewer"]}}),
    ];
    let zones =
        (1..=4).map(|row| json!({"kind": "Zone", "metadata": {"name": format!("row-{row}")}, "spec": {}}));
    let mut all: Vec<Value> = people.into_iter().chain(zones).collect();
    all.extend((0..MACHINES).map(machine));
    for documents in all.chunks(DOCUMENTS) {
        let documents: Vec<Document> =
            documents.iter().map(|it| serde_json::from_value(it.clone())).collect::<Result<_, _>>()?;
        client.apply(&ApplyRequest { documents, ..ApplyRequest::default() }, false).await?;
    }
    let kind = Kind::find("Machine").ok_or("there is no kind Machine")?;
    let deadline = Instant::now() + PATIENCE;
    let is_reconciled = |it: &Object| it.common_status().observed_generation == it.metadata.generation;
    while !client.list_all(kind, &Default::default()).await?.iter().all(is_reconciled) {
        if Instant::now() > deadline {
            return Err(format!("not all machines are reconciled after {PATIENCE:?}").into());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Changes the descriptions of machines, one after the other, until it is aborted.
async fn change(client: Client) {
    let mut timer = tokio::time::interval(Duration::from_secs(1));
    for round in 0.. {
        timer.tick().await;
        let documents = (0..CHANGES).map(|place| {
            let mut changed = machine((round * CHANGES + place) % MACHINES);
            changed["spec"]["description"] = json!(format!("busy {round}"));
            serde_json::from_value(changed).expect("a document")
        });
        let request = ApplyRequest { documents: documents.collect(), ..ApplyRequest::default() };
        client.apply(&request, false).await.expect("it is changed");
    }
}

/// A typical machine of a fleet: in a row, with a BMC, and without work.
fn machine(number: usize) -> Value {
    let [_, high, middle, low] = u32::try_from(number).unwrap_or_default().to_be_bytes();
    json!({
        "kind": "Machine",
        "metadata": {"name": format!("machine-{number}"), "labels": {"row": format!("row-{}", number % 10)}},
        "spec": {
            "zone": format!("row-{}", number % 4 + 1),
            "boot_macs": [format!("52:54:{high:02x}:{middle:02x}:{low:02x}:00")],
            "bmc": {"driver": "ipmi", "address": format!("10.{high}.{middle}.{low}"), "username": "admin", "password": "secret"},
            "commissioning": {"skip": true},
        },
    })
}
