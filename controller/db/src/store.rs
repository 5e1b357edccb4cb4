//! The connection pool, the seal key, and the signal that wakes followers and drivers after a commit.
//!
//! A transaction begins in a task of its own (`Store::begin`): sqlx 0.9 loses a transaction whose begin is cancelled, and clients
//! disconnect at any time. Connections keep the plans of their statements, so a statement uses indexes and does not depend on estimates
//! (docs/decisions/047-kept-plans.md).

use crate::gather::Gather;
use crate::holders::Holders;
use crate::overlay::Overlay;
use crate::run::Run;
use crate::seal::{Place, SealKey};
use crate::{Actor, StoreError};
use basalt_api::values::{Incarnation, Uid};
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgConnection, PgPool, Postgres, Transaction};
use std::str::FromStr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::Notify;

/// The migrations that this program contains. Versions of a newer region are ignored: during an upgrade the older region must be
/// able to start again beside the newer one (docs/decisions/041-migrations.md).
pub(crate) static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrations = sqlx::migrate!("../../migrations");
    migrations.set_ignore_missing(true);
    migrations
});

/// The NOTIFY channel. A message carries no content; the tables have it.
const CHANNEL: &str = "basalt";

/// The shortest time between two NOTIFYs of this region. Inside write transactions they would halve the write rate.
const NOTIFY_EVERY: Duration = Duration::from_millis(5);

/// A connection that was used within this time is taken for open.
const TRUSTED: Duration = Duration::from_secs(1);

/// The timeout of idle transactions: no code here waits inside a transaction for anything but the database.
const IDLE_IN_TRANSACTION: &str = "30s";

/// Each connection plans a statement once, for any values. Otherwise PostgreSQL plans statements with arrays anew each time (that
/// is most of them), and planning takes several times as long as execution.
///
/// A plan for any values must be good for few rows in a table of any size: a zone may have one machine, or all of them. So
/// sequential scans are off and indexes are used. [`Store::begin_planning`] plans statements for their values.
const PLANNED_ONCE: [(&str, &str); 3] =
    [("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off"), ("jit", "off")];

/// How long [`Store::close`] waits for connections that are still in use.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// The timeout for a single connection outside of a store's pool.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// The shortest time between two analyses of grown tables.
const ANALYZE_EVERY: Duration = Duration::from_secs(5);

/// The size of the statement cache: larger than the number of statements, so that none is dropped.
const STATEMENTS: usize = 500;

/// A known text that is stored sealed. It shows a wrong key at start, and a replaced key while a region runs.
const SEAL_CHECK: &[u8] = b"basalt seal check 1";

pub(crate) type Tx = Transaction<'static, Postgres>;

/// The region's store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
    /// The author of the writes; `None`: the region itself.
    actor: Option<Arc<Actor>>,
    /// The client's run for which objects are created.
    run: Option<Arc<Run>>,
    /// Supposed states of other objects, for a dry run.
    pub(crate) overlay: Option<Arc<Overlay>>,
}

/// Kinds whose reconciliation uses only specs and names. Statuses and facts of neighbours do not wake objects of these kinds. Statuses and
/// facts of these objects do not wake neighbours.
pub(crate) const FROM_SPECS: [&str; 2] = ["Domain", "Subnet"];

#[derive(Debug)]
struct Inner {
    pool: PgPool,
    seal: SealKey,
    /// The sealed [`SEAL_CHECK`] as it was at start. A new key writes a new one.
    seal_check: Vec<u8>,
    incarnation: Incarnation,
    reconciled: Vec<String>,
    worked_on: Vec<String>,
    /// Those of `worked_on` that decide from statuses and facts.
    by_facts: Vec<String>,
    /// This region committed something: the notifier must send.
    wrote: Notify,
    /// Tables have become much larger: PostgreSQL must analyze them.
    grown: Notify,
    /// True once the store closes.
    closing: tokio::sync::watch::Sender<bool>,
    /// Counts commits by any region.
    woken: tokio::sync::watch::Sender<u64>,
    holders: Holders,
    gather: Gather,
}

/// The options of [`Store::open`].
#[derive(Clone, Debug)]
pub struct Options {
    /// `postgres://user@host/database`, or a unix socket: `postgres:///database?host=/dir&user=basalt`.
    pub url: String,
    /// The largest number of connections.
    pub connections: u32,
    /// The kinds whose objects are reconciled; the others are ready as soon as they are stored.
    pub reconciled: Vec<String>,
    /// The kinds whose objects are put into the queue: the reconciled kinds, and kinds with work whose objects are ready at once.
    pub worked_on: Vec<String>,
    /// How long a caller waits for a free connection.
    pub patience: Duration,
}

impl Store {
    /// Connects, migrates (one region at a time), checks the seal key, and starts the notifier.
    ///
    /// # Errors
    /// Fails if PostgreSQL cannot be reached, a migration fails, or the database was made with another seal key.
    pub async fn open(options: Options, seal: SealKey) -> Result<Self, StoreError> {
        // If a region freezes in the middle of a transaction, PostgreSQL ends that transaction and frees its locks.
        let connect = PgConnectOptions::from_str(&options.url)?
            .application_name("basalt-region")
            .options([("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION)])
            .options(PLANNED_ONCE)
            .statement_cache_capacity(STATEMENTS);
        let pool = PgPoolOptions::new()
            .max_connections(options.connections.max(4))
            .acquire_timeout(options.patience)
            .test_before_acquire(false)
            .before_acquire(|connection, of| Box::pin(still_there(connection, of.idle_for)))
            .connect_with(connect.clone())
            .await;
        let pool = match pool {
            Ok(pool) => pool,
            Err(error) => return Err(cause(&connect, error).await.into()),
        };
        crate::ipam::before::check(&pool).await?;
        // sqlx takes an advisory lock: two regions that start at once do not migrate twice.
        MIGRATIONS.run(&pool).await.map_err(sqlx::Error::from)?;
        let (incarnation, seal_check) = check_seal(&pool, &seal).await?;
        let (woken, _) = tokio::sync::watch::channel(0);
        let inner = Inner {
            gather: Gather::start(&pool),
            pool,
            seal,
            seal_check,
            incarnation,
            reconciled: options.reconciled,
            by_facts: options
                .worked_on
                .iter()
                .filter(|kind| !FROM_SPECS.contains(&kind.as_str()))
                .cloned()
                .collect(),
            worked_on: options.worked_on,
            wrote: Notify::new(),
            grown: Notify::new(),
            closing: tokio::sync::watch::Sender::new(false),
            woken,
            holders: Holders::default(),
        };
        let store = Self { inner: Arc::new(inner), actor: None, run: None, overlay: None };
        sqlx::query!("select maintain_fact_history(30)").fetch_one(store.pool()).await?;
        let (notifier, listener, analyst) = (store.clone(), store.clone(), store.clone());
        tokio::spawn(async move { analyst.analyze_what_grew().await });
        tokio::spawn(async move { notifier.notify_others().await });
        tokio::spawn(async move { listener.listen().await });
        Ok(store)
    }

    /// The incarnation of the database.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.inner.incarnation
    }

    /// The same store with an actor: its writes go to the audit log.
    #[must_use]
    pub fn acting(&self, actor: Arc<Actor>) -> Self {
        Self { actor: Some(actor), ..self.clone() }
    }

    /// The same store for a client's run: objects that it creates are unconfirmed.
    #[must_use]
    pub fn creating_for(&self, run: Run) -> Self {
        Self { run: Some(Arc::new(run)), ..self.clone() }
    }

    pub(crate) fn run(&self) -> Option<&Run> {
        self.run.as_deref()
    }

    pub(crate) fn actor(&self) -> Option<&Actor> {
        self.actor.as_deref()
    }

    /// Finds out why the database did not answer, if the error only says that no connection was free in time.
    pub async fn cause_of(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Database(error) => cause(&self.pool().connect_options(), error).await.into(),
            error => error,
        }
    }

    /// Checks that PostgreSQL answers and that the seal key is still the right one.
    ///
    /// # Errors
    /// Fails if PostgreSQL does not answer. `SealReplaced`: the seal key is another one now.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let check = sqlx::query_scalar!("select seal_check from region_meta");
        self.is_in_place(check.fetch_one(self.pool()).await?)
    }

    /// Keeps the seal key from being replaced until the transaction ends. Call this before the transaction locks a row with sealed data.
    /// [`rotate`](crate::rotate) takes its locks in the same order, so the two cannot deadlock.
    ///
    /// # Errors
    /// `SealReplaced`: the seal key is another one now. Fails too if the database cannot be read.
    pub(crate) async fn hold_seal(&self, tx: &mut Tx) -> Result<(), StoreError> {
        let check = sqlx::query_scalar!("select seal_check from region_meta for key share");
        self.is_in_place(check.fetch_one(&mut **tx).await?)
    }

    fn is_in_place(&self, seal_check: Option<Vec<u8>>) -> Result<(), StoreError> {
        match seal_check.as_deref() == Some(&self.inner.seal_check) {
            true => Ok(()),
            false => Err(StoreError::SealReplaced),
        }
    }

    /// Creates the history partitions of the coming days, and deletes facts older than `keep_days`.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn maintain(&self, keep_days: i32) -> Result<(), StoreError> {
        sqlx::query!("select maintain_fact_history($1)", keep_days).fetch_one(self.pool()).await?;
        Ok(())
    }

    /// Ends the notifier and the listener. Closes the connections, and waits some seconds for those in use.
    pub async fn close(&self) {
        // The pool waits for every connection. In sqlx 0.9 a listener that just begins to listen may miss the close event, so it gets
        // its own signal.
        self.inner.closing.send_replace(true);
        if tokio::time::timeout(CLOSE_WITHIN, self.inner.pool.close()).await.is_err() {
            tracing::warn!("connections to the database were not given back in time, and are cut off");
        }
        self.inner.wrote.notify_one();
        self.inner.grown.notify_one();
    }

    /// Changes whenever this region or another one may have committed something.
    #[must_use]
    pub fn woken(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.woken.subscribe()
    }

    /// The number of signals so far that something may have been committed.
    pub(crate) fn commits(&self) -> u64 {
        *self.inner.woken.borrow()
    }

    pub(crate) fn holders(&self) -> &Holders {
        &self.inner.holders
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.inner.pool
    }

    pub(crate) fn gather(&self) -> &Gather {
        &self.inner.gather
    }

    /// The seed of the key with which the provider's registry signs. All regions of the database have the same.
    #[must_use]
    pub fn registry_seed(&self) -> &[u8; 32] {
        self.seal().registry()
    }

    pub(crate) fn seal(&self) -> &SealKey {
        &self.inner.seal
    }

    /// The kinds whose objects decide from statuses and facts of their neighbours.
    pub(crate) fn by_facts(&self) -> &[String] {
        &self.inner.by_facts
    }

    /// The kinds whose objects are put into the queue.
    pub(crate) fn worked_on(&self) -> &[String] {
        &self.inner.worked_on
    }

    pub(crate) fn is_reconciled(&self, kind: &str) -> bool {
        self.inner.reconciled.iter().any(|k| k == kind)
    }

    /// Begins a transaction, and notes the present trace in it.
    pub(crate) async fn begin(&self) -> Result<Tx, StoreError> {
        // In a separate task, because the caller may be cancelled (a client hangs up). sqlx 0.9 would then forget the transaction. The next
        // caller would get the connection with the transaction still open, and its statements would never be committed.
        let pool = self.pool().clone();
        let begun = tokio::spawn(async move { pool.begin().await }).await;
        let mut tx = begun.map_err(|_| sqlx::Error::WorkerCrashed)??;
        if let Some(trace) = crate::trace::current() {
            let note = sqlx::query!("select set_config('basalt.trace', $1, true)", &*trace);
            note.fetch_one(&mut *tx).await?;
        }
        Ok(tx)
    }

    /// A transaction that only reads. All of its statements see the database as it was at the first one.
    pub(crate) async fn begin_snapshot(&self) -> Result<Tx, StoreError> {
        let pool = self.pool().clone();
        // A task of its own, as in [`Self::begin`].
        let begun =
            tokio::spawn(
                async move { pool.begin_with("begin isolation level repeatable read read only").await },
            );
        Ok(begun.await.map_err(|_| sqlx::Error::WorkerCrashed)??)
    }

    /// A transaction that plans its statements for their actual values, which may be tens of thousands.
    pub(crate) async fn begin_planning(&self) -> Result<Tx, StoreError> {
        let mut tx = self.begin().await?;
        let planning = sqlx::query!(
            "select set_config('plan_cache_mode', 'force_custom_plan', true) as plans, set_config('enable_seqscan', 'on', true) as scans"
        );
        planning.fetch_one(&mut *tx).await?;
        Ok(tx)
    }

    /// Reports that tables have become much larger.
    pub(crate) fn has_grown(&self) {
        self.inner.grown.notify_one();
    }

    /// Commits, and wakes tasks that wait for commits.
    pub(crate) async fn commit(&self, tx: Tx) -> Result<(), StoreError> {
        tx.commit().await?;
        self.touched();
        Ok(())
    }

    /// Commits, or in a dry run leaves everything as it was.
    pub(crate) async fn end(&self, tx: Tx, dry_run: bool) -> Result<(), StoreError> {
        if dry_run {
            return Ok(tx.rollback().await?);
        }
        self.commit(tx).await
    }

    /// Reports that something was committed.
    pub(crate) fn touched(&self) {
        self.wake();
        self.inner.wrote.notify_one();
    }

    fn wake(&self) {
        self.inner.woken.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// Sends all of a region's NOTIFYs from one task, which joins them.
    async fn notify_others(&self) {
        while !self.pool().is_closed() {
            self.inner.wrote.notified().await;
            let sent = sqlx::query!("select pg_notify($1, '')", CHANNEL).fetch_one(self.pool()).await;
            if let Err(error) = sent {
                tracing::debug!(%error, "other regions were not woken; they look by themselves each second");
            }
            tokio::time::sleep(NOTIFY_EVERY).await;
        }
    }

    /// Analyzes tables that have grown at once. Plans are kept, and an old plan suits the small table. Autovacuum would analyze
    /// the table by itself, but only within a minute.
    async fn analyze_what_grew(&self) {
        while !self.pool().is_closed() {
            self.inner.grown.notified().await;
            let analyzed = sqlx::query!(
                "analyze object, object_ref, secret, mac_holder, machine_mac, pool_told, change_log, reconcile_queue, audit"
            );
            if let Err(error) = analyzed.execute(self.pool()).await {
                tracing::debug!(%error, "tables that have grown were not analyzed; PostgreSQL does it by itself later");
            }
            tokio::time::sleep(ANALYZE_EVERY).await;
        }
    }

    /// Wakes this region's tasks when another region notifies, and after a lost connection.
    async fn listen(&self) {
        let mut closing = self.inner.closing.subscribe();
        loop {
            let listens = async {
                if let Err(error) = self.listen_once().await {
                    tracing::debug!(%error, "not listening for other regions");
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            };
            tokio::select! {
                () = listens => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
        }
    }

    async fn listen_once(&self) -> Result<(), sqlx::Error> {
        let mut listener = PgListener::connect_with(self.pool()).await?;
        listener.ignore_pool_close_event(false);
        listener.listen(CHANNEL).await?;
        self.wake();
        loop {
            listener.try_recv().await?;
            self.wake();
        }
    }
}

/// Checks an idle connection. A connection that was used a moment ago is not pinged: the ping would take as long as the query.
async fn still_there(connection: &mut PgConnection, idle_for: Duration) -> Result<bool, sqlx::Error> {
    if idle_for > TRUSTED {
        connection.ping().await?;
    }
    Ok(true)
}

fn seal_check_place() -> Place<'static> {
    Place { object: Uid::from(uuid::Uuid::nil()), pointer: "seal_check" }
}

/// Seals the known text.
pub(crate) fn sealed_check(seal: &SealKey) -> Result<Vec<u8>, StoreError> {
    seal.seal(&seal_check_place(), SEAL_CHECK)
}

/// Returns the incarnation and the sealed check of the database. Waits while the key is being replaced.
async fn check_seal(pool: &PgPool, seal: &SealKey) -> Result<(Incarnation, Vec<u8>), StoreError> {
    let row =
        sqlx::query!("select incarnation, seal_check from region_meta for key share").fetch_one(pool).await?;
    let check = match row.seal_check {
        Some(check) => check,
        None => {
            let fresh = sealed_check(seal)?;
            let kept = sqlx::query_scalar!(
                r#"update region_meta set seal_check = coalesce(seal_check, $1) returning seal_check as "check!""#,
                fresh
            );
            kept.fetch_one(pool).await?
        }
    };
    if !opens(seal, &check) {
        return Err(StoreError::Seal { pointer: "seal_check".to_owned() });
    }
    Ok((Incarnation::from(row.incarnation), check))
}

/// True if the key opens the known text.
pub(crate) fn opens(seal: &SealKey, check: &[u8]) -> bool {
    seal.open(&seal_check_place(), check).is_ok_and(|text| text.as_slice() == SEAL_CHECK)
}

/// One connection outside of a store's pool.
pub(crate) async fn connect(url: &str) -> Result<PgConnection, StoreError> {
    let options = PgConnectOptions::from_str(url)?.application_name("basalt-region");
    Ok(connect_alone(&options).await?)
}

async fn connect_alone(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let connected = tokio::time::timeout(CONNECT_WITHIN, options.connect()).await;
    connected.unwrap_or_else(|_| {
        let seconds = CONNECT_WITHIN.as_secs();
        let silent = format!("PostgreSQL does not answer within {seconds} s");
        Err(std::io::Error::new(std::io::ErrorKind::TimedOut, silent).into())
    })
}

/// The cause of an error. `PoolTimedOut` hides the reason of each failed connection: one more connection shows it.
async fn cause(options: &PgConnectOptions, error: sqlx::Error) -> sqlx::Error {
    match error {
        sqlx::Error::PoolTimedOut => connect_alone(options).await.err().unwrap_or(error),
        error => error,
    }
}
