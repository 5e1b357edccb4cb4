//! The audit log: the actor of each change, the request's address, and the object before and after.
//!
//! A [`Store`] that acts for somebody ([`Store::acting`]) adds one entry for each object that a call writes, in the transaction
//! of the write: neither exists without the other. A store without an actor does the region's own work, which facts and step
//! records document. A write that changes nothing, for example a spec that is stored already byte for byte, adds no entry.
//!
//! | what is written | before and after |
//! | --- | --- |
//! | a spec | the specs, sensitive values masked; no spec before a creation, none after a deletion |
//! | labels and manager of an object that was there | `{"manager", "labels"}`, an entry of their own |
//! | a manager's layer | `{"layer": {MANAGER: {"labels", "tags"}}}`; null where there is none |
//! | a name | `{"name"}`; VLANs that follow their fabric have entries of their own |
//! | an operation | `{"operation"}`: its verb; none before |
//! | an ApiToken's text | `{"issued_at"}`; null where there is none |
//! | a session | `{"session": "opened"}`, `{"session": "closed"}` |
//! | dead letters | `{"failed", "disabled"}`: how many, and why the webhook is disabled |
//! | a join token, a blob | the request; they are never changed |

use crate::object::{Row, timestamp, unsigned};
use crate::store::Tx;
use crate::{Store, StoreError};
use basalt_api::values::{Generation, Timestamp, Uid};
use basalt_api::{Kind, has_sensitive, masked_write};
use serde_json::Value;
use serde_json::value::RawValue;

/// The author of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// `token NAME`, `user NAME`, `peer uid 0`, `rack NAME`.
    pub name: String,
    /// The network address from which the request came.
    pub address: String,
    /// The request's method and path, as in the table of endpoints: `PUT /api/v1/{plural}/{name}`.
    pub request: String,
}

/// One entry of the log.
#[derive(Clone, Debug)]
pub struct AuditEntry {
    /// The entry's number. Numbers rise, with gaps.
    pub id: i64,
    /// The time of the write, by the database's clock.
    pub at: Timestamp,
    /// The author, address and request of the write.
    pub actor: Actor,
    /// The kind of the written thing.
    pub kind: String,
    /// The object; `None` for things that are no objects, like blobs.
    pub uid: Option<Uid>,
    /// The object's name at that time.
    pub name: String,
    /// The object's generation after the write.
    pub generation: Option<Generation>,
    /// The spec before the write, secrets in read form; or the other value that changed.
    pub before: Option<Box<RawValue>>,
    /// The same value after the write.
    pub after: Option<Box<RawValue>>,
}

/// A filter of entries; each field that is set must match.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditQuery<'a> {
    /// Entries at or after this time.
    pub since: Option<Timestamp>,
    /// Entries of this object, under any name.
    pub uid: Option<Uid>,
    /// Entries of this kind.
    pub kind: Option<&'a str>,
    /// Entries of objects that had this name at the time.
    pub name: Option<&'a str>,
    /// Entries of this actor.
    pub actor: Option<&'a str>,
    /// Entries with a lower number than this.
    pub before_id: Option<i64>,
    /// The number of entries per page; at most 1000.
    pub limit: i64,
}

/// A page of entries, the newest first.
#[derive(Clone, Debug)]
pub struct AuditPage {
    /// The entries of the page.
    pub entries: Vec<AuditEntry>,
    /// The value of `before_id` for the next page; `None` at the end.
    pub next: Option<i64>,
}

/// The effect of a write on one object.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) kind: String,
    pub(crate) uid: Option<Uid>,
    pub(crate) name: String,
    pub(crate) generation: Option<i64>,
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
}

impl Written {
    /// A written row, with its spec before the write.
    pub(crate) fn object(row: &Row, before: Option<String>) -> Self {
        let (before, after) = shown(&row.kind, before, Some(row.spec.clone()));
        Self { before, after, ..Self::about(row) }
    }

    /// A row whose deletion was requested.
    pub(crate) fn removal(row: &Row) -> Self {
        let (before, after) = shown(&row.kind, Some(row.spec.clone()), None);
        Self { before, after, ..Self::about(row) }
    }

    /// A change of something other than the spec, before and after.
    pub(crate) fn beside(row: &Row, before: &Value, after: &Value) -> Self {
        let text = |value: &Value| (!value.is_null()).then(|| value.to_string());
        Self { before: text(before), after: text(after), ..Self::about(row) }
    }

    /// A write of a thing that is no object.
    pub(crate) fn thing(kind: &str, name: &str, after: &Value) -> Self {
        let (kind, name) = (kind.to_owned(), name.to_owned());
        Self { kind, uid: None, name, generation: None, before: None, after: Some(after.to_string()) }
    }

    fn about(row: &Row) -> Self {
        Self {
            kind: row.kind.clone(),
            uid: Some(Uid::from(row.uid)),
            name: row.name.clone(),
            generation: Some(row.generation),
            before: None,
            after: None,
        }
    }
}

/// Specs as the log keeps them, with sensitive values masked. The log outlives objects, and more people may read it than may read
/// a deployment's user data.
fn shown(kind: &str, before: Option<String>, after: Option<String>) -> (Option<String>, Option<String>) {
    let Some(kind) = Kind::find(kind).filter(|kind| has_sensitive(kind)) else { return (before, after) };
    let spec = |text: &Option<String>| {
        text.as_deref().map_or(Value::Null, |t| serde_json::from_str(t).unwrap_or_default())
    };
    let (old, new) = masked_write(kind, &spec(&before), &spec(&after));
    (before.map(|_| old.to_string()), after.map(|_| new.to_string()))
}

impl Store {
    /// Adds the writes of a transaction to the log, if this store has an actor.
    pub(crate) async fn audit(&self, tx: &mut Tx, written: &[Written]) -> Result<(), StoreError> {
        let Some(actor) = self.actor().filter(|_| !written.is_empty()) else { return Ok(()) };
        let kinds: Vec<String> = written.iter().map(|w| w.kind.clone()).collect();
        let objects: Vec<Option<uuid::Uuid>> = written.iter().map(|w| w.uid.map(|u| u.get())).collect();
        let names: Vec<String> = written.iter().map(|w| w.name.clone()).collect();
        let generations: Vec<Option<i64>> = written.iter().map(|w| w.generation).collect();
        let befores: Vec<Option<String>> = written.iter().map(|w| w.before.clone()).collect();
        let afters: Vec<Option<String>> = written.iter().map(|w| w.after.clone()).collect();
        let insert = sqlx::query!(
            "insert into audit (actor, address, request, kind, object, name, generation, before, after)
             select $1, $2, $3, k, o, n, g, b::json, a::json
             from unnest($4::text[], $5::uuid[], $6::text[], $7::bigint[], $8::text[], $9::text[])
               with ordinality u(k, o, n, g, b, a, place) order by place",
            actor.name,
            actor.address,
            actor.request,
            &kinds,
            &objects as &[Option<uuid::Uuid>],
            &names,
            &generations as &[Option<i64>],
            &befores as &[Option<String>],
            &afters as &[Option<String>]
        );
        insert.execute(&mut **tx).await?;
        Ok(())
    }

    /// A page of the log.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn audit_page(&self, query: &AuditQuery<'_>) -> Result<AuditPage, StoreError> {
        let limit = query.limit.clamp(1, 1000);
        // The best index depends on the filters, so the query is planned for their values.
        let mut tx = self.begin_planning().await?;
        let rows = sqlx::query!(
            r#"select id, (extract(epoch from at) * 1000000)::bigint as "at_us!", actor, address, request, kind,
                      object, name, generation, before::text as before, after::text as after
               from audit
               where ($1::bigint is null or at >= to_timestamp($1::bigint / 1000000.0))
                 and (case when $2::uuid is null or $4::text is null
                        then ($2::uuid is null or object = $2) and ($3::text is null or kind = $3)
                             and ($4::text is null or name = $4)
                        else object = $2 or (kind = $3 and name = $4) end)
                 and ($5::text is null or actor = $5)
                 and ($6::bigint is null or id < $6)
               order by id desc limit $7"#,
            query.since.map(|at| at.as_microsecond()),
            query.uid.map(|u| u.get()),
            query.kind,
            query.name,
            query.actor,
            query.before_id,
            limit.saturating_add(1)
        );
        let mut rows = rows.fetch_all(&mut *tx).await?;
        drop(tx);
        let more = rows.len() > usize::try_from(limit).unwrap_or(usize::MAX);
        if more {
            rows.pop();
        }
        let next = if more { rows.last().map(|r| r.id) } else { None };
        let mut entries = Vec::with_capacity(rows.len());
        for row in rows {
            entries.push(AuditEntry {
                id: row.id,
                at: timestamp(row.at_us)?,
                actor: Actor { name: row.actor, address: row.address, request: row.request },
                kind: row.kind,
                uid: row.object.map(Uid::from),
                name: row.name,
                generation: row.generation.map(|g| Generation::new(unsigned(g))),
                before: row.before.map(crate::object::raw).transpose()?,
                after: row.after.map(crate::object::raw).transpose()?,
            });
        }
        Ok(AuditPage { entries, next })
    }

    /// Deletes entries older than `keep_days`. Nothing else deletes entries.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn forget_audit(&self, keep_days: i32) -> Result<(), StoreError> {
        sqlx::query!("select forget_audit($1)", keep_days).fetch_one(self.pool()).await?;
        Ok(())
    }
}
