//! A region, and a client that sends its requests unchanged.

use basalt_engine::Policy;
use basalt_region::controller::Controller;
use basalt_region::region::Region;
use basalt_region::settings::Settings;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// A region on its own port; it ends with the test.
pub(crate) struct Lab {
    pub(crate) region: Region,
    pub(crate) url: String,
    pub(crate) dir: TempDir,
    pub(crate) api: Client,
}

/// A client: the region's address, and the token.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<String>,
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) async fn lab() -> Lab {
    lab_with(|_| ()).await
}

/// A region with other settings than usual.
pub(crate) async fn lab_with(change: impl FnOnce(&mut Settings)) -> Lab {
    let (url, dir) = (basalt_db::testing::database().await, tempfile::tempdir().expect("a directory"));
    let mut settings = Settings {
        database_url: Some(url.clone()),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        rpc_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        // Regions of many tests do not share the Squid of the host.
        proxy_program: Some("/nowhere/squid".into()),
        ..Settings::new(dir.path())
    };
    change(&mut settings);
    let region = Box::pin(Region::start(settings)).await.expect("it starts");
    let api = Client { address: region.address(), token: Some(admin_token(dir.path())) };
    Lab { region, url, dir, api }
}

/// A region with a running driver.
pub(crate) async fn driven_lab() -> Lab {
    let lab = lab().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    Controller::start(&lab.region, address, Policy::default(), Vec::new()).await.expect("it starts");
    lab
}

/// Another region on the same database, and its directory.
pub(crate) async fn region_beside(lab: &Lab) -> (Region, TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = Settings {
        database_url: Some(lab.url.clone()),
        seal_key_file: Some(lab.dir.path().join("seal-key")),
        listen: anywhere,
        rpc_listen: anywhere,
        ..Settings::new(dir.path())
    };
    (Box::pin(Region::start(settings)).await.expect("it starts"), dir)
}

pub(crate) fn admin_token(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("admin-token")).expect("a token").trim().to_owned()
}

impl Client {
    pub(crate) fn new(address: SocketAddr, token: Option<String>) -> Self {
        Self { address, token }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn put(&self, path: &str, body: &str) -> Answer {
        self.send("PUT", path, &[], body.to_owned()).await
    }

    /// Sends a PUT of a spec, which must succeed.
    pub(crate) async fn declare(&self, path: &str, spec: &str) {
        let answer = self.put(path, &format!("{{\"spec\":{spec}}}")).await;
        assert!(answer.status.is_success(), "{path}: {answer:?}");
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], "").await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let stream = TcpStream::connect(self.address).await.expect("it listens");
        exchange(stream, method, path, headers, self.token.as_deref(), body.into()).await
    }
}

/// Sends a request over a unix socket, without a token.
pub(crate) async fn over_unix(socket: &Path, method: &str, path: &str) -> Answer {
    let stream = UnixStream::connect(socket).await.expect("it listens");
    exchange(stream, method, path, &[], None, Bytes::new()).await
}

pub(crate) async fn exchange<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    token: Option<&str>,
    body: Bytes,
) -> Answer {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, "region");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Full::new(body)).expect("a request");
    let response = sender.send_request(request).await.expect("an answer");
    let (parts, body) = response.into_parts();
    // The body of a watch is endless: do not read it.
    let is_stream = parts.headers.get(header::CONTENT_TYPE).is_some_and(|t| t == "text/event-stream");
    let body = match is_stream {
        true => Bytes::new(),
        false => body.collect().await.expect("a whole answer").to_bytes(),
    };
    Answer { status: parts.status, headers: parts.headers, body }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// Status, code, and the errors as `pointer: message`.
    pub(crate) fn problem(&self) -> (u16, String, Vec<String>) {
        let body = self.json();
        let errors = body["errors"].as_array().cloned().unwrap_or_default();
        let word = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let errors =
            errors.iter().map(|e| format!("{}: {}", word(&e["pointer"]), word(&e["message"]))).collect();
        assert_eq!(self.headers["content-type"], "application/problem+json");
        (self.status.as_u16(), word(&body["code"]), errors)
    }
}

/// Fabric `default`, VLAN `default.0`, subnet `lab` 10.77.0.0/24.
pub(crate) async fn network(api: &Client) {
    api.declare("/api/v1/fabrics/default", "{}").await;
    api.declare("/api/v1/vlans/default.0", r#"{"fabric":"default","vid":0}"#).await;
    api.declare("/api/v1/subnets/lab", r#"{"vlan":"default.0","cidr":"10.77.0.0/24"}"#).await;
}
