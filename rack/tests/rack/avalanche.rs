//! Many clients at once, as perfdhcp plays them.

use std::collections::HashSet;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use tokio::time::timeout;

use super::namespace::{Host, is_inside, make_switch, peer};
use super::peers::{start, subnet};
use super::peers6::{start_with as start_on, subnet as subnet6};

/// Far more than what is asked for here takes.
const PATIENCE: Duration = Duration::from_secs(120);
const CLIENTS: usize = 2_000;

/// An avalanche of clients that perfdhcp plays on another host.
async fn perfdhcp(host: &Host, arguments: &[&str]) -> Output {
    let root = peer("perfdhcp");
    let libraries = std::fs::read_dir(root.join("usr/lib")).unwrap().map(|entry| entry.unwrap().path());
    let libraries: Vec<_> = libraries.map(|path| path.to_string_lossy().into_owned()).collect();
    let (libraries, program) =
        (format!("LD_LIBRARY_PATH={}", libraries.join(":")), root.join("usr/sbin/perfdhcp"));
    let count = CLIENTS.to_string();
    let program = program.to_string_lossy();
    let fixed = ["env", &libraries, &program, "--scenario", "avalanche", "-R", &count, "-s", "2026"];
    let mut command = host.command(&[&fixed, arguments].concat());
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap());
    timeout(PATIENCE, ended).await.expect("perfdhcp does not end").unwrap()
}

/// How many addresses a lease file has.
fn leases_on_disk(file: &Path) -> usize {
    let file = std::fs::read_to_string(file).unwrap();
    let addresses: HashSet<&str> =
        file.lines().filter_map(|line| line.split("\"address\":\"").nth(1)?.split('"').next()).collect();
    addresses.len()
}

/// All clients got an address of their own, as perfdhcp saw it.
fn all_are_served(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{}", said.lines().find(|line| line.starts_with("It took")).unwrap_or_default());
    assert!(output.status.success(), "{output:?}");
    for (line, times) in
        [(format!("received packets: {CLIENTS}"), 2), ("non unique addresses: 0".to_owned(), 2)]
    {
        assert_eq!(said.lines().filter(|it| *it == line).count(), times, "{line}: {said}");
    }
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

    // As a relay whose clients these are.
    let output = perfdhcp(&relay, &["-4", "-l", "10.9.0.9", "10.9.0.1"]).await;
    all_are_served(&output);
    assert_eq!(leases_on_disk(&dir.path().join("data/leases")), CLIENTS, "each of them is durable");
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_avalanche_of_clients_is_served_over_ipv6_too() {
    peer("perfdhcp");
    if !is_inside("avalanche::an_avalanche_of_clients_is_served_over_ipv6_too") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut all = subnet6();
    (all.dynamic[0].start, all.dynamic[0].end) = ("2001:db8::1:0".into(), "2001:db8::1:ffff".into());
    let rack = start_on(dir.path(), all).await;
    let clients = Host::plug("clients", "52:54:00:00:00:09");
    let settled =
        "until ip -6 address show dev eth0 scope link -tentative | grep -q fe80; do sleep 0.05; done";
    clients.run(&["timeout", "30", "sh", "-c", settled]);
    let output = perfdhcp(&clients, &["-6", "-l", "eth0", "all"]).await;
    all_are_served(&output);
    assert_eq!(leases_on_disk(&dir.path().join("data/leases6")), CLIENTS, "each of them is durable");
    rack.stop().await;
}
