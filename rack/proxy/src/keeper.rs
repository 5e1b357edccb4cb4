//! Keeps Squid running with the configuration that is wanted: starts it, makes it follow changes, starts it again.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::squid::{self, Running, Squid};
use crate::squid_conf::Wanted;

/// How often to look for the program, and at the logs.
const LOOK: Duration = Duration::from_secs(30);
/// The longest wait until Squid listens. It reads the index of its cache later.
const LISTEN: Duration = Duration::from_secs(20);
/// The wait before Squid is started again: the first and the longest.
const RESTART: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// After this many failed starts the cache may be the cause; it is emptied.
const IN_VAIN: u32 = 3;

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
}

/// The states of [`Counts`]. `lacks`: the proxy should be served and cannot be.
pub const STATES: [&str; 3] = ["off", "serves", "lacks"];

/// How a proxy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// No proxy is wanted.
    Off,
    /// Squid serves these addresses.
    Serves(Vec<SocketAddr>),
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

impl Keeper {
    /// A proxy that serves nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let state = watch::Sender::new(State::Off);
        Self { options, state, starts: AtomicU64::new(0), failures: AtomicU64::new(0) }
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
            State::Serves(_) => serves,
            State::Lacks(_) => lacks,
        };
        let [starts, failures] = [&self.starts, &self.failures].map(|it| it.load(Ordering::Relaxed));
        Counts { state, starts, failures }
    }

    fn tell(&self, state: State) {
        self.state.send_if_modified(|told| {
            let is_news = *told != state;
            if let State::Lacks(problem) = &state
                && is_news
            {
                tracing::warn!(problem, "no proxy is served; it is tried again until it works");
            }
            *told = state;
            is_news
        });
    }

    /// Runs Squid as wanted until cancelled; `None`: no Squid runs. The size of its cache is set here.
    pub async fn keep(&self, mut wanted: watch::Receiver<Option<Wanted>>, stop: CancellationToken) {
        let mut timer = tokio::time::interval(LOOK);
        let mut served: Option<Served> = None;
        let (mut in_vain, mut not_before) = (0, Instant::now());
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Ok(()) = wanted.changed() => {}
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
            let Some(wanted) = wanted.borrow_and_update().clone() else {
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
                (Ok(()), Some(served)) => self.tell(State::Serves(served.wanted.listen.clone())),
                (Err(problem), _) => self.tell(State::Lacks(problem)),
                (Ok(()), None) => {}
            }
        }
        if let Some(Served { running, .. }) = served {
            running.stop().await;
        }
        self.state.send_replace(State::Off);
    }

    /// Starts Squid with this configuration, and waits until it listens.
    async fn start(&self, wanted: Wanted, in_vain: u32) -> Result<Served, String> {
        let Options { program, dir, cache_bytes, taken } = self.options.clone();
        let prepare = move || {
            let squid = Squid::prepare(squid::program(program.as_deref())?, &dir).map_err(said(&dir))?;
            for at in &wanted.listen {
                TcpListener::bind(at).map_err(|error| taken(*at, &error))?;
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

fn backoff(in_vain: u32) -> Duration {
    let [first, most] = RESTART;
    first.saturating_mul(1 << in_vain.saturating_sub(1).min(6)).min(most)
}

fn said(dir: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("{}: {error}", dir.display())
}

/// A tenth of the free disk, at most 10 GiB.
fn by_disk(dir: &Path) -> u64 {
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
}
