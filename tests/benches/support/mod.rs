//! Shared parts of the benchmarks of simulated machines: a wide network, the cost of the region, and waiting for many objects.
#![expect(clippy::print_stdout, reason = "the result is a line of output")]
#![allow(dead_code, reason = "not each benchmark uses all of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use basalt_api::client::{Watch, WatchOptions};
use basalt_api::watch::What;
use basalt_api::wire::{ApplyRequest, Document};
use basalt_api::{Kind, Object};
use basalt_db::testing::clock::Hand;
use basalt_lab::BRIDGE;
use basalt_tests::fleet::{Fleet, Net};
use serde_json::{Value, json};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Hosts a minute.
pub(crate) const PEER: f64 = 146.0;
/// A network for 2,000 machines; the addresses of their BMCs are above it.
const NET: Net = Net { cidr: "10.77.0.0/16", range: ["10.77.64.0", "10.77.80.0"] };
/// Address of the rack's host in [`NET`].
const HOST: &str = "10.77.0.1/16";
/// The address that every lab has. Its network has a broadcast address, 10.77.0.255, that a BMC in [`NET`] uses.
const HOST_OF_LAB: &str = "10.77.0.1/24";
/// Time limit without any machine becoming ready.
const PATIENCE: Duration = Duration::from_secs(300);
/// Kernel ticks a second, on every architecture that Basalt runs on.
const TICKS: f64 = 100.0;

/// Starts a region and a rack with [`NET`]. Deadlines are as with real machines: nothing is tried again because this host is slow.
pub(crate) async fn start(label: &str) -> Result<Fleet> {
    let fleet = Fleet::start_in(label, &[("BASALT_DEADLINE_DIVISOR", "1")], NET).await;
    for [verb, address] in [["add", HOST], ["delete", HOST_OF_LAB]] {
        let mut command = fleet.site.lab().command("ip")?;
        command.args(["address", verb, address, "dev", BRIDGE]);
        run(&fleet, command).await?;
    }
    Ok(fleet)
}

/// Runs a program to its end.
pub(crate) async fn run(fleet: &Fleet, mut command: Command) -> Result<()> {
    command.stdin(Stdio::null());
    Ok(fleet.site.lab().spawn(command)?.wait(PATIENCE).await.map(drop)?)
}

/// Totals since the region's start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) region_cpu_ms: f64,
    pub(crate) postgres_cpu_ms: f64,
    pub(crate) rows: f64,
    rack_bytes: BTreeMap<String, f64>,
}

impl Cost {
    pub(crate) async fn so_far(fleet: &Fleet) -> Result<Self> {
        let region = fleet.site.directory().join("region");
        let (region_cpu_ms, postgres_cpu_ms) = cpu_ms(&region)?;
        let url = format!("postgres:///basalt?host={}&user=basalt", region.join("run").display());
        let rows = Hand::on(&url)
            .await
            .run("select sum(tup_returned)::text from pg_stat_database where datname = current_database()")
            .await;
        let metrics = fleet.site.metrics().await?;
        let sent = metrics.lines().filter(|line| line.starts_with("basalt_rack_concern_bytes_total"));
        let by_concern = |line: &str| {
            let (name, bytes) = line.rsplit_once(' ')?;
            Some((name.split('"').nth(1)?.to_owned(), bytes.parse().ok()?))
        };
        let rack_bytes = sent.filter_map(by_concern).collect();
        Ok(Self { region_cpu_ms, postgres_cpu_ms, rows: rows[0][0].parse()?, rack_bytes })
    }

    /// The share of each of `machines` since `before`.
    pub(crate) fn of_each(&self, before: &Self, machines: u16) -> Self {
        let share = |now: f64, then: f64| (now - then) / f64::from(machines);
        Self {
            region_cpu_ms: share(self.region_cpu_ms, before.region_cpu_ms),
            postgres_cpu_ms: share(self.postgres_cpu_ms, before.postgres_cpu_ms),
            rows: share(self.rows, before.rows),
            rack_bytes: self
                .rack_bytes
                .iter()
                .map(|(concern, now)| {
                    (
                        concern.clone(),
                        share(*now, before.rack_bytes.get(concern).copied().unwrap_or_default()),
                    )
                })
                .collect(),
        }
    }

    pub(crate) fn cpu_ms(&self) -> f64 {
        self.region_cpu_ms + self.postgres_cpu_ms
    }

    pub(crate) fn rack_bytes(&self) -> f64 {
        self.rack_bytes.values().sum()
    }
}

/// One process, of `/proc/PID/stat`.
struct Process {
    pid: u32,
    name: String,
    parent: u32,
    /// CPU time, that of ended children included, in ticks.
    ticks: f64,
}

impl Process {
    fn read(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (head, tail) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = tail.split(' ').collect();
        let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<f64>().ok()).sum();
        Some(Self {
            pid,
            name: head.split_once('(')?.1.to_owned(),
            parent: fields.get(1)?.parse().ok()?,
            ticks,
        })
    }

    /// True if an argument of its command line is in this directory.
    fn names(&self, directory: &Path) -> bool {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        String::from_utf8_lossy(&line).split('\0').any(|word| Path::new(word).starts_with(directory))
    }
}

/// CPU time of the region with this data directory, and of its PostgreSQL.
fn cpu_ms(directory: &Path) -> Result<(f64, f64)> {
    let ids = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let all: Vec<_> = ids.filter_map(Process::read).collect();
    let own = |name: &str| all.iter().find(|it| it.name == name && it.names(directory));
    let region = own("basalt-region").ok_or("no region runs")?;
    let postmaster = own("postgres").ok_or("no PostgreSQL runs")?;
    let backends = all.iter().filter(|it| it.parent == postmaster.pid).map(|it| it.ticks);
    let ms = |ticks: f64| ticks * 1000.0 / TICKS;
    Ok((ms(region.ticks), ms(postmaster.ticks + backends.sum::<f64>())))
}

fn is_ready(object: &Object) -> bool {
    let conditions = object.status["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|it| it["type"] == "Ready" && it["status"] == "true"))
}

pub(crate) fn document(kind: &str, name: &str, spec: Value) -> Result<Document> {
    Ok(serde_json::from_value(json!({"kind": kind, "metadata": {"name": name}, "spec": spec}))?)
}

/// Objects of one kind that are not ready yet.
pub(crate) struct Awaited {
    plural: &'static str,
    names: BTreeSet<String>,
    watch: Watch,
    began: Instant,
}

impl Awaited {
    /// Watches objects of a kind from now on.
    pub(crate) async fn new(
        fleet: &Fleet,
        plural: &'static str,
        names: impl IntoIterator<Item = String>,
    ) -> Result<Self> {
        let kind = Kind::find(plural).ok_or("a kind")?;
        let (_, since) = fleet.client().list_to_watch(kind, &Default::default()).await?;
        let watch =
            fleet.client().watch(WatchOptions { kinds: vec![kind], since, ..WatchOptions::default() });
        Ok(Self { plural, names: names.into_iter().collect(), watch, began: Instant::now() })
    }

    /// Waits until all are ready. Returns the number that became ready in a minute.
    pub(crate) async fn ready(mut self, fleet: &Fleet) -> Result<f64> {
        let count = self.names.len();
        let mut until = tokio::time::Instant::now() + PATIENCE;
        while let Some(first) = self.names.first().cloned() {
            let Ok(event) = tokio::time::timeout_at(until, self.watch.next()).await else {
                let (left, plural) = (self.names.len(), self.plural);
                let story = fleet.story(plural, &first).await;
                return Err(format!("{left} of {count} {plural} do not get there; {first}: {story}").into());
            };
            if let What::Put(object) = event?.what
                && is_ready(&object)
                && self.names.remove(object.metadata.name.as_str())
            {
                until = tokio::time::Instant::now() + PATIENCE;
            }
        }
        Ok(count as f64 * 60.0 / self.began.elapsed().as_secs_f64())
    }
}

/// Declares objects and waits until all are ready. Returns the number that became ready in a minute.
pub(crate) async fn phase(fleet: &Fleet, plural: &'static str, documents: Vec<Document>) -> Result<f64> {
    let names: Vec<_> = documents.iter().map(|it| it.metadata.name.to_string()).collect();
    let awaited = Awaited::new(fleet, plural, names).await?;
    fleet.client().apply(&ApplyRequest { documents, ..ApplyRequest::default() }, false).await?;
    awaited.ready(fleet).await
}

/// Prints a result: more is better in `ratio`.
pub(crate) fn print(
    bench: &str,
    basalt: f64,
    peer: &str,
    peer_value: f64,
    ratio: f64,
    unit: &str,
    cost: Option<&Cost>,
) {
    let rounded = |value: f64| (value * 100.0).round() / 100.0;
    let mut line = json!({
        "bench": bench, "basalt": rounded(basalt), "peer": peer, "peer_value": rounded(peer_value),
        "ratio": rounded(ratio), "unit": unit,
    });
    if let Some(cost) = cost {
        let by_concern: BTreeMap<_, _> =
            cost.rack_bytes.iter().map(|(name, it)| (name, rounded(*it))).collect();
        line["a_machine"] = json!({
            "region_cpu_ms": rounded(cost.region_cpu_ms), "postgres_cpu_ms": rounded(cost.postgres_cpu_ms),
            "rows": rounded(cost.rows), "rack_bytes": rounded(cost.rack_bytes()),
            "rack_bytes_by_concern": by_concern,
        });
    }
    println!("{line}");
}
