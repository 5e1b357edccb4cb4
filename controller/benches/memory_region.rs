//! Measures the memory of the region's program after it has stored and reconciled 10,000 machines. The limit is 300 MB.
//!
//! `cargo bench -p basalt-region --bench memory_region` prints one line of JSON. Needs PostgreSQL's binaries.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use basalt_api::client::{Client, ClientConfig};
use basalt_api::wire::{ApplyRequest, Document};
use basalt_api::{Kind, Object};
use basalt_db::cluster::{Cluster, ClusterOptions};
use serde_json::json;

const MACHINES: usize = 10_000;

/// The number of documents per apply.
const DOCUMENTS: usize = 5_000;

/// The limit of the region's memory, in megabytes.
const ALLOWED: f64 = 300.0;

/// The longest time until all machines are reconciled.
const PATIENCE: Duration = Duration::from_secs(1800);

/// A region's program, which is killed by its own id when this is dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

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
    let data = dir.path().join("region");
    let mut program = start(&cluster.url(), &data)?;
    let address = address(&mut program.0)?;
    let token = std::fs::read_to_string(data.join("admin-token"))?.trim().to_owned();
    let client = Client::new(&ClientConfig {
        endpoints: vec![format!("http://{address}")],
        token: Some(token.clone()),
        ..ClientConfig::default()
    })?;
    for first in (0..MACHINES).step_by(DOCUMENTS) {
        let documents = (first..first + DOCUMENTS).map(machine).collect::<Result<_, _>>()?;
        client.apply(&ApplyRequest { documents, ..ApplyRequest::default() }, false).await?;
    }
    let deadline = Instant::now() + PATIENCE;
    while due(address, &token)? > 0.0 {
        if Instant::now() > deadline {
            return Err(format!("not all machines are reconciled after {PATIENCE:?}").into());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let memory = resident(program.0.id())?;
    let kind = Kind::find("Machine").ok_or("there is no kind Machine")?;
    let machines = client.list_all(kind, &Default::default()).await?;
    let is_reconciled =
        |machine: &&Object| machine.common_status().observed_generation == machine.metadata.generation;
    let reconciled = machines.iter().filter(is_reconciled).count();
    if reconciled != MACHINES {
        return Err(format!("{reconciled} of {MACHINES} machines are reconciled").into());
    }
    drop(program);
    cluster.stop().await;
    let line = json!({
        "bench": "memory_region",
        "basalt": memory.round(),
        "peer": "what a region with 10,000 machines may take",
        "peer_value": ALLOWED,
        "ratio": (ALLOWED / memory * 1000.0).round() / 1000.0,
        "unit": "MB",
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

fn start(url: &str, data: &Path) -> std::io::Result<Program> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_basalt-region"));
    command.arg("--data-dir").arg(data).args(["--database-url", url, "--log", "warn"]);
    command.args(["--listen", "127.0.0.1:0", "--rpc-listen", "127.0.0.1:0"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map(Program)
}

/// The address of the API, which the region prints first.
fn address(child: &mut Child) -> Result<SocketAddr, Box<dyn Error>> {
    let output = child.stdout.take().ok_or("the region has no output")?;
    let first = BufReader::new(output).lines().next().ok_or("the region did not start")??;
    Ok(first.trim_start_matches("API: http://").parse()?)
}

fn machine(number: usize) -> Result<Document, serde_json::Error> {
    let [_, high, middle, low] = u32::try_from(number).unwrap_or_default().to_be_bytes();
    let mac = format!("52:54:{high:02x}:{middle:02x}:{low:02x}:00");
    let bmc = format!("10.{high}.{middle}.{low}");
    serde_json::from_value(json!({
        "kind": "Machine",
        "metadata": {"name": format!("machine-{number}"), "labels": {"app": "bench"}},
        "spec": {"boot_macs": [mac], "architecture": "amd64",
            "bmc": {"driver": "ipmi", "address": bmc, "username": "admin", "password": "a-secret"}},
    }))
}

/// The number of objects that are due or being handled.
fn due(address: SocketAddr, token: &str) -> Result<f64, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    let head = format!("GET /metrics HTTP/1.1\r\nHost: region\r\nAuthorization: Bearer {token}");
    write!(stream, "{head}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    if !text.starts_with("HTTP/1.1 200") {
        return Err(text.into());
    }
    let counts = text
        .lines()
        .filter(|line| line.starts_with("basalt_queue_due{") || line.starts_with("basalt_queue_leases{"));
    Ok(counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

/// The resident memory of a process, in megabytes.
fn resident(pid: u32) -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes * 1024.0 / 1_000_000.0)
}
