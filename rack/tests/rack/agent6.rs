//! The agent gets an IPv6 address, on a switch in network namespaces: with and without the rack's DHCPv6, with another
//! router, with another DHCPv6 server, or with the rack alone.

use std::net::Ipv6Addr;
use std::path::Path;
use std::process::Command;

use basalt_agent::dhcp6::port::{self, Files};
use basalt_agent::lease::{self, Needs};
use basalt_agent::network::NetworkError;
use basalt_proto::rack_v1::{AddressRange, Dhcp6Subnet, Fact, LeaseFact, fact::Body};

use super::dnsmasq::dnsmasq;
use super::firmware6::router;
use super::namespace::{Host, Running, is_inside, make_switch, peer};
use super::peers;
use super::peers6::{KNOWN, PATIENCE, lease as leased, start, start_with, subnet};
use super::support::fact_in_time;

const RACK: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// The address that the kernel makes from the prefix and [`KNOWN`].
const MADE: &str = "2001:db8::5054:ff:fe00:a/64";

/// The machine that the agent runs on.
struct Machine {
    host: Host,
    files: Files,
}

impl Machine {
    fn plug(dir: &Path) -> Self {
        let files = Files { lease: dir.join("lease6.json"), resolv: dir.join("resolv.conf") };
        Self { host: Host::plug("machine", KNOWN), files }
    }

    /// The agent's work in the initrd.
    fn obtain(&self) -> Result<(), NetworkError> {
        self.host.within(|| lease::obtain("eth0", KNOWN, Needs::V6(RACK), &self.files))
    }

    /// Its addresses that are not link-local.
    fn addresses(&self) -> Vec<String> {
        let shown = self.host.run(&["ip", "-6", "-o", "address", "show", "dev", "eth0", "scope", "global"]);
        let shown = String::from_utf8(shown.stdout).unwrap();
        let mut addresses: Vec<String> =
            shown.lines().filter_map(|line| line.split_whitespace().nth(3)).map(str::to_owned).collect();
        addresses.sort();
        addresses
    }

    /// The rack answers a ping, with the network as it is.
    fn reaches_the_rack(&self) {
        self.host.run(&["busybox", "ping", "-6", "-c", "1", "-w", "20", &RACK.to_string()]);
    }

    fn resolv(&self) -> String {
        std::fs::read_to_string(&self.files.resolv).unwrap_or_default()
    }
}

/// A router that announces the prefix with these options; its announcement has been received.
fn announcing(dir: &Path, further: &[&str]) -> (Host, Running) {
    let host = Host::plug("router", "52:54:00:00:00:09");
    host.run(&["ip", "address", "add", "2001:db8::9/64", "dev", "eth0", "nodad"]);
    let dnsmasq = dnsmasq(dir, &host, &[&["--enable-ra"], further].concat());
    let heard = "until ip -6 route show default dev rack0 | grep -q via; do sleep 0.05; done";
    let status = Command::new("timeout").args(["30", "sh", "-c", heard]).status().unwrap();
    assert!(status.success(), "no router was heard: {status}");
    (host, dnsmasq)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_has_the_address_that_the_rack_reserves_and_renews_it() {
    peer("dnsmasq");
    if !is_inside("agent6::the_agent_has_the_address_that_the_rack_reserves_and_renews_it") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let rack = start(dir.path()).await;
    let _router = router(dir.path());
    let machine = Machine::plug(dir.path());
    machine.obtain().unwrap();
    assert_eq!(machine.addresses(), ["2001:db8::10/128"]);
    assert_eq!(machine.resolv(), "search lab.example\nnameserver 2001:db8::53\n");
    let (mac, granted) = leased(&rack, |it| it.address == "2001:db8::10").await;
    assert_eq!(mac, KNOWN);
    machine.reaches_the_rack();
    // As in the ephemeral root, which has its own files. The lease is renewed at half of its time.
    std::fs::remove_file(&machine.files.resolv).unwrap();
    machine.host.within(|| port::keep("eth0", lease::octets(KNOWN).unwrap(), machine.files.clone()));
    assert_eq!(machine.resolv(), "search lab.example\nnameserver 2001:db8::53\n");
    let is_longer = |it: &LeaseFact| it.expires_unix_ms >= granted.expires_unix_ms + 20_000 && !it.released;
    let renewed = |fact: &Fact| matches!(&fact.body, Some(Body::Lease(it)) if is_longer(it));
    let told = tokio::time::timeout(PATIENCE, fact_in_time(&rack.facts, renewed)).await;
    told.expect("the lease is not renewed");
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_keeps_to_its_lease_where_a_router_lets_it_make_addresses_too() {
    peer("dnsmasq");
    if !is_inside("agent6::the_agent_keeps_to_its_lease_where_a_router_lets_it_make_addresses_too") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let rack = start(dir.path()).await;
    let _router =
        announcing(dir.path(), &["--dhcp-range=2001:db8::,static,slaac,64", "--dhcp-ignore=tag:!known"]);
    let machine = Machine::plug(dir.path());
    machine.obtain().unwrap();
    assert_eq!(machine.addresses(), ["2001:db8::10/128"], "by another address the rack does not know it");
    machine.reaches_the_rack();
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_makes_its_address_where_routers_say_no_more() {
    peer("dnsmasq");
    if !is_inside("agent6::the_agent_makes_its_address_where_routers_say_no_more") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let rack = start(dir.path()).await;
    let _router = announcing(dir.path(), &["--dhcp-range=2001:db8::,ra-only,64"]);
    let machine = Machine::plug(dir.path());
    machine.obtain().unwrap();
    assert_eq!(machine.addresses(), [MADE]);
    machine.reaches_the_rack();
    let is_lease = |fact: &Fact| matches!(fact.body, Some(Body::Lease(_)));
    assert!(!rack.facts.read(1).await.unwrap().iter().any(is_lease), "nobody asked for one");
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_router_the_agent_leases_and_finds_the_rack_on_the_link() {
    if !is_inside("agent6::without_a_router_the_agent_leases_and_finds_the_rack_on_the_link") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let rack = start(dir.path()).await;
    let machine = Machine::plug(dir.path());
    machine.obtain().unwrap();
    assert_eq!(machine.addresses(), ["2001:db8::10/128"]);
    machine.reaches_the_rack();
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_another_host_has_is_declined() {
    if !is_inside("agent6::an_address_that_another_host_has_is_declined") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dynamic = vec![AddressRange { start: "2001:db8::100".into(), end: "2001:db8::103".into() }];
    let subnet = Dhcp6Subnet { reservations: Vec::new(), dynamic, ..subnet() };
    let rack = start_with(dir.path(), subnet).await;
    let squatter = Host::plug("squatter", "52:54:00:00:00:09");
    for last in ["100", "101", "102"] {
        squatter.run(&["ip", "address", "add", &format!("2001:db8::{last}/64"), "dev", "eth0", "nodad"]);
    }
    let machine = Machine::plug(dir.path());
    machine.obtain().unwrap();
    assert_eq!(machine.addresses(), ["2001:db8::103/128"], "the one that nobody has");
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_rack_has_ipv4_the_agent_waits_for_no_ipv6() {
    if !is_inside("agent6::where_the_rack_has_ipv4_the_agent_waits_for_no_ipv6") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24"]);
    let rack = peers::start(dir.path(), vec![peers::subnet("s1", "10.9.0", ("100", "101"))]).await;
    let machine = Machine::plug(dir.path());
    let needs = Needs::of("https://10.9.0.1:5248");
    machine.host.within(|| lease::obtain("eth0", KNOWN, needs, &machine.files)).unwrap();
    leased(&rack, |it| it.address.starts_with("10.9.0.10")).await;
    assert_eq!(machine.addresses(), [""; 0]);
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_leases_from_dnsmasq() {
    peer("dnsmasq");
    if !is_inside("agent6::the_agent_leases_from_dnsmasq") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["2001:db8::1/64"]);
    let range = "--dhcp-range=2001:db8::200,2001:db8::2ff,64,2m";
    let dns = "--dhcp-option=option6:dns-server,[2001:db8::53],[2001:db8::54]";
    let search = "--dhcp-option=option6:domain-search,lab.example,example";
    let (host, dnsmasq) = announcing(dir.path(), &[range, dns, search]);
    let machine = Machine::plug(dir.path());
    machine.obtain().unwrap();
    let addresses = machine.addresses();
    assert!(matches!(addresses.as_slice(), [one] if one.starts_with("2001:db8::2")), "{addresses:?}");
    assert_eq!(
        machine.resolv(),
        "search lab.example example\nnameserver 2001:db8::53\nnameserver 2001:db8::54\n"
    );
    let leases = std::fs::read_to_string(dir.path().join("dnsmasq.leases")).unwrap();
    let address = addresses[0].strip_suffix("/128").unwrap();
    assert!(leases.contains(address), "{leases}");
    drop((host, dnsmasq));
}
