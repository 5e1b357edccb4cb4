//! Events: requests of people, the region's actions, and the states of objects at the time.
//!
//! Events are stored in the transaction of their cause (migration 0048): writes with the audit log, steps with their records, phases and
//! stalls where they are counted.

use crate::change::passed_by_all;
use crate::object::timestamp;
use crate::{Store, StoreError};
use basalt_api::values::{Timestamp, Uid};

/// The largest number of events that one query examines. If few of them match, the reader continues after the last one.
const LOOKED_AT: i64 = 5000;

/// The number of days for which events are kept.
const DAYS: i32 = 30;

/// A stored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The event's number. Numbers rise, with gaps.
    pub id: i64,
    /// The time of the event, by the database's clock.
    pub at: Timestamp,
    /// `written`, `began`, `ended`, `phase`, `stalled` or `left`.
    pub what: String,
    /// The object's kind.
    pub kind: String,
    /// The object; `None` for things that are no objects, like blobs.
    pub uid: Option<Uid>,
    /// The object's name at that time.
    pub name: String,
    /// The name of the step or of the change.
    pub words: String,
    /// The cause, for people.
    pub detail: Option<String>,
    /// The actor: `user NAME`, `token NAME`, `region`.
    pub actor: String,
}

/// A filter of events.
#[derive(Clone, Debug, Default)]
pub struct EventQuery<'a> {
    /// Events of these kinds. `None`: of all kinds.
    pub kinds: Option<&'a [String]>,
    /// Events of the object with this uid.
    pub uid: Option<Uid>,
    /// Events at or after this time.
    pub since: Option<Timestamp>,
    /// The pools of a reader who sees only some pools. Events of the kinds in `hidden`, and of objects that are gone, are left out then.
    pub pools: Option<&'a [String]>,
    /// Kinds that such a reader does not see.
    pub hidden: &'a [&'a str],
}

/// Events in their order, and the place where the query stopped.
#[derive(Clone, Debug)]
pub struct EventPage {
    /// Events, in the order of their numbers.
    pub events: Vec<Event>,
    /// The id after which the next page begins; `None` at the end.
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

/// The page for these rows. `next` is set if there are more than `limit` events, or if the query has examined `LOOKED_AT` events.
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

    /// An id below which no event can appear any more: all events up to it are committed or rolled back. If no id after `known` was
    /// drawn, it returns at once and draws no transaction id of its own.
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

    /// Deletes old events.
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
