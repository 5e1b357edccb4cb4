//! The audit log: who changed what, from where, before and after.
//!
//! A [`Store`] that acts for somebody ([`Store::acting`]) leaves one entry for each object that a call of it writes, in the
//! transaction of the write: there is no write without its entry, and no entry without its write. A store that acts for
//! nobody is the region's own machinery, which is accounted for by facts and step records. What is so already, like a spec
//! that is there byte for byte, is not written again, and leaves no entry.
//!
//! | what is written | before and after |
//! | --- | --- |
//! | a spec | the specs, sensitive values masked; none before what is new, none after what is to leave |
//! | labels and manager of an object that was there | `{"manager", "labels"}`, an entry of their own |
//! | a manager's layer | `{"layer": {MANAGER: {"labels", "tags"}}}`; null where there is none |
//! | a name | `{"name"}`; VLANs that follow their fabric have entries of their own |
//! | an operation | `{"operation"}`: its verb; none before |
//! | an ApiToken's text | `{"issued_at"}`; null where there is none |
//! | a session | `{"session": "opened"}`, `{"session": "closed"}` |
//! | dead letters | `{"failed", "disabled"}`: how many, and why the receiver is not asked any more |
//! | a join token, a blob | what was asked for; they are never changed |

use crate::object::{Row, timestamp, unsigned};
use crate::store::Tx;
use crate::{Store, StoreError};
use basalt_api::values::{Generation, Timestamp, Uid};
use basalt_api::{Kind, has_sensitive, masked_write};
use serde_json::Value;
use serde_json::value::RawValue;

/// Who writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// `token NAME`, `user NAME`, `peer uid 0`, `rack NAME`.
    pub name: String,
    /// Where the request came from.
    pub address: String,
    /// Its method and path, as in the table of endpoints: `PUT /api/v1/{plural}/{name}`.
    pub request: String,
}

/// One entry of the log.
#[derive(Clone, Debug)]
pub struct AuditEntry {
    /// Rises; has gaps.
    pub id: i64,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// Who, from where, by which request.
    pub actor: Actor,
    /// Kind of what was written.
    pub kind: String,
    /// The object; none for what is no object, like a blob.
    pub uid: Option<Uid>,
    /// Its name then.
    pub name: String,
    /// Its generation after the write.
    pub generation: Option<Generation>,
    /// The spec before, secrets in read form; or what else was changed.
    pub before: Option<Box<RawValue>>,
    /// The same after.
    pub after: Option<Box<RawValue>>,
}

/// Which entries to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditQuery<'a> {
    /// Not older than this.
    pub since: Option<Timestamp>,
    /// Of this object, however it was called.
    pub uid: Option<Uid>,
    /// Of this kind.
    pub kind: Option<&'a str>,
    /// Of objects that were called so.
    pub name: Option<&'a str>,
    /// By this actor.
    pub actor: Option<&'a str>,
    /// Older than this entry.
    pub before_id: Option<i64>,
    /// Entries a page, at most.
    pub limit: i64,
}

/// A page of entries, the newest first.
#[derive(Clone, Debug)]
pub struct AuditPage {
    /// The entries.
    pub entries: Vec<AuditEntry>,
    /// The entry to go on before; `None` at the end.
    pub next: Option<i64>,
}

/// What a write did to one object.
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
    /// A row as it is now, and its spec before.
    pub(crate) fn object(row: &Row, before: Option<String>) -> Self {
        let (before, after) = shown(&row.kind, before, Some(row.spec.clone()));
        Self { before, after, ..Self::about(row) }
    }

    /// A row that is asked to go.
    pub(crate) fn removal(row: &Row) -> Self {
        let (before, after) = shown(&row.kind, Some(row.spec.clone()), None);
        Self { before, after, ..Self::about(row) }
    }

    /// What is written beside an object's spec, as it was and as it is.
    pub(crate) fn beside(row: &Row, before: &Value, after: &Value) -> Self {
        let text = |value: &Value| (!value.is_null()).then(|| value.to_string());
        Self { before: text(before), after: text(after), ..Self::about(row) }
    }

    /// What is no object.
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

/// Specs as the log keeps them. It outlives objects, and more people read it than may read a deployment's user data.
fn shown(kind: &str, before: Option<String>, after: Option<String>) -> (Option<String>, Option<String>) {
    let Some(kind) = Kind::find(kind).filter(|kind| has_sensitive(kind)) else { return (before, after) };
    let spec = |text: &Option<String>| {
        text.as_deref().map_or(Value::Null, |t| serde_json::from_str(t).unwrap_or_default())
    };
    let (old, new) = masked_write(kind, &spec(&before), &spec(&after));
    (before.map(|_| old.to_string()), after.map(|_| new.to_string()))
}

impl Store {
    /// Adds what a transaction wrote to the log, where this store acts for somebody.
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
    /// The database.
    pub async fn audit_page(&self, query: &AuditQuery<'_>) -> Result<AuditPage, StoreError> {
        let limit = query.limit.clamp(1, 1000);
        // What is asked for decides by which index it is found.
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

    /// Forgets entries older than `keep_days`; nothing else removes any.
    ///
    /// # Errors
    /// The database.
    pub async fn forget_audit(&self, keep_days: i32) -> Result<(), StoreError> {
        sqlx::query!("select forget_audit($1)", keep_days).fetch_one(self.pool()).await?;
        Ok(())
    }
}
