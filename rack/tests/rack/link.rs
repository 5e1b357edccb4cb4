//! The link, against a region that implements only the protocol.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use basalt_proto::REGION_SERVER_NAME;
use basalt_proto::delta;
use basalt_proto::rack_v1::concern_reply::Outcome;
use basalt_proto::rack_v1::enrolment_server::{Enrolment, EnrolmentServer};
use basalt_proto::rack_v1::fact::Body;
use basalt_proto::rack_v1::rack_link_server::{RackLink, RackLinkServer};
use basalt_proto::rack_v1::{
    Blob, BlobChunk, ConcernDelta, ConcernVersion, DhcpConcern, DhcpInForceFact, EnrolReply, EnrolRequest,
    Fact, FactAck, FetchBlobRequest, FromRack, FromRegion, ImagesConcern, LogAck, LogBatch, LogLine,
    PowerCommand, RenewReply, RenewRequest, Welcome, from_rack, from_region,
};
use basalt_rack::clock::{Clock, wall_ms};
use basalt_rack::concern::store::write_concern;
use basalt_rack::concern::{Concern, version};
use basalt_rack::daemon::Daemon;
use basalt_rack::hash::sha256;
use basalt_rack::identity::{Identity, Membership, provider};
use basalt_rack::link::join::JoinToken;
use basalt_rack::settings::Settings;
use rcgen::{BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status, Streaming};

use super::support::{Client, DEADLINE, fact, settings};

pub(super) const SECRET: &str = "one-time";
const BLOB: &[u8] = b"a blob that only the region has";

const DAY_MS: i64 = 86_400_000;

/// A connection, and the client's certificate from the test's CA.
struct Io(TlsStream<TcpStream>);

#[derive(Clone)]
struct Proven(Option<Vec<u8>>);

impl Connected for Io {
    type ConnectInfo = Proven;
    fn connect_info(&self) -> Proven {
        let chain = self.0.get_ref().1.peer_certificates();
        Proven(chain.and_then(|chain| chain.first()).map(|leaf| leaf.to_vec()))
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// A certificate authority.
struct Ca {
    der: Vec<u8>,
    key: KeyPair,
    params: CertificateParams,
}

impl Ca {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let der = params.self_signed(&key).unwrap().der().to_vec();
        Self { der, key, params }
    }

    fn tls(&self, name: &str) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.der.clone().into()).unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
            .allow_unauthenticated()
            .build()
            .unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![leaf.der().clone(), self.der.clone().into()],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// The region's end of a link: messages from the rack, and a way to answer.
pub(super) struct Linked {
    certificate: Vec<u8>,
    from_rack: Streaming<FromRack>,
    to_rack: mpsc::Sender<Result<FromRegion, Status>>,
}

impl Linked {
    pub(super) async fn next(&mut self) -> from_rack::Message {
        let message =
            tokio::time::timeout(DEADLINE, self.from_rack.message()).await.expect("the rack said nothing");
        message.unwrap().expect("the rack closed the link").message.unwrap()
    }

    pub(super) async fn send(&self, message: from_region::Message) {
        self.to_rack.send(Ok(FromRegion { message: Some(message) })).await.unwrap();
    }

    pub(super) async fn welcome(&mut self) -> basalt_proto::rack_v1::Hello {
        self.welcome_to("inc-1", Vec::new()).await
    }

    /// Welcomes the rack as a region with this time.
    pub(super) async fn welcome_at(&mut self, unix_ms: i64) {
        let from_rack::Message::Hello(_) = self.next().await else { panic!("no hello") };
        let welcome = Welcome { incarnation: "inc-1".into(), unix_ms, ..Welcome::default() };
        self.send(from_region::Message::Welcome(welcome)).await;
    }

    pub(super) async fn welcome_to(
        &mut self,
        incarnation: &str,
        regions: Vec<String>,
    ) -> basalt_proto::rack_v1::Hello {
        let from_rack::Message::Hello(hello) = self.next().await else { panic!("no hello") };
        self.send(from_region::Message::Welcome(Welcome {
            incarnation: incarnation.into(),
            regions,
            boot_traces: false,
            unix_ms: 0,
        }))
        .await;
        hello
    }

    pub(super) async fn offer(&mut self, generation: u64, incarnation: &str) -> Outcome {
        let images = version(Concern::Images, generation, incarnation, &ImagesConcern::default());
        self.send(from_region::Message::Concern(images)).await;
        loop {
            if let from_rack::Message::ConcernReply(reply) = self.next().await {
                return reply.outcome();
            }
        }
    }

    /// The next report about the rack's certificate: the fault, or an empty text. Every fact is acknowledged.
    async fn certificate_health(&mut self) -> String {
        loop {
            let from_rack::Message::Facts(batch) = self.next().await else { continue };
            let through_seq = batch.facts.last().unwrap().seq;
            let ack = FactAck { spool_uid: batch.spool_uid, through_seq, unix_ms: 0 };
            self.send(from_region::Message::FactAck(ack)).await;
            for fact in batch.facts {
                if let Some(Body::Health(health)) = fact.body
                    && health.service == "certificate"
                {
                    return health.message;
                }
            }
        }
    }

    /// Waits until the rack closes the link.
    async fn closed(mut self) {
        let end = async { while let Ok(Some(_)) = self.from_rack.message().await {} };
        tokio::time::timeout(DEADLINE, end).await.expect("the rack keeps the link");
    }
}

#[derive(Clone)]
pub(super) struct Region {
    ca: Arc<Ca>,
    enrolments: Arc<Mutex<Vec<String>>>,
    /// When the certificates from enrolment expire.
    not_after: i64,
    /// Renewed certificates; `None`: the region renews none.
    renewed: Option<Arc<Mutex<Vec<Vec<u8>>>>>,
    /// True if an enrolling rack replaces another one.
    replaces: bool,
    links: mpsc::Sender<Linked>,
    /// The log lines that it has stored.
    pub(super) logs: Arc<watch::Sender<Vec<LogLine>>>,
    /// The number of batches of lines that it stores without acknowledging them.
    pub(super) loses_answers: Arc<AtomicUsize>,
    /// The answers to requests outside the racks' protocol.
    pub(super) api: axum::Router,
}

impl Region {
    /// Serves again at an earlier address.
    pub(super) async fn serve_again(&self, address: SocketAddr, stop: CancellationToken) {
        let bound = async {
            loop {
                match TcpListener::bind(address).await {
                    Ok(listener) => return listener,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        let listener = tokio::time::timeout(DEADLINE, bound).await.expect("the address is taken");
        serve_on(listener, self.clone(), REGION_SERVER_NAME, stop);
    }

    fn signed(&self, csr_der: Vec<u8>) -> Vec<u8> {
        let csr = CertificateSigningRequestParams::from_der(&csr_der.into()).unwrap();
        csr.signed_by(&Issuer::from_params(&self.ca.params, &self.ca.key)).unwrap().der().to_vec()
    }
}

fn proven<T>(request: &Request<T>) -> Result<Vec<u8>, Status> {
    let proven = request.extensions().get::<Proven>().and_then(|it| it.0.clone());
    proven.ok_or_else(|| Status::unauthenticated("no client certificate"))
}

#[tonic::async_trait]
impl Enrolment for Region {
    async fn enrol(&self, request: Request<EnrolRequest>) -> Result<Response<EnrolReply>, Status> {
        let request = request.into_inner();
        if request.secret != SECRET {
            return Err(Status::permission_denied("the join token was used or has expired"));
        }
        self.enrolments.lock().unwrap().push(request.name);
        let certificate_der = self.signed(request.csr_der);
        let (rack_uid, ca_der) = ("rack-uid".to_owned(), self.ca.der.clone());
        let (not_after_unix_ms, replaces) = (self.not_after, self.replaces);
        Ok(Response::new(EnrolReply { rack_uid, certificate_der, ca_der, not_after_unix_ms, replaces }))
    }
}

#[tonic::async_trait]
impl RackLink for Region {
    type LinkStream = ReceiverStream<Result<FromRegion, Status>>;
    type FetchBlobStream = ReceiverStream<Result<BlobChunk, Status>>;

    async fn link(
        &self,
        request: Request<Streaming<FromRack>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let certificate = proven(&request)?;
        let (to_rack, messages) = mpsc::channel(64);
        let linked = Linked { certificate, from_rack: request.into_inner(), to_rack };
        self.links.send(linked).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(messages)))
    }

    async fn fetch_blob(
        &self,
        request: Request<FetchBlobRequest>,
    ) -> Result<Response<Self::FetchBlobStream>, Status> {
        let request = request.into_inner();
        if request.sha256 != hex::encode(sha256(BLOB)) {
            return Err(Status::not_found("no such blob"));
        }
        let (chunks, stream) = mpsc::channel(64);
        for data in BLOB[usize::try_from(request.offset).unwrap()..].chunks(5) {
            chunks.send(Ok(BlobChunk { data: data.to_vec() })).await.unwrap();
        }
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewReply>, Status> {
        proven(&request)?;
        let Some(renewed) = &self.renewed else { return Err(Status::unavailable("its store is away")) };
        let certificate_der = self.signed(request.into_inner().csr_der);
        renewed.lock().unwrap().push(certificate_der.clone());
        Ok(Response::new(RenewReply { certificate_der, not_after_unix_ms: i64::MAX }))
    }

    async fn store_logs(&self, request: Request<LogBatch>) -> Result<Response<LogAck>, Status> {
        proven(&request)?;
        let lines = request.into_inner().lines;
        let is_batch = !lines.is_empty();
        self.logs.send_modify(|stored| {
            let through = stored.last().map_or(0, |line| line.seq);
            stored.extend(lines.into_iter().filter(|line| line.seq > through));
        });
        let loses = |left: usize| left.checked_sub(1).filter(|_| is_batch);
        if self.loses_answers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, loses).is_ok() {
            return Err(Status::unavailable("the answer is lost"));
        }
        let through_seq = self.logs.borrow().last().map_or(0, |line| line.seq);
        Ok(Response::new(LogAck { through_seq }))
    }
}

/// Binds a listener for a region. Returns it with its address.
async fn bound() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

pub(super) async fn serve(region: Region, name: &str, stop: CancellationToken) -> SocketAddr {
    let (listener, address) = bound().await;
    serve_on(listener, region, name, stop);
    address
}

fn serve_on(listener: TcpListener, region: Region, name: &str, stop: CancellationToken) {
    let tls = region.ca.tls(name);
    let (accepted, incoming) = mpsc::channel::<io::Result<Io>>(8);
    let accepting = stop.clone();
    tokio::spawn(async move {
        loop {
            let stream = tokio::select! {
                () = accepting.cancelled() => return,
                stream = listener.accept() => stream.unwrap().0,
            };
            let (tls, accepted) = (tls.clone(), accepted.clone());
            tokio::spawn(async move {
                if let Ok(stream) = tls.accept(stream).await {
                    accepted.send(Ok(Io(stream))).await.ok();
                }
            });
        }
    });
    let routes =
        Routes::new(EnrolmentServer::new(region.clone())).add_service(RackLinkServer::new(region.clone()));
    let routes = routes.into_axum_router().fallback_service(region.api);
    let server = tonic::transport::Server::builder().add_routes(Routes::from(routes));
    tokio::spawn(
        server.serve_with_incoming_shutdown(
            ReceiverStream::new(incoming),
            async move { stop.cancelled().await },
        ),
    );
}

pub(super) fn region() -> (Region, mpsc::Receiver<Linked>) {
    let (links, linked) = mpsc::channel(4);
    let region = Region {
        ca: Arc::new(Ca::new()),
        enrolments: Arc::default(),
        not_after: i64::MAX,
        renewed: Some(Arc::default()),
        replaces: false,
        links,
        logs: Arc::new(watch::Sender::new(Vec::new())),
        loses_answers: Arc::default(),
        api: axum::Router::new(),
    };
    (region, linked)
}

pub(super) fn token(region: &Region, address: SocketAddr, secret: &str) -> String {
    let ca_sha256 = hex::encode(sha256(&region.ca.der));
    JoinToken { urls: vec![format!("https://{address}")], ca_sha256, secret: secret.into() }.render()
}

pub(super) async fn next_link(linked: &mut mpsc::Receiver<Linked>) -> Linked {
    tokio::time::timeout(DEADLINE, linked.recv()).await.expect("the rack did not dial").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn enrols_once_then_takes_concerns_delivers_facts_in_order_and_fetches_blobs() {
    let dir = tempfile::tempdir().unwrap();
    let (region, mut linked) = region();
    let stop = CancellationToken::new();
    let address = serve(region.clone(), REGION_SERVER_NAME, stop.clone()).await;
    let settings = Settings { join: Some(token(&region, address, SECRET)), ..settings(dir.path()) };
    let rack = Daemon::start(settings.clone()).await.unwrap();
    assert_eq!(*region.enrolments.lock().unwrap(), ["rack-1"]);

    let mut link = next_link(&mut linked).await;
    let hello = link.welcome().await;
    assert_eq!((hello.rack_uid.as_str(), hello.name.as_str(), hello.held.len()), ("rack-uid", "rack-1", 0));
    assert_eq!(hello.spki_sha256, rack.spki_sha256);
    assert!(hello.interfaces.iter().any(|it| it.name == "lo"));

    let images = version(Concern::Images, 3, "inc-1", &ImagesConcern::default());
    for expected in [Outcome::Applied, Outcome::AlreadyThere] {
        link.send(from_region::Message::Concern(images.clone())).await;
        let reply = loop {
            if let from_rack::Message::ConcernReply(reply) = link.next().await {
                break reply;
            }
        };
        assert_eq!((reply.outcome(), reply.mine), (expected, 3));
    }
    // A delta of this version is taken; one of another body is answered with a request for the whole.
    let blob = Blob { sha256: "11".repeat(32), size: 1, prefetch: false };
    let next = version(Concern::Images, 4, "inc-1", &ImagesConcern { blobs: vec![blob] });
    for (base, expected) in [(vec![7; 32], Outcome::NeedsWhole), (images.sha256.clone(), Outcome::Applied)] {
        let parts = delta::between(&images.body, &next.body);
        let version = ConcernVersion { body: Vec::new(), ..next.clone() };
        let delta = ConcernDelta { version: Some(version), base_sha256: base, parts };
        link.send(from_region::Message::ConcernDelta(delta)).await;
        let reply = loop {
            if let from_rack::Message::ConcernReply(reply) = link.next().await {
                break reply;
            }
        };
        assert_eq!((reply.outcome(), reply.generation), (expected, 4));
    }
    let command =
        PowerCommand { machine_uid: "nobody".into(), command_id: "c1".into(), ..PowerCommand::default() };
    link.send(from_region::Message::Power(command)).await;

    // Facts come in order. If the link breaks before some are acknowledged, they come again on the next link.
    drop(link);
    let mut link = next_link(&mut linked).await;
    assert_eq!(link.welcome().await.held.len(), 1);
    let mut expected = 1;
    let mut power = None;
    while power.is_none() {
        let from_rack::Message::Facts(batch) = link.next().await else { continue };
        for fact in &batch.facts {
            assert_eq!(fact.seq, expected);
            expected += 1;
            if let Some(Body::Power(result)) = &fact.body {
                power = Some(result.clone());
            }
        }
        let ack = FactAck { spool_uid: batch.spool_uid, through_seq: expected - 1, unix_ms: 0 };
        link.send(from_region::Message::FactAck(ack)).await;
    }
    assert_eq!(power.unwrap().error_code, "no_bmc");

    let client =
        Client { from: [127, 0, 0, 5].into(), rack: ([127, 0, 0, 1], settings.http_port).into(), spki: None };
    assert_eq!(client.get(&format!("/blobs/{}", hex::encode(sha256(BLOB)))).await.body, BLOB);
    assert_eq!(client.get(&format!("/blobs/{}", "0".repeat(64))).await.status, 404);
    rack.stop().await;

    // A restart needs no token and does not enrol again.
    let rack = Daemon::start(Settings { join: None, ..settings }).await.unwrap();
    let mut link = next_link(&mut linked).await;
    assert_eq!(link.welcome().await.rack_uid, "rack-uid");
    assert_eq!(region.enrolments.lock().unwrap().len(), 1);
    rack.stop().await;
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn follows_a_recovered_region_and_tells_the_one_before_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let (region, mut linked) = region();
    let stop = CancellationToken::new();
    let before = serve(region.clone(), REGION_SERVER_NAME, stop.clone()).await;
    let (later, after) = bound().await;
    let settings = Settings { join: Some(token(&region, before, SECRET)), ..settings(dir.path()) };
    let rack = Daemon::start(settings).await.unwrap();

    let mut old = next_link(&mut linked).await;
    old.welcome_to("inc-1", vec![format!("https://{after}")]).await;
    assert_eq!(old.offer(700, "inc-1").await, Outcome::Applied);
    let command =
        PowerCommand { machine_uid: "nobody".into(), command_id: "c1".into(), ..PowerCommand::default() };
    old.send(from_region::Message::Power(command)).await;

    // The database went back to an earlier state, and the earlier region process lives on. The rack's hello depends on
    // the concerns that it has accepted.
    serve_on(later, region.clone(), REGION_SERVER_NAME, stop.clone());
    let mut new = next_link(&mut linked).await;
    let hello = new.welcome_to("inc-2", Vec::new()).await;
    assert_eq!((hello.held[0].incarnation.as_str(), hello.held[0].generation), ("inc-1", 700));
    old.closed().await;
    let (mut expected, mut power) = (1, 0);
    while power == 0 {
        let from_rack::Message::Facts(batch) = new.next().await else { continue };
        for fact in &batch.facts {
            assert_eq!(fact.seq, expected, "in order, each once");
            expected += 1;
            power += usize::from(matches!(fact.body, Some(Body::Power(_))));
        }
        let ack = FactAck { spool_uid: batch.spool_uid, through_seq: expected - 1, unix_ms: 0 };
        new.send(from_region::Message::FactAck(ack)).await;
    }
    assert_eq!(new.offer(701, "inc-1").await, Outcome::RefusedOlder);
    assert_eq!(new.offer(1, "inc-2").await, Outcome::Applied);
    // It dials the old region again, in case that one joins the new incarnation, and ends the link.
    let mut old = next_link(&mut linked).await;
    old.welcome_to("inc-1", Vec::new()).await;
    old.closed().await;
    rack.stop().await;
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_used_token_stops_with_the_regions_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (region, _linked) = region();
    let stop = CancellationToken::new();
    let address = serve(region.clone(), REGION_SERVER_NAME, stop.clone()).await;
    let settings = Settings { join: Some(token(&region, address, "used")), ..settings(dir.path()) };
    let error = Daemon::start(settings).await.unwrap_err().to_string();
    assert!(error.contains("the join token was used or has expired; ask for a new join token"), "{error}");
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_another_ca_nor_a_certificate_that_is_not_a_regions_gets_the_secret() {
    let (region, _linked) = region();
    let (other, _) = self::region();
    let stop = CancellationToken::new();
    let racks_own = serve(region.clone(), "rack-7", stop.clone()).await;
    let foreign = serve(region.clone(), REGION_SERVER_NAME, stop.clone()).await;
    for (address, ca) in [(racks_own, &region), (foreign, &other)] {
        let dir = tempfile::tempdir().unwrap();
        let identity = Identity::open(dir.path()).unwrap();
        let token = JoinToken::parse(&token(ca, address, SECRET)).unwrap();
        let patience = std::time::Duration::from_secs(1);
        let enrolled = tokio::time::timeout(
            patience,
            basalt_rack::link::enrol::enrol(&identity, "rack-1", &token, &Clock::default()),
        )
        .await;
        assert!(!matches!(enrolled, Ok(Ok(_))));
    }
    assert!(region.enrolments.lock().unwrap().is_empty());
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_ends_soon_is_renewed_and_the_next_link_shows_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let (region, mut linked) = region();
    let region = Region { not_after: wall_ms() + DAY_MS, ..region };
    let stop = CancellationToken::new();
    let address = serve(region.clone(), REGION_SERVER_NAME, stop.clone()).await;
    let settings = Settings { join: Some(token(&region, address, SECRET)), ..settings(dir.path()) };
    let rack = Daemon::start(settings.clone()).await.unwrap();
    let mut link = next_link(&mut linked).await;
    link.welcome().await;
    assert_eq!(link.certificate_health().await, "");
    let renewed = region.renewed.as_ref().unwrap().lock().unwrap().clone();
    assert_eq!(renewed.len(), 1);
    assert_ne!(renewed, [link.certificate]);
    rack.stop().await;

    let rack = Daemon::start(settings).await.unwrap();
    let mut link = next_link(&mut linked).await;
    assert_eq!(renewed, [link.certificate.clone()]);
    link.welcome().await;
    assert_eq!(region.enrolments.lock().unwrap().len(), 1, "it did not enrol again");
    rack.stop().await;
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_cannot_be_renewed_is_told_and_one_that_has_ended_takes_a_new_join_token() {
    let dir = tempfile::tempdir().unwrap();
    let (region, mut linked) = region();
    let region = Region { not_after: wall_ms() + 2 * DAY_MS - 1, renewed: None, ..region };
    let stop = CancellationToken::new();
    let address = serve(region.clone(), REGION_SERVER_NAME, stop.clone()).await;
    let settings = Settings { join: Some(token(&region, address, SECRET)), ..settings(dir.path()) };
    let rack = Daemon::start(settings.clone()).await.unwrap();
    let mut link = next_link(&mut linked).await;
    link.welcome().await;
    let problem = link.certificate_health().await;
    assert!(
        problem.starts_with("it ends in 47 hours and could not be renewed: the region says:"),
        "{problem}"
    );
    assert!(problem.contains("its store is away"), "{problem}");
    drop(link);
    rack.stop().await;

    let identity = Identity::open(&settings.data_dir).unwrap();
    let ended = Membership { not_after_unix_ms: wall_ms(), ..identity.membership().unwrap().unwrap() };
    identity.keep(&ended).unwrap();
    let wrong = Settings { join: Some(token(&region, address, "used")), ..settings.clone() };
    Daemon::start(wrong).await.expect("it serves what it holds").stop().await;
    assert_eq!(region.enrolments.lock().unwrap().len(), 1);
    let rack = Daemon::start(settings).await.unwrap();
    assert_eq!(region.enrolments.lock().unwrap().len(), 2);
    assert_eq!(rack.spki_sha256, identity.spki_sha256, "with the same key");
    rack.stop().await;
    stop.cancel();
}

/// The rack's next report of its leases, once it uses a region's blocks, after the fact with number `after`.
async fn in_force(settings: Settings, after: &mut u64) -> DhcpInForceFact {
    let concern = DhcpConcern { delegation: 1, ..DhcpConcern::default() };
    write_concern(&settings.data_dir, &version(Concern::Dhcp, 1, "local", &concern)).unwrap();
    let rack = Daemon::start(settings).await.unwrap();
    let told = |fact: &Fact| fact.seq > *after && matches!(fact.body, Some(Body::DhcpInForce(_)));
    let told = fact(&rack.facts, told).await;
    *after = told.seq;
    rack.stop().await;
    let Some(Body::DhcpInForce(told)) = told.body else { unreachable!("it was asked for") };
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_that_takes_the_place_of_another_does_not_know_what_that_one_leased() {
    let (region, _linked) = region();
    let stop = CancellationToken::new();
    for replaces in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let region = Region { replaces, ..region.clone() };
        let address = serve(region.clone(), REGION_SERVER_NAME, stop.clone()).await;
        let settings = Settings { join: Some(token(&region, address, SECRET)), ..settings(dir.path()) };
        let mut seen = 0;
        for _ in 0..2 {
            let told = in_force(settings.clone(), &mut seen).await;
            assert_eq!(told.unsure_ms > 0, replaces, "also when it starts again: {told:?}");
        }
    }
    stop.cancel();
}
