//! What is measured of the store, for whoever asks now.

use crate::{Store, StoreError};

/// Objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindGauge {
    /// The kind.
    pub kind: String,
    /// How many there are.
    pub objects: i64,
}

/// The reconcile queue of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueGauge {
    /// The kind.
    pub kind: String,
    /// Objects in the queue.
    pub waiting: i64,
    /// Those that are due and nobody handles.
    pub due: i64,
    /// Those that somebody handles.
    pub leased: i64,
    /// Since how many seconds the oldest of those has been due.
    pub oldest_due: f64,
}

/// Objects of one kind in one phase.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseGauge {
    /// The kind.
    pub kind: String,
    /// The phase; empty for kinds that have none.
    pub phase: String,
    /// How many there are.
    pub objects: i64,
    /// Those of them that only a person gets on.
    pub stalled: i64,
    /// Since how many seconds the one has been in it that has been longest.
    pub longest: f64,
}

/// Objects of one kind that cannot be worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingGauge {
    /// The kind.
    pub kind: String,
    /// How many there are.
    pub objects: i64,
}

impl Store {
    /// How many objects are in each phase.
    ///
    /// # Errors
    /// The database.
    pub async fn phase_gauges(&self) -> Result<Vec<PhaseGauge>, StoreError> {
        let rows = sqlx::query_as!(
            PhaseGauge,
            r#"select kind, phase, count(*) as "objects!", count(*) filter (where stalled) as "stalled!",
                 extract(epoch from now() - min(since))::float8 as "longest!"
               from object_state group by kind, phase order by kind, phase"#
        );
        Ok(rows.fetch_all(self.pool()).await?)
    }

    /// How many objects could not be worked on when it was tried last.
    ///
    /// # Errors
    /// The database.
    pub async fn failing_gauges(&self) -> Result<Vec<FailingGauge>, StoreError> {
        let rows = sqlx::query_as!(
            FailingGauge,
            r#"select kind, count(*) as "objects!" from reconcile_queue where error is not null group by kind order by kind"#
        );
        Ok(rows.fetch_all(self.pool()).await?)
    }

    /// How many objects there are of each kind that has any.
    ///
    /// # Errors
    /// The database.
    pub async fn kind_gauges(&self) -> Result<Vec<KindGauge>, StoreError> {
        let rows = sqlx::query_as!(
            KindGauge,
            r#"select kind, count(*) as "objects!" from object group by kind order by kind"#
        );
        Ok(rows.fetch_all(self.pool()).await?)
    }

    /// The reconcile queue, of each kind that is in it.
    ///
    /// # Errors
    /// The database.
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
