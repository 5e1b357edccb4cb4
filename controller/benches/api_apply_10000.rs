//! One apply of 10,000 new machines over HTTP, against COPY of the rows that it wrote, on the same PostgreSQL, commits durable.
//!
//! `cargo bench -p basalt-region --bench api_apply_10000` prints one line of JSON. Needs PostgreSQL's binaries.

use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use basalt_api::client::{Client, ClientConfig};
use basalt_api::wire::{ApplyRequest, Document};
use basalt_db::cluster::{Cluster, ClusterOptions};
use basalt_region::region::Region;
use basalt_region::settings::Settings;
use serde_json::json;

/// With their zone, 10,000 objects.
const MACHINES: usize = 9_999;
const RUNS: usize = 5;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Where the account that PostgreSQL runs under gets to.
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
        manager: Some("bench".to_owned()),
        ..ClientConfig::default()
    })?;

    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    for run in 0..RUNS {
        let request = ApplyRequest { documents: documents(run)?, ..ApplyRequest::default() };
        let begin = Instant::now();
        let done = client.apply(&request, false).await?;
        ours.push(begin.elapsed());
        if !done.summary.starts_with(&format!("{} created", MACHINES + 1)) {
            return Err(done.summary.into());
        }
        theirs.push(copy(&cluster.url(), dir.path(), run)?);
    }
    region.stop().await;
    cluster.stop().await;
    let (ours, theirs) = (median(ours), median(theirs));
    let rate = |time: Duration| (MACHINES as f64 / time.as_secs_f64()).round();
    let line = json!({
        "bench": "api_apply_10000",
        "basalt": rate(ours),
        "peer": "COPY of the same rows, same PostgreSQL, same indexes",
        "peer_value": rate(theirs),
        "ratio": (theirs.as_secs_f64() / ours.as_secs_f64() * 1000.0).round() / 1000.0,
        "unit": "objects/s",
    });
    #[allow(clippy::print_stdout, reason = "the result")]
    {
        println!("{line}");
    }
    Ok(())
}

fn open_to_all(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

/// A zone and machines in it, as a site would declare them.
fn documents(run: usize) -> Result<Vec<Document>, serde_json::Error> {
    let zone = format!("zone-{run}");
    let machines = (0..MACHINES).map(|index| {
        let number = run * MACHINES + index;
        let mac = format!("52:54:{:02x}:{:02x}:{:02x}:00", number >> 16, (number >> 8) & 0xff, number & 0xff);
        json!({
            "kind": "Machine",
            "metadata": {"name": format!("machine-{number}"), "labels": {"app": "bench"}},
            "spec": {"zone": zone, "boot_macs": [mac], "architecture": "amd64",
                "bmc": {"driver": "ipmi", "address": "10.0.0.1", "username": "admin", "password": "a-secret"}},
        })
    });
    let zone = json!({"kind": "Zone", "metadata": {"name": zone}, "spec": {}});
    machines.chain([zone]).map(serde_json::from_value).collect()
}

/// How long COPY takes for the rows that the run wrote, into a table with the same columns and indexes.
fn copy(url: &str, dir: &std::path::Path, run: usize) -> Result<Duration, Box<dyn Error>> {
    let rows = dir.join("rows");
    let (first, last) = (run * MACHINES, (run + 1) * MACHINES);
    let script = format!(
        "\\copy (select * from object where kind = 'Machine' and substr(name, 9)::int >= {first} and substr(name, 9)::int < {last}) to '{rows}'
         create table if not exists copied (like object including all);
         \\timing on
         \\copy copied from '{rows}'",
        rows = rows.display()
    );
    let script = script.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let file = dir.join("copy.sql");
    std::fs::write(&file, script)?;
    let output =
        Command::new("psql").args(["-X", "-v", "ON_ERROR_STOP=1", "-f"]).arg(&file).arg(url).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let took = said.lines().filter_map(|line| line.strip_prefix("Time: ")).next_back();
    let took = took.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    match took {
        Some(millis) if output.status.success() && said.contains(&format!("COPY {MACHINES}")) => {
            Ok(Duration::from_secs_f64(millis / 1000.0))
        }
        _ => Err(format!("{said}{}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
