//! The change log for watchers: the objects that changed between two positions, in their present state; and the start of the log.

use crate::object::{Object, Row};
use crate::{Store, StoreError};
use basalt_api::values::Uid;
use std::time::Duration;

/// The number of rows that one statement of a compaction reads.
const COMPACT_AT_ONCE: i64 = 20_000;

/// An object that changed.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The position of the change.
    pub position: i64,
    /// The position of the last change that `object` contains. It may be after the page. It orders two readings of one object.
    pub version: i64,
    /// The object's uid.
    pub uid: Uid,
    /// The object's kind.
    pub kind: String,
    /// The object's name at `position`.
    pub name: String,
    /// The object's present state; `None` if it was deleted.
    pub object: Option<Object>,
    /// The object's present pool, by which roles are limited.
    pub pool: Option<String>,
    /// The pool that the object left by this change.
    pub left: Option<String>,
}

/// A page of changes, in the order of positions: of each object its last change, and its changes of pool.
#[derive(Clone, Debug)]
pub struct ChangedPage {
    /// The changes of the page.
    pub changed: Vec<Changed>,
    /// The page is complete up to this position.
    pub through: i64,
}

impl Store {
    /// The changes after `after`, up to `through` (which the follower has passed), of these kinds or of all. A page reads at most
    /// `limit` positions. One statement reads positions and objects, so that they belong together.
    ///
    /// A page has an object's last change, and each change by which the object left a pool: a watcher that resumes between the two
    /// already knows that the object left.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn changed(
        &self,
        after: i64,
        through: i64,
        kinds: Option<&[String]>,
        limit: i64,
    ) -> Result<ChangedPage, StoreError> {
        let rows = sqlx::query!(
            r#"with page as (
                 select seq, object, kind, name, left_pool, lead(seq) over (partition by object order by seq) is null as is_last
                 from (select seq, object, kind, name, left_pool from change_log
                       where seq > $1 and seq <= $2 and ($3::text[] is null or kind = any($3)) order by seq limit $4) rows
               )
               select l.seq as "seq!", l.object as "uid!", l.kind as "kind!", l.name as "name!",
                 (select max(c.seq) from change_log c where c.object = l.object) as "version!",
                 l.left_pool,
                 object_pool(o.kind, o.uid, o.spec) as pool,
                 (select count(*) from page) as "rows!", (select max(seq) from page) as "end!",
                 o.name as "now_called?", o.manager as "manager?", o.labels as "labels?", o.spec::text as spec,
                 o.status::text as status, o.generation as "generation?", o.observed_generation as "observed?",
                 (extract(epoch from o.created_at) * 1000000)::bigint as created_us,
                 (extract(epoch from o.updated_at) * 1000000)::bigint as updated_us,
                 (extract(epoch from o.deletion_requested_at) * 1000000)::bigint as deletion_us
               from page l left join object o on o.uid = l.object
               where l.is_last or l.left_pool is not null order by l.seq"#,
            after,
            through,
            kinds,
            limit
        );
        let rows = rows.fetch_all(self.pool()).await?;
        let through = rows.first().filter(|r| r.rows >= limit).map_or(through, |r| r.end);
        let mut changed = Vec::with_capacity(rows.len());
        for r in rows {
            let object = match (r.now_called, r.labels, r.spec, r.status) {
                (Some(name), Some(labels), Some(spec), Some(status)) => {
                    let row = Row {
                        uid: r.uid,
                        kind: r.kind.clone(),
                        name,
                        manager: r.manager,
                        labels,
                        spec,
                        status,
                        generation: r.generation.unwrap_or_default(),
                        observed_generation: r.observed.unwrap_or_default(),
                        created_us: r.created_us.unwrap_or_default(),
                        updated_us: r.updated_us.unwrap_or_default(),
                        deletion_us: r.deletion_us,
                    };
                    Some(row.object()?)
                }
                _ => None,
            };
            let (uid, kind, name) = (Uid::from(r.uid), r.kind, r.name);
            let (pool, left) = (r.pool, r.left_pool);
            changed.push(Changed {
                position: r.seq,
                version: r.version,
                uid,
                kind,
                name,
                object,
                pool,
                left,
            });
        }
        Ok(ChangedPage { changed, through })
    }

    /// True if the declaration or the name of one of these objects has changed after `after`.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn changed_since(&self, after: i64, objects: &[Uid]) -> Result<bool, StoreError> {
        let objects: Vec<uuid::Uuid> = objects.iter().map(|uid| uid.get()).collect();
        let query = sqlx::query_scalar!(
            r#"select exists (select from change_log where object = any($1) and seq > $2 and op <> 'status') as "changed!""#,
            &objects,
            after
        );
        Ok(query.fetch_one(self.pool()).await?)
    }

    /// The position up to which the log was compacted: a watcher cannot resume from an earlier one. Read it after a page: if it is
    /// then after the start of the page, the page may lack changes.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn compacted_through(&self) -> Result<i64, StoreError> {
        let query = sqlx::query_scalar!("select compacted_through from region_meta");
        Ok(query.fetch_one(self.pool()).await?)
    }

    /// Deletes changes older than `keep`, and all but about the last `rows`. Any region may call it at any time: no follower of a region
    /// is as far behind as these limits.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn compact_changes(&self, keep: Duration, rows: i64) -> Result<(), StoreError> {
        loop {
            let compact = sqlx::query_scalar!(
                r#"with oldest as (
                     select seq, at from change_log order by seq limit $3
                   ), bound as (
                     select max(seq) as seq from oldest
                     where at < now() - make_interval(secs => $1)
                        or seq <= (select last_value from change_log_seq_seq) - $2
                   ), gone as (
                     delete from change_log where seq <= (select seq from bound)
                   ), noted as (
                     update region_meta m set compacted_through = greatest(m.compacted_through, b.seq)
                     from bound b where b.seq is not null
                   )
                   select count(*) as "looked_at!" from oldest where seq <= (select seq from bound)"#,
                keep.as_secs_f64(),
                rows,
                COMPACT_AT_ONCE
            );
            if compact.fetch_one(self.pool()).await? < COMPACT_AT_ONCE {
                return Ok(());
            }
        }
    }
}
