//! Objects as the store reads them.

use crate::store::Tx;
use crate::{Store, StoreError};
use basalt_api::filter::Narrowing;
use basalt_api::values::Timestamp;
use basalt_api::values::{Generation, Uid};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use uuid::Uuid;

/// One object of any kind.
#[derive(Clone, Debug)]
pub struct Object {
    /// The object's id, which never changes.
    pub uid: Uid,
    /// The object's kind.
    pub kind: String,
    /// The object's present name.
    pub name: String,
    /// The manager that declared the object.
    pub manager: Option<String>,
    /// Every manager's labels, merged.
    pub labels: BTreeMap<String, String>,
    /// The spec as it was declared, byte for byte; secrets in their read form.
    pub spec: Box<RawValue>,
    /// The status that the region computed.
    pub status: Box<RawValue>,
    /// The generation: it rises by one with each change of the spec.
    pub generation: Generation,
    /// The generation that the status describes.
    pub observed_generation: Generation,
    /// When it was created.
    pub created_at: Timestamp,
    /// When the spec last changed.
    pub updated_at: Timestamp,
    /// When deletion was requested.
    pub deletion_requested_at: Option<Timestamp>,
}

/// The address of an object in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// By its name.
    Name(&'a str),
    /// By its uid.
    Uid(Uid),
}

impl std::fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Uid(uid) => write!(f, "uid:{uid}"),
        }
    }
}

/// An object that refers to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referrer {
    /// The referring object.
    pub uid: Uid,
    /// The referring object's kind.
    pub kind: String,
    /// The referring object's name.
    pub name: String,
    /// The place of the reference in its spec, or the thing that it holds: `an address`, `its claim`.
    pub pointer: String,
}

/// A machine's BMC, with the fields that decide which rack speaks to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BmcOf {
    /// The machine's name.
    pub machine: String,
    /// The BMC's address or host name.
    pub address: Option<String>,
}

/// One page of a list.
#[derive(Clone, Debug)]
pub struct Page {
    /// In order of name.
    pub objects: Vec<Object>,
    /// The name after which the next page begins; `None` at the end.
    pub next: Option<String>,
}

/// The parameters of [`Store::list`].
#[derive(Clone, Debug, Default)]
pub struct ListQuery<'a> {
    /// The kind to list.
    pub kind: &'a str,
    /// Only names after this one.
    pub after: Option<&'a str>,
    /// The number of objects per page; at most 1000.
    pub limit: i64,
    /// Labels that an object must all have.
    pub labels: BTreeMap<String, String>,
    /// A part of the name, or of any text in labels, spec or status; upper and lower case are equal.
    pub text: Option<&'a str>,
    /// Only machines and deployments of these pools. Other kinds are in no pool, and all of them are listed.
    pub pools: Option<&'a [String]>,
    /// The part of a filter that the database evaluates on columns.
    pub narrowing: Narrowing,
}

pub(crate) type Layers = BTreeMap<String, BTreeMap<String, String>>;

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) uid: Uuid,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) manager: Option<String>,
    pub(crate) labels: serde_json::Value,
    pub(crate) spec: String,
    pub(crate) status: String,
    pub(crate) generation: i64,
    pub(crate) observed_generation: i64,
    pub(crate) created_us: i64,
    pub(crate) updated_us: i64,
    pub(crate) deletion_us: Option<i64>,
}

/// `select` of whole objects; `$tail` follows `from object`.
macro_rules! select_objects {
    ($tail:literal $(, $arg:expr)* $(,)?) => {
        sqlx::query_as!(
            $crate::object::Row,
            r#"select uid, kind, name, manager, labels, spec::text as "spec!", status::text as "status!",
                      generation, observed_generation,
                      (extract(epoch from created_at) * 1000000)::bigint as "created_us!",
                      (extract(epoch from updated_at) * 1000000)::bigint as "updated_us!",
                      (extract(epoch from deletion_requested_at) * 1000000)::bigint as deletion_us
               from object "# + $tail
            $(, $arg)*
        )
    };
}
pub(crate) use select_objects;

pub(crate) fn timestamp(micros: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_microsecond(micros).map_err(|e| StoreError::Corrupt(e.to_string()))
}

pub(crate) fn raw(text: String) -> Result<Box<RawValue>, StoreError> {
    RawValue::from_string(text).map_err(|e| StoreError::Corrupt(format!("stored JSON: {e}")))
}

/// From PostgreSQL's bigint to a counter's number.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// From a counter's number to PostgreSQL's bigint.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Row {
    pub(crate) fn layers(&self) -> Result<Layers, StoreError> {
        serde_json::from_value(self.labels.clone()).map_err(|e| StoreError::Corrupt(format!("labels: {e}")))
    }

    /// The merged labels. If several managers give the same label, the object's own manager wins, then the first manager by name.
    fn merged_labels(&self) -> Result<BTreeMap<String, String>, StoreError> {
        let mut layers = self.layers()?;
        let own = self.manager.as_ref().and_then(|manager| layers.remove(manager));
        Ok(layers.into_values().rev().chain(own).flatten().collect())
    }

    pub(crate) fn object(self) -> Result<Object, StoreError> {
        Ok(Object {
            labels: self.merged_labels()?,
            uid: Uid::from(self.uid),
            kind: self.kind,
            name: self.name,
            manager: self.manager,
            spec: raw(self.spec)?,
            status: raw(self.status)?,
            generation: Generation::new(unsigned(self.generation)),
            observed_generation: Generation::new(unsigned(self.observed_generation)),
            created_at: timestamp(self.created_us)?,
            updated_at: timestamp(self.updated_us)?,
            deletion_requested_at: self.deletion_us.map(timestamp).transpose()?,
        })
    }
}

pub(crate) fn not_found(kind: &str, key: Key<'_>) -> StoreError {
    StoreError::NotFound { kind: kind.to_owned(), name: key.to_string() }
}

/// The row, locked against every other writer until the transaction ends.
pub(crate) async fn lock(tx: &mut Tx, kind: &str, key: Key<'_>) -> Result<Option<Row>, StoreError> {
    Ok(match key {
        Key::Name(name) => {
            select_objects!("where kind = $1 and name = $2 for update", kind, name)
                .fetch_optional(&mut **tx)
                .await?
        }
        Key::Uid(uid) => {
            select_objects!("where kind = $1 and uid = $2 for update", kind, uid.get())
                .fetch_optional(&mut **tx)
                .await?
        }
    })
}

impl Store {
    /// The object of this kind and key.
    ///
    /// # Errors
    /// `NotFound` if there is none; fails too if the database cannot be read.
    pub async fn get(&self, kind: &str, key: Key<'_>) -> Result<Object, StoreError> {
        let row = match key {
            Key::Name(name) => match self.gather().find(kind, name).await {
                Some(row) => row,
                None => {
                    select_objects!("where kind = $1 and name = $2", kind, name)
                        .fetch_optional(self.pool())
                        .await?
                }
            },
            Key::Uid(uid) => {
                select_objects!("where kind = $1 and uid = $2", kind, uid.get())
                    .fetch_optional(self.pool())
                    .await?
            }
        };
        row.ok_or_else(|| not_found(kind, key))?.object()
    }

    /// The object of any kind with this uid.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn get_by_uid(&self, uid: Uid) -> Result<Option<Object>, StoreError> {
        if let Some(supposed) = self.supposed(uid) {
            return Ok(supposed.cloned());
        }
        let row = select_objects!("where uid = $1", uid.get()).fetch_optional(self.pool()).await?;
        row.map(Row::object).transpose()
    }

    /// A page of a kind's objects, in order of name.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn list(&self, query: &ListQuery<'_>) -> Result<Page, StoreError> {
        let limit = query.limit.clamp(1, 1000);
        let labels = serde_json::to_value(&query.labels).map_err(|e| StoreError::Corrupt(e.to_string()))?;
        let Narrowing { names, zones, pools, label } = &query.narrowing;
        let (label, values) = label.as_ref().map(|(key, values)| (key.as_str(), values.as_slice())).unzip();
        let rows = select_objects!(
            // The cheap comparison comes first; it also matches names of fields, so the exact one follows.
            "where kind = $1 and name > coalesce($2, '')
               and ($3::text is null or position(lower($3) in name) > 0
                 or position(lower($3) in lower(concat(labels, spec, status))) > 0 and exists (
                   select from jsonb_path_query(jsonb_build_array(labels, spec, status), '$.**') said
                   where jsonb_typeof(said) = 'string' and position(lower($3) in lower(said #>> '{}')) > 0))
               and ($4::jsonb = '{}' or (
                 select coalesce(jsonb_object_agg(l.key, l.value
                          order by m.key = coalesce(manager, ''), m.key collate ucs_basic desc), '{}')
                 from jsonb_each(labels) m, jsonb_each(m.value) l) @> $4)
               and ($6::text[] is null or kind not in ('Machine', 'Deployment')
                 or object_pool(kind, uid, spec) = any($6))
               and ($7::text[] is null or name like any($7))
               and ($8::text[] is null or lower(coalesce(spec ->> 'zone', 'default')) like any($8))
               and ($9::text[] is null or lower(coalesce(spec ->> 'pool', 'default')) like any($9))
               -- Of letters beyond ASCII, the filter itself decides which are small.
               and ($10::text is null or exists (
                 select from jsonb_each(labels) m, jsonb_each_text(m.value) l
                 where l.key = $10 and (octet_length(l.value) <> length(l.value) or lower(l.value) like any($11))))
             order by name limit $5",
            query.kind,
            query.after,
            query.text,
            labels,
            limit.saturating_add(1),
            query.pools as Option<&[String]>,
            names.as_deref() as Option<&[String]>,
            zones.as_deref() as Option<&[String]>,
            pools.as_deref() as Option<&[String]>,
            label,
            values as Option<&[String]>,
        );
        let mut rows = rows.fetch_all(self.pool()).await?;
        let more = rows.len() > usize::try_from(limit).unwrap_or(usize::MAX);
        if more {
            rows.pop();
        }
        let next = if more { rows.last().map(|r| r.name.clone()) } else { None };
        Ok(Page { objects: rows.into_iter().map(Row::object).collect::<Result<_, _>>()?, next })
    }

    /// Every object of a kind, in order of name. For drivers only: requests must use pages.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn all(&self, kind: &str) -> Result<Vec<Object>, StoreError> {
        let rows = select_objects!("where kind = $1 order by name", kind).fetch_all(self.pool()).await?;
        let mut objects = rows.into_iter().map(Row::object).collect::<Result<Vec<_>, _>>()?;
        self.suppose(kind, &mut objects);
        Ok(objects)
    }

    /// The objects of a kind that are not ready, in the order of their names.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn unready(&self, kind: &str) -> Result<Vec<Uid>, StoreError> {
        let rows = sqlx::query_scalar!(
            r#"select uid from object where kind = $1
                 and not status::jsonb @> '{"conditions": [{"type": "Ready", "status": "true"}]}' order by name"#,
            kind
        );
        Ok(rows.fetch_all(self.pool()).await?.into_iter().map(Uid::from).collect())
    }

    /// The machines with a BMC that racks speak to, in the order of their names.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn bmcs(&self) -> Result<Vec<BmcOf>, StoreError> {
        let rows = sqlx::query_as!(
            BmcOf,
            "select name as machine, spec -> 'bmc' ->> 'address' as address from object
             where kind = 'Machine' and spec -> 'bmc' ->> 'driver' in ('ipmi', 'redfish', 'webhook') order by name"
        );
        Ok(rows.fetch_all(self.pool()).await?)
    }

    /// The objects that prevent the deletion of this object. They refer to the object, hold addresses of this Subnet, or have claimed this
    /// Machine.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn referrers(&self, uid: Uid) -> Result<Vec<Referrer>, StoreError> {
        let mut tx = self.begin().await?;
        referrers(&mut tx, uid).await
    }

    /// The objects that `uid` refers to, by pointer.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn references(&self, uid: Uid) -> Result<BTreeMap<String, Uid>, StoreError> {
        let rows = sqlx::query!("select pointer, to_uid from object_ref where from_uid = $1", uid.get());
        let rows = rows.fetch_all(self.pool()).await?;
        Ok(rows.into_iter().map(|r| (r.pointer, Uid::from(r.to_uid))).collect())
    }

    /// The plaintext of the secret at `pointer`.
    ///
    /// # Errors
    /// Fails if the seal key does not open it, or if the database cannot be read.
    pub async fn open_secret(
        &self,
        uid: Uid,
        pointer: &str,
    ) -> Result<Option<zeroize::Zeroizing<Vec<u8>>>, StoreError> {
        let query = sqlx::query_scalar!(
            "select sealed from secret where object = $1 and pointer = $2",
            uid.get(),
            pointer
        );
        let Some(sealed) = query.fetch_optional(self.pool()).await? else { return Ok(None) };
        self.seal().open(&crate::seal::Place { object: uid, pointer }, &sealed).map(Some)
    }

    /// The plaintexts of all secrets of an object, by their pointers.
    ///
    /// # Errors
    /// Fails if the seal key does not open them, or if the database cannot be read.
    pub async fn open_secrets(
        &self,
        uid: Uid,
    ) -> Result<BTreeMap<String, zeroize::Zeroizing<Vec<u8>>>, StoreError> {
        let query = sqlx::query!("select pointer, sealed from secret where object = $1", uid.get());
        let rows = query.fetch_all(self.pool()).await?;
        let open = |(pointer, sealed): (String, Vec<u8>)| {
            let text = self.seal().open(&crate::seal::Place { object: uid, pointer: &pointer }, &sealed)?;
            Ok((pointer, text))
        };
        rows.into_iter().map(|row| open((row.pointer, row.sealed))).collect()
    }
}

pub(crate) async fn referrers(tx: &mut Tx, uid: Uid) -> Result<Vec<Referrer>, StoreError> {
    let rows = sqlx::query!(
        r#"select o.uid as "uid!", o.kind as "kind!", o.name as "name!", r.pointer as "pointer!" from (
             select from_uid as uid, pointer from object_ref where to_uid = $1
             union all select owner, 'the address ' || host(address) from address
               where subnet = $1 and class = 'deployment'
             union all select deployment, 'its claim' from machine_claim where machine = $1
           ) r join object o on o.uid = r.uid
           where o.uid <> $1
           order by o.kind, o.name, r.pointer"#,
        uid.get()
    );
    let rows = rows.fetch_all(&mut **tx).await?;
    Ok(rows
        .into_iter()
        .map(|r| Referrer { uid: Uid::from(r.uid), kind: r.kind, name: r.name, pointer: r.pointer })
        .collect())
}
