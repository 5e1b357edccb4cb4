//! The generic part of validation: compares a value with its description.

use super::limits::{MAX_ITEMS, MAX_STRING_BYTES, MAX_TEXT_BYTES};
use crate::pointer;
use crate::problem::{FieldCode, FieldError};
use crate::schema::{Field, Kind, Presence, Schema, Semantic, Type};
use crate::values::{BadValue, closest, quoted, ssh_key_line};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Most errors of one answer. More would not help a person.
const MAX_ERRORS: usize = 100;

pub(super) fn walk(kind: &Kind, spec: &Value, unknown: &[String]) -> Vec<FieldError> {
    let mut walk = Walk { unknown, errors: Vec::new() };
    match spec {
        Value::Object(map) => walk.fields(kind.spec, map, ""),
        other => walk.wrong_type("", "an object", other),
    }
    walk.errors
}

struct Walk<'a> {
    unknown: &'a [String],
    errors: Vec<FieldError>,
}

impl Walk<'_> {
    fn fields(&mut self, schema: &Schema, map: &Map<String, Value>, at: &str) {
        let unknown = map.keys().filter(|name| schema.field(name).is_none());
        for name in unknown.take(MAX_ERRORS) {
            self.unknown_field(schema, name, at);
        }
        for field in schema.fields {
            let here = pointer::child(at, field.name);
            match map.get(field.name).filter(|value| !value.is_null()) {
                Some(value) => self.value(&field.ty, value, &here),
                None => self.absent(field, &here),
            }
        }
    }

    fn absent(&mut self, field: &Field, at: &str) {
        let is_unknown = self.unknown.iter().any(|u| pointer::is_within(u, at) || pointer::is_within(at, u));
        if field.presence == Presence::Required && !is_unknown {
            let what = field.doc.trim_end_matches('.');
            let hint = match &field.ty {
                Type::Semantic(semantic) if !what.contains("like") => {
                    format!("{what}, like {}", semantic.example())
                }
                Type::Enum(words) => format!("{what}: one of {}", words.join(", ")),
                _ => what.to_owned(),
            };
            self.push(at, FieldCode::Required, format!("{:?} is missing: {hint}", field.name), "");
        }
    }

    fn unknown_field(&mut self, schema: &Schema, name: &str, at: &str) {
        let names: Vec<&str> = schema.fields.iter().map(|f| f.name).collect();
        let hint = match closest(name, &names) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("the fields here are {}", names.join(", ")),
        };
        let message = format!("there is no field {} here", quoted(name));
        self.push(&pointer::child(at, name), FieldCode::UnknownField, message, hint);
    }

    fn value(&mut self, ty: &Type, value: &Value, at: &str) {
        match (ty, value) {
            (Type::Bool, Value::Bool(_)) => {}
            (Type::Bool, other) => self.wrong_type(at, "true or false", other),
            (Type::Int { min, max }, Value::Number(number)) => self.number(number, *min, *max, at),
            (Type::Int { .. }, other) => self.wrong_type(at, "a whole number", other),
            (Type::Object(schema), Value::Object(map)) => self.fields(schema, map, at),
            (Type::Object(_) | Type::Json, other) => self.wrong_type(at, "an object", other),
            (Type::List(item), Value::Array(items)) => self.items(item, items, false, at),
            (Type::Set(item), Value::Array(items)) => self.items(item, items, true, at),
            (Type::List(_) | Type::Set(_), other) => self.wrong_type(at, "a list", other),
            (Type::Map { key, value: item }, Value::Object(map)) => self.map(key, item, map, at),
            (Type::Map { .. }, other) => self.wrong_type(at, "an object, by key", other),
            (Type::Secret, Value::Object(map)) => self.read_form(map, at),
            (text, Value::String(s)) => self.text(text, s, at),
            (_, other) => self.wrong_type(at, "a text", other),
        }
    }

    fn number(&mut self, number: &serde_json::Number, min: i64, max: i64, at: &str) {
        match number.as_i64() {
            Some(n) if (min..=max).contains(&n) => {}
            None if number.is_f64() && number.as_f64().is_some_and(|f| f.fract() != 0.0) => {
                self.push(
                    at,
                    FieldCode::Type,
                    format!("{number} is not a whole number"),
                    "write it without a fraction",
                );
            }
            None if number.is_f64() => {
                self.push(
                    at,
                    FieldCode::Type,
                    format!("{number} is written as a fraction"),
                    "write it without a point",
                );
            }
            _ => self.push(
                at,
                FieldCode::Range,
                format!("{number} is out of range"),
                format!("{min} to {max}"),
            ),
        }
    }

    fn text(&mut self, ty: &Type, text: &str, at: &str) {
        let (is_text, is_secret) = (matches!(ty, Type::Text), matches!(ty, Type::Secret));
        let longest = if is_text { MAX_TEXT_BYTES } else { MAX_STRING_BYTES };
        if text.len() > longest {
            let shown = if is_secret { "a secret".to_owned() } else { quoted(text) };
            let message = format!("the text has {} bytes: {shown}", text.len());
            return self.push(at, FieldCode::TooLarge, message, format!("at most {longest}"));
        }
        let line = match ty {
            Type::Semantic(Semantic::SshPublicKey) => ssh_key_line(text),
            _ => text,
        };
        let is_bad = |c: char| if is_text || is_secret { c == '\0' } else { c.is_control() };
        if let Some(c) = line.chars().find(|c| is_bad(*c)) {
            let message = format!("the text contains the control character {c:?}");
            return self.push(
                at,
                FieldCode::Format,
                message,
                if is_text { "text" } else { "one line of text" },
            );
        }
        if let Err(bad) = form(ty, text, at)
            && self.errors.len() < MAX_ERRORS
        {
            self.errors.push(FieldError::format(at, bad));
        }
    }

    fn items(&mut self, ty: &Type, items: &[Value], is_set: bool, at: &str) {
        if items.len() > MAX_ITEMS {
            let message = format!("the list has {} entries", items.len());
            return self.push(at, FieldCode::TooLarge, message, format!("at most {MAX_ITEMS}"));
        }
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let here = pointer::child(at, &index.to_string());
            self.value(ty, item, &here);
            if is_set && !seen.insert(crate::diff::canonical(ty, item)) {
                self.push(&here, FieldCode::Duplicate, format!("{item} is there twice"), "each once");
            }
        }
    }

    fn map(&mut self, key_type: &Type, ty: &Type, map: &Map<String, Value>, at: &str) {
        if map.len() > MAX_ITEMS {
            let message = format!("there are {} entries", map.len());
            return self.push(at, FieldCode::TooLarge, message, format!("at most {MAX_ITEMS}"));
        }
        for (key, item) in map {
            let here = pointer::child(at, key);
            if key.is_empty() {
                self.push(&here, FieldCode::Format, "a key is empty", "a name");
                continue;
            }
            self.text(key_type, key, &here);
            self.value(ty, item, &here);
        }
    }

    /// A secret in its read form, which keeps the stored one.
    fn read_form(&mut self, map: &Map<String, Value>, at: &str) {
        let is_read_form = map.get("set") == Some(&Value::Bool(true))
            && map.iter().all(|(key, value)| key == "set" || (key == "revision" && value.is_u64()));
        if !is_read_form {
            self.push(
                at,
                FieldCode::Type,
                "this is neither a secret nor the form in which one is read",
                r#"a text to set it, null to clear it, or {"set": true} to keep it"#,
            );
        }
    }

    fn wrong_type(&mut self, at: &str, expected: &str, found: &Value) {
        let found = match found {
            Value::Null => "null".to_owned(),
            Value::Bool(b) => b.to_string(),
            Value::Number(n) => format!("the number {n}"),
            Value::String(s) => format!("the text {}", quoted(s)),
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
        };
        self.push(at, FieldCode::Type, format!("{found} is not {expected}"), format!("write {expected}"));
    }

    fn push(&mut self, at: &str, code: FieldCode, message: impl Into<String>, hint: impl Into<String>) {
        if self.errors.len() >= MAX_ERRORS {
            return;
        }
        self.errors.push(FieldError::new(at, code, message, hint));
    }
}

/// Checks the form of `text` at `at`: a field's value, or the key of an entry.
fn form(ty: &Type, text: &str, at: &str) -> Result<(), BadValue> {
    match ty {
        Type::Enum(words) if !words.contains(&text) => {
            let steps: Vec<String> =
                pointer::steps(at).filter(|step| step.parse::<usize>().is_err()).collect();
            let field = steps.iter().rev().find(|step| *step != text).map_or("", String::as_str);
            Err(BadValue::word(field, text, words))
        }
        Type::Semantic(semantic) => semantic.canonical(text).map(drop),
        Type::Ref(kind) => Kind::find(kind).map_or(Ok(()), |kind| kind.naming.check(text)),
        _ => Ok(()),
    }
}
