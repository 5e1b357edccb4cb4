//! Finds references to other objects and secrets in a spec, by the kind's description.

use crate::pointer;
use crate::schema::{Kind, Schema, Type};
use serde_json::{Map, Value};

/// A name in a spec that refers to another object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// JSON pointer into the spec.
    pub pointer: String,
    /// The kind of the other object.
    pub kind: &'static str,
    /// The name of the other object.
    pub name: String,
}

/// A secret of a spec, and the change that a write makes to it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretAt {
    /// JSON pointer into the spec.
    pub pointer: String,
    /// The change of the secret.
    pub write: SecretWrite,
}

/// The change of a secret by a write. If the new spec does not name a secret of the old spec, the secret is kept while the object around it
/// exists.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretWrite {
    /// It gets this plaintext.
    Set(String),
    /// The secret stays: the spec has it in its read form.
    Keep,
    /// The secret is removed.
    Clear,
}

/// Every reference in `spec`, in the order of the description.
#[must_use]
pub fn references(kind: &Kind, spec: &Value) -> Vec<Reference> {
    let mut found = Vec::new();
    each(kind, spec, &mut |pointer, ty, value| {
        if let (Type::Ref(kind), Value::String(name)) = (ty, value) {
            found.push(Reference { pointer: pointer.to_owned(), kind, name: name.clone() });
        }
    });
    found
}

/// Every secret that `spec` names, in the order of the description.
#[must_use]
pub fn secrets(kind: &Kind, spec: &Value) -> Vec<SecretAt> {
    let mut found = Vec::new();
    each(kind, spec, &mut |pointer, ty, value| {
        if !matches!(ty, Type::Secret) {
            return;
        }
        let write = match value {
            Value::Null => SecretWrite::Clear,
            Value::String(plain) => SecretWrite::Set(plain.clone()),
            _ => SecretWrite::Keep,
        };
        found.push(SecretAt { pointer: pointer.to_owned(), write });
    });
    found
}

/// True if specs of this kind can have secrets.
#[must_use]
pub fn has_secrets(kind: &Kind) -> bool {
    fn within(ty: &Type) -> bool {
        match ty {
            Type::Secret => true,
            Type::Object(schema) => schema.fields.iter().any(|field| within(&field.ty)),
            Type::Map { value: item, .. } => within(item),
            Type::List(item) | Type::Set(item) => within(item),
            _ => false,
        }
    }
    kind.spec.fields.iter().any(|field| within(&field.ty))
}

/// Calls `f` with pointer, type and value of every scalar in `spec`, with nulls of secrets.
fn each<'a>(kind: &Kind, spec: &'a Value, f: &mut impl FnMut(&str, &'static Type, &'a Value)) {
    if let Value::Object(map) = spec {
        fields(kind.spec, map, "", f);
    }
}

fn fields<'a>(
    schema: &'static Schema,
    map: &'a Map<String, Value>,
    at: &str,
    f: &mut impl FnMut(&str, &'static Type, &'a Value),
) {
    for field in schema.fields {
        if let Some(value) = map.get(field.name) {
            descend(&field.ty, value, &pointer::child(at, field.name), f);
        }
    }
}

fn descend<'a>(
    ty: &'static Type,
    value: &'a Value,
    at: &str,
    f: &mut impl FnMut(&str, &'static Type, &'a Value),
) {
    match (ty, value) {
        (Type::Object(schema), Value::Object(map)) => fields(schema, map, at, f),
        (Type::Map { value: item, .. }, Value::Object(map)) => {
            for (key, value) in map {
                descend(item, value, &pointer::child(at, key), f);
            }
        }
        (Type::List(item) | Type::Set(item), Value::Array(items)) => {
            for (index, value) in items.iter().enumerate() {
                descend(item, value, &pointer::child(at, &index.to_string()), f);
            }
        }
        _ => f(at, ty, value),
    }
}
