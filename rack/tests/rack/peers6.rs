//! A rack's DHCPv6 with other projects' clients, on a switch in network namespaces: ISC dhclient, dhcpcd and
//! systemd-networkd.

use std::collections::HashMap;
use std::fs::File;
use std::net::{SocketAddrV6, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use basalt_proto::rack_v1::{
    AddressRange, Dhcp6Reservation, Dhcp6Subnet, DhcpConcern, Fact, LeaseFact, fact::Body,
};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Settings;

use super::namespace::{Host, Running, hide, is_inside, make_switch, mount, peer};
use super::support::{fact, settings};

/// Longer than any client here takes for a step: a renewal comes after half a minute.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// A host with a reservation.
pub(super) const KNOWN: &str = "52:54:00:00:00:0a";
/// A host without a reservation.
const OTHER: &str = "52:54:00:00:00:01";

/// Writes the client's variables to a file named by the reason of the call, atomically, and configures only the
/// necessary parts of the interface.
const SCRIPT: &str = r#"#!/bin/sh
cd "$(dirname "$0")" && env > "new-$reason" && mv "new-$reason" "$reason"
case $reason in
BOUND6|REBIND6|RENEW6) ip -6 address replace "$new_ip6_address/128" dev "$interface" nodad ;;
esac
"#;
const DHCPCD: &str = "duid ll\nnoipv6rs\nia_na 1\noption dhcp6_name_servers\n";
/// A line of networkd's log.
const RENEWING: &str = "DHCPv6 client: Timeout T1";
const NETWORKD: &str =
    "[Match]\nName=eth0\n[Network]\nDHCP=ipv6\nIPv6AcceptRA=no\n[DHCPv6]\nWithoutRA=solicit\n";

pub(super) fn subnet() -> Dhcp6Subnet {
    Dhcp6Subnet {
        subnet_uid: "s6".into(),
        cidr: "2001:db8::/64".into(),
        dns_servers: vec!["2001:db8::53".into()],
        ntp_servers: vec!["2001:db8::123".into()],
        search: vec!["lab.example".into()],
        dynamic: vec![AddressRange { start: "2001:db8::100".into(), end: "2001:db8::100".into() }],
        reservations: vec![Dhcp6Reservation {
            mac: KNOWN.into(),
            address: "2001:db8::10".into(),
            ..Dhcp6Reservation::default()
        }],
        lease_seconds: 60,
        ..Dhcp6Subnet::default()
    }
}

/// A rack at 2001:db8::1 on the switch.
pub(super) async fn start(dir: &Path) -> Daemon {
    start_with(dir, subnet()).await
}

pub(super) async fn start_with(dir: &Path, subnet: Dhcp6Subnet) -> Daemon {
    // No other host can have these addresses, so switch off duplicate address detection, which takes time.
    for at in ["default", "all"] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{at}/accept_dad"), "0").unwrap();
    }
    make_switch(&["2001:db8::1/64"]);
    let settings = Settings {
        interfaces: vec!["rack0".into()],
        tftp_port: 69,
        router_advertisements: false,
        ..settings(dir)
    };
    let concern = DhcpConcern { subnets6: vec![subnet], serve_unknown: true, ..DhcpConcern::default() };
    write_concern(&settings.data_dir, &version(Concern::Dhcp, 1, "local", &concern)).unwrap();
    let rack = Daemon::start(settings).await.unwrap();
    let up =
        |fact: &Fact| matches!(&fact.body, Some(Body::Health(it)) if it.ok && it.service == "dhcp6 rack0");
    fact(&rack.facts, up).await;
    rack
}

/// Waits until a lease with this property is reported. Returns its MAC and the fact.
pub(super) async fn lease(rack: &Daemon, wanted: impl Fn(&LeaseFact) -> bool) -> (String, LeaseFact) {
    let told =
        fact(&rack.facts, |fact| matches!(&fact.body, Some(Body::Lease(lease)) if wanted(lease))).await;
    let Some(Body::Lease(lease)) = told.body else { unreachable!("it was asked for") };
    (told.mac, lease)
}

/// The files of one client, on a host with a usable link-local address.
struct Client<'a> {
    host: &'a Host,
    dir: tempfile::TempDir,
}

impl<'a> Client<'a> {
    fn new(host: &'a Host) -> Self {
        let settled =
            "until ip -6 address show dev eth0 scope link -tentative | grep -q fe80; do sleep 0.05; done";
        host.run(&["timeout", "30", "sh", "-c", settled]);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("script"), SCRIPT).unwrap();
        std::fs::set_permissions(dir.path().join("script"), PermissionsExt::from_mode(0o755)).unwrap();
        Self { host, dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_string_lossy().into_owned()
    }

    /// Runs ISC dhclient to its end in another thread, since it waits for the rack.
    async fn dhclient(&self, further: &[&str]) {
        // AppArmor confines dhclient by its path to files in other places than these.
        let own = self.dir.path().join("client");
        if !own.exists() {
            let installed = ["/sbin/dhclient", "/usr/sbin/dhclient"].map(PathBuf::from);
            let installed = installed.into_iter().find(|it| it.exists());
            std::fs::copy(installed.expect("dhclient: see tests/lab/setup"), &own).unwrap();
        }
        let [client, script, leases, pid] = ["client", "script", "leases", "pid"].map(|name| self.path(name));
        let command = [&*client, "-6", "-1", "-v", "-sf", &script, "-lf", &leases, "-pf", &pid];
        let mut command = self.host.command(&[&command, further, &["eth0"]].concat());
        let ended = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }

    /// The client's variables when it called its script with this reason, once.
    async fn knew(&self, reason: &str) -> HashMap<String, String> {
        let file = self.dir.path().join(reason);
        let called = async {
            while !file.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, called).await.unwrap_or_else(|_| panic!("never {reason}"));
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(file).unwrap();
        text.lines()
            .filter_map(|line| line.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    }
}

fn told(knew: &HashMap<String, String>, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(knew.get(*name).map(String::as_str), Some(*value), "{name} of {knew:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dhclient_is_told_everything_comes_back_and_gives_it_back() {
    if !is_inside("peers6::dhclient_is_told_everything_comes_back_and_gives_it_back") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let rack = start(dir.path()).await;
    let (known, other) = (Host::plug("known", KNOWN), Host::plug("other", OTHER));
    let client = Client::new(&known);
    client.dhclient(&[]).await;
    let knew = client.knew("BOUND6").await;
    let expected = [
        ("new_ip6_address", "2001:db8::10"),
        ("new_dhcp6_name_servers", "2001:db8::53"),
        ("new_dhcp6_domain_search", "lab.example."),
        ("new_max_life", "60"),
        ("new_preferred_life", "60"),
    ];
    told(&knew, &expected);
    let (mac, granted) = lease(&rack, |it| it.address == "2001:db8::10" && !it.released).await;
    assert_eq!((mac.as_str(), granted.subnet_uid.as_str()), (KNOWN, "s6"));
    let stranger = Client::new(&other);
    stranger.dhclient(&[]).await;
    told(&stranger.knew("BOUND6").await, &[("new_ip6_address", "2001:db8::100")]);
    // It renews by itself at half of the lease time.
    client.knew("RENEW6").await;
    lease(&rack, |it| it.expires_unix_ms >= granted.expires_unix_ms + 20_000 && !it.released).await;
    // It was away, and asks if it is still on the link of its address (CONFIRM).
    client.dhclient(&["-x"]).await;
    client.dhclient(&[]).await;
    told(&client.knew("BOUND6").await, &[("new_ip6_address", "2001:db8::10")]);
    for (client, address) in [(&client, "2001:db8::10"), (&stranger, "2001:db8::100")] {
        client.dhclient(&["-r"]).await;
        lease(&rack, |it| it.address == address && it.released).await;
    }
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dhcpcd_renews_and_gives_its_address_back() {
    let dhcpcd = peer("dhcpcd").join("usr/sbin/dhcpcd").to_string_lossy().into_owned();
    if !is_inside("peers6::dhcpcd_renews_and_gives_its_address_back") {
        return;
    }
    // Hide the directories of its socket and of its stored leases.
    hide(&["/run", "/var/lib"]);
    let dir = tempfile::tempdir().unwrap();
    let rack = start(dir.path()).await;
    let host = Host::plug("known", KNOWN);
    let client = Client::new(&host);
    std::fs::write(client.path("conf"), DHCPCD).unwrap();
    let (conf, script) = (client.path("conf"), client.path("script"));
    let mut command = host.command(&[&dhcpcd, "-6", "-B", "-f", &conf, "-c", &script, "eth0"]);
    let running = Running::start(command.stderr(Stdio::null()));
    let knew = client.knew("BOUND6").await;
    told(&knew, &[("new_dhcp6_ia_na1_ia_addr1", "2001:db8::10"), ("new_dhcp6_name_servers", "2001:db8::53")]);
    let (_, granted) = lease(&rack, |it| it.address == "2001:db8::10" && !it.released).await;
    // It renews by itself at half of the lease time.
    client.knew("RENEW6").await;
    lease(&rack, |it| it.expires_unix_ms >= granted.expires_unix_ms + 20_000 && !it.released).await;
    running.signal("ALRM");
    lease(&rack, |it| it.address == "2001:db8::10" && it.released).await;
    drop(running);
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn networkd_renews_its_address() {
    if !is_inside("peers6::networkd_renews_its_address") {
        return;
    }
    // Hide its configuration. With a read-only sysfs it assumes that there is no udev and does not wait for it.
    hide(&["/run", "/sys"]);
    mount(&["-o", "remount,ro", "/sys"]);
    std::fs::create_dir_all("/run/systemd/network").unwrap();
    std::fs::write("/run/systemd/network/eth0.network", NETWORKD).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let rack = start(dir.path()).await;
    let host = Host::plug("known", KNOWN);
    let mut command = host.command(&["/lib/systemd/systemd-networkd"]);
    command.env("SYSTEMD_LOG_LEVEL", "debug").env("SYSTEMD_LOG_TARGET", "console");
    let log = dir.path().join("networkd.log");
    let running = Running::start(command.stderr(File::create(&log).unwrap()));
    let (mac, granted) = lease(&rack, |it| it.address == "2001:db8::10" && !it.released).await;
    assert_eq!(mac, KNOWN, "its DUID is of the machine's id; its source address says it");
    // It renews by itself at half of the lease time.
    let said = || std::fs::read_to_string(&log).unwrap();
    let renewing = async {
        while !said().contains(RENEWING) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, renewing).await.unwrap_or_else(|_| panic!("never renewed: {}", said()));
    lease(&rack, |it| it.expires_unix_ms >= granted.expires_unix_ms + 20_000 && !it.released).await;
    drop(running);
    rack.stop().await;
}

/// A host that hides its hardware address: neither its link-local address nor its DUID, made of a UUID, contains it.
fn hidden<'a>(host: &'a Host, uuid: u8) -> Client<'a> {
    let client = Client::new(host);
    host.run(&["ip", "-6", "address", "flush", "dev", "eth0", "scope", "link"]);
    host.run(&["ip", "-6", "address", "add", &format!("fe80::{uuid:x}/64"), "dev", "eth0", "nodad"]);
    let duid = format!("default-duid \"\\000\\004{}\";\n", format!("\\{uuid:03o}").repeat(16));
    std::fs::write(client.path("leases"), duid).unwrap();
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn dhclient_that_hides_its_hardware_address_gets_what_is_reserved_for_its_duid() {
    if !is_inside("peers6::dhclient_that_hides_its_hardware_address_gets_what_is_reserved_for_its_duid") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut reserved = subnet();
    reserved.reservations.push(Dhcp6Reservation {
        duid: format!("00:04{}", ":0a".repeat(16)),
        address: "2001:db8::20".into(),
        ..Dhcp6Reservation::default()
    });
    let rack = start_with(dir.path(), reserved).await;
    // The hardware address of the first host has a reservation by MAC.
    let (own, other) = (Host::plug("own", KNOWN), Host::plug("other", OTHER));
    let clients = [(hidden(&own, 0xa), "2001:db8::20"), (hidden(&other, 0xb), "2001:db8::100")];
    for (client, address) in &clients {
        client.dhclient(&[]).await;
        told(&client.knew("BOUND6").await, &[("new_ip6_address", address)]);
        let (mac, _) = lease(&rack, |it| it.address == *address && !it.released).await;
        assert_eq!(mac, "", "nobody heard it");
    }
    for (client, address) in &clients {
        // They renew by themselves at half of the lease time.
        client.knew("RENEW6").await;
        client.dhclient(&["-r"]).await;
        lease(&rack, |it| it.address == *address && it.released).await;
    }
    rack.stop().await;
}

/// Sends a SOLICIT for one address.
fn solicit(host: &Host, duid: &[u8]) {
    let mut message = vec![1, 1, 2, 3, 0, 1, 0, u8::try_from(duid.len()).unwrap()];
    message.extend(duid);
    message.extend([0, 3, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    host.within(|| {
        let index = nix::net::if_::if_nametoindex("eth0").unwrap();
        let socket = UdpSocket::bind("[::]:546").unwrap();
        socket.send_to(&message, SocketAddrV6::new("ff02::1:2".parse().unwrap(), 547, 0, index)).unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_says_that_clients_have_all_of_a_range() {
    if !is_inside("peers6::a_rack_says_that_clients_have_all_of_a_range") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let rack = start(dir.path()).await;
    let (first, second) = (Host::plug("first", OTHER), Host::plug("second", "52:54:00:00:00:02"));
    Client::new(&first).dhclient(&[]).await;
    let settled = Client::new(&second);
    solicit(settled.host, &[0, 4, 7]);
    let short = |fact: &Fact| matches!(&fact.body, Some(Body::Health(it)) if !it.ok && it.service == "addresses 2001:db8::/64");
    let Some(Body::Health(said)) = fact(&rack.facts, short).await.body else {
        unreachable!("it was asked for")
    };
    assert_eq!(
        said.message,
        "no address of 2001:db8::/64 is free: of 1 in 2001:db8::100-2001:db8::100, 1 leased; widen the dynamic IpRanges of the Subnet, or \
         shorten lease_time of its Vlan"
    );
    rack.stop().await;
}
