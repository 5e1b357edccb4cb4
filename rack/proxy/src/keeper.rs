//! Keeps Squid running with the configuration that is wanted: starts it, makes it follow changes, starts it again.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::figures::{Figures, Reader};
use crate::restarts::{Obstacle, Restarts};
use crate::squid::{self, Running, Squid};
use crate::squid_conf::Wanted;

/// How often to look at the logs.
const LOOK: Duration = Duration::from_secs(30);
/// The free disk for which a new Squid gets a cache, in bytes. Squid ends if it cannot write.
///
/// A running Squid loses its cache with less than half of it, and gets one again with twice as much.
const ROOM: u64 = 128 << 20;
/// The least size of a cache, in bytes.
const LEAST: u64 = 64 << 20;
/// The longest wait until Squid listens. It reads the index of its cache later.
const LISTEN: Duration = Duration::from_secs(20);

/// The settings of a proxy.
#[derive(Debug, Clone)]
pub struct Options {
    /// Squid's program; `None`: where packages install it.
    pub program: Option<PathBuf>,
    /// The directory for cache, logs and configuration.
    pub dir: PathBuf,
    /// The size of the cache, in bytes; `None`: decided by the free disk.
    pub cache_bytes: Option<u64>,
    /// The words for an address that cannot be bound.
    pub taken: fn(SocketAddr, &io::Error) -> String,
}

/// A proxy, which runs or does not.
#[derive(Debug)]
pub struct Keeper {
    options: Options,
    state: watch::Sender<State>,
    starts: AtomicU64,
    failures: AtomicU64,
    figures: Mutex<Figures>,
}

/// Figures of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// One of [`STATES`].
    pub state: &'static str,
    /// Squids that were started, since the start of this program.
    pub starts: u64,
    /// Squids that ended by themselves, or could not be started.
    pub failures: u64,
    /// Requests of clients, up to the last look at the log.
    pub figures: Figures,
}

/// The states of [`Counts`]. `lacks`: the proxy should be served and cannot be.
pub const STATES: [&str; 3] = ["off", "serves", "lacks"];

/// How a proxy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// No proxy is wanted.
    Off,
    /// Squid answers clients.
    Serves {
        /// The addresses that clients connect to.
        at: Vec<SocketAddr>,
        /// A sentence about the missing cache, while the disk is full.
        lost: Option<String>,
    },
    /// Squid does not run, or does not follow a change: the reason, for people.
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

impl Served {
    /// True if the disk has become full, or has room again. The margin is a whole [`ROOM`], so that one change is one start.
    fn has_another_disk(&self) -> bool {
        let free = free(&self.wanted.dir);
        match self.wanted.cache_mib {
            0 => free >= 2 * ROOM,
            _ => free < ROOM / 2,
        }
    }

    fn state(&self) -> State {
        let lost = (self.wanted.cache_mib == 0).then(|| {
            let (dir, least) = (self.wanted.dir.display(), (2 * ROOM) >> 20);
            format!("it keeps nothing on disk, until {dir} has {least} MiB free: make room there")
        });
        State::Serves { at: self.wanted.listen.clone(), lost }
    }
}

impl Keeper {
    /// A proxy that serves nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let state = watch::Sender::new(State::Off);
        Self {
            options,
            state,
            starts: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            figures: Mutex::default(),
        }
    }

    /// The directory for cache, logs and configuration.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.options.dir
    }

    /// The state, and its changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Figures since the start, and the state now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let [off, serves, lacks] = STATES;
        let state = match &*self.state.borrow() {
            State::Off => off,
            State::Serves { .. } => serves,
            State::Lacks(_) => lacks,
        };
        let [starts, failures] = [&self.starts, &self.failures].map(|it| it.load(Ordering::Relaxed));
        let figures = *self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        Counts { state, starts, failures, figures }
    }

    fn tell(&self, state: State) {
        self.state.send_if_modified(|told| {
            let is_news = *told != state;
            match &state {
                State::Lacks(problem) if is_news => {
                    tracing::warn!(problem, "no proxy is served; it is tried again until it works");
                }
                State::Serves { lost: Some(lost), .. } if is_news => tracing::warn!(lost, "a disk is full"),
                _ => {}
            }
            *told = state;
            is_news
        });
    }

    /// Runs Squid as wanted until cancelled; `None`: no Squid runs. The size of its cache is set here.
    pub async fn keep(&self, mut wanted: watch::Receiver<Option<Wanted>>, stop: CancellationToken) {
        let mut timer = tokio::time::interval(LOOK);
        let mut served: Option<Served> = None;
        let mut restarts = Restarts::default();
        let mut reader = Reader::new(&self.options.dir);
        loop {
            reader = self.read_log(reader).await;
            tokio::select! {
                () = stop.cancelled() => break,
                Ok(()) = wanted.changed() => {}
                _ = timer.tick() => {}
                () = restarts.due() => {}
                status = ended(&mut served) => {
                    let lived = served.take().map(|it| it.since.elapsed()).unwrap_or_default();
                    restarts.ended(lived, Instant::now());
                    self.failures.fetch_add(1, Ordering::Relaxed);
                    self.tell(State::Lacks(format!("Squid ended with {status}; it is started again")));
                    continue;
                }
            }
            let Some(wanted) = wanted.borrow_and_update().clone() else {
                if let Some(Served { running, .. }) = served.take() {
                    running.stop().await;
                }
                restarts = Restarts::default();
                self.tell(State::Off);
                continue;
            };
            if served.is_none() && !restarts.are_due(Instant::now()) {
                continue;
            }
            if let Some(Served { running, .. }) = served.take_if(|it| it.has_another_disk()) {
                running.stop().await;
            }
            let result = match served.as_mut() {
                Some(served) => self.adapt(served, wanted).await,
                None => match self.start(wanted, restarts.suspect_cache()).await {
                    Ok(started) => {
                        self.starts.fetch_add(1, Ordering::Relaxed);
                        restarts.started();
                        served = Some(started);
                        Ok(())
                    }
                    Err(obstacle) => {
                        self.failures.fetch_add(1, Ordering::Relaxed);
                        Err(restarts.failed(obstacle, Instant::now()))
                    }
                },
            };
            match (result, &served) {
                (Ok(()), Some(served)) => self.tell(served.state()),
                (Err(problem), _) => self.tell(State::Lacks(problem)),
                (Ok(()), None) => {}
            }
        }
        if let Some(Served { running, .. }) = served {
            running.stop().await;
        }
        self.state.send_replace(State::Off);
    }

    /// Counts the new lines of the access log.
    async fn read_log(&self, mut reader: Reader) -> Reader {
        let dir = self.options.dir.clone();
        let read = tokio::task::spawn_blocking(move || (reader.read(&dir), reader)).await;
        let Ok((figures, reader)) = read else { return Reader::new(&self.options.dir) };
        *self.figures.lock().unwrap_or_else(PoisonError::into_inner) = figures;
        reader
    }

    /// Starts Squid with this configuration, and waits until it listens. `anew`: empties its cache first.
    async fn start(&self, wanted: Wanted, anew: bool) -> Result<Served, Obstacle> {
        let Options { program, dir, cache_bytes, taken } = self.options.clone();
        let configure = move || {
            let squid = Squid::prepare(squid::program(program.as_deref())?, &dir).map_err(said(&dir))?;
            for at in &wanted.listen {
                TcpListener::bind(at).map_err(|error| taken(*at, &error))?;
            }
            if free(&dir) < ROOM {
                squid.drop_cache().map_err(said(&dir))?;
            }
            let cache_mib = size(free(&dir), cache_bytes) >> 20;
            let wanted = Wanted { cache_mib, ..wanted };
            squid.configure(&wanted.render()).map_err(said(&dir))?;
            Ok::<_, String>((squid, wanted, dir))
        };
        let start = move || {
            let (squid, wanted, dir) = configure().map_err(Obstacle::Host)?;
            if anew {
                squid.drop_cache().map_err(said(&dir)).map_err(Obstacle::Host)?;
            }
            squid.make_cache().map_err(said(&dir)).map_err(Obstacle::Squid)?;
            let running = squid.start().map_err(|error| Obstacle::Host(error.to_string()))?;
            Ok(Served { running, squid, wanted, since: Instant::now() })
        };
        let started = tokio::task::spawn_blocking(start).await;
        let mut served = started.map_err(|error| Obstacle::Host(error.to_string()))??;
        self.listening(&mut served).await.map_err(Obstacle::Squid)?;
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
            Err(_) => {
                let at: Vec<_> = served.wanted.listen.iter().map(ToString::to_string).collect();
                Err(format!("Squid does not listen on {}: {}", at.join(", "), served.squid.complaint()))
            }
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

fn said(dir: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("{}: {error}", dir.display())
}

/// The free bytes of the disk with this directory.
fn free(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// The size of a cache on a disk with so many free bytes: as given, or a tenth of them, at most 10 GiB; at least [`LEAST`]. 0: no cache.
fn size(free: u64, given: Option<u64>) -> u64 {
    match free < ROOM {
        true => 0,
        false => given.unwrap_or_else(|| (free / 10).min(10 << 30)).max(LEAST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_takes_a_tenth_of_the_free_disk_and_nothing_of_a_full_one() {
        let mib = |free: u64, given: Option<u64>| size(free << 20, given.map(|it| it << 20)) >> 20;
        assert_eq!([127, 128, 2_000, 1 << 20].map(|free| mib(free, None)), [0, 64, 200, 10 << 10]);
        assert_eq!([mib(2_000, Some(500)), mib(127, Some(500)), mib(2_000, Some(0))], [500, 0, 64]);
    }
}
