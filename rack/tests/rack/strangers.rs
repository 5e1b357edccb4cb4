//! Strangers: the facts that any host on a link can cause through each of a rack's protocols. Rows, bytes and names are
//! bounded.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use basalt_dhcp::Mac;
use basalt_dhcp::egress::Message as Dhcp;
use basalt_proto::rack_v1::{
    AddressRange, BootAnswers, Dhcp6Subnet, DhcpConcern, DhcpSubnet, Fact, fact::Body,
};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::log_limit::LogLimit;
use basalt_rack::settings::Settings;
use basalt_rack::spool::{Limits, Spool};
use dhcproto::v4::{MessageType, OptionCode};
use prost::Message;
use socket2::{Domain, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, UdpSocket};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::attacks::{RACK6, RELAY6, solicit};
use super::namespace::{Host, ip, is_inside, make_switch};
use super::support::{Client, MAC, boot_concern, fact, settings};

/// The number of packets sent by each protocol.
const PACKETS: u32 = 600;
/// A name with a terminal escape sequence, and a line that imitates another one.
const HOSTILE: &str = "a\u{1b}[2J\n12:00:00  rack-1  the agent took its task";

fn write_concerns(data_dir: &Path) {
    let range = AddressRange { start: "127.0.0.100".into(), end: "127.0.0.107".into() };
    let subnet = DhcpSubnet {
        subnet_uid: "s1".into(),
        cidr: "127.0.0.0/24".into(),
        dynamic: vec![range],
        ..DhcpSubnet::default()
    };
    let subnet6 = Dhcp6Subnet {
        subnet_uid: "s6".into(),
        cidr: "2001:db8::/64".into(),
        rapid_commit: true,
        dynamic: vec![AddressRange { start: "2001:db8::100".into(), end: "2001:db8::107".into() }],
        ..Dhcp6Subnet::default()
    };
    // Another server leases the addresses of this subnet. The rack only answers firmware, on port 4011.
    let beside = DhcpSubnet {
        subnet_uid: "s2".into(),
        cidr: format!("{BESIDE}/24"),
        boot: BootAnswers::Proxy.into(),
        ..DhcpSubnet::default()
    };
    let dhcp = DhcpConcern {
        subnets: vec![subnet, beside],
        subnets6: vec![subnet6],
        serve_unknown: true,
        ..DhcpConcern::default()
    };
    write_concern(data_dir, &version(Concern::Dhcp, 1, "local", &dhcp)).unwrap();
    write_concern(data_dir, &version(Concern::Boot, 1, "local", &boot_concern(17))).unwrap();
}

/// The rack's address in the subnet whose addresses another server leases, and a stranger's.
const BESIDE: Ipv4Addr = Ipv4Addr::new(10, 66, 0, 1);
const BESIDE_STRANGER: Ipv4Addr = Ipv4Addr::new(10, 66, 0, 66);

fn made_up(number: u32) -> Mac {
    let [_, b, c, d] = number.to_be_bytes();
    Mac([6, 0, 0, b, c, d])
}

/// DISCOVERs and REQUESTs with invented MACs and a host name of the stranger's choice.
async fn dhcp(settings: &Settings) {
    let relay = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 3), settings.dhcp_port)).await.unwrap();
    for number in 0..PACKETS {
        let kind = if number % 2 == 0 { MessageType::Discover } else { MessageType::Request };
        let mut message = Dhcp::request(kind, number, made_up(number / 2));
        message.giaddr = Ipv4Addr::new(127, 0, 0, 3);
        message.option(OptionCode::UserClass, "iPXE");
        message.option(OptionCode::Hostname, HOSTILE);
        if kind == MessageType::Request {
            message
                .option(OptionCode::RequestedIpAddress, [127, 0, 0, 100 + u8::try_from(number % 8).unwrap()]);
            message.option(OptionCode::ServerIdentifier, Ipv4Addr::LOCALHOST.octets());
        }
        relay.send_to(&message.encode(), (Ipv4Addr::LOCALHOST, settings.dhcp_port)).await.unwrap();
    }
}

/// Questions of firmware to the boot server port, with invented MACs: for its own address, for another one, and malformed. The rack
/// answers the first kind.
async fn boot_server(client: std::net::UdpSocket) {
    client.set_nonblocking(true).unwrap();
    let client = UdpSocket::from_std(client).unwrap();
    let rack = (BESIDE, basalt_dhcp::BOOT_SERVER_PORT);
    for number in 0..PACKETS {
        let mut message = Dhcp::request(MessageType::Request, number, made_up(0x10_0000 + number));
        message.ciaddr = if number % 3 == 0 { Ipv4Addr::new(10, 66, 0, 99) } else { BESIDE_STRANGER };
        message.option(OptionCode::ClassIdentifier, "PXEClient:Arch:00000:UNDI:002001");
        message.option(OptionCode::ClientSystemArchitecture, [0, 0]);
        message.option(OptionCode::Hostname, HOSTILE);
        let packet = if number % 3 == 1 { HOSTILE.as_bytes().to_vec() } else { message.encode() };
        client.send_to(&packet, rack).await.unwrap();
    }
    let answer = tokio::time::timeout(Duration::from_secs(10), client.recv_from(&mut [0; 1500])).await;
    answer.expect("the boot server port is served").unwrap();
}

/// SOLICITs with rapid commit and invented MACs.
async fn dhcp6() {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, None).unwrap();
    socket.set_freebind_v6(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.bind(&SocketAddr::from((RELAY6, 547)).into()).unwrap();
    let relay = UdpSocket::from_std(socket.into()).unwrap();
    for number in 0..PACKETS {
        relay.send_to(&solicit(made_up(number), RELAY6), (RACK6, 547)).await.unwrap();
    }
}

/// Requests for files that do not exist; each is answered before the next.
async fn tftp(settings: &Settings, from: Ipv4Addr) {
    let client = UdpSocket::bind((from, 0)).await.unwrap();
    let mut buffer = [0; 600];
    for number in 0..PACKETS {
        let request = [b"\0\x01", HOSTILE.as_bytes(), number.to_string().as_bytes(), b"\0octet\0"].concat();
        client.send_to(&request, (Ipv4Addr::LOCALHOST, settings.tftp_port)).await.unwrap();
        // Some requests are lost, so the wait is short.
        tokio::time::timeout(Duration::from_millis(50), client.recv_from(&mut buffer)).await.ok();
    }
}

/// Requests for scripts with invented MACs and with a machine's, for loaders and blobs; claims and reports with
/// invented tokens.
async fn http(settings: &Settings, spki: &str, from: IpAddr) {
    let plain = Client { from, rack: (Ipv4Addr::LOCALHOST, settings.http_port).into(), spki: None };
    let agent = Client { spki: Some(spki.to_owned()), ..plain.clone() };
    for number in 0..PACKETS / 6 {
        plain.get(&format!("/ipxe?mac={}", made_up(number))).await;
        plain.get(&format!("/ipxe?mac={MAC}")).await;
        plain.get(&format!("/loaders/x%1b%0a{number}")).await;
        plain.get(&format!("/grub/grub.cfg-01-06-00-00-00-00-{:02x}", number % 256)).await;
        plain.post(&format!("/report/{number}/booted"), None, HOSTILE.to_owned()).await;
        plain.post(&format!("/api/v1/machines/{number}"), Some("made-up"), "{}".to_owned()).await;
        if number % 10 == 0 {
            let claim = format!(r#"{{"token":"{number}","boot_id":"x","mac":"{MAC}","agent_version":"x"}}"#);
            agent.post("/agent/v1/claim", None, claim).await;
            agent
                .post("/agent/v1/progress", Some("x"), r#"{"seq":1,"stage":"x","percent":1,"message":"x"}"#)
                .await;
            agent.post("/agent/v1/log?offset=0", Some("x"), HOSTILE.to_owned()).await;
        }
    }
}

/// Queries for invented names, over UDP and TCP, and malformed messages.
async fn dns(settings: &Settings, from: Ipv4Addr) {
    let rack = SocketAddr::from((Ipv4Addr::LOCALHOST, settings.dns_port));
    let client = UdpSocket::bind((from, 0)).await.unwrap();
    for number in 0..PACKETS {
        let label = format!("n{number}");
        let head = [&number.to_be_bytes()[2..], b"\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"].concat();
        let name = [&[u8::try_from(label.len()).unwrap()], label.as_bytes(), b"\x07example\x00"].concat();
        let query = [&head[..], &name, b"\x00\x01\x00\x01"].concat();
        client.send_to(&query, rack).await.unwrap();
        client.send_to(HOSTILE.as_bytes(), rack).await.unwrap();
        if number % 10 == 0 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((from, 0).into()).unwrap();
            let mut stream = socket.connect(rack).await.unwrap();
            let length = u16::try_from(query.len()).unwrap().to_be_bytes();
            stream.write_all(&[&length[..], &query].concat()).await.unwrap();
        }
    }
}

/// NTP requests, and packets of modes that are not answered.
async fn ntp(settings: &Settings, from: Ipv4Addr) {
    let client = UdpSocket::bind((from, 0)).await.unwrap();
    for number in 0..PACKETS {
        let mut packet = [0; 48];
        packet[0] = [0x23, 0x16, 0x17, 0x24][number as usize % 4];
        client.send_to(&packet, (Ipv4Addr::LOCALHOST, settings.ntp_port)).await.unwrap();
    }
}

/// Messages of a sender that is no machine, over UDP and TCP.
async fn syslog(settings: &Settings, from: Ipv4Addr) {
    let rack = SocketAddr::from((Ipv4Addr::LOCALHOST, settings.syslog_port[0]));
    let client = UdpSocket::bind((from, 0)).await.unwrap();
    for number in 0..PACKETS {
        let message = format!("<13>Nov 26 12:00:00 host app[{number}]: {HOSTILE}");
        client.send_to(message.as_bytes(), rack).await.unwrap();
        if number % 10 == 0 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((from, 0).into()).unwrap();
            socket.connect(rack).await.unwrap().write_all(message.as_bytes()).await.unwrap();
        }
    }
}

/// The log of this process, with the same limit as that of the rack's program.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(super) fn begin() -> Self {
        let log = Self::default();
        let writer = log.clone();
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).json().with_line_number(true);
        let layer = layer.with_writer(move || writer.clone()).with_filter(LogLimit::default());
        tracing_subscriber::registry().with(LevelFilter::INFO).with(layer).init();
        log
    }

    /// The number of lines that each place in the code has logged.
    pub(super) fn lines_by_place(&self) -> BTreeMap<String, usize> {
        let mut places = BTreeMap::new();
        for line in String::from_utf8(self.0.lock().unwrap().clone()).unwrap().lines() {
            let line: serde_json::Value = serde_json::from_str(line).expect("no packet breaks a line");
            *places.entry(format!("{}:{}", line["target"], line["line_number"])).or_default() += 1;
        }
        places
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(line);
        Ok(line.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The size of the files in a directory, in bytes.
pub(super) fn files(dir: &Path) -> u64 {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_stranger_sends_grows_what_a_region_is_told_without_bounds() {
    if !is_inside("strangers::nothing_that_a_stranger_sends_grows_what_a_region_is_told_without_bounds") {
        return;
    }
    ip("link set lo up");
    ip(&format!("-6 address add {RACK6}/128 dev lo nodad"));
    ip("-6 route add local 2001:db8::/64 dev lo");
    let dir = tempfile::tempdir().unwrap();
    make_switch(&[&format!("{BESIDE}/24")]);
    let host = Host::plug("stranger", "52:54:00:00:00:66");
    host.run(&["ip", "address", "add", &format!("{BESIDE_STRANGER}/24"), "dev", "eth0"]);
    let firmware =
        host.within(|| std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, basalt_dhcp::CLIENT_PORT)).unwrap());
    // The boot server port is served beside port 67 alone.
    let settings = Settings {
        dhcp_port: basalt_dhcp::SERVER_PORT,
        interfaces: vec!["lo".into(), "rack0".into()],
        ..settings(dir.path())
    };
    write_concerns(&settings.data_dir);
    let log = Log::begin();
    let rack = Daemon::start(settings.clone()).await.unwrap();
    for service in ["tftp 127.0.0.1", "dns 127.0.0.1", "ntp 127.0.0.1", "dhcp lo", "dhcp rack0", "dhcp6 lo"] {
        let up = |fact: &Fact| matches!(&fact.body, Some(Body::Health(it)) if it.ok && it.service == service);
        fact(&rack.facts, up).await;
    }
    let stranger = Ipv4Addr::new(127, 0, 0, 66);
    tokio::join!(
        boot_server(firmware),
        dhcp(&settings),
        dhcp6(),
        tftp(&settings, stranger),
        dns(&settings, stranger),
        ntp(&settings, stranger),
        syslog(&settings, stranger),
        http(&settings, &rack.spki_sha256, stranger.into())
    );
    let clock = rack.facts.clock().clone();
    for line in rack.logs.read(0, 16 << 20).await.unwrap() {
        assert!(line.machine_uid.is_empty() && !line.text.contains(char::is_control), "{line:?}");
    }
    rack.stop().await;
    let logged: u64 = files(&settings.data_dir.join("logs"));
    assert!((10_000..1 << 20).contains(&logged), "{logged} bytes of logs");

    let (mut rows, mut bytes, mut lines) = (BTreeMap::<&str, usize>::new(), 0, 0);
    let mut next = 1;
    let mut spool = Spool::open(&settings.data_dir, Limits::default(), clock).unwrap();
    loop {
        let facts = spool.read(next, 512, 1 << 20).unwrap();
        let Some(last) = facts.last().map(|fact| fact.seq) else { break };
        for told in facts {
            bytes += told.encoded_len();
            let kind = match &told.body {
                Some(Body::Lease(lease)) => {
                    assert!(lease.hostname.chars().all(|c| !c.is_control()), "{lease:?}");
                    "lease"
                }
                Some(Body::BootTrace(trace)) => {
                    lines += trace.entries.len();
                    for entry in &trace.entries {
                        let texts = [&entry.asked, &entry.answered];
                        assert!(texts.iter().all(|it| it.chars().count() <= 256), "{entry:?}");
                        assert!(texts.iter().all(|it| it.chars().all(|c| !c.is_control())), "{entry:?}");
                    }
                    "trace"
                }
                Some(Body::Health(_)) => "health",
                Some(Body::DhcpInForce(_)) => "blocks",
                Some(Body::BootRequest(request)) => {
                    assert_eq!(
                        (told.machine_uid.as_str(), request.answer.starts_with("refused")),
                        ("uid-1", true)
                    );
                    "refusal"
                }
                other => panic!("a stranger made the rack tell {other:?}"),
            };
            *rows.entry(kind).or_default() += 1;
        }
        next = last + 1;
    }
    let of = |kind| rows.get(kind).copied().unwrap_or_default();
    assert!((8..=9).contains(&of("refusal")), "in a machine's name: {rows:?}");
    // Each of the sixteen addresses is granted, and may have been released once.
    assert!(of("lease") > 0 && of("lease") <= 2 * 16, "{rows:?}");
    // The invented MACs share 1,024 entries, and four more each second.
    assert!(lines <= 1_024 + 128 + 400, "{lines} lines");
    assert!(bytes < 600_000, "{bytes} bytes in {rows:?}");
    let places = log.lines_by_place();
    let loudest = places.values().copied().max().unwrap_or_default();
    // Each place in the code may log 128 lines, and one more each second.
    assert!((128..=128 + 60).contains(&loudest), "the packets are more than a place may log: {places:?}");
}
