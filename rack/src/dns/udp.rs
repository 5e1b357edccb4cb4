//! DNS over UDP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::available_parallelism;

use basalt_dns::{Served, Transport};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use super::{Action, Dns};

/// The receive buffer for waiting queries, in bytes.
const RECEIVE_BUFFER: usize = 1 << 20;
/// The largest query that is read. A query is one question and an OPT record.
const LARGEST: usize = 4096;
/// The number of queries that are answered before other tasks run.
const IN_ONE_GO: usize = 64;

/// The most sockets of one address.
const SOCKETS: usize = 4;

/// A socket for each processor. The kernel sends all queries from one client port to the same one (SO_REUSEPORT,
/// socket(7)).
pub(super) fn bind(at: SocketAddr) -> io::Result<Vec<UdpSocket>> {
    let count = available_parallelism().map_or(1, |it| it.get().min(SOCKETS));
    (0..count).map(|number| socket(at, number > 0)).collect()
}

/// The first socket is bound without sharing, so that it cannot take a port of another program. The others share its
/// port.
fn socket(at: SocketAddr, joins: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.set_reuse_port(joins)?;
    socket.bind(&at.into())?;
    socket.set_reuse_port(true)?;
    UdpSocket::from_std(socket.into())
}

/// Answers queries until a socket fails.
pub(super) async fn serve(dns: &Arc<Dns>, sockets: Vec<UdpSocket>) -> io::Result<()> {
    let mut tasks = JoinSet::new();
    for socket in sockets {
        let dns = Arc::clone(dns);
        tasks.spawn(async move { answer(&dns, &Arc::new(socket)).await });
    }
    let Some(ended) = tasks.join_next().await else { return Ok(()) };
    // The port is free again when this returns.
    tasks.shutdown().await;
    ended.map_err(io::Error::other)?
}

async fn answer(dns: &Arc<Dns>, socket: &Arc<UdpSocket>) -> io::Result<()> {
    let mut buffer = [0; LARGEST];
    loop {
        socket.readable().await?;
        for _ in 0..IN_ONE_GO {
            match socket.try_recv_from(&mut buffer) {
                Ok((length, peer)) => take(dns, socket, buffer.get(..length).unwrap_or_default(), peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An earlier answer reached a closed port. The error belongs to that answer, not to a query.
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
        Action::Reply(reply) => drop(socket.try_send_to(&reply, peer)),
        Action::Forward(question, servers) => {
            let socket = Arc::clone(socket);
            dns.forward(*question, servers, peer.ip(), move |reply| drop(socket.try_send_to(&reply, peer)));
        }
        Action::Secondary => {
            let own = socket.local_addr().ok().map(|at| at.ip());
            match dns.answer_secondary(query, peer.ip(), own, Transport::Udp) {
                Served::Reply(reply) | Served::Signed(reply) => drop(socket.try_send_to(&reply, peer)),
                Served::Transfer(_) | Served::Drop => {}
            }
        }
        Action::Drop => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_that_another_program_has_is_refused() {
        let holder = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let refused = bind(holder.local_addr().unwrap()).map(drop).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    }
}
