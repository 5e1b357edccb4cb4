//! A rack on free ports of loopback, and a client that can choose its source address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::own_ports::own_port;
use basalt_dhcp::Mac;
use basalt_proto::rack_v1::boot_machine::Action;
use basalt_proto::rack_v1::fact::Body;
use basalt_proto::rack_v1::{BootConcern, BootMachine, BootTraceEntry, EphemeralBoot, Fact};
use basalt_rack::hash::sha256;
use basalt_rack::identity::provider;
use basalt_rack::settings::{Given, Settings};
use basalt_rack::spool::writer::Facts;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
pub(crate) const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
/// The address reserved for the machine.
pub(crate) const MACHINE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 77);
pub(crate) const KEY: [u8; 32] = [9; 32];

pub(crate) fn settings(dir: &Path) -> Settings {
    let loaders = dir.join("loaders");
    std::fs::create_dir_all(&loaders).unwrap();
    std::fs::write(loaders.join("undionly.kpxe"), b"a loader").unwrap();
    let given = Given {
        data_dir: Some(dir.join("data")),
        name: Some("rack-1".into()),
        interface: Some(vec!["lo".into()]),
        loader_dir: Some(loaders),
        http_port: Some(own_port()),
        dhcp_port: Some(own_port()),
        dhcp_client_port: Some(own_port()),
        tftp_port: Some(own_port()),
        dns_port: Some(own_port()),
        ntp_port: Some(own_port()),
        syslog_port: Some(vec![own_port()]),
        proxy_port: Some(own_port()),
        proxy_program: Some("/nowhere/squid".into()),
        proxy_dir: Some(dir.join("proxy")),
        metrics: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, own_port()))),
        ..Given::default()
    };
    given.settle().unwrap()
}

pub(crate) fn boot_concern(attempt: u64) -> BootConcern {
    let blob = |byte: &str| hex::encode(sha256(byte.as_bytes()));
    let boot = EphemeralBoot {
        attempt,
        not_after_unix_ms: i64::MAX,
        kernel_sha256: blob("kernel"),
        initrd_sha256: blob("initrd"),
        squashfs_sha256: blob("squashfs"),
        kernel_options: String::new(),
        attempt_key: KEY.to_vec(),
        task_json: br#"{"the":"task"}"#.to_vec(),
        step_key: "step-1".into(),
        claimed_by: String::new(),
        checkpoint: Vec::new(),
    };
    let machine = BootMachine {
        machine_uid: "uid-1".into(),
        name: "m1".into(),
        macs: vec![MAC.to_string()],
        action: Some(Action::Ephemeral(boot)),
        networks: Vec::new(),
        architecture: "amd64".into(),
    };
    BootConcern { machines: vec![machine], enlist: None }
}

/// Waits until a fact with this property is reported.
pub(crate) async fn fact(facts: &Facts, wanted: impl Fn(&Fact) -> bool) -> Fact {
    tokio::time::timeout(DEADLINE, fact_in_time(facts, wanted)).await.expect("no such fact was told")
}

/// Waits for such a fact without a deadline.
pub(crate) async fn fact_in_time(facts: &Facts, wanted: impl Fn(&Fact) -> bool) -> Fact {
    let mut durable = facts.durable();
    let mut next = 1;
    loop {
        durable.borrow_and_update();
        let batch = facts.read(next).await.unwrap();
        if batch.is_empty() {
            durable.changed().await.unwrap();
        }
        for fact in batch {
            next = fact.seq + 1;
            if wanted(&fact) {
                return fact;
            }
        }
    }
}

/// The trace of a machine's boot, up to a certain request.
pub(crate) async fn traced(facts: &Facts, mac: &str, until: &str) -> Vec<BootTraceEntry> {
    let mut entries = Vec::new();
    let (mut durable, mut next) = (facts.durable(), 1);
    let told = async {
        loop {
            durable.borrow_and_update();
            for fact in facts.read(next).await.unwrap() {
                next = fact.seq + 1;
                if let Some(Body::BootTrace(trace)) = fact.body.filter(|_| fact.mac == mac) {
                    entries.extend(trace.entries);
                }
            }
            if entries.iter().any(|entry| entry.asked.contains(until)) {
                return entries;
            }
            durable.changed().await.unwrap();
        }
    };
    tokio::time::timeout(DEADLINE, told).await.expect("it was not traced")
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn code(&self) -> String {
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        problem["code"].as_str().unwrap().to_owned()
    }
}

/// A client with its own source address.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) from: IpAddr,
    pub(crate) rack: SocketAddr,
    /// Use TLS, and accept only a server with this key.
    pub(crate) spki: Option<String>,
}

impl Client {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(http::Request::get(path).body(Full::default()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, bearer: Option<&str>, body: impl Into<Bytes>) -> Answer {
        let mut request = http::Request::post(path).header("content-type", "application/json");
        if let Some(bearer) = bearer {
            request = request.header("authorization", format!("Bearer {bearer}"));
        }
        self.send(request.body(Full::new(body.into())).unwrap()).await
    }

    pub(crate) async fn send(&self, request: http::Request<Full<Bytes>>) -> Answer {
        let exchange = async {
            let (parts, body) = self.open(request).await.into_parts();
            let body = body.collect().await.unwrap().to_bytes().to_vec();
            Answer { status: parts.status.as_u16(), headers: parts.headers, body }
        };
        tokio::time::timeout(DEADLINE, exchange).await.expect("no answer in time")
    }

    /// The answer as soon as its head has arrived.
    pub(crate) async fn open(&self, mut request: http::Request<Full<Bytes>>) -> http::Response<Incoming> {
        request.headers_mut().insert("host", "rack".parse().unwrap());
        let stream = self.connect().await;
        match &self.spki {
            None => talk(stream, request).await,
            Some(spki) => {
                let config = rustls::ClientConfig::builder_with_provider(provider())
                    .with_safe_default_protocol_versions()
                    .unwrap()
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(Pinned(spki.clone())))
                    .with_no_client_auth();
                let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
                let name = ServerName::IpAddress(self.rack.ip().into());
                talk(connector.connect(name, stream).await.unwrap(), request).await
            }
        }
    }

    /// Connects as soon as the rack listens.
    async fn connect(&self) -> TcpStream {
        loop {
            let at = SocketAddr::from((self.from, 0));
            let socket = Socket::new(Domain::for_address(at), Type::STREAM, None).unwrap();
            if at.is_ipv6() {
                // No interface has the address: it is routed to this host.
                socket.set_freebind_v6(true).unwrap();
            }
            socket.set_nonblocking(true).unwrap();
            socket.bind(&at.into()).unwrap();
            let socket = TcpSocket::from_std_stream(socket.into());
            match socket.connect(self.rack).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

async fn talk<S>(stream: S, request: http::Request<Full<Bytes>>) -> http::Response<Incoming>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender.send_request(request).await.unwrap()
}

/// Accepts a server by its public key only, as an agent does.
#[derive(Debug)]
struct Pinned(String);

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let (_, certificate) = x509_parser::parse_x509_certificate(end_entity).unwrap();
        assert_eq!(hex::encode(sha256(certificate.public_key().raw)), self.0);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
