//! Schemas of requests and answers, from their types. `#[derive(Shape)]` implements the traits.

use super::schemas::{form, nullable};
use crate::kinds::RoleBase;
use crate::schema::{MAX_INT, Semantic};
use crate::values::{self, Name};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub use super::schemas::reference;

/// A type of values in requests and answers.
pub trait Shape {
    /// The schema of a member with such a value.
    fn shape() -> Value;
}

/// A struct with a schema of its own in the document.
pub trait Component: Shape {
    /// The name of the schema.
    const NAME: &'static str;
    /// The schema under that name.
    fn component() -> Value;
}

/// An object with these members: name, required, nullable, schema. A request may have no others.
pub fn members<const N: usize>(is_request: bool, members: [(&str, bool, bool, Value); N]) -> Value {
    let required: Vec<&str> = members.iter().filter(|it| it.1).map(|it| it.0).collect();
    let of = |(name, _, may_be_null, schema): (&str, bool, bool, Value)| {
        (name.to_owned(), if may_be_null { nullable(schema) } else { schema })
    };
    let properties: Map<String, Value> = members.into_iter().map(of).collect();
    let mut object = json!({"type": "object", "required": required, "properties": properties});
    if let (true, Some(object)) = (is_request, object.as_object_mut()) {
        object.insert("additionalProperties".to_owned(), json!(false));
    }
    object
}

/// One of these words.
#[must_use]
pub fn one_of(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

macro_rules! shapes {
    ($($($ty:ty),+ => $value:expr;)*) => {$($(
        impl Shape for $ty {
            fn shape() -> Value {
                $value
            }
        }
    )+)*};
}

shapes! {
    bool => json!({"type": "boolean"});
    String, Name => json!({"type": "string"});
    i64 => json!({"type": "integer"});
    u16, u32, u64, values::Generation, values::Attempt =>
        json!({"type": "integer", "minimum": 0, "maximum": MAX_INT});
    RoleBase => one_of(RoleBase::WORDS);
    crate::Object => reference("Object");
    f64 => json!({"type": "number"});
    Value => json!({});
    Map<String, Value> => json!({"type": "object"});
    values::Uid, values::OperationId, values::Incarnation => form(Semantic::Uid);
    values::Timestamp => form(Semantic::Timestamp);
    values::Duration => form(Semantic::Duration);
    values::Sha256 => form(Semantic::Sha256);
    values::Mac => form(Semantic::Mac);
    values::Duid => form(Semantic::Duid);
    std::net::IpAddr => form(Semantic::Ip);
}

impl<T: Shape> Shape for Vec<T> {
    fn shape() -> Value {
        json!({"type": "array", "items": T::shape()})
    }
}

impl<T: Shape> Shape for BTreeSet<T> {
    fn shape() -> Value {
        Vec::<T>::shape()
    }
}

impl<T: Shape> Shape for BTreeMap<String, T> {
    fn shape() -> Value {
        json!({"type": "object", "additionalProperties": T::shape()})
    }
}
