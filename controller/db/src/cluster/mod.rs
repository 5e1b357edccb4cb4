//! A PostgreSQL cluster of our own: made from the host's binaries, on a unix socket only, supervised.
//!
//! ```text
//! DIR/postgres/      the cluster, owned by the account that runs it
//! DIR/run/           its socket, 0700: who can enter may connect
//! DIR/postgres.log   what it says
//! ```
//! A region that was killed leaves its postmaster alive; the next one adopts it. [`Cluster::stop`] ends it.

mod account;
mod binaries;
mod dump;
mod postmaster;

pub use account::{Account, AccountError};
pub use binaries::{Binaries, BinariesError};
pub use dump::{dump, load};

use postmaster::Postmaster;
use sqlx::{ConnectOptions, Connection};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};

/// The longest path of a unix socket on Linux, without the final NUL.
const SOCKET_PATH: usize = 107;

/// Recovery after a crash may have to replay much of the log.
const START_WITHIN: Duration = Duration::from_secs(120);

/// A fast shutdown writes a checkpoint.
const STOP_WITHIN: Duration = Duration::from_secs(60);

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The superuser, and the database.
const NAME: &str = "basalt";

/// What to run.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The region's data directory.
    pub dir: PathBuf,
    /// The account to run as, when we are root; `None` takes `basalt`, or else `postgres`.
    pub account: Option<String>,
    /// More settings for `postgres`, name and value.
    pub settings: Vec<(String, String)>,
}

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The account.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// The binaries.
    #[error(transparent)]
    Binaries(#[from] BinariesError),
    /// A file or directory.
    #[error("cannot use {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The socket's path does not fit.
    #[error("the socket {path} has a path of more than {SOCKET_PATH} bytes; choose a shorter --data-dir")]
    LongPath {
        /// The socket.
        path: PathBuf,
    },
    /// `initdb` failed.
    #[error("initdb failed: {output}")]
    Init {
        /// What it wrote.
        output: String,
    },
    /// The server ended, or did not answer in time.
    #[error("PostgreSQL {what}; the end of {log}:\n{tail}", log = log.display())]
    Start {
        /// What happened.
        what: String,
        /// Its log.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// `pg_dump` or `pg_restore` failed.
    #[error("{program} failed: {output}", program = program.display())]
    Tool {
        /// Which.
        program: PathBuf,
        /// What it wrote.
        output: String,
    },
    /// It answers, but not well.
    #[error("PostgreSQL answers, but its database could not be made")]
    Sql(#[from] sqlx::Error),
}

pub(crate) fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> ClusterError {
    let path = path.to_owned();
    move |source| ClusterError::File { path, source }
}

/// A supervised cluster. Dropping it leaves PostgreSQL running; [`stop`](Self::stop) ends it.
#[derive(Debug)]
pub struct Cluster {
    inner: Arc<Inner>,
    stopping: watch::Sender<bool>,
    adopted: bool,
}

#[derive(Debug)]
struct Inner {
    binaries: Binaries,
    account: Option<Account>,
    options: ClusterOptions,
    postmaster: Mutex<Postmaster>,
}

impl Cluster {
    /// Makes the cluster where there is none, starts it or adopts the one that runs, and keeps it running.
    ///
    /// # Errors
    /// Something is missing on the host, the directory cannot be used, or the server does not come up.
    pub async fn start(options: ClusterOptions) -> Result<Self, ClusterError> {
        let dir = std::path::absolute(&options.dir).map_err(file_error(&options.dir))?;
        let options = ClusterOptions { dir, ..options };
        let account = Account::choose(options.account.as_deref())?;
        prepare_directories(&options.dir, account.as_ref())?;
        let data = data_dir(&options.dir);
        let binaries = Binaries::find(&data)?;
        if !data.join("PG_VERSION").exists() {
            init(&binaries, &options, account.as_ref()).await?;
        }
        let (postmaster, adopted) = match Postmaster::adopt(&data) {
            Some(running) => (running, true),
            None => (Postmaster::spawn(&binaries, &options, account.as_ref())?, false),
        };
        tracing::info!(
            pid = postmaster.pid(),
            adopted,
            version = binaries.major,
            "PostgreSQL runs in {}",
            data.display()
        );
        let inner = Arc::new(Inner { binaries, account, options, postmaster: Mutex::new(postmaster) });
        inner.ready().await?;
        inner.create_database().await?;
        let (stopping, stop) = watch::channel(false);
        tokio::spawn(supervise(inner.clone(), stop));
        Ok(Self { inner, stopping, adopted })
    }

    /// Where to connect to: the region's database.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(NAME)
    }

    /// Where to connect to another database of this cluster.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        url(&self.inner.options.dir, database)
    }

    /// Where its socket is.
    #[must_use]
    pub fn socket_dir(&self) -> PathBuf {
        run_dir(&self.inner.options.dir)
    }

    /// Whether a postmaster that was already running was taken over.
    #[must_use]
    pub fn adopted(&self) -> bool {
        self.adopted
    }

    /// The postmaster's process id.
    pub async fn pid(&self) -> i32 {
        self.inner.postmaster.lock().await.pid()
    }

    /// Ends PostgreSQL, with a checkpoint.
    pub async fn stop(&self) {
        let _ = self.stopping.send(true);
        self.inner.postmaster.lock().await.stop(STOP_WITHIN).await;
    }
}

impl Inner {
    async fn ready(&self) -> Result<(), ClusterError> {
        let url = url(&self.options.dir, "postgres");
        let deadline = tokio::time::Instant::now() + START_WITHIN;
        loop {
            if connect(&url).await.is_ok() {
                return Ok(());
            }
            let ended = !self.postmaster.lock().await.alive();
            let late = tokio::time::Instant::now() > deadline;
            if ended || late {
                let log = log_file(&self.options.dir);
                let what = if ended { "ended while it started" } else { "did not answer in 120 s" };
                return Err(ClusterError::Start { what: what.to_owned(), tail: tail(&log), log });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn create_database(&self) -> Result<(), ClusterError> {
        let mut connection = connect(&url(&self.options.dir, "postgres")).await?;
        let there = sqlx::query("select 1 from pg_database where datname = $1").bind(NAME);
        if there.fetch_optional(&mut connection).await?.is_none() {
            sqlx::query("create database basalt").execute(&mut connection).await?;
        }
        connection.close().await?;
        Ok(())
    }
}

/// Starts the server again when it ends.
async fn supervise(inner: Arc<Inner>, mut stop: watch::Receiver<bool>) {
    let mut pause = Duration::from_secs(1);
    loop {
        tokio::select! {
            _ = stop.changed() => return,
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
        }
        let mut postmaster = inner.postmaster.lock().await;
        if *stop.borrow() {
            return;
        }
        if postmaster.alive() {
            pause = Duration::from_secs(1);
            continue;
        }
        tracing::error!(log = %log_file(&inner.options.dir).display(), "PostgreSQL ended; starting it again");
        match Postmaster::spawn(&inner.binaries, &inner.options, inner.account.as_ref()) {
            Ok(again) => *postmaster = again,
            Err(error) => tracing::error!(%error, "PostgreSQL could not be started again"),
        }
        drop(postmaster);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(30));
    }
}

async fn init(
    binaries: &Binaries,
    options: &ClusterOptions,
    account: Option<&Account>,
) -> Result<(), ClusterError> {
    // Made beside its place and moved there, so that a half-made one is never taken for a cluster.
    let (data, fresh) = (data_dir(&options.dir), options.dir.join("postgres.new"));
    if fresh.exists() {
        std::fs::remove_dir_all(&fresh).map_err(file_error(&fresh))?;
    }
    make_private_dir(&fresh, account)?;
    let mut command = tokio::process::Command::new(binaries.initdb());
    command.args([
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        "--no-instructions",
        "--username",
        NAME,
    ]);
    command.arg("--pgdata").arg(&fresh).current_dir("/").stdin(Stdio::null()).kill_on_drop(true);
    account::run_as(&mut command, account);
    let output = command.output().await.map_err(file_error(&binaries.initdb()))?;
    if !output.status.success() {
        let output = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(ClusterError::Init { output });
    }
    if data.exists() {
        std::fs::remove_dir(&data).map_err(file_error(&data))?;
    }
    std::fs::rename(&fresh, &data).map_err(file_error(&data))
}

fn prepare_directories(dir: &Path, account: Option<&Account>) -> Result<(), ClusterError> {
    std::fs::create_dir_all(dir).map_err(file_error(dir))?;
    if let Some(account) = account {
        account.can_reach(dir)?;
    }
    let run = run_dir(dir);
    make_private_dir(&run, account)?;
    let socket = run.join(".s.PGSQL.5432");
    if socket.as_os_str().len() > SOCKET_PATH {
        return Err(ClusterError::LongPath { path: socket });
    }
    Ok(())
}

fn make_private_dir(path: &Path, account: Option<&Account>) -> Result<(), ClusterError> {
    use std::os::unix::fs::{DirBuilderExt, chown};
    if !path.exists() {
        std::fs::DirBuilder::new().mode(0o700).create(path).map_err(file_error(path))?;
    }
    if let Some(account) = account {
        chown(path, Some(account.uid), Some(account.gid)).map_err(file_error(path))?;
    }
    Ok(())
}

async fn connect(url: &str) -> Result<sqlx::PgConnection, sqlx::Error> {
    let options = sqlx::postgres::PgConnectOptions::from_str(url)?.disable_statement_logging();
    match tokio::time::timeout(Duration::from_secs(5), options.connect()).await {
        Ok(connected) => connected,
        Err(_) => Err(sqlx::Error::PoolTimedOut),
    }
}

/// Where to connect to the region's database in `dir`, when its server runs.
#[must_use]
pub fn url_in(dir: &Path) -> String {
    url(dir, NAME)
}

/// Whether there is a cluster in `dir`.
#[must_use]
pub fn exists_in(dir: &Path) -> bool {
    data_dir(dir).join("PG_VERSION").exists()
}

/// Removes the cluster in `dir`; its server does not run.
///
/// # Errors
/// The file system's.
pub fn remove_from(dir: &Path) -> std::io::Result<()> {
    std::fs::remove_dir_all(data_dir(dir))
}

fn url(dir: &Path, database: &str) -> String {
    let mut host = String::new();
    for byte in run_dir(dir).as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                host.push(char::from(*byte));
            }
            other => host.push_str(&format!("%{other:02X}")),
        }
    }
    format!("postgres:///{database}?host={host}&user={NAME}")
}

pub(crate) fn data_dir(dir: &Path) -> PathBuf {
    dir.join("postgres")
}

pub(crate) fn run_dir(dir: &Path) -> PathBuf {
    dir.join("run")
}

pub(crate) fn log_file(dir: &Path) -> PathBuf {
    dir.join("postgres.log")
}

fn tail(log: &Path) -> String {
    let text = std::fs::read(log).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(8).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
