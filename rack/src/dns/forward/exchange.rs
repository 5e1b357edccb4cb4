//! One query to one server: over UDP, then over TCP if necessary (RFC 5452, RFC 7766).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use basalt_dns::{BadResponse, Response, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// Datagrams with another id or question are guesses of strangers. After this many, the query goes over TCP, where
/// guessing is impossible.
const MAX_GUESSES: u32 = 16;
/// The longest datagram that is read, in bytes.
const DATAGRAM: usize = 4096;

/// The reason why a server gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// It cannot be reached.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The answer is not usable.
    #[error("{0}")]
    Bad(BadResponse),
}

/// Asks a server. It has no deadline of its own; the caller sets one.
pub(super) async fn ask(server: SocketAddr, upstream: &Upstream) -> Result<Response, Failure> {
    match udp(server, upstream).await? {
        Some(response) => Ok(response),
        None => tcp(server, upstream).await,
    }
}

/// `None`: ask over TCP.
async fn udp(server: SocketAddr, upstream: &Upstream) -> Result<Option<Response>, Failure> {
    // Each query has its own port, chosen by the kernel: a stranger must guess it too.
    let any = match server {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    let sent = upstream.query(u16::from_be_bytes(random()?), &random()?);
    socket.send(&sent).await?;
    let mut buffer = [0; DATAGRAM];
    for _ in 0..MAX_GUESSES {
        let length = socket.recv(&mut buffer).await?;
        match Response::read(&sent, buffer.get(..length).unwrap_or_default()) {
            Ok(response) => return Ok(Some(response)),
            Err(BadResponse::Mismatch) => {}
            Err(BadResponse::Truncated | BadResponse::Case) => return Ok(None),
            Err(bad) => return Err(Failure::Bad(bad)),
        }
    }
    Ok(None)
}

async fn tcp(server: SocketAddr, upstream: &Upstream) -> Result<Response, Failure> {
    let mut stream = TcpStream::connect(server).await?;
    // The case of the letters is not varied here: a server that changes it is asked over TCP for that reason.
    let sent = upstream.query(u16::from_be_bytes(random()?), &[0; 32]);
    let length = u16::try_from(sent.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], &sent].concat()).await?;
    let length = usize::from(stream.read_u16().await?);
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Response::read(&sent, &message).map_err(Failure::Bad)
}

/// Octets that strangers cannot predict.
pub(in crate::dns) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut octets = [0; N];
    aws_lc_rs::rand::fill(&mut octets).map_err(|_| io::Error::other("the system has no random numbers"))?;
    Ok(octets)
}
