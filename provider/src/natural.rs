//! Objects by field values: `boot_macs=52:54:00:12:34:56`, `bmc.address=10.0.0.9`, `status.inventory.dmi.serial=X1`.
//!
//! A key is a field of the spec, or with the prefix `status.` of the status, with a value. In lists, sets and maps it
//! matches any element. Values are compared as the region compares them, and an absent field has its default.

use basalt_api::{Field, Kind, Object, Presence, Schema, Type};
use serde_json::{Number, Value};

/// The meaning of an absent optional reference, by kind and field.
const ABSENT: &[(&str, &str, &str)] = &[("Machine", "zone", "default"), ("Machine", "pool", "default")];

/// Examples of keys, by kind.
const LIKE: &[(&str, &str)] = &[
    ("Machine", "boot_macs=52:54:00:12:34:56"),
    ("Device", "macs=52:54:00:12:34:56"),
    ("Subnet", "cidr=10.77.0.0/24"),
    ("IpRange", "start=10.77.0.100"),
    ("IpAddress", "address=10.77.0.30"),
];

/// A sentence about the form of a key, for messages.
pub(crate) fn like(kind: &Kind) -> String {
    let example = LIKE.iter().find(|(name, _)| *name == kind.name);
    example.map_or("FIELD=VALUE".to_owned(), |(_, example)| format!("FIELD=VALUE, like {example}"))
}

/// A field and its value.
#[derive(Clone, Debug)]
pub(crate) struct NaturalKey {
    kind: &'static Kind,
    is_status: bool,
    steps: Vec<Step>,
    of: &'static Type,
    value: String,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Field(&'static Field),
    Each,
}

impl NaturalKey {
    /// Reads `FIELD=VALUE`. `None` if the text has no `=` and so is a name.
    ///
    /// # Errors
    /// A sentence about the error.
    pub(crate) fn read(kind: &'static Kind, text: &str) -> Option<Result<Self, String>> {
        let (path, value) = text.split_once('=')?;
        Some(Self::of(kind, path, value))
    }

    /// The key for a field, by its path, with this value.
    ///
    /// # Errors
    /// A sentence about the error in the path.
    pub(crate) fn of(kind: &'static Kind, path: &str, value: &str) -> Result<Self, String> {
        let (is_status, names) = match path.strip_prefix("status.") {
            Some(rest) => (true, rest),
            None => (false, path),
        };
        let described = if is_status { kind.status } else { kind.spec };
        let first = names.split('.').next().unwrap_or(names);
        let observed = match !is_status && kind.status.field(first).is_some() {
            true => format!("; what is observed is status.{names}"),
            false => String::new(),
        };
        let wrong = |why| format!("{} \"{path}={value}\": {why}{observed}.", kind.name);
        let (steps, of) = walk(described, names).map_err(wrong)?;
        Ok(Self { kind, is_status, steps, of, value: value.to_owned() })
    }

    /// True if the object has this key.
    pub(crate) fn is_of(&self, object: &Object) -> bool {
        let root = if self.is_status { &object.status } else { &object.spec };
        self.is_within(root, &self.steps)
    }

    /// The object's values of the key's field, as text.
    pub(crate) fn values(&self, object: &Object) -> Vec<String> {
        let root = if self.is_status { &object.status } else { &object.spec };
        let mut found = vec![root.clone()];
        for step in &self.steps {
            found = found
                .into_iter()
                .flat_map(|json| match (step, json) {
                    (Step::Field(field), json) => {
                        json.get(field.name).cloned().or_else(|| self.absent(field)).into_iter().collect()
                    }
                    (Step::Each, Value::Array(items)) => items,
                    (Step::Each, Value::Object(items)) => items.into_iter().map(|(_, json)| json).collect(),
                    (Step::Each, _) => Vec::new(),
                })
                .collect();
        }
        let word = |json: Value| match json {
            Value::String(text) => text,
            other => other.to_string(),
        };
        found.into_iter().filter(|json| !json.is_null()).map(word).collect()
    }

    /// The value of the key.
    pub(crate) fn value(&self) -> &str {
        &self.value
    }

    fn is_within(&self, json: &Value, steps: &[Step]) -> bool {
        match (steps.split_first(), json) {
            (None, value) => self.is_value(value),
            (Some((Step::Field(field), rest)), json) => match json.get(field.name) {
                Some(json) => self.is_within(json, rest),
                None => self.absent(field).is_some_and(|json| self.is_within(&json, rest)),
            },
            (Some((Step::Each, rest)), Value::Array(items)) => {
                items.iter().any(|json| self.is_within(json, rest))
            }
            (Some((Step::Each, rest)), Value::Object(items)) => {
                items.values().any(|json| self.is_within(json, rest))
            }
            _ => false,
        }
    }

    /// The value of an absent field.
    fn absent(&self, field: &Field) -> Option<Value> {
        if let Presence::Default(default) = field.presence {
            return Some(default.json(&field.ty));
        }
        let of_kind = ABSENT.iter().filter(|_| !self.is_status && self.steps.len() == 1);
        let mut means = of_kind.filter(|(kind, name, _)| (*kind, *name) == (self.kind.name, field.name));
        means.next().map(|(_, _, name)| Value::from(*name))
    }

    fn is_value(&self, json: &Value) -> bool {
        match (self.of, json) {
            (Type::Semantic(semantic), Value::String(text)) => {
                text == &self.value
                    || matches!((semantic.canonical(text), semantic.canonical(&self.value)), (Ok(a), Ok(b)) if a == b)
            }
            (_, Value::String(text)) => text == &self.value,
            (_, Value::Bool(is)) => self.value.parse() == Ok(*is),
            (_, Value::Number(number)) => self.value.parse().is_ok_and(|value: Number| value == *number),
            _ => false,
        }
    }
}

/// The steps to a field, and its type.
fn walk(described: &'static Schema, path: &str) -> Result<(Vec<Step>, &'static Type), String> {
    let (mut described, mut steps) = (described, Vec::new());
    let mut names = path.split('.').peekable();
    while let Some(name) = names.next() {
        let Some(field) = described.field(name) else {
            let known: Vec<_> = described.fields.iter().map(|field| field.name).collect();
            return Err(format!("there is no field {name:?}; there are {}", known.join(", ")));
        };
        steps.push(Step::Field(field));
        let mut of = &field.ty;
        while let Type::List(inner) | Type::Set(inner) | Type::Map { value: inner, .. } = of {
            steps.push(Step::Each);
            of = inner;
        }
        match (of, names.peek()) {
            (Type::Object(inner), Some(_)) => described = inner,
            (Type::Object(inner), None) => {
                let known: Vec<_> = inner.fields.iter().map(|field| field.name).collect();
                return Err(format!("{path} has fields, such as {path}.{}", known.join(", ")));
            }
            (Type::Secret | Type::Json, _) => return Err(format!("{path} cannot be looked for")),
            (_, Some(more)) => return Err(format!("{name} has no field {more:?}")),
            (_, None) => return Ok((steps, of)),
        }
    }
    Err("it begins with no field".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample() -> Object {
        serde_json::from_value(json!({
            "kind": "Sample",
            "metadata": {
                "name": "one", "uid": "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e", "generation": 1,
                "created_at": "2026-01-31T12:00:00Z", "updated_at": "2026-01-31T12:00:00Z"
            },
            "spec": {
                "serial": "S1", "mac": "52:54:00:aa:00:01", "macs": ["52:54:00:aa:00:02"],
                "parts": {"lid": {"weight": 7}}
            },
            "status": {"address": "10.0.0.1"}
        }))
        .expect("an object")
    }

    fn read(text: &str) -> Result<NaturalKey, String> {
        NaturalKey::read(Kind::find("Sample").expect("a kind"), text).expect("a key")
    }

    #[test]
    fn an_object_is_found_by_any_field_in_any_spelling() {
        for (text, want) in [
            ("serial=S1", true),
            ("serial=s1", false),
            ("mac=52-54-00-AA-00-01", true),
            ("macs=52-54-00-AA-00-02", true),
            ("macs=52-54-00-AA-00-01", false),
            ("count_wanted=3", true),
            ("count_wanted=4", false),
            ("parts.weight=7", true),
            ("parts.weight=8", false),
            ("status.address=10.0.0.1", true),
            ("description=", false),
        ] {
            assert_eq!(read(text).expect(text).is_of(&sample()), want, "{text}");
        }
    }

    #[test]
    fn what_an_object_has_is_told_as_it_stands_there() {
        for (text, want) in [
            ("serial=x", vec!["S1"]),
            ("macs=x", vec!["52:54:00:aa:00:02"]),
            ("count_wanted=1", vec!["3"]),
            ("parts.weight=1", vec!["7"]),
            ("status.address=x", vec!["10.0.0.1"]),
            ("description=x", vec![]),
        ] {
            assert_eq!(read(text).expect(text).values(&sample()), want, "{text}");
        }
    }

    #[test]
    fn a_machine_that_names_no_zone_stands_in_the_default_one() {
        let mut machine = sample();
        machine.spec = json!({});
        let is = |text: &str| {
            let key = NaturalKey::read(Kind::find("Machine").expect("a kind"), text).expect("a key");
            key.expect(text).is_of(&machine)
        };
        assert!(is("zone=default") && is("pool=default"));
        assert!(!is("zone=row-1") && !is("domain=default"));
    }

    #[test]
    fn what_is_no_key_is_a_name_or_refused_with_what_there_is() {
        assert!(NaturalKey::read(Kind::find("Sample").expect("a kind"), "one").is_none());
        for (text, want) in [
            ("colr=red", "there are description, serial,"),
            ("parts=x", "parts.weight"),
            ("serial.x=1", "serial has no field \"x\""),
            ("password=x", "cannot be looked for"),
            ("=x", "no field \"\""),
        ] {
            let why = read(text).expect_err(text);
            assert!(why.contains(want), "{text}: {why}");
        }
    }
}
