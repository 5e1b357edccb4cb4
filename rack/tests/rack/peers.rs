//! A rack's DHCP with other projects' clients, on a switch in network namespaces: busybox udhcpc, ISC dhclient, dhcpcd
//! and systemd-networkd.

use std::collections::HashMap;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use basalt_proto::rack_v1::{
    AddressRange, DhcpConcern, DhcpSubnet, Fact, LeaseFact, RawOption, Reservation, Route, fact::Body,
};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Settings;

use super::namespace::{Host, Running, hide, ip, is_inside, make_switch, mount, peer};
use super::support::{fact, settings};

/// Longer than any client here takes for a step: a renewal comes after half a minute.
const PATIENCE: Duration = Duration::from_secs(60);
/// A host with a reservation.
pub(super) const KNOWN: &str = "52:54:00:00:00:0a";
/// Hosts without a reservation.
const OTHERS: [&str; 4] =
    ["52:54:00:00:00:01", "52:54:00:00:00:02", "52:54:00:00:00:03", "52:54:00:00:00:04"];

const NETWORKD: &str = "[Match]\nName=eth0\n[Network]\nDHCP=ipv4\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n";

/// Writes the client's variables to a file named by the reason of the call, atomically, and configures only the
/// necessary parts of the interface.
const UDHCPC_SCRIPT: &str = r#"#!/bin/sh
cd "$(dirname "$0")" && env > "new-$1" && mv "new-$1" "$1"
[ "$1" != bound ] || ip address replace "$ip/$mask" dev "$interface"
"#;
const DHCPCD_SCRIPT: &str = r#"#!/bin/sh
cd "$(dirname "$0")" && env > "new-$reason" && mv "new-$reason" "$reason"
"#;
const DHCLIENT_SCRIPT: &str = r#"#!/bin/sh
cd "$(dirname "$0")" && env > "new-$reason" && mv "new-$reason" "$reason"
case $reason in
BOUND|REBOOT) ip address replace "$new_ip_address/24" dev "$interface" ;;
esac
"#;

pub(super) fn subnet(uid: &str, network: &str, dynamic: (&str, &str)) -> DhcpSubnet {
    DhcpSubnet {
        subnet_uid: uid.into(),
        cidr: format!("{network}.0/24"),
        gateway: format!("{network}.1"),
        dns_servers: vec![format!("{network}.2"), format!("{network}.3")],
        ntp_servers: vec![format!("{network}.4")],
        dynamic: vec![AddressRange {
            start: format!("{network}.{}", dynamic.0),
            end: format!("{network}.{}", dynamic.1),
        }],
        lease_seconds: 300,
        mtu: 1400,
        domain: "lab.example".into(),
        ..DhcpSubnet::default()
    }
}

/// A rack at 10.9.0.1 on the switch.
pub(super) async fn start(dir: &Path, subnets: Vec<DhcpSubnet>) -> Daemon {
    start_with(on_switch(dir), subnets).await
}

/// The settings of a rack at 10.9.0.1 on the switch.
pub(super) fn on_switch(dir: &Path) -> Settings {
    Settings {
        interfaces: vec!["rack0".into()],
        dhcp_port: 67,
        dhcp_client_port: 68,
        tftp_port: 69,
        router_advertisements: false,
        ..settings(dir)
    }
}

pub(super) async fn start_with(settings: Settings, subnets: Vec<DhcpSubnet>) -> Daemon {
    let concern = DhcpConcern { subnets, serve_unknown: true, ..DhcpConcern::default() };
    write_concern(&settings.data_dir, &version(Concern::Dhcp, 1, "local", &concern)).unwrap();
    let rack = Daemon::start(settings).await.unwrap();
    let up =
        |fact: &Fact| matches!(&fact.body, Some(Body::Health(it)) if it.ok && it.service == "dhcp rack0");
    fact(&rack.facts, up).await;
    rack
}

/// Leases with the shortest time; clients renew them after half a minute.
fn shortest_leases() -> DhcpSubnet {
    DhcpSubnet { lease_seconds: 60, ..subnet("s1", "10.9.0", ("100", "101")) }
}

/// The last reported lease.
async fn last_lease(rack: &Daemon) -> LeaseFact {
    let mut last = None;
    let mut next = 1;
    loop {
        let facts = rack.facts.read(next).await.unwrap();
        let Some(newest) = facts.last() else { return last.expect("no lease was told of") };
        next = newest.seq + 1;
        let mut leases = facts.into_iter().filter_map(|fact| match fact.body {
            Some(Body::Lease(lease)) => Some(lease),
            _ => None,
        });
        last = leases.next_back().or(last);
    }
}

/// Waits until a lease with this property is reported.
async fn lease(rack: &Daemon, wanted: impl Fn(&LeaseFact) -> bool) -> LeaseFact {
    let told =
        fact(&rack.facts, |fact| matches!(&fact.body, Some(Body::Lease(lease)) if wanted(lease))).await;
    let Some(Body::Lease(lease)) = told.body else { unreachable!("it was asked for") };
    lease
}

/// The files of one client.
pub(super) struct Client<'a> {
    host: &'a Host,
    dir: tempfile::TempDir,
}

impl<'a> Client<'a> {
    pub(super) fn new(host: &'a Host) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, script) in
            [("udhcpc", UDHCPC_SCRIPT), ("dhclient", DHCLIENT_SCRIPT), ("dhcpcd", DHCPCD_SCRIPT)]
        {
            std::fs::write(dir.path().join(name), script).unwrap();
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(dir.path().join(name), executable).unwrap();
        }
        // AppArmor confines dhclient by its path to files in other places than these.
        let dhclient =
            ["/sbin/dhclient", "/usr/sbin/dhclient"].map(PathBuf::from).into_iter().find(|it| it.exists());
        std::fs::copy(dhclient.expect("dhclient: see tests/lab/setup"), dir.path().join("client")).unwrap();
        Self { host, dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_string_lossy().into_owned()
    }

    /// Runs the client to its end in another thread, since it waits for the rack. True if it succeeded.
    async fn run(&self, command: Vec<String>) -> bool {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let mut command = self.host.command(&command);
        tokio::task::spawn_blocking(move || command.status().unwrap().success()).await.unwrap()
    }

    pub(super) async fn udhcpc(&self, further: &[&str]) -> bool {
        let script = self.path("udhcpc");
        let command = ["udhcpc", "-i", "eth0", "-f", "-n", "-q", "-t", "10", "-T", "1", "-s", &script];
        self.run([&command, further].concat().into_iter().map(str::to_owned).collect()).await
    }

    pub(super) async fn dhclient(&self, further: &[&str]) -> bool {
        let [client, script, leases, pid] =
            ["client", "dhclient", "leases", "pid"].map(|name| self.path(name));
        let command = [&*client, "-4", "-1", "-v", "-sf", &script, "-lf", &leases, "-pf", &pid];
        self.run([&command, further, &["eth0"]].concat().into_iter().map(str::to_owned).collect()).await
    }

    /// Waits until the client has called its script with this reason.
    async fn wait_for(&self, reason: &str) {
        let called = async {
            while !self.dir.path().join(reason).exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, called).await.unwrap_or_else(|_| panic!("never {reason}"));
    }

    /// The client's variables when it called its script with this reason, once.
    pub(super) fn knew(&self, reason: &str) -> HashMap<String, String> {
        let file = self.dir.path().join(reason);
        let text = std::fs::read_to_string(&file).unwrap_or_else(|_| panic!("never {reason}"));
        std::fs::remove_file(file).unwrap();
        text.lines()
            .filter_map(|line| line.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn udhcpc_is_told_everything_and_hears_it_by_unicast() {
    if !is_inside("peers::udhcpc_is_told_everything_and_hears_it_by_unicast") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24"]);
    let mut subnet = subnet("s1", "10.9.0", ("100", "101"));
    let hostname = "node-10".to_owned();
    subnet.reservations.push(Reservation { mac: KNOWN.into(), address: "10.9.0.10".into(), hostname });
    subnet.search = vec!["lab.example".into(), "hall.lab.example".into()];
    subnet.routes = vec![Route { to: "172.16.0.0/12".into(), via: "10.9.0.7".into() }];
    subnet.options = vec![RawOption { code: 150, value: vec![10, 9, 0, 8] }];
    let rack = start(dir.path(), vec![subnet]).await;

    let host = Host::plug("known", KNOWN);
    host.hear_broadcasts(false);
    let client = Client::new(&host);
    let all = ["mtu", "ntpsrv", "hostname", "domain", "broadcast", "search", "staticroutes", "150"];
    let all: Vec<&str> = all.into_iter().flat_map(|option| ["-O", option]).collect();
    assert!(client.udhcpc(&all).await, "the reply was a frame to a host that answers no ARP yet");
    let knew = client.knew("bound");
    let told = [
        ("ip", "10.9.0.10"),
        ("mask", "24"),
        ("subnet", "255.255.255.0"),
        ("broadcast", "10.9.0.255"),
        ("router", "10.9.0.1"),
        ("dns", "10.9.0.2 10.9.0.3"),
        ("ntpsrv", "10.9.0.4"),
        ("mtu", "1400"),
        ("hostname", "node-10"),
        ("domain", "lab.example"),
        ("search", "lab.example hall.lab.example"),
        ("staticroutes", "172.16.0.0/12 10.9.0.7 0.0.0.0/0 10.9.0.1"),
        ("opt150", "0a090008"),
        ("lease", "300"),
        ("serverid", "10.9.0.1"),
    ];
    for (name, value) in told {
        assert_eq!(knew.get(name).map(String::as_str), Some(value), "{name} of {knew:?}");
    }
    lease(&rack, |it| it.address == "10.9.0.10" && !it.released).await;
    // A client that asks for broadcasts gets them, so it receives nothing here.
    assert!(!client.udhcpc(&["-B", "-t", "2"]).await);
    host.hear_broadcasts(true);
    assert!(client.udhcpc(&["-B"]).await);
    client.knew("bound");

    // On a signal it renews, by unicast to the rack, and releases the address.
    let running = host.spawn(&["udhcpc", "-i", "eth0", "-f", "-s", &client.path("udhcpc")]);
    client.wait_for("bound").await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    running.signal("USR1");
    lease(&rack, |it| it.expires_unix_ms >= now + 300_000 && !it.released).await;
    running.signal("USR2");
    lease(&rack, |it| it.address == "10.9.0.10" && it.released).await;
    drop(running);
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn udhcpc_is_not_offered_an_address_that_another_host_took() {
    if !is_inside("peers::udhcpc_is_not_offered_an_address_that_another_host_took") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24"]);
    let squatter = Host::plug("squatter", OTHERS[3]);
    squatter.run(&["ip", "address", "add", "10.9.0.100/24", "dev", "eth0"]);
    let rack = start(dir.path(), vec![subnet("s1", "10.9.0", ("100", "101"))]).await;

    let host = Host::plug("a", OTHERS[0]);
    let client = Client::new(&host);
    assert!(client.udhcpc(&[]).await);
    assert_eq!(client.knew("bound")["ip"], "10.9.0.101");
    let told = fact(&rack.facts, |fact| matches!(&fact.body, Some(Body::Alarm(_)))).await;
    let Some(Body::Alarm(alarm)) = &told.body else { unreachable!("it was asked for") };
    assert_eq!((alarm.code.as_str(), told.mac.as_str()), ("address_conflict", OTHERS[0]));
    let message = format!(
        "10.9.0.100 was to be offered to {} and is in use by {}, which has no lease",
        OTHERS[0], OTHERS[3]
    );
    assert_eq!(alarm.message, message);
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn udhcpc_is_offered_an_address_beside_a_host_that_answers_for_all_of_them() {
    if !is_inside("peers::udhcpc_is_offered_an_address_beside_a_host_that_answers_for_all_of_them") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24"]);
    let greedy = Host::plug("greedy", OTHERS[3]);
    greedy.run(&["ip", "address", "add", "10.9.0.50/24", "dev", "eth0"]);
    greedy.run(&["ip", "route", "add", "local", "10.9.0.96/27", "dev", "eth0"]);
    let rack = start(dir.path(), vec![subnet("s1", "10.9.0", ("100", "105"))]).await;

    let host = Host::plug("a", OTHERS[0]);
    let client = Client::new(&host);
    assert!(client.udhcpc(&[]).await);
    client.knew("bound");
    let named =
        |fact: &Fact| matches!(&fact.body, Some(Body::Alarm(it)) if it.message.starts_with(OTHERS[3]));
    let told = fact(&rack.facts, named).await;
    assert_eq!(told.mac, OTHERS[3]);
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dhclient_reboots_where_it_was_and_is_called_back_from_elsewhere() {
    if !is_inside("peers::dhclient_reboots_where_it_was_and_is_called_back_from_elsewhere") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24"]);
    let rack = start(dir.path(), vec![subnet("s1", "10.9.0", ("100", "101"))]).await;

    let host = Host::plug("a", OTHERS[0]);
    let client = Client::new(&host);
    let end = ["-x"];
    assert!(client.dhclient(&[]).await);
    assert_eq!(client.knew("BOUND")["new_ip_address"], "10.9.0.100");
    assert!(client.dhclient(&end).await);
    assert!(client.dhclient(&[]).await, "INIT-REBOOT");
    assert_eq!(client.knew("REBOOT")["new_ip_address"], "10.9.0.100");
    assert!(client.dhclient(&["-r"]).await);
    lease(&rack, |it| it.address == "10.9.0.100" && it.released).await;

    // It comes from another network: the rack refuses that address, and the client asks for a new one.
    let leases = std::fs::read_to_string(client.path("leases")).unwrap();
    std::fs::write(client.path("leases"), leases.replace("10.9.0.", "192.168.7.")).unwrap();
    assert!(client.dhclient(&[]).await);
    assert_eq!(client.knew("BOUND")["new_ip_address"], "10.9.0.100");
    assert!(client.dhclient(&end).await);
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_with_two_subnets_serves_both_and_takes_neither_for_foreign() {
    if !is_inside("peers::a_link_with_two_subnets_serves_both_and_takes_neither_for_foreign") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24", "10.10.0.1/24"]);
    let subnets = vec![subnet("s1", "10.9.0", ("100", "101")), subnet("s2", "10.10.0", ("100", "101"))];
    let rack = start(dir.path(), subnets).await;

    let hosts: Vec<Host> =
        OTHERS.iter().enumerate().map(|(at, mac)| Host::plug(&format!("h{at}"), mac)).collect();
    let clients: Vec<Client> = hosts.iter().map(Client::new).collect();
    let mut leased = Vec::new();
    for client in &clients {
        assert!(client.dhclient(&[]).await);
        let knew = client.knew("BOUND");
        let address: Ipv4Addr = knew["new_ip_address"].parse().unwrap();
        let [a, b, c, _] = address.octets();
        let server = Ipv4Addr::new(a, b, c, 1).to_string();
        assert_eq!((&knew["new_dhcp_server_identifier"], &knew["new_routers"]), (&server, &server));
        leased.push(address);
    }
    let expected: [Ipv4Addr; 4] =
        ["10.9.0.100", "10.9.0.101", "10.10.0.100", "10.10.0.101"].map(|it| it.parse().unwrap());
    assert_eq!(leased, expected);
    for (client, address) in clients.iter().zip(leased) {
        assert!(client.dhclient(&["-x"]).await);
        assert!(client.dhclient(&[]).await);
        assert_eq!(client.knew("REBOOT")["new_ip_address"], address.to_string());
        assert!(client.dhclient(&["-x"]).await);
    }
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_with_one_address_serves_the_other_subnet_of_its_link_as_well() {
    if !is_inside("peers::a_rack_with_one_address_serves_the_other_subnet_of_its_link_as_well") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24"]);
    let on_link = |subnet| DhcpSubnet { link: "default.0".into(), ..subnet };
    let reservation =
        Reservation { mac: KNOWN.into(), address: "10.10.0.50".into(), hostname: String::new() };
    let second = DhcpSubnet { reservations: vec![reservation], ..subnet("s2", "10.10.0", ("100", "100")) };
    let subnets = vec![on_link(subnet("s1", "10.9.0", ("100", "100"))), on_link(second)];
    let rack = start(dir.path(), subnets).await;

    let known = Host::plug("known", KNOWN);
    let client = Client::new(&known);
    assert!(client.dhclient(&[]).await);
    let knew = client.knew("BOUND");
    let told = |name: &str| knew[name].as_str();
    assert_eq!((told("new_ip_address"), told("new_routers")), ("10.10.0.50", "10.10.0.1"));
    assert_eq!(told("new_dhcp_server_identifier"), "10.9.0.1");
    assert!(client.dhclient(&["-x"]).await);
    assert!(client.dhclient(&[]).await);
    assert_eq!(client.knew("REBOOT")["new_ip_address"], "10.10.0.50", "and is not called back");
    assert!(client.dhclient(&["-x"]).await);

    let hosts = [Host::plug("h0", OTHERS[0]), Host::plug("h1", OTHERS[1])];
    let mut leased = Vec::new();
    for host in &hosts {
        let client = Client::new(host);
        assert!(client.udhcpc(&[]).await);
        leased.push(client.knew("bound")["ip"].clone());
    }
    assert_eq!(leased, ["10.9.0.100", "10.10.0.100"]);
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dhcpcd_renews_comes_back_to_its_address_and_gives_it_back() {
    let dhcpcd = peer("dhcpcd").join("usr/sbin/dhcpcd").to_string_lossy().into_owned();
    if !is_inside("peers::dhcpcd_renews_comes_back_to_its_address_and_gives_it_back") {
        return;
    }
    // Hide the directories of its socket and of its stored leases.
    hide(&["/run", "/var/lib"]);
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24"]);
    let rack = start(dir.path(), vec![shortest_leases()]).await;
    let host = Host::plug("a", OTHERS[0]);
    let client = Client::new(&host);
    let script = client.path("dhcpcd");
    let mut command =
        host.command(&[&dhcpcd, "-4", "-B", "--noarp", "-f", "/dev/null", "-c", &script, "eth0"]);
    command.stderr(Stdio::null());

    let running = Running::start(&mut command);
    client.wait_for("BOUND").await;
    let knew = client.knew("BOUND");
    let told = [
        ("new_ip_address", "10.9.0.100"),
        ("new_subnet_cidr", "24"),
        ("new_routers", "10.9.0.1"),
        ("new_domain_name_servers", "10.9.0.2 10.9.0.3"),
        ("new_dhcp_lease_time", "60"),
        ("new_dhcp_server_identifier", "10.9.0.1"),
    ];
    for (name, value) in told {
        assert_eq!(knew.get(name).map(String::as_str), Some(value), "{name} of {knew:?}");
    }
    running.signal("HUP");
    client.wait_for("RENEW").await;
    client.knew("RENEW");
    running.signal("TERM");
    client.wait_for("STOPPED").await;
    drop(running);

    let running = Running::start(&mut command);
    client.wait_for("REBOOT").await;
    assert_eq!(client.knew("REBOOT")["new_ip_address"], "10.9.0.100");
    let rebooted = last_lease(&rack).await;
    // It renews by itself at half of the lease time, by unicast to the rack.
    client.wait_for("RENEW").await;
    lease(&rack, |it| it.expires_unix_ms >= rebooted.expires_unix_ms + 20_000 && !it.released).await;
    running.signal("ALRM");
    lease(&rack, |it| it.address == "10.9.0.100" && it.released).await;
    drop(running);
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn networkd_renews_comes_back_to_its_address_and_gives_it_back() {
    if !is_inside("peers::networkd_renews_comes_back_to_its_address_and_gives_it_back") {
        return;
    }
    // Hide its configuration. With a read-only sysfs it assumes that there is no udev and does not wait for it.
    hide(&["/run", "/sys"]);
    mount(&["-o", "remount,ro", "/sys"]);
    std::fs::create_dir_all("/run/systemd/network").unwrap();
    std::fs::write("/run/systemd/network/eth0.network", NETWORKD).unwrap();
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24"]);
    let rack = start(dir.path(), vec![shortest_leases()]).await;
    let host = Host::plug("a", OTHERS[0]);
    let log = dir.path().join("networkd.log");
    let mut command = host.command(&["/lib/systemd/systemd-networkd"]);
    command.env("SYSTEMD_LOG_LEVEL", "debug").env("SYSTEMD_LOG_TARGET", "console");
    let running = Running::start(command.stderr(File::create(&log).unwrap()));
    let says = async |words: &str| {
        let said = || std::fs::read_to_string(&log).unwrap();
        let saying = async {
            while !said().contains(words) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, saying).await.unwrap_or_else(|_| panic!("never {words}: {}", said()));
    };

    says("DHCPv4 address 10.9.0.100/24, gateway 10.9.0.1 acquired from 10.9.0.1").await;
    let first = lease(&rack, |it| it.address == "10.9.0.100" && !it.released).await;
    // It renews by itself at half of the lease time, by unicast to the rack.
    says("REQUEST (renewing)").await;
    lease(&rack, |it| it.expires_unix_ms >= first.expires_unix_ms + 20_000 && !it.released).await;
    ip("link set a0 down");
    says("Lost carrier").await;
    let unplugged = last_lease(&rack).await;
    ip("link set a0 up");
    says("REQUEST (init-reboot)").await;
    lease(&rack, |it| it.address == "10.9.0.100" && it.expires_unix_ms > unplugged.expires_unix_ms).await;
    running.signal("TERM");
    lease(&rack, |it| it.address == "10.9.0.100" && it.released).await;
    drop(running);
    rack.stop().await;
}
