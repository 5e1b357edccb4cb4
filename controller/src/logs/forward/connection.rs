//! A connection to a receiver: TCP, TLS or datagrams.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use basalt_api::kinds::{RemoteSyslog, RemoteSyslogProtocol};
use basalt_db::{Store, StoreError};
use rustix::net::sockopt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UdpSocket};
use tokio_rustls::TlsConnector;

use super::window::{BUFFERED, UNACKNOWLEDGED};

/// Time limit for resolving, dialling and the TLS handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// Idle time before the first TCP keepalive probe, and time between two probes.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A stream in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// A connection to a receiver.
pub(super) enum Connection {
    Stream(Pin<Box<dyn Duplex>>),
    Datagrams(UdpSocket),
}

/// Connects to the receiver.
///
/// # Errors
/// One sentence for people.
pub(super) async fn connect(store: &Store, receiver: &RemoteSyslog) -> Result<Connection, String> {
    let connecting = tokio::time::timeout(PATIENCE, dial(store, receiver));
    connecting.await.map_err(|_| {
        format!("{} did not answer in {} s; see if it is reachable", receiver.address, PATIENCE.as_secs())
    })?
}

async fn dial(store: &Store, receiver: &RemoteSyslog) -> Result<Connection, String> {
    let address = &receiver.address;
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{address} {what}: {error}");
    let (host, port) = receiver
        .host_and_port()
        .ok_or_else(|| format!("{address:?} is no HOST:PORT; correct it in remote_syslog"))?;
    let found = tokio::net::lookup_host((host.as_str(), port)).await;
    let found: Vec<SocketAddr> = found.map_err(|error| failed("cannot be found", &error))?.collect();
    let racks = receivers_of_racks(store).await.map_err(|error| failed("cannot be checked", &error))?;
    if let Some((rack, own)) = racks.iter().find(|(_, own)| found.contains(own)) {
        return Err(format!(
            "{own} is where rack {rack} takes logs, so lines would come back for ever; name another receiver"
        ));
    }
    if receiver.protocol == RemoteSyslogProtocol::Udp {
        let to = found.first().copied().ok_or_else(|| failed("cannot be found", &"it has no address"))?;
        let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 8], 0).into() };
        let bound = async {
            let socket = UdpSocket::bind(any).await?;
            socket.connect(to).await?;
            io::Result::Ok(socket)
        };
        return bound.await.map(Connection::Datagrams).map_err(|error| failed("cannot be sent to", &error));
    }
    let stream = TcpStream::connect(&found[..]).await;
    let stream = stream.map_err(|error| failed("takes no connection", &error))?;
    bound_losses(&stream).map_err(|error| failed("cannot be used", &error))?;
    if receiver.protocol == RemoteSyslogProtocol::Tcp {
        return Ok(Connection::Stream(Box::pin(stream)));
    }
    let config = match &receiver.ca {
        Some(ca) => trusting(ca)?,
        None => crate::tls::with_system_roots()?,
    };
    let name = ServerName::try_from(host.as_str().to_owned());
    let name = name.map_err(|error| failed("is no name that a certificate can have", &error))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let stream = stream.map_err(|error| failed("fails at TLS", &error))?;
    Ok(Connection::Stream(Box::pin(stream)))
}

/// Sets the socket options on which [`super::window`] relies.
fn bound_losses(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_send_buffer_size(stream, usize::try_from(BUFFERED / 2).unwrap_or(usize::MAX))?;
    let unacknowledged = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, unacknowledged)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

/// The configuration of a client that trusts only these certificates.
fn trusting(pem: &str) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("ca is no PEM: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("ca has a certificate that cannot be used: {error}"))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// The addresses on which racks receive logs, each with the rack's name.
async fn receivers_of_racks(store: &Store) -> Result<Vec<(String, SocketAddr)>, StoreError> {
    let mut receivers = Vec::new();
    for rack in store.all("Rack").await? {
        let status: serde_json::Value = serde_json::from_str(rack.status.get()).unwrap_or_default();
        let services = status.get("services").and_then(serde_json::Value::as_object);
        let addresses = services
            .into_iter()
            .flatten()
            .filter_map(|(service, _)| service.strip_prefix(basalt_proto::SYSLOG)?.parse().ok());
        receivers.extend(addresses.map(|address| (rack.name.clone(), address)));
    }
    Ok(receivers)
}
