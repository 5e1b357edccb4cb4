//! A database per test: one cluster per test process, one template, and a copy of it for each test; also [`churn`], and a [`clock`].

pub mod churn;
pub mod clock;

use crate::cluster::{Cluster, ClusterOptions};
use crate::store::MIGRATIONS;
use sqlx::{Connection, PgConnection};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Settings of a server whose data may be lost.
const CARELESS: [(&str, &str); 5] = [
    ("fsync", "off"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("max_connections", "300"),
    ("shared_buffers", "64MB"),
];

struct Shared {
    cluster: Cluster,
    /// A shell that removes the cluster when its standard input closes: when this process ends in any way. The shell has its own
    /// process group, to survive a kill of this process's group.
    _undertaker: Child,
    numbers: AtomicU32,
    creating: tokio::sync::Mutex<()>,
}

static SHARED: OnceLock<Shared> = OnceLock::new();

/// The URL of a fresh, migrated database.
///
/// # Panics
/// This host cannot run PostgreSQL.
pub async fn database() -> String {
    copy_of("basalt").await
}

/// The URL of a fresh database without migrations.
///
/// # Panics
/// This host cannot run PostgreSQL.
pub async fn empty_database() -> String {
    copy_of("template0").await
}

async fn copy_of(template: &str) -> String {
    if SHARED.get().is_none() {
        // The cluster's supervisor has its own runtime, because a test's runtime ends with the test.
        static STARTED: OnceLock<()> = OnceLock::new();
        tokio::task::spawn_blocking(|| STARTED.get_or_init(start)).await.expect("the cluster starts");
    }
    let shared = SHARED.get().expect("the cluster runs");
    let name = format!("test_{}", shared.numbers.fetch_add(1, Ordering::Relaxed));
    let _one_at_a_time = shared.creating.lock().await;
    let mut connection = PgConnection::connect(&shared.cluster.url_of("postgres")).await.expect("it answers");
    let create = sqlx::AssertSqlSafe(format!("create database {name} template {template}"));
    sqlx::raw_sql(create).execute(&mut connection).await.expect("a copy of the template");
    connection.close().await.expect("it closes");
    shared.cluster.url_of(&name)
}

/// The directory of the tests' cluster, with its binaries' directory: for tests that look at it from outside.
///
/// # Panics
/// [`database`] was not called before.
#[must_use]
pub fn socket_dir() -> PathBuf {
    SHARED.get().expect("the cluster runs").cluster.socket_dir()
}

fn start() {
    let (ready, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let _ = SHARED.set(shared().await);
            ready.send(()).expect("the test waits");
            std::future::pending::<()>().await;
        });
    });
    wait.recv().expect("the cluster starts");
}

async fn shared() -> Shared {
    let dir = std::env::temp_dir().join(format!("basalt-db-{}", std::process::id()));
    let undertaker = |pid: i32| {
        Command::new("sh")
            .args([
                "-c",
                "read -r _; kill -QUIT $1; while kill -0 $1 2>/dev/null; do sleep 0.05; done; rm -rf \"$2\"",
                "sh",
            ])
            .arg(pid.to_string())
            .arg(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("sh")
    };
    let settings = CARELESS.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let options = ClusterOptions { dir: dir.clone(), account: None, settings };
    let cluster = Cluster::start(options).await.expect("PostgreSQL runs here");
    let undertaker = undertaker(cluster.pid().await);
    let mut connection = PgConnection::connect(&cluster.url()).await.expect("it answers");
    MIGRATIONS.run(&mut connection).await.expect("the migrations run");
    connection.close().await.expect("it closes");
    Shared {
        cluster,
        _undertaker: undertaker,
        numbers: AtomicU32::new(0),
        creating: tokio::sync::Mutex::new(()),
    }
}
