//! Measures an apply of 1,000 new subnets with `-parallelism=50`, and the memory of the provider during it. For comparison, it
//! applies the same number of Terraform's own `terraform_data` with the same values, which need no provider process and no
//! region.
//!
//! Uses the real Terraform, this provider's program, and a region's program in the same directory. Prints two lines of JSON:
//! `cargo build --release -p basalt-region && cargo bench -p terraform-provider-basalt --bench terraform_apply_1000`. A number
//! after `--` replaces the number of subnets.

mod user;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use user::{Site, User, median, rounded};

const SUBNETS: usize = 1000;
const RUNS: usize = 3;
/// Number of simultaneous operations of Terraform.
const PARALLELISM: &str = "-parallelism=50";
/// Interval of checks of the provider's memory.
const LOOK: Duration = Duration::from_millis(20);
/// Target, in MB.
const MEMORY: f64 = 64.0;

/// The configuration of a subnet, by its number.
const SUBNET: &str = r#"{
    name        = "subnet-${count.index}"
    vlan        = "lab.0"
    cidr        = cidrsubnet("10.0.0.0/8", 16, count.index)
    gateway     = cidrhost(cidrsubnet("10.0.0.0/8", 16, count.index), 1)
    dns_servers = ["10.255.0.1", "10.255.0.2"]
    labels      = { row = "row-${count.index % 10}" }
  }"#;

fn main() -> Result<(), Box<dyn Error>> {
    let subnets = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(SUBNETS);
    let program = fs::canonicalize(env!("CARGO_BIN_EXE_terraform-provider-basalt"))?;
    let site = Site::start(&program)?;
    let network = "resource \"basalt_fabric\" \"lab\" {\n  name = \"lab\"\n}\n\
                   resource \"basalt_vlan\" \"lab\" {\n  fabric = basalt_fabric.lab.name\n  vid    = 0\n}\n";
    site.user("network", &format!("{}{network}", site.provider))?.run(&["apply", "-auto-approve"])?;
    let ours = format!(
        "{}resource \"basalt_subnet\" \"s\" {{\n  count = {subnets}\n{}\n",
        site.provider,
        SUBNET.trim_start_matches('{')
    );
    let theirs =
        format!("resource \"terraform_data\" \"s\" {{\n  count = {subnets}\n  input = {SUBNET}\n}}\n");
    let (ours, theirs) = (site.user("ours", &ours)?, site.user("theirs", &theirs)?);
    let (mut our_times, mut their_times, mut most) = (Vec::new(), Vec::new(), 0);
    for _ in 0..RUNS {
        let (took, memory) = watched(&program, || apply(&ours))?;
        our_times.push(took);
        most = most.max(memory);
        their_times.push(apply(&theirs)?);
        for user in [&ours, &theirs] {
            user.run(&["destroy", "-auto-approve", PARALLELISM])?;
        }
    }
    let (ours, theirs) = (median(our_times), median(their_times));
    let memory = most as f64 / 1024.0;
    let lines = [
        serde_json::json!({
            "bench": "terraform_apply_1000",
            "basalt": rounded(ours),
            "peer": "terraform_data",
            "peer_value": rounded(theirs),
            "ratio": rounded(theirs / ours),
            "unit": "s",
        }),
        serde_json::json!({
            "bench": "memory_provider",
            "basalt": rounded(memory),
            "peer": "target",
            "peer_value": MEMORY,
            "ratio": rounded(MEMORY / memory),
            "unit": "MB",
        }),
    ];
    #[allow(clippy::print_stdout, reason = "the result")]
    for line in lines {
        println!("{line}");
    }
    Ok(())
}

/// The duration of an apply.
fn apply(user: &User) -> Result<Duration, Box<dyn Error>> {
    let began = Instant::now();
    user.run(&["apply", "-auto-approve", PARALLELISM])?;
    Ok(began.elapsed())
}

/// Runs `work`, and returns the peak memory of a process of this program during it, in KiB.
fn watched<T>(
    program: &Path,
    work: impl FnOnce() -> Result<T, Box<dyn Error>>,
) -> Result<(T, u64), Box<dyn Error>> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(memory(program));
                thread::sleep(LOOK);
            }
            most
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        let most = watcher.join().map_err(|_| "the watcher panicked")?;
        match (done, most) {
            (Ok(_), 0) => Err("no process of the provider was seen".into()),
            (done, most) => Ok((done?, most)),
        }
    })
}

/// The highest peak of the processes of this program, in KiB: `VmHWM` of proc(5).
fn memory(program: &Path) -> u64 {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|process| process.path());
    let ours = processes.filter(|process| fs::read_link(process.join("exe")).is_ok_and(|exe| exe == program));
    let peaks = ours.filter_map(|process| {
        let status = fs::read_to_string(process.join("status")).ok()?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        peak.trim().strip_suffix(" kB")?.parse().ok()
    });
    peaks.max().unwrap_or_default()
}
