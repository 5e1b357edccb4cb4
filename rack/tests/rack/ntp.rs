//! A rack's NTP: on the wire of loopback, and in namespaces with other projects' programs: chronyd as its server and as
//! its client, ntpdig of NTPsec and systemd-timesyncd as clients.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use basalt_ntp::Timestamp;
use basalt_ntp::packet::{CLIENT, LENGTH, Leap, Packet, SERVER};
use basalt_proto::rack_v1::{Fact, ServiceHealth, TimeConcern, fact::Body};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::settings::Settings;

use super::namespace::{Host, Running, hide, is_inside, make_switch, peer};
use super::peers::on_switch;
use super::support::{Client, DEADLINE, fact, settings};

/// The addresses of the rack and of its NTP server on the switch.
const RACK: &str = "10.9.0.1";
const UPSTREAM: &str = "10.9.0.9";

async fn start(settings: Settings, servers: &[&str]) -> Daemon {
    let servers = servers.iter().map(|&it| it.to_owned()).collect();
    let concern = TimeConcern { servers, ..TimeConcern::default() };
    write_concern(&settings.data_dir, &version(Concern::Time, 1, "local", &concern)).unwrap();
    Daemon::start(settings).await.unwrap()
}

/// Waits until the rack reports this state of a service.
async fn health(rack: &Daemon, service: &str, wanted: impl Fn(&ServiceHealth) -> bool) -> String {
    let is_told = |fact: &Fact| match &fact.body {
        Some(Body::Health(it)) => it.service == service && wanted(it),
        _ => false,
    };
    match fact(&rack.facts, is_told).await.body {
        Some(Body::Health(it)) => it.message,
        _ => unreachable!("it was asked for"),
    }
}

fn request(nonce: u64) -> [u8; LENGTH] {
    Packet { version: 4, mode: CLIENT, poll: 6, transmit: Timestamp(nonce), ..Packet::default() }.encode()
}

fn wall() -> Timestamp {
    Timestamp::from_unix(SystemTime::now().duration_since(UNIX_EPOCH).unwrap())
}

/// A client of the rack, on its own port.
fn client(at: Ipv4Addr, rack: SocketAddr) -> UdpSocket {
    let client = UdpSocket::bind((at, 0)).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    client.connect(rack).unwrap();
    client
}

fn answer(client: &UdpSocket) -> Packet {
    let mut buffer = [0; 128];
    let length = client.recv(&mut buffer).unwrap();
    assert_eq!(length, LENGTH);
    Packet::parse(&buffer).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_told_the_time_until_they_ask_too_often_and_control_messages_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let (at, metrics) = (SocketAddr::from(([127, 0, 0, 1], settings.ntp_port)), settings.metrics.unwrap());
    let rack = start(settings, &[]).await;
    health(&rack, "ntp 127.0.0.1", |it| it.ok).await;
    health(&rack, "time", |it| it.ok).await;

    let asking = client(Ipv4Addr::new(127, 0, 0, 5), at);
    // None of these is answered: the first answer is the one to the request.
    for datagram in [&[0x16; 48][..], &[0x17; 200], &request(1)[..47], &[0x24; 48]] {
        asking.send(datagram).unwrap();
    }
    let before = wall();
    asking.send(&request(2)).unwrap();
    let told = answer(&asking);
    assert_eq!((told.mode, told.version, told.poll, told.origin), (SERVER, 4, 6, Timestamp(2)));
    assert_eq!((told.leap, told.stratum, told.reference_id), (Leap::None, 10, [127, 127, 1, 1]));
    let moments = [before, told.receive, told.transmit, wall()];
    assert!(moments.windows(2).all(|pair| pair[1].since(pair[0]) >= 0), "{moments:?}");

    for nonce in 3..=10 {
        asking.send(&request(nonce)).unwrap();
    }
    let strata: Vec<u8> = (3..=10).map(|_| answer(&asking)).map(|told| told.stratum).collect();
    assert_eq!(strata, [10, 10, 10, 10, 10, 10, 10, 0], "the ninth is told to ask less often");
    let text = Client { from: Ipv4Addr::LOCALHOST.into(), rack: metrics, spki: None }.get("/metrics").await;
    for line in [
        "basalt_rack_ntp_requests_total{outcome=\"answered\"} 8",
        "basalt_rack_ntp_requests_total{outcome=\"warned\"} 1",
        "basalt_rack_ntp_requests_total{outcome=\"mode\"} 3",
        "basalt_rack_ntp_requests_total{outcome=\"short\"} 1",
        "basalt_rack_clock_state{state=\"adrift\"} 1",
        "basalt_rack_clock_stratum 10",
    ] {
        assert!(text.text().lines().any(|it| it == line), "{line}: {}", text.text());
    }
    rack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_has_the_port_is_named_and_other_services_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let holder = UdpSocket::bind((Ipv4Addr::LOCALHOST, settings.ntp_port)).unwrap();
    let rack = start(settings, &[]).await;
    let told = health(&rack, "ntp 127.0.0.1", |it| !it.ok).await;
    assert!(told.contains(&format!("process {} (", std::process::id())), "{told}");
    health(&rack, "tftp 127.0.0.1", |it| it.ok).await;
    drop(holder);
    health(&rack, "ntp 127.0.0.1", |it| it.ok).await;
    rack.stop().await;
}

/// chronyd on a host; it never sets a clock.
fn chronyd(host: &Host, dir: &Path, directives: &[&str]) -> std::process::Command {
    let program = peer("chrony").join("usr/sbin/chronyd");
    let pid = format!("pidfile {}", dir.join("chronyd.pid").display());
    let mut command = host.command(&[&program.to_string_lossy(), "-x", "-d", "-u", "root"]);
    command.args(["cmdport 0", &pid]).args(directives);
    command
}

/// ntpdig's output about the rack, as JSON; `None`: it does not trust the rack.
fn ntpdig(host: &Host) -> Option<serde_json::Value> {
    let root = peer("ntpdig");
    let program = root.join("usr/bin/ntpdig");
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    let libraries = format!("{}:{}", libraries.display(), libraries.join("ntp").display());
    let output = host
        .command(&["python3", &program.to_string_lossy(), "-j", RACK])
        .env("PYTHONPATH", root.join("usr/lib/python3/dist-packages"))
        .env("LD_LIBRARY_PATH", libraries)
        .output()
        .unwrap();
    println!("ntpdig: {output:?}");
    serde_json::from_slice(&output.stdout).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_take_the_time_that_a_rack_has_from_chronyd() {
    for name in ["chrony", "ntpdig", "timesyncd"] {
        peer(name);
    }
    if !is_inside("ntp::clients_take_the_time_that_a_rack_has_from_chronyd") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24"]);
    let upstream = Host::plug("upstream", "52:54:00:00:00:09");
    upstream.run(&["ip", "address", "add", "10.9.0.9/24", "dev", "eth0"]);
    let served = dir.path().join("upstream");
    std::fs::create_dir(&served).unwrap();
    let _upstream = Running::start(&mut chronyd(&upstream, &served, &["local stratum 5", "allow"]));
    let rack = start(Settings { ntp_port: 123, ..on_switch(dir.path()) }, &[UPSTREAM]).await;
    health(&rack, "time", |it| it.ok).await;
    let told = health(&rack, "time 10.9.0.9", |it| it.message.contains("stratum 5")).await;
    assert!(told.contains(" this clock, "), "{told}");

    let host = Host::plug("client", "52:54:00:00:00:01");
    host.run(&["ip", "address", "add", "10.9.0.5/24", "dev", "eth0"]);
    let once = chronyd(&host, dir.path(), &["-Q", "-t", "20", "server 10.9.0.1 iburst"]).output().unwrap();
    let said = String::from_utf8_lossy(&once.stderr).into_owned();
    println!("chronyd: {said}");
    assert!(once.status.success() && said.contains("System clock wrong by"), "{said}");

    let told = ntpdig(&host).expect("ntpdig trusts the rack");
    assert_eq!(told["stratum"], 6, "one more than its server's: {told}");
    assert!(told["offset"].as_f64().unwrap().abs() < 0.1, "{told}");
    timesyncd_takes_the_time(&host, dir.path()).await;
    rack.stop().await;
}

/// Waits until systemd-timesyncd reports the rack as its server. In the namespace it may not set the clock.
async fn timesyncd_takes_the_time(host: &Host, dir: &Path) {
    hide(&["/run", "/var/lib"]);
    std::fs::create_dir_all("/run/systemd/timesyncd.conf.d").unwrap();
    let config = format!("[Time]\nNTP={RACK}\nFallbackNTP=\n");
    std::fs::write("/run/systemd/timesyncd.conf.d/rack.conf", config).unwrap();
    let log = dir.join("timesyncd.log");
    let root = peer("timesyncd");
    // The path of the program differs between releases.
    let places = ["lib", "usr/lib"].map(|lib| root.join(lib).join("systemd/systemd-timesyncd"));
    let program = places.into_iter().find(|place| place.exists()).unwrap();
    let mut command = host.command(&[&program.to_string_lossy()]);
    command.env("SYSTEMD_LOG_LEVEL", "debug").env("SYSTEMD_LOG_TARGET", "console");
    let _running = Running::start(command.stderr(std::fs::File::create(&log).unwrap()));
    let said = || std::fs::read_to_string(&log).unwrap();
    let contacted = async {
        while !said().contains(&format!("Contacted time server {RACK}:123")) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, contacted).await.unwrap_or_else(|_| panic!("timesyncd: {}", said()));
}

/// An NTP server whose clock is ahead by this much. It runs until the test ends.
fn play_server(host: &Host, ahead: Duration) {
    let socket = Arc::new(host.within(|| UdpSocket::bind("0.0.0.0:123").unwrap()));
    std::thread::spawn(move || {
        let mut buffer = [0; 128];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let Ok(asked) = Packet::parse(&buffer[..length]) else { continue };
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + ahead;
            let (receive, transmit) = (Timestamp::from_unix(now), Timestamp::from_unix(now));
            let answer = Packet {
                version: 4,
                mode: SERVER,
                stratum: 1,
                origin: asked.transmit,
                receive,
                transmit,
                ..Packet::default()
            };
            socket.send_to(&answer.encode(), from).ok();
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_whose_clock_is_five_seconds_off_tells_clients_not_to_use_it() {
    peer("ntpdig");
    if !is_inside("ntp::a_rack_whose_clock_is_five_seconds_off_tells_clients_not_to_use_it") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_switch(&["10.9.0.1/24"]);
    let upstream = Host::plug("upstream", "52:54:00:00:00:09");
    upstream.run(&["ip", "address", "add", "10.9.0.9/24", "dev", "eth0"]);
    play_server(&upstream, Duration::from_secs(5));
    let rack = start(Settings { ntp_port: 123, ..on_switch(dir.path()) }, &[UPSTREAM]).await;
    let told = health(&rack, "time", |it| !it.ok).await;
    // A measurement is off by up to half of its round trip, which is long on a busy host.
    let is_measured = ["4.9", "5.0", "5.1"].iter().any(|seconds| {
        told.starts_with(&format!("clock is {seconds} s behind 10.9.0.9: clients are told not to use it"))
    });
    assert!(is_measured, "{told}");

    let host = Host::plug("client", "52:54:00:00:00:01");
    host.run(&["ip", "address", "add", "10.9.0.5/24", "dev", "eth0"]);
    let told = host.within(|| {
        let client = client("10.9.0.5".parse().unwrap(), format!("{RACK}:123").parse().unwrap());
        client.send(&request(1)).unwrap();
        answer(&client)
    });
    assert_eq!((told.leap, told.stratum), (Leap::Unknown, 16));
    assert_eq!(ntpdig(&host), None);
    rack.stop().await;
}
