//! Secondaries that copy the rack's zones: BIND, Knot, NSD and PowerDNS.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use basalt_proto::rack_v1::{DnsConcern, DnsRecord, DnsSecondary, DnsZone};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::namespace::{Running, ip, is_inside, peer};
use super::support::settings;

/// The peers check files and clocks at their own intervals; the refresh time is ten minutes.
const PATIENCE: Duration = Duration::from_secs(20);
const SECRET: [u8; 32] = [7; 32];
/// The addresses of BIND, Knot, NSD and PowerDNS.
const PEERS: [&str; 4] = ["127.0.0.11", "127.0.0.12", "127.0.0.13", "127.0.0.15"];

/// The zone in the configuration of each peer.
const ZONE: &str = "lab.example";
/// The catalog zone that BIND and Knot read, and a zone that it names.
const CATALOG: &str = "catalog.basalt.internal";
const MEMBER: &str = "0.77.10.in-addr.arpa";

/// Each record's owner, type and data.
type Records = BTreeSet<(String, String, String)>;

fn zone(origin: &str, serial: u32, records: &Records) -> DnsZone {
    let record = |(owner, rtype, data): &(String, String, String)| DnsRecord {
        owner: owner.clone(),
        rtype: rtype.clone(),
        ttl: 60,
        data: data.clone(),
    };
    DnsZone {
        origin: origin.into(),
        serial,
        ttl: 60,
        primary: "ns.basalt.internal.".into(),
        records: records.iter().map(record).collect(),
        ..DnsZone::default()
    }
}

fn concern(serial: u32, records: &Records) -> DnsConcern {
    let secondary = |address: &&str| DnsSecondary {
        zones: vec![ZONE.into()],
        name: format!("{ZONE} at-{}", address.replace('.', "-")),
        address: (*address).to_owned(),
        port: 53,
        key: "basalt.example".into(),
        secret: SECRET.to_vec(),
    };
    let secondaries = PEERS.iter().map(secondary).collect();
    DnsConcern { zones: vec![zone(ZONE, serial, records)], secondaries, ..DnsConcern::default() }
}

/// The same with a catalog, which names another zone or none, for BIND and Knot: NSD and PowerDNS 4.7 read no such catalogs.
fn with_catalog(mut concern: DnsConcern, serial: u32, is_named: bool) -> DnsConcern {
    let record = |(owner, rtype, data): (&str, &str, &str)| (owner.into(), rtype.into(), data.into());
    let pointers = [("@", "NS", "ns.basalt.internal."), ("9", "PTR", "m1.lab.example.")].map(record);
    let mut catalog: Records = [("@", "NS", "invalid."), ("version", "TXT", "2")].map(record).into();
    let mut zones = vec![CATALOG.to_owned()];
    if is_named {
        catalog.insert(record(("a0b1.zones", "PTR", "0.77.10.in-addr.arpa.")));
        concern.zones.push(zone(MEMBER, 1, &pointers.into()));
        zones.push(MEMBER.to_owned());
    }
    concern.zones.push(zone(CATALOG, serial, &catalog));
    let readers =
        concern.secondaries[..2].iter().map(|it| DnsSecondary { zones: zones.clone(), ..it.clone() });
    let of_all = readers.map(|it| DnsSecondary { name: it.name.replace("lab.example ", ""), ..it });
    concern.secondaries.extend(of_all.collect::<Vec<_>>());
    concern
}

fn put(dir: &Path, generation: u64, concern: &DnsConcern) {
    write_concern(dir, &version(Concern::Dns, generation, "local", concern)).unwrap();
}

fn key(name: &str, secret: &[u8]) -> String {
    format!("hmac-sha256:{name}:{}", STANDARD.encode(secret))
}

/// The output of dig.
fn dig(arguments: &[&str]) -> String {
    let root = peer("dig");
    let output = Command::new(root.join("usr/bin/dig"))
        .env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"))
        .args(["+tries=1", "+time=5"])
        .args(arguments)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The zone as a server sends it: a line for each record, with the SOA once.
fn dump(zone: &str, arguments: &[&str]) -> BTreeSet<String> {
    let all = [arguments, &[zone, "AXFR", "+onesoa", "+nocmd", "+nostats", "+nocomments"]].concat();
    let lines = dig(&all);
    let lines = lines.lines().filter(|line| !line.is_empty() && !line.starts_with(';'));
    lines.filter(|line| !line.contains("\tTSIG\t")).map(fields).collect()
}

fn fields(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The lines of [`dump`] for these records.
fn expected(serial: u32, records: &Records) -> BTreeSet<String> {
    let line = |(owner, rtype, data): &(String, String, String)| {
        let owner = if owner == "@" { String::new() } else { format!("{owner}.") };
        let data = if rtype == "TXT" { format!("\"{data}\"") } else { data.clone() };
        format!("{owner}lab.example. 60 IN {rtype} {data}")
    };
    let soa = format!(
        "lab.example. 60 IN SOA ns.basalt.internal. hostmaster.lab.example. {serial} 600 1800 604800 60"
    );
    records.iter().map(line).chain([soa]).collect()
}

/// Starts a program of a peer, with its log in a file of this directory.
fn start(name: &str, program: &str, dir: &Path, arguments: &[&str]) -> Running {
    let root = peer(name);
    let log = std::fs::File::create(dir.join("log")).unwrap();
    let mut command = Command::new(root.join("usr/sbin").join(program));
    command.env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"));
    command.args(arguments).stdout(log.try_clone().unwrap()).stderr(log);
    Running::start(&mut command)
}

fn bind(dir: &Path, port: u16) -> Running {
    let (at, secret, here) = (PEERS[0], STANDARD.encode(SECRET), dir.display());
    let text = format!(
        r#"options {{ directory "{here}"; listen-on port 53 {{ {at}; }}; listen-on-v6 {{ none; }}; pid-file none;
             session-keyfile none; recursion no; dnssec-validation no; transfer-source {at}; allow-transfer {{ any; }};
             allow-notify {{ key basalt.example; }};
             catalog-zones {{ zone "{CATALOG}" default-primaries {{ 127.0.0.1 port {port} key "basalt.example"; }}
               in-memory yes min-update-interval 1; }}; }};
           controls {{ }};
           key "basalt.example" {{ algorithm hmac-sha256; secret "{secret}"; }};
           zone "{ZONE}" {{ type secondary; file "lab.zone"; masterfile-format text;
             primaries {{ 127.0.0.1 port {port} key "basalt.example"; }}; }};
           zone "{CATALOG}" {{ type secondary; file "catalog.zone"; masterfile-format text;
             primaries {{ 127.0.0.1 port {port} key "basalt.example"; }}; }};"#
    );
    let file = dir.join("named.conf");
    std::fs::write(&file, text).unwrap();
    start("named", "named", dir, &["-g", "-n", "1", "-c", &file.to_string_lossy()])
}

fn knot(dir: &Path, port: u16) -> Running {
    let (at, secret, here) = (PEERS[1], STANDARD.encode(SECRET), dir.display());
    let text = format!(
        r#"
server:
    rundir: "{here}"
    listen: {at}@53
log:
  - target: stderr
    any: info
database:
    storage: "{here}"
key:
  - id: basalt.example
    algorithm: hmac-sha256
    secret: {secret}
remote:
  - id: rack
    address: 127.0.0.1@{port}
    via: {at}
    key: basalt.example
acl:
  - id: told
    key: basalt.example
    action: notify
  - id: dumped
    address: 127.0.0.0/8
    action: transfer
template:
  - id: named
    storage: "{here}"
    master: rack
    acl: [told, dumped]
zone:
  - domain: {ZONE}
    template: named
  - domain: {CATALOG}
    template: named
    catalog-role: interpret
    catalog-template: named
"#
    );
    let file = dir.join("knot.conf");
    std::fs::write(&file, text).unwrap();
    start("knot", "knotd", dir, &["-c", &file.to_string_lossy()])
}

fn nsd(dir: &Path, port: u16) -> Running {
    let (at, secret, here) = (PEERS[2], STANDARD.encode(SECRET), dir.display());
    let mut text = String::new();
    write!(
        text,
        r#"
server:
  ip-address: {at}@53
  server-count: 1
  username: ""
  chroot: ""
  zonesdir: "{here}"
  database: ""
  pidfile: "{here}/pid"
  xfrdfile: "{here}/xfrd.state"
  xfrdir: "{here}"
  zonelistfile: "{here}/zone.list"
  verbosity: 2
remote-control:
  control-enable: no
key:
  name: basalt.example
  algorithm: hmac-sha256
  secret: "{secret}"
zone:
  name: {ZONE}
  zonefile: lab.zone
  allow-notify: 127.0.0.0/8 basalt.example
  request-xfr: 127.0.0.1@{port} basalt.example
  outgoing-interface: {at}
  provide-xfr: 127.0.0.0/8 NOKEY
"#
    )
    .unwrap();
    let file = dir.join("nsd.conf");
    std::fs::write(&file, text).unwrap();
    start("nsd", "nsd", dir, &["-d", "-c", &file.to_string_lossy()])
}

fn powerdns(dir: &Path, port: u16) -> Running {
    let (at, secret, here, root) = (PEERS[3], STANDARD.encode(SECRET), dir.display(), peer("pdns"));
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    // Without its caches, which answer an old serial for a while after a change.
    let text = format!(
        "launch=bind\nmodule-dir={libraries}/pdns\nbind-config={here}/named.conf\nbind-dnssec-db={here}/keys.db\n\
         local-address={at}\nlocal-port=53\nquery-local-address={at}\nsecondary=yes\nallow-axfr-ips=127.0.0.0/8\n\
         allow-notify-from=127.0.0.0/8\nsocket-dir={here}\nguardian=no\ndaemon=no\ncache-ttl=0\nquery-cache-ttl=0\n\
         negquery-cache-ttl=0\nzone-cache-refresh-interval=0\n",
        libraries = libraries.display(),
    );
    std::fs::write(dir.join("pdns.conf"), text).unwrap();
    let zone = format!(
        r#"zone "{ZONE}" {{ type slave; file "{here}/lab.zone"; masters {{ 127.0.0.1:{port}; }}; }};"#
    );
    std::fs::write(dir.join("named.conf"), zone).unwrap();
    let keys = dir.join("keys.db");
    for arguments in [
        vec!["create-bind-db", &*keys.to_string_lossy()],
        vec!["import-tsig-key", "basalt.example", "hmac-sha256", &secret],
        vec!["activate-tsig-key", ZONE, "basalt.example", "secondary"],
    ] {
        let mut command = Command::new(root.join("usr/bin/pdnsutil"));
        command.env("LD_LIBRARY_PATH", &libraries).arg(format!("--config-dir={here}")).args(&arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    start("pdns", "pdns_server", dir, &[&format!("--config-dir={here}")])
}

/// A generator that gives the same numbers each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Adds and removes some records.
    fn change(&mut self, records: &mut Records) {
        for _ in 0..=self.below(40) {
            let host = format!("host-{}", self.below(3000));
            let address = format!("10.{}.{}.{}", self.below(256), self.below(256), self.below(256));
            match self.below(3) {
                0 => records.retain(|(owner, ..)| *owner != host),
                1 => drop(records.insert((host, "A".into(), address))),
                _ => drop(records.insert((host, "TXT".into(), "x".repeat(self.below(200) as usize + 1)))),
            }
        }
    }
}

/// Waits until a peer has this copy of a zone.
fn until(zone: &str, at: &str, home: &Path, wanted: &BTreeSet<String>) {
    let began = Instant::now();
    loop {
        let copy = dump(zone, &[&format!("@{at}")]);
        if copy == *wanted {
            return;
        }
        let log = || std::fs::read_to_string(home.join("log")).unwrap();
        let other: Vec<_> = copy.symmetric_difference(wanted).take(9).collect();
        assert!(began.elapsed() < PATIENCE, "{at}, {zone}: {other:#?}\n{}", log());
    }
}

#[test]
fn four_secondaries_hold_the_zone_by_key_and_follow_its_changes_without_waiting() {
    ["dig", "named", "knot", "nsd", "pdns"].iter().for_each(|name| drop(peer(name)));
    if !is_inside("secondaries::four_secondaries_hold_the_zone_by_key_and_follow_its_changes_without_waiting")
    {
        return;
    }
    ip("link set lo up");
    // BIND listens only on addresses of interfaces. The rack uses lo, which does not have these.
    ip("link add peers type veth peer name uplink");
    PEERS.iter().for_each(|at| ip(&format!("address add {at}/32 dev peers")));
    ip("link set peers up");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let (data, port) = (settings.data_dir.clone(), settings.dns_port);
        let mut numbers = Numbers(1);
        let mut records: Records = [("@".into(), "NS".into(), "ns.basalt.internal.".into())].into();
        for _ in 0..150 {
            numbers.change(&mut records);
        }
        let mut serial = 4_294_967_290;
        put(&data, 1, &concern(serial, &records));
        let rack = Daemon::start(settings).await.unwrap();
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < PATIENCE, "nobody answers at port {port}");
            tokio::task::yield_now().await;
        }
        let homes = PEERS.map(|_| tempfile::tempdir().unwrap());
        let [first, second, third, fourth] = homes.each_ref().map(|home| home.path());
        let _running = [bind(first, port), knot(second, port), nsd(third, port), powerdns(fourth, port)];

        let (own_port, own_key) = (port.to_string(), key("basalt.example", &SECRET));
        let ours = ["@127.0.0.1", "-p", &own_port, "-b", PEERS[0], "-y", &own_key];
        // The zone is read by another task than the one that binds the port.
        let soa = || dig(&["@127.0.0.1", "-p", &own_port, "lab.example", "SOA"]);
        let began = Instant::now();
        while !soa().contains(&format!(" {serial} 600")) {
            assert!(began.elapsed() < PATIENCE, "serial {serial}");
        }
        for generation in 2..=8 {
            let wanted = expected(serial, &records);
            assert_eq!(dump(ZONE, &ours), wanted, "our own copy of serial {serial}");
            PEERS.iter().zip(&homes).for_each(|(at, home)| until(ZONE, at, home.path(), &wanted));
            numbers.change(&mut records);
            // The serial passes its largest number: by RFC 1982, 1 is then newer.
            serial = serial.wrapping_add(3).max(1);
            put(&data, generation, &concern(serial, &records));
            let began = Instant::now();
            while !soa().contains(&format!(" {serial} 600")) {
                assert!(began.elapsed() < PATIENCE, "serial {serial}");
            }
        }

        // A server that reads the catalog needs no further configuration for other zones.
        let mut dumped = BTreeSet::new();
        for (generation, catalog_serial, is_named) in [(9, 1, true), (10, 2, false)] {
            put(&data, generation, &with_catalog(concern(serial, &records), catalog_serial, is_named));
            if is_named {
                let ours = || dump(MEMBER, &ours);
                let began = Instant::now();
                while dumped.len() < 3 {
                    assert!(began.elapsed() < PATIENCE, "{dumped:?}");
                    dumped = ours();
                }
            } else {
                dumped.clear();
            }
            for (at, home) in PEERS.iter().zip(&homes).take(2) {
                until(MEMBER, at, home.path(), &dumped);
            }
        }

        // Other clients do not get the zone.
        let other_secret = key("basalt.example", &[8; 32]);
        let other_key = key("other.example", &SECRET);
        let refused = |from: &str, signed: &[&str]| {
            let own = ["@127.0.0.1", "-p", &own_port, "-b", from, "lab.example", "AXFR"];
            let said = dig(&[&own[..], signed].concat());
            assert!(!said.contains("host-"), "{from} {signed:?}: {said}");
            said
        };
        refused(PEERS[0], &[]);
        refused("127.0.0.14", &["-y", &own_key]);
        let bad_secret = refused(PEERS[0], &["-y", &other_secret]);
        assert!(bad_secret.contains("BADSIG"), "{bad_secret}");
        let bad_key = refused(PEERS[0], &["-y", &other_key]);
        assert!(bad_key.contains("BADKEY"), "{bad_key}");
        rack.stop().await;
    });
}
