//! DNS for machines (RFC 1034, 1035): the zones of the region are answered from memory, whether or not a region is there.
//!
//! [`Dns`] is shared by all addresses. [`Dns::serve`] answers at one address, by UDP and TCP (RFC 7766).

mod tcp;
mod udp;
pub mod zones;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use basalt_dns::{Answer, Question, Transport, answer};
use basalt_proto::rack_v1::DnsConcern;
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;

use crate::health::Health;
use zones::Held;

/// The DNS service of a rack.
#[derive(Debug, Default)]
pub struct Dns {
    held: ArcSwap<Held>,
}

impl Dns {
    /// Answers from these zones from now on.
    pub fn configure(&self, concern: &DnsConcern) {
        let (held, left_out) = Held::new(concern, &self.held.load());
        for why in left_out {
            tracing::error!(why, "a part of the concern dns is left out");
        }
        self.held.store(Arc::new(held));
    }

    /// Serves one address until cancelled.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn serve(
        self: &Arc<Self>,
        at: SocketAddr,
        health: &Health,
        stop: &CancellationToken,
    ) -> io::Result<()> {
        let told = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!(
                    "cannot bind DNS on {at}: {error}; another server may use the port, see `ss -lnup` and `ss -lntp`"
                ),
            )
        };
        let socket = UdpSocket::bind(at).await.map_err(told)?;
        let listener = TcpListener::bind(at).await.map_err(told)?;
        health.up();
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = udp::serve(self, socket) => ended,
            () = tcp::serve(self, listener) => Ok(()),
        }
    }

    /// The answer to a query, if it needs nobody else; else the question to ask others.
    fn answer(&self, query: &[u8], peer: IpAddr, transport: Transport) -> Answer {
        let held = self.held.load();
        answer(&held.zones, query, transport, held.may_recurse(peer))
    }

    /// The reply to a question that others answer.
    async fn forward(&self, question: Box<Question>) -> Vec<u8> {
        question.fail()
    }
}
