//! One object to write: preconditions, secrets, and changes.
//!
//! The description of a secret names the fields that decide where the secret is sent (`sent_to`, or `sent_nowhere`). A write that changes
//! such a field and keeps the stored secret is refused (docs/decisions/075-destinations-of-secrets.md).

use super::passwords::Hashes;
use super::rows::SecretRow;
use crate::invariant::Subject;
use crate::object::{self, Key, Layers, Object, Row, unsigned};
use crate::run::Unconfirmed;
use crate::seal::Place;
use crate::splice::Text;
use crate::{Store, StoreError};
use crate::{audit, password};
use basalt_api::values::{Generation, Uid};
use basalt_api::{Effect, FieldChange, FieldCode, FieldError, Kind, SecretWrite};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};

/// A spec to store.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// The kind of the object.
    pub kind: &'static Kind,
    /// The object. A uid must exist.
    pub key: Key<'a>,
    /// The spec. It has passed [`basalt_api::validate()`].
    pub spec: &'a Text,
    /// The spec's place in the request, as a JSON pointer. The pointers of errors begin with it.
    pub at: &'a str,
    /// Replaces the labels of `manager`, if given.
    pub labels: Option<&'a BTreeMap<String, String>>,
    /// The manager that declares the object.
    pub manager: Option<&'a str>,
    /// Takes the object over if another manager declared it.
    pub adopt: bool,
    /// The condition that the stored object must meet.
    pub precondition: Precondition,
    /// The status of a new object; its `observed_generation` is filled in.
    pub first_status: &'a Value,
}

/// The condition of a write, from `If-Match` or `If-None-Match`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// There is no condition.
    None,
    /// `If-None-Match: *`: the object must not exist.
    Absent,
    /// `If-Match: *`: the object must exist.
    Present,
    /// `If-Match: "3"`: the object must have this generation.
    Generation(Generation),
}

/// The result of a [`Put`].
#[derive(Clone, Debug)]
pub struct Stored {
    /// The object after the write; in a dry run, as it would be.
    pub object: Object,
    /// True if the object did not exist before.
    pub created: bool,
    /// True if the object's generation rose.
    pub changed: bool,
    /// True if its labels or its manager changed.
    pub relabelled: bool,
    /// The manager before, if the object was taken over from another one.
    pub taken_from: Option<String>,
    /// The changes in the spec, masked. For a new object, every field is a change.
    pub changes: Vec<FieldChange>,
    /// A keyed digest of the declaration: the exact text of the spec, secrets included, and the labels. Without the seal key, the
    /// digest tells nothing about them.
    pub mark: [u8; 32],
    /// Notes for the caller: fields without effect yet, a host with the BMC of another machine, and in a dry run the errors
    /// that would refuse the write. Pointers are into the request.
    pub advisories: Vec<FieldError>,
    /// The generation before the write; `None` for a new object.
    pub generation_before: Option<Generation>,
}

/// A put on its way to the table.
pub(super) struct Draft<'a> {
    pub(super) put: &'a Put<'a>,
    pub(super) uid: Uid,
    pub(super) old: Option<Row>,
    changes: Vec<FieldChange>,
    pub(super) sealed: Sealed,
    pub(super) layers: Layers,
    pub(super) manager: Option<String>,
    relabelled: bool,
    taken_from: Option<String>,
    /// True if the text of the spec differs from the stored one.
    rewritten: bool,
    /// True if the generation rises.
    pub(super) changed: bool,
    /// True if the row is written.
    pub(super) touched: bool,
    /// True if the run adopts an unconfirmed creation.
    taken_up: bool,
    /// True if the references differ from those before.
    pub(super) refers_anew: bool,
    /// The declared spec before the write.
    before: Value,
    /// References by pointer, once they are resolved.
    pub(super) references: BTreeMap<String, Uid>,
    /// The errors of the spec; pointers are into the spec.
    pub(super) errors: Vec<FieldError>,
    /// Advice that refuses nothing; pointers are into the spec.
    pub(super) notes: Vec<FieldError>,
    /// The row that was written.
    pub(super) row: Option<Row>,
}

/// A spec with its secrets taken out.
pub(super) struct Sealed {
    pub(super) text: Text,
    pub(super) value: Value,
    /// The spec with plaintexts.
    declared: Value,
    /// The new secrets: pointer, revision, sealed bytes.
    pub(super) fresh: Vec<(String, i64, Vec<u8>)>,
    /// Pointers of the secrets that stay as they are.
    pub(super) kept: Vec<String>,
    /// Those of the kept pointers whose plaintext is not in the spec.
    unsaid: Vec<String>,
    /// True if a stored secret is removed or gets another plaintext.
    pub(super) changed: bool,
}

/// [`Stored::mark`].
fn mark(store: &Store, put: &Put<'_>) -> Result<[u8; 32], StoreError> {
    let declared = serde_json::to_vec(&(put.spec.as_str(), put.labels))
        .map_err(|e| StoreError::Corrupt(e.to_string()))?;
    Ok(store.seal().mark(&declared))
}

impl<'a> Draft<'a> {
    /// Prepares a write. The inner error is about the spec, the outer one about the object.
    pub(super) fn new(
        (store, hashes): (&Store, Option<&Hashes>),
        put: &'a Put<'a>,
        old: Option<Row>,
        (secrets, unconfirmed): (
            &mut BTreeMap<uuid::Uuid, Vec<SecretRow>>,
            &HashMap<uuid::Uuid, Unconfirmed>,
        ),
    ) -> Result<Result<Self, Vec<FieldError>>, StoreError> {
        let cut_off = old.as_ref().and_then(|old| unconfirmed.get(&old.uid)).copied();
        let exists = match precondition(put, old.as_ref()) {
            Err(exists @ StoreError::Exists { .. }) => Some(exists),
            other => other.map(|()| None)?,
        };
        let uid = old.as_ref().map_or_else(Uid::generate, |o| Uid::from(o.uid));
        let before = old.as_ref().map_or_else(|| Ok(Value::Object(Map::new())), |o| parse(&o.spec))?;
        let stored = secrets.remove(&uid.get()).unwrap_or_default();
        let sealed = match take_secrets((store, hashes), put, uid, &stored)? {
            Ok(sealed) => sealed,
            Err(errors) => return exists.map_or(Ok(Err(errors)), Err),
        };
        let mut changes = basalt_api::diff(put.kind, &before, &sealed.declared);
        let redirected = redirected(put.kind, &sealed.unsaid, &changes);
        // `Exists` comes before a redirection error. A redirected object differs from the declared one, so no run adopts it.
        if exists.is_none() && !redirected.is_empty() {
            return Ok(Err(redirected));
        }
        changes.retain(|change| !sealed.kept.contains(&change.pointer));
        if let (Some(exists), Some(old)) = (exists, &old) {
            let is_secret = |change: &FieldChange| sealed.fresh.iter().any(|(at, ..)| *at == change.pointer);
            let is_equal = old.manager.as_deref() == put.manager && changes.iter().all(is_secret);
            let cut_off = cut_off.filter(|_| is_equal);
            if cut_off.is_none_or(|it| it.free_in > 0) {
                return Err(exists.free_in(cut_off.map(|it| it.free_in)));
            }
        }
        let changed = old.is_none() || !changes.is_empty() || sealed.changed;
        let layers_before = old.as_ref().map(Row::layers).transpose()?.unwrap_or_default();
        let mut layers = layers_before.clone();
        if let Some(labels) = put.labels {
            set_layer(&mut layers, put.manager.unwrap_or_default(), labels);
        }
        let manager_before = old.as_ref().and_then(|old| old.manager.clone());
        let manager = match &manager_before {
            Some(other) if !put.adopt => Some(other.clone()),
            _ => put.manager.map(str::to_owned).or(manager_before.clone()),
        };
        let relabelled = layers != layers_before || manager != manager_before;
        let taken_from = manager_before.filter(|before| manager.as_ref() != Some(before));
        let rewritten = old.as_ref().is_none_or(|old| old.spec != sealed.text.as_str());
        let touched = changed || relabelled || rewritten;
        let errors = if old.is_some() { immutable(&changes) } else { Vec::new() };
        let references = BTreeMap::new();
        Ok(Ok(Self {
            put,
            uid,
            old,
            changes,
            sealed,
            layers,
            manager,
            relabelled,
            taken_from,
            rewritten,
            changed,
            touched,
            taken_up: cut_off.is_some() && put.precondition == Precondition::Absent,
            refers_anew: touched,
            before,
            references,
            errors,
            notes: Vec::new(),
            row: None,
        }))
    }

    /// True for a new object, and for one that is adopted as if it were new.
    pub(super) fn is_creation(&self) -> bool {
        self.old.is_none() || self.taken_up
    }

    /// The generation that the status describes. Kinds without a driver are ready as soon as they are stored.
    pub(super) fn observed(&self, store_reconciles: bool) -> i64 {
        match &self.old {
            Some(old) if store_reconciles => old.observed_generation,
            Some(old) => old.generation.saturating_add(i64::from(self.changed)),
            None => i64::from(!store_reconciles),
        }
    }

    pub(super) fn subject(&self) -> Subject<'_> {
        Subject {
            kind: self.put.kind.name,
            uid: self.uid,
            spec: &self.sealed.value,
            before: self.old.as_ref().map(|_| &self.before),
            references: &self.references,
        }
    }

    /// The entries for the audit log, if the row was written: the spec, and changed labels or manager of an existing object.
    pub(super) fn logged(&self) -> Result<Vec<audit::Written>, StoreError> {
        let Some(row) = &self.row else { return Ok(Vec::new()) };
        let mut logged = Vec::new();
        if self.changed || self.rewritten {
            logged.push(audit::Written::object(row, self.old.as_ref().map(|old| old.spec.clone())));
        }
        if let (Some(old), true) = (&self.old, self.relabelled) {
            let of =
                |manager: &Option<String>, labels: &Layers| json!({ "manager": manager, "labels": labels });
            let (before, after) = (of(&old.manager, &old.layers()?), of(&self.manager, &self.layers));
            logged.push(audit::Written::beside(row, &before, &after));
        }
        Ok(logged)
    }

    pub(super) fn stored(self, store: &Store) -> Result<Stored, StoreError> {
        let generation_before = self.old.as_ref().map(|old| Generation::new(unsigned(old.generation)));
        let row =
            self.row.or(self.old).ok_or_else(|| StoreError::Corrupt("a draft was not written".to_owned()))?;
        let at = self.put.at;
        let notes = self.notes.into_iter().chain(basalt_api::dormant(self.put.kind, &self.sealed.value));
        Ok(Stored {
            object: row.object()?,
            created: generation_before.is_none(),
            changed: self.changed,
            relabelled: self.relabelled,
            taken_from: self.taken_from,
            changes: self.changes,
            mark: mark(store, self.put)?,
            advisories: self.errors.into_iter().chain(notes).map(|error| error.below(at)).collect(),
            generation_before,
        })
    }
}

/// Replaces each secret by its read form. An omitted secret, or one in its read form, keeps the stored value; null clears it.
fn take_secrets(
    (store, hashes): (&Store, Option<&Hashes>),
    put: &Put<'_>,
    uid: Uid,
    stored: &[SecretRow],
) -> Result<Result<Sealed, Vec<FieldError>>, StoreError> {
    let mut text = put.spec.clone();
    let declared = parse(text.as_str())?;
    let named = basalt_api::secrets(put.kind, &declared);
    let (mut fresh, mut kept, mut unsaid, mut errors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut read_forms = Vec::new();
    for secret in &named {
        let pointer = &secret.pointer;
        let before = stored.iter().find(|s| s.pointer == *pointer);
        match (&secret.write, before) {
            (SecretWrite::Clear, _) => {}
            (SecretWrite::Set(plain), before) => {
                let place = Place { object: uid, pointer };
                let new = match password::is_hashed(put.kind.name, pointer) {
                    true => new_hash(hashes, pointer, before)?.map(str::as_bytes),
                    false => {
                        let opened = before.map(|b| store.seal().open(&place, &b.sealed)).transpose()?;
                        let is_same = opened.is_some_and(|stored| *stored == *plain.as_bytes());
                        (!is_same).then_some(plain.as_bytes())
                    }
                };
                match (before, new) {
                    (Some(before), None) => {
                        kept.push(pointer.clone());
                        read_forms.push((pointer.clone(), before.revision));
                    }
                    (before, new) => {
                        let revision = before.map_or(1, |b| b.revision.saturating_add(1));
                        let sealed = store.seal().seal(&place, new.unwrap_or_default())?;
                        fresh.push((pointer.clone(), revision, sealed));
                        read_forms.push((pointer.clone(), revision));
                    }
                }
            }
            (SecretWrite::Keep, Some(before)) => {
                kept.push(pointer.clone());
                unsaid.push(pointer.clone());
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
    for before in stored {
        let omitted = !named.iter().any(|s| s.pointer == before.pointer);
        if omitted && has_parent(&text, &before.pointer) {
            kept.push(before.pointer.clone());
            unsaid.push(before.pointer.clone());
            read_forms.push((before.pointer.clone(), before.revision));
        }
    }
    if !errors.is_empty() {
        return Ok(Err(errors));
    }
    let has_secrets = !read_forms.is_empty();
    for (pointer, revision) in read_forms {
        let read_form = format!(r#"{{"set":true,"revision":{revision}}}"#);
        text = text.set(&pointer, &read_form).map_err(|e| StoreError::Corrupt(e.to_string()))?;
    }
    let value = if has_secrets { parse(text.as_str())? } else { declared.clone() };
    let changed = !fresh.is_empty() || kept.len() < stored.len();
    Ok(Ok(Sealed { text, value, declared, fresh, kept, unsaid, changed }))
}

/// Refuses to send a stored secret to another destination: a caller who changes the destination must know the secret.
fn redirected(kind: &Kind, unsaid: &[String], changes: &[FieldChange]) -> Vec<FieldError> {
    let error = |pointer: &String| {
        let fields = basalt_api::redirections(kind, pointer, changes);
        let first = fields.first()?.trim_start_matches('/').replace('/', ".");
        let message = format!("{first} changes, which decides where this secret is sent");
        let hint = "write the secret itself as well, or null to clear it";
        Some(FieldError::new(pointer, FieldCode::Redirected, message, hint))
    };
    unsaid.iter().filter_map(error).collect()
}

/// The hash to store for a password; `None` if the stored hash already matches.
fn new_hash<'a>(
    hashes: Option<&'a Hashes>,
    pointer: &str,
    before: Option<&SecretRow>,
) -> Result<Option<&'a str>, StoreError> {
    let hashed = hashes.and_then(|hashes| hashes.get(pointer)).ok_or(StoreError::Overtaken)?;
    if hashed.compared.as_deref() != before.map(|b| b.sealed.as_slice()) {
        return Err(StoreError::Overtaken);
    }
    Ok(hashed.fresh.as_ref().map(|hash| hash.as_str()))
}

fn precondition(put: &Put<'_>, old: Option<&Row>) -> Result<(), StoreError> {
    let current = old.map(|o| Generation::new(unsigned(o.generation)));
    let (kind, name) =
        (put.kind.name.to_owned(), old.map_or_else(|| put.key.to_string(), |o| o.name.clone()));
    match (put.precondition, old) {
        (_, None) if matches!(put.key, Key::Uid(_)) => Err(object::not_found(put.kind.name, put.key)),
        (_, Some(old)) if old.deletion_us.is_some() => Err(StoreError::Deleting { kind, name }),
        (Precondition::Absent, Some(old)) => {
            Err(StoreError::Exists { kind, name, manager: old.manager.clone(), free_in: None })
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

pub(super) fn parse(text: &str) -> Result<Value, StoreError> {
    serde_json::from_str(text).map_err(|e| StoreError::Corrupt(format!("JSON: {e}")))
}

fn set_layer(layers: &mut Layers, manager: &str, labels: &BTreeMap<String, String>) {
    if labels.is_empty() {
        layers.remove(manager);
    } else {
        layers.insert(manager.to_owned(), labels.clone());
    }
}

/// The errors of fields that cannot change after creation and differ.
fn immutable(changes: &[FieldChange]) -> Vec<FieldError> {
    let fixed = changes.iter().filter(|change| change.effect == Effect::Replace);
    let error = |change: &FieldChange| {
        let message = format!("{} cannot change after creation", change.pointer.trim_start_matches('/'));
        let hint = "delete the object and create it anew";
        FieldError::new(&change.pointer, FieldCode::Immutable, message, hint)
    };
    fixed.map(error).collect()
}
