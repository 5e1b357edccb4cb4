//! Facts: observations, each with its source and time.

use crate::object::{signed, timestamp, unsigned};
use crate::store::Tx;
use crate::{Store, StoreError, boot, ipam, lease, secondary, stranger};
use basalt_api::values::Timestamp;
use basalt_api::values::{Attempt, RackId, Uid};
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::HashMap;
use uuid::Uuid;

/// A fact as a rack delivers it.
#[derive(Clone, Debug)]
pub struct NewFact {
    /// The fact's number in the rack's spool.
    pub seq: u64,
    /// The machine, if the rack knows it.
    pub object: Option<Uid>,
    /// The MAC of the observed machine; it identifies the machine when `object` is not set.
    pub mac: Option<String>,
    /// The class of observation: `lease`, `power`, `result`, …
    pub kind: String,
    /// The engine step that the fact answers.
    pub step_key: Option<String>,
    /// The attempt that the fact belongs to.
    pub attempt: Option<Attempt>,
    /// The observation; the fields depend on `kind`.
    pub body: Value,
    /// When it was observed, by the rack's clock.
    pub observed_at: Timestamp,
    /// True if the planner must look at the fact. A line of a log does not need it.
    pub wakes: bool,
}

/// A stored fact.
#[derive(Clone, Debug)]
pub struct Fact {
    /// The fact's id. Ids rise in the order of storing.
    pub id: i64,
    /// The class of observation.
    pub kind: String,
    /// The observer: a rack's name, or `region`.
    pub source: String,
    /// The engine step that the fact answers.
    pub step_key: Option<String>,
    /// The attempt that the fact belongs to.
    pub attempt: Option<Attempt>,
    /// The observation; the fields depend on `kind`.
    pub body: Value,
    /// When it was observed, by the source's clock. It is shown to people and never compared.
    pub observed_at: Timestamp,
    /// When it was stored, by the database's clock.
    pub stored_at: Timestamp,
}

pub(crate) struct FactRow {
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) source: String,
    pub(crate) step_key: Option<String>,
    pub(crate) attempt: Option<i64>,
    pub(crate) body: Value,
    pub(crate) observed_us: i64,
    pub(crate) stored_us: i64,
}

impl FactRow {
    pub(crate) fn fact(self) -> Result<Fact, StoreError> {
        Ok(Fact {
            id: self.id,
            kind: self.kind,
            source: self.source,
            step_key: self.step_key,
            attempt: self.attempt.map(|a| Attempt::new(unsigned(a))),
            body: self.body,
            observed_at: timestamp(self.observed_us)?,
            stored_at: timestamp(self.stored_us)?,
        })
    }
}

/// A fact about one of several objects.
pub(crate) struct ObjectFactRow {
    pub(crate) object: Uuid,
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) source: String,
    pub(crate) step_key: Option<String>,
    pub(crate) attempt: Option<i64>,
    pub(crate) body: Value,
    pub(crate) observed_us: i64,
    pub(crate) stored_us: i64,
}

/// Facts by their objects, in the order of the rows.
pub(crate) fn by_object(rows: Vec<ObjectFactRow>) -> Result<HashMap<Uid, Vec<Fact>>, StoreError> {
    let mut facts: HashMap<Uid, Vec<Fact>> = HashMap::new();
    for row in rows {
        let ObjectFactRow { object, id, kind, source, step_key, attempt, body, observed_us, stored_us } = row;
        let fact = FactRow { id, kind, source, step_key, attempt, body, observed_us, stored_us };
        facts.entry(Uid::from(object)).or_default().push(fact.fact()?);
    }
    Ok(facts)
}

/// The time of the database's clock, read within a transaction.
pub(crate) async fn now(tx: &mut Tx) -> Result<Timestamp, StoreError> {
    now_of(&mut **tx).await
}

async fn now_of(database: impl sqlx::PgExecutor<'_>) -> Result<Timestamp, StoreError> {
    let query =
        sqlx::query_scalar!(r#"select (extract(epoch from clock_timestamp()) * 1000000)::bigint as "us!""#);
    timestamp(query.fetch_one(database).await?)
}

/// Stores a fact of a rack. Returns the objects that it concerns.
async fn store_one(
    tx: &mut PgConnection,
    rack: RackId,
    source: &str,
    fact: &NewFact,
) -> Result<Vec<Uuid>, StoreError> {
    match fact.kind.as_str() {
        boot::BOOT_TRACE => {
            boot::insert(tx, source, fact).await?;
            Ok(Vec::new())
        }
        stranger::STRANGER => stranger::note(tx, rack.get(), source, fact).await,
        _ => {
            let object = insert(tx, source, fact).await?;
            ipam::block::note_in_force(tx, rack, fact).await?;
            lease::note(tx, rack, fact).await?;
            Ok(object.into_iter().collect())
        }
    }
}

impl Store {
    /// Stores a rack's facts, in order, and each only once although it may be delivered repeatedly. Returns the number up to which the
    /// spool is stored; the rack may delete those facts.
    ///
    /// A fact that PostgreSQL does not take is left out: the rack would deliver it again for ever, and every fact behind it too.
    ///
    /// # Errors
    /// Fails if the database cannot be written. Then no fact of the batch is stored.
    pub async fn store_facts(
        &self,
        rack: RackId,
        source: &str,
        spool: Uuid,
        facts: &[NewFact],
    ) -> Result<u64, StoreError> {
        match self.store_batch((rack, source, spool), facts, false).await {
            Err(error) if error.is_of_value() => {
                tracing::warn!(%error, source, "a batch of facts is stored fact by fact");
                self.store_batch((rack, source, spool), facts, true).await
            }
            result => result,
        }
    }

    /// Stores facts; if `apart`, with a savepoint around each.
    async fn store_batch(
        &self,
        (rack, source, spool): (RackId, &str, Uuid),
        facts: &[NewFact],
        apart: bool,
    ) -> Result<u64, StoreError> {
        let mut tx = self.begin().await?;
        // Locks the spool: if two regions get the same batch, it is stored once.
        let through = sqlx::query_scalar!(
            "insert into rack_spool (rack, spool, through_seq) values ($1, $2, 0)
             on conflict (rack, spool) do update set updated_at = now() returning through_seq",
            rack.get(),
            spool
        );
        let mut through = unsigned(through.fetch_one(&mut *tx).await?);
        let mut woken = Vec::new();
        for fact in facts {
            if fact.seq <= through {
                continue;
            }
            if apart || fact.kind == stranger::STRANGER {
                // A savepoint: an error in this fact must not lose the other facts.
                let mut point = sqlx::Connection::begin(&mut *tx).await?;
                match store_one(&mut point, rack, source, fact).await {
                    Ok(to_wake) => {
                        point.commit().await?;
                        woken.extend(to_wake);
                    }
                    Err(error) if error.is_unavailable() => return Err(error),
                    Err(error) => {
                        let (seq, kind) = (fact.seq, &fact.kind);
                        tracing::error!(%error, source, seq, kind, "a fact of a rack cannot be stored and is left out");
                        point.rollback().await?;
                    }
                }
            } else {
                woken.extend(store_one(&mut tx, rack, source, fact).await?);
            }
            through = fact.seq;
        }
        let update = sqlx::query!(
            "update rack_spool set through_seq = $3 where rack = $1 and spool = $2",
            rack.get(),
            spool,
            signed(through)
        );
        update.execute(&mut *tx).await?;
        let domains = secondary::domains(&mut tx, facts).await?;
        if !woken.is_empty() || !domains.is_empty() {
            self.wake_by_facts(&mut tx, &woken, &domains).await?;
        }
        self.commit(tx).await?;
        Ok(through)
    }

    /// Stores an observation of the region itself.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn store_own_fact(&self, fact: &NewFact) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        ipam::block::note_addresses(&mut tx, fact).await?;
        if let Some(object) = insert(&mut tx, "region", fact).await? {
            self.wake_by_facts(&mut tx, &[object], &[]).await?;
        }
        self.commit(tx).await
    }

    /// The latest fact of each (kind, source) of an object.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn latest_facts(&self, object: Uid) -> Result<Vec<Fact>, StoreError> {
        let rows = sqlx::query_as!(
            FactRow,
            r#"select id, kind, source, step_key, attempt, body,
                 (extract(epoch from observed_at) * 1000000)::bigint as "observed_us!",
                 (extract(epoch from stored_at) * 1000000)::bigint as "stored_us!"
               from fact_latest where object = $1 order by id"#,
            object.get()
        );
        rows.fetch_all(self.pool()).await?.into_iter().map(FactRow::fact).collect()
    }

    /// All facts that answer a step of an object, oldest first.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn facts_of_step(&self, object: Uid, step_key: &str) -> Result<Vec<Fact>, StoreError> {
        let rows = sqlx::query_as!(
            FactRow,
            r#"select id, kind, source, step_key, attempt, body,
                 (extract(epoch from observed_at) * 1000000)::bigint as "observed_us!",
                 (extract(epoch from stored_at) * 1000000)::bigint as "stored_us!"
               from fact_history where object = $1 and step_key = $2 order by id"#,
            object.get(),
            step_key
        );
        rows.fetch_all(self.pool()).await?.into_iter().map(FactRow::fact).collect()
    }

    /// An object's history: up to `limit` facts with ids above `after`, oldest first.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn fact_history(&self, object: Uid, after: i64, limit: i64) -> Result<Vec<Fact>, StoreError> {
        let rows = sqlx::query_as!(
            FactRow,
            r#"select id, kind, source, step_key, attempt, body,
                 (extract(epoch from observed_at) * 1000000)::bigint as "observed_us!",
                 (extract(epoch from stored_at) * 1000000)::bigint as "stored_us!"
               from fact_history where object = $1 and id > $2 order by id limit $3"#,
            object.get(),
            after,
            limit
        );
        rows.fetch_all(self.pool()).await?.into_iter().map(FactRow::fact).collect()
    }

    /// The last `limit` facts of an object, oldest first.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn recent_facts(&self, object: Uid, limit: i64) -> Result<Vec<Fact>, StoreError> {
        let rows = sqlx::query_as!(
            FactRow,
            r#"select id, kind, source, step_key, attempt, body,
                 (extract(epoch from observed_at) * 1000000)::bigint as "observed_us!",
                 (extract(epoch from stored_at) * 1000000)::bigint as "stored_us!"
               from fact_history where object = $1 order by id desc limit $2"#,
            object.get(),
            limit
        );
        let mut facts: Vec<Fact> =
            rows.fetch_all(self.pool()).await?.into_iter().map(FactRow::fact).collect::<Result<_, _>>()?;
        facts.reverse();
        Ok(facts)
    }

    /// The facts of a kind about an object that were stored since `since`, oldest first, and the last one before.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn facts_since(
        &self,
        object: Uid,
        kind: &str,
        since: Timestamp,
    ) -> Result<Vec<Fact>, StoreError> {
        let rows = sqlx::query_as!(
            FactRow,
            r#"with start as (select to_timestamp($3::bigint / 1000000.0) as at)
               select id, kind, source, step_key, attempt, body,
                 (extract(epoch from observed_at) * 1000000)::bigint as "observed_us!",
                 (extract(epoch from stored_at) * 1000000)::bigint as "stored_us!"
               from fact_history, start where object = $1 and kind = $2 and stored_at >= coalesce(
                 (select max(b.stored_at) from fact_history b where b.object = $1 and b.kind = $2 and b.stored_at < start.at),
                 start.at)
               order by id"#,
            object.get(),
            kind,
            since.as_microsecond()
        );
        rows.fetch_all(self.pool()).await?.into_iter().map(FactRow::fact).collect()
    }

    /// The time of the database's clock. Decisions use no other clock.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        now_of(self.pool()).await
    }

    /// The next number of the region-wide sequence of attempts (destructive tasks).
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn next_attempt(&self) -> Result<Attempt, StoreError> {
        let query = sqlx::query_scalar!(r#"select nextval('attempt') as "attempt!""#);
        Ok(Attempt::new(unsigned(query.fetch_one(self.pool()).await?)))
    }
}

/// Stores one fact. Returns the object that must be woken.
pub(crate) async fn insert(
    tx: &mut PgConnection,
    source: &str,
    fact: &NewFact,
) -> Result<Option<Uuid>, StoreError> {
    let known = sqlx::query_scalar!(
        r#"select uid from object where uid = $1
           union all select machine from machine_mac where $1::uuid is null and mac = $2::text::macaddr limit 1"#,
        fact.object.map(Uid::get),
        fact.mac
    );
    let known: Option<Uuid> = known.fetch_optional(&mut *tx).await?.flatten();
    // An unknown MAC may be invented, and only an object's facts are read. Boot traces keep the requests of such MACs, within limits.
    if known.is_none() && fact.object.is_none() {
        return Ok(None);
    }
    let observed = fact.observed_at.as_microsecond();
    let attempt = fact.attempt.map(|a| signed(a.get()));
    let row = sqlx::query!(
        "insert into fact_history (object, mac, kind, source, step_key, attempt, body, observed_at)
         values ($1, $2::text::macaddr, $3, $4, $5, $6, $7, to_timestamp($8::bigint / 1000000.0))
         returning id, stored_at::text as \"stored_at!\"",
        known.or(fact.object.map(Uid::get)),
        fact.mac,
        fact.kind,
        source,
        fact.step_key,
        attempt,
        fact.body,
        observed
    );
    let row = row.fetch_one(&mut *tx).await?;
    let Some(object) = known else { return Ok(None) };
    let upsert = sqlx::query!(
        "insert into fact_latest as l (object, kind, source, id, step_key, attempt, body, observed_at, stored_at)
         values ($1, $2, $3, $4, $5, $6, $7, to_timestamp($8::bigint / 1000000.0), $9::text::timestamptz)
         on conflict (object, kind, source) do update
         set id = excluded.id, step_key = excluded.step_key, attempt = excluded.attempt, body = excluded.body,
             observed_at = excluded.observed_at, stored_at = excluded.stored_at
         where l.id < excluded.id",
        object,
        fact.kind,
        source,
        row.id,
        fact.step_key,
        attempt,
        fact.body,
        observed,
        row.stored_at
    );
    upsert.execute(&mut *tx).await?;
    Ok(fact.wakes.then_some(object))
}
