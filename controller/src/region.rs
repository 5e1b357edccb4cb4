//! A running region: the order in which it starts its parts, and how it stops.

use crate::admin_token;
use crate::api::{self, App, Certificate, CertificateError, Forwarded, Tls};
use crate::blobs::Blobs;
use crate::built_in;
use crate::data_dir::{DataDir, DataDirError};
use crate::driver::{ALSO_WORKED_ON, Machinery, RECONCILED};
use crate::logs::Logs;
use crate::logs::forward::Forwarder;
use crate::proxy::RegionProxy;
use crate::racks::join_token::Joiner;
use crate::registry::Registry;
use crate::settings::Settings;
use crate::telemetry::{OtlpError, Telemetry};
use crate::webhooks::{self, Deliverer};
use basalt_api::values::Uid;
use basalt_db::change::Follower;
use basalt_db::cluster::{Cluster, ClusterError, ClusterOptions};
use basalt_db::{Options, RegionProcess, Store, StoreError};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long requests in progress may take to end.
const DRAIN_WITHIN: Duration = Duration::from_secs(20);

/// How long a request waits for PostgreSQL.
const PATIENCE: Duration = Duration::from_secs(5);

/// The interval of heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The interval at which facts and changes are pruned.
const MAINTENANCE: Duration = Duration::from_secs(3600);

/// The number of days for which facts are kept.
const HISTORY_DAYS: i32 = 30;

/// How long accepted deliveries are kept, and below it how long dead letters are kept.
const DELIVERED_FOR: Duration = Duration::from_secs(24 * 3600);
const DEAD_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

/// The number of days for which the audit log is kept: a year, and time to read it.
const AUDIT_DAYS: i32 = 400;

/// The number of decisions that are kept of each object. They are also as old as facts at most.
const DECISIONS: i64 = 1000;

/// The reason why a region does not start.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The region's own PostgreSQL does not run.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The store cannot be opened.
    #[error("cannot open the store in {at}")]
    Store {
        /// The database's URL, without a password.
        at: String,
        /// The error of the store.
        source: StoreError,
    },
    /// The seal key is not the one of the database.
    #[error(
        "the seal key in {} is not the one that the database's secrets are sealed with; \
         give the right one with --seal-key-file; if it was rotated, copy it from where that was done", .0.display()
    )]
    OtherSealKey(PathBuf),
    /// Spans cannot be sent to the collector.
    #[error(transparent)]
    Otlp(#[from] OtlpError),
    /// The certificate of the API cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The TLS library refused its configuration.
    #[error("TLS cannot be spoken: {0}")]
    Tls(#[from] rustls::Error),
    /// The key of the provider's registry cannot be made.
    #[error("no key can be made to sign the provider with: {0}")]
    Registry(aws_lc_rs::error::KeyRejected),
    /// The directory of machines' logs cannot be used.
    #[error("cannot use the logs in {}: {source}", dir.display())]
    Logs {
        /// The directory of logs.
        dir: PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The API cannot listen on its address.
    #[error("cannot listen on {address}, the setting listen")]
    Listen {
        /// The address of the setting.
        address: SocketAddr,
        /// The error of the socket.
        source: std::io::Error,
    },
}

/// A running region. If it is dropped without [`stop`](Self::stop), its PostgreSQL keeps running, and the next region adopts it.
#[derive(Debug)]
pub struct Region {
    store: Store,
    follower: Follower,
    blobs: Blobs,
    logs: Logs,
    id: Uid,
    app: App,
    address: SocketAddr,
    data_dir: DataDir,
    cluster: Option<Cluster>,
    stopping: watch::Sender<bool>,
    rpc_address: watch::Sender<Option<String>>,
    servers: Vec<JoinHandle<()>>,
}

impl Region {
    /// Starts all parts. When it returns, the API answers.
    ///
    /// # Errors
    /// [`RegionError`]: a part did not start. The message names the part, and the action that helps.
    pub async fn start(settings: Settings) -> Result<Self, RegionError> {
        let data_dir = DataDir::succeeding(&settings.data_dir).await?;
        let seal = data_dir.seal_key(settings.seal_key_file.as_deref())?;
        let certificate = settings.tls.clone().map(Certificate::open).transpose()?;
        let tls = certificate.as_ref().map(Tls::with).transpose()?.unwrap_or_default();
        // The port is bound before anything is started: a port that is taken is the commonest mistake.
        let tcp = TcpListener::bind(settings.listen)
            .await
            .map_err(|source| RegionError::Listen { address: settings.listen, source })?;
        let address = tcp.local_addr().unwrap_or(settings.listen);
        let cluster = match settings.database_url {
            Some(_) => None,
            None => Some(own_cluster(&settings, data_dir.path()).await?),
        };
        let url = match (&cluster, &settings.database_url) {
            (Some(cluster), _) => cluster.url(),
            (None, url) => url.clone().unwrap_or_default(),
        };
        let options = options(&settings, &url);
        let at = || without_password(&url);
        let file = data_dir.seal_file(settings.seal_key_file.as_deref());
        let opened = match Store::open(options.clone(), seal).await {
            Err(StoreError::Seal { .. }) => match file.staged()? {
                Some(next) => Store::open(options, next.key()?).await.map(|store| (store, true)),
                None => return Err(RegionError::OtherSealKey(file.path().to_owned())),
            },
            opened => opened.map(|store| (store, false)),
        };
        let (store, is_next) = opened.map_err(|source| match source {
            StoreError::Seal { .. } => RegionError::OtherSealKey(file.path().to_owned()),
            source => RegionError::Store { at: at(), source },
        })?;
        if is_next {
            let kept = file.adopt()?;
            tracing::info!(before = %kept.display(), "the rotation of the seal key that was interrupted is complete");
        }
        if let Some(text) = data_dir.first_token()? {
            let noted = admin_token::note(&store, &text).await;
            noted.map_err(|source| RegionError::Store { at: at(), source })?;
        }
        // Before the follower starts: a watch ends when an object behind its token changes. Without an ApiToken, the token is valid anyway.
        if let Err(error) = admin_token::adopt(&store).await {
            tracing::error!(%error, "a region's first token got no ApiToken, and nobody can delete it; the next start tries again");
        }
        built_in::keep(&store).await.map_err(|source| RegionError::Store { at: at(), source })?;
        let follower =
            Follower::start(&store).await.map_err(|source| RegionError::Store { at: at(), source })?;
        let blobs = Blobs::open(data_dir.path().join("blobs"), store.clone(), (&settings).into())?;
        let logs = data_dir.path().join("logs");
        let logs = Logs::open(logs.clone()).map_err(|source| RegionError::Logs { dir: logs, source })?;
        let made = data_dir.path().join("provider");
        let registry = Registry::new(settings.provider_dir.clone(), made, store.registry_seed())
            .map_err(RegionError::Registry)?;
        let (stopping, stop) = watch::channel(false);
        let id = Uid::generate();
        let telemetry = match &settings.otlp_endpoint {
            Some(endpoint) => Telemetry::to(endpoint, &id.to_string())?,
            None => Telemetry::default(),
        };
        let app = App::new(api::Parts {
            store: store.clone(),
            follower: follower.clone(),
            blobs: blobs.clone(),
            logs: logs.clone(),
            proxy: Arc::new(RegionProxy::new(&settings)),
            registry,
            allow_plaintext: settings.allow_plaintext,
            bookmark_every: settings.watch_bookmark,
            watch_buffer: settings.watch_buffer,
            client_timeout: settings.client_timeout,
            connections: settings.client_connections(),
            telemetry,
            stopping: stop.clone(),
        });
        let unix = data_dir.listen()?;
        if let Some(before) = data_dir.succeed(id)? {
            // The former process was killed: its leases can be released now, before they expire.
            let gone = async { store.release_all(before).await.and(store.farewell(before).await) };
            gone.await.map_err(|source| RegionError::Store { at: at(), source })?;
        }
        let process = RegionProcess {
            id,
            rpc_address: settings.rpc_url.clone(),
            api_address: address.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        // A rotation of the seal key must know of this region as soon as it answers.
        let beat = store.heartbeat(&process).await;
        beat.map_err(|source| RegionError::Store { at: at(), source })?;
        let (rpc_address, known) = watch::channel(settings.rpc_url.clone());
        let mut servers = vec![
            tokio::spawn(api::serve_tcp(tcp, tls, app.clone(), stop.clone())),
            tokio::spawn(api::serve_unix(unix, app.clone(), stop.clone())),
            tokio::spawn(api::tell_watchers(app.clone())),
            tokio::spawn(logs.clone().keep(store.clone(), stop.clone())),
            tokio::spawn(Forwarder { store: store.clone(), logs: logs.clone(), owner: id }.run(stop.clone())),
            tokio::spawn(keep_house(
                store.clone(),
                blobs.clone(),
                (process, known),
                (settings.change_retention, settings.change_rows),
                stop.clone(),
            )),
        ];
        let scheme = if certificate.is_some() { "https" } else { "http" };
        servers.extend(certificate.map(|certificate| tokio::spawn(certificate.follow(stop))));
        let token = data_dir.admin_token();
        tracing::info!(%address, socket = %data_dir.socket().display(), token = %token.display(), "the API answers");
        let token = match token.exists() {
            true => token.display().to_string(),
            false => "none; `basalt-region admin-token` makes one".to_owned(),
        };
        announce(&format!("API: {scheme}://{address}\nadmin token: {token}"));
        Ok(Self {
            store,
            follower,
            blobs,
            logs,
            id,
            app,
            address,
            data_dir,
            cluster,
            stopping,
            rpc_address,
            servers,
        })
    }

    /// The address at which the API answers.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The path of the API's unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.data_dir.socket()
    }

    /// The region's store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The change log's follower.
    #[must_use]
    pub fn follower(&self) -> &Follower {
        &self.follower
    }

    /// The region's blobs.
    #[must_use]
    pub fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// The logs of machines.
    #[must_use]
    pub fn logs(&self) -> &Logs {
        &self.logs
    }

    /// The caching proxy for racks.
    #[must_use]
    pub fn proxy(&self) -> &Arc<RegionProxy> {
        self.app.proxy()
    }

    /// The id of this process among the regions.
    #[must_use]
    pub fn id(&self) -> Uid {
        self.id
    }

    /// Becomes true when the region is to stop; for tasks beside it.
    #[must_use]
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// The address at which racks dial this process, from the setting `rpc-url`. Without the setting,
    /// [`own_address`](crate::racks::own_address) finds it.
    #[must_use]
    pub fn rpc_address(&self) -> watch::Sender<Option<String>> {
        self.rpc_address.clone()
    }

    /// Connects the API to the driver. Until then `/plan`, `/waits` and `/timeline` answer `unavailable`.
    pub fn set_machinery(&self, machinery: Arc<dyn Machinery>) {
        self.app.set_machinery(machinery);
    }

    /// The API for requests that racks forward.
    #[must_use]
    pub fn forwarded(&self) -> Forwarded {
        Forwarded::new(self.app.clone())
    }

    /// Enables the API to make join tokens.
    pub fn set_joiner(&self, joiner: Joiner) {
        self.app.set_joiner(joiner);
    }

    /// The sender of spans.
    #[must_use]
    pub fn telemetry(&self) -> &Telemetry {
        self.app.telemetry()
    }

    /// Starts the deliveries to webhooks. They end when the region stops.
    ///
    /// # Errors
    /// The reason why TLS cannot be used.
    pub fn deliver(&mut self, options: webhooks::Options) -> Result<(), String> {
        let counters = Arc::clone(self.app.webhooks());
        let deliverer = Deliverer::new(self.store.clone(), self.id, options, counters)?;
        self.servers.push(tokio::spawn(deliverer.run(self.stopping())));
        Ok(())
    }

    /// Tells all tasks of this process to end. They then return their database connections.
    pub fn begin_to_stop(&self) {
        let _ = self.stopping.send(true);
    }

    /// Ends the requests in progress, releases the leases of this process, and stops its PostgreSQL.
    pub async fn stop(self) {
        self.begin_to_stop();
        for server in self.servers {
            if tokio::time::timeout(DRAIN_WITHIN, server).await.is_err() {
                tracing::warn!("requests did not end within 20 s, and are cut off");
            }
        }
        if let Err(error) = self.store.release_all(self.id).await {
            tracing::warn!(%error, "leases were not given back; they run out");
        }
        if let Err(error) = self.store.farewell(self.id).await {
            tracing::debug!(%error, "no farewell");
        }
        self.store.close().await;
        if let Some(cluster) = self.cluster {
            cluster.stop().await;
        }
        let _ = std::fs::remove_file(self.data_dir.socket());
    }
}

/// The options with which a region opens its store.
pub(crate) fn options(settings: &Settings, url: &str) -> Options {
    Options {
        url: url.to_owned(),
        connections: settings.connections,
        reconciled: RECONCILED.iter().map(|k| (*k).to_owned()).collect(),
        worked_on: RECONCILED.iter().chain(ALSO_WORKED_ON).map(|k| (*k).to_owned()).collect(),
        patience: PATIENCE,
    }
}

async fn own_cluster(settings: &Settings, dir: &Path) -> Result<Cluster, ClusterError> {
    let options = ClusterOptions {
        dir: dir.to_owned(),
        account: settings.postgres_user.clone(),
        settings: vec![("max_connections".to_owned(), settings.connections.saturating_add(20).to_string())],
    };
    Cluster::start(options).await
}

/// Sends heartbeats, and prunes old data.
async fn keep_house(
    store: Store,
    blobs: Blobs,
    (mut process, mut address): (RegionProcess, watch::Receiver<Option<String>>),
    (keep, rows): (Duration, u32),
    mut stop: watch::Receiver<bool>,
) {
    let mut beat = tokio::time::interval(HEARTBEAT);
    let mut prune = tokio::time::interval(MAINTENANCE);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let done = tokio::select! {
            _ = stop.changed() => return,
            _ = beat.tick() => async { store.heartbeat(&process).await?; store.ping().await }.await,
            Ok(()) = address.changed() => {
                process.rpc_address = address.borrow_and_update().clone();
                store.heartbeat(&process).await
            }
            _ = prune.tick() => {
                if let Err(error) = blobs.collect().await {
                    tracing::warn!(%error, source = ?std::error::Error::source(&error), "blobs that nobody needs are not removed");
                }
                prune_all(&store, keep, rows).await
            }
        };
        match done {
            Err(error @ StoreError::SealReplaced) => tracing::error!("{error}"),
            Err(error) => {
                let error = tokio::select! {
                    error = store.cause_of(error) => error,
                    _ = stop.changed() => return,
                };
                tracing::warn!(%error, source = ?std::error::Error::source(&error), "the database does not answer");
            }
            Ok(()) => {}
        }
    }
}

/// Deletes facts, audit entries, events, decisions, deliveries, changes and boot traces that are too old.
async fn prune_all(store: &Store, keep: Duration, rows: u32) -> Result<(), StoreError> {
    store.maintain(HISTORY_DAYS).await?;
    store.forget_audit(AUDIT_DAYS).await?;
    store.forget_events().await?;
    store.prune_deliveries(DELIVERED_FOR, DEAD_FOR).await?;
    store.forget_decisions(HISTORY_DAYS, DECISIONS).await?;
    store.compact_changes(keep, rows.into()).await?;
    store.forget_leases().await?;
    store.prune_boot_traces().await
}

/// `postgres://user:secret@host/db` without `:secret`.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let Some((user, host)) = rest.split_once('@') else { return url.to_owned() };
    format!("{scheme}://{}@{host}", user.split(':').next().unwrap_or_default())
}

/// Prints a line for the person or script that started the region. Errors are ignored: the reader may be gone.
fn announce(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(without_password("postgres://basalt:secret@db/basalt"), "postgres://basalt@db/basalt");
        assert_eq!(without_password("postgres:///basalt?host=/run"), "postgres:///basalt?host=/run");
    }
}
