//! A receiver of webhooks, which fails on command and records every request.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The receiver's reaction to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Behaviour {
    Accept,
    /// 200, with a very long answer.
    AcceptAtLength,
    Answer(u16),
    /// A redirect to itself: a client that follows it is noticed.
    Redirect,
    /// 200 after this many milliseconds.
    Slow(u64),
    /// No answer at all.
    Hang,
    /// The connection is closed without an answer.
    Cut,
}

/// One received request.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) path: String,
    pub(crate) id: String,
    pub(crate) attempt: u32,
    timestamp: String,
    signature: Option<String>,
    pub(crate) traceparent: Option<String>,
    body: Bytes,
    pub(crate) behaviour: Behaviour,
    /// True if it was answered with 200.
    pub(crate) accepted: bool,
}

impl Arrival {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// The kind, the name and the event.
    pub(crate) fn what(&self) -> String {
        let data = self.json()["data"].clone();
        let word = |name: &str| data[name].as_str().expect("a word").to_owned();
        format!("{} {} {}", word("kind"), word("name"), word("event"))
    }

    pub(crate) fn sequence(&self) -> i64 {
        self.json()["data"]["sequence"].as_i64().expect("a number")
    }

    pub(crate) fn uid(&self) -> String {
        self.json()["data"]["uid"].as_str().expect("a uid").to_owned()
    }

    /// True if OpenSSL, which shares no code with the region, computes the same signature.
    pub(crate) fn is_signed_with(&self, key: &[u8]) -> bool {
        let mut openssl = Command::new("openssl")
            .args([
                "dgst",
                "-sha256",
                "-mac",
                "HMAC",
                "-macopt",
                &format!("hexkey:{}", hex::encode(key)),
                "-binary",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("openssl runs");
        let mut stdin = openssl.stdin.take().expect("its input");
        let text = [format!("{}.{}.", self.id, self.timestamp).as_bytes(), &self.body].concat();
        // OpenSSL refuses an empty key before it reads its input.
        let _unread = stdin.write_all(&text);
        drop(stdin);
        let digest = openssl.wait_with_output().expect("its answer").stdout;
        let expected = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, digest);
        self.signature.as_deref() == Some(&format!("v1,{expected}"))
    }
}

type Behave = dyn Fn(&Arrival) -> Behaviour + Send + Sync;

struct Shared {
    arrivals: Mutex<Vec<Arrival>>,
    changed: watch::Sender<()>,
    behave: Box<Behave>,
}

/// Listens on loopback until the test ends.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Receiver {
    pub(crate) async fn start(behave: impl Fn(&Arrival) -> Behaviour + Send + Sync + 'static) -> Self {
        let (receiver, listener) = Self::bind(behave).await;
        let shared = Arc::clone(&receiver.shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        receiver
    }

    /// Starts with TLS, and returns its certificate for `localhost` as PEM.
    pub(crate) async fn start_tls(
        behave: impl Fn(&Arrival) -> Behaviour + Send + Sync + 'static,
    ) -> (Self, String) {
        let certified =
            rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        let key =
            rustls::pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS")
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .expect("a certificate for the key");
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let (receiver, listener) = Self::bind(behave).await;
        let shared = Arc::clone(&receiver.shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, shared).await;
                    }
                });
            }
        });
        (receiver, certified.cert.pem())
    }

    async fn bind(behave: impl Fn(&Arrival) -> Behaviour + Send + Sync + 'static) -> (Self, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let (arrivals, changed) = (Mutex::default(), watch::Sender::new(()));
        let shared = Arc::new(Shared { arrivals, changed, behave: Box::new(behave) });
        (Self { address, shared }, listener)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// All received requests, in order.
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.shared.arrivals.lock().expect("nobody panicked").clone()
    }

    /// The accepted requests: each delivery once, at its first acceptance.
    pub(crate) fn accepted(&self) -> Vec<Arrival> {
        let mut known = std::collections::BTreeSet::new();
        self.arrivals().into_iter().filter(|a| a.accepted && known.insert(a.id.clone())).collect()
    }

    /// Waits until `holds` is true of the received requests.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&[Arrival]) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        let wait = async {
            while !holds(&self.arrivals()) {
                changed.changed().await.expect("the receiver is there");
            }
        };
        if tokio::time::timeout(Duration::from_secs(60), wait).await.is_err() {
            let came: Vec<_> =
                self.arrivals().iter().map(|a| (a.what(), a.attempt, a.behaviour, a.accepted)).collect();
            panic!("not in 60 s: {what}; came: {came:#?}");
        }
    }

    /// The number of requests per reaction.
    pub(crate) fn faults(&self) -> BTreeMap<Behaviour, usize> {
        let mut counts = BTreeMap::new();
        for arrival in self.arrivals() {
            *counts.entry(arrival.behaviour).or_default() += 1;
        }
        counts
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, shared: Arc<Shared>) {
    let service = service_fn(move |request| answer(request, Arc::clone(&shared)));
    // An error is expected where the connection is cut.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> io::Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let header = |headers: &HeaderMap, name: &str| {
        headers.get(name).map(|value| value.to_str().expect("text").to_owned())
    };
    let mut arrival = Arrival {
        path: parts.uri.path().to_owned(),
        id: header(&parts.headers, "webhook-id").unwrap_or_default(),
        attempt: header(&parts.headers, "basalt-attempt").and_then(|n| n.parse().ok()).unwrap_or_default(),
        timestamp: header(&parts.headers, "webhook-timestamp").unwrap_or_default(),
        signature: header(&parts.headers, "webhook-signature"),
        traceparent: header(&parts.headers, "traceparent"),
        body,
        behaviour: Behaviour::Accept,
        accepted: false,
    };
    arrival.behaviour = (shared.behave)(&arrival);
    let behaviour = arrival.behaviour;
    let place = {
        let mut arrivals = shared.arrivals.lock().expect("nobody panicked");
        arrivals.push(arrival);
        arrivals.len() - 1
    };
    shared.changed.send_replace(());
    let status = match behaviour {
        Behaviour::Accept | Behaviour::AcceptAtLength => 200,
        Behaviour::Answer(status) => status,
        Behaviour::Redirect => 307,
        Behaviour::Slow(millis) => {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            200
        }
        Behaviour::Hang => std::future::pending().await,
        Behaviour::Cut => return Err(io::Error::other("cut")),
    };
    if status == 200 {
        shared.arrivals.lock().expect("nobody panicked")[place].accepted = true;
        shared.changed.send_replace(());
    }
    let body =
        if behaviour == Behaviour::AcceptAtLength { Bytes::from(vec![b'x'; 1 << 20]) } else { Bytes::new() };
    let response = Response::builder().status(status).header("location", "/elsewhere");
    Ok(response.body(Full::new(body)).expect("an answer"))
}
