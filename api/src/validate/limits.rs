//! How large a spec may be. Checked before anything else looks at it.

use crate::problem::{FieldCode, FieldError};
use serde_json::Value;

/// Largest spec, in bytes of compact JSON.
pub const MAX_SPEC_BYTES: usize = 1 << 20;
/// Deepest nesting of objects and arrays; no description comes near it.
pub const MAX_DEPTH: usize = 16;
/// Most entries of one list, set or map.
pub const MAX_ITEMS: usize = 4096;
/// Longest line of text, in bytes.
pub const MAX_STRING_BYTES: usize = 4096;
/// Longest text of several lines, in bytes.
pub const MAX_TEXT_BYTES: usize = 256 << 10;

pub(super) fn check(spec: &Value) -> Result<(), FieldError> {
    match measure(spec, 0) {
        Some(bytes) if bytes <= MAX_SPEC_BYTES => Ok(()),
        Some(bytes) => Err(FieldError::new(
            "",
            FieldCode::TooLarge,
            format!("the spec has {bytes} bytes"),
            format!("at most {MAX_SPEC_BYTES}"),
        )),
        None => Err(FieldError::new(
            "",
            FieldCode::TooLarge,
            format!("the spec is nested more than {MAX_DEPTH} levels deep"),
            "no field needs that",
        )),
    }
}

/// Bytes of `value` as compact JSON, escapes not counted; `None` when it is too deep.
fn measure(value: &Value, depth: usize) -> Option<usize> {
    if depth > MAX_DEPTH {
        return None;
    }
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(8),
        Value::String(text) => Some(text.len() + 2),
        Value::Array(items) => {
            items.iter().try_fold(2, |sum, item| Some(sum + 1 + measure(item, depth + 1)?))
        }
        Value::Object(map) => {
            map.iter().try_fold(2, |sum, (key, item)| Some(sum + key.len() + 4 + measure(item, depth + 1)?))
        }
    }
}
