//! Upstream servers, and their recent failures.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::PORT;

/// A server that failed this many times in a row is asked last.
const FAILURES: u32 = 2;
/// How long such a server is asked last.
const REST: Duration = Duration::from_secs(10);
/// The most servers remembered. Those of delegations come and go.
const REMEMBERED: usize = 1_000;

/// The state of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// Its address and port.
    pub server: SocketAddr,
    /// The reason why it is asked last, if it is.
    pub problem: Option<String>,
}

#[derive(Debug, Default)]
struct Health {
    failures: u32,
    rests_until: Option<Instant>,
    problem: Option<String>,
}

/// The health of each server.
#[derive(Debug, Default)]
pub(super) struct Servers(Mutex<HashMap<SocketAddr, Health>>);

impl Servers {
    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Health>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The servers in their order; those with recent failures come after all others.
    pub(super) fn in_order(&self, servers: &[SocketAddr]) -> Vec<SocketAddr> {
        let known = self.lock();
        let (last, mut first): (Vec<SocketAddr>, Vec<SocketAddr>) =
            servers.iter().partition(|server| rests(&known, server));
        first.extend(last);
        first
    }

    /// True if all of the servers have failed recently.
    pub(super) fn all_rest(&self, servers: &[SocketAddr]) -> bool {
        let known = self.lock();
        servers.iter().all(|server| rests(&known, server))
    }

    pub(super) fn answered(&self, server: SocketAddr) {
        let mut known = self.lock();
        let before = known.insert(server, Health::default());
        if before.is_some_and(|before| before.rests_until.is_some()) {
            tracing::info!(%server, "the upstream DNS server answers again");
        }
        if known.len() > REMEMBERED {
            known.clear();
        }
    }

    pub(super) fn failed(&self, server: SocketAddr, problem: &str) {
        let mut known = self.lock();
        let health = known.entry(server).or_default();
        health.failures += 1;
        if health.failures >= FAILURES {
            if health.rests_until.is_none() {
                tracing::warn!(%server, "the upstream DNS server is asked last for now: {problem}");
            }
            health.rests_until = Some(Instant::now() + REST);
            health.problem = Some(problem.to_owned());
        }
    }

    pub(super) fn states(&self) -> Vec<ServerState> {
        let known = self.lock();
        let mut states: Vec<ServerState> = known
            .iter()
            .map(|(server, health)| ServerState { server: *server, problem: health.problem.clone() })
            .collect();
        states.sort_by_key(|state| state.server);
        states
    }
}

/// True if the server has failed recently.
fn rests(known: &HashMap<SocketAddr, Health>, server: &SocketAddr) -> bool {
    known.get(server).and_then(|it| it.rests_until).is_some_and(|until| Instant::now() < until)
}

/// The servers in a resolv.conf(5), without this rack's own addresses: the rack would ask itself.
#[must_use]
pub fn nameservers(resolv_conf: &str, own: &BTreeSet<IpAddr>) -> Vec<SocketAddr> {
    let address = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let is_server = words.next() == Some("nameserver");
        words.next().filter(|_| is_server)?.parse().ok()
    };
    let addresses = resolv_conf.lines().filter_map(address).filter(|address| !own.contains(address));
    addresses.map(|address| SocketAddr::new(address, PORT)).collect()
}
