//! DNS for machines (RFC 1034, 1035): the zones of the region are answered from memory, whether or not a region is there.
//!
//! Other names are asked of other servers ([`forward`]). [`Dns`] is shared by all addresses. [`Dns::serve`] answers at one address, by UDP and TCP (RFC 7766).

pub mod forward;
mod tcp;
mod udp;
pub mod zones;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use basalt_dns::{Answer, Limits, Question, Transport, answer};
use basalt_proto::rack_v1::DnsConcern;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::health::Health;
use crate::holder::{self, Holder, Protocol};
use forward::{Config, Forward, PORT, Timing, nameservers};
use zones::Held;

/// The file that names the servers of this host (resolv.conf(5)).
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The DNS service of a rack.
#[derive(Debug)]
pub struct Dns {
    held: ArcSwap<Held>,
    others: Arc<Forward>,
}

impl Dns {
    /// A service without zones, which asks the servers of this host. Its queries are sent from the runtime that this is called in.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new() -> io::Result<Self> {
        let others = Forward::new(of_host(&[]), Limits::default(), Timing::default())?;
        Ok(Self { held: ArcSwap::default(), others })
    }

    /// Answers from these zones from now on, and asks these servers. `own` are the addresses that this rack answers at.
    pub fn configure(&self, concern: &DnsConcern, own: &[IpAddr]) {
        let (held, left_out) = Held::new(concern, &self.held.load());
        for why in left_out {
            tracing::error!(why, "a part of the concern dns is left out");
        }
        self.held.store(Arc::new(held));
        self.choose_servers(own);
    }

    /// Asks the servers of the concern from now on, or those that this host names now.
    pub fn choose_servers(&self, own: &[IpAddr]) {
        let held = self.held.load();
        self.others.configure(Config { conditional: held.forwards.clone(), ..upstream(&held.upstream, own) });
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
        let sockets = udp::bind(at).map_err(|error| taken(Protocol::Udp, at, &error))?;
        let listener = TcpListener::bind(at).await.map_err(|error| taken(Protocol::Tcp, at, &error))?;
        health.up();
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = udp::serve(self, sockets) => ended,
            () = tcp::serve(self, listener) => Ok(()),
        }
    }

    /// The answer to a query, if it needs nobody else; else the question to ask others.
    fn answer(&self, query: &[u8], peer: IpAddr, transport: Transport) -> Answer {
        let held = self.held.load();
        answer(&held.zones, query, transport, held.may_recurse(peer))
    }

    /// Has others answer a question of this client. `reply` is called with the answer, now or within some seconds.
    fn forward(&self, question: Question, peer: IpAddr, reply: impl FnOnce(Vec<u8>) + Send + 'static) {
        self.others.ask(peer, question, reply);
    }
}

/// A port that cannot be bound, with the program that has it.
fn taken(protocol: Protocol, at: SocketAddr, error: &io::Error) -> io::Error {
    let holder = match error.kind() {
        io::ErrorKind::AddrInUse => holder::of(protocol, at.ip(), at.port()),
        _ => None,
    };
    let advice = holder.map_or(String::new(), |Holder { pid, program }| {
        format!("; process {pid} ({program}) has it: end that program, or have it leave this address alone (dnsmasq: `except-interface`)")
    });
    io::Error::new(error.kind(), format!("cannot bind DNS on {at}: {error}{advice}"))
}

/// The servers for names of no domain: the declared servers, else the servers of this host. A rack that asks itself gets no answer.
fn upstream(declared: &[IpAddr], own: &[IpAddr]) -> Config {
    if declared.is_empty() {
        return of_host(own);
    }
    let others = declared.iter().filter(|address| !own.contains(address));
    Config { upstream: others.map(|address| (*address, PORT).into()).collect(), ..Config::default() }
}

fn of_host(own: &[IpAddr]) -> Config {
    let named = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    Config { upstream: nameservers(&named, own), ..Config::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_another_program_has_is_refused_and_the_program_is_named() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _inside = runtime.enter();
        let holder = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = holder.local_addr().unwrap();
        let error = udp::bind(at).map(drop).unwrap_err();
        let told = taken(Protocol::Udp, at, &error).to_string();
        let named = format!("process {} (", std::process::id());
        assert!(told.contains(&named) && told.contains("end that program"), "{told}");
    }
}
