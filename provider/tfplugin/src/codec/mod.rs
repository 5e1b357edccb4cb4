//! Values to and from bytes: msgpack on the wire, JSON in state files.
//!
//! Neither encoding says what a value is (a set arrives as an array, a large number as text, an
//! unknown as an extension of any number), so decoding follows the [`Type`] that is expected.

pub(crate) mod json;
pub(crate) mod msgpack;

use crate::path::Path;
use crate::pb;
use crate::types::Type;
use crate::value::Val;

/// A value that is not what its type says.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The bytes are not msgpack.
    #[error("bytes are not msgpack: {0}")]
    Msgpack(String),
    /// The bytes are not JSON.
    #[error("bytes are not JSON")]
    Json(#[from] serde_json::Error),
    /// The value is well formed and of another type.
    #[error("{at}: {want} expected, {got} found")]
    Mismatch {
        /// Where.
        at: Path,
        /// The type that belongs there.
        want: Type,
        /// What stands there.
        got: String,
    },
    /// A number that is none.
    #[error("{at}: {text:?} is not a number")]
    Number {
        /// Where.
        at: Path,
        /// What stands there.
        text: String,
    },
    /// An object that lacks an attribute.
    #[error("{at}: the attribute is missing")]
    Missing {
        /// Where it should be.
        at: Path,
    },
}

impl Val {
    /// Reads a value of this type as it is on the wire.
    ///
    /// # Errors
    /// The bytes are not msgpack, or say something else.
    pub fn from_msgpack(bytes: &[u8], of: &Type) -> Result<Self, CodecError> {
        msgpack::decode(bytes, of)
    }

    /// The value as it is on the wire.
    #[must_use]
    pub fn to_msgpack(&self) -> Vec<u8> {
        msgpack::encode(self)
    }

    /// Reads a value of this type as it is in a state file.
    ///
    /// # Errors
    /// The bytes are not JSON, or say something else.
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

/// Writes what Terraform is to get.
pub(crate) fn encode(value: &Val) -> pb::DynamicValue {
    pb::DynamicValue { msgpack: msgpack::encode(value), json: Vec::new() }
}
