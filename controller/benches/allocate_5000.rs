//! Measures how long 5,000 waiting deployments take to get machines out of 10,000. For comparison, as many claims are inserted row by
//! row on the same PostgreSQL: an allocator that serves one deployment after the other must write at least that. Commits are durable.
//!
//! `cargo bench -p basalt-region --bench allocate_5000` prints one line of JSON. Needs PostgreSQL's binaries.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use basalt_api::client::{Client, ClientConfig};
use basalt_api::values::Epoch;
use basalt_api::wire::{ApplyRequest, Document};
use basalt_db::Key;
use basalt_db::cluster::{Cluster, ClusterOptions};
use basalt_engine::Policy;
use basalt_region::driver::Driver;
use basalt_region::driver::allocate::Decided;
use basalt_region::driver::kill::KillPoints;
use basalt_region::racks::sessions::Sessions;
use basalt_region::region::Region;
use basalt_region::settings::Settings;
use serde_json::{Value, json};

const MACHINES: usize = 10_000;
const DEPLOYMENTS: usize = 5_000;
const ZONES: usize = 4;
const RUNS: usize = 5;

/// The inventory that an agent would have found: eight sizes, with two disks.
const LOOKED_INTO: &str = "update object set status = json_build_object('observed_generation', 1,
    'axes', json_build_object('lifecycle', 'ready'),
    'inventory', json_build_object('cpu', json_build_object('cores', 8 * (1 + substr(name, 2)::int % 8)),
      'memory_bytes', 17179869184 * (1 + substr(name, 2)::int % 8),
      'disks', json_build_object('nvme0n1', json_build_object('size_bytes', 960197124096),
        'nvme1n1', json_build_object('size_bytes', 3840755982336))))
  where kind = 'Machine'";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A directory that PostgreSQL's account can enter.
    let dir = tempfile::Builder::new().prefix("basalt-bench-").tempdir_in("/var/tmp")?;
    open_to_all(dir.path())?;
    let cluster = Cluster::start(ClusterOptions {
        dir: dir.path().join("postgresql"),
        account: None,
        settings: Vec::new(),
    })
    .await?;
    let settings = Settings {
        database_url: Some(cluster.url()),
        listen: ([127, 0, 0, 1], 0).into(),
        ..Settings::new(dir.path().join("region"))
    };
    let region = Box::pin(Region::start(settings)).await?;
    let client = Client::new(&ClientConfig {
        endpoints: vec![format!("http://{}", region.address())],
        token: Some(std::fs::read_to_string(dir.path().join("region/admin-token"))?.trim().to_owned()),
        ..ClientConfig::default()
    })?;
    for documents in [places(), machines(), deployments()] {
        let documents: Vec<Document> =
            documents.into_iter().map(serde_json::from_value).collect::<Result<_, _>>()?;
        client.apply(&ApplyRequest { documents, ..ApplyRequest::default() }, false).await?;
    }
    psql(&cluster.url(), dir.path(), LOOKED_INTO)?;

    let store = region.store().clone();
    let first = store.get("Deployment", Key::Name("d0")).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        psql(&cluster.url(), dir.path(), "delete from machine_claim")?;
        // A region that has just started: it has nothing in memory.
        let sessions = Sessions::new(store.now().await?);
        let driver = Driver {
            topology: basalt_region::driver::topology::Topology::new(sessions.clone()),
            common: basalt_region::driver::entries::common::Common::default(),
            written: basalt_region::driver::entries::rack::WrittenConcerns::default(),
            sessions,
            store: store.clone(),
            policy: Policy::default(),
            allocator: Arc::default(),
            kill: KillPoints::from_env(),
            owner: region.id(),
            meters: basalt_region::driver::meters::Meters::default(),
            telemetry: basalt_region::telemetry::Telemetry::default(),
        };
        let begin = Instant::now();
        let decided = driver.allocator.decide(&driver.store, &driver.topology, &first, Epoch::new(1)).await?;
        ours.push(begin.elapsed());
        let claims = store.claims().await?.len();
        if decided != Decided::Claimed || claims != DEPLOYMENTS {
            return Err(format!("{claims} claims, the first is {decided:?}").into());
        }
        theirs.push(one_by_one(&cluster.url(), dir.path(), &store.claims().await?)?);
    }
    region.stop().await;
    cluster.stop().await;
    let (ours, theirs) = (median(ours), median(theirs));
    let rate = |time: Duration| (DEPLOYMENTS as f64 / time.as_secs_f64()).round();
    let line = json!({
        "bench": "allocate_5000",
        "basalt": rate(ours),
        "peer": "one-row INSERTs of the same claims by psql, same PostgreSQL",
        "peer_value": rate(theirs),
        "ratio": (theirs.as_secs_f64() / ours.as_secs_f64() * 1000.0).round() / 1000.0,
        "unit": "machines/s",
    });
    #[allow(clippy::print_stdout, reason = "the result")]
    {
        println!("{line}");
    }
    Ok(())
}

fn open_to_all(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

fn places() -> Vec<Value> {
    let zones =
        (0..ZONES).map(|n| json!({"kind": "Zone", "metadata": {"name": format!("z{n}")}, "spec": {}}));
    let image = json!({"kind": "Image", "metadata": {"name": "debian"},
        "spec": {"os": "debian", "release": "12", "architecture": "amd64",
            "files": {"root_tarball": {"sha256": "0".repeat(64), "size": 7}}}});
    zones.chain([image]).collect()
}

fn machines() -> Vec<Value> {
    let machine = |n: usize| {
        json!({"kind": "Machine", "metadata": {"name": format!("m{n}")},
            "spec": {"zone": format!("z{}", n % ZONES), "commissioning": {"skip": true},
                "tags": if n.is_multiple_of(3) { json!(["ssd"]) } else { json!([]) }}})
    };
    (0..MACHINES).map(machine).collect()
}

/// Five sorts of deployments: any machine, large, tagged, spread, with disks.
fn deployments() -> Vec<Value> {
    let selectors = [
        json!({}),
        json!({"min_cores": 48, "preferences": {"near": {"zone": "z1"}}}),
        json!({"tags": ["ssd"], "not_zone": ["z0"]}),
        json!({"spread_by": "zone", "min_memory": "32GiB"}),
        json!({"disks": {"fast": {"min_size": "3TB"}, "system": {}}}),
    ];
    let deployment = |n: usize| {
        let selector = selectors.get(n % selectors.len());
        json!({"kind": "Deployment", "metadata": {"name": format!("d{n}")},
            "spec": {"image": "debian", "selector": selector}})
    };
    (0..DEPLOYMENTS).map(deployment).collect()
}

fn psql(url: &str, dir: &Path, script: &str) -> Result<(), Box<dyn Error>> {
    let file = dir.join("script.sql");
    std::fs::write(&file, script)?;
    let output = Command::new("psql")
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"])
        .arg(&file)
        .arg(url)
        .output()?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
}

/// The time to insert these claims, each in its own transaction, into a table with the same columns and indexes.
fn one_by_one<M: std::fmt::Display, D: std::fmt::Display>(
    url: &str,
    dir: &Path,
    claims: &[(M, D)],
) -> Result<Duration, Box<dyn Error>> {
    psql(url, dir, "drop table if exists claimed; create table claimed (like machine_claim including all)")?;
    let inserts: Vec<_> = claims
        .iter()
        .map(|(machine, deployment)| format!("insert into claimed values ('{machine}', '{deployment}', 1);"))
        .collect();
    let begin = Instant::now();
    psql(url, dir, &inserts.join("\n"))?;
    Ok(begin.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
