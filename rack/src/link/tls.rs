//! TLS to regions, under tonic, which is built without its own.

use std::sync::Arc;
use std::time::Duration;

use basalt_proto::REGION_SERVER_NAME;
use hyper_util::rt::TokioIo;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::hash::sha256;
use crate::identity::provider;

/// The longest time to dial a region, TLS included.
const DIAL: Duration = Duration::from_secs(10);
/// The interval of HTTP/2 pings: a dead region is noticed within twice this time.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Dials a region.
///
/// # Errors
/// The region does not answer, or its certificate is not a region's.
pub async fn connect(address: &str, config: Arc<ClientConfig>) -> Result<Channel, tonic::transport::Error> {
    // The scheme is only used for HTTP/2's pseudo-header; the connection is TLS.
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(DIAL)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    let connector = TlsConnector::from(config);
    let dial = tower::service_fn(move |uri: Uri| {
        let connector = connector.clone();
        async move {
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            let opened = open(host, uri.port_u16().unwrap_or_default(), connector);
            tokio::time::timeout(DIAL, opened).await.map_err(std::io::Error::from)?.map(TokioIo::new)
        }
    });
    endpoint.connect_with_connector(dial).await
}

/// A connection to a region, for one request.
///
/// # Errors
/// As [`connect`].
pub async fn open_one(address: &str, config: Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
    let uri: Uri = address.parse().map_err(std::io::Error::other)?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    open(host, uri.port_u16().unwrap_or_default(), TlsConnector::from(config)).await
}

async fn open(host: &str, port: u16, connector: TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(REGION_SERVER_NAME).map_err(std::io::Error::other)?;
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    connector.connect(name, stream).await
}

/// The TLS settings for enrolment: the server must present the CA with this fingerprint and a region's certificate from
/// it.
///
/// # Errors
/// `Error`: TLS cannot be set up with this provider.
pub fn pinned(ca_sha256: &str) -> Result<ClientConfig, Error> {
    let verifier = Arc::new(Pinned { ca_sha256: ca_sha256.to_owned() });
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

#[derive(Debug)]
struct Pinned {
    ca_sha256: String,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let ca = intermediates.iter().find(|certificate| hex::encode(sha256(certificate)) == self.ca_sha256);
        let ca = ca.ok_or_else(|| {
            Error::General("the region's CA is not the one that the join token names".to_owned())
        })?;
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone().into_owned())?;
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
