//! Values to and from bytes: msgpack on the wire, JSON in state files.
//!
//! Neither encoding contains the type of a value: a set arrives as an array, a large number as
//! text, an unknown value as an extension with any number. So decoding needs the expected [`Type`].

pub(crate) mod json;
pub(crate) mod msgpack;

use crate::path::Path;
use crate::pb;
use crate::types::Type;
use crate::value::Val;

/// An error in the encoding of a value, or a value of the wrong type.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The bytes are not msgpack.
    #[error("bytes are not msgpack: {0}")]
    Msgpack(String),
    /// The bytes are not JSON.
    #[error("bytes are not JSON")]
    Json(#[from] serde_json::Error),
    /// The value is well formed but has another type.
    #[error("{at}: {want} expected, {got} found")]
    Mismatch {
        /// Path of the value.
        at: Path,
        /// The expected type.
        want: Type,
        /// The kind of the value.
        got: String,
    },
    /// The text of a number that cannot be read as one.
    #[error("{at}: {text:?} is not a number")]
    Number {
        /// Path of the value.
        at: Path,
        /// The text in place of a number.
        text: String,
    },
    /// An object that lacks an attribute.
    #[error("{at}: the attribute is missing")]
    Missing {
        /// Path of the missing attribute.
        at: Path,
    },
}

impl Val {
    /// Reads a value of this type from the wire's encoding.
    ///
    /// # Errors
    /// The bytes are not msgpack, or encode a value of another type.
    pub fn from_msgpack(bytes: &[u8], of: &Type) -> Result<Self, CodecError> {
        msgpack::decode(bytes, of)
    }

    /// The value in the wire's encoding.
    #[must_use]
    pub fn to_msgpack(&self) -> Vec<u8> {
        msgpack::encode(self)
    }

    /// Reads a value of this type from the JSON of a state file.
    ///
    /// # Errors
    /// The bytes are not JSON, or encode a value of another type.
    pub fn from_json(bytes: &[u8], of: &Type) -> Result<Self, CodecError> {
        json::decode(bytes, of)
    }
}

/// Reads what Terraform sent. An absent message, or one without content, is null.
pub(crate) fn decode(value: Option<&pb::DynamicValue>, of: &Type) -> Result<Val, CodecError> {
    match value {
        Some(value) if !value.msgpack.is_empty() => msgpack::decode(&value.msgpack, of),
        Some(value) if !value.json.is_empty() => json::decode(&value.json, of),
        _ => Ok(Val::Null),
    }
}

/// Encodes a value for Terraform.
pub(crate) fn encode(value: &Val) -> pb::DynamicValue {
    pb::DynamicValue { msgpack: msgpack::encode(value), json: Vec::new() }
}
