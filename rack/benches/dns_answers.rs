//! DNS answers a second from a zone of 10,000 names, against BIND: by UDP to one and two threads of dnsperf, and by TCP.
//!
//! `cargo bench -p basalt-rack --bench dns_answers` prints a line of JSON for each. Both servers are asked by dnsperf for the same
//! 20,000 random names, in turn, by eight clients with 100 queries on their way. BIND has a thread for each core, as it is by itself.
//! Its `named.conf` turns off recursion, NOTIFY and the empty zones, and leaves sections out that no client needs
//! (`minimal-responses yes`), as the rack does.

mod support;

use std::fs;
use std::net::Ipv4Addr;
use std::time::Instant;

use support::dns::{Zone, named, rate, until};
use support::{Ports, Result, median, peer, print, rack, tcp_port};

const NAMES: u32 = 10_000;
const QUERIES: usize = 20_000;
const ROUNDS: usize = 9;
/// The seconds that each server is asked for in a round.
const SECONDS: &str = "1";
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
/// The name of a result, and dnsperf's options for it: transport and threads.
const WAYS: [(&str, &str, &str); 3] =
    [("dns_answers_udp_1", "udp", "1"), ("dns_answers_udp_2", "udp", "2"), ("dns_answers_tcp", "tcp", "1")];

fn main() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("basalt-bench-").tempdir_in("/var/tmp")?;
    let data = dir.path().join("data");
    fs::create_dir_all(&data)?;
    let zone = Zone::new(NAMES);
    zone.write(&data, 1)?;
    zone.write_file(dir.path(), 1)?;
    let queries = dir.path().join("queries");
    fs::write(&queries, random_names())?;
    let (ports, named_port) = (Ports::free()?, tcp_port()?);
    let _rack = rack(dir.path(), ports, &[])?;
    let _named = named(dir.path(), named_port)?;
    let began = Instant::now();
    let servers = [ports.dns, named_port];
    for port in servers {
        until(port, 0, FIRST, began)?;
    }
    let dnsperf = peer("dnsperf")?;
    for (bench, transport, threads) in WAYS {
        let mut rates: [Vec<f64>; 2] = Default::default();
        for round in 0..=ROUNDS {
            for (rates, port) in rates.iter_mut().zip(servers) {
                let rate = rate(&dnsperf, &queries, port, &["-l", SECONDS, "-m", transport, "-T", threads])?;
                // The first round is a warm-up.
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
        let ratios = rates[0].iter().zip(&rates[1]).map(|(ours, theirs)| ours / theirs).collect();
        let [ours, theirs] = rates.map(median);
        print(bench, ours, "BIND 9.18, a thread for each core", theirs, median(ratios), "answers/s");
    }
    Ok(())
}

/// Questions in the format of dnsperf, the same in each run.
fn random_names() -> String {
    let mut state: u64 = 1;
    let mut line = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        format!("host-{}.bench.example A\n", state % u64::from(NAMES))
    };
    (0..QUERIES).map(|_| line()).collect()
}
