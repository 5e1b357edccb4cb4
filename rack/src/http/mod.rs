//! The rack's HTTP server, port 5248: plain and TLS on one port, told apart by the first byte.
//!
//! | path | over | module |
//! | --- | --- | --- |
//! | `GET /ipxe?mac=MAC`, `/grub/grub.cfg…`, `/debian-installer/amd64/grub/grub.cfg…` | either | [`boot`] |
//! | `GET, HEAD /loaders/NAME`, `/blobs/{sha256}` | either | [`files`]; most by [`direct`]; [`admission`], [`request`], [`conditions`] |
//! | `POST /report/{token}/{level}` | either | [`report`] |
//! | `/agent/v1/…` | TLS | [`agent`] |
//! | `/api/…` and the regions' other paths | TLS | [`forward`] |

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use basalt_proto::open_files;
use basalt_proto::places::{Full, Limits, Places, counted};
use http::{HeaderValue, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::admission::Admission;
use crate::attempts::Attempts;
use crate::blobs::BlobStore;
use crate::boot::BootTable;
use crate::health::Health;
use crate::loaders::Loaders;
use crate::logs::Logs;
use crate::meters;
use crate::presence::Presence;
use crate::spool::writer::Facts;
use crate::strangers::Strangers;

pub mod admission;
pub mod agent;
pub mod boot;
pub mod conditions;
pub mod direct;
pub mod files;
pub mod forward;
pub mod report;
pub mod request;
mod trace;

/// The longest wait for a client's first byte, its TLS handshake, and the head of each request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time for a request with its body.
const ANSWER: Duration = Duration::from_secs(60);
/// How long sent bytes may stay unacknowledged, and how long a silent connection stays unprobed.
const SILENCE: Duration = Duration::from_secs(60);
/// The most connections of all addresses of this rack. A connection may open two more files: a blob, or its connection
/// to a region.
const CONNECTIONS: usize = 4096;
const FILES: u64 = 3;
/// The most bytes of a request's head, and of one read or write.
const BUFFER: usize = 64 << 10;
/// The first byte of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
/// How long running requests may continue when the rack stops.
const DRAIN: Duration = Duration::from_secs(5);

/// The state that handlers share.
#[derive(Debug)]
pub struct Web {
    /// The machines and their boot actions.
    pub boot: watch::Receiver<Option<Arc<BootTable>>>,
    /// The register of attempts.
    pub attempts: Arc<Attempts>,
    /// The turns of undeclared machines.
    pub strangers: Strangers,
    /// The machines and their addresses.
    pub presence: Arc<Presence>,
    /// The cache of blobs.
    pub blobs: Arc<BlobStore>,
    /// The admission of large bodies.
    pub admission: Arc<Admission>,
    /// The installed boot loaders.
    pub loaders: Loaders,
    /// The facts that the rack reports.
    pub facts: Facts,
    /// The log lines that the rack receives.
    pub logs: Logs,
    /// The recent reports of installed systems.
    pub reports: report::Reports,
    /// The value of `basalt.spki`: the SHA-256 of this server's public key.
    pub spki_sha256: String,
    /// The regions that requests are forwarded to; `None`: this rack has joined no region.
    pub regions: Option<Arc<forward::Regions>>,
}

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// The client's address and port.
    pub peer: SocketAddr,
    /// This rack, as the client reached it.
    pub local: SocketAddr,
    /// The connection is TLS.
    pub tls: bool,
}

/// Ends a request's connection.
#[derive(Debug, Clone)]
pub struct Hangup(pub CancellationToken);

/// The server that runs on a listener.
#[derive(Clone)]
pub struct Site {
    router: Router,
    /// The blobs that are sent without the router. `None`: all requests go to the router.
    web: Option<Arc<Web>>,
    tls: TlsAcceptor,
    connections: Places<IpAddr>,
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site").field("web", &self.web).finish_non_exhaustive()
    }
}

impl Site {
    /// The site with everything that machines request.
    #[must_use]
    pub fn new(web: Arc<Web>, tls: TlsAcceptor) -> Self {
        Self { router: router(Arc::clone(&web)), web: Some(web), tls, connections: connections() }
    }

    /// A site with another router, for a listener of its own.
    #[must_use]
    pub fn other(router: Router, tls: TlsAcceptor) -> Self {
        Self { router, web: None, tls, connections: connections() }
    }

    /// The connections of the site, on all of its listeners.
    #[must_use]
    pub fn connections(&self) -> &Places<IpAddr> {
        &self.connections
    }
}

/// The places of one client. All machines of an IPv6 subnet count as one client and boot at once, so they get half of
/// all places.
fn share(limits: Limits, client: IpAddr) -> usize {
    if client.to_canonical().is_ipv6() { limits.all.div_ceil(2) } else { limits.of_one }
}

fn connections() -> Places<IpAddr> {
    Places::new(Limits::shared(open_files::places(FILES, CONNECTIONS)))
}

/// The router of every path.
fn router(web: Arc<Web>) -> Router {
    let meters = web.facts.meters().clone();
    Router::new()
        .route("/ipxe", get(boot::ipxe))
        .route("/grub/{*file}", get(boot::grub))
        .route("/debian-installer/amd64/grub/{*file}", get(boot::grub))
        .route("/report/{token}/{level}", post(report::report).layer(report::limit()))
        .nest("/agent/v1", agent::router())
        .layer(axum::middleware::from_fn(in_time))
        // A blob may have to be fetched first; that has its own deadline.
        // Shim asks for `/loaders//grubx64.efi`.
        .route("/loaders/{*name}", get(files::loader))
        .route("/blobs/{sha256}", get(files::blob))
        // The region limits the time of these.
        .merge(forward::router())
        .layer(axum::middleware::from_fn_with_state(meters, meters::count))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&web), trace::note))
        .with_state(web)
}

/// Answers a request that takes too long, for example one whose body never ends.
async fn in_time(request: axum::extract::Request, next: axum::middleware::Next) -> Response {
    match tokio::time::timeout(ANSWER, next.run(request)).await {
        Ok(answer) => answer,
        Err(_) => {
            Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the request took too long").into_response()
        }
    }
}

/// Serves one address until cancelled, then lets running requests continue for up to 5 seconds.
///
/// # Errors
/// `io::Error`: the address cannot be bound.
pub async fn serve(
    bind: SocketAddr,
    site: Site,
    health: &Health,
    stop: &CancellationToken,
) -> io::Result<()> {
    let listener = TcpListener::bind(bind).await.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot bind HTTP on {bind}: {error}; another program may use the port, see `ss -ltnp`"),
        )
    })?;
    tracing::info!(address = %listener.local_addr()?, "HTTP is served");
    health.up();
    serve_on(listener, site, stop).await;
    Ok(())
}

/// Like [`serve`], on a listener that is bound already.
pub async fn serve_on(listener: TcpListener, site: Site, stop: &CancellationToken) {
    let running = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let most = share(site.connections.limits(), peer.ip());
                let place = tokio::select! {
                    () = stop.cancelled() => break,
                    place = site.connections.take_within(counted(peer.ip()), most) => place,
                };
                let place = match place {
                    Ok(place) => place,
                    Err(Full::Client { is_news: true }) => {
                        tracing::warn!(%peer, most, "a client has as many connections as one may have, and opens more: they are closed");
                        continue;
                    }
                    Err(_) => continue,
                };
                let (site, stop) = (site.clone(), stop.clone());
                running.spawn(async move {
                    if let Err(error) = connection(stream, peer, site, &stop).await {
                        tracing::debug!(%peer, %error, "HTTP connection ended");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "an HTTP connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    running.close();
    tokio::time::timeout(DRAIN, running.wait()).await.ok();
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    site: Site,
    stop: &CancellationToken,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_user_timeout(Some(SILENCE))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE))?;
    let local = stream.local_addr()?;
    let mut first = [0];
    let peeked = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        peeked = tokio::time::timeout(HEAD_TIMEOUT, stream.peek(&mut first)) => peeked??,
    };
    if peeked == 0 {
        return Ok(());
    }
    if first == [TLS_HANDSHAKE] {
        let stream = tokio::time::timeout(HEAD_TIMEOUT, site.tls.accept(stream)).await??;
        requests(stream, site.router, Ends { peer, local, tls: true }, stop).await
    } else {
        let ends = Ends { peer, local, tls: false };
        let left = match &site.web {
            Some(web) => direct::blobs(stream, web, ends, stop).await?,
            None => Some(stream),
        };
        match left {
            Some(stream) => requests(stream, site.router, ends, stop).await,
            None => Ok(()),
        }
    }
}

async fn requests<S>(
    stream: S,
    router: Router,
    ends: Ends,
    stop: &CancellationToken,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let hangup = CancellationToken::new();
    let router = router.layer(axum::Extension(ends)).layer(axum::Extension(Hangup(hangup.clone())));
    let service = TowerToHyperService::new(router);
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(BUFFER);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        () = hangup.cancelled() => return Err("the client takes too little".into()),
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        ended = connection => Ok(ended?),
        () = hangup.cancelled() => Err("the client takes too little".into()),
    }
}

/// An error answer: `application/problem+json` with a code.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
    retry_after: Option<Duration>,
}

impl Problem {
    /// An error with a machine-readable code and a sentence.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), retry_after: None }
    }

    /// Adds the time after which the client should ask again.
    #[must_use]
    pub fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// An error of the rack's disk: it is logged, and the client tries again.
    pub fn disk(error: &impl std::fmt::Display) -> Self {
        tracing::error!(%error, "the rack's disk refuses writes");
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            "the rack cannot write to its disk; try again",
        )
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body =
            serde_json::json!({ "code": self.code, "detail": self.detail, "status": self.status.as_u16() });
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (self.status, kind, body.to_string()).into_response();
        response.extensions_mut().insert(trace::Refused { code: self.code, detail: self.detail });
        if let Some(wait) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs()));
        }
        response
    }
}

/// Opens the file of a loader. Returns its length too.
async fn open(path: PathBuf) -> io::Result<(std::fs::File, u64)> {
    let file = tokio::fs::File::open(path).await?;
    let length = file.metadata().await?.len();
    Ok((file.into_std().await, length))
}
