//! Syslog on one address and port, by UDP (RFC 5426) and TCP (RFC 6587).

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use basalt_proto::places::client;
use basalt_syslog::Frames;
use socket2::{Domain, Protocol as IpProtocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Logs, lock};
use crate::health::Health;
use crate::holder::{self, Protocol};

/// Messages that wait while others are read, in bytes.
const RECEIVE_BUFFER: usize = 4 << 20;
/// The largest datagram, in bytes.
const LARGEST: usize = 65_536;
/// The number of datagrams that are read before other tasks run.
const IN_ONE_GO: usize = 64;
/// The most connections of one address. Further senders wait to be accepted.
const CONNECTIONS: usize = 1024;
/// The most connections of one sender. Further ones are closed.
const OF_ONE: usize = 64;
/// How long a silent connection stays unprobed.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// The pause after a connection could not be accepted, because this process has no free file descriptor.
const PAUSE: Duration = Duration::from_millis(100);
/// Another remedy, besides ending the program that holds the port.
const ADVICE: &str = "or have it listen on other addresses (rsyslog: `address` of imudp and imtcp)";

impl Logs {
    /// Serves one address and port until cancelled.
    ///
    /// # Errors
    /// `io::Error`: the address cannot be bound, or the socket fails.
    pub async fn serve(&self, at: SocketAddr, health: &Health, stop: &CancellationToken) -> io::Result<()> {
        let taken = |protocol, error: &io::Error| holder::refused("syslog", protocol, at, error, ADVICE);
        let socket = bind(at).map_err(|error| taken(Protocol::Udp, &error))?;
        let listener = TcpListener::bind(at).await.map_err(|error| taken(Protocol::Tcp, &error))?;
        health.up();
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = self.datagrams(socket) => ended,
            () = self.connections(listener) => Ok(()),
        }
    }

    async fn datagrams(&self, socket: UdpSocket) -> io::Result<()> {
        let mut buffer = vec![0; LARGEST];
        loop {
            socket.readable().await?;
            for _ in 0..IN_ONE_GO {
                match socket.try_recv_from(&mut buffer) {
                    Ok((length, from)) => self.datagram(buffer.get(..length).unwrap_or_default(), from.ip()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            tokio::task::yield_now().await;
        }
    }

    async fn connections(&self, listener: TcpListener) {
        let (places, senders) = (Arc::new(Semaphore::new(CONNECTIONS)), Arc::<Senders>::default());
        // Ends all connections with the service.
        let mut connections = JoinSet::new();
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, from)) => {
                    let Some(own) = Own::new(&senders, client(from.ip())) else { continue };
                    let logs = self.clone();
                    connections.spawn(async move {
                        let (_place, _own) = (place, own);
                        if let Err(error) = logs.connection(stream, from.ip()).await {
                            tracing::debug!(%from, %error, "a connection of syslog broke");
                        }
                    });
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Takes the messages of a connection. If its sender sends too many, they are read more slowly: TCP makes the
    /// sender wait.
    async fn connection(&self, mut stream: TcpStream, from: IpAddr) -> io::Result<()> {
        SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
        let (mut frames, mut buffer) = (Frames::default(), vec![0; 16 << 10]);
        let ended = loop {
            let length = match stream.read(&mut buffer).await {
                Ok(0) => break Ok(()),
                Ok(length) => length,
                Err(error) => break Err(error),
            };
            let mut wait = Duration::ZERO;
            frames.push(buffer.get(..length).unwrap_or_default(), |frame| wait = self.frame(frame, from));
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        };
        frames.end(|frame| _ = self.frame(frame, from));
        ended
    }
}

fn bind(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(IpProtocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.bind(&at.into())?;
    UdpSocket::from_std(socket.into())
}

/// The connections of each sender.
type Senders = Mutex<HashMap<IpAddr, usize>>;

/// The place of a connection among those of its sender.
struct Own(Arc<Senders>, IpAddr);

impl Own {
    /// A place, if the sender has one left.
    fn new(senders: &Arc<Senders>, from: IpAddr) -> Option<Self> {
        let mut counts = lock(senders);
        let count = counts.entry(from).or_default();
        if *count >= OF_ONE {
            return None;
        }
        *count += 1;
        Some(Self(Arc::clone(senders), from))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut counts = lock(&self.0);
        match counts.get_mut(&self.1) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.1)),
        }
    }
}
