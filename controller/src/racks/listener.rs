//! TLS for the racks' port. Client certificates are requested, and needed for everything except enrolment. Requests outside of the
//! racks' protocol come from clients of the API, by way of a rack.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use basalt_api::values::{RackId, Uid};
use basalt_proto::MAX_FROM_RACK;
use basalt_proto::places::Full;
use basalt_proto::rack_v1::enrolment_server::EnrolmentServer;
use basalt_proto::rack_v1::rack_link_server::RackLinkServer;
use hyper::Method;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::transport::Server;

use super::authority::{Authority, AuthorityError};
use super::call::{self, Call};
use super::doors::{Doors, Stream, Tls};
use super::failures::Failures;
use super::service::Racks;
use super::tunnel;
use crate::api::Forwarded;

/// How long a client's handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The age at which this region process's certificate is replaced, for new connections.
const SERVER_RENEWAL: Duration = Duration::from_secs(30 * 86_400);
/// A rack that does not answer a keepalive within this time is disconnected.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// The ports from which region processes on one host choose.
pub const PORTS: std::ops::RangeInclusive<u16> = 5250..=5270;
/// The largest message to a rack: a boot concern of thousands of machines is larger than tonic's default of 4 MiB.
const MAX_TO_RACK: usize = 256 * 1024 * 1024;
/// The number of parallel calls per connection: a link, a renewal, and the blobs that a rack fetches. Further ones wait at the rack.
const STREAMS: u32 = 32;

/// The reason why the region cannot listen for racks.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The certificate cannot be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The TLS configuration is refused.
    #[error("the TLS set-up for racks is refused: {0}")]
    Tls(String),
    /// No port is free.
    #[error(
        "cannot listen for racks on {address}: {source}; name a free one with --rpc-listen, where port 0 means the first free one of 5250 to 5270"
    )]
    Bind {
        /// The address of the last try.
        address: SocketAddr,
        /// The error of the last try.
        source: io::Error,
    },
}

/// The other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// SHA-256 of its public key, if it has a certificate of this region's authority.
    pub spki_sha256: Option<[u8; 32]>,
    /// The network address.
    pub address: Option<SocketAddr>,
}

/// The rack that makes a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enrolled(pub(super) RackId);

/// Marks a call of a deleted rack, which gets the answer to forget everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retired;

/// Binds the address. Port 0 means the first free one of 5250 to 5270.
///
/// # Errors
/// [`ListenError::Bind`]: the address cannot be bound, or no port is free.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let ports = if address.port() == 0 { PORTS } else { address.port()..=address.port() };
    let mut last = io::Error::new(io::ErrorKind::AddrInUse, "every port is taken");
    for port in ports {
        match TcpListener::bind(SocketAddr::new(address.ip(), port)).await {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(ListenError::Bind { address, source: last })
}

/// Serves racks until `shutdown` completes.
///
/// # Errors
/// Fails if the TLS configuration or the transport fails.
pub async fn serve(
    listener: TcpListener,
    racks: Racks,
    api: Forwarded,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ListenError> {
    let acceptor = acceptor(&racks.authority, racks.process)?;
    let (sender, incoming) = mpsc::channel(64);
    let doors = Doors::new();
    let accepting = tokio::spawn(accept(
        listener,
        doors,
        (Arc::clone(&racks.authority), racks.process),
        acceptor,
        sender,
    ));
    let link = RackLinkServer::new(racks.clone())
        .max_decoding_message_size(MAX_FROM_RACK)
        .max_encoding_message_size(MAX_TO_RACK);
    let enrolment = EnrolmentServer::new(racks.clone()).max_decoding_message_size(call::SMALL);
    let routes = Routes::new(enrolment).add_service(link).into_axum_router();
    let routes = routes.layer(middleware::from_fn_with_state((racks, api), sort));
    let served = Server::builder()
        .max_concurrent_streams(STREAMS)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .add_routes(Routes::from(routes))
        .serve_with_incoming_shutdown(ReceiverStream::new(incoming), shutdown)
        .await;
    accepting.abort();
    served.map_err(|error| ListenError::Tls(error.to_string()))
}

/// Separates calls of the racks' protocol, requests that racks forward, and connections to the proxy. Only requests of racks are read, and enrolments.
async fn sort(State((racks, api)): State<(Racks, Forwarded)>, mut request: Request, next: Next) -> Response {
    if request.method() == Method::CONNECT {
        return tunnel::open(&racks, request).await;
    }
    let call = Call::of(request.uri().path());
    if let Some(call) = call.filter(|call| call.is_open) {
        return next.run(call.bounded(request)).await;
    }
    let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
    match (racks.rack_behind(&peer).await, call) {
        (Ok(rack), Some(call)) => {
            request.extensions_mut().insert(Enrolled(rack));
            next.run(call.bounded(request)).await
        }
        (Ok(_), None) => {
            let rack = peer.address.map(|address| address.ip().to_canonical());
            api.answer(rack.unwrap_or(IpAddr::from([0; 4])), request).await
        }
        (Err(_), Some(call)) if call.name == "Link" && racks.is_retired(&peer).await => {
            request.extensions_mut().insert(Retired);
            next.run(call.bounded(request)).await
        }
        (Err(status), Some(call)) => {
            racks.sessions.meters().refused(call.name, status.code());
            status.into_http()
        }
        (Err(status), None) => Forwarded::refuse(status.message()),
    }
}

fn server_config(authority: &Authority, process: Uid) -> Result<ServerConfig, ListenError> {
    let tls = |error: String| ListenError::Tls(error);
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone()).map_err(|e| tls(e.to_string()))?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(|e| tls(e.to_string()))?;
    let (certificate, key) = authority.server_identity(process, SystemTime::now())?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| tls(e.to_string()))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate, authority.certificate().clone()], key)
        .map_err(|e| tls(e.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn acceptor(authority: &Authority, process: Uid) -> Result<TlsAcceptor, ListenError> {
    Ok(TlsAcceptor::from(Arc::new(server_config(authority, process)?)))
}

async fn accept(
    listener: TcpListener,
    doors: Doors,
    (authority, process): (Arc<Authority>, Uid),
    mut acceptor: TlsAcceptor,
    sender: mpsc::Sender<io::Result<Stream<Tls>>>,
) {
    let mut made = Instant::now();
    let failures = Arc::new(Failures::new());
    loop {
        let Ok((tcp, from)) = listener.accept().await else {
            // There are no file descriptors left: wait for other connections to close.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if made.elapsed() > SERVER_RENEWAL {
            match self::acceptor(&authority, process) {
                Ok(renewed) => (acceptor, made) = (renewed, Instant::now()),
                Err(error) => tracing::error!(%error, "this region's own certificate could not be renewed"),
            }
        }
        let place = match doors.arrive(from).await {
            Ok(place) => place,
            Err(full) => {
                refused(from, full);
                continue;
            }
        };
        let (acceptor, doors, sender) = (acceptor.clone(), doors.clone(), sender.clone());
        let failures = Arc::clone(&failures);
        tokio::spawn(async move {
            let _ = tcp.set_nodelay(true);
            let begun = async { Ok::<_, io::Error>(doors.admit(acceptor.accept(tcp).await?, from).await) };
            match tokio::time::timeout(HANDSHAKE, begun).await {
                Ok(Ok(Ok(stream))) => {
                    let _ = sender.send(Ok(stream)).await;
                }
                Ok(Ok(Err(full))) => refused(from, full),
                Ok(Err(error)) => failures.tell(from, &error),
                Err(_) => failures.tell(from, &format_args!("it took longer than {} s", HANDSHAKE.as_secs())),
            }
            drop(place);
        });
    }
}

/// Logs that a client has reached its limit of connections.
fn refused(from: SocketAddr, full: Full) {
    if full == (Full::Client { is_news: true }) {
        tracing::warn!(%from, "a client has as many connections to the racks' port as one may have, and opens more: they are closed");
    }
}
