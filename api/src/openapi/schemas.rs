//! The schemas of kinds, from their descriptions.

use super::wire;
use crate::schema::{Field, Kind, Presence, Schema, Semantic, Type};
use crate::validate::{MAX_ITEMS, MAX_STRING_BYTES, MAX_TEXT_BYTES};
use crate::values::Naming;
use serde_json::{Map, Value, json};

/// Every schema of the document, by name.
pub(super) fn components(kinds: &[&Kind]) -> Map<String, Value> {
    let mut all = Map::new();
    for kind in kinds {
        component(kind.spec, Side::Declared, &mut all);
        component(kind.status, Side::Reported, &mut all);
        let name = kind.name;
        all.insert(
            name.to_owned(),
            json!({
                "type": "object",
                "description": kind.doc,
                "required": ["kind", "metadata", "spec", "status"],
                "properties": {
                    "kind": {"const": name},
                    "metadata": reference("Metadata"),
                    "spec": reference(kind.spec.name),
                    "status": reference(kind.status.name),
                },
                "additionalProperties": false,
            }),
        );
        all.insert(format!("{name}Put"), put(kind));
        all.insert(format!("{name}Patch"), patch(kind, &mut Map::new()));
        all.insert(format!("{name}List"), list(kind));
        all.insert(format!("{name}OrDryRun"), json!({"anyOf": [reference(name), reference("DryRun")]}));
    }
    for (name, schema) in wire::components() {
        all.insert(name.to_owned(), schema);
    }
    all.sort_keys();
    all
}

/// The body of a PUT. It accepts and ignores the region's own members, so that a client can write back an object that it has read.
fn put(kind: &Kind) -> Value {
    json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "kind": {"enum": [kind.name, null]},
            "metadata": wire::given_metadata(kind.naming.pattern(), &[]),
            "spec": reference(kind.spec.name),
            "status": {"description": "Ignored"},
        },
        "additionalProperties": false,
    })
}

/// A merge patch of a spec. Required fields cannot be removed by null. Objects are merged recursively.
fn patch(kind: &Kind, all: &mut Map<String, Value>) -> Value {
    let of = |field: &'static Field, all: &mut Map<String, Value>| {
        let schema = match &field.ty {
            Type::Object(_) | Type::Map { .. } | Type::Json => json!({"type": "object"}),
            ty => type_schema(ty, Side::Declared, all),
        };
        match field.presence {
            Presence::Required => schema,
            _ => nullable(schema),
        }
    };
    let fields = kind.spec.fields.iter().map(|field| (field.name.to_owned(), of(field, all)));
    let properties: Map<String, Value> = fields.collect();
    json!({
        "type": "object",
        "description": format!("A merge patch of {}; null removes a field", kind.spec.name),
        "properties": properties,
        "additionalProperties": false,
    })
}

fn list(kind: &Kind) -> Value {
    let sparse = json!({
        "type": "object",
        "description": "With `fields`: what was asked for of it",
        "properties": {
            "kind": {"const": kind.name}, "metadata": {"type": "object"}, "spec": {"type": "object"},
            "status": {"type": "object"},
        },
        "additionalProperties": false,
    });
    json!({
        "type": "object",
        "required": ["items", "position"],
        "properties": {
            "items": {"type": "array", "items": {"anyOf": [reference(kind.name), sparse]}},
            "continue": {"type": "string", "description": "Goes into the next request; absent on the last page."},
            "position": {"type": "string", "description": "The watch position that goes on from this list."},
        },
        "additionalProperties": false,
    })
}

/// The author of the values of a schema. Values that clients declare have bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Declared,
    Reported,
}

/// Adds `schema` and the schemas that it uses.
fn component(schema: &'static Schema, side: Side, all: &mut Map<String, Value>) {
    if all.contains_key(schema.name) {
        return;
    }
    let mut properties = Map::new();
    all.insert(schema.name.to_owned(), Value::Null);
    for field in schema.fields {
        properties.insert(field.name.to_owned(), property(field, side, all));
    }
    let required: Vec<&str> =
        schema.fields.iter().filter(|f| f.presence == Presence::Required).map(|f| f.name).collect();
    let mut object = json!({
        "type": "object",
        "description": schema.doc,
        "properties": properties,
        "additionalProperties": false,
    });
    if let (false, Some(object)) = (required.is_empty(), object.as_object_mut()) {
        object.insert("required".to_owned(), json!(required));
    }
    all.insert(schema.name.to_owned(), object);
}

fn property(field: &'static Field, side: Side, all: &mut Map<String, Value>) -> Value {
    let mut schema = type_schema(&field.ty, side, all);
    if field.presence != Presence::Required {
        // Null means an absent field.
        schema = nullable(schema);
    }
    let Some(map) = schema.as_object_mut() else { return schema };
    map.insert("description".to_owned(), json!(field.doc));
    match field.presence {
        Presence::Default(constant) => {
            map.insert("default".to_owned(), constant.json(&field.ty));
        }
        Presence::ServerChosen => {
            map.insert("x-basalt-server-chosen".to_owned(), json!(true));
        }
        Presence::Required | Presence::Optional => {}
    }
    if field.immutable {
        map.insert("x-basalt-immutable".to_owned(), json!(true));
    }
    if field.sensitive {
        map.insert("x-basalt-sensitive".to_owned(), json!(true));
    }
    map.insert("x-basalt-effect".to_owned(), json!(field.effect));
    schema
}

fn type_schema(ty: &'static Type, side: Side, all: &mut Map<String, Value>) -> Value {
    match ty {
        Type::Bool => json!({"type": "boolean"}),
        Type::Int { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        Type::String if side == Side::Declared => {
            json!({"type": "string", "maxLength": MAX_STRING_BYTES, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]*$"})
        }
        Type::Text if side == Side::Declared => {
            json!({"type": "string", "maxLength": MAX_TEXT_BYTES, "pattern": r"^[^\u0000]*$"})
        }
        Type::String | Type::Text => json!({"type": "string"}),
        Type::Enum(words) => json!({"type": "string", "enum": words}),
        Type::Semantic(semantic) => form(*semantic),
        Type::Ref(kind) => {
            let pattern = Kind::find(kind).map(|k| k.naming.pattern());
            json!({"type": "string", "pattern": pattern, "x-basalt-refers-to": kind})
        }
        Type::Secret => reference("Secret"),
        Type::Object(schema) => {
            component(schema, side, all);
            reference(schema.name)
        }
        Type::List(item) => {
            bounded(side, "maxItems", json!({"type": "array", "items": type_schema(item, side, all)}))
        }
        Type::Set(item) => bounded(
            side,
            "maxItems",
            json!({"type": "array", "items": type_schema(item, side, all), "uniqueItems": true}),
        ),
        Type::Map { key, value } => bounded(
            side,
            "maxProperties",
            json!({
                "type": "object",
                "propertyNames": named(type_schema(key, side, all)),
                "additionalProperties": type_schema(value, side, all),
            }),
        ),
        Type::Json => json!({"type": "object"}),
    }
}

/// A pattern against empty keys.
fn named(mut key: Value) -> Value {
    if let Some(map) = key.as_object_mut() {
        map.insert("minLength".to_owned(), json!(1));
    }
    key
}

fn bounded(side: Side, word: &str, mut schema: Value) -> Value {
    if let (Side::Declared, Some(map)) = (side, schema.as_object_mut()) {
        map.insert(word.to_owned(), json!(MAX_ITEMS));
    }
    schema
}

/// The same schema, or null.
pub(super) fn nullable(mut schema: Value) -> Value {
    if schema.get("anyOf").is_some() || schema.get("$ref").is_some() {
        return json!({"anyOf": [schema, {"type": "null"}]});
    }
    let Some(map) = schema.as_object_mut() else { return schema };
    if let Some(one) = map.get("type").and_then(Value::as_str).map(str::to_owned) {
        map.insert("type".to_owned(), json!([one, "null"]));
    }
    if let Some(Value::Array(words)) = map.get_mut("enum") {
        words.push(Value::Null);
    }
    schema
}

/// A text with a form. The patterns are wider than the forms: a text that does not match is invalid, but a matching one can also be.
pub(super) fn form(semantic: Semantic) -> Value {
    // The format `duration` of JSON Schema is that of ISO 8601, which differs.
    let format = if semantic == Semantic::Duration { "basalt-duration" } else { semantic.name() };
    let mut schema = json!({"type": "string", "format": format, "examples": [semantic.example()]});
    let pattern = match semantic {
        Semantic::Mac => r"^[0-9A-Fa-f]{2}([:.-]?[0-9A-Fa-f]{2}){5}$",
        Semantic::Duid => "^[0-9A-Fa-f]{2}([:-]?[0-9A-Fa-f]{2}){2,129}$",
        Semantic::Ip => "^[0-9A-Fa-f.:]{2,45}$",
        Semantic::Cidr => "^[0-9A-Fa-f.:]{2,45}/[0-9]{1,3}$",
        Semantic::DnsLabel => Naming::Label.pattern(),
        Semantic::Duration => "^(0|([0-9]+(d|h|ms|m|s))*)$",
        Semantic::Sha256 => "^[0-9A-Fa-f]{64}$",
        Semantic::Bytes => "^[0-9]+[A-Za-z]*$",
        _ => "",
    };
    if let (false, Some(map)) = (pattern.is_empty(), schema.as_object_mut()) {
        map.insert("pattern".to_owned(), json!(pattern));
    }
    schema
}

/// A reference to a component.
#[must_use]
pub fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}
