//! The shell on loopback, with sockets of our own and with clients of others.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use basalt_tftp::client::{ClientAction, ClientRequest, Failure, Fetched};
use basalt_tftp::packet::{ErrorCode, Packet};
use basalt_tftp::server::{self, Counters, Event, FileSource, OpenError, Settings};
use basalt_tftp::{Client, Limits, Outcome};
use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::process::Command;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Nothing here takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

struct Files(HashMap<&'static str, Bytes>);

impl FileSource for Files {
    async fn open(&self, path: &str, _client: SocketAddr) -> Result<Bytes, OpenError> {
        if path == "never" {
            std::future::pending::<()>().await;
        }
        if path == "broken" {
            return Err(OpenError::Unavailable("the disk is gone".to_owned()));
        }
        self.0.get(path).cloned().ok_or(OpenError::NotFound)
    }
}

fn large() -> Bytes {
    (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

struct Running {
    addresses: Vec<SocketAddr>,
    counters: Arc<Counters>,
    events: mpsc::UnboundedReceiver<Event>,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Running {
    async fn start(hosts: &[&str], limits: Limits) -> Self {
        let mut sockets = Vec::new();
        for host in hosts {
            sockets.push(UdpSocket::bind((*host, 0)).await.expect("a loopback port"));
        }
        let addresses = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        let counters = Arc::new(Counters::default());
        let open_timeout = Duration::from_millis(300);
        let settings = Settings { limits, counters: counters.clone(), open_timeout, ..Settings::default() };
        let (stop, stopped) = oneshot::channel();
        let (sender, events) = mpsc::unbounded_channel();
        let files = Files(HashMap::from([
            ("small.efi", Bytes::from_static(b"small")),
            ("boot/large.img", large()),
            ("text", Bytes::from_static(b"one\ntwo\n")),
            ("empty", Bytes::new()),
        ]));
        let observe = move |event| {
            let _ = sender.send(event);
        };
        let stopped = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(server::serve(sockets, files, settings, observe, stopped));
        Self { addresses, counters, events, stop, task }
    }

    async fn one() -> Self {
        Self::start(&["127.0.0.1"], Limits::default()).await
    }

    fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    async fn event(&mut self) -> Event {
        timeout(PATIENCE, self.events.recv()).await.expect("an event in time").expect("a running server")
    }

    async fn outcome(&mut self) -> Outcome {
        match self.event().await {
            Event::Finished { outcome, .. } => outcome,
            other => panic!("{other:?}"),
        }
    }

    async fn stop(self) {
        self.stop.send(()).expect("a running server");
        timeout(PATIENCE, self.task).await.expect("stops in time").unwrap().unwrap();
    }
}

/// Fetches with the client core.
async fn fetch(request: ClientRequest) -> Result<Fetched, Failure> {
    let local: IpAddr = "127.0.0.1".parse().unwrap();
    let socket = UdpSocket::bind((local, 0)).await.unwrap();
    let (mut client, mut actions) = Client::start(request, Instant::now());
    let mut buffer = [0; 2048];
    loop {
        for action in actions {
            match action {
                ClientAction::Send { to, bytes } => drop(socket.send_to(&bytes, to).await.unwrap()),
                ClientAction::Done(result) => return result,
            }
        }
        let deadline = tokio::time::Instant::from_std(client.deadline());
        actions = tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                let (len, from) = received.unwrap();
                client.on_packet(Instant::now(), from, &buffer[..len])
            }
            () = tokio::time::sleep_until(deadline) => client.on_timer(Instant::now()),
        };
    }
}

/// Runs another's client; says what to install when it is not there.
async fn run(program: &str, package: &str, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    match timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => panic!("cannot run {program}: {error}; install the Debian package {package}"),
        Err(_) => panic!("{program} {arguments:?} did not end within {PATIENCE:?}"),
    }
}

async fn curl(url: &str, file: &Path, more: &[&str]) -> std::process::Output {
    let file = file.to_str().unwrap();
    let arguments = [&["--silent", "--show-error", "--max-time", "15", "--output", file, url], more].concat();
    run("curl", "curl", &arguments).await
}

async fn atftp(server: SocketAddr, remote: &str, file: &Path, options: &[&str]) -> std::process::Output {
    let (file, port, host) = (file.to_str().unwrap(), server.port().to_string(), server.ip().to_string());
    let mut arguments = vec!["--get", "--remote-file", remote, "--local-file", file];
    for option in options {
        arguments.extend(["--option", option]);
    }
    arguments.extend([host.as_str(), port.as_str()]);
    run("atftp", "atftp", &arguments).await
}

#[tokio::test]
async fn serves_curl() {
    let mut server = Running::one().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    for (name, more) in [("boot/large.img", &[][..]), ("/boot/large.img", &["--tftp-blksize", "1468"])] {
        let output = curl(&format!("tftp://{}/{name}", server.address()), &file, more).await;
        assert!(output.status.success(), "{output:?}");
        assert_eq!(std::fs::read(&file).unwrap(), large());
        assert_eq!(server.outcome().await, Outcome::Completed);
    }
    let output = curl(&format!("tftp://{}/none", server.address()), &file, &[]).await;
    assert_eq!(output.status.code(), Some(68), "curl's code for file not found: {output:?}");
    assert!(matches!(server.event().await, Event::Refused { code: ErrorCode::FileNotFound, .. }));
    assert_eq!(server.counters.bytes.load(Ordering::Relaxed), 6_000_000);
    server.stop().await;
}

#[tokio::test]
async fn serves_atftp_with_every_option() {
    let mut server = Running::one().await;
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        &[][..],
        &["blksize 1428"],
        &["blksize 1428", "windowsize 16"],
        &["blksize 65464", "windowsize 64", "tsize enable", "timeout 2"],
    ];
    for (number, options) in cases.into_iter().enumerate() {
        let file = folder.path().join(number.to_string());
        let output = atftp(server.address(), "boot/large.img", &file, options).await;
        assert!(output.status.success(), "{options:?}: {output:?}");
        assert!(std::fs::read(&file).unwrap() == large(), "{options:?}");
        assert_eq!(server.outcome().await, Outcome::Completed, "{options:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn fetches_with_its_own_client() {
    let mut server = Running::one().await;
    for (name, content) in
        [("small.efi", Bytes::from_static(b"small")), ("empty", Bytes::new()), ("boot/large.img", large())]
    {
        let mut request = ClientRequest::new(server.address(), name);
        (request.blksize, request.windowsize, request.tsize) = (Some(1468), Some(16), true);
        let fetched = fetch(request).await.unwrap();
        assert_eq!(fetched.size, Some(content.len() as u64));
        assert!(fetched.content == content, "{name}");
        assert_eq!(server.outcome().await, Outcome::Completed);
    }
    for (name, code) in [
        ("none", ErrorCode::FileNotFound),
        ("../x", ErrorCode::AccessViolation),
        ("broken", ErrorCode::Undefined),
        ("never", ErrorCode::Undefined),
    ] {
        let failure = fetch(ClientRequest::new(server.address(), name)).await.unwrap_err();
        assert!(
            matches!(&failure, Failure::Refused { code: answered, .. } if *answered == code),
            "{name}: {failure}"
        );
        assert!(matches!(server.event().await, Event::Refused { .. }));
    }
    server.stop().await;
}

#[tokio::test]
async fn answers_the_second_request_from_the_port_of_an_aborted_probe() {
    let mut server = Running::one().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut buffer = [0; 2048];
    let options = vec![("tsize".to_owned(), "0".to_owned()), ("blksize".to_owned(), "1468".to_owned())];
    let request = Packet::Request { write: false, file: "boot/large.img", mode: "octet", options }.encode();
    let mut ports = Vec::new();
    for abort in [true, false] {
        socket.send_to(&request, server.address()).await.unwrap();
        let (len, from) = timeout(PATIENCE, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
        let Ok(Packet::Oack { options }) = Packet::parse(&buffer[..len]) else {
            panic!("{:?}", &buffer[..len])
        };
        assert_eq!(options[0], ("tsize".to_owned(), "3000000".to_owned()));
        ports.push(from.port());
        if abort {
            socket.send_to(&Packet::error(ErrorCode::OptionNegotiation, "aborted"), from).await.unwrap();
            assert_eq!(server.outcome().await, Outcome::Probed);
        }
    }
    assert_ne!(ports[0], ports[1], "a new transfer has a new port");
    server.stop().await;
}

#[tokio::test]
async fn two_requests_from_one_port_are_two_transfers() {
    let server = Running::one().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let request =
        Packet::Request { write: false, file: "small.efi", mode: "octet", options: vec![] }.encode();
    let mut buffer = [0; 2048];
    let mut peers = Vec::new();
    for _ in 0..2 {
        socket.send_to(&request, server.address()).await.unwrap();
        let (_, from) = timeout(PATIENCE, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
        peers.push(from);
    }
    assert_ne!(peers[0], peers[1]);
    server.stop().await;
}

#[tokio::test]
async fn answers_from_the_address_that_was_asked() {
    let server = Running::start(&["127.0.0.1", "127.0.0.2"], Limits::default()).await;
    for address in server.addresses.clone() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let request =
            Packet::Request { write: false, file: "small.efi", mode: "octet", options: vec![] }.encode();
        socket.send_to(&request, address).await.unwrap();
        let mut buffer = [0; 2048];
        let (_, from) = timeout(PATIENCE, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(from.ip(), address.ip());
        assert_ne!(from.port(), address.port());
    }
    server.stop().await;
}

#[tokio::test]
async fn refuses_to_write_and_translates_netascii() {
    let mut server = Running::one().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut buffer = [0; 2048];
    let mut ask = async |write, mode, file| {
        let request = Packet::Request { write, file, mode, options: vec![] }.encode();
        socket.send_to(&request, server.address()).await.unwrap();
        let (len, from) = timeout(PATIENCE, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
        (buffer[..len].to_vec(), from)
    };
    let (refusal, _) = ask(true, "octet", "x").await;
    assert!(matches!(Packet::parse(&refusal), Ok(Packet::Error { code: ErrorCode::AccessViolation, .. })));
    let (text, from) = ask(false, "netascii", "text").await;
    assert_eq!(Packet::parse(&text), Ok(Packet::Data { block: 1, data: b"one\r\ntwo\r\n" }));
    socket.send_to(&Packet::Ack { block: 1 }.encode(), from).await.unwrap();
    assert!(matches!(server.event().await, Event::Refused { .. }));
    assert_eq!(server.outcome().await, Outcome::Completed);
    server.stop().await;
}

#[tokio::test]
async fn drops_requests_at_the_limit_and_serves_again_below_it() {
    let mut server = Running::start(&["127.0.0.1"], Limits { total: 8, per_client: 1 }).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let request =
        Packet::Request { write: false, file: "small.efi", mode: "octet", options: vec![] }.encode();
    let mut buffer = [0; 2048];
    socket.send_to(&request, server.address()).await.unwrap();
    let (_, first) = timeout(PATIENCE, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
    socket.send_to(&request, server.address()).await.unwrap();
    assert!(matches!(server.event().await, Event::Dropped { .. }));
    socket.send_to(&Packet::Ack { block: 1 }.encode(), first).await.unwrap();
    assert_eq!(server.outcome().await, Outcome::Completed);
    // The client core repeats its request if the place is not free yet.
    let fetched = fetch(ClientRequest::new(server.address(), "small.efi")).await.unwrap();
    assert_eq!(fetched.content, b"small");
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!((count(&server.counters.busy) >= 1, count(&server.counters.aborted)), (true, 0));
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_transfer() {
    let mut server = Running::one().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let request =
        Packet::Request { write: false, file: "boot/large.img", mode: "octet", options: vec![] }.encode();
    socket.send_to(&request, server.address()).await.unwrap();
    let mut buffer = [0; 2048];
    timeout(PATIENCE, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
    drop(socket);
    assert_eq!(server.outcome().await, Outcome::Unreachable, "the retransmission is answered by ICMP");
    server.stop().await;
}

#[tokio::test]
async fn many_clients_at_once_and_a_slow_file_delays_none() {
    let server = Running::start(&["127.0.0.1"], Limits { total: 100, per_client: 100 }).await;
    let slow = tokio::spawn(fetch(ClientRequest::new(server.address(), "never")));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mut request = ClientRequest::new(server.address(), "boot/large.img");
        (request.blksize, request.windowsize) = (Some(1468), Some(8));
        tasks.spawn(fetch(request));
    }
    while let Some(fetched) = timeout(PATIENCE, tasks.join_next()).await.expect("in time") {
        assert!(fetched.unwrap().unwrap().content == large());
    }
    assert!(slow.await.unwrap().is_err());
    server.stop().await;
}

#[tokio::test]
async fn refuses_the_wildcard_address() {
    let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
    let served = server::serve(
        vec![socket],
        Files(HashMap::new()),
        Settings::default(),
        |_| {},
        std::future::pending(),
    );
    let error = timeout(PATIENCE, served).await.expect("at once").unwrap_err();
    assert!(error.to_string().contains("bind one socket to each address"), "{error}");
}
