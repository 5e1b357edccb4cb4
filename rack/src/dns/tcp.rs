//! DNS over TCP (RFC 7766): each message follows its length in two octets. A client may send further queries before the first is answered.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use basalt_dns::{Served, Transfer, Transport};
use basalt_proto::places::client;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use super::{Action, Dns, unix};

/// The most connections of one address. Further clients wait to be accepted.
const CONNECTIONS: usize = 256;
/// The most connections of one client. Further ones are closed.
const OF_ONE: usize = 16;
/// A connection is closed after this time without a query (RFC 7766 §6.2.3).
const IDLE: Duration = Duration::from_secs(10);
/// The longest time for a zone transfer. Each message of it has [`IDLE`].
const WHOLE: Duration = Duration::from_secs(600);
/// The pause after a connection could not be accepted, because this process has no free file descriptor.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers connections for ever.
pub(super) async fn serve(dns: &Arc<Dns>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let clients: Clients = Arc::default();
    // Ends all connections with the service.
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, peer)) => {
                let dns = Arc::clone(dns);
                let Some(own) = Own::new(&clients, client(peer.ip())) else {
                    dns.counters.closed();
                    continue;
                };
                connections.spawn(async move {
                    let (_place, _own) = (place, own);
                    let _ = talk(&dns, stream, peer.ip()).await;
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// The connections of each client.
type Clients = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// The place of a connection among those of its client.
struct Own(Clients, IpAddr);

impl Own {
    /// A place, if the client has one left.
    fn new(clients: &Clients, peer: IpAddr) -> Option<Self> {
        let mut counts = clients.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(peer).or_default();
        if *count >= OF_ONE {
            return None;
        }
        *count += 1;
        Some(Self(Arc::clone(clients), peer))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.get_mut(&self.1) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.1)),
        }
    }
}

/// Answers the queries of one connection in their order.
async fn talk(dns: &Dns, mut stream: TcpStream, peer: IpAddr) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let own = stream.local_addr().ok().map(|at| at.ip());
    let (reader, mut writer) = stream.split();
    let mut reader = BufReader::new(reader);
    let mut query = Vec::new();
    loop {
        let read = async {
            let length = reader.read_u16().await?;
            query.resize(usize::from(length), 0);
            reader.read_exact(&mut query).await
        };
        tokio::time::timeout(IDLE, read).await??;
        let reply = match dns.answer(&query, peer, Transport::Tcp) {
            Action::Reply(reply) => reply,
            Action::Forward(question, servers) => {
                let (reply, answered) = oneshot::channel();
                dns.forward(*question, servers, peer, |message| drop(reply.send(message)));
                let Ok(message) = answered.await else { return Ok(()) };
                message
            }
            Action::Secondary => match dns.answer_secondary(&query, peer, own, Transport::Tcp) {
                Served::Reply(reply) | Served::Signed(reply) => reply,
                Served::Transfer(transfer) => {
                    let whole = copy(dns, *transfer, &mut writer);
                    tokio::time::timeout(WHOLE, whole).await??;
                    continue;
                }
                Served::Drop => return Ok(()),
            },
            Action::Drop => return Ok(()),
        };
        send(&mut writer, &reply).await?;
    }
}

/// Sends a zone. It waits for a permit only as long as for a slow client.
async fn copy(dns: &Dns, mut transfer: Transfer, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let _place = tokio::time::timeout(IDLE, dns.transfers.acquire()).await?.map_err(io::Error::other)?;
    let mut messages = transfer.messages();
    while let Some(message) = messages.next(unix()) {
        send(writer, &message).await?;
    }
    Ok(())
}

async fn send(writer: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    let message = [&length.to_be_bytes(), message].concat();
    tokio::time::timeout(IDLE, writer.write_all(&message)).await?
}
