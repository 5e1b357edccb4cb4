//! A PostgreSQL cluster of our own: made from the host's binaries, on a unix socket only, supervised.
//!
//! ```text
//! DIR/postgres/      the cluster, owned by the account that runs it
//! DIR/run/           its socket, mode 0700: every account that can enter may connect
//! DIR/postgres.log   its log
//! ```
//! If a region is killed, its postmaster keeps running, and the next region adopts it. [`Cluster::stop`] ends it.

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

/// The name of the superuser and of the database.
const NAME: &str = "basalt";

/// The options of [`Cluster::start`].
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The region's data directory.
    pub dir: PathBuf,
    /// The account to run as, when we are root; `None` takes `basalt`, or else `postgres`.
    pub account: Option<String>,
    /// More settings for `postgres`, name and value.
    pub settings: Vec<(String, String)>,
}

/// The reason why the cluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The account that is to run PostgreSQL cannot be used.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// PostgreSQL's programs are not on the host.
    #[error(transparent)]
    Binaries(#[from] BinariesError),
    /// A file or directory cannot be used.
    #[error("cannot use {path}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The socket's path is longer than Linux allows.
    #[error("the socket {path} has a path of more than {SOCKET_PATH} bytes; choose a shorter --data-dir")]
    LongPath {
        /// The path of the socket.
        path: PathBuf,
    },
    /// `initdb` failed.
    #[error("initdb failed: {output}")]
    Init {
        /// The output of `initdb`.
        output: String,
    },
    /// The server ended, or did not answer in time.
    #[error("PostgreSQL {what}; the end of {log}:\n{tail}", log = log.display())]
    Start {
        /// How the start failed.
        what: String,
        /// The path of the server's log.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// `pg_dump` or `pg_restore` failed.
    #[error("{program} failed: {output}", program = program.display())]
    Tool {
        /// The path of the program.
        program: PathBuf,
        /// The output of the program.
        output: String,
    },
    /// The server answers, but its database could not be created.
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
    /// Creates the cluster if there is none, starts or adopts its server, and restarts the server when it ends.
    ///
    /// # Errors
    /// Fails if a program is missing on the host, if the directory cannot be used, or if the server does not start.
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

    /// The URL of the region's database.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(NAME)
    }

    /// The URL of another database of this cluster.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        url(&self.inner.options.dir, database)
    }

    /// The directory of the server's socket.
    #[must_use]
    pub fn socket_dir(&self) -> PathBuf {
        run_dir(&self.inner.options.dir)
    }

    /// True if a postmaster that was already running was adopted.
    #[must_use]
    pub fn adopted(&self) -> bool {
        self.adopted
    }

    /// The postmaster's process id.
    pub async fn pid(&self) -> i32 {
        self.inner.postmaster.lock().await.pid()
    }

    /// Stops PostgreSQL, with a checkpoint.
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
    // `initdb` writes into a directory beside the final one, which is then renamed: a half-made cluster is never used.
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

/// The URL of the region's database in `dir`, for when its server runs.
#[must_use]
pub fn url_in(dir: &Path) -> String {
    url(dir, NAME)
}

/// True if there is a cluster in `dir`.
#[must_use]
pub fn exists_in(dir: &Path) -> bool {
    data_dir(dir).join("PG_VERSION").exists()
}

/// Removes the cluster in `dir`. Its server must not run.
///
/// # Errors
/// Fails if the file system does.
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
