//! The differences between two specs, by the kind's description: sets have no order, `52:54:00:AB:…` equals `52:54:00:ab:…`, null equals an
//! absent field, and an absent field equals its constant.

use crate::pointer;
use crate::schema::{Effect, Field, Kind, Presence, Schema, Type};
use basalt_api_derive::Shape;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Shown in place of a sensitive value.
pub const HIDDEN: &str = "(sensitive)";

/// Shown in place of a sensitive value that a write changed.
pub const HIDDEN_CHANGE: &str = "(sensitive, changed)";

/// One difference. Secrets and sensitive values are masked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct FieldChange {
    /// JSON pointer into the spec.
    pub pointer: String,
    /// The old value; absent if the field was absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Value>,
    /// The new value; absent if the field is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<Value>,
    /// Effect of the change on running machines and services.
    pub effect: Effect,
}

/// True if specs `old` and `new` mean the same.
///
/// For secrets the direction matters: if `new` omits a secret, or has it in its read form, the secret does not change.
#[must_use]
pub fn equal(kind: &Kind, old: &Value, new: &Value) -> bool {
    diff(kind, old, new).is_empty()
}

/// The changes from spec `old` to spec `new`, in the order of the description. Lists and sets are compared as a whole: a change of an
/// element is a change of the list.
#[must_use]
pub fn diff(kind: &Kind, old: &Value, new: &Value) -> Vec<FieldChange> {
    let mut diff = Diff { changes: Vec::new() };
    diff.fields(kind.spec, &object(old), &object(new), "", Effect::None, false);
    diff.changes
}

/// The same as [`diff`] for the part of a spec that `schema` describes.
#[must_use]
pub fn diff_fields(schema: &Schema, old: &Value, new: &Value) -> Vec<FieldChange> {
    let mut diff = Diff { changes: Vec::new() };
    diff.fields(schema, &object(old), &object(new), "", Effect::None, false);
    diff.changes
}

/// The canonical spelling of `value`, which is the same for all equal values.
#[must_use]
pub fn canonical(ty: &Type, value: &Value) -> String {
    spell(ty, value).to_string()
}

struct Diff {
    changes: Vec<FieldChange>,
}

impl Diff {
    fn fields(
        &mut self,
        schema: &Schema,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
        at: &str,
        above: Effect,
        hidden: bool,
    ) {
        for field in schema.fields {
            let effect = above.max(field.effect);
            let here = pointer::child(at, field.name);
            let hidden = hidden || field.sensitive;
            if matches!(field.ty, Type::Secret) {
                self.secret(old.get(field.name), new.get(field.name), &here, effect);
            } else {
                self.value(&field.ty, present(field, old), present(field, new), &here, effect, hidden);
            }
        }
    }

    fn value(
        &mut self,
        ty: &Type,
        old: Option<Cow<'_, Value>>,
        new: Option<Cow<'_, Value>>,
        at: &str,
        effect: Effect,
        hidden: bool,
    ) {
        match (ty, &old, &new) {
            (_, None, None) => {}
            (Type::Object(schema), Some(old), Some(new)) => {
                self.fields(schema, &object(old), &object(new), at, effect, hidden);
            }
            (Type::Map { value: item, .. }, Some(old), Some(new)) => {
                let (old, new) = (object(old), object(new));
                for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
                    let of = |map: &Map<String, Value>| {
                        map.get(key).filter(|v| !v.is_null()).cloned().map(Cow::Owned)
                    };
                    self.value(item, of(&old), of(&new), &pointer::child(at, key), effect, hidden);
                }
            }
            (_, Some(old), Some(new)) if spell(ty, old) == spell(ty, new) => {}
            _ => {
                let effect = [&old, &new].into_iter().flatten().fold(effect, |e, v| e.max(strongest(ty, v)));
                let shown = |value: Option<Cow<'_, Value>>| value.map(|v| mask(ty, &v, hidden));
                self.changes.push(FieldChange {
                    pointer: at.to_owned(),
                    old: shown(old),
                    new: shown(new),
                    effect,
                });
            }
        }
    }

    fn secret(&mut self, old: Option<&Value>, new: Option<&Value>, at: &str, effect: Effect) {
        let is_set = |v: &&Value| !v.is_null();
        let is_change = match (old.filter(is_set), new) {
            (_, None | Some(Value::Object(_))) => false,
            (old, Some(Value::Null)) => old.is_some(),
            (old, Some(plain)) => old != Some(plain),
        };
        if is_change {
            let shown = |v: Option<&Value>| v.filter(is_set).map(|v| mask(&Type::Secret, v, true));
            self.changes.push(FieldChange {
                pointer: at.to_owned(),
                old: shown(old),
                new: shown(new),
                effect,
            });
        }
    }
}

fn object(value: &Value) -> Cow<'_, Map<String, Value>> {
    match value {
        Value::Object(map) => Cow::Borrowed(map),
        _ => Cow::Owned(Map::new()),
    }
}

/// True if two values of a field mean the same.
pub(crate) fn equal_values(ty: &Type, old: &Value, new: &Value) -> bool {
    let mut diff = Diff { changes: Vec::new() };
    diff.value(ty, Some(Cow::Borrowed(old)), Some(Cow::Borrowed(new)), "", Effect::None, true);
    diff.changes.is_empty()
}

/// The field's value. Null counts as absent, and an absent field has its constant.
pub(crate) fn present<'a>(field: &Field, map: &'a Map<String, Value>) -> Option<Cow<'a, Value>> {
    match (map.get(field.name).filter(|v| !v.is_null()), field.presence) {
        (Some(value), _) => Some(Cow::Borrowed(value)),
        (None, Presence::Default(constant)) => Some(Cow::Owned(constant.json(&field.ty))),
        (None, _) => None,
    }
}

/// The canonical JSON of `value`.
fn spell(ty: &Type, value: &Value) -> Value {
    match (ty, value) {
        (Type::Semantic(semantic), Value::String(text)) => {
            semantic.canonical(text).map_or_else(|_| value.clone(), Value::String)
        }
        (Type::List(item), Value::Array(items)) => items.iter().map(|v| spell(item, v)).collect(),
        (Type::Set(item), Value::Array(items)) => {
            let mut all: Vec<Value> = items.iter().map(|v| spell(item, v)).collect();
            all.sort_by_cached_key(Value::to_string);
            Value::Array(all)
        }
        _ => value.clone(),
    }
}

/// The strongest effect of the fields that `value` sets below itself.
fn strongest(ty: &Type, value: &Value) -> Effect {
    match (ty, value) {
        (Type::Object(schema), Value::Object(map)) => schema
            .fields
            .iter()
            .filter_map(|f| {
                map.get(f.name).filter(|v| !v.is_null()).map(|v| f.effect.max(strongest(&f.ty, v)))
            })
            .max()
            .unwrap_or_default(),
        (Type::Map { value: item, .. }, Value::Object(map)) => {
            map.values().map(|v| strongest(item, v)).max().unwrap_or_default()
        }
        _ => Effect::None,
    }
}

/// `value` with secrets and sensitive parts masked.
#[must_use]
pub fn mask(ty: &Type, value: &Value, hidden: bool) -> Value {
    match (ty, value) {
        (_, Value::Null) => Value::Null,
        (Type::Secret, Value::Object(read_form)) => Value::Object(read_form.clone()),
        (Type::Secret, _) => json!({"set": true}),
        (Type::Object(schema), Value::Object(map)) => mask_fields(schema, map, hidden),
        (Type::Map { value: item, .. }, Value::Object(map)) => {
            Value::Object(map.iter().map(|(k, v)| (k.clone(), mask(item, v, hidden))).collect())
        }
        _ if hidden => json!(HIDDEN),
        _ => value.clone(),
    }
}

fn mask_fields(schema: &Schema, map: &Map<String, Value>, hidden: bool) -> Value {
    let shown = map.iter().map(|(name, value)| {
        let shown = schema.field(name).map_or(Value::Null, |f| mask(&f.ty, value, hidden || f.sensitive));
        (name.clone(), shown)
    });
    Value::Object(shown.collect())
}

/// A whole spec with secrets and sensitive values masked, for display and logs.
#[must_use]
pub fn masked(kind: &Kind, spec: &Value) -> Value {
    mask_fields(kind.spec, &object(spec), false)
}

/// The specs before and after a write, for a log: both masked, with [`HIDDEN_CHANGE`] in place of a sensitive value that differs.
#[must_use]
pub fn masked_write(kind: &Kind, old: &Value, new: &Value) -> (Value, Value) {
    let (before, mut after) = (masked(kind, old), masked(kind, new));
    for change in diff(kind, old, new) {
        if let Some(place) = after.pointer_mut(&change.pointer).filter(|it| **it == json!(HIDDEN)) {
            *place = json!(HIDDEN_CHANGE);
        }
    }
    (before, after)
}

/// True if specs of this kind can have sensitive values.
#[must_use]
pub fn has_sensitive(kind: &Kind) -> bool {
    fn within(ty: &Type) -> bool {
        match ty {
            Type::Object(schema) => any(schema),
            Type::Map { value: item, .. } | Type::List(item) | Type::Set(item) => within(item),
            _ => false,
        }
    }
    fn any(schema: &Schema) -> bool {
        schema.fields.iter().any(|field| field.sensitive || within(&field.ty))
    }
    any(kind.spec)
}
