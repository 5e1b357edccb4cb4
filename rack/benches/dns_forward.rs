//! DNS answers a second from other servers, against unbound: of names that the forwarder asks BIND for (`cold`), and of names in its
//! cache (`cached`).
//!
//! `cargo bench -p basalt-rack --bench dns_forward` prints a line of JSON for each. It must run as root, because the upstream server
//! has port 53. dnsperf asks both forwarders for the same names, in turn, with eight clients and 100 queries on their way. In a cold
//! round all names are new.

mod support;

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use basalt_proto::rack_v1::{DnsConcern, DnsForward};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use support::dns::{Zone, named_at, rate, until};
use support::{Ports, Program, Result, median, peer, print, rack, tcp_port};

/// The names of one cold round.
const NAMES: usize = 10_000;
const ROUNDS: usize = 5;
const SECONDS: &str = "1";
/// The address of the upstream server. The rack asks no server at an address of its own.
const UPSTREAM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);

fn main() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("basalt-bench-").tempdir_in("/var/tmp")?;
    let data = dir.path().join("data");
    fs::create_dir_all(&data)?;
    Zone::new(u32::try_from((ROUNDS + 1) * NAMES)?).write_file(dir.path(), 1)?;
    let _named = named_at(dir.path(), SocketAddr::from((UPSTREAM, 53)))?;
    let forwards = vec![DnsForward { domain: "bench.example".into(), servers: vec![UPSTREAM.to_string()] }];
    let concern = DnsConcern { forwards, ..DnsConcern::default() };
    write_concern(&data, &version(Concern::Dns, 1, "local", &concern))?;
    let (ports, unbound_port) = (Ports::free()?, tcp_port()?);
    let _rack = rack(dir.path(), ports, &[])?;
    let _unbound = unbound(dir.path(), unbound_port)?;
    let began = Instant::now();
    let servers = [ports.dns, unbound_port];
    for port in servers {
        until(port, 0, FIRST, began)?;
    }
    let dnsperf = peer("dnsperf")?;
    let all = [("dns_forward_cold", ["-n", "1"]), ("dns_forward_cached", ["-l", SECONDS])];
    for (bench, limit) in all {
        let mut rates: [Vec<f64>; 2] = Default::default();
        for round in 0..=ROUNDS {
            // All names were asked for in the cold rounds. The cached ones are those of the last round.
            let names = if bench == "dns_forward_cold" { round } else { ROUNDS } * NAMES;
            let queries = queries(dir.path(), names..names + NAMES)?;
            for (rates, port) in rates.iter_mut().zip(servers) {
                let rate = rate(&dnsperf, &queries, port, &limit)?;
                // The first round is a warm-up.
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
        let ratios = rates[0].iter().zip(&rates[1]).map(|(ours, theirs)| ours / theirs).collect();
        let [ours, theirs] = rates.map(median);
        print(
            bench,
            ours,
            "unbound 1.17, two threads, without validation",
            theirs,
            median(ratios),
            "answers/s",
        );
    }
    Ok(())
}

/// Writes the questions for these names, in the format of dnsperf.
fn queries(dir: &Path, names: Range<usize>) -> Result<PathBuf> {
    let mut text = String::new();
    for number in names {
        writeln!(text, "host-{number}.bench.example A")?;
    }
    let file = dir.join("queries");
    fs::write(&file, text)?;
    Ok(file)
}

/// Starts unbound, which forwards to the upstream server.
fn unbound(dir: &Path, port: u16) -> Result<Program> {
    let root = peer("unbound")?;
    let directory = dir.to_str().ok_or("no UTF-8")?;
    let text = include_str!("unbound.conf").replace("DIR", directory).replace("PORT", &port.to_string());
    let configuration = dir.join("unbound.conf");
    fs::write(&configuration, text.replace("UPSTREAM", &UPSTREAM.to_string()))?;
    let mut command = Command::new(root.join("usr/sbin/unbound"));
    command.env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"));
    Program::start(command.arg("-d").arg("-c").arg(configuration))
}
