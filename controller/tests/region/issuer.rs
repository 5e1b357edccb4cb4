//! An issuer of ID tokens on loopback. It signs with one key at a time, and counts the requests for its keys.

use aws_lc_rs::digest::{SHA256, digest};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;

struct Key {
    id: String,
    pair: KeyPair,
}

impl Key {
    fn new(number: usize) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
        Self { id: format!("key-{number}"), pair }
    }

    fn jwk(&self) -> Value {
        // Uncompressed: 4, x, y.
        let point = self.pair.public_key_raw();
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": self.id, "x": b64(&point[1..33]), "y": b64(&point[33..])})
    }
}

fn b64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

struct Shared {
    address: SocketAddr,
    key: Mutex<Key>,
    /// ID tokens, by `CODE CHALLENGE`.
    codes: Mutex<HashMap<String, String>>,
    asked: AtomicUsize,
    is_away: AtomicBool,
    is_silent: AtomicBool,
}

/// Answers until the test ends.
#[derive(Clone)]
pub(crate) struct Issuer(Arc<Shared>);

impl Issuer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let issuer = Self(Arc::new(Shared {
            address: listener.local_addr().expect("its address"),
            key: Mutex::new(Key::new(1)),
            codes: Mutex::default(),
            asked: AtomicUsize::new(0),
            is_away: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
        }));
        let serving = issuer.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let issuer = serving.clone();
                let service = service_fn(move |request| {
                    let issuer = issuer.clone();
                    async move { Ok::<_, Infallible>(issuer.answer(request).await) }
                });
                // An error is expected if the client goes away.
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        issuer
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.0.address)
    }

    /// The number of requests for its keys.
    pub(crate) fn asked(&self) -> usize {
        self.0.asked.load(Ordering::SeqCst)
    }

    pub(crate) fn is_away(&self, away: bool) {
        self.0.is_away.store(away, Ordering::SeqCst);
    }

    /// From now on, its tokens do not name their key.
    pub(crate) fn be_silent(&self) {
        self.0.is_silent.store(true, Ordering::SeqCst);
    }

    /// Signs with another key from now on, and deletes the former one.
    pub(crate) fn rotate(&self, number: usize) {
        *self.0.key.lock().expect("nobody panicked") = Key::new(number);
    }

    /// An ID token about a subject, for the client `basalt`, issued now. `claims` replace the default claims.
    pub(crate) fn token(&self, subject: &str, claims: &Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let mut said =
            json!({"iss": self.url(), "aud": "basalt", "sub": subject, "iat": now, "exp": now + 300});
        for (name, value) in claims.as_object().expect("claims") {
            said[name] = value.clone();
        }
        let key = self.0.key.lock().expect("nobody panicked");
        let kid = (!self.0.is_silent.load(Ordering::SeqCst)).then(|| key.id.clone());
        let header = Header { kid, ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, &said, &EncodingKey::from_ec_der(&key.pair.serialize_der()))
            .expect("a token")
    }

    /// Prepares a code for this token. The exchange needs the verifier of the challenge.
    pub(crate) fn grants(&self, code: &str, challenge: &str, token: String) {
        self.0.codes.lock().expect("nobody panicked").insert(format!("{code} {challenge}"), token);
    }

    /// Exchanges a code for its token, once. The client's secret is `s:3`.
    fn exchanged(&self, authorization: Option<&str>, form: &str) -> (u16, Value) {
        let field = |name: &str| {
            form.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}="))).unwrap_or("")
        };
        let challenge = b64(digest(&SHA256, field("code_verifier").as_bytes()).as_ref());
        let token =
            self.0.codes.lock().expect("nobody panicked").remove(&format!("{} {challenge}", field("code")));
        // This is base64 of `basalt:s%3A3`.
        match token.filter(|_| authorization == Some("Basic YmFzYWx0OnMlM0Ez")) {
            Some(token) => {
                (200, json!({"id_token": token, "token_type": "Bearer", "access_token": "unused"}))
            }
            None => (400, json!({"error": "invalid_grant", "error_description": "no such code"})),
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, body) = match request.uri().path() {
            _ if self.0.is_away.load(Ordering::SeqCst) => (502, json!({})),
            "/.well-known/openid-configuration" => {
                let of = |path: &str| format!("{}/{path}", self.url());
                let endpoints = json!({"issuer": self.url(), "jwks_uri": of("keys"),
                    "authorization_endpoint": of("authorize"), "token_endpoint": of("token")});
                (200, endpoints)
            }
            "/keys" => {
                self.0.asked.fetch_add(1, Ordering::SeqCst);
                (200, json!({"keys": [self.0.key.lock().expect("nobody panicked").jwk()]}))
            }
            "/token" => {
                let (head, body) = request.into_parts();
                let form = body.collect().await.expect("a form").to_bytes();
                let authorization = head.headers.get("authorization").and_then(|value| value.to_str().ok());
                self.exchanged(authorization, &String::from_utf8_lossy(&form))
            }
            _ => (404, json!({})),
        };
        Response::builder().status(status).body(Full::new(body.to_string().into())).expect("an answer")
    }
}
