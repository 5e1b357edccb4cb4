//! The caching proxy of this region process, for its racks alone: Squid as a child ([`basalt_proxy`]).
//!
//! Squid listens on a port of 127.0.0.1. Racks reach it through the racks' port with their certificates
//! ([`tunnel`](crate::racks::tunnel)), so no other host can use it. It runs while Settings lead racks through regions and
//! a rack is enrolled. If Squid is not installed, racks are told so; nothing else is affected.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use basalt_db::Store;
use basalt_proxy::{Counts, Keeper, State, Wanted};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::driver::entries::proxy;
use crate::driver::topology::Topology;
use crate::settings::Settings;

/// The interval at which Settings and racks are read.
const LOOK: Duration = Duration::from_secs(2);
/// Time limit for a connection to Squid on this host.
const CONNECT: Duration = Duration::from_secs(2);

/// The proxy of this process.
#[derive(Debug)]
pub struct RegionProxy {
    keeper: Keeper,
    tunnels: AtomicU64,
}

impl RegionProxy {
    /// A proxy that does not run yet.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let keeper = Keeper::new(basalt_proxy::Options {
            program: settings.proxy_program.clone(),
            dir: settings.proxy_dir.clone().unwrap_or_else(|| usual_dir(&settings.data_dir)),
            cache_bytes: settings.proxy_bytes,
            taken: |at, error| format!("cannot bind the proxy on {at}: {error}"),
        });
        Self { keeper, tunnels: AtomicU64::new(0) }
    }

    /// Figures since the start, and the state now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.keeper.counts()
    }

    /// The connections of racks, since the start.
    #[must_use]
    pub fn tunnels(&self) -> u64 {
        self.tunnels.load(Ordering::Relaxed)
    }

    /// A connection to Squid, for a rack.
    ///
    /// # Errors
    /// The reason why there is no proxy, for people.
    pub(crate) async fn connect(&self) -> Result<TcpStream, String> {
        let at = match &*self.keeper.state().borrow() {
            State::Serves { at, .. } => at.first().copied(),
            State::Lacks(problem) => return Err(problem.clone()),
            State::Off => None,
        };
        let at =
            at.ok_or("its proxy does not run; proxy.via of Settings leads racks elsewhere, or it starts")?;
        let connected = tokio::time::timeout(CONNECT, TcpStream::connect(at)).await.map_err(io::Error::from);
        let stream = connected.and_then(|it| it).map_err(|error| format!("Squid at {at}: {error}"))?;
        stream.set_nodelay(true).ok();
        self.tunnels.fetch_add(1, Ordering::Relaxed);
        Ok(stream)
    }

    /// Runs Squid as Settings say until told to stop.
    pub(crate) async fn run(
        self: Arc<Self>,
        store: Store,
        topology: Topology,
        mut stopping: watch::Receiver<bool>,
    ) {
        let (tell, wanted) = watch::channel(None);
        let stop = CancellationToken::new();
        let follow = async {
            let mut port = None;
            let mut timer = tokio::time::interval(LOOK);
            loop {
                tokio::select! {
                    _ = stopping.wait_for(|stop| *stop) => break,
                    _ = timer.tick() => {}
                }
                self.look(&store, &topology, &mut port, &tell).await;
            }
            stop.cancel();
        };
        tokio::join!(self.keeper.keep(wanted, stop.clone()), follow);
    }

    /// Computes the configuration. If the database does not answer, the configuration in force stays.
    async fn look(
        &self,
        store: &Store,
        topology: &Topology,
        port: &mut Option<SocketAddr>,
        tell: &watch::Sender<Option<Wanted>>,
    ) {
        let Ok(estate) = topology.estate(store).await else { return };
        // Another program may have taken the port while Squid did not run.
        if matches!(*self.keeper.state().borrow(), State::Lacks(_)) && port.is_some_and(|it| !is_free(it)) {
            *port = None;
        }
        let Some(at) = port.or_else(free_port) else { return };
        let wanted = proxy::of_region(&estate, &topology.regions(), at, self.keeper.dir());
        *port = wanted.is_some().then_some(at);
        tell.send_if_modified(|told| {
            let is_news = *told != wanted;
            *told = wanted;
            is_news
        });
    }
}

/// A port that no program listens on now.
fn free_port() -> Option<SocketAddr> {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr()).ok()
}

fn is_free(at: SocketAddr) -> bool {
    std::net::TcpListener::bind(at).is_ok()
}

/// The usual directory. Squid refuses to run as root, and its own account cannot open the data directory.
fn usual_dir(data_dir: &Path) -> PathBuf {
    match rustix::process::geteuid().is_root() {
        true => PathBuf::from("/var/cache/basalt-region-proxy"),
        false => data_dir.join("proxy"),
    }
}
