//! DNS over UDP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use basalt_dns::{Answer, Transport};
use socket2::SockRef;
use tokio::net::UdpSocket;

use super::Dns;

/// Queries that wait while others are answered, in bytes.
const RECEIVE_BUFFER: usize = 1 << 20;
/// The largest query that is read. A query is one question and an OPT record.
const LARGEST: usize = 4096;
/// Queries that are answered before other tasks get their turn.
const IN_ONE_GO: usize = 64;

/// Answers queries until the socket fails.
pub(super) async fn serve(dns: &Arc<Dns>, socket: UdpSocket) -> io::Result<()> {
    SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER)?;
    let socket = Arc::new(socket);
    let mut buffer = [0; LARGEST];
    loop {
        socket.readable().await?;
        for _ in 0..IN_ONE_GO {
            match socket.try_recv_from(&mut buffer) {
                Ok((length, peer)) => take(dns, &socket, buffer.get(..length).unwrap_or_default(), peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An answer met a port that is closed: the error is the one before, of no query.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
        tokio::task::yield_now().await;
    }
}

fn take(dns: &Arc<Dns>, socket: &Arc<UdpSocket>, query: &[u8], peer: SocketAddr) {
    match dns.answer(query, peer.ip(), Transport::Udp) {
        // A full buffer loses the answer, and the client asks again.
        Answer::Reply(reply) => drop(socket.try_send_to(&reply, peer)),
        Answer::Forward(question) => {
            let socket = Arc::clone(socket);
            dns.forward(*question, peer.ip(), move |reply| drop(socket.try_send_to(&reply, peer)));
        }
        Answer::Drop => {}
    }
}
