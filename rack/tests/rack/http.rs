//! Images over HTTP: a hall of machines at once, clients that disconnect, and clients that stop reading.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use basalt_rack::attempts::Attempts;
use basalt_rack::blobs::{BlobOrigin, BlobStore, BlobStream, NoOrigin, OriginError};
use basalt_rack::clock::Clock;
use basalt_rack::hash::sha256;
use basalt_rack::health::Health;
use basalt_rack::http::admission::{Admission, Limits};
use basalt_rack::http::report::Reports;
use basalt_rack::http::{Site, Web, serve_on};
use basalt_rack::identity::Identity;
use basalt_rack::loaders::Loaders;
use basalt_rack::logs::Logs;
use basalt_rack::logs::senders::Senders;
use basalt_rack::presence::Presence;
use basalt_rack::spool::{self, writer};
use basalt_rack::strangers::Strangers;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::support::DEADLINE;

/// The HTTP server of a rack with one blob.
struct Server {
    web: Arc<Web>,
    site: Site,
    address: SocketAddr,
    name: String,
    stop: CancellationToken,
}

impl Server {
    async fn start(dir: &Path, length: usize, limits: Limits) -> Self {
        let content: Vec<u8> = (0..length).map(|at| (at / 999) as u8).collect();
        let name = hex::encode(sha256(&content));
        std::fs::create_dir_all(dir.join("blobs")).unwrap();
        std::fs::write(dir.join("blobs").join(&name), content).unwrap();
        Self::serve(dir, name, Arc::new(NoOrigin), limits).await
    }

    async fn serve(dir: &Path, name: String, origin: Arc<dyn BlobOrigin>, limits: Limits) -> Self {
        let (facts, _) = writer::start(dir, spool::Limits::default(), Clock::default()).unwrap();
        let identity = Identity::open(dir).unwrap();
        let presence = Arc::new(Presence::default());
        let senders =
            Senders::new(presence.clone(), watch::channel(None).1, watch::channel(None).1, Clock::default());
        let health = Health::new("logs".into(), facts.clone());
        let (logs, _) = Logs::start(dir, Default::default(), senders, Clock::default(), health).unwrap();
        let web = Arc::new(Web {
            boot: watch::channel(None).1,
            attempts: Arc::new(Attempts::open(dir).unwrap()),
            strangers: Strangers::default(),
            presence,
            blobs: BlobStore::open(dir, Some(1 << 30), origin, watch::channel(None).1).unwrap(),
            admission: Admission::new(limits),
            loaders: Loaders::new(dir),
            facts,
            logs,
            reports: Reports::default(),
            spki_sha256: identity.spki_sha256.clone(),
            regions: None,
        });
        let site = Site::new(Arc::clone(&web), TlsAcceptor::from(Arc::new(identity.agent_tls().unwrap())));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let (served, ends) = (site.clone(), stop.clone());
        tokio::spawn(async move { serve_on(listener, served, &ends).await });
        Self { web, site, address, name, stop }
    }

    /// Requests the blob from this byte on. Returns the connection, after the head of the answer, and the status.
    async fn ask(&self, client: u8, version: &str, from: usize) -> (TcpStream, u16) {
        let mut stream = connect(client, self.address).await;
        let request =
            format!("GET /blobs/{} {version}\r\nHost: rack\r\nRange: bytes={from}-\r\n\r\n", self.name);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(status == 503, head.contains("retry-after: 2\r\n"), "{head}");
        (stream, status)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The link that all clients share, and its rate in bytes a second.
struct Link {
    rate: usize,
    free: Mutex<Instant>,
}

impl Link {
    async fn carry(&self, bytes: usize) {
        let mut free = self.free.lock().await;
        *free = (*free).max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        let until = *free;
        drop(free);
        tokio::time::sleep_until(until).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_machines_at_once_all_get_their_image_whatever_some_of_them_do() {
    // More than a socket buffers at once.
    const LENGTH: usize = 6 << 20;
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { places: 8, patience: Duration::from_millis(300), ..Limits::default() };
    let server = Arc::new(Server::start(dir.path(), LENGTH, limits).await);
    let link = Arc::new(Link { rate: 400 << 20, free: Mutex::new(Instant::now()) });
    let turned_away = Arc::new(AtomicUsize::new(0));
    let machine = async |number: u8, server: &Server, link: &Link, turned_away: &AtomicUsize| {
        let (mut image, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        // Every fifth client loses its connection once.
        let mut breaks = number.is_multiple_of(5);
        while image.len() < LENGTH {
            let (mut stream, status) = server.ask(number, "HTTP/1.1", image.len()).await;
            if status == 503 {
                turned_away.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(2)).await;
                continue;
            }
            assert_eq!(status, 206);
            while image.len() < LENGTH && !(breaks && image.len() > LENGTH / 2) {
                let count = stream.read(&mut buffer).await.unwrap();
                assert!(count > 0, "machine {number}: broken off after {}", image.len());
                link.carry(count).await;
                image.extend_from_slice(&buffer[..count]);
            }
            breaks = false;
        }
        assert_eq!(hex::encode(sha256(&image)), server.name, "machine {number}");
    };
    let machines: Vec<_> = (0..200)
        .map(|number| {
            let (server, link, turned_away) =
                (Arc::clone(&server), Arc::clone(&link), Arc::clone(&turned_away));
            tokio::spawn(async move { machine(number, &server, &link, &turned_away).await })
        })
        .collect();
    for machine in machines {
        machine.await.unwrap();
    }
    let counts = server.web.admission.counts();
    println!("{counts:?}");
    assert_eq!(counts.most, 8);
    assert!(counts.sent_away > 0 && counts.sent_away == turned_away.load(Ordering::Relaxed) as u64);
}

/// A server with one place, and a client that holds it, through sendfile or through hyper.
async fn taken(dir: &Path, version: &str, limits: Limits) -> (Server, TcpStream) {
    let server = Server::start(dir, 32 << 20, Limits { places: 1, ..limits }).await;
    let (stream, status) = server.ask(1, version, 0).await;
    assert_eq!((status, server.web.admission.counts().sending), (206, 1));
    (server, stream)
}

const WAYS: [&str; 2] = ["HTTP/1.1", "HTTP/1.0"];

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_gives_its_place_back() {
    for version in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let (server, stream) = taken(dir.path(), version, Limits::default()).await;
        drop(stream);
        let (_stream, status) = tokio::time::timeout(DEADLINE, server.ask(2, version, 0)).await.unwrap();
        assert_eq!(status, 206, "{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_next_to_nothing_loses_its_place() {
    for version in WAYS {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { window: Duration::from_millis(300), ..Limits::default() };
        let (server, mut slow) = taken(dir.path(), version, limits).await;
        let (_stream, status) = tokio::time::timeout(DEADLINE, server.ask(2, version, 0)).await.unwrap();
        assert_eq!(status, 206, "{version}");
        // Bytes that are already in flight still arrive, and no others.
        let mut rest = Vec::new();
        slow.read_to_end(&mut rest).await.ok();
        assert!(rest.len() < 32 << 20, "{version}: {}", rest.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_small_waits_for_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _stream) = taken(dir.path(), "HTTP/1.1", Limits::default()).await;
    let (mut small, status) = server.ask(2, "HTTP/1.1", (32 << 20) - 5).await;
    let mut end = [0; 5];
    small.read_exact(&mut end).await.unwrap();
    assert_eq!((status, server.web.admission.counts().waiting), (206, 0));
    // The connection stays open, also for requests that hyper answers.
    small.write_all(b"GET /loaders/none HTTP/1.1\r\nHost: rack\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    small.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 404");
}

/// An origin whose bytes arrive when the gate is opened.
struct Far {
    content: Vec<u8>,
    gate: Arc<Semaphore>,
}

impl BlobOrigin for Far {
    fn fetch<'a>(
        &'a self,
        _: &'a str,
        _: u64,
    ) -> Pin<Box<dyn Future<Output = Result<BlobStream, OriginError>> + Send + 'a>> {
        Box::pin(async move {
            let _open = self.gate.acquire().await.unwrap();
            Ok(Box::pin(tokio_stream::iter([Ok(self.content.clone().into())])) as BlobStream)
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_would_wait_long_for_a_fetch_is_told_when_to_come_back_and_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (content, gate) = (vec![7; 100], Arc::new(Semaphore::new(0)));
    let name = hex::encode(sha256(&content));
    let far = Arc::new(Far { content: content.clone(), gate: Arc::clone(&gate) });
    let limits = Limits { fetch: Duration::from_secs(2), ..Limits::default() };
    let server = Server::serve(dir.path(), name.clone(), far, limits).await;
    assert_eq!(server.ask(1, "HTTP/1.1", 0).await.1, 503);
    gate.add_permits(1);
    server.web.blobs.get(&name).await.unwrap();
    let (mut stream, status) = server.ask(1, "HTTP/1.1", 0).await;
    let mut body = vec![0; content.len()];
    stream.read_exact(&mut body).await.unwrap();
    assert_eq!((status, body), (206, content));
}

#[tokio::test]
async fn a_machine_that_opens_connections_and_says_nothing_keeps_nobody_out() {
    // More than one address may have, and fewer than the total limit.
    const MANY: usize = 600;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), 1 << 20, Limits::default()).await;
    let beside = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let another = beside.local_addr().unwrap();
    let (site, stop) = (server.site.clone(), server.stop.clone());
    tokio::spawn(async move { serve_on(beside, site, &stop).await });
    let mut silent = Vec::new();
    for _ in 0..MANY {
        silent.push(connect(8, server.address).await);
    }
    let one_more = connect(8, another).await;
    for (mut stream, place) in [(silent.pop().unwrap(), "here"), (one_more, "at the rack's other address")] {
        let read = tokio::time::timeout(DEADLINE, stream.read(&mut [0])).await;
        let read = read.unwrap_or_else(|_| panic!("it is one too many {place}"));
        assert!(matches!(read, Ok(0) | Err(_)), "nothing was asked: {read:?}");
    }
    let (_, status) = server.ask(9, "HTTP/1.1", 0).await;
    assert_eq!(status, 206);
}

/// Opens a connection from this client.
async fn connect(client: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    // A small buffer, so that little of a body is in flight.
    socket.set_recv_buffer_size(64 << 10).unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 1, client), 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Sends a request as it is written, on its own connection. Returns the head and the body of the answer.
async fn raw(server: &Server, request: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("it ends").unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    let body = answer.split_off(end);
    (String::from_utf8(answer).unwrap().to_ascii_lowercase(), body)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_asked_for_in_parts_and_by_what_the_client_has_of_it() {
    const LENGTH: usize = 1000;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), LENGTH, Limits::default()).await;
    let loader: Vec<u8> = (0..LENGTH).map(|at| (at % 7) as u8).collect();
    std::fs::write(dir.path().join("undionly.kpxe"), &loader).unwrap();
    let blob = std::fs::read(dir.path().join("blobs").join(&server.name)).unwrap();
    let files = [(format!("/blobs/{}", server.name), &blob), ("/loaders/undionly.kpxe".to_owned(), &loader)];
    for (path, content) in &files {
        let own = format!("etag: \"{}\"\r\n", hex::encode(sha256(content)));
        let etag = own["etag: ".len()..].trim_end().to_owned();
        // Through sendfile if the request is for a blob, and through hyper.
        for version in WAYS {
            let ask = async |method: &str, headers: &str| {
                let request =
                    format!("{method} {path} {version}\r\nHost: r\r\nConnection: close\r\n{headers}\r\n");
                let (head, body) = raw(&server, &request).await;
                let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
                (status, head, body)
            };
            let (status, head, body) = ask("GET", "").await;
            assert!(status == 200 && head.contains(&own) && body == **content, "{head}");
            let (status, head, body) =
                ask("GET", &format!("Range: bytes=990-\r\nIf-Range: {etag}\r\n")).await;
            assert_eq!((status, body.as_slice()), (206, &content[990..]), "{head}");
            assert!(head.contains("content-range: bytes 990-999/1000\r\n") && head.contains(&own), "{head}");
            for other in ["\"0\"", "W/\"0\"", &format!("W/{etag}"), "Sun, 06 Nov 1994 08:49:37 GMT"] {
                let (status, head, body) =
                    ask("GET", &format!("Range: bytes=990-\r\nIf-Range: {other}\r\n")).await;
                assert_eq!((status, body.len()), (200, LENGTH), "{other}: {head}");
                assert!(!head.contains("content-range"), "{head}");
            }
            for method in ["GET", "HEAD"] {
                let (status, head, body) = ask(method, &format!("If-None-Match: \"0\", W/{etag}\r\n")).await;
                assert!(status == 304 && head.contains(&own) && body.is_empty(), "{method}: {head}");
            }
            let (status, head, body) = ask("GET", "If-Match: \"0\"\r\n").await;
            assert!(status == 412 && head.contains("content-length: 0\r\n") && body.is_empty(), "{head}");
            let (status, head, body) = ask("GET", "Range: bytes=1000-\r\n").await;
            assert!(
                status == 416 && head.contains("content-range: bytes */1000\r\n") && body.is_empty(),
                "{head}"
            );
            let (status, head, body) = ask("HEAD", "Range: bytes=1000-\r\n").await;
            assert!(status == 200 && head.contains("content-length: 1000\r\n") && body.is_empty(), "{head}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_goes_on_with_a_file_and_does_not_fetch_again_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), 100_000, Limits::default()).await;
    let (url, etag) = (format!("http://{}/blobs/{}", server.address, server.name), dir.path().join("etag"));
    let curl = async |arguments: &[&str]| {
        let mut command = tokio::process::Command::new("curl");
        command.args(["-s", "-w", "%{http_code} %{size_download}", "-o"]).arg(dir.path().join("got"));
        let out = command.args(arguments).arg(&url).output().await.expect("curl runs");
        String::from_utf8(out.stdout).unwrap()
    };
    std::fs::write(
        dir.path().join("got"),
        &std::fs::read(dir.path().join("blobs").join(&server.name)).unwrap()[..60_000],
    )
    .unwrap();
    let kept = etag.to_str().unwrap();
    assert_eq!(curl(&["-C", "-", "--etag-save", kept]).await, "206 40000");
    assert_eq!(hex::encode(sha256(&std::fs::read(dir.path().join("got")).unwrap())), server.name);
    assert_eq!(curl(&["--etag-compare", kept]).await, "304 0");
}
