//! Wake-ups of many objects at once: of a kind, and by the periodic scan.
//!
//! A settled object changes only when something that it depends on changes. In a large fleet almost all objects are settled. Their wake-ups
//! are spread over time, and each scan takes only a part of these objects. Objects that are not settled never wait.

use crate::{Store, StoreError};

/// The number of scans after which every settled object was in one. A power of two. Some changes wake nothing, for example the lease of an
/// interface that is not declared; the scan finds them.
pub const TURNS: u8 = 8;

/// Seconds after which every object in the queue is handled again, whatever pause was planned.
const LONGEST_PAUSE: f64 = 300.0;

/// The longest lease without an extension, in seconds.
const LONGEST_LEASE: f64 = 60.0;

impl Store {
    /// Wakes every object of a kind. Settled ones are woken at a pace: all within five minutes.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn enqueue_kind(&self, kind: &str) -> Result<(), StoreError> {
        let trace = crate::trace::current();
        let wake = sqlx::query!(
            "select from wake(array(select uid from object where kind = $1), $2)",
            kind,
            trace.as_deref()
        );
        wake.execute(self.pool()).await?;
        self.touched();
        Ok(())
    }

    /// Puts every object of the reconciled kinds into the queue, settled ones at a pace. A region does this when it starts: it may render
    /// other things from the same objects, and wake-ups may have been lost while no region ran.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn enqueue_all(&self) -> Result<u64, StoreError> {
        self.shorten().await?;
        let insert = sqlx::query!(
            "insert into reconcile_queue (kind, object, not_before)
             select kind, object, not_before from paced(array(select uid from object where kind = any($1)))
             order by object on conflict do nothing",
            self.worked_on()
        );
        let rows = insert.execute(self.pool()).await?.rows_affected();
        self.touched();
        Ok(rows)
    }

    /// The periodic scan, which repairs missed wake-ups. Puts every object that is not settled into the queue, and those settled ones whose
    /// turn it is. Each settled object has one of [`TURNS`] turns.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn enqueue_turn(&self, turn: u8) -> Result<u64, StoreError> {
        self.shorten().await?;
        let insert = sqlx::query!(
            "insert into reconcile_queue (kind, object)
             select kind, uid from object_settled
             where kind = any($1) and (not settled or (hashtext(uid::text) & ($2 - 1)) = $3)
             order by uid on conflict do nothing",
            self.worked_on(),
            i32::from(TURNS),
            i32::from(turn)
        );
        let rows = insert.execute(self.pool()).await?.rows_affected();
        self.touched();
        Ok(rows)
    }

    /// Limits leases to [`LONGEST_LEASE`] and pauses to [`LONGEST_PAUSE`] from now. After the database's clock went back, they would last
    /// too long.
    async fn shorten(&self) -> Result<(), StoreError> {
        let shorten = sqlx::query!(
            "with far as (
               select kind, object from reconcile_queue
               where not_before > now() + make_interval(secs => $1) or lease_until > now() + make_interval(secs => $2)
               order by object for update skip locked)
             update reconcile_queue q
             set not_before = least(q.not_before, now() + make_interval(secs => $1)),
                 lease_until = case when q.lease_until is not null
                   then least(q.lease_until, now() + make_interval(secs => $2)) end
             from far where q.kind = far.kind and q.object = far.object",
            LONGEST_PAUSE,
            LONGEST_LEASE
        );
        shorten.execute(self.pool()).await?;
        Ok(())
    }
}
