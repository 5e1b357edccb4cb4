//! The shell against BMCs with unusual behaviour: with connections, with the length of answers, and with time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use basalt_redfish::{Account, Boot, Config, Device, Failure, Power, Reset, Session};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The behaviour of a BMC.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// Answers, and keeps the connection.
    Keeps,
    /// Answers, and closes the connection without announcing it.
    Closes,
    /// Answers a reset with more bytes than the client accepts.
    Floods,
    /// Receives resets and does not answer.
    HangsAtResets,
    /// Accepts a boot override, and shows it from this read on.
    ShowsBoots { after: usize },
}

/// A number of reads that no test reaches.
const NEVER: usize = usize::MAX;

struct Bmc {
    config: Config,
    connections: Arc<AtomicUsize>,
    /// The number of the connection, and the request line, of each request.
    heard: Arc<Mutex<Vec<(usize, String)>>>,
}

impl Bmc {
    async fn start(habit: Habit) -> Self {
        let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let provider = Arc::new(default_provider());
        let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider));
        let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let server = server.with_single_cert(vec![own.cert.der().clone()], key).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(own.cert.der().clone()).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(provider);
        let client = client.with_safe_default_protocol_versions().unwrap();
        let tls = Arc::new(client.with_root_certificates(roots).with_no_client_auth());

        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut config = Config::new("localhost", port, Account::new("admin", "secret"), tls);
        config.timing.request = Duration::from_secs(2);
        let bmc = Self { config, connections: Arc::default(), heard: Arc::default() };
        let (connections, heard) = (Arc::clone(&bmc.connections), Arc::clone(&bmc.heard));
        let acceptor = TlsAcceptor::from(Arc::new(server));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = connections.fetch_add(1, Ordering::SeqCst);
                let (acceptor, heard) = (acceptor.clone(), Arc::clone(&heard));
                tokio::spawn(async move {
                    let stream = acceptor.accept(stream).await.unwrap();
                    // Disconnecting clients are the subject of these tests.
                    let _ = serve(stream, habit, number, &heard).await;
                });
            }
        });
        bmc
    }

    fn heard(&self) -> Vec<(usize, String)> {
        self.heard.lock().unwrap().clone()
    }
}

/// The system's properties for boot overrides.
const BOOT: &str = r#""BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Hdd"], "BootSourceOverrideMode": "UEFI""#;

/// The action that resets the manager.
const MANAGER: &str = r#"{"target": "/manager/Actions/Manager.Reset"}"#;

async fn serve(
    stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>,
    habit: Habit,
    number: usize,
    heard: &Mutex<Vec<(usize, String)>>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let request = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await?;
            if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if header.trim().is_empty() {
                break;
            }
        }
        stream.read_exact(&mut vec![0; length]).await?;
        heard.lock().unwrap().push((number, request.clone()));
        let is_reset = request.starts_with("POST");
        let target = match habit {
            Habit::ShowsBoots { after } if reads_since_patch(&heard.lock().unwrap()) > after => "Pxe",
            _ => "Hdd",
        };
        let body = match request.as_str() {
            "GET /redfish/v1/" => r#"{"Systems": {"@odata.id": "/redfish/v1/Systems"}}"#.to_owned(),
            "GET /redfish/v1/Systems" => {
                r#"{"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]}"#.to_owned()
            }
            _ if is_reset && habit == Habit::Floods => "x".repeat(2 << 20),
            _ => format!(
                r##"{{"PowerState": "Off", "Actions": {{"#ComputerSystem.Reset": {{"target": "/reset"}}, "#Manager.Reset": {MANAGER}}}, "Links": {{"ManagedBy": [{{"@odata.id": "/manager"}}]}}, "Boot": {{{BOOT}, "BootSourceOverrideTarget": "{target}", "BootSourceOverrideEnabled": "Once"}}}}"##
            ),
        };
        if is_reset && habit == Habit::HangsAtResets {
            std::future::pending::<()>().await;
        }
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.flush().await?;
        if habit == Habit::Closes {
            return stream.shutdown().await;
        }
    }
}

/// The number of requests since the last PATCH; zero before the first one.
fn reads_since_patch(heard: &[(usize, String)]) -> usize {
    let last = heard.iter().rposition(|(_, request)| request.starts_with("PATCH"));
    last.map_or(0, |last| heard.len() - 1 - last)
}

fn numbers(heard: &[(usize, String)]) -> Vec<usize> {
    heard.iter().map(|(number, _)| *number).collect()
}

#[tokio::test]
async fn reads_share_a_connection_and_a_change_has_its_own() {
    let bmc = Bmc::start(Habit::Keeps).await;
    let mut session = Session::open(bmc.config.clone()).await.unwrap();
    assert_eq!(session.power().await, Ok(Power::Off));
    session.reset(Reset::On).await.unwrap();
    assert_eq!(numbers(&bmc.heard()), [0, 0, 0, 0, 1]);
}

#[tokio::test]
async fn connections_that_close_behind_each_answer_are_made_anew() {
    let bmc = Bmc::start(Habit::Closes).await;
    let mut session = Session::open(bmc.config.clone()).await.unwrap();
    assert_eq!(session.power().await, Ok(Power::Off));
    session.reset(Reset::On).await.unwrap();
    let heard = bmc.heard();
    assert_eq!(numbers(&heard), [0, 1, 2, 3, 4]);
    assert_eq!(heard.last().unwrap().1, "POST /reset");
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_its_end() {
    let bmc = Bmc::start(Habit::Floods).await;
    let mut session = Session::open(bmc.config.clone()).await.unwrap();
    let failure = session.reset(Reset::On).await.unwrap_err().failure;
    assert!(matches!(&failure, Failure::Malformed { reason, .. } if reason.contains("larger")), "{failure}");
}

#[tokio::test]
async fn a_reset_that_is_not_answered_in_time_is_not_repeated() {
    let bmc = Bmc::start(Habit::HangsAtResets).await;
    let mut session = Session::open(bmc.config.clone()).await.unwrap();
    let error = session.reset(Reset::On).await.unwrap_err();
    assert!(
        matches!(&error.failure, Failure::StoppedAnswering { during, .. } if during == "POST /reset"),
        "{error}"
    );
    assert_eq!(bmc.heard().iter().filter(|(_, request)| request == "POST /reset").count(), 1);
}

#[tokio::test]
async fn a_bmc_that_restarts_before_it_answers_is_restarted_once() {
    let bmc = Bmc::start(Habit::HangsAtResets).await;
    let mut session = Session::open(bmc.config.clone()).await.unwrap();
    assert_eq!(session.restart_manager().await, Ok(()));
    let restart = "POST /manager/Actions/Manager.Reset";
    assert_eq!(bmc.heard().iter().filter(|(_, request)| request == restart).count(), 1);
}

#[tokio::test]
async fn a_boot_override_is_read_back_until_the_system_shows_it() {
    let network = Boot { device: Device::Network, uefi: true };
    for (after, reads) in [(0, 1), (2, 3)] {
        let mut bmc = Bmc::start(Habit::ShowsBoots { after }).await;
        bmc.config.timing.pause = Duration::from_millis(1);
        let mut session = Session::open(bmc.config.clone()).await.unwrap();
        session.boot_once(network).await.unwrap();
        assert_eq!(reads_since_patch(&bmc.heard()), reads, "{:?}", bmc.heard());
    }
    let mut bmc = Bmc::start(Habit::ShowsBoots { after: NEVER }).await;
    (bmc.config.timing.pause, bmc.config.timing.confirm) =
        (Duration::from_millis(1), Duration::from_millis(50));
    let mut session = Session::open(bmc.config.clone()).await.unwrap();
    let failure = session.boot_once(network).await.unwrap_err().failure;
    assert!(matches!(&failure, Failure::NotKept { reads, .. } if reads.contains("Hdd")), "{failure}");
}

#[tokio::test]
async fn nothing_is_asked_of_whom_nobody_vouches_for() {
    let (bmc, other) = (Bmc::start(Habit::Keeps).await, Bmc::start(Habit::Keeps).await);
    let config = Config { tls: other.config.tls.clone(), ..bmc.config.clone() };
    let error = Session::open(config).await.unwrap_err();
    assert!(matches!(error.failure, Failure::Certificate(_)), "{error}");
    assert!(bmc.heard().is_empty());
}

#[tokio::test]
async fn sessions_with_one_bmc_ask_one_after_another() {
    let bmc = Bmc::start(Habit::Keeps).await;
    let turn = bmc.config.turns.acquire().await.unwrap();
    let other = Session::open(bmc.config.clone());
    assert!(tokio::time::timeout(Duration::from_millis(100), other).await.is_err(), "it has no turn");
    assert_eq!(bmc.connections.load(Ordering::SeqCst), 0);
    drop(turn);
    let mut session = Session::open(bmc.config.clone()).await.unwrap();
    let turn = bmc.config.turns.acquire().await.unwrap();
    let asked = session.power();
    let longer = bmc.config.timing.request + Duration::from_millis(200);
    assert!(tokio::time::timeout(longer, asked).await.is_err(), "its time has not begun");
    assert!(bmc.heard().is_empty());
    drop(turn);
    assert_eq!(session.power().await, Ok(Power::Off));
}
