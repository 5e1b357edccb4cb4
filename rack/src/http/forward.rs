//! The regions' API through this rack, for clients that can reach a rack and no region.
//!
//! A request goes to one region. The next region is tried only if no connection could be made, before a byte of the
//! request was sent. A request is never sent twice, since the first region may have carried it out. Each request has
//! its own connection with the rack's certificate. The certificate gives no rights: the caller's token decides. Bodies
//! are streamed in both directions; the region limits their size and speed.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Extension, Router};
use basalt_proto::places::{self, Full, Limits, Place, Places, counted};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use tokio::sync::Mutex;

use super::{Ends, Problem, Web};
use crate::identity::{Identity, IdentityError, Membership};
use crate::link::origin::RegionOrigin;
use crate::link::tls;

/// The regions' paths that a rack forwards.
const PATHS: [&str; 12] = [
    "/api/{*path}",
    "/v1/providers/{*path}",
    "/.well-known/terraform.json",
    "/openapi.json",
    "/",
    "/ui/{*path}",
    "/docs",
    "/pages",
    "/pages/{page}",
    "/version",
    "/healthz",
    "/readyz",
];
/// The most requests at once, including watches. A client may have an eighth of them: people behind one address need
/// some dozens.
const PLACES: Limits = Limits::shared(256);
/// The longest wait for a connection to a region; then the next one is tried.
const DIAL: Duration = Duration::from_secs(3);
/// How long a region may be silent before the connection is probed.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// When the client should ask again: as soon as regions are dialled again.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// The header that tells the region the client's address.
const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Headers that belong to one connection (RFC 9110 §7.6.1), or that only the rack may set.
const NOT_PASSED_ON: [HeaderName; 10] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
    header::FORWARDED,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    FOR,
];

/// The connections to the regions.
#[derive(Debug)]
pub struct Regions {
    identity: Arc<Identity>,
    membership: Arc<Mutex<Membership>>,
    links: Arc<RegionOrigin>,
    places: Places<IpAddr>,
}

impl Regions {
    /// The regions of this membership. Linked regions come first.
    #[must_use]
    pub fn new(
        identity: Arc<Identity>,
        membership: Arc<Mutex<Membership>>,
        links: Arc<RegionOrigin>,
    ) -> Self {
        Self { identity, membership, links, places: Places::new(PLACES) }
    }

    /// True if a region is linked now.
    #[must_use]
    pub fn is_any_linked(&self) -> bool {
        self.links.is_any_linked()
    }

    /// All regions, linked ones first. Each rack has the linked regions in the same order.
    async fn ordered(&self) -> Vec<String> {
        let mut regions = self.membership.lock().await.regions.clone();
        regions.sort_by_key(|region| (!self.links.is_linked(region), region.clone()));
        regions
    }

    /// The linked regions, in the same order at each rack.
    pub(crate) async fn linked(&self) -> Vec<String> {
        let regions = self.ordered().await;
        regions.into_iter().filter(|region| self.links.is_linked(region)).collect()
    }

    /// The TLS settings towards regions.
    pub(crate) fn tls(&self) -> Result<Arc<ClientConfig>, IdentityError> {
        self.identity.region_tls().map(Arc::new)
    }

    /// Connects to the first region that accepts.
    async fn dial(&self) -> Result<(String, SendRequest<Body>), Problem> {
        let config = self.tls().map_err(|error| unavailable(error.to_string()))?;
        let mut tried = Vec::new();
        for region in self.ordered().await {
            match open(&region, Arc::clone(&config)).await {
                Ok(sender) => return Ok((region, sender)),
                Err(error) => tried.push(match self.links.unlinked_for(&region) {
                    Some(time) => format!("{region} ({error}; without a link for {} s)", time.as_secs()),
                    None => format!("{region} ({error})"),
                }),
            }
        }
        Err(unavailable(format!("no region can be reached; tried: {}", tried.join(", "))))
    }
}

/// An HTTP/2 connection to a region, for one request.
pub(crate) async fn open(region: &str, config: Arc<ClientConfig>) -> io::Result<SendRequest<Body>> {
    let dialled = tokio::time::timeout(DIAL, async {
        let stream = tls::open_one(region, config).await?;
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new()).keep_alive_interval(KEEP_ALIVE).keep_alive_timeout(KEEP_ALIVE);
        http.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)
    });
    let (sender, connection) = dialled.await??;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a region for a client ended early");
        }
    });
    Ok(sender)
}

/// The routes for the forwarded paths.
pub(super) fn router() -> Router<Arc<Web>> {
    PATHS.iter().fold(Router::new(), |router, path| router.route(path, any(forward)))
}

async fn forward(
    State(web): State<Arc<Web>>,
    Extension(ends): Extension<Ends>,
    request: Request,
) -> Result<Response, Response> {
    if !ends.tls {
        let detail = "the API is passed on over TLS only; ask for https://, and pin this rack's key";
        let mut response = Problem::new(StatusCode::UPGRADE_REQUIRED, "tls_required", detail).into_response();
        response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("TLS/1.2, HTTP/1.1"));
        return Err(response);
    }
    let Some(regions) = &web.regions else {
        return Err(unavailable("this rack has joined no region".to_owned()).into_response());
    };
    let place = regions.places.try_take(counted(ends.peer.ip())).map_err(|full| {
        let (most, whose) = match full {
            Full::Client { .. } => (PLACES.of_one, format!(" from {}", places::client(ends.peer.ip()))),
            Full::All => (PLACES.all, String::new()),
        };
        unavailable(format!("this rack forwards {most} requests{whose} already, and no more at once"))
            .into_response()
    })?;
    let request = outgoing(request, ends.peer.ip().to_canonical()).map_err(IntoResponse::into_response)?;
    let (region, mut sender) = regions.dial().await.map_err(IntoResponse::into_response)?;
    match sender.send_request(request).await {
        Ok(answer) => Ok(incoming(answer, place, sender)),
        Err(error) => {
            tracing::warn!(region, %error, "a region did not answer a request that was passed on");
            let detail = format!(
                "region {region} ended the connection before it answered; whether it did what was asked is not known"
            );
            Err(Problem::new(StatusCode::BAD_GATEWAY, "unavailable", detail).into_response())
        }
    }
}

fn unavailable(detail: String) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail).retry_after(RETRY_AFTER)
}

/// The request as it is sent to a region.
fn outgoing(request: Request, from: IpAddr) -> Result<Request, Problem> {
    let (mut parts, body) = request.into_parts();
    let invalid =
        || Problem::new(StatusCode::BAD_REQUEST, "invalid", "the path, or the header Host, is none");
    let host = parts.headers.remove(header::HOST);
    let host = host.as_ref().and_then(|host| host.to_str().ok()).filter(|host| !host.is_empty());
    let path = parts.uri.path_and_query().cloned().ok_or_else(invalid)?;
    let uri = Uri::builder().scheme("https").authority(host.unwrap_or("region")).path_and_query(path);
    pass_on(&mut parts.headers);
    let from = HeaderValue::try_from(from.to_string()).map_err(|_| invalid())?;
    parts.headers.insert(FOR, from);
    let mut request = Request::new(body);
    *request.method_mut() = parts.method;
    *request.uri_mut() = uri.build().map_err(|_| invalid())?;
    *request.headers_mut() = parts.headers;
    Ok(request)
}

/// The answer as it is sent to the client. The place and the connection are held until its body ends.
fn incoming(answer: http::Response<Incoming>, place: Place<IpAddr>, sender: SendRequest<Body>) -> Response {
    let (parts, body) = answer.into_parts();
    let mut response = Response::new(Body::new(Passing { body, _held: (place, sender) }));
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    pass_on(response.headers_mut());
    response
}

/// Removes headers that must not be forwarded.
fn pass_on(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&NOT_PASSED_ON) {
        headers.remove(name);
    }
}

/// A body, and the resources that are held until it ends.
struct Passing<H> {
    body: Incoming,
    _held: H,
}

impl<H: Unpin> HttpBody for Passing<H> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_one_connection_or_the_racks_to_say_is_not_passed_on() {
        let request = Request::builder()
            .uri("/api/v1/zones?limit=1")
            .header("Host", "rack:5248")
            .header("Authorization", "Bearer t")
            .header("Connection", "close, X-Mine")
            .header("X-Mine", "1")
            .header("Transfer-Encoding", "chunked")
            .header("X-Forwarded-For", "10.0.0.1")
            .header("Forwarded", "for=10.0.0.1")
            .header("Expect", "100-continue")
            .body(Body::empty())
            .unwrap();
        let passed = outgoing(request, "10.77.0.9".parse().unwrap()).unwrap();
        assert_eq!(passed.uri(), "https://rack:5248/api/v1/zones?limit=1");
        let mut names: Vec<_> = passed.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "x-forwarded-for"]);
        assert_eq!(passed.headers()["x-forwarded-for"], "10.77.0.9");
    }
}
