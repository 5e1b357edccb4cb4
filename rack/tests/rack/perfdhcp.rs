//! Many clients at once, simulated by perfdhcp: an avalanche, clients that come, renew and go, and a flood of
//! strangers.

use std::collections::HashSet;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use basalt_proto::rack_v1::Reservation;
use basalt_rack::daemon::Daemon;
use tokio::time::timeout;

use super::namespace::{Host, is_inside, make_switch, peer};
use super::peers::{Client, KNOWN, start, subnet};
use super::peers6::{start_with as start_on, subnet as subnet6};
use super::tftp::memory;

/// Far longer than any test here takes.
const PATIENCE: Duration = Duration::from_secs(120);
const CLIENTS: usize = 2_000;
const STRANGERS: u64 = 100_000;
/// The most memory that strangers may cause, in MiB: the number of records is bounded.
const BOUND: u64 = 100;

/// Runs perfdhcp on another host.
async fn perfdhcp(host: &Host, arguments: &[&str]) -> Output {
    let root = peer("perfdhcp");
    let libraries = std::fs::read_dir(root.join("usr/lib")).unwrap().map(|entry| entry.unwrap().path());
    let libraries: Vec<_> = libraries.map(|path| path.to_string_lossy().into_owned()).collect();
    let (libraries, program) =
        (format!("LD_LIBRARY_PATH={}", libraries.join(":")), root.join("usr/sbin/perfdhcp"));
    let program = program.to_string_lossy();
    let fixed = ["env", &libraries, &program, "-s", "2026"];
    let mut command = host.command(&[&fixed, arguments].concat());
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap());
    timeout(PATIENCE, ended).await.expect("perfdhcp does not end").unwrap()
}

/// An avalanche of clients.
async fn avalanche(host: &Host, arguments: &[&str]) -> Output {
    let count = CLIENTS.to_string();
    perfdhcp(host, &[&["--scenario", "avalanche", "-R", &count], arguments].concat()).await
}

/// perfdhcp's counters of each exchange, by its name: a line like `sent packets: 7`.
fn counted(output: &Output, line: &str) -> Vec<(String, u64)> {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut exchange = String::new();
    let mut counts = Vec::new();
    for it in said.lines() {
        if let Some(name) = it.strip_prefix("***Statistics for: ") {
            exchange = name.trim_end_matches('*').to_owned();
        } else if let Some((name, count)) = it.split_once(": ")
            && name == line
        {
            counts.push((exchange.clone(), count.parse().unwrap()));
        }
    }
    counts
}

/// A rack of 10.9.0.0/16 with many dynamic addresses, and a relay at 10.9.0.9.
async fn start_wide(dir: &Path) -> (Daemon, Host) {
    make_switch(&["10.9.0.1/16"]);
    let mut all = subnet("s1", "10.9.0", ("100", "101"));
    all.cidr = "10.9.0.0/16".into();
    (all.dynamic[0].start, all.dynamic[0].end) = ("10.9.1.0".into(), "10.9.200.255".into());
    all.reservations =
        vec![Reservation { mac: KNOWN.into(), address: "10.9.0.77".into(), ..Reservation::default() }];
    let rack = start(dir, vec![all]).await;
    let relay = Host::plug("relay", "52:54:00:00:00:09");
    relay.run(&["ip", "address", "add", "10.9.0.9/16", "dev", "eth0"]);
    (rack, relay)
}

/// The number of addresses in a lease file.
fn leases_on_disk(file: &Path) -> usize {
    let file = std::fs::read_to_string(file).unwrap();
    let addresses: HashSet<&str> =
        file.lines().filter_map(|line| line.split("\"address\":\"").nth(1)?.split('"').next()).collect();
    addresses.len()
}

/// Checks in perfdhcp's output that every client got its own address.
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
    if !is_inside("perfdhcp::an_avalanche_of_clients_is_served_to_the_last_one") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (rack, relay) = start_wide(dir.path()).await;

    // perfdhcp as the relay of these clients.
    let output = avalanche(&relay, &["-4", "-l", "10.9.0.9", "10.9.0.1"]).await;
    all_are_served(&output);
    assert_eq!(leases_on_disk(&dir.path().join("data/leases")), CLIENTS, "each of them is durable");
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_avalanche_of_clients_is_served_over_ipv6_too() {
    peer("perfdhcp");
    if !is_inside("perfdhcp::an_avalanche_of_clients_is_served_over_ipv6_too") {
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
    let output = avalanche(&clients, &["-6", "-l", "eth0", "all"]).await;
    all_are_served(&output);
    assert_eq!(leases_on_disk(&dir.path().join("data/leases6")), CLIENTS, "each of them is durable");
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_come_renew_and_go_are_answered() {
    peer("perfdhcp");
    if !is_inside("perfdhcp::clients_that_come_renew_and_go_are_answered") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (rack, relay) = start_wide(dir.path()).await;
    // Each second 200 clients come, 80 renew, and 80 go. Then perfdhcp waits eight seconds for answers.
    let mix = ["-r", "200", "-f", "80", "-F", "80", "-R", "5000", "-p", "8", "-d", "10", "-W", "8000000"];
    let output = perfdhcp(&relay, &[&["-4", "-l", "10.9.0.9"], &mix[..], &["10.9.0.1"]].concat()).await;
    let (sent, drops) = (counted(&output, "sent packets"), counted(&output, "drops"));
    println!("sent {sent:?}, dropped {drops:?}");
    let names: Vec<&str> = sent.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["DISCOVER-OFFER", "REQUEST-ACK", "REQUEST-ACK (renewal)", "RELEASE"]);
    assert!(sent.iter().all(|(_, sent)| *sent > 100), "{sent:?}");
    for ((exchange, drops), (_, sent)) in drops[..3].iter().zip(&sent) {
        // perfdhcp asks once, and may lose answers itself on a busy host.
        assert!(drops * 100 <= *sent, "{exchange}: {}", String::from_utf8_lossy(&output.stdout));
    }
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_a_hundred_thousand_strangers_takes_no_more_memory_and_keeps_nobody_out() {
    peer("perfdhcp");
    if !is_inside(
        "perfdhcp::a_flood_of_a_hundred_thousand_strangers_takes_no_more_memory_and_keeps_nobody_out",
    ) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (rack, flood) = start_wide(dir.path()).await;
    let known = Host::plug("known", KNOWN);
    let (before, _) = memory();
    let count = STRANGERS.to_string();
    // None of them goes on after the offer.
    let output =
        perfdhcp(&flood, &["-4", "-l", "eth0", "-i", "-B", "-R", &count, "-n", &count, "-r", "10000"]).await;
    let (_, most) = memory();
    let (sent, received) = (counted(&output, "sent packets"), counted(&output, "received packets"));
    println!("sent {sent:?}, received {received:?}, {before} MiB before, {most} MiB at most");
    assert!(sent[0].1 >= STRANGERS, "{sent:?}");
    assert!(received[0].1 > 1_000, "they were heard: {received:?}");
    assert!(most - before < BOUND, "{before} MiB before, {most} MiB at most");

    let client = Client::new(&known);
    assert!(client.udhcpc(&[]).await);
    assert_eq!(client.knew("bound")["ip"], "10.9.0.77");
    rack.stop().await;
}
