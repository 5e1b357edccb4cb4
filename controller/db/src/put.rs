//! Creating an object, or replacing its spec, in one transaction.

use crate::invariant::{self, Subject};
use crate::object::{self, Key, Layers, Object, Row, signed, unsigned};
use crate::seal::Place;
use crate::splice::Text;
use crate::store::Tx;
use crate::{Store, StoreError, change};
use basalt_api::values::{Generation, Uid};
use basalt_api::{Effect, FieldCode, FieldError, Kind, SecretWrite};
use serde_json::Value;
use std::collections::BTreeMap;

/// Two transactions may meet; each of them may lose this often.
const TRIES: usize = 8;

/// A spec to store.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// The kind.
    pub kind: &'static Kind,
    /// Whose spec; a uid has to exist.
    pub key: Key<'a>,
    /// Valid by itself: [`basalt_api::validate()`] has nothing against it.
    pub spec: &'a Text,
    /// Replaces the labels of `manager`, where given.
    pub labels: Option<&'a BTreeMap<String, String>>,
    /// Who declares it.
    pub manager: Option<&'a str>,
    /// What has to hold before.
    pub precondition: Precondition,
    /// Do everything, then roll back; what does not fit becomes an advisory.
    pub dry_run: bool,
    /// The status of a new object; its `observed_generation` is filled in.
    pub first_status: &'a Value,
}

/// `If-Match`, `If-None-Match`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Whatever is there.
    None,
    /// `If-None-Match: *`: nothing is there.
    Absent,
    /// `If-Match: *`: something is there.
    Present,
    /// `If-Match: "3"`.
    Generation(Generation),
}

/// What became of a [`Put`].
#[derive(Clone, Debug)]
pub struct Stored {
    /// The object as it is now, or, in a dry run, as it would be.
    pub object: Object,
    /// It did not exist before.
    pub created: bool,
    /// Its generation rose.
    pub changed: bool,
    /// In a dry run: what would be refused as things are.
    pub advisories: Vec<FieldError>,
    /// The spec before, where there was one.
    pub before: Option<Value>,
}

/// A spec with its secrets taken out.
struct Sealed {
    text: Text,
    value: Value,
    /// Pointer, revision, sealed bytes of plaintexts that are new.
    fresh: Vec<(String, i64, Vec<u8>)>,
    /// Pointers whose secrets stay as they are.
    kept: Vec<String>,
    /// Whether a stored secret goes, or another plaintext comes.
    changed: bool,
}

impl Store {
    /// Creates the object or replaces its spec; the same spec again changes nothing.
    ///
    /// # Errors
    /// `Exists`, `Conflict`, `Deleting`, `Refused`, `NotFound` (a uid), or the database. Nothing is stored then.
    pub async fn put(&self, put: &Put<'_>) -> Result<Stored, StoreError> {
        let mut tries = 1;
        loop {
            match Box::pin(self.put_once(put)).await {
                Err(error) if error.is_race() && tries < TRIES => tries += 1,
                result => return result,
            }
        }
    }

    async fn put_once(&self, put: &Put<'_>) -> Result<Stored, StoreError> {
        let mut tx = self.begin().await?;
        let old = object::lock(&mut tx, put.kind.name, put.key).await?;
        precondition(put, old.as_ref())?;
        let uid = old.as_ref().map_or_else(Uid::generate, |o| Uid::from(o.uid));
        let before = old.as_ref().map(|o| parse(&o.spec)).transpose()?;

        let sealed = self.take_secrets(&mut tx, put, uid).await?;
        let mut errors = before.as_ref().map_or_else(Vec::new, |old| immutable(put.kind, old, &sealed.value));
        let (references, missing) = resolve(&mut tx, put.kind, &sealed.value, uid).await?;
        errors.extend(missing);
        if !errors.is_empty() && !put.dry_run {
            return Err(StoreError::Refused { errors });
        }

        let created = old.is_none();
        let equal = before.as_ref().is_some_and(|old| basalt_api::equal(put.kind, old, &sealed.value));
        let changed = !equal || sealed.changed;
        let row = self.write(&mut tx, put, uid, old, &sealed, changed).await?;
        write_references(&mut tx, uid, &references).await?;
        write_secrets(&mut tx, uid, &sealed).await?;
        let subject = Subject { kind: put.kind.name, uid, spec: &sealed.value, references: &references };
        errors.extend(invariant::write(&mut tx, &subject).await?);
        if put.dry_run {
            tx.rollback().await?;
            return Ok(Stored { object: row.object()?, created, changed, advisories: errors, before });
        }
        if !errors.is_empty() {
            return Err(StoreError::Refused { errors });
        }
        change::record(&mut tx, &row, change::Op::Put).await?;
        self.wake_around(&mut tx, uid).await?;
        self.commit(tx).await?;
        Ok(Stored { object: row.object()?, created, changed, advisories: Vec::new(), before })
    }

    /// Replaces each secret by its read form; an omitted or re-sent read form keeps what is stored, null clears it.
    async fn take_secrets(&self, tx: &mut Tx, put: &Put<'_>, uid: Uid) -> Result<Sealed, StoreError> {
        let stored =
            sqlx::query!("select pointer, revision, sealed from secret where object = $1", uid.get());
        let stored = stored.fetch_all(&mut **tx).await?;
        let mut text = put.spec.clone();
        let named = basalt_api::secrets(put.kind, &parse(text.as_str())?);
        let (mut fresh, mut kept, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        let mut read_forms = Vec::new();
        for secret in &named {
            let pointer = &secret.pointer;
            let before = stored.iter().find(|s| s.pointer == *pointer);
            match (&secret.write, before) {
                (SecretWrite::Clear, _) => {}
                (SecretWrite::Set(plain), before) => {
                    let place = Place { object: uid, pointer };
                    let opened = before.map(|b| self.seal().open(&place, &b.sealed)).transpose()?;
                    match before {
                        Some(before) if opened.is_some_and(|o| *o == plain.as_bytes()) => {
                            kept.push(pointer.clone());
                            read_forms.push((pointer.clone(), before.revision));
                        }
                        _ => {
                            let revision = before.map_or(1, |b| b.revision.saturating_add(1));
                            fresh.push((
                                pointer.clone(),
                                revision,
                                self.seal().seal(&place, plain.as_bytes())?,
                            ));
                            read_forms.push((pointer.clone(), revision));
                        }
                    }
                }
                (SecretWrite::Keep, Some(before)) => {
                    kept.push(pointer.clone());
                    read_forms.push((pointer.clone(), before.revision));
                }
                (SecretWrite::Keep, None) => errors.push(FieldError::new(
                    pointer,
                    FieldCode::Rule,
                    "there is no stored secret that this could keep",
                    "write the secret itself",
                )),
            }
        }
        for before in &stored {
            let omitted = !named.iter().any(|s| s.pointer == before.pointer);
            if omitted && has_parent(&text, &before.pointer) {
                kept.push(before.pointer.clone());
                read_forms.push((before.pointer.clone(), before.revision));
            }
        }
        if !errors.is_empty() {
            return Err(StoreError::Refused { errors });
        }
        for (pointer, revision) in read_forms {
            let read_form = format!(r#"{{"set":true,"revision":{revision}}}"#);
            text = text.set(&pointer, &read_form).map_err(|e| StoreError::Corrupt(e.to_string()))?;
        }
        let value = parse(text.as_str())?;
        let changed = !fresh.is_empty() || kept.len() < stored.len();
        Ok(Sealed { text, value, fresh, kept, changed })
    }

    async fn write(
        &self,
        tx: &mut Tx,
        put: &Put<'_>,
        uid: Uid,
        old: Option<Row>,
        sealed: &Sealed,
        changed: bool,
    ) -> Result<Row, StoreError> {
        let mut layers = old.as_ref().map(Row::layers).transpose()?.unwrap_or_default();
        if let Some(labels) = put.labels {
            set_layer(&mut layers, put.manager.unwrap_or_default(), labels);
        }
        let layers = serde_json::to_value(layers).map_err(|e| StoreError::Corrupt(e.to_string()))?;
        // Kinds without machinery are ready as soon as they are stored.
        let observed = match &old {
            Some(old) if self.is_reconciled(put.kind.name) => old.observed_generation,
            Some(old) => old.generation.saturating_add(i64::from(changed)),
            None => i64::from(!self.is_reconciled(put.kind.name)),
        };
        match old {
            None => {
                let status = observing(put.first_status.clone(), observed).to_string();
                let Key::Name(name) = put.key else { return Err(object::not_found(put.kind.name, put.key)) };
                let insert = sqlx::query_as!(
                    Row,
                    r#"insert into object (uid, kind, name, manager, labels, spec, status, observed_generation)
                       values ($1, $2, $3, $4, $5, $6::text::json, $7::text::json, $8)
                       returning uid, kind, name, manager, labels, spec::text as "spec!", status::text as "status!",
                         generation, observed_generation,
                         (extract(epoch from created_at) * 1000000)::bigint as "created_us!",
                         (extract(epoch from updated_at) * 1000000)::bigint as "updated_us!",
                         (extract(epoch from deletion_requested_at) * 1000000)::bigint as deletion_us"#,
                    uid.get(),
                    put.kind.name,
                    name,
                    put.manager,
                    layers,
                    sealed.text.as_str(),
                    status,
                    observed,
                );
                Ok(insert.fetch_one(&mut **tx).await?)
            }
            Some(old) => {
                let status = observing(parse(&old.status)?, observed).to_string();
                let update = sqlx::query_as!(
                    Row,
                    r#"update object set spec = $2::text::json, labels = $3, manager = coalesce($4, manager),
                         generation = generation + $5::int, observed_generation = $6, status = $7::text::json,
                         updated_at = case when $5 = 0 then updated_at else now() end
                       where uid = $1
                       returning uid, kind, name, manager, labels, spec::text as "spec!", status::text as "status!",
                         generation, observed_generation,
                         (extract(epoch from created_at) * 1000000)::bigint as "created_us!",
                         (extract(epoch from updated_at) * 1000000)::bigint as "updated_us!",
                         (extract(epoch from deletion_requested_at) * 1000000)::bigint as deletion_us"#,
                    old.uid,
                    sealed.text.as_str(),
                    layers,
                    put.manager,
                    i32::from(changed),
                    observed,
                    status,
                );
                Ok(update.fetch_one(&mut **tx).await?)
            }
        }
    }
}

fn precondition(put: &Put<'_>, old: Option<&Row>) -> Result<(), StoreError> {
    let current = old.map(|o| Generation::new(unsigned(o.generation)));
    let (kind, name) =
        (put.kind.name.to_owned(), old.map_or_else(|| put.key.to_string(), |o| o.name.clone()));
    match (put.precondition, old) {
        (_, None) if matches!(put.key, Key::Uid(_)) => Err(object::not_found(put.kind.name, put.key)),
        (_, Some(old)) if old.deletion_us.is_some() => Err(StoreError::Deleting { kind, name }),
        (Precondition::Absent, Some(old)) => {
            Err(StoreError::Exists { kind, name, manager: old.manager.clone() })
        }
        (Precondition::Present, None) => Err(StoreError::Conflict { kind, name, current }),
        (Precondition::Generation(wanted), _) if current != Some(wanted) => {
            Err(StoreError::Conflict { kind, name, current })
        }
        _ => Ok(()),
    }
}

fn has_parent(text: &Text, pointer: &str) -> bool {
    pointer
        .rsplit_once('/')
        .and_then(|(parent, _)| text.get(parent))
        .is_some_and(|parent| parent.starts_with('{'))
}

fn parse(text: &str) -> Result<Value, StoreError> {
    serde_json::from_str(text).map_err(|e| StoreError::Corrupt(format!("JSON: {e}")))
}

fn set_layer(layers: &mut Layers, manager: &str, labels: &BTreeMap<String, String>) {
    if labels.is_empty() {
        layers.remove(manager);
    } else {
        layers.insert(manager.to_owned(), labels.clone());
    }
}

/// Status is JSON of the kind; this one field of it is the store's.
fn observing(mut status: Value, observed: i64) -> Value {
    if let Value::Object(map) = &mut status {
        map.insert("observed_generation".to_owned(), observed.into());
    }
    status
}

/// Fields that are set at creation and differ.
fn immutable(kind: &Kind, old: &Value, new: &Value) -> Vec<FieldError> {
    let changes = basalt_api::diff(kind, old, new);
    let fixed = changes.into_iter().filter(|change| change.effect == Effect::Replace);
    let error = |change: basalt_api::FieldChange| {
        let message = format!("{} cannot change after creation", change.pointer.trim_start_matches('/'));
        let hint = "delete the object and create it anew";
        FieldError::new(change.pointer, FieldCode::Immutable, message, hint)
    };
    fixed.map(error).collect()
}

/// Names to uids. The rows are locked, so that nobody deletes or renames them before we commit.
async fn resolve(
    tx: &mut Tx,
    kind: &Kind,
    spec: &Value,
    from: Uid,
) -> Result<(BTreeMap<String, Uid>, Vec<FieldError>), StoreError> {
    let (mut resolved, mut errors) = (BTreeMap::new(), Vec::new());
    for basalt_api::Reference { pointer, kind, name } in basalt_api::references(kind, spec) {
        let query = sqlx::query!(
            r#"select uid, deletion_requested_at is not null as "deleting!",
                      exists(select from object_ref r where r.from_uid = $3 and r.to_uid = object.uid) as "held!"
               from object where kind = $1 and name = $2 for key share"#,
            kind,
            name,
            from.get()
        );
        let mut missing = |message: String| {
            let hint = format!("create the {kind} first, or name another one");
            errors.push(FieldError::new(&pointer, FieldCode::ReferenceNotFound, message, hint));
        };
        match query.fetch_optional(&mut **tx).await? {
            None => missing(format!("there is no {kind} {name:?}")),
            Some(found) if found.deleting && !found.held => {
                missing(format!("{kind} {name:?} is being deleted"));
            }
            Some(found) => {
                resolved.insert(pointer, Uid::from(found.uid));
            }
        }
    }
    Ok((resolved, errors))
}

async fn write_references(
    tx: &mut Tx,
    uid: Uid,
    references: &BTreeMap<String, Uid>,
) -> Result<(), StoreError> {
    let pointers: Vec<String> = references.keys().cloned().collect();
    let targets: Vec<uuid::Uuid> = references.values().map(|u| u.get()).collect();
    sqlx::query!("delete from object_ref where from_uid = $1", uid.get()).execute(&mut **tx).await?;
    let insert = sqlx::query!(
        "insert into object_ref (from_uid, pointer, to_uid) select $1, p, t from unnest($2::text[], $3::uuid[]) u(p, t)",
        uid.get(),
        &pointers,
        &targets
    );
    insert.execute(&mut **tx).await?;
    Ok(())
}

async fn write_secrets(tx: &mut Tx, uid: Uid, sealed: &Sealed) -> Result<(), StoreError> {
    let delete =
        sqlx::query!("delete from secret where object = $1 and pointer <> all($2)", uid.get(), &sealed.kept);
    delete.execute(&mut **tx).await?;
    for (pointer, revision, bytes) in &sealed.fresh {
        let insert = sqlx::query!(
            "insert into secret (object, pointer, revision, sealed) values ($1, $2, $3, $4)",
            uid.get(),
            pointer,
            revision,
            bytes
        );
        insert.execute(&mut **tx).await?;
    }
    Ok(())
}

/// A generation as the database has it.
pub(crate) fn generation_number(generation: Generation) -> i64 {
    signed(generation.get())
}
