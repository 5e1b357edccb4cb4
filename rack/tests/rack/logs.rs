//! Machine logs: received by syslog from other projects' programs, and delivered to a region that comes and goes.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;

use basalt_proto::REGION_SERVER_NAME;
use basalt_proto::rack_v1::fact::Body;
use basalt_proto::rack_v1::{DhcpConcern, DhcpSubnet, LogLine, Reservation, ServiceHealth};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Settings;
use tokio::io::AsyncWriteExt;
use tokio_util::sync::CancellationToken;

use super::link::{Region, SECRET, next_link, region, serve, token};
use super::namespace::peer;
use super::support::{Client, DEADLINE, MAC, MACHINE, boot_concern, fact, settings};

/// A rack with one machine, known by its reserved address.
pub(super) async fn start(settings: &Settings) -> Daemon {
    let dir = &settings.data_dir;
    write_concern(dir, &version(Concern::Boot, 1, "local", &boot_concern(1))).unwrap();
    let reservation =
        Reservation { mac: MAC.to_string(), address: MACHINE.to_string(), ..Reservation::default() };
    let subnet = DhcpSubnet {
        subnet_uid: "subnet".into(),
        cidr: "127.0.0.0/8".into(),
        reservations: vec![reservation],
        lease_seconds: 600,
        ..DhcpSubnet::default()
    };
    let dhcp = DhcpConcern { subnets: vec![subnet], ..DhcpConcern::default() };
    write_concern(dir, &version(Concern::Dhcp, 1, "local", &dhcp)).unwrap();
    let rack = Daemon::start(settings.clone()).await.unwrap();
    let port = settings.syslog_port[0];
    health(&rack, port, |it| it.ok).await;
    // The facts of the previous start are still there.
    let listens = async {
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, listens).await.expect("the rack does not listen");
    rack
}

pub(super) fn at(settings: &Settings) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, settings.syslog_port[0]).into()
}

/// Waits until the rack reports this state of its syslog service.
async fn health(rack: &Daemon, port: u16, wanted: impl Fn(&ServiceHealth) -> bool) -> String {
    let service = format!("syslog 127.0.0.1:{port}");
    let is_told = |fact: &basalt_proto::rack_v1::Fact| match &fact.body {
        Some(Body::Health(it)) => it.service == service && wanted(it),
        _ => false,
    };
    match fact(&rack.facts, is_told).await.body {
        Some(Body::Health(it)) => it.message,
        _ => unreachable!("it was asked for"),
    }
}

/// Waits until the rack has stored a line with this text. Returns all lines up to it.
pub(super) async fn kept(rack: &Daemon, last: &str) -> Vec<LogLine> {
    let waited = async {
        let (mut durable, mut lines) = (rack.logs.durable(), Vec::<LogLine>::new());
        loop {
            durable.borrow_and_update();
            let from = lines.last().map_or(1, |line| line.seq + 1);
            let read = rack.logs.read(from, 1 << 20).await.unwrap();
            let is_read = read.is_empty();
            lines.extend(read);
            if lines.iter().any(|line| line.text.ends_with(last)) {
                return lines;
            }
            if is_read {
                durable.changed().await.unwrap();
            }
        }
    };
    tokio::time::timeout(DEADLINE, waited).await.unwrap_or_else(|_| panic!("no line ends with {last:?}"))
}

fn logger(at: SocketAddr, arguments: &[&str]) {
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    let output =
        Command::new("logger").args(["--server", &host, "--port", &port]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Sends a datagram from the machine.
fn send(at: SocketAddr, message: &[u8]) {
    UdpSocket::bind((MACHINE, 0)).unwrap().send_to(message, at).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_all_kinds_are_kept_and_a_sender_is_known_by_its_address() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let at = at(&settings);
    let rack = start(&settings).await;
    let tag = ["-p", "auth.err", "-t", "sshd"];
    for (number, arguments) in [
        &["--udp", "--rfc3164"][..],
        &["--udp", "--rfc5424"],
        &["--tcp", "--rfc3164"],
        &["--tcp", "--rfc5424", "--octet-count"],
    ]
    .iter()
    .enumerate()
    {
        let text = format!("message {number}");
        logger(at, &[arguments, &tag[..], &[text.as_str()]].concat());
    }
    // A sender may put any name into a message.
    send(at, b"<13>Nov 26 12:00:00 another-host app: of the machine");
    send(at, b"[   12.3] a panic, by netconsole\n");
    // Datagrams and each connection are read by tasks of their own.
    for text in ["message 0", "message 1", "message 2", "message 3", "of the machine"] {
        kept(&rack, text).await;
    }
    let lines = kept(&rack, "by netconsole").await;
    for number in 0..4 {
        let text = format!("message {number}");
        let line = lines.iter().find(|line| line.text == text).unwrap_or_else(|| panic!("{text}: {lines:?}"));
        assert_eq!((line.priority, &*line.app), (35, "sshd"), "{line:?}");
        assert_eq!((&*line.machine_uid, &*line.address), ("", "127.0.0.1"), "nobody has this address");
        assert!(!line.host.is_empty() && !line.time.is_empty());
    }
    let of_machine = |text: &str| lines.iter().find(|line| line.text.ends_with(text)).unwrap();
    let line = of_machine("of the machine");
    assert_eq!((&*line.machine_uid, &*line.address, &*line.host), ("uid-1", "127.0.0.77", "another-host"));
    assert_eq!((of_machine("by netconsole").priority, &*line.app), (6, "app"));
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn senders_that_are_no_machines_share_a_budget_and_leave_the_lines_of_machines_alone() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let (at, rack) = (at(&settings), start(&settings).await);
    let message = [&b"<13>flood: "[..], &[b'x'; 8000]].concat();
    let mut senders = (1..=u16::MAX).map(|n| Ipv4Addr::new(127, 1, n.to_be_bytes()[0], n.to_be_bytes()[1]));
    // The kernel drops datagrams that do not fit its buffer, so the necessary number is unknown.
    let mut is_told = false;
    while !is_told {
        for from in senders.by_ref().take(200) {
            let socket = UdpSocket::bind((from, 0)).unwrap();
            (0..20).for_each(|_| drop(socket.send_to(&message, at)));
        }
        // The rack reports drops once a second.
        let told = "messages were dropped: senders that are no machines exceeded";
        let last = rack.logs.read(0, 64 << 20).await.unwrap();
        is_told = last.iter().any(|line| line.machine_uid.is_empty() && line.text.contains(told));
    }
    let machine = tokio::net::TcpSocket::new_v4().unwrap();
    machine.bind((MACHINE, 0).into()).unwrap();
    let mut machine = machine.connect(at).await.unwrap();
    machine.write_all(b"<13>app: the machine is heard\n").await.unwrap();
    let lines = kept(&rack, "the machine is heard").await;
    let heard = lines.iter().find(|line| line.text == "the machine is heard").unwrap();
    assert_eq!(heard.machine_uid, "uid-1");
    let kept: usize = lines.iter().filter(|line| line.app == "flood").map(|line| line.text.len()).sum();
    assert!(((8 << 20)..(24 << 20)).contains(&kept), "{kept} bytes of strangers");
    let metrics = Client { from: Ipv4Addr::LOCALHOST.into(), rack: settings.metrics.unwrap(), spki: None };
    let answer = metrics.get("/metrics").await;
    let figure = |name: &str| {
        let line = answer
            .text()
            .lines()
            .find_map(|it| it.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok());
        line.unwrap_or_else(|| panic!("{name}: {}", answer.text()))
    };
    assert_eq!(figure("basalt_rack_log_lines_total{from=\"machine\"}"), 1);
    assert!(figure("basalt_rack_log_lines_total{from=\"other\"}") > 1000);
    assert!(figure("basalt_rack_log_lines_total{from=\"rack\"}") > 0);
    assert!(figure("basalt_rack_log_lines_dropped_total{reason=\"others\"}") > 0);
    assert_eq!(figure("basalt_rack_log_lines_dropped_total{reason=\"agent\"}"), 0);
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rsyslog_forwards_to_a_rack() {
    let rsyslog = peer("rsyslog");
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let (at, rack) = (at(&settings), start(&settings).await);
    let (modules, libraries) =
        (rsyslog.join("usr/lib/x86_64-linux-gnu/rsyslog"), rsyslog.join("usr/lib/x86_64-linux-gnu"));
    let socket = dir.path().join("log");
    let config = format!(
        "module(load=\"imuxsock\" SysSock.Use=\"off\")\n\
         input(type=\"imuxsock\" Socket=\"{}\")\n\
         action(type=\"omfwd\" target=\"{}\" port=\"{}\" protocol=\"tcp\" TCP_Framing=\"octet-counted\")\n",
        socket.display(),
        at.ip(),
        at.port()
    );
    let (file, pid) = (dir.path().join("rsyslog.conf"), dir.path().join("rsyslog.pid"));
    std::fs::write(&file, config).unwrap();
    let mut running = Command::new(rsyslog.join("usr/sbin/rsyslogd"))
        .args(["-n", "-iNONE", "-M"])
        .arg(&modules)
        .arg("-f")
        .arg(&file)
        .env("LD_LIBRARY_PATH", libraries)
        .current_dir(dir.path())
        .spawn()
        .unwrap();
    drop(pid);
    let said = async {
        while !socket.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, said).await.expect("rsyslogd does not listen");
    let output =
        Command::new("logger").arg("-u").arg(&socket).args(["-t", "web", "by way of rsyslog"]).output();
    assert!(output.unwrap().status.success());
    let lines = kept(&rack, "by way of rsyslog").await;
    let line = lines.iter().find(|line| line.text == "by way of rsyslog").unwrap();
    assert_eq!((line.priority, &*line.app), (13, "web"));
    running.kill().unwrap();
    running.wait().unwrap();
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_and_strange_messages_cost_no_more_than_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let (at, rack) = (at(&settings), start(&settings).await);
    let mut stream = TcpStream::connect(at).unwrap();
    stream
        .write_all(&[&b"<13>a: "[..], &vec![b'x'; 1 << 20], b"\n<13>a: b\0c\n<13>a: no end"].concat())
        .unwrap();
    drop(stream);
    let lines = kept(&rack, "no end").await;
    let [long, strange, unfinished] = &lines[..] else { panic!("{}", lines.len()) };
    assert!(long.text.len() <= 8192 && long.text.ends_with('…'), "{}", long.text.len());
    assert_eq!((&*strange.text, &*unfinished.text), ("b<U+0000>c", "no end"));
    // More than a machine may send at once: the log reports the missing lines.
    let sender = UdpSocket::bind((MACHINE, 0)).unwrap();
    let mut stopped = false;
    while !stopped {
        (0..5000).for_each(|_| drop(sender.send_to(b"<13>flood: one of many", at)));
        let read = rack.logs.read(0, 16 << 20).await.unwrap();
        stopped = read.iter().any(|line| line.text.contains("messages were dropped: their sender exceeded"));
    }
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_has_the_port_is_named_and_other_services_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let port = settings.syslog_port[0];
    let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let rack = Daemon::start(settings).await.unwrap();
    let told = health(&rack, port, |it| !it.ok).await;
    assert!(told.contains(&format!("process {} (", std::process::id())), "{told}");
    drop(holder);
    health(&rack, port, |it| it.ok).await;
    rack.stop().await;
}

/// Waits until the region has a line with this text. Returns the texts of all its lines.
async fn delivered(region: &Region, last: &str) -> Vec<String> {
    let mut lines = region.logs.subscribe();
    let has_it = |lines: &Vec<LogLine>| lines.iter().any(|line| line.text == last);
    let lines =
        tokio::time::timeout(DEADLINE, lines.wait_for(has_it)).await.expect("it is not delivered").unwrap();
    lines.iter().map(|line| line.text.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_that_was_away_gets_each_line_once_also_when_the_rack_restarts_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let (region, mut linked) = region();
    let stop = CancellationToken::new();
    let address = serve(region.clone(), REGION_SERVER_NAME, stop.clone()).await;
    let settings = Settings { join: Some(token(&region, address, SECRET)), ..settings(dir.path()) };
    let (at, rack) = (at(&settings), start(&settings).await);
    let mut link = next_link(&mut linked).await;
    link.welcome().await;
    send(at, b"<13>a: 1");
    assert_eq!(delivered(&region, "1").await, ["1"]);
    // The region is away, and the rack stops without telling it.
    stop.cancel();
    drop(link);
    send(at, b"<13>a: 2");
    kept(&rack, "2").await;
    rack.stop().await;
    let rack = start(&settings).await;
    send(at, b"<13>a: 3");
    kept(&rack, "3").await;
    let stop = CancellationToken::new();
    region.serve_again(address, stop.clone()).await;
    let mut link = next_link(&mut linked).await;
    link.welcome().await;
    assert_eq!(delivered(&region, "3").await, ["1", "2", "3"]);
    // If the answer to a batch is lost, the rack asks for the region's last number.
    region.loses_answers.store(1, std::sync::atomic::Ordering::Relaxed);
    send(at, b"<13>a: 4");
    delivered(&region, "4").await;
    send(at, b"<13>a: 5");
    assert_eq!(delivered(&region, "5").await, ["1", "2", "3", "4", "5"]);
    rack.stop().await;
    stop.cancel();
}
