//! Events: what people asked for, what the region did about it, and how objects stood then.
//!
//! The transaction that does something notes it (migration 0048): writes by way of the audit log, steps by way of their records,
//! phases and stalls where they are counted.

use crate::change::passed_by_all;
use crate::object::timestamp;
use crate::{Store, StoreError};
use basalt_api::values::{Timestamp, Uid};

/// Events that one query looks at, at most. A reader who sees few of them goes on from there.
const LOOKED_AT: i64 = 5000;

/// Days that events are kept.
const DAYS: i32 = 30;

/// A stored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Rises; has gaps.
    pub id: i64,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// `written`, `began`, `ended`, `phase`, `stalled` or `left`.
    pub what: String,
    /// Kind of the object.
    pub kind: String,
    /// The object; none for what is no object, like a blob.
    pub uid: Option<Uid>,
    /// Its name then.
    pub name: String,
    /// The name of the step, or of the change.
    pub words: String,
    /// The cause, for people.
    pub detail: Option<String>,
    /// The actor: `user NAME`, `token NAME`, `region`.
    pub actor: String,
}

/// A selection of events.
#[derive(Clone, Debug, Default)]
pub struct EventQuery<'a> {
    /// Kinds. `None`: all kinds.
    pub kinds: Option<&'a [String]>,
    /// The uid of one object.
    pub uid: Option<Uid>,
    /// Not older than this.
    pub since: Option<Timestamp>,
    /// Pools of a reader who sees some pools alone. The kinds in `hidden` are left out. Then what has left is not told of.
    pub pools: Option<&'a [String]>,
    /// Kinds that such a reader does not see.
    pub hidden: &'a [&'a str],
}

/// Events in their order, and how far the query has looked.
#[derive(Clone, Debug)]
pub struct EventPage {
    /// Events, in the order of their numbers.
    pub events: Vec<Event>,
    /// The id to go on from; `None`: there is nothing more.
    pub next: Option<i64>,
}

struct Row {
    id: Option<i64>,
    at_us: Option<i64>,
    what: Option<String>,
    kind: Option<String>,
    object: Option<uuid::Uuid>,
    name: Option<String>,
    words: Option<String>,
    detail: Option<String>,
    actor: Option<String>,
    last: Option<i64>,
    seen: i64,
}

impl Row {
    fn event(self) -> Result<Option<Event>, StoreError> {
        let (Some(id), Some(at)) = (self.id, self.at_us) else { return Ok(None) };
        Ok(Some(Event {
            id,
            at: timestamp(at)?,
            what: self.what.unwrap_or_default(),
            kind: self.kind.unwrap_or_default(),
            uid: self.object.map(Uid::from),
            name: self.name.unwrap_or_default(),
            words: self.words.unwrap_or_default(),
            detail: self.detail,
            actor: self.actor.unwrap_or_default(),
        }))
    }
}

/// The events of rows; and the id to go on from, where there is more than `limit`, or where the query has looked at all it may.
fn page(rows: Vec<Row>, limit: i64) -> Result<EventPage, StoreError> {
    let looked = rows.first().and_then(|row| row.last.filter(|_| row.seen >= LOOKED_AT));
    let mut events =
        rows.into_iter().filter_map(|row| row.event().transpose()).collect::<Result<Vec<_>, _>>()?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = events.len() > limit;
    events.truncate(limit);
    let next = if more { events.last().map(|event| event.id) } else { looked };
    Ok(EventPage { events, next })
}

impl Store {
    /// The newest events before an id, the newest first.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn events_before(
        &self,
        query: &EventQuery<'_>,
        before: Option<i64>,
        limit: i64,
    ) -> Result<EventPage, StoreError> {
        let rows = sqlx::query_as!(
            Row,
            r#"with looked as materialized (
                 select * from event
                 where ($1::text[] is null or kind = any($1)) and ($2::uuid is null or object = $2)
                   and ($3::bigint is null or at >= to_timestamp($3::bigint / 1000000.0)) and ($6::bigint is null or id < $6)
                 order by id desc limit $8
               ), shown as (
                 select l.* from looked l left join object o on o.uid = l.object
                 where $4::text[] is null or (o.uid is not null and l.kind <> all($5)
                   and (l.kind not in ('Machine', 'Deployment') or object_pool(o.kind, o.uid, o.spec) = any($4)))
                 order by l.id desc limit $7
               )
               select s.id as "id?", (extract(epoch from s.at) * 1000000)::bigint as "at_us?", s.what as "what?",
                 s.kind as "kind?", s.object as "object?", s.name as "name?", s.words as "words?",
                 s.detail as "detail?", s.actor as "actor?", m.last, m.seen as "seen!"
               from (select min(id) as last, count(*) as seen from looked) m left join shown s on true
               order by s.id desc"#,
            query.kinds as Option<&[String]>,
            query.uid.map(|uid| uid.get()),
            query.since.map(|at| at.as_microsecond()),
            query.pools as Option<&[String]>,
            &query.hidden(),
            before,
            limit.saturating_add(1),
            LOOKED_AT
        );
        page(rows.fetch_all(self.pool()).await?, limit)
    }

    /// The events after an id, up to another, in the order of their ids.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn events_after(
        &self,
        query: &EventQuery<'_>,
        (after, through): (i64, i64),
        limit: i64,
    ) -> Result<EventPage, StoreError> {
        let rows = sqlx::query_as!(
            Row,
            r#"with looked as materialized (
                 select * from event
                 where ($1::text[] is null or kind = any($1)) and ($2::uuid is null or object = $2)
                   and ($3::bigint is null or at >= to_timestamp($3::bigint / 1000000.0)) and id > $6 and id <= $9
                 order by id asc limit $8
               ), shown as (
                 select l.* from looked l left join object o on o.uid = l.object
                 where $4::text[] is null or (o.uid is not null and l.kind <> all($5)
                   and (l.kind not in ('Machine', 'Deployment') or object_pool(o.kind, o.uid, o.spec) = any($4)))
                 order by l.id asc limit $7
               )
               select s.id as "id?", (extract(epoch from s.at) * 1000000)::bigint as "at_us?", s.what as "what?",
                 s.kind as "kind?", s.object as "object?", s.name as "name?", s.words as "words?",
                 s.detail as "detail?", s.actor as "actor?", m.last, m.seen as "seen!"
               from (select max(id) as last, count(*) as seen from looked) m left join shown s on true
               order by s.id asc"#,
            query.kinds as Option<&[String]>,
            query.uid.map(|uid| uid.get()),
            query.since.map(|at| at.as_microsecond()),
            query.pools as Option<&[String]>,
            &query.hidden(),
            after,
            limit.saturating_add(1),
            LOOKED_AT,
            through
        );
        page(rows.fetch_all(self.pool()).await?, limit)
    }

    /// An id up to which all events are committed or rolled back: none comes later. If no id after `known` was drawn, it answers at
    /// once, without a transaction id of its own.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn event_horizon(&self, known: i64) -> Result<i64, StoreError> {
        let last = sqlx::query_scalar!(
            r#"select case when is_called then last_value else 0 end as "last!" from event_id_seq"#
        );
        let last = last.fetch_one(self.pool()).await?;
        if last <= known {
            return Ok(last);
        }
        passed_by_all(self).await?;
        Ok(last)
    }

    /// Forgets old events.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn forget_events(&self) -> Result<(), StoreError> {
        let delete = sqlx::query!("delete from event where at < now() - make_interval(days => $1)", DAYS);
        delete.execute(self.pool()).await?;
        Ok(())
    }
}

impl EventQuery<'_> {
    fn hidden(&self) -> Vec<String> {
        self.hidden.iter().map(|kind| (*kind).to_owned()).collect()
    }
}
