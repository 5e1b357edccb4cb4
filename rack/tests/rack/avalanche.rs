//! Many clients at once, as perfdhcp plays them.

use std::collections::HashSet;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use tokio::time::timeout;

use super::namespace::{Host, is_inside, make_switch, peer};
use super::peers::{start, subnet};

/// Far more than what is asked for here takes.
const PATIENCE: Duration = Duration::from_secs(120);
const CLIENTS: usize = 2_000;

/// perfdhcp on another host, as a relay whose clients these are.
async fn perfdhcp(host: &Host, arguments: &[&str]) -> Output {
    let root = peer("perfdhcp");
    let libraries = std::fs::read_dir(root.join("usr/lib")).unwrap().map(|entry| entry.unwrap().path());
    let libraries: Vec<_> = libraries.map(|path| path.to_string_lossy().into_owned()).collect();
    let (libraries, program) =
        (format!("LD_LIBRARY_PATH={}", libraries.join(":")), root.join("usr/sbin/perfdhcp"));
    let fixed = ["env", &libraries, &program.to_string_lossy(), "-4", "-l", "10.9.0.9"];
    let mut command = host.command(&[&fixed, arguments, &["10.9.0.1"]].concat());
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap());
    timeout(PATIENCE, ended).await.expect("perfdhcp does not end").unwrap()
}

/// How many addresses the lease file has.
fn leases_on_disk(dir: &Path) -> usize {
    let file = std::fs::read_to_string(dir.join("data/leases")).unwrap();
    let addresses: HashSet<&str> =
        file.lines().filter_map(|line| line.split("\"address\":\"").nth(1)?.split('"').next()).collect();
    addresses.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_avalanche_of_clients_is_served_to_the_last_one() {
    peer("perfdhcp");
    if !is_inside("avalanche::an_avalanche_of_clients_is_served_to_the_last_one") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/16"]);
    let mut all = subnet("s1", "10.9.0", ("100", "101"));
    all.cidr = "10.9.0.0/16".into();
    (all.dynamic[0].start, all.dynamic[0].end) = ("10.9.1.0".into(), "10.9.200.255".into());
    let rack = start(dir.path(), vec![all]).await;
    let relay = Host::plug("relay", "52:54:00:00:00:09");
    relay.run(&["ip", "address", "add", "10.9.0.9/16", "dev", "eth0"]);

    let count = CLIENTS.to_string();
    let output = perfdhcp(&relay, &["--scenario", "avalanche", "-R", &count, "-s", "2026"]).await;
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{}", said.lines().find(|line| line.starts_with("It took")).unwrap_or_default());
    assert!(output.status.success(), "{output:?}");
    for (line, times) in
        [(format!("received packets: {CLIENTS}"), 2), ("non unique addresses: 0".to_owned(), 2)]
    {
        assert_eq!(said.lines().filter(|it| *it == line).count(), times, "{line}: {said}");
    }
    assert_eq!(leases_on_disk(dir.path()), CLIENTS, "each of them is durable");
    rack.stop().await;
}
