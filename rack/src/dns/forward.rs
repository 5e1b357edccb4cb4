//! Queries for names outside the rack's zones, sent to upstream servers (docs/decisions/087-dns-forwarder.md).
//!
//! [`Forward::ask`] answers at once from the cache, or later, after a query. `basalt_dns::Forwarder` decides which.
//! This module adds the clock, the sockets and the choice of servers:
//!
//! 1. Names below a delegation in our own zones go to its servers.
//! 2. Names of a conditional forward go to its servers. The longest suffix counts.
//! 3. All other names go to the upstream servers.
//!
//! The first server that answers is used. After a second without an answer the next server is asked as well. A server
//! that failed twice is asked last for a while.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use basalt_dns::{Counts, Forwarder, Generation, Limits, Name, Next, Outcome, Question, Response, Upstream};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

pub(super) mod exchange;
pub mod latency;
mod servers;

#[cfg(test)]
mod tests;

use exchange::Failure;
use latency::{Latency, Measured};
use servers::Servers;
pub use servers::{ServerState, nameservers};

/// The port of DNS.
pub const PORT: u16 = 53;

/// The upstream servers, and the names that other servers are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Servers for all names without servers of their own. Empty: such questions are answered SERVFAIL.
    pub upstream: Vec<SocketAddr>,
    /// Domains with servers of their own; the longest suffix of a name counts. Their names may have private addresses.
    pub conditional: Vec<(Name, Vec<SocketAddr>)>,
    /// Other names that may have private addresses.
    pub private: Private,
}

/// A configuration in use. Questions that arrived in it are answered by its servers.
#[derive(Debug, Clone, Default)]
pub struct Current {
    config: Arc<Config>,
    generation: Generation,
}

impl Current {
    /// The servers to ask.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }
}

/// The names from upstream servers that may have private addresses. Otherwise an internet page could reach internal
/// machines by giving its own name their addresses (DNS rebinding).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Private {
    /// All names, for sites whose upstream servers have private names.
    Allowed,
    /// Names at and below these domains.
    Under(Vec<Name>),
}

impl Default for Private {
    fn default() -> Self {
        Self::Under(Vec::new())
    }
}

/// The waits for upstream servers.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// The wait until the next server is asked as well.
    pub next: Duration,
    /// The wait until clients are answered with an expired answer (RFC 8767 §5).
    pub stale: Duration,
    /// The wait until the question fails. Clients themselves wait five seconds.
    pub patience: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            next: Duration::from_secs(1),
            stale: Duration::from_millis(1800),
            patience: Duration::from_millis(4800),
        }
    }
}

/// The way back to a client.
type Reply = Box<dyn FnOnce(Vec<u8>) + Send>;

/// A forwarder with its sockets.
pub struct Forward {
    core: Mutex<Forwarder<Reply>>,
    current: Mutex<Current>,
    servers: Servers,
    timing: Timing,
    latency: Latency,
    runtime: Handle,
}

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward")
            .field("current", &self.current)
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

impl Forward {
    /// A forwarder that sends its queries from the runtime of the caller.
    ///
    /// # Errors
    /// `io::Error`: the system has no random numbers.
    ///
    /// # Panics
    /// If the caller runs outside a tokio runtime.
    pub fn new(config: Config, limits: Limits, timing: Timing) -> io::Result<Arc<Self>> {
        let core = Forwarder::new(u64::from_be_bytes(exchange::random()?), limits);
        let current = Current { config: Arc::new(config), generation: core.generation() };
        Ok(Arc::new(Self {
            core: Mutex::new(core),
            current: Mutex::new(current),
            servers: Servers::default(),
            timing,
            latency: Latency::default(),
            runtime: Handle::current(),
        }))
    }

    /// Sets the servers to ask. A change empties the cache: other servers may know other names.
    pub fn configure(&self, config: Config) -> Current {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if *current.config != config {
            *current = Current { config: Arc::new(config), generation: self.core().forget() };
        }
        current.clone()
    }

    /// The latest configuration.
    #[must_use]
    pub fn current(&self) -> Current {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers a client's question: at once from the cache, or when a server has answered. It may be called from any
    /// thread, and calls `reply` in any thread. `current` is the configuration in which the question arrived.
    pub fn ask(
        self: &Arc<Self>,
        current: Current,
        client: IpAddr,
        question: Question,
        reply: impl FnOnce(Vec<u8>) + Send + 'static,
    ) {
        let next = self.core().ask_in(current.generation, now(), client, question, Box::new(reply));
        match next {
            Next::Reply(reply, message) => reply(message),
            Next::Ask(upstream) => {
                drop(self.runtime.spawn(Arc::clone(self).resolve(current.config, upstream)))
            }
            Next::Wait => {}
        }
    }

    /// The counters since the start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.core().counts()
    }

    /// Queries to other servers by how they ended, and how long answers took.
    #[must_use]
    pub fn latency(&self) -> Measured {
        self.latency.read()
    }

    /// The number of answers in the cache, and their approximate size in octets.
    #[must_use]
    pub fn kept(&self) -> (usize, usize) {
        self.core().kept()
    }

    /// The servers that were asked, with their states.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerState> {
        self.servers.states()
    }

    fn core(&self) -> MutexGuard<'_, Forwarder<Reply>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn resolve(self: Arc<Self>, config: Arc<Config>, upstream: Upstream) {
        let began = Instant::now();
        let query = self.query(&config, &upstream, began + self.timing.patience);
        tokio::pin!(query);
        let in_time = timeout_at(began + self.timing.stale, &mut query).await;
        let outcome = match in_time {
            Ok(outcome) => outcome,
            Err(_) => {
                let replies = self.core().overdue(now(), &upstream);
                send(replies);
                query.await
            }
        };
        self.latency.ended(&outcome, began.elapsed());
        let replies = self.core().finish(now(), &upstream, outcome);
        send(replies);
    }

    /// Asks one server after the other until one answers.
    async fn query(&self, config: &Config, upstream: &Upstream, deadline: Instant) -> Outcome {
        let route = Route::new(config, upstream);
        // At a site without internet access, each name would otherwise take its clients five seconds.
        let deadline = match self.servers.all_rest(&route.servers) {
            true => deadline.min(Instant::now() + self.timing.next),
            false => deadline,
        };
        let order = self.servers.in_order(&route.servers);
        // Each server is asked twice: a datagram may be lost.
        let mut order: VecDeque<SocketAddr> = order.iter().chain(&order).copied().collect();
        let upstream = Arc::new(upstream.clone());
        let mut tasks = JoinSet::new();
        let mut asked: Vec<(SocketAddr, Instant)> = Vec::new();
        let mut next = Instant::now();
        loop {
            let now = Instant::now();
            if now >= deadline || tasks.is_empty() && order.is_empty() {
                self.silent(asked.iter().map(|(server, _)| *server));
                return Outcome::Failed;
            }
            if now >= next
                && let Some(server) = order.pop_front()
            {
                let upstream = Arc::clone(&upstream);
                tasks.spawn(async move { (server, exchange::ask(server, &upstream).await) });
                asked.push((server, now));
                next = now + self.timing.next;
            }
            let wake = if order.is_empty() { deadline } else { next.min(deadline) };
            let Ok(Some(Ok((server, answer)))) = timeout_at(wake, tasks.join_next()).await else { continue };
            asked.retain(|(other, _)| *other != server);
            match answer {
                Ok(response) => {
                    self.servers.answered(server);
                    let late = asked.iter().filter(|(_, since)| since.elapsed() >= self.timing.next);
                    self.silent(late.map(|(server, _)| *server));
                    return route.judge(&upstream.key().name(), response);
                }
                // The server works, but does not know this name.
                Err(Failure::Bad(_)) => self.servers.answered(server),
                Err(Failure::Io(error)) => self.servers.failed(server, &error.to_string()),
            }
            // The server would give the same answer again.
            order.retain(|other| *other != server);
            next = Instant::now();
        }
    }

    fn silent(&self, servers: impl Iterator<Item = SocketAddr>) {
        servers.for_each(|server| self.servers.failed(server, "it did not answer in time"));
    }
}

/// The clock of the cache.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

fn send(replies: Vec<(Reply, Vec<u8>)>) {
    replies.into_iter().for_each(|(reply, message)| reply(message));
}

/// The servers of a name, and the right of its answers to have private addresses.
struct Route {
    servers: Vec<SocketAddr>,
    private: bool,
}

impl Route {
    fn new(config: &Config, upstream: &Upstream) -> Self {
        if !upstream.servers().is_empty() {
            let servers = upstream.servers().iter().map(|address| SocketAddr::new(*address, PORT)).collect();
            return Self { servers, private: true };
        }
        let name = upstream.key().name();
        let conditional = config.conditional.iter().filter(|(domain, _)| domain.zone_of(&name));
        if let Some((_, servers)) = conditional.max_by_key(|(domain, _)| domain.num_labels()) {
            return Self { servers: servers.clone(), private: true };
        }
        let private = match &config.private {
            Private::Allowed => true,
            Private::Under(domains) => domains.iter().any(|domain| domain.zone_of(&name)),
        };
        Self { servers: config.upstream.clone(), private }
    }

    fn judge(&self, name: &Name, response: Response) -> Outcome {
        match response.private_address().filter(|_| !self.private) {
            Some(address) => {
                tracing::warn!(%name, %address, "an upstream server gave a name a private address; the answer is refused. If the name is yours, declare its Domain with authoritative = false and these servers as forward_to");
                Outcome::Refused
            }
            None => Outcome::Response(response),
        }
    }
}
