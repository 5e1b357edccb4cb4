//! The types of values, and their JSON form in the protocol.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::json;

use crate::value::Val;

/// A type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// `true` or `false`.
    Bool,
    /// A number of any size.
    Number,
    /// A text of any length.
    String,
    /// Elements in order.
    List(Box<Type>),
    /// Elements in no order; none twice.
    Set(Box<Type>),
    /// Elements by key.
    Map(Box<Type>),
    /// Attributes by name, always all of them.
    Object(BTreeMap<String, Type>),
    /// A fixed number of elements, each of its own type.
    Tuple(Vec<Type>),
    /// Any type: the value is null, unknown or a [`Val::Dynamic`].
    Dynamic,
}

impl Type {
    /// A list of `element`.
    #[must_use]
    pub fn list(element: Self) -> Self {
        Self::List(Box::new(element))
    }

    /// A set of `element`.
    #[must_use]
    pub fn set(element: Self) -> Self {
        Self::Set(Box::new(element))
    }

    /// A map of `element`.
    #[must_use]
    pub fn map(element: Self) -> Self {
        Self::Map(Box::new(element))
    }

    /// The protocol's JSON spelling of the type, such as `["list","string"]`.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Bool => json!("bool"),
            Self::Number => json!("number"),
            Self::String => json!("string"),
            Self::List(element) => json!(["list", element.to_json()]),
            Self::Set(element) => json!(["set", element.to_json()]),
            Self::Map(element) => json!(["map", element.to_json()]),
            Self::Object(attributes) => {
                let attributes: serde_json::Map<_, _> =
                    attributes.iter().map(|(name, of)| (name.clone(), of.to_json())).collect();
                json!(["object", attributes])
            }
            Self::Tuple(elements) => json!(["tuple", elements.iter().map(Self::to_json).collect::<Vec<_>>()]),
            Self::Dynamic => json!("dynamic"),
        }
    }

    /// Reads the protocol's JSON spelling of a type. `None` if the JSON is not a type.
    #[must_use]
    pub fn from_json(json: &serde_json::Value) -> Option<Self> {
        match json.as_str() {
            Some("bool") => return Some(Self::Bool),
            Some("number") => return Some(Self::Number),
            Some("string") => return Some(Self::String),
            Some("dynamic") => return Some(Self::Dynamic),
            _ => {}
        }
        let (sort, inner) = (json.get(0)?.as_str()?, json.get(1)?);
        Some(match sort {
            "list" => Self::list(Self::from_json(inner)?),
            "set" => Self::set(Self::from_json(inner)?),
            "map" => Self::map(Self::from_json(inner)?),
            "object" => {
                let attributes = inner.as_object()?.iter();
                let attributes = attributes.map(|(name, of)| Some((name.clone(), Self::from_json(of)?)));
                Self::Object(attributes.collect::<Option<_>>()?)
            }
            "tuple" => Self::Tuple(inner.as_array()?.iter().map(Self::from_json).collect::<Option<_>>()?),
            _ => return None,
        })
    }

    /// True if the type contains a collection whose elements may have different types.
    pub(crate) fn has_open_elements(&self) -> bool {
        match self {
            Self::Bool | Self::Number | Self::String | Self::Dynamic => false,
            Self::List(of) | Self::Set(of) | Self::Map(of) => of.is_open(),
            Self::Object(attributes) => attributes.values().any(Self::has_open_elements),
            Self::Tuple(elements) => elements.iter().any(Self::has_open_elements),
        }
    }

    /// The value, made [`Val::Dynamic`] in each part whose type is [`Type::Dynamic`].
    pub(crate) fn lift(&self, value: Val) -> Val {
        match (self, value) {
            (Self::Dynamic, value) => value.dynamic(),
            (Self::Object(attributes), Val::Map(items)) => {
                let lifted = items.into_iter().map(|(name, item)| match attributes.get(&name) {
                    Some(of) => (name, of.lift(item)),
                    None => (name, item),
                });
                Val::Map(lifted.collect())
            }
            (Self::Tuple(elements), Val::List(items)) if elements.len() == items.len() => {
                Val::List(elements.iter().zip(items).map(|(of, item)| of.lift(item)).collect())
            }
            (_, value) => value,
        }
    }

    /// True if the type contains [`Type::Dynamic`], so that the value has to bring its own type
    /// there.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Bool | Self::Number | Self::String => false,
            Self::List(of) | Self::Set(of) | Self::Map(of) => of.is_open(),
            Self::Object(attributes) => attributes.values().any(Self::is_open),
            Self::Tuple(elements) => elements.iter().any(Self::is_open),
            Self::Dynamic => true,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Number => f.write_str("number"),
            Self::String => f.write_str("string"),
            Self::List(element) => write!(f, "list of {element}"),
            Self::Set(element) => write!(f, "set of {element}"),
            Self::Map(element) => write!(f, "map of {element}"),
            Self::Object(_) => f.write_str("object"),
            Self::Tuple(_) => f.write_str("tuple"),
            Self::Dynamic => f.write_str("any value with its type"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_read_as_it_is_written() {
        let object = Type::Object([("a".to_owned(), Type::set(Type::Number))].into());
        let tuple = Type::Tuple(vec![Type::Dynamic, object.clone()]);
        for whole in [Type::Bool, Type::list(Type::map(Type::String)), object, tuple] {
            assert_eq!(Type::from_json(&whole.to_json()), Some(whole));
        }
        for json in [json!("any"), json!(["list"]), json!(["bag", "string"]), json!(["tuple", "string"])] {
            assert_eq!(Type::from_json(&json), None, "{json}");
        }
    }
}
