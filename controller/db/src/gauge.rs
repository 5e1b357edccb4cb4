//! Measurements of the store, computed on request.

use crate::{Store, StoreError};

/// The number of objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindGauge {
    /// The kind of the objects.
    pub kind: String,
    /// The number of objects.
    pub objects: i64,
}

/// The reconcile queue of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueGauge {
    /// The kind of the objects.
    pub kind: String,
    /// Objects in the queue.
    pub waiting: i64,
    /// Objects that are due and not leased.
    pub due: i64,
    /// Objects that a process handles.
    pub leased: i64,
    /// Seconds since the oldest object that is not leased became due.
    pub oldest_due: f64,
}

/// Objects of one kind in one phase.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseGauge {
    /// The kind of the objects.
    pub kind: String,
    /// The phase; empty for kinds that have none.
    pub phase: String,
    /// The number of objects.
    pub objects: i64,
    /// Those of them that only a person can get out of the phase.
    pub stalled: i64,
    /// The longest time that one of them has been in the phase, in seconds.
    pub longest: f64,
}

/// The number of objects of one kind whose last handling failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingGauge {
    /// The kind of the objects.
    pub kind: String,
    /// The number of objects.
    pub objects: i64,
}

impl Store {
    /// How many objects are in each phase.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn phase_gauges(&self) -> Result<Vec<PhaseGauge>, StoreError> {
        let rows = sqlx::query_as!(
            PhaseGauge,
            r#"select kind, phase, count(*) as "objects!", count(*) filter (where stalled) as "stalled!",
                 extract(epoch from now() - min(since))::float8 as "longest!"
               from object_state group by kind, phase order by kind, phase"#
        );
        Ok(rows.fetch_all(self.pool()).await?)
    }

    /// The number of objects per kind whose last handling failed.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn failing_gauges(&self) -> Result<Vec<FailingGauge>, StoreError> {
        let rows = sqlx::query_as!(
            FailingGauge,
            r#"select kind, count(*) as "objects!" from reconcile_queue where error is not null group by kind order by kind"#
        );
        Ok(rows.fetch_all(self.pool()).await?)
    }

    /// The number of objects of each kind that has any.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn kind_gauges(&self) -> Result<Vec<KindGauge>, StoreError> {
        let rows = sqlx::query_as!(
            KindGauge,
            r#"select kind, count(*) as "objects!" from object group by kind order by kind"#
        );
        Ok(rows.fetch_all(self.pool()).await?)
    }

    /// The reconcile queue, per kind in it.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn queue_gauges(&self) -> Result<Vec<QueueGauge>, StoreError> {
        let rows = sqlx::query_as!(
            QueueGauge,
            r#"select kind, count(*) as "waiting!",
                 count(*) filter (where free and not_before <= now()) as "due!",
                 count(*) filter (where not free) as "leased!",
                 coalesce(extract(epoch from now() - min(not_before) filter (where free and not_before <= now())), 0)::float8
                   as "oldest_due!"
               from (select kind, not_before, lease_until is null or lease_until < now() as free from reconcile_queue) q
               group by kind order by kind"#
        );
        Ok(rows.fetch_all(self.pool()).await?)
    }
}
