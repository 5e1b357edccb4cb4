//! The change log, and the one follower that reads it without skipping.
//!
//! A position is an identity that is drawn after the object's row was written. Identities are drawn inside transactions, so
//! they commit out of order: a reader of "everything after the last one seen" skips a position that commits late. The follower
//! reads `h`, the last identity drawn; then, in another statement, draws a transaction id `y`. A transaction that drew an identity
//! up to `h` has written a row before, so its id is below `y`. Once no transaction below `y` runs, all positions up to `h` are
//! committed or rolled back, and can be delivered.
//!
//! `change_log.left_pool`, written by a trigger, is the pool that an object left. A watch that showed the object in that pool reports a
//! deletion; other watches report nothing.

use crate::object::{Row, unsigned};
use crate::store::Tx;
use crate::{Store, StoreError};
use basalt_api::values::{Generation, Uid};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{broadcast, watch};

/// The type of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The spec, labels or name changed, or deletion was requested.
    Put,
    /// The status changed.
    Status,
    /// The object was deleted.
    Delete,
}

impl Op {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Status => "status",
            Self::Delete => "delete",
        }
    }

    fn parse(text: &str) -> Self {
        match text {
            "delete" => Self::Delete,
            "status" => Self::Status,
            _ => Self::Put,
        }
    }
}

/// One committed change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The position in the log. Positions rise, with gaps.
    pub position: i64,
    /// The object's uid.
    pub uid: Uid,
    /// The object's kind.
    pub kind: String,
    /// The object's name at that time.
    pub name: String,
    /// The type of the change.
    pub op: Op,
    /// The object's generation at that time.
    pub generation: Generation,
    /// The trace in which the change was made.
    pub trace: Option<String>,
}

/// Appends a change to the log. The object's row must have been written before.
pub(crate) async fn record(tx: &mut Tx, row: &Row, op: Op) -> Result<(), StoreError> {
    record_all(tx, std::slice::from_ref(row), op).await
}

/// Appends the changes of several objects, in their order.
pub(crate) async fn record_all(tx: &mut Tx, rows: &[Row], op: Op) -> Result<(), StoreError> {
    let uids: Vec<uuid::Uuid> = rows.iter().map(|row| row.uid).collect();
    let kinds: Vec<String> = rows.iter().map(|row| row.kind.clone()).collect();
    let names: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
    let generations: Vec<i64> = rows.iter().map(|row| row.generation).collect();
    let insert = sqlx::query!(
        "insert into change_log (object, kind, name, op, generation)
         select o, k, n, $4, g from unnest($1::uuid[], $2::text[], $3::text[], $5::bigint[])
           with ordinality u(o, k, n, g, at) order by at",
        &uids,
        &kinds,
        &names,
        op.as_str(),
        &generations
    );
    insert.execute(&mut **tx).await?;
    Ok(())
}

/// The pause between two checks whether transactions older than the horizon still run.
const HORIZON_POLL: Duration = Duration::from_millis(2);
/// The longest interval of this poll. It grows while a transaction does not end.
const HORIZON_SLOW: Duration = Duration::from_millis(64);
/// Interval of messages about a transaction that does not end.
const HORIZON_TOLD: Duration = Duration::from_secs(10);

/// The longest wait for a wake-up, in case one was lost.
const LOOK_ANYWAY: Duration = Duration::from_secs(1);

/// The number of changes that are kept for a slow subscriber.
const BUFFER: usize = 4096;

/// The number of changes per statement. Several pages fit into [`BUFFER`] before a subscriber lags.
const PAGE: i64 = 1000;

/// A region's one reader of the log, which hands changes to any number of subscribers in memory.
#[derive(Clone, Debug)]
pub struct Follower {
    sender: broadcast::Sender<Arc<Change>>,
    position: Arc<watch::Sender<i64>>,
}

impl Follower {
    /// Starts following from now on. It ends with the store.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn start(store: &Store) -> Result<Self, StoreError> {
        let (sender, _) = broadcast::channel(BUFFER);
        let mut woken = store.woken();
        woken.mark_unchanged();
        let start = safe_horizon(store).await?;
        let this = Self { sender, position: Arc::new(watch::Sender::new(start)) };
        let (follower, store) = (this.clone(), store.clone());
        tokio::spawn(async move {
            while !store.pool().is_closed() {
                let _ = tokio::time::timeout(LOOK_ANYWAY, woken.changed()).await;
                woken.mark_unchanged();
                match follower.deliver(&store).await {
                    Ok(()) => {}
                    // The store was closed: this process is ending.
                    Err(_) if store.pool().is_closed() => return,
                    Err(error) => {
                        tracing::warn!(%error, "cannot read the change log; trying again");
                        tokio::time::sleep(LOOK_ANYWAY).await;
                    }
                }
            }
        });
        Ok(this)
    }

    /// Subscribes to the changes delivered from now on. A subscriber that is more than 4096 changes behind gets an error, and must read
    /// its objects again.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Change>> {
        self.sender.subscribe()
    }

    /// All changes up to this position are delivered; a read from now on contains them.
    #[must_use]
    pub fn position(&self) -> i64 {
        *self.position.borrow()
    }

    /// A receiver of [`Self::position()`], for callers that wait for it to rise.
    #[must_use]
    pub fn positions(&self) -> watch::Receiver<i64> {
        self.position.subscribe()
    }

    async fn deliver(&self, store: &Store) -> Result<(), StoreError> {
        let last = self.position();
        if last_drawn(store).await? <= last {
            return Ok(());
        }
        let horizon = safe_horizon(store).await?;
        let mut after = last;
        loop {
            let page = read(store, after, horizon).await?;
            let Some(end) = page.last().map(|change| change.position) else { break };
            for change in page {
                // An error means that there are no subscribers.
                let _ = self.sender.send(Arc::new(change));
            }
            self.position.send_replace(end);
            after = end;
        }
        self.position.send_replace(horizon);
        Ok(())
    }
}

impl Store {
    /// The last position that any transaction has drawn, committed or not.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn last_position(&self) -> Result<i64, StoreError> {
        last_drawn(self).await
    }
}

async fn last_drawn(store: &Store) -> Result<i64, StoreError> {
    let query = sqlx::query_scalar!(
        r#"select case when is_called then last_value else 0 end as "last!" from change_log_seq_seq"#
    );
    Ok(query.fetch_one(store.pool()).await?)
}

/// A position up to which all transactions have committed or rolled back.
async fn safe_horizon(store: &Store) -> Result<i64, StoreError> {
    let horizon = last_drawn(store).await?;
    passed_by_all(store).await?;
    Ok(horizon)
}

/// Waits until every transaction that runs now has ended.
pub(crate) async fn passed_by_all(store: &Store) -> Result<(), StoreError> {
    let fence = sqlx::query_scalar!(r#"select pg_current_xact_id()::text as "fence!""#);
    let fence = fence.fetch_one(store.pool()).await?;
    let (mut poll, mut told) = (HORIZON_POLL, Instant::now());
    loop {
        let passed = sqlx::query_scalar!(
            r#"select pg_snapshot_xmin(pg_current_snapshot()) >= $1::text::xid8 as "passed!""#,
            fence
        );
        if passed.fetch_one(store.pool()).await? {
            return Ok(());
        }
        if told.elapsed() >= HORIZON_TOLD {
            told = Instant::now();
            tell_oldest(store).await?;
        }
        tokio::time::sleep(poll).await;
        poll = (poll * 2).min(HORIZON_SLOW);
    }
}

/// Says which transaction every watch waits for: it may be of another program that uses the same PostgreSQL.
async fn tell_oldest(store: &Store) -> Result<(), StoreError> {
    let oldest = sqlx::query!(
        r#"select pid, coalesce(usename, '') as "user!", coalesce(application_name, '') as "program!",
             coalesce(state, '') as "state!", extract(epoch from now() - xact_start)::float8 as age
           from pg_stat_activity where backend_xid is not null and pid <> pg_backend_pid()
           order by xact_start limit 1"#
    );
    match oldest.fetch_optional(store.pool()).await? {
        Some(it) => tracing::warn!(
            pid = it.pid,
            user = it.user,
            program = it.program,
            state = it.state,
            seconds = it.age,
            "watches wait for a transaction of PostgreSQL that does not end: end it, or stop its program"
        ),
        None => tracing::warn!(
            "watches wait for a transaction of PostgreSQL of another account, or a prepared one: see pg_stat_activity and pg_prepared_xacts"
        ),
    }
    Ok(())
}

async fn read(store: &Store, after: i64, through: i64) -> Result<Vec<Change>, StoreError> {
    let rows = sqlx::query!(
        "select seq, object, kind, name, op, generation, trace from change_log where seq > $1 and seq <= $2
         order by seq limit $3",
        after,
        through,
        PAGE
    );
    let rows = rows.fetch_all(store.pool()).await?;
    let change = |position, object, kind, name, op: String, generation, trace| Change {
        position,
        uid: Uid::from(object),
        kind,
        name,
        op: Op::parse(&op),
        generation: Generation::new(unsigned(generation)),
        trace,
    };
    Ok(rows
        .into_iter()
        .map(|r| change(r.seq, r.object, r.kind, r.name, r.op, r.generation, r.trace))
        .collect())
}
