//! Limits on connections to the racks' port: three classes of connections, so that strangers cannot take the racks' places.
//!
//! | connection | lasts at most | places | share of one client |
//! | --- | --- | --- | --- |
//! | in its TLS handshake | 10 seconds | 1,024 | its address or /64: 256 |
//! | without a certificate | 30 seconds | 128 | its address or /64: 16 |
//! | with a certificate of this region's authority | any time | 4,096 | its key: 448 |
//!
//! A process that may open fewer files has fewer places. A rack opens a connection for each request that it forwards, up to 256 at a
//! time, and one for each connection to this region's proxy, up to 128. Several racks may share an address: so a rack is counted by its
//! key.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use basalt_proto::TUNNELS;
use basalt_proto::open_files;
use basalt_proto::places::{Full, Limits, Place, Places, counted};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;
use x509_parser::prelude::FromDer;

use super::listener::Peer;

/// A connection of the racks' port, under HTTP/2.
pub(super) type Tls = TlsStream<TcpStream>;

/// The lifetime of a connection without a certificate. An enrolment takes a second, and racks wait 20 s for its answer.
const STRANGER: Duration = Duration::from_secs(30);
/// The share of one rack: 256 forwarded requests, connections to the proxy, and links and enrolments that begin or end.
const OF_RACK: usize = 320 + TUNNELS;

/// The client to which a connection is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Client {
    /// An IPv4 address, or a /64 of IPv6.
    Network(IpAddr),
    /// SHA-256 of a rack's key.
    Rack([u8; 32]),
}

/// The places of all classes. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Doors {
    arriving: Places<Client>,
    strangers: Places<Client>,
    racks: Places<Client>,
}

impl Doors {
    /// The number of places follows from the number of files that this process may open.
    pub(super) fn new() -> Self {
        let [arriving, strangers, racks] =
            [(8, 1024), (16, 128), (4, 4096)].map(|(part, most)| open_files::places(part, most));
        Self {
            arriving: Places::new(Limits { all: arriving, of_one: arriving.div_ceil(4) }),
            strangers: Places::new(Limits::shared(strangers)),
            racks: Places::new(Limits { all: racks, of_one: OF_RACK.min(racks.div_ceil(2)) }),
        }
    }

    /// Reserves a place for the TLS handshake of a connection from this address.
    pub(super) async fn arrive(&self, from: SocketAddr) -> Result<Place<Client>, Full> {
        self.arriving.take(network(from)).await
    }

    /// Reserves a place for a connection after its handshake, as long as it lasts.
    pub(super) async fn admit(&self, tls: Tls, from: SocketAddr) -> Result<Stream<Tls>, Full> {
        let peer = Peer { spki_sha256: spki_sha256(&tls), address: Some(from) };
        let (place, until) = match peer.spki_sha256 {
            Some(key) => (self.racks.take(Some(Client::Rack(key))).await, None),
            None => (self.strangers.take(network(from)).await, Some(Box::pin(sleep(STRANGER)))),
        };
        Ok(Stream { io: tls, peer, until, _place: Some(place?) })
    }
}

fn network(from: SocketAddr) -> Option<Client> {
    counted(from.ip()).map(Client::Network)
}

/// SHA-256 of the public key in the peer's certificate.
fn spki_sha256(tls: &Tls) -> Option<[u8; 32]> {
    let (_, session) = tls.get_ref();
    let certificate = session.peer_certificates()?.first()?;
    let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(certificate).ok()?;
    let spki = certificate.public_key().raw;
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, spki).as_ref().try_into().ok()
}

/// A connection with its place. It fails when its time limit is over.
pub(super) struct Stream<S> {
    io: S,
    peer: Peer,
    until: Option<Pin<Box<Sleep>>>,
    _place: Option<Place<Client>>,
}

impl<S> Connected for Stream<S> {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(until) = &mut self.until
            && until.as_mut().poll(cx).is_ready()
        {
            let over = "a connection without a certificate lasts 30 seconds";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, over)));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_connection_without_a_certificate_ends_however_much_it_says() {
        let (io, mut other) = tokio::io::duplex(64);
        let until = Some(Box::pin(sleep(Duration::from_millis(50))));
        let mut stream = Stream { io, peer: Peer::default(), until, _place: None };
        let talks = tokio::spawn(async move { while other.write_all(b"more").await.is_ok() {} });
        let end = async {
            let mut bytes = [0; 64];
            loop {
                if let Err(error) = stream.read(&mut bytes).await {
                    return error.kind();
                }
            }
        };
        let end = tokio::time::timeout(Duration::from_secs(10), end).await;
        assert_eq!(end.expect("it ends"), io::ErrorKind::TimedOut);
        talks.abort();
    }
}
