//! DNS over TCP (RFC 7766): each message follows its length in two octets. A client may send further queries before the first is answered.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use basalt_dns::{Answer, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use super::Dns;

/// Connections of one address at once. Further clients wait to be accepted.
const CONNECTIONS: usize = 256;
/// Connections of one client at once. Further ones are closed.
const OF_ONE: usize = 16;
/// A connection on which nothing is said for so long is closed (RFC 7766 §6.2.3).
const IDLE: Duration = Duration::from_secs(10);
/// After a connection could not be accepted: this process has no file left for it.
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
                let Some(own) = Own::new(&clients, peer.ip()) else { continue };
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

/// Answers the queries of one connection, in their order.
async fn talk(dns: &Dns, mut stream: TcpStream, peer: IpAddr) -> io::Result<()> {
    stream.set_nodelay(true)?;
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
            Answer::Reply(reply) => reply,
            Answer::Forward(question) => {
                let (reply, answered) = oneshot::channel();
                dns.forward(*question, peer, |message| drop(reply.send(message)));
                let Ok(message) = answered.await else { return Ok(()) };
                message
            }
            Answer::Drop => return Ok(()),
        };
        let Ok(length) = u16::try_from(reply.len()) else { return Ok(()) };
        let message = [&length.to_be_bytes(), reply.as_slice()].concat();
        tokio::time::timeout(IDLE, writer.write_all(&message)).await??;
    }
}
