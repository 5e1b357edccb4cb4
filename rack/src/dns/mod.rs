//! DNS for machines (RFC 1034, 1035): the region's zones are answered from memory, whether or not a region is
//! connected.
//!
//! Other names are forwarded to other servers ([`forward`]). All addresses share one [`Dns`]. [`Dns::serve`] answers at
//! one address, by UDP and TCP (RFC 7766).
//!
//! | module | does |
//! | --- | --- |
//! | [`zones`] | makes zones of the concern |
//! | [`udp`], [`tcp`] | have the sockets |
//! | [`forward`] | asks other servers |
//! | [`secondaries`] | sends NOTIFY, and checks which secondaries are behind (docs/decisions/102-secondaries.md) |

pub mod counts;
pub mod forward;
mod secondaries;
mod sources;
mod tcp;
mod udp;
pub mod zones;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use basalt_dns::{Answer, Limits, Question, Served, Transport, answer};
use basalt_proto::rack_v1::DnsConcern;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::wall_ms;
use crate::health::Health;
use crate::holder::{self, Protocol};
use crate::spool::writer::Facts;
use counts::{Counters, Counts};
use forward::{Config, Current, Forward, PORT, Timing, nameservers};
use secondaries::Notifier;
use zones::Held;

/// The file with the name servers of this host (resolv.conf(5)).
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// How often that file is read.
const HOST: Duration = Duration::from_secs(60);
/// The most zones that are copied at once.
const TRANSFERS: usize = 16;
/// Another remedy, besides ending the program that holds the port.
const ADVICE: &str = "or have it leave this address alone (dnsmasq: `except-interface`)";

/// The DNS service of a rack.
#[derive(Debug)]
pub struct Dns {
    state: ArcSwap<State>,
    /// True after the first concern was applied, or there is none.
    is_ready: watch::Sender<bool>,
    others: Arc<Forward>,
    /// The addresses that this rack answers at.
    own: ArcSwap<BTreeSet<IpAddr>>,
    /// A permit for each zone transfer.
    transfers: Semaphore,
    notifier: Notifier,
    telling: Mutex<()>,
    choosing: Mutex<()>,
    counters: Counters,
}

/// The zones and the other servers, replaced together. With zones of one concern and servers of another, a name that moves from a zone to a
/// server would be denied for a moment.
#[derive(Debug, Default)]
struct State {
    held: Arc<Held>,
    /// The servers for names in no zone.
    others: Current,
}

/// The next action for a query.
#[derive(Debug)]
enum Action {
    /// Send this reply.
    Reply(Vec<u8>),
    /// Forward the question to these servers.
    Forward(Box<Question>, Current),
    /// Answer by [`Dns::answer_secondary`].
    Secondary,
    /// Send no reply.
    Drop,
}

impl Dns {
    /// A service without zones, which asks the servers of this host. It reports facts about secondaries. Queries run in
    /// the runtime of the caller.
    ///
    /// # Errors
    /// `io::Error`: the system has no random numbers.
    pub fn new(facts: Facts) -> io::Result<Self> {
        let others = Forward::new(of_host(&BTreeSet::new()), Limits::default(), Timing::default())?;
        let state = State { held: Arc::default(), others: others.current() };
        Ok(Self {
            state: ArcSwap::from_pointee(state),
            is_ready: watch::Sender::new(false),
            others,
            own: ArcSwap::default(),
            transfers: Semaphore::new(TRANSFERS),
            notifier: Notifier::new(facts),
            telling: Mutex::default(),
            choosing: Mutex::default(),
            counters: Counters::default(),
        })
    }

    /// Figures since the start, and what is held now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let state = self.state.load();
        let held = &state.held;
        let mut counts = self.counters.read();
        counts.add_forwarder(&self.others.counts());
        (counts.cache_entries, counts.cache_bytes) = self.others.kept();
        counts.zones = held.zones.iter().count();
        counts.records = held.records;
        counts.upstream = self.others.latency();
        counts
    }

    /// Sets the addresses at which this rack answers.
    pub fn set_own(&self, own: BTreeSet<IpAddr>) {
        if **self.own.load() != own {
            self.own.store(Arc::new(own));
            self.choose_servers();
            self.tell_secondaries();
        }
    }

    /// Follows concern `dns`, and reads this host's name servers now and then.
    pub async fn follow(
        self: Arc<Self>,
        mut view: watch::Receiver<Option<Arc<DnsConcern>>>,
        stop: CancellationToken,
    ) {
        view.mark_changed();
        loop {
            let is_new = tokio::select! {
                () = stop.cancelled() => return,
                changed = view.changed() => match changed {
                    Ok(()) => true,
                    Err(_) => return,
                },
                () = tokio::time::sleep(HOST) => false,
            };
            let concern = view.borrow_and_update().clone().filter(|_| is_new);
            let dns = Arc::clone(&self);
            // A large zone takes some time to build.
            let configured = tokio::task::spawn_blocking(move || match concern {
                Some(concern) => dns.configure(&concern),
                None => dns.choose_servers(),
            });
            configured.await.ok();
            self.is_ready.send_replace(true);
            self.tell_secondaries();
        }
    }

    /// Sets the zones to answer from and the servers to ask.
    fn configure(&self, concern: &DnsConcern) {
        let (held, left_out) = Held::new(concern, &self.state.load().held);
        for why in left_out {
            tracing::error!(why, "a part of the concern dns is left out");
        }
        self.put(Some(Arc::new(held)));
    }

    /// Chooses the servers to ask again, since addresses or name servers of this host may have changed.
    fn choose_servers(&self) {
        self.put(None);
    }

    /// Sets the servers to ask, together with new zones if there are any. Without declared servers, the rack asks those of this host.
    fn put(&self, new: Option<Arc<Held>>) {
        // All callers load the state under the lock, so the last one has the newest.
        let _turn = self.choosing.lock().unwrap_or_else(PoisonError::into_inner);
        let held = new.unwrap_or_else(|| Arc::clone(&self.state.load().held));
        let config =
            Config { conditional: held.forwards.clone(), ..upstream(&held.upstream, &self.own.load()) };
        let others = self.others.configure(config);
        self.state.store(Arc::new(State { held, others }));
    }

    /// Starts notifying the secondaries of the current zones. A rack without addresses has none that could be copied.
    fn tell_secondaries(&self) {
        // All callers load the state under the lock, so the last one has the newest.
        let _turn = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let (state, own) = (self.state.load(), self.own.load());
        self.notifier.keep(if own.is_empty() { &[] } else { &state.held.copies }, &own);
    }

    /// Serves one address until cancelled. Queries wait until the stored concern is applied: a name that it has must not be answered
    /// REFUSED or NXDOMAIN after a restart.
    ///
    /// # Errors
    /// `io::Error`: the address cannot be bound.
    pub async fn serve(
        self: &Arc<Self>,
        at: SocketAddr,
        health: &Health,
        stop: &CancellationToken,
    ) -> io::Result<()> {
        let taken = |protocol, error: &io::Error| holder::refused("DNS", protocol, at, error, ADVICE);
        let sockets = udp::bind(at).map_err(|error| taken(Protocol::Udp, &error))?;
        let listener = TcpListener::bind(at).await.map_err(|error| taken(Protocol::Tcp, &error))?;
        let mut is_ready = self.is_ready.subscribe();
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            _ = is_ready.wait_for(|is_ready| *is_ready) => {}
        }
        health.up();
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = udp::serve(self, sockets) => ended,
            () = tcp::serve(self, listener) => Ok(()),
        }
    }

    /// The answer to a query, or the question to forward.
    fn answer(&self, query: &[u8], peer: IpAddr, transport: Transport) -> Action {
        let state = self.state.load();
        let answer = answer(&state.held.zones, query, transport, state.held.may_recurse(peer));
        self.counters.answered(&answer);
        match answer {
            Answer::Reply(reply) => Action::Reply(reply),
            Answer::Forward(question) => Action::Forward(question, state.others.clone()),
            Answer::Secondary => Action::Secondary,
            Answer::Drop => Action::Drop,
        }
    }

    /// The answer to a query that is signed, or that asks for a whole zone. `own`: the address that received the query.
    fn answer_secondary(
        &self,
        query: &[u8],
        peer: IpAddr,
        own: Option<IpAddr>,
        transport: Transport,
    ) -> Served {
        let state = self.state.load();
        let served = state.held.secondaries.answer(&state.held.zones, query, peer, transport, unix());
        if let (Served::Signed(_) | Served::Transfer(_), Some(own)) = (&served, own) {
            self.notifier.asked(peer, own);
        }
        served
    }

    /// Forwards a client's question to the servers of the state in which it arrived. `reply` is called with the answer, at once or
    /// within some seconds.
    fn forward(
        &self,
        question: Question,
        servers: Current,
        peer: IpAddr,
        reply: impl FnOnce(Vec<u8>) + Send + 'static,
    ) {
        self.others.ask(servers, peer, question, reply);
    }
}

/// Seconds since 1970, as in the signatures of secondaries.
fn unix() -> u64 {
    u64::try_from(wall_ms() / 1000).unwrap_or(0)
}

/// The servers for names of no domain: the declared servers, or else those of this host. A rack that asks itself gets
/// no answer.
fn upstream(declared: &[IpAddr], own: &BTreeSet<IpAddr>) -> Config {
    if declared.is_empty() {
        return of_host(own);
    }
    let others = declared.iter().filter(|address| !own.contains(address));
    Config { upstream: others.map(|address| (*address, PORT).into()).collect(), ..Config::default() }
}

fn of_host(own: &BTreeSet<IpAddr>) -> Config {
    let named = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    Config { upstream: nameservers(&named, own), ..Config::default() }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use basalt_proto::rack_v1::{DnsForward, DnsRecord, DnsZone};

    use super::*;
    use crate::clock::Clock;
    use crate::spool::{self, writer};

    #[tokio::test(flavor = "multi_thread")]
    async fn the_servers_to_ask_are_those_of_the_latest_concern_and_addresses() {
        let dir = tempfile::tempdir().unwrap();
        let (facts, _) = writer::start(dir.path(), spool::Limits::default(), Clock::default()).unwrap();
        let dns = Arc::new(Dns::new(facts).unwrap());
        let start = Arc::new(Barrier::new(2));
        for round in 0..5000_u16 {
            let [high, low] = round.to_be_bytes();
            let (server, rack): (IpAddr, IpAddr) = ([10, 1, high, low].into(), [10, 2, high, low].into());
            let forwards =
                vec![DnsForward { domain: "corp.example".into(), servers: vec![server.to_string()] }];
            let concern = DnsConcern { forwards, upstream: vec![rack.to_string()], ..DnsConcern::default() };
            let (by_concern, both) = (Arc::clone(&dns), Arc::clone(&start));
            let told = std::thread::spawn(move || {
                both.wait();
                by_concern.configure(&concern);
            });
            let own = BTreeSet::from([rack]);
            start.wait();
            dns.set_own(own);
            told.join().unwrap();
            let current = dns.others.current();
            let config = current.config();
            assert_eq!(config.conditional[0].1, [SocketAddr::new(server, PORT)], "round {round}");
            assert!(config.upstream.is_empty(), "it asks itself in round {round}");
        }
    }

    /// A query for `name` in `corp.example`, from the wire.
    fn query() -> Vec<u8> {
        let head = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00";
        [&head[..], b"\x04name\x04corp\x07example\x00\x00\x01\x00\x01"].concat()
    }

    /// A concern with zone `corp.example`.
    fn with_zone() -> DnsConcern {
        let record = DnsRecord { owner: "name".into(), rtype: "A".into(), ttl: 60, data: "10.77.0.9".into() };
        let zone = DnsZone {
            origin: "corp.example".into(),
            serial: 1,
            ttl: 60,
            primary: "ns.basalt.internal.".into(),
            records: vec![record],
            ..DnsZone::default()
        };
        DnsConcern { zones: vec![zone], ..DnsConcern::default() }
    }

    fn service(dir: &std::path::Path) -> (Arc<Dns>, Facts) {
        let (facts, _) = writer::start(dir, spool::Limits::default(), Clock::default()).unwrap();
        (Arc::new(Dns::new(facts.clone()).unwrap()), facts)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_name_that_moves_between_a_zone_and_other_servers_is_never_asked_of_wrong_ones() {
        let dir = tempfile::tempdir().unwrap();
        let (dns, _) = service(dir.path());
        let forwards = vec![DnsForward { domain: "corp.example".into(), servers: vec!["10.1.0.1".into()] }];
        let with_forward = DnsConcern { forwards, ..DnsConcern::default() };
        dns.configure(&with_zone());
        let asked = || dns.answer(&query(), [127, 0, 0, 1].into(), Transport::Udp);
        let (changed, forwarding) = (Arc::clone(&dns), with_forward.clone());
        let changes = std::thread::spawn(move || {
            for _ in 0..2000 {
                changed.configure(&forwarding);
                changed.configure(&with_zone());
            }
        });
        while !changes.is_finished() {
            if let Action::Forward(_, servers) = asked() {
                assert_eq!(servers.config().conditional.len(), 1, "it has servers of its own");
            }
        }
        changes.join().unwrap();
        // A question that arrived before a change goes to the servers of that time.
        dns.configure(&with_forward);
        let Action::Forward(_, servers) = asked() else { panic!("it is in no zone") };
        dns.configure(&with_zone());
        assert_eq!(servers.config().conditional[0].1, [SocketAddr::from(([10, 1, 0, 1], PORT))]);
        assert!(dns.others.current().config().conditional.is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn queries_wait_until_the_stored_concern_is_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let (dns, facts) = service(dir.path());
        // Below the ports of the kernel's clients. The address is of this process.
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let at = SocketAddr::from(([127, high | 64, middle, low | 1], 10_053));
        let (stop, health) = (CancellationToken::new(), Health::new("dns".to_owned(), facts));
        let (served, token) = (Arc::clone(&dns), stop.clone());
        let serving = tokio::spawn(async move { served.serve(at, &health, &token).await });
        let client = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        // TCP is bound after UDP.
        while tokio::net::TcpStream::connect(at).await.is_err() {
            assert!(!serving.is_finished(), "{at} is in use");
            tokio::task::yield_now().await;
        }
        client.send_to(&query(), at).await.unwrap();
        let mut reply = [0; 512];
        // An answer of the empty state would be there at once.
        let early = tokio::time::timeout(Duration::from_millis(100), client.recv(&mut reply)).await;
        assert!(early.is_err(), "{early:?}");
        let view = watch::Sender::new(Some(Arc::new(with_zone())));
        let following = tokio::spawn(Arc::clone(&dns).follow(view.subscribe(), stop.clone()));
        let length =
            tokio::time::timeout(Duration::from_secs(10), client.recv(&mut reply)).await.unwrap().unwrap();
        assert_eq!((reply[3] & 15, &reply[length - 4..length]), (0, &[10, 77, 0, 9][..]));
        stop.cancel();
        following.await.unwrap();
        serving.await.unwrap().unwrap();
    }
}
