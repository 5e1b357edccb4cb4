//! The listeners: TCP, and the unix socket of this host. A connection on which nothing arrives, or on which nothing can be written, ends.
//! The number of connections is limited, in all and per client ([`basalt_proto::places`]).

use super::App;
use super::guard::Peer;
use super::router::router;
use super::stall::{Impatient, Writing};
use super::tls::{self, Certificate};
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderValue, header};
use axum::serve::Listener;
use basalt_proto::places::{Full, Places, counted};
use hyper::body::{Frame, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::Error as TlsError;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The largest size of a request's head, and of a single read or write, in bytes.
const BUFFER: usize = 64 << 10;

/// The number of parallel requests on one HTTP/2 connection. A browser has some ten; a client may have several connections ([`Places`]).
const STREAMS: u32 = 64;

/// Bytes of an answer that a connection is given at once. It may hold so much of each answer that its client does not take.
const PIECE: usize = 16 << 10;

/// The longest life of an HTTP/2 connection. Clients open another one.
const LIFE: Duration = Duration::from_secs(3600);
/// How long requests in progress may take to end when a connection's life is over.
const FAREWELL: Duration = Duration::from_secs(30);
/// When the region stops, a connection ends whose client takes nothing of its answers for so long.
const HASTE: Duration = Duration::from_secs(2);
/// The largest head of a request in HTTP/2, in bytes.
const HEAD: u32 = 16 << 10;

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the region is gone, which is a stop too.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// The TLS configuration of a listener.
#[derive(Clone, Default)]
pub struct Tls(Option<TlsAcceptor>);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tls").field(&self.0.is_some()).finish()
    }
}

impl Tls {
    /// TLS with a certificate.
    ///
    /// # Errors
    /// The error of the TLS library.
    pub fn with(certificate: &Arc<Certificate>) -> Result<Self, TlsError> {
        Ok(Self(Some(certificate.acceptor()?)))
    }
}

/// Answers on a TCP socket until the region stops, and until the requests in progress have ended.
pub async fn serve_tcp(listener: TcpListener, tls: Tls, app: App, stopping: watch::Receiver<bool>) {
    let doors =
        Doors { places: app.0.connections.clone(), client: |address: &SocketAddr| counted(address.ip()) };
    serve(Impatient(listener), &app, doors, stopping, |talk, stream, address| {
        begin(talk, tls.clone(), stream, address)
    })
    .await;
}

/// Answers on a unix socket until the region stops, and until the requests in progress have ended.
pub async fn serve_unix(listener: UnixListener, app: App, stopping: watch::Receiver<bool>) {
    let doors = Doors { places: Places::new(app.0.connections.limits()), client: |_: &_| None };
    serve(Impatient(listener), &app, doors, stopping, |talk, stream: Writing<UnixStream>, _| {
        let uid = stream.io.peer_cred().ok().map(|credentials| credentials.uid());
        talk.converse(stream, Peer::Unix { uid })
    })
    .await;
}

/// Begins a TCP connection: detects TLS, then answers its requests.
async fn begin(talk: Talk, tls: Tls, stream: Writing<TcpStream>, address: SocketAddr) {
    let begun = tokio::select! {
        begun = tokio::time::timeout(talk.patience, spoken(tls, stream)) => begun,
        () = stopped(talk.stopping.clone()) => return,
    };
    match begun {
        Ok(Ok(Spoken::Plain(stream))) => talk.converse(stream, Peer::Tcp(address)).await,
        Ok(Ok(Spoken::Tls(stream))) => {
            let peer = Peer::Tls(address);
            match stream.get_ref().1.alpn_protocol() {
                Some(tls::HTTP2) => talk.multiplex(*stream, peer).await,
                _ => talk.converse(*stream, peer).await,
            }
        }
        Ok(Err(error)) => tracing::debug!(%address, %error, "a connection did not begin"),
        Err(_) => tracing::debug!(%address, "nothing came on a connection"),
    }
}

enum Spoken {
    Plain(Writing<TcpStream>),
    Tls(Box<TlsStream<Writing<TcpStream>>>),
}

async fn spoken(Tls(acceptor): Tls, stream: Writing<TcpStream>) -> io::Result<Spoken> {
    match (tls::is_tls(&stream.io).await?, acceptor) {
        (false, _) => Ok(Spoken::Plain(stream)),
        (true, Some(acceptor)) => Ok(Spoken::Tls(Box::new(acceptor.accept(stream).await?))),
        (true, None) => Err(io::Error::other(
            "it speaks TLS, and the region has no certificate (--tls-certificate, --tls-key)",
        )),
    }
}

/// The limits of a listener's connections, and the client for which each one counts.
struct Doors<C> {
    places: Places<IpAddr>,
    client: C,
}

async fn serve<L: Listener, B: Future<Output = ()> + Send + 'static>(
    mut listener: L,
    app: &App,
    doors: Doors<impl Fn(&L::Addr) -> Option<IpAddr>>,
    stopping: watch::Receiver<bool>,
    begin: impl Fn(Talk, L::Io, L::Addr) -> B,
) {
    let patience = app.0.parts.client_timeout;
    let mut http = http1::Builder::new();
    // The timeout for complete headers, which also applies between two requests.
    http.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(BUFFER);
    let talk = Talk { http, router: router(app.clone()), patience, stopping };
    let mut connections = JoinSet::new();
    loop {
        let (io, address) = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(talk.stopping.clone()) => break,
            Some(_) = connections.join_next() => continue,
        };
        let client = (doors.client)(&address);
        let place = tokio::select! {
            place = doors.places.take(client) => place,
            () = stopped(talk.stopping.clone()) => break,
        };
        match place {
            Ok(place) => {
                let begun = begin(talk.clone(), io, address);
                connections.spawn(async move {
                    begun.await;
                    drop(place);
                });
            }
            Err(Full::Client { is_news: true }) => {
                let (client, most) = (client.map(|it| it.to_string()), doors.places.limits().of_one);
                tracing::warn!(
                    client,
                    most,
                    "a client has as many connections as one may have, and opens more: they are closed"
                );
            }
            Err(_) => {}
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// The parts with which connections are answered.
#[derive(Clone)]
struct Talk {
    http: http1::Builder,
    router: Router,
    /// How long a client may take to begin.
    patience: Duration,
    stopping: watch::Receiver<bool>,
}

impl Talk {
    /// Serves one connection to its end.
    async fn converse<S>(self, io: S, peer: Peer)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let flow: Arc<Flow> = Arc::default();
        let service = answering(self.router, peer, Arc::clone(&flow));
        let mut connection = std::pin::pin!(self.http.serve_connection(TokioIo::new(io), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = stopped(self.stopping) => {
                connection.as_mut().graceful_shutdown();
                flow.farewell(connection, self.patience.min(HASTE)).await
            }
        };
        if let Some(Err(error)) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }

    /// Serves one HTTP/2 connection to its end, with parallel requests.
    async fn multiplex<S>(self, io: S, peer: Peer)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let flow: Arc<Flow> = Arc::default();
        let service = answering(self.router, peer, Arc::clone(&flow));
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(HEAD)
            .max_send_buf_size(BUFFER)
            .keep_alive_interval(Some(self.patience))
            .keep_alive_timeout(self.patience);
        let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(io), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = stopped(self.stopping) => {
                connection.as_mut().graceful_shutdown();
                flow.farewell(connection, self.patience.min(HASTE)).await
            }
            () = flow.idle(self.patience) => {
                connection.as_mut().graceful_shutdown();
                // A request may have been on its way.
                let farewell = flow.farewell(connection, self.patience);
                tokio::time::timeout(LIFE, farewell).await.unwrap_or_default()
            }
            () = flow.stuck(self.patience) => None,
            () = tokio::time::sleep(LIFE) => {
                connection.as_mut().graceful_shutdown();
                tokio::time::timeout(FAREWELL, connection).await.ok()
            }
        };
        if let Some(Err(error)) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// The router's service for one client. It counts the answers whose bodies have not ended.
fn answering(
    router: Router,
    peer: Peer,
    flow: Arc<Flow>,
) -> impl Service<
    hyper::Request<hyper::body::Incoming>,
    Response = axum::response::Response,
    Error = std::convert::Infallible,
    Future: Send + 'static,
> {
    let router = TowerToHyperService::new(router);
    service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request: Request = request.map(Body::new);
        // In HTTP/2 the host is only in the URI (RFC 9113 §8.3.1).
        if let Some(host) = request.uri().authority().and_then(|it| HeaderValue::from_str(it.as_str()).ok()) {
            request.headers_mut().entry(header::HOST).or_insert(host);
        }
        request.extensions_mut().insert(ConnectInfo(peer));
        let (answer, stream) = (router.call(request), Stream::new(&flow));
        async move { answer.await.map(|response| response.map(|body| Body::new(Held::new(body, stream)))) }
    })
}

/// The answers of one connection.
#[derive(Default)]
struct Flow {
    /// The number of requests whose answers have not ended.
    under_way: AtomicUsize,
    numbers: AtomicU64,
    /// When the connection last took a piece of an unfinished answer, by the answer's number. An answer without a ready piece is left out.
    untaken: Mutex<HashMap<u64, Instant>>,
}

impl Flow {
    fn untaken(&self) -> MutexGuard<'_, HashMap<u64, Instant>> {
        self.untaken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes when no request was in progress for a while.
    async fn idle(&self, patience: Duration) {
        let (mut quiet, mut last) = (0, 0);
        while quiet < 2 {
            tokio::time::sleep(patience / 2).await;
            // A request may have come and gone between two looks.
            let begun = self.numbers.load(Ordering::Relaxed);
            let is_quiet = self.under_way.load(Ordering::Relaxed) == 0 && begun == last;
            (quiet, last) = (if is_quiet { quiet + 1 } else { 0 }, begun);
        }
    }

    /// Waits for the end of a connection that is shutting down. `None`: for about `patience` there was no request, or the client has read
    /// nothing of an answer.
    async fn farewell<T>(&self, connection: impl Future<Output = T>, patience: Duration) -> Option<T> {
        tokio::select! {
            ended = connection => Some(ended),
            () = self.idle(patience) => None,
            () = self.stuck(patience) => None,
        }
    }

    /// Completes when a client has read nothing of an answer for this time. In HTTP/2 a client can leave one stream unread and use
    /// others, and the region would keep the answer in memory.
    async fn stuck(&self, patience: Duration) {
        loop {
            tokio::time::sleep(patience / 2).await;
            if self.untaken().values().any(|since| since.elapsed() >= patience) {
                return;
            }
        }
    }
}

/// A request in progress.
struct Stream {
    flow: Arc<Flow>,
    number: u64,
}

impl Stream {
    fn new(flow: &Arc<Flow>) -> Self {
        flow.under_way.fetch_add(1, Ordering::Relaxed);
        Self { flow: Arc::clone(flow), number: flow.numbers.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.flow.under_way.fetch_sub(1, Ordering::Relaxed);
        self.flow.untaken().remove(&self.number);
    }
}

/// The body of an answer, in pieces of at most [`PIECE`] bytes. The connection takes the next one when the client has room for more than
/// the last.
struct Held {
    body: Body,
    /// Bytes of the answer that were produced and not handed to the connection yet.
    rest: Bytes,
    stream: Stream,
}

impl Held {
    fn new(body: Body, stream: Stream) -> Self {
        Self { body, rest: Bytes::new(), stream }
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let polled = Pin::new(&mut self.body).poll_frame(context);
            let Poll::Ready(Some(Ok(frame))) = polled else { return polled };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = self.poll_piece(context);
        let (flow, number) = (&self.stream.flow, self.stream.number);
        match &polled {
            Poll::Ready(Some(Ok(_))) => drop(flow.untaken().insert(number, Instant::now())),
            _ => drop(flow.untaken().remove(&number)),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower().saturating_add(rest));
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}
