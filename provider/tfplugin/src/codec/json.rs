//! The JSON encoding of values in state files.
//!
//! Values are read from the JSON text itself: a [`Value`] would round numbers to the precision of a double.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::CodecError;
use crate::number::Num;
use crate::path::Path;
use crate::types::Type;
use crate::value::{Dynamic, Object, Val};

/// Maximum depth of dynamic values inside each other. Only a malicious state has more.
const MOST_INSIDE: u8 = 32;

/// Reads a state. Attributes that the type does not have are dropped, and attributes that the state lacks are
/// null. Most changes of a schema need no other migration.
pub(crate) fn decode(bytes: &[u8], of: &Type) -> Result<Val, CodecError> {
    read(serde_json::from_slice(bytes)?, of, &Path::root(), 0)
}

/// Like [`decode`], for JSON that is already parsed.
pub(crate) fn from_json(value: &Value, of: &Type) -> Result<Val, CodecError> {
    read(&to_raw_value(value)?, of, &Path::root(), 0)
}

/// Reads a value. `inside` is the number of dynamic values around it.
fn read(raw: &RawValue, of: &Type, at: &Path, inside: u8) -> Result<Val, CodecError> {
    let text = raw.get();
    let got = match (text.as_bytes().first(), of) {
        (Some(b'n'), _) => return Ok(Val::Null),
        (Some(b't' | b'f'), Type::Bool) => return Ok(Val::Bool(text == "true")),
        (Some(b'"'), Type::String) => return Ok(Val::Str(serde_json::from_str(text)?)),
        (Some(b'-' | b'0'..=b'9'), Type::Number) => {
            let wrong = || CodecError::Number { at: at.clone(), text: text.to_owned() };
            return Num::parse(text).map(Val::Num).ok_or_else(wrong);
        }
        (Some(b'['), Type::List(element) | Type::Set(element)) => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            let items =
                items.into_iter().enumerate().map(|(i, item)| read(item, element, &at.index(i), inside));
            return items.collect::<Result<_, _>>().map(Val::List);
        }
        (Some(b'{'), Type::Map(element)) => {
            let items: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
            let items = items.into_iter().map(|(key, item)| {
                let item = read(item, element, &at.key(&key), inside)?;
                Ok((key, item))
            });
            return items.collect::<Result<Object, _>>().map(Val::Map);
        }
        (Some(b'{'), Type::Object(attributes)) => {
            let items: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
            let attributes = attributes.iter().map(|(name, of)| {
                let item = items.get(name).map(|item| read(item, of, &at.attr(name), inside));
                Ok((name.clone(), item.transpose()?.unwrap_or_default()))
            });
            return attributes.collect::<Result<Object, _>>().map(Val::Map);
        }
        (Some(b'['), Type::Tuple(elements)) => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            if items.len() == elements.len() {
                let items = items.into_iter().zip(elements).enumerate();
                let items = items.map(|(i, (item, of))| read(item, of, &at.index(i), inside));
                return items.collect::<Result<_, _>>().map(Val::List);
            }
            "an array of another length"
        }
        (Some(b'{'), Type::Dynamic) if inside < MOST_INSIDE => {
            let items: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
            let of = items.get("type").map(|of| serde_json::from_str(of.get())).transpose()?;
            if let (Some(of), Some(value)) = (of.and_then(|of| Type::from_json(&of)), items.get("value")) {
                let value = read(value, &of, at, inside + 1)?;
                return Ok(Val::Dynamic(Box::new(Dynamic { of, value })));
            }
            "an object"
        }
        (Some(b't' | b'f'), _) => "a bool",
        (Some(b'"'), _) => "text",
        (Some(b'['), _) => "an array",
        (Some(b'{'), _) => "an object",
        _ => "a number",
    };
    Err(CodecError::Mismatch { at: at.clone(), want: of.clone(), got: got.to_owned() })
}

/// Writes a value. Unknown values become null, because JSON cannot express them.
pub(crate) fn to_json(value: &Val) -> Value {
    match value {
        Val::Null | Val::Unknown => Value::Null,
        Val::Bool(value) => Value::Bool(*value),
        Val::Num(Num::Int(value)) => Value::from(*value),
        Val::Num(Num::Dec(text)) => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()))
        }
        Val::Str(text) => Value::String(text.clone()),
        Val::List(items) => Value::Array(items.iter().map(to_json).collect()),
        Val::Map(items) => {
            Value::Object(items.iter().map(|(key, item)| (key.clone(), to_json(item))).collect())
        }
        Val::Dynamic(it) => json!({"value": to_json(&it.value), "type": it.of.to_json()}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_state_loses_what_is_gone_and_gets_null_for_what_is_new() {
        let of = Type::Object(
            [("name".to_owned(), Type::String), ("ports".to_owned(), Type::set(Type::Number))].into(),
        );
        let state = json!({"name": "web", "colour": "red"});
        assert_eq!(
            from_json(&state, &of).expect("a state"),
            Val::from([("name", "web".into()), ("ports", Val::Null)])
        );
    }

    #[test]
    fn numbers_keep_all_their_digits() {
        let of = Type::list(Type::Number);
        let state = br#"[ 0.1234567890123456789, 36893488147419103233,-1e3 , 7 ]"#;
        assert_eq!(
            decode(state, &of).expect("numbers").to_string(),
            "[0.1234567890123456789, 36893488147419103233, -1000, 7]"
        );
    }

    #[test]
    fn what_is_not_of_its_type_is_told_with_its_place() {
        let of = Type::Object([("ports".to_owned(), Type::map(Type::set(Type::Number)))].into());
        for (state, want) in [
            (r#"{"ports": {"a": [1, "2"]}}"#, "ports[\"a\"][1]: number expected, text found"),
            (r#"{"ports": {"a": true}}"#, "ports[\"a\"]: set of number expected, a bool found"),
            (r#"{"ports": [1]}"#, "ports: map of set of number expected, an array found"),
            (r#"{"ports": 1}"#, "ports: map of set of number expected, a number found"),
            (r#"{"ports": {"a": [{}]}}"#, "ports[\"a\"][0]: number expected, an object found"),
            (r#"{"ports": {"a": [1e9999]}}"#, "ports[\"a\"][0]: \"1e9999\" is not a number"),
            (r#"{"ports": "#, "bytes are not JSON"),
        ] {
            assert_eq!(decode(state.as_bytes(), &of).expect_err(state).to_string(), want);
        }
        assert_eq!(decode(b" null ", &of).expect("nothing"), Val::Null);
        let deep = r#"{"type":"dynamic","value":"#.repeat(100_000) + "null" + &"}".repeat(100_000);
        let error = decode(deep.as_bytes(), &Type::Dynamic).expect_err("it has no end");
        assert_eq!(error.to_string(), ": any value with its type expected, an object found");
    }
}
