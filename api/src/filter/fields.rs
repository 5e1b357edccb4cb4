//! The keys of filters, and the values that objects have for them.

use super::{number, state};
use crate::schema::Kind;
use serde_json::Value;

/// The meaning of a key.
#[derive(Clone, Debug)]
pub(super) enum Field {
    /// Words anywhere in the object.
    Text,
    /// A key of the table of machines.
    Named(&'static Named),
    /// The state, in words.
    State,
    /// A field by its path, such as `status.inventory.disks.model`.
    Path(Vec<String>),
    /// A label, by its key.
    Label(String),
}

/// A key with its own name.
#[derive(Debug)]
pub(super) struct Named {
    key: &'static str,
    alias: Option<&'static str>,
    /// Pointers to the value in an object. The first that has a value counts.
    at: &'static [&'static str],
    /// The value of an object that has none.
    usual: Option<&'static str>,
    /// The form of the value as a number.
    number: Number,
}

/// The form in which a named field is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    None,
    Count,
    Bytes,
}

const fn named(key: &'static str, at: &'static [&'static str]) -> Named {
    Named { key, alias: None, at, usual: None, number: Number::None }
}

impl Named {
    const fn or(self, alias: &'static str) -> Self {
        Self { alias: Some(alias), ..self }
    }

    const fn usual(self, usual: &'static str) -> Self {
        Self { usual: Some(usual), ..self }
    }

    const fn number(self, number: Number) -> Self {
        Self { number, ..self }
    }
}

/// The keys of machines, in the order of the console's `filter/machines.ts`. There, the state comes after the name.
const OF_MACHINES: &[Named] = &[
    named("name", &["/metadata/name"]).or("hostname"),
    named("zone", &["/spec/zone"]).usual("default"),
    named("pool", &["/spec/pool"]).usual("default"),
    named("tags", &["/status/tags"]).or("tag"),
    named("deployment", &["/status/deployment"]),
    named("power", &["/status/power/state"]),
    named("arch", &["/status/inventory/architecture", "/spec/architecture"]).usual("amd64"),
    named("cores", &["/status/inventory/cpu/cores"]).or("cpu").number(Number::Count),
    named("ram", &["/status/inventory/memory_bytes"]).or("memory").number(Number::Bytes),
    named("mac", &["/spec/boot_macs"]),
    named("ip", &["/status/addresses"]).or("address"),
    named("bmc", &["/spec/bmc/address"]),
    named("domain", &["/spec/domain"]),
    named("vendor", &["/status/inventory/dmi/manufacturer"]),
    named("model", &["/status/inventory/dmi/product"]),
    named("serial", &["/status/inventory/dmi/serial"]),
    named("manager", &["/metadata/manager"]).or("owner"),
    named("mode", &["/spec/mode"]).usual("managed"),
    named("locked", &["/spec/locked"]).usual("false"),
    named("health", &["/status/axes/health"]),
    named("description", &["/spec/description"]),
];

/// The keys of every other kind, in addition to the fields of its spec.
const OF_OTHERS: &[Named] = &[named("name", &["/metadata/name"]), named("manager", &["/metadata/manager"])];

/// The first steps of paths.
const ROOTS: [&str; 3] = ["metadata", "spec", "status"];

fn table(kind: &Kind) -> &'static [Named] {
    if kind.name == "Machine" { OF_MACHINES } else { OF_OTHERS }
}

/// The field of a key, or an error and a remedy.
pub(super) fn find(kind: &'static Kind, key: &str) -> Result<Field, (String, String)> {
    if let Some(label) = key.strip_prefix("label-").or_else(|| key.strip_prefix("label.")) {
        return Ok(Field::Label(label.to_owned()));
    }
    let is_it = |it: &&Named| it.key == key || it.alias == Some(key);
    if let Some(field) = table(kind).iter().find(is_it) {
        return Ok(Field::Named(field));
    }
    if key == "status" {
        return Ok(Field::State);
    }
    let path: Vec<String> = key.split('.').map(str::to_owned).collect();
    if let [root, field, ..] = path.as_slice()
        && ROOTS.contains(&root.as_str())
    {
        let is_known = match root.as_str() {
            "spec" => kind.spec.field(field).is_some(),
            "status" => kind.status.field(field).is_some(),
            _ => METADATA.contains(&field.as_str()),
        };
        if is_known || field == "*" {
            return Ok(Field::Path(path));
        }
        let hint = format!("/docs has the fields of a {}", kind.name);
        return Err((format!("a {} has no {root}.{field}", kind.name), hint));
    }
    // For other kinds, each field of the spec is a key.
    if kind.name != "Machine" && kind.spec.field(key).is_some() {
        return Ok(Field::Path(vec!["spec".to_owned(), key.to_owned()]));
    }
    Err((format!("there is no {key} to filter by"), known(kind)))
}

/// Members of metadata.
const METADATA: [&str; 8] =
    ["name", "uid", "manager", "labels", "generation", "created_at", "updated_at", "deletion_requested_at"];

/// The known keys, in words.
fn known(kind: &Kind) -> String {
    let mut keys: Vec<&str> = table(kind).iter().map(|it| it.key).collect();
    keys.push("status");
    if kind.name != "Machine" {
        keys.extend(
            kind.spec
                .fields
                .iter()
                .map(|field| field.name)
                .filter(|name| !keys.contains(name))
                .collect::<Vec<_>>(),
        );
    }
    format!("one of {}, label-KEY, spec.FIELD, status.FIELD, metadata.FIELD", keys.join(", "))
}

impl Field {
    /// The parser for a number in a filter on this field, if the field can be compared.
    pub(super) fn number(&self) -> Option<fn(&str) -> Option<f64>> {
        match self {
            Self::Named(Named { number: Number::Count, .. }) => Some(number::plain),
            Self::Named(Named { number: Number::Bytes, .. }) => Some(number::bytes),
            Self::Path(_) => Some(number::plain_or_bytes),
            _ => None,
        }
    }

    /// True if the value is a number with every operator. A path is a number only in a comparison.
    pub(super) const fn is_number(&self) -> bool {
        matches!(self, Self::Named(Named { number: Number::Count | Number::Bytes, .. }))
    }

    /// The name, zone or pool, if the database has a column for the key.
    pub(super) fn column(&self) -> Option<&'static str> {
        match self {
            Self::Named(Named { key: key @ ("name" | "zone" | "pool"), .. }) => Some(key),
            _ => None,
        }
    }

    /// The numbers of an object.
    pub(super) fn numbers(&self, object: &Value) -> Vec<f64> {
        self.found(object).into_iter().filter_map(Value::as_f64).collect()
    }

    /// The values of an object, as text.
    pub(super) fn values(&self, object: &Value) -> Vec<String> {
        match self {
            Self::Text => Vec::new(),
            Self::State => state::of(object).words(),
            Self::Named(Named { number: Number::Bytes, .. }) => {
                self.numbers(object).into_iter().map(number::shown).collect()
            }
            Self::Named(Named { usual, .. }) => {
                let found: Vec<String> = self.found(object).into_iter().filter_map(shown).collect();
                if found.is_empty() { usual.iter().map(|it| (*it).to_owned()).collect() } else { found }
            }
            Self::Path(_) | Self::Label(_) => self.found(object).into_iter().filter_map(shown).collect(),
        }
    }

    /// The scalar values at its pointers.
    fn found<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let mut found = Vec::new();
        match self {
            Self::Text | Self::State => {}
            Self::Named(Named { at, .. }) => {
                let first = at.iter().filter_map(|pointer| object.pointer(pointer)).find(|it| !it.is_null());
                first.into_iter().for_each(|value| plain_values(value, &mut found));
            }
            Self::Path(path) => walk(object, path, &mut found),
            Self::Label(label) => {
                found.extend(object.pointer("/metadata/labels").and_then(|all| all.get(label)))
            }
        }
        found
    }
}

/// The values at a path. Each element of a list counts; `*` stands for every member of a map.
fn walk<'a>(value: &'a Value, path: &[String], found: &mut Vec<&'a Value>) {
    match (path.split_first(), value) {
        (None, value) => plain_values(value, found),
        (Some(_), Value::Array(items)) => items.iter().for_each(|item| walk(item, path, found)),
        (Some((first, rest)), Value::Object(members)) if first == "*" => {
            members.values().for_each(|member| walk(member, rest, found));
        }
        (Some((first, rest)), Value::Object(members)) => {
            members.get(first).into_iter().for_each(|member| walk(member, rest, found));
        }
        _ => {}
    }
}

/// The value, or all scalar values inside it.
fn plain_values<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Null => {}
        Value::Array(items) => items.iter().for_each(|item| plain_values(item, found)),
        Value::Object(members) => members.values().for_each(|member| plain_values(member, found)),
        _ => found.push(value),
    }
}

/// A scalar value as text.
fn shown(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}

/// All text of an object in a row of the console, in lower case.
pub(super) fn text(kind: &Kind, object: &Value) -> String {
    let state = state::of(object);
    let mut said = Vec::new();
    if kind.name == "Machine" {
        let mut fields = OF_MACHINES.iter();
        said.extend(fields.next().map(|name| Field::Named(name).values(object)).into_iter().flatten());
        said.extend(state.words());
        said.extend(fields.flat_map(|field| Field::Named(field).values(object)));
        said.extend(object.pointer("/metadata/uid").and_then(shown));
    } else {
        said.extend(state.words());
        let places = ["metadata", "spec"].map(|root| Field::Path(vec![root.to_owned()]));
        said.extend(places.iter().flat_map(|place| place.values(object)));
    }
    said.push(state.reason);
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let pair = |(key, value): (&String, &Value)| Some(format!("{key}={}", value.as_str()?));
    said.extend(labels.into_iter().flatten().filter_map(pair));
    said.join(" ").to_lowercase()
}
