//! The caching HTTP proxy: concern `proxy`, served by Squid as a child of the rack.
//!
//! | module | content |
//! | --- | --- |
//! | [`squid_conf`] | the configuration for a concern |
//! | [`squid`] | the child process |
//!
//! The concern does not depend on Squid. If the package of Squid is missing, the rack reports that, and all other
//! services run.

pub mod squid;
pub mod squid_conf;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use basalt_proto::PROXY;
use basalt_proto::rack_v1::{PowerConcern, ProxyConcern};
use ipnet::IpNet;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::facts::{health, remark};
use crate::holder::{self, Protocol};
use crate::interfaces;
use crate::spool::writer::Facts;
use squid::{Running, Squid};
use squid_conf::{Upstream, Wanted};

/// How often to check the host's addresses, the program and the logs.
const LOOK: Duration = Duration::from_secs(30);
/// How long changes are gathered: the region may send several concerns at once.
const GATHER: Duration = Duration::from_millis(200);
/// The longest wait until Squid listens. It reads the index of its cache later.
const LISTEN: Duration = Duration::from_secs(20);
/// The wait before Squid is started again: the first and the longest.
const RESTART: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// After this many failed starts the cache may be the cause; it is emptied.
const IN_VAIN: u32 = 3;
/// Another remedy, besides ending the program that holds the port.
const ADVICE: &str = "or turn the proxy off (proxy.enabled of Settings)";

/// The proxy's settings.
#[derive(Debug, Clone)]
pub struct Options {
    /// The port on each served address.
    pub port: u16,
    /// Squid's program; `None`: where packages install it.
    pub program: Option<PathBuf>,
    /// The directory for cache, logs and configuration.
    pub dir: PathBuf,
    /// The size of the cache, in bytes; `None`: decided by the free disk.
    pub cache_bytes: Option<u64>,
    /// The rack's name.
    pub name: String,
}

/// The proxy of this rack.
#[derive(Debug)]
pub struct Proxy {
    options: Options,
    served: watch::Sender<BTreeSet<IpAddr>>,
    facts: Facts,
    told: Mutex<State>,
    starts: AtomicU64,
    failures: AtomicU64,
}

/// Figures of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// `off`, `serves` or `lacks`: the proxy should be served and cannot be.
    pub state: &'static str,
    /// Squids that were started, since the start of this rack.
    pub starts: u64,
    /// Squids that ended by themselves, or could not be started.
    pub failures: u64,
}

/// The states of [`Counts`].
pub const STATES: [&str; 3] = ["off", "serves", "lacks"];

/// How the proxy is, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Off,
    Serves(String),
    Lacks(String),
}

/// A running Squid, and its configuration.
#[derive(Debug)]
struct Served {
    running: Running,
    squid: Squid,
    wanted: Wanted,
    since: Instant,
}

impl Proxy {
    /// A proxy that serves nothing yet.
    #[must_use]
    pub fn new(options: Options, facts: Facts) -> Self {
        Self {
            options,
            served: watch::Sender::default(),
            facts,
            told: Mutex::new(State::Off),
            starts: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    /// Figures since the start, and the state now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let [off, serves, lacks] = STATES;
        let state = match &*self.told.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Off => off,
            State::Serves(_) => serves,
            State::Lacks(_) => lacks,
        };
        let [starts, failures] = [&self.starts, &self.failures].map(|it| it.load(Ordering::Relaxed));
        Counts { state, starts, failures }
    }

    /// Sets the addresses that this rack serves.
    pub fn set_own(&self, own: BTreeSet<IpAddr>) {
        self.served.send_if_modified(|served| {
            let is_news = *served != own;
            *served = own;
            is_news
        });
    }

    /// Reports the state if it has changed.
    fn tell(&self, state: State) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if *told == state {
            return;
        }
        self.facts.tell(match &state {
            State::Off => remark(PROXY, ""),
            State::Serves(words) => remark(PROXY, words),
            State::Lacks(problem) => {
                tracing::warn!(problem, "no proxy is served; it is tried again until it works");
                health(PROXY, Some(problem))
            }
        });
        *told = state;
    }

    /// Follows concern `proxy` until cancelled. `power` names the BMCs, which the proxy must not connect to.
    pub async fn follow(
        self: Arc<Self>,
        mut view: watch::Receiver<Option<Arc<ProxyConcern>>>,
        mut power: watch::Receiver<Option<Arc<PowerConcern>>>,
        stop: CancellationToken,
    ) {
        let mut own = self.served.subscribe();
        let mut timer = tokio::time::interval(LOOK);
        let mut served: Option<Served> = None;
        let (mut in_vain, mut not_before) = (0, Instant::now());
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Ok(()) = view.changed() => tokio::time::sleep(GATHER).await,
                Ok(()) = power.changed() => tokio::time::sleep(GATHER).await,
                Ok(()) = own.changed() => {}
                _ = timer.tick() => {}
                () = tokio::time::sleep_until(not_before), if served.is_none() && in_vain > 0 => {}
                status = ended(&mut served) => {
                    let lived = served.take().map(|it| it.since.elapsed()).unwrap_or_default();
                    in_vain = if lived > LOOK { 1 } else { in_vain + 1 };
                    not_before = Instant::now() + backoff(in_vain);
                    self.failures.fetch_add(1, Ordering::Relaxed);
                    self.tell(State::Lacks(format!("Squid ended with {status}; it is started again")));
                    continue;
                }
            }
            let (concern, bmcs) =
                (view.borrow_and_update().clone(), bmcs(power.borrow_and_update().as_deref()));
            let listen: Vec<SocketAddr> =
                own.borrow_and_update().iter().map(|&it| (it, self.options.port).into()).collect();
            let wanted = self.wanted(concern.as_deref(), listen, &bmcs);
            let Some(wanted) = wanted else {
                if let Some(Served { running, .. }) = served.take() {
                    running.stop().await;
                }
                in_vain = 0;
                self.tell(State::Off);
                continue;
            };
            if served.is_none() && (in_vain > 0 && Instant::now() < not_before) {
                continue;
            }
            let result = match served.as_mut() {
                Some(served) => self.adapt(served, wanted).await,
                None => match self.start(wanted, in_vain).await {
                    Ok(started) => {
                        self.starts.fetch_add(1, Ordering::Relaxed);
                        served = Some(started);
                        Ok(())
                    }
                    Err(problem) => {
                        self.failures.fetch_add(1, Ordering::Relaxed);
                        in_vain += 1;
                        not_before = Instant::now() + backoff(in_vain);
                        Err(problem)
                    }
                },
            };
            match (result, &served) {
                (Ok(()), Some(served)) => self.tell(State::Serves(serves(&served.wanted))),
                (Err(problem), _) => self.tell(State::Lacks(problem)),
                (Ok(()), None) => {}
            }
        }
        if let Some(Served { running, .. }) = served {
            running.stop().await;
        }
    }

    /// The configuration that should be in force.
    fn wanted(
        &self,
        concern: Option<&ProxyConcern>,
        listen: Vec<SocketAddr>,
        bmcs: &[IpNet],
    ) -> Option<Wanted> {
        let concern = concern.filter(|_| !listen.is_empty())?;
        let (clients, denied) = Wanted::of(concern, &own_addresses(), bmcs)?;
        let upstream = match concern.upstream.as_str() {
            "" => None,
            url => Some(Upstream::parse(url)?),
        };
        Some(Wanted {
            name: self.options.name.clone(),
            listen,
            clients,
            denied,
            upstream,
            dir: self.options.dir.clone(),
            cache_mib: 0,
        })
    }

    /// Starts Squid with this configuration, and waits until it listens.
    async fn start(&self, wanted: Wanted, in_vain: u32) -> Result<Served, String> {
        let Options { program, dir, cache_bytes, .. } = self.options.clone();
        let prepare = move || {
            let squid = Squid::prepare(squid::program(program.as_deref())?, &dir).map_err(said(&dir))?;
            for at in &wanted.listen {
                let taken = |error| holder::refused("proxy", Protocol::Tcp, *at, &error, ADVICE).to_string();
                TcpListener::bind(at).map_err(taken)?;
            }
            let cache_mib = cache_bytes.unwrap_or_else(|| by_disk(&dir)) >> 20;
            let wanted = Wanted { cache_mib, ..wanted };
            squid.configure(&wanted.render()).map_err(said(&dir))?;
            squid.make_cache(in_vain > 0 && in_vain.is_multiple_of(IN_VAIN)).map_err(said(&dir))?;
            let running = squid.start().map_err(|error| error.to_string())?;
            Ok::<_, String>(Served { running, squid, wanted, since: Instant::now() })
        };
        let mut served = tokio::task::spawn_blocking(prepare).await.map_err(|error| error.to_string())??;
        self.listening(&mut served).await?;
        Ok(served)
    }

    /// Makes a running Squid follow another configuration, and rotates its logs.
    async fn adapt(&self, served: &mut Served, wanted: Wanted) -> Result<(), String> {
        if served.squid.put_logs_aside() {
            served.running.reopen_logs();
        }
        let wanted = Wanted { cache_mib: served.wanted.cache_mib, ..wanted };
        if wanted == served.wanted {
            return Ok(());
        }
        let (squid, text) = (served.squid.clone(), wanted.render());
        let configured = tokio::task::spawn_blocking(move || squid.configure(&text)).await;
        configured.map_err(|error| error.to_string())?.map_err(said(&self.options.dir))?;
        served.running.reconfigure();
        served.wanted = wanted;
        self.listening(served).await
    }

    async fn listening(&self, served: &mut Served) -> Result<(), String> {
        match tokio::time::timeout(LISTEN, served.running.listens(&served.wanted.listen)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) => Err(format!("Squid ended with {status}: {}", served.squid.complaint())),
            Err(_) => Err(format!(
                "Squid does not listen on {}: {}",
                addresses(&served.wanted),
                served.squid.complaint()
            )),
        }
    }
}

/// Waits until the running Squid ends. Without one, waits for ever.
async fn ended(served: &mut Option<Served>) -> String {
    match served {
        Some(served) => served.running.ended().await,
        None => std::future::pending().await,
    }
}

fn backoff(in_vain: u32) -> Duration {
    let [first, most] = RESTART;
    first.saturating_mul(1 << in_vain.saturating_sub(1).min(6)).min(most)
}

fn said(dir: &std::path::Path) -> impl Fn(io::Error) -> String {
    move |error| format!("{}: {error}", dir.display())
}

fn serves(wanted: &Wanted) -> String {
    format!("Squid serves {}", addresses(wanted))
}

fn addresses(wanted: &Wanted) -> String {
    wanted.listen.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Every address of this host.
fn own_addresses() -> Vec<IpAddr> {
    let found = interfaces::describe().unwrap_or_default();
    let nets = found.iter().flat_map(|interface| &interface.addresses);
    nets.filter_map(|net| net.parse::<IpNet>().ok()).map(|net| net.addr()).collect()
}

/// The networks and addresses of BMCs that this rack knows.
fn bmcs(power: Option<&PowerConcern>) -> Vec<IpNet> {
    let networks = power.iter().flat_map(|it| &it.networks).filter_map(|it| it.parse().ok());
    let addresses = power.iter().flat_map(|it| &it.bmcs).filter_map(|it| it.address.parse::<IpAddr>().ok());
    networks.chain(addresses.map(IpNet::from)).collect()
}

/// A tenth of the free disk, at most 10 GiB.
fn by_disk(dir: &std::path::Path) -> u64 {
    let free = rustix::fs::statvfs(dir).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    (free / 10).clamp(64 << 20, 10 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squid_is_started_again_at_once_and_later_seldom() {
        let waits: Vec<u64> = (1..=8).map(|in_vain| backoff(in_vain).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn bmcs_are_those_that_the_rack_is_told() {
        let bmc = basalt_proto::rack_v1::Bmc { address: "10.9.0.7".into(), ..Default::default() };
        let power = PowerConcern { bmcs: vec![bmc], networks: vec!["10.8.0.0/24".into()], reading_ms: 0 };
        let nets: Vec<String> = bmcs(Some(&power)).iter().map(ToString::to_string).collect();
        assert_eq!(nets, ["10.8.0.0/24", "10.9.0.7/32"]);
        assert!(bmcs(None).is_empty());
    }
}
