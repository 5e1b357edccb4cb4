//! The rack's DNS, tested with dig and over the test's own connections.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use basalt_proto::rack_v1::{AddressRange, DnsConcern, DnsForward, DnsRecord, DnsZone, Fact, fact::Body};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;

use super::namespace::{Running, ip, is_inside, peer};
use super::support::{Client, DEADLINE, fact, settings};

fn record(owner: &str, rtype: &str, data: &str) -> DnsRecord {
    DnsRecord { owner: owner.into(), rtype: rtype.into(), ttl: 60, data: data.into() }
}

fn concern(serial: u32, records: Vec<DnsRecord>) -> DnsConcern {
    let zone = |origin: &str, records| DnsZone {
        origin: origin.into(),
        serial,
        ttl: 60,
        primary: "ns.basalt.internal.".into(),
        records,
        ..DnsZone::default()
    };
    let computed = vec![AddressRange { start: "10.77.0.100".into(), end: "10.77.0.199".into() }];
    let lab = DnsZone { computed: computed.clone(), ..zone("lab.example", records) };
    let pointers = vec![record("9", "PTR", "m1.lab.example.")];
    let reverse =
        DnsZone { computed, computed_domain: "lab.example".into(), ..zone("0.77.10.in-addr.arpa", pointers) };
    DnsConcern { zones: vec![lab, reverse], ..DnsConcern::default() }
}

fn put(dir: &Path, generation: u64, concern: &DnsConcern) {
    write_concern(dir, &version(Concern::Dns, generation, "local", concern)).unwrap();
}

/// dig's output for a question to a server.
fn dig(port: u16, question: &str) -> String {
    let root = peer("dig");
    let output = Command::new(root.join("usr/bin/dig"))
        .env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"))
        .args(["@127.0.0.1", "-p", &port.to_string(), "+tries=1", "+time=5"])
        .args(question.split(' '))
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until the rack listens and has read its two zones: other tasks do each of these. TCP is bound after UDP.
async fn serves(port: u16, figures: SocketAddr) {
    let began = std::time::Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < DEADLINE, "nobody answers at port {port}");
        tokio::task::yield_now().await;
    }
    while !metrics(figures).await.lines().any(|it| it == "basalt_rack_dns_zones 2") {
        assert!(began.elapsed() < DEADLINE, "it has not read its zones");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dig_gets_the_names_of_the_zones_while_no_region_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let (data, port, figures) = (settings.data_dir.clone(), settings.dns_port, settings.metrics.unwrap());
    let records = vec![
        record("@", "NS", "ns.basalt.internal."),
        record("m1", "A", "10.77.0.9"),
        record("www", "CNAME", "m1.lab.example."),
        record("_http._tcp", "SRV", "0 5 80 m1.lab.example."),
        record("many", "TXT", &"x".repeat(2000)),
    ];
    put(&data, 1, &concern(7, records.clone()));
    let rack = Daemon::start(settings).await.unwrap();
    serves(port, figures).await;
    let short = |question: &str| dig(port, &format!("+short {question}"));
    let cases = [
        ("m1.lab.example A", "10.77.0.9\n"),
        ("WWW.lab.example A", "m1.lab.example.\n10.77.0.9\n"),
        ("_http._tcp.lab.example SRV", "0 5 80 m1.lab.example.\n"),
        ("-x 10.77.0.9", "m1.lab.example.\n"),
        ("ip-10-77-0-112.lab.example A", "10.77.0.112\n"),
        ("-x 10.77.0.112", "ip-10-77-0-112.lab.example.\n"),
        ("m1.lab.example A +tcp", "10.77.0.9\n"),
        ("m1.lab.example AAAA", ""),
    ];
    for (question, answer) in cases {
        assert_eq!(short(question), answer, "{question}");
    }
    let nothing = dig(port, "nobody.lab.example A");
    assert!(nothing.contains("status: NXDOMAIN") && nothing.contains(" aa "), "{nothing}");
    assert!(nothing.contains("SOA\tns.basalt.internal. hostmaster.lab.example. 7 "), "{nothing}");
    let outside = dig(port, "www.example.net A +norecurse");
    assert!(outside.contains("status: REFUSED"), "{outside}");
    let long = dig(port, "many.lab.example TXT +ignore");
    assert!(long.contains(" tc "), "it does not fit into a datagram: {long}");
    assert!(dig(port, "many.lab.example TXT").contains("xxx"), "dig asks again over TCP");

    // Two queries in one packet get two answers.
    let query = |id: u8| {
        let head = [0, id, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        [&[0, 33], &head[..], b"\x02m1\x03lab\x07example\x00\x00\x01\x00\x01"].concat()
    };
    let both = [query(1), query(2)].map(|mut query| {
        query[1] = u8::try_from(query.len() - 2).unwrap();
        query
    });
    let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(&both.concat()).unwrap();
    for id in [1, 2] {
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!((reply[1], &reply[reply.len() - 4..]), (id, &[10, 77, 0, 9][..]));
    }

    // A new version of the zone is used within a second, the interval at which files are checked.
    put(&data, 2, &concern(8, vec![record("m1", "A", "10.77.0.10")]));
    let began = std::time::Instant::now();
    while short("m1.lab.example A") != "10.77.0.10\n" {
        assert!(began.elapsed() < DEADLINE, "{}", short("m1.lab.example A"));
    }
    assert!(dig(port, "lab.example SOA").contains(" 8 "));
    rack.stop().await;
}

/// A query for a name in lab.example, without RD.
fn query(label: &str) -> Vec<u8> {
    let head = [0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let label = [&[u8::try_from(label.len()).unwrap()], label.as_bytes()].concat();
    [&head[..], &label, b"\x03lab\x07example\x00\x00\x01\x00\x01"].concat()
}

/// The figures of a rack.
async fn metrics(at: SocketAddr) -> String {
    let client = Client { from: IpAddr::from([127, 0, 0, 1]), rack: at, spki: None };
    client.get("/metrics").await.text().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_counted_by_kind() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let (port, figures) = (settings.dns_port, settings.metrics.unwrap());
    put(&settings.data_dir, 1, &concern(7, vec![record("m1", "A", "10.77.0.9"), record("m1", "TXT", "x")]));
    let rack = Daemon::start(settings).await.unwrap();
    serves(port, figures).await;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    let outside = [&query("x")[..12], b"\x03www\x03net\x00\x00\x01\x00\x01"].concat();
    let two_questions = [&[0, 7, 0, 0, 0, 2][..], &query("m1")[6..]].concat();
    socket.send(b"short").unwrap();
    for query in [query("m1"), query("nobody"), outside, two_questions] {
        socket.send(&query).unwrap();
        socket.recv(&mut [0; 512]).unwrap();
    }
    let text = metrics(figures).await;
    for line in [
        "basalt_rack_dns_answers_total{kind=\"zone\"} 2",
        "basalt_rack_dns_answers_total{kind=\"refused\"} 1",
        "basalt_rack_dns_answers_total{kind=\"error\"} 1",
        "basalt_rack_dns_answers_total{kind=\"dropped\"} 1",
        "basalt_rack_dns_answers_total{kind=\"forwarded\"} 0",
        "basalt_rack_dns_limits_total{limit=\"connections\"} 0",
        "basalt_rack_dns_zones 2",
        "basalt_rack_dns_records 3",
        "basalt_rack_dns_cache_entries 0",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}: {text}");
    }

    // A client has sixteen connections, and the next one is closed.
    let kept: Vec<TcpStream> = (0..16).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let mut next = TcpStream::connect(("127.0.0.1", port)).unwrap();
    next.set_read_timeout(Some(DEADLINE)).unwrap();
    assert!(matches!(next.read(&mut [0]), Ok(0) | Err(_)));
    let text = metrics(figures).await;
    let closed =
        text.lines().find_map(|it| it.strip_prefix("basalt_rack_dns_limits_total{limit=\"connections\"} "));
    assert!(closed.is_some_and(|it| it.parse::<u64>().unwrap() > 0), "{text}");
    drop(kept);
    rack.stop().await;
}

/// A server of another domain: every name has this address for an hour. It counts the queries that it answered.
fn other_server(at: &str, address: [u8; 4]) -> Arc<AtomicUsize> {
    let socket = UdpSocket::bind(at).unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&answered);
    std::thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, peer)) = socket.recv_from(&mut query) {
            // The question ends after the root label, type and class.
            let end = query[12..length].iter().position(|byte| *byte == 0).unwrap() + 12 + 5;
            let mut reply = query[..end].to_vec();
            reply[2..12].copy_from_slice(&[0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
            reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0x0e, 0x10, 0, 4]);
            reply.extend(address);
            count.fetch_add(1, Ordering::SeqCst);
            socket.send_to(&reply, peer).unwrap();
        }
    });
    answered
}

#[test]
fn other_names_are_asked_of_their_servers_once_and_private_addresses_are_taken_from_declared_domains_alone() {
    peer("dig");
    let name = "names::other_names_are_asked_of_their_servers_once_and_private_addresses_are_taken_from_declared_domains_alone";
    if !is_inside(name) {
        return;
    }
    ip("link set lo up");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let company = other_server("127.0.0.9:53", [10, 1, 2, 3]);
        let internet = other_server("127.0.0.10:53", [10, 6, 6, 6]);
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let (port, figures) = (settings.dns_port, settings.metrics.unwrap());
        let forwards = vec![DnsForward { domain: "corp.example".into(), servers: vec!["127.0.0.9".into()] }];
        let upstream = vec!["127.0.0.10".into()];
        put(&settings.data_dir, 1, &DnsConcern { forwards, upstream, ..concern(1, Vec::new()) });
        let rack = Daemon::start(settings).await.unwrap();
        serves(port, figures).await;
        let began = std::time::Instant::now();
        // The servers to ask are set after the zones.
        while dig(port, "+short +notcp www.corp.example A") != "10.1.2.3\n" {
            let said = || dig(port, "+notcp www.corp.example A");
            assert!(began.elapsed() < DEADLINE, "its server is not asked: {}", said());
        }
        for transport in ["+notcp", "+tcp"] {
            let said = dig(port, &format!("+short {transport} www.corp.example A"));
            assert_eq!(said, "10.1.2.3\n", "{transport}");
        }
        assert_eq!(company.load(Ordering::SeqCst), 1, "the second answer was kept");
        let rebound = dig(port, "www.example.net A");
        assert!(internet.load(Ordering::SeqCst) > 0 && !rebound.contains("10.6.6.6"), "{rebound}");
        let text = metrics(figures).await;
        let figure = |name: &str| {
            let line = text.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("{name}: {text}")).parse::<f64>().unwrap()
        };
        assert_eq!(figure("basalt_rack_dns_answers_total{kind=\"forwarded\"}"), 1.0);
        assert!(figure("basalt_rack_dns_answers_total{kind=\"cache\"}") >= 2.0);
        // A question before the servers are set fails too.
        assert!(figure("basalt_rack_dns_answers_total{kind=\"failed\"}") >= 1.0);
        assert_eq!(figure("basalt_rack_dns_upstream_queries_total{outcome=\"answered\"}"), 1.0);
        assert_eq!(figure("basalt_rack_dns_upstream_queries_total{outcome=\"refused\"}"), 1.0);
        assert_eq!(figure("basalt_rack_dns_upstream_seconds_bucket{le=\"+Inf\"}"), 1.0);
        assert_eq!(figure("basalt_rack_dns_upstream_seconds_count"), 1.0);
        assert!(figure("basalt_rack_dns_upstream_seconds_sum") > 0.0);
        assert_eq!(figure("basalt_rack_dns_cache_entries"), 2.0);
        assert!(figure("basalt_rack_dns_cache_bytes") > 0.0);
        rack.stop().await;
    });
}

/// The message of a report about a service of the rack.
async fn told(rack: &Daemon, service: &str, ok: bool) -> String {
    let is_told = |fact: &Fact| match &fact.body {
        Some(Body::Health(it)) => it.service == service && it.ok == ok,
        _ => false,
    };
    match fact(&rack.facts, is_told).await.body {
        Some(Body::Health(it)) => it.message,
        _ => unreachable!("it was asked for"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dnsmasq_at_the_port_is_named_with_the_remedy_and_other_services_go_on() {
    ["dig", "dnsmasq"].iter().for_each(|name| drop(peer(name)));
    if !is_inside("names::dnsmasq_at_the_port_is_named_with_the_remedy_and_other_services_go_on") {
        return;
    }
    ip("link set lo up");
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let port = settings.dns_port;
    let root = peer("dnsmasq");
    let mut command = Command::new(root.join("usr/sbin/dnsmasq"));
    command.env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"));
    command.args([
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--no-resolv",
        "--no-hosts",
        "--pid-file=",
    ]);
    // In this namespace it may not change its groups.
    command.args(["--user=root", "--group=", "--bind-interfaces", "--listen-address=127.0.0.1"]);
    let dnsmasq = Running::start(command.arg(format!("--port={port}")));
    let began = std::time::Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < DEADLINE, "dnsmasq does not listen");
        tokio::task::yield_now().await;
    }
    put(&settings.data_dir, 1, &concern(1, vec![record("m1", "A", "10.77.0.9")]));
    let rack = Daemon::start(settings).await.unwrap();
    let problem = told(&rack, "dns 127.0.0.1", false).await;
    assert!(problem.contains("(dnsmasq) has it: end that program, or have it leave"), "{problem}");
    assert!(problem.contains("dnsmasq: `except-interface`"), "{problem}");
    told(&rack, "tftp 127.0.0.1", true).await;
    drop(dnsmasq);
    told(&rack, "dns 127.0.0.1", true).await;
    assert!(dig(port, "m1.lab.example A +short").starts_with("10.77.0.9"));
    rack.stop().await;
}
