//! JSON as it stands in state files.

use serde_json::Value;

use super::CodecError;
use crate::path::Path;
use crate::value::{Num, Object, Type, Val};

pub(crate) fn decode(bytes: &[u8], of: &Type) -> Result<Val, CodecError> {
    from_json(&serde_json::from_slice(bytes)?, of)
}

/// Reads a state. Attributes that the type does not have are dropped, those that it has and the
/// state lacks are null: that is all the migration which most changes of a schema need.
pub(crate) fn from_json(value: &Value, of: &Type) -> Result<Val, CodecError> {
    read(value, of, &Path::root())
}

fn read(value: &Value, of: &Type, at: &Path) -> Result<Val, CodecError> {
    Ok(match (value, of) {
        (Value::Null, _) => Val::Null,
        (Value::Bool(value), Type::Bool) => Val::Bool(*value),
        (Value::Number(value), Type::Number) => {
            let text = value.to_string();
            match Num::parse(&text) {
                Some(value) => Val::Num(value),
                None => {
                    return Err(CodecError::Number { at: at.clone(), text });
                }
            }
        }
        (Value::String(text), Type::String) => Val::Str(text.clone()),
        (Value::Array(items), Type::List(element) | Type::Set(element)) => Val::List(
            items
                .iter()
                .enumerate()
                .map(|(i, item)| read(item, element, &at.index(i)))
                .collect::<Result<_, _>>()?,
        ),
        (Value::Object(items), Type::Map(element)) => Val::Map(
            items
                .iter()
                .map(|(key, item)| Ok((key.clone(), read(item, element, &at.key(key))?)))
                .collect::<Result<Object, CodecError>>()?,
        ),
        (Value::Object(items), Type::Object(attributes)) => Val::Map(
            attributes
                .iter()
                .map(|(name, of)| {
                    let item = items.get(name).unwrap_or(&Value::Null);
                    Ok((name.clone(), read(item, of, &at.attr(name))?))
                })
                .collect::<Result<Object, CodecError>>()?,
        ),
        (other, of) => {
            return Err(CodecError::Mismatch {
                at: at.clone(),
                want: of.clone(),
                got: match other {
                    Value::Null => "null",
                    Value::Bool(_) => "a bool",
                    Value::Number(_) => "a number",
                    Value::String(_) => "text",
                    Value::Array(_) => "an array",
                    Value::Object(_) => "an object",
                }
                .to_owned(),
            });
        }
    })
}

/// Writes a value; what is unknown becomes null, for JSON has no word for it.
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
}
