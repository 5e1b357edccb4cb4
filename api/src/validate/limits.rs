//! Limits for the size of a spec. They are checked before any other rule.

use crate::pointer;
use crate::problem::{FieldCode, FieldError};
use serde_json::Value;

/// Largest spec, in bytes of compact JSON.
pub const MAX_SPEC_BYTES: usize = 1 << 20;
/// Deepest nesting of objects and arrays. No description comes near it.
pub const MAX_DEPTH: usize = 16;
/// Most entries of one list, set or map.
pub const MAX_ITEMS: usize = 4096;
/// Longest line of text, in bytes.
pub const MAX_STRING_BYTES: usize = 4096;
/// Longest name of a field or key of a map, in bytes. An error about a value below repeats the name, so it must be short.
const MAX_KEY_BYTES: usize = 1024;
/// Longest text of several lines, in bytes.
pub const MAX_TEXT_BYTES: usize = 256 << 10;

pub(super) fn check(spec: &Value) -> Result<(), FieldError> {
    let too_large = |message, hint: String| Err(FieldError::new("", FieldCode::TooLarge, message, hint));
    match measure(spec, 0) {
        Ok(bytes) if bytes <= MAX_SPEC_BYTES => Ok(()),
        Ok(bytes) => too_large(format!("the spec has {bytes} bytes"), format!("at most {MAX_SPEC_BYTES}")),
        Err(Excess::Depth) => too_large(
            format!("the spec is nested more than {MAX_DEPTH} levels deep"),
            "no field needs that".to_owned(),
        ),
        Err(Excess::Key { bytes, at }) => Err(FieldError::new(
            at,
            FieldCode::TooLarge,
            format!("a name here has {bytes} bytes"),
            format!("at most {MAX_KEY_BYTES}"),
        )),
    }
}

/// A limit that was exceeded, other than the size in bytes.
enum Excess {
    Depth,
    /// A name of this many bytes in the object at this pointer.
    Key {
        bytes: usize,
        at: String,
    },
}

impl Excess {
    fn below(self, step: &str) -> Self {
        match self {
            Self::Key { bytes, at } => Self::Key { bytes, at: pointer::child("", step) + &at },
            Self::Depth => Self::Depth,
        }
    }
}

/// Bytes of `value` as compact JSON, without escapes.
fn measure(value: &Value, depth: usize) -> Result<usize, Excess> {
    if depth > MAX_DEPTH {
        return Err(Excess::Depth);
    }
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(8),
        Value::String(text) => Ok(text.len() + 2),
        Value::Array(items) => items.iter().enumerate().try_fold(2, |sum, (index, item)| {
            let bytes = measure(item, depth + 1).map_err(|excess| excess.below(&index.to_string()))?;
            Ok(sum + 1 + bytes)
        }),
        Value::Object(map) => map.iter().try_fold(2, |sum, (key, item)| match key.len() {
            bytes if bytes > MAX_KEY_BYTES => Err(Excess::Key { bytes, at: String::new() }),
            bytes => Ok(sum + bytes + 4 + measure(item, depth + 1).map_err(|excess| excess.below(key))?),
        }),
    }
}
