//! HTTP/1.1 over TLS (RFC 9112): one request after the other on a connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use basalt_bmc::ChassisBackend;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::service::{Asked, Reply, Service};

/// Largest body of a request, in bytes.
const MAX_BODY: usize = 64 * 1024;
/// Idle time after which a connection is closed.
const IDLE: Duration = Duration::from_secs(30);

pub(crate) async fn start<B: ChassisBackend>(
    addresses: &[SocketAddr],
    service: Arc<Mutex<Service<B>>>,
) -> io::Result<(Vec<SocketAddr>, Vec<JoinHandle<()>>)> {
    let acceptor = TlsAcceptor::from(Arc::new(tls()?));
    let (mut bound, mut tasks) = (Vec::new(), Vec::new());
    for address in addresses {
        let listener = TcpListener::bind(address).await?;
        bound.push(listener.local_addr()?);
        let (acceptor, service) = (acceptor.clone(), Arc::clone(&service));
        tasks.push(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, service) = (acceptor.clone(), Arc::clone(&service));
                // A client that disconnects does not stop the service.
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(IDLE, serve(stream, &acceptor, &service)).await;
                });
            }
        }));
    }
    Ok((bound, tasks))
}

fn tls() -> io::Result<rustls::ServerConfig> {
    let own = rcgen::generate_simple_self_signed(vec!["bmc".to_owned()]).map_err(io::Error::other)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(io::Error::other)?.with_no_client_auth();
    config.with_single_cert(vec![own.cert.der().clone()], key).map_err(io::Error::other)
}

async fn serve<B: ChassisBackend>(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    service: &Mutex<Service<B>>,
) -> io::Result<()> {
    let at = stream.local_addr()?.ip();
    let mut stream = BufReader::new(acceptor.accept(stream).await?);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        let (method, path) = (word(), word());
        let (mut login, mut if_match, mut length, mut closes) = (None, None, 0, false);
        loop {
            let mut header = String::new();
            if stream.read_line(&mut header).await? == 0 || header.trim().is_empty() {
                break;
            }
            let Some((name, value)) = header.split_once(':') else { continue };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap_or(0),
                "authorization" => login = basic(value),
                "if-match" => if_match = Some(value.to_owned()),
                "connection" => closes = value.eq_ignore_ascii_case("close"),
                _ => {}
            }
        }
        if length > MAX_BODY {
            return Ok(());
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let asked = Asked { at, method, path, login, if_match, body };
        let reply = service.lock().await.answer(&asked).await;
        stream.write_all(&encode(&reply)).await?;
        stream.flush().await?;
        if closes {
            return stream.shutdown().await;
        }
    }
}

/// User and password of HTTP Basic authentication (RFC 7617).
fn basic(value: &str) -> Option<(String, String)> {
    let pair = STANDARD.decode(value.strip_prefix("Basic ")?).ok()?;
    let pair = String::from_utf8(pair).ok()?;
    pair.split_once(':').map(|(user, password)| (user.to_owned(), password.to_owned()))
}

fn encode(reply: &Reply) -> Vec<u8> {
    let body = if reply.body.is_null() { String::new() } else { reply.body.to_string() };
    let mut head = format!("HTTP/1.1 {} Answer\r\nContent-Type: application/json\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    head.into_bytes()
}
