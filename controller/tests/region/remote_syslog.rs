//! Lines of machines forwarded to rsyslog, which is killed, restarted, and spoken to by TLS and UDP.

use crate::accounts::pools;
use crate::enrolment::{NewRack, region};
use crate::support::{Client, Lab, admin_token, lab, region_beside};
use basalt_api::values::RackId;
use basalt_db::Key;
use basalt_db::testing::clock::Hand;
use basalt_proto::rack_v1::{LogBatch, LogLine};
use basalt_region::logs::Logs;
use basalt_region::region::Region;
use basalt_region::settings::Settings;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const SPOOL: &str = "11111111-1111-4111-8111-111111111111";
const DEADLINE: Duration = Duration::from_secs(60);
const SETTINGS: &str = "/api/v1/settings/default";

/// The root of rsyslog's packages.
fn rsyslog() -> PathBuf {
    let bring = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/lab/peer");
    let brought = Command::new(bring).arg("rsyslog").stderr(Stdio::inherit()).output().unwrap();
    assert!(brought.status.success(), "tests/lab/peer rsyslog: {}", brought.status);
    PathBuf::from(String::from_utf8(brought.stdout).unwrap().trim_end())
}

/// A receiver: rsyslogd, which writes `HOST APP TEXT` of each message to a file.
struct Receiver {
    dir: TempDir,
    port: u16,
    input: String,
    running: Option<Child>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Receiver {
    fn new(tls: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let driver = match tls {
            true => {
                certificate(dir.path());
                let at = dir.path().display();
                format!(
                    "global(DefaultNetstreamDriver=\"ossl\" DefaultNetstreamDriverCAFile=\"{at}/cert.pem\" \
                     DefaultNetstreamDriverCertFile=\"{at}/cert.pem\" DefaultNetstreamDriverKeyFile=\"{at}/key.pem\")\n\
                     module(load=\"imtcp\" StreamDriver.Name=\"ossl\" StreamDriver.Mode=\"1\" StreamDriver.AuthMode=\"anon\")\n"
                )
            }
            false => "module(load=\"imtcp\")\n".to_owned(),
        };
        let input = format!("{driver}input(type=\"imtcp\" address=\"127.0.0.1\" port=\"{port}\")\n");
        Self { dir, port, input, running: None }
    }

    fn start(mut self) -> Self {
        self.run();
        self
    }

    fn run(&mut self) {
        let root = rsyslog();
        let at = self.dir.path();
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        let config = format!(
            "{}template(name=\"told\" type=\"string\" string=\"%hostname% %app-name% %msg%\\n\")\n\
             action(type=\"omfile\" file=\"{}/out\" template=\"told\")\n",
            self.input,
            at.display()
        );
        std::fs::write(at.join("rsyslog.conf"), config).unwrap();
        let running = Command::new(root.join("usr/sbin/rsyslogd"))
            .args(["-n", "-iNONE", "-M"])
            .arg(libraries.join("rsyslog"))
            .arg("-f")
            .arg(at.join("rsyslog.conf"))
            .env("LD_LIBRARY_PATH", libraries)
            .current_dir(at)
            .spawn()
            .unwrap();
        self.running = Some(running);
    }

    /// Kills it, as a crash would.
    fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill().unwrap();
            running.wait().unwrap();
        }
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join("out")).unwrap_or_default();
        text.lines().filter(|line| !line.contains(" rsyslogd ")).map(str::to_owned).collect()
    }

    /// Waits for a line that ends so.
    async fn has(&self, end: &str) -> Vec<String> {
        let wait = async {
            loop {
                let lines = self.lines();
                if lines.iter().any(|line| line.ends_with(end)) {
                    return lines;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(DEADLINE, wait).await.unwrap_or_else(|_| panic!("{end:?} of {:?}", self.lines()))
    }
}

/// A certificate for 127.0.0.1 that vouches for itself.
fn certificate(dir: &Path) {
    let status = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-subj", "/CN=logs", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-days", "2"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(dir)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

async fn forward(lab: &Lab, receivers: Value) {
    lab.api.declare(SETTINGS, &json!({"remote_syslog": receivers}).to_string()).await;
}

/// Waits until the status of the receiver `siem` is so.
async fn status(api: &Client, holds: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let wait = async {
        loop {
            last = api.get(SETTINGS).await.json()["status"]["remote_syslog"]["siem"].clone();
            if holds(&last) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let seen = tokio::time::timeout(DEADLINE, wait).await;
    assert!(seen.is_ok(), "{last}");
    last
}

async fn is_connected(api: &Client) {
    status(api, |it| it["connected"] == true).await;
}

/// Stores lines of the machine `blue`, as a rack delivers them.
async fn store(lab: &Lab, logs: &Logs, seqs: std::ops::RangeInclusive<u64>) {
    let uid = lab.region.store().get("Machine", Key::Name("blue")).await.expect("a machine").uid;
    let line = |seq| LogLine {
        seq,
        at_unix_ms: 1_704_096_000_000,
        machine_uid: uid.to_string(),
        priority: 30,
        app: "app".into(),
        host: "localhost".into(),
        text: format!("line {seq}."),
        ..LogLine::default()
    };
    let batch = LogBatch { spool_uid: SPOOL.into(), lines: seqs.map(line).collect() };
    let logs = logs.clone();
    let stored = tokio::task::spawn_blocking(move || logs.store(RackId::from(uuid(1)), batch)).await.unwrap();
    stored.expect("they are stored");
}

fn uuid(number: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(number)
}

/// The lists are long: the first difference is enough.
fn assert_lines(found: &[String], expected: &[String]) {
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    let place = differs.unwrap_or(found.len().min(expected.len()));
    let (found_there, expected_there) = (found.get(place), expected.get(place));
    assert!(
        found == expected,
        "{} for {}; at {place} {found_there:?} for {expected_there:?}",
        found.len(),
        expected.len()
    );
}

fn expected(seqs: impl IntoIterator<Item = u64>) -> Vec<String> {
    seqs.into_iter().map(|seq| format!("blue app line {seq}.")).collect()
}

/// Lines without those that were sent again after a connection had failed.
fn once(lines: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    lines.into_iter().filter(|line| seen.insert(line.clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_forwarded_in_order_whatever_becomes_of_the_receiver() {
    let lab = lab().await;
    pools(&lab.api).await;
    let mut receiver = Receiver::new(false).start();
    forward(&lab, json!({"siem": {"address": format!("127.0.0.1:{}", receiver.port)}})).await;
    is_connected(&lab.api).await;
    store(&lab, lab.region.logs(), 1..=1000).await;
    // Each once, under the machine's name.
    assert_lines(&receiver.has("line 1000.").await, &expected(1..=1000));

    receiver.kill();
    let message = status(&lab.api, |it| it["connected"] == false).await["message"].clone();
    assert!(message.as_str().unwrap().contains("127.0.0.1"), "{message}");
    store(&lab, lab.region.logs(), 1001..=1500).await;
    status(&lab.api, |it| it["waiting_bytes"].as_u64() > Some(50_000)).await;
    receiver.run();
    let lines = receiver.has("line 1500.").await;
    assert_lines(&once(lines), &expected(1..=1500));

    is_connected(&lab.api).await;
    let metrics = lab.api.get("/metrics").await;
    let connected = "basalt_remote_syslog_connected{receiver=\"siem\"} 1";
    assert!(metrics.text().contains(connected), "{}", metrics.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_region_goes_on_where_the_first_one_stopped() {
    let lab = lab().await;
    pools(&lab.api).await;
    let (other, other_dir) = region_beside(&lab).await;
    let receiver = Receiver::new(false).start();
    forward(&lab, json!({"siem": {"address": format!("127.0.0.1:{}", receiver.port)}})).await;
    is_connected(&lab.api).await;
    // Both have begun their journals when both have read Settings.
    for dir in [lab.dir.path(), other_dir.path()] {
        let begun = async {
            while !dir.join("logs/forward").is_dir() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(DEADLINE, begun).await.expect("a journal");
    }
    for logs in [lab.region.logs(), other.logs()] {
        store(&lab, logs, 1..=300).await;
    }
    receiver.has("line 300.").await;
    let (api, store_of) =
        (Client { address: other.address(), ..lab.api.clone() }, lab.region.store().clone());
    let uid = store_of.get("Machine", Key::Name("blue")).await.unwrap().uid;
    let logs = other.logs().clone();
    lab.region.stop().await;
    let batch = LogBatch {
        spool_uid: SPOOL.into(),
        lines: (301..=400)
            .map(|seq| LogLine {
                seq,
                machine_uid: uid.to_string(),
                priority: 30,
                app: "app".into(),
                text: format!("line {seq}."),
                ..LogLine::default()
            })
            .collect(),
    };
    logs.store(RackId::from(uuid(1)), batch).unwrap();
    // No line twice: the first one has closed its connection, and knew that all had been read.
    assert_lines(&receiver.has("line 400.").await, &expected(1..=400));
    let told = status(&api, |it| it["connected"] == true).await;
    assert_eq!(told["lost"], 0, "{told}");
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_wait_survive_a_restart_of_the_region() {
    let lab = lab().await;
    pools(&lab.api).await;
    let mut receiver = Receiver::new(false);
    forward(&lab, json!({"siem": {"address": format!("127.0.0.1:{}", receiver.port)}})).await;
    status(&lab.api, |it| it["message"].is_string()).await;
    store(&lab, lab.region.logs(), 1..=100).await;
    lab.region.stop().await;
    let settings = Settings {
        database_url: Some(lab.url.clone()),
        listen: ([127, 0, 0, 1], 0).into(),
        ..Settings::new(lab.dir.path())
    };
    let again = Box::pin(Region::start(settings)).await.expect("it starts again");
    receiver.run();
    assert_lines(&once(receiver.has("line 100.").await), &expected(1..=100));
    let api = Client::new(again.address(), Some(admin_token(lab.dir.path())));
    is_connected(&api).await;
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_by_tls_is_trusted_by_its_certificate_alone() {
    let lab = lab().await;
    pools(&lab.api).await;
    let receiver = Receiver::new(true).start();
    let other = tempfile::tempdir().unwrap();
    certificate(other.path());
    let ca = |dir: &Path| std::fs::read_to_string(dir.join("cert.pem")).unwrap();
    let by_tls = |ca: String| {
        let address = format!("127.0.0.1:{}", receiver.port);
        json!({"siem": {"address": address, "protocol": "tls", "ca": ca}})
    };
    forward(&lab, by_tls(ca(other.path()))).await;
    status(&lab.api, |it| it["message"].as_str().is_some_and(|it| it.contains("fails at TLS"))).await;
    store(&lab, lab.region.logs(), 1..=200).await;
    assert_lines(&receiver.lines(), &[]);
    forward(&lab, by_tls(ca(receiver.dir.path()))).await;
    assert_lines(&once(receiver.has("line 200.").await), &expected(1..=200));
    is_connected(&lab.api).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn datagrams_are_sent_and_what_is_missing_is_told() {
    let lab = lab().await;
    pools(&lab.api).await;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    forward(&lab, json!({"siem": {"address": address, "protocol": "udp"}})).await;
    is_connected(&lab.api).await;
    store(&lab, lab.region.logs(), 1..=1).await;
    store(&lab, lab.region.logs(), 5..=5).await;
    let mut datagram = [0; 2048];
    let mut heard = || {
        let length = socket.recv(&mut datagram).unwrap();
        String::from_utf8_lossy(&datagram[..length]).into_owned()
    };
    assert_eq!(heard(), "<30>1 2024-01-01T08:00:00.000Z blue app - - - line 1.");
    let missing = heard();
    assert!(missing.starts_with("<45>1 ") && missing.contains(" 3 lines are missing here"), "{missing}");
    assert!(heard().ends_with("line 5."));
    status(&lab.api, |it| it["lost"] == 3 && it["forwarded"] == 2 && it["waiting_bytes"] == 0).await;
}

#[tokio::test]
async fn lines_are_not_forwarded_to_where_racks_take_logs() {
    let (lab, controller) = region().await;
    NewRack::new(&lab, controller.rpc_address(), "r1").await.enrol().await;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let status_of_rack = json!({"services": {format!("syslog {address}"): {"state": "running"}}});
    // The rack's reconciliation writes its own status once more after it has enrolled.
    let update = format!("update object set status = '{status_of_rack}' where kind = 'Rack'");
    let mut hand = Hand::on(&lab.url).await;
    forward(&lab, json!({"siem": {"address": address, "protocol": "udp"}})).await;
    let refused = async {
        loop {
            hand.run(&update).await;
            let told =
                lab.api.get(SETTINGS).await.json()["status"]["remote_syslog"]["siem"]["message"].clone();
            if told.as_str().is_some_and(|it| it.contains("is where rack r1 takes logs")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(DEADLINE, refused).await.expect("it is refused");
}
